//! The session model against plain, naive models of its rules, on random programs and on recorded logs.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(clippy::cast_possible_truncation, reason = "seqs of tests are small")]

mod corpus;
mod program;
mod repair;
mod request;
mod rules;
mod session;
mod surface;
