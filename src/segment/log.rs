//! A session's log as a whole: the chain of journals, and where it ends.

use super::bytes::crc;
use super::directory::SessionDirectory;
use super::files::Identity;
use super::journal::{self, JournalHeader};
use super::scan::{Content, Fault, Journal, Opening, Record, Scanner};
use crate::backend::{BackendError, BatchMark, DamageClass, TornTail};

/// How often a scan looks again when the files changed under it. A writer replaces files rarely; a reader that loses this many
/// races is looking at something else.
const ATTEMPTS: usize = 5;

/// The newest sound journal and where its records end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Newest {
    pub(crate) header: JournalHeader,
    pub(crate) identity: Identity,
    /// Where the last append starts: when it was written, everything before it was durable.
    pub(crate) last_append: u64,
    /// Behind the last whole record.
    pub(crate) end: u64,
    /// Length of the file.
    pub(crate) length: u64,
}

/// What a scan of a log found.
#[derive(Debug)]
pub(crate) struct LogEnd {
    /// Seq behind the last whole record.
    pub(crate) next_seq: u64,
    /// Absent only when the one journal there is was cut within its header.
    pub(crate) newest: Option<Newest>,
    pub(crate) last_batch: Option<BatchMark>,
    pub(crate) torn: Option<TornTail>,
    /// Bytes of all journals.
    pub(crate) bytes: u64,
}

impl LogEnd {
    /// The writer epoch; at least 1.
    pub(crate) fn epoch(&self) -> u64 {
        self.newest.map_or(1, |newest| newest.header.epoch)
    }
}

/// Is given every batch record, in order.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(&mut Scanner, &Record) -> Result<(), Fault>;

/// Goes through the whole log, checking every byte that counts.
///
/// # Errors
/// Damage (R4), `Unsupported`, `NotFound` or I/O.
pub(crate) fn scan(directory: &SessionDirectory) -> Result<LogEnd, BackendError> {
    scan_with(directory, &mut |_, _| Ok(()))
}

/// As [`scan`], showing every record to `visit`; after a look that raced with a writer, from the start again.
///
/// # Errors
/// As [`scan`].
pub(crate) fn scan_with(directory: &SessionDirectory, visit: Visit<'_>) -> Result<LogEnd, BackendError> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let before = fingerprint(directory)?;
        match scan_once(directory, &before.0, visit) {
            Ok(Some(end)) => return Ok(end),
            Ok(None) if attempt >= ATTEMPTS => {
                let detail = "journals disappear while they are read; see what else uses this directory";
                return Err(directory.damage(DamageClass::Gap, &directory.path, None, 0, detail));
            }
            // A writer at work can make a sound log look wrong to one look, never to a second one at unchanged files.
            Err(error) if attempt >= ATTEMPTS || fingerprint(directory)? == before => return Err(error),
            Ok(None) | Err(_) => {}
        }
    }
}

/// What a revision token is made of: the newest sound journal's first seq, salt and length.
///
/// # Errors
/// `NotFound`, damage of a header, I/O.
pub(crate) fn newest_position(directory: &SessionDirectory) -> Result<(u64, u64, u64), BackendError> {
    let mut torn = 0;
    for name in directory.journals()?.iter().rev().take(2) {
        match Journal::open(directory, *name, *name)? {
            Opening::Sound(journal) => return Ok((*name, journal.header.salt, journal.length)),
            Opening::Cut(length) => torn = length,
            Opening::Gone => {}
        }
    }
    Ok((0, 0, torn))
}

/// The names of the journals, and which file the newest is and how long.
type Fingerprint = (Vec<u64>, Option<(Identity, u64)>);

fn fingerprint(directory: &SessionDirectory) -> Result<Fingerprint, BackendError> {
    let names = directory.journals()?;
    let newest = names.last().and_then(|name| directory.files.stat(&directory.file(&journal::file_name(*name))).ok());
    Ok((names, newest.map(|stat| (stat.identity, stat.length))))
}

