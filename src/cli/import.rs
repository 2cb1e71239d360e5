//! `import`: recorded logs come in, each whole or not at all.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use serde::Serialize;
use sessionlog::backend::{AppendError, BackendError, ErrorKind, Expected, ReadLimit};
use sessionlog::event::{Batch, Event, Item, SessionHeader, SessionId};
use sessionlog::interop::{
    Comparison, Import as Reading, ImportError, ImportOptions, ImportReport, SourceFormat, compare,
};
use sessionlog::segment::{Engine, SealOptions};

use super::failure::{BUSY_OR_MISSING, Failure, PARTLY_FAILED, status_of};
use super::inputs::{self, Found};
use super::output::{self, Output, complain, one_line};
use super::{progress, store};

#[derive(Debug, Args)]
pub struct Import {
    /// Files to read, or directories whose logs are all read; - is standard input
    ///
    /// A directory stands for every file below it that ends in .jsonl, .jsonl.zstd or .jsonl.zst; links to other directories
    /// are not followed. Of session.jsonl, session.v1.jsonl, session.v2.jsonl.. in one directory the highest number is
    /// taken, whichever was named, and the others are listed.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Store the session under this id instead of its own; for one file
    #[arg(long, value_name = "ID")]
    pub id: Option<String>,
    /// Who wrote the files [default: told by their first records]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub from: Option<Writer>,
}

/// Who wrote a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Writer {
    /// This tool
    Sessionlog,
    /// DeepSeek Harness
    Dsh,
    /// Claude Code (~/.claude/projects)
    ClaudeCode,
    /// OpenAI Codex (~/.codex/sessions)
    Codex,
    /// pi (~/.pi/agent/sessions)
    Pi,
}

impl Writer {
    fn format(self) -> SourceFormat {
        match self {
            Self::Sessionlog | Self::Dsh => SourceFormat::Sessionlog,
            Self::ClaudeCode => SourceFormat::ClaudeCode,
            Self::Codex => SourceFormat::Codex,
            Self::Pi => SourceFormat::Pi,
        }
    }
}

/// How much payload goes into one append, in bytes.
const BATCH_BYTES: usize = 1 << 20;

/// How much of a log is kept in memory so that it need not be read twice, in bytes.
const KEPT_BYTES: usize = 32 << 20;

/// Why one file did not come in.
#[derive(Debug)]
enum Refusal {
    Import(Box<ImportError>),
    Store(Box<BackendError>),
    /// The id is taken by other events.
    Taken(String),
    File(String),
}

impl From<ImportError> for Refusal {
    fn from(error: ImportError) -> Self {
        Self::Import(Box::new(error))
    }
}

impl From<BackendError> for Refusal {
    fn from(error: BackendError) -> Self {
        Self::Store(Box::new(error))
    }
}

impl Refusal {
    fn class(&self) -> &'static str {
        match self {
            Self::Import(error) => error.class(),
            Self::Store(error) => error.kind.name(),
            Self::Taken(_) => "exists",
            Self::File(_) => "file",
        }
    }

    /// What to tell people; it always names the file.
    fn text(&self, file: &str) -> String {
        match self {
            Self::Import(error) => error.to_string(),
            Self::Store(error) => format!("{file}: {}", Failure::from(&**error)),
            Self::Taken(text) | Self::File(text) => format!("{file}: {text}"),
        }
    }

    fn status(&self) -> u8 {
        match self {
            Self::Store(error) => status_of(error.kind),
            _ => PARTLY_FAILED,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Imported,
    Unchanged,
    Extended,
    Refused,
}

const STATUSES: [Status; 4] = [Status::Imported, Status::Unchanged, Status::Extended, Status::Refused];

impl Status {
    fn word(self) -> &'static str {
        match self {
            Self::Imported => "imported",
            Self::Unchanged => "unchanged",
            Self::Extended => "extended",
            Self::Refused => "refused",
        }
    }
}

/// One line of `--json`.
#[derive(Debug, Serialize)]
struct Row<'a> {
    file: String,
    id: Option<&'a str>,
    status: Status,
    events: u64,
    bytes_in: u64,
    bytes_stored: u64,
    /// Older generations of the log, which were not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shadowed: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<ImportReport>,
}

/// What became of one file.
#[derive(Debug, Default)]
struct Outcome {
    id: Option<String>,
    report: Option<ImportReport>,
}

