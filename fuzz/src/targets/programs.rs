//! Programs over the public interface - create, append, replace, flush, rotate, seal, fork, delete, trash, restore, discard, rebuild,
//! list, inspect, follow, reopen, die, crash - with calls that fail after a countdown, on a simulated disk, checked after every step
//! against a plain model. The steps, the model and the checks are those of the simulation tests.

use std::cell::LazyCell;

use tokio::runtime::{Builder, Runtime};

use crate::world::World;

/// Steps of the longest program.
const MOST_STEPS: usize = 30;

thread_local! {
    static RUNTIME: LazyCell<Runtime> =
        LazyCell::new(|| Builder::new_current_thread().enable_time().build().expect("a runtime without I/O"));
}

/// Runs the target on one input: a byte that seeds the disk, then steps of four bytes: what is done, to which session and how. Steps of
/// one size keep what a mutation changes local.
pub fn run(input: &[u8]) {
    let Some((&seed, steps)) = input.split_first() else { return };
    RUNTIME.with(|runtime| {
        runtime.block_on(async {
            let mut world = World::new(u64::from(seed), false);
            for step in steps.chunks_exact(4).take(MOST_STEPS) {
                world.step(u64::from(u32::from_le_bytes([step[0], step[1], step[2], step[3]]))).await;
            }
            world.end().await;
        });
    });
}
