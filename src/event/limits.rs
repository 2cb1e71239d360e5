//! Named limits. Each is enforced where data enters (append, import), so nothing accepted is ever refused on reading.
//!
//! | what | limit | beyond it |
//! |---|---|---|
//! | payload of an event | [`MAX_EVENT_BYTES`], 256 MiB | the append and the import are refused |
//! | event type | [`MAX_TYPE_BYTES`], 256 bytes | the same |
//! | sources of an event, counted one by one | [`MAX_SOURCES`], 4,194,304 | the same |
//! | nesting of a payload | none: the text is never walked by recursion | typed views go 64 objects deep and say so |
//! | members of an object | none but the payload's size | |
//! | session id | [`MAX_ID_BYTES`], 1,024 bytes | creation is refused |
//! | working directory and all other members of a header | together [`MAX_HEADER_BYTES`], 1 MiB | creation and import are refused |
//! | title, as listings show it | [`MAX_TITLE_BYTES`], 4,096 bytes | cut there; the event keeps it |
//! | events of a session | [`MAX_SESSION_EVENTS`], 2^53 - 1 | the append is refused |
//! | times, turns, steps, block indexes | [`MAX_SAFE_INTEGER`] | the append is refused |
//! | deltas and text of one packed run | [`MAX_RUN_EVENTS`], [`MAX_RUN_BYTES`] | the run is continued by another |
//! | events that wait to be written | 64 MiB a session ([`StoreOptions::queue_bytes`](../../store/struct.StoreOptions.html#method.queue_bytes)) | the append is refused, nothing accepted is dropped |
//! | body of a journal record | [`MAX_BODY_BYTES`](crate::segment::MAX_BODY_BYTES), 512 MiB | the append is refused |
//! | records of a journal, journals of a session, sessions of a store | none; a journal is continued by another after 8 MiB | |
//! | block of a sealed segment | 1 MiB at the end of a step, 3 MiB above level 3, 4 MiB anywhere, and the event that takes it there | the segment goes on with another block |
//! | what compressed bytes of a store may unpack to | what is stated before them and checksummed with them, at most a record's body, 256 MiB for a footer, 512 MiB for the catalogue | damage is reported, the catalogue is made anew |
//! | line of an imported log | [`MAX_LINE_BYTES`](crate::interop::MAX_LINE_BYTES) | the import is refused |
//! | text of an imported compressed log | [`MAX_DECODED_BYTES`](crate::interop::MAX_DECODED_BYTES), 64 GiB, with a window of at most 128 MiB | the import is refused |

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

/// Most events of a session, and so the first seq that no event has: seqs and the seq behind the last one are safe integers.
pub const MAX_SESSION_EVENTS: u64 = (1 << 53) - 1;

/// Most seqs among the sources of one event. They are held as ranges and written out one by one, so a small record could stand
/// for any amount of text; with this bound an event's line is never longer than the largest line that can be imported.
pub const MAX_SOURCES: usize = 1 << 22;

/// Most of a session's title that is kept for listings and checkpoints, in bytes of UTF-8. The event that carries it keeps it whole.
pub const MAX_TITLE_BYTES: usize = 4096;

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
