//! What an import filled in, upgraded and passed over.

use serde::Serialize;

use super::foreign::SourceFormat;
use crate::session::upgrade::Upgraded;

/// Counts of an import so far; complete once the log has been read to its end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts about one file, not states")]
pub struct ImportReport {
    /// Who wrote the log.
    pub source_format: SourceFormat,
    /// Events accepted.
    pub events: u64,
    /// Lines read, blank ones included.
    pub lines: u64,
    /// Packed rows among them.
    pub rows: u64,
    /// Bytes read from the input, compressed where it is compressed.
    pub bytes_in: u64,
    /// Bytes of text behind them.
    pub bytes_decoded: u64,
    /// The format version that the header states, 0 where it states none.
    pub source_version: u64,
    /// The header stated no version and counts as format 0.
    pub filled_version: bool,
    /// The header stated no `delegationDepth` and counts as 0.
    pub filled_delegation_depth: bool,
    /// The header stated no `createdAt`; the first event's time stands in.
    pub filled_created_at: bool,
    /// The header's `cwd` is no absolute path; it is kept as recorded.
    pub relative_cwd: bool,
    /// Events that had no `seq` and took their position.
    pub filled_seq: u64,
    /// Events that had no `time` and took the header's `createdAt` (plus the gaps that a packed row states).
    pub filled_time: u64,
    /// Events of surface types that had no `surfaceOp`, in a log where none has.
    pub filled_surface_op: u64,
    /// Events brought from format 0 to format 1.
    pub upgraded: Upgraded,
    /// Events that stood in the log twice with identical bytes and were taken once.
    pub overlaps_dropped: u64,
    /// Tool calls and results whose call id is empty or missing; kept as they are.
    pub empty_call_ids: u64,
    /// Tool calls that have the id of an earlier call; kept as they are.
    pub repeated_call_ids: u64,
    /// Places where a record of another tool goes on from an earlier message than the last one.
    pub branches: u64,
    /// Compactions of another tool, each a replacement on the surface.
    pub compactions: u64,
    /// Records whose parent was never written; they go on from the record before them.
    pub bridged_gaps: u64,
    /// Messages of a branch that was taken up again that were too far back to come again.
    pub unrestored_messages: u64,
    /// Lines of another tool's log that cannot be read; their bytes are kept in events.
    pub unreadable_lines: u64,
    /// The last line breaks off and was left out: its writer may be at work.
    pub cut_last_line: bool,
    /// Blank lines passed over.
    pub blank_lines: u64,
    /// Lines that ended in CR LF.
    pub crlf_lines: u64,
    /// A byte order mark stood at the start.
    pub byte_order_mark: bool,
    /// The last line was whole but had no line break.
    pub unterminated_last_line: bool,
}

impl ImportReport {
    /// Whether the log was taken exactly as it stood: nothing filled, upgraded or left out.
    pub fn is_verbatim(&self) -> bool {
        let filled = self.filled_seq + self.filled_time + self.filled_surface_op + self.overlaps_dropped;
        filled == 0
            && self.source_format == SourceFormat::Sessionlog
            && self.upgraded.total() == 0
            && !self.filled_version
            && !self.filled_delegation_depth
            && !self.filled_created_at
    }
}
