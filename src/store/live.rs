//! A session that is open for writing.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::watch;

use super::error::{FlushError, StoreError};
use super::health::Health;
use super::ledger::Phase;
use super::recovery::Recovery;
use super::registry::Registry;
use super::write_behind::Writer;
use crate::backend::{Backend, BackendError, ErrorKind};
use crate::event::{Event, OutOfBandPayload};
use crate::session::Session;

/// A session that is open for writing: a [`Session`] whose events become durable.
///
/// A cheap handle, `Send + Sync`; everything of [`Session`] is there through `Deref`. Appends never wait for I/O. The first event
/// after idle is written, with whatever came after it, when the store's window has passed; [`LiveSession::flush`] writes at once
/// and says when it is done.
///
/// Close it when done. When the last handle is dropped instead, what waits is written in the background as long as the runtime
/// runs, and the log says so if that fails.
pub struct LiveSession<B: Backend> {
    shared: Arc<Shared<B>>,
}

struct Shared<B: Backend> {
    session: Session,
    /// `None` when the store's persistence is off.
    writer: Option<Arc<Writer<B>>>,
    registry: std::sync::Weak<Registry<B>>,
    recovery: Recovery,
}

impl<B: Backend> LiveSession<B> {
    pub(crate) fn new(
        session: Session,
        writer: Option<Arc<Writer<B>>>,
        registry: &Arc<Registry<B>>,
        recovery: Recovery,
    ) -> Self {
        let registry = Arc::downgrade(registry);
        Self { shared: Arc::new(Shared { session, writer, registry, recovery }) }
    }

    /// Waits until every event appended before the call is durable (L7), and those appended meanwhile as far as the medium
    /// keeps up. The window is cut short; callers at the same time share the work. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`FlushError`]: some event may not be durable. Nothing was dropped; the next flush, or the window of the next event, tries
    /// again.
    pub async fn flush(&self) -> Result<(), FlushError> {
        match &self.shared.writer {
            Some(writer) => flush(writer).await,
            None => Ok(()),
        }
    }

    /// As [`LiveSession::flush`], for threads outside any async runtime: signal handlers, a host's `Drop`. Works after the runtime
    /// that served the session has ended, too.
    ///
    /// # Errors
    /// As [`LiveSession::flush`]. Inside a runtime it refuses at once: waiting there could block the very thread that has to write.
    /// Use `flush().await`, from a blocking task `Handle::current().block_on(session.flush())`.
    pub fn flush_blocking(&self) -> Result<(), FlushError> {
        let Some(writer) = &self.shared.writer else { return Ok(()) };
        let ledger = writer.ledger();
        let Some(ticket) = ledger.request() else { return Ok(()) };
        if Handle::try_current().is_ok() {
            let detail = "flush_blocking was called inside an async runtime; use flush().await there";
            return Err(ledger.refused(BackendError::new(ErrorKind::Invalid, detail).with_session(self.id())));
        }
        loop {
            if let Some(answer) = ledger.answer(ticket) {
                return answer;
            }
            if let Err(error) = writer.drain_on_this_thread() {
                let error = BackendError::new(ErrorKind::of_io(&error), format!("no runtime to write with: {error}"));
                return Err(ledger.refused(error.with_session(self.id())));
            }
        }
    }

    /// Refuses further appends, makes everything durable, and gives the session back, so that it can be resumed anywhere. All
    /// handles to it are closed. Closing what is closed does nothing.
    ///
    /// # Errors
    /// [`FlushError`]: some events are not durable. They are kept, and closing again tries again, unless another writer has taken
    /// the session over.
    pub async fn close(&self) -> Result<(), FlushError> {
        self.shared.session.dispose();
        if let Some(writer) = &self.shared.writer {
            return close(writer).await;
        }
        if let Some(registry) = self.shared.registry.upgrade() {
            registry.forget_unwritten(self.id());
        }
        Ok(())
    }

    /// Appends an event outside the agent loop (L6) and makes it durable. Joins the open turn, or gets a turn of its own.
    ///
    /// # Errors
    /// [`StoreError::Append`]: nothing was appended. [`StoreError::Flush`]: it was, and is not durable yet.
    pub async fn append_out_of_band<P: OutOfBandPayload>(&self, payload: P) -> Result<Event, StoreError> {
        let event = self.shared.session.append_out_of_band(payload)?;
        self.flush().await?;
        Ok(event)
    }

