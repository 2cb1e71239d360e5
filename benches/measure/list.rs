//! Listing many sessions (G11).

use std::path::Path;
use std::time::Instant;

use sessionlog::event::{Batch, SessionHeader};
use sessionlog::sample::Recording;
use sessionlog::segment::Engine;

use super::child::{self, Taken};
use super::inputs::{self, unsynced};
use super::row::{Curve, Row, Unit};
use super::{Figures, Plan, files, memory};

/// Events of a session that is only listed.
const EVENTS: u64 = 40;

/// Makes `count` small sessions, in pieces of which `seen` is told.
pub fn many(root: &Path, count: u64) {
    let engine = unsynced(root, false);
    let batch = Batch::pack(Recording::new(1).events(EVENTS).iter()).expect("events");
    for number in 0..count {
        let header = SessionHeader::new(format!("session-{number:06}")).cwd("/srv/example").created_at(1);
        inputs::store_whole(&engine, &header, std::iter::once(batch.clone()));
    }
}

/// Lists all sessions with titles, counts and times, and again in the same process.
pub fn list_child(root: &Path, _: &[&str]) -> Taken {
    let start = Instant::now();
    let engine = Engine::open(root).expect("a store");
    let list =
        |engine: &Engine| engine.summaries().expect("a listing").iter().filter(|one| one.summary.is_ok()).count();
    let count = list(&engine) as u64;
    let seconds = start.elapsed().as_secs_f64();
    let start = Instant::now();
    list(&engine);
    let again = start.elapsed().as_secs_f64();
    Taken { seconds, again, count, peak: memory::peak(), ..Taken::default() }
}

/// Row G11.
pub fn measure(plan: &Plan, figures: &mut Figures) {
    let counts: &[u64] = if plan.quick { &[100, 1_000] } else { &[100, 1_000, 10_000] };
    let (mut first_curve, mut again_curve) = (Vec::new(), Vec::new());
    for &count in counts {
        let root = files::fresh(&plan.work, "many");
        many(&root, count);
        let unknown = child::run("list", &root, &[]);
        assert_eq!(unknown.count, count);
        let (mut first, mut again) = (Vec::new(), Vec::new());
        let mut sqlite = Vec::new();
        for _ in 0..plan.rounds() {
            let taken = child::run("list", &root, &[]);
            first.push(taken.seconds);
            again.push(taken.again);
            if let Some(peers) = plan.peers.as_ref().filter(|_| counts.last() == Some(&count)) {
                let root = files::fresh(&plan.work, "listed");
                sqlite.push(peers.run("sqlite-packed", "list", &root, &[&count.to_string()]).seconds);
            }
        }
        first_curve.push((count as f64, super::row::median(&first)));
        again_curve.push((count as f64, super::row::median(&again)));
        if counts.last() == Some(&count) {
            let part = count as f64 / 10_000.0;
            let row = Row::new("G11", format!("list {count} sessions, new process"), &first, Unit::Seconds);
            let row = row.stated("dsh", 12.0 * part).beside("sqlite-packed", &sqlite).at_most(60e-3 * part);
            let first_ever = format!("without a catalogue, the first time: {}", super::row::seconds(unknown.seconds));
            figures.rows.push(row.note(first_ever).note("page cache warm"));
            let row = Row::new("G11", "the same again in one process", &again, Unit::Seconds);
            figures.rows.push(row.stated("dsh", 9.0 * part).at_most(15e-3 * part));
        }
        let _ = std::fs::remove_dir_all(root);
    }
    for (name, points) in [("list, new process", first_curve), ("list, again", again_curve)] {
        let against = "sessions in the store".to_owned();
        figures.curves.push(Curve { name: name.to_owned(), against, unit: Unit::Seconds, points });
    }
}
