//! The engine as a [`Backend`].

use std::path::{Path, PathBuf};

use super::engine::{Engine, EngineOptions};
use crate::backend::{
    AppendError, Backend, BackendError, ErrorKind, Expected, Head, IdKeeper, ListPage, Opened, Page, ReadLimit,
    Revision, SealingFailure, SealingObserver, Taken,
};
use crate::event::{Batch, Event, SessionHeader, SessionId};

/// The default storage: an [`Engine`] whose calls do not block an async runtime. Cloning gives another handle.
///
/// Inside a tokio runtime (feature `store`) each call runs on its blocking pool; elsewhere it runs where it is called.
#[derive(Debug, Clone)]
pub struct SegmentBackend {
    engine: Engine,
}

/// The runtime went down before the call came back.
struct Cancelled;

impl SegmentBackend {
    /// Opens the store in `root`; see [`Engine::open`].
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open(root: impl AsRef<Path>) -> Result<Self, BackendError> {
        Engine::open(root).map(Self::from)
    }

    /// As [`SegmentBackend::open`], with options.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn with_options(root: impl AsRef<Path>, options: EngineOptions) -> Result<Self, BackendError> {
        options.open(root).map(Self::from)
    }

    /// The engine behind it, for what the trait does not say: readers, verification, sizes.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    #[cfg(feature = "store")]
    async fn on_engine<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> Result<T, Cancelled> {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return Ok(work(&self.engine)) };
        let engine = self.engine.clone();
        match runtime.spawn_blocking(move || work(&engine)).await {
            Ok(value) => Ok(value),
            Err(failure) => match failure.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(Cancelled),
            },
        }
    }

    #[cfg(not(feature = "store"))]
    #[expect(clippy::unused_async, reason = "the same shape with and without a runtime")]
    async fn on_engine<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> Result<T, Cancelled> {
        Ok(work(&self.engine))
    }

    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Engine) -> Result<T, BackendError> + Send + 'static,
    ) -> Result<T, BackendError> {
        self.on_engine(work).await.unwrap_or_else(|Cancelled| Err(shutting_down()))
    }
}

fn shutting_down() -> BackendError {
    BackendError::new(ErrorKind::Io, "the runtime shut down before the storage call came back")
}

impl From<Engine> for SegmentBackend {
    fn from(engine: Engine) -> Self {
        Self { engine }
    }
}

impl Backend for SegmentBackend {
    async fn open(&self, id: &SessionId) -> Result<Opened, BackendError> {
        let id = id.clone();
        self.call(move |engine| engine.open_session(&id)).await
    }

    async fn read(&self, id: &SessionId, from: u64, limit: ReadLimit) -> Result<Page, BackendError> {
        let id = id.clone();
        self.call(move |engine| engine.read(&id, from, limit)).await
    }

    async fn read_events(&self, id: &SessionId, seqs: &[u64]) -> Result<Vec<Event>, BackendError> {
        let (id, seqs) = (id.clone(), seqs.to_vec());
        self.call(move |engine| engine.read_events(&id, &seqs)).await
    }

    async fn take_over(&self, id: &SessionId) -> Result<Taken, BackendError> {
        let id = id.clone();
        self.call(move |engine| engine.take_over(&id)).await
    }

    async fn append(
        &self,
        id: &SessionId,
        header: Option<&SessionHeader>,
        expected: Expected,
        batch: &Batch,
    ) -> Result<Head, AppendError> {
        let (id, header, batch) = (id.clone(), header.cloned(), batch.clone());
        let done = self.on_engine(move |engine| engine.append(&id, header.as_ref(), expected, &batch)).await;
        done.unwrap_or_else(|Cancelled| Err(AppendError::Indeterminate(shutting_down())))
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<ListPage, BackendError> {
        let after = after.map(str::to_owned);
        self.call(move |engine| engine.list(after.as_deref(), limit)).await
    }

    async fn delete(&self, id: &SessionId) -> Result<(), BackendError> {
        let id = id.clone();
        self.call(move |engine| engine.delete(&id)).await
    }

    async fn head(&self, id: &SessionId) -> Result<Head, BackendError> {
        let id = id.clone();
        self.call(move |engine| engine.head(&id)).await
    }

    async fn revision(&self, id: &SessionId) -> Result<Revision, BackendError> {
        let id = id.clone();
        self.call(move |engine| engine.revision(&id)).await
    }

    async fn fork(&self, source: &SessionId, boundary: u64, child: &SessionHeader) -> Result<Head, BackendError> {
        let (source, child) = (source.clone(), child.clone());
        self.call(move |engine| engine.fork(&source, boundary, &child)).await
    }

    fn locate(&self, id: &SessionId) -> Option<PathBuf> {
        Some(self.engine.locate(id))
    }

    fn sealing_failures(&self) -> Vec<SealingFailure> {
        self.engine.sealing_failures()
    }

    fn observe_sealing(&self, observer: SealingObserver) {
        self.engine.observe_sealing(observer);
    }

    fn keep_ids_with(&self, keeper: IdKeeper) {
        self.engine.keep_ids_with(keeper);
    }

    async fn release(&self, id: &SessionId, epoch: u64) -> Result<(), BackendError> {
        let id = id.clone();
        self.call(move |engine| engine.release(&id, epoch)).await
    }
}
