//! Content blocks of messages, token usage, and where a message comes from.

use super::json::JsonText;
use super::object::{json_choice, json_object};

json_choice! {
    /// One block of a message's content. Open: kinds that this crate does not know are kept verbatim.
    pub enum ContentBlock by "type" {
        /// Text for or from the model.
        Text(TextBlock) = "text",
        /// The model's reasoning.
        Reasoning(ReasoningBlock) = "reasoning",
        /// An image, by reference or inline as the application likes.
        Image(ImageBlock) = "image",
        /// A tool call that the model asks for.
        ToolCall(ToolCallBlock) = "tool-call",
        /// The result of a tool call.
        ToolResult(ToolResultBlock) = "tool-result",
    }
}

json_object! {
    /// A `text` block.
    pub struct TextBlock {
        /// The text.
        text: String, required "text";
    }
}

json_object! {
    /// A `reasoning` block.
    pub struct ReasoningBlock {
        /// The text.
        text: String, required "text";
    }
}

json_object! {
    /// An `image` block.
    pub struct ImageBlock {
        /// The attachment, in the application's own form.
        attachment: JsonText, required "attachment";
    }
}

json_object! {
    /// A `tool-call` block.
    pub struct ToolCallBlock {
        /// Call id, pairing the call with its result.
        id: String, required "id";
        /// Tool name.
        name: String, required "name";
        /// The arguments as the model wrote them: a string that should hold JSON and is never parsed here.
        arguments: String, required "arguments";
    }
}

json_object! {
    /// A `tool-result` block.
    pub struct ToolResultBlock {
        /// The call that is answered.
        tool_call_id: String, required "toolCallId";
        /// The result.
        content: Vec<ContentBlock>, required "content";
        /// Whether the call failed.
        is_error: Option<bool>, optional "isError";
    }
}

impl ContentBlock {
    /// A text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextBlock { text: text.into(), extra: Vec::new() })
    }

    /// A reasoning block.
    pub fn reasoning(text: impl Into<String>) -> Self {
        Self::Reasoning(ReasoningBlock { text: text.into(), extra: Vec::new() })
    }

    /// A tool call block.
    pub fn tool_call(id: impl Into<String>, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        let (id, name, arguments) = (id.into(), name.into(), arguments.into());
        Self::ToolCall(ToolCallBlock { id, name, arguments, extra: Vec::new() })
    }

    /// The text of a text block; `None` for any other block.
    ///
    /// ```
    /// use sessionlog::event::content::ContentBlock;
    ///
    /// let said = [ContentBlock::reasoning("hm"), ContentBlock::text("It is "), ContentBlock::text("done.")];
    /// let answer: String = said.iter().filter_map(ContentBlock::as_text).collect();
    /// assert_eq!(answer, "It is done.");
    /// ```
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(block) => Some(&block.text),
            _ => None,
        }
    }
}

json_object! {
    /// Token counts of one model call; the counts are disjoint.
    pub struct TokenUsage {
        /// Tokens read from the request, cached ones not counted.
        input_tokens: u64, required "inputTokens";
        /// Tokens written, reasoning not counted.
        output_tokens: u64, required "outputTokens";
        /// Tokens read from a cache.
        cache_read_tokens: Option<u64>, optional "cacheReadTokens";
        /// Tokens written to a cache.
        cache_write_tokens: Option<u64>, optional "cacheWriteTokens";
        /// Tokens spent on reasoning.
        reasoning_tokens: Option<u64>, optional "reasoningTokens";
    }
}

impl TokenUsage {
    /// Counts without cache or reasoning parts.
    pub fn new(input_tokens: u64, output_tokens: u64) -> Self {
        Self {
            input_tokens,
            output_tokens,
            cache_read_tokens: None,
            cache_write_tokens: None,
            reasoning_tokens: None,
            extra: Vec::new(),
        }
    }

    /// Adds another call's counts, saturating; extra members of `other` are left out.
    pub fn add(&mut self, other: &TokenUsage) {
        fn sum(left: Option<u64>, right: Option<u64>) -> Option<u64> {
            match (left, right) {
                (None, None) => None,
                _ => Some(left.unwrap_or(0).saturating_add(right.unwrap_or(0))),
            }
        }
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cache_read_tokens = sum(self.cache_read_tokens, other.cache_read_tokens);
        self.cache_write_tokens = sum(self.cache_write_tokens, other.cache_write_tokens);
        self.reasoning_tokens = sum(self.reasoning_tokens, other.reasoning_tokens);
    }
}

json_object! {
    /// Where a message comes from; `kind` decides what else is there (`user`, `plugin`, ..).
    pub struct Source {
        /// The kind.
        kind: String, required "kind";
    }
}

impl Source {
    /// A source of `kind` without further members.
    pub fn new(kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), extra: Vec::new() }
    }
}

json_object! {
    /// The source of an assistant message: the model that wrote it.
    pub struct ModelSource {
        /// Provider name.
        provider: String, required "provider";
        /// Model name.
        model: String, required "model";
        /// What the adapter needs to replay the message to the same provider.
        replay_state: Option<JsonText>, optional "replayState";
        => fixed "kind" = "model";
    }
}

impl ModelSource {
    /// The model `model` of `provider`.
    pub fn new(provider: impl Into<String>, model: impl Into<String>) -> Self {
        Self { provider: provider.into(), model: model.into(), replay_state: None, extra: Vec::new() }
    }
}

json_object! {
    /// The source of a tool result: the call that it answers.
    pub struct ToolSource {
        /// The call's id.
        call_id: String, required "callId";
        => fixed "kind" = "tool";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_nesting_is_refused_by_the_typed_view_and_kept_as_text() {
        let open = r#"{"type":"tool-result","toolCallId":"c","content":["#;
        let text = open.repeat(2_000) + &"]}".repeat(2_000);
        let json = JsonText::parse(&text).unwrap();
        assert!(json.read::<ContentBlock>().unwrap_err().detail.contains("nested deeper"));
        let shallow = JsonText::parse(&(open.repeat(20) + &"]}".repeat(20))).unwrap();
        json.read::<ContentBlock>().unwrap_err();
        shallow.read::<ContentBlock>().unwrap();
    }
}
