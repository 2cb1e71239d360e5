//! The model request as a pure function of the log: header in force plus messages (rules D3, D4).

use std::borrow::Cow;
use std::collections::HashMap;

use super::difference::{self, Difference};
use super::history::{Message, Messages};
use crate::event::control::{HeaderSnapshot, REQUEST_HEADER};
use crate::event::{Event, JsonText, json};

/// A request header in canonical form (D3): an empty system prompt, an empty tool list and adapter defaults without a true
/// one are absent.
#[derive(Debug, Clone)]
pub struct RequestHead {
    config: Option<JsonText>,
    adapter_defaults: Option<JsonText>,
    system: Option<JsonText>,
    tools: Option<JsonText>,
    extra: Vec<(String, JsonText)>,
}

/// Members of a header snapshot that have a field of their own.
const NAMED: [&str; 4] = ["config", "adapterDefaults", "system", "tools"];

impl RequestHead {
    /// The canonical header of a `request/header` event; `None` for other events and for one without a header object.
    pub fn of(event: &Event) -> Option<Self> {
        if event.event_type() != REQUEST_HEADER {
            return None;
        }
        Self::of_snapshot(&event.json().member("header")?)
    }

    /// The canonical form of a typed snapshot: what an agent that is about to send a request compares with the header in force, to
    /// log one only where it changes.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use sessionlog::event::SessionHeader;
    /// use sessionlog::event::control::{HeaderSnapshot, RequestHeader};
    /// use sessionlog::session::{RequestHead, Session, SessionOptions};
    ///
    /// let session = Session::create(SessionHeader::new("s"), SessionOptions::new())?;
    /// for (system, reason) in [("be brief", "initial"), ("be brief", "change"), ("be thorough", "change")] {
    ///     let header = HeaderSnapshot::new("provider", "model").system(system);
    ///     if session.request_header() != Some(RequestHead::of_typed(&header)?) {
    ///         session.append(RequestHeader::new(header, reason))?;
    ///     }
    /// }
    /// assert_eq!(session.next_seq(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`crate::event::payload::PayloadError`] when an extra member of it cannot be written as JSON.
    pub fn of_typed(header: &HeaderSnapshot) -> Result<Self, crate::event::payload::PayloadError> {
        let text = crate::event::payload::to_json(header)?;
        let empty = Self { config: None, adapter_defaults: None, system: None, tools: None, extra: Vec::new() };
        Ok(Self::of_snapshot(&text).unwrap_or(empty))
    }

    /// The canonical form of a header object; `None` if `snapshot` is no object.
    pub fn of_snapshot(snapshot: &JsonText) -> Option<Self> {
        let members = last_members(snapshot.as_str())?;
        let own = |key: &str| members.iter().find(|(name, _)| name == key).and_then(|(_, value)| snapshot.share(value));
        let unknown = members.iter().filter(|(key, _)| !NAMED.contains(&key.as_ref()));
        let extra = unknown.filter_map(|(key, value)| Some((key.to_string(), snapshot.share(value)?))).collect();
        let kept = |key: &str, empty: &[&str]| own(key).filter(|value| !empty.contains(&value.as_str()));
        Some(Self {
            config: own("config"),
            adapter_defaults: own("adapterDefaults").and_then(|defaults| true_members(&defaults)),
            system: kept("system", &["\"\"", "null", "[]"]),
            tools: kept("tools", &["[]", "null"]),
            extra,
        })
    }

    /// The call configuration: `provider`, `model` and what else the adapter takes.
    pub fn config(&self) -> Option<&JsonText> {
        self.config.as_ref()
    }

    /// Which configuration members the adapter filled: an object of `true`s.
    pub fn adapter_defaults(&self) -> Option<&JsonText> {
        self.adapter_defaults.as_ref()
    }

    /// The system prompt.
    pub fn system(&self) -> Option<&JsonText> {
        self.system.as_ref()
    }

    /// The tool schemas, in order.
    pub fn tools(&self) -> Option<&JsonText> {
        self.tools.as_ref()
    }

    /// Members that this crate does not know, in order.
    pub fn extra(&self) -> &[(String, JsonText)] {
        &self.extra
    }

    /// The provider's name, if the configuration has one.
    pub fn provider(&self) -> Option<String> {
        self.config_text("provider")
    }

    /// The model's name, if the configuration has one.
    pub fn model(&self) -> Option<String> {
        self.config_text("model")
    }

    fn config_text(&self, key: &str) -> Option<String> {
        json::member(self.config.as_ref()?.as_str(), key).and_then(json::string).map(String::from)
    }