pub fn run(root: &Path, arguments: &Import, json: bool, out: &mut Output) -> Result<(), Failure> {
    let logs = inputs::find(&arguments.files);
    if arguments.id.is_some() && logs.len() > 1 {
        return Err(Failure::usage("--id names one session; give one file with it"));
    }
    if let Some(id) = &arguments.id {
        store::id(id)?;
    }
    let engine = store::open_engine(root)?;
    let mut worst = None;
    let mut closed = false;
    let mut counts = [0_u64; 4];
    for log in &logs {
        let mut outcome = Outcome::default();
        let result = match &log.fault {
            Some(fault) => Err(Refusal::File(fault.clone())),
            None => import_file(&engine, &log.path, arguments, &mut outcome),
        };
        if let Err(refusal) = &result {
            let status = refusal.status();
            // Busy alone is busy; anything refused for another reason is a partial failure.
            worst = Some(if worst.is_none_or(|worst| worst == BUSY_OR_MISSING) { status } else { PARTLY_FAILED });
        }
        let unreadable = outcome.report.as_ref().map_or(0, |report| report.unreadable_lines);
        if result.is_ok() && unreadable > 0 {
            worst = Some(PARTLY_FAILED);
        }
        let status = *result.as_ref().unwrap_or(&Status::Refused);
        counts.iter_mut().zip(STATUSES).filter(|(_, known)| *known == status).for_each(|(count, _)| *count += 1);
        if !closed {
            let printed = print(&engine, log, &outcome, &result, json, out).and_then(|()| Ok(out.flush()?));
            match printed {
                // Nobody listens any more; the rest of the files come in all the same.
                Err(Failure::ClosedPipe) => closed = true,
                printed => printed?,
            }
        }
    }
    if !json && !closed && logs.len() > arguments.files.len() {
        let named = counts.iter().zip(STATUSES).filter(|(count, _)| **count > 0);
        let parts: Vec<String> = named.map(|(count, status)| format!("{count} {}", status.word())).collect();
        out.line(&format!("{} logs: {}", logs.len(), parts.join(", ")))?;
    }
    worst.map_or(Ok(()), |status| Err(Failure::Status(status)))
}

fn print(
    engine: &Engine,
    log: &Found,
    outcome: &Outcome,
    result: &Result<Status, Refusal>,
    json: bool,
    out: &mut Output,
) -> Result<(), Failure> {
    let report = outcome.report.as_ref();
    let events = report.map_or(0, |report| report.events);
    let bytes_in = report.map_or(0, |report| report.bytes_in);
    let id = outcome.id.as_deref();
    let stored = result.is_ok().then(|| id.and_then(|id| SessionId::new(id).ok())).flatten();
    let bytes_stored = stored.and_then(|id| engine.stored_bytes(&id).ok()).unwrap_or(0);
    let shown = log.path.display().to_string();
    let shadowed: Vec<String> = log.shadowed.iter().map(|path| path.display().to_string()).collect();
    if !json {
        match result {
            Ok(status) => {
                let word = status.word();
                let id = one_line(id.unwrap_or_default());
                let events = output::counted(events, "event");
                let (from, to) = (output::bytes(bytes_in), output::bytes(bytes_stored));
                out.line(&format!("{word}  {id}  {events}, {from} -> {to} stored  ({})", one_line(&shown)))?;
                if let Some(note) = report.and_then(note) {
                    out.line(&format!("  {note}"))?;
                }
                if let Some(report) = report.filter(|report| report.unreadable_lines > 0) {
                    out.flush()?;
                    complain(&format!(
                        "damaged  {}: {} lines cannot be read; all others came in, their bytes are kept: sessionlog events {id} --type '*/unreadable'",
                        one_line(&shown),
                        report.unreadable_lines
                    ));
                }
            }
            Err(refusal) => {
                out.flush()?;
                complain(&format!("refused  {}", one_line(&refusal.text(&shown))));
            }
        }
        if !shadowed.is_empty() {
            let names: Vec<String> = shadowed.iter().map(|name| one_line(name)).collect();
            out.line(&format!("  older generations of it, not read: {}", names.join(", ")))?;
        }
        return Ok(());
    }
    let refusal = result.as_ref().err();
    let fault = refusal.and_then(|refusal| match refusal {
        Refusal::Import(error) => Some(error),
        _ => None,
    });
    out.json(&Row {
        id,
        status: *result.as_ref().unwrap_or(&Status::Refused),
        events,
        bytes_in,
        bytes_stored,
        error: refusal.map(|refusal| refusal.text(&shown)),
        file: shown,
        shadowed,
        class: refusal.map(Refusal::class),
        line: fault.map(|error| error.line).filter(|line| *line > 0),
        seq: fault.and_then(|error| error.seq),
        offset: fault.map(|error| error.offset),
        report: report.cloned(),
    })?;
    Ok(())
}

