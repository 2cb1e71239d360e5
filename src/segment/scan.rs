//! The one scanner: goes through a journal record by record, in constant memory, and says what is wrong where.
//!
//! Opening, reading, taking over, following and verifying all use it, so they agree on where a log ends.

use std::io;
use std::path::PathBuf;

use super::bytes::u64_at;
use super::directory::{SessionDirectory, identity};
use super::files::{Access, File, Identity, read_full_at};
use super::journal::{self, FIRST_RECORD, HeaderFault, JournalHeader};
use super::record::{
    HEADER_BYTES, KIND_CONTINUED, MAX_PREFIX_BYTES, Prefix, RecordHeader, decode_continued, payload_hasher,
};
use crate::backend::{BackendError, DamageClass};
use crate::event::Item;

/// How much is read at a time, in bytes.
const CHUNK_BYTES: usize = 256 * 1024;

/// A journal whose header is sound, open for reading.
#[derive(Debug)]
pub(crate) struct Journal {
    file: Box<dyn File>,
    pub(crate) path: PathBuf,
    pub(crate) header: JournalHeader,
    pub(crate) identity: Identity,
    /// Length when it was opened, in bytes.
    pub(crate) length: u64,
}

/// What opening a journal found.
#[derive(Debug)]
pub(crate) enum Opening {
    /// A journal.
    Sound(Journal),
    /// The file ends within its header: it holds no record.
    Cut(u64),
    /// No such file any more.
    Gone,
}

impl Journal {
    /// Opens the journal of this name and checks that it is the one its name and place say.
    ///
    /// # Errors
    /// Damage or `Unsupported`, with `intact_before` as given.
    pub(crate) fn open(directory: &SessionDirectory, name: u64, intact_before: u64) -> Result<Opening, BackendError> {
        let path = directory.file(&journal::file_name(name));
        let file = match directory.files.open(&path, Access::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Opening::Gone),
            Err(error) => {
                let mut error = directory.io("opening a journal", &path, error);
                if let Some(damage) = &mut error.damage {
                    damage.intact_before = intact_before;
                }
                return Err(error);
            }
        };
        let failed = |error| directory.io("reading a journal's header", &path, error);
        let stat = file.stat().map_err(failed)?;
        let mut bytes = vec![0; JournalHeader::sample_bytes()];
        let filled = read_full_at(&*file, &mut bytes, 0).map_err(failed)?;
        bytes.truncate(filled);
        let damage = |class, detail: &str| Err(directory.damage(class, &path, Some(0), intact_before, detail));
        let header = match JournalHeader::decode(&bytes) {
            Ok(header) => header,
            Err(HeaderFault::Cut) => return Ok(Opening::Cut(stat.length)),
            Err(HeaderFault::Nul) => return damage(DamageClass::NulHole, "zeros stand where the journal's header was"),
            Err(HeaderFault::Bad) => return damage(DamageClass::BadHeader, "this is not a sound journal header"),
            Err(HeaderFault::Foreign(version)) => {
                let what = format!("journal format {version}");
                return Err(directory.unsupported(&path, Some(8), intact_before, &what));
            }
        };
        if header.session != identity(directory.id.as_ref()) {
            return damage(DamageClass::IdentityMismatch, "this journal belongs to another session");
        }
        if header.first_seq != name {
            let detail = format!("this journal starts at seq {}, not where its name says", header.first_seq);
            return damage(DamageClass::IdentityMismatch, &detail);
        }
        Ok(Opening::Sound(Self { file, path, header, identity: stat.identity, length: stat.length }))
    }

    /// The file's length now.
    pub(crate) fn current_length(&self) -> io::Result<u64> {
        self.file.stat().map(|stat| stat.length)
    }
}

/// One record that passed its checksums.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    pub(crate) offset: u64,
    pub(crate) header: RecordHeader,
    pub(crate) content: Content,
}

/// What a record holds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content {
    Batch(Prefix),
    Continued(u64),
}

impl Record {
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(HEADER_BYTES as u64).saturating_add(u64::from(self.header.length))
    }
}

