//! One block of a sealed segment: a stretch of the log taken apart into a conversation part and a stream part.
//!
//! The conversation part holds every event that is no packed delta: envelope members in columns, payload texts as they are, one
//! zstd frame. The stream part holds the packed runs: heads, time gaps and where the text was cut in columns, and the text
//! compressed with the conversation part's bytes as prefix, because the assembled messages repeat what was streamed.

use std::io::Write;

use super::cuts::{CutReader, CutWriter};
use crate::event::batch::Joiner;
use crate::event::limits::{MAX_EVENT_BYTES, MAX_SAFE_INTEGER, MAX_SOURCES, MAX_TYPE_BYTES};
use crate::event::run::{RunParts, put_bytes, put_varint, take_byte, take_bytes, take_varint, unzigzag, zigzag};
use crate::event::{ChunkRun, Event, Item, JsonText, NewEvent, Placement, Sources, SurfaceOp};
use crate::segment::frame;

/// A part's bytes as they are stored, and how long they are unpacked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Packed {
    pub(crate) bytes: Vec<u8>,
    pub(crate) unpacked: usize,
}

/// An encoded block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) first_seq: u64,
    pub(crate) next_seq: u64,
    pub(crate) conversation: Packed,
    /// Heads, time gaps and cuts of the runs; empty when the block has none.
    pub(crate) marks: Packed,
    /// Text of the runs.
    pub(crate) text: Packed,
}

const IGNORABLE: u8 = 1;
const APPEND: u8 = 2;
const REPLACE: u8 = 4;
const SOURCES: u8 = 8;

/// Encodes contiguous items; runs that continue each other are joined first.
pub(crate) fn encode(items: &[Item], level: i32) -> std::io::Result<Option<Block>> {
    let mut joiner = Joiner::default();
    for item in items {
        joiner.push(item);
    }
    let items = joiner.finish();
    let (Some(first), Some(last)) = (items.first(), items.last()) else { return Ok(None) };
    let (first_seq, next_seq) = (first.first_seq(), last.next_seq());
    let conversation = conversation_bytes(&items, first_seq);
    let (marks, text) = stream_bytes(&items, first_seq);
    let text = compress(&[text.as_bytes()], &conversation, level.min(TEXT_LEVEL))?;
    let marks: Vec<&[u8]> = marks.iter().map(Vec::as_slice).collect();
    let marks = compress(&marks, &[], level.max(MARKS_LEVEL))?;
    let conversation = compress(&[&conversation], &[], level)?;
    Ok(Some(Block { first_seq, next_seq, conversation, marks, text }))
}

/// Lowest level for the runs' columns. Time gaps hold nothing that repeats, and levels below this one spend bits on chance
/// repetitions; the columns are short, so that it takes little time.
const MARKS_LEVEL: i32 = 13;

/// Highest level for the streamed text. What it repeats is found at any level, and above this one the prefix alone takes as long to
/// prepare as the conversation takes to compress.
const TEXT_LEVEL: i32 = 9;

/// One frame of all pieces; each gets statistics of its own.
fn compress(pieces: &[&[u8]], prefix: &[u8], level: i32) -> std::io::Result<Packed> {
    let unpacked = pieces.iter().map(|piece| piece.len()).sum::<usize>();
    if unpacked == 0 {
        return Ok(Packed::default());
    }
    // The window must span prefix and text, or the far end of the prefix could not be referred to.
    let window = usize::BITS - (unpacked + prefix.len()).max(1 << 10).leading_zeros();
    let mut encoder = zstd::stream::write::Encoder::with_ref_prefix(Vec::new(), level, prefix)?;
    encoder.window_log(window.min(MAX_WINDOW_LOG))?;
    // What is streamed comes again in long stretches, which are otherwise cut up by short repetitions nearby.
    encoder.long_distance_matching(!prefix.is_empty())?;
    encoder.include_contentsize(true)?;
    encoder.set_pledged_src_size(Some(unpacked as u64))?;
    for (index, piece) in pieces.iter().enumerate() {
        if index > 0 {
            encoder.flush()?;
        }
        encoder.write_all(piece)?;
    }
    Ok(Packed { bytes: encoder.finish()?, unpacked })
}

/// Largest window a reader must provide: 128 MiB, what zstd itself accepts without being asked.
const MAX_WINDOW_LOG: u32 = 27;

