//! Streamed deltas: held, joined, searched, and cut apart again.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use compact_str::CompactString;

use super::patterns::Span;
use super::{Redactor, spans};
use crate::event::chunk::ASSISTANT_CHUNK;
use crate::event::control::{STEP_END, STEP_START, TURN_END, TURN_START};
use crate::event::message::ASSISTANT_MESSAGE;
use crate::event::run::{DeltaKind, RunHead};
use crate::event::{Event, Item, JsonText, NewEvent, json};

/// Events in front of which no stream goes on.
const ENDS: [&str; 5] = [ASSISTANT_MESSAGE, STEP_START, STEP_END, TURN_START, TURN_END];

/// What belongs to one stream: kind, turn, step, block index, call id.
type Key = (DeltaKind, u64, u64, u64, Option<CompactString>);

/// Items of a step whose stream has not ended.
pub(super) struct Held {
    items: Vec<Item>,
    bytes: usize,
    /// Most that is held, in bytes.
    limit: usize,
    /// Too much came: until the step ends, deltas lose their text.
    emptying: bool,
    pub(super) emptied: u64,
}

impl Held {
    pub(super) fn new(limit: usize) -> Self {
        Self { items: Vec::new(), bytes: 0, limit, emptying: false, emptied: 0 }
    }
}

/// The text of a stream, and what has to go from it.
#[derive(Default)]
struct Stream {
    text: String,
    cuts: Vec<(Range<usize>, String)>,
    /// How much of the text is given out, and how many cuts are done with.
    given: usize,
    done: usize,
}

/// A delta that is no packed one: its stream, and where its body stands in the event's data.
struct Verbatim {
    key: Key,
    body: Range<usize>,
}

/// Takes the next item; what is ready goes to `ready`.
pub(super) fn take(redactor: &mut Redactor, item: Item, ready: &mut Vec<Item>) {
    let (streamed, ends) = match &item {
        Item::Run(_) => (true, false),
        Item::Event(event) => (event.event_type() == ASSISTANT_CHUNK, ENDS.contains(&event.event_type())),
    };
    if ends {
        release(redactor, ready);
    }
    if redactor.held.emptying {
        empty(redactor, &item, ready);
    } else if streamed || !redactor.held.items.is_empty() {
        redactor.held.bytes += item.weight();
        redactor.held.items.push(item);
        if redactor.held.bytes > redactor.held.limit {
            redactor.held.emptying = true;
            redactor.held.bytes = 0;
            let items = std::mem::take(&mut redactor.held.items);
            items.iter().for_each(|item| empty(redactor, item, ready));
        }
    } else {
        ready.extend(item.events().map(|event| Item::Event(redactor.event(&event))));
    }
}

/// Gives out an item whose deltas lose their text.
fn empty(redactor: &mut Redactor, item: &Item, ready: &mut Vec<Item>) {
    for event in item.events() {
        let event = match (event.as_packed_delta(), verbatim(&event)) {
            (Some((head, _)), _) => {
                redactor.held.emptied += 1;
                let head = clean_head(redactor, head);
                Event::delta(event.seq(), event.time(), head, CompactString::default())
            }
            (None, Some(delta)) => {
                redactor.held.emptied += 1;
                redactor.event(&with_body(&event, &delta.body, ""))
            }
            (None, None) => redactor.event(&event),
        };
        ready.push(Item::Event(event));
    }
}

/// Searches what is held and gives it out.
pub(super) fn release(redactor: &mut Redactor, ready: &mut Vec<Item>) {
    redactor.held.emptying = false;
    redactor.held.bytes = 0;
    let items = std::mem::take(&mut redactor.held.items);
    let mut streams = Streams::default();
    for item in &items {
        streams.join(item);
    }
    for stream in &mut streams.list {
        let spans = spans::find(&redactor.patterns, &stream.text);
        stream.cuts = spans.into_iter().map(|span| label(redactor, &stream.text, span)).collect();
    }
    for item in items {
        let Item::Run(run) = &item else {
            ready.extend(item.events().map(|event| Item::Event(cut(redactor, &event, &mut streams))));
            continue;
        };
        let head = clean_head(redactor, run.head());
        let untouched = streams.of(&key_of(run.head())).is_none_or(|stream| stream.cuts.is_empty());
        if untouched && head == *run.head() {
            ready.push(item);
        } else {
            ready.extend(run.events().map(|event| Item::Event(cut(redactor, &event, &mut streams))));
        }
    }
}

fn label(redactor: &mut Redactor, text: &str, span: Span) -> (Range<usize>, String) {
    let label = redactor.label(span.kind, text.get(span.range.clone()).unwrap_or_default());
    (span.range, label)
}

/// The streams of a step, in order of their first delta.
#[derive(Default)]
struct Streams {
    list: Vec<Stream>,
    places: HashMap<Key, usize>,
}

impl Streams {
    fn of(&mut self, key: &Key) -> Option<&mut Stream> {
        self.places.get(key).and_then(|place| self.list.get_mut(*place))
    }

