//! Forking (L5): a child that starts with a prefix of another session's log.

use super::Store;
use super::error::{ForkError, StoreError};
use super::live::LiveSession;
use super::recovery::Recovery;
use crate::backend::{Backend, ErrorKind, Expected, ReadLimit};
use crate::event::{SessionHeader, SessionId};
use crate::session::fork::BoundaryScan;
use crate::session::{BoundaryError, ForkAt, Seed};

/// What is forked: a live session's handle, or a stored session by id.
#[derive(Debug)]
pub enum ForkSource<'a, B: Backend> {
    /// A live session; it is flushed first.
    Live(&'a LiveSession<B>),
    /// A stored session.
    Id(&'a str),
}

impl<'a, B: Backend> From<&'a LiveSession<B>> for ForkSource<'a, B> {
    fn from(session: &'a LiveSession<B>) -> Self {
        Self::Live(session)
    }
}

impl<'a, B: Backend> From<&'a str> for ForkSource<'a, B> {
    fn from(id: &'a str) -> Self {
        Self::Id(id)
    }
}

impl<B: Backend + Clone> Store<B> {
    /// Makes the session `child` of the events of `source` up to the boundary, and returns it live. The boundary must be an
    /// existing event outside every turn; it is never moved silently. The child has the source's working directory and names it
    /// as its parent; the source does not change. An empty source gives an empty child.
    ///
    /// # Errors
    /// [`StoreError::Fork`] with a distinct [`ForkError`] for a missing source, a stale handle, an existing child, a boundary
    /// that is no event, and one inside a turn; the backend's own otherwise.
    pub async fn fork<'a>(
        &self,
        source: impl Into<ForkSource<'a, B>>,
        at: ForkAt,
        child: impl AsRef<str>,
    ) -> Result<LiveSession<B>, StoreError> {
        self.check_open()?;
        let child_id = SessionId::new(child)?;
        let (source_id, header) = self.source(source.into()).await?;
        let opening = self.claim(&child_id).await.map_err(|error| match error.kind() {
            ErrorKind::Busy => ForkError::ChildExists { child: child_id.clone() }.into(),
            _ => error,
        })?;
        if self.exists(&child_id).await? {
            return Err(ForkError::ChildExists { child: child_id }.into());
        }
        let boundary = if header.is_some() { self.boundary(&source_id, at).await? } else { None };
        let mut child = SessionHeader::new(child_id.as_str()).created_at(self.shared.options.clock.now().max(0));
        child.cwd = header.and_then(|header| header.cwd);
        child.parent_session = Some(source_id.as_str().to_owned());
        child.seed_length = Some(boundary.map_or(0, |boundary| boundary + 1));
        let Some(boundary) = boundary else {
            return self.go_live(child, Seed::default(), Expected::ABSENT, Recovery::default());
        };
        self.shared.backend.fork(&source_id, boundary, &child).await.map_err(|error| match error.kind {
            ErrorKind::Exists => StoreError::Fork(ForkError::ChildExists { child: child_id.clone() }),
            _ => error.into(),
        })?;
        drop(opening);
        self.resume(child_id.as_str()).await
    }

    /// The source's id, and its header if it has any event.
    async fn source(&self, source: ForkSource<'_, B>) -> Result<(SessionId, Option<SessionHeader>), StoreError> {
        match source {
            ForkSource::Live(live) => {
                let source_id = live.id().clone();
                let ours = live.served().is_none_or(|served| {
                    self.shared.served(&source_id).is_some_and(|known| std::sync::Arc::ptr_eq(&known, served))
                });
                let reason = live.staleness().or((!ours).then_some("it belongs to another store"));
                if let Some(reason) = reason {
                    return Err(ForkError::StaleHandle { source_id, reason }.into());
                }
                live.flush().await?;
                let header = (live.next_seq() > 0).then(|| live.header().clone());
                Ok((source_id, header))
            }
            ForkSource::Id(id) => {
                let source_id = SessionId::new(id)?;
                match self.shared.backend.open(&source_id).await {
                    Ok(opened) => Ok((source_id, Some(opened.header))),
                    Err(error) if error.kind == ErrorKind::NotFound => {
                        Err(ForkError::SourceNotFound { source_id }.into())
                    }
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    /// Finds the boundary in the stored log.
    async fn boundary(&self, source_id: &SessionId, at: ForkAt) -> Result<Option<u64>, StoreError> {
        let mut scan = BoundaryScan::new(at);
        let mut from = Some(0);
        'pages: while let Some(seq) = from {
            let page = self.shared.backend.read(source_id, seq, ReadLimit::default()).await?;
            for item in &page.items {
                if !scan.push(item) {
                    break 'pages;
                }
            }
            from = page.next;
        }
        scan.finish().map_err(|error| {
            let source_id = source_id.clone();
            StoreError::Fork(match error {
                BoundaryError::NoSuchSeq { boundary, next_seq } => {
                    ForkError::NoSuchEvent { source_id, boundary, next_seq }
                }
                BoundaryError::InsideTurn { boundary, opened_at, last_closed } => {
                    ForkError::InsideTurn { source_id, boundary, opened_at, last_closed }
                }
            })
        })
    }
}
