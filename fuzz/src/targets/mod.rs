//! One module a target, each with `run(input)`: it returns, or panics where the crate breaks a promise.

pub mod catalog;
pub mod identifier;
pub mod import;
pub mod packing;
pub mod programs;
pub mod record;
pub mod segment;
pub mod store;
pub mod stored;
