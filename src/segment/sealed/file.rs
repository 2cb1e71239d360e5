//! A sealed segment as a file: written once from items in log order, read block by block.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::sync::OnceLock;

use super::block::{self, Wanted, decode_chosen, decode_conversation, decode_stream, decompress, merge};
use super::footer::{BlockEntry, Footer, Part, TRAILER_BYTES, Trailer, part_crc};
use super::holders::Holders;
use crate::event::{Event, Item, JsonText};
use crate::segment::files::{File, FileMap, read_full_at, write_all_at};
use crate::segment::journal::FIRST_RECORD;
use crate::segment::seal::SealOptions;

/// How much payload a block gathers before it is closed, in bytes. The repeated text lies in the same block as what it repeats;
/// beyond that, larger blocks compress a little better and cost more to read one event from.
const BLOCK_BYTES: usize = 1 << 20;

/// The same above the background's level: whoever asks for fewer bytes waits longer for an event in the middle of a log.
const LARGE_BLOCK_BYTES: usize = 3 << 20;

/// How much payload at least is kept for a segment's last block, in bytes, which is closed at twice as much: the end of a log is read
/// far more often than the rest.
const TAIL_BYTES: usize = 256 << 10;

/// A block is closed at the end of a step or turn once it has its bytes and a tail behind it, and wherever it is at this much: beyond it
/// the memory that compressing takes doubles.
const MOST_BLOCK_BYTES: usize = 4 << 20;

/// Payload of a block of a segment of this level, in bytes.
fn block_bytes(level: i32) -> usize {
    if level > SealOptions::BACKGROUND_LEVEL { LARGE_BLOCK_BYTES } else { BLOCK_BYTES }
}

/// A place in what is pending where a step or turn ends.
#[derive(Debug, Clone, Copy)]
struct Cut {
    items: usize,
    weight: usize,
}

/// Writes a sealed segment behind its header. Holds one block and a tail at a time.
pub(crate) struct SealedWriter<'a> {
    file: &'a dyn File,
    salt: u64,
    level: i32,
    first_seq: u64,
    next_seq: u64,
    last_time: i64,
    offset: u64,
    blocks: Vec<BlockEntry>,
    counts: BTreeMap<String, u64>,
    holders: Holders,
    pending: Vec<Item>,
    weight: usize,
    cuts: Vec<Cut>,
}

impl<'a> SealedWriter<'a> {
    /// Begins behind a header that is already written.
    pub(crate) fn new(file: &'a dyn File, salt: u64, first_seq: u64, level: i32) -> Self {
        Self {
            file,
            salt,
            level,
            first_seq,
            next_seq: first_seq,
            last_time: 0,
            offset: FIRST_RECORD,
            blocks: Vec::new(),
            counts: BTreeMap::new(),
            holders: Holders::default(),
            pending: Vec::new(),
            weight: 0,
            cuts: Vec::new(),
        }
    }

    /// Adds the next item of the log.
    pub(crate) fn push(&mut self, item: Item) -> io::Result<()> {
        if item.first_seq() != self.next_seq {
            return Err(io::Error::other("items to seal are not contiguous"));
        }
        let closes = match &item {
            Item::Run(run) => {
                *self.counts.entry(crate::event::chunk::ASSISTANT_CHUNK.to_owned()).or_default() += run.len();
                false
            }
            Item::Event(event) => {
                match self.counts.get_mut(event.event_type()) {
                    Some(count) => *count += 1,
                    None => drop(self.counts.insert(event.event_type().to_owned(), 1)),
                }
                matches!(event.event_type(), "step/end" | "turn/end")
            }
        };
        self.next_seq = item.next_seq();
        self.last_time = item.last_time();
        self.weight = self.weight.saturating_add(item.weight());
        self.pending.push(item);
        let most = block_bytes(self.level);
        if closes {
            self.cuts.push(Cut { items: self.pending.len(), weight: self.weight });
        }
        if closes && self.weight >= most + TAIL_BYTES {
            // Behind a step that is a block by itself there is no better place.
            let cut = self.cut_before_tail().filter(|cut| cut.weight >= most / 2);
            self.close_block(cut)?;
        } else if self.weight >= MOST_BLOCK_BYTES {
            self.close_block(None)?;
        }
        Ok(())
    }

