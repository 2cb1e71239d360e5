//! What takes minutes and tens of gigabytes: very many sessions, a very long one, very many at once, and a whole day (G17). In a quick
//! run all of it is a hundredth, to see that it works; nothing is judged then.

use std::path::Path;
use std::time::{Duration, Instant};

use sessionlog::backend::Expected;
use sessionlog::event::chunk::AssistantChunk;
use sessionlog::event::control::{StepStart, TurnStart};
use sessionlog::event::message::UserMessage;
use sessionlog::event::{Batch, Placement, SessionHeader, SessionId};
use sessionlog::sample::{Cadence, Recording};
use sessionlog::segment::{EngineOptions, SegmentBackend};
use sessionlog::store::StoreOptions;

use super::append::runtime;
use super::child::{self, Taken};
use super::inputs::{STREAMED, settle, unsynced};
use super::recovery::LINE_BYTES;
use super::row::{Curve, Row, Unit, bytes, count, median};
use super::{Figures, Plan, files, memory};

/// Measures one piece.
pub type Part = fn(&Plan, &mut Figures);

/// The pieces, each measured whatever becomes of the others.
pub const PARTS: [(&str, Part); 4] = [
    ("many sessions", many_sessions),
    ("a long session", long_session),
    ("many sessions at once", crowd),
    ("a whole day", day),
];

/// A size, or in a quick run a hundredth of it.
fn sized(plan: &Plan, full: u64) -> u64 {
    if plan.quick { (full / 100).max(1) } else { full }
}

/// Only the full size is judged.
fn judged(plan: &Plan, row: Row, judge: impl FnOnce(Row) -> Row) -> Row {
    if plan.quick { row.note("a hundredth of the size, not judged") } else { judge(row) }
}

fn curve(figures: &mut Figures, name: &str, against: &str, points: Vec<(f64, f64)>) {
    let (name, against) = (name.to_owned(), against.to_owned());
    figures.curves.push(Curve { name, against, unit: Unit::Seconds, points });
}

/// Durable creation, resume and deletion of one session, each the median of several.
fn single_costs(root: &Path) -> [f64; 3] {
    // Sealing after a close would still hold the session when the next process wants it.
    let engine = EngineOptions::new().background_sealing(false).open(root).expect("a store");
    let batch = Batch::pack(Recording::new(1).events(40).iter()).expect("events");
    let mut costs = [const { Vec::new() }; 3];
    for number in 0..9 {
        let id = SessionId::new(format!("one-{number}")).expect("an id");
        let start = Instant::now();
        let head =
            engine.append(&id, Some(&SessionHeader::new(id.as_str())), Expected::ABSENT, &batch).expect("a session");
        costs[0].push(start.elapsed().as_secs_f64());
        engine.release(&id, head.epoch).expect("the session given back");
        costs[1].push(child::run("resume", root, &[id.as_str()]).seconds);
        let start = Instant::now();
        engine.delete(&id).expect("a deletion");
        costs[2].push(start.elapsed().as_secs_f64());
    }
    costs.map(|samples| median(&samples))
}

fn many_sessions(plan: &Plan, figures: &mut Figures) {
    let mut points = [const { Vec::new() }; 4];
    let (mut few, mut last) = ([f64::NAN; 3], [f64::NAN; 3]);
    let most = sized(plan, 100_000);
    for sessions in [10, most / 100, most / 10, most] {
        let root = files::fresh(&plan.work, "sessions");
        super::list::many(&root, sessions);
        child::run("list", &root, &[]);
        let listed = median(&(0..3).map(|_| child::run("list", &root, &[]).seconds).collect::<Vec<f64>>());
        let costs = single_costs(&root);
        if sessions == 10 {
            few = costs;
        }
        last = costs;
        for (points, cost) in points.iter_mut().zip(costs.into_iter().chain([listed])) {
            points.push((sessions as f64, cost));
        }
        if sessions == most {
            let row = Row::new("G17", format!("list {most} sessions, new process"), &[listed], Unit::Seconds);
            figures.rows.push(judged(plan, row, |row| row.at_most(0.5)));
        }
        let _ = std::fs::remove_dir_all(root);
    }
    for ((name, few), last) in ["create", "resume", "delete"].into_iter().zip(few).zip(last) {
        let row = Row::new("G17", format!("{name} one session in a store of {most}"), &[last], Unit::Seconds);
        let row = row.beside("the same in a store of 10", &[few]);
        figures.rows.push(judged(plan, row, |row| row.at_most_times(1.5)));
    }
    for (name, points) in ["create one", "resume one", "delete one", "list all"].into_iter().zip(points) {
        curve(figures, name, "sessions in the store", points);
    }
}

