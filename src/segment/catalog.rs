//! The catalogue: what a listing shows of each session, kept from one listing to the next.
//!
//! It is a cache and nothing else. An entry holds as long as every file of its session is the one, of the length and change time,
//! that it was made from; else the session is read again. A catalogue that is absent, damaged or of another version is made
//! anew, with the same answers. Times shown come from events, never from files.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::bytes::{crc, u32_at};
use super::directory::{SessionDirectory, read_small};
use super::files::{Access, FileKind, Files, write_all_at};
use super::journal;
use super::key;
use super::lock;
use super::log;
use super::reader::Reader;
use crate::backend::{BackendError, ReadLimit, TornTail};
use crate::event::control::TURN_START;
use crate::event::{JsonText, SessionHeader};
use crate::session::fold::Fold;
use crate::session::validator::InvalidEvent;

/// Name of the catalogue in the store's directory.
pub(crate) const CATALOG_FILE: &str = "catalog";

/// Names of catalogues that are being written.
const UNFINISHED: &str = ".tmp-catalog-";

const MAGIC: [u8; 8] = *b"slogCATA";
const VERSION: u32 = 1;
/// Bytes before the compressed JSON: magic, version, unpacked length, checksum over both and what follows.
const FRAME_BYTES: usize = 20;
/// Largest catalogue that is read, in bytes: more than a hundred thousand sessions need.
const MAX_BYTES: usize = 512 << 20;

/// What a listing shows of a session whose records are sound.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The session's header.
    pub header: SessionHeader,
    /// Number of events.
    pub events: u64,
    /// Number of turns begun.
    pub turns: u64,
    /// The last `session/title`, if any.
    pub title: Option<String>,
    /// Time of the last event in epoch milliseconds.
    pub last_time: Option<i64>,
    /// Whether the last turn is open.
    pub open_turn: bool,
    /// Bytes of the session's files, without the lock and what is just being written.
    pub bytes: u64,
    /// An incomplete record at the end.
    pub torn: Option<TornTail>,
    /// The first event that breaks a rule of the model; the counts end before it.
    pub invalid: Option<InvalidEvent>,
    /// Whether a writer has the session open.
    pub live: bool,
}

/// One entry of [`Engine::summaries`](super::Engine::summaries).
#[derive(Debug)]
pub struct Summarised {
    /// The id, or the directory's name where the header cannot be read.
    pub name: String,
    /// The summary, or what is wrong with the session.
    pub summary: Result<Summary, BackendError>,
}

/// Which bytes an entry was made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    name: String,
    inode: u64,
    length: u64,
    changed: (i64, i64),
}

/// What the catalogue keeps of a sound session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Entry {
    /// The directory first, then its files.
    stamps: Vec<Stamp>,
    header: JsonText,
    events: u64,
    turns: u64,
    title: Option<String>,
    last_time: Option<i64>,
    open_turn: bool,
    bytes: u64,
}

/// The catalogue of a store, by directory name.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    entries: BTreeMap<String, Entry>,
    changed: bool,
}

impl Catalog {
    /// Reads the catalogue; an empty one when there is none that can be used.
    pub(crate) fn read(files: &dyn Files, root: &Path) -> Self {
        let read = || -> Option<BTreeMap<String, Entry>> {
            let file = files.open(&root.join(CATALOG_FILE), Access::Read).ok()?;
            let bytes = read_small(&*file, MAX_BYTES).ok()??;
            let (frame, packed) = bytes.split_at_checked(FRAME_BYTES)?;
            let sound = frame.get(..8)? == MAGIC
                && u32_at(frame, 8)? == VERSION
                && crc(&[frame.get(..16)?, packed]) == u32_at(frame, 16)?;
            let length = usize::try_from(u32_at(frame, 12)?).ok().filter(|length| sound && *length <= MAX_BYTES)?;
            let text = super::frame::unpack(packed, length, &[])?;
            serde_json::from_slice(&text).ok()
        };
        Self { entries: read().unwrap_or_default(), changed: false }
    }

    /// Writes the catalogue if it has changed. It needs no sync: one that did not survive a crash is made anew.
    pub(crate) fn write(&mut self, files: &dyn Files, root: &Path, number: u64) -> io::Result<()> {
        if !self.changed {
            return Ok(());
        }
        let text = serde_json::to_vec(&self.entries)?;
        let packed = zstd::bulk::compress(&text, 1)?;
        let mut bytes = Vec::with_capacity(FRAME_BYTES + packed.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(text.len()).map_err(io::Error::other)?.to_le_bytes());
        let checksum = crc(&[&bytes, &packed]);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes.extend_from_slice(&packed);
        // What an interrupted writer left; one at work merely fails to replace a cache.
        for name in files.read_directory(root)?.iter().filter(|name| name.starts_with(UNFINISHED)) {
            files.remove_file(&root.join(name))?;
        }
        let temporary = root.join(format!("{UNFINISHED}{number:016x}"));
        let written = || -> io::Result<()> {
            let file = files.open(&temporary, Access::CreateNew)?;
            write_all_at(&*file, &bytes, 0)?;
            files.rename(&temporary, &root.join(CATALOG_FILE))
        };
        let result = written();
        if result.is_err() {
            // Best effort; the name says what it is.
            let _ = files.remove_file(&temporary);
        }
        self.changed = result.is_err();
        result
    }

