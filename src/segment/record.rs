//! Records: how a journal frames batches.

use super::bytes::{crc, u16_at, u32_at};
use super::frame;
use crate::backend::{BackendError, BatchMark, ErrorKind};
use crate::event::batch::encode_items;
use crate::event::envelope::check_event;
use crate::event::limits::{MAX_EVENT_BYTES, MAX_SAFE_INTEGER};
use crate::event::run::{put_varint, take_varint};
use crate::event::{Batch, Item};

/// Length of a record's header, in bytes.
pub(crate) const HEADER_BYTES: usize = 16;

/// Largest encoding of the items in one record, in bytes, before compression: an event of the largest size with its type, and as
/// much again for its sources. Appending more than that in one event is refused, so a reader never has to hold more.
pub const MAX_BODY_BYTES: usize = 2 * MAX_EVENT_BYTES;

/// Largest payload, in bytes: a body that did not compress, and the prefix.
const MAX_PAYLOAD_BYTES: usize = MAX_BODY_BYTES + MAX_PREFIX_BYTES;

/// Longest prefix of a payload: four varints and a checksum.
pub(crate) const MAX_PREFIX_BYTES: usize = 4 * 10 + 4;

/// A record is ended once its items take this many bytes, so that readers hold little at a time.
const SPLIT_BYTES: usize = 1 << 20;

/// Bodies shorter than this are stored as they are: zstd gains little on them.
const COMPRESS_FROM: usize = 512;

/// zstd level for journals: a flush is waiting, and level 3 takes a quarter longer for a twentieth less. A journal is rewritten
/// when it is sealed.
const LEVEL: i32 = 1;

/// Kinds of record. 0 is none, so that zeros are never a record.
pub(crate) const KIND_BATCH: u8 = 1;
/// Says that the log goes on in another journal.
pub(crate) const KIND_CONTINUED: u8 = 2;

/// The body is one zstd frame.
const FLAG_ZSTD: u8 = 1;
/// First record of an append: when it was written, everything before it was durable.
const FLAG_FIRST: u8 = 2;
/// Last record of an append.
const FLAG_LAST: u8 = 4;
const FLAGS: u8 = FLAG_ZSTD | FLAG_FIRST | FLAG_LAST;

/// The fixed part of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) length: u32,
    pub(crate) kind: u8,
    flags: u8,
    reserved: u16,
    pub(crate) payload_checksum: u32,
}

impl RecordHeader {
    /// Reads a header that stands at `offset` of the journal with this salt; `None` unless its checksum holds.
    pub(crate) fn decode(bytes: &[u8], salt: u64, offset: u64) -> Option<Self> {
        let fixed = bytes.get(..8)?;
        let kind = *bytes.get(4)?;
        if kind == 0 || header_checksum(salt, offset, fixed) != u32_at(bytes, 8)? {
            return None;
        }
        Some(Self {
            length: u32_at(bytes, 0)?,
            kind,
            flags: *bytes.get(5)?,
            reserved: u16_at(bytes, 6)?,
            payload_checksum: u32_at(bytes, 12)?,
        })
    }

    /// Whether this crate knows everything the header says. If not, a newer one wrote it.
    pub(crate) fn is_known(&self) -> bool {
        matches!(self.kind, KIND_BATCH | KIND_CONTINUED) && self.flags & !FLAGS == 0 && self.reserved == 0
    }

    /// Whether the length is one that a writer may choose.
    pub(crate) fn is_bounded(&self) -> bool {
        usize::try_from(self.length).is_ok_and(|length| length <= MAX_PAYLOAD_BYTES)
    }

    pub(crate) fn is_first(&self) -> bool {
        self.flags & FLAG_FIRST != 0
    }

    pub(crate) fn is_last(&self) -> bool {
        self.flags & FLAG_LAST != 0
    }
}

fn header_checksum(salt: u64, offset: u64, fixed: &[u8]) -> u32 {
    crc(&[&salt.to_le_bytes(), &offset.to_le_bytes(), fixed])
}

