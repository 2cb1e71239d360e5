//! Log-only core payloads: turns, steps, tool calls, todos, the request header and the end of a seed.

use super::json::JsonText;
use super::object::{json_choice, json_object};
use super::payload::{LogPayload, Payload};

/// Implements the payload traits of log-only core types and names their type constants.
macro_rules! log_only {
    ($($(#[$meta:meta])* $constant:ident = $name:literal for $payload:ty;)*) => {
        $(
            $(#[$meta])*
            pub const $constant: &str = $name;

            impl Payload for $payload {
                const TYPE: &'static str = $constant;
            }

            impl LogPayload for $payload {}
        )*
    };
}

log_only! {
    /// Type name of [`TurnStart`] events.
    TURN_START = "turn/start" for TurnStart;
    /// Type name of [`TurnEnd`] events.
    TURN_END = "turn/end" for TurnEnd;
    /// Type name of [`StepStart`] events.
    STEP_START = "step/start" for StepStart;
    /// Type name of [`StepEnd`] events.
    STEP_END = "step/end" for StepEnd;
    /// Type name of [`ToolCall`] events.
    TOOL_CALL = "tool/call" for ToolCall;
    /// Type name of [`TodoWrite`] events.
    TODO_WRITE = "todo/write" for TodoWrite;
    /// Type name of [`RequestHeader`] events.
    REQUEST_HEADER = "request/header" for RequestHeader;
    /// Type name of [`RequestContext`] events.
    REQUEST_CONTEXT = "request/context" for RequestContext;
    /// Type name of [`EndSeed`] events.
    END_SEED = "session/end-seed" for EndSeed;
}

json_object! {
    /// `turn/start`.
    pub struct TurnStart {
        /// Turn number, from 1.
        turn: u64, required "turn";
    }
}

json_object! {
    /// `turn/end`.
    pub struct TurnEnd {
        /// Turn number.
        turn: u64, required "turn";
        /// Why it ended.
        reason: TurnEndReason, required "reason";
    }
}

json_choice! {
    /// Why a turn ended. Open: kinds that this crate does not know are kept verbatim.
    pub enum TurnEndReason by "kind" {
        /// It ran to its end.
        Completed(NoDetail) = "completed",
        /// It was cancelled.
        Aborted(Aborted) = "aborted",
        /// Policy blocked its prompt before the first step.
        Blocked(NoDetail) = "blocked",
        /// It failed.
        Error(Failed) = "error",
        /// A step reached its output limit.
        MaxTokens(NoDetail) = "max-tokens",
        /// Crash recovery closed it; no agent loop writes this.
        Interrupted(NoDetail) = "interrupted",
    }
}

json_object! {
    /// A reason without further members of its own.
    #[derive(Default)]
    pub struct NoDetail {}
}

json_object! {
    /// `aborted`.
    pub struct Aborted {
        /// Who cancelled it.
        reason: AbortReason, required "reason";
    }
}

json_choice! {
    /// Who cancelled a turn.
    pub enum AbortReason by "kind" {
        /// A person.
        User(NoDetail) = "user",
        /// The parent session.
        Parent(NoDetail) = "parent",
        /// A hook.
        Hook(HookAbort) = "hook",
        /// The session was disposed of.
        Disposed(NoDetail) = "disposed",
        /// An old log that does not say.
        Legacy(NoDetail) = "legacy",
    }
}

json_object! {
    /// `hook`.
    pub struct HookAbort {
        /// What the hook said.
        reason: String, required "reason";
    }
}

json_object! {
    /// `error`.
    pub struct Failed {
        /// The failure.
        error: Failure, required "error";
    }
}

json_object! {
    /// What made a turn fail.
    pub struct Failure {
        /// For people.
        message: String, required "message";
        /// For programs.
        code: String, required "code";
        /// HTTP status of the provider.
        status: Option<u64>, optional "status";
        /// How long the provider asks to wait, in milliseconds.
        provider_retry_after_ms: Option<u64>, optional "providerRetryAfterMs";
        /// The provider's request id.
        request_id: Option<String>, optional "requestId";
    }
}

json_object! {
    /// `step/start`.
    pub struct StepStart {
        /// Turn number.
        turn: u64, required "turn";
        /// Step number within the turn, from 1.
        step: u64, required "step";
    }
}

json_object! {
    /// `step/end`.
    pub struct StepEnd {
        /// Turn number.
        turn: u64, required "turn";
        /// Step number.
        step: u64, required "step";
    }
}

json_object! {
    /// `tool/call`: a tool is about to run.
    pub struct ToolCall {
        /// Turn number.
        turn: u64, required "turn";
        /// Step number.
        step: u64, required "step";
        /// Call id.
        call_id: String, required "callId";
        /// Tool name.
        name: String, required "name";
        /// The arguments as the model wrote them: a string that should hold JSON and is never parsed here.
        arguments: String, required "arguments";
    }
}

json_object! {
    /// `todo/write`: the whole list; the last one counts.
    pub struct TodoWrite {
        /// The list.
        todos: Vec<TodoItem>, required "todos";
    }
}

json_object! {
    /// One entry of a todo list.
    pub struct TodoItem {
        /// What to do.
        content: String, required "content";
        /// How far it is.
        status: TodoStatus, required "status";
    }
}

/// How far a todo item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    /// Not begun.
    Pending,
    /// Being worked on.
    InProgress,
    /// Done.
    Completed,
}

json_object! {
    /// `request/header`: the whole header of the next request; the last one counts.
    pub struct RequestHeader {
        /// The header.
        header: HeaderSnapshot, required "header";
        /// Why it was written: `initial`, `resume` or `change`.
        reason: Option<String>, optional "reason";
    }
}

json_object! {
    /// What a request carries beside its messages. Parts that only the application interprets stay raw JSON.
    pub struct HeaderSnapshot {
        /// Call configuration: `provider`, `model` and what else the adapter takes.
        config: JsonText, required "config";
        /// Which configuration members were filled by the adapter.
        adapter_defaults: Option<JsonText>, optional "adapterDefaults";
        /// System prompt.
        system: Option<JsonText>, optional "system";
        /// Tool schemas, in order.
        tools: Option<JsonText>, optional "tools";
    }
}

impl HeaderSnapshot {
    /// A header for `model` of `provider` without system prompt or tools.
    pub fn new(provider: &str, model: &str) -> Self {
        let quoted = super::json::quoted;
        let config = format!("{{\"provider\":{},\"model\":{}}}", quoted(provider), quoted(model));
        Self { config: JsonText::trusted(config), adapter_defaults: None, system: None, tools: None, extra: Vec::new() }
    }

    /// Sets the system prompt.
    pub fn system(mut self, text: &str) -> Self {
        self.system = Some(JsonText::trusted(super::json::quoted(text)));
        self
    }

    /// Sets the tool schemas, a JSON array.
    pub fn tools(mut self, tools: JsonText) -> Self {
        self.tools = Some(tools);
        self
    }
}

json_object! {
    /// `request/context`: the route of the next request and its capacity; the last one counts.
    pub struct RequestContext {
        /// Provider name.
        provider: String, required "provider";
        /// Model name.
        model: String, required "model";
        /// Context window in tokens.
        context_window: Option<u64>, optional "contextWindow";
    }
}

json_object! {
    /// `session/end-seed`: the events before it came from a seed. Written by the session alone.
    #[derive(Default)]
    pub struct EndSeed {}
}

impl TurnStart {
    /// Opens turn `turn`.
    pub fn new(turn: u64) -> Self {
        Self { turn, extra: Vec::new() }
    }
}

impl TurnEnd {
    /// Closes turn `turn` for `reason`.
    pub fn new(turn: u64, reason: TurnEndReason) -> Self {
        Self { turn, reason, extra: Vec::new() }
    }

    /// Closes turn `turn`, which ran to its end.
    pub fn completed(turn: u64) -> Self {
        Self::new(turn, TurnEndReason::Completed(NoDetail::default()))
    }

    /// Closes turn `turn` as crash recovery does.
    pub fn interrupted(turn: u64) -> Self {
        Self::new(turn, TurnEndReason::Interrupted(NoDetail::default()))
    }
}

impl StepStart {
    /// Opens step `step` of turn `turn`.
    pub fn new(turn: u64, step: u64) -> Self {
        Self { turn, step, extra: Vec::new() }
    }
}

impl StepEnd {
    /// Closes step `step` of turn `turn`.
    pub fn new(turn: u64, step: u64) -> Self {
        Self { turn, step, extra: Vec::new() }
    }
}

impl ToolCall {
    /// A call of tool `name` with the arguments as the model wrote them.
    pub fn new(
        turn: u64,
        step: u64,
        call_id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        let (call_id, name, arguments) = (call_id.into(), name.into(), arguments.into());
        Self { turn, step, call_id, name, arguments, extra: Vec::new() }
    }
}

impl TodoWrite {
    /// The whole list.
    pub fn new(todos: impl IntoIterator<Item = (String, TodoStatus)>) -> Self {
        let todos = todos.into_iter().map(|(content, status)| TodoItem { content, status, extra: Vec::new() });
        Self { todos: todos.collect(), extra: Vec::new() }
    }
}

impl RequestHeader {
    /// A header snapshot with its reason (`initial`, `resume` or `change`).
    pub fn new(header: HeaderSnapshot, reason: impl Into<String>) -> Self {
        Self { header, reason: Some(reason.into()), extra: Vec::new() }
    }
}

impl RequestContext {
    /// The route to `model` of `provider`.
    pub fn new(provider: impl Into<String>, model: impl Into<String>, context_window: Option<u64>) -> Self {
        Self { provider: provider.into(), model: model.into(), context_window, extra: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::payload::to_json;

    #[test]
    fn section_3_turn_end_reasons_are_read_and_stay_open() {
        for text in [
            r#"{"turn":1,"reason":{"kind":"completed"}}"#,
            r#"{"turn":1,"reason":{"kind":"aborted","reason":{"kind":"hook","reason":"no"}}}"#,
            r#"{"turn":1,"reason":{"kind":"aborted","reason":{"kind":"new-one","x":1}}}"#,
            r#"{"turn":1,"reason":{"kind":"blocked"}}"#,
            r#"{"turn":1,"reason":{"kind":"error","error":{"message":"m","code":"c","status":429,"requestId":"r"}}}"#,
            r#"{"turn":1,"reason":{"kind":"max-tokens"}}"#,
            r#"{"turn":1,"reason":{"kind":"interrupted"}}"#,
            r#"{"turn":1,"reason":{"kind":"someday","why":[1]}}"#,
        ] {
            let end: TurnEnd = JsonText::parse(text).unwrap().read().unwrap();
            assert_eq!(to_json(&end).unwrap().as_str(), text);
        }
        assert_eq!(
            to_json(&TurnEnd::interrupted(4)).unwrap().as_str(),
            r#"{"turn":4,"reason":{"kind":"interrupted"}}"#
        );
    }

    #[test]
    fn section_3_todos_and_headers() {
        let todo = TodoWrite::new([("a".to_owned(), TodoStatus::InProgress)]);
        assert_eq!(to_json(&todo).unwrap().as_str(), r#"{"todos":[{"content":"a","status":"in_progress"}]}"#);
        let text =
            r#"{"header":{"config":{"model":"x"},"system":"{{system}}","tools":"{{tools}}","messagePrefix":[1]}}"#;
        let header: RequestHeader = JsonText::parse(text).unwrap().read().unwrap();
        assert_eq!(to_json(&header).unwrap().as_str(), text);
    }
}
