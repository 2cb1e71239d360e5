//! How a verb ends when it does not simply succeed, and the exit status that goes with it.

use std::fmt;
use std::io;

use sessionlog::backend::{BackendError, ErrorKind};

use super::explain;
use super::output::{complain, paragraph};

/// Exit status 1: something is damaged, refused or partly failed; the rest was still done and printed.
pub const PARTLY_FAILED: u8 = 1;
/// Exit status 2: wrong usage.
pub const WRONG_USAGE: u8 = 2;
/// Exit status 3: the store or session is busy or missing.
pub const BUSY_OR_MISSING: u8 = 3;

/// Why a verb stopped.
#[derive(Debug)]
pub enum Failure {
    /// The reader of standard output went away; not an error.
    ClosedPipe,
    /// A message for people, and the exit status.
    Message {
        /// What happened and what to do next.
        text: String,
        /// Exit status.
        status: u8,
    },
    /// Everything was said already; only the exit status is left.
    Status(u8),
}

impl Failure {
    /// Wrong usage that the argument parser cannot see.
    pub fn usage(text: impl Into<String>) -> Self {
        Self::Message { text: text.into(), status: WRONG_USAGE }
    }

    /// Whether it says that something is busy or missing.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Message { status: BUSY_OR_MISSING, .. })
    }

    /// Damaged, refused or failed.
    pub fn failed(text: impl Into<String>) -> Self {
        Self::Message { text: text.into(), status: PARTLY_FAILED }
    }

    /// Busy or missing.
    pub fn missing(text: impl Into<String>) -> Self {
        Self::Message { text: text.into(), status: BUSY_OR_MISSING }
    }
}

/// What went wrong with single sessions while the others were dealt with.
#[derive(Debug, Default)]
pub struct Refusals {
    worst: Option<u8>,
}

impl Refusals {
    /// Says what went wrong with one session.
    ///
    /// # Errors
    /// Passes on what concerns all: a closed pipe, wrong usage.
    pub fn add(&mut self, failure: Failure) -> Result<(), Failure> {
        match failure {
            Failure::Message { text, status } if status != WRONG_USAGE => {
                complain(&format!("sessionlog: {}", paragraph(&text)));
                self.count(status);
                Ok(())
            }
            Failure::Status(status) if status != WRONG_USAGE => {
                self.count(status);
                Ok(())
            }
            failure => Err(failure),
        }
    }

    /// Counts one that was said already. Busy or missing alone stays that; with anything else it is a partial failure.
    pub fn count(&mut self, status: u8) {
        self.worst = Some(if self.worst.is_none_or(|worst| worst == BUSY_OR_MISSING) { status } else { PARTLY_FAILED });
    }

    /// How the verb ends.
    ///
    /// # Errors
    /// The exit status, if anything was refused.
    pub fn end(self) -> Result<(), Failure> {
        self.worst.map_or(Ok(()), |status| Err(Failure::Status(status)))
    }
}

/// The exit status for an error of this kind.
pub fn status_of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::NotFound | ErrorKind::Busy | ErrorKind::LostOwnership => BUSY_OR_MISSING,
        _ => PARTLY_FAILED,
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ClosedPipe
        } else {
            Self::failed(format!(
                "writing the output failed: {error}; see that there is space where it goes, and run this again"
            ))
        }
    }
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        Self::from(&error)
    }
}

impl From<&BackendError> for Failure {
    fn from(error: &BackendError) -> Self {
        let class = error.damage.as_ref().map_or(error.kind.name(), |damage| damage.class.name());
        let text = match (error.kind, &error.session) {
            // These say themselves what to do.
            (ErrorKind::NotFound | ErrorKind::Exists | ErrorKind::Busy, _) => error.to_string(),
            _ if error.damage.as_ref().is_some_and(|damage| damage.class.is_derived()) => error.to_string(),
            (ErrorKind::Damaged, Some(id)) => format!(
                "{error}; `sessionlog salvage {id} --as NEW` saves what is intact, `sessionlog explain {class}` says more"
            ),
            _ => {
                let next = explain::find(class).map_or("", |explanation| explanation.next);
                format!("{error}; {next}; `sessionlog explain {class}` says more")
            }
        };
        Self::Message { text, status: status_of(error.kind) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message { text, .. } => f.write_str(text),
            Self::ClosedPipe | Self::Status(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use sessionlog::backend::{Damage, DamageClass};
    use sessionlog::event::SessionId;

    use super::*;

    #[test]
    fn every_error_of_storage_says_what_to_do_next() {
        let id = SessionId::new("s").unwrap();
        for kind in ErrorKind::ALL.iter().copied() {
            let error = match kind {
                ErrorKind::NotFound => BackendError::not_found(&id),
                ErrorKind::Exists => BackendError::exists(&id),
                ErrorKind::Busy => BackendError::new(kind, "open for writing; reading works meanwhile"),
                kind => BackendError::new(kind, "it is so").with_session(&id),
            };
            let text = Failure::from(error).to_string();
            assert!(text.contains("; ") && !text.ends_with("it is so"), "{text}");
        }
        assert!(Failure::from(BackendError::missing_event(&id, 3)).to_string().contains("`sessionlog events s`"));
        for class in DamageClass::ALL.iter().copied().filter(|class| !class.is_derived()) {
            let damage = Damage { class, offset: Some(7), intact_before: 3 };
            let error = BackendError::new(ErrorKind::Damaged, "it is so").with_damage(damage);
            let text = Failure::from(error.with_session(&id)).to_string();
            assert!(text.contains("`sessionlog salvage s --as NEW`"), "{text}");
            assert!(text.contains(&format!("`sessionlog explain {class}`")), "{text}");
        }
    }
}
