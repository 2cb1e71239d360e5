//! Which event types a reader knows (rules V2, V3).

use std::collections::HashSet;

use super::Event;
use super::payload::Payload;

/// The core vocabulary of format 1.
pub const CORE_TYPES: [&str; 13] = [
    "turn/start",
    "turn/end",
    "step/start",
    "step/end",
    "user/message",
    "assistant/chunk",
    "assistant/message",
    "tool/call",
    "tool/result",
    "todo/write",
    "request/header",
    "request/context",
    "session/end-seed",
];

/// Log-only types that `DeepSeek` Harness and its plugins publish.
pub const PUBLISHED_TYPES: [&str; 39] = [
    "agent-preset/selected",
    "agent/inbox/spliced",
    "approval/asked",
    "approval/decided",
    "approval/policy",
    "command/run",
    "command/done",
    "compact/start",
    "compact/summary",
    "compact/end",
    "compaction/start",
    "compaction/summary",
    "compaction/end",
    "compaction/prune",
    "feedback/record",
    "goal/change",
    "hook/invoked",
    "hook/result",
    "llm/retry",
    "llm/retry-started",
    "permission/preset",
    "plan/mode",
    "prompt/blocked",
    "sandbox/mode",
    "schedule/change",
    "session/title",
    "session/title-llm-request",
    "subagent/descriptor",
    "team/member",
    "team/task",
    "team/message/queued",
    "team/message/delivered",
    "tool-workflow/run-start",
    "tool-workflow/run-end",
    "tool-workflow/agent-start",
    "tool-workflow/agent-end",
    "tool/code-dispatch",
    "tool/code-dispatch-start",
    "web/deepseek-search-llm-request",
];

/// A retired core shape that changes the meaning of a log: refused by name wherever events come in.
pub fn retired_shape(event_type: &str, data: &str) -> Option<&'static str> {
    match event_type {
        "request/header-delta" => Some("request/header-delta is retired: it cannot be turned into a header snapshot"),
        "request/header" => {
            let reason = super::json::member(data, "reason").and_then(super::json::string);
            let fallback = reason.is_some_and(|reason| reason == "fallback");
            fallback.then_some("request/header with reason \"fallback\" is retired: it is no full snapshot")
        }
        _ => None,
    }
}

/// The event types that a reader knows. A required event of any other type makes the log unsupported to reconstruct (V2); raw
/// reading, export and verification never ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vocabulary {
    known: HashSet<String>,
}

impl Vocabulary {
    /// The core types alone.
    pub fn core() -> Self {
        Self { known: CORE_TYPES.iter().map(|name| (*name).to_owned()).collect() }
    }

    /// The core types and the published ones of `DeepSeek` Harness; what the command line uses.
    pub fn well_known() -> Self {
        PUBLISHED_TYPES.iter().fold(Self::core(), |vocabulary, name| vocabulary.with_name(name))
    }

    /// Adds a type by its payload.
    pub fn with<P: Payload>(self) -> Self {
        self.with_name(P::TYPE)
    }

    /// Adds a type by name.
    pub fn with_name(mut self, event_type: &str) -> Self {
        self.known.insert(event_type.to_owned());
        self
    }

    /// Whether the type is known.
    pub fn knows(&self, event_type: &str) -> bool {
        self.known.contains(event_type)
    }

    /// Checks one event of a log that is being reconstructed (V2).
    ///
    /// # Errors
    /// [`UnknownType`] for a required event of an unknown type.
    pub fn check(&self, event: &Event) -> Result<(), UnknownType> {
        if event.ignorable() || self.knows(event.event_type()) {
            return Ok(());
        }
        Err(UnknownType { event_type: event.event_type().to_owned(), seq: event.seq() })
    }
}

/// A required event of a type that this reader does not know: the log was written by a harness that knows more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unsupported: event {seq} is of the unknown type \"{event_type}\" and not marked ignorable, so the session cannot be \
     reconstructed; raw reading and export still work (register the type, or name it with --assume-known {event_type})"
)]
pub struct UnknownType {
    /// The type.
    pub event_type: String,
    /// The first event of that type.
    pub seq: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{JsonText, NewEvent};

    #[test]
    fn v2_an_unknown_required_type_is_unsupported_and_an_ignorable_one_is_not() {
        let event = |ignorable| {
            let new = NewEvent::named("app/x", JsonText::parse("{}").unwrap());
            if ignorable { new.ignorable() } else { new }.at(7, 0)
        };
        let vocabulary = Vocabulary::well_known();
        assert_eq!(vocabulary.check(&event(false)).unwrap_err().seq, 7);
        vocabulary.check(&event(true)).unwrap();
        vocabulary.with_name("app/x").check(&event(false)).unwrap();
    }

    #[test]
    fn the_two_retired_shapes_are_named() {
        assert!(retired_shape("request/header-delta", "{}").is_some());
        assert!(retired_shape("request/header", r#"{"reason":"fallback"}"#).is_some());
        assert!(retired_shape("request/header", r#"{"reason":"initial"}"#).is_none());
    }
}
