//! What the targets over stored bytes share: a store in memory, and what all its readers must agree on.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use sessionlog::backend::{BackendError, DamageClass, ErrorKind, Expected, Opened, ReadLimit};
use sessionlog::event::{Batch, Event, JsonText, NewEvent, SessionHeader, SessionId};
use sessionlog::segment::files::SimulatedFiles;
use sessionlog::segment::{CheckStatus, Engine, EngineOptions, SessionCheck};
use sessionlog::session::{Clock, CountingIds, Session, SessionOptions};

use crate::agent;

/// Where the store lies.
pub const ROOT: &str = "/store";

/// Options of an engine over these files.
pub fn engine_options(files: &SimulatedFiles) -> EngineOptions {
    EngineOptions::new().files(Arc::new(files.clone())).seed(7).background_sealing(false)
}

/// An engine over these files.
pub fn open(files: &SimulatedFiles) -> Engine {
    engine_options(files).open(Path::new(ROOT)).expect("a store in memory")
}

/// An event of the application's.
pub fn event(seq: u64, data: &str) -> Event {
    NewEvent::named("app/x", JsonText::parse(data).expect("valid JSON")).at(seq, 5)
}

/// The first events of an agent's session, small ones of every kind.
pub fn session_events(count: usize) -> Vec<Event> {
    let session = Session::create(SessionHeader::new("s").created_at(0), options()).expect("a session in memory");
    let mut choice = 1_u64;
    while session.next_seq() < count as u64 {
        choice = choice.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        agent::act(&session, choice >> 40);
    }
    session.events(..count as u64)
}

fn options() -> SessionOptions {
    SessionOptions::new().clock(Arc::new(Ticking(AtomicI64::new(0)))).ids(Arc::new(CountingIds::new("m")))
}

/// A clock that counts milliseconds by itself.
struct Ticking(AtomicI64);

impl Clock for Ticking {
    fn now(&self) -> i64 {
        self.0.fetch_add(7, Ordering::Relaxed)
    }
}

/// The events before the end or the first fault, and that.
pub fn read_all(engine: &Engine, id: &SessionId) -> (Vec<Event>, Option<BackendError>) {
    let mut events: Vec<Event> = Vec::new();
    loop {
        match engine.read(id, events.len() as u64, ReadLimit::default()) {
            Ok(page) => {
                events.extend(page.items.iter().flat_map(|item| item.events()));
                if page.next.is_none() {
                    return (events, None);
                }
            }
            Err(error) => return (events, Some(error)),
        }
    }
}

/// What is found of a session.
pub struct Found {
    /// What reading gives before its end or a fault.
    pub events: Vec<Event>,
    pub check: SessionCheck,
    pub opened: Result<Opened, BackendError>,
}

/// The class of damage that an error reports.
pub fn class_of(error: &BackendError) -> Option<DamageClass> {
    error.damage.as_ref().map(|damage| damage.class)
}

/// Looks at a session in every way there is and checks that all give one verdict.
pub fn look(engine: &Engine, id: &SessionId) -> Found {
    let check = engine.verify(id);
    let opened = engine.open_session(id);
    let (events, fault) = read_all(engine, id);
    assert!(events.iter().zip(0..).all(|(event, seq)| event.seq() == seq), "seqs are contiguous");
    let wrong = check.error.as_ref().and_then(class_of);
    match check.status {
        CheckStatus::Ok | CheckStatus::Torn => {
            let head = &opened.as_ref().expect("what is sound opens").head;
            assert!(fault.is_none(), "what is sound is read: {fault:?}");
            assert_eq!((events.len() as u64, head.next_seq), (check.events, check.events), "all see the same end");
        }
        // The records say what is right; readers go by the index, which is wrong or beside the point.
        _ if wrong.is_some_and(DamageClass::is_derived) => {
            assert!(opened.is_ok(), "a footer is all that opening reads")
        }
        _ if events.len() as u64 > check.events => {
            // Whether payloads are JSON is looked at by the full check alone.
            let detail = check.error.as_ref().map(ToString::to_string).unwrap_or_default();
            assert!(detail.contains("JSON"), "{} events are read, but: {detail}", events.len());
        }
        _ => {
            let fault = fault.as_ref().expect("what is damaged is not read to its end");
            let same = |error: &BackendError| (error.kind == ErrorKind::NotFound, class_of(error));
            assert_eq!(check.error.as_ref().map(same), Some(same(fault)), "{:?}\n{fault:?}", check.error);
            assert_eq!(events.len() as u64, check.events, "{fault:?}");
        }
    }
    Found { events, check, opened }
}

/// Takes a sound session over, appends and seals: nothing that was there changes.
pub fn continue_log(engine: &Engine, id: &SessionId, before: &[Event]) {
    let taken = engine.take_over(id).expect("what opens can be taken over");
    let expected = Expected { epoch: taken.head.epoch, next_seq: taken.head.next_seq };
    assert_eq!(expected.next_seq, before.len() as u64, "a take-over sees the same end");
    let more = Batch::pack([event(expected.next_seq, "\"more\"")]).expect("one event");
    let head = engine.append(id, None, expected, &more).expect("appending goes on");
    let (after, fault) = read_all(engine, id);
    assert!(fault.is_none() && after.len() == before.len() + 1, "{fault:?}");
    assert_eq!(after[..before.len()], *before, "nothing before the new event has changed");
    engine.release(id, head.epoch).expect("a release");
    engine.seal(id, sessionlog::segment::SealOptions::new().level(1)).expect("what is sound is sealed");
    assert_eq!(read_all(engine, id).0, after, "sealing changes nothing");
}
