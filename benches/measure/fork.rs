//! Forking at the last turn (G12).

use std::path::Path;
use std::time::Instant;

use sessionlog::event::{SessionHeader, SessionId};
use sessionlog::segment::{Engine, SegmentBackend};
use sessionlog::session::ForkAt;
use sessionlog::store::Store;

use super::append::runtime;
use super::child::{self, Taken};
use super::inputs::Inputs;
use super::row::{Row, Unit};
use super::{Figures, Plan, files};

/// Forks a stored session durably and opens the child for writing; then forks that, which is live, in the same way (`again`). With a
/// boundary it forks there durably and opens nothing.
pub fn fork_child(root: &Path, words: &[&str]) -> Taken {
    let (name, boundary) = match words {
        [name] => (name, None),
        [name, boundary] => (name, Some(boundary.parse().expect("a seq"))),
        _ => panic!("an id, and perhaps a boundary"),
    };
    if let Some(boundary) = boundary {
        return bare(root, name, boundary);
    }
    runtime(1).block_on(async {
        let store = Store::open(SegmentBackend::open(root).expect("a store")).expect("a store");
        let start = Instant::now();
        let child = store.fork(*name, ForkAt::LastTurn, "forked").await.expect("a fork");
        let seconds = start.elapsed().as_secs_f64();
        child.flush().await.expect("a flush");
        let start = Instant::now();
        let grandchild = store.fork(&child, ForkAt::LastTurn, "forked again").await.expect("a fork of the fork");
        let again = start.elapsed().as_secs_f64();
        assert_eq!((grandchild.next_seq(), grandchild.messages().len()), (child.next_seq(), child.messages().len()));
        let count = child.session().header().seed_length.expect("a fork's seed");
        for (live, id) in [(grandchild, "forked again"), (child, "forked")] {
            live.close().await.expect("a close");
            store.delete(id).await.expect("a deletion");
        }
        store.close().await.expect("a close");
        Taken { seconds, again, count, ..Taken::default() }
    })
}

fn bare(root: &Path, name: &str, boundary: u64) -> Taken {
    let start = Instant::now();
    let engine = Engine::open(root).expect("a store");
    let mut child = SessionHeader::new("forked");
    (child.parent_session, child.seed_length) = (Some(name.to_owned()), Some(boundary + 1));
    let head = engine.fork(&SessionId::new(name).expect("an id"), boundary, &child).expect("a fork");
    let seconds = start.elapsed().as_secs_f64();
    engine.delete(&SessionId::new("forked").expect("an id")).expect("a deletion");
    Taken { seconds, count: head.next_seq, ..Taken::default() }
}

/// Row G12.
pub fn measure(plan: &Plan, inputs: &Inputs, figures: &mut Figures) {
    let recordings = [&inputs.medium, &inputs.large, &inputs.longer];
    let (mut stored, mut live) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
    let mut unopened = [const { Vec::new() }; 3];
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
        let samples = stored.iter_mut().zip(&mut live).zip(&mut unopened);
        for (recording, ((stored, live), unopened)) in recordings.iter().zip(samples) {
            let taken = child::run("fork", &recording.root, &[recording.name()]);
            stored.push(taken.seconds);
            live.push(taken.again);
            let boundary = (taken.count - 1).to_string();
            unopened.push(child::run("fork", &recording.root, &[recording.name(), &boundary]).seconds);
        }
        for (name, samples) in &mut theirs {
            let root = plan.work.join(format!("fork-{name}"));
            samples.push(plan.peers.as_ref().expect("peers").run(name, "fork", &root, &[]).seconds);
        }
    }
    let [medium, large, compacted] = &live;
    let what = "fork of the medium recording, live, at its last turn, durable, opened";
    let mut row = Row::new("G12", what, medium, Unit::Seconds).stated("dsh", 4.6).at_most(5e-3);
    for (name, samples) in &theirs {
        row = row.beside(name, samples);
        let _ = std::fs::remove_dir_all(plan.work.join(format!("fork-{name}")));
    }
    figures.rows.push(row);
    for (what, samples) in
        [("the same of the large recording", large), ("the same of a compacting one, ten times as long", compacted)]
    {
        figures.rows.push(Row::new("G12", what, samples, Unit::Seconds).at_most(5e-3));
    }
    let note = "opening the child from what is stored is resuming, G8, and grows with the messages";
    for ((what, opened), unopened) in ["medium", "large", "compacting"].iter().zip(&stored).zip(&unopened) {
        let what = format!("fork of the {what} recording, not open before, in a new process, durable");
        figures.rows.push(Row::new("G12", &what, unopened, Unit::Seconds).at_most(5e-3));
        figures.rows.push(Row::new("G12", format!("{what}, and opened"), opened, Unit::Seconds).note(note));
    }
}
