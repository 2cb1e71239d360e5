//! Crash repair: the events that close a turn which a crash left open (section 8).
//!
//! Pure and deterministic: the closers follow from the log alone, so closing the same log twice gives the same events, and a log
//! that ends inside its own closers gets exactly the missing ones.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use super::calls::PendingCall;
use super::fold::{Fold, OpenStep};
use super::validator::InvalidEvent;
use crate::event::content::{ContentBlock, ToolResultBlock, ToolSource};
use crate::event::control::{StepEnd, TurnEnd};
use crate::event::message::{ToolError, ToolResult, ToolResultMessage};
use crate::event::{Batch, Event, Item, NewEvent, Payload, Placement, SessionId, payload};

/// What the model reads for a call whose tool was never started.
const NOT_STARTED: &str = "The tool call was interrupted before the tool was started: no side effect has happened. \
                           Retrying it is safe.";

/// What the model reads for a call that was started and whose result is not in the log.
const OUTCOME_UNKNOWN: &str = "The tool call was interrupted after the tool was started, and its result was not recorded. \
                               Its outcome is unknown: it may have had side effects. Retry it only if it is read-only or \
                               idempotent; otherwise check the state of what it changes first, or ask the user.";

/// The events that close the open turn of the log that `fold` holds, in order, with seqs and times; empty if no turn is open.
///
/// Each pending tool call gets a synthetic result, then the step and the turn end. All carry the time of the last event.
pub fn closers(fold: &Fold, session: &SessionId) -> Vec<Event> {
    let Some(turn) = fold.open_turn() else { return Vec::new() };
    let mut new = Vec::new();
    if let Some(step) = fold.open_step() {
        new.extend(fold.calls.pending().filter_map(|(ordinal, call)| synthetic_result(session, step, ordinal, &call)));
        new.extend(event_of(&StepEnd::new(step.turn, step.step)));
    }
    new.extend(event_of(&TurnEnd::interrupted(turn.turn)));
    let time = fold.last_time().unwrap_or(0);
    new.into_iter().zip(fold.next_seq()..).map(|(new, seq)| new.at(seq, time)).collect()
}

/// As [`closers`], packed for a backend; `None` if no turn is open.
pub fn close(fold: &Fold, session: &SessionId) -> Option<Batch> {
    Batch::pack(closers(fold, session))
}

/// As [`close`], for a whole log at hand.
///
/// # Errors
/// [`InvalidEvent`] when the log itself is not valid.
pub fn close_log(items: &[Item], session: &SessionId) -> Result<Option<Batch>, InvalidEvent> {
    Ok(close(&Fold::of(items)?, session))
}

/// The core's payloads hold strings and integers only, so serializing them does not fail.
fn event_of<P: Payload>(payload: &P) -> Option<NewEvent> {
    payload::to_json(payload).ok().map(|data| NewEvent::named(P::TYPE, data))
}

fn synthetic_result(session: &SessionId, step: OpenStep, ordinal: usize, call: &PendingCall) -> Option<NewEvent> {
    let (text, name, code) = match call.called_at {
        None => (NOT_STARTED, "ToolNotStartedError", "TOOL_NOT_STARTED"),
        Some(_) => (OUTCOME_UNKNOWN, "ToolOutcomeUnknownError", "TOOL_OUTCOME_UNKNOWN"),
    };
    let block = ToolResultBlock {
        tool_call_id: call.call_id.clone(),
        content: vec![ContentBlock::text(text)],
        is_error: Some(true),
        extra: Vec::new(),
    };
    let message = ToolResultMessage {
        id: Some(message_id(session, step, ordinal, call)),
        content: vec![ContentBlock::ToolResult(block)],
        source: ToolSource { call_id: call.call_id.clone(), extra: Vec::new() },
        extra: Vec::new(),
    };
    let error = ToolError { name: name.into(), code: code.into(), extra: Vec::new() };
    let result =
        ToolResult { turn: step.turn, step: step.step, message, error: Some(error), meta: None, extra: Vec::new() };
    let placement = match call.called_at {
        Some(seq) => Placement::append().from([seq]),
        None => Placement::append(),
    };
    event_of(&result).map(|new| new.placed(placement))
}

/// An id that follows from the session, the step and the call alone: the same at every attempt to close the turn.
fn message_id(session: &SessionId, step: OpenStep, ordinal: usize, call: &PendingCall) -> String {
    let mut hash = Sha256::new_with_prefix(b"interrupted tool result");
    for part in [session.as_str(), call.call_id.as_str()] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    for number in [step.started_at, ordinal as u64] {
        hash.update(number.to_le_bytes());
    }
    let mut id = String::from("interrupted-");
    for byte in hash.finalize().iter().take(16) {
        let _ = write!(id, "{byte:02x}");
    }
    id
}
