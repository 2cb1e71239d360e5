//! What a session's or a store's persistence is like right now.

use std::fmt;

use crate::backend::{ErrorKind, SealingFailure};

/// Whether what is appended becomes durable. Events that wait for their window are healthy; events that could not be written are
/// not, and stay visible here until they are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Health {
    /// Everything that had to be written was.
    #[default]
    Ok,
    /// Writing fails. Nothing was dropped: the events wait in memory.
    Degraded {
        /// Epoch milliseconds of the first failure since the last success.
        since: i64,
        /// What kind of failure the latest attempt met. [`ErrorKind::LostOwnership`] is final: this handle never writes again.
        cause: ErrorKind,
        /// The latest failure in words.
        detail: String,
        /// Events waiting.
        events: u64,
        /// Bytes waiting.
        bytes: usize,
    },
    /// Everything that had to be written was, but what is stored could not be rewritten into fewer bytes: these sessions take more
    /// space than they need. Each is here until sealing it succeeds. Hidden while durability is degraded.
    Unsealed(Vec<SealingFailure>),
    /// The store was opened with persistence off: nothing is ever written.
    Off,
}

impl Health {
    /// Whether everything that had to be written was; so also when sealing fails, which is about space alone.
    pub fn is_ok(&self) -> bool {
        matches!(self, Self::Ok | Self::Unsealed(_))
    }

    /// This state where sealing of these sessions fails.
    #[must_use]
    pub(crate) fn with_sealing(self, failures: Vec<SealingFailure>) -> Self {
        if self == Self::Ok && !failures.is_empty() { Self::Unsealed(failures) } else { self }
    }

    /// The durability of two sessions seen as one: the worse one, with waiting events and bytes added up and the earlier failure
    /// first.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Off, _) | (_, Self::Off) => Self::Off,
            (Self::Ok | Self::Unsealed(_), other) => other,
            (this, Self::Ok | Self::Unsealed(_)) => this,
            (
                Self::Degraded { since, cause, detail, events, bytes },
                Self::Degraded {
                    since: other_since,
                    cause: other_cause,
                    detail: other_detail,
                    events: more,
                    bytes: also,
                },
            ) => {
                let this_first = since <= other_since;
                Self::Degraded {
                    since: since.min(other_since),
                    cause: if this_first { cause } else { other_cause },
                    detail: if this_first { detail } else { other_detail },
                    events: events.saturating_add(more),
                    bytes: bytes.saturating_add(also),
                }
            }
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => f.write_str("ok"),
            Self::Off => f.write_str("off: nothing is written"),
            Self::Unsealed(failures) => {
                f.write_str("ok, but not sealed")?;
                if let Some(SealingFailure { session, since, cause, detail }) = failures.first() {
                    write!(f, ": {} sessions, {session} since {since} ({cause}): {detail}", failures.len())?;
                }
                Ok(())
            }
            Self::Degraded { since, cause, detail, events, bytes } => {
                write!(f, "degraded since {since} ({cause}): {events} events, {bytes} bytes waiting: {detail}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn degraded(since: i64, cause: ErrorKind, events: u64) -> Health {
        Health::Degraded { since, cause, detail: cause.to_string(), events, bytes: 10 }
    }

    #[test]
    fn the_worst_session_speaks_for_the_store() {
        let (full, lost) = (degraded(5, ErrorKind::DiskFull, 3), degraded(4, ErrorKind::LostOwnership, 2));
        assert_eq!(Health::Ok.and(Health::Ok), Health::Ok);
        assert_eq!(Health::Ok.and(full.clone()), full);
        assert_eq!(full.clone().and(Health::Ok), full);
        let both = Health::Degraded {
            since: 4,
            cause: ErrorKind::LostOwnership,
            detail: "lost-ownership".into(),
            events: 5,
            bytes: 20,
        };
        assert_eq!(full.clone().and(lost.clone()), both);
        assert_eq!(lost.and(full), both);
    }
}
