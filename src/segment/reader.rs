//! Reading a session without a lock, beside a live writer or after it.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directory::SessionDirectory;
use super::files::{Files, Identity, RealFiles};
use super::journal;
use super::key;
use super::log;
use super::recent::RecentBlocks;
use super::scan::{Content, Fault, Journal, Opening, Record, Scanner};
use super::sealed::chain::{self, SealedEnd, Walk};
use super::sealed::segment::Segment;
use crate::backend::{BackendError, DamageClass, Page, ReadLimit};
use crate::event::{Item, SessionHeader};

/// How often a reader looks again when files are replaced under it.
const ATTEMPTS: usize = 50;

/// Reads a session's events in order, from any seq on, without a lock and without writing.
///
/// A reader follows a live log: at its end [`Reader::next_page`] gives an empty page, and the next call sees what was appended
/// meanwhile, also in another journal. Files that are replaced or removed under a reader make it look again by seq. Cost of a
/// page is the page and, of what is sealed, the rest of the blocks it starts and ends in; a [`Reader::seek`] costs the segments'
/// footers or the journals' headers before the place, and at most one pass over the frames of one journal.
///
/// ```no_run
/// # fn main() -> Result<(), sessionlog::backend::BackendError> {
/// use sessionlog::segment::Reader;
///
/// let mut reader = Reader::open("/srv/logs/sessions/s-1")?;
/// println!("{}", reader.header().to_line());
/// loop {
///     let page = reader.next_page(Default::default())?;
///     if page.items.is_empty() {
///         break;
///     }
///     for event in page.items.iter().flat_map(|item| item.events()) {
///         println!("{}", event.to_line());
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Reader {
    directory: SessionDirectory,
    header: SessionHeader,
    /// Which directory it is, once that has been looked at.
    identity: Option<Identity>,
    next_seq: u64,
    /// Where it stands: in a journal, in a segment, or nowhere yet.
    place: Option<Place>,
    sealed: Option<SealedPlace>,
    chain: Option<Chain>,
    /// Where blocks are looked for before they are unpacked, and left when they were.
    recent: Option<Arc<RecentBlocks>>,
}

/// Where in a sealed segment a reader stands.
#[derive(Debug)]
struct SealedPlace {
    segment: Segment,
    /// The block that was unpacked last, by its index.
    block: Option<(usize, Arc<Vec<Item>>)>,
}

impl SealedPlace {
    /// Unpacks the block that holds `seq`, if it is not at hand.
    fn load(
        &mut self,
        directory: &SessionDirectory,
        recent: Option<&RecentBlocks>,
        seq: u64,
    ) -> Result<(), BackendError> {
        let Some(wanted) = self.segment.footer.block_of(seq) else { return Ok(()) };
        if self.block.as_ref().is_some_and(|(index, _)| *index == wanted) {
            return Ok(());
        }
        self.block = None;
        let items = if let Some(items) = recent.and_then(|recent| recent.get(&self.segment, wanted)) {
            items
        } else {
            let items = Arc::new(self.segment.block(directory, wanted)?);
            if let Some(recent) = recent {
                recent.put(&self.segment, wanted, &items);
            }
            items
        };
        self.block = Some((wanted, items));
        Ok(())
    }

    /// The items at hand that end behind `seq`.
    fn items_from(&self, seq: u64) -> &[Item] {
        let items = self.block.as_ref().map_or(&[][..], |(_, items)| items.as_slice());
        items.get(items.partition_point(|item| item.next_seq() <= seq)..).unwrap_or_default()
    }
}

/// A page being filled.
struct Filling {
    page: Page,
    limit: ReadLimit,
    events: u64,
    bytes: usize,
}

impl Filling {
    /// Adds what lies from `from` on of an item, as far as there is room. `true` when the page is full.
    fn add(&mut self, item: &Item, from: u64, next_seq: &mut u64) -> bool {
        let most = self.limit.events.max(1).saturating_sub(self.events);
        let upto = item.next_seq().min(item.first_seq().max(from).saturating_add(most));
        let Some(mut part) = item.slice(from, upto) else { return false };
        let room = self.limit.bytes.saturating_sub(self.bytes);
        if part.weight() > room {
            // One event may cross the limit, a run of them may not.
            part = part.beginning_within(room, true).unwrap_or(part);
        }
        let cut = part.next_seq() < item.next_seq();
        self.events = self.events.saturating_add(part.next_seq().saturating_sub(part.first_seq()));
        self.bytes = self.bytes.saturating_add(part.weight());
        *next_seq = part.next_seq();
        self.page.items.push(part);
        cut || self.events >= self.limit.events || self.bytes >= self.limit.bytes
    }
}

