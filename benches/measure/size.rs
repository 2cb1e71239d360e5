//! Bytes on disk (G5), and what streaming adds to them (G6).

use std::io::{self, Write};

use sessionlog::event::Batch;
use sessionlog::segment::SealOptions;

use super::inputs::{self, Inputs, STREAMED};
use super::row::{Row, Unit, bytes};
use super::{Figures, Plan, files};

/// Counts what is written and forgets it.
#[derive(Debug, Default)]
pub struct Length(pub u64);

impl Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The store that does on disk what the original system does. How small a recording gets depends on what is said in it, so bytes
/// are compared with it and not with figures of other recordings.
const ORIGINAL: &str = "zstd-frames";

/// Rows G5 and G6.
pub fn measure(plan: &Plan, inputs: &Inputs, figures: &mut Figures) {
    let recording = &inputs.large.recording;
    let lines = recording.write_jsonl(Length::default()).expect("a count").0;
    let packed = recording.write_dsh(Length::default()).expect("a count").0;
    let engine = inputs::unsynced(&inputs.large.root, false);
    let streamed = engine.stored_bytes(&inputs.large.id).expect("the session");

    let root = files::fresh(&plan.work, "cold");
    let engine = inputs::unsynced(&root, false);
    inputs::stream(&engine, &recording.header(), recording.batches(STREAMED));
    let journaled = engine.stored_bytes(&inputs.large.id).expect("the session");
    let cold = engine.seal(&inputs.large.id, SealOptions::new()).expect("a seal").after;
    // What no seq can be found in again: the most that this level makes of the recording.
    let mut floor = zstd::Encoder::new(Length::default(), SealOptions::LEVEL).expect("an encoder");
    floor.window_log(27).and_then(|()| floor.long_distance_matching(true)).expect("a window");
    let floor = recording.write_dsh(floor).and_then(zstd::Encoder::finish).expect("a count").0;

    let mut peers = Vec::new();
    if let Some(program) = &plan.peers {
        for name in program.names() {
            let root = files::fresh(&plan.work, "peer");
            peers.push((name.clone(), program.streamed(name, &root, inputs.large.events).bytes));
        }
        let _ = std::fs::remove_dir_all(plan.work.join("peer"));
    }
    peers.sort_by_key(|(name, _): &(String, f64)| name != ORIGINAL);
    let row = |what: &str, stored: u64, most: f64| {
        let mut row = Row::new("G5", what, &[stored as f64], Unit::Bytes);
        for (name, stored) in &peers {
            row = row.beside(name, &[*stored]);
        }
        if !peers.is_empty() {
            row = row.at_most_times(most);
        }
        row.beside("plain JSON lines", &[lines as f64]).beside("packed rows, not compressed", &[packed as f64])
    };
    let streamed = row("bytes stored, streamed at 200 ms and closed", streamed, 0.33);
    figures.rows.push(streamed.note(format!("{} in journals before", bytes(journaled as f64))));
    let what = format!("the same after a cold seal at level {}, the default", SealOptions::LEVEL);
    let cold_row = row(&what, cold, 18.0 / 64.96);
    let what = format!("one zstd frame of all packed rows at level {}", SealOptions::LEVEL);
    figures.rows.push(cold_row.beside(&what, &[floor as f64]));
    figures.rows.push(
        Row::new("G5", "a real session of 87,208 events", &[f64::NAN], Unit::Bytes)
            .note("not available here; to be <= 0.25 x its 1.55 MB"),
    );

    let root = files::fresh(&plan.work, "spoken");
    let engine = inputs::unsynced(&root, false);
    let mut spoken = recording.unstreamed();
    let batches = std::iter::from_fn(|| Batch::pack(spoken.by_ref().take(16)));
    inputs::stream(&engine, &recording.header(), batches);
    let conversation = engine.seal(&inputs.large.id, SealOptions::new()).expect("a seal").after;
    let added = (cold as f64 - conversation as f64) / conversation as f64;
    let row = Row::new("G6", "what the deltas add to the stored conversation", &[added], Unit::Share);
    figures.rows.push(row.at_most(0.2).note(format!(
        "sealed cold: {} with them, {} without",
        bytes(cold as f64),
        bytes(conversation as f64)
    )));
    for name in ["cold", "spoken"] {
        let _ = std::fs::remove_dir_all(plan.work.join(name));
    }
}
