//! Lines of a log: split at byte 0x0A and at nothing else, of bounded length.

use std::io::Read;

use super::source::{Source, SourceFault};
use crate::event::limits::{MAX_EVENT_BYTES, MAX_SOURCES};

/// Longest line that is read, in bytes: the largest payload, the longest list of sources written out, and 64 KiB for the rest of
/// the envelope. So every line that is exported can be imported.
pub const MAX_LINE_BYTES: usize = MAX_EVENT_BYTES + 17 * MAX_SOURCES + (64 << 10);

/// Most blank bytes in a log. Far beyond any editor's habit, far below what a small hostile file can decode to.
const MAX_BLANK_BYTES: u64 = 64 << 20;

const CHUNK_BYTES: usize = 64 * 1024;
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// Why there is no next line.
#[derive(Debug)]
pub(super) enum LineFault {
    Source(SourceFault),
    TooLong { limit: usize },
    TooMuchBlank { limit: u64 },
    NulRun { offset: u64, length: u64 },
    Utf8 { offset: u64 },
    CutCharacter { offset: u64 },
}

/// Reads lines one at a time into a buffer that it keeps.
pub(super) struct Lines<R> {
    source: Source<R>,
    chunk: Vec<u8>,
    at: usize,
    filled: usize,
    line: Vec<u8>,
    limit: usize,
    /// Offset of the first byte that is not yet part of a line handed out.
    offset: u64,
    start: u64,
    number: u64,
    terminated: bool,
    /// Blank lines so far.
    pub(super) blank: u64,
    blank_bytes: u64,
    /// Lines so far that ended in CR LF.
    pub(super) crlf: u64,
    pub(super) byte_order_mark: bool,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(source: Source<R>, limit: usize) -> Self {
        Self {
            source,
            chunk: vec![0; CHUNK_BYTES],
            at: 0,
            filled: 0,
            line: Vec::new(),
            limit,
            offset: 0,
            start: 0,
            number: 0,
            terminated: true,
            blank: 0,
            blank_bytes: 0,
            crlf: 0,
            byte_order_mark: false,
        }
    }

    /// Number of the current line, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Offset of the current line's first byte.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Whether the current line had a line break.
    pub(super) fn terminated(&self) -> bool {
        self.terminated
    }

    pub(super) fn bytes_in(&self) -> u64 {
        self.source.bytes_in()
    }

    pub(super) fn bytes_decoded(&self) -> u64 {
        self.offset
    }

    /// Moves on to the next line that is not blank and returns its number, and its text without the line break; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u64, &str)>, LineFault> {
        loop {
            if !self.read_line()? {
                return Ok(None);
            }
            if self.start == 0 && self.line.starts_with(&BYTE_ORDER_MARK) {
                self.byte_order_mark = true;
                self.line.drain(..BYTE_ORDER_MARK.len());
                self.start = BYTE_ORDER_MARK.len() as u64;
            }
            if self.terminated && self.line.last() == Some(&b'\r') {
                self.line.pop();
                self.crlf += 1;
            }
            if !self.line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r')) {
                break;
            }
            if self.line.is_empty() && !self.terminated {
                // Nothing but a byte order mark.
                return Ok(None);
            }
            self.blank += 1;
            self.blank_bytes += self.line.len() as u64 + 1;
            if self.blank_bytes > MAX_BLANK_BYTES {
                return Err(LineFault::TooMuchBlank { limit: MAX_BLANK_BYTES });
            }
        }
        match std::str::from_utf8(&self.line) {
            Ok(text) => Ok(Some((self.number, text))),
            Err(error) => {
                let offset = self.start + error.valid_up_to() as u64;
                let cut = error.error_len().is_none() && !self.terminated;
                Err(if cut { LineFault::CutCharacter { offset } } else { LineFault::Utf8 { offset } })
            }
        }
    }

    /// The current line as far as it was read, whatever it holds.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.line
    }

    /// What of the current line can be read as text.
    pub(super) fn readable(&self) -> &str {
        let valid = std::str::from_utf8(&self.line).map_or_else(|error| error.valid_up_to(), str::len);
        self.line.get(..valid).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default()
    }

    /// Reads raw bytes up to and including the next line break into `line`; false at the end.
    fn read_line(&mut self) -> Result<bool, LineFault> {
        self.line.clear();
        self.start = self.offset;
        self.terminated = false;
        loop {
            if self.at == self.filled && !self.fill()? {
                let any = self.offset > self.start;
                self.number += u64::from(any);
                return Ok(any);
            }
            if self.line.is_empty() {
                // A line that has grown large once does not hold its memory for the rest of the log.
                self.line.shrink_to(4 * CHUNK_BYTES);
            }
            let waiting = self.chunk.get(self.at..self.filled).unwrap_or_default();
            let stop = memchr::memchr2(b'\n', 0, waiting);
            let plain = waiting.get(..stop.unwrap_or(waiting.len())).unwrap_or_default();
            if self.line.len() + plain.len() > self.limit {
                self.number += 1;
                return Err(LineFault::TooLong { limit: self.limit });
            }
            self.line.extend_from_slice(plain);
            self.at += plain.len();
            self.offset += plain.len() as u64;
            let Some(stop) = stop else { continue };
            self.number += 1;
            if waiting.get(stop) == Some(&0) {
                return Err(self.nul_run()?);
            }
            self.at += 1;
            self.offset += 1;
            self.terminated = true;
            return Ok(true);
        }
    }

    /// Measures the run of NUL bytes that starts here.
    fn nul_run(&mut self) -> Result<LineFault, LineFault> {
        let offset = self.offset;
        let mut length = 0;
        while self.at < self.filled || self.fill()? {
            let waiting = self.chunk.get(self.at..self.filled).unwrap_or_default();
            let run = waiting.iter().take_while(|byte| **byte == 0).count();
            length += run as u64;
            self.at += run;
            if self.at < self.filled {
                break;
            }
        }
        Ok(LineFault::NulRun { offset, length })
    }

    fn fill(&mut self) -> Result<bool, LineFault> {
        self.at = 0;
        self.filled = 0;
        self.filled = self.source.read(&mut self.chunk).map_err(LineFault::Source)?;
        Ok(self.filled > 0)
    }
}
