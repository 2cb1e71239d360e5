//! `export`: a session as a file for other programs and for people.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use sessionlog::backend::{Backend, Opened, ReadLimit};
use sessionlog::event::{Item, SessionHeader, SessionId, Vocabulary};
use sessionlog::interop::{DshWriter, JsonlWriter, Redactor, ZstdLines};
use sessionlog::segment::SegmentBackend;

use super::failure::Failure;
use super::markdown::{MarkdownWriter, Outline};
use super::output::{Output, complain, one_line};
use super::replacement::Replacement;
use super::{progress, store};

/// Most foreign event types that a note names.
const MOST_NAMED: usize = 5;

/// What `export` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The header and one event per line, payloads byte for byte
    Jsonl,
    /// The same with packed rows for streamed deltas, as DeepSeek Harness reads it
    Dsh,
    /// The log file of DeepSeek Harness: dsh in checksummed zstd frames, the header alone in the first
    DshZstd,
    /// The transcript for people, all messages in log order, what compaction replaced included and marked
    Markdown,
}

#[derive(Debug, Args)]
pub struct Export {
    /// Session id, or an unambiguous beginning of it
    #[arg(value_name = "ID")]
    pub id: String,
    /// What to write
    #[arg(long, value_enum, default_value = "jsonl")]
    pub format: Format,
    /// File to write instead of standard output; it appears whole or not at all, for its owner's eyes only
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// With dsh formats: write three consecutive source seqs and more as a [start,end] pair; older releases refuse those
    #[arg(long)]
    pub source_ranges: bool,
    /// Take secrets out, in every format alike: keys, tokens, PEM blocks, passwords, e-mail addresses, home directories
    ///
    /// Each is replaced by [redacted:KIND:N], one number for one secret; how many is told on standard error. Secrets are
    /// recognised by their form: look through what you publish. The stored session does not change.
    #[arg(long)]
    pub redact: bool,
    /// Also take out what this regular expression matches (of one with a group, the first group); implies --redact; repeatable
    #[arg(long, value_name = "REGEX")]
    pub redact_pattern: Vec<String>,
}

pub async fn run(backend: &SegmentBackend, arguments: &Export, out: &mut Output) -> Result<(), Failure> {
    if arguments.source_ranges && !matches!(arguments.format, Format::Dsh | Format::DshZstd) {
        return Err(Failure::usage("--source-ranges goes with --format dsh and dsh-zstd"));
    }
    let mut redactor = if arguments.redact || !arguments.redact_pattern.is_empty() {
        let redactor = Redactor::new(&arguments.redact_pattern);
        Some(redactor.map_err(|error| Failure::usage(format!("--redact-pattern: {error}")))?)
    } else {
        None
    };
    let id = store::resolve(backend, &arguments.id).await?;
    let path = match &arguments.output {
        Some(path) if path.as_os_str() != "-" => path,
        _ => {
            if arguments.format == Format::DshZstd && out.is_terminal() {
                return Err(Failure::usage("compressed bytes do not go to a terminal; name a file with -o FILE"));
            }
            return write(backend, &id, arguments, redactor.as_mut(), out).await;
        }
    };
    let mut file = Replacement::begin(path)?;
    write(backend, &id, arguments, redactor.as_mut(), &mut file).await?;
    file.finish()
}

/// One session on its way out, in one of the formats.
enum Writer<W: Write> {
    Jsonl(JsonlWriter<W>),
    Dsh(DshWriter<W>),
    DshZstd(DshWriter<ZstdLines<W>>),
    Markdown(MarkdownWriter<W>),
}

impl<W: Write> Writer<W> {
    fn new(out: W, arguments: &Export, header: &SessionHeader, outline: Option<Outline>) -> io::Result<Self> {
        Ok(match (arguments.format, outline) {
            (_, Some(outline)) => Self::Markdown(MarkdownWriter::new(out, header, outline)?),
            (Format::Dsh, None) => Self::Dsh(DshWriter::new(out, header)?.source_ranges(arguments.source_ranges)),
            (Format::DshZstd, None) => {
                let frames = ZstdLines::new(out)?;
                Self::DshZstd(DshWriter::new(frames, header)?.source_ranges(arguments.source_ranges))
            }
            _ => Self::Jsonl(JsonlWriter::new(out, header)?),
        })
    }