/// One pass. `None` when a file that was listed is gone.
pub(crate) fn scan_once(
    directory: &SessionDirectory,
    names: &[u64],
    visit: Visit<'_>,
) -> Result<Option<LogEnd>, BackendError> {
    let mut names = names.iter().copied();
    let Some(first) = names.next() else {
        directory.check()?;
        let detail = "the session has no journal; its files were removed";
        return Err(directory.damage(DamageClass::Gap, &directory.path, None, 0, detail));
    };
    let mut log = LogEnd { next_seq: 0, newest: None, last_batch: None, torn: None, bytes: 0 };
    let mut current = match Journal::open(directory, first, 0)? {
        Opening::Gone => return Ok(None),
        Opening::Cut(_) if names.len() > 0 => {
            let path = directory.file(&journal::file_name(first));
            return Err(directory.damage(DamageClass::Gap, &path, Some(0), 0, "the file was cut within its header"));
        }
        Opening::Cut(length) => {
            check_start(directory, first, first, 0)?;
            log.torn = Some(headless(directory, first, length));
            log.bytes = length;
            return Ok(Some(log));
        }
        Opening::Sound(journal) => {
            let starts_log = journal.header.predecessor.map_or(0, |before| before.first_seq + 1);
            check_start(directory, first, first.max(starts_log), 0)?;
            journal
        }
    };
    loop {
        log.bytes = log.bytes.saturating_add(current.length);
        let Some(name) = names.next() else {
            return scan_newest(directory, Scanner::open_ended(current), None, log, visit).map(Some);
        };
        let next = match Journal::open(directory, name, current.header.first_seq) {
            Ok(Opening::Gone) => return Ok(None),
            Ok(Opening::Sound(next)) => next,
            Ok(Opening::Cut(length)) if names.len() == 0 => {
                log.bytes = log.bytes.saturating_add(length);
                let torn = headless(directory, name, length);
                let scanner = Scanner::open_ended(current);
                return scan_newest(directory, scanner, Some((name, torn)), log, visit).map(Some);
            }
            Ok(Opening::Cut(_)) => {
                let path = directory.file(&journal::file_name(name));
                let detail = "the file was cut within its header";
                let error = directory.damage(DamageClass::Gap, &path, Some(0), 0, detail);
                return Err(behind(directory, current, name, error, &mut log, visit));
            }
            Err(error) => return Err(behind(directory, current, name, error, &mut log, visit)),
        };
        if let Err(error) = check_link(directory, &current.header, &next) {
            return Err(behind(directory, current, name, error, &mut log, visit));
        }
        let scanner = scan_counted(directory, current, &next, &mut log, visit)?;
        check_start(directory, name, name, scanner.next_seq)?;
        current = next;
    }
}

/// Damage in the file that goes on behind `current`, with how much of `current` is good before it; or damage in `current`.
fn behind(
    directory: &SessionDirectory,
    current: Journal,
    name: u64,
    mut error: BackendError,
    log: &mut LogEnd,
    visit: Visit<'_>,
) -> BackendError {
    let Some(damage) = &mut error.damage else { return error };
    let mut scanner = Scanner::open_ended(current);
    match run(directory, &mut scanner, Some(name), true, log, visit) {
        Ok(_) => {
            damage.intact_before = scanner.next_seq;
            error
        }
        Err(earlier) => earlier,
    }
}

/// Checks that `next` says that it continues the journal with this header.
///
/// # Errors
/// Damage: a gap when it continues another one, which is missing; else an identity mismatch.
pub(crate) fn check_link(
    directory: &SessionDirectory,
    current: &JournalHeader,
    next: &Journal,
) -> Result<(), BackendError> {
    let (class, detail) = match next.header.predecessor {
        Some(before) if before.first_seq != current.first_seq => {
            (DamageClass::Gap, format!("it continues {}, which is missing", journal::file_name(before.first_seq)))
        }
        Some(before) if before.salt == current.salt => return Ok(()),
        _ => (DamageClass::IdentityMismatch, "it does not continue the journal before it".to_owned()),
    };
    Err(directory.damage(class, &next.path, Some(56), current.first_seq, detail))
}

/// A journal that starts elsewhere than where the log has come to.
fn check_start(directory: &SessionDirectory, name: u64, found: u64, expected: u64) -> Result<(), BackendError> {
    let class = match found.cmp(&expected) {
        std::cmp::Ordering::Equal => return Ok(()),
        std::cmp::Ordering::Greater => DamageClass::Gap,
        std::cmp::Ordering::Less => DamageClass::Overlap,
    };
    let path = directory.file(&journal::file_name(name));
    let detail = format!("the log goes on at seq {expected}, but this is the next file there is");
    Err(directory.damage(class, &path, Some(0), expected, detail))
}

