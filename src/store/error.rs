//! Errors of the store.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backend::{BackendError, ErrorKind};
use crate::event::SessionId;
use crate::event::header::HeaderError;
use crate::event::vocabulary::UnknownType;
use crate::session::{AppendError, SessionError};

/// Why events are not durable (L7). Nothing was dropped: they wait in memory, and the next flush or window tries again unless
/// the session was lost to another writer.
#[derive(Debug, Clone, thiserror::Error)]
#[error("session {session}: {events} events ({bytes} bytes) are not durable: {cause}")]
pub struct FlushError {
    /// The session.
    pub session: SessionId,
    /// Events waiting.
    pub events: u64,
    /// Bytes waiting.
    pub bytes: usize,
    /// What went wrong; shared by all who waited for the same attempt.
    pub cause: Arc<BackendError>,
}

impl FlushError {
    /// The kind of the cause.
    pub fn kind(&self) -> ErrorKind {
        self.cause.kind
    }
}

/// Why a fork was refused (L5). Nothing was made and the source did not change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForkError {
    /// The source does not exist.
    #[error("session {source_id} cannot be forked: there is no such session")]
    SourceNotFound {
        /// The source.
        source_id: SessionId,
    },
    /// The handle given as the source was closed, was taken over by another writer, or belongs to another store.
    #[error("session {source_id} cannot be forked through this handle: {reason}; name the session by its id")]
    StaleHandle {
        /// The source.
        source_id: SessionId,
        /// What became of the handle.
        reason: &'static str,
    },
    /// A session with the child's id exists.
    #[error("session {child} exists already; choose another id for the fork")]
    ChildExists {
        /// The child.
        child: SessionId,
    },
    /// The boundary is no event of the source.
    #[error("session {source_id} cannot be forked at seq {boundary}: its events are those before seq {next_seq}")]
    NoSuchEvent {
        /// The source.
        source_id: SessionId,
        /// The boundary asked for.
        boundary: u64,
        /// Seq behind the source's last event.
        next_seq: u64,
    },
    /// No turn of the source has ended.
    #[error("session {source_id} cannot be forked at its last turn: none has ended yet")]
    NoTurn {
        /// The source.
        source_id: SessionId,
    },
    /// The boundary lies inside a turn: the child would begin with an orphan.
    #[error("session {source_id} cannot be forked at seq {boundary}: the turn that began at seq {opened_at} is open there; \
             fork {}at a turn's end", before(*last_closed))]
    InsideTurn {
        /// The source.
        source_id: SessionId,
        /// The boundary.
        boundary: u64,
        /// Seq of the turn's start.
        opened_at: u64,
        /// The last seq before that turn, if there is one.
        last_closed: Option<u64>,
    },
}

fn before(last_closed: Option<u64>) -> String {
    last_closed.map(|seq| format!("at seq {seq} or ")).unwrap_or_default()
}

/// An error of a store operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The backend's answer, which names session, file, offset and seq.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The session model refused: a header, a seed, a veto.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// An append was refused.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// A header or id is not acceptable.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// Events could not be made durable.
    #[error(transparent)]
    Flush(#[from] FlushError),
    /// A fork was refused.
    #[error(transparent)]
    Fork(#[from] ForkError),
    /// A stored session cannot be reconstructed (V2); raw reading still works.
    #[error("session {session}{}: {unknown}", at(location.as_deref()))]
    Unsupported {
        /// The session.
        session: SessionId,
        /// Where its log is.
        location: Option<PathBuf>,
        /// The first event that this reader does not know.
        unknown: UnknownType,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// Some sessions could not be made durable while the store closed; each is named with its error. They are kept: close again
    /// to try again.
    #[error("{} sessions have events that are not durable; the first: {}", .0.len(), first(.0))]
    Unwritten(Vec<FlushError>),
}

fn at(location: Option<&Path>) -> String {
    location.map(|path| format!(" in {}", path.display())).unwrap_or_default()
}

fn first(errors: &[FlushError]) -> String {
    errors.first().map(ToString::to_string).unwrap_or_default()
}

impl From<Infallible> for StoreError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl StoreError {
    /// The kind, for programs.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Backend(error) => error.kind,
            Self::Flush(error) => error.kind(),
            Self::Unwritten(errors) => errors.first().map_or(ErrorKind::Io, FlushError::kind),
            Self::Unsupported { .. }
            | Self::Session(SessionError::Unsupported(_) | SessionError::NewerVersion { .. }) => ErrorKind::Unsupported,
            Self::Fork(ForkError::SourceNotFound { .. } | ForkError::NoSuchEvent { .. } | ForkError::NoTurn { .. }) => {
                ErrorKind::NotFound
            }
            Self::Fork(ForkError::ChildExists { .. }) => ErrorKind::Exists,
            Self::Fork(ForkError::StaleHandle { .. }) => ErrorKind::LostOwnership,
            Self::Closed => ErrorKind::Poisoned,
            Self::Fork(ForkError::InsideTurn { .. }) | Self::Session(_) | Self::Append(_) | Self::Header(_) => {
                ErrorKind::Invalid
            }
        }
    }
}