    /// The last place that leaves a tail.
    fn cut_before_tail(&self) -> Option<Cut> {
        self.cuts.iter().rev().find(|cut| cut.weight.saturating_add(TAIL_BYTES) <= self.weight).copied()
    }

    /// Writes what is pending up to a place, or all of it, as a block.
    fn close_block(&mut self, cut: Option<Cut>) -> io::Result<()> {
        let cut = cut.unwrap_or(Cut { items: self.pending.len(), weight: self.weight });
        let rest = self.pending.split_off(cut.items.min(self.pending.len()));
        let items = std::mem::replace(&mut self.pending, rest);
        self.weight = self.weight.saturating_sub(cut.weight);
        self.cuts.retain_mut(|other| {
            let behind = other.items > cut.items;
            other.items = other.items.saturating_sub(cut.items);
            other.weight = other.weight.saturating_sub(cut.weight);
            behind
        });
        let Some(block) = block::encode(&items, self.level)? else { return Ok(()) };
        items.iter().for_each(|item| self.holders.note(self.blocks.len(), item));
        let entry = BlockEntry::of(&block, self.offset, self.salt);
        let entry = entry.ok_or_else(|| io::Error::other("a block exceeds 4 GiB"))?;
        for part in [&block.conversation, &block.marks, &block.text] {
            write_all_at(self.file, &part.bytes, self.offset)?;
            self.offset += part.bytes.len() as u64;
        }
        self.blocks.push(entry);
        Ok(())
    }

    /// Writes checkpoint and footer. Nothing is durable before the caller has synced the file. Returns the file's length.
    pub(crate) fn finish(mut self, checkpoint: Option<&JsonText>, continued: bool) -> io::Result<u64> {
        if self.weight > 2 * TAIL_BYTES
            && let Some(cut) = self.cut_before_tail()
        {
            self.close_block(Some(cut))?;
        }
        self.close_block(None)?;
        let footer = Footer {
            first_seq: self.first_seq,
            next_seq: self.next_seq,
            last_time: self.last_time,
            blocks: self.blocks,
            counts: self.counts,
            holders: self.holders.into_stretches(),
            continued,
            checkpoint: None,
            level: self.level,
        };
        let bytes = footer.encode(checkpoint, self.offset, self.salt)?;
        write_all_at(self.file, &bytes, self.offset)?;
        Ok(self.offset + bytes.len() as u64)
    }
}

/// Why a sealed segment cannot be read.
#[derive(Debug)]
pub(crate) enum SealedFault {
    Io(io::Error),
    /// Stored bytes at this offset fail their checksum, or pass it and make no sense.
    Damaged {
        offset: u64,
        what: &'static str,
    },
}

impl From<io::Error> for SealedFault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A sealed segment's bytes: from a map where there is one, else read.
#[derive(Debug)]
pub(crate) struct Source {
    file: Box<dyn File>,
    length: u64,
    /// Made when the first block is read: a footer alone is quicker to read than to map.
    map: OnceLock<Option<FileMap>>,
}

impl Source {
    /// The bytes of a file of this length.
    pub(crate) fn new(file: Box<dyn File>, length: u64) -> Self {
        Self { file, length, map: OnceLock::new() }
    }

    /// The file itself.
    pub(crate) fn file(&self) -> &dyn File {
        &*self.file
    }

    /// A file that cannot be mapped is read.
    fn map(&self) -> Option<&FileMap> {
        let made = || {
            self.file.map(self.length).unwrap_or_else(|error| {
                tracing::debug!(%error, "a segment cannot be mapped; it is read");
                None
            })
        };
        self.map.get_or_init(made).as_ref()
    }

