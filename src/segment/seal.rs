//! Sealing: journals become one immutable segment, small segments one larger.
//!
//! Nothing is taken away before what stands for it is durable and has been read back: a stop at any moment leaves the log as it
//! was or as it is afterwards, at worst with files beside it that count no more.
//!
//! # What the background rewrites
//!
//! A segment *weighs* what its parts are long unpacked, a journal what its bodies are. With the journals, the background takes in
//! those segments at the log's end that each weigh no more than everything behind them that is being sealed, as long as neither
//! reaches [`LIGHT`]. So each time an event is rewritten, the segment that it lies in has doubled, and none is rewritten that has reached
//! `LIGHT`: an event first sealed in a segment of weight `w` is rewritten at most `log2(LIGHT / w) + 1` times however often the
//! session is opened and closed (16 times from 1 KiB on), one job rewrites less than `2 * LIGHT`, and a log of weight `n` has at
//! most about `2 * n / LIGHT` segments and that logarithm. Segments shared with other sessions are never rewritten, on demand
//! neither.

use std::io;
use std::path::PathBuf;

use super::directory::{SessionDirectory, TEMPORARY, identity};
use super::files::{Access, write_all_at};
use super::journal::{JournalHeader, Predecessor, segment_name};
use super::lock::SessionLock;
use super::log::{self, LogEnd};
use super::random::Random;
use super::reader::Reader;
use super::recovery;
use super::scan::{Journal, Opening};
use super::sealed::chain::{Link, SealedEnd};
use super::sealed::derived;
use super::sealed::file::SealedWriter;
use super::sealed::footer::FORMAT;
use super::sealed::segment::Segment;
use super::tree;
use super::verify;
use crate::backend::{BackendError, ErrorKind, ReadLimit};
use crate::session::fold::Fold;

/// How [`Engine::seal`](super::Engine::seal) works. Above [`SealOptions::BACKGROUND_LEVEL`] blocks are three times as large: an event in
/// the middle of a log then takes three times as long to reach, one at its end no longer.
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
    pub const LEVEL: i32 = 17;

    /// Level of sealing in the background, and of imports.
    pub const BACKGROUND_LEVEL: i32 = 3;

    /// Highest level: those above it take longer and save next to nothing.
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

/// A segment below this many bytes is small: the next sealing on demand takes it in.
const SMALL_BYTES: u64 = 8 << 20;

/// Most bytes of segments that sealing on demand rewrites to take them in.
const MERGED_BYTES: u64 = 64 << 20;

/// Weight from which on the background leaves a segment as it is: about what a full journal weighs.
const LIGHT: u64 = 32 << 20;

/// A single journal of fewer bytes, which fits one block of a file system, is left as it is by the background, and a segment at any level.
const FLOOR: u64 = 4096;

/// How much of the log is sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All of it, when asked for, and again what was compressed less than at this level.
    All(i32),
    /// All of it, in the background, when nobody has the session open.
    Closed,
    /// The journals before the one that starts at this seq, which a writer is appending to, in the background.
    Before(u64),
}

/// Bytes that are read at a time.
const PAGE: ReadLimit = ReadLimit { events: u64::MAX, bytes: 1 << 20 };

/// What is done under the session's lock.
type Commit<'a> = &'a dyn Fn(&mut dyn FnMut(&SessionLock) -> Result<(), BackendError>) -> Result<(), BackendError>;

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
    recovery::clear_leftovers(directory, &log);
    // What is sealed already is built on; so what it derives must follow from the records.
    let rebuilt = log.sealed.is_some() && !verify::rebuild(directory, random, false)?.is_empty();
    let mut log = if rebuilt { log::scan(directory)? } else { log };
    while let Some(stretch) = plan(directory, &log, Extent::All(options.level))? {
        let draft = Draft::write(directory, random, &log, &stretch, options.level, &|| true)?;
        draft.publish(directory, &log, &stretch)?;
        log = log::scan(directory)?;
    }
    drop(lock);
    Ok(())
}

