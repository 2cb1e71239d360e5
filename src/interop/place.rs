//! Where a fault is, and which one.

use std::io::Read;

use super::error::{ImportError, ImportErrorKind};
use super::lines::{LineFault, Lines};
use super::source::SourceFault;

/// Tells a line that ends too early from one that is wrong in itself.
pub(super) fn broken_json(line: &str) -> ImportErrorKind {
    match serde_json::from_str::<&serde_json::value::RawValue>(line) {
        Err(error) if error.is_eof() => ImportErrorKind::CutLine { detail: error.to_string() },
        Err(error) => ImportErrorKind::Json { detail: error.to_string() },
        Ok(_) => ImportErrorKind::Json { detail: "not one JSON value".to_owned() },
    }
}

/// Where a fault is, for errors.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) file: Option<&'a String>,
    pub(super) session: Option<&'a String>,
    pub(super) line: u64,
    pub(super) intact: u64,
}

impl Place<'_> {
    pub(super) fn refuse(&self, kind: ImportErrorKind, offset: u64, seq: Option<u64>) -> ImportError {
        let session = self.session.filter(|id| !id.is_empty()).cloned();
        ImportError {
            kind: Box::new(kind),
            file: self.file.cloned(),
            session,
            line: self.line,
            offset,
            seq,
            intact: self.intact,
        }
    }

    pub(super) fn source_fault(&self, fault: SourceFault, offset: u64) -> ImportError {
        match fault {
            SourceFault::Io(error) => self.refuse(ImportErrorKind::Io(error), offset, None),
            SourceFault::Zstd { offset, detail } => self.refuse(ImportErrorKind::Zstd { detail }, offset, None),
            SourceFault::TooLarge { limit } => {
                self.refuse(ImportErrorKind::TooLarge { what: "the decoded text", limit }, offset, None)
            }
        }
    }

    pub(super) fn line_fault<R: Read>(&self, fault: LineFault, lines: &Lines<R>, seq: Option<u64>) -> ImportError {
        match fault {
            LineFault::Source(fault) => self.source_fault(fault, lines.bytes_decoded()),
            LineFault::TooLong { limit } => {
                let kind = ImportErrorKind::TooLarge { what: "the line", limit: limit as u64 };
                self.refuse(kind, lines.start(), seq)
            }
            LineFault::TooMuchBlank { limit } => {
                self.refuse(ImportErrorKind::TooLarge { what: "blank space", limit }, lines.start(), seq)
            }
            LineFault::NulRun { offset, length } => self.refuse(ImportErrorKind::NulRun { length }, offset, seq),
            LineFault::Utf8 { offset } => self.refuse(ImportErrorKind::Utf8, offset, seq),
            LineFault::CutCharacter { offset } => {
                let detail = "inside a character".to_owned();
                self.refuse(ImportErrorKind::CutLine { detail }, offset, seq)
            }
        }
    }
}
