//! What a resumed session holds follows what the model sees, not what was streamed.
#![cfg(feature = "store")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::process::Command;

use sessionlog::backend::Expected;
use sessionlog::event::{Batch, Event, SessionId};
use sessionlog::sample::Recording;
use sessionlog::segment::{EngineOptions, SealOptions, SegmentBackend};
use sessionlog::store::Store;

/// Names the store to a child; its absence makes the child's entry point a test that passes at once.
const STORE_VARIABLE: &str = "SESSIONLOG_TEST_MEMORY_STORE";
/// The session that the child resumes.
const SESSION_VARIABLE: &str = "SESSIONLOG_TEST_MEMORY_SESSION";
const EVENTS: u64 = 130_000;

/// Stores a long session that compacts its history, `sealed` events of it sealed.
fn store(root: &std::path::Path, name: &str, sealed: u64) {
    let mut header = Recording::new(1).header();
    name.clone_into(&mut header.id);
    header.version = sessionlog::event::header::FORMAT_VERSION;
    let id = SessionId::new(name).unwrap();
    let engine = EngineOptions::new().background_sealing(false).rotate_at(1 << 30).open(root).unwrap();
    let events: Vec<Event> = Recording::new(1).events(EVENTS).compacting().iter().collect();
    let mut expected = Expected::ABSENT;
    for piece in events.chunks(500) {
        let create = (expected == Expected::ABSENT).then_some(&header);
        let head = engine.append(&id, create, expected, &Batch::pack(piece.iter().cloned()).unwrap()).unwrap();
        expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
        if expected.next_seq == sealed {
            engine.release(&id, expected.epoch).unwrap();
            engine.seal(&id, SealOptions::new().level(1)).unwrap();
            expected.epoch = engine.take_over(&id).unwrap().head.epoch;
        }
    }
    engine.release(&id, expected.epoch).unwrap();
}

fn resumed(root: &std::path::Path, name: &str) -> sessionlog::session::Messages {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::open(SegmentBackend::open(root).unwrap()).unwrap();
        let live = store.resume(name).await.unwrap();
        // Behind what was stored stand the closers and the mark at most.
        assert!(live.first_held_seq() >= EVENTS && live.next_seq() < EVENTS + 10);
        let surface = live.surface();
        assert!(surface.nodes().iter().all(|seq| live.event(*seq).is_some()));
        let messages = live.messages();
        live.close().await.unwrap();
        messages
    })
}

#[test]
fn child_process_resumes() {
    let (Some(root), Ok(name)) = (std::env::var_os(STORE_VARIABLE), std::env::var(SESSION_VARIABLE)) else { return };
    let messages = resumed(root.as_ref(), &name);
    let bytes: usize = messages.iter().map(|message| message.json().len()).sum();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    println!("peak {} bytes {bytes}", peak.trim().trim_end_matches(" kB"));
}

#[test]
fn g8_memory_after_a_resume_follows_the_surface_whether_sealed_or_not() {
    let directory = tempfile::tempdir().unwrap();
    for (name, sealed) in [("journals", 0), ("half", EVENTS / 2), ("sealed", EVENTS)] {
        store(directory.path(), name, sealed);
        let expected = sessionlog::session::history::fold_messages(
            &Recording::new(1).events(EVENTS).compacting().iter().collect::<Vec<_>>(),
        );
        let messages = resumed(directory.path(), name);
        let (expected, messages) = (expected.unwrap().to_vec(), messages.to_vec());
        assert_eq!(messages[..expected.len()], expected[..], "{name}");
        if !cfg!(target_os = "linux") {
            continue;
        }
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_process_resumes", "--nocapture"])
            .env(STORE_VARIABLE, directory.path())
            .env(SESSION_VARIABLE, name)
            .output()
            .unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        let line = out.lines().find_map(|line| line.split_once("peak ")).unwrap_or_else(|| panic!("{out}")).1;
        let (peak, bytes) = line.split_once(" bytes ").unwrap();
        let (peak, bytes): (u64, u64) = (peak.parse().unwrap(), bytes.trim().parse().unwrap());
        println!("{name}: peak {peak} KiB, messages {bytes} bytes");
        // The stream is 20 MB of text in memory; a page of it, the program and the surface are less than that.
        assert!(peak * 1024 < 28 * (1 << 20), "{name}: {peak} KiB");
    }
}
