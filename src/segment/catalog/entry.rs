//! One session's entry: what a listing shows of it, and the state of its files that this was read from.

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Summary;
use super::text::{self, FileName};
use crate::backend::{BackendError, ReadLimit};
use crate::event::control::TURN_START;
use crate::segment::directory::SessionDirectory;
use crate::segment::files::{Directory, FileKind, Files, Stat};
use crate::segment::reader::Reader;
use crate::segment::{lock, log};
use crate::session::fold::Fold;

/// For how long after its files were compared a session's directory alone is looked at.
const FRESH: Duration = Duration::from_secs(2);

/// The directory of all sessions, as one thread looks at it.
#[derive(Debug)]
pub(super) struct Sessions<'a> {
    files: &'a Arc<dyn Files>,
    path: &'a Path,
    open: Option<Box<dyn Directory>>,
    below: String,
    /// When the looking began.
    now: SystemTime,
}

impl<'a> Sessions<'a> {
    pub(super) fn new(files: &'a Arc<dyn Files>, path: &'a Path, now: SystemTime) -> Self {
        // Without a handle the whole path is gone each time; what is wrong shows there.
        Self { files, path, open: files.open_directory(path).ok().flatten(), below: String::new(), now }
    }

    pub(super) fn now(&self) -> SystemTime {
        self.now
    }

    pub(super) fn directory(&self, name: &str) -> SessionDirectory {
        let id = crate::segment::key::decode(name);
        SessionDirectory { files: Arc::clone(self.files), path: self.path.join(name), id }
    }

    /// Facts about a session's directory, or about a file in it.
    fn stat(&mut self, session: &str, file: Option<FileName<'_>>) -> io::Result<Stat> {
        self.below.clear();
        self.below.push_str(session);
        if let Some(file) = file {
            // Text takes whatever is written to it.
            let _ = write!(self.below, "/{file}");
        }
        match &self.open {
            Some(open) => open.stat(&self.below),
            None => self.files.stat(&self.path.join(&self.below)),
        }
    }
}

/// What tells one state of a file or directory from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::segment) struct Stamp {
    pub(super) inode: u64,
    /// Of a file, in bytes.
    pub(super) length: u64,
    pub(super) changed: (i64, i64),
}

impl Stamp {
    pub(in crate::segment) fn of_directory(stat: &Stat) -> Option<Self> {
        let of = |stat: &Stat| Self { inode: stat.identity.inode, length: 0, changed: stat.changed };
        (stat.kind == FileKind::Directory).then(|| of(stat))
    }

    fn of_file(stat: &Stat) -> Option<Self> {
        let of = |stat: &Stat| Self { inode: stat.identity.inode, length: stat.length, changed: stat.changed };
        (stat.kind == FileKind::File).then(|| of(stat))
    }

    /// Whether a change made from `now` on shows in the stamp. File systems tell time in steps: what changes again within the same
    /// step has the change time that it had. Whole seconds may be steps of up to two; all others are of some milliseconds, and what is
    /// on top of that is for the clock of a file server that is not quite ours. A time that is yet to come tells nothing.
    pub(in crate::segment) fn is_settled(&self, now: SystemTime) -> bool {
        const NANOSECONDS: i128 = 1_000_000_000;
        let (seconds, nanoseconds) = self.changed;
        let changed = i128::from(seconds) * NANOSECONDS + i128::from(nanoseconds);
        let now = match now.duration_since(UNIX_EPOCH) {
            Ok(since) => i128::try_from(since.as_nanos()).unwrap_or(i128::MAX),
            Err(before) => i128::try_from(before.duration().as_nanos()).map_or(i128::MIN, |before| -before),
        };
        let step = if nanoseconds == 0 { 3 * NANOSECONDS } else { NANOSECONDS / 10 };
        now.saturating_sub(changed) > step
    }
}

