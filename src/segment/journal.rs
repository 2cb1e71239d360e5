//! The journal's header: which file this is, whose, and what it continues.

use super::bytes::{array_at, crc, u16_at, u32_at, u64_at};
use crate::event::limits::MAX_SAFE_INTEGER;

/// A kind of file that starts with this header, and the version of it that this crate writes and reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) magic: [u8; 8],
    pub(crate) version: u16,
}

/// Journals.
pub(crate) const FORMAT: Format = Format { magic: *b"slogJRNL", version: 1 };

/// Number of the one checksum algorithm so far: CRC-32 as in IEEE 802.3.
pub(crate) const CHECKSUM_CRC32: u8 = 1;

/// Length of the header in this format, in bytes.
pub(crate) const HEADER_BYTES: usize = 96;

/// The same as it stands in the header.
const HEADER_LENGTH: u32 = 96;

/// The same as an offset: where the first record starts.
pub(crate) const FIRST_RECORD: u64 = HEADER_BYTES as u64;

/// Longest header that a later format may have: what a reader looks at to tell a newer version from damage.
const MAX_HEADER_BYTES: usize = 4096;

/// The journal before this one, and how much of it counts. Bytes of it behind `end` were given up: a torn tail, or what a failed
/// sync left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Predecessor {
    pub(crate) first_seq: u64,
    pub(crate) salt: u64,
    pub(crate) end: u64,
}

/// A journal's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JournalHeader {
    /// Random identity of the file, never 0; part of every checksum in it.
    pub(crate) salt: u64,
    /// The session's identity; see [`super::bytes::identity_of`].
    pub(crate) session: [u8; 16],
    pub(crate) first_seq: u64,
    pub(crate) epoch: u64,
    pub(crate) predecessor: Option<Predecessor>,
}

/// Why bytes are no header of a journal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    /// Fewer bytes than a header has, and nothing wrong with those there are.
    Cut,
    /// Zeros.
    Nul,
    /// Not what was written.
    Bad,
    /// Sound, and of a version or with a checksum that this crate does not know.
    Foreign(u16),
}

impl JournalHeader {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        self.encode_as(FORMAT)
    }

    /// The header of another kind of file with the same layout.
    pub(crate) fn encode_as(&self, format: Format) -> [u8; HEADER_BYTES] {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&format.magic);
        out.extend_from_slice(&format.version.to_le_bytes());
        out.push(CHECKSUM_CRC32);
        out.push(0);
        out.extend_from_slice(&HEADER_LENGTH.to_le_bytes());
        out.extend_from_slice(&self.salt.to_le_bytes());
        out.extend_from_slice(&self.session);
        out.extend_from_slice(&self.first_seq.to_le_bytes());
        out.extend_from_slice(&self.epoch.to_le_bytes());
        let predecessor = self.predecessor.unwrap_or(Predecessor { first_seq: 0, salt: 0, end: 0 });
        out.extend_from_slice(&predecessor.first_seq.to_le_bytes());
        out.extend_from_slice(&predecessor.salt.to_le_bytes());
        out.extend_from_slice(&predecessor.end.to_le_bytes());
        out.resize(HEADER_BYTES - 4, 0);
        let checksum = crc(&[&out]);
        out.extend_from_slice(&checksum.to_le_bytes());
        let mut header = [0; HEADER_BYTES];
        header.copy_from_slice(&out);
        header
    }

    /// Reads a header from the first bytes of a file: all of it, or as much as [`JournalHeader::sample_bytes`].
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, HeaderFault> {
        let header = Self::decode_as(bytes, FORMAT)?;
        // What a journal continues starts before it and holds records.
        let continues = |before: Predecessor| before.first_seq < header.first_seq;
        if header.predecessor.is_none_or(continues) { Ok(header) } else { Err(HeaderFault::Bad) }
    }

    /// As [`JournalHeader::decode`], for another kind of file.
    pub(crate) fn decode_as(bytes: &[u8], format: Format) -> Result<Self, HeaderFault> {
        let magic = format.magic;
        let known = bytes.len().min(magic.len());
        if bytes.len() < HEADER_BYTES {
            let plausible = bytes.get(..known) == magic.get(..known);
            return Err(if plausible || bytes.iter().all(|byte| *byte == 0) {
                HeaderFault::Cut
            } else {
                HeaderFault::Bad
            });
        }
        Self::decode_whole(bytes, format).unwrap_or(Err(HeaderFault::Bad))
    }

    /// How many bytes [`JournalHeader::decode`] may need.
    pub(crate) fn sample_bytes() -> usize {
        MAX_HEADER_BYTES
    }

    fn decode_whole(bytes: &[u8], format: Format) -> Option<Result<Self, HeaderFault>> {
        let header = bytes.get(..HEADER_BYTES)?;
        if header.iter().all(|byte| *byte == 0) {
            return Some(Err(HeaderFault::Nul));
        }
        // Magic, version, length and the checksum at the end stay where they are in every version.
        let length = usize::try_from(u32_at(bytes, 12)?).ok()?;
        let checked = length.checked_sub(4)?;
        let sound = bytes.get(..8)? == format.magic
            && (HEADER_BYTES..=MAX_HEADER_BYTES).contains(&length)
            && crc(&[bytes.get(..checked)?]) == u32_at(bytes, checked)?;
        if !sound {
            return Some(Err(HeaderFault::Bad));
        }
        let version = u16_at(bytes, 8)?;
        if version != format.version || *bytes.get(10)? != CHECKSUM_CRC32 {
            return Some(Err(HeaderFault::Foreign(version)));
        }
        let predecessor =
            Predecessor { first_seq: u64_at(bytes, 56)?, salt: u64_at(bytes, 64)?, end: u64_at(bytes, 72)? };
        let header = Self {
            salt: u64_at(bytes, 16)?,
            session: array_at(bytes, 24)?,
            first_seq: u64_at(bytes, 40)?,
            epoch: u64_at(bytes, 48)?,
            predecessor: (predecessor.salt != 0).then_some(predecessor),
        };
        let largest = MAX_SAFE_INTEGER.unsigned_abs();
        let plausible = header.salt != 0
            && header.first_seq <= largest
            && (1..=largest).contains(&header.epoch)
            && header.predecessor.is_none_or(|before| before.end > FIRST_RECORD)
            && header.encode_as(format) == bytes.get(..HEADER_BYTES)?;
        Some(if plausible { Ok(header) } else { Err(HeaderFault::Bad) })
    }
}

