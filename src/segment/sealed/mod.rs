//! Sealed segments.
pub(crate) mod block;
pub(crate) mod file;
pub(crate) mod footer;
