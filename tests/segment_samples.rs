//! A small store with a session in every state that files can be in.
//!
//! Run with `SESSIONLOG_WRITE_SAMPLES=DIRECTORY` to have it written there, for tools that damage it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use std::fs;
use std::path::Path;

use segment_common::{files_below, header, id, lines, try_events};
use sessionlog::backend::{Expected, Head};
use sessionlog::event::{Batch, Event};
use sessionlog::sample::Recording;
use sessionlog::segment::{CheckStatus, Engine, EngineOptions, SealOptions};

/// Appends events up to seq `to`, a few more in each append than in the one before.
fn append(engine: &Engine, name: &str, events: &[Event], head: Option<Head>, to: usize) -> Head {
    let mut head = head;
    let mut size = 1;
    loop {
        let from = head.as_ref().map_or(0, |head| usize::try_from(head.next_seq).unwrap());
        if from >= to {
            return head.unwrap();
        }
        let batch = Batch::pack(events[from..to.min(from + size)].iter().cloned()).unwrap();
        let expected =
            head.as_ref().map_or(Expected::ABSENT, |head| Expected { epoch: head.epoch, next_seq: head.next_seq });
        head = Some(engine.append(&id(name), head.is_none().then(|| header(name)).as_ref(), expected, &batch).unwrap());
        size = size % 40 + 9;
    }
}

/// Appends events up to seq `to` as one writer, and lets go of the session.
fn write(engine: &Engine, name: &str, events: &[Event], to: usize) {
    let head = engine.take_over(&id(name)).ok().map(|taken| taken.head);
    let head = append(engine, name, events, head, to);
    engine.release(&id(name), head.epoch).unwrap();
}

fn seal(engine: &Engine, name: &str) {
    engine.seal(&id(name), SealOptions::new()).unwrap();
}

/// Writes the store. Journals of the session `plain` are not compressed.
fn write_store(root: &Path) -> Vec<(&'static str, Vec<Event>)> {
    let options = || EngineOptions::new().seed(7).rotate_at(6000).background_sealing(false);
    let engine = options().open(root).unwrap();
    let recorded = |seed, events| Recording::new(seed).events(events).iter().collect::<Vec<_>>();
    let (short, long) = (recorded(3, 300), recorded(4, 700));

    write(&engine, "journals", &long, 200);
    write(&engine, "journals", &long, 700);
    let plain = options().compress(false).open(root).unwrap();
    write(&plain, "plain", &short, 300);
    write(&engine, "torn", &short, 300);
    let newest = files_below(&engine.locate(&id("torn"))).into_iter().rfind(|path| path.extension().is_some()).unwrap();
    let bytes = fs::read(&newest).unwrap();
    fs::write(&newest, &bytes[..bytes.len() - 5]).unwrap();
    let kept = usize::try_from(engine.verify(&id("torn")).events).unwrap();

    write(&engine, "sealed", &long, 700);
    seal(&engine, "sealed");
    // Sealed on close: segments of which each is much smaller than the one before are not joined.
    let sealing = EngineOptions::new().seed(8).rotate_at(6000).open(root).unwrap();
    for to in [500, 560] {
        write(&sealing, "half", &long, to);
        sealing.finish_sealing();
    }
    write(&engine, "half", &long, 700);
    for (child, boundary) in [("fork", 320_usize), ("fork-of-all", 519)] {
        engine.fork(&id("half"), boundary as u64, &header(child)).unwrap();
        write(&engine, child, &long, boundary + 40);
    }
    let part = |count: usize| long[..count].to_vec();
    vec![
        ("journals", part(700)),
        ("plain", short.clone()),
        ("torn", short[..kept].to_vec()),
        ("sealed", part(700)),
        ("half", part(700)),
        ("fork", part(360)),
        ("fork-of-all", part(559)),
    ]
}

#[test]
fn sample_stores_hold_what_was_written() {
    let home = tempfile::tempdir().unwrap();
    let chosen = std::env::var_os("SESSIONLOG_WRITE_SAMPLES");
    let root = chosen.map_or_else(|| home.path().join("store"), Into::into);
    let sessions = write_store(&root);
    let engine = Engine::open(&root).unwrap();
    for (name, events) in &sessions {
        let check = engine.verify(&id(name));
        let status = if *name == "torn" { CheckStatus::Torn } else { CheckStatus::Ok };
        assert_eq!((check.status, check.events), (status, events.len() as u64), "{name}: {:?}", check.error);
        assert_eq!(lines(&try_events(&engine, name).unwrap()), lines(events), "{name}");
    }
    let count = |extension: &str, name: &str| {
        let files = files_below(&engine.locate(&id(name)));
        files.iter().filter(|path| path.extension().is_some_and(|end| end == extension)).count()
    };
    assert!(count("log", "journals") >= 3 && count("log", "plain") >= 3);
    assert_eq!((count("seg", "sealed"), count("log", "sealed")), (1, 0));
    assert!(count("seg", "half") >= 2 && count("log", "half") >= 1 && count("seg", "fork-of-all") >= 1);
    assert!(engine.locate(&id("fork")).join("shared").exists());
}
