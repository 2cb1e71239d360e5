//! A session's log as a whole: the sealed segments, the chain of journals behind them, and where it ends.

use std::path::PathBuf;

use super::bytes::crc;
use super::directory::{Layout, SessionDirectory};
use super::files::Identity;
use super::journal::{self, FIRST_RECORD, JournalHeader, Predecessor};
use super::scan::{Content, Fault, Journal, Opening, Record, Scanner};
use super::sealed::chain::{self, SealedEnd, Walk};
use super::sealed::segment::Segment;
use crate::backend::{BackendError, BatchMark, DamageClass, TornTail};

/// How often a scan looks again when the files changed under it. One look takes less than a rotation does; a reader that loses this many
/// races is looking at something else.
const ATTEMPTS: usize = 50;

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

/// How large a journal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JournalSize {
    pub(crate) first_seq: u64,
    /// Length of the file in bytes.
    pub(crate) length: u64,
    /// Bytes of the bodies of its records, unpacked.
    pub(crate) weight: u64,
}

/// What a scan of a log found.
#[derive(Debug)]
pub(crate) struct LogEnd {
    /// Seq behind the last whole record.
    pub(crate) next_seq: u64,
    /// Absent only when there is no journal, or the one there is was cut within its header.
    pub(crate) newest: Option<Newest>,
    /// The sealed part, if there is one.
    pub(crate) sealed: Option<Box<SealedEnd>>,
    pub(crate) last_batch: Option<BatchMark>,
    pub(crate) torn: Option<TornTail>,
    /// Bytes of all segments and journals.
    pub(crate) bytes: u64,
    /// The journals behind the segments that hold records.
    pub(crate) journals: Vec<JournalSize>,
    /// Files that hold nothing that is not sealed elsewhere: what a writer that was stopped did not remove.
    pub(crate) leftovers: Vec<PathBuf>,
}

impl LogEnd {
    /// The writer epoch; at least 1.
    pub(crate) fn epoch(&self) -> u64 {
        let sealed = self.sealed.as_ref().map(|sealed| sealed.header.epoch);
        self.newest.map(|newest| newest.header.epoch).or(sealed).unwrap_or(1)
    }

    /// What a journal behind this end continues.
    pub(crate) fn predecessor(&self) -> Option<Predecessor> {
        let Some(newest) = self.newest else { return self.sealed.as_ref().map(|sealed| sealed.last_journal) };
        let header = newest.header;
        // A journal without records is replaced by its successor.
        if newest.end <= FIRST_RECORD {
            return header.predecessor;
        }
        Some(Predecessor { first_seq: header.first_seq, salt: header.salt, end: newest.end })
    }

    /// What a revision token is made of: the newest journal's first seq, salt and length, whether it is sealed or not.
    pub(crate) fn position(&self) -> (u64, u64, u64) {
        match (&self.newest, &self.sealed) {
            (Some(newest), _) => (newest.header.first_seq, newest.header.salt, newest.length),
            (None, Some(sealed)) => position_of(sealed.last_journal),
            (None, None) => (0, 0, self.torn.as_ref().map_or(0, |torn| torn.bytes)),
        }
    }
}

fn position_of(journal: Predecessor) -> (u64, u64, u64) {
    (journal.first_seq, journal.salt, journal.end)
}

/// Is shown the log as a scan goes through it, in order.
pub(crate) trait Visitor {
    /// The scan starts, perhaps again after a look that raced with a writer.
    fn begin(&mut self) {}

    /// A sealed segment; its header and footer are sound.
    fn segment(&mut self, _directory: &SessionDirectory, _segment: &Segment) -> Result<(), BackendError> {
        Ok(())
    }

    /// A batch record.
    fn record(&mut self, _scanner: &mut Scanner, _record: &Record) -> Result<(), Fault> {
        Ok(())
    }
}

/// Looks at nothing closer than the scan itself does.
struct Passing;

impl Visitor for Passing {}