/// A journal's file name.
pub(crate) fn file_name(first_seq: u64) -> String {
    format!("{first_seq:020}.log")
}

/// A sealed segment's file name.
pub(crate) fn segment_name(first_seq: u64) -> String {
    format!("{first_seq:020}.seg")
}

/// The first seq in a file name of the form `<20 digits>.<extension>`.
pub(crate) fn seq_of(name: &str, extension: &str) -> Option<u64> {
    let digits = name.strip_suffix(extension)?.strip_suffix('.')?;
    let plain = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> JournalHeader {
        JournalHeader {
            salt: 0x0123_4567_89ab_cdef,
            session: [7; 16],
            first_seq: 40,
            epoch: 3,
            predecessor: Some(Predecessor { first_seq: 4, salt: 9, end: 1000 }),
        }
    }

    #[test]
    fn a_header_survives_and_every_flip_and_cut_is_found() {
        let bytes = sample().encode();
        assert_eq!(JournalHeader::decode(&bytes), Ok(sample()));
        let first = JournalHeader { first_seq: 0, predecessor: None, ..sample() };
        assert_eq!(JournalHeader::decode(&first.encode()), Ok(first));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(JournalHeader::decode(&flipped), Err(HeaderFault::Bad), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert_eq!(JournalHeader::decode(&bytes[..length]), Err(HeaderFault::Cut));
        }
        assert_eq!(JournalHeader::decode(&[0; 200]), Err(HeaderFault::Nul));
        assert_eq!(JournalHeader::decode(b"something else"), Err(HeaderFault::Bad));
    }

    #[test]
    fn n2_a_sound_header_of_a_later_version_is_foreign_and_not_damage() {
        let mut bytes = sample().encode().to_vec();
        bytes.truncate(92);
        bytes[8] = 2;
        bytes[12..16].copy_from_slice(&200_u32.to_le_bytes());
        bytes.resize(196, 5);
        let checksum = crc(&[&bytes]);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        assert_eq!(JournalHeader::decode(&bytes), Err(HeaderFault::Foreign(2)));
    }

    #[test]
    fn file_names_are_twenty_digits() {
        assert_eq!(file_name(120_000), "00000000000000120000.log");
        assert_eq!(seq_of("00000000000000120000.log", "log"), Some(120_000));
        for name in ["120000.log", "0000000000000012000x.log", "00000000000000120000.seg", "+0000000000000120000.log"] {
            assert_eq!(seq_of(name, "log"), None);
        }
    }
}
