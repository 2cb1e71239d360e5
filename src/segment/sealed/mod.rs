//! Sealed segments: closed stretches of a log, written once for size and for reading.

pub(crate) mod block;
pub(crate) mod chain;
mod cuts;
pub(crate) mod derived;
pub(crate) mod file;
pub(crate) mod footer;
mod holders;
pub(crate) mod segment;
pub(crate) mod shared;