    /// A stored part whose checksum is right.
    fn part(&self, offset: u64, part: Part, salt: u64) -> Result<Cow<'_, [u8]>, SealedFault> {
        let length = usize::try_from(part.stored).unwrap_or(usize::MAX);
        let Some(bytes) = self.map().and_then(|map| map.bytes(offset, length)) else {
            return read_part(&*self.file, offset, part.stored, part.crc, salt).map(Cow::Owned);
        };
        if part_crc(salt, offset, bytes) != part.crc {
            return Err(SealedFault::Damaged { offset, what: "a checksum does not match" });
        }
        Ok(Cow::Borrowed(bytes))
    }

    /// A block is done with: what it took of memory beside what was made of it may go.
    fn done(&self, block: &BlockEntry) {
        if let Some(Some(map)) = self.map.get() {
            map.release(block.offset, block.end().unwrap_or(block.offset).saturating_sub(block.offset));
        }
    }
}

/// Reads the footer of a sealed segment of `length` bytes, and checks that the checkpoint is stored as it was written.
pub(crate) fn read_footer(file: &dyn File, length: u64, salt: u64) -> Result<Footer, SealedFault> {
    let damaged = |offset, what| SealedFault::Damaged { offset, what };
    let at = length.checked_sub(TRAILER_BYTES as u64).filter(|at| *at >= FIRST_RECORD);
    let at = at.ok_or_else(|| damaged(0, "the file is too short for a sealed segment"))?;
    let mut trailer = [0; TRAILER_BYTES];
    let filled = read_full_at(file, &mut trailer, at)?;
    let trailer = if filled == TRAILER_BYTES { Trailer::decode(&trailer, length, salt) } else { None };
    let trailer = trailer.ok_or_else(|| damaged(at, "its last bytes are no trailer"))?;
    let stored = read_part(file, trailer.offset, trailer.stored, trailer.crc, salt)?;
    let footer = Footer::decode(&trailer, &stored, FIRST_RECORD);
    footer.ok_or_else(|| damaged(trailer.offset, "its footer makes no sense"))
}

/// Reads the checkpoint that stands at `offset`.
pub(crate) fn read_checkpoint(file: &dyn File, offset: u64, part: Part, salt: u64) -> Result<JsonText, SealedFault> {
    let stored = read_part(file, offset, part.stored, part.crc, salt)?;
    let text = decompress(&stored, usize::try_from(part.unpacked).unwrap_or(usize::MAX), &[]);
    let state = text.and_then(|text| JsonText::from_record(std::str::from_utf8(&text).ok()?));
    state.ok_or(SealedFault::Damaged { offset, what: "its checkpoint makes no sense" })
}

fn read_part(file: &dyn File, offset: u64, stored: u32, crc: u32, salt: u64) -> Result<Vec<u8>, SealedFault> {
    let length = usize::try_from(stored).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(io::Error::other)?;
    bytes.resize(length, 0);
    let filled = read_full_at(file, &mut bytes, offset)?;
    if filled != length || part_crc(salt, offset, &bytes) != crc {
        return Err(SealedFault::Damaged { offset, what: "a checksum does not match" });
    }
    Ok(bytes)
}

fn unpack(source: &Source, offset: u64, part: Part, salt: u64, prefix: &[u8]) -> Result<Vec<u8>, SealedFault> {
    let stored = source.part(offset, part, salt)?;
    let unpacked = usize::try_from(part.unpacked).unwrap_or(usize::MAX);
    decompress(&stored, unpacked, prefix).ok_or(SealedFault::Damaged { offset, what: "its content cannot be unpacked" })
}

/// The wanted conversation events of a block, which are all but the packed deltas. Costs that part alone.
pub(crate) fn read_conversation(
    source: &Source,
    block: &BlockEntry,
    salt: u64,
    wanted: Wanted<'_>,
) -> Result<Vec<Event>, SealedFault> {
    let bytes = unpack(source, block.offset, block.conversation, salt, &[])?;
    source.done(block);
    let nonsense = SealedFault::Damaged { offset: block.offset, what: "its events make no sense" };
    decode_chosen(&bytes, block.first_seq, wanted).ok_or(nonsense)
}

