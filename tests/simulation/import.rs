//! The steps that bring in a log from elsewhere, again and again as it grows there, and write logs out.

use std::sync::Arc;

use sessionlog::backend::{AppendError, BackendError, ErrorKind, Expected, ReadLimit};
use sessionlog::event::{Batch, Event, Item, JsonText, NewEvent, SessionHeader};
use sessionlog::interop::{Comparison, DshWriter, Import, ImportOptions, JsonlWriter, compare};
use sessionlog::segment::Engine;
use sessionlog::session::{Clock, CountingIds, Session, SessionOptions};

use super::{ROOT, World, engine_options, events_of, stored};
use crate::agent;
use crate::model::Known;
use crate::store_common::id;

/// How much payload goes into one append, in bytes: most logs take several.
const BATCH_BYTES: usize = 300;

/// A clock elsewhere, which shows one time: a program depends on nothing but its seed.
struct Standing;

impl Clock for Standing {
    fn now(&self) -> i64 {
        1_600_000_000_000
    }
}

/// What became of a log that was brought in.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Came {
    In,
    Compared(Comparison),
    /// A session of another header has that name.
    Foreign,
}

/// A header without what an import may fill in: rows always state the depth.
fn facts(header: &SessionHeader) -> SessionHeader {
    let delegation_depth = Some(header.delegation_depth.unwrap_or(0));
    SessionHeader { created_at: None, delegation_depth, ..header.clone() }
}

fn text_of(header: &SessionHeader, items: &[Item], rows: bool) -> Vec<u8> {
    if rows {
        let mut writer = DshWriter::new(Vec::new(), header).unwrap();
        items.iter().for_each(|item| writer.item(item).unwrap());
        return writer.finish().unwrap();
    }
    let mut writer = JsonlWriter::new(Vec::new(), header).unwrap();
    items.iter().for_each(|item| writer.item(item).unwrap());
    writer.finish().unwrap()
}

fn reading(text: &[u8]) -> Import<&[u8]> {
    Import::open(text, ImportOptions::default()).unwrap()
}

/// What is written out and brought in again is the same.
fn assert_round_trip(header: &SessionHeader, items: &[Item], name: &str) {
    for rows in [false, true] {
        let text = text_of(header, items, rows);
        let mut import = reading(&text);
        let events: Vec<Event> = import.events().map(Result::unwrap).collect();
        assert_eq!(events, events_of(items), "{name}, written out, rows: {rows}");
        assert_eq!(facts(import.header()), facts(header), "{name}, written out, rows: {rows}");
    }
}

/// Brings a log in as the command line does. `reached` is the seq up to which an extension was acknowledged.
fn bring_in(engine: &Engine, name: &str, text: &[u8], reached: &mut Option<u64>) -> Result<Came, BackendError> {
    let session = id(name);
    let mut import = reading(text);
    let header = import.header().clone();
    let mut reader = match engine.reader(&session) {
        Ok(reader) => reader,
        Err(error) if error.kind == ErrorKind::NotFound => {
            engine.create_whole::<BackendError>(&header, || Ok(import.next_batch(BATCH_BYTES).unwrap()))?;
            return Ok(Came::In);
        }
        Err(error) => return Err(error),
    };
    if facts(reader.header()) != facts(&header) {
        return Ok(Came::Foreign);
    }
    let mut held = Vec::new().into_iter();
    let stored = std::iter::from_fn(|| {
        if held.len() == 0 {
            match reader.next_page(ReadLimit { events: 11, bytes: 900 }) {
                Ok(page) => held = events_of(&page.items).into_iter(),
                Err(error) => return Some(Err(error)),
            }
        }
        held.next().map(Ok)
    });
    let relation = compare(stored, import.events().map(|event| Ok(event.unwrap())))?;
    if let Comparison::Extended { from } = relation {
        let taken = engine.take_over(&session)?.head;
        let extended = extend(engine, name, text, (taken.epoch, from), reached);
        engine.release(&session, taken.epoch)?;
        extended?;
    }
    Ok(Came::Compared(relation))
}

fn extend(
    engine: &Engine,
    name: &str,
    text: &[u8],
    (epoch, from): (u64, u64),
    reached: &mut Option<u64>,
) -> Result<(), BackendError> {
    let mut import = reading(text);
    let mut next_seq = from;
    while let Some(batch) = import.next_batch(BATCH_BYTES).unwrap() {
        let items = batch.items().iter().filter_map(|item| item.slice(from, u64::MAX)).collect();
        let Some(batch) = Batch::new(items) else { continue };
        let head = engine.append(&id(name), None, Expected { epoch, next_seq }, &batch);
        let head = head.map_err(|error| match error {
            AppendError::Failed(error) => error,
            other => panic!("{name}: nobody else writes: {other}"),
        })?;
        assert_eq!(head.next_seq, batch.next_seq(), "{name}: the whole batch is acknowledged");
        (next_seq, *reached) = (head.next_seq, Some(head.next_seq));
    }
    Ok(())
}

impl World {
    /// What another process would find of a session: its header and its log.
    fn found(&self, name: &str) -> Option<(SessionHeader, Vec<Item>)> {
        let engine = engine_options(&self.files.copy(0)).open(ROOT).unwrap();
        let items = stored(&engine, name)?;
        Some((engine.reader(&id(name)).unwrap().header().clone(), items))
    }

