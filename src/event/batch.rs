//! Batches: contiguous stretches of a log, with runs packed, as layers hand them to each other and as records hold them.

use super::json::JsonText;
use super::limits::{MAX_EVENT_BYTES, MAX_SAFE_INTEGER, MAX_SOURCES, MAX_TYPE_BYTES, MIN_RUN_EVENTS, is_safe};
use super::placement::{Placement, Sources, SurfaceOp};
use super::run::{ChunkRun, put_bytes, put_varint, take_byte, take_bytes, take_varint, unzigzag, zigzag};
use super::{Event, NewEvent};

/// One event, or a packed run of deltas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// An event as it is.
    Event(Event),
    /// Consecutive deltas, packed.
    Run(ChunkRun),
}

impl Item {
    /// Seq of the first event.
    pub fn first_seq(&self) -> u64 {
        match self {
            Item::Event(event) => event.seq(),
            Item::Run(run) => run.first_seq(),
        }
    }

    /// Seq behind the last event.
    pub fn next_seq(&self) -> u64 {
        match self {
            Item::Event(event) => event.seq() + 1,
            Item::Run(run) => run.next_seq(),
        }
    }

    /// Time of the last event in epoch milliseconds.
    pub fn last_time(&self) -> i64 {
        match self {
            Item::Event(event) => event.time(),
            Item::Run(run) => run.last_time(),
        }
    }

    /// Bytes held in memory.
    pub fn weight(&self) -> usize {
        match self {
            Item::Event(event) => event.weight(),
            Item::Run(run) => run.weight(),
        }
    }

    /// The events, in order.
    pub fn events(&self) -> Box<dyn Iterator<Item = Event> + '_> {
        match self {
            Item::Event(event) => Box::new(std::iter::once(event.clone())),
            Item::Run(run) => Box::new(run.events()),
        }
    }

    /// The part from seq `from` up to but excluding `to`; `None` if that is empty.
    pub fn slice(&self, from: u64, to: u64) -> Option<Item> {
        match self {
            Item::Event(event) => (from..to).contains(&event.seq()).then(|| self.clone()),
            Item::Run(run) => run.slice(from, to).map(Item::Run),
        }
    }

    /// As much of the beginning as weighs no more than `room` bytes once unpacked; one event at least if it `must` give
    /// something.
    pub(crate) fn beginning_within(&self, room: usize, must: bool) -> Option<Item> {
        let mut left = room;
        let fit = self.events().take_while(|event| {
            let fits = event.weight() <= left;
            left = left.saturating_sub(event.weight());
            fits
        });
        let count = (fit.count() as u64).max(u64::from(must));
        self.slice(self.first_seq(), self.first_seq() + count)
    }

    /// Appends the record form; see `format-spec`.
    fn encode(&self, out: &mut Vec<u8>, time_base: i64) {
        match self {
            Item::Run(run) => {
                out.push(TAG_RUN);
                run.encode(out, time_base);
            }
            Item::Event(event) => {
                let placement = event.placement();
                let sources = placement.and_then(Placement::sources);
                let mut tag = TAG_EVENT;
                tag |= if event.ignorable() { IGNORABLE } else { 0 };
                tag |= match placement.map(Placement::op) {
                    None => 0,
                    Some(SurfaceOp::Append) => APPEND,
                    Some(SurfaceOp::Replace { .. }) => REPLACE,
                };
                tag |= if sources.is_some() { SOURCES } else { 0 };
                out.push(tag);
                put_bytes(out, event.event_type().as_bytes());
                put_varint(out, zigzag(event.time().wrapping_sub(time_base)));
                if let Some(SurfaceOp::Replace { start, end }) = placement.map(Placement::op) {
                    put_varint(out, start);
                    put_varint(out, end);
                }
                if let Some(sources) = sources {
                    put_varint(out, sources.ranges().len() as u64);
                    for (start, end) in sources.ranges() {
                        put_varint(out, *start);
                        put_varint(out, end - start);
                    }
                }
                put_bytes(out, event.data().as_bytes());
            }
        }
    }

    fn decode(input: &mut &[u8], seq: u64, time_base: i64) -> Option<Item> {
        let tag = take_byte(input)?;
        if tag == TAG_RUN {
            return ChunkRun::decode(input, seq, time_base).map(Item::Run);
        }
        if tag & TAG_MASK != TAG_EVENT || tag & (APPEND | REPLACE) == APPEND | REPLACE {
            return None;
        }
        let event_type = std::str::from_utf8(take_bytes(input)?).ok()?;
        if event_type.is_empty() || event_type.len() > MAX_TYPE_BYTES {
            return None;
        }
        let time = time_base.checked_add(unzigzag(take_varint(input)?))?;
        if !is_safe(time) || seq >= MAX_SAFE_INTEGER.unsigned_abs() {
            return None;
        }
        // Whatever an event refers to is earlier.
        let earlier = |input: &mut &[u8]| take_varint(input).filter(|other| *other < seq);
        let placement = if tag & REPLACE != 0 {
            Some(Placement::replace(earlier(input)?, earlier(input)?))
        } else if tag & APPEND != 0 {
            Some(Placement::append())
        } else {
            None
        };
        let placement = if tag & SOURCES == 0 {
            placement
        } else {
            let mut sources = Sources::default();
            // Each range takes two bytes at least, so a hostile count ends with the input.
            let count = take_varint(input)?;
            for _ in 0..count {
                let start = earlier(input)?;
                let end = start.checked_add(take_varint(input)?).filter(|end| *end < seq)?;
                sources.push_range(start, end);
            }
            // Ranges that touch would have been written as one: a batch has one spelling.
            if sources.ranges().len() as u64 != count || sources.len() > MAX_SOURCES as u64 {
                return None;
            }
            Some(placement?.from_sources(sources))
        };
        let data = take_bytes(input)?;
        if data.len() > MAX_EVENT_BYTES {
            return None;
        }
        let data = JsonText::from_record(std::str::from_utf8(data).ok()?)?;
        let ignorable = tag & IGNORABLE != 0;
        Some(Item::Event(NewEvent { event_type: event_type.into(), data, ignorable, placement }.at(seq, time)))
    }
}