/// What the import filled in or upgraded, for people.
fn note(report: &ImportReport) -> Option<String> {
    let counted = [
        (report.upgraded.total(), "upgraded from an old shape"),
        (report.filled_seq, "without seq took their position"),
        (report.filled_time, "without time took the session's"),
        (report.filled_surface_op, "without surfaceOp were appended to the surface"),
        (report.overlaps_dropped, "repeated word for word were taken once"),
        (report.empty_call_ids, "have an empty call id, kept as it is"),
        (report.repeated_call_ids, "repeat an earlier call's id, kept as it is"),
    ];
    let other = [
        (report.branches, "branches, the last one active"),
        (report.compactions, "compactions"),
        (report.bridged_gaps, "records whose parent was never written, bridged"),
        (report.unrestored_messages, "messages too far back to come again in the branch that was taken up"),
        (u64::from(report.cut_last_line), "last line that breaks off, left out"),
    ];
    let told = |(count, what): &(u64, &str), of: &str| (*count > 0).then(|| format!("{count} {of}{what}"));
    let counted = counted.iter().filter_map(|part| told(part, "events "));
    let parts: Vec<String> = counted.chain(other.iter().filter_map(|part| told(part, ""))).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// An input that can be read twice.
struct Input {
    file: File,
    bytes: u64,
}

impl Input {
    fn open(path: &Path) -> Result<Self, Refusal> {
        let failed = |error: io::Error| Refusal::File(format!("cannot be read: {error}"));
        if path.as_os_str() == "-" {
            return Self::spooled(&mut io::stdin().lock()).map_err(failed);
        }
        let stat = std::fs::metadata(path).map_err(failed)?;
        let mut file = File::open(path).map_err(failed)?;
        if stat.is_file() { Ok(Self { file, bytes: stat.len() }) } else { Self::spooled(&mut file).map_err(failed) }
    }

    /// A pipe cannot be read again: it goes to a nameless file first.
    fn spooled(pipe: &mut impl Read) -> io::Result<Self> {
        let mut file = tempfile::tempfile()?;
        let bytes = io::copy(pipe, &mut file)?;
        Ok(Self { file, bytes })
    }

    fn start(&mut self, options: &ImportOptions) -> Result<Reading<Progress<'_>>, Refusal> {
        let rewound = self.file.seek(SeekFrom::Start(0));
        rewound.map_err(|error| Refusal::File(format!("cannot be read from its start: {error}")))?;
        let bar = progress::bytes(self.bytes);
        Ok(Reading::open(Progress { file: &self.file, bar }, options.clone())?)
    }
}

/// Reads on while a progress bar follows.
struct Progress<'a> {
    file: &'a File,
    bar: ProgressBar,
}

impl Read for Progress<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.bar.inc(count as u64);
        Ok(count)
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn import_file(engine: &Engine, path: &Path, arguments: &Import, outcome: &mut Outcome) -> Result<Status, Refusal> {
    let mut input = Input::open(path)?;
    let mut options = ImportOptions::default().file(path.display().to_string());
    if let Some(id) = &arguments.id {
        options = options.id(id);
    }
    if let Some(writer) = arguments.from {
        options = options.format(writer.format());
    }
    let mut reading = input.start(&options)?;
    let header = reading.header().clone();
    outcome.id = Some(header.id.clone());
    let session = header.session_id().map_err(BackendError::header)?;
    let exists = !matches!(engine.reader(&session), Err(error) if error.kind == ErrorKind::NotFound);
    if !exists {
        let mut kept = None;
        if !engine.root().exists() {
            // Nothing is written for a log that is refused, not even an empty store: the first one is read through before.
            let read = read_and_keep(&mut reading);
            outcome.report = Some(reading.report().clone());
            kept = read?.map(Vec::into_iter);
            if kept.is_none() {
                drop(reading);
                reading = input.start(&options)?;
            }
        }
        let created = engine.create_whole(&header, || match &mut kept {
            Some(batches) => Ok(batches.next()),
            None => reading.next_batch(BATCH_BYTES).map_err(Refusal::from),
        });
        outcome.report = Some(reading.report().clone());
        created?;
        seal(engine, &session);
        return Ok(Status::Imported);
    }
    let comparison = compare_with_stored(engine, &session, &header, &mut reading);
    // The rest is read too: a log that is refused anywhere changes nothing.
    let rest = comparison.and_then(|comparison| {
        read_through(&mut reading)?;
        Ok(comparison)
    });
    outcome.report = Some(reading.report().clone());
    drop(reading);
    match rest? {
        Comparison::Unchanged { .. } => Ok(Status::Unchanged),
        Comparison::Extended { from } => {
            extend(engine, &session, from, &mut input.start(&options)?)?;
            seal(engine, &session);
            Ok(Status::Extended)
        }
        Comparison::Shorter { events } => Err(Refusal::Taken(format!(
            "session {session} is stored already and goes on after these {events} events; nothing to do, or import under another --id"
        ))),
        Comparison::Diverged { seq } => Err(Refusal::Taken(format!(
            "another session is stored under the id {session}: event {seq} differs; import under another --id"
        ))),
    }
}