/// Unpacks a part to exactly the length that the index states; one of no bytes is stored as none.
pub(crate) fn decompress(packed: &[u8], unpacked: usize, prefix: &[u8]) -> Option<Vec<u8>> {
    if unpacked == 0 {
        return packed.is_empty().then(Vec::new);
    }
    frame::unpack(packed, unpacked, prefix)
}

/// Columns: each one's bytes are preceded by their length.
struct Columns<const N: usize>([Vec<u8>; N]);

impl<const N: usize> Columns<N> {
    fn new() -> Self {
        Self(std::array::from_fn(|_| Vec::new()))
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.0.iter().for_each(|column| put_bytes(out, column));
    }

    fn read<'a>(input: &mut &'a [u8]) -> Option<[&'a [u8]; N]> {
        let mut columns = [&[][..]; N];
        for column in &mut columns {
            *column = take_bytes(input)?;
        }
        Some(columns)
    }
}

/// Names that occur in a block, by the number that stands for each.
#[derive(Default)]
struct Names(Vec<String>);

impl Names {
    fn number(&mut self, name: &str) -> u64 {
        let known = self.0.iter().position(|known| known == name);
        let index = known.unwrap_or_else(|| {
            self.0.push(name.to_owned());
            self.0.len() - 1
        });
        index as u64
    }

    fn write(&self, out: &mut Vec<u8>) {
        put_varint(out, self.0.len() as u64);
        self.0.iter().for_each(|name| put_bytes(out, name.as_bytes()));
    }

    fn read<'a>(input: &mut &'a [u8]) -> Option<Vec<&'a str>> {
        let count = take_varint(input)?;
        let mut names = Vec::new();
        for _ in 0..count {
            names.push(std::str::from_utf8(take_bytes(input)?).ok()?);
        }
        Some(names)
    }
}

/// The conversation part: names, columns (seq gaps, times, types, flags, placements, lengths), then the payload texts.
fn conversation_bytes(items: &[Item], first_seq: u64) -> Vec<u8> {
    let mut columns = Columns::<6>::new();
    let mut names = Names::default();
    let mut texts = Vec::new();
    let mut count = 0_u64;
    let mut next_seq = first_seq;
    let mut last_time = 0;
    for item in items {
        let Item::Event(event) = item else { continue };
        let [seqs, times, types, flags, placements, lengths] = &mut columns.0;
        put_varint(seqs, event.seq() - next_seq);
        put_varint(times, zigzag(event.time().wrapping_sub(last_time)));
        put_varint(types, names.number(event.event_type()));
        flags.push(flags_of(event));
        write_placement(placements, event);
        let data = event.data();
        put_varint(lengths, data.len() as u64);
        texts.extend_from_slice(data.as_bytes());
        next_seq = event.seq() + 1;
        last_time = event.time();
        count += 1;
    }
    let mut out = Vec::with_capacity(texts.len() + 64);
    put_varint(&mut out, count);
    names.write(&mut out);
    columns.write(&mut out);
    out.extend_from_slice(&texts);
    out
}

fn flags_of(event: &Event) -> u8 {
    let mut flags = if event.ignorable() { IGNORABLE } else { 0 };
    if let Some(placement) = event.placement() {
        flags |= match placement.op() {
            SurfaceOp::Append => APPEND,
            SurfaceOp::Replace { .. } => REPLACE,
        };
        flags |= if placement.sources().is_some() { SOURCES } else { 0 };
    }
    flags
}

/// Seqs of a placement, counted back from the event, so that like placements look alike.
fn write_placement(out: &mut Vec<u8>, event: &Event) {
    let Some(placement) = event.placement() else { return };
    let back = |seq: u64| zigzag(event.seq().wrapping_sub(seq).cast_signed());
    if let SurfaceOp::Replace { start, end } = placement.op() {
        put_varint(out, back(start));
        put_varint(out, back(end));
    }
    if let Some(sources) = placement.sources() {
        put_varint(out, sources.ranges().len() as u64);
        for (start, end) in sources.ranges() {
            put_varint(out, back(*start));
            put_varint(out, end - start);
        }
    }
}

/// Bytes that stand for nothing.
struct Nonsense;

fn read_placement(input: &mut &[u8], flags: u8, seq: u64) -> Result<Option<Placement>, Nonsense> {
    if flags & (APPEND | REPLACE | SOURCES) == 0 {
        return Ok(None);
    }
    read_present_placement(input, flags, seq).map(Some).ok_or(Nonsense)
}

