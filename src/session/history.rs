//! Derived messages: what the model sees of each event, and the whole history folded from the surface (rules D1, D2).

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::surface::{Change, Spot, SurfaceState};
use super::validator::InvalidEvent;
use crate::event::content::ContentBlock;
use crate::event::message::{ASSISTANT_MESSAGE, TOOL_RESULT, USER_MESSAGE};
use crate::event::{Event, JsonError, JsonText, json};

/// One message of the derived history: the message object of an event, sharing the event's text.
#[derive(Clone, PartialEq, Eq)]
pub struct Message(JsonText);

impl Message {
    /// Reads a message from JSON text, to put a request together for comparison.
    ///
    /// # Errors
    /// [`JsonError`] when the text is not a JSON object.
    pub fn parse(text: &str) -> Result<Self, JsonError> {
        let text = JsonText::parse(text)?;
        Self::of(text).ok_or_else(|| JsonError { detail: "a message is a JSON object; this is another value".into() })
    }

    fn of(text: JsonText) -> Option<Self> {
        let is_object = json::members(text.as_str()).is_some();
        is_object.then_some(Self(text))
    }

    /// The message's exact JSON text.
    pub fn json(&self) -> &JsonText {
        &self.0
    }

    /// The role: `user` or `assistant`. `None` where an old log has none.
    pub fn role(&self) -> Option<Cow<'_, str>> {
        json::member(self.0.as_str(), "role").and_then(json::string)
    }

    /// The message's id, where one is recorded.
    pub fn id(&self) -> Option<Cow<'_, str>> {
        json::member(self.0.as_str(), "id").and_then(json::string)
    }

    /// Where the message comes from: the `source` object.
    pub fn source(&self) -> Option<JsonText> {
        self.0.member("source")
    }

    /// The content blocks as raw JSON, sharing the text.
    pub fn raw_content(&self) -> Vec<JsonText> {
        self.0.member("content").and_then(|content| content.elements()).unwrap_or_default()
    }

    /// The content blocks, typed. A block that does not have the shape of its type is kept verbatim.
    pub fn content(&self) -> Vec<ContentBlock> {
        let block = |text: JsonText| text.read().unwrap_or(ContentBlock::Other(text));
        self.raw_content().into_iter().map(block).collect()
    }

    /// The text of all text blocks, one after the other. Content that is a plain string counts as one text block.
    pub fn text(&self) -> String {
        let content = json::member(self.0.as_str(), "content").unwrap_or_default();
        if let Some(text) = json::string(content) {
            return text.into_owned();
        }
        let blocks = json::elements(content).into_iter().flatten();
        let is_text =
            |block: &&str| json::member(block, "type").and_then(json::string).is_some_and(|kind| kind == "text");
        blocks.filter(is_text).filter_map(|block| json::member(block, "text").and_then(json::string)).collect()
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

/// The message that the model sees of one event (D1); `None` for everything that produces none.
///
/// Pure, and lenient: an event of a surface type without a message object produces no message.
pub fn derive_message(event: &Event) -> Option<Message> {
    match event.event_type() {
        USER_MESSAGE => Message::of(event.json()),
        TOOL_RESULT => Message::of(event.json().member("message")?),
        // An assistant message without content only hosts the step's usage.
        ASSISTANT_MESSAGE => {
            let message = event.json().member("message")?;
            let content = json::member(message.as_str(), "content")?;
            if matches!(content, "[]" | "\"\"" | "null") { None } else { Message::of(message) }
        }
        _ => None,
    }
}

/// A snapshot of the derived history. Cheap to make and to clone; it never grows or changes.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Messages(Arc<Vec<Message>>);

impl Deref for Messages {
    type Target = [Message];

    fn deref(&self) -> &[Message] {
        &self.0
    }
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl FromIterator<Message> for Messages {
    fn from_iter<I: IntoIterator<Item = Message>>(messages: I) -> Self {
        Self(Arc::new(messages.into_iter().collect()))
    }
}

impl From<Vec<Message>> for Messages {
    fn from(messages: Vec<Message>) -> Self {
        Self(Arc::new(messages))
    }
}

impl<'a> IntoIterator for &'a Messages {
    type Item = &'a Message;
    type IntoIter = std::slice::Iter<'a, Message>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The history under construction. Each node is projected once, when it enters the surface; a snapshot that is still held
/// while the history grows makes the next change copy the handles, never the messages.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    /// For each surface node, whether it produces a message.
    produces: Vec<bool>,
    messages: Messages,
}

impl History {
    pub(crate) fn snapshot(&self) -> Messages {
        self.messages.clone()
    }

    /// Follows a change of the surface by `event`.
    pub(crate) fn apply(&mut self, event: &Event, change: Change) {
        let message = derive_message(event);
        let messages = Arc::make_mut(&mut self.messages.0);
        match change.spot {
            Spot::Tail => {
                self.produces.push(message.is_some());
                messages.extend(message);
            }
            Spot::Range { first, last } => {
                let count = |flags: Option<&[bool]>| flags.unwrap_or_default().iter().filter(|flag| **flag).count();
                let from = count(self.produces.get(..first));
                let to = from + count(self.produces.get(first..=last));
                self.produces.splice(first..=last, [message.is_some()]);
                messages.splice(from..to, message);
            }
        }
    }

    /// The history of a surface whose events are at hand, in surface order.
    pub(crate) fn of_nodes<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut history = Self::default();
        for event in events {
            let message = derive_message(event);
            history.produces.push(message.is_some());
            Arc::make_mut(&mut history.messages.0).extend(message);
        }
        history
    }
}

/// Folds a log from seq 0 on into the messages that the model sees (D2), checking it on the way.
///
/// # Errors
/// [`InvalidEvent`] for the first event that the validator refuses.
pub fn fold_messages<'a>(events: impl IntoIterator<Item = &'a Event>) -> Result<Messages, InvalidEvent> {
    let mut surface = SurfaceState::default();
    let mut history = History::default();
    for (event, expected) in events.into_iter().zip(0..) {
        let Some(change) = super::validator::check(event, expected, &surface)? else { continue };
        history.apply(event, change);
        surface.apply(event.seq(), change);
    }
    Ok(history.messages)
}
