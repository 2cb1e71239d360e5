//! Forking at the last turn (G12).

use std::path::Path;
use std::time::Instant;

use sessionlog::segment::SegmentBackend;
use sessionlog::session::ForkAt;
use sessionlog::store::Store;

use super::append::runtime;
use super::child::{self, Taken};
use super::inputs::Inputs;
use super::row::{Row, Unit};
use super::{Figures, Plan, files};

/// Forks a stored session durably and opens the child for writing; then the child goes.
pub fn fork_child(root: &Path, words: &[&str]) -> Taken {
    let [name] = words else { panic!("an id") };
    runtime(1).block_on(async {
        let store = Store::open(SegmentBackend::open(root).expect("a store")).expect("a store");
        let start = Instant::now();
        let child = store.fork(*name, ForkAt::LastTurn, "forked").await.expect("a fork");
        let seconds = start.elapsed().as_secs_f64();
        let count = child.next_seq();
        child.close().await.expect("a close");
        store.delete("forked").await.expect("a deletion");
        store.close().await.expect("a close");
        Taken { seconds, count, ..Taken::default() }
    })
}

/// Row G12.
pub fn measure(plan: &Plan, inputs: &Inputs, figures: &mut Figures) {
    let (mut medium, mut large, mut compacted) = (Vec::new(), Vec::new(), Vec::new());
    let peers = ["jsonl", "sqlite-rows", "sqlite-packed"];
    let mut theirs: Vec<(&str, Vec<f64>)> = Vec::new();
    if let Some(program) = &plan.peers {
        theirs.extend(
            peers
                .iter()
                .filter(|name| program.names().iter().any(|known| known == *name))
                .map(|name| (*name, Vec::new())),
        );
        for (name, _) in &theirs {
            let root = files::fresh(&plan.work, &format!("fork-{name}"));
            program.streamed(name, &root, inputs.medium.events);
        }
    }
    for _ in 0..plan.rounds() {
        medium.push(child::run("fork", &inputs.medium.root, &[inputs.medium.name()]).seconds);
        large.push(child::run("fork", &inputs.large.root, &[inputs.large.name()]).seconds);
        compacted.push(child::run("fork", &inputs.longer.root, &[inputs.longer.name()]).seconds);
        for (name, samples) in &mut theirs {
            let root = plan.work.join(format!("fork-{name}"));
            samples.push(plan.peers.as_ref().expect("peers").run(name, "fork", &root, &[]).seconds);
        }
    }
    let mut row =
        Row::new("G12", "fork of the medium recording at its last turn, durable, opened", &medium, Unit::Seconds);
    row = row.stated("dsh", 4.6).at_most(5e-3);
    for (name, samples) in &theirs {
        row = row.beside(name, samples);
        let _ = std::fs::remove_dir_all(plan.work.join(format!("fork-{name}")));
    }
    figures.rows.push(row);
    figures.rows.push(
        Row::new("G12", "the same of the large recording", &large, Unit::Seconds)
            .at_most(5e-3)
            .note("includes opening the child, whose messages grow with the recording"),
    );
    figures.rows.push(
        Row::new("G12", "the same of a compacting one, ten times as long", &compacted, Unit::Seconds).at_most(5e-3),
    );
}
