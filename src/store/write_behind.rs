//! The writer of one live session: takes what waits in the session's own log and appends it to the backend, batch by batch.
//!
//! What waits is not copied into a queue. The writer keeps one number, the seq up to which the log is durable, and a batch is
//! whatever the log holds from there on. So a batch that failed is back at the head, in order, by not having moved.

use std::sync::{Arc, Weak};

use tokio::runtime::Handle;

use super::ledger::{Cut, Duty, Ledger, Phase};
use super::registry::Registry;
use super::settle::{Fate, settle};
use crate::backend::{AppendError, Backend, BackendError, ErrorKind, Expected, Head};
use crate::event::Batch;
use crate::session::Session;

/// Most batches that one flush writes before it answers for the events that came before it. A source that appends faster than
/// the medium writes would otherwise keep a flush for ever.
const ROUNDS_OF_A_FLUSH: u32 = 8;

/// The writer of one live session. The session does not know it (it knows the ledger), so nothing holds itself alive.
pub(crate) struct Writer<B: Backend> {
    backend: Arc<B>,
    session: Session,
    ledger: Arc<Ledger>,
    registry: Weak<Registry<B>>,
    /// Held while a batch is in flight: there is at most one.
    cursor: tokio::sync::Mutex<Cursor>,
}

/// Where the stored log ends, as far as this writer knows.
pub(crate) struct Cursor {
    /// What the next append expects; [`Expected::ABSENT`] until the first batch has created the session.
    expected: Expected,
    /// A batch whose fate is unknown: its answer was lost, or nobody was left to hear it.
    doubt: Option<(Batch, Cut)>,
    /// An append at this position once had its answer lost. It may still land while a later attempt is under way, so a conflict
    /// here can be with oneself.
    haunted: bool,
    released: bool,
}

/// How an attempt to write what waits ended.
enum Attempt {
    /// Nothing waited.
    Idle,
    /// A batch became durable; flushes up to this number are covered.
    Wrote(u64),
    /// It failed; the ledger knows why.
    Failed,
}

