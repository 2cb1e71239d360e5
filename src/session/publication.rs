//! The one lane through which a session changes: it orders appends and their delivery to observers.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use compact_str::CompactString;

use super::handle::Session;
use super::options::{Observer, Veto};
use crate::event::chunk::Delta;
use crate::event::run::RunHead;
use crate::event::{Event, SessionId, json};
use crate::sync::lock;

/// A number for the running thread that no other thread ever has; never 0.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

/// What the next delta reuses of the last one.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    escaped: String,
    head: Option<CachedHead>,
}

#[derive(Debug)]
struct CachedHead {
    head: Arc<RunHead>,
    id: Option<CompactString>,
    name: Option<CompactString>,
}

impl CachedHead {
    fn fits(&self, delta: &Delta<'_>) -> bool {
        self.head.kind == delta.kind
            && self.head.turn == delta.turn
            && self.head.step == delta.step
            && self.head.index == delta.index
            && self.id.as_deref() == delta.id
            && self.name.as_deref() == delta.name
    }
}

impl Scratch {
    /// The run head and the escaped string body of a delta, without allocating in the steady state.
    pub(crate) fn prepare<'a>(&'a mut self, delta: &Delta<'a>) -> (Arc<RunHead>, &'a str) {
        let head = match &self.head {
            Some(cached) if cached.fits(delta) => Arc::clone(&cached.head),
            _ => self.new_head(delta),
        };
        let plain = delta.text.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\');
        if plain {
            return (head, delta.text);
        }
        self.escaped.clear();
        json::escape_into(&mut self.escaped, delta.text);
        (head, &self.escaped)
    }

    fn new_head(&mut self, delta: &Delta<'_>) -> Arc<RunHead> {
        let body = |text: Option<&str>| {
            text.map(|text| {
                let mut body = String::new();
                json::escape_into(&mut body, text);
                CompactString::from(body)
            })
        };
        let head = Arc::new(RunHead {
            kind: delta.kind,
            turn: delta.turn,
            step: delta.step,
            index: delta.index,
            id: body(delta.id),
            name: body(delta.name),
        });
        let (id, name) = (delta.id.map(CompactString::from), delta.name.map(CompactString::from));
        self.head = Some(CachedHead { head: Arc::clone(&head), id, name });
        head
    }
}

const LIVE: u64 = 0;
const CLOSING: u64 = 1;
const CLOSED: u64 = 2;

/// The lane itself, part of a session's shared state.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    scratch: Mutex<Scratch>,
    /// The thread that publishes at the moment; 0 if none does.
    publisher: AtomicU64,
    phase: AtomicU64,
    /// How many observers, from the first on, saw `created`.
    greeted: AtomicUsize,
}

impl Lane {
    /// Whether the running thread is inside a callback of this lane.
    pub(crate) fn is_mine(&self) -> bool {
        self.publisher.load(Ordering::Relaxed) == this_thread()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.phase.load(Ordering::Acquire) != LIVE
    }
}

/// The running thread's turn on the lane; ends when dropped.
pub(crate) struct Publication<'a> {
    session: &'a Session,
    pub(crate) scratch: MutexGuard<'a, Scratch>,
}

impl<'a> Publication<'a> {
    /// Waits for the lane. `None` if the running thread has it already.
    pub(crate) fn begin(session: &'a Session) -> Option<Self> {
        let lane = session.lane();
        // Only this thread can have stored its own number, so a relaxed load is exact.
        if lane.is_mine() {
            return None;
        }
        let scratch = lock(&lane.scratch);
        lane.publisher.store(this_thread(), Ordering::Relaxed);
        Some(Self { session, scratch })
    }

    /// Tells observers of the new session, in order, until one vetoes it.
    pub(crate) fn greet(&self, observers: &[Arc<dyn Observer>]) -> Result<(), Veto> {
        for (observer, greeted) in observers.iter().zip(1..) {
            self.session.lane().greeted.store(greeted, Ordering::Release);
            match catch_unwind(AssertUnwindSafe(|| observer.created(self.session))) {
                Ok(Ok(())) => {}
                Ok(Err(veto)) => return Err(veto),
                Err(_) => tracing::error!(session = %self.session.id(), "an observer panicked in `created`"),
            }
        }
        Ok(())
    }

    /// Delivers an accepted event.
    pub(crate) fn notify(&self, observers: &[Arc<dyn Observer>], event: &Event) {
        for observer in observers {
            match catch_unwind(AssertUnwindSafe(|| observer.event(self.session, event))) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(session = %self.session.id(), seq = event.seq(), %error, "an observer failed");
                }
                Err(_) => tracing::error!(session = %self.session.id(), seq = event.seq(), "an observer panicked"),
            }
        }
    }
}

impl Drop for Publication<'_> {
    fn drop(&mut self) {
        let lane = self.session.lane();
        // A callback asked to dispose of the session: deliver it now that the callback is over.
        if lane.phase.load(Ordering::Acquire) == CLOSING {
            deliver_disposed(lane, self.session.observers(), self.session.id());
        }
        lane.publisher.store(0, Ordering::Relaxed);
    }
}

/// Closes the lane for appends, now or, from inside a callback, as soon as the callback is over.
pub(crate) fn dispose(session: &Session) {
    let lane = session.lane();
    let _ = lane.phase.compare_exchange(LIVE, CLOSING, Ordering::AcqRel, Ordering::Acquire);
    // Whoever holds the lane, this thread included, delivers on leaving it. Everyone who closes waits for that, not only the
    // first: an append that is under way may still be accepted, and must not be after a close has returned.
    drop(Publication::begin(session));
}

fn deliver_disposed(lane: &Lane, observers: &[Arc<dyn Observer>], id: &SessionId) {
    if lane.phase.swap(CLOSED, Ordering::AcqRel) != CLOSING {
        return;
    }
    for observer in observers.iter().take(lane.greeted.load(Ordering::Acquire)) {
        if catch_unwind(AssertUnwindSafe(|| observer.disposed(id))).is_err() {
            tracing::error!(session = %id, "an observer panicked in `disposed`");
        }
    }
}