/// Why there is no record at an offset although there are bytes.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Reading failed.
    Io(io::Error),
    /// The bytes are no whole record.
    Invalid {
        /// They start with zeros.
        nul: bool,
        /// A sound header promises more bytes than there are.
        cut: bool,
    },
    /// The record passed its checksums and is not where it belongs in the log.
    Sequence { expected: u64, found: u64 },
    /// The record passed its checksums and makes no sense.
    Nonsense(&'static str),
    /// The record passed its checksums and is of a kind that this crate does not know.
    Unknown,
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A position in a journal, moving forward.
#[derive(Debug)]
pub(crate) struct Scanner {
    pub(crate) journal: Journal,
    /// Where the records that count end: given by the next journal, or the file's length.
    pub(crate) limit: u64,
    /// Where the next journal says that this one ends.
    claimed: Option<u64>,
    /// Where the next record starts.
    pub(crate) offset: u64,
    /// The seq that the next record must start with.
    pub(crate) next_seq: u64,
    /// Whether an append has begun and its last record has not been seen yet.
    in_batch: bool,
    window: Window,
}

impl Scanner {
    /// A scanner of the newest journal there is, or of one whose end is not known: up to the file's present end.
    pub(crate) fn open_ended(journal: Journal) -> Self {
        Self::new(journal, None)
    }

    /// A scanner of a journal that counts up to `end`, as the next one says.
    pub(crate) fn up_to(journal: Journal, end: u64) -> Self {
        Self::new(journal, Some(end))
    }

    fn new(journal: Journal, claimed: Option<u64>) -> Self {
        let next_seq = journal.header.first_seq;
        let limit = claimed.unwrap_or(u64::MAX).min(journal.length);
        Self { journal, limit, claimed, offset: FIRST_RECORD, next_seq, in_batch: false, window: Window::default() }
    }

    /// The next record, or `None` at the limit. `whole` asks for the payload's checksum; without it the record's frame and
    /// prefix alone are checked, for passing over records that will not be returned.
    pub(crate) fn step(&mut self, whole: bool) -> Result<Option<Record>, Fault> {
        if self.offset >= self.limit {
            return Ok(None);
        }
        let (offset, salt) = (self.offset, self.journal.header.salt);
        let head = self.window.bytes(&*self.journal.file, offset, HEADER_BYTES, self.limit)?;
        let Some(header) = RecordHeader::decode(head, salt, offset) else {
            let nul = !head.is_empty() && head.iter().all(|byte| *byte == 0);
            return Err(Fault::Invalid { nul, cut: head.len() < HEADER_BYTES });
        };
        let record = Record { offset, header, content: Content::Continued(0) };
        if !header.is_bounded() {
            return Err(if header.is_known() {
                Fault::Nonsense("its length exceeds any record's")
            } else {
                Fault::Unknown
            });
        }
        if record.end() > self.limit {
            return Err(Fault::Invalid { nul: false, cut: true });
        }
        if (whole || !header.is_known()) && !self.payload_is_sound(&record)? {
            return Err(Fault::Invalid { nul: false, cut: false });
        }
        if !header.is_known() {
            return Err(Fault::Unknown);
        }
        let payload_at = offset.saturating_add(HEADER_BYTES as u64);
        let length = usize::try_from(header.length).unwrap_or(usize::MAX);
        let start = self.window.bytes(&*self.journal.file, payload_at, length.min(MAX_PREFIX_BYTES), self.limit)?;
        if header.is_first() == self.in_batch {
            return Err(Fault::Nonsense("it does not fit the append it belongs to"));
        }
        let content = if header.kind == KIND_CONTINUED {
            let next = decode_continued(start).ok_or(Fault::Nonsense("its payload cannot be read"))?;
            if next != self.next_seq {
                return Err(Fault::Sequence { expected: self.next_seq, found: next });
            }
            Content::Continued(next)
        } else {
            let prefix = Prefix::decode(&header, start).ok_or(Fault::Nonsense("its payload cannot be read"))?;
            if prefix.first_seq != self.next_seq {
                return Err(Fault::Sequence { expected: self.next_seq, found: prefix.first_seq });
            }
            self.next_seq = prefix.next_seq;
            Content::Batch(prefix)
        };
        self.in_batch = !header.is_last();
        self.offset = record.end();
        Ok(Some(Record { content, ..record }))
    }

    /// Goes back to the start of a record that the last step returned.
    pub(crate) fn step_back(&mut self, record: &Record) {
        self.offset = record.offset;
        self.in_batch = !record.header.is_first();
        if let Content::Batch(prefix) = record.content {
            self.next_seq = prefix.first_seq;
        }
    }

    fn payload_is_sound(&mut self, record: &Record) -> io::Result<bool> {
        let mut hasher = payload_hasher(self.journal.header.salt, record.offset);
        let mut at = record.offset.saturating_add(HEADER_BYTES as u64);
        while at < record.end() {
            let rest = usize::try_from(record.end() - at).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            let piece = self.window.bytes(&*self.journal.file, at, rest, self.limit)?;
            if piece.is_empty() {
                return Ok(false);
            }
            hasher.update(piece);
            at = at.saturating_add(piece.len() as u64);
        }
        Ok(hasher.finalize() == record.header.payload_checksum)
    }

    /// The items of a record that [`Scanner::step`] returned, with its payload checked.
    pub(crate) fn items(&mut self, record: &Record, prefix: &Prefix) -> Result<Vec<Item>, Fault> {
        let payload = self.payload(record)?;
        prefix.items(&payload).ok_or(Fault::Nonsense("its events cannot be read"))
    }

    /// The body of a record, as [`crate::event::Batch::encode`] wrote it.
    pub(crate) fn body(&mut self, record: &Record, prefix: &Prefix) -> Result<Vec<u8>, Fault> {
        let payload = self.payload(record)?;
        prefix.body(&payload).ok_or(Fault::Nonsense("its events cannot be inflated"))
    }

    fn payload(&mut self, record: &Record) -> Result<Vec<u8>, Fault> {
        let from = record.offset.saturating_add(HEADER_BYTES as u64);
        let length = usize::try_from(record.header.length).unwrap_or(usize::MAX);
        let payload = self.window.owned(&*self.journal.file, from, length)?;
        let mut hasher = payload_hasher(self.journal.header.salt, record.offset);
        hasher.update(&payload);
        if payload.len() != length || hasher.finalize() != record.header.payload_checksum {
            return Err(Fault::Invalid { nul: false, cut: false });
        }
        Ok(payload)
    }

    /// Whether anything behind the current offset was written by a later append than the bytes there: if so they were durable
    /// once and are damaged; if not they are the torn end of the last append, which was never acknowledged.
    pub(crate) fn later_append_exists(&mut self) -> io::Result<bool> {
        let salt = self.journal.header.salt;
        let mut at = self.offset.saturating_add(1);
        while at.saturating_add(HEADER_BYTES as u64) <= self.limit {
            let bytes = self.window.bytes(&*self.journal.file, at, CHUNK_BYTES, self.limit)?;
            let mut passed = 0_u64;
            for candidate in bytes.windows(HEADER_BYTES) {
                // Zeros, by far the most common filling, fail the first test.
                let plausible = u64_at(candidate, 0).is_some_and(|word| word != 0);
                let header = plausible.then(|| RecordHeader::decode(candidate, salt, at.saturating_add(passed)));
                if header.flatten().is_some_and(|header| header.is_first()) {
                    return Ok(true);
                }
                passed += 1;
            }
            if passed == 0 {
                break;
            }
            at = at.saturating_add(passed);
        }
        Ok(false)
    }

    /// Takes in what was appended since: moves the limit to the file's present length.
    pub(crate) fn look_again(&mut self) -> io::Result<()> {
        self.journal.length = self.journal.current_length()?;
        self.limit = self.journal.length;
        self.window = Window::default();
        Ok(())
    }

    /// The error for a file that [`Scanner::is_cut_short`].
    pub(crate) fn cut_short(&self, directory: &SessionDirectory) -> BackendError {
        let claimed = self.claimed.unwrap_or_default();
        let detail = format!("the file ends here; the next one continues it from offset {claimed}");
        let (path, length) = (&self.journal.path, self.journal.length);
        directory.damage(DamageClass::Gap, path, Some(length), self.next_seq, detail)
    }

    /// Whether the file is shorter than the part of it that the next journal counts.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.claimed.is_some_and(|claimed| claimed > self.journal.length)
    }

    /// A fault as an error about the session.
    pub(crate) fn error(&self, directory: &SessionDirectory, fault: Fault) -> BackendError {
        let path = &self.journal.path;
        let damage = |class, detail: &str| directory.damage(class, path, Some(self.offset), self.next_seq, detail);
        match fault {
            Fault::Io(error) => directory.io("reading a journal", path, error),
            Fault::Invalid { cut: true, .. } if self.is_cut_short() => self.cut_short(directory),
            Fault::Invalid { nul: true, .. } => damage(DamageClass::NulHole, "zeros stand where a record was"),
            Fault::Invalid { cut: true, .. } => {
                damage(DamageClass::Checksum, "a record ends behind the place where the next file goes on")
            }
            Fault::Invalid { .. } => damage(DamageClass::Checksum, "a record does not match its checksum"),
            Fault::Sequence { expected, found } => {
                let class = if found > expected { DamageClass::Gap } else { DamageClass::Overlap };
                damage(class, &format!("expected seq {expected}, found {found}"))
            }
            Fault::Nonsense(why) => damage(DamageClass::Checksum, &format!("a record passed its checksum, but {why}")),
            Fault::Unknown => {
                directory.unsupported(path, Some(self.offset), self.next_seq, "an unknown kind of record")
            }
        }
    }
}

