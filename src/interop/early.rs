//! The first lines of a log: whose it is, and what they say about the session.

use std::collections::VecDeque;
use std::io::Read;

use super::error::ImportErrorKind;
use super::foreign::{self, Mapping, SourceFormat};
use super::lines::{LineFault, Lines};
use super::place::{Place, broken_json};
use super::{ImportError, ImportOptions};
use crate::event::JsonText;
use crate::event::json;

/// How many lines may come before the one that says whose log it is and which session it records.
const LOOKED_AT: usize = 64;

/// Endings of a log's file name.
const ENDINGS: [&str; 3] = [".jsonl", ".jsonl.zstd", ".jsonl.zst"];

/// A line that was read and not yet used.
pub(super) struct Line {
    pub(super) number: u64,
    pub(super) start: u64,
    pub(super) terminated: bool,
    pub(super) content: Result<JsonText, Unreadable>,
}

/// A line that is no record.
pub(super) struct Unreadable {
    pub(super) kind: ImportErrorKind,
    /// Where exactly the fault is.
    pub(super) offset: u64,
    bytes: Vec<u8>,
}

impl Line {
    /// The next line; `None` at the end.
    ///
    /// # Errors
    /// When nothing can be read behind it.
    pub(super) fn read<R: Read>(lines: &mut Lines<R>, place: Place<'_>) -> Result<Option<Self>, ImportError> {
        let fault = match lines.next() {
            Ok(None) => return Ok(None),
            Ok(Some((_, text))) => match JsonText::parse(text) {
                Ok(record) => {
                    let content = Ok(record);
                    let (number, start, terminated) = (lines.number(), lines.start(), lines.terminated());
                    return Ok(Some(Self { number, start, terminated, content }));
                }
                Err(_) => None,
            },
            Err(fault) => Some(fault),
        };
        let (number, start, terminated) = (lines.number(), lines.start(), lines.terminated());
        let (kind, offset) = match fault {
            None => (broken_json(lines.readable()), start),
            Some(LineFault::NulRun { offset, length }) => (ImportErrorKind::NulRun { length }, offset),
            Some(LineFault::Utf8 { offset }) => (ImportErrorKind::Utf8, offset),
            Some(LineFault::CutCharacter { offset }) => {
                (ImportErrorKind::CutLine { detail: "inside a character".to_owned() }, offset)
            }
            Some(fault) => return Err(Place { line: number, ..place }.line_fault(fault, lines, None)),
        };
        let unreadable = Unreadable { kind, offset, bytes: lines.bytes().to_vec() };
        Ok(Some(Self { number, start, terminated, content: Err(unreadable) }))
    }

    /// Whether the line is the last one and its writer may still be at it.
    pub(super) fn is_cut(&self) -> bool {
        let broken = |line: &Unreadable| matches!(line.kind, ImportErrorKind::CutLine { .. });
        !self.terminated && self.content.as_ref().is_err_and(broken)
    }
}

impl Unreadable {
    /// What can be said of the line, as a JSON object that holds its bytes.
    pub(super) fn describe(&self, line: u64) -> String {
        let bytes = match std::str::from_utf8(&self.bytes) {
            Ok(text) => format!("\"text\":{}", json::quoted(text)),
            Err(_) => format!("\"hex\":\"{}\"", hex(&self.bytes)),
        };
        let detail = json::quoted(&self.kind.to_string());
        format!(
            "{{\"line\":{line},\"offset\":{},\"class\":\"{}\",\"detail\":{detail},{bytes}}}",
            self.offset,
            self.kind.class()
        )
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| DIGITS.get(usize::from(value & 15)).copied().map_or('0', char::from);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// The start of a log.
pub(super) struct Opening {
    pub(super) lines: VecDeque<Line>,
    /// What maps the records, unless they are events already.
    pub(super) mapping: Option<Box<dyn Mapping>>,
    pub(super) format: SourceFormat,
    /// Why nothing can be read behind `lines`.
    pub(super) failed: Option<ImportError>,
}

impl Opening {
    /// Reads until it is clear whose log it is and which session it records; of this crate's own logs that is the first line.
    pub(super) fn read<R: Read>(
        lines: &mut Lines<R>,
        options: &ImportOptions,
        place: Place<'_>,
    ) -> Result<Self, ImportError> {
        let mut format = options.format;
        let mut mapping = format.and_then(foreign::mapping);
        let mut early: VecDeque<Line> = VecDeque::new();
        let mut failed = None;
        let mut introduced = 0;
        while early.len() < LOOKED_AT {
            match Line::read(lines, place) {
                Ok(None) => break,
                Ok(Some(line)) => early.push_back(line),
                Err(error) if early.is_empty() => return Err(error),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
            if format.is_none()
                && let Some(Line { content: Ok(record), .. }) = early.back()
            {
                format = foreign::detect(record.as_str());
                // A header further down is not one.
                if format == Some(SourceFormat::Sessionlog) && early.len() > 1 {
                    format = None;
                    break;
                }
                mapping = format.and_then(foreign::mapping);
            }
            let Some(mapping) = &mut mapping else {
                if format.is_some() {
                    break;
                }
                continue;
            };
            let records = early.iter().skip(introduced).filter_map(|line| line.content.as_ref().ok());
            let mut done = false;
            records.for_each(|record| done = mapping.introduce(record.as_str()));
            introduced = early.len();
            if done {
                break;
            }
        }
        Ok(Self { lines: early, mapping, format: format.unwrap_or_default(), failed })
    }
}

/// The log's name without directories and endings.
pub(super) fn stem(file: &str) -> &str {
    let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
    ENDINGS.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name)
}
