//! The handle of a live session.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;

use tokio::sync::watch;

use super::error::{FlushError, StoreError};
use super::health::Health;
use super::ledger::{Ledger, Phase};
use super::recovery::Recovery;
use super::writer::Served;
use crate::backend::Backend;
use crate::event::{Event, OutOfBandPayload};
use crate::session::Session;

/// A session that is open for appending, with a write-behind that makes its events durable.
///
/// A cheap handle, `Send + Sync`: clone it into any number of tasks. It derefs to [`Session`], which has the appends and every
/// view of the log. When the last handle is dropped, what waits is still written in the background and the session is given
/// back; [`LiveSession::close`] does the same and says how it went.
pub struct LiveSession<B: Backend> {
    inner: Arc<Inner<B>>,
}

struct Inner<B: Backend> {
    session: Session,
    /// Absent without persistence.
    served: Option<Arc<Served<B>>>,
    recovery: Recovery,
}

impl<B: Backend> Clone for LiveSession<B> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<B: Backend> fmt::Debug for LiveSession<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveSession").field("id", self.id()).field("health", &self.health()).finish_non_exhaustive()
    }
}

impl<B: Backend> Deref for LiveSession<B> {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.inner.session
    }
}

/// Where an agent loop stands when it must not go on before the log is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Checkpoint {
    /// A request is about to be sent to the model: it must be reconstructable.
    BeforeRequest,
    /// A tool is about to run: its call must be on record before its effects are.
    BeforeTool,
    /// A step is over.
    AfterStep,
    /// A turn is over.
    TurnEnd,
}

impl<B: Backend> LiveSession<B> {
    pub(crate) fn new(session: Session, served: Option<Arc<Served<B>>>, recovery: Recovery) -> Self {
        Self { inner: Arc::new(Inner { session, served, recovery }) }
    }

    fn ledger(&self) -> Option<&Arc<Ledger>> {
        self.inner.served.as_ref().map(|served| &served.ledger)
    }

    /// The durability barrier (L7): when this returns `Ok`, every event appended before the call is durable.
    ///
    /// Cancels the window's wait and writes until nothing waits, events that are admitted meanwhile included; concurrent callers
    /// share the work. Dropping the future loses nothing. Cost: one write and one sync for all that waits.
    ///
    /// # Errors
    /// [`FlushError`]: the opposite is possible. Nothing was dropped; the next flush or window tries again.
    pub async fn flush(&self) -> Result<(), FlushError> {
        let Some(served) = &self.inner.served else { return Ok(()) };
        served.ledger.catch_up(self.inner.session.next_seq());
        let Some(ticket) = served.ledger.request() else { return Ok(()) };
        loop {
            let mut progress = served.ledger.progress();
            if let Some(answer) = served.ledger.answer(ticket) {
                return answer;
            }
            // Usually a task of the runtime serves the session; if there is none, the caller does.
            if !served.help().await {
                // The ledger outlives the wait, so the channel does not close.
                let _ = progress.changed().await;
            }
        }
    }

    /// As [`LiveSession::flush`], for callers outside async: signal handlers' threads, the `Drop` of a host. Blocks the thread.
    ///
    /// # Errors
    /// As [`LiveSession::flush`]; also when no runtime can be made for the wait.
    ///
    /// # Panics
    /// When called from within an async task: a runtime's thread must not be blocked.
    pub fn flush_blocking(&self) -> Result<(), FlushError> {
        match tokio::runtime::Builder::new_current_thread().enable_time().build() {
            Ok(runtime) => runtime.block_on(self.flush()),
            Err(error) => Err(FlushError {
                session: self.id().clone(),
                events: self.ledger().map_or(0, |ledger| ledger.waiting_events()),
                bytes: 0,
                cause: Arc::new(crate::backend::BackendError::io("waiting for the flush", "", error)),
            }),
        }
    }

    /// Makes the log durable at a point where an agent loop must not go on without. If this fails, the effect that was about to
    /// happen must not.
    ///
    /// # Errors
    /// As [`LiveSession::flush`].
    pub async fn checkpoint(&self, at: Checkpoint) -> Result<(), FlushError> {
        let result = self.flush().await;
        if let Err(error) = &result {
            tracing::error!(session = %self.id(), ?at, "not durable, so the agent must not go on: {error}");
        }
        result
    }

