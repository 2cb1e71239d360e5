//! The end of a sealed segment: checkpoint, block index, counts, and the trailer that leads to them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::block::Block;
use super::holders::{self, Holders, Stretch};
use crate::event::JsonText;
use crate::segment::frame;
use crate::segment::journal::Format;

/// Sealed segments. Version 1, in which every delta's length was stored, was never released.
pub(crate) const FORMAT: Format = Format { magic: *b"slogSEAL", version: 2 };

/// Length of the trailer in bytes.
pub(crate) const TRAILER_BYTES: usize = 32;

/// Longest footer that is unpacked, in bytes: an index of a million blocks and a large checkpoint fit.
const MAX_FOOTER_BYTES: usize = 256 << 20;

/// Where one part of a block is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) stored: u32,
    pub(crate) unpacked: u32,
    /// CRC-32 over the segment's salt, the part's offset and its stored bytes.
    pub(crate) crc: u32,
}

/// One block of the index. Its parts lie one after the other: conversation, marks, text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BlockEntry {
    pub(crate) first_seq: u64,
    pub(crate) next_seq: u64,
    pub(crate) offset: u64,
    pub(crate) conversation: Part,
    pub(crate) marks: Part,
    pub(crate) text: Part,
}

impl BlockEntry {
    /// The entry of `block` when it is stored at `offset`.
    pub(crate) fn of(block: &Block, offset: u64, salt: u64) -> Option<Self> {
        let mut at = offset;
        let mut part = |packed: &super::block::Packed| -> Option<Part> {
            let stored = u32::try_from(packed.bytes.len()).ok()?;
            let crc = part_crc(salt, at, &packed.bytes);
            at = at.checked_add(u64::from(stored))?;
            Some(Part { stored, unpacked: u32::try_from(packed.unpacked).ok()?, crc })
        };
        let (conversation, marks, text) = (part(&block.conversation)?, part(&block.marks)?, part(&block.text)?);
        Some(Self { first_seq: block.first_seq, next_seq: block.next_seq, offset, conversation, marks, text })
    }

    /// Offset of the first byte behind the block.
    pub(crate) fn end(&self) -> Option<u64> {
        [self.conversation, self.marks, self.text]
            .iter()
            .try_fold(self.offset, |at, part| at.checked_add(u64::from(part.stored)))
    }
}

