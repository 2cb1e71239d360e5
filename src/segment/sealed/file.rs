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

/// How much payload a block gathers before it is closed, in bytes. The repeated text lies in the same block as what it repeats;
/// beyond that, larger blocks compress little better and cost more to read one event from.
const BLOCK_BYTES: usize = 1 << 20;

/// A block is closed at the end of a step or turn once it has [`BLOCK_BYTES`], and wherever it is at this many times as much.
const PATIENCE: usize = 4;

/// Writes a sealed segment behind its header. Holds one block at a time.
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
        self.holders.note(self.blocks.len(), &item);
        self.next_seq = item.next_seq();
        self.last_time = item.last_time();
        self.weight = self.weight.saturating_add(item.weight());
        self.pending.push(item);
        if self.weight >= BLOCK_BYTES && closes || self.weight >= BLOCK_BYTES * PATIENCE {
            self.close_block()?;
        }
        Ok(())
    }

    fn close_block(&mut self) -> io::Result<()> {
        let Some(block) = block::encode(&self.pending, self.level)? else { return Ok(()) };
        let entry = BlockEntry::of(&block, self.offset, self.salt);
        let entry = entry.ok_or_else(|| io::Error::other("a block exceeds 4 GiB"))?;
        for part in [&block.conversation, &block.marks, &block.text] {
            write_all_at(self.file, &part.bytes, self.offset)?;
            self.offset += part.bytes.len() as u64;
        }
        self.blocks.push(entry);
        self.pending.clear();
        self.weight = 0;
        Ok(())
    }

    /// Writes checkpoint and footer. Nothing is durable before the caller has synced the file. Returns the file's length.
    pub(crate) fn finish(mut self, checkpoint: Option<&JsonText>, continued: bool) -> io::Result<u64> {
        self.close_block()?;
        let footer = Footer {
            first_seq: self.first_seq,
            next_seq: self.next_seq,
            last_time: self.last_time,
            blocks: self.blocks,
            counts: self.counts,
            holders: self.holders.into_stretches(),
            continued,
            checkpoint: None,
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
