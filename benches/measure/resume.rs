//! Resuming a session until its messages are ready (G8, G9).

use std::path::Path;
use std::time::Instant;

use sessionlog::segment::SegmentBackend;
use sessionlog::store::Store;

use super::append::runtime;
use super::child::{self, Taken};
use super::inputs::{Inputs, Stored};
use super::row::{Row, Unit, bytes, median};
use super::{Figures, Plan, memory};

/// Opens the session for writing and asks for its messages. `bytes` is what the messages are as JSON, `held` is the memory
/// allocated beyond what there was before.
pub fn resume_child(root: &Path, words: &[&str]) -> Taken {
    let [name] = words else { panic!("an id") };
    runtime(1).block_on(async {
        let before = memory::held();
        let start = Instant::now();
        let store = Store::open(SegmentBackend::open(root).expect("a store")).expect("a store");
        let live = store.resume(*name).await.expect("the session");
        let messages = live.messages();
        let seconds = start.elapsed().as_secs_f64();
        let (peak, held) = (memory::peak(), memory::held() - before);
        let own: usize = messages.iter().map(|message| message.json().len()).sum();
        let count = messages.len() as u64;
        drop(messages);
        live.close().await.expect("a close");
        store.close().await.expect("a close");
        Taken { seconds, peak, count, bytes: own as f64, held, ..Taken::default() }
    })
}

/// Rows G8 and G9.
pub fn measure(plan: &Plan, inputs: &Inputs, figures: &mut Figures) {
    let (mut whole, mut short, mut longer) = (Vec::new(), Vec::new(), Vec::new());
    let resume = |stored: &Stored| child::run("resume", &stored.root, &[stored.name()]);
    for _ in 0..plan.rounds() {
        whole.push(resume(&inputs.large));
        short.push(resume(&inputs.compacted));
        longer.push(resume(&inputs.longer));
    }
    let seconds = |taken: &[Taken]| taken.iter().map(|one| one.seconds).collect::<Vec<f64>>();
    let share = plan.share();
    let memory = |taken: &[Taken]| {
        let held = median(&taken.iter().map(|one| one.held).collect::<Vec<f64>>());
        let (own, count) = taken.first().map_or((f64::NAN, 0), |one| (one.bytes, one.count));
        (held, own, format!("{count} messages of {} hold {}", bytes(own), bytes(held)))
    };
    let limit = 6.0 * share / 40.0;
    let (held, own, said) = memory(&whole);
    let row = Row::new("G8", "resume until the messages are ready, nothing compacted", &seconds(&whole), Unit::Seconds);
    let met = row.ours.value <= limit && held <= 1.5 * own;
    let target = format!("<= {}, memory <= 1.5 x the messages", super::row::seconds(limit));
    figures.rows.push(row.stated("dsh", 6.0 * share).judged(target, met).note(said));
    for (what, taken) in [("resume, compacted", &short), ("resume, compacted, a log ten times as long", &longer)] {
        let row = Row::new("G9", what, &seconds(taken), Unit::Seconds).stated("dsh", 6.0 * share);
        figures.rows.push(row.at_most(20e-3).note(memory(taken).2));
    }
}
