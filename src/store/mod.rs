//! Live sessions over any [`Backend`]: write-behind, flush barrier, resume, inspect, fork, health. Needs tokio.
//!
//! An append goes into the session's log in memory and returns. The first event after idle starts a window
//! ([`StoreOptions::window`], 200 ms); at its end everything pending is one batch, one write and one sync. [`LiveSession::flush`]
//! does not wait for the window and returns when it is all durable. What cannot be written stays at the head, is retried with
//! the next window or flush, and shows in [`Health`] until it is written.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use sessionlog::backend::memory::MemoryBackend;
//! use sessionlog::event::control::TurnStart;
//! use sessionlog::event::SessionHeader;
//! use sessionlog::store::{Health, Store};
//!
//! let store = Store::open(MemoryBackend::new())?;
//! let session = store.create(SessionHeader::new("s-1")).await?;
//! session.append(TurnStart::new(1))?;
//! session.flush().await?;
//! assert_eq!(store.health(), Health::Ok);
//! session.close().await?;
//!
//! let again = store.resume("s-1").await?;
//! assert_eq!(again.recovery().closers.len(), 1); // the turn was left open
//! # Ok(())
//! # }
//! ```

mod error;
mod fork;
mod health;
mod ledger;
mod list;
mod live;
mod open;
mod options;
mod pages;
mod recovery;
mod writer;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::RangeBounds;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use crate::session::ForkAt;
pub use error::{FlushError, ForkError, StoreError};
pub use fork::ForkSource;
pub use health::Health;
pub use list::{ListError, ListOptions, Listing};
pub use live::{Checkpoint, LiveSession};
pub use open::Inspection;
pub use options::StoreOptions;
pub use pages::EventPages;
pub use recovery::Recovery;

use crate::backend::{Backend, BackendError, ErrorKind, Expected, Holder, Revision};
use crate::event::{SessionHeader, SessionId};
use crate::session::Seed;
use writer::Served;

/// Entries that one page of a listing asks the backend for.
const LIST_PAGE: usize = 1000;

/// Sessions over a backend. A cheap handle: clone it wherever sessions are opened.
pub struct Store<B: Backend> {
    shared: Arc<Shared<B>>,
}

struct Shared<B: Backend> {
    backend: B,
    options: StoreOptions,
    /// Sessions that are not given back yet.
    live: Mutex<HashMap<SessionId, Arc<Served<B>>>>,
    /// Sessions that a task is just opening.
    opening: Mutex<HashSet<SessionId>>,
    kept: Mutex<Vec<open::Kept>>,
    closed: std::sync::atomic::AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error for a session that this very process has open.
fn busy(id: &SessionId) -> BackendError {
    let holder = Holder { pid: Some(std::process::id()), host: None, since: None };
    let detail =
        format!("the session is open for writing in this process ({holder}); use that handle, or close it first");
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
        f.debug_struct("Store").field("live", &locked(&self.shared.live).len()).finish_non_exhaustive()
    }
}

impl<B: Backend> Shared<B> {
    fn served(&self, id: &SessionId) -> Option<Arc<Served<B>>> {
        locked(&self.live).get(id).cloned()
    }

    /// Takes a session off the books, unless another one of its id took its place.
    fn forget(&self, id: &SessionId, served: &Arc<Served<B>>) {
        let mut live = locked(&self.live);
        if live.get(id).is_some_and(|known| Arc::ptr_eq(known, served)) {
            live.remove(id);
        }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<open::Kept>> {
        locked(&self.kept)
    }

    fn begin_opening(&self, id: &SessionId) -> Option<Opening<'_, B>> {
        let began = locked(&self.opening).insert(id.clone());
        began.then(|| Opening { shared: self, id: id.clone() })
    }
}

/// The right to open a session; given back when dropped.
struct Opening<'a, B: Backend> {
    shared: &'a Shared<B>,
    id: SessionId,
}

impl<B: Backend> Drop for Opening<'_, B> {
    fn drop(&mut self) {
        locked(&self.shared.opening).remove(&self.id);
    }
}

impl<B: Backend + Clone> Store<B> {
    /// A store over `backend` with the default options.
    ///
    /// # Errors
    /// None at present; a signature that can grow.
    pub fn open(backend: B) -> Result<Self, StoreError> {
        Self::with_options(backend, StoreOptions::default())
    }