const TAG_RUN: u8 = 0x02;
const TAG_EVENT: u8 = 0x01;
const TAG_MASK: u8 = 0x0f;
const IGNORABLE: u8 = 0x10;
const APPEND: u8 = 0x20;
const REPLACE: u8 = 0x40;
const SOURCES: u8 = 0x80;

/// A contiguous, non-empty stretch of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    items: Vec<Item>,
}

impl Batch {
    /// Wraps items; `None` if there are none or their seqs are not contiguous.
    pub fn new(items: Vec<Item>) -> Option<Self> {
        let contiguous = items.windows(2).all(|pair| matches!(pair, [a, b] if a.next_seq() == b.first_seq()));
        (!items.is_empty() && contiguous).then_some(Self { items })
    }

    /// Packs events (P1): consecutive deltas of one block become runs where there are at least three.
    pub fn pack(events: impl IntoIterator<Item = Event>) -> Option<Self> {
        let mut packer = Packer::default();
        events.into_iter().for_each(|event| packer.push(&event));
        Self::new(packer.finish())
    }

    /// The items, in order.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// The items, taken out.
    pub fn into_items(self) -> Vec<Item> {
        self.items
    }

    /// Seq of the first event.
    pub fn first_seq(&self) -> u64 {
        self.items.first().map_or(0, Item::first_seq)
    }

    /// Seq behind the last event.
    pub fn next_seq(&self) -> u64 {
        self.items.last().map_or(0, Item::next_seq)
    }

    /// The events, in order, unpacked one at a time.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        self.items.iter().flat_map(Item::events)
    }

    /// The batch's bytes as records hold them: everything but the first seq. Two batches with equal bytes and equal first
    /// seq are equal.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_into(&mut out);
        out
    }

    /// As [`Batch::encode`], into a buffer at hand.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        encode_items(&self.items, out);
    }

    /// Reads what [`Batch::encode`] wrote. `None` on anything else; never panics, and allocates no more than a small
    /// multiple of the input.
    pub fn decode(mut input: &[u8], first_seq: u64) -> Option<Self> {
        let mut items = Vec::new();
        let mut seq = first_seq;
        let mut time = 0;
        while !input.is_empty() {
            let item = Item::decode(&mut input, seq, time)?;
            seq = item.next_seq();
            time = item.last_time();
            items.push(item);
        }
        (!items.is_empty()).then_some(Self { items })
    }

    /// CRC-32 of [`Batch::encode`]: what a store compares when the answer to an append was lost.
    pub fn checksum(&self) -> u32 {
        crc32fast::hash(&self.encode())
    }
}

/// Appends the record form of contiguous items; see [`Batch::encode`].
pub(crate) fn encode_items(items: &[Item], out: &mut Vec<u8>) {
    let mut time = 0;
    for item in items {
        item.encode(out, time);
        time = item.last_time();
    }
}

/// Turns a sequence of events into items, packing runs as rule P1 says.
#[derive(Debug, Default)]
pub struct Packer {
    items: Vec<Item>,
    run: Option<ChunkRun>,
}