/// The state of a session's files at one moment: of everything in its directory that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stamps {
    pub(super) directory: Stamp,
    /// Of the files by name, as the catalogue has them: there are many, and seldom looked at.
    pub(super) files: Box<[u8]>,
    /// Bytes of the files, and of the journals among them if there are any.
    pub(super) bytes: u64,
    journaled: Option<u64>,
}

impl Stamps {
    fn take(directory: &SessionDirectory) -> Option<Self> {
        // The directory comes first: a name made or removed afterwards changes it.
        let stamp = Stamp::of_directory(&directory.files.stat(&directory.path).ok()?)?;
        let mut names = directory.counted_names().ok()?;
        names.sort_unstable();
        let mut files = Vec::new();
        for name in names {
            let stat = directory.files.stat(&directory.file(&name)).ok()?;
            if let Some(stamp) = Stamp::of_file(&stat) {
                text::put_file(&mut files, &name, &stamp);
            }
        }
        Self::new(stamp, &files)
    }

    /// Takes the packed stamps of files; `None` if they are none.
    pub(super) fn new(directory: Stamp, mut files: &[u8]) -> Option<Self> {
        let mut stamps = Self { directory, files: files.into(), bytes: 0, journaled: None };
        while !files.is_empty() {
            let (name, stamp) = text::take_file(&mut files)?;
            stamps.bytes = stamps.bytes.saturating_add(stamp.length);
            if let FileName::Journal(_) = name {
                stamps.journaled = Some(stamps.journaled.unwrap_or(0).saturating_add(stamp.length));
            }
        }
        Some(stamps)
    }

    /// The files, one after the other.
    fn files(&self) -> impl Iterator<Item = (FileName<'_>, Stamp)> {
        let mut rest = &*self.files;
        std::iter::from_fn(move || text::take_file(&mut rest))
    }

    fn is_settled(&self, now: SystemTime) -> bool {
        self.directory.is_settled(now) && self.files().all(|(_, stamp)| stamp.is_settled(now))
    }
}

/// What the catalogue keeps of a sound session.
#[derive(Debug)]
pub(super) struct Entry {
    /// Without what is seen afresh each time: whether the session is live.
    pub(super) summary: Arc<Summary>,
    pub(super) stamps: Stamps,
    /// Whether nobody had the session open when the directory had this stamp. Whoever opens it for writing puts a new journal into the
    /// directory, so from then on the stamp is another: while it is not, nobody has it open, and no journal grows.
    pub(super) free: bool,
    /// When this process last compared every file. What shows later than at once is damage done in place.
    compared: Option<SystemTime>,
    /// How many bytes it takes in the catalogue.
    packed: usize,
}

impl Entry {
    pub(super) fn new(summary: Summary, stamps: Stamps, free: bool, packed: usize) -> Self {
        let summary = Summary { bytes: stamps.bytes, torn: None, invalid: None, live: false, ..summary };
        Self { summary: Arc::new(summary), stamps, free, compared: None, packed }
    }

    /// The session's summary, read anew, and an entry if it is one to keep.
    ///
    /// `now` is a time before anything was looked at.
    pub(super) fn read(directory: &SessionDirectory, now: SystemTime) -> (Result<Summary, BackendError>, Option<Self>) {
        let before = Stamps::take(directory);
        let found = match summarise(directory) {
            Ok(found) => found,
            Err(error) => return (Err(error), None),
        };
        // An entry is kept only if nothing moved while the log was read, and if what moves later will show.
        let settled = before.filter(|before| found.is_sound && before.is_settled(now));
        let entry = settled.filter(|before| Stamps::take(directory).as_ref() == Some(before)).map(|stamps| {
            // A writer always has a journal.
            let free = !found.summary.live || stamps.journaled.is_none();
            let mut entry = Self::new(found.summary.clone(), stamps, free, 0);
            entry.packed = text::encode(&entry).len();
            Self { compared: Some(now), ..entry }
        });
        (Ok(found.summary), entry)
    }