/// Where in the journals a reader stands.
#[derive(Debug)]
struct Place {
    scanner: Scanner,
    successor: Successor,
}

/// The journal behind the one that is read, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Successor {
    None,
    /// It says where this one ends.
    Linked(u64),
    /// The newest one, cut within its header: its name alone says where this one ends, and the log.
    Headless(u64),
    /// It, or what it says of this one, is at fault. This one counts up to its name.
    Faulty(u64),
}

impl Successor {
    fn name(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Linked(name) | Self::Headless(name) | Self::Faulty(name) => Some(name),
        }
    }
}

impl Place {
    /// The next record. Of records before `wanted` the frame alone is checked: they are passed over.
    fn step(&mut self, wanted: u64) -> Result<Option<Record>, Fault> {
        if self.scanner.next_seq < wanted {
            let record = self.scanner.step(false)?;
            match record {
                Some(record) if record_end(&record) > wanted => self.scanner.step_back(&record),
                _ => return Ok(record),
            }
        }
        self.scanner.step(true)
    }

    fn is_used_up(&self) -> bool {
        self.successor.name().is_some_and(|successor| self.scanner.next_seq >= successor)
    }
}

/// What became of a page with what was found for it.
enum Step {
    On,
    /// It is full; the record was not necessarily used up.
    Full(Option<Record>),
    End,
}

/// How a look at the log ended.
enum Look {
    /// A record of a journal, wanted from this seq on.
    Record(Record, u64),
    /// A block of a segment, at hand.
    Block,
    End,
}