fn read_present_placement(input: &mut &[u8], flags: u8, seq: u64) -> Option<Placement> {
    // Whatever an event refers to is earlier.
    let earlier = |other: u64| (other < seq).then_some(other);
    let back = |input: &mut &[u8]| earlier(seq.wrapping_sub(unzigzag(take_varint(input)?).cast_unsigned()));
    let placement = match flags & (APPEND | REPLACE) {
        APPEND => Placement::append(),
        REPLACE => Placement::replace(back(input)?, back(input)?),
        _ => return None,
    };
    if flags & SOURCES == 0 {
        return Some(placement);
    }
    let mut sources = Sources::default();
    for _ in 0..take_varint(input)? {
        let start = back(input)?;
        sources.push_range(start, earlier(start.checked_add(take_varint(input)?)?)?);
    }
    (sources.len() <= MAX_SOURCES as u64).then(|| placement.from_sources(sources))
}

/// Whether an event with this seq, type and payload text is wanted.
pub(crate) type Wanted<'a> = &'a dyn Fn(u64, &str, &str) -> bool;

/// Reads a conversation part.
pub(crate) fn decode_conversation(input: &[u8], first_seq: u64) -> Option<Vec<Event>> {
    decode_chosen(input, first_seq, &|_, _, _| true)
}

/// The wanted events of a conversation part. The columns are checked whole, payloads as far as they are wanted.
pub(crate) fn decode_chosen(mut input: &[u8], first_seq: u64, wanted: Wanted<'_>) -> Option<Vec<Event>> {
    let input = &mut input;
    let count = take_varint(input)?;
    let names = Names::read(input)?;
    let [mut seqs, mut times, mut types, mut flags, mut placements, mut lengths] = Columns::<6>::read(input)?;
    let mut texts = std::str::from_utf8(input).ok()?;
    let mut events = Vec::new();
    let mut next_seq = first_seq;
    let mut last_time = 0_i64;
    for _ in 0..count {
        let seq = next_seq.checked_add(take_varint(&mut seqs)?).filter(|seq| *seq < MAX_SAFE_INTEGER.unsigned_abs())?;
        let time = last_time.checked_add(unzigzag(take_varint(&mut times)?))?;
        let event_type = *names.get(usize::try_from(take_varint(&mut types)?).ok()?)?;
        let flag = take_byte(&mut flags)?;
        let placement = read_placement(&mut placements, flag, seq).ok()?;
        let length = usize::try_from(take_varint(&mut lengths)?).ok().filter(|length| *length <= MAX_EVENT_BYTES)?;
        let (text, rest) = texts.split_at_checked(length)?;
        let sound = time.abs() <= MAX_SAFE_INTEGER && !event_type.is_empty() && event_type.len() <= MAX_TYPE_BYTES;
        if !sound || flag & !(IGNORABLE | APPEND | REPLACE | SOURCES) != 0 {
            return None;
        }
        if wanted(seq, event_type, text) {
            let data = JsonText::from_record(text)?;
            let ignorable = flag & IGNORABLE != 0;
            events.push(NewEvent { event_type: event_type.into(), data, ignorable, placement }.at(seq, time));
        }
        texts = rest;
        next_seq = seq + 1;
        last_time = time;
    }
    let used = [seqs, times, types, flags, placements, lengths].iter().all(|column| column.is_empty());
    (used && texts.is_empty()).then_some(events)
}

/// Columns of at least this many bytes are compressed by themselves, in bytes: below, a table of their own costs more than it saves.
const OWN_STATISTICS: usize = 1 << 10;

