//! Named limits. Each is enforced where data enters (append, import), so nothing accepted is ever refused on reading.

/// Largest payload of one event, in bytes of JSON text: 256 MiB. Bounds what a reader must hold for a single event.
pub const MAX_EVENT_BYTES: usize = 256 * 1024 * 1024;

/// Largest session id, in bytes of UTF-8. Longer ids than this name nothing a person or a harness would choose.
pub const MAX_ID_BYTES: usize = 1024;

/// Largest event type name, in bytes of UTF-8.
pub const MAX_TYPE_BYTES: usize = 256;

/// Largest session header, in bytes of JSON text: it is read whole for every listing.
pub const MAX_HEADER_BYTES: usize = 1024 * 1024;

/// Largest seq, time, turn, step and block index: the largest integer that every JSON reader keeps exactly (2^53 - 1).
pub const MAX_SAFE_INTEGER: i64 = (1 << 53) - 1;

/// Fewest consecutive deltas that are packed into one run (rule P1).
pub const MIN_RUN_EVENTS: usize = 3;

/// Most deltas in one packed run as this crate writes it: a single delta stays cheap to reach.
pub const MAX_RUN_EVENTS: usize = 4096;

/// Most text in one packed run as this crate writes it, in bytes.
pub const MAX_RUN_BYTES: usize = 256 * 1024;

/// Whether every JSON reader keeps `number` exactly.
pub(crate) fn is_safe(number: i64) -> bool {
    number.unsigned_abs() <= MAX_SAFE_INTEGER.unsigned_abs()
}