/// All of a block that starts at `first_seq`, and the entry it should have: of the given one only the place and the checksums of the
/// parts are believed.
pub(crate) fn read_block_afresh(
    source: &Source,
    block: &BlockEntry,
    salt: u64,
    first_seq: u64,
) -> Result<(BlockEntry, Vec<Item>), SealedFault> {
    let mut right = BlockEntry { first_seq, ..*block };
    let mut at = block.offset;
    let mut read = |part: &mut Part, prefix: &[u8]| -> Result<Vec<u8>, SealedFault> {
        let stored = source.part(at, *part, salt)?;
        let fault = SealedFault::Damaged { offset: at, what: "its content cannot be unpacked" };
        at += u64::from(part.stored);
        if stored.is_empty() {
            part.unpacked = 0;
            return Ok(Vec::new());
        }
        let length = zstd::zstd_safe::get_frame_content_size(&stored).ok().flatten();
        let Some(length) = length.and_then(|length| u32::try_from(length).ok()) else { return Err(fault) };
        part.unpacked = length;
        decompress(&stored, usize::try_from(length).unwrap_or(usize::MAX), prefix).ok_or(fault)
    };
    let conversation = read(&mut right.conversation, &[])?;
    let marks = read(&mut right.marks, &[])?;
    let text = read(&mut right.text, &conversation)?;
    source.done(block);
    let nonsense = |what| SealedFault::Damaged { offset: block.offset, what };
    let events = decode_conversation(&conversation, first_seq).ok_or_else(|| nonsense("its events make no sense"))?;
    let runs = decode_stream(&marks, &text, first_seq).ok_or_else(|| nonsense("its runs make no sense"))?;
    let deltas = runs.iter().try_fold(events.len() as u64, |sum, run| sum.checked_add(run.len()));
    let next_seq = deltas.and_then(|count| first_seq.checked_add(count)).filter(|next| *next > first_seq);
    right.next_seq = next_seq.ok_or_else(|| nonsense("it holds no event"))?;
    let items = merge(events, runs, first_seq, right.next_seq);
    Ok((right, items.ok_or_else(|| nonsense("its parts do not fit together"))?))
}

