//! sessionlog
#![allow(missing_docs)]
pub mod backend;
pub mod event;
pub mod interop;
pub mod sample;
pub mod segment;
pub mod session;
#[cfg(feature = "store")]
pub mod store;
