//! Packed runs of streamed deltas (semantics section 10): what a run is, how it grows, and how it comes apart again.
//!
//! A run keeps, for consecutive `assistant/chunk` deltas of one block, one head, the time gaps, the text lengths and the text
//! itself. The text is kept as it stands between the quotes of the JSON string, escapes included, so unpacking gives the
//! very bytes that were packed and nothing has to be proved by decoding.

use std::sync::Arc;

use compact_str::CompactString;

use super::Event;
use super::chunk::Delta;
use super::json;
use super::limits::{MAX_RUN_BYTES, MAX_RUN_EVENTS, MAX_SAFE_INTEGER, is_safe};

/// Which kind of delta a run holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeltaKind {
    /// `text-delta`, packed as a `text-chunks` row.
    Text,
    /// `reasoning-delta`, packed as a `reasoning-chunks` row.
    Reasoning,
    /// `tool-call-delta`, packed as a `tool-call-chunks` row.
    ToolCall,
}

impl DeltaKind {
    /// The kind's number in stored forms.
    pub(crate) fn code(self) -> u8 {
        match self {
            DeltaKind::Text => 0,
            DeltaKind::Reasoning => 1,
            DeltaKind::ToolCall => 2,
        }
    }

    fn of_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(DeltaKind::Text),
            1 => Some(DeltaKind::Reasoning),
            2 => Some(DeltaKind::ToolCall),
            _ => None,
        }
    }
}

/// What follows the text in a delta's `data`.
pub(crate) const DATA_END: &str = "\"}}";

/// What all deltas of a run share. `id` and `name` are string bodies (escapes kept) of a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RunHead {
    /// Kind of delta.
    pub kind: DeltaKind,
    /// Turn number.
    pub turn: u64,
    /// Step number.
    pub step: u64,
    /// Block index.
    pub index: u64,
    /// Call id, exactly on tool-call deltas.
    pub id: Option<CompactString>,
    /// Tool name, on tool-call deltas that carry one.
    pub name: Option<CompactString>,
}

impl RunHead {
    /// The `data` text of the delta with string body `body`.
    pub(crate) fn data(&self, body: &str) -> String {
        let mut out = String::with_capacity(body.len() + 96);
        self.write_data(body, &mut out);
        out
    }

    pub(crate) fn write_data(&self, body: &str, out: &mut String) {
        let mut number = itoa::Buffer::new();
        out.push_str("{\"turn\":");
        out.push_str(number.format(self.turn));
        out.push_str(",\"step\":");
        out.push_str(number.format(self.step));
        out.push_str(",\"chunk\":{\"type\":\"");
        out.push_str(match self.kind {
            DeltaKind::Text => "text-delta",
            DeltaKind::Reasoning => "reasoning-delta",
            DeltaKind::ToolCall => "tool-call-delta",
        });
        out.push_str("\",\"index\":");
        out.push_str(number.format(self.index));
        for (key, value) in [(",\"id\":\"", &self.id), (",\"name\":\"", &self.name)] {
            if let Some(value) = value {
                out.push_str(key);
                out.push_str(value);
                out.push('"');
            }
        }
        out.push_str(match self.kind {
            DeltaKind::ToolCall => ",\"argumentsDelta\":\"",
            _ => ",\"text\":\"",
        });
        out.push_str(body);
        out.push_str(DATA_END);
    }

