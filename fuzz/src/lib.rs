//! The bodies of the fuzz targets. They are plain functions of an input, so that a test of the crate runs them on the committed seeds.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a target fails by panicking")]

pub mod targets;

// Random programs are those of the simulation tests.
#[path = "../../tests/simulation/agent.rs"]
mod agent;
#[path = "../../tests/simulation/faults.rs"]
#[allow(dead_code, reason = "what many programs met is counted by the simulation alone")]
mod faults;
#[path = "../../tests/simulation/model.rs"]
mod model;
#[path = "../../tests/store_common/mod.rs"]
mod store_common;
#[path = "../../tests/simulation/world.rs"]
mod world;