    /// The log as it stands elsewhere: what was read before, grown; or what is stored here, taken further.
    fn incoming(&mut self, name: &str, found: Option<&(SessionHeader, Vec<Item>)>, pick: u64) -> Vec<Event> {
        let note = |seq| NewEvent::named("app/note", JsonText::parse(&format!("[{pick}]")).unwrap()).at(seq, 5);
        if let Some((_, items)) = found.filter(|_| pick.is_multiple_of(4)) {
            let mut events = events_of(items);
            let from = events.len() as u64;
            events.extend((from..from + (pick >> 2) % 9).map(note));
            return events;
        }
        let source = self.sources.entry(name.to_owned()).or_insert_with(|| {
            let options = SessionOptions::new().clock(Arc::new(Standing)).ids(Arc::new(CountingIds::new("i")));
            Session::create(SessionHeader::new(name).created_at(5), options).unwrap()
        });
        for number in 0..=(pick >> 2 & 15) {
            agent::act(source, (pick >> 6).wrapping_mul(2 * number + 1) % 1400);
        }
        let mut events = source.events(..);
        if events.is_empty() {
            source.append_event(NewEvent::named("app/note", JsonText::parse("0").unwrap())).unwrap();
            events = source.events(..);
        }
        if (pick >> 6).is_multiple_of(8) {
            // Other bytes at a place that may be stored.
            let at = usize::try_from(pick >> 9).unwrap() % events.len();
            events.truncate(at + 1);
            events[at] = note(at as u64);
        }
        events
    }

    /// Brings a log in, perhaps under faults, and then once more: what is there is nothing or a beginning of it, and another run
    /// makes it whole.
    pub async fn import(&mut self, name: &str, pick: u64) {
        self.close(name).await;
        let found = self.found(name);
        if let Some((header, items)) = &found {
            assert_round_trip(header, items, name);
        }
        let incoming = self.incoming(name, found.as_ref(), pick);
        let header = match &found {
            Some((header, _)) if pick.is_multiple_of(4) => header.clone(),
            _ => SessionHeader::new(name).created_at(5),
        };
        if incoming.is_empty() {
            return;
        }
        let items: Vec<Item> = Batch::pack(incoming.iter().cloned()).unwrap().items().to_vec();
        let text = text_of(&header, &items, pick >> 9 & 1 == 1);
        if !self.import_once(name, &header, &incoming, &text) && pick >> 10 & 1 == 1 {
            self.heal();
            assert!(self.import_once(name, &header, &incoming, &text), "{name}: on a sound disk");
            self.did("import again");
        }
    }

    /// Whether it went as it should have.
    fn import_once(&mut self, name: &str, header: &SessionHeader, incoming: &[Event], text: &[u8]) -> bool {
        let Some(store) = self.store() else { return false };
        let found = self.found(name).map(|(header, items)| (header, events_of(&items)));
        let expected = match &found {
            None => Came::In,
            Some((stored, _)) if facts(stored) != facts(header) => Came::Foreign,
            Some((_, stored)) => Came::Compared(relation(stored, incoming)),
        };
        let mut reached = None;
        let result = bring_in(store.backend().engine(), name, text, &mut reached);
        let changes = matches!(expected, Came::In | Came::Compared(Comparison::Extended { .. }));
        match result {
            Ok(came) => {
                assert_eq!(came, expected, "{name}: what an import does");
                if changes {
                    let durable = incoming.len();
                    let known = Known { accepted: incoming.to_vec(), durable, ..Known::default() };
                    self.model.sessions.insert(name.to_owned(), known);
                }
                self.did(match came {
                    Came::In => "import",
                    Came::Compared(Comparison::Extended { .. }) => "extend",
                    Came::Compared(Comparison::Unchanged { .. }) => "import unchanged",
                    Came::Compared(_) | Came::Foreign => "refused import",
                });
                true
            }
            Err(error) => {
                self.fine(&error.into(), &[]);
                self.did("failed import");
                let known = self.model.sessions.entry(name.to_owned()).or_default();
                match (&found, reached.and_then(|seq| usize::try_from(seq).ok())) {
                    // Told that it failed, and yet it may appear: as a whole.
                    (None, _) => known.perhaps_left.push(incoming.to_vec()),
                    (Some(_), Some(durable)) => {
                        *known = Known { accepted: incoming.to_vec(), durable, ..Known::default() };
                    }
                    (Some((_, stored)), None) if changes => {
                        known.perhaps_left.extend((stored.len()..=incoming.len()).map(|end| incoming[..end].to_vec()));
                    }
                    _ => {}
                }
                false
            }
        }
    }
}

fn relation(stored: &[Event], incoming: &[Event]) -> Comparison {
    let first = stored.iter().zip(incoming).position(|(stored, incoming)| stored != incoming);
    match first {
        Some(at) => Comparison::Diverged { seq: at as u64 },
        None if stored.len() < incoming.len() => Comparison::Extended { from: stored.len() as u64 },
        None if stored.len() > incoming.len() => Comparison::Shorter { events: incoming.len() as u64 },
        None => Comparison::Unchanged { events: stored.len() as u64 },
    }
}
