//! The sessions that a store has live, by id: each id at most once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use super::busy_here;
use super::error::StoreError;
use super::ledger::{Ledger, Phase};
use super::write_behind::Writer;
use crate::backend::{Backend, BackendError};
use crate::event::SessionId;
use crate::sync;

/// The live sessions of a store.
pub(crate) struct Registry<B: Backend> {
    state: Mutex<State<B>>,
}

struct State<B: Backend> {
    entries: HashMap<SessionId, Entry<B>>,
    closed: bool,
}

enum Entry<B: Backend> {
    /// Being created, resumed or forked to, or kept free.
    Opening,
    /// Live, or on its way to being given back.
    Live(Arc<Writer<B>>),
    /// Live without a writer: persistence is off.
    Unwritten,
}

/// Why an id cannot be opened now.
pub(crate) enum Refusal<B: Backend> {
    /// The store was closed.
    Closed,
    /// Somebody else opens it at the moment, or has it without persistence.
    Opening,
    /// It is live here.
    Live(Arc<Writer<B>>),
}

/// The right to open an id, held while that goes on.
pub(crate) struct Reservation<B: Backend> {
    registry: Arc<Registry<B>>,
    id: SessionId,
    filled: bool,
}

impl<B: Backend> Registry<B> {
    /// No sessions.
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(State { entries: HashMap::new(), closed: false }) }
    }

    fn lock(&self) -> MutexGuard<'_, State<B>> {
        sync::lock(&self.state)
    }

    /// Reserves an id.
    pub(crate) fn reserve(self: &Arc<Self>, id: &SessionId) -> Result<Reservation<B>, Refusal<B>> {
        let mut state = self.lock();
        if state.closed {
            return Err(Refusal::Closed);
        }
        match state.entries.get(id) {
            Some(Entry::Live(writer)) => return Err(Refusal::Live(Arc::clone(writer))),
            Some(Entry::Opening | Entry::Unwritten) => return Err(Refusal::Opening),
            None => {}
        }
        state.entries.insert(id.clone(), Entry::Opening);
        Ok(Reservation { registry: Arc::clone(self), id: id.clone(), filled: false })
    }

    /// Keeps an id free until what this gives is dropped.
    ///
    /// # Errors
    /// `Busy` where it is live, also with nothing written yet, or being opened.
    pub(crate) fn keep_free(self: &Arc<Self>, id: &SessionId) -> Result<Box<dyn Send>, BackendError> {
        let mut state = self.lock();
        match state.entries.get(id) {
            // Given back, and about to be forgotten.
            Some(Entry::Live(writer)) if writer.ledger().phase() == Phase::Closed => {}
            Some(Entry::Live(_) | Entry::Opening) => return Err(busy_here(id)),
            // Neither writes to the backend.
            Some(Entry::Unwritten) => return Ok(Box::new(())),
            None if state.closed => return Ok(Box::new(())),
            None => {}
        }
        state.entries.insert(id.clone(), Entry::Opening);
        Ok(Box::new(Reservation { registry: Arc::clone(self), id: id.clone(), filled: false }))
    }

    /// The writer of an id that is live.
    pub(crate) fn get(&self, id: &SessionId) -> Option<Arc<Writer<B>>> {
        match self.lock().entries.get(id) {
            Some(Entry::Live(writer)) => Some(Arc::clone(writer)),
            _ => None,
        }
    }

    /// All writers.
    pub(crate) fn writers(&self) -> Vec<Arc<Writer<B>>> {
        let state = self.lock();
        let writers = state.entries.values().filter_map(|entry| match entry {
            Entry::Live(writer) => Some(Arc::clone(writer)),
            _ => None,
        });
        writers.collect()
    }

    /// Forgets a session that was given back, if the entry is still the one with this account.
    pub(crate) fn forget(&self, id: &SessionId, ledger: &Arc<Ledger>) {
        let mut state = self.lock();
        let same = matches!(state.entries.get(id), Some(Entry::Live(writer)) if Arc::ptr_eq(writer.ledger(), ledger));
        // Dropped outside the lock: it may be the last holder of a session, whose end runs foreign code.
        let entry = if same { state.entries.remove(id) } else { None };
        drop(state);
        drop(entry);
    }

    /// Forgets a session that has no writer.
    pub(crate) fn forget_unwritten(&self, id: &SessionId) {
        let mut state = self.lock();
        if matches!(state.entries.get(id), Some(Entry::Unwritten)) {
            state.entries.remove(id);
        }
    }

    /// Refuses further openings.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
    }
}

impl<B: Backend> Reservation<B> {
    /// Makes the session live. With no writer, persistence is off.
    pub(crate) fn fill(mut self, writer: Option<Arc<Writer<B>>>) -> Result<(), StoreError> {
        let mut state = self.registry.lock();
        if state.closed {
            drop(state);
            return Err(StoreError::Closed);
        }
        state.entries.insert(self.id.clone(), writer.map_or(Entry::Unwritten, Entry::Live));
        drop(state);
        self.filled = true;
        Ok(())
    }
}

impl<B: Backend> Drop for Reservation<B> {
    fn drop(&mut self) {
        if !self.filled {
            self.registry.lock().entries.remove(&self.id);
        }
    }
}

impl<B: Backend> Drop for Registry<B> {
    /// The store is gone. Sessions that somebody still holds go on; those that nobody holds get their last attempt.
    fn drop(&mut self) {
        let writers = self.writers();
        let (mut events, mut sessions) = (0_u64, 0_u64);
        for writer in &writers {
            let waiting = writer.ledger().waiting_events();
            events += waiting;
            sessions += u64::from(waiting > 0);
            if writer.ledger().phase() == Phase::Closing {
                writer.ledger().advance(Phase::Orphaned);
                if !writer.start() && waiting > 0 {
                    let id = writer.session().id();
                    tracing::error!(session = %id, events = waiting, "events are lost: nobody is left to write them");
                }
            }
        }
        if events > 0 {
            tracing::warn!(events, sessions, "the store was dropped, not closed, with events that are not durable yet");
        }
    }
}