    /// Shows `take` the delta with string body `body` as it was appended.
    pub(crate) fn with_delta<T>(&self, body: &str, take: impl FnOnce(&Delta<'_>) -> T) -> T {
        let decoded = |text: &Option<CompactString>| text.as_deref().map(|text| json::decode_body(text).into_owned());
        let (id, name) = (decoded(&self.id), decoded(&self.name));
        take(&Delta {
            kind: self.kind,
            turn: self.turn,
            step: self.step,
            index: self.index,
            id: id.as_deref(),
            name: name.as_deref(),
            text: &json::decode_body(body),
        })
    }

    /// Takes `data` apart if it is exactly what [`RunHead::data`] would write (P2); `None` leaves the event verbatim.
    pub(crate) fn recognise(data: &str) -> Option<(Self, &str)> {
        let (turn, rest) = number_after(data, "{\"turn\":")?;
        let (step, rest) = number_after(rest, ",\"step\":")?;
        let rest = rest.strip_prefix(",\"chunk\":{\"type\":\"")?;
        let (kind, rest) = if let Some(rest) = rest.strip_prefix("text-delta\"") {
            (DeltaKind::Text, rest)
        } else if let Some(rest) = rest.strip_prefix("reasoning-delta\"") {
            (DeltaKind::Reasoning, rest)
        } else {
            (DeltaKind::ToolCall, rest.strip_prefix("tool-call-delta\"")?)
        };
        let (index, mut rest) = number_after(rest, ",\"index\":")?;
        let mut id = None;
        let mut name = None;
        let tag = if kind == DeltaKind::ToolCall {
            let (value, tail) = body_after(rest, ",\"id\":\"")?;
            id = Some(value.into());
            rest = tail;
            if let Some((value, tail)) = body_after(rest, ",\"name\":\"") {
                name = Some(value.into());
                rest = tail;
            }
            ",\"argumentsDelta\":\""
        } else {
            ",\"text\":\""
        };
        let (body, rest) = body_after(rest, tag)?;
        (rest == "}}").then_some((Self { kind, turn, step, index, id, name }, body))
    }
}

/// A plain safe integer behind `prefix`, and what follows it.
fn number_after<'a>(text: &'a str, prefix: &str) -> Option<(u64, &'a str)> {
    let rest = text.strip_prefix(prefix)?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit())?;
    let (digits, rest) = rest.split_at(end);
    let number = json::integer(digits).filter(|number| *number <= MAX_SAFE_INTEGER)?;
    Some((number.unsigned_abs(), rest))
}