    fn item(&mut self, item: &Item) -> io::Result<()> {
        match self {
            Self::Jsonl(writer) => writer.item(item),
            Self::Dsh(writer) => writer.item(item),
            Self::DshZstd(writer) => writer.item(item),
            Self::Markdown(writer) => writer.item(item),
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Self::Jsonl(writer) => writer.finish().map(drop),
            Self::Dsh(writer) => writer.finish().map(drop),
            Self::DshZstd(writer) => writer.finish().and_then(ZstdLines::finish).map(drop),
            Self::Markdown(writer) => writer.finish().map(drop),
        }
    }
}

async fn write(
    backend: &SegmentBackend,
    id: &SessionId,
    arguments: &Export,
    mut redactor: Option<&mut Redactor>,
    out: &mut impl Write,
) -> Result<(), Failure> {
    // The whole log is checked first: nothing of a damaged one is written.
    let opened = backend.open(id).await?;
    store::note_torn(&opened, id);
    let mut outline = match arguments.format {
        Format::Markdown => Some(Outline::read(backend, id).await?),
        _ => None,
    };
    let mut header = opened.header.clone();
    if let Some(redactor) = &mut redactor {
        header = redactor.header(&header);
        outline.iter_mut().for_each(|outline| outline.redact(redactor));
    }
    let for_harness = matches!(arguments.format, Format::Dsh | Format::DshZstd);
    let writer = Writer::new(out, arguments, &header, outline)?;
    let mut sink = Sink { writer, foreign: for_harness.then(Foreign::default) };
    let bar = bar(&opened, arguments);
    let mut at = Some(0);
    while let Some(seq) = at {
        let page = backend.read(id, seq, ReadLimit::default()).await?;
        for item in page.items {
            match &mut redactor {
                Some(redactor) => redactor.item(item).iter().try_for_each(|item| sink.item(item))?,
                None => sink.item(&item)?,
            }
        }
        at = page.next;
        bar.set_position(at.unwrap_or(opened.head.next_seq));
    }
    if let Some(redactor) = &mut redactor {
        redactor.finish().iter().try_for_each(|item| sink.item(item))?;
    }
    sink.writer.finish()?;
    bar.finish_and_clear();
    sink.foreign.iter().for_each(|foreign| foreign.tell(id));
    if let Some(redactor) = redactor {
        tell_redacted(redactor, id);
    }
    Ok(())
}

/// Where items go.
struct Sink<W: Write> {
    writer: Writer<W>,
    foreign: Option<Foreign>,
}

impl<W: Write> Sink<W> {
    fn item(&mut self, item: &Item) -> io::Result<()> {
        if let Some(foreign) = &mut self.foreign {
            foreign.note(item);
        }
        self.writer.item(item)
    }
}

/// Says what was taken out.
fn tell_redacted(redactor: &Redactor, id: &SessionId) {
    let total: u64 = redactor.counts().values().sum();
    let kinds: Vec<String> = redactor.counts().iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
    complain(&format!("sessionlog: session {id}: {total} places redacted{kinds}; the stored session is as it was"));
    if redactor.emptied_deltas() > 0 {
        complain(&format!(
            "sessionlog: session {id}: {} streamed deltas of steps too large to search lost their text; their messages have it",
            redactor.emptied_deltas()
        ));
    }
}

/// A bar while a file is written or a pipe is fed; a terminal that shows the export itself needs none.
fn bar(opened: &Opened, arguments: &Export) -> ProgressBar {
    if arguments.output.is_none() && io::stdout().is_terminal() {
        return ProgressBar::hidden();
    }
    progress::events(opened.head.next_seq)
}

/// Required events of types that the harness does not publish: it refuses to load a log with one that it does not know.
struct Foreign {
    known: Vocabulary,
    types: Vec<String>,
    events: u64,
}

impl Default for Foreign {
    fn default() -> Self {
        Self { known: Vocabulary::well_known(), types: Vec::new(), events: 0 }
    }
}

impl Foreign {
    fn note(&mut self, item: &Item) {
        let Item::Event(event) = item else { return };
        if self.known.check(event).is_ok() {
            return;
        }
        self.events += 1;
        if self.types.len() <= MOST_NAMED && !self.types.iter().any(|name| name == event.event_type()) {
            self.types.push(event.event_type().to_owned());
        }
    }

    fn tell(&self, id: &SessionId) {
        if self.events == 0 {
            return;
        }
        let mut names: Vec<String> = self.types.iter().take(MOST_NAMED).map(|name| one_line(name)).collect();
        if self.types.len() > MOST_NAMED {
            names.push("..".to_owned());
        }
        complain(&format!(
            "sessionlog: session {id}: {} events are of types that only some plugin of the harness knows ({}); without it the \
             harness refuses the log",
            self.events,
            names.join(", ")
        ));
    }
}
