//! The three surface payloads: `user/message`, `assistant/message`, `tool/result`.

use super::content::{ContentBlock, ModelSource, Source, TokenUsage, ToolResultBlock, ToolSource};
use super::json::JsonText;
use super::object::json_object;
use super::payload::{Payload, SurfacePayload, sealed::Sealed};

/// Type name of [`UserMessage`] events.
pub const USER_MESSAGE: &str = "user/message";
/// Type name of [`AssistantMessage`] events.
pub const ASSISTANT_MESSAGE: &str = "assistant/message";
/// Type name of [`ToolResult`] events.
pub const TOOL_RESULT: &str = "tool/result";

json_object! {
    /// `user/message`: a user-role message, from a person or injected by the application; `source` tells them apart.
    pub struct UserMessage {
        /// Message id; an empty one is filled from the session's id source when the event is appended.
        id: String, required "id";
        /// Content.
        content: Vec<ContentBlock>, required "content";
        /// Where it comes from.
        source: Source, required "source";
        => fixed "role" = "user";
    }
}

impl UserMessage {
    /// A person's message of one text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(vec![ContentBlock::text(text)], Source::new("user"))
    }

    /// A message with this content from this source.
    pub fn new(content: Vec<ContentBlock>, source: Source) -> Self {
        Self { id: String::new(), content, source, extra: Vec::new() }
    }
}

json_object! {
    /// The message inside an `assistant/message` event.
    pub struct AssistantContent {
        /// Message id, where one is recorded.
        id: Option<String>, optional "id";
        /// Content.
        content: Vec<ContentBlock>, required "content";
        /// The model that wrote it.
        source: ModelSource, required "source";
        => fixed "role" = "assistant";
    }
}

json_object! {
    /// `assistant/message`: the assembled message of one step.
    pub struct AssistantMessage {
        /// Turn number.
        turn: u64, required "turn";
        /// Step number.
        step: u64, required "step";
        /// The message.
        message: AssistantContent, required "message";
        /// Token counts of the step, where the adapter reported them.
        usage: Option<TokenUsage>, optional "usage";
        /// `true` on the delivered prefix of a message whose turn was cancelled while it streamed.
        interrupted: Option<bool>, optional "interrupted";
    }
}

impl AssistantMessage {
    /// The message of step `step` in turn `turn`.
    pub fn new(turn: u64, step: u64, content: Vec<ContentBlock>, source: ModelSource) -> Self {
        let message = AssistantContent { id: Some(String::new()), content, source, extra: Vec::new() };
        Self { turn, step, message, usage: None, interrupted: None, extra: Vec::new() }
    }

    /// Adds the step's token counts.
    pub fn usage(mut self, usage: TokenUsage) -> Self {
        self.usage = Some(usage);
        self
    }
}

json_object! {
    /// The message inside a `tool/result` event; its content is exactly one `tool-result` block.
    pub struct ToolResultMessage {
        /// Message id, where one is recorded.
        id: Option<String>, optional "id";
        /// Content: one [`ContentBlock::ToolResult`].
        content: Vec<ContentBlock>, required "content";
        /// The call that is answered.
        source: ToolSource, required "source";
        => fixed "role" = "user";
    }
}

json_object! {
    /// Identity of an internal failure behind a tool result.
    pub struct ToolError {
        /// Error name.
        name: String, required "name";
        /// Error code.
        code: String, required "code";
    }
}

json_object! {
    /// `tool/result`: the result of one tool call.
    pub struct ToolResult {
        /// Turn number.
        turn: u64, required "turn";
        /// Step number.
        step: u64, required "step";
        /// The message.
        message: ToolResultMessage, required "message";
        /// Identity of an internal failure.
        error: Option<ToolError>, optional "error";
        /// The tool's own presentation data, opaque to everyone else.
        meta: Option<JsonText>, optional "meta";
    }
}

impl ToolResult {
    /// A successful result of one text block.
    pub fn text(turn: u64, step: u64, call_id: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(turn, step, call_id, vec![ContentBlock::text(text)])
    }