/// The checksum over a payload: started here, fed with the payload piece by piece.
pub(crate) fn payload_hasher(salt: u64, offset: u64) -> crc32fast::Hasher {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(&offset.to_le_bytes());
    hasher
}

/// What a batch record's payload says before its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prefix {
    pub(crate) first_seq: u64,
    pub(crate) next_seq: u64,
    /// On the last record of a batch that was split: which batch ends here.
    pub(crate) batch: Option<BatchMark>,
    /// Length of the body before compression, if it is compressed.
    inflated: Option<usize>,
    /// Where the body starts in the payload.
    body_at: usize,
}

impl Prefix {
    /// Reads the prefix from the start of a payload; `None` on anything that [`RecordWriter`] does not write.
    pub(crate) fn decode(header: &RecordHeader, payload: &[u8]) -> Option<Self> {
        let mut rest = payload;
        let first_seq = take_varint(&mut rest)?;
        let count = take_varint(&mut rest)?;
        let next_seq = first_seq.checked_add(count).filter(|next| *next <= MAX_SAFE_INTEGER.unsigned_abs())?;
        let batch = if header.is_last() && !header.is_first() {
            let batch_first = take_varint(&mut rest).filter(|first| *first < first_seq)?;
            let checksum = u32_at(rest, 0)?;
            rest = rest.get(4..)?;
            Some(BatchMark { first_seq: batch_first, checksum })
        } else {
            None
        };
        let inflated = if header.flags & FLAG_ZSTD == 0 {
            None
        } else {
            let length = usize::try_from(take_varint(&mut rest)?).ok()?;
            Some(Some(length).filter(|length| *length <= MAX_BODY_BYTES)?)
        };
        let body_at = payload.len() - rest.len();
        (count > 0).then_some(Self { first_seq, next_seq, batch, inflated, body_at })
    }

    /// Length of the body before compression, in bytes.
    pub(crate) fn body_bytes(&self, header: &RecordHeader) -> u64 {
        let stored = u64::from(header.length).saturating_sub(self.body_at as u64);
        self.inflated.map_or(stored, |inflated| inflated as u64)
    }

    /// The body of a whole payload, inflated if need be: what [`Batch::encode`] wrote.
    pub(crate) fn body(&self, payload: &[u8]) -> Option<Vec<u8>> {
        let stored = payload.get(self.body_at..)?;
        match self.inflated {
            Some(length) => frame::unpack(stored, length, &[]),
            None => Some(stored.to_vec()),
        }
    }

    /// The items of a whole payload; `None` if they are not what the prefix says.
    pub(crate) fn items(&self, payload: &[u8]) -> Option<Vec<Item>> {
        let batch = Batch::decode(&self.body(payload)?, self.first_seq)?;
        (batch.next_seq() == self.next_seq).then(|| batch.into_items())
    }
}

/// Reads the payload of a [`KIND_CONTINUED`] record: the first seq of the journal that goes on.
pub(crate) fn decode_continued(mut payload: &[u8]) -> Option<u64> {
    let next = take_varint(&mut payload)?;
    payload.is_empty().then_some(next)
}

/// Turns batches into records.
pub(crate) struct RecordWriter {
    compressor: Option<zstd::bulk::Compressor<'static>>,
    body: Vec<u8>,
}

impl std::fmt::Debug for RecordWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordWriter").field("compresses", &self.compressor.is_some()).finish_non_exhaustive()
    }
}

/// Records ready to be written at the offset they were made for.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) bytes: Vec<u8>,
    /// Where the last record's header starts in `bytes`.
    pub(crate) last_header: usize,
    pub(crate) mark: BatchMark,
}

impl RecordWriter {
    pub(crate) fn new(compress: bool) -> Self {
        let compressor = if compress { zstd::bulk::Compressor::new(LEVEL).ok() } else { None };
        Self { compressor, body: Vec::new() }
    }

