//! What a resumed session holds follows what the model sees, not what was streamed.
#![cfg(feature = "store")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::process::Command;

use sessionlog::backend::Expected;
use sessionlog::event::{Batch, Event, JsonText, NewEvent, Placement, SessionHeader, SessionId};
use sessionlog::sample::Recording;
use sessionlog::segment::{EngineOptions, SealOptions, SegmentBackend};
use sessionlog::store::Store;

/// Names the store to a child; its absence makes the child's entry point a test that passes at once.
const STORE_VARIABLE: &str = "SESSIONLOG_TEST_MEMORY_STORE";
/// The session that the child resumes.
const SESSION_VARIABLE: &str = "SESSIONLOG_TEST_MEMORY_SESSION";
const EVENTS: u64 = 130_000;
const PLAIN: &str = "plain";
const PLAIN_EVENTS: u64 = 250;

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

/// A session of which everything is on the surface: about 19 MB of messages that are told apart.
fn store_plain(root: &std::path::Path, name: &str) {
    let id = SessionId::new(name).unwrap();
    let engine = EngineOptions::new().background_sealing(false).rotate_at(1 << 30).open(root).unwrap();
    let event = |seq: u64| {
        let mut text = String::new();
        for word in 0..8_000 {
            let _ = write!(text, "{:x} ", (seq * 8_000 + word) * 7_919);
        }
        let content = format!(r#"[{{"type":"text","text":"{text}"}}]"#);
        let data = format!(r#"{{"id":"u{seq}","role":"user","content":{content},"source":{{"kind":"user"}}}}"#);
        let new = NewEvent::named("user/message", JsonText::parse(&data).unwrap());
        new.placed(Placement::append()).at(seq, 0)
    };
    let header = SessionHeader::new(name);
    let batch = Batch::pack((0..PLAIN_EVENTS).map(event)).unwrap();
    let head = engine.append(&id, Some(&header), Expected::ABSENT, &batch).unwrap();
    engine.release(&id, head.epoch).unwrap();
    engine.seal(&id, SealOptions::new().level(1)).unwrap();
}

fn resumed(root: &std::path::Path, name: &str) -> sessionlog::session::Messages {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::open(SegmentBackend::open(root).unwrap()).unwrap();
        let live = store.resume(name).await.unwrap();
        // Behind what was stored stand the closers and the mark at most.
        let stored = if name == PLAIN { PLAIN_EVENTS } else { EVENTS };
        assert!(live.first_held_seq() >= stored && live.next_seq() < stored + 10);
        let surface = live.surface();
        assert!(surface.nodes().iter().all(|seq| live.event(*seq).is_some()));
        let messages = live.messages();
        live.close().await.unwrap();
        messages
    })
}

/// A figure that the kernel has of this process, in bytes.
fn of_this_process(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn child_process_resumes() {
    let (Some(root), Ok(name)) = (std::env::var_os(STORE_VARIABLE), std::env::var(SESSION_VARIABLE)) else { return };
    let before = of_this_process("VmRSS:");
    let messages = resumed(root.as_ref(), &name);
    let peak = of_this_process("VmHWM:");
    let bytes: usize = messages.iter().map(|message| message.json().len()).sum();
    println!("figures {before} {peak} {bytes}");
}

/// What another process needs to resume a session: bytes in memory before, at most, and of the messages themselves.
fn figures_of_a_resume(root: &std::path::Path, name: &str) -> [u64; 3] {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_process_resumes", "--nocapture"])
        .env(STORE_VARIABLE, root)
        .env(SESSION_VARIABLE, name)
        .output()
        .unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    let line = out.lines().find_map(|line| line.split_once("figures ")).unwrap_or_else(|| panic!("{out}")).1;
    let figures: Vec<u64> = line.split(' ').map(|figure| figure.trim().parse().unwrap()).collect();
    println!("{name}: {} bytes before, at most {}, messages {}", figures[0], figures[1], figures[2]);
    figures.try_into().unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn g8_a_resume_takes_little_more_memory_than_the_messages_have_bytes() {
    let directory = tempfile::tempdir().unwrap();
    store_plain(directory.path(), PLAIN);
    let [before, peak, bytes] = figures_of_a_resume(directory.path(), PLAIN);
    assert!(bytes > 15 << 20, "{bytes}");
    assert!((peak - before) * 10 <= bytes * 14, "{} bytes more for messages of {bytes}", peak - before);
}

#[test]
fn g8_memory_after_a_resume_follows_the_surface_whether_sealed_or_not() {
    let directory = tempfile::tempdir().unwrap();
    for (name, sealed, limit) in
        [("journals", 0, 28 << 20), ("half", EVENTS / 2, 20 << 20), ("sealed", EVENTS, 12 << 20)]
    {
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
        let [_, peak, _] = figures_of_a_resume(directory.path(), name);
        // The stream is 20 MB of text in memory; a page of it, the program and the surface are less than that.
        assert!(peak < limit, "{name}: {peak} bytes");
    }
}