    /// Runs `effect` if, and only if, everything appended so far is durable.
    ///
    /// ```
    /// # use sessionlog::backend::memory::MemoryBackend;
    /// # use sessionlog::event::SessionHeader;
    /// # use sessionlog::store::{Checkpoint, Store};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let session = Store::open(MemoryBackend::new())?.create(SessionHeader::new("s-1")).await?;
    /// let output = session.guarded(Checkpoint::BeforeTool, || async { "the tool's output" }).await?;
    /// # assert_eq!(output, "the tool's output");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`LiveSession::flush`]; the effect has not begun.
    pub async fn guarded<T, F: Future<Output = T>>(
        &self,
        at: Checkpoint,
        effect: impl FnOnce() -> F,
    ) -> Result<T, FlushError> {
        self.checkpoint(at).await?;
        Ok(effect().await)
    }

    /// Appends a log-only event outside the agent loop (L6), inside the open turn or a turn of its own, and flushes.
    ///
    /// # Errors
    /// [`StoreError::Append`]: nothing has changed. [`StoreError::Flush`]: the event is in the log and not durable yet.
    pub async fn append_out_of_band<P: OutOfBandPayload>(&self, payload: P) -> Result<Event, StoreError> {
        let event = self.inner.session.append_out_of_band(payload)?;
        self.flush().await?;
        Ok(event)
    }

    /// Flushes, then gives the session back: further appends are refused, and anyone may resume it.
    ///
    /// # Errors
    /// [`FlushError`] when events are not durable. They stay in memory and the session stays this store's; call it again to try
    /// again. A session that another writer has taken over is given up, and the error says what was never written.
    pub async fn close(&self) -> Result<(), FlushError> {
        match &self.inner.served {
            None => {
                self.inner.session.dispose();
                Ok(())
            }
            Some(served) => close(served).await,
        }
    }

    /// What persistence is like right now.
    pub fn health(&self) -> Health {
        self.ledger().map_or(Health::Off, |ledger| ledger.health())
    }

    /// A channel that shows health whenever an attempt to write changes it.
    pub fn watch(&self) -> watch::Receiver<Health> {
        self.ledger().map_or_else(|| watch::Sender::new(Health::Off).subscribe(), |ledger| ledger.watch())
    }

    /// Seq behind the last event that is known to be durable.
    pub fn durable_seq(&self) -> u64 {
        self.ledger().map_or(0, |ledger| ledger.durable())
    }

    /// What was found and mended when the session was resumed.
    pub fn recovery(&self) -> &Recovery {
        &self.inner.recovery
    }

    /// The store's side of the session, if it is served at all.
    pub(crate) fn served(&self) -> Option<&Arc<Served<B>>> {
        self.inner.served.as_ref()
    }

    /// Why this handle is no source of a fork any more, if it is not.
    pub(crate) fn staleness(&self) -> Option<&'static str> {
        match self.ledger() {
            Some(ledger) if ledger.lost() => Some("another writer has taken the session over"),
            Some(ledger) if ledger.phase() >= Phase::Closing => Some("it was closed"),
            _ if self.inner.session.is_closed() => Some("it was closed"),
            _ => None,
        }
    }
}

/// Drains a session and gives it back.
pub(crate) async fn close<B: Backend>(served: &Arc<Served<B>>) -> Result<(), FlushError> {
    let ledger = &served.ledger;
    ledger.catch_up(served.session.next_seq());
    ledger.advance(Phase::Closing);
    let ticket = ledger.request();
    loop {
        let mut progress = ledger.progress();
        let answer = ticket.and_then(|ticket| ledger.answer(ticket));
        if let Some(Err(error)) = answer {
            if !ledger.lost() || ledger.phase() == Phase::Closed {
                return Err(error);
            }
        } else if ledger.phase() == Phase::Closed {
            return Ok(());
        }
        if !served.help().await {
            let _ = progress.changed().await;
        }
    }
}

impl<B: Backend> Drop for Inner<B> {
    fn drop(&mut self) {
        let Some(served) = &self.served else { return };
        served.ledger.catch_up(self.session.next_seq());
        if served.ledger.phase() >= Phase::Closing {
            return;
        }
        let events = served.ledger.waiting_events();
        if events > 0 {
            tracing::warn!(session = %self.session.id(), events, "dropped with unwritten events; they are written in the background");
        }
        served.ledger.advance(Phase::Orphaned);
    }
}