    /// Adds the item's deltas to their streams.
    fn join(&mut self, item: &Item) {
        let mut add = |key: Key, body: &str| {
            let place = *self.places.entry(key).or_insert_with(|| {
                self.list.push(Stream::default());
                self.list.len() - 1
            });
            if let Some(stream) = self.list.get_mut(place) {
                stream.text.push_str(&spans::said(body));
            }
        };
        match item {
            Item::Run(run) => run.deltas().for_each(|(_, body)| add(key_of(run.head()), body)),
            Item::Event(event) => match (event.as_packed_delta(), verbatim(event)) {
                (Some((head, body)), _) => add(key_of(head), body),
                (None, Some(delta)) => add(delta.key, event.data().get(delta.body).unwrap_or_default()),
                (None, None) => {}
            },
        }
    }
}

/// The event without its secrets, a delta without its part of the stream's.
fn cut(redactor: &mut Redactor, event: &Event, streams: &mut Streams) -> Event {
    if let Some((head, body)) = event.as_packed_delta() {
        let shortened = streams.of(&key_of(head)).and_then(|stream| stream.shorten(body));
        let clean = clean_head(redactor, head);
        let body = shortened.as_deref().unwrap_or(body);
        return Event::delta(event.seq(), event.time(), clean, body.into());
    }
    let Some(delta) = verbatim(event) else { return redactor.event(event) };
    let data = event.data();
    let body = data.get(delta.body.clone()).unwrap_or_default();
    match streams.of(&delta.key).and_then(|stream| stream.shorten(body)) {
        Some(shortened) => redactor.event(&with_body(event, &delta.body, &shortened)),
        None => redactor.event(event),
    }
}

impl Stream {
    /// The stream's next delta without what is cut from it; `None` where nothing is. A cut's label stands where the cut begins.
    fn shorten(&mut self, body: &str) -> Option<String> {
        let start = self.given;
        self.given += spans::said(body).len();
        let mut parts: Vec<Span> = Vec::new();
        let mut labels: Vec<&str> = Vec::new();
        while let Some((range, label)) = self.cuts.get(self.done).filter(|(range, _)| range.start < self.given) {
            let local = range.start.max(start) - start..range.end.min(self.given) - start;
            if !local.is_empty() {
                labels.push(if range.start >= start { label } else { "" });
                parts.push(Span { range: local, kind: "" });
            }
            if range.end > self.given {
                break;
            }
            self.done += 1;
        }
        if parts.is_empty() {
            return None;
        }
        let mut out = String::new();
        let mut from = 0;
        for (span, label) in spans::spelled(body, &parts).into_iter().zip(labels) {
            out.push_str(body.get(from..span.range.start).unwrap_or_default());
            out.push_str(label);
            from = span.range.end;
        }
        out.push_str(body.get(from..).unwrap_or_default());
        Some(out)
    }
}

fn key_of(head: &RunHead) -> Key {
    (head.kind, head.turn, head.step, head.index, head.id.clone())
}

/// The head with its id and name redacted; the same handle where there is nothing to redact.
fn clean_head(redactor: &mut Redactor, head: &Arc<RunHead>) -> Arc<RunHead> {
    let mut body = |body: &Option<CompactString>| -> Option<CompactString> {
        let text = body.as_ref()?;
        let spans = spans::find_in_body(&redactor.patterns, text);
        redactor.cut(text, &spans).map(CompactString::from)
    };
    let (id, name) = (body(&head.id), body(&head.name));
    if id.is_none() && name.is_none() {
        return Arc::clone(head);
    }
    let mut clean = RunHead::clone(head);
    clean.id = id.or(clean.id);
    clean.name = name.or(clean.name);
    Arc::new(clean)
}

/// Takes apart a delta that has members beyond the usual ones, or another spelling.
fn verbatim(event: &Event) -> Option<Verbatim> {
    if event.event_type() != ASSISTANT_CHUNK || event.as_packed_delta().is_some() {
        return None;
    }
    let data = event.data();
    let chunk = json::member(&data, "chunk")?;
    let (kind, text) = match json::member(chunk, "type").and_then(json::string)?.as_ref() {
        "text-delta" => (DeltaKind::Text, "text"),
        "reasoning-delta" => (DeltaKind::Reasoning, "text"),
        "tool-call-delta" => (DeltaKind::ToolCall, "argumentsDelta"),
        _ => return None,
    };
    let number = |object: &str, key| {
        json::member(object, key).and_then(json::integer).and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
    };
    let body = json::member(chunk, text).and_then(json::string_body)?;
    let start = (body.as_ptr() as usize).checked_sub(data.as_ptr() as usize)?;
    let id = json::member(chunk, "id").and_then(json::string_body).map(CompactString::from);
    let key = (kind, number(&data, "turn"), number(&data, "step"), number(chunk, "index"), id);
    Some(Verbatim { key, body: start..start + body.len() })
}

/// The event with another body in its data.
fn with_body(event: &Event, place: &Range<usize>, body: &str) -> Event {
    let data = event.data();
    let (before, behind) = (data.get(..place.start).unwrap_or_default(), data.get(place.end..).unwrap_or_default());
    let mut new = NewEvent::named(event.event_type(), JsonText::trusted(format!("{before}{body}{behind}")));
    new.ignorable = event.ignorable();
    new.placement = event.placement().cloned();
    new.at(event.seq(), event.time())
}