/// A stretch of a file held in memory.
#[derive(Debug, Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// Up to `wanted` bytes at `offset`, fewer at `limit` or the file's end. `wanted` is at most [`CHUNK_BYTES`].
    fn bytes(&mut self, file: &dyn File, offset: u64, wanted: usize, limit: u64) -> io::Result<&[u8]> {
        let available = usize::try_from(limit.saturating_sub(offset)).unwrap_or(usize::MAX);
        let wanted = wanted.min(available).min(CHUNK_BYTES);
        if self.held(offset, wanted).is_none() {
            self.bytes.resize(CHUNK_BYTES.min(available), 0);
            self.start = offset;
            let filled = match read_full_at(file, &mut self.bytes, offset) {
                Ok(filled) => filled,
                Err(error) => {
                    self.bytes.clear();
                    return Err(error);
                }
            };
            self.bytes.truncate(filled);
        }
        let held = self.bytes.len();
        let from = usize::try_from(offset.saturating_sub(self.start)).unwrap_or(held).min(held);
        Ok(self.bytes.get(from..from.saturating_add(wanted).min(held)).unwrap_or_default())
    }

    fn held(&self, offset: u64, wanted: usize) -> Option<&[u8]> {
        let from = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        self.bytes.get(from..from.checked_add(wanted)?)
    }

    /// `wanted` bytes at `offset` as a vector of their own, fewer at the file's end.
    fn owned(&self, file: &dyn File, offset: u64, wanted: usize) -> io::Result<Vec<u8>> {
        if let Some(bytes) = self.held(offset, wanted) {
            return Ok(bytes.to_vec());
        }
        let mut bytes = vec![0; wanted];
        let filled = read_full_at(file, &mut bytes, offset)?;
        bytes.truncate(filled);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::backend::{ErrorKind, Expected};
    use crate::event::{Batch, JsonText, NewEvent, SessionHeader, SessionId};
    use crate::segment::files::SimulatedFiles;
    use crate::segment::record::{HEADER_BYTES, KIND_BATCH};
    use crate::segment::{CheckStatus, Engine, EngineOptions};

    const JOURNAL: &str = "/store/sessions/s/00000000000000000000.log";

    fn large(from: u64, to: u64) -> Batch {
        let text = format!("\"{}\"", "0123456789".repeat(60_000));
        let event = |seq| NewEvent::named("app/x", JsonText::parse(&text).unwrap()).at(seq, 0);
        Batch::pack((from..to).map(event)).unwrap()
    }

    /// A session of one event and, behind it, one append of four records.
    fn store() -> (SimulatedFiles, Engine, SessionId, Vec<(u64, bool)>) {
        let files = SimulatedFiles::new(1);
        let engine = EngineOptions::new().files(Arc::new(files.clone())).compress(false).open("/store").unwrap();
        let id = SessionId::new("s").unwrap();
        engine.append(&id, Some(&SessionHeader::new("s")), Expected::ABSENT, &large(0, 1)).unwrap();
        engine.append(&id, None, Expected { epoch: 1, next_seq: 1 }, &large(1, 5)).unwrap();
        engine.release(&id, 1).unwrap();
        let directory =
            SessionDirectory { files: Arc::new(files.clone()), path: "/store/sessions/s".into(), id: Some(id.clone()) };
        let Opening::Sound(journal) = Journal::open(&directory, 0, 0).unwrap() else { panic!("no journal") };
        let mut scanner = Scanner::open_ended(journal);
        let mut records = Vec::new();
        while let Some(record) = scanner.step(true).unwrap() {
            records.push((record.offset, record.header.is_first()));
        }
        (files, engine, id, records)
    }

    fn change(files: &SimulatedFiles, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = files.contents(Path::new(JOURNAL)).unwrap();
        change(&mut bytes);
        files.overwrite(Path::new(JOURNAL), &bytes).unwrap();
    }

    #[test]
    fn r1_an_append_of_which_only_later_records_reached_the_disk_is_torn() {
        let (files, engine, id, records) = store();
        assert_eq!(records.iter().map(|record| record.1).collect::<Vec<_>>(), [true, true, false, false, false]);
        // A sector of the append's first record is lost; the others are whole.
        let at = usize::try_from(records[1].0).unwrap() + 2000;
        change(&files, |bytes| bytes[at..at + 512].fill(0));
        let opened = engine.open_session(&id).unwrap();
        assert_eq!((opened.head.next_seq, opened.torn.unwrap().offset), (1, records[1].0));
        // Of the third: a prefix of the batch remains.
        let (files, engine, id, records) = store();
        let at = usize::try_from(records[3].0).unwrap();
        change(&files, |bytes| bytes[at..at + HEADER_BYTES].fill(0));
        assert_eq!(engine.open_session(&id).unwrap().head.next_seq, 3);
    }

    #[test]
    fn r4_bytes_in_front_of_a_later_append_are_damage() {
        let (files, engine, id, records) = store();
        let at = usize::try_from(records[0].0).unwrap() + 2000;
        change(&files, |bytes| bytes[at] ^= 1);
        let error = engine.open_session(&id).unwrap_err();
        let damage = error.damage.unwrap();
        assert_eq!((damage.class, damage.offset, damage.intact_before), (DamageClass::Checksum, Some(records[0].0), 0));
    }

    #[test]
    fn n2_an_unknown_kind_of_record_is_unsupported_and_not_damage() {
        let (files, engine, id, records) = store();
        let directory = SessionDirectory { files: Arc::new(files.clone()), path: "/store/sessions/s".into(), id: None };
        let salt = {
            let bytes = files.contents(Path::new(JOURNAL)).unwrap();
            JournalHeader::decode(&bytes).unwrap().salt
        };
        let at = usize::try_from(records[0].0).unwrap();
        for (place, value) in [(4, 9_u8), (5, 0x80 | 6), (6, 1)] {
            let (files, engine, id) = (files.clone(), engine.clone(), id.clone());
            let original = files.contents(Path::new(JOURNAL)).unwrap();
            change(&files, |bytes| {
                assert_eq!(bytes[at + 4], KIND_BATCH);
                bytes[at + place] = value;
                let fixed = bytes[at..at + 8].to_vec();
                let checksum = crate::segment::bytes::crc(&[&salt.to_le_bytes(), &records[0].0.to_le_bytes(), &fixed]);
                bytes[at + 8..at + 12].copy_from_slice(&checksum.to_le_bytes());
            });
            assert_eq!(engine.open_session(&id).unwrap_err().kind, ErrorKind::Unsupported);
            assert_eq!(engine.verify(&id).status, CheckStatus::Unsupported);
            files.overwrite(Path::new(JOURNAL), &original).unwrap();
        }
        assert!(directory.files.stat(Path::new(JOURNAL)).is_ok());
    }
}