/// The checksum of stored bytes at a place in a file.
pub(crate) fn part_crc(salt: u64, offset: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(&offset.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// Everything derived that a sealed segment carries. All of it can be rebuilt from the blocks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Footer {
    pub(crate) first_seq: u64,
    pub(crate) next_seq: u64,
    /// Time of the last event in epoch milliseconds.
    pub(crate) last_time: i64,
    pub(crate) blocks: Vec<BlockEntry>,
    /// Events by type.
    pub(crate) counts: BTreeMap<String, u64>,
    /// The blocks that hold an event of each type, in the order of `counts`.
    pub(crate) holders: Vec<Vec<Stretch>>,
    /// Whether the log went on in another file when this was sealed, so that one that is missing is missed.
    pub(crate) continued: bool,
    /// Fold state behind the last event, which stands between the blocks and the footer: whoever looks for a block has no use for
    /// it, and of a long log it is most of what is derived.
    pub(crate) checkpoint: Option<Part>,
    /// The level at which it was compressed, so that sealing harder knows what it has done already; 0 where an earlier build did not say.
    #[serde(default)]
    pub(crate) level: i32,
}

impl Footer {
    /// Checkpoint, footer and trailer as they stand at the end of a segment, from `offset` on.
    pub(crate) fn encode(mut self, state: Option<&JsonText>, offset: u64, salt: u64) -> std::io::Result<Vec<u8>> {
        let (mut out, checkpoint) = match state {
            Some(state) => {
                pack(state.as_str().as_bytes(), offset, salt, self.level).map(|(packed, part)| (packed, Some(part)))?
            }
            None => (Vec::new(), None),
        };
        self.checkpoint = checkpoint;
        let offset = offset + out.len() as u64;
        let (packed, Part { stored, unpacked, crc: footer_crc }) =
            pack(&serde_json::to_vec(&self)?, offset, salt, self.level)?;
        out.extend_from_slice(&packed);
        let mut trailer = Vec::with_capacity(TRAILER_BYTES);
        trailer.extend_from_slice(&offset.to_le_bytes());
        trailer.extend_from_slice(&stored.to_le_bytes());
        trailer.extend_from_slice(&unpacked.to_le_bytes());
        trailer.extend_from_slice(&footer_crc.to_le_bytes());
        trailer.extend_from_slice(&part_crc(salt, offset, &trailer).to_le_bytes());
        trailer.extend_from_slice(&FORMAT.magic);
        out.extend_from_slice(&trailer);
        Ok(out)
    }

    /// Reads a footer whose stored bytes the trailer has vouched for, and checks that its blocks and the checkpoint tile the file, and
    /// the blocks the seqs.
    pub(crate) fn decode(trailer: &Trailer, stored: &[u8], blocks_from: u64) -> Option<Self> {
        let text = frame::unpack(stored, usize::try_from(trailer.unpacked).ok()?, &[])?;
        let footer: Footer = serde_json::from_slice(&text).ok()?;
        let mut seq = footer.first_seq;
        let mut offset = blocks_from;
        for block in &footer.blocks {
            if block.first_seq != seq || block.next_seq <= seq || block.offset != offset {
                return None;
            }
            seq = block.next_seq;
            offset = block.end()?;
        }
        if let Some(checkpoint) = footer.checkpoint {
            let unpacked = usize::try_from(checkpoint.unpacked).ok()?;
            if checkpoint.stored == 0 || unpacked == 0 || unpacked > MAX_FOOTER_BYTES {
                return None;
            }
            offset = offset.checked_add(u64::from(checkpoint.stored))?;
        }
        let counted = footer.counts.values().try_fold(0_u64, |sum, count| sum.checked_add(*count))?;
        let whole = seq == footer.next_seq && offset == trailer.offset && counted == seq - footer.first_seq;
        let placed = footer.holders.len() == footer.counts.len()
            && footer.holders.iter().all(|stretches| holders::are_sound(stretches, footer.blocks.len()));
        (whole && placed).then_some(footer)
    }

    /// Bytes of all parts, unpacked.
    pub(crate) fn weight(&self) -> u64 {
        let parts = self.blocks.iter().flat_map(|block| [block.conversation, block.marks, block.text]);
        parts.fold(0, |sum, part| sum.saturating_add(u64::from(part.unpacked)))
    }

    /// Index of the first block from `from` on that holds an event of a type that is `wanted`.
    pub(crate) fn holding(&self, from: usize, wanted: impl Fn(&str) -> bool) -> Option<usize> {
        let types = self.counts.keys().zip(&self.holders).filter(|(name, _)| wanted(name));
        let first = types.filter_map(|(_, stretches)| holders::first_from(stretches, from)).min();
        first.filter(|index| *index < self.blocks.len())
    }

    /// The blocks by type, of the blocks that count.
    pub(crate) fn holders(&self) -> Holders {
        Holders::of(self.counts.keys().map(String::as_str).zip(&self.holders), self.blocks.len())
    }

    /// Index of the block that holds `seq`.
    pub(crate) fn block_of(&self, seq: u64) -> Option<usize> {
        let index = self.blocks.partition_point(|block| block.next_seq <= seq);
        self.blocks.get(index).filter(|block| block.first_seq <= seq).map(|_| index)
    }
}

/// Lowest level of checkpoint and footer, which are short.
const LEAST_LEVEL: i32 = 3;

/// Packs what stands at `offset`.
fn pack(text: &[u8], offset: u64, salt: u64, level: i32) -> std::io::Result<(Vec<u8>, Part)> {
    let packed = zstd::bulk::compress(text, level.max(LEAST_LEVEL))?;
    let part = Part {
        stored: u32::try_from(packed.len()).map_err(std::io::Error::other)?,
        unpacked: u32::try_from(text.len()).map_err(std::io::Error::other)?,
        crc: part_crc(salt, offset, &packed),
    };
    Ok((packed, part))
}

/// The fixed last bytes of a sealed segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub(crate) offset: u64,
    pub(crate) stored: u32,
    pub(crate) unpacked: u32,
    pub(crate) crc: u32,
}

