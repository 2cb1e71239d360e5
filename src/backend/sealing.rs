//! What a backend says of the work that it does in the background: rewriting what is stored into fewer bytes.

use std::fmt;

use super::ErrorKind;
use crate::event::SessionId;

/// Why a session's log could not be rewritten in the background. Nothing is lost or at risk by it: what was appended is as durable
/// as before and stays where it is, in more bytes than it needs, and it is tried again when the session goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealingFailure {
    /// The session.
    pub session: SessionId,
    /// Epoch milliseconds of the first failure since the last success.
    pub since: i64,
    /// What kind of failure the latest attempt met.
    pub cause: SealingCause,
    /// The latest failure in words.
    pub detail: String,
}

/// How sealing failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SealingCause {
    /// With an error of this kind.
    Error(ErrorKind),
    /// It panicked: a defect of the backend.
    Panic,
}

impl fmt::Display for SealingCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(kind) => kind.fmt(f),
            Self::Panic => f.write_str("panic"),
        }
    }
}

/// Is told of each attempt on a session: its failure, or `None` when it succeeded. Gives `false` when it wants to hear no more. It
/// is called on the thread that made the attempt, or asked for it where no thread could be had, and must not block or call the
/// backend.
pub type SealingObserver = Box<dyn Fn(&SessionId, Option<&SealingFailure>) -> bool + Send + Sync>;