/// Seals what a live writer is done with, or a session that was closed. The lock is taken by `commit`, for the moment in which the
/// segment gets its name.
///
/// # Errors
/// `Busy` when somebody else has the session by then, `NotFound` when it is gone; damage, I/O. The journals stay in service.
pub(crate) fn in_background(
    directory: &SessionDirectory,
    random: &Random,
    extent: Extent,
    go_on: &dyn Fn() -> bool,
    commit: Commit<'_>,
) -> Result<(), BackendError> {
    directory.check()?;
    let log = log::scan(directory)?;
    // A torn end is for the next writer to set aside; beside a live one it is an append in flight.
    if extent == Extent::Closed && log.torn.is_some() {
        return Ok(());
    }
    checkpoint_of_fork(directory, random, &log, go_on)?;
    let Some(stretch) = plan(directory, &log, extent)? else { return Ok(()) };
    let draft = Draft::write(directory, random, &log, &stretch, SealOptions::BACKGROUND_LEVEL, go_on)?;
    let mut draft = Some(draft);
    commit(&mut |lock| {
        let Some(draft) = draft.take() else { return Ok(()) };
        let superseded = || directory.error(ErrorKind::Busy, "somebody else has changed the session meanwhile");
        // A lock that was replaced, or a log that is not as it was: another writer has been here.
        if !matches!(lock.is_held(&*directory.files), Ok(true)) {
            return Err(superseded());
        }
        let log = log::scan(directory)?;
        if plan(directory, &log, extent)?.as_ref() != Some(&stretch) {
            return Err(superseded());
        }
        recovery::clear_leftovers(directory, &log);
        draft.publish(directory, &log, &stretch)
    })
}

/// The error of sealing that was told to stop.
pub(crate) fn stopped(directory: &SessionDirectory) -> BackendError {
    directory.error(ErrorKind::Io, "sealing was stopped; the journals stay in service")
}

/// What becomes one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    from: u64,
    upto: u64,
    epoch: u64,
    last_journal: Predecessor,
    continued: bool,
}

/// What there is to seal; `None` when it would change nothing.
fn plan(directory: &SessionDirectory, log: &LogEnd, extent: Extent) -> Result<Option<Stretch>, BackendError> {
    let links = log.sealed.as_ref().map_or(&[][..], |sealed| &sealed.links);
    let sealed = links.last().map_or(0, |link| link.next_seq);
    let (upto, epoch, last_journal) = match extent {
        Extent::Before(upto) if upto <= sealed => return Ok(None),
        Extent::Before(upto) => {
            let Opening::Sound(next) = Journal::open(directory, upto, sealed)? else { return Ok(None) };
            let Some(last_journal) = next.header.predecessor else { return Ok(None) };
            let Opening::Sound(last) = Journal::open(directory, last_journal.first_seq, sealed)? else {
                return Ok(None);
            };
            (upto, last.header.epoch, last_journal)
        }
        Extent::All(_) | Extent::Closed => {
            let Some(last_journal) = log.predecessor() else { return Ok(None) };
            (log.next_seq, log.epoch(), last_journal)
        }
    };
    let taken = if let Extent::All(level) = extent {
        let taken = small_at_the_end(links);
        if upto == sealed && taken < 2 {
            return links
                .iter()
                .find(|link| is_worth_more(link, level))
                .map_or(Ok(None), |link| again(directory, link));
        }
        taken
    } else {
        let fresh = log.journals.iter().filter(|journal| journal.first_seq < upto);
        let (count, bytes, weight) = fresh.fold((0_u64, 0_u64, 0_u64), |(count, bytes, weight), journal| {
            (count + 1, bytes.saturating_add(journal.length), weight.saturating_add(journal.weight))
        });
        if upto == sealed || count < 2 && bytes < FLOOR {
            return Ok(None);
        }
        light_at_the_end(links, weight)
    };
    let first_taken = links.len().checked_sub(taken).and_then(|index| links.get(index));
    let from = first_taken.map_or(sealed, |link| link.first_seq);
    let continued = match extent {
        Extent::Before(_) => true,
        Extent::All(_) | Extent::Closed => directory.layout()?.journals.iter().any(|name| *name >= upto),
    };
    Ok(Some(Stretch { from, upto, epoch, last_journal, continued }))
}

/// Whether a segment by itself is to be compressed at this level. Rewriting one that forks hold as well would free nothing, and neither
/// would one that takes a block of the file system at any level.
fn is_worth_more(link: &Link, level: i32) -> bool {
    link.level < level && !link.shared && link.names < 2 && link.length > FLOOR
}

/// A segment by itself, to be compressed again.
fn again(directory: &SessionDirectory, link: &Link) -> Result<Option<Stretch>, BackendError> {
    let Some(segment) = Segment::open(directory, link.first_seq, link.first_seq)? else { return Ok(None) };
    Ok(Some(Stretch {
        from: link.first_seq,
        upto: link.next_seq,
        epoch: segment.header.epoch,
        last_journal: segment.last_journal,
        continued: segment.footer.continued,
    }))
}

/// How many segments at the log's end sealing on demand takes in.
fn small_at_the_end(links: &[Link]) -> usize {
    let mut bytes = 0_u64;
    let small = links.iter().rev().take_while(|link| {
        bytes = bytes.saturating_add(link.length);
        !link.shared && link.length < SMALL_BYTES && bytes <= MERGED_BYTES
    });
    small.count()
}