    /// A store over `backend`.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn with_options(backend: B, options: StoreOptions) -> Result<Self, StoreError> {
        let shared = Shared {
            backend,
            options,
            live: Mutex::default(),
            opening: Mutex::default(),
            kept: Mutex::default(),
            closed: std::sync::atomic::AtomicBool::new(false),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The backend underneath.
    pub fn backend(&self) -> &B {
        &self.shared.backend
    }

    fn check_open(&self) -> Result<(), StoreError> {
        if self.shared.closed.load(std::sync::atomic::Ordering::Acquire) { Err(StoreError::Closed) } else { Ok(()) }
    }

    async fn exists(&self, id: &SessionId) -> Result<bool, StoreError> {
        match self.shared.backend.head(id).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a new live session. Nothing is stored before its first event is: then header and events appear together.
    ///
    /// # Errors
    /// `Exists` for an id that is taken (also found out at the first write, if another process is quicker), a header that a new
    /// session may not have, an observer's veto.
    pub async fn create(&self, header: SessionHeader) -> Result<LiveSession<B>, StoreError> {
        self.check_open()?;
        header.check_new()?;
        let id = header.session_id()?;
        let _opening = self.claim(&id).await?;
        if self.shared.options.persistence && self.exists(&id).await? {
            return Err(BackendError::exists(&id).into());
        }
        self.go_live(header, Seed::default(), Expected::ABSENT, Recovery::default())
    }

    /// Puts a session on the books and starts its write-behind where a runtime is at hand.
    fn register(&self, id: &SessionId, served: &Arc<Served<B>>) {
        locked(&self.shared.live).insert(id.clone(), Arc::clone(served));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (served, id, store) = (Arc::clone(served), id.clone(), Arc::downgrade(&self.shared));
            runtime.spawn(async move {
                served.serve().await;
                if let Some(store) = store.upgrade() {
                    store.forget(&id, &served);
                }
            });
        }
    }

    /// Streams a stored session's events of a range of seqs; set limits on what it returns. Reads only what is durable.
    ///
    /// # Errors
    /// An id that cannot be one. Everything else comes with [`EventPages::next`].
    pub fn events(&self, id: impl AsRef<str>, range: impl RangeBounds<u64>) -> Result<EventPages<B>, StoreError> {
        let id = SessionId::new(id)?;
        Ok(EventPages::new(self.shared.backend.clone(), id, &range))
    }

    /// Lists stored sessions, and beside them one error for each that cannot be read. Cost: one header a session.
    ///
    /// # Errors
    /// Only when the listing as a whole is impossible.
    pub async fn list(&self, options: ListOptions) -> Result<Listing, StoreError> {
        self.check_open()?;
        let mut left = options.limit.unwrap_or(usize::MAX);
        let mut listing = Listing::default();
        let mut after: Option<String> = None;
        while left > 0 {
            let page = self.shared.backend.list(after.as_deref(), left.min(LIST_PAGE)).await?;
            left = left.saturating_sub(page.entries.len());
            for entry in page.entries {
                match entry.header {
                    Ok(header) => listing.sessions.push(header),
                    Err(error) => listing.errors.push(ListError { name: entry.name, error }),
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        Ok(listing)
    }

    /// Removes a stored session and all its events.
    ///
    /// # Errors
    /// `NotFound`; `Busy` while it is open here or elsewhere.
    pub async fn delete(&self, id: impl AsRef<str>) -> Result<(), StoreError> {
        let id = SessionId::new(id)?;
        self.check_open()?;
        let _opening = self.claim(&id).await?;
        self.shared.kept().clear();
        Ok(self.shared.backend.delete(&id).await?)
    }

    /// The revision token of a stored session: changes with every change of its log.
    ///
    /// # Errors
    /// `NotFound`, the backend's own.
    pub async fn revision(&self, id: impl AsRef<str>) -> Result<Revision, StoreError> {
        Ok(self.shared.backend.revision(&SessionId::new(id)?).await?)
    }

    /// Where a person finds a session's log, if it is anywhere.
    ///
    /// # Errors
    /// An id that cannot be one.
    pub fn locate(&self, id: impl AsRef<str>) -> Result<Option<PathBuf>, StoreError> {
        Ok(self.shared.backend.locate(&SessionId::new(id)?))
    }

    /// The worst health of all live sessions, with what waits added up.
    pub fn health(&self) -> Health {
        if !self.shared.options.persistence {
            return Health::Off;
        }
        let live: Vec<_> = locked(&self.shared.live).values().cloned().collect();
        live.iter().fold(Health::Ok, |worst, served| worst.and(served.ledger.health()))
    }

    /// Drains every live session and gives it back; nothing can be opened through this store afterwards.
    ///
    /// # Errors
    /// [`StoreError::Unwritten`] naming each session with events that are not durable. Those are kept; close again to try again.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.shared.closed.store(true, std::sync::atomic::Ordering::Release);
        let live: Vec<_> =
            locked(&self.shared.live).iter().map(|(id, served)| (id.clone(), Arc::clone(served))).collect();
        let mut unwritten = Vec::new();
        for (id, served) in live {
            match live::close(&served).await {
                Ok(()) => self.shared.forget(&id, &served),
                Err(error) => unwritten.push(error),
            }
        }
        if unwritten.is_empty() { Ok(()) } else { Err(StoreError::Unwritten(unwritten)) }
    }
}

impl<B: Backend> Drop for Shared<B> {
    fn drop(&mut self) {
        for (id, served) in locked(&self.live).iter() {
            let events = served.ledger.waiting_events();
            if events > 0 {
                tracing::warn!(session = %id, events, "the store is dropped with unwritten events of a session");
            }
        }
    }
}
