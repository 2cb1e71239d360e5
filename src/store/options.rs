//! How a store behaves.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Store, StoreError};
use crate::backend::Backend;
use crate::event::Vocabulary;
use crate::session::{Clock, IdSource, Observer, RandomIds, SessionOptions, Sink, SystemClock};

/// How long the first event after idle waits for company before it is written.
pub const DEFAULT_WINDOW: Duration = Duration::from_millis(200);

/// Most bytes of one session that wait to be written: what a model streams in hours, and what a process can lose sleep over.
pub const DEFAULT_QUEUE_BYTES: usize = 64 << 20;

/// Options of a [`Store`]. The default writes within 200 ms, holds at most 64 MiB a session unwritten, takes times from the
/// system's clock and ids at random, and knows the well-known vocabulary.
#[derive(Clone)]
pub struct StoreOptions {
    pub(crate) window: Duration,
    pub(crate) queue_bytes: usize,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    pub(crate) vocabulary: Vocabulary,
    pub(crate) closed_vocabulary: bool,
    pub(crate) observers: Vec<Arc<dyn Observer>>,
    pub(crate) check_invariants: bool,
    pub(crate) persistence: bool,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            window: DEFAULT_WINDOW,
            queue_bytes: DEFAULT_QUEUE_BYTES,
            clock: Arc::new(SystemClock),
            ids: Arc::new(RandomIds),
            vocabulary: Vocabulary::well_known(),
            closed_vocabulary: false,
            observers: Vec::new(),
            check_invariants: false,
            persistence: true,
        }
    }
}

impl StoreOptions {
    /// The default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long the first event after idle waits before it is written with whatever came after it. Later events do not extend
    /// the wait.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// Most bytes ([`crate::event::Event::weight`]) of one session that may wait to be written; at the bound appends are refused.
    /// A single event larger than the bound is accepted while nothing else waits.
    pub fn queue_bytes(mut self, bytes: usize) -> Self {
        self.queue_bytes = bytes;
        self
    }

    /// Takes the times of events, headers and health from `clock`. Windows are timed by the runtime.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Takes message ids from `ids`.
    pub fn ids(mut self, ids: Arc<dyn IdSource>) -> Self {
        self.ids = ids;
        self
    }

    /// The event types that this reader knows (V2): a stored session with a required event of another type is refused.
    pub fn vocabulary(mut self, vocabulary: Vocabulary) -> Self {
        self.vocabulary = vocabulary;
        self
    }

    /// Refuses appends of types that are not in the vocabulary (V3). Off by default.
    pub fn closed_vocabulary(mut self, closed: bool) -> Self {
        self.closed_vocabulary = closed;
        self
    }

    /// Adds an observer of every session that this store makes live (L2).
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.push(observer);
        self
    }

    /// Refuses appends that break an invariant of section 7. Off by default.
    pub fn check_invariants(mut self, check: bool) -> Self {
        self.check_invariants = check;
        self
    }

    /// With `false`, nothing is ever written: sessions live in memory, stored ones can be read, a flush succeeds without making
    /// anything durable, and health says [`super::Health::Off`]. On by default.
    pub fn persistence(mut self, on: bool) -> Self {
        self.persistence = on;
        self
    }

    /// Opens a store over `backend` with these options.
    ///
    /// # Errors
    /// None at present; opening a store reads and writes nothing.
    pub fn open<B: Backend>(self, backend: B) -> Result<Store<B>, StoreError> {
        Store::with_options(backend, self)
    }

    /// What a session of this store is made with.
    pub(crate) fn session(&self, sink: Option<Arc<dyn Sink>>) -> SessionOptions {
        let mut options = self.view().closed_vocabulary(self.closed_vocabulary).check_invariants(self.check_invariants);
        for observer in &self.observers {
            options = options.observer(Arc::clone(observer));
        }
        match sink {
            Some(sink) => options.sink(sink),
            None => options,
        }
    }

    /// What a view of a stored session is made with: nobody observes it.
    pub(crate) fn view(&self) -> SessionOptions {
        SessionOptions::new()
            .clock(Arc::clone(&self.clock))
            .ids(Arc::clone(&self.ids))
            .vocabulary(self.vocabulary.clone())
    }
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions")
            .field("window", &self.window)
            .field("queue_bytes", &self.queue_bytes)
            .field("closed_vocabulary", &self.closed_vocabulary)
            .field("observers", &self.observers.len())
            .field("check_invariants", &self.check_invariants)
            .field("persistence", &self.persistence)
            .finish_non_exhaustive()
    }
}
