//! The flush barrier, write-behind, close and drop protocol under every order of its threads that a scheduler finds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};

use super::{LiveSession, Store, StoreError, StoreOptions};
use crate::backend::memory::{Fault, MemoryBackend, Operation};
use crate::backend::{Backend, ErrorKind};
use crate::event::{Event, JsonText, NewEvent, SessionHeader, Vocabulary};
use crate::session::{AppendError, Session, SystemClock};
use crate::store::health::Health;
use crate::sync::turns::{self, Scenario, effort, explore, shuffle, wait_for};

const WINDOW: Duration = Duration::from_millis(200);

type Live = LiveSession<MemoryBackend>;

/// One store with one session, and what its threads have been promised so far.
#[derive(Clone)]
struct World {
    runtime: Handle,
    memory: MemoryBackend,
    store: Arc<std::sync::Mutex<Option<Store<MemoryBackend>>>>,
    live: Arc<std::sync::Mutex<Option<Live>>>,
    /// The session, also when its handles are gone.
    session: Session,
    /// Seq behind the last event whose append has returned.
    accepted: Arc<AtomicU64>,
    /// Somebody wants the window to pass.
    clock: Arc<AtomicBool>,
    /// Writing fails at some point, so calls may report that it did.
    faulty: bool,
    /// Most events that may wait.
    bound: u64,
    /// A close came back with `Ok`.
    closed: Arc<AtomicBool>,
    /// The session was opened anew, so the stored log has grown beyond this one's.
    resumed: Arc<AtomicBool>,
}

/// A scenario under construction.
struct Play {
    world: World,
    scenario: Scenario,
}

fn weight() -> usize {
    NewEvent::named("app/note", JsonText::parse("\"a\"").unwrap()).at(0, 0).weight()
}

impl Play {
    fn new(faults: &[Fault]) -> Self {
        Self::with(StoreOptions::new(), u64::MAX, faults)
    }

    fn with(options: StoreOptions, bound: u64, faults: &[Fault]) -> Self {
        let options = options.window(WINDOW).vocabulary(Vocabulary::well_known().with_name("app/note"));
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let memory = MemoryBackend::new();
        faults.iter().for_each(|fault| memory.inject(Operation::Append, *fault));
        let store = options.clock(Arc::new(SystemClock)).open(memory.clone()).unwrap();
        let live = runtime.block_on(store.create(SessionHeader::new("s"))).unwrap();
        let session = live.session().clone();
        let keep = |value| Arc::new(std::sync::Mutex::new(Some(value)));
        let world = World {
            runtime: runtime.handle().clone(),
            memory,
            store: Arc::new(std::sync::Mutex::new(Some(store))),
            live: keep(live),
            session,
            accepted: Arc::default(),
            clock: Arc::default(),
            bound,
            faulty: faults.iter().any(|fault| !matches!(fault, Fault::Delayed(_))),
            closed: Arc::default(),
            resumed: Arc::default(),
        };
        let clock = Arc::clone(&world.clock);
        let scenario = Scenario::new().servant("runtime", move || {
            runtime.block_on(drive(&clock));
        });
        Self { world, scenario }
    }

    fn thread(mut self, name: &str, body: impl FnOnce(&World) + Send + 'static) -> Self {
        let world = self.world.clone();
        self.scenario = self.scenario.thread(name, move || {
            let _context = world.runtime.enter();
            body(&world);
        });
        self
    }

    fn appender(self, name: &str, events: u64) -> Self {
        let live = self.world.live();
        self.thread(name, move |world| {
            for _ in 0..events {
                world.append(&live);
            }
            drop(live);
        })
    }

    fn flusher(self, name: &str) -> Self {
        let live = self.world.live();
        self.thread(name, move |world| world.flush(&live))
    }

    fn closer(self, name: &str) -> Self {
        let live = self.world.live();
        self.thread(name, move |world| world.close(&live))
    }

    fn clock(self) -> Self {
        self.thread("clock", |world| {
            turns::point();
            world.clock.store(true, Ordering::Relaxed);
        })
    }

