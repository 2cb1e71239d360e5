//! Live sessions over any [`Backend`]: write-behind with a fixed window, a shared flush barrier, health, resume, inspect, fork.
//!
//! ```
//! use sessionlog::backend::memory::MemoryBackend;
//! use sessionlog::event::control::{TurnEnd, TurnStart};
//! use sessionlog::event::message::UserMessage;
//! use sessionlog::event::{Placement, SessionHeader};
//! use sessionlog::store::{ListOptions, Store};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Store::open(MemoryBackend::new())?;
//! let session = store.create(SessionHeader::new("s-1").cwd("/srv/app")).await?; // nothing is stored yet
//! session.append(TurnStart::new(1))?; // synchronous, never waits for I/O
//! session.append_surface(UserMessage::text("fix the failing test"), Placement::append())?;
//! session.append(TurnEnd::completed(1))?;
//! session.flush().await?; // durable, or an error
//! session.close().await?;
//!
//! let again = store.resume("s-1").await?;
//! println!("{}", again.recovery());
//! assert_eq!(again.messages().len(), 1);
//! assert_eq!(store.list(ListOptions::default()).await?.sessions.len(), 1);
//! store.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Durability
//!
//! An event is durable once a flush that began after its append has returned `Ok`, or the window has passed and health is `Ok`.
//! What could not be written waits in memory and stays visible in [`Store::health`]; it is tried again with the next event's window
//! and with each flush. The queue is bounded: at the bound an append is refused, and nothing accepted is dropped.
//!
//! The store runs on tokio: its methods are awaited inside a runtime with time enabled, and each live session has one task there.

pub mod checkpoint;
mod error;
mod fork;
mod health;
mod inspect;
#[cfg(test)]
mod interleavings;
mod ledger;
mod list;
mod live;
mod load;
mod options;
mod pages;
mod recovery;
mod registry;
mod resume;
mod settle;
mod write_behind;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

pub use crate::session::ForkAt;
pub use error::{FlushError, ForkError, StoreError};
pub use fork::ForkSource;
pub use health::Health;
pub use inspect::Inspected;
pub use list::{ListError, ListOptions, Listing};
pub use live::LiveSession;
pub use options::{DEFAULT_QUEUE_BYTES, DEFAULT_WINDOW, StoreOptions};
pub use pages::EventPages;
pub use recovery::{ClosedTurn, Recovery};

use crate::backend::{Backend, BackendError, ErrorKind, Expected, Holder, Revision};
use crate::event::{SessionHeader, SessionId};
use crate::session::{Session, Sink};
use inspect::Seen;
use ledger::Ledger;
use registry::{Refusal, Registry, Reservation};
use write_behind::Writer;

/// Live sessions over a backend. A cheap handle: clones are the same store.
///
/// [`Store::close`] it when done; see [`LiveSession`] for what happens otherwise.
pub struct Store<B: Backend> {
    shared: Arc<Shared<B>>,
}

struct Shared<B: Backend> {
    backend: Arc<B>,
    options: StoreOptions,
    registry: Arc<Registry<B>>,
    seen: Seen,
}

impl<B: Backend> Store<B> {
    /// Opens a store over `backend` with the default options. Reads and writes nothing.
    ///
    /// # Errors
    /// As [`StoreOptions::open`].
    pub fn open(backend: B) -> Result<Self, StoreError> {
        StoreOptions::default().open(backend)
    }

    #[expect(clippy::unnecessary_wraps, reason = "options to come may not fit the backend")]
    pub(crate) fn with_options(backend: B, options: StoreOptions) -> Result<Self, StoreError> {
        let (backend, registry) = (Arc::new(backend), Arc::new(Registry::<B>::new()));
        let sessions = Arc::downgrade(&registry);
        backend.observe_sealing(Box::new(move |id, failure| {
            let Some(sessions) = sessions.upgrade() else { return false };
            if let Some(writer) = sessions.get(id) {
                writer.ledger().sealing(failure.cloned());
            }
            true
        }));
        let sessions = Arc::downgrade(&registry);
        backend.keep_ids_with(Box::new(move |id| Some(sessions.upgrade()?.keep_free(id))));
        Ok(Self { shared: Arc::new(Shared { backend, options, registry, seen: Seen::default() }) })
    }