    /// What it costs to read the session anew, in about the time that reading a small one takes.
    pub(super) fn weight(&self) -> u64 {
        1 + self.stamps.journaled.unwrap_or(0) / (64 << 10)
    }

    /// Has the next look at the session compare every file.
    pub(super) fn distrust(&mut self) {
        self.compared = None;
    }

    /// About how many bytes of memory it takes: what is packed, unpacked and with what allocations cost.
    pub(super) fn memory(&self) -> usize {
        const FIXED: usize = size_of::<Entry>() + size_of::<Summary>() + 256;
        self.packed.saturating_mul(2).saturating_add(FIXED)
    }

    /// The summary, if the session's files are still those that it was made from. The files themselves are looked at unless the
    /// directory alone tells, and they were not long ago.
    pub(super) fn summary(&mut self, name: &str, sessions: &mut Sessions<'_>) -> Option<Arc<Summary>> {
        // Looked at first: what somebody did who has closed the session by now shows in what is looked at next.
        // Why that cannot be told, reading the session anew says.
        let live = !self.free && lock::is_live(&sessions.directory(name)).ok()?;
        let found = sessions.stat(name, None).ok()?;
        if Stamp::of_directory(&found) != Some(self.stamps.directory) {
            return None;
        }
        let fresh = self.compared.is_some_and(|then| sessions.now.duration_since(then).is_ok_and(|age| age < FRESH));
        if !fresh || !self.free {
            for (file, stamp) in self.stamps.files() {
                let found = sessions.stat(name, Some(file)).ok()?;
                if Stamp::of_file(&found) != Some(stamp) {
                    return None;
                }
            }
            self.compared = Some(sessions.now);
        }
        self.free = !live;
        Some(if live { Arc::new(Summary { live, ..(*self.summary).clone() }) } else { Arc::clone(&self.summary) })
    }
}

/// What a session's log and lock say.
pub(super) struct Found {
    pub(super) summary: Summary,
    /// Whether nothing is wrong with the log, neither now nor once whoever writes it ends.
    is_sound: bool,
}

/// Reads what a listing shows from the session itself: from its checkpoint on, if it has one.
pub(super) fn summarise(directory: &SessionDirectory) -> Result<Found, BackendError> {
    directory.check()?;
    let header = directory.read_header()?;
    // The directory's name may be too short to tell the id; the header, which fits the name, tells it.
    let directory = &SessionDirectory { id: header.session_id().ok(), ..directory.clone() };
    let live = lock::is_live(directory)?;
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
    let is_sound = log.torn.is_none() && invalid.is_none();
    let summary = Summary {
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
    };
    Ok(Found { summary, is_sound })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_changed_within_a_step_of_the_clock_or_is_yet_to_change_is_not_settled() {
        let at = |seconds, nanoseconds| Stamp { inode: 1, length: 2, changed: (seconds, nanoseconds) };
        let now = UNIX_EPOCH + Duration::from_millis(10_000_500);
        // File systems that know parts of a second know them to some milliseconds.
        for (stamp, settled) in [
            (at(10_000, 500_000_000), false),
            (at(10_000, 450_000_000), false),
            (at(10_000, 399_999_999), true),
            (at(10_000, 550_000_000), false),
            (at(10_000, 600_000_001), false),
            // Those that do not may count by two.
            (at(10_000, 0), false),
            (at(9_998, 0), false),
            (at(9_997, 0), true),
            (at(10_003, 0), false),
            (at(10_004, 0), false),
            (at(-5, 1), true),
            (at(i64::MAX, i64::MAX), false),
            (at(i64::MIN, i64::MIN), true),
        ] {
            assert_eq!(stamp.is_settled(now), settled, "{stamp:?}");
        }
        assert!(!at(-5, 1).is_settled(UNIX_EPOCH - Duration::from_secs(5)));
        assert!(at(-6, 1).is_settled(UNIX_EPOCH - Duration::from_secs(5)));
    }
}
