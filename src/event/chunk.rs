//! `assistant/chunk`: what streams in from the model, token by token.

use super::content::{ContentBlock, TokenUsage};
use super::json::JsonText;
use super::object::{json_choice, json_object};
use super::payload::{LogPayload, Payload};
use super::run::DeltaKind;

/// Type name of [`AssistantChunk`] events.
pub const ASSISTANT_CHUNK: &str = "assistant/chunk";

json_object! {
    /// `assistant/chunk`: one chunk of the stream of step `step` in turn `turn`.
    pub struct AssistantChunk {
        /// Turn number.
        turn: u64, required "turn";
        /// Step number.
        step: u64, required "step";
        /// The chunk.
        chunk: StreamChunk, required "chunk";
    }
}

json_choice! {
    /// One chunk of a model's stream. Open: kinds that this crate does not know are kept verbatim.
    pub enum StreamChunk by "type" {
        /// A block begins.
        BlockStart(BlockStart) = "block-start",
        /// Text of a text block.
        TextDelta(TextDelta) = "text-delta",
        /// Text of a reasoning block.
        ReasoningDelta(TextDelta) = "reasoning-delta",
        /// A piece of a tool call's arguments.
        ToolCallDelta(ToolCallDelta) = "tool-call-delta",
        /// A block is complete.
        BlockEnd(BlockEnd) = "block-end",
        /// Token counts of the step.
        Usage(UsageChunk) = "usage",
        /// The stream ended.
        Finish(Finish) = "finish",
    }
}

json_object! {
    /// `block-start`.
    pub struct BlockStart {
        /// Block index within the message.
        index: u64, required "index";
        /// Kind of the block, such as `text`.
        block_type: String, required "blockType";
    }
}

json_object! {
    /// `text-delta` or `reasoning-delta`.
    pub struct TextDelta {
        /// Block index within the message.
        index: u64, required "index";
        /// The text.
        text: String, required "text";
    }
}

json_object! {
    /// `tool-call-delta`.
    pub struct ToolCallDelta {
        /// Block index within the message.
        index: u64, required "index";
        /// Call id.
        id: String, required "id";
        /// Tool name, where the provider repeats it.
        name: Option<String>, optional "name";
        /// The next piece of the arguments' text.
        arguments_delta: String, required "argumentsDelta";
    }
}

json_object! {
    /// `block-end`, with the assembled block.
    pub struct BlockEnd {
        /// Block index within the message.
        index: u64, required "index";
        /// The block.
        block: ContentBlock, required "block";
    }
}

json_object! {
    /// `usage`.
    pub struct UsageChunk {
        /// The counts.
        usage: TokenUsage, required "usage";
    }
}

json_object! {
    /// `finish`.
    pub struct Finish {
        /// Why the stream ended, in the adapter's form.
        reason: JsonText, required "reason";
        /// What the adapter needs to replay the message.
        replay_state: Option<JsonText>, optional "replayState";
    }
}

impl Payload for AssistantChunk {
    const TYPE: &'static str = ASSISTANT_CHUNK;

    fn as_delta(&self) -> Option<Delta<'_>> {
        let (kind, index, id, name, text, extra) = match &self.chunk {
            StreamChunk::TextDelta(delta) => (DeltaKind::Text, delta.index, None, None, &delta.text, &delta.extra),
            StreamChunk::ReasoningDelta(delta) => {
                (DeltaKind::Reasoning, delta.index, None, None, &delta.text, &delta.extra)
            }
            StreamChunk::ToolCallDelta(delta) => (
                DeltaKind::ToolCall,
                delta.index,
                Some(delta.id.as_str()),
                delta.name.as_deref(),
                &delta.arguments_delta,
                &delta.extra,
            ),
            _ => return None,
        };
        let plain = extra.is_empty() && self.extra.is_empty();
        plain.then_some(Delta { kind, turn: self.turn, step: self.step, index, id, name, text })
    }

    fn of_delta(delta: &Delta<'_>) -> Option<Self> {
        let (index, text, extra) = (delta.index, delta.text.to_owned(), Vec::new());
        let chunk = match delta.kind {
            DeltaKind::Text => StreamChunk::TextDelta(TextDelta { index, text, extra }),
            DeltaKind::Reasoning => StreamChunk::ReasoningDelta(TextDelta { index, text, extra }),
            DeltaKind::ToolCall => StreamChunk::ToolCallDelta(ToolCallDelta {
                index,
                id: delta.id?.to_owned(),
                name: delta.name.map(str::to_owned),
                arguments_delta: text,
                extra,
            }),
        };
        Some(Self::new(delta.turn, delta.step, chunk))
    }
}

impl LogPayload for AssistantChunk {}

/// A streamed delta with decoded text, on its way into a run without passing through JSON.
#[derive(Debug, Clone, Copy)]
#[doc(hidden)]
pub struct Delta<'a> {
    pub kind: DeltaKind,
    pub turn: u64,
    pub step: u64,
    pub index: u64,
    pub id: Option<&'a str>,
    pub name: Option<&'a str>,
    pub text: &'a str,
}