    /// A successful result with this content.
    pub fn new(turn: u64, step: u64, call_id: impl Into<String>, content: Vec<ContentBlock>) -> Self {
        let call_id = call_id.into();
        let block =
            ToolResultBlock { tool_call_id: call_id.clone(), content, is_error: Some(false), extra: Vec::new() };
        let message = ToolResultMessage {
            id: Some(String::new()),
            content: vec![ContentBlock::ToolResult(block)],
            source: ToolSource { call_id, extra: Vec::new() },
            extra: Vec::new(),
        };
        Self { turn, step, message, error: None, meta: None, extra: Vec::new() }
    }

    /// Marks the result as a failure of this identity.
    pub fn failed(mut self, name: impl Into<String>, code: impl Into<String>) -> Self {
        for block in &mut self.message.content {
            if let ContentBlock::ToolResult(block) = block {
                block.is_error = Some(true);
            }
        }
        self.error = Some(ToolError { name: name.into(), code: code.into(), extra: Vec::new() });
        self
    }
}

fn fill(id: &mut String, next_id: &mut dyn FnMut() -> String) {
    if id.is_empty() {
        *id = next_id();
    }
}

impl Payload for UserMessage {
    const TYPE: &'static str = USER_MESSAGE;

    fn fill_ids(&mut self, next_id: &mut dyn FnMut() -> String) {
        fill(&mut self.id, next_id);
    }
}

impl Payload for AssistantMessage {
    const TYPE: &'static str = ASSISTANT_MESSAGE;

    fn fill_ids(&mut self, next_id: &mut dyn FnMut() -> String) {
        if let Some(id) = &mut self.message.id {
            fill(id, next_id);
        }
    }
}

impl Payload for ToolResult {
    const TYPE: &'static str = TOOL_RESULT;

    fn fill_ids(&mut self, next_id: &mut dyn FnMut() -> String) {
        if let Some(id) = &mut self.message.id {
            fill(id, next_id);
        }
    }
}

impl Sealed for UserMessage {}
impl Sealed for AssistantMessage {}
impl Sealed for ToolResult {}
impl SurfacePayload for UserMessage {}
impl SurfacePayload for AssistantMessage {}
impl SurfacePayload for ToolResult {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::payload::to_json;

    fn same<T: Payload + std::fmt::Debug>(text: &str) -> T {
        let payload: T = JsonText::parse(text).unwrap().read().unwrap();
        assert_eq!(to_json(&payload).unwrap().as_str(), text);
        payload
    }

    #[test]
    fn section_3_typed_messages_keep_unknown_members_and_unknown_blocks() {
        let user: UserMessage = same(
            r#"{"role":"user","id":"m","content":[{"type":"text","text":"a","cache":1.50},{"type":"audio","b":[1e5]}],"source":{"kind":"plugin","plugin":"p"},"zz":null}"#,
        );
        assert!(matches!(user.content[1], ContentBlock::Other(_)));
        assert_eq!(user.source.extra[0].0, "plugin");
        let assistant: AssistantMessage = same(
            r#"{"turn":1,"step":2,"message":{"role":"assistant","id":"m","content":[{"type":"tool-call","id":"c","name":"n","arguments":"{"}],"source":{"kind":"model","provider":"p","model":"m","replayState":{"x":[1]}}},"usage":{"inputTokens":1,"outputTokens":2,"reasoningTokens":3,"other":4},"interrupted":true}"#,
        );
        assert_eq!(assistant.usage.unwrap().reasoning_tokens, Some(3));
        same::<ToolResult>(
            r#"{"turn":1,"step":2,"message":{"role":"user","id":"m","content":[{"type":"tool-result","toolCallId":"c","content":[{"type":"image","attachment":{"id":9}}],"isError":true}],"source":{"kind":"tool","callId":"c"}},"error":{"name":"E","code":"X"},"meta":{"a":1}}"#,
        );
    }

    #[test]
    fn a_message_of_the_wrong_role_is_not_read_as_this_one() {
        let text = r#"{"role":"assistant","id":"m","content":[],"source":{"kind":"user"}}"#;
        assert!(JsonText::parse(text).unwrap().read::<UserMessage>().is_err());
    }
}