impl Packer {
    /// Adds the next event.
    pub fn push(&mut self, event: &Event) {
        let Some(single) = ChunkRun::of(event) else {
            self.end_run();
            self.items.push(Item::Event(event.clone()));
            return;
        };
        if let (Some(run), Some((time, body))) = (self.run.as_mut(), single.deltas().next())
            && run.accepts(single.head(), event.seq(), time, body)
        {
            run.push_unchecked(time, body);
            return;
        }
        self.end_run();
        self.run = Some(single);
    }

    fn end_run(&mut self) {
        let Some(mut run) = self.run.take() else { return };
        if run.len() >= MIN_RUN_EVENTS as u64 {
            run.close();
            self.items.push(Item::Run(run));
        } else {
            self.items.extend(run.events().map(Item::Event));
        }
    }

    /// The items so far.
    pub fn finish(mut self) -> Vec<Item> {
        self.end_run();
        self.items
    }
}

/// Puts items together again that flushes cut apart (P4): runs and single deltas that continue each other become one run.
#[derive(Debug, Default)]
pub(crate) struct Joiner(Packer);

impl Joiner {
    /// Adds the next item.
    pub(crate) fn push(&mut self, item: &Item) {
        match item {
            Item::Event(event) => self.0.push(event),
            Item::Run(run) => {
                if self.0.run.as_mut().is_some_and(|open| open.join(run)) {
                    return;
                }
                self.0.end_run();
                self.0.run = Some(run.clone());
            }
        }
    }

    /// The items so far.
    pub(crate) fn finish(self) -> Vec<Item> {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<Event> {
        let mut events = Vec::new();
        let mut add = |event_type: &str, data: &str, placement: Option<Placement>| {
            let mut new = NewEvent::named(event_type, JsonText::parse(data).unwrap());
            new.placement = placement;
            let seq = events.len() as u64;
            let time = 1_700_000_000_000 - (seq.cast_signed() * 37 % 11);
            events.push(new.at(seq, time));
        };
        add("turn/start", r#"{"turn":1}"#, None);
        add("user/message", "{}", Some(Placement::append()));
        for text in ["a", "b", "\\u00e9"] {
            let data = format!(r#"{{"turn":1,"step":1,"chunk":{{"type":"text-delta","index":0,"text":"{text}"}}}}"#);
            add("assistant/chunk", &data, None);
        }
        for text in ["x", "y"] {
            let data = format!(r#"{{"turn":1,"step":1,"chunk":{{"type":"text-delta","index":1,"text":"{text}"}}}}"#);
            add("assistant/chunk", &data, None);
        }
        add("assistant/message", "{}", Some(Placement::append().from([2, 3, 4, 6])));
        add("user/message", "[]", Some(Placement::replace(1, 1).from([1])));
        events
    }

    #[test]
    fn p1_three_deltas_pack_and_two_do_not() {
        let batch = Batch::pack(sample()).unwrap();
        let shape: Vec<u64> = batch.items().iter().map(|item| item.next_seq() - item.first_seq()).collect();
        assert_eq!(shape, [1, 1, 3, 1, 1, 1, 1]);
        assert_eq!(batch.events().collect::<Vec<_>>(), sample());
    }

    #[test]
    fn a_batch_survives_encoding_and_refuses_any_cut_or_flip() {
        let batch = Batch::pack(sample()).unwrap();
        let bytes = batch.encode();
        let again = Batch::decode(&bytes, 0).unwrap();
        assert_eq!(again, batch);
        assert_eq!(again.events().map(|event| event.to_line()).collect::<Vec<_>>(), {
            sample().iter().map(Event::to_line).collect::<Vec<_>>()
        });
        for index in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[index] ^= 1 << (index % 8);
            if let Some(other) = Batch::decode(&flipped, 0) {
                assert_ne!(other.encode(), bytes, "two spellings at byte {index}");
            }
        }
    }

    #[test]
    fn hostile_times_and_references_are_refused() {
        // A time of the smallest 64-bit integer, and sources that lie ahead.
        let far_back = [&[TAG_EVENT, 1, b'x'][..], &[0xff; 9], &[1, 1, b'0']].concat();
        assert!(Batch::decode(&far_back, 0).is_none());
        let mut run = vec![TAG_RUN, 0, 0, 0, 0, 1];
        run.extend([0xff; 9]);
        run.extend([1, 2, 0, 0, 0]);
        assert!(Batch::decode(&run, 0).is_none());
        let ahead = [TAG_EVENT | APPEND | SOURCES, 1, b'x', 0, 1, 3, 0, 1, b'0'];
        assert!(Batch::decode(&ahead, 3).is_none());
        assert!(Batch::decode(&ahead, 4).is_some());
        // Two ranges that touch are a second spelling of one.
        let touching = [TAG_EVENT | APPEND | SOURCES, 1, b'x', 0, 2, 0, 0, 1, 0, 1, b'0'];
        assert!(Batch::decode(&touching, 4).is_none());
    }
}