fn long_session(plan: &Plan, figures: &mut Figures) {
    let root = files::fresh(&plan.work, "long");
    let engine = unsynced(&root, true);
    let gigabytes = sized(plan, 10_000_000_000) as f64 / 1e9;
    let events = sized(plan, 10_000_000_000) / LINE_BYTES;
    let recording = Recording::new(4).events(events).compacting();
    let (header, id) = (recording.header(), recording.header().session_id().expect("an id"));
    let mut expected = Expected::ABSENT;
    let (mut append, mut resume, mut tail) = (Vec::new(), Vec::new(), Vec::new());
    let (mut spent, mut since, mut next) = (Duration::ZERO, 0, events / 64);
    for batch in recording.batches(Cadence::Step) {
        let create = (expected == Expected::ABSENT).then_some(&header);
        let start = Instant::now();
        let head = engine.append(&id, create, expected, &batch).expect("an append");
        spent += start.elapsed();
        expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
        if head.next_seq >= next || head.next_seq == events {
            append.push((head.next_seq as f64, spent.as_secs_f64() / (head.next_seq - since) as f64));
            tail.push((head.next_seq as f64, child::run("tail", &root, &[id.as_str()]).seconds));
            (spent, since, next) = (Duration::ZERO, head.next_seq, next * 2);
        }
    }
    engine.release(&id, expected.epoch).expect("the session given back");
    settle(&engine, &id);
    for _ in 0..plan.rounds() {
        resume.push(child::run("resume", &root, &[id.as_str()]).seconds);
    }
    let stored = engine.stored_bytes(&id).expect("the session");
    let start = Instant::now();
    engine.verify(&id);
    let verify = start.elapsed().as_secs_f64();
    let lines = plan.work.join("long.jsonl");
    let export = child::run("export", &root, &[id.as_str(), lines.to_str().expect("a plain path")]);
    let _ = std::fs::remove_file(lines);
    let size = format!("{events} events, {} of JSON lines, {} stored", bytes(export.bytes), bytes(stored as f64));
    let of = |points: &[(f64, f64)]| points.iter().map(|(_, cost)| *cost).collect::<Vec<f64>>();
    let what = |what: &str| format!("{what} of a session of {gigabytes} GB");
    let row = Row::new("G9", what("resume"), &resume, Unit::Seconds).note(&size);
    figures.rows.push(judged(plan, row, |row| row.at_most(20e-3)));
    let last = of(&tail).last().copied().unwrap_or(f64::NAN);
    let row = Row::new("G10", what("last 100 events"), &[last], Unit::Seconds);
    figures.rows.push(judged(plan, row, |row| row.at_most(5e-3)));
    figures.rows.push(Row::new("G7", what("verify"), &[verify], Unit::Seconds).note(&size));
    let row = Row::new("G16", what("export"), &[export.bytes / export.seconds], Unit::BytesPerSecond);
    let row = row.note(format!("most memory {}", bytes(export.peak)));
    figures.rows.push(judged(plan, row, |row| row.at_least(400e6)));
    curve(figures, "append an event", "events in the session", append);
    curve(figures, "last 100 events", "events in the session", tail);
    let _ = std::fs::remove_dir_all(root);
}