    /// The handles of the threads are the only ones: the last of them to be dropped closes the session.
    fn without_host(self) -> Self {
        drop(self.world.live.lock().unwrap().take());
        self
    }

    fn end(self) -> Scenario {
        let world = self.world;
        self.scenario.afterwards(move || world.check())
    }
}

/// Runs the store's tasks; lets time pass when somebody wants it to or nothing else can happen.
async fn drive(clock: &AtomicBool) {
    let mut rounds_after = 0;
    loop {
        let before = turns::decisions();
        tokio::task::yield_now().await;
        if turns::nothing_else_to_do() || clock.swap(false, Ordering::Relaxed) {
            // Timers are exact to the millisecond.
            tokio::time::advance(2 * WINDOW).await;
        } else if turns::others_are_done() && turns::decisions() == before {
            rounds_after += 1;
            if rounds_after > 3 {
                return;
            }
            tokio::time::advance(2 * WINDOW).await;
        } else if turns::decisions() == before {
            turns::step_aside();
        } else {
            turns::point();
        }
    }
}

impl World {
    fn live(&self) -> Live {
        self.live.lock().unwrap().clone().unwrap()
    }

    fn append(&self, live: &Live) {
        match live.append_event(NewEvent::named("app/note", JsonText::parse("\"a\"").unwrap())) {
            Ok(event) => {
                assert!(!self.closed.load(Ordering::Relaxed), "an event was accepted after a close had returned");
                self.accepted.fetch_max(event.seq() + 1, Ordering::Relaxed);
                let waiting = (event.seq() + 1).saturating_sub(live.durable_seq());
                assert!(waiting <= self.bound, "{waiting} events wait, more than {}", self.bound);
            }
            Err(AppendError::Disposed { .. }) => {}
            Err(AppendError::BufferFull(full)) => assert!(full.waiting_bytes <= full.limit, "{full}"),
            Err(error) => panic!("{error}"),
        }
    }

    fn stored(&self) -> u64 {
        self.memory.events(self.session.id()).len() as u64
    }

    fn flush(&self, live: &Live) {
        let before = self.accepted.load(Ordering::Relaxed);
        match wait_for(live.flush()) {
            Ok(()) => {
                let stored = self.stored();
                assert!(stored >= before, "a flush covers {stored} of {before} events accepted before it");
            }
            Err(error) => {
                assert!(self.faulty && error.events > 0, "{error}");
            }
        }
    }

    fn close(&self, live: &Live) {
        let before = self.accepted.load(Ordering::Relaxed);
        match wait_for(live.close()) {
            Ok(()) => {
                self.closed.store(true, Ordering::Relaxed);
                assert!(self.stored() >= before, "a close covers {} of {before} events", self.stored());
            }
            Err(error) => {
                assert!(self.faulty, "{error}");
            }
        }
    }

    /// What must hold when everybody is done and the windows have passed.
    fn check(&self) {
        if self.resumed.load(Ordering::Relaxed) {
            return;
        }
        let lines = |events: &[Event]| events.iter().map(Event::to_line).collect::<Vec<_>>();
        let (log, stored) = (self.session.events(..), self.memory.events(self.session.id()));
        assert_eq!(log.len() as u64, self.accepted.load(Ordering::Relaxed), "what was accepted is the log");
        assert!(log.iter().map(Event::seq).eq(0..log.len() as u64));
        assert_eq!(lines(&stored), lines(&log[..stored.len()]), "what is stored is a prefix, nothing twice");
        let missing = log.len() - stored.len();
        if self.closed.load(Ordering::Relaxed) {
            assert_eq!(missing, 0, "a close returned Ok and {missing} events are not stored");
        }
        let store = self.store.lock().unwrap();
        match store.as_ref().map(Store::health) {
            Some(Health::Ok) => assert_eq!(missing, 0, "healthy, and {missing} events are not stored"),
            Some(Health::Degraded { events, .. }) => {
                // A lost answer may have stored what is not known to be.
                assert!(events >= missing as u64 && events > 0, "{events} reported, {missing} missing");
            }
            _ => {}
        }
    }
}

