//! Why a log is refused.

use std::fmt;
use std::io;

use crate::event::EnvelopeError;
use crate::event::header::FORMAT_VERSION;
use crate::session::upgrade::UpgradeError;
use crate::session::validator::InvalidEvent;

/// Why an import stopped, and where. Everything before the place was read and is intact.
#[derive(Debug)]
pub struct ImportError {
    /// What is wrong.
    pub kind: Box<ImportErrorKind>,
    /// The file, as the caller named it.
    pub file: Option<String>,
    /// The session's id as the header states it, once that was read.
    pub session: Option<String>,
    /// Number of the line, from 1; 0 when no line was reached.
    pub line: u64,
    /// Byte offset of the fault: in the decoded text, except for [`ImportErrorKind::Zstd`], where it is in the file.
    pub offset: u64,
    /// Seq of the event at fault: the recorded one, else the position it would have had.
    pub seq: Option<u64>,
    /// Number of events before the fault.
    pub intact: u64,
}

impl ImportError {
    /// The machine-readable name of the class, such as `gap`.
    pub fn class(&self) -> &'static str {
        self.kind.class()
    }
}

/// What is wrong with a log.
#[derive(Debug)]
#[non_exhaustive]
pub enum ImportErrorKind {
    /// Reading failed.
    Io(io::Error),
    /// The compressed stream is damaged, cut, or no zstd stream from here on.
    Zstd {
        /// What the decoder says.
        detail: String,
    },
    /// A line, the decoded text or an event is larger than a named limit.
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// The limit in bytes.
        limit: u64,
    },
    /// NUL bytes: space that a file system assigned and never filled, because the machine lost power.
    NulRun {
        /// Length of the run in bytes.
        length: u64,
    },
    /// A byte sequence that is not UTF-8.
    Utf8,
    /// A record that ends before it is complete.
    CutLine {
        /// Where its text breaks off.
        detail: String,
    },
    /// A line that is not JSON.
    Json {
        /// What is wrong.
        detail: String,
    },
    /// Nothing but blank lines, or nothing at all.
    Empty,
    /// The first line is no session header.
    NoHeader {
        /// What stands there instead.
        found: String,
    },
    /// The header is malformed.
    Header {
        /// What is wrong, naming the member.
        detail: String,
    },
    /// A second header line: two logs in one file.
    SecondHeader {
        /// The id that it states.
        id: String,
    },
    /// The log was written by a newer release.
    NewerVersion {
        /// Its version.
        found: u64,
    },
    /// An event's envelope is malformed.
    Envelope(EnvelopeError),
    /// An event that may not stand where it stands.
    Invalid(InvalidEvent),
    /// Surface events with and without `surfaceOp` in one log.
    MixedSurface {
        /// The first event of the other kind.
        earlier: u64,
        /// Whether the event at fault is the one with `surfaceOp`.
        recorded: bool,
    },
    /// A retired shape that changes the meaning of a log.
    Retired {
        /// Which one and why.
        detail: &'static str,
    },
    /// A shape of format 0 that cannot be brought to format 1.
    Upgrade(UpgradeError),
    /// A malformed packed row.
    Row {
        /// What is wrong, naming the member.
        detail: String,
    },
    /// Seqs are missing.
    Gap {
        /// The seq that comes next.
        expected: u64,
        /// The seq that stands there.
        found: u64,
    },
    /// A seq that was used before, too far back to compare the two events.
    Overlap {
        /// The seq that comes next.
        expected: u64,
        /// The seq that stands there.
        found: u64,
    },
    /// Two different events with one seq.
    Conflict {
        /// Line of the first one.
        first_line: u64,
    },
}

