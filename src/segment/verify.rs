//! The full check of a session.

use super::directory::SessionDirectory;
use super::log;
use super::scan::Content;
use crate::backend::{BackendError, ErrorKind, TornTail};
use crate::event::Item;
use crate::event::json;

/// How a session fared in a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckStatus {
    /// Sound.
    Ok,
    /// Sound up to an incomplete record at the end, which the next writer sets aside.
    Torn,
    /// The stored bytes are not what was written, or could not be read.
    Damaged,
    /// Written by a newer version.
    Unsupported,
}

/// The result of [`Engine::verify`](super::Engine::verify).
#[derive(Debug)]
pub struct SessionCheck {
    /// The outcome.
    pub status: CheckStatus,
    /// Events that are intact, counted from the start of the log.
    pub events: u64,
    /// Bytes of all journals that were looked at.
    pub bytes: u64,
    /// The incomplete record at the end, if any.
    pub torn: Option<TornTail>,
    /// What is wrong, when `status` is damaged or unsupported. Kind `NotFound` says that there is no such session.
    pub error: Option<BackendError>,
}

pub(crate) fn session(directory: &SessionDirectory) -> SessionCheck {
    let check = || {
        directory.check()?;
        directory.read_header()?;
        log::scan_with(directory, &mut |scanner, record| {
            let Content::Batch(prefix) = record.content else { return Ok(()) };
            for item in scanner.items(record, &prefix)? {
                // The deltas of runs have been checked by unpacking them.
                if let Item::Event(event) = item
                    && json::check_syntax(&event.data()).is_err()
                {
                    return Err(super::scan::Fault::Nonsense("a payload is not valid JSON"));
                }
            }
            Ok(())
        })
    };
    match check() {
        Ok(log) => SessionCheck {
            status: if log.torn.is_some() { CheckStatus::Torn } else { CheckStatus::Ok },
            events: log.next_seq,
            bytes: log.bytes,
            torn: log.torn,
            error: None,
        },
        Err(error) => SessionCheck {
            status: if error.kind == ErrorKind::Unsupported { CheckStatus::Unsupported } else { CheckStatus::Damaged },
            events: error.damage.as_ref().map_or(0, |damage| damage.intact_before),
            bytes: 0,
            torn: None,
            error: Some(error),
        },
    }
}