    /// What persistence is like right now.
    pub fn health(&self) -> Health {
        self.shared.writer.as_ref().map_or(Health::Off, |writer| writer.ledger().health())
    }

    /// A channel that shows health as each attempt to write leaves it. Events and bytes waiting are those of that moment.
    pub fn watch(&self) -> watch::Receiver<Health> {
        match &self.shared.writer {
            Some(writer) => writer.ledger().watch(),
            None => watch::channel(Health::Off).1,
        }
    }

    /// What opening the session found and mended.
    pub fn recovery(&self) -> &Recovery {
        &self.shared.recovery
    }

    /// Seq behind the last event known to be durable.
    pub fn durable_seq(&self) -> u64 {
        self.shared.writer.as_ref().map_or(0, |writer| writer.ledger().durable())
    }

    /// The session alone: appends to it are written like all others, as long as a handle like this one is alive.
    pub fn session(&self) -> &Session {
        &self.shared.session
    }

    /// The writer, if there is one and `registry` is where this session lives.
    pub(crate) fn writer_in(&self, registry: &Arc<Registry<B>>) -> Option<&Arc<Writer<B>>> {
        let own = self.shared.registry.upgrade()?;
        self.shared.writer.as_ref().filter(|_| Arc::ptr_eq(&own, registry))
    }
}

/// See [`LiveSession::flush`].
pub(crate) async fn flush<B: Backend>(writer: &Arc<Writer<B>>) -> Result<(), FlushError> {
    let ledger = writer.ledger();
    let mut progress = ledger.progress();
    let Some(ticket) = ledger.request() else { return Ok(()) };
    loop {
        progress.borrow_and_update();
        if let Some(answer) = ledger.answer(ticket) {
            return answer;
        }
        // The task may have gone down with an earlier runtime.
        if !writer.start() {
            let detail = "there is no tokio runtime to write with; use flush_blocking() outside one";
            return Err(
                ledger.refused(BackendError::new(ErrorKind::Invalid, detail).with_session(writer.session().id()))
            );
        }
        if progress.changed().await.is_err() {
            // The ledger outlives this call.
            return Err(ledger.refused(BackendError::new(ErrorKind::Poisoned, "the writer is gone")));
        }
    }
}

/// See [`LiveSession::close`]; the session has been disposed of.
pub(crate) async fn close<B: Backend>(writer: &Arc<Writer<B>>) -> Result<(), FlushError> {
    let ledger = writer.ledger();
    ledger.advance(Phase::Closing);
    flush(writer).await?;
    let mut progress = ledger.progress();
    loop {
        progress.borrow_and_update();
        if ledger.phase() == Phase::Closed || !writer.start() || progress.changed().await.is_err() {
            return Ok(());
        }
    }
}

impl<B: Backend> Clone for LiveSession<B> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<B: Backend> Deref for LiveSession<B> {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.shared.session
    }
}

impl<B: Backend> fmt::Debug for LiveSession<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveSession")
            .field("id", self.shared.session.id())
            .field("next_seq", &self.shared.session.next_seq())
            .field("durable_seq", &self.durable_seq())
            .field("health", &self.health())
            .finish_non_exhaustive()
    }
}

impl<B: Backend> Drop for Shared<B> {
    /// The last handle is gone: nobody can append any more.
    fn drop(&mut self) {
        self.session.dispose();
        let registry = self.registry.upgrade();
        let Some(writer) = &self.writer else {
            if let Some(registry) = registry {
                registry.forget_unwritten(self.session.id());
            }
            return;
        };
        let ledger = writer.ledger();
        if ledger.phase() == Phase::Closed {
            return;
        }
        let waiting = ledger.waiting_events();
        if waiting > 0 {
            tracing::warn!(session = %self.session.id(), events = waiting,
                "the last handle was dropped, not closed, with events that are not durable yet");
        }
        ledger.advance(if registry.is_some() { Phase::Closing } else { Phase::Orphaned });
        if !ledger.is_attended() && !writer.start() && waiting > 0 {
            let detail = "the last handle was dropped outside a runtime before its events were written; close the store to write them";
            ledger.failed(BackendError::new(ErrorKind::Io, detail).with_session(self.session.id()), false);
        }
    }
}
