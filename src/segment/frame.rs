//! zstd frames as the formats use them: exactly one in a place, with the length of its content stated in it and beside it.

use zstd::zstd_safe::{DCtx, find_frame_compressed_size, get_frame_content_size};

/// Largest factor by which zstd can shrink anything: a block of 128 KiB of the same byte takes four bytes.
const MAX_RATIO: usize = 1 << 15;

/// Largest window that a reader must provide, in bytes: what zstd itself accepts without being asked.
const MAX_WINDOW_BYTES: u64 = 1 << 27;

/// The window that a frame asks for, in bytes: of one without a window of its own, its content.
fn window_bytes(packed: &[u8], content: u64) -> Option<u64> {
    const SINGLE_SEGMENT: u8 = 1 << 5;
    if packed.get(4)? & SINGLE_SEGMENT != 0 {
        return Some(content);
    }
    let descriptor = packed.get(5)?;
    let base = 1_u64 << (10 + u32::from(descriptor >> 3));
    Some(base + base / 8 * u64::from(descriptor & 7))
}

/// The content of a frame that fills `packed` and holds exactly `length` bytes, at least one. `None` for anything else: bytes behind
/// the frame, further frames, skippable ones, another length or none stated, a larger window than any written, damage.
///
/// Memory: `length`, and never more than what a frame of this size can hold.
pub(crate) fn unpack(packed: &[u8], length: usize, prefix: &[u8]) -> Option<Vec<u8>> {
    let stated = get_frame_content_size(packed).ok()??;
    let whole = length > 0
        && usize::try_from(stated) == Ok(length)
        && window_bytes(packed, stated)? <= MAX_WINDOW_BYTES
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
    fn a_window_beyond_the_limit_is_refused_however_short_the_content() {
        let with_window = |log: u32| {
            let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
            encoder.window_log(20).unwrap();
            encoder.set_pledged_src_size(Some(2 << 20)).unwrap();
            encoder.write_all(&vec![3; 2 << 20]).unwrap();
            let mut bytes = encoder.finish().unwrap();
            // The window is a byte of its own: an exponent from 10 on in five bits, eighths in three.
            assert_eq!(bytes[5], 10 << 3);
            bytes[5] = u8::try_from(log - 10).unwrap() << 3;
            bytes
        };
        assert!(unpack(&with_window(27), 2 << 20, &[]).is_some());
        assert!(unpack(&with_window(28), 2 << 20, &[]).is_none());
        let mut eighths = with_window(27);
        eighths[5] |= 1;
        assert!(unpack(&eighths, 2 << 20, &[]).is_none());
        assert_eq!(window_bytes(&frame(&[1; 300], true), 1 << 28), Some(1 << 28), "a single segment");
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