impl AssistantChunk {
    /// A chunk of step `step` in turn `turn`.
    pub fn new(turn: u64, step: u64, chunk: StreamChunk) -> Self {
        Self { turn, step, chunk, extra: Vec::new() }
    }

    /// A piece of text of block `index`.
    pub fn text(turn: u64, step: u64, index: u64, text: impl Into<String>) -> Self {
        Self::new(turn, step, StreamChunk::TextDelta(TextDelta { index, text: text.into(), extra: Vec::new() }))
    }

    /// A piece of reasoning of block `index`.
    pub fn reasoning(turn: u64, step: u64, index: u64, text: impl Into<String>) -> Self {
        Self::new(turn, step, StreamChunk::ReasoningDelta(TextDelta { index, text: text.into(), extra: Vec::new() }))
    }

    /// A piece of the arguments of tool call `id` in block `index`.
    pub fn tool_call(turn: u64, step: u64, index: u64, id: impl Into<String>, arguments: impl Into<String>) -> Self {
        let delta =
            ToolCallDelta { index, id: id.into(), name: None, arguments_delta: arguments.into(), extra: Vec::new() };
        Self::new(turn, step, StreamChunk::ToolCallDelta(delta))
    }

    /// The start of block `index`.
    pub fn block_start(turn: u64, step: u64, index: u64, block_type: impl Into<String>) -> Self {
        let block_type = block_type.into();
        Self::new(turn, step, StreamChunk::BlockStart(BlockStart { index, block_type, extra: Vec::new() }))
    }

    /// The end of block `index`.
    pub fn block_end(turn: u64, step: u64, index: u64, block: ContentBlock) -> Self {
        Self::new(turn, step, StreamChunk::BlockEnd(BlockEnd { index, block, extra: Vec::new() }))
    }

    /// The step's token counts.
    pub fn usage(turn: u64, step: u64, usage: TokenUsage) -> Self {
        Self::new(turn, step, StreamChunk::Usage(UsageChunk { usage, extra: Vec::new() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::payload::to_json;

    #[test]
    fn a_streamed_delta_is_the_chunk_that_its_json_reads_as() {
        for event in crate::sample::Recording::new(12).events(3_000).iter() {
            let Some(chunk) = event.payload::<AssistantChunk>().unwrap() else { continue };
            assert_eq!(chunk, event.json().read::<AssistantChunk>().unwrap());
        }
        let body = r#"a\"\u0001\ud83d\ude80\/\\"#;
        for (kind, id, name) in [
            (DeltaKind::Reasoning, None, None),
            (DeltaKind::ToolCall, Some(r"c\n1"), None),
            (DeltaKind::ToolCall, Some("c"), Some(r#"b\"sh"#)),
        ] {
            let (id, name) = (id.map(Into::into), name.map(Into::into));
            let head = crate::event::run::RunHead { kind, turn: 1, step: 2, index: 3, id, name };
            let event = crate::event::Event::delta(0, 0, head.into(), body.into());
            let chunk = event.payload::<AssistantChunk>().unwrap().unwrap();
            assert_eq!(chunk, event.json().read::<AssistantChunk>().unwrap());
        }
    }

    #[test]
    fn section_3_every_chunk_is_read_and_written_as_it_was() {
        for chunk in [
            r#"{"type":"block-start","index":0,"blockType":"text"}"#,
            r#"{"type":"text-delta","index":0,"text":"a"}"#,
            r#"{"type":"reasoning-delta","index":0,"text":"a","x":1}"#,
            r#"{"type":"tool-call-delta","index":0,"id":"c","name":"n","argumentsDelta":"{"}"#,
            r#"{"type":"block-end","index":0,"block":{"type":"text","text":"a"}}"#,
            r#"{"type":"usage","usage":{"inputTokens":1,"outputTokens":2}}"#,
            r#"{"type":"finish","reason":{"kind":"stop"},"replayState":[1]}"#,
            r#"{"type":"citation","x":1.0}"#,
        ] {
            let text = format!(r#"{{"turn":1,"step":2,"chunk":{chunk}}}"#);
            let typed: AssistantChunk = JsonText::parse(&text).unwrap().read().unwrap();
            assert_eq!(to_json(&typed).unwrap().as_str(), text);
        }
    }

    #[test]
    fn p2_only_plain_deltas_take_the_short_way() {
        assert!(AssistantChunk::text(1, 1, 0, "a").as_delta().is_some());
        assert!(AssistantChunk::block_start(1, 1, 0, "text").as_delta().is_none());
        let text = r#"{"turn":1,"step":2,"chunk":{"type":"text-delta","index":0,"text":"a","x":1}}"#;
        let typed: AssistantChunk = JsonText::parse(text).unwrap().read().unwrap();
        assert!(typed.as_delta().is_none());
    }
}