impl Reader {
    /// Opens the session whose directory this is. Only its header is read.
    ///
    /// # Errors
    /// `NotFound`, damage of the header, `Unsupported`, I/O.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, BackendError> {
        Self::open_in(Arc::new(RealFiles), directory.as_ref())
    }

    /// As [`Reader::open`], over other files.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn open_in(files: Arc<dyn Files>, directory: &Path) -> Result<Self, BackendError> {
        let path = match files.resolve(directory) {
            Ok(path) => path,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(SessionDirectory { files, path: directory.to_owned(), id: None }.not_found());
            }
            Err(error) => return Err(BackendError::io("opening a session", directory, error)),
        };
        let id = path.file_name().and_then(|name| name.to_str()).and_then(key::decode);
        let mut directory = SessionDirectory { files, path, id };
        directory.check()?;
        let header = directory.read_header()?;
        directory.id = header.session_id().ok();
        Ok(Self::over(directory, header))
    }

    pub(crate) fn over(directory: SessionDirectory, header: SessionHeader) -> Self {
        Self { directory, header, identity: None, next_seq: 0, place: None, sealed: None, chain: None, recent: None }
    }

    /// Shares the blocks it unpacks with other readers.
    pub(crate) fn sharing(self, recent: &Arc<RecentBlocks>) -> Self {
        Self { recent: Some(Arc::clone(recent)), ..self }
    }

    /// The session's header.
    pub fn header(&self) -> &SessionHeader {
        &self.header
    }

    /// The session's directory.
    pub fn directory(&self) -> &Path {
        &self.directory.path
    }

    pub(crate) fn session(&self) -> &SessionDirectory {
        &self.directory
    }

    /// The segment that holds the position, if one does.
    ///
    /// # Errors
    /// As [`Reader::next_page`].
    pub(crate) fn segment(&mut self) -> Result<Option<&Segment>, BackendError> {
        self.recheck()?;
        let seq = self.next_seq;
        self.sealed = self.sealed.take().filter(|sealed| seq < sealed.segment.next_seq());
        if self.sealed.is_none() && self.place.is_none() {
            self.locate()?;
        }
        Ok(self.sealed.as_ref().map(|sealed| &sealed.segment))
    }

    /// The file that the next event comes from, as far as is known.
    pub fn file(&self) -> Option<PathBuf> {
        let sealed = self.sealed.as_ref().map(|sealed| sealed.segment.path.clone());
        sealed.or_else(|| self.place.as_ref().map(|place| place.scanner.journal.path.clone()))
    }

    /// Seq of the next event to be read.
    pub fn position(&self) -> u64 {
        self.next_seq
    }

    /// Goes to any seq; one beyond the end is waited for. Also to one of a session that was made since under the same header.
    pub fn seek(&mut self, seq: u64) {
        self.identity = None;
        if seq != self.next_seq {
            self.next_seq = seq;
            // Forward within the journals is found by passing over what lies between.
            self.place = self.place.take().filter(|place| seq >= place.scanner.next_seq);
            // A segment is entered at any place; which one it is, is looked at again when it does not hold the seq.
            self.sealed = self.sealed.take().filter(|sealed| seq >= sealed.segment.footer.first_seq);
        }
    }

    /// The next events, at least one if there is any; an empty page at the log's present end.
    ///
    /// # Errors
    /// Damage with the place and the last good seq (what comes before it has been returned by earlier calls), `NotFound` when
    /// the session was deleted (also when another was made under its id), `Unsupported`, I/O. The position stays where it is.
    pub fn next_page(&mut self, limit: ReadLimit) -> Result<Page, BackendError> {
        let mut filling = Filling { page: Page::default(), limit, events: 0, bytes: 0 };
        self.recheck()?;
        loop {
            let step = self.look().and_then(|look| self.take(&look, &mut filling));
            match step {
                Ok(Step::On) => {}
                Ok(Step::End) => return Ok(filling.page),
                Ok(Step::Full(record)) => return Ok(self.full(filling.page, record.as_ref())),
                // What is good is handed out first; the next call meets the damage again.
                Err(_) if !filling.page.items.is_empty() => {
                    filling.page.next = Some(self.next_seq);
                    return Ok(filling.page);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Adds what was found to a page.
    fn take(&mut self, look: &Look, filling: &mut Filling) -> Result<Step, BackendError> {
        match look {
            Look::End => Ok(Step::End),
            Look::Record(record, from) => {
                for item in self.items(record)? {
                    if filling.add(&item, *from, &mut self.next_seq) {
                        return Ok(Step::Full(Some(*record)));
                    }
                }
                self.next_seq = self.next_seq.max(record_end(record));
                Ok(Step::On)
            }
            Look::Block => {
                let Some(sealed) = &self.sealed else { return Ok(Step::On) };
                let from = self.next_seq;
                for item in sealed.items_from(from) {
                    if filling.add(item, from, &mut self.next_seq) {
                        return Ok(Step::Full(None));
                    }
                }
                Ok(Step::On)
            }
        }
    }

    /// Ends a page at its limit. A record that was not used up is read again by the next call.
    fn full(&mut self, mut page: Page, record: Option<&Record>) -> Page {
        if let Some(record) = record.filter(|record| self.next_seq < record_end(record))
            && let Some(place) = &mut self.place
        {
            place.scanner.step_back(record);
        }
        // Whether more follows is a look ahead; an error there is the next call's.
        page.next = match self.peek() {
            Ok(false) => None,
            Ok(true) | Err(_) => Some(self.next_seq),
        };
        page
    }

    /// Whether an event follows.
    fn peek(&mut self) -> Result<bool, BackendError> {
        match self.look()? {
            Look::End => Ok(false),
            Look::Block => Ok(true),
            Look::Record(record, _) => {
                if let Some(place) = &mut self.place {
                    place.scanner.step_back(&record);
                }
                Ok(true)
            }
        }
    }

    fn items(&mut self, record: &Record) -> Result<Vec<Item>, BackendError> {
        let Content::Batch(prefix) = record.content else { return Ok(Vec::new()) };
        let Some(place) = &mut self.place else { return Ok(Vec::new()) };
        match place.scanner.items(record, &prefix) {
            Ok(items) => Ok(items),
            Err(fault) => {
                place.scanner.step_back(record);
                Err(place.scanner.error(&self.directory, fault))
            }
        }
    }

    /// Forgets the place when its file is not the log's any more.
    fn recheck(&mut self) -> Result<(), BackendError> {
        let known = match (&self.sealed, &self.place) {
            (Some(sealed), _) => Some((&sealed.segment.path, sealed.segment.identity)),
            (None, Some(place)) => Some((&place.scanner.journal.path, place.scanner.journal.identity)),
            (None, None) => None,
        };
        let Some((path, identity)) = known else { return Ok(()) };
        let same = match self.directory.files.stat(path) {
            Ok(stat) => stat.identity == identity,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
            Err(error) => return Err(self.directory.io("looking for a file of the log", path, error)),
        };
        if !same {
            self.forget();
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.place = None;
        self.sealed = None;
    }

    /// The next record or block that holds an event from `next_seq` on.
    fn look(&mut self) -> Result<Look, BackendError> {
        let looked = self.look_on();
        if looked.is_err() {
            // The next call looks for its place afresh, so that it meets the same error or a log that is whole again.
            self.forget();
        }
        looked
    }

    fn look_on(&mut self) -> Result<Look, BackendError> {
        let mut relocations = 0;
        loop {
            if let Some(sealed) = &mut self.sealed {
                if self.next_seq < sealed.segment.next_seq() {
                    match sealed.load(&self.directory, self.recent.as_deref(), self.next_seq) {
                        Ok(()) => return Ok(Look::Block),
                        Err(error) if relocations >= 2 => return Err(error),
                        Err(_) => relocations = relocations.max(1),
                    }
                }
                self.sealed = None;
            }
            let Some(place) = &mut self.place else {
                relocations += 1;
                if relocations > ATTEMPTS {
                    let detail = "files are replaced as fast as they are read; try again";
                    return Err(self.directory.error(crate::backend::ErrorKind::Io, detail));
                }
                if !self.locate()? {
                    return Ok(Look::End);
                }
                continue;
            };
            if place.is_used_up() {
                let reached = place.scanner.next_seq;
                match place.successor {
                    Successor::Linked(name) if name == reached => self.place = None,
                    Successor::Headless(name) if name == reached => return Ok(Look::End),
                    Successor::Linked(_) | Successor::Headless(_) | Successor::Faulty(_) | Successor::None => {
                        return Err(self.next_at_fault());
                    }
                }
                continue;
            }
            match place.step(self.next_seq) {
                Ok(Some(record)) => match record.content {
                    Content::Batch(prefix) if prefix.next_seq <= self.next_seq => {}
                    Content::Batch(_) => return Ok(Look::Record(record, self.next_seq)),
                    // The successor is looked for once more before it is missed.
                    Content::Continued(_) if relocations < 2 => {
                        relocations = 1;
                        self.place = None;
                    }
                    Content::Continued(next) => {
                        let path = self.directory.file(&journal::file_name(next));
                        let detail = "the journal before it says that the log goes on in this file, which is missing";
                        return Err(self.directory.damage(DamageClass::Gap, &path, None, next, detail));
                    }
                },
                Ok(None) => {
                    if !self.at_limit(&mut relocations)? {
                        return Ok(Look::End);
                    }
                }
                Err(fault) => {
                    if let Some(look) = self.at_fault(fault, &mut relocations)? {
                        return Ok(look);
                    }
                }
            }
        }
    }

    /// At the end of what is known of a journal: more of it, or another one? `false` at the log's end.
    fn at_limit(&mut self, relocations: &mut usize) -> Result<bool, BackendError> {
        let Some(place) = &mut self.place else { return Ok(true) };
        let path = place.scanner.journal.path.clone();
        if place.successor != Successor::None {
            // The journal ends before its successor begins.
            if *relocations < 2 {
                *relocations = 1;
                self.place = None;
                return Ok(true);
            }
            if place.scanner.is_cut_short() {
                return Err(place.scanner.cut_short(&self.directory));
            }
            return Err(self.next_at_fault());
        }
        let before = place.scanner.limit;
        place.scanner.look_again().map_err(|error| self.directory.io("reading a journal", &path, error))?;
        if place.scanner.limit > before {
            return Ok(true);
        }
        let name = place.scanner.journal.header.first_seq;
        // Another journal is the newest, or this one was sealed, perhaps with more behind it.
        if self.directory.layout()?.journals.last() != Some(&name) {
            self.place = None;
            return Ok(true);
        }
        Ok(false)
    }

    /// Why the log does not go on in the successor. What is wrong with that file itself says more than where it starts.
    fn next_at_fault(&mut self) -> BackendError {
        let Some(Place { scanner, successor }) = self.place.take() else { return self.directory.not_found() };
        let found = scanner.next_seq;
        let newest = matches!(successor, Successor::Headless(_));
        let name = successor.name().unwrap_or(found);
        let judged = match Journal::open(&self.directory, name, found) {
            Ok(Opening::Sound(next)) => log::check_link(&self.directory, &scanner.journal.header, &next),
            Ok(Opening::Cut(_)) if !newest => Err(log::cut_within_header(&self.directory, name, found)),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        match judged.and_then(|()| log::check_start(&self.directory, name, name, found)) {
            Ok(()) => {
                let detail = format!("the log goes on at seq {found}, but not in the next file there is; try again");
                let path = self.directory.file(&journal::file_name(name));
                self.directory.damage(DamageClass::Gap, &path, Some(0), found, detail)
            }
            Err(mut error) => {
                if let Some(damage) = &mut error.damage {
                    damage.intact_before = found;
                }
                error
            }
        }
    }

    /// Bytes that are no record: looked at afresh once, then judged as every reader judges them.
    fn at_fault(&mut self, fault: Fault, relocations: &mut usize) -> Result<Option<Look>, BackendError> {
        let Some(place) = &mut self.place else { return Ok(None) };
        if *relocations < 2 {
            self.place = None;
            *relocations = (*relocations).max(1);
            return Ok(None);
        }
        if matches!(fault, Fault::Invalid { .. }) && place.scanner.is_open_ended() {
            match (place.scanner.later_append_exists(), place.successor) {
                (Ok(false), Successor::None) => return Ok(Some(Look::End)),
                // The successor does not say where this one ends, so it was read as if it were the newest.
                (Ok(false), _) => return Err(self.next_at_fault()),
                (Ok(true), _) => {}
                (Err(error), _) => return Err(place.scanner.error(&self.directory, Fault::Io(error))),
            }
        }
        let error = place.scanner.error(&self.directory, fault);
        self.place = None;
        Err(error)
    }

    /// Walks the segments of these names, unless they are those of the last walk: a joined segment has the name of its first part
    /// and holds more. `false` when a file that was listed is gone.
    fn walk(&mut self, names: Vec<u64>) -> bool {
        let files = &*self.directory.files;
        let same =
            |(path, identity): &(PathBuf, Identity)| files.stat(path).is_ok_and(|stat| stat.identity == *identity);
        let known = self.chain.as_ref().filter(|chain| chain.names == names && chain.end.is_ok());
        if known.is_some_and(|chain| chain.files.iter().all(same)) {
            return true;
        }
        let mut spans = Vec::with_capacity(names.len());
        let mut files = Vec::with_capacity(names.len());
        let walked = chain::walk(&self.directory, &names, |segment| {
            spans.push(segment.footer.first_seq..segment.next_seq());
            files.push((segment.path.clone(), segment.identity));
            Ok(())
        });
        let end = match walked {
            Ok(Walk::Gone) => return false,
            Ok(Walk::Empty) => Ok(None),
            Ok(Walk::Sealed(mut end)) => {
                // No file stays open for a checkpoint that a reader never asks for.
                end.whole = None;
                Ok(Some(end))
            }
            Err(error) => Err(error),
        };
        self.chain = Some(Chain { names, files, spans, end });
        true
    }

    /// Finds the segment or the journal that holds `next_seq`, or would. `false` when the log ends before its records do.
    fn locate(&mut self) -> Result<bool, BackendError> {
        for attempt in 1..=ATTEMPTS {
            match self.locate_once() {
                Ok(Some(found)) => return Ok(found),
                // A writer at work can make a sound log look wrong to one look.
                Err(error) if attempt == ATTEMPTS => return Err(error),
                Ok(None) | Err(_) => {}
            }
        }
        Err(self
            .directory
            .error(crate::backend::ErrorKind::Io, "files are replaced as fast as they are read; try again"))
    }

    /// Checks that the session is still the one that was opened, and not another that has its id now.
    fn check_same(&mut self) -> Result<(), BackendError> {
        // What a stat or a header that fails means, reading the log tells.
        let Ok(found) = self.directory.files.stat(&self.directory.path) else { return Ok(()) };
        let known = *self.identity.get_or_insert(found.identity);
        // A new directory may have the number of one that was removed.
        let other = known != found.identity || self.directory.read_header().is_ok_and(|header| header != self.header);
        if other { Err(self.directory.not_found()) } else { Ok(()) }
    }

    /// One look. `None` when a file that was listed is gone.
    fn locate_once(&mut self) -> Result<Option<bool>, BackendError> {
        self.check_same()?;
        let seq = self.next_seq;
        let layout = self.directory.layout()?;
        if !self.walk(layout.segments) {
            return Ok(None);
        }
        let Some(Chain { spans, end, .. }) = &self.chain else { return Ok(None) };
        if let Some(span) = spans.iter().find(|span| span.contains(&seq)) {
            let segment = Segment::open(&self.directory, span.start, span.start)?;
            let Some(segment) = segment.filter(|segment| seq < segment.next_seq()) else { return Ok(None) };
            self.sealed = Some(SealedPlace { segment, block: None });
            return Ok(Some(true));
        }
        let sealed = match end {
            Ok(end) => end.as_deref(),
            // The next look walks again.
            Err(_) => return self.chain.take().map_or(Ok(None), |chain| chain.end.map(|_| None)),
        };
        let names = match sealed {
            Some(end) => end.live_journals(&self.directory, &layout.journals)?,
            None => &layout.journals,
        };
        let Some(&first) = names.first() else {
            return match sealed {
                Some(end) if end.continued => Err(log::successor_missing(&self.directory, end.next_seq)),
                Some(_) => Ok(Some(false)),
                None => {
                    self.directory.check()?;
                    let detail = "the session has no journal; its files were removed";
                    Err(self.directory.damage(DamageClass::Gap, &self.directory.path, None, 0, detail))
                }
            };
        };
        let mut current = match log::open_first(&self.directory, first, names.len() > 1, sealed)? {
            Opening::Sound(journal) => journal,
            Opening::Gone => return Ok(None),
            // Nothing of it was ever acknowledged; the log ends before it.
            Opening::Cut(_) => return Ok(Some(false)),
        };
        let mut names = names.iter().copied().skip(1);
        let (end, successor) = loop {
            let Some(name) = names.next() else { break (None, Successor::None) };
            let next = match Journal::open(&self.directory, name, current.header.first_seq) {
                Ok(Opening::Gone) => return Ok(None),
                Ok(Opening::Cut(_)) if names.len() == 0 => break (None, Successor::Headless(name)),
                Ok(Opening::Sound(next)) if log::check_link(&self.directory, &current.header, &next).is_ok() => next,
                Ok(_) => break (None, Successor::Faulty(name)),
                // What is wrong with it is found when reading comes to it; its name says where this one ends.
                Err(error) if error.damage.is_some() => break (None, Successor::Faulty(name)),
                Err(error) => return Err(error),
            };
            if name > seq {
                break (next.header.predecessor.map(|before| before.end), Successor::Linked(name));
            }
            current = next;
        };
        let scanner = match end {
            Some(end) => Scanner::up_to(current, end),
            None => Scanner::open_ended(current),
        };
        self.place = Some(Place { scanner, successor });
        Ok(Some(true))
    }
}

/// The sealed part of the log as it was found.
#[derive(Debug)]
struct Chain {
    /// Names of all segments that were there.
    names: Vec<u64>,
    /// The files that count, up to the fault if there is one.
    files: Vec<(PathBuf, Identity)>,
    /// The seqs of each segment that counts, up to the fault if there is one.
    spans: Vec<Range<u64>>,
    /// Where it ends, or what is wrong behind the last span.
    end: Result<Option<Box<SealedEnd>>, BackendError>,
}

fn record_end(record: &Record) -> u64 {
    match record.content {
        Content::Batch(prefix) => prefix.next_seq,
        Content::Continued(next) => next,
    }
}
