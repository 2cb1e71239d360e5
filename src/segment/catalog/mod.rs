//! The catalogue: what a listing shows of each session, kept from one listing to the next.
//!
//! It is a cache and nothing else. An entry holds as long as the session's directory and every file in it is the one, of the length and
//! change time, that it was made from; else the session is read again. A catalogue that is absent, damaged or of another version is made
//! anew, with the same answers. Times shown come from events, never from files.
//!
//! # What is looked at
//!
//! A process that meets an entry for the first time compares all of it. For two seconds it then looks at the directory alone, if
//! nobody had the session open when that had the same stamp: every writer begins with a new journal, and everything else that changes a
//! session makes, renames or removes a name too, all of which change the directory's time. What that leaves out is damage done in place,
//! which therefore shows when the files are compared again.
//!
//! Change times go in steps, so a state is kept only if it is older than a step: whatever follows it has another time.

mod entry;
mod text;

use std::borrow::Cow;
use std::num::NonZero;
use std::ops::Range;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::{io, thread};

use super::builder::Site;
use super::files::Files;
use crate::backend::{BackendError, ErrorKind, TornTail};
use crate::event::SessionHeader;
use crate::session::validator::InvalidEvent;
use crate::sync::lock as locked;
use entry::{Entry, Sessions};
use text::Place;

pub(super) use entry::Stamp;
pub(crate) use text::CATALOG_FILE;

/// Most memory, in bytes, that an engine keeps entries in; what it has no room for is read again. A session takes about a thousand.
const MAX_MEMORY: usize = 512 << 20;

/// Sessions that a thread looks at in one go.
const PIECE: usize = 256;

/// Most threads that look.
const MAX_THREADS: usize = 8;

/// A catalogue is written when reading anew what it lacks costs more than this part of looking at all of it: as much as writing it.
const WORTH_WRITING: usize = 128;

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
    /// The summary, which one listing shares with the next while nothing changes, or what is wrong with the session.
    pub summary: Result<Arc<Summary>, BackendError>,
}

/// What is known of one session.
#[derive(Debug)]
enum Slot {
    /// Nothing.
    Empty,
    /// An entry, there in the text.
    Packed(Range<u32>),
    Known(Entry),
}

/// The catalogue of a store, by directory name.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    /// What was read, until the first listing takes it apart.
    text: Vec<u8>,
    places: Vec<Place>,
    /// What the last listing listed, ascending, with a slot each.
    names: Arc<[String]>,
    slots: Vec<Slot>,
    /// What it would cost to read anew what was changed and is not yet written.
    unsaved: u64,
}

impl Catalog {
    /// Reads the catalogue; an empty one when there is none that can be used.
    pub(crate) fn read(files: &dyn Files, root: &Path) -> Self {
        let found = text::read(files, root).and_then(|text| Some((text::split(&text)?, text)));
        let (places, text) = found.unwrap_or_default();
        Self { text, places, ..Self::default() }
    }

    /// Writes the catalogue if it has changed.
    ///
    /// # Errors
    /// I/O. What is not written is derived anew by whoever needs it.
    pub(crate) fn write(&mut self, files: &dyn Files, root: &Path, number: u64) -> io::Result<()> {
        if self.unsaved == 0 {
            return Ok(());
        }
        let packed = |range| Cow::Borrowed(text::part(&self.text, range));
        // There are either places or slots.
        let places = self.places.iter().map(|place| (place.name(&self.text), packed(&place.entry)));
        let slots = self.names.iter().zip(&self.slots).filter_map(|(name, slot)| match slot {
            Slot::Empty => None,
            Slot::Packed(range) => Some((name.as_str(), packed(range))),
            Slot::Known(entry) => Some((name.as_str(), Cow::Owned(text::encode(entry)))),
        });
        text::write(files, root, number, &text::join(places.chain(slots)))?;
        self.unsaved = 0;
        Ok(())
    }

    /// As [`Catalog::write`], if it spares later processes more than it costs.
    ///
    /// # Errors
    /// As [`Catalog::write`].
    pub(crate) fn write_if_worth_it(&mut self, files: &dyn Files, root: &Path, number: u64) -> io::Result<()> {
        if self.unsaved > (self.slots.len() / WORTH_WRITING) as u64 { self.write(files, root, number) } else { Ok(()) }
    }