/// The writer's seat; given back however the task ends, a runtime's shutdown included.
struct Seat(Arc<Ledger>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl<B: Backend> Writer<B> {
    /// A writer for `session`, whose stored log ends where `expected` says.
    pub(crate) fn new(
        backend: Arc<B>,
        session: Session,
        ledger: Arc<Ledger>,
        registry: Weak<Registry<B>>,
        expected: Expected,
    ) -> Self {
        let cursor = Cursor { expected, doubt: None, haunted: false, released: false };
        Self { backend, session, ledger, registry, cursor: tokio::sync::Mutex::new(cursor) }
    }

    /// The session.
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// The account.
    pub(crate) fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Starts the task on the running runtime unless one serves already. Returns whether one does now.
    pub(crate) fn start(self: &Arc<Self>) -> bool {
        let Ok(runtime) = Handle::try_current() else { return false };
        if self.ledger.attend() {
            let writer = Arc::clone(self);
            // The seat is taken before the task runs, so a runtime that drops the task unpolled must free it as well.
            let seat = Seat(Arc::clone(&self.ledger));
            runtime.spawn(async move { writer.serve(seat).await });
        }
        true
    }

    async fn serve(&self, _seat: Seat) {
        loop {
            match self.ledger.duty() {
                Duty::DrainNow => self.drain().await,
                Duty::WriteAt(end) => {
                    if tokio::time::timeout_at(end, self.ledger.wait_for_work()).await.is_err() {
                        self.attempt().await;
                    }
                }
                Duty::Rest => self.ledger.wait_for_work().await,
                Duty::GiveBack => {
                    self.give_back().await;
                    return;
                }
            }
        }
    }

    /// Writes until nothing waits, as a flush wants it, and answers the flushes.
    pub(crate) async fn drain(&self) {
        for round in 1.. {
            match self.attempt().await {
                Attempt::Wrote(covers) if round >= ROUNDS_OF_A_FLUSH => {
                    self.ledger.answer_up_to(Some(covers));
                    return;
                }
                Attempt::Wrote(covers) => {
                    if !self.ledger.drained() {
                        continue;
                    }
                    self.ledger.answer_up_to(Some(covers));
                }
                Attempt::Idle | Attempt::Failed => {}
            }
            // Events that came in just now keep flushes waiting for another round.
            if !self.ledger.answer_up_to(None) {
                return;
            }
        }
    }

    /// One batch with everything that waits.
    async fn attempt(&self) -> Attempt {
        let mut cursor = self.cursor.lock().await;
        if self.ledger.lost() {
            return Attempt::Failed;
        }
        if let Some((batch, cut)) = cursor.doubt.take() {
            // Nobody heard the answer of the last append: find out before doing anything else.
            if self.resolve(&mut cursor, batch, cut).await.is_err() {
                return Attempt::Failed;
            }
        }
        let Some(cut) = self.ledger.cut() else { return Attempt::Idle };
        let from = cursor.expected.next_seq;
        if from >= cut.to {
            self.ledger.written(&cut, from);
            return Attempt::Wrote(cut.covers);
        }
        let Some(batch) = Batch::new(self.session.items(from, cut.to)) else {
            let detail = format!("the log in memory does not hold events {from} to {} any more", cut.to);
            self.ledger.failed(BackendError::new(ErrorKind::Poisoned, detail).with_session(self.session.id()), true);
            return Attempt::Failed;
        };
        self.append(&mut cursor, cut, batch).await
    }

    async fn append(&self, cursor: &mut Cursor, cut: Cut, batch: Batch) -> Attempt {
        let id = self.session.id();
        let header = (cursor.expected == Expected::ABSENT).then(|| self.session.header());
        // Noted before the call: if this future is dropped while the backend works, the next attempt asks what became of it.
        let (batch, _) = &*cursor.doubt.insert((batch, cut));
        match self.backend.append(id, header, cursor.expected, batch).await {
            Ok(head) => {
                cursor.arrived(&head);
                self.wrote(&cut, &head)
            }
            Err(AppendError::Failed(error)) => {
                cursor.doubt = None;
                let gone = error.kind == ErrorKind::NotFound && cursor.expected != Expected::ABSENT;
                let last = gone || matches!(error.kind, ErrorKind::LostOwnership | ErrorKind::Exists);
                self.ledger.failed(error, last);
                Attempt::Failed
            }
            Err(conflict @ AppendError::Conflict { .. }) if !cursor.haunted => {
                cursor.doubt = None;
                self.ledger.failed(conflict.into_backend(id), true);
                Attempt::Failed
            }
            Err(error) => {
                // The answer was lost, or what is in the way may be an earlier batch of our own that landed late.
                cursor.haunted = true;
                let Some((batch, cut)) = cursor.doubt.take() else { return Attempt::Failed };
                match self.resolve(cursor, batch, cut).await {
                    Ok(Some(attempt)) => attempt,
                    Ok(None) => {
                        self.ledger.failed(error.into_backend(id), false);
                        Attempt::Failed
                    }
                    Err(()) => Attempt::Failed,
                }
            }
        }
    }

    fn wrote(&self, cut: &Cut, head: &Head) -> Attempt {
        self.ledger.written(cut, head.next_seq);
        Attempt::Wrote(if head.next_seq >= cut.to { cut.covers } else { 0 })
    }

    /// Finds out what became of a doubtful batch and moves the cursor behind what landed; `None` when nothing did. When it cannot
    /// be told, or the session is lost, the ledger learns why.
    async fn resolve(&self, cursor: &mut Cursor, batch: Batch, cut: Cut) -> Result<Option<Attempt>, ()> {
        cursor.haunted = true;
        match settle(&*self.backend, self.session.header(), self.session.id(), cursor.expected, &batch).await {
            Fate::Landed(head) => {
                cursor.arrived(&head);
                Ok(Some(self.wrote(&cut, &head)))
            }
            Fate::Missing => Ok(None),
            Fate::Lost(error) => {
                self.ledger.failed(error, true);
                Err(())
            }
            Fate::Unknown(error) => {
                cursor.doubt = Some((batch, cut));
                self.ledger.failed(error, false);
                Err(())
            }
        }
    }

    /// Gives the session back to the backend and to whoever wants to open it next.
    async fn give_back(&self) {
        let waiting = self.ledger.waiting_events();
        let id = self.session.id();
        if waiting > 0 {
            tracing::error!(session = %id, events = waiting, "the session was given up with events that are not durable");
        }
        self.release().await;
        self.ledger.advance(Phase::Closed);
        if let Some(registry) = self.registry.upgrade() {
            registry.forget(id, &self.ledger);
        }
    }

    /// Gives ownership back to the backend, once.
    async fn release(&self) {
        let mut cursor = self.cursor.lock().await;
        if cursor.released || cursor.expected == Expected::ABSENT {
            return;
        }
        cursor.released = true;
        // Also when ownership was lost: what this process still holds of the session has to go.
        let released = self.backend.release(self.session.id(), cursor.expected.epoch).await;
        if let Err(error) = released
            && !self.ledger.lost()
        {
            tracing::warn!(session = %self.session.id(), %error, "giving the session back failed");
        }
    }

    /// Writes everything that waits on a runtime of its own, for callers outside any. Waits for a batch in flight elsewhere.
    pub(crate) fn drain_on_this_thread(&self) -> Result<(), std::io::Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        runtime.block_on(self.drain());
        Ok(())
    }
}

impl Cursor {
    fn arrived(&mut self, head: &Head) {
        self.expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
        self.doubt = None;
        self.haunted = false;
    }
}