    /// The records of a batch, for offset `offset` of the journal with this salt.
    ///
    /// # Errors
    /// `Invalid` when a single item is larger than [`MAX_BODY_BYTES`], and for an event that no reader would take.
    pub(crate) fn encode(&mut self, batch: &Batch, salt: u64, offset: u64) -> Result<Encoded, BackendError> {
        for item in batch.items() {
            if let Item::Event(event) = item {
                check_event(event).map_err(|error| BackendError::new(ErrorKind::Invalid, error.to_string()))?;
            }
        }
        let pieces = split(batch.items());
        let mut mark = BatchMark { first_seq: batch.first_seq(), checksum: 0 };
        if pieces.len() > 1 {
            mark.checksum = batch.checksum();
        }
        let mut bytes = Vec::new();
        let mut last_header = 0;
        for (index, items) in pieces.iter().enumerate() {
            self.body.clear();
            encode_items(items, &mut self.body);
            check_body(self.body.len())?;
            let (first, last) = (index == 0, index + 1 == pieces.len());
            if first && last {
                mark.checksum = crc(&[&self.body]);
            }
            let mut flags = if first { FLAG_FIRST } else { 0 } | if last { FLAG_LAST } else { 0 };
            let (from, to) = (items.first().map_or(0, Item::first_seq), items.last().map_or(0, Item::next_seq));
            let mut payload = Vec::with_capacity(MAX_PREFIX_BYTES);
            put_varint(&mut payload, from);
            put_varint(&mut payload, to.saturating_sub(from));
            if last && !first {
                put_varint(&mut payload, mark.first_seq);
                payload.extend_from_slice(&mark.checksum.to_le_bytes());
            }
            if let Some(small) = self.compressed() {
                flags |= FLAG_ZSTD;
                put_varint(&mut payload, self.body.len() as u64);
                payload.extend_from_slice(&small);
            } else {
                payload.extend_from_slice(&self.body);
            }
            last_header = bytes.len();
            put_record(&mut bytes, KIND_BATCH, flags, &payload, salt, offset)?;
        }
        // One large batch does not hold its memory for the life of the session.
        if self.body.capacity() > 4 * SPLIT_BYTES {
            self.body = Vec::new();
        }
        Ok(Encoded { bytes, last_header, mark })
    }

    /// The body as a zstd frame, if that saves at least an eighth.
    fn compressed(&mut self) -> Option<Vec<u8>> {
        if self.body.len() < COMPRESS_FROM {
            return None;
        }
        let small = self.compressor.as_mut()?.compress(&self.body).ok()?;
        (small.len() < self.body.len() - self.body.len() / 8).then_some(small)
    }
}

/// The record that says that the log goes on at `next_seq` in another journal.
pub(crate) fn encode_continued(next_seq: u64, salt: u64, offset: u64) -> Result<Vec<u8>, BackendError> {
    let mut payload = Vec::new();
    put_varint(&mut payload, next_seq);
    let mut bytes = Vec::new();
    put_record(&mut bytes, KIND_CONTINUED, FLAG_FIRST | FLAG_LAST, &payload, salt, offset)?;
    Ok(bytes)
}

/// Appends one record to `bytes`, which will be written at offset `base`.
fn put_record(
    bytes: &mut Vec<u8>,
    kind: u8,
    flags: u8,
    payload: &[u8],
    salt: u64,
    base: u64,
) -> Result<(), BackendError> {
    let offset = base.saturating_add(bytes.len() as u64);
    let length = u32::try_from(payload.len())
        .map_err(|_| BackendError::new(ErrorKind::Invalid, "a record exceeds 4 GiB; write smaller events"))?;
    let mut fixed = Vec::with_capacity(HEADER_BYTES);
    fixed.extend_from_slice(&length.to_le_bytes());
    fixed.extend_from_slice(&[kind, flags, 0, 0]);
    let checksum = header_checksum(salt, offset, &fixed);
    let mut hasher = payload_hasher(salt, offset);
    hasher.update(payload);
    bytes.extend_from_slice(&fixed);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes.extend_from_slice(&hasher.finalize().to_le_bytes());
    bytes.extend_from_slice(payload);
    Ok(())
}

