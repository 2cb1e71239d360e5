//! The optional invariant checker (section 7): how turns, steps and calls of a well-behaved agent loop follow each other.
//!
//! Real logs of older harnesses break some of these rules, so nothing but the strict mode of a session asks for them.

use super::fold::{Fold, number};
use super::validator::InvalidEvent;
use crate::event::chunk::ASSISTANT_CHUNK;
use crate::event::control::{
    REQUEST_CONTEXT, REQUEST_HEADER, STEP_END, STEP_START, TODO_WRITE, TOOL_CALL, TURN_END, TURN_START,
};
use crate::event::message::{ASSISTANT_MESSAGE, TOOL_RESULT};
use crate::event::{ChunkRun, Event, Item, SurfaceOp, json};

use super::calls;

/// The first rule that an event breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event {seq} (\"{event_type}\") breaks an invariant: {rule}")]
pub struct Violation {
    /// Seq of the event.
    pub seq: u64,
    /// Its type name.
    pub event_type: String,
    /// The rule, in words.
    pub rule: String,
}

/// Checks the event that would come next after the log that `fold` holds.
///
/// # Errors
/// [`Violation`] naming the rule.
pub fn check(fold: &Fold, event: &Event) -> Result<(), Violation> {
    let rule = match event.as_packed_delta() {
        Some((head, _)) => named_open_step(fold, Some(head.turn), Some(head.step)),
        None => broken_rule(fold, event),
    };
    rule.map_or(Ok(()), |rule| Err(Violation { seq: event.seq(), event_type: event.event_type().to_owned(), rule }))
}

fn check_run(fold: &Fold, run: &ChunkRun) -> Result<(), Violation> {
    let rule = named_open_step(fold, Some(run.head().turn), Some(run.head().step));
    rule.map_or(Ok(()), |rule| Err(Violation { seq: run.first_seq(), event_type: ASSISTANT_CHUNK.to_owned(), rule }))
}

/// The first violation of a log from seq 0 on; `None` if it keeps every rule.
///
/// # Errors
/// [`InvalidEvent`] when the log is not even valid.
pub fn first_violation<'a>(items: impl IntoIterator<Item = &'a Item>) -> Result<Option<Violation>, InvalidEvent> {
    let mut fold = Fold::new();
    for item in items {
        let checked = match item {
            Item::Event(event) => check(&fold, event),
            Item::Run(run) => check_run(&fold, run),
        };
        if let Err(violation) = checked {
            return Ok(Some(violation));
        }
        fold.apply_item(item)?;
    }
    Ok(None)
}

fn broken_rule(fold: &Fold, event: &Event) -> Option<String> {
    let data = event.data();
    let named = |key| number(&data, key);
    let replaces = matches!(event.placement().map(crate::event::Placement::op), Some(SurfaceOp::Replace { .. }));
    match event.event_type() {
        TURN_START => match (fold.open_turn(), named("turn")) {
            (Some(open), _) => Some(format!("a turn may not open inside turn {}", open.turn)),
            (None, turn) if turn == Some(fold.next_turn()) => None,
            (None, turn) => {
                Some(format!("turns are numbered in order: expected {}, found {}", fold.next_turn(), shown(turn)))
            }
        },
        TURN_END => match (fold.open_turn(), fold.open_step()) {
            (None, _) => Some("no turn is open".to_owned()),
            (Some(_), Some(step)) => Some(format!("step {} is still open", step.step)),
            (Some(open), None) => must_name("turn", open.turn, named("turn")),
        },
        STEP_START => match (fold.open_turn(), fold.open_step()) {
            (None, _) => Some("a step stands inside a turn, and no turn is open".to_owned()),
            (Some(_), Some(step)) => Some(format!("a step may not open inside step {}", step.step)),
            (Some(open), None) => {
                must_name("turn", open.turn, named("turn")).or_else(|| must_name("step", fold.next_step, named("step")))
            }
        },
        // A replacement rewrites a message of an earlier step, under that step's numbers.
        ASSISTANT_MESSAGE | TOOL_RESULT if replaces => None,
        STEP_END | ASSISTANT_CHUNK | TOOL_CALL | ASSISTANT_MESSAGE => {
            named_open_step(fold, named("turn"), named("step"))
        }
        TOOL_RESULT => named_open_step(fold, named("turn"), named("step")).or_else(|| unanswered(fold, &data)),
        TODO_WRITE | REQUEST_HEADER | REQUEST_CONTEXT if fold.open_turn().is_none() => {
            Some("it stands inside a turn, and no turn is open".to_owned())
        }
        _ => None,
    }
}

fn shown(number: Option<u64>) -> String {
    number.map_or_else(|| "none".to_owned(), |number| number.to_string())
}

fn must_name(what: &str, expected: u64, found: Option<u64>) -> Option<String> {
    (found != Some(expected)).then(|| format!("it must name {what} {expected}, and names {}", shown(found)))
}

fn named_open_step(fold: &Fold, turn: Option<u64>, step: Option<u64>) -> Option<String> {
    match fold.open_step() {
        None => Some("it stands inside a step, and no step is open".to_owned()),
        Some(open) => must_name("turn", open.turn, turn).or_else(|| must_name("step", open.step, step)),
    }
}

/// A result answers a call of this step that has none yet; one that says the tool was never started answers a block alone.
fn unanswered(fold: &Fold, data: &str) -> Option<String> {
    let call_id = calls::answered_call(data)?;
    let code = json::at_path(data, &["error", "code"]).and_then(json::string);
    let not_started = code.is_some_and(|code| code == "TOOL_NOT_STARTED");
    let answers =
        fold.calls.pending().any(|(_, call)| call.call_id == call_id && (call.called_at.is_some() || not_started));
    (!answers).then(|| format!("it answers no open call \"{}\" of this step", call_id.escape_debug()))
}
