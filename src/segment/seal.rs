//! Sealing: journals become one immutable segment, small segments one larger.
//!
//! Nothing is taken away before what stands for it is durable and has been read back: a stop at any moment leaves the log as it
//! was or as it is afterwards, at worst with files beside it that count no more.

use std::io;

use super::directory::{SessionDirectory, TEMPORARY, identity};
use super::files::{Access, write_all_at};
use super::journal::{JournalHeader, Predecessor, segment_name};
use super::lock::SessionLock;
use super::log::{self, LogEnd, Visitor};
use super::random::Random;
use super::reader::Reader;
use super::recovery;
use super::scan::{Journal, Opening};
use super::sealed::file::SealedWriter;
use super::sealed::footer::MAGIC;
use super::sealed::segment::Segment;
use super::tree;
use crate::backend::{BackendError, ErrorKind, ReadLimit};
use crate::session::fold::Fold;

/// How [`Engine::seal`](super::Engine::seal) works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealOptions {
    level: i32,
}

impl Default for SealOptions {
    fn default() -> Self {
        Self { level: Self::LEVEL }
    }
}

impl SealOptions {
    /// Default compression level of sealing on demand.
    pub const LEVEL: i32 = 9;

    /// Highest level: those above it need more memory to unpack than they save bytes.
    pub const MAX_LEVEL: i32 = 19;

    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The zstd level, 1 to [`SealOptions::MAX_LEVEL`]; others are taken for the nearest of these.
    pub fn level(mut self, level: i32) -> Self {
        self.level = level.clamp(1, Self::MAX_LEVEL);
        self
    }
}

/// What sealing a session came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    /// Bytes of all the session's files before.
    pub before: u64,
    /// The same afterwards.
    pub after: u64,
}

/// Level of sealing in the background.
pub(crate) const BACKGROUND_LEVEL: i32 = 3;

/// A segment below this many bytes is small: the next sealing takes it in.
const SMALL_BYTES: u64 = 8 << 20;

/// Most bytes of segments that are rewritten to take them in.
const MERGED_BYTES: u64 = 64 << 20;

/// How much of the log is sealed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Extent {
    /// All of it; there is no other writer.
    All,
    /// The journals before the one that starts at this seq, which a writer is appending to.
    Before(u64),
}

/// Bytes that are read at a time.
const PAGE: ReadLimit = ReadLimit { events: u64::MAX, bytes: 1 << 20 };

/// Seals the whole session, taking its lock for the time.
///
/// # Errors
/// `NotFound`, `Busy`, damage (then nothing was changed), I/O.
pub(crate) fn seal_session(
    directory: &SessionDirectory,
    random: &Random,
    options: SealOptions,
) -> Result<(), BackendError> {
    directory.check()?;
    directory.read_header()?;
    let lock = SessionLock::take(directory)?;
    directory.read_header()?;
    let log = log::scan(directory)?;
    tree::clear_session(directory);
    if let Some(torn) = &log.torn {
        recovery::set_aside(directory, random, &log, torn)?;
    }
    seal(directory, random, &log, Extent::All, options.level, &|| true)?;
    drop(lock);
    Ok(())
}

/// Seals the journals that a live writer is done with. The caller shares the writer's lock.
///
/// # Errors
/// Damage, I/O; the journals stay in service.
pub(crate) fn seal_rotated(
    directory: &SessionDirectory,
    random: &Random,
    upto: u64,
    go_on: &dyn Fn() -> bool,
) -> Result<(), BackendError> {
    let log = log::scan(directory)?;
    seal(directory, random, &log, Extent::Before(upto), BACKGROUND_LEVEL, go_on)
}

/// What becomes one segment.
struct Stretch {
    from: u64,
    upto: u64,
    epoch: u64,
    last_journal: Predecessor,
    continued: bool,
}