/// All of a block, in log order.
pub(crate) fn read_block(source: &Source, block: &BlockEntry, salt: u64) -> Result<Vec<Item>, SealedFault> {
    let conversation = unpack(source, block.offset, block.conversation, salt, &[])?;
    let marks_at = block.offset + u64::from(block.conversation.stored);
    let marks = unpack(source, marks_at, block.marks, salt, &[])?;
    let text = unpack(source, marks_at + u64::from(block.marks.stored), block.text, salt, &conversation)?;
    source.done(block);
    let nonsense = |what| SealedFault::Damaged { offset: block.offset, what };
    let events = decode_conversation(&conversation, block.first_seq);
    let events = events.ok_or_else(|| nonsense("its events make no sense"))?;
    let runs = decode_stream(&marks, &text, block.first_seq).ok_or_else(|| nonsense("its runs make no sense"))?;
    merge(events, runs, block.first_seq, block.next_seq).ok_or_else(|| nonsense("its parts do not fit together"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::event::{Batch, NewEvent};
    use crate::segment::files::{Access, Files, SimulatedFiles};

    /// Payload bytes of the blocks of a segment of steps of one event each with this much text.
    fn blocks_of(level: i32, steps: &[usize]) -> Vec<usize> {
        let files = SimulatedFiles::new(1);
        let file = files.open(Path::new("/segment"), Access::CreateNew).unwrap();
        write_all_at(&*file, &[0; 96], 0).unwrap();
        let mut writer = SealedWriter::new(&*file, 7, 0, level);
        let mut events = Vec::new();
        for (seq, bytes) in (0..).step_by(2).zip(steps) {
            let data = JsonText::parse(&format!("\"{}\"", "w".repeat(*bytes))).unwrap();
            let time = i64::try_from(seq).unwrap();
            events.push(NewEvent::named("app/text", data).at(seq, time));
            events.push(NewEvent::named("step/end", JsonText::parse("{}").unwrap()).at(seq + 1, time));
        }
        let items = Batch::pack(events).unwrap().into_items();
        items.iter().for_each(|item| writer.push(item.clone()).unwrap());
        let length = writer.finish(None, false).unwrap();
        let footer = read_footer(&*file, length, 7).unwrap();
        let source = Source::new(file, length);
        let read: Vec<Item> = footer.blocks.iter().flat_map(|block| read_block(&source, block, 7).unwrap()).collect();
        assert_eq!(read, items);
        let mut holders = Holders::default();
        for (index, block) in footer.blocks.iter().enumerate() {
            read_block(&source, block, 7).unwrap().iter().for_each(|item| holders.note(index, item));
        }
        assert!(holders == footer.holders() && footer.level == level);
        footer.blocks.iter().map(|block| block.conversation.unpacked as usize).collect()
    }

    #[test]
    fn g10_blocks_are_as_large_as_the_level_says_and_the_last_one_is_small() {
        for (level, most) in [(1, BLOCK_BYTES), (3, BLOCK_BYTES), (4, LARGE_BLOCK_BYTES)] {
            for total in [600 << 10, 3 << 20, 9 << 20, (9 << 20) + (100 << 10)] {
                let blocks = blocks_of(level, &vec![10_000; total / 10_000]);
                let (last, others) = blocks.split_last().unwrap();
                assert!((TAIL_BYTES - 12_000..TAIL_BYTES + 12_000).contains(last), "{level} {total}: {blocks:?}");
                // The one before the last has what is left.
                let (_, full) = others.split_last().unwrap();
                assert!(
                    full.iter().all(|block| (most - 60_000..most + 12_000).contains(block)),
                    "{level} {total}: {blocks:?}"
                );
                assert!(others.iter().all(|block| *block < most + TAIL_BYTES), "{level} {total}: {blocks:?}");
            }
        }
        assert_eq!(blocks_of(3, &[10_000; 50]).len(), 1, "a short session is one block");
    }

    #[test]
    fn steps_of_any_size_are_never_cut_and_leave_no_small_block_before_them() {
        let large = 3 * BLOCK_BYTES;
        assert_eq!(blocks_of(3, &[large]).len(), 1);
        assert_eq!(blocks_of(3, &[1_000, large, 1_000, large, 1_000]).len(), 3);
        assert_eq!(blocks_of(3, &[5 * BLOCK_BYTES, 1_000]).len(), 2, "beyond its patience a block ends anywhere");
    }

    /// How many blocks are closed by events of these types and weights.
    fn closed(events: &[(&str, usize)]) -> usize {
        let files = SimulatedFiles::new(1);
        files.overwrite(Path::new("/seg"), b"").unwrap();
        let file = files.open(Path::new("/seg"), Access::Write).unwrap();
        let mut writer = SealedWriter::new(&*file, 7, 0, 1);
        for (seq, (event_type, weight)) in (0..).zip(events) {
            let of = |length: usize| {
                NewEvent::named(event_type, JsonText::parse(&format!("\"{}\"", "b".repeat(length))).unwrap()).at(seq, 1)
            };
            let event = of(weight - of(0).weight());
            assert_eq!(event.weight(), *weight);
            writer.push(Item::Event(event)).unwrap();
        }
        writer.blocks.len()
    }

    #[test]
    fn a_block_closes_at_a_steps_end_with_a_tail_behind_it_and_anywhere_at_the_most() {
        let full = BLOCK_BYTES + TAIL_BYTES;
        for (weight, count) in [(full - 1, 0), (full, 1), (full + 1, 1)] {
            assert_eq!(closed(&[("step/end", weight)]), count, "{weight}");
            assert_eq!(closed(&[("turn/end", weight)]), count, "{weight}");
            assert_eq!(closed(&[("app/x", weight)]), 0, "{weight}");
            assert_eq!(closed(&[("app/x", weight - 1000), ("step/end", 1000)]), count, "{weight}");
        }
        let most = MOST_BLOCK_BYTES;
        for (weight, count) in [(most - 1, 0), (most, 1), (most + 1, 1), (2 * most, 1)] {
            assert_eq!(closed(&[("app/x", weight)]), count, "{weight}");
        }
        assert_eq!(closed(&[("app/x", most), ("app/x", most)]), 2);
    }
}
