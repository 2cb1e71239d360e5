//! How a store is set up.

use std::sync::Arc;
use std::time::Duration;

use crate::event::Vocabulary;
use crate::session::{Clock, IdSource, Observer, RandomIds, SessionOptions, SystemClock};

/// Options of a [`Store`](super::Store). The defaults suit an agent on a local disk.
#[derive(Clone)]
pub struct StoreOptions {
    pub(crate) window: Duration,
    pub(crate) queue_bytes: usize,
    pub(crate) persistence: bool,
    pub(crate) clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    observers: Vec<Arc<dyn Observer>>,
    vocabulary: Vocabulary,
    closed_vocabulary: bool,
    check_invariants: bool,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            window: Self::WINDOW,
            queue_bytes: Self::QUEUE_BYTES,
            persistence: true,
            clock: Arc::new(SystemClock),
            ids: Arc::new(RandomIds),
            observers: Vec::new(),
            vocabulary: Vocabulary::well_known(),
            closed_vocabulary: false,
            check_invariants: false,
        }
    }
}

impl StoreOptions {
    /// Default of [`StoreOptions::window`].
    pub const WINDOW: Duration = Duration::from_millis(200);

    /// Default of [`StoreOptions::queue_bytes`]: 64 MiB.
    pub const QUEUE_BYTES: usize = 64 << 20;

    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long the first event after idle waits for company before the whole pending prefix is written. It is the most that a
    /// crash costs without a flush.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// Most bytes of events that may wait to be written, a session. At the bound appends are refused with `BufferFull`.
    pub fn queue_bytes(mut self, bytes: usize) -> Self {
        self.queue_bytes = bytes;
        self
    }

    /// Whether anything is written at all. Without persistence health says [`Off`](super::Health::Off), flushes succeed at once
    /// and promise nothing.
    pub fn persistence(mut self, on: bool) -> Self {
        self.persistence = on;
        self
    }

    /// Takes times from `clock`, so that runs replay.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Takes message ids from `ids`, so that runs replay.
    pub fn ids(mut self, ids: Arc<dyn IdSource>) -> Self {
        self.ids = ids;
        self
    }

    /// Adds an observer to every session that is made live (L2).
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.push(observer);
        self
    }

    /// The types that a stored session may have to be reconstructed (V2).
    pub fn vocabulary(mut self, vocabulary: Vocabulary) -> Self {
        self.vocabulary = vocabulary;
        self
    }

    /// Refuses appends of types outside the vocabulary (V3).
    pub fn closed_vocabulary(mut self, closed: bool) -> Self {
        self.closed_vocabulary = closed;
        self
    }

    /// Refuses appends that break an invariant of the agent loop (section 7).
    pub fn check_invariants(mut self, check: bool) -> Self {
        self.check_invariants = check;
        self
    }

    /// The types that a stored session may have.
    pub(crate) fn known(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// The session layer's share of the options.
    pub(crate) fn session(&self) -> SessionOptions {
        let options = SessionOptions::new()
            .clock(Arc::clone(&self.clock))
            .ids(Arc::clone(&self.ids))
            .vocabulary(self.vocabulary.clone())
            .closed_vocabulary(self.closed_vocabulary)
            .check_invariants(self.check_invariants);
        self.observers.iter().fold(options, |options, observer| options.observer(Arc::clone(observer)))
    }
}