/// How many segments at the log's end the background takes in with journals of this weight.
fn light_at_the_end(links: &[Link], fresh: u64) -> usize {
    let mut behind = fresh;
    let light = links.iter().rev().take_while(|link| {
        let light = !link.shared && link.weight <= behind && link.weight.max(behind) < LIGHT;
        behind = behind.saturating_add(link.weight);
        light
    });
    light.count()
}

/// The state of the log at `from`, where a segment ends: from that segment's checkpoint, or else by reading what lies before.
/// `None` when an event before it is one that no session accepts.
fn fold_at(
    directory: &SessionDirectory,
    log: &LogEnd,
    from: u64,
    go_on: &dyn Fn() -> bool,
) -> Result<Option<Fold>, BackendError> {
    if from == 0 {
        return Ok(Some(Fold::new()));
    }
    let links = log.sealed.as_ref().map_or(&[][..], |sealed| &sealed.links);
    let mut replay_from = 0;
    let mut stored = None;
    if let Some(link) = links.iter().find(|link| link.next_seq == from)
        && let Some(segment) = Segment::open(directory, link.first_seq, link.first_seq)?
    {
        stored = if let Some(until) = segment.until {
            // Its footer tells of events that are not part of this log. At most one segment is like that.
            replay_from = link.first_seq;
            derived::read_checkpoint(directory, segment.header.salt, until).map(Some)
        } else {
            let checkpoint = segment.checkpoint();
            (checkpoint.is_some() || segment.footer.checkpoint.is_none()).then_some(checkpoint)
        };
    }
    match stored {
        Some(None) => return Ok(None),
        Some(Some(checkpoint)) => match Fold::from_checkpoint(&checkpoint) {
            Ok(fold) => return Ok(Some(fold)),
            Err(error) => tracing::debug!(%error, "the log is replayed to seal it"),
        },
        None => {}
    }
    let mut fold = fold_at(directory, log, replay_from, go_on)?;
    each_item(directory, replay_from, from, go_on, |item| {
        fold = fold.take().and_then(|mut fold| fold.apply_item(&item).ok().map(|()| fold));
        Ok(())
    })?;
    Ok(fold)
}

/// Gives a session whose last segment counts in part the checkpoint behind it, so that resuming does not replay what is shared.
fn checkpoint_of_fork(
    directory: &SessionDirectory,
    random: &Random,
    log: &LogEnd,
    go_on: &dyn Fn() -> bool,
) -> Result<(), BackendError> {
    let has = |end: &SealedEnd| end.checkpoint(directory).is_some_and(|checkpoint| checkpoint.next_seq == end.next_seq);
    let Some(end) = log.sealed.as_ref().filter(|end| end.cut && !has(end)) else { return Ok(()) };
    match fold_at(directory, log, end.next_seq, go_on)? {
        Some(fold) => derived::write_checkpoint(directory, random, end.header.salt, &fold.checkpoint()),
        None => Ok(()),
    }
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
            return Err(stopped(directory));
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

/// A segment under its temporary name: durable, read back, not part of the log yet. Removed when it is dropped unpublished.
struct Draft<'a> {
    directory: &'a SessionDirectory,
    temporary: PathBuf,
}

