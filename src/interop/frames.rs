//! Compressed logs as peers expect them: the header alone in the first frame, every frame checksummed.

use std::io::{self, Write};

use zstd::stream::raw::CParameter;

/// Text in one frame, in bytes: enough to compress well, little enough to hold twice.
const FRAME_BYTES: usize = 1 << 20;

/// Compresses lines into zstd frames that end where a line ends. The first frame holds the first line and nothing else, which
/// some readers insist on; every frame carries its checksum and its length.
///
/// Give every line in one write that ends in the line break, as the log writers do. Holds one frame, or one line where that is
/// longer.
pub struct ZstdLines<W> {
    out: W,
    compressor: zstd::bulk::Compressor<'static>,
    waiting: Vec<u8>,
    first: bool,
}

impl<W: Write> ZstdLines<W> {
    /// Compresses into `out` at zstd's default level.
    ///
    /// # Errors
    /// When the compressor cannot be set up.
    pub fn new(out: W) -> io::Result<Self> {
        let mut compressor = zstd::bulk::Compressor::new(zstd::DEFAULT_COMPRESSION_LEVEL)?;
        compressor.set_parameter(CParameter::ChecksumFlag(true))?;
        Ok(Self { out, compressor, waiting: Vec::new(), first: true })
    }

    /// Writes the last frame, flushes the output and gives it back.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        Ok(self.out)
    }

    fn end_frame(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let frame = self.compressor.compress(&self.waiting)?;
        self.out.write_all(&frame)?;
        self.waiting.clear();
        // A line that was large once does not hold its memory for the rest of the log.
        self.waiting.shrink_to(2 * FRAME_BYTES);
        Ok(())
    }
}

impl<W: Write> Write for ZstdLines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(bytes);
        let line_ended = bytes.last() == Some(&b'\n');
        if line_ended && (self.first || self.waiting.len() >= FRAME_BYTES) {
            self.first = false;
            self.end_frame()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.end_frame()?;
        self.out.flush()
    }
}