/// A string body without lone surrogates behind `prefix` (which ends in the opening quote), and what follows its quote.
fn body_after<'a>(text: &'a str, prefix: &str) -> Option<(&'a str, &'a str)> {
    let rest = text.strip_prefix(prefix)?;
    let bytes = rest.as_bytes();
    let mut at = 0;
    loop {
        match bytes.get(at)? {
            b'"' => break,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    let (body, rest) = (rest.get(..at)?, rest.get(at + 1..)?);
    (!json::has_lone_surrogate(body)).then_some((body, rest))
}

/// At least one streamed delta, packed. The log of a live session grows its last run in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkRun {
    head: Arc<RunHead>,
    first_seq: u64,
    first_time: i64,
    last_time: i64,
    count: u64,
    /// For each delta: the time gap to the one before (zigzag varint, 0 for the first) and its body's length (varint).
    marks: Vec<u8>,
    bodies: String,
}

impl ChunkRun {
    /// A run of one delta.
    pub fn start(head: Arc<RunHead>, seq: u64, time: i64, body: &str) -> Self {
        let mut run = Self {
            head,
            first_seq: seq,
            first_time: time,
            last_time: time,
            count: 0,
            marks: Vec::new(),
            bodies: String::new(),
        };
        run.push_unchecked(time, body);
        run
    }

    /// A run of the event alone, if it is a delta that packs.
    pub fn of(event: &Event) -> Option<Self> {
        if let Some((head, body)) = event.as_packed_delta() {
            return Some(Self::start(Arc::clone(head), event.seq(), event.time(), body));
        }
        if event.event_type() != super::chunk::ASSISTANT_CHUNK || event.ignorable() || event.placement().is_some() {
            return None;
        }
        let data = event.data();
        let (head, body) = RunHead::recognise(&data)?;
        Some(Self::start(Arc::new(head), event.seq(), event.time(), body))
    }

    /// Whether a delta with this head, seq and time may join at the end (P1, P2, and the size this crate keeps runs to).
    pub fn accepts(&self, head: &RunHead, seq: u64, time: i64, body: &str) -> bool {
        let gap_is_safe = time.checked_sub(self.last_time).is_some_and(is_safe);
        (std::ptr::eq(&raw const *self.head, head) || *self.head == *head)
            && self.next_seq() == seq
            && gap_is_safe
            && self.count < MAX_RUN_EVENTS as u64
            && self.bodies.len().saturating_add(body.len()) <= MAX_RUN_BYTES
    }

    /// Adds a delta at the end; the caller has asked [`ChunkRun::accepts`].
    pub(crate) fn push_unchecked(&mut self, time: i64, body: &str) {
        put_varint(&mut self.marks, zigzag(time.wrapping_sub(self.last_time)));
        put_varint(&mut self.marks, body.len() as u64);
        self.bodies.push_str(body);
        self.last_time = time;
        self.count += 1;
    }

    /// What all deltas share.
    pub fn head(&self) -> &Arc<RunHead> {
        &self.head
    }

    /// Seq of the first delta.
    pub fn first_seq(&self) -> u64 {
        self.first_seq
    }

    /// Time of the first delta in epoch milliseconds.
    pub fn first_time(&self) -> i64 {
        self.first_time
    }

    /// Time of the last delta in epoch milliseconds.
    pub fn last_time(&self) -> i64 {
        self.last_time
    }

    /// Number of deltas.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Always false; a run has at least one delta.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Seq behind the last delta.
    pub fn next_seq(&self) -> u64 {
        self.first_seq + self.count
    }

    /// All bodies one after the other (escapes kept).
    pub(crate) fn bodies(&self) -> &str {
        &self.bodies
    }

    /// Bytes held in memory.
    pub fn weight(&self) -> usize {
        self.bodies.len() + self.marks.len() + 96
    }

    /// Gives spare capacity back once the run has stopped growing.
    pub(crate) fn close(&mut self) {
        self.marks.shrink_to_fit();
        self.bodies.shrink_to_fit();
    }

    /// The deltas as (time, body), in order.
    pub fn deltas(&self) -> Deltas<'_> {
        Deltas { marks: &self.marks, bodies: &self.bodies, time: self.first_time }
    }

    /// The deltas as events, in order.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        self.deltas()
            .zip(self.first_seq..)
            .map(|((time, body), seq)| Event::delta(seq, time, Arc::clone(&self.head), body.into()))
    }

    /// The event at `seq`, if the run holds it. Cost: the deltas before it in the run.
    pub fn event(&self, seq: u64) -> Option<Event> {
        let skip = usize::try_from(seq.checked_sub(self.first_seq)?).ok()?;
        let (time, body) = self.deltas().nth(skip)?;
        Some(Event::delta(seq, time, Arc::clone(&self.head), body.into()))
    }

    /// The part of the run from seq `from` up to but excluding `to`; `None` if that is empty.
    pub fn slice(&self, from: u64, to: u64) -> Option<Self> {
        if from <= self.first_seq && to >= self.next_seq() {
            return Some(self.clone());
        }
        let skip = usize::try_from(from.saturating_sub(self.first_seq)).ok()?;
        let take = usize::try_from(to.checked_sub(from.max(self.first_seq))?).ok()?;
        let mut deltas = self.deltas().skip(skip).take(take);
        let (time, body) = deltas.next()?;
        let mut part = Self::start(Arc::clone(&self.head), from.max(self.first_seq), time, body);
        deltas.for_each(|(time, body)| part.push_unchecked(time, body));
        Some(part)
    }

    /// Adds all deltas of `other` at the end if it continues this run and the sum stays within the sizes this crate keeps runs
    /// to; says whether it did.
    pub(crate) fn join(&mut self, other: &ChunkRun) -> bool {
        let fits = self.count.saturating_add(other.count) <= MAX_RUN_EVENTS as u64
            && self.accepts(&other.head, other.first_seq, other.first_time, &other.bodies);
        if fits {
            let mut marks = other.marks.as_slice();
            // The first gap of a run is 0: here it becomes the gap to the delta before it.
            let first_gap = take_varint(&mut marks);
            debug_assert_eq!(first_gap, Some(0));
            put_varint(&mut self.marks, zigzag(other.first_time.wrapping_sub(self.last_time)));
            self.marks.extend_from_slice(marks);
            self.bodies.push_str(&other.bodies);
            self.count += other.count;
            self.last_time = other.last_time;
        }
        fits
    }

    /// Appends the time gaps, from the second delta on, to a column.
    pub(crate) fn write_gaps(&self, gaps: &mut Vec<u8>) {
        let mut marks = self.marks.as_slice();
        let mut first = true;
        while let (Some(gap), Some(_)) = (take_varint(&mut marks), take_varint(&mut marks)) {
            if !first {
                put_varint(gaps, gap);
            }
            first = false;
        }
    }

    /// Puts a run together from columns, taking what belongs to it from each. `length_of` tells the length of the delta with
    /// which the text that it is given starts.
    pub(crate) fn from_columns(
        parts: &RunParts<'_>,
        gaps: &mut &[u8],
        mut length_of: impl FnMut(&[u8]) -> Option<usize>,
        text: &mut &str,
    ) -> Option<Self> {
        let kind = DeltaKind::of_code(parts.tag & 15)?;
        let call = kind == DeltaKind::ToolCall;
        let shape = parts.id.is_some() == call && parts.tag >> 4 == u8::from(parts.name.is_some());
        let [turn, step, index] = parts.numbers;
        let safe = |number: u64| number <= MAX_SAFE_INTEGER.unsigned_abs();
        let plain = |name: Option<&str>| name.is_none_or(is_string_body);
        let next_seq = parts.first_seq.checked_add(parts.count)?;
        let sound =
            shape && (call || parts.name.is_none()) && safe(turn) && safe(step) && safe(index) && safe(next_seq);
        if !sound || !plain(parts.id) || !plain(parts.name) || parts.count == 0 {
            return None;
        }
        // Most gaps and most lengths take a byte each; what is stated counts no further than the gaps that are there.
        let most = usize::try_from(parts.count).unwrap_or(usize::MAX).min(gaps.len().saturating_add(1));
        let mut marks = Vec::with_capacity(most.saturating_mul(2));
        let mut last_time = parts.first_time;
        let mut rest = *text;
        for number in 0..parts.count {
            let gap = if number == 0 { 0 } else { take_varint(gaps)? };
            let (body, tail) = rest.split_at_checked(length_of(rest.as_bytes())?)?;
            last_time = check_delta(last_time, unzigzag(gap), body)?;
            put_varint(&mut marks, gap);
            put_varint(&mut marks, body.len() as u64);
            rest = tail;
        }
        let bodies = text.get(..text.len() - rest.len())?;
        *text = rest;
        let (id, name) = (parts.id.map(CompactString::from), parts.name.map(CompactString::from));
        Some(Self {
            head: Arc::new(RunHead { kind, turn, step, index, id, name }),
            first_seq: parts.first_seq,
            first_time: parts.first_time,
            last_time,
            count: parts.count,
            marks,
            bodies: bodies.to_owned(),
        })
    }

    /// Appends the run's record form; see `format-spec`.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, time_base: i64) {
        let head = &self.head;
        out.push(head.kind.code() | u8::from(head.name.is_some()) << 4);
        put_varint(out, head.turn);
        put_varint(out, head.step);
        put_varint(out, head.index);
        for value in [&head.id, &head.name].into_iter().flatten() {
            put_bytes(out, value.as_bytes());
        }
        put_varint(out, self.count);
        put_varint(out, zigzag(self.first_time.wrapping_sub(time_base)));
        put_bytes(out, &self.marks);
        put_bytes(out, self.bodies.as_bytes());
    }

    /// Reads what [`ChunkRun::encode`] wrote, checking every length, number and string body.
    pub(crate) fn decode(input: &mut &[u8], first_seq: u64, time_base: i64) -> Option<Self> {
        let tag = take_byte(input)?;
        let kind = DeltaKind::of_code(tag & 15)?;
        let named = match tag >> 4 {
            0 => false,
            1 if kind == DeltaKind::ToolCall => true,
            _ => return None,
        };
        let (turn, step, index) = (take_safe(input)?, take_safe(input)?, take_safe(input)?);
        let id = if kind == DeltaKind::ToolCall { Some(take_body(input)?) } else { None };
        let name = if named { Some(take_body(input)?) } else { None };
        let count = take_safe(input)?;
        let first_time = time_base.checked_add(unzigzag(take_varint(input)?))?;
        let marks = take_bytes(input)?;
        let bodies = std::str::from_utf8(take_bytes(input)?).ok()?;
        let mut run = Self {
            head: Arc::new(RunHead { kind, turn, step, index, id, name }),
            first_seq,
            first_time,
            last_time: first_time,
            count,
            marks: marks.to_vec(),
            bodies: bodies.to_owned(),
        };
        run.last_time = check_marks(count, first_time, marks, bodies)?;
        first_seq.checked_add(count).filter(|next| *next <= MAX_SAFE_INTEGER.unsigned_abs())?;
        Some(run)
    }
}