pub(crate) type Visit<'a> = &'a mut dyn Visitor;

/// Goes through the whole log: header and footer of every segment, every byte of the journals that counts.
///
/// # Errors
/// Damage (R4), `Unsupported`, `NotFound` or I/O.
pub(crate) fn scan(directory: &SessionDirectory) -> Result<LogEnd, BackendError> {
    scan_with(directory, &mut Passing)
}

/// As [`scan`], showing everything to `visit`; after a look that raced with a writer, from the start again.
///
/// # Errors
/// As [`scan`].
pub(crate) fn scan_with(directory: &SessionDirectory, visit: Visit<'_>) -> Result<LogEnd, BackendError> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let before = fingerprint(directory)?;
        visit.begin();
        match scan_once(directory, &before.0, visit) {
            Ok(Some(end)) => return Ok(end),
            Ok(None) if attempt >= ATTEMPTS => {
                let detail = "files of the log disappear while they are read; see what else uses this directory";
                return Err(directory.damage(DamageClass::Gap, &directory.path, None, 0, detail));
            }
            // A writer at work can make a sound log look wrong to one look, never to a second one at unchanged files.
            Err(error) if attempt >= ATTEMPTS || fingerprint(directory)? == before => return Err(error),
            Ok(None) | Err(_) => {}
        }
    }
}

/// What a revision token is made of: the newest sound journal's first seq, salt and length. Sealing changes no log, so a
/// journal that was sealed stands for itself as long as nothing follows.
///
/// # Errors
/// `NotFound`, damage of a header, I/O.
pub(crate) fn newest_position(directory: &SessionDirectory) -> Result<(u64, u64, u64), BackendError> {
    let layout = directory.layout()?;
    let sealed = chain::last_journal(directory, &layout.segments)?;
    let live = |name: &&u64| sealed.is_none_or(|sealed| **name > sealed.first_seq);
    let mut torn = 0;
    for name in layout.journals.iter().rev().take_while(live).take(2) {
        match Journal::open(directory, *name, *name)? {
            Opening::Sound(journal) => return Ok((*name, journal.header.salt, journal.length)),
            Opening::Cut(length) => torn = length,
            Opening::Gone => {}
        }
    }
    Ok(sealed.map_or((0, 0, torn), position_of))
}

/// The names of the files, and which file the newest journal is and how long.
type Fingerprint = (Layout, Option<(Identity, u64)>);

fn fingerprint(directory: &SessionDirectory) -> Result<Fingerprint, BackendError> {
    let layout = directory.layout()?;
    let newest = layout.journals.last();
    let newest = newest.and_then(|name| directory.files.stat(&directory.file(&journal::file_name(*name))).ok());
    Ok((layout, newest.map(|stat| (stat.identity, stat.length))))
}

/// One pass. `None` when a file that was listed is gone.
fn scan_once(directory: &SessionDirectory, layout: &Layout, visit: Visit<'_>) -> Result<Option<LogEnd>, BackendError> {
    let mut log = LogEnd {
        next_seq: 0,
        newest: None,
        sealed: None,
        last_batch: None,
        torn: None,
        bytes: 0,
        journals: Vec::new(),
        leftovers: Vec::new(),
    };
    let mut live: &[u64] = &layout.journals;
    match chain::walk(directory, &layout.segments, |segment| visit.segment(directory, segment))? {
        Walk::Empty => {}
        Walk::Gone => return Ok(None),
        Walk::Sealed(sealed) => {
            live = sealed.live_journals(directory, &layout.journals)?;
            log.leftovers = sealed.leftovers(directory, layout);
            log.bytes = sealed.bytes();
            log.next_seq = sealed.next_seq;
            log.sealed = Some(sealed);
        }
    }
    scan_journals(directory, live, log, visit)
}

