//! Logs from and for other places: reading recorded sessions in any shape that a release wrote, and writing them out.
//!
//! [`Import`] reads a log from any [`std::io::Read`], as text or zstd in any framing, in memory bounded by one line and one packed
//! run; what it cannot vouch for it refuses with an [`ImportError`] that names the place. [`JsonlWriter`] writes this crate's own
//! JSONL, [`DshWriter`] the packed rows of DeepSeek Harness, through [`ZstdLines`] where they are to be compressed. [`Comparer`]
//! tells whether a log is the same as, or a continuation of, one that is already stored. With the feature `redact`, `Redactor`
//! takes secrets out of what is written.
//!
//! Logs of other tools ([`SourceFormat`]) are told as sessions of this model. Every record of the source becomes one log-only
//! event `TOOL/record`, marked ignorable, whose payload is the record itself; the turns, messages, tool calls, results, todos
//! and token counts that it stands for follow it. The mapping reads forwards only, so that a file that grew gives the same events
//! and then more: the last turn stays open where the source does not record its end.
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
mod early;
mod error;
mod export;
mod foreign;
mod frames;
mod import;
mod intake;
mod lines;
mod place;
#[cfg(feature = "redact")]
mod redact;
mod report;
mod rows;
mod source;

pub use compare::{Comparer, Comparison, compare};
pub use error::{ImportError, ImportErrorKind};
pub use export::{DshWriter, JsonlWriter};
pub use foreign::SourceFormat;
pub use frames::ZstdLines;
pub use import::{Import, ImportOptions};
pub use lines::MAX_LINE_BYTES;
#[cfg(feature = "redact")]
pub use redact::{RedactError, Redactor};
pub use report::ImportReport;
pub use source::{MAX_DECODED_BYTES, MAX_WINDOW_LOG};
