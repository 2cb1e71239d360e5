//! The bytes behind a log: plain, or zstd in any framing, told apart by their first four bytes.

use std::io::{self, Read};

use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

/// Largest window that a zstd frame may ask for, as a power of two: 128 MiB, what zstd itself refuses to exceed unasked.
pub const MAX_WINDOW_LOG: u32 = 27;

/// Most text that a compressed log may decode to, in bytes: 64 GiB. The largest log that people reported had 38 GB.
pub const MAX_DECODED_BYTES: u64 = 64 << 30;

const FRAME_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const INPUT_BYTES: usize = 64 * 1024;

/// Why no more bytes come.
#[derive(Debug)]
pub(super) enum SourceFault {
    Io(io::Error),
    /// The compressed stream is at fault, at this offset in the file.
    Zstd {
        offset: u64,
        detail: String,
    },
    TooLarge {
        limit: u64,
    },
}

/// A log's text as a stream of bytes.
pub(super) struct Source<R> {
    input: R,
    /// Bytes taken from `input`; those from `at` to `filled` are still to be handed out or decoded.
    buffer: Vec<u8>,
    at: usize,
    filled: usize,
    ended: bool,
    bytes_in: u64,
    zstd: Option<Frames>,
}

struct Frames {
    decoder: Decoder<'static>,
    frame_start: u64,
    /// Whether a frame has begun and not ended.
    open: bool,
    decoded: u64,
    limit: u64,
}

/// Whether the bytes open a zstd frame or a skippable one.
fn is_zstd(start: &[u8]) -> bool {
    start == FRAME_MAGIC || matches!(start, [0x50..=0x5f, 0x2a, 0x4d, 0x18])
}

impl<R: Read> Source<R> {
    pub(super) fn open(input: R, limit: u64) -> Result<Self, SourceFault> {
        let buffer = vec![0; INPUT_BYTES];
        let mut source = Self { input, buffer, at: 0, filled: 0, ended: false, bytes_in: 0, zstd: None };
        while source.filled < FRAME_MAGIC.len() && !source.ended {
            source.take_more()?;
        }
        if source.waiting().get(..4).is_some_and(is_zstd) {
            let mut decoder = Decoder::new().map_err(SourceFault::Io)?;
            decoder.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG)).map_err(SourceFault::Io)?;
            source.zstd = Some(Frames { decoder, frame_start: 0, open: false, decoded: 0, limit });
        }
        Ok(source)
    }

    /// Bytes taken from the input so far.
    pub(super) fn bytes_in(&self) -> u64 {
        self.bytes_in
    }

    /// Bytes that were read and not yet used.
    fn waiting(&self) -> &[u8] {
        self.buffer.get(self.at..self.filled).unwrap_or_default()
    }

    /// Adds one read of the input to what is waiting.
    fn take_more(&mut self) -> Result<(), SourceFault> {
        let room = self.buffer.get_mut(self.filled..).unwrap_or_default();
        let count = loop {
            match self.input.read(room) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other.map_err(SourceFault::Io)?,
            }
        };
        self.ended = count == 0;
        self.filled += count;
        self.bytes_in += count as u64;
        Ok(())
    }

    /// Makes sure that something is waiting unless the input has ended.
    fn refill(&mut self) -> Result<(), SourceFault> {
        if self.at >= self.filled && !self.ended {
            (self.at, self.filled) = (0, 0);
            self.take_more()?;
        }
        Ok(())
    }

    /// Fills `out` as far as one step gets; 0 at the end.
    pub(super) fn read(&mut self, out: &mut [u8]) -> Result<usize, SourceFault> {
        loop {
            self.refill()?;
            let waiting = self.buffer.get(self.at..self.filled).unwrap_or_default();
            let Some(frames) = &mut self.zstd else {
                let count = waiting.len().min(out.len());
                if let (Some(to), Some(from)) = (out.get_mut(..count), waiting.get(..count)) {
                    to.copy_from_slice(from);
                }
                self.at += count;
                return Ok(count);
            };
            let position = self.bytes_in - waiting.len() as u64;
            if !frames.open {
                if waiting.is_empty() {
                    return Ok(0);
                }
                frames.frame_start = position;
            }
            let mut from = InBuffer::around(waiting);
            let mut to = OutBuffer::around(&mut *out);
            let hint = frames.decoder.run(&mut from, &mut to).map_err(|error| SourceFault::Zstd {
                offset: frames.frame_start,
                detail: format!("the frame that starts here cannot be decoded: {error}"),
            })?;
            let (used, made) = (from.pos(), to.pos());
            self.at += used;
            frames.open = hint != 0;
            frames.decoded += made as u64;
            if frames.decoded > frames.limit {
                return Err(SourceFault::TooLarge { limit: frames.limit });
            }
            if made > 0 {
                return Ok(made);
            }
            if self.ended && used == 0 {
                let detail = "the frame that starts here is cut".to_owned();
                return Err(SourceFault::Zstd { offset: frames.frame_start, detail });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut source: Source<&[u8]>) -> Result<u64, SourceFault> {
        let mut out = vec![0; 4096];
        let mut read = 0;
        loop {
            match source.read(&mut out)? {
                0 => return Ok(read),
                count => read += count as u64,
            }
        }
    }

    #[test]
    fn decoded_text_at_below_and_above_the_limit() {
        let packed = zstd::bulk::compress(&[b'x'; 10_000], 1).unwrap();
        for (before, fits) in
            [(MAX_DECODED_BYTES - 10_001, true), (MAX_DECODED_BYTES - 10_000, true), (MAX_DECODED_BYTES - 9_999, false)]
        {
            let mut source = Source::open(packed.as_slice(), MAX_DECODED_BYTES).map_err(|_| "open").unwrap();
            // As after frames that held this much.
            source.zstd.as_mut().unwrap().decoded = before;
            match all(source) {
                Ok(count) => assert!(fits && count == 10_000),
                Err(SourceFault::TooLarge { limit }) => assert!(!fits && limit == MAX_DECODED_BYTES),
                Err(fault) => panic!("{fault:?}"),
            }
        }
        // Frames are counted together.
        let two = packed.repeat(2);
        for (limit, fits) in [(20_001, true), (20_000, true), (19_999, false)] {
            let source = Source::open(two.as_slice(), limit).map_err(|_| "open").unwrap();
            assert_eq!(all(source).is_ok(), fits, "{limit}");
        }
    }

    #[test]
    fn windows_at_below_and_above_the_limit() {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(20).unwrap();
        encoder.include_contentsize(false).unwrap();
        io::Write::write_all(&mut encoder, &vec![3; 2 << 20]).unwrap();
        let packed = encoder.finish().unwrap();
        for (log, fits) in [(MAX_WINDOW_LOG - 1, true), (MAX_WINDOW_LOG, true), (MAX_WINDOW_LOG + 1, false)] {
            let mut packed = packed.clone();
            // A byte of its own: an exponent from 10 on in five bits, eighths in three.
            packed[5] = u8::try_from(log - 10).unwrap() << 3;
            let source = Source::open(packed.as_slice(), MAX_DECODED_BYTES).map_err(|_| "open").unwrap();
            match all(source) {
                Ok(count) => assert!(fits && count == 2 << 20, "{log}"),
                Err(SourceFault::Zstd { offset, .. }) => assert!(!fits && offset == 0, "{log}"),
                Err(fault) => panic!("{fault:?}"),
            }
        }
    }
}
