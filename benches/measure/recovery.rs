//! Opening a session whose writer was killed (G13), against the length of the log and of the journal behind it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sessionlog::event::Placement;
use sessionlog::event::chunk::AssistantChunk;
use sessionlog::event::control::{StepStart, TurnStart};
use sessionlog::event::message::UserMessage;
use sessionlog::sample::{Cadence, Recording};
use sessionlog::segment::{EngineOptions, SealOptions, SegmentBackend};
use sessionlog::store::StoreOptions;

use super::append::runtime;
use super::child::{self, Taken};
use super::files::UnsyncedFiles;
use super::inputs::{Stored, unsynced};
use super::row::{Curve, Row, Unit, count, median, seconds};
use super::{Figures, Plan};

/// Mean bytes of a recorded event as a JSON line.
pub const LINE_BYTES: u64 = 229;

/// What the child says when its journal is as long as it was to be.
const READY: &str = "ready";

/// Deltas of a flush: what streams in 200 ms, and more at once while the journal is being filled.
const DELTAS: usize = 40;
const FILLING: usize = 2_000;

/// Resumes the session, opens a turn, streams until the journal has so many bytes, says so and streams on until it is killed. A
/// kill loses nothing that the kernel has, so nothing is synced.
pub fn stream_child(root: &Path, words: &[&str]) -> Taken {
    let [name, journal] = words else { panic!("an id and a size") };
    let journal: u64 = journal.parse().expect("bytes");
    runtime(1).block_on(async {
        let engine = EngineOptions::new().files(Arc::new(UnsyncedFiles)).background_sealing(false);
        let backend = SegmentBackend::with_options(root, engine).expect("a store");
        let store = StoreOptions::new().window(Duration::from_secs(60)).open(backend).expect("a store");
        let live = store.resume(*name).await.expect("the session");
        let before = store.backend().engine().stored_bytes(live.id()).expect("the session");
        let turn = live.next_turn();
        live.append(TurnStart::new(turn)).expect("an append");
        live.append_surface(UserMessage::text("go"), Placement::append()).expect("an append");
        live.append(StepStart::new(turn, 1)).expect("an append");
        let mut told = false;
        let mut number = 0_u64;
        loop {
            for _ in 0..if told { DELTAS } else { FILLING } {
                number += 1;
                let text = format!(" word{}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40);
                live.append(AssistantChunk::text(turn, 1, 0, text)).expect("an append");
            }
            live.flush().await.expect("a flush");
            let now = store.backend().engine().stored_bytes(live.id()).expect("the session");
            if !told && now >= before + journal {
                println!("{READY}");
                told = true;
            }
        }
    })
}

/// Median seconds to resume the session in a new process after its writer was killed with a journal of so many bytes.
fn after_kills(plan: &Plan, stored: &Stored, journal: u64) -> f64 {
    let mut samples = Vec::new();
    for _ in 0..plan.rounds() {
        let mut writer = child::start("stream", &stored.root, &[stored.name(), &journal.to_string()]);
        let mut said = String::new();
        BufReader::new(writer.stdout.take().expect("a pipe")).read_line(&mut said).expect("a word");
        assert_eq!(said.trim(), READY);
        writer.kill().expect("a child to kill");
        writer.wait().expect("a child");
        samples.push(child::run("resume", &stored.root, &[stored.name()]).seconds);
        // Every round starts from a log that is sealed to its end.
        unsynced(&stored.root, false).seal(&stored.id, SealOptions::new().level(1)).expect("a seal");
    }
    median(&samples)
}

/// Row G13 and its two curves.
pub fn measure(plan: &Plan, figures: &mut Figures) {
    let sizes: &[u64] = match (plan.quick, plan.scale) {
        (true, _) => &[1_000_000, 10_000_000],
        (false, false) => &[1_000_000, 10_000_000, 100_000_000, 1_000_000_000],
        (false, true) => &[1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000],
    };
    let work = super::files::fresh(&plan.work, "killed");
    let (mut by_log, mut by_journal) = (Vec::new(), Vec::new());
    for &size in sizes {
        let events = size / LINE_BYTES;
        let recording = Recording::new(3).events(events).compacting();
        let stored = Stored::streamed(&work, &format!("log-{size}"), recording, events, Cadence::Step);
        by_log.push((size as f64, after_kills(plan, &stored, 64 << 10)));
        if size == 10_000_000 {
            for journal in [16_u64 << 10, 128 << 10, 1 << 20, 4 << 20, 8 << 20] {
                by_journal.push((journal as f64, after_kills(plan, &stored, journal)));
            }
        }
        let _ = std::fs::remove_dir_all(&stored.root);
    }
    let of = |points: &[(f64, f64)]| points.iter().map(|(_, cost)| *cost).collect::<Vec<f64>>();
    let (log, journal) = (of(&by_log), of(&by_journal));
    let worst = log.iter().copied().fold(0.0, f64::max);
    let growth = worst / log.first().copied().unwrap_or(f64::NAN);
    let largest = by_log.last().map_or(0.0, |(size, _)| *size);
    let row = Row::new("G13", "open after kill -9, slowest of all log lengths", &[worst], Unit::Seconds);
    figures.rows.push(row.judged("flat, <= 50 ms", worst <= 50e-3 && growth <= 3.0).note(format!(
        "1 MB to {} of JSON lines, 64 KiB of journal; {} x the shortest log; journals of 16 KiB to 8 MiB: {} to {}",
        super::row::bytes(largest),
        count((growth * 100.0).round() / 100.0),
        seconds(journal.first().copied().unwrap_or(f64::NAN)),
        seconds(journal.last().copied().unwrap_or(f64::NAN)),
    )));
    for (name, against, points) in [
        ("open after kill -9, by log", "bytes of the log as JSON lines", by_log),
        ("open after kill -9, by journal", "bytes of the journal", by_journal),
    ] {
        let (name, against) = (name.to_owned(), against.to_owned());
        figures.curves.push(Curve { name, against, unit: Unit::Seconds, points });
    }
    let _ = std::fs::remove_dir_all(work);
}
