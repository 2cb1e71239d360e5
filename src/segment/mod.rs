//! segment
pub(crate) mod sealed;