    /// Forgets sessions that are not among `names`.
    pub(crate) fn keep(&mut self, names: &[String]) {
        let before = self.entries.len();
        self.entries.retain(|name, _| names.binary_search(name).is_ok());
        self.changed |= self.entries.len() != before;
    }

    /// Forgets one session.
    pub(crate) fn forget(&mut self, name: &str) {
        self.changed |= self.entries.remove(name).is_some();
    }

    /// Whether an entry that would be believed says something else than the session's log.
    pub(crate) fn contradicts(&self, name: &str, directory: &SessionDirectory) -> bool {
        let Some(entry) = self.entries.get(name).filter(|entry| entry.summary(directory).is_some()) else {
            return false;
        };
        match summarise(directory) {
            Ok(summary) => *entry != Entry::of(&summary, entry.stamps.clone()),
            Err(_) => false,
        }
    }

    /// The session's summary: from its entry while that holds, else from its log.
    pub(crate) fn summary(&mut self, name: &str, directory: &SessionDirectory) -> Result<Summary, BackendError> {
        if let Some(summary) = self.entries.get(name).and_then(|entry| entry.summary(directory)) {
            return Ok(summary);
        }
        let before = stamps(directory);
        let summary = summarise(directory);
        let sound = summary.as_ref().ok().filter(|summary| summary.torn.is_none() && summary.invalid.is_none());
        // An entry is kept only if nothing moved while the log was read.
        let kept = sound.zip(before).filter(|(_, before)| stamps(directory).as_ref() == Some(before));
        match kept {
            Some((summary, stamps)) => {
                self.entries.insert(name.to_owned(), Entry::of(summary, stamps));
                self.changed = true;
            }
            None => self.changed |= self.entries.remove(name).is_some(),
        }
        summary
    }
}

impl Entry {
    fn of(summary: &Summary, stamps: Vec<Stamp>) -> Self {
        Self {
            stamps,
            header: JsonText::trusted(summary.header.to_line()),
            events: summary.events,
            turns: summary.turns,
            title: summary.title.clone(),
            last_time: summary.last_time,
            open_turn: summary.open_turn,
            bytes: summary.bytes,
        }
    }

    /// The summary, if the session's files are still those that it was made from.
    fn summary(&self, directory: &SessionDirectory) -> Option<Summary> {
        let holds = self.stamps.iter().all(|stamp| stamp_of(directory, &stamp.name).as_ref() == Some(stamp));
        if !holds {
            return None;
        }
        let header = SessionHeader::parse(&self.header).ok()?;
        // Whatever else an entry says, it is about the session that it stands for.
        let key = key::key(&header.session_id().ok()?);
        if directory.path.file_name()?.to_str()? != key {
            return None;
        }
        let has_journal = self.stamps.iter().any(|stamp| journal::seq_of(&stamp.name, "log").is_some());
        Some(Summary {
            header,
            events: self.events,
            turns: self.turns,
            title: self.title.clone(),
            last_time: self.last_time,
            open_turn: self.open_turn,
            bytes: self.bytes,
            torn: None,
            invalid: None,
            // A writer always has a journal.
            live: has_journal && lock::is_live(directory),
        })
    }
}

/// The stamp of one of the session's files; the empty name is the directory's.
fn stamp_of(directory: &SessionDirectory, name: &str) -> Option<Stamp> {
    let path = if name.is_empty() { directory.path.clone() } else { directory.file(name) };
    let stat = directory.files.stat(&path).ok()?;
    let length = if stat.kind == FileKind::File { stat.length } else { 0 };
    Some(Stamp { name: name.to_owned(), inode: stat.identity.inode, length, changed: stat.changed })
}

/// Stamps of the directory and of everything in it that counts.
fn stamps(directory: &SessionDirectory) -> Option<Vec<Stamp>> {
    let mut names = directory.counted_names().ok()?;
    names.sort_unstable();
    std::iter::once("").chain(names.iter().map(String::as_str)).map(|name| stamp_of(directory, name)).collect()
}

/// Reads what a listing shows from the session itself: from its checkpoint on, if it has one.
fn summarise(directory: &SessionDirectory) -> Result<Summary, BackendError> {
    directory.check()?;
    let header = directory.read_header()?;
    // The directory's name may be too short to tell the id; the header, which fits the name, tells it.
    let directory = &SessionDirectory { id: header.session_id().ok(), ..directory.clone() };
    let live = lock::is_live(directory);
    let log = log::scan(directory)?;
    let checkpoint = log.sealed.and_then(|sealed| sealed.checkpoint(directory));
    let fold = checkpoint.and_then(|checkpoint| Fold::from_checkpoint(&checkpoint).ok());
    let mut fold = fold.unwrap_or_else(Fold::new);
    let mut reader = Reader::over(directory.clone(), header.clone());
    reader.seek(fold.next_seq());
    let mut invalid = None;
    'pages: loop {
        let page = reader.next_page(ReadLimit::default())?;
        if page.items.is_empty() {
            break;
        }
        for item in &page.items {
            if let Err(error) = fold.apply_item(item) {
                invalid = Some(error);
                break 'pages;
            }
        }
    }
    Ok(Summary {
        events: fold.next_seq(),
        turns: fold.counts().get(TURN_START).map_or(0, |count| count.count),
        title: fold.title().map(str::to_owned),
        last_time: fold.last_time(),
        open_turn: fold.open_turn().is_some(),
        bytes: directory.stored_bytes()?,
        // A live writer's record in flight is none that was torn.
        torn: log.torn.filter(|_| !live),
        invalid,
        live,
        header,
    })
}
