//! The write-behind: takes what a live session accepted and makes it durable, one batch at a time.
//!
//! Whoever drives a writer holds its seat: usually a task of the runtime, or a flush when no task serves the session. What waits
//! is the session's own log behind the durable cursor, so a batch that failed is at the head of the queue again by itself.

use std::sync::Arc;

use super::ledger::{Cut, Duty, Ledger, Phase};
use crate::backend::{AppendError, Backend, BackendError, BatchMark, ErrorKind, Expected};
use crate::event::{Batch, SessionId};
use crate::session::Session;

/// Batches after which a flush is answered although more events keep coming: its own are durable by then.
const ROUNDS: usize = 8;

/// A live session as the store serves it, apart from the handles that its users hold.
pub(crate) struct Served<B> {
    pub(crate) backend: B,
    pub(crate) session: Session,
    pub(crate) ledger: Arc<Ledger>,
    position: tokio::sync::Mutex<Position>,
}

/// Where the writer stands in the stored log.
struct Position {
    expected: Expected,
    /// Seq behind a batch whose append was not answered. The batch is the log's stretch from `expected` up to there.
    doubt: Option<u64>,
}

/// The right to drive a session's writer; given back when dropped, also when its task is aborted.
struct Seat<'a>(&'a Ledger);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// How an attempt to write ended.
enum Attempt {
    Durable { next_seq: u64 },
    Failed { cause: BackendError, last: bool },
}

impl<B: Backend> Served<B> {
    /// Serves a session of which the events before `expected.next_seq` are stored.
    pub(crate) fn new(backend: B, session: Session, ledger: Arc<Ledger>, expected: Expected) -> Self {
        let position = tokio::sync::Mutex::new(Position { expected, doubt: None });
        Self { backend, session, ledger, position }
    }

    fn id(&self) -> &SessionId {
        self.session.id()
    }

    /// Serves the session until it is given back. Waits while a flush drives the writer itself.
    pub(crate) async fn serve(&self) {
        loop {
            let mut progress = self.ledger.progress();
            if self.ledger.phase() == Phase::Closed {
                return;
            }
            if self.ledger.attend() {
                break;
            }
            // The ledger outlives the wait, so the channel does not close.
            let _ = progress.changed().await;
        }
        let _seat = Seat(&self.ledger);
        loop {
            match self.ledger.duty() {
                Duty::GiveBack => return self.give_back().await,
                Duty::DrainNow => self.drain().await,
                Duty::WriteAt(end) => {
                    if tokio::time::timeout_at(end, self.ledger.wait_for_work()).await.is_err() {
                        self.write_window().await;
                    }
                }
                Duty::Rest => self.ledger.wait_for_work().await,
            }
        }
    }

    /// Does what is due now if nobody serves the session; `false` if somebody does.
    pub(crate) async fn help(&self) -> bool {
        if !self.ledger.attend() {
            return false;
        }
        let _seat = Seat(&self.ledger);
        match self.ledger.duty() {
            Duty::GiveBack => self.give_back().await,
            Duty::DrainNow => self.drain().await,
            Duty::WriteAt(_) | Duty::Rest => {}
        }
        true
    }

    /// The window has ended: the whole pending prefix is one batch.
    async fn write_window(&self) {
        if let Some(cut) = self.ledger.cut() {
            self.write(&cut).await;
        }
    }

    /// Writes until nothing waits, then answers the flushes that asked for it.
    async fn drain(&self) {
        let mut rounds = 0;
        loop {
            self.ledger.catch_up(self.session.next_seq());
            let Some(cut) = self.ledger.cut() else {
                if !self.ledger.answer_up_to(None) {
                    return;
                }
                continue;
            };
            let written = self.write(&cut).await;
            rounds += 1;
            if !written {
                self.ledger.answer_up_to(None);
                return;
            }
            if rounds >= ROUNDS && !self.ledger.answer_up_to(Some(cut.covers)) {
                return;
            }
        }
    }

