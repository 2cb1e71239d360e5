//! What of an event is text that somebody said, asked a tool for, or got back from it; decoded, not as JSON spells it.

use clap::ValueEnum;
use serde_json::Value;
use sessionlog::event::content::ContentBlock;
use sessionlog::event::message::{ASSISTANT_MESSAGE, TOOL_RESULT, USER_MESSAGE};
use sessionlog::event::{Event, JsonText};
use sessionlog::session::history::{Message, derive_message};

use super::view::TOOL_CALL;

/// Whose text something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// What the person or a program in their place wrote
    User,
    /// What the model wrote, its reasoning included
    Assistant,
    /// What went into a tool and what came out of it
    Tool,
}

impl Role {
    /// The role of text that stands in an event of this type; of an assistant message that may also be a tool's input.
    pub fn of_type(event_type: &str) -> Option<Self> {
        match event_type {
            USER_MESSAGE => Some(Role::User),
            ASSISTANT_MESSAGE => Some(Role::Assistant),
            TOOL_RESULT | TOOL_CALL => Some(Role::Tool),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

/// A piece of text in an event.
pub struct Piece {
    pub role: Role,
    pub text: String,
}

/// Hands the text pieces of an event to `take`, in order. For events that are no messages and no tool calls that is every string
/// in their payload, as the embedding application's.
pub fn pieces(event: &Event, take: &mut dyn FnMut(Piece)) {
    match (Role::of_type(event.event_type()), derive_message(event)) {
        (Some(role), Some(message)) => message_pieces(&message, role, take),
        (Some(Role::Tool), None) if event.event_type() == TOOL_CALL => {
            let text = |key| event.json().member(key).and_then(|value| value.read::<String>().ok());
            call_pieces(text("name"), text("arguments"), take);
        }
        (Some(_), None) => {}
        (None, _) => strings(event.data().as_ref(), &mut |text| take(Piece { role: Role::User, text })),
    }
}

fn message_pieces(message: &Message, role: Role, take: &mut dyn FnMut(Piece)) {
    let blocks = message.content();
    if blocks.is_empty() {
        take(Piece { role, text: message.text() });
    }
    for block in blocks {
        block_pieces(block, role, take);
    }
}

fn block_pieces(block: ContentBlock, role: Role, take: &mut dyn FnMut(Piece)) {
    match block {
        ContentBlock::Text(block) => take(Piece { role, text: block.text }),
        ContentBlock::Reasoning(block) => take(Piece { role, text: block.text }),
        ContentBlock::ToolCall(block) => call_pieces(Some(block.name), Some(block.arguments), take),
        ContentBlock::ToolResult(block) => {
            for inner in block.content {
                match inner {
                    ContentBlock::Text(inner) => take(Piece { role: Role::Tool, text: inner.text }),
                    ContentBlock::Other(json) => other_pieces(&json, Role::Tool, take),
                    // Results do not nest, and an image holds no text.
                    _ => {}
                }
            }
        }
        ContentBlock::Other(json) => other_pieces(&json, role, take),
        _ => {}
    }
}

fn call_pieces(name: Option<String>, arguments: Option<String>, take: &mut dyn FnMut(Piece)) {
    let mut give = |text| take(Piece { role: Role::Tool, text });
    name.into_iter().for_each(&mut give);
    if let Some(arguments) = arguments {
        strings(&arguments, &mut give);
    }
}

fn other_pieces(json: &JsonText, role: Role, take: &mut dyn FnMut(Piece)) {
    strings(json.as_str(), &mut |text| take(Piece { role, text }));
}

/// Every string value in a JSON text, in order; the text itself where it is none or nests deeper than anything should.
pub fn strings(json: &str, take: &mut dyn FnMut(String)) {
    let Ok(value) = serde_json::from_str::<Value>(json) else { return take(json.to_owned()) };
    let mut pending = vec![value];
    while let Some(value) = pending.pop() {
        match value {
            Value::String(text) => take(text),
            Value::Array(values) => pending.extend(values.into_iter().rev()),
            Value::Object(members) => {
                let first = pending.len();
                pending.extend(members.into_iter().map(|(_, value)| value));
                if let Some(added) = pending.get_mut(first..) {
                    added.reverse();
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_decoded_and_come_in_order() {
        let mut found = Vec::new();
        strings(r#"{"a":"x\ny","b":[1,"z",{"c":"\u00e9"}],"d":null}"#, &mut |text| found.push(text));
        assert_eq!(found, ["x\ny", "z", "\u{e9}"]);
        found.clear();
        strings("ls -la \"x", &mut |text| found.push(text));
        assert_eq!(found, ["ls -la \"x"]);
    }
}