impl<'a> Draft<'a> {
    fn write(
        directory: &'a SessionDirectory,
        random: &Random,
        log: &LogEnd,
        stretch: &Stretch,
        level: i32,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Self, BackendError> {
        let failed = |error| directory.io("writing a sealed segment", &directory.path, error);
        let mut fold = fold_at(directory, log, stretch.from, go_on)?;
        let header = JournalHeader {
            salt: random.number().map_err(failed)?,
            session: identity(directory.id.as_ref()),
            first_seq: stretch.from,
            epoch: stretch.epoch,
            predecessor: Some(stretch.last_journal),
        };
        let draft = Self::at(directory, random)?;
        let failed = |error| directory.io("writing a sealed segment", &draft.temporary, error);
        let file = directory.files.open(&draft.temporary, Access::CreateNew).map_err(failed)?;
        write_all_at(&*file, &header.encode_as(FORMAT), 0).map_err(failed)?;
        let mut writer = SealedWriter::new(&*file, header.salt, stretch.from, level);
        each_item(directory, stretch.from, stretch.upto, go_on, |item| {
            fold = fold.take().and_then(|mut fold| fold.apply_item(&item).ok().map(|()| fold));
            writer.push(item)
        })?;
        let checkpoint = fold.as_ref().map(|fold| fold.checkpoint().state);
        writer.finish(checkpoint.as_ref(), stretch.continued).and_then(|_| file.sync_all()).map_err(failed)?;
        drop(file);
        draft.read_back(stretch, go_on)?;
        Ok(draft)
    }

    /// A draft that has a name and no file yet.
    fn at(directory: &'a SessionDirectory, random: &Random) -> Result<Self, BackendError> {
        let number = random.number().map_err(|error| directory.io("naming a segment", &directory.path, error))?;
        Ok(Self { directory, temporary: directory.file(&format!("{TEMPORARY}{number:016x}")) })
    }

    /// Reads every block of the file.
    fn read_back(&self, stretch: &Stretch, go_on: &dyn Fn() -> bool) -> Result<(), BackendError> {
        let gone = || self.directory.error(ErrorKind::Busy, "the segment being written was removed by another writer");
        let segment =
            Segment::open_at(self.directory, &self.temporary, stretch.from, stretch.from)?.ok_or_else(gone)?;
        for index in 0..segment.footer.blocks.len() {
            if !go_on() {
                return Err(stopped(self.directory));
            }
            segment.block(self.directory, index)?;
        }
        if segment.next_seq() == stretch.upto {
            return Ok(());
        }
        let detail =
            "the segment that was just written does not hold what it was to hold; the journals stay in service";
        Err(self.directory.error(ErrorKind::Io, detail))
    }

    /// Gives the segment its name and removes what it stands for. The caller holds the session's lock; `log` is as it is under it.
    fn publish(self, directory: &SessionDirectory, log: &LogEnd, stretch: &Stretch) -> Result<(), BackendError> {
        let target = directory.file(&segment_name(stretch.from));
        let failed = |error| directory.io("giving a sealed segment its name", &target, error);
        if stretch.continued {
            // The segment says that a journal follows. Whoever gave that one its name may have been stopped before the name was
            // durable, and the segment must not survive a loss of power without it.
            directory.files.sync_directory(&directory.path).map_err(failed)?;
        }
        directory.files.rename(&self.temporary, &target).map_err(failed)?;
        directory.files.sync_directory(&directory.path).map_err(failed)?;
        let now = log::scan(directory)?;
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
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        match self.directory.files.remove_file(&self.temporary) {
            Err(remains) if remains.kind() != io::ErrorKind::NotFound => {
                tracing::debug!(path = %self.temporary.display(), error = %remains, "a temporary file remains");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn link(first_seq: u64, weight: u64) -> Link {
        Link { first_seq, next_seq: first_seq + 1, length: weight / 4, weight, shared: false, level: 3, names: 1 }
    }

    proptest! {
        /// A session opened, grown and closed any number of times: every event's rewrites stay below the logarithm, and so does the
        /// number of light segments; no job rewrites more than twice what is light.
        #[test]
        fn what_the_background_rewrites_is_bounded(grown in prop::collection::vec(1_u64 << 10..4 << 20, 1..400)) {
            let mut links: Vec<Link> = Vec::new();
            // For each segment the first weight of the events in it that were rewritten most, and how often.
            let mut rewritten: Vec<Vec<(u64, u32)>> = Vec::new();
            for (number, fresh) in (0..).zip(grown) {
                let taken = light_at_the_end(&links, fresh);
                let from = links.len() - taken;
                let moved: u64 = links[from..].iter().map(|link| link.weight).sum();
                prop_assert!(moved < 2 * LIGHT);
                let mut events: Vec<(u64, u32)> = rewritten.drain(from..).flatten().collect();
                events.iter_mut().for_each(|(_, times)| *times += 1);
                for (first, times) in &events {
                    prop_assert!(*times <= (LIGHT / first).ilog2() + 1, "{} of {}", times, first);
                }
                events.push((fresh, 0));
                let first_seq = links.get(from).map_or(number, |link| link.first_seq);
                links.truncate(from);
                links.push(link(first_seq, moved + fresh));
                rewritten.push(events);
                let total: u64 = links.iter().map(|link| link.weight).sum();
                let most = 2 * total / LIGHT + u64::from((LIGHT >> 10).ilog2()) + 1;
                prop_assert!(links.len() as u64 <= most, "{} segments", links.len());
            }
        }
    }

    #[test]
    fn shared_segments_are_never_taken_in() {
        let shared = Link { shared: true, ..link(0, 10) };
        assert_eq!(light_at_the_end(&[link(0, 10), shared, link(2, 10)], 100), 1);
        assert_eq!(small_at_the_end(&[link(0, 10), shared]), 0);
        let twice = Link { names: 2, ..link(0, LIGHT) };
        let worth = |link: &Link, level| is_worth_more(link, level);
        assert!(worth(&link(0, LIGHT), 4) && !worth(&link(0, LIGHT), 3) && !worth(&link(0, 4 * FLOOR), 4));
        assert!(!worth(&twice, 4) && !worth(&Link { shared: true, ..link(0, LIGHT) }, 4));
        assert_eq!(light_at_the_end(&[link(0, LIGHT)], 2 * LIGHT), 0);
        assert_eq!(light_at_the_end(&[link(0, 11), link(1, 3), link(2, 4)], 4), 3);
        assert_eq!(light_at_the_end(&[link(0, 12), link(1, 3), link(2, 4)], 4), 2);
    }
}
