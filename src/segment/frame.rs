//! zstd frames as the formats use them: exactly one in a place, with the length of its content stated in it and beside it.

use zstd::zstd_safe::{DCtx, find_frame_compressed_size, get_frame_content_size};

/// Largest factor by which zstd can shrink anything: a block of 128 KiB of the same byte takes four bytes.
const MAX_RATIO: usize = 1 << 15;

/// The content of a frame that fills `packed` and holds exactly `length` bytes, at least one. `None` for anything else: bytes behind
/// the frame, further frames, skippable ones, another length or none stated, damage.
///
/// Memory: `length`, and never more than what a frame of this size can hold.
pub(crate) fn unpack(packed: &[u8], length: usize, prefix: &[u8]) -> Option<Vec<u8>> {
    let stated = get_frame_content_size(packed).ok()??;
    let whole = length > 0
        && usize::try_from(stated) == Ok(length)
        && length <= packed.len().saturating_mul(MAX_RATIO)
        && find_frame_compressed_size(packed).ok()? == packed.len();
    if !whole {
        return None;
    }
    let mut content = Vec::new();
    content.try_reserve_exact(length).ok()?;
    let mut decoder = DCtx::try_create()?;
    decoder.ref_prefix(prefix).ok()?;
    decoder.decompress(&mut content, packed).ok()?;
    (content.len() == length).then_some(content)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn frame(text: &[u8], states_its_length: bool) -> Vec<u8> {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
        encoder.include_contentsize(states_its_length).unwrap();
        if states_its_length {
            encoder.set_pledged_src_size(Some(text.len() as u64)).unwrap();
        }
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn one_whole_frame_of_the_stated_length_is_unpacked_and_nothing_else() {
        let text = b"the same words, the same words, the same words".repeat(9);
        let whole = frame(&text, true);
        assert_eq!(unpack(&whole, text.len(), &[]).unwrap(), text);
        for length in [0, 1, text.len() - 1, text.len() + 1, usize::MAX] {
            assert!(unpack(&whole, length, &[]).is_none(), "{length}");
        }
        assert!(unpack(&frame(&text, false), text.len(), &[]).is_none(), "no length stated");
        for cut in 0..whole.len() {
            assert!(unpack(&whole[..cut], text.len(), &[]).is_none(), "cut to {cut}");
        }
        let skippable = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
        let (half, rest) = text.split_at(text.len() / 2);
        for (what, bytes) in [
            ("a byte behind it", [&whole[..], &[0]].concat()),
            ("twice", [&whole[..], &whole].concat()),
            ("an empty frame behind it", [&whole[..], &frame(b"", true)].concat()),
            ("a skippable frame behind it", [&whole[..], &skippable].concat()),
            ("a skippable frame before it", [&skippable[..], &whole].concat()),
            ("in two frames", [frame(half, true), frame(rest, true)].concat()),
        ] {
            assert!(unpack(&bytes, text.len(), &[]).is_none(), "{what}");
        }
    }

    #[test]
    fn a_frame_that_states_a_length_it_does_not_have_is_refused_without_reserving_it() {
        let text = vec![7; 300];
        let mut bytes = frame(&text, true);
        // A single segment with a length of two bytes, counted from 256.
        assert_eq!((bytes[4] >> 5, &bytes[5..7]), (0b011, &44_u16.to_le_bytes()[..]));
        bytes[5..7].copy_from_slice(&45_u16.to_le_bytes());
        assert!(unpack(&bytes, 301, &[]).is_none());
        // The same with a length of eight bytes.
        let mut large = [&bytes[..4], &[0b1110_0000], &(1_u64 << 50).to_le_bytes(), &bytes[7..]].concat();
        assert!(unpack(&large, 1 << 50, &[]).is_none());
        large[5..13].copy_from_slice(&300_u64.to_le_bytes());
        assert_eq!(unpack(&large, 300, &[]).unwrap(), text);
    }

    #[test]
    fn a_prefix_is_needed_exactly_where_it_was_used() {
        let prefix = b"a long sentence that both sides know by heart, word for word".repeat(3);
        let mut encoder = zstd::stream::write::Encoder::with_ref_prefix(Vec::new(), 3, &prefix).unwrap();
        encoder.set_pledged_src_size(Some(prefix.len() as u64)).unwrap();
        encoder.write_all(&prefix).unwrap();
        let bytes = encoder.finish().unwrap();
        assert_eq!(unpack(&bytes, prefix.len(), &prefix).unwrap(), prefix);
        assert_ne!(unpack(&bytes, prefix.len(), &[]), Some(prefix));
    }
}