fn seal(
    directory: &SessionDirectory,
    random: &Random,
    log: &LogEnd,
    extent: Extent,
    level: i32,
    go_on: &dyn Fn() -> bool,
) -> Result<(), BackendError> {
    recovery::clear_leftovers(directory, log);
    let Some(stretch) = plan(directory, log, extent)? else { return Ok(()) };
    if stretch.continued {
        // The segment will say that a journal follows. Whoever gave that one its name may have been stopped before the name was
        // durable, and the segment must not survive a loss of power without it.
        let synced = directory.files.sync_directory(&directory.path);
        synced.map_err(|error| directory.io("sealing the journals", &directory.path, error))?;
    }
    let fold = fold_at(directory, log, stretch.from)?;
    write_segment(directory, random, &stretch, level, fold, go_on)?;
    let now = log::scan_with(directory, &mut ReadBack { from: stretch.from })?;
    let there = now.sealed.as_ref().is_some_and(|sealed| sealed.next_seq >= stretch.upto);
    if !there || now.next_seq < log.next_seq {
        let detail = "the segment that was just written is not what readers find; the journals stay in service";
        return Err(directory.error(ErrorKind::Io, detail));
    }
    recovery::clear_leftovers(directory, &now);
    directory
        .files
        .sync_directory(&directory.path)
        .map_err(|error| directory.io("removing sealed journals", &directory.path, error))
}

/// What there is to seal; `None` when it would change nothing.
fn plan(directory: &SessionDirectory, log: &LogEnd, extent: Extent) -> Result<Option<Stretch>, BackendError> {
    let links = log.sealed.as_ref().map_or(&[][..], |sealed| &sealed.links);
    let sealed = links.last().map_or(0, |link| link.next_seq);
    match extent {
        Extent::Before(upto) if upto <= sealed => Ok(None),
        Extent::Before(upto) => {
            let Opening::Sound(next) = Journal::open(directory, upto, sealed)? else { return Ok(None) };
            let Some(last_journal) = next.header.predecessor else { return Ok(None) };
            let Opening::Sound(last) = Journal::open(directory, last_journal.first_seq, sealed)? else {
                return Ok(None);
            };
            let epoch = last.header.epoch;
            Ok(Some(Stretch { from: sealed, upto, epoch, last_journal, continued: true }))
        }
        Extent::All => {
            let Some(last_journal) = log.predecessor() else { return Ok(None) };
            let upto = log.next_seq;
            let mut from = sealed;
            let mut bytes = 0_u64;
            let mut taken = 0;
            for link in links.iter().rev() {
                bytes = bytes.saturating_add(link.length);
                if link.length >= SMALL_BYTES || bytes > MERGED_BYTES {
                    break;
                }
                from = link.first_seq;
                taken += 1;
            }
            if upto == sealed && taken < 2 {
                return Ok(None);
            }
            let continued = directory.layout()?.journals.iter().any(|name| *name >= upto);
            Ok(Some(Stretch { from, upto, epoch: log.epoch(), last_journal, continued }))
        }
    }
}

/// The state of the log at `from`, where a segment ends: from that segment's checkpoint, or else by reading what lies before.
/// `None` when an event before it is one that no session accepts.
fn fold_at(directory: &SessionDirectory, log: &LogEnd, from: u64) -> Result<Option<Fold>, BackendError> {
    if from == 0 {
        return Ok(Some(Fold::new()));
    }
    let links = log.sealed.as_ref().map_or(&[][..], |sealed| &sealed.links);
    let before = links.iter().find(|link| link.next_seq == from);
    let before = match before {
        Some(link) => Segment::open(directory, link.first_seq, link.first_seq)?,
        None => None,
    };
    // One that counts in part has no checkpoint of that part.
    if let Some(segment) = before.filter(|segment| segment.until.is_none()) {
        match segment.footer.checkpoint() {
            None => return Ok(None),
            Some(checkpoint) => match Fold::from_checkpoint(&checkpoint) {
                Ok(fold) => return Ok(Some(fold)),
                Err(error) => tracing::debug!(%error, "the log is replayed to seal it"),
            },
        }
    }
    let mut fold = Some(Fold::new());
    each_item(directory, 0, from, &|| true, |item| {
        fold = fold.take().and_then(|mut fold| fold.apply_item(&item).ok().map(|()| fold));
        Ok(())
    })?;
    Ok(fold)
}