    /// Forgets one session.
    pub(crate) fn forget(&mut self, name: &str) {
        if let Ok(at) = self.places.binary_search_by(|place| place.name(&self.text).cmp(name)) {
            self.places.remove(at);
            self.unsaved += 1;
        } else if let Some(slot) = self.slot(name).filter(|slot| !matches!(slot, Slot::Empty)) {
            *slot = Slot::Empty;
            self.unsaved += 1;
        }
    }

    fn slot(&mut self, name: &str) -> Option<&mut Slot> {
        let at = self.names.binary_search_by(|other| other.as_str().cmp(name)).ok()?;
        self.slots.get_mut(at)
    }

    /// Whether an entry that would be believed says something else than the session's log.
    pub(crate) fn contradicts(&mut self, site: &Site, name: &str) -> bool {
        let place = self.places.binary_search_by(|place| place.name(&self.text).cmp(name)).ok();
        let place = place.and_then(|at| self.places.get(at));
        let mut packed = place.and_then(|place| text::decode(text::part(&self.text, &place.entry), name));
        let entry = match &mut packed {
            Some(entry) => entry,
            None => match self.slot(name) {
                Some(Slot::Known(entry)) => entry,
                _ => return false,
            },
        };
        let sessions = &mut Sessions::new(&site.files, &site.sessions, site.files.now());
        entry.distrust();
        let Some(said) = entry.summary(name, sessions) else { return false };
        let Ok(found) = entry::summarise(&sessions.directory(name)) else { return false };
        entry.distrust();
        // Whether it is live is no matter of the log.
        *said != Summary { live: said.live, ..found.summary } && entry.summary(name, sessions).is_some()
    }

    /// What a listing shows of the sessions in the directories of these names, which ascend. Looks at them on every core if there are
    /// many.
    pub(crate) fn list(&mut self, site: &Site, names: &Arc<[String]>) -> Vec<Summarised> {
        self.align(names);
        let now = site.files.now();
        let text = &self.text;
        let mut found: Vec<Option<Summarised>> = std::iter::repeat_with(|| None).take(names.len()).collect();
        let pieces = self.slots.chunks_mut(PIECE).zip(found.chunks_mut(PIECE));
        let pieces = Mutex::new(names.chunks(PIECE).zip(pieces));
        let work = || {
            let mut unsaved = 0_u64;
            loop {
                let next = locked(&pieces).next();
                let Some((names, (slots, found))) = next else { return unsaved };
                let mut sessions = Sessions::new(&site.files, &site.sessions, now);
                for (name, (slot, found)) in names.iter().zip(slots.iter_mut().zip(found)) {
                    slot.unpack(name, text);
                    let cost;
                    (*found, cost) = slot.look(name, &mut sessions);
                    unsaved = unsaved.saturating_add(cost);
                }
            }
        };
        let most = names.len().div_ceil(PIECE).min(MAX_THREADS);
        let threads = if most > 1 { thread::available_parallelism().map_or(1, NonZero::get).min(most) } else { 1 };
        let unsaved = thread::scope(|scope| {
            let start = |_| thread::Builder::new().name("sessionlog-listing".to_owned()).spawn_scoped(scope, work).ok();
            // This thread works too; without any other it does everything.
            let others: Vec<_> = (1..threads).filter_map(start).collect();
            let own = work();
            let others = others.into_iter().map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
            others.fold(own, u64::saturating_add)
        });
        self.unsaved = self.unsaved.saturating_add(unsaved);
        self.text = Vec::new();
        self.keep_within(MAX_MEMORY);
        #[expect(clippy::filter_map_identity, reason = "this works within the one allocation, flattening does not")]
        found.into_iter().filter_map(|found| found).collect()
    }

    /// Forgets entries that there is no room for.
    fn keep_within(&mut self, mut room: usize) {
        for slot in &mut self.slots {
            let Slot::Known(entry) = slot else { continue };
            if let Some(left) = room.checked_sub(entry.memory()) {
                room = left;
            } else {
                // It will be read anew each time, and is no reason to write the catalogue.
                self.unsaved = self.unsaved.saturating_sub(entry.weight());
                *slot = Slot::Empty;
            }
        }
    }

