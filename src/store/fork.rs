//! Forking (L5).

use std::sync::Arc;

use super::error::{ForkError, StoreError};
use super::ledger::Phase;
use super::live::flush;
use super::load::{HELD_BYTES, Loaded, check_identity};
use super::write_behind::Writer;
use super::{LiveSession, Store, named};
use crate::backend::{Backend, BackendError, ErrorKind, ReadLimit};
use crate::event::{SessionHeader, SessionId};
use crate::session::fork::BoundaryScan;
use crate::session::seed::Prepared;
use crate::session::{BoundaryError, Fold, ForkAt};

/// What is forked: a stored session by its id, or a live one by its handle.
pub enum ForkSource<'a, B: Backend> {
    /// By id.
    Id(Result<SessionId, StoreError>),
    /// By handle.
    Live(&'a LiveSession<B>),
}

impl<'a, B: Backend> From<&'a LiveSession<B>> for ForkSource<'a, B> {
    fn from(live: &'a LiveSession<B>) -> Self {
        Self::Live(live)
    }
}

impl<B: Backend> From<&str> for ForkSource<'_, B> {
    fn from(id: &str) -> Self {
        Self::Id(named(id))
    }
}

impl<B: Backend> From<&SessionId> for ForkSource<'_, B> {
    fn from(id: &SessionId) -> Self {
        Self::Id(Ok(id.clone()))
    }
}

impl<B: Backend> From<SessionId> for ForkSource<'_, B> {
    fn from(id: SessionId) -> Self {
        Self::Id(Ok(id))
    }
}

/// The source's id, and its writer if it is live here.
type Source<B> = (SessionId, Option<Arc<Writer<B>>>);

/// What looking for a boundary gives.
type Found = Result<Option<u64>, BoundaryError>;

/// The source's header and where the child's copy of it ends.
struct Cut {
    header: SessionHeader,
    boundary: Option<u64>,
    /// The child's log, if memory holds it.
    seed: Option<Prepared>,
}