impl ImportErrorKind {
    /// The machine-readable name of the class.
    pub fn class(&self) -> &'static str {
        match self {
            Self::Io(_) => "io",
            Self::Zstd { .. } => "zstd",
            Self::TooLarge { .. } | Self::Envelope(EnvelopeError::TooLarge { .. }) => "too-large",
            Self::NulRun { .. } => "nul-run",
            Self::Utf8 => "utf8",
            Self::CutLine { .. } => "cut-line",
            Self::Json { .. } | Self::Envelope(EnvelopeError::Json(_)) => "json",
            Self::Empty => "empty",
            Self::NoHeader { .. } => "no-header",
            Self::Header { .. } => "header",
            Self::SecondHeader { .. } => "second-header",
            Self::NewerVersion { .. } => "newer-version",
            Self::Envelope(EnvelopeError::Surface { .. }) | Self::MixedSurface { .. } | Self::Invalid(_) => "surface",
            Self::Envelope(_) => "envelope",
            Self::Retired { .. } => "retired",
            Self::Upgrade(_) => "upgrade",
            Self::Row { .. } => "row",
            Self::Gap { .. } => "gap",
            Self::Overlap { .. } => "overlap",
            Self::Conflict { .. } => "conflict",
        }
    }

    /// What the person at the keyboard can do about it.
    pub fn next_step(&self) -> &'static str {
        match self {
            Self::Io(_) => "check that the file can be read",
            Self::Zstd { .. } => "decompress what is left by hand to look at it, or fetch the file again",
            Self::TooLarge { .. } => "this is no log that a session wrote",
            Self::NulRun { .. } => "a crash left them; cut them out of a copy and import that",
            Self::Utf8 | Self::Json { .. } => "look at the line; mend it in a copy and import that",
            Self::CutLine { .. } => "drop the line from a copy to import what is before it",
            Self::Empty => "there is nothing to import",
            Self::NoHeader { .. } => {
                "a session log starts with a line {\"type\":\"session\",\"id\":..}; put one in front in a copy, or see that --from names \
                 the tool that wrote the file"
            }
            Self::Header { .. } => "mend the header line in a copy and import that",
            Self::SecondHeader { .. } => "split the file at its header lines and import the parts",
            Self::NewerVersion { .. } => "upgrade sessionlog",
            Self::Envelope(_) | Self::Invalid(_) | Self::Upgrade(_) | Self::Row { .. } => {
                "mend the event in a copy and import that"
            }
            Self::MixedSurface { .. } => "the log mixes two releases' events; import the part before it",
            Self::Retired { .. } => "the log needs the release that wrote it",
            Self::Gap { .. } => "events are missing; import the part before the gap from a copy",
            Self::Overlap { .. } | Self::Conflict { .. } => {
                "two writers had the session open; split the branches into two files"
            }
        }
    }
}

impl fmt::Display for ImportErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot read: {error}"),
            Self::Zstd { detail } => write!(f, "zstd: {detail}"),
            Self::TooLarge { what, limit } => write!(f, "{what} exceeds the limit of {limit} bytes"),
            Self::NulRun { length } => write!(f, "{length} NUL bytes that a crash left"),
            Self::Utf8 => f.write_str("not UTF-8"),
            Self::CutLine { detail } => write!(f, "the line breaks off: {detail}"),
            Self::Json { detail } => write!(f, "not JSON: {detail}"),
            Self::Empty => f.write_str("the file is empty"),
            Self::NoHeader { found } => write!(f, "no session header: {found}"),
            Self::Header { detail } => f.write_str(detail),
            Self::SecondHeader { id } => write!(f, "a second session header, of session {id:?}"),
            Self::NewerVersion { found } => {
                write!(f, "written by a newer version (format {found}; this release reads up to {FORMAT_VERSION})")
            }
            Self::Envelope(error) => error.fmt(f),
            Self::Invalid(error) => write!(f, "\"{}\" {}", error.event_type, error.problem),
            Self::MixedSurface { earlier, recorded: true } => {
                write!(f, "the event carries surfaceOp, but the surface event at seq {earlier} does not")
            }
            Self::MixedSurface { earlier, recorded: false } => {
                write!(f, "the event carries no surfaceOp, but the surface event at seq {earlier} does")
            }
            Self::Retired { detail } => f.write_str(detail),
            Self::Upgrade(error) => error.fmt(f),
            Self::Row { detail } => write!(f, "malformed packed row: {detail}"),
            Self::Gap { expected, found } => write!(f, "sequence gap: expected {expected}, got {found}"),
            Self::Overlap { expected, found } => {
                write!(f, "sequence overlap: expected {expected}, got {found}, too far back to compare")
            }
            Self::Conflict { first_line } => {
                write!(f, "conflict: this event and the one on line {first_line} have one seq and differ")
            }
        }
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(session) = &self.session {
            write!(f, "session {}: ", session.escape_debug())?;
        }
        if let Some(file) = &self.file {
            write!(f, "{file}: ")?;
        }
        if self.line > 0 {
            write!(f, "line {}, ", self.line)?;
        }
        write!(f, "offset {}", self.offset)?;
        if let Some(seq) = self.seq {
            write!(f, ", seq {seq}")?;
        }
        write!(f, ": {}", self.kind)?;
        match self.intact {
            0 => {}
            1 => write!(f, "; the event before it is intact")?,
            count => write!(f, "; the {count} events before it are intact")?,
        }
        write!(f, " ({})", self.kind.next_step())
    }
}

impl std::error::Error for ImportError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.kind {
            ImportErrorKind::Io(error) => Some(error),
            ImportErrorKind::Envelope(error) => Some(error),
            ImportErrorKind::Upgrade(error) => Some(error),
            ImportErrorKind::Invalid(error) => Some(error),
            _ => None,
        }
    }
}
