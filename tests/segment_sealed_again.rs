//! Sealing what is sealed already: harder, once, and only where it frees something.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use std::fs;
use std::path::{Path, PathBuf};

use segment_common::{events, files_below, header, id, lines, simulated};
use sessionlog::backend::{Expected, ReadLimit};
use sessionlog::event::{Batch, Event, JsonText, NewEvent};
use sessionlog::sample::{Cadence, Recording};
use sessionlog::segment::files::SimulatedFiles;
use sessionlog::segment::{CheckStatus, Engine, EngineOptions, SealOptions, Sealed};

const EVENTS: u64 = 8_000;

fn recorded(engine: &Engine) {
    let mut expected = Expected::ABSENT;
    for batch in Recording::new(3).events(EVENTS).batches(Cadence::Step) {
        let create = (expected == Expected::ABSENT).then(|| header("s"));
        let head = engine.append(&id("s"), create.as_ref(), expected, &batch).unwrap();
        expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
    }
    engine.release(&id("s"), expected.epoch).unwrap();
}

fn seal(engine: &Engine, level: i32) -> Sealed {
    engine.seal(&id("s"), SealOptions::new().level(level)).unwrap()
}

fn segments(engine: &Engine, name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = files_below(&engine.locate(&id(name)));
    found.retain(|path| path.extension().is_some_and(|extension| extension == "seg"));
    found.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

fn on_disk(root: &Path) -> Engine {
    EngineOptions::new().background_sealing(false).open(root).unwrap()
}

#[test]
fn what_was_sealed_is_sealed_again_at_a_higher_level_and_at_no_other() {
    let engine = simulated(&SimulatedFiles::new(5)).open("/store").unwrap();
    recorded(&engine);
    let before = lines(&events(&engine, "s"));
    let mut stored = u64::MAX;
    for level in [3, 9, 17] {
        let sealed = seal(&engine, level);
        assert!(sealed.after < sealed.before && sealed.after < stored, "level {level}: {sealed:?}");
        stored = sealed.after;
        for no_higher in [level, level - 1, 1] {
            let again = seal(&engine, no_higher);
            assert_eq!((again.before, again.after), (stored, stored), "level {no_higher} after {level}");
        }
        let check = engine.verify(&id("s"));
        assert_eq!((check.status, check.events), (CheckStatus::Ok, EVENTS), "{:?}", check.error);
        assert_eq!(lines(&events(&engine, "s")), before);
    }
}

/// Events whose payload nothing shrinks by much, `count` of a MiB each.
fn noise(from: u64, count: u64) -> Vec<Event> {
    let mut state = from + 1;
    let mut letters = |length: usize| -> String {
        let letter = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"[(state >> 58) as usize])
        };
        (0..length).map(letter).collect()
    };
    let mut event = |seq| {
        let data = JsonText::parse(&format!("\"{}\"", letters(1 << 20))).unwrap();
        NewEvent::named("app/noise", data).at(seq, 1_700_000_000_000)
    };
    (from..from + count).map(&mut event).collect()
}

#[test]
fn segments_before_the_last_are_sealed_again_one_by_one_and_keep_their_place() {
    let home = tempfile::tempdir().unwrap();
    let engine = on_disk(home.path());
    let mut expected = Expected::ABSENT;
    // Each is too large to be joined with the next one.
    for part in 0..2 {
        let batch = Batch::pack(noise(part * 12, 12)).unwrap();
        let create = (part == 0).then(|| header("s"));
        let expects = if part == 0 {
            expected
        } else {
            let head = engine.take_over(&id("s")).unwrap().head;
            Expected { epoch: head.epoch, next_seq: head.next_seq }
        };
        let head = engine.append(&id("s"), create.as_ref(), expects, &batch).unwrap();
        expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
        engine.release(&id("s"), expected.epoch).unwrap();
        seal(&engine, 1);
    }
    let before = segments(&engine, "s");
    assert_eq!(before.len(), 2);
    // A reader that stands in one goes on in what took its segment's place.
    let mut reader = engine.reader(&id("s")).unwrap();
    let limit = ReadLimit { events: 5, bytes: usize::MAX };
    let mut read: Vec<Event> = reader.next_page(limit).unwrap().items.iter().flat_map(|item| item.events()).collect();
    seal(&engine, 2);
    let after = segments(&engine, "s");
    for ((path, old), (same, new)) in before.iter().zip(&after) {
        assert!(path == same && old != new, "{}", path.display());
    }
    assert_eq!(after.len(), 2);
    loop {
        let page = reader.next_page(limit).unwrap();
        read.extend(page.items.iter().flat_map(|item| item.events()));
        if page.items.is_empty() {
            break;
        }
    }
    assert!(read.iter().eq(&noise(0, 12).into_iter().chain(noise(12, 12)).collect::<Vec<_>>()));
    let check = engine.verify(&id("s"));
    assert_eq!((check.status, check.events), (CheckStatus::Ok, 24), "{:?}", check.error);
    let sealed = seal(&engine, 2);
    assert_eq!((sealed.before, segments(&engine, "s")), (sealed.after, after));
}

#[test]
fn a_segment_that_a_fork_holds_is_left_as_it_is_until_the_fork_is_gone() {
    let home = tempfile::tempdir().unwrap();
    let engine = on_disk(home.path());
    recorded(&engine);
    seal(&engine, 3);
    engine.fork(&id("s"), EVENTS / 2, &header("child")).unwrap();
    let before = segments(&engine, "s");
    seal(&engine, 9);
    engine.seal(&id("child"), SealOptions::new().level(9)).unwrap();
    assert_eq!(segments(&engine, "s"), before);
    assert_eq!(segments(&engine, "child")[0].1, before[0].1);
    engine.delete(&id("child")).unwrap();
    let sealed = seal(&engine, 9);
    assert!(sealed.after < sealed.before, "{sealed:?}");
    assert_eq!(engine.verify(&id("s")).status, CheckStatus::Ok);
}