fn headless(directory: &SessionDirectory, name: u64, length: u64) -> TornTail {
    let file = directory.file(&journal::file_name(name));
    TornTail { file: Some(file), offset: 0, bytes: length, kept: None }
}

/// Goes through a journal that another continues, up to where that one says it counts.
fn scan_counted(
    directory: &SessionDirectory,
    current: Journal,
    next: &Journal,
    log: &mut LogEnd,
    visit: Visit<'_>,
) -> Result<Scanner, BackendError> {
    let end = next.header.predecessor.map_or(0, |before| before.end);
    let mut scanner = Scanner::up_to(current, end);
    run(directory, &mut scanner, None, false, log, visit)?;
    if scanner.is_cut_short() { Err(scanner.cut_short(directory)) } else { Ok(scanner) }
}

/// Goes through the newest journal and judges its end. With `headless`, the journal behind this one has lost its header: its
/// name says where this one ends.
fn scan_newest(
    directory: &SessionDirectory,
    mut scanner: Scanner,
    headless: Option<(u64, TornTail)>,
    mut log: LogEnd,
    visit: Visit<'_>,
) -> Result<LogEnd, BackendError> {
    let stop = headless.as_ref().map(|(name, _)| *name);
    let last_append = run(directory, &mut scanner, stop, true, &mut log, visit)?;
    let (end, length) = (scanner.offset, scanner.journal.length);
    if let Some((name, torn)) = headless {
        check_start(directory, name, name, scanner.next_seq)?;
        log.torn = Some(torn);
    } else if end < length {
        let torn = TornTail { file: Some(scanner.journal.path.clone()), offset: end, bytes: length - end, kept: None };
        log.torn = Some(torn);
    }
    let Journal { header, identity, .. } = scanner.journal;
    log.next_seq = scanner.next_seq;
    log.newest = Some(Newest { header, identity, last_append, end, length });
    Ok(log)
}

/// Steps through the records up to the scanner's limit or the seq `stop`. With `open_end`, bytes that are no record end the log
/// if no later append stands behind them. Returns where the last append starts.
fn run(
    directory: &SessionDirectory,
    scanner: &mut Scanner,
    stop: Option<u64>,
    open_end: bool,
    log: &mut LogEnd,
    visit: Visit<'_>,
) -> Result<u64, BackendError> {
    let mut single = None;
    let mut last_append = scanner.offset;
    while stop.is_none_or(|stop| scanner.next_seq < stop) {
        let start = (scanner.offset, scanner.next_seq);
        let record = match scanner.step(true) {
            Ok(None) => break,
            Ok(Some(record)) => record,
            Err(fault @ Fault::Invalid { .. }) if open_end => match scanner.later_append_exists() {
                Ok(false) => break,
                Ok(true) => return Err(scanner.error(directory, fault)),
                Err(error) => return Err(scanner.error(directory, Fault::Io(error))),
            },
            Err(fault) => return Err(scanner.error(directory, fault)),
        };
        match record.content {
            Content::Continued(next) => {
                let path = directory.file(&journal::file_name(next));
                let detail = "the journal before it says that the log goes on in this file, which is missing";
                return Err(directory.damage(DamageClass::Gap, &path, None, next, detail));
            }
            Content::Batch(prefix) => {
                if record.header.is_first() {
                    last_append = record.offset;
                }
                let whole = record.header.is_first() && record.header.is_last();
                single = whole.then_some((record, prefix));
                log.last_batch = prefix.batch;
                if let Err(fault) = visit(scanner, &record) {
                    (scanner.offset, scanner.next_seq) = start;
                    return Err(scanner.error(directory, fault));
                }
            }
        }
    }
    if let Some((record, prefix)) = single {
        // A batch of one record is its own mark.
        let body = scanner.body(&record, &prefix).map_err(|fault| scanner.error(directory, fault))?;
        log.last_batch = Some(BatchMark { first_seq: prefix.first_seq, checksum: crc(&[&body]) });
    }
    Ok(last_append)
}