/// The journals behind the sealed part.
fn scan_journals(
    directory: &SessionDirectory,
    names: &[u64],
    mut log: LogEnd,
    visit: Visit<'_>,
) -> Result<Option<LogEnd>, BackendError> {
    let sealed = log.next_seq;
    let mut names = names.iter().copied();
    let Some(first) = names.next() else {
        directory.check()?;
        return match &log.sealed {
            Some(end) if !end.continued => Ok(Some(log)),
            Some(_) => Err(successor_missing(directory, sealed)),
            None => {
                let detail = "the session has no journal; its files were removed";
                Err(directory.damage(DamageClass::Gap, &directory.path, None, 0, detail))
            }
        };
    };
    let mut current = match open_first(directory, first, names.len() > 0, log.sealed.as_deref())? {
        Opening::Gone => return Ok(None),
        Opening::Cut(length) => {
            log.torn = Some(headless(directory, first, length));
            log.bytes = log.bytes.saturating_add(length);
            return Ok(Some(log));
        }
        Opening::Sound(journal) => journal,
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
                let error = cut_within_header(directory, name, 0);
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

/// Opens the first of the journals that count and checks that it stands where the log begins, or goes on behind what is sealed.
/// One that is cut within its header is given back as such only when no other journal follows.
///
/// # Errors
/// Damage, `Unsupported`, I/O.
pub(crate) fn open_first(
    directory: &SessionDirectory,
    name: u64,
    followed: bool,
    sealed: Option<&SealedEnd>,
) -> Result<Opening, BackendError> {
    let begins = sealed.map_or(0, |end| end.next_seq);
    let opening = Journal::open(directory, name, begins)?;
    match &opening {
        Opening::Gone => {}
        Opening::Cut(_) if followed => {
            return Err(cut_within_header(directory, name, begins));
        }
        Opening::Cut(_) => check_start(directory, name, name, begins)?,
        Opening::Sound(journal) => {
            let mut found = name;
            if let Some(end) = sealed {
                end.check_link(directory, journal)?;
            } else {
                found = found.max(journal.header.predecessor.map_or(0, |before| before.first_seq.saturating_add(1)));
            }
            check_start(directory, name, found, begins)?;
        }
    }
    Ok(opening)
}

/// The file behind a segment that says that there is one.
pub(crate) fn successor_missing(directory: &SessionDirectory, next_seq: u64) -> BackendError {
    let path = directory.file(&journal::file_name(next_seq));
    let detail = "the segment before it says that the log goes on in this file, which is missing";
    directory.damage(DamageClass::Gap, &path, None, next_seq, detail)
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

/// A journal that another follows, and that has lost its header.
pub(crate) fn cut_within_header(directory: &SessionDirectory, name: u64, intact_before: u64) -> BackendError {
    let path = directory.file(&journal::file_name(name));
    directory.damage(DamageClass::Gap, &path, Some(0), intact_before, "the file was cut within its header")
}

/// Checks that a journal starts where the log has come to.
///
/// # Errors
/// Damage: a gap or an overlap.
pub(crate) fn check_start(
    directory: &SessionDirectory,
    name: u64,
    found: u64,
    expected: u64,
) -> Result<(), BackendError> {
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
    let mut weight = 0_u64;
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
                weight = weight.saturating_add(prefix.body_bytes(&record.header));
                if let Err(fault) = visit.record(scanner, &record) {
                    (scanner.offset, scanner.next_seq) = start;
                    return Err(scanner.error(directory, fault));
                }
            }
        }
    }
    if weight > 0 {
        let Journal { header, length, .. } = &scanner.journal;
        log.journals.push(JournalSize { first_seq: header.first_seq, length: *length, weight });
    }
    if let Some((record, prefix)) = single {
        // A batch of one record is its own mark.
        let body = scanner.body(&record, &prefix).map_err(|fault| scanner.error(directory, fault))?;
        log.last_batch = Some(BatchMark { first_seq: prefix.first_seq, checksum: crc(&[&body]) });
    }
    Ok(last_append)
}