fn try_both(name: &str, runs: usize, play: impl Fn() -> Play) {
    let (tried, all) = explore(name, 1, effort(runs), || play().end());
    shuffle(name, 0, effort(runs) as u64, || play().end());
    println!(
        "{name}: {tried} orders of one preemption at most{}, {} random",
        if all { " (all)" } else { "" },
        effort(runs)
    );
}

#[test]
fn l7_flushes_and_appends() {
    try_both("flush", 400, || Play::new(&[]).appender("append", 2).flusher("flush a").flusher("flush b").clock());
}

#[test]
fn l7_a_flush_covers_what_two_threads_appended() {
    let play = || {
        let play = Play::new(&[Fault::Delayed(1)]).appender("a", 2);
        let live = play.world.live();
        play.thread("b", move |world| {
            world.append(&live);
            world.flush(&live);
            world.append(&live);
        })
    };
    try_both("two appenders", 400, play);
}

#[test]
fn windows_alone_write_everything() {
    for faults in [&[][..], &[Fault::Delayed(2)]] {
        try_both(&format!("window {faults:?}"), 300, || Play::new(faults).appender("a", 2).appender("b", 1).clock());
    }
}

#[test]
fn failures_lose_nothing_in_any_order() {
    for fault in [Fault::Fail(ErrorKind::DiskFull), Fault::LostBefore, Fault::LostAfter, Fault::Usurped] {
        try_both(&format!("{fault:?}"), 150, || {
            Play::new(&[fault]).appender("append", 2).flusher("flush a").flusher("flush b").clock()
        });
    }
}

#[test]
fn close_races_appends_flushes_and_other_closes() {
    for faults in [&[][..], &[Fault::Fail(ErrorKind::Io)], &[Fault::LostAfter], &[Fault::Delayed(1)]] {
        try_both(&format!("close {faults:?}"), 150, || {
            Play::new(faults).appender("append", 2).closer("close a").closer("close b").flusher("flush")
        });
    }
}

#[test]
fn the_bound_holds_and_opens_again() {
    try_both("bound", 300, || {
        Play::with(StoreOptions::new().queue_bytes(2 * weight()), 2, &[])
            .appender("a", 3)
            .appender("b", 2)
            .flusher("flush")
    });
}

#[test]
fn a_dropped_store_and_dropped_handles_still_write_what_waits() {
    for faults in [&[][..], &[Fault::Fail(ErrorKind::Io)]] {
        try_both(&format!("drop {faults:?}"), 200, || {
            let play = Play::new(faults).appender("append", 2).appender("again", 1);
            play.thread("drop", move |world| {
                let store = world.store.lock().unwrap().take();
                drop(store);
            })
            .clock()
            .without_host()
        });
    }
}

#[test]
fn closing_the_store_races_appends_and_handles() {
    try_both("close store", 200, || {
        Play::new(&[Fault::Delayed(1)]).appender("append", 2).closer("close").thread("store", |world| {
            let store = world.store.lock().unwrap().clone().unwrap();
            match wait_for(store.close()) {
                Ok(()) => world.closed.store(true, Ordering::Relaxed),
                Err(error) => panic!("{error}"),
            }
        })
    });
}

#[test]
fn a_session_given_back_can_be_resumed_in_any_order() {
    try_both("resume", 200, || {
        let play = Play::new(&[]).appender("append", 1).closer("close");
        play.thread("resume", |world| {
            let store = world.store.lock().unwrap().clone().unwrap();
            match wait_for(store.resume("s")) {
                Ok(live) => {
                    assert!(live.next_seq() > 0);
                    let own = wait_for(world.memory.head(live.id())).unwrap().next_seq;
                    assert!(own <= live.next_seq());
                    wait_for(live.flush()).unwrap();
                    world.resumed.store(true, Ordering::Relaxed);
                }
                Err(StoreError::Backend(error)) => {
                    assert!(matches!(error.kind, ErrorKind::Busy | ErrorKind::NotFound), "{error}");
                }
                Err(error) => panic!("{error}"),
            }
        })
    });
}
