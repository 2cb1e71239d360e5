//! What sealing saves: a recorded session streamed in windows of 200 ms, sealed, beside the same as JSON lines.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(clippy::cast_precision_loss, reason = "percentages are shown, not computed with")]

mod segment_common;

use segment_common::{header, id, simulated};
use sessionlog::backend::Expected;
use sessionlog::event::{Batch, Event};
use sessionlog::sample::{Cadence, MEDIUM_EVENTS, Recording};
use sessionlog::segment::files::SimulatedFiles;
use sessionlog::segment::{Engine, SealOptions};

/// Stores batches as a store would: each is one append.
fn stream(batches: impl Iterator<Item = Batch>) -> Engine {
    let engine = simulated(&SimulatedFiles::new(1)).open("/store").unwrap();
    let mut expected = Expected::ABSENT;
    for batch in batches {
        let create = (expected == Expected::ABSENT).then(|| header("s"));
        let head = engine.append(&id("s"), create.as_ref(), expected, &batch).unwrap();
        expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
    }
    engine.release(&id("s"), expected.epoch).unwrap();
    engine
}

#[test]
fn g5_g6_a_sealed_recording_is_small_and_its_deltas_cost_little() {
    let recording = Recording::new(1).events(MEDIUM_EVENTS);
    let lines: usize = recording.iter().map(|event| event.to_line().len() + 1).sum();
    let whole = stream(recording.batches(Cadence::Window(200)));
    // The same conversation as if nothing had been streamed.
    let spoken: Vec<Event> = recording.unstreamed().collect();
    let spoken = stream(spoken.chunks(16).filter_map(|events| Batch::pack(events.iter().cloned())));
    let level = std::env::var("SESSIONLOG_LEVEL").map_or(3, |level| level.parse().unwrap());
    let sealed = whole.seal(&id("s"), SealOptions::new().level(level)).unwrap();
    let conversation = spoken.seal(&id("s"), SealOptions::new().level(level)).unwrap();
    let streamed = sealed.after.saturating_sub(conversation.after);
    println!(
        "level {level}: {lines} bytes of lines, {} journaled, {} sealed, {} of conversation; what was streamed adds {:.1} %",
        sealed.before,
        sealed.after,
        conversation.after,
        streamed as f64 * 100.0 / conversation.after as f64
    );
    // What the recording says compresses about as language does, so the conversation alone is most of it.
    assert!(sealed.after * 20 < lines as u64);
    assert!(streamed * 5 <= conversation.after);
}