/// What a run's columns hold beside gaps, lengths and text.
#[derive(Debug)]
pub(crate) struct RunParts<'a> {
    /// Kind in the low half, whether there is a name in the high half.
    pub(crate) tag: u8,
    /// Turn, step and index.
    pub(crate) numbers: [u64; 3],
    pub(crate) id: Option<&'a str>,
    pub(crate) name: Option<&'a str>,
    pub(crate) first_seq: u64,
    pub(crate) count: u64,
    pub(crate) first_time: i64,
}

/// The time of a delta behind one at `before`, if it is a safe one and the body a string body.
fn check_delta(before: i64, gap: i64, body: &str) -> Option<i64> {
    let time = before.checked_add(gap).filter(|time| is_safe(*time))?;
    is_string_body(body).then_some(time)
}

/// Checks that `marks` describe exactly `count` deltas that use up `bodies`, each a valid string body at safe times;
/// returns the last time.
fn check_marks(count: u64, first_time: i64, marks: &[u8], bodies: &str) -> Option<i64> {
    let mut rest = marks;
    let mut text = bodies;
    let mut time = first_time;
    if count == 0 {
        return None;
    }
    for number in 0..count {
        let gap = unzigzag(take_varint(&mut rest)?);
        if number == 0 && gap != 0 {
            return None;
        }
        let length = usize::try_from(take_varint(&mut rest)?).ok()?;
        let (body, tail) = text.split_at_checked(length)?;
        time = check_delta(time, gap, body)?;
        text = tail;
    }
    (rest.is_empty() && text.is_empty()).then_some(time)
}

