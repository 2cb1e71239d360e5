//! Little-endian integers at fixed places, checked.

use crate::event::SessionId;
use sha2::{Digest, Sha256};

pub(crate) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_le_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array_at(bytes, at).map(u64::from_le_bytes)
}

/// CRC-32 of several pieces one after the other.
pub(crate) fn crc(pieces: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for piece in pieces {
        hasher.update(piece);
    }
    hasher.finalize()
}

/// What journals name their session by: the first 128 bits of the SHA-256 of its id.
pub(crate) fn identity_of(id: &SessionId) -> [u8; 16] {
    let hash = Sha256::digest(id.as_str().as_bytes());
    hash.first_chunk().copied().unwrap_or_default()
}