/// Streams into so many sessions at once for so many seconds, 200 deltas a second each, with real syncs. `each` are nanoseconds
/// from the moment a delta was due to the moment its append returned.
pub fn crowd_child(root: &Path, words: &[&str]) -> Taken {
    let numbers: Vec<u64> = words.iter().map(|word| word.parse().expect("a number")).collect();
    let [sessions, seconds] = numbers[..] else { panic!("sessions and seconds") };
    runtime(2).block_on(async {
        let store = StoreOptions::new().open(SegmentBackend::open(root).expect("a store")).expect("a store");
        let mut tasks = Vec::new();
        let processor = memory::processor_time();
        let start = Instant::now();
        for number in 0..sessions {
            let live = store.create(SessionHeader::new(format!("s-{number}"))).await.expect("a session");
            tasks.push(tokio::spawn(async move {
                live.append(TurnStart::new(1)).expect("an append");
                live.append_surface(UserMessage::text("go"), Placement::append()).expect("an append");
                live.append(StepStart::new(1, 1)).expect("an append");
                let mut late = Vec::new();
                let mut due = tokio::time::Instant::now();
                for _ in 0..seconds * 20 {
                    due += Duration::from_millis(50);
                    tokio::time::sleep_until(due).await;
                    for _ in 0..10 {
                        live.append(AssistantChunk::text(1, 1, 0, " token")).expect("an append");
                    }
                    late.push(u64::try_from(due.elapsed().as_nanos()).unwrap_or(u64::MAX));
                }
                live.close().await.expect("a close");
                (live.durable_seq(), late)
            }));
        }
        let (mut count, mut each) = (0, Vec::new());
        for task in tasks {
            let (durable, late) = task.await.expect("a task that ends");
            count += durable;
            each.extend(late);
        }
        each.sort_unstable();
        let each =
            [each.len() / 2, each.len() / 100 * 99].iter().filter_map(|place| each.get(*place).copied()).collect();
        let processor = memory::processor_time() - processor;
        let seconds = start.elapsed().as_secs_f64();
        Taken { seconds, processor, peak: memory::peak(), count, each, ..Taken::default() }
    })
}

fn crowd(plan: &Plan, figures: &mut Figures) {
    let most = sized(plan, 2_000);
    for sessions in [most / 10, most] {
        let root = files::fresh(&plan.work, "crowd");
        let taken = child::run("crowd", &root, &[&sessions.to_string(), if plan.quick { "3" } else { "20" }]);
        let [half, most] = taken.each[..] else { panic!("two latencies") };
        let what = format!("{sessions} sessions streaming 200 deltas/s each at once: processor time a delta");
        let row = Row::new("G17", what, &[taken.processor / taken.count as f64], Unit::Seconds);
        figures.rows.push(row.note(format!(
            "{} events durable in {} s; appends late by {} (p50), {} (p99); most memory {}",
            taken.count,
            count(taken.seconds.round()),
            super::row::seconds(half as f64 / 1e9),
            super::row::seconds(most as f64 / 1e9),
            bytes(taken.peak)
        )));
        let _ = std::fs::remove_dir_all(root);
    }
}

/// A day of events at their recorded cadence, a durable flush every 200 ms of it, without the pauses.
fn day(plan: &Plan, figures: &mut Figures) {
    let root = files::fresh(&plan.work, "day");
    let engine = EngineOptions::new().open(&root).expect("a store");
    let recording = Recording::new(5).events(u64::MAX).compacting();
    let (header, id) = (recording.header(), recording.header().session_id().expect("an id"));
    let began = recording.iter().next().expect("an event").time();
    let (mut expected, mut hour) = (Expected::ABSENT, 1);
    let (mut spent, mut since, mut points, mut flushes) = (Duration::ZERO, 0, Vec::new(), 0_u64);
    for batch in recording.batches(STREAMED) {
        let now = batch.events().next().map_or(began, |event| event.time());
        if now - began >= i64::try_from(hour).expect("few hours") * 3_600_000 {
            let next = expected.next_seq;
            points.push((hour as f64, spent.as_secs_f64() / (next - since).max(1) as f64));
            (spent, since, hour) = (Duration::ZERO, next, hour + 1);
            if hour > sized(plan, 24) {
                break;
            }
        }
        let create = (expected == Expected::ABSENT).then_some(&header);
        let start = Instant::now();
        let head = engine.append(&id, create, expected, &batch).expect("an append");
        spent += start.elapsed();
        flushes += 1;
        expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
    }
    engine.release(&id, expected.epoch).expect("the session given back");
    settle(&engine, &id);
    let resume: Vec<f64> = (0..plan.rounds()).map(|_| child::run("resume", &root, &[id.as_str()]).seconds).collect();
    let what = format!("resume after {} hours of streaming", hour - 1);
    let row = judged(plan, Row::new("G9", what, &resume, Unit::Seconds), |row| row.at_most(20e-3));
    figures.rows.push(row.note(format!(
        "{} events in {flushes} durable flushes, {} stored",
        expected.next_seq,
        bytes(engine.stored_bytes(&id).expect("the session") as f64)
    )));
    curve(figures, "durable append of an event", "hour of the day", points);
    let _ = std::fs::remove_dir_all(root);
}
