//! Every backend of this crate keeps every law of the trait.
#![cfg(feature = "store")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking"
)]

use std::cell::Cell;

use sessionlog::backend::conformance;
use sessionlog::backend::memory::MemoryBackend;
use sessionlog::segment::{EngineOptions, SegmentBackend};

#[tokio::test]
async fn the_memory_backend_keeps_every_law() {
    conformance::run(MemoryBackend::new).await;
}

#[tokio::test]
async fn the_segment_engine_keeps_every_law() {
    let home = tempfile::tempdir().unwrap();
    let number = Cell::new(0);
    conformance::run(|| {
        number.set(number.get() + 1);
        SegmentBackend::open(home.path().join(format!("store-{}", number.get()))).unwrap()
    })
    .await;
}

#[tokio::test]
async fn the_segment_engine_keeps_every_law_with_a_journal_a_record() {
    let home = tempfile::tempdir().unwrap();
    let number = Cell::new(0);
    conformance::run(|| {
        number.set(number.get() + 1);
        let options = EngineOptions::new().rotate_at(1).compress(false);
        SegmentBackend::with_options(home.path().join(format!("store-{}", number.get())), options).unwrap()
    })
    .await;
}