impl<B: Backend> Store<B> {
    /// Makes a new session from the beginning of another (L5) and opens it. The source does not change; a live one is flushed
    /// first. The child has the source's working directory and names its parent and the length of its seed.
    ///
    /// Cost: the backend's fork, which shares where it can. A session that is live here hands its state on, so nothing is read, unless
    /// the boundary lies before what it holds in memory. Of one that is not live the log is read from the last checkpoint on to find
    /// the boundary, and the child is opened as [`Store::resume`] opens it.
    ///
    /// # Errors
    /// [`ForkError`], one for each rule; [`StoreError::Flush`] when the live source cannot be made durable. Nothing is left behind.
    pub async fn fork<'a>(
        &self,
        source: impl Into<ForkSource<'a, B>>,
        at: ForkAt,
        child: impl TryInto<SessionId, Error: Into<StoreError>>,
    ) -> Result<LiveSession<B>, StoreError> {
        let (source, child) = (source.into(), named(child)?);
        if !self.shared.options.persistence {
            let detail = "the store was opened with persistence off; nothing can be forked";
            return Err(BackendError::new(ErrorKind::Invalid, detail).with_session(&child).into());
        }
        let (source, writer) = self.source(source)?;
        let Cut { header, boundary, seed } = self.cut(&source, writer.as_ref(), at).await?;
        let exists = || ForkError::ChildExists { child: child.clone() };
        if source == child || self.shared.registry.get(&child).is_some() {
            return Err(exists().into());
        }
        let reservation = self.reserve(&child).await?;
        let mut born = SessionHeader::new(child.as_str());
        born.cwd = header.cwd;
        born.created_at = Some(self.shared.options.clock.now().max(0));
        born.parent_session = Some(header.id);
        born.seed_length = Some(boundary.map_or(0, |last| last + 1));
        match self.shared.backend.head(&child).await {
            Ok(_) => return Err(exists().into()),
            Err(error) if error.kind == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        let Some(boundary) = boundary else { return self.create_reserved(born, reservation) };
        let head = match self.shared.backend.fork(&source, boundary, &born).await {
            Ok(head) => head,
            Err(error) if error.kind == ErrorKind::Exists => return Err(exists().into()),
            Err(error) => return Err(error.into()),
        };
        let known = seed.and_then(|seed| Loaded::from_prefix(born, head, seed));
        let live = self.resume_reserved(child.clone(), reservation, known).await;
        if live.is_err() {
            // A copy that could not be opened is no child: nothing is left behind.
            if let Err(error) = self.shared.backend.delete(&child).await {
                tracing::warn!(session = %child, %error, "the copy of a fork that failed could not be removed");
            }
        }
        live
    }

    /// The source's id, and its writer if it is live here.
    fn source(&self, source: ForkSource<'_, B>) -> Result<Source<B>, StoreError> {
        let live = match source {
            ForkSource::Id(id) => {
                let id = id?;
                let writer = self.shared.registry.get(&id).filter(|writer| writer.ledger().phase() == Phase::Open);
                return Ok((id, writer));
            }
            ForkSource::Live(live) => live,
        };
        let id = live.id().clone();
        let stale = |reason| Err(ForkError::StaleHandle { source_id: id.clone(), reason }.into());
        match live.writer_in(&self.shared.registry) {
            None => stale("it belongs to another store"),
            Some(writer) if writer.ledger().lost() => stale("another writer has taken the session over"),
            Some(writer) if writer.ledger().phase() > Phase::Open || live.is_closed() => stale("it was closed"),
            Some(writer) => Ok((id, Some(Arc::clone(writer)))),
        }
    }

    async fn cut(&self, source: &SessionId, writer: Option<&Arc<Writer<B>>>, at: ForkAt) -> Result<Cut, StoreError> {
        if let Some(writer) = writer {
            let session = writer.session();
            let (known, next_seq) = (session.fork_boundary(at), session.next_seq());
            // What the boundary was found in is durable after this, and the log only grows.
            flush(writer).await?;
            if let Some(found) = known {
                let boundary = boundary(source, next_seq, found)?;
                let seed = boundary.and_then(|boundary| session.prefix(boundary, HELD_BYTES));
                return Ok(Cut { header: session.header().clone(), boundary, seed });
            }
        }
        let opened = match self.shared.backend.open(source).await {
            Ok(opened) => opened,
            Err(error) if error.kind == ErrorKind::NotFound => {
                return Err(ForkError::SourceNotFound { source_id: source.clone() }.into());
            }
            Err(error) => return Err(error.into()),
        };
        check_identity(source, &opened.header)?;
        let end = opened.head.next_seq;
        if let ForkAt::Seq(boundary) = at
            && boundary >= end
        {
            return Err(refusal(source, BoundaryError::NoSuchSeq { boundary, next_seq: end }).into());
        }
        let from = opened.checkpoint.as_ref().and_then(|checkpoint| Fold::from_checkpoint(checkpoint).ok());
        let from = from.filter(|fold| match at {
            ForkAt::Seq(boundary) => fold.next_seq() <= boundary,
            ForkAt::End | ForkAt::LastTurn => fold.next_seq() <= end,
        });
        let mut scan = from.map_or_else(|| BoundaryScan::new(at), |fold| BoundaryScan::from_fold(at, &fold));
        'pages: while scan.next_seq() < end {
            let page = self.shared.backend.read(source, scan.next_seq(), ReadLimit::default()).await?;
            for item in page.items.iter().filter_map(|item| item.slice(0, end)) {
                if !scan.push(&item) {
                    break 'pages;
                }
            }
            if page.next.is_none() {
                break;
            }
        }
        Ok(Cut { header: opened.header, boundary: boundary(source, end, scan.finish())?, seed: None })
    }
}

/// The boundary that was found, unless there is none in a source that has events: an open first turn leaves nothing outside every
/// turn, and an empty child would not be what was asked for.
fn boundary(source: &SessionId, next_seq: u64, found: Found) -> Result<Option<u64>, ForkError> {
    match found.map_err(|error| refusal(source, error))? {
        None if next_seq > 0 => Err(ForkError::NoTurn { source_id: source.clone() }),
        boundary => Ok(boundary),
    }
}

fn refusal(source: &SessionId, error: BoundaryError) -> ForkError {
    let source_id = source.clone();
    match error {
        BoundaryError::NoSuchSeq { boundary, next_seq } => ForkError::NoSuchEvent { source_id, boundary, next_seq },
        BoundaryError::InsideTurn { boundary, opened_at, last_closed } => {
            ForkError::InsideTurn { source_id, boundary, opened_at, last_closed }
        }
    }
}
