//! The session model: log, surface, derived history, folds and repair. Pure and synchronous: no I/O, no async runtime.
//!
//! A [`Session`] is a cheap handle to an append-only log and everything that follows from it. The parts are also there as pure
//! functions over events: [`surface::fold_surface`], [`history::fold_messages`], [`request::fold_request_header`],
//! [`repair::closers`], [`invariants::first_violation`], [`fork::check_boundary`].

mod calls;
pub mod checkpoint;
pub mod clock;
pub mod difference;
mod error;
pub mod fold;
pub mod fork;
mod handle;
pub mod history;
pub mod invariants;
mod log;
mod options;
mod publication;
mod read;
pub mod repair;
pub mod request;
pub(crate) mod seed;
mod state;
pub mod surface;
pub mod upgrade;
mod usage;
pub mod validator;

pub use calls::PendingCall;
pub use clock::{Clock, CountingIds, IdSource, RandomIds, SystemClock};
pub use error::{AppendError, SessionError};
pub use fold::{Fold, OpenStep, OpenTurn, Route};
pub use fork::{BoundaryError, ForkAt};
pub use handle::Session;
pub use history::{Message, Messages, derive_message};
pub use invariants::Violation;
pub use options::{BufferFull, Observer, SessionOptions, Sink, Veto};
pub use request::{ModelVisibleError, Request, RequestHead};
pub use seed::Seed;
pub use surface::Surface;
pub use usage::{StepUsage, Usage};
pub use validator::{InvalidEvent, Validator};
