//! Writing logs: one event a line, or the packed rows of DeepSeek Harness.

use std::io::{self, Write};

use super::rows;
use crate::event::envelope::{RunLines, SourceList, write_line, write_line_as};
use crate::event::limits::MIN_RUN_EVENTS;
use crate::event::{ChunkRun, Event, Item, SessionHeader};

/// Lines of a run that are written at once.
const PIECE_BYTES: usize = 32 * 1024;

/// Writes a session as JSON lines: the header, then every event in the fixed member order. [`super::Import`] reads it back
/// identically.
///
/// Nothing is buffered but one line, of a run 32 KiB of lines; wrap slow outputs in a [`std::io::BufWriter`].
#[derive(Debug)]
pub struct JsonlWriter<W> {
    out: W,
    line: String,
}

impl<W: Write> JsonlWriter<W> {
    /// Writes the header line.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(out: W, header: &SessionHeader) -> io::Result<Self> {
        let mut writer = Self { out, line: header.to_line() };
        writer.write_out()?;
        Ok(writer)
    }

    /// Writes the next event.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        write_line(event, &mut self.line);
        self.write_out()
    }

    /// Writes the events of the next item.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn item(&mut self, item: &Item) -> io::Result<()> {
        match item {
            Item::Event(event) => self.event(event),
            Item::Run(run) => {
                let mut lines = RunLines::of(run);
                while lines.next_into(&mut self.line) {
                    if self.line.len() >= PIECE_BYTES {
                        self.write_piece()?;
                    }
                }
                self.write_piece()
            }
        }
    }

    /// Flushes the output and gives it back.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }

    fn write_piece(&mut self) -> io::Result<()> {
        let written = self.out.write_all(self.line.as_bytes());
        self.line.clear();
        written
    }

    fn write_out(&mut self) -> io::Result<()> {
        self.line.push('\n');
        let written = self.out.write_all(self.line.as_bytes());
        self.line.clear();
        written
    }
}

/// Writes a session as DeepSeek Harness stores it: a format 0 header that states `delegationDepth`, and a packed row for every
/// run of at least three deltas (P3). Every line is one write, so [`super::ZstdLines`] as the output makes the `.jsonl.zstd`
/// form that the harness loads.
#[derive(Debug)]
pub struct DshWriter<W> {
    out: W,
    line: String,
    run: Option<ChunkRun>,
    sources: SourceList,
}

impl<W: Write> DshWriter<W> {
    /// Writes the header line.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(out: W, header: &SessionHeader) -> io::Result<Self> {
        let mut header = header.clone();
        header.version = 0;
        header.delegation_depth.get_or_insert(0);
        let mut writer = Self { out, line: header.to_line(), run: None, sources: SourceList::Plain };
        writer.write_out()?;
        Ok(writer)
    }

    /// Spells three consecutive source seqs and more as one `[start,end]` pair. Shorter, but releases of the harness from
    /// before such pairs refuse the log; plain lists, which all take, are what is written otherwise.
    pub fn source_ranges(mut self, ranges: bool) -> Self {
        self.sources = if ranges { SourceList::Ranges } else { SourceList::Plain };
        self
    }

    /// Takes the next event; a delta is written once its run has ended.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        if let Some(delta) = ChunkRun::of(event) {
            return self.run(&delta);
        }
        self.end_run()?;
        write_line_as(event, self.sources, &mut self.line);
        self.write_out()
    }

    /// Takes the next item. Runs that continue each other become one row, up to the size that this crate keeps runs to.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn item(&mut self, item: &Item) -> io::Result<()> {
        match item {
            Item::Event(event) => self.event(event),
            Item::Run(run) => self.run(run),
        }
    }

    /// Writes what is left, flushes the output and gives it back.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn finish(mut self) -> io::Result<W> {
        self.end_run()?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn run(&mut self, next: &ChunkRun) -> io::Result<()> {
        for (seq, (time, body)) in (next.first_seq()..).zip(next.deltas()) {
            match &mut self.run {
                Some(run) if run.accepts(next.head(), seq, time, body) => run.push_unchecked(time, body),
                _ => {
                    self.end_run()?;
                    self.run = Some(ChunkRun::start(std::sync::Arc::clone(next.head()), seq, time, body));
                }
            }
        }
        Ok(())
    }

    fn end_run(&mut self) -> io::Result<()> {
        let Some(run) = self.run.take() else { return Ok(()) };
        if run.len() >= MIN_RUN_EVENTS as u64 {
            rows::write(&run, &mut self.line);
            return self.write_out();
        }
        run.events().try_for_each(|event| {
            write_line(&event, &mut self.line);
            self.write_out()
        })
    }

    fn write_out(&mut self) -> io::Result<()> {
        self.line.push('\n');
        let written = self.out.write_all(self.line.as_bytes());
        self.line.clear();
        written
    }
}