/// Whether `body` may stand between the quotes of a JSON string: no bare quote, no control byte, whole escapes, and no lone
/// surrogate.
pub(crate) fn is_string_body(body: &str) -> bool {
    let mut bytes = body.bytes();
    let mut escapes = false;
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' | 0..=0x1f => return false,
            b'\\' => {
                escapes = true;
                match bytes.next() {
                    Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {}
                    Some(b'u') => {
                        if !(0..4).all(|_| bytes.next().is_some_and(|digit| digit.is_ascii_hexdigit())) {
                            return false;
                        }
                    }
                    _ => return false,
                }
            }
            _ => {}
        }
    }
    !escapes || !json::has_lone_surrogate(body)
}

/// Iterator over a run's deltas as (time, body).
#[derive(Debug, Clone)]
pub struct Deltas<'a> {
    marks: &'a [u8],
    bodies: &'a str,
    time: i64,
}

impl<'a> Iterator for Deltas<'a> {
    type Item = (i64, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        self.time = self.time.wrapping_add(unzigzag(take_varint(&mut self.marks)?));
        let length = usize::try_from(take_varint(&mut self.marks)?).ok()?;
        let (body, rest) = self.bodies.split_at_checked(length)?;
        self.bodies = rest;
        Some((self.time, body))
    }
}

/// Maps small magnitudes of either sign to small numbers.
pub(crate) fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

pub(crate) fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

/// Appends `number` in base 128, least significant group first, high bit set on all but the last byte.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    loop {
        let group = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            out.push(group);
            return;
        }
        out.push(group | 0x80);
    }
}

/// Reads a varint in its shortest spelling; `None` on a longer spelling, more than 64 bits or a cut one.
pub(crate) fn take_varint(input: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = take_byte(input)?;
        let group = u64::from(byte & 0x7f);
        if shift == 63 && group > 1 {
            return None;
        }
        number |= group << shift;
        if byte & 0x80 == 0 {
            return (group != 0 || shift == 0).then_some(number);
        }
    }
    None
}

pub(crate) fn take_byte(input: &mut &[u8]) -> Option<u8> {
    let (&byte, rest) = input.split_first()?;
    *input = rest;
    Some(byte)
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(crate) fn take_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take_varint(input)?).ok()?;
    let (bytes, rest) = input.split_at_checked(length)?;
    *input = rest;
    Some(bytes)
}

fn take_safe(input: &mut &[u8]) -> Option<u64> {
    take_varint(input).filter(|number| *number <= MAX_SAFE_INTEGER.unsigned_abs())
}

