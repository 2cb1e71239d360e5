//! The default storage engine: one directory a session, journals of checksummed records, a lock the kernel keeps.
//!
//! # Using it
//!
//! [`SegmentBackend`] is what a store is opened over; [`Engine`] is the same without async; [`Reader`] reads one session
//! without a lock.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let temporary = tempfile::tempdir()?;
//! # let directory = temporary.path().join("store");
//! use sessionlog::backend::{Expected, ReadLimit};
//! use sessionlog::event::{Batch, JsonText, NewEvent, SessionHeader, SessionId};
//! use sessionlog::segment::Engine;
//!
//! let engine = Engine::open(&directory)?;
//! let id = SessionId::new("s-1")?;
//! let event = NewEvent::named("app/note", JsonText::parse(r#"{"text":"hello"}"#)?).at(0, 1_700_000_000_000);
//! let batch = Batch::pack([event]).ok_or("nothing to append")?;
//!
//! // The first append makes the store and the session; when it returns, both are durable.
//! let head = engine.append(&id, Some(&SessionHeader::new("s-1")), Expected::ABSENT, &batch)?;
//! engine.release(&id, head.epoch)?;
//!
//! let page = engine.read(&id, 0, ReadLimit::default())?;
//! assert_eq!(page.items.len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! # How it is built
//!
//! - [`files`]: the only way to the file system, real or simulated.
//! - [`key`]: session ids as directory names.
//! - `store_file`, `directory`, `journal`, `record`, `frame`: the formats, byte for byte; `format-spec/` describes them.
//! - `scan`, `log`: the one scanner, for a journal and for the chain of journals.
//! - `sealed`: segments that stand for journals, written once for size and for reading; `seal`, `sealer`: making them.
//! - `lock`, `writer`, `recovery`, `builder`: owning, appending, taking over, creating.
//! - `engine`: the operations on a store: creating, forking, listing, removing, the trash.
//! - `recent`: blocks that were unpacked lately.
//! - [`Reader`], [`Engine`], [`SegmentBackend`]: what the rest of the crate and applications use.
//!
//! # Durability
//!
//! `Ok` from an append, a take-over, a fork or a deletion means that its effect survives a crash of the process and a loss of
//! power. An error means that nothing of it counts, and that trying again neither loses nor doubles an event. The store's
//! directory must be on a file system with working `fsync`, atomic `rename` and advisory locks; network file systems often
//! lack one of them.

mod backend;
mod builder;
mod bytes;
mod catalog;
mod directory;
mod engine;
mod fetch;
pub mod files;
mod frame;
#[cfg(test)]
mod interleavings;
mod journal;
pub mod key;
mod lock;
mod log;
pub(crate) mod random;
mod reader;
mod recent;
mod record;
mod recovery;
mod scan;
mod seal;
mod sealed;
mod sealer;
mod select;
mod store_file;
mod tree;
mod trust;
mod verify;
mod writer;

pub use backend::SegmentBackend;
pub use catalog::{Summarised, Summary};
pub use engine::{Engine, EngineOptions, Remains, SectionBytes, Sections, StateError, Trashed};
pub use reader::Reader;
pub use record::MAX_BODY_BYTES;
pub use seal::{SealOptions, Sealed};
pub use select::Selection;
pub use verify::{CheckStatus, Rebuilt, SessionCheck};