/// Seals what came in, as a whole. The session is stored without it, too.
fn seal(engine: &Engine, session: &SessionId) {
    if let Err(error) = engine.seal(session, SealOptions::new().level(SealOptions::BACKGROUND_LEVEL)) {
        complain(&format!("sessionlog: imported, but not sealed: {}", output::paragraph(&error.to_string())));
    }
}

/// Reads to the end, for its errors alone.
fn read_through(reading: &mut Reading<Progress<'_>>) -> Result<(), ImportError> {
    while reading.next_item()?.is_some() {}
    Ok(())
}

/// Reads to the end, for its errors; gives what was read if it is little enough to be kept.
fn read_and_keep(reading: &mut Reading<Progress<'_>>) -> Result<Option<Vec<Batch>>, ImportError> {
    let mut kept = Vec::new();
    let mut held: usize = 0;
    while let Some(batch) = reading.next_batch(BATCH_BYTES)? {
        held = batch.items().iter().fold(held, |held, item| held.saturating_add(item.weight()));
        kept.push(batch);
        if held > KEPT_BYTES {
            drop(kept);
            read_through(reading)?;
            return Ok(None);
        }
    }
    Ok(Some(kept))
}

fn compare_with_stored(
    engine: &Engine,
    session: &SessionId,
    header: &SessionHeader,
    reading: &mut Reading<Progress<'_>>,
) -> Result<Comparison, Refusal> {
    let mut reader = engine.reader(session)?;
    // `createdAt` may have been filled from the events, which are compared below; a depth that is not stated is 0, and the harness's
    // rows always state it.
    let facts = |header: &SessionHeader| SessionHeader {
        created_at: None,
        delegation_depth: Some(header.delegation_depth.unwrap_or(0)),
        ..header.clone()
    };
    if facts(reader.header()) != facts(header) {
        return Err(Refusal::Taken(format!(
            "another session is stored under the id {session}: its header differs; import under another --id"
        )));
    }
    let mut items: std::vec::IntoIter<Item> = Vec::new().into_iter();
    let mut events: std::vec::IntoIter<Event> = Vec::new().into_iter();
    let stored = std::iter::from_fn(move || {
        loop {
            if let Some(event) = events.next() {
                return Some(Ok(event));
            }
            if let Some(item) = items.next() {
                events = item.events().collect::<Vec<_>>().into_iter();
                continue;
            }
            match reader.next_page(ReadLimit::default()) {
                Ok(page) if page.items.is_empty() => return None,
                Ok(page) => items = page.items.into_iter(),
                Err(error) => return Some(Err(Refusal::from(error))),
            }
        }
    });
    compare(stored, reading.events().map(|event| event.map_err(Refusal::from)))
}

/// Appends what the stored session does not have yet.
fn extend(engine: &Engine, session: &SessionId, from: u64, reading: &mut Reading<Progress<'_>>) -> Result<(), Refusal> {
    let taken = engine.take_over(session)?;
    let mut expected = Expected { epoch: taken.head.epoch, next_seq: taken.head.next_seq };
    let mut append = || -> Result<(), Refusal> {
        while let Some(batch) = reading.next_batch(BATCH_BYTES)? {
            let items: Vec<Item> = batch.items().iter().filter_map(|item| item.slice(from, u64::MAX)).collect();
            let Some(batch) = Batch::new(items) else { continue };
            let head = engine.append(session, None, expected, &batch).map_err(|error| match error {
                AppendError::Failed(error) => error,
                other => other.into_backend(session),
            })?;
            expected.next_seq = head.next_seq;
        }
        Ok(())
    };
    let appended = append();
    engine.release(session, taken.head.epoch)?;
    appended
}