fn take_body(input: &mut &[u8]) -> Option<CompactString> {
    let body = std::str::from_utf8(take_bytes(input)?).ok()?;
    is_string_body(body).then(|| body.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{JsonText, NewEvent};

    fn chunk(seq: u64, time: i64, data: &str) -> Event {
        NewEvent::named("assistant/chunk", JsonText::parse(data).unwrap()).at(seq, time)
    }

    #[test]
    fn p2_only_exact_shapes_are_recognised_and_they_come_back_byte_for_byte() {
        for data in [
            r#"{"turn":1,"step":2,"chunk":{"type":"text-delta","index":0,"text":"a\n\u0041\ud83d\ude00"}}"#,
            r#"{"turn":1,"step":2,"chunk":{"type":"reasoning-delta","index":10,"text":""}}"#,
            r#"{"turn":1,"step":2,"chunk":{"type":"tool-call-delta","index":0,"id":"c","argumentsDelta":"{\"a"}}"#,
            r#"{"turn":1,"step":2,"chunk":{"type":"tool-call-delta","index":0,"id":"c","name":"n","argumentsDelta":""}}"#,
        ] {
            let run = ChunkRun::of(&chunk(4, -9, data)).unwrap();
            let event = run.event(4).unwrap();
            assert_eq!((event.data().as_ref(), event.time()), (data, -9));
        }
        for data in [
            r#"{"turn":1,"step":2,"chunk":{"type":"text-delta","index":0,"text":"\ud800"}}"#,
            r#"{"turn":1,"step":2,"chunk":{"type":"text-delta","index":0,"text":"a","x":1}}"#,
            r#"{"turn":1,"step":2,"chunk":{"type":"text-delta","text":"a","index":0}}"#,
            r#"{"step":2,"turn":1,"chunk":{"type":"text-delta","index":0,"text":"a"}}"#,
            r#"{"turn":1.0,"step":2,"chunk":{"type":"text-delta","index":0,"text":"a"}}"#,
            r#"{"turn":9007199254740992,"step":2,"chunk":{"type":"text-delta","index":0,"text":"a"}}"#,
            r#"{"turn":1,"step":2,"chunk":{"type":"tool-call-delta","index":0,"argumentsDelta":"a"}}"#,
            r#"{"turn":1,"step":2,"chunk":{"type":"text-delta","index":0,"text":7}}"#,
        ] {
            assert!(ChunkRun::of(&chunk(4, 0, data)).is_none(), "{data}");
        }
    }

    #[test]
    fn p1_a_run_takes_only_its_own_continuation() {
        let data = r#"{"turn":1,"step":2,"chunk":{"type":"text-delta","index":0,"text":"a"}}"#;
        let run = ChunkRun::of(&chunk(4, 10, data)).unwrap();
        let head = RunHead::clone(run.head());
        assert!(run.accepts(&head, 5, 3, "b"));
        assert!(!run.accepts(&head, 6, 3, "b"));
        assert!(!run.accepts(&head, 5, i64::MIN, "b"));
        assert!(!run.accepts(&RunHead { step: 3, ..head.clone() }, 5, 3, "b"));
        assert!(!run.accepts(&RunHead { name: Some("n".into()), ..head }, 5, 3, "b"));
    }

    #[test]
    fn a_run_survives_encoding_and_slicing_and_refuses_any_cut() {
        let data = "{\"turn\":1,\"step\":2,\"chunk\":{\"type\":\"tool-call-delta\",\"index\":0,\"id\":\"c\\\"\",\"name\":\"n\",\
                    \"argumentsDelta\":\"a\u{e9}\"}}";
        let mut run = ChunkRun::of(&chunk(4, 10, data)).unwrap();
        for (time, body) in [(5, ""), (700, "\\n"), (700, "xyz")] {
            run.push_unchecked(time, body);
        }
        let mut bytes = Vec::new();
        run.encode(&mut bytes, 3);
        assert_eq!(ChunkRun::decode(&mut bytes.as_slice(), 4, 3).unwrap(), run);
        for cut in 0..bytes.len() {
            assert!(ChunkRun::decode(&mut &bytes[..cut], 4, 3).is_none());
        }
        let whole: Vec<Event> = run.events().collect();
        for from in 0..9 {
            for to in from..10 {
                let part: Vec<Event> = run.slice(from, to).map_or_else(Vec::new, |part| part.events().collect());
                let expected: Vec<Event> =
                    whole.iter().filter(|event| (from..to).contains(&event.seq())).cloned().collect();
                assert_eq!(part, expected, "{from}..{to}");
            }
        }
    }

    #[test]
    fn varints_have_one_spelling() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, number);
            assert_eq!(take_varint(&mut bytes.as_slice()), Some(number));
        }
        for bad in [&[0x80, 0x00][..], &[0x80], &[0xff; 10], &[]] {
            assert_eq!(take_varint(&mut &bad[..]), None);
        }
        for number in [0, 1, -1, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(number)), number);
        }
    }
}