    /// Has slots for these names and no others.
    fn align(&mut self, names: &Arc<[String]>) {
        if Arc::ptr_eq(&self.names, names) && self.places.is_empty() {
            return;
        }
        let text = &self.text;
        // There are either places or slots.
        let places = self.places.iter().map(|place| (place.name(text), Slot::Packed(place.entry.clone())));
        let slots = self.names.iter().map(String::as_str).zip(self.slots.drain(..));
        let mut old = places.chain(slots).filter(|(_, slot)| !matches!(slot, Slot::Empty)).peekable();
        let mut slots = Vec::with_capacity(names.len());
        let mut forgotten = 0;
        for name in names.iter() {
            while old.next_if(|(other, _)| *other < name.as_str()).is_some() {
                forgotten += 1;
            }
            slots.push(old.next_if(|(other, _)| *other == name.as_str()).map_or(Slot::Empty, |(_, slot)| slot));
        }
        forgotten += old.count() as u64;
        self.unsaved += forgotten;
        self.places = Vec::new();
        self.slots = slots;
        self.names = Arc::clone(names);
    }
}

impl Slot {
    /// Takes a packed entry out of the text.
    fn unpack(&mut self, name: &str, text: &[u8]) {
        if let Self::Packed(range) = self {
            *self = text::decode(text::part(text, range), name).map_or(Self::Empty, Self::Known);
        }
    }

    /// The session's summary, from its entry while that holds, else from its log; `None` if the session is gone by now. And what it would
    /// cost to read anew what the slot has learnt.
    fn look(&mut self, name: &str, sessions: &mut Sessions<'_>) -> (Option<Summarised>, u64) {
        if let Self::Known(entry) = self {
            let free = entry.free;
            if let Some(summary) = entry.summary(name, sessions) {
                let found = Summarised { name: summary.header.id.clone(), summary: Ok(summary) };
                return (Some(found), u64::from(free != entry.free));
            }
        }
        let directory = sessions.directory(name);
        let (summary, entry) = Entry::read(&directory, sessions.now());
        let had_one = !matches!(self, Self::Empty);
        let cost = entry.as_ref().map_or(u64::from(had_one), Entry::weight);
        *self = entry.map_or(Self::Empty, Self::Known);
        let shown = match (&summary, directory.id) {
            (Err(error), _) if error.kind == ErrorKind::NotFound => return (None, cost),
            (Ok(summary), _) => summary.header.id.clone(),
            (Err(_), Some(id)) => id.as_str().to_owned(),
            (Err(_), None) => name.to_owned(),
        };
        (Some(Summarised { name: shown, summary: summary.map(Arc::new) }), cost)
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::backend::Expected;
    use crate::event::{Batch, JsonText, NewEvent, SessionId};
    use crate::segment::EngineOptions;
    use crate::segment::files::SimulatedFiles;

    #[test]
    fn what_there_is_no_room_for_is_read_again_and_no_reason_to_write() {
        let files = SimulatedFiles::new(1);
        let engine = EngineOptions::new().files(Arc::new(files.clone())).open(Path::new("/store")).unwrap();
        let names: Arc<[String]> = ["a", "b", "c"].map(str::to_owned).into();
        for name in names.iter() {
            let id = SessionId::new(name).unwrap();
            let event = NewEvent::named("x/y", JsonText::parse("1").unwrap()).at(0, 0);
            let batch = Batch::pack([event]).unwrap();
            let head = engine.append(&id, Some(&SessionHeader::new(name)), Expected::ABSENT, &batch).unwrap();
            engine.release(&id, head.epoch).unwrap();
        }
        let files: Arc<dyn Files> = Arc::new(files);
        let path = Path::new("/store/sessions");
        let sessions = || Sessions::new(&files, path, SystemTime::now());
        let mut catalog = Catalog::default();
        catalog.align(&names);
        for (name, slot) in names.iter().zip(&mut catalog.slots) {
            let (found, cost) = slot.look(name, &mut sessions());
            assert!(found.unwrap().summary.is_ok());
            catalog.unsaved += cost;
        }
        let Slot::Known(entry) = &catalog.slots[0] else { panic!("nothing is kept: {:?}", catalog.slots[0]) };
        let (memory, unsaved) = (entry.memory(), catalog.unsaved);
        assert!((size_of::<Entry>() + size_of::<Summary>()..2000).contains(&memory), "{memory} bytes a session");
        catalog.keep_within(3 * memory);
        assert!(catalog.slots.iter().all(|slot| matches!(slot, Slot::Known(_))) && catalog.unsaved == unsaved);
        catalog.keep_within(2 * memory);
        assert!(matches!(catalog.slots[..], [Slot::Known(_), Slot::Known(_), Slot::Empty]));
        assert_eq!((unsaved, catalog.unsaved), (3, 2));
        assert!(catalog.slots[2].look("c", &mut sessions()).0.unwrap().summary.is_ok());
    }
}