    /// One attempt at one batch; whether it is durable now.
    async fn write(&self, cut: &Cut) -> bool {
        if self.ledger.lost() {
            return false;
        }
        match self.attempt(cut).await {
            Attempt::Durable { next_seq } => {
                self.ledger.written(cut, next_seq);
                true
            }
            Attempt::Failed { cause, last } => {
                self.ledger.failed(cause, last);
                false
            }
        }
    }

    async fn attempt(&self, cut: &Cut) -> Attempt {
        let mut position = self.position.lock().await;
        if position.doubt.is_some() {
            match self.settle(&mut position).await {
                Ok(Some(next_seq)) if next_seq >= cut.to => return Attempt::Durable { next_seq },
                Ok(_) => {}
                Err(failed) => return failed,
            }
        }
        let expected = position.expected;
        let Some(batch) = Batch::new(self.session.items(expected.next_seq, cut.to)) else {
            return Attempt::Durable { next_seq: expected.next_seq };
        };
        let header = (expected == Expected::ABSENT).then(|| self.session.header());
        // From here until the answer is in, the outcome is unknown, also when this very call is cancelled.
        position.doubt = Some(batch.next_seq());
        match self.backend.append(self.id(), header, expected, &batch).await {
            Ok(head) => {
                position.doubt = None;
                position.expected = Expected { epoch: head.epoch, next_seq: batch.next_seq() };
                Attempt::Durable { next_seq: batch.next_seq() }
            }
            Err(AppendError::Failed(cause)) => {
                position.doubt = None;
                let last = matches!(cause.kind, ErrorKind::LostOwnership | ErrorKind::Exists | ErrorKind::Invalid);
                Attempt::Failed { cause, last }
            }
            Err(error @ AppendError::Conflict { .. }) => {
                position.doubt = None;
                Attempt::Failed { cause: error.into_backend(self.id()), last: true }
            }
            Err(AppendError::Indeterminate(cause)) => match self.settle(&mut position).await {
                Ok(Some(next_seq)) => Attempt::Durable { next_seq },
                Ok(None) => Attempt::Failed { cause, last: false },
                Err(failed) => failed,
            },
        }
    }

    /// Finds out whether the append in doubt has landed: `Some` with the seq behind it, or `None` if it has not. Never writes.
    async fn settle(&self, position: &mut Position) -> Result<Option<u64>, Attempt> {
        let Some(next_seq) = position.doubt else { return Ok(None) };
        let Expected { epoch, next_seq: before } = position.expected;
        let batch = Batch::new(self.session.items(before, next_seq));
        let mark = batch.map(|batch| BatchMark { first_seq: before, checksum: batch.checksum() });
        let creating = position.expected == Expected::ABSENT;
        let head = match self.backend.head(self.id()).await {
            Ok(head) => head,
            Err(error) if creating && error.kind == ErrorKind::NotFound => {
                position.doubt = None;
                return Ok(None);
            }
            Err(cause) => return Err(Attempt::Failed { cause, last: false }),
        };
        let landed = head.next_seq == next_seq && head.last_batch == mark && (creating || head.epoch == epoch);
        if landed {
            position.doubt = None;
            position.expected = Expected { epoch: head.epoch, next_seq };
            return Ok(Some(next_seq));
        }
        if !creating && head.epoch == epoch && head.next_seq == before {
            position.doubt = None;
            return Ok(None);
        }
        let found = Expected { epoch: head.epoch, next_seq: head.next_seq };
        let conflict = AppendError::Conflict { expected: position.expected, found };
        Err(Attempt::Failed { cause: conflict.into_backend(self.id()), last: true })
    }

    async fn give_back(&self) {
        let position = self.position.lock().await;
        if position.expected != Expected::ABSENT
            && let Err(error) = self.backend.release(self.id(), position.expected.epoch).await
        {
            tracing::warn!(session = %self.id(), "giving the session back failed: {error}");
        }
        drop(position);
        self.session.dispose();
        if !self.ledger.drained() {
            let events = self.ledger.waiting_events();
            tracing::error!(session = %self.id(), events, "the session ends with events that were never written");
        }
        self.ledger.advance(Phase::Closed);
    }
}
