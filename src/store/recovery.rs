//! What opening a session found and mended.

use std::fmt;

use crate::backend::TornTail;
use crate::event::message::TOOL_RESULT;
use crate::event::{Batch, Event};
use crate::session::OpenTurn;

/// What opening a stored session found and mended; reads as a sentence. The default is that of a session that was not stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovery {
    /// Events that were stored, before anything was added.
    pub events: u64,
    /// An incomplete record at the log's end: cut when the session was opened for writing, only found when it was inspected.
    pub torn: Option<TornTail>,
    /// The orphaned turn that was closed.
    pub closed: Option<ClosedTurn>,
    /// Whether what was added is stored. An inspection adds in memory only.
    pub stored: bool,
}

/// A turn that a crash left open, and how it was closed (section 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosedTurn {
    /// Turn number.
    pub turn: u64,
    /// Tool calls that had not been started: retrying them is safe.
    pub not_started: u64,
    /// Tool calls that had been started and whose result is unknown.
    pub outcome_unknown: u64,
    /// Seq of the first closer.
    pub first_seq: u64,
    /// Seq behind the last closer.
    pub next_seq: u64,
}

impl ClosedTurn {
    /// Describes the closers of `turn`.
    pub(crate) fn of(turn: OpenTurn, closers: &Batch) -> Self {
        let count = |started: bool| {
            closers
                .events()
                .filter(|event| event.event_type() == TOOL_RESULT && answers_started(event) == started)
                .count()
        };
        Self {
            turn: turn.turn,
            not_started: count(false) as u64,
            outcome_unknown: count(true) as u64,
            first_seq: closers.first_seq(),
            next_seq: closers.next_seq(),
        }
    }
}

/// Whether a synthetic result is for a call that had been started: it cites the call's seq.
fn answers_started(event: &Event) -> bool {
    event.placement().is_some_and(|placement| placement.sources().is_some())
}

impl Recovery {
    /// Whether the log was whole and its last turn closed.
    pub fn is_clean(&self) -> bool {
        self.torn.is_none() && self.closed.is_none()
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { events, torn, closed, stored } = self;
        if self.is_clean() {
            return write!(f, "nothing to mend: {} stored, no turn open", counted(*events, "event"));
        }
        write!(f, "{} stored", counted(*events, "event"))?;
        if let Some(torn) = torn {
            let verb = if *stored { "cut" } else { "found" };
            write!(f, "; {verb} an incomplete record of {} at offset {}", counted(torn.bytes, "byte"), torn.offset)?;
            if let Some(file) = &torn.file {
                write!(f, " of {}", file.display())?;
            }
            if let Some(kept) = &torn.kept {
                write!(f, " (kept in {})", kept.display())?;
            }
        }
        if let Some(closed) = closed {
            let ClosedTurn { turn, not_started, outcome_unknown, first_seq, next_seq } = closed;
            write!(f, "; turn {turn} was interrupted and is closed")?;
            if *not_started > 0 {
                write!(f, ", {} had not been started", counted(*not_started, "tool call"))?;
            }
            if *outcome_unknown > 0 {
                write!(f, ", {} had been started and the outcome is unknown", counted(*outcome_unknown, "tool call"))?;
            }
            let added = counted(next_seq - first_seq, "event");
            let how = if *stored { "added" } else { "added in memory only" };
            write!(f, " ({added} {how}, from seq {first_seq} to {})", next_seq.saturating_sub(1))?;
        }
        Ok(())
    }
}

fn counted(number: u64, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}