    /// Makes a new session. Nothing is stored before its first events are: then header and events appear together.
    ///
    /// # Errors
    /// `Exists` when a session of this id is stored; `Busy` when one is live here; [`StoreError::Session`] for a header that a new
    /// session may not have, and for an observer's veto. Nothing is left behind then.
    pub async fn create(&self, header: SessionHeader) -> Result<LiveSession<B>, StoreError> {
        let id = header.session_id()?;
        let reservation = self.reserve(&id).await?;
        match self.shared.backend.head(&id).await {
            Ok(_) => return Err(BackendError::exists(&id).into()),
            Err(error) if error.kind == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        self.create_reserved(header, reservation)
    }

    fn create_reserved(
        &self,
        header: SessionHeader,
        reservation: Reservation<B>,
    ) -> Result<LiveSession<B>, StoreError> {
        let id = header.session_id()?;
        let ledger = self.ledger(&id, 0);
        let session = Session::create(header, self.shared.options.session(self.sink(&ledger)))?;
        self.go_live(session, ledger, Expected::ABSENT, reservation, Recovery::default())
    }

    /// An account for a session of which the events before `durable` are stored.
    fn ledger(&self, id: &SessionId, durable: u64) -> Arc<Ledger> {
        let options = &self.shared.options;
        let clock = Arc::clone(&options.clock);
        Arc::new(Ledger::new(id.clone(), durable, options.window, options.queue_bytes, clock))
    }

    fn sink(&self, ledger: &Arc<Ledger>) -> Option<Arc<dyn Sink>> {
        self.shared.options.persistence.then(|| Arc::clone(ledger) as Arc<dyn Sink>)
    }

    /// Puts a session and its writer to work.
    fn go_live(
        &self,
        session: Session,
        ledger: Arc<Ledger>,
        expected: Expected,
        reservation: Reservation<B>,
        recovery: Recovery,
    ) -> Result<LiveSession<B>, StoreError> {
        let registry = &self.shared.registry;
        let writer = self.shared.options.persistence.then(|| {
            let backend = Arc::clone(&self.shared.backend);
            Arc::new(Writer::new(backend, session.clone(), ledger, Arc::downgrade(registry), expected))
        });
        if let Err(error) = reservation.fill(writer.clone()) {
            session.dispose();
            return Err(error);
        }
        if let Some(writer) = &writer {
            let failures = self.shared.backend.sealing_failures();
            if let Some(failure) = failures.into_iter().find(|failure| failure.session == *writer.session().id()) {
                writer.ledger().sealing(Some(failure));
            }
            writer.start();
        }
        Ok(LiveSession::new(session, writer, registry, recovery))
    }

    /// Reserves an id; waits for a session of that id that is being given back here.
    async fn reserve(&self, id: &SessionId) -> Result<Reservation<B>, StoreError> {
        loop {
            match self.shared.registry.reserve(id) {
                Ok(reservation) => return Ok(reservation),
                Err(Refusal::Closed) => return Err(StoreError::Closed),
                Err(Refusal::Live(writer)) if writer.ledger().phase() > ledger::Phase::Open => {
                    live::close(&writer).await?;
                    // Given back by now, or left behind by a runtime that went down between the last write and that.
                    self.shared.registry.forget(id, writer.ledger());
                }
                Err(Refusal::Live(_) | Refusal::Opening) => return Err(busy_here(id).into()),
            }
        }
    }

    /// What persistence is like: the worst of all live sessions, with waiting events and bytes added up. Where nothing waits that
    /// should not, every session that could not be sealed, closed ones too.
    pub fn health(&self) -> Health {
        if !self.shared.options.persistence {
            return Health::Off;
        }
        let writers = self.shared.registry.writers();
        let durability = writers.iter().fold(Health::Ok, |worst, writer| worst.and(writer.ledger().durability()));
        durability.with_sealing(self.shared.backend.sealing_failures())
    }

    /// Closes every live session as [`LiveSession::close`] does, and refuses to open more. Reading goes on to work.
    ///
    /// # Errors
    /// [`StoreError::Unwritten`] naming each session with events that are not durable. They are kept: close again to try again.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.shared.registry.close();
        let writers = self.shared.registry.writers();
        for writer in &writers {
            writer.session().dispose();
            // All writers start now; the waits below run side by side.
            writer.ledger().advance(ledger::Phase::Closing);
            writer.start();
        }
        let mut unwritten = Vec::new();
        for writer in &writers {
            unwritten.extend(live::close(writer).await.err());
        }
        if unwritten.is_empty() { Ok(()) } else { Err(StoreError::Unwritten(unwritten)) }
    }

    /// Removes a stored session and all its events.
    ///
    /// # Errors
    /// `NotFound`; `Busy` while it is live here or has a writer elsewhere.
    pub async fn delete(&self, id: impl TryInto<SessionId, Error: Into<StoreError>>) -> Result<(), StoreError> {
        let id = named(id)?;
        if !self.shared.options.persistence {
            let detail = "the store was opened with persistence off; nothing is deleted";
            return Err(BackendError::new(ErrorKind::Invalid, detail).with_session(&id).into());
        }
        let _reservation = self.reserve(&id).await?;
        self.shared.seen.take(&id);
        Ok(self.shared.backend.delete(&id).await?)
    }

    /// A token that changes with every change of the stored log.
    ///
    /// # Errors
    /// As [`Backend::revision`].
    pub async fn revision(&self, id: impl TryInto<SessionId, Error: Into<StoreError>>) -> Result<Revision, StoreError> {
        Ok(self.shared.backend.revision(&named(id)?).await?)
    }

    /// Where the session's log is, if it has a path.
    pub fn locate(&self, id: impl TryInto<SessionId>) -> Option<PathBuf> {
        self.shared.backend.locate(&id.try_into().ok()?)
    }

    /// The backend.
    pub fn backend(&self) -> &B {
        &self.shared.backend
    }
}

/// The id that a caller names.
fn named(id: impl TryInto<SessionId, Error: Into<StoreError>>) -> Result<SessionId, StoreError> {
    id.try_into().map_err(Into::into)
}

fn busy_here(id: &SessionId) -> BackendError {
    let holder = Holder { pid: Some(std::process::id()), ..Holder::default() };
    let detail = format!("is open for writing in this very process ({holder}); use that handle or close it");
    let mut error = BackendError::new(ErrorKind::Busy, detail).with_session(id);
    error.holder = Some(holder);
    error
}

impl<B: Backend> Clone for Store<B> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<B: Backend> fmt::Debug for Store<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("options", &self.shared.options)
            .field("health", &self.health())
            .finish_non_exhaustive()
    }
}
