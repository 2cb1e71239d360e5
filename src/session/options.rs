//! How a session is set up: clock, ids, observers, the sink behind it, and which checks it makes.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use super::Session;
use super::clock::{Clock, IdSource, RandomIds, SystemClock};
use crate::event::{Event, SessionId, Vocabulary};

/// Sees a live session's events after they are in the log, in log order (L2).
///
/// Callbacks run on the appending thread, one at a time for a session. They may read the session; an append to it from inside
/// a callback is refused. An error or panic is logged and reaches neither the other observers nor the caller.
pub trait Observer: Send + Sync {
    /// The session exists and holds its seed, if it has one.
    ///
    /// # Errors
    /// [`Veto`] to refuse it: nothing is left behind, and every observer that saw `created` gets `disposed`.
    fn created(&self, session: &Session) -> Result<(), Veto> {
        let _ = session;
        Ok(())
    }

    /// An event was accepted. Events of the seed are not delivered.
    ///
    /// # Errors
    /// Whatever the observer cannot cope with; it is logged and has no other effect.
    fn event(&self, session: &Session, event: &Event) -> Result<(), Box<dyn Error + Send + Sync>>;

    /// The session takes no more events.
    fn disposed(&self, id: &SessionId) {
        let _ = id;
    }
}

/// An observer's refusal to let a session exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an observer vetoed the session: {reason}")]
pub struct Veto {
    /// Why.
    pub reason: String,
}

impl Veto {
    /// A veto with its reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

/// What stands behind a live session and writes its events on: a write-behind queue. Called on the appending thread, in log
/// order; it must not block for I/O.
pub trait Sink: Send + Sync {
    /// Asked before an event (or a bracket of events) is accepted; `bytes` is [`Event::weight`] summed up.
    ///
    /// # Errors
    /// [`BufferFull`]: then nothing is accepted.
    fn admit(&self, bytes: usize) -> Result<(), BufferFull>;

    /// Told after events are in the log: all up to but excluding `next_seq` are, the newest weighing `bytes`.
    fn accepted(&self, next_seq: u64, bytes: usize);
}

/// The queue behind a session is at its bound; the event was not accepted and can be appended again once the queue has drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{waiting_bytes} bytes wait to be written, the limit is {limit}; flush, then append again")]
pub struct BufferFull {
    /// Bytes that wait.
    pub waiting_bytes: usize,
    /// Most bytes that may wait.
    pub limit: usize,
}

/// Options of a session. The default has the system's clock, random ids, no observer, no sink, the well-known vocabulary, and
/// makes no checks beyond the validator's.
#[derive(Clone)]
pub struct SessionOptions {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    pub(crate) observers: Vec<Arc<dyn Observer>>,
    pub(crate) sink: Option<Arc<dyn Sink>>,
    pub(crate) vocabulary: Vocabulary,
    pub(crate) closed_vocabulary: bool,
    pub(crate) check_invariants: bool,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            ids: Arc::new(RandomIds),
            observers: Vec::new(),
            sink: None,
            vocabulary: Vocabulary::well_known(),
            closed_vocabulary: false,
            check_invariants: false,
        }
    }
}

impl SessionOptions {
    /// The default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes times from `clock`.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Takes message ids from `ids`.
    pub fn ids(mut self, ids: Arc<dyn IdSource>) -> Self {
        self.ids = ids;
        self
    }

    /// Adds an observer; observers are called in the order in which they were added.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.push(observer);
        self
    }

    /// Sets the sink.
    pub fn sink(mut self, sink: Arc<dyn Sink>) -> Self {
        self.sink = Some(sink);
        self
    }

    /// Sets the vocabulary that a seed is reconstructed with (V2).
    pub fn vocabulary(mut self, vocabulary: Vocabulary) -> Self {
        self.vocabulary = vocabulary;
        self
    }

    /// Refuses appends of types that are not in the vocabulary (V3). Off by default: refusing would stall a live session.
    pub fn closed_vocabulary(mut self, closed: bool) -> Self {
        self.closed_vocabulary = closed;
        self
    }

    /// Refuses appends that break an invariant of section 7. Off by default.
    pub fn check_invariants(mut self, check: bool) -> Self {
        self.check_invariants = check;
        self
    }
}

impl fmt::Debug for SessionOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionOptions")
            .field("observers", &self.observers.len())
            .field("sink", &self.sink.is_some())
            .field("closed_vocabulary", &self.closed_vocabulary)
            .field("check_invariants", &self.check_invariants)
            .finish_non_exhaustive()
    }
}
