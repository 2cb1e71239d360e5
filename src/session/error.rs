//! Why a session cannot be made, and why an append is refused.

use super::checkpoint::CheckpointError;
use super::invariants::Violation;
use super::options::{BufferFull, Veto};
use super::validator::InvalidEvent;
use crate::event::SessionId;
use crate::event::header::HeaderError;
use crate::event::payload::PayloadError;
use crate::event::vocabulary::UnknownType;

/// Why an append is refused. The log, the surface and the queue behind them are as they were.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// L2: an observer (or sink, clock or id source) appended to the session whose callback it is in.
    #[error(
        "session {session}: an append from inside a callback of the same session is refused; append after it returns"
    )]
    Reentrant {
        /// The session.
        session: SessionId,
    },
    /// The session is a view, made to be looked at.
    #[error("session {session} was opened for inspection only; resume it to append")]
    ReadOnly {
        /// The session.
        session: SessionId,
    },
    /// The session was disposed of.
    #[error("session {session} is closed; resume it to append")]
    Disposed {
        /// The session.
        session: SessionId,
    },
    /// E2: the typed payload is not lossless JSON.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// E4: the event cannot stand there.
    #[error(transparent)]
    Invalid(#[from] InvalidEvent),
    /// V3: the type is not in the closed vocabulary.
    #[error("event type \"{event_type}\" is not in this session's closed vocabulary")]
    UnknownType {
        /// The type.
        event_type: String,
    },
    /// The event breaks an invariant of section 7 and the session checks them.
    #[error(transparent)]
    Invariant(#[from] Violation),
    /// The queue behind the session is full.
    #[error(transparent)]
    BufferFull(#[from] BufferFull),
}

/// Why a session cannot be made. Nothing is left behind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The header is not one that the session may have.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// N2: the header states a newer format version.
    #[error("session {session} was written by a newer version of the format ({version}); upgrade to open it")]
    NewerVersion {
        /// The session.
        session: SessionId,
        /// The version that its header states.
        version: u64,
    },
    /// L2: an observer vetoed the session.
    #[error(transparent)]
    Veto(#[from] Veto),
    /// E4: the seed is not a valid log.
    #[error("seed: {0}")]
    Seed(#[from] InvalidEvent),
    /// V2: the seed holds a required event of an unknown type.
    #[error(transparent)]
    Unsupported(#[from] UnknownType),
    /// The seed's checkpoint cannot be used.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The surface events that came with a checkpoint are not those that it names.
    #[error("the surface event {seq} that the checkpoint names was not given with it; replay the log instead")]
    SurfaceEvent {
        /// The event.
        seq: u64,
    },
    /// The mark behind the seed was refused.
    #[error("the mark behind the seed: {0}")]
    Mark(AppendError),
}