/// The stream part's two pieces: columns of the runs, in stretches that have little in common with each other, and their text.
fn stream_bytes(items: &[Item], first_seq: u64) -> (Vec<Vec<u8>>, String) {
    let mut gaps = Vec::new();
    let mut columns = Columns::<6>::new();
    let mut names = Names::default();
    let mut text = String::new();
    let mut next_seq = first_seq;
    let mut last_place = [0; 3];
    let mut last_time = 0_i64;
    let runs = || items.iter().filter_map(|item| if let Item::Run(run) = item { Some(run) } else { None });
    for run in runs() {
        let [seqs, kinds, numbers, calls, counts, times] = &mut columns.0;
        let head = run.head();
        put_varint(seqs, run.first_seq() - next_seq);
        kinds.push(head.kind.code() | u8::from(head.name.is_some()) << 4);
        let place = [head.turn, head.step, head.index];
        for (number, before) in place.iter().zip(std::mem::replace(&mut last_place, place)) {
            put_varint(numbers, zigzag(number.wrapping_sub(before).cast_signed()));
        }
        for name in [&head.id, &head.name].into_iter().flatten() {
            put_varint(calls, names.number(name));
        }
        put_varint(counts, run.len());
        put_varint(times, zigzag(run.first_time().wrapping_sub(last_time)));
        run.write_gaps(&mut gaps);
        text.push_str(run.bodies());
        next_seq = run.next_seq();
        last_time = run.last_time();
    }
    let count = runs().count();
    if count == 0 {
        return (Vec::new(), text);
    }
    let mut cuts = CutWriter::new();
    let mut rest = text.as_bytes();
    for (_, body) in runs().flat_map(ChunkRun::deltas) {
        cuts.push(rest, body.len());
        rest = rest.get(body.len()..).unwrap_or_default();
    }
    let mut out = Vec::new();
    let mut stretch = Vec::new();
    for column in [&gaps, &cuts.rights, &cuts.lengths] {
        put_bytes(&mut stretch, column);
        if column.len() >= OWN_STATISTICS {
            out.push(std::mem::take(&mut stretch));
        }
    }
    put_varint(&mut stretch, count as u64);
    names.write(&mut stretch);
    columns.write(&mut stretch);
    out.push(stretch);
    (out, text)
}

/// Reads a stream part.
pub(crate) fn decode_stream(mut marks: &[u8], text: &[u8], first_seq: u64) -> Option<Vec<ChunkRun>> {
    if marks.is_empty() {
        return text.is_empty().then(Vec::new);
    }
    let input = &mut marks;
    let [mut gaps, rights, lengths] = Columns::<3>::read(input)?;
    let count = take_varint(input)?;
    let names = Names::read(input)?;
    let [mut seqs, mut kinds, mut numbers, mut calls, mut counts, mut times] = Columns::<6>::read(input)?;
    let mut cuts = CutReader::new(rights, lengths)?;
    let mut text = std::str::from_utf8(text).ok()?;
    let mut runs = Vec::new();
    let mut next_seq = first_seq;
    let mut place = [0_u64; 3];
    let mut last_time = 0_i64;
    for _ in 0..count {
        let first_seq = next_seq.checked_add(take_varint(&mut seqs)?)?;
        let tag = take_byte(&mut kinds)?;
        for number in &mut place {
            *number = number.checked_add_signed(unzigzag(take_varint(&mut numbers)?))?;
        }
        let mut name = || names.get(usize::try_from(take_varint(&mut calls)?).ok()?).copied();
        let parts = RunParts {
            tag,
            numbers: place,
            id: if tag & 15 == 2 { Some(name()?) } else { None },
            name: if tag >> 4 == 1 { Some(name()?) } else { None },
            first_seq,
            count: take_varint(&mut counts)?,
            first_time: last_time.checked_add(unzigzag(take_varint(&mut times)?))?,
        };
        let run = ChunkRun::from_columns(&parts, &mut gaps, |rest| cuts.length(rest), &mut text)?;
        next_seq = run.next_seq();
        last_time = run.last_time();
        runs.push(run);
    }
    let used = [seqs, kinds, numbers, calls, counts, times, gaps].iter().all(|column| column.is_empty());
    (used && cuts.is_finished() && input.is_empty() && text.is_empty()).then_some(runs)
}