/// Checks that a body is none that a reader would refuse.
fn check_body(bytes: usize) -> Result<(), BackendError> {
    if bytes <= MAX_BODY_BYTES {
        return Ok(());
    }
    let detail =
        format!("an event of {bytes} bytes with its sources exceeds the limit of {MAX_BODY_BYTES} bytes a record");
    Err(BackendError::new(ErrorKind::Invalid, detail))
}

/// Cuts items into stretches of about [`SPLIT_BYTES`]; an item is never cut.
fn split(items: &[Item]) -> Vec<&[Item]> {
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut size = 0_usize;
    for (index, item) in items.iter().enumerate() {
        let weight = item.weight();
        if index > start && size.saturating_add(weight) > SPLIT_BYTES {
            pieces.extend(items.get(start..index));
            start = index;
            size = 0;
        }
        size = size.saturating_add(weight);
    }
    pieces.extend(items.get(start..));
    pieces
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::{JsonText, NewEvent};

    fn batch(from: u64, sizes: &[usize]) -> Batch {
        let events = sizes.iter().zip(from..).map(|(size, seq)| {
            let data = JsonText::parse(&format!("\"{}\"", "ab".repeat(*size))).unwrap();
            NewEvent::named("app/x", data).at(seq, 7)
        });
        Batch::pack(events).unwrap()
    }

    /// Takes a stretch of records apart: header, prefix and items of each.
    fn parse(bytes: &[u8], salt: u64, base: u64) -> Vec<(RecordHeader, Prefix, Vec<Item>)> {
        let mut out = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let header = RecordHeader::decode(&bytes[at..], salt, base + at as u64).unwrap();
            let payload = &bytes[at + HEADER_BYTES..at + HEADER_BYTES + header.length as usize];
            let mut hasher = payload_hasher(salt, base + at as u64);
            hasher.update(payload);
            assert_eq!(hasher.finalize(), header.payload_checksum);
            let prefix = Prefix::decode(&header, payload).unwrap();
            out.push((header, prefix, prefix.items(payload).unwrap()));
            at += HEADER_BYTES + payload.len();
        }
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn batches_survive_framing(
            sizes in prop::collection::vec(prop_oneof![0_usize..2000, 200_000_usize..600_000], 1..6),
            from in 0_u64..1_000_000,
            salt in 1_u64..,
            compress: bool,
        ) {
            let batch = batch(from, &sizes);
            let encoded = RecordWriter::new(compress).encode(&batch, salt, 96).unwrap();
            let records = parse(&encoded.bytes, salt, 96);
            let items: Vec<Item> = records.iter().flat_map(|record| record.2.clone()).collect();
            prop_assert_eq!(items, batch.items().to_vec());
            prop_assert_eq!(encoded.mark, BatchMark { first_seq: from, checksum: batch.checksum() });
            for (index, (header, prefix, _)) in records.iter().enumerate() {
                prop_assert_eq!(header.is_first(), index == 0);
                prop_assert_eq!(header.is_last(), index + 1 == records.len());
                let ends_split = header.is_last() && !header.is_first();
                prop_assert_eq!(prefix.batch, ends_split.then_some(encoded.mark));
            }
        }

        #[test]
        fn payloads_of_any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..200), flags in 0_u8..8) {
            let header = RecordHeader { length: 0, kind: KIND_BATCH, flags, reserved: 0, payload_checksum: 0 };
            if let Some(prefix) = Prefix::decode(&header, &bytes) {
                let _ = prefix.items(&bytes);
            }
            let _ = decode_continued(&bytes);
        }
    }

    #[test]
    fn a_record_validates_only_in_its_own_place() {
        let encoded = RecordWriter::new(true).encode(&batch(0, &[10]), 5, 96).unwrap();
        assert!(RecordHeader::decode(&encoded.bytes, 5, 96).is_some());
        assert!(RecordHeader::decode(&encoded.bytes, 6, 96).is_none());
        assert!(RecordHeader::decode(&encoded.bytes, 5, 97).is_none());
        assert!(RecordHeader::decode(&[0; 16], 5, 96).is_none());
        for bit in 0..12 * 8 {
            let mut flipped = encoded.bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(RecordHeader::decode(&flipped, 5, 96).is_none(), "bit {bit}");
        }
    }

    #[test]
    fn a_body_inflates_to_what_it_states_and_never_beyond() {
        let zeros = zstd::bulk::compress(&vec![0; 50 << 20], 3).unwrap();
        let header = RecordHeader {
            length: 0,
            kind: KIND_BATCH,
            flags: FLAG_ZSTD | FLAG_FIRST | FLAG_LAST,
            reserved: 0,
            payload_checksum: 0,
        };
        for claimed in [10_u64, (50 << 20) - 1, (50 << 20) + 1] {
            let mut payload = vec![0, 1];
            put_varint(&mut payload, claimed);
            payload.extend_from_slice(&zeros);
            assert!(Prefix::decode(&header, &payload).unwrap().body(&payload).is_none());
        }
        let body = zstd::bulk::compress(&vec![0; 5000], 3).unwrap();
        for (behind, whole) in [(&[][..], true), (&[0], false), (&body, false)] {
            let mut payload = vec![0, 1];
            put_varint(&mut payload, 5000);
            payload.extend_from_slice(&body);
            payload.extend_from_slice(behind);
            assert_eq!(Prefix::decode(&header, &payload).unwrap().body(&payload).is_some(), whole, "{behind:?}");
        }
        let mut payload = vec![0, 1];
        put_varint(&mut payload, MAX_BODY_BYTES as u64 + 1);
        assert!(Prefix::decode(&header, &payload).is_none());
    }

    #[test]
    fn bodies_and_payloads_at_below_and_above_their_limits() {
        for (bytes, fits) in [(MAX_BODY_BYTES - 1, true), (MAX_BODY_BYTES, true), (MAX_BODY_BYTES + 1, false)] {
            let checked = check_body(bytes);
            assert_eq!(checked.is_ok(), fits, "{bytes}");
            let named = |error: BackendError| {
                error.kind == ErrorKind::Invalid && error.detail.contains(&MAX_BODY_BYTES.to_string())
            };
            assert!(checked.map_or_else(named, |()| fits));
            let flags = FLAG_ZSTD | FLAG_FIRST | FLAG_LAST;
            let header = RecordHeader { length: 0, kind: KIND_BATCH, flags, reserved: 0, payload_checksum: 0 };
            let mut payload = vec![0, 1];
            put_varint(&mut payload, bytes as u64);
            assert_eq!(Prefix::decode(&header, &payload).map(|prefix| prefix.inflated), fits.then_some(Some(bytes)));
        }
        for (bytes, fits) in [(MAX_PAYLOAD_BYTES - 1, true), (MAX_PAYLOAD_BYTES, true), (MAX_PAYLOAD_BYTES + 1, false)]
        {
            let length = u32::try_from(bytes).unwrap();
            let header = RecordHeader { length, kind: KIND_BATCH, flags: 0, reserved: 0, payload_checksum: 0 };
            assert_eq!(header.is_bounded(), fits, "{bytes}");
        }
        // The largest event with the most sources fits: a varint of eight bytes opens and one of four closes each.
        const { assert!(MAX_EVENT_BYTES + 12 * crate::event::limits::MAX_SOURCES + SPLIT_BYTES <= MAX_BODY_BYTES) };
    }

    #[test]
    fn a_batch_is_cut_into_records_of_about_the_stated_size_and_an_event_never() {
        let records = |bytes: usize, count: usize| {
            let batch = batch(0, &vec![bytes / 2; count]);
            let encoded = RecordWriter::new(false).encode(&batch, 5, 96).unwrap();
            parse(&encoded.bytes, 5, 96).len()
        };
        let overhead = batch(0, &[0]).items()[0].weight();
        let half = SPLIT_BYTES / 2 - overhead;
        assert_eq!((records(half - 2, 2), records(half, 2), records(half + 2, 2)), (1, 1, 2));
        assert_eq!(records(3 * SPLIT_BYTES, 1), 1);
    }
}
