//! Peak memory of whole passes over a log that is larger than what they may take, written as 120,000 one-event batches: read, verified,
//! sealed; in journals, half sealed and sealed.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use std::path::Path;
use std::process::Command;

use segment_common::{header, id};
use sessionlog::backend::{BackendError, Expected, ReadLimit};
use sessionlog::event::{Batch, Event, Item, JsonText, NewEvent};
use sessionlog::segment::{CheckStatus, Engine, EngineOptions, SealOptions};

/// Most memory that any pass may take, in KiB: the process as a whole.
const MOST: u64 = 64 << 10;
/// The same for sealing on demand, at its own level.
const MOST_OF_SEALING: u64 = 96 << 10;

const BATCHES: u64 = 120_000;

/// About how long one event in sixty is, in bytes.
const LARGE: usize = 40_000;

/// Names the store and what to do with it to a child; its absence makes the child's entry point a test that passes at once.
const TASK: &str = "SESSIONLOG_TEST_MEMORY_TASK";

/// Mostly deltas; now and then 40 KB that are quickly packed, so that the whole is beyond the limit.
fn event(seq: u64) -> Event {
    if !seq.is_multiple_of(60) {
        let chunk = format!(r#"{{"type":"text-delta","index":{},"text":"word {seq} "}}"#, seq / 60);
        let data = format!(r#"{{"turn":1,"step":1,"chunk":{chunk}}}"#);
        return NewEvent::named("assistant/chunk", JsonText::parse(&data).unwrap()).at(seq, seq.cast_signed());
    }
    let text = format!("line {seq}, ").repeat(LARGE / 11);
    NewEvent::named("app/note", JsonText::parse(&format!("\"{text}\"")).unwrap()).at(seq, seq.cast_signed())
}

fn engine(root: &Path) -> Engine {
    EngineOptions::new().background_sealing(false).open(root).unwrap()
}

fn write(engine: &Engine, upto: u64) {
    let mut seq = 0;
    let next = || {
        seq += 1;
        Ok::<_, BackendError>((seq <= upto).then(|| Batch::pack([event(seq - 1)]).unwrap()))
    };
    engine.create_whole(&header("s"), next).unwrap();
}

fn read(engine: &Engine) {
    let mut reader = engine.reader(&id("s")).unwrap();
    let mut count = 0;
    loop {
        let page = reader.next_page(ReadLimit::default()).unwrap();
        if page.items.is_empty() {
            break;
        }
        for event in page.items.iter().flat_map(Item::events) {
            assert_eq!(event.seq(), count);
            count += 1;
        }
    }
    assert_eq!(count, BATCHES);
}

/// The child's entry point.
#[test]
fn child_does_its_task() {
    let Ok(task) = std::env::var(TASK) else { return };
    let (task, root) = task.split_once(' ').unwrap();
    let root = Path::new(root);
    let engine = engine(root);
    match task {
        "write" => write(&engine, BATCHES),
        "read" => read(&engine),
        "read-mapped" => read(&EngineOptions::new().map_segments(true).open(root).unwrap()),
        "verify" => assert_eq!(engine.verify(&id("s")).status, CheckStatus::Ok),
        "seal" => drop(engine.seal(&id("s"), SealOptions::new()).unwrap()),
        // The first part alone, then the rest behind it.
        "write-half" => write(&engine, BATCHES / 2),
        "append-half" => {
            let head = engine.take_over(&id("s")).unwrap().head;
            let mut expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
            while expected.next_seq < BATCHES {
                let batch = Batch::pack((expected.next_seq..expected.next_seq + 240).map(event)).unwrap();
                expected.next_seq = engine.append(&id("s"), None, expected, &batch).unwrap().next_seq;
            }
            engine.release(&id("s"), head.epoch).unwrap();
        }
        "background" => {
            let engine = EngineOptions::new().open(root).unwrap();
            let head = engine.take_over(&id("s")).unwrap().head;
            engine.release(&id("s"), head.epoch).unwrap();
            engine.finish_sealing();
            assert!(engine.sealing_failures().is_empty());
        }
        other => panic!("{other}"),
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    println!("\npeak {}", peak.trim().strip_suffix(" kB").unwrap());
}

/// Has a process of its own do a task and gives its peak memory in KiB.
#[track_caller]
fn peak(task: &str, root: &Path) -> u64 {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_does_its_task", "--nocapture"])
        .env(TASK, format!("{task} {}", root.display()))
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{task}: {out}{}", String::from_utf8_lossy(&output.stderr));
    let peak = out.lines().find_map(|line| line.strip_prefix("peak ")).unwrap().parse().unwrap();
    println!("{task}: {peak} KiB");
    peak
}

#[test]
fn no_read_of_a_log_of_120_000_batches_takes_more_than_64_mib_and_no_seal_more_than_96() {
    let home = tempfile::tempdir().unwrap();
    let whole = home.path().join("whole");
    let half = home.path().join("half");
    let background = home.path().join("background");
    peak("write", &whole);
    segment_common::copy_tree(&whole, &background);
    peak("write-half", &half);
    let tasks = [
        ("read", &whole),
        ("verify", &whole),
        ("seal", &whole),
        ("read", &whole),
        ("read-mapped", &whole),
        ("verify", &whole),
        ("seal", &half),
        ("append-half", &half),
        ("read", &half),
        ("verify", &half),
        ("background", &background),
        ("read", &background),
    ];
    assert!(BATCHES / 60 * LARGE as u64 > MOST * 1024, "the log does not fit what a pass may take");
    for (task, root) in tasks {
        let peak = peak(task, root);
        // Compressing as hard as asked for takes tables of its own; nothing that serves a live session does.
        let most = if task == "seal" { MOST_OF_SEALING } else { MOST };
        assert!(peak <= most, "{task} of {}: {peak} KiB", root.display());
    }
}