/// Puts the two parts of a block together in log order; `None` if they do not cover `first_seq..next_seq` without gap or
/// overlap.
pub(crate) fn merge(events: Vec<Event>, runs: Vec<ChunkRun>, first_seq: u64, next_seq: u64) -> Option<Vec<Item>> {
    let mut items = Vec::with_capacity(events.len() + runs.len());
    let mut events = events.into_iter().peekable();
    let mut runs = runs.into_iter().peekable();
    let mut at = first_seq;
    while at < next_seq {
        let item = match (events.peek(), runs.peek()) {
            (Some(event), _) if event.seq() == at => Item::Event(events.next()?),
            (_, Some(run)) if run.first_seq() == at => Item::Run(runs.next()?),
            _ => return None,
        };
        at = item.next_seq();
        items.push(item);
    }
    (at == next_seq && events.next().is_none() && runs.next().is_none()).then_some(items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Batch;

    fn sample(turns: u64) -> Vec<Item> {
        let mut events: Vec<Event> = Vec::new();
        let mut add = |event_type: &str, data: String, placement: Option<Placement>| {
            let mut new = NewEvent::named(event_type, JsonText::parse(&data).unwrap());
            new.placement = placement;
            let seq = events.len() as u64;
            events.push(new.at(seq, 1_700_000_000_000 + (seq * 7919 % 97).cast_signed()));
            seq
        };
        for turn in 1..=turns {
            add("turn/start", format!(r#"{{"turn":{turn}}}"#), None);
            let from = add("user/message", format!(r#"{{"id":"u{turn}"}}"#), Some(Placement::append()));
            let mut whole = String::new();
            for piece in 0..40 {
                let word = format!("w{}\\n", (turn * 31 + piece * 17) % 89);
                whole.push_str(&word);
                let kind = if piece < 20 { "reasoning-delta" } else { "text-delta" };
                add(
                    "assistant/chunk",
                    format!(r#"{{"turn":{turn},"step":1,"chunk":{{"type":"{kind}","index":0,"text":"{word}"}}}}"#),
                    None,
                );
            }
            let message = format!(r#"{{"turn":{turn},"step":1,"message":{{"content":[{{"text":"{whole}"}}]}}}}"#);
            let last = add("assistant/message", message, Some(Placement::append().from(from + 1..from + 41)));
            if turn % 3 == 0 {
                add("user/message", "{}".into(), Some(Placement::replace(from, last).from([from, last])));
            }
        }
        Batch::pack(events).unwrap().into_items()
    }

    fn decode(block: &Block) -> Option<Vec<Item>> {
        let conversation = decompress(&block.conversation.bytes, block.conversation.unpacked, &[])?;
        let marks = decompress(&block.marks.bytes, block.marks.unpacked, &[])?;
        let text = decompress(&block.text.bytes, block.text.unpacked, &conversation)?;
        let events = decode_conversation(&conversation, block.first_seq)?;
        let runs = decode_stream(&marks, &text, block.first_seq)?;
        merge(events, runs, block.first_seq, block.next_seq)
    }

    #[test]
    fn e1_a_block_gives_every_event_back() {
        let items = sample(30);
        for level in [1, 3, 9] {
            let block = encode(&items, level).unwrap().unwrap();
            assert_eq!(decode(&block).unwrap(), items);
        }
    }

    #[test]
    fn p4_runs_cut_by_flushes_are_joined_again() {
        let items = sample(5);
        let cut: Vec<Item> = items
            .iter()
            .flat_map(|item| match item {
                Item::Run(run) => run
                    .events()
                    .collect::<Vec<_>>()
                    .chunks(4)
                    .flat_map(|part| Batch::pack(part.iter().cloned()).unwrap().into_items())
                    .collect(),
                Item::Event(_) => vec![item.clone()],
            })
            .collect();
        assert!(cut.len() > items.len());
        assert_eq!(decode(&encode(&cut, 3).unwrap().unwrap()).unwrap(), items);
    }

    #[test]
    fn deltas_cost_little_beside_the_messages_that_repeat_them() {
        let block = encode(&sample(200), 3).unwrap().unwrap();
        assert!(
            block.text.bytes.len() * 10 < block.text.unpacked,
            "{} of {}",
            block.text.bytes.len(),
            block.text.unpacked
        );
    }

    #[test]
    fn hostile_parts_are_refused_and_never_panic() {
        let items = sample(3);
        let first_seq = items[0].first_seq();
        let conversation = conversation_bytes(&items, first_seq);
        let (marks, text) = stream_bytes(&items, first_seq);
        let marks = marks.concat();
        for index in 0..conversation.len() {
            let mut bad = conversation.clone();
            bad[index] ^= 0x55;
            let _ = decode_conversation(&bad, first_seq);
            assert!(decode_conversation(&conversation[..index], first_seq).is_none());
        }
        for index in 0..marks.len() {
            let mut bad = marks.clone();
            bad[index] ^= 0x81;
            let _ = decode_stream(&bad, text.as_bytes(), first_seq);
            assert!(decode_stream(&marks[..index], text.as_bytes(), first_seq).is_none() || index == 0);
        }
        let bomb = compress(&[&vec![0; 1 << 20]], &[], 3).unwrap().bytes;
        assert!(decompress(&bomb, 100, &[]).is_none());
        assert!(decompress(&bomb, usize::MAX / 2, &[]).is_none());
        assert!(decompress(&bomb, 0, &[]).is_none());
        assert!(decompress(&[], 1, &[]).is_none());
        assert!(decompress(&[&bomb[..], &bomb].concat(), 2 << 20, &[]).is_none());
        assert!(decompress(&[&bomb[..], &[0]].concat(), 1 << 20, &[]).is_none());
    }
}