    fn fields(&self) -> [(&'static str, Option<&str>); 4] {
        [
            ("config", self.config.as_ref().map(JsonText::as_str)),
            ("adapterDefaults", self.adapter_defaults.as_ref().map(JsonText::as_str)),
            ("system", self.system.as_ref().map(JsonText::as_str)),
            ("tools", self.tools.as_ref().map(JsonText::as_str)),
        ]
    }

    /// The header as one JSON object, absent fields left out.
    pub fn to_json(&self) -> JsonText {
        let named = self.fields().into_iter().filter_map(|(key, value)| Some((key, value?)));
        let extra = self.extra.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        JsonText::trusted(object(named.chain(extra)))
    }

    /// The first field in which `self` and `other` differ, compared field by field and by value.
    fn first_difference(&self, other: &Self) -> Option<Difference> {
        for ((key, left), (_, right)) in self.fields().into_iter().zip(other.fields()) {
            if let Some(found) = optional_difference(&format!("header.{key}"), left, right) {
                return Some(found);
            }
        }
        let extra = |head: &Self| object(head.extra.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        difference::first_difference("header", &extra(self), &extra(other))
    }
}

/// Field by field and by value; tool schemas in order.
impl PartialEq for RequestHead {
    fn eq(&self, other: &Self) -> bool {
        self.first_difference(other).is_none()
    }
}

impl Eq for RequestHead {}

/// `defaults` with its true members alone; `None` if there is none.
fn true_members(defaults: &JsonText) -> Option<JsonText> {
    let members = last_members(defaults.as_str())?;
    let total = json::members(defaults.as_str())?.count();
    let kept: Vec<_> = members.iter().filter(|(_, value)| *value == "true").collect();
    if kept.is_empty() {
        return None;
    }
    if kept.len() == total {
        return Some(defaults.clone());
    }
    Some(JsonText::trusted(object(kept.into_iter().map(|(key, value)| (key.as_ref(), *value)))))
}

/// An object's members in order of their keys' first mention, of duplicates the last value; `None` if `text` is no object.
fn last_members(text: &str) -> Option<Vec<(Cow<'_, str>, &str)>> {
    let mut places: HashMap<Cow<'_, str>, usize> = HashMap::new();
    let mut members: Vec<(Cow<'_, str>, &str)> = Vec::new();
    for (key, value) in json::members(text)? {
        let place = *places.entry(key.clone()).or_insert(members.len());
        match members.get_mut(place) {
            Some((_, earlier)) => *earlier = value,
            None => members.push((key, value)),
        }
    }
    Some(members)
}

/// A JSON object of ready values.
pub(crate) fn object<'a>(members: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut out = String::from("{");
    for (key, value) in members {
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(&json::quoted(key));
        out.push(':');
        out.push_str(value);
    }
    out.push('}');
    out
}

fn optional_difference(path: &str, left: Option<&str>, right: Option<&str>) -> Option<Difference> {
    match (left, right) {
        (None, None) => None,
        (Some(left), Some(right)) => difference::first_difference(path, left, right),
        _ => Some(Difference::new(path, left, right)),
    }
}

/// The header in force after the last of `events` (D3): the last snapshot in canonical form.
pub fn fold_request_header<'a>(events: impl IntoIterator<Item = &'a Event>) -> Option<RequestHead> {
    events.into_iter().filter_map(RequestHead::of).last()
}

/// All that a model request is made of, and all that the model sees.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// The header in force; `None` before the first one.
    pub header: Option<RequestHead>,
    /// The messages, in order.
    pub messages: Messages,
}

impl Request {
    /// Puts together a request that is about to be sent, to compare it with the log's.
    pub fn new(header: Option<RequestHead>, messages: impl IntoIterator<Item = Message>) -> Self {
        Self { header, messages: messages.into_iter().collect() }
    }

    /// The request as one JSON object with members `header` (if there is one) and `messages`.
    pub fn to_json(&self) -> JsonText {
        let header = self.header.as_ref().map(RequestHead::to_json);
        let mut messages = String::from("[");
        for (index, message) in self.messages.iter().enumerate() {
            if index > 0 {
                messages.push(',');
            }
            messages.push_str(message.json().as_str());
        }
        messages.push(']');
        let header = header.iter().map(|header| ("header", header.as_str()));
        JsonText::trusted(object(header.chain([("messages", messages.as_str())])))
    }

    /// Compares the log's request (`self`) with one about to be sent (D4), by value.
    ///
    /// # Errors
    /// [`ModelVisibleError`] naming the first difference.
    pub fn assert_same(&self, sent: &Request) -> Result<(), ModelVisibleError> {
        self.first_difference(sent).map_or(Ok(()), |difference| Err(ModelVisibleError { difference }))
    }

    fn first_difference(&self, sent: &Request) -> Option<Difference> {
        let header = match (&self.header, &sent.header) {
            (Some(left), Some(right)) => left.first_difference(right),
            (None, None) => None,
            (left, right) => {
                let text = |head: &Option<RequestHead>| head.as_ref().map(RequestHead::to_json);
                let (left, right) = (text(left), text(right));
                let shown = |text: &Option<JsonText>| text.as_ref().map(|text| text.as_str().to_owned());
                Some(Difference::new("header", shown(&left).as_deref(), shown(&right).as_deref()))
            }
        };
        header.or_else(|| {
            let count = self.messages.len().max(sent.messages.len());
            (0..count).find_map(|index| {
                let text = |request: &Self| request.messages.get(index).map(|message| message.json().clone());
                let (left, right) = (text(self), text(sent));
                let (left, right) = (left.as_ref().map(JsonText::as_str), right.as_ref().map(JsonText::as_str));
                optional_difference(&format!("messages[{index}]"), left, right)
            })
        })
    }
}

/// What is about to be sent is not what the log says the model sees.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the request differs from the log at {}: the log has {}, the request has {}",
    difference.path, shown(difference.left.as_deref()), shown(difference.right.as_deref())
)]
pub struct ModelVisibleError {
    /// The first difference; `left` is the log's value, `right` the request's.
    pub difference: Difference,
}

fn shown(value: Option<&str>) -> &str {
    value.unwrap_or("nothing")
}
