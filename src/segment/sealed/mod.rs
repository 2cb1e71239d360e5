//! Sealed segments.
pub(crate) mod block;
pub(crate) mod footer;