impl Trailer {
    /// Reads and checks a trailer that ends a file of `length` bytes.
    pub(crate) fn decode(bytes: &[u8; TRAILER_BYTES], length: u64, salt: u64) -> Option<Self> {
        let u32_at = |at: usize| bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        let offset = u64::from_le_bytes(*bytes.first_chunk()?);
        let trailer = Self { offset, stored: u32_at(8)?, unpacked: u32_at(12)?, crc: u32_at(16)? };
        let sound = bytes.ends_with(&FORMAT.magic)
            && u32_at(20)? == part_crc(salt, offset, bytes.get(..20)?)
            && offset.checked_add(u64::from(trailer.stored))?.checked_add(TRAILER_BYTES as u64)? == length
            && usize::try_from(trailer.unpacked).ok()? <= MAX_FOOTER_BYTES;
        sound.then_some(trailer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footer() -> Footer {
        let part = Part { stored: 10, unpacked: 20, crc: 7 };
        let empty = Part { stored: 0, unpacked: 0, crc: 0 };
        let entry = |first_seq, next_seq, offset| BlockEntry {
            first_seq,
            next_seq,
            offset,
            conversation: part,
            marks: part,
            text: empty,
        };
        Footer {
            first_seq: 5,
            next_seq: 30,
            last_time: -4,
            blocks: vec![entry(5, 9, 96), entry(9, 30, 116)],
            counts: BTreeMap::from([("a/b".to_owned(), 20), ("c".to_owned(), 5)]),
            holders: vec![vec![(0, 1)], vec![(1, 1)]],
            continued: true,
            checkpoint: None,
            level: 9,
        }
    }

    #[test]
    fn a_footer_comes_back_and_every_flip_is_noticed() {
        let state = JsonText::parse("{\"a\":[1,2.50]}").unwrap();
        let packed = pack(state.as_str().as_bytes(), 136, 99, 9).unwrap();
        let bytes = footer().encode(Some(&state), 136, 99).unwrap();
        let length = 136 + bytes.len() as u64;
        let (checkpoint, bytes) = bytes.split_at(packed.0.len());
        assert_eq!(checkpoint, packed.0);
        assert_eq!(frame::unpack(checkpoint, state.len(), &[]).unwrap(), state.as_str().as_bytes());
        let read = |bytes: &[u8]| {
            let (stored, trailer) = bytes.split_at(bytes.len() - TRAILER_BYTES);
            let trailer = Trailer::decode(trailer.try_into().unwrap(), length, 99)?;
            (part_crc(99, trailer.offset, stored) == trailer.crc).then(|| Footer::decode(&trailer, stored, 96))?
        };
        assert_eq!(read(bytes).unwrap(), Footer { checkpoint: Some(packed.1), ..footer() });
        assert_eq!((footer().block_of(8), footer().block_of(9), footer().block_of(4)), (Some(0), Some(1), None));
        let holding = |from, wanted: &str| footer().holding(from, |name| name == wanted);
        assert_eq!(
            (holding(0, "c"), holding(1, "a/b"), holding(2, "c"), holding(0, "d")),
            (Some(1), Some(1), None, None)
        );
        for index in 0..bytes.len() {
            for bit in 0..8 {
                let mut bad = bytes.to_vec();
                bad[index] ^= 1 << bit;
                assert!(read(&bad).is_none(), "byte {index} bit {bit}");
            }
        }
    }

    #[test]
    fn an_index_that_does_not_tile_the_segment_is_refused() {
        let mut gap = footer();
        gap.blocks[1].first_seq = 10;
        let mut miscounted = footer();
        miscounted.counts.insert("d".into(), 1);
        let mut misplaced = footer();
        misplaced.blocks[1].offset += 1;
        let mut unheld = footer();
        unheld.holders[1].clear();
        let mut beyond = footer();
        beyond.holders[0] = vec![(0, 2)];
        let mut untyped = footer();
        untyped.holders.pop();
        for bad in [gap, miscounted, misplaced, unheld, beyond, untyped] {
            let bytes = bad.encode(None, 136, 99).unwrap();
            let (stored, trailer) = bytes.split_at(bytes.len() - TRAILER_BYTES);
            let trailer = Trailer::decode(trailer.try_into().unwrap(), 136 + bytes.len() as u64, 99).unwrap();
            assert!(Footer::decode(&trailer, stored, 96).is_none());
        }
    }
}