/// Shows every item of a stretch of the log.
fn each_item(
    directory: &SessionDirectory,
    from: u64,
    upto: u64,
    go_on: &dyn Fn() -> bool,
    mut show: impl FnMut(crate::event::Item) -> io::Result<()>,
) -> Result<(), BackendError> {
    let mut reader = Reader::over(directory.clone(), directory.read_header()?);
    reader.seek(from);
    while reader.position() < upto {
        if !go_on() {
            return Err(directory.error(ErrorKind::Io, "sealing was stopped; the journals stay in service"));
        }
        let page = reader.next_page(PAGE)?;
        if page.items.is_empty() {
            return Err(directory.error(ErrorKind::Io, "the log ends before what was to be sealed"));
        }
        for item in page.items {
            if let Some(part) = item.slice(from, upto) {
                show(part).map_err(|error| directory.io("writing a sealed segment", &directory.path, error))?;
            }
        }
    }
    Ok(())
}

/// Writes a segment under a temporary name, makes it durable, and gives it its name.
fn write_segment(
    directory: &SessionDirectory,
    random: &Random,
    stretch: &Stretch,
    level: i32,
    mut fold: Option<Fold>,
    go_on: &dyn Fn() -> bool,
) -> Result<(), BackendError> {
    let target = directory.file(&segment_name(stretch.from));
    let failed = |error| directory.io("writing a sealed segment", &target, error);
    let header = JournalHeader {
        salt: random.number().map_err(failed)?,
        session: identity(directory.id.as_ref()),
        first_seq: stretch.from,
        epoch: stretch.epoch,
        predecessor: Some(stretch.last_journal),
    };
    let temporary = directory.file(&format!("{TEMPORARY}{:016x}", random.number().map_err(failed)?));
    let mut write = || -> Result<(), BackendError> {
        let file = directory.files.open(&temporary, Access::CreateNew).map_err(failed)?;
        write_all_at(&*file, &header.encode_as(MAGIC), 0).map_err(failed)?;
        let mut writer = SealedWriter::new(&*file, header.salt, stretch.from, level);
        each_item(directory, stretch.from, stretch.upto, go_on, |item| {
            fold = fold.take().and_then(|mut fold| fold.apply_item(&item).ok().map(|()| fold));
            writer.push(item)
        })?;
        let checkpoint = fold.as_ref().map(|fold| fold.checkpoint().state);
        writer.finish(checkpoint, stretch.continued).and_then(|_| file.sync_all()).map_err(failed)?;
        if !go_on() {
            return Err(directory.error(ErrorKind::Io, "sealing was stopped; the journals stay in service"));
        }
        directory.files.rename(&temporary, &target).map_err(failed)
    };
    if let Err(error) = write() {
        match directory.files.remove_file(&temporary) {
            Err(remains) if remains.kind() != io::ErrorKind::NotFound => {
                tracing::debug!(path = %temporary.display(), error = %remains, "a temporary file remains");
            }
            _ => {}
        }
        return Err(error);
    }
    directory.files.sync_directory(&directory.path).map_err(failed)
}

/// Unpacks every block of the segments from a seq on.
struct ReadBack {
    from: u64,
}

impl Visitor for ReadBack {
    fn segment(&mut self, directory: &SessionDirectory, segment: &Segment) -> Result<(), BackendError> {
        if segment.footer.first_seq < self.from {
            return Ok(());
        }
        (0..segment.footer.blocks.len()).try_for_each(|index| segment.block(directory, index).map(drop))
    }
}
