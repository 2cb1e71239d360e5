//! What opening a session found and mended, in a person's words.

use std::fmt;

use crate::backend::TornTail;
use crate::event::Event;

/// What recovery did when a session was resumed, or would do when it is only inspected.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovery {
    /// The incomplete record at the end of the log, if there was one.
    pub torn: Option<TornTail>,
    /// The events that close the turn a crash left open.
    pub closers: Vec<Event>,
}

impl Recovery {
    /// Whether there was nothing to mend.
    pub fn is_clean(&self) -> bool {
        self.torn.is_none() && self.closers.is_empty()
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_clean() {
            return f.write_str("nothing to recover: the log was whole and no turn was open");
        }
        if let Some(torn) = &self.torn {
            write!(f, "an incomplete record of {} bytes was cut", torn.bytes)?;
            if let Some(file) = &torn.file {
                write!(f, " from {} at offset {}", file.display(), torn.offset)?;
            }
            if let Some(kept) = &torn.kept {
                write!(f, " (kept in {})", kept.display())?;
            }
            if !self.closers.is_empty() {
                f.write_str("; ")?;
            }
        }
        if !self.closers.is_empty() {
            let calls = self.closers.iter().filter(|event| event.event_type() == "tool/result").count();
            write!(f, "an interrupted turn was closed with {} events", self.closers.len())?;
            match calls {
                0 => {}
                1 => f.write_str(", one of them the result of an unanswered tool call")?,
                _ => write!(f, ", {calls} of them results of unanswered tool calls")?,
            }
        }
        Ok(())
    }
}
