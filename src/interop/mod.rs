//! Logs from and for other places: reading recorded sessions in any shape that a release wrote, and writing them out.
//!
//! [`Import`] reads a log from any [`std::io::Read`], as text or zstd in any framing, in memory bounded by one line and one packed
//! run; what it cannot vouch for it refuses with an [`ImportError`] that names the place. [`JsonlWriter`] writes this crate's own
//! JSONL, [`DshWriter`] the packed rows of DeepSeek Harness, through [`ZstdLines`] where they are to be compressed. [`Comparer`]
//! tells whether a log is the same as, or a continuation of, one that is already stored.
//!
//! ```
//! use sessionlog::interop::{Import, ImportOptions};
//!
//! let log = r#"{"type":"session","version":0,"id":"s-1","createdAt":5}
//! {"type":"turn/start","data":{"turn":1}}
//! {"type":"turn/end","data":{"turn":1,"reason":{"kind":"disposed"}}}
//! "#;
//! let mut import = Import::open(log.as_bytes(), ImportOptions::default())?;
//! let events: Vec<_> = import.events().collect::<Result<_, _>>()?;
//! assert_eq!(events[1].data(), r#"{"turn":1,"reason":{"kind":"aborted","reason":{"kind":"disposed"}}}"#);
//! assert_eq!((import.report().filled_seq, import.report().upgraded.turn_ends), (2, 1));
//! # Ok::<(), sessionlog::interop::ImportError>(())
//! ```

mod calls;
mod compare;
mod error;
mod export;
mod frames;
mod import;
mod intake;
mod lines;
mod report;
mod rows;
mod source;

pub use compare::{Comparer, Comparison, compare};
pub use error::{ImportError, ImportErrorKind};
pub use export::{DshWriter, JsonlWriter};
pub use frames::ZstdLines;
pub use import::{Import, ImportOptions};
pub use lines::MAX_LINE_BYTES;
pub use report::ImportReport;
pub use source::{MAX_DECODED_BYTES, MAX_WINDOW_LOG};
