//! Forks of sealed sessions: segments are shared, and neither side can hurt the other.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use segment_common::{append, create, events, expected, files_below, header, id, lines, simulated};
use sessionlog::backend::{DamageClass, ErrorKind};
use sessionlog::event::Event;
use sessionlog::segment::files::{Fault, FaultKind, Operation, SimulatedFiles};
use sessionlog::segment::{CheckStatus, Engine, EngineOptions, SealOptions};

/// A session of several segments and a journal behind them.
fn source(engine: &Engine) -> u64 {
    let head = create(engine, "s", 3);
    let head = append(engine, "s", &head, 93);
    engine.release(&id("s"), head.epoch).unwrap();
    engine.seal(&id("s"), SealOptions::new()).unwrap();
    // What follows weighs less than what is sealed first, so that is not taken in.
    let mut head = engine.take_over(&id("s")).unwrap().head;
    while head.next_seq < 122 {
        head = append(engine, "s", &head, head.next_seq + 1);
    }
    engine.release(&id("s"), head.epoch).unwrap();
    engine.finish_sealing();
    head = engine.take_over(&id("s")).unwrap().head;
    head = append(engine, "s", &head, 125);
    engine.release(&id("s"), head.epoch).unwrap();
    engine.finish_sealing();
    125
}

fn assert_holds(engine: &Engine, name: &str, count: u64) {
    let check = engine.verify(&id(name));
    assert_eq!((check.status, check.events), (CheckStatus::Ok, count), "{name}: {:?}", check.error);
    assert_eq!(lines(&events(engine, name)), lines(&expected(count)), "{name}");
}

fn go_on(engine: &Engine, name: &str, to: u64) {
    let head = engine.take_over(&id(name)).unwrap().head;
    let head = append(engine, name, &head, to);
    engine.release(&id(name), head.epoch).unwrap();
}

fn segments(directory: &Path) -> Vec<PathBuf> {
    let mut found = files_below(directory);
    found.retain(|path| path.extension().is_some_and(|extension| extension == "seg"));
    found
}

#[test]
fn l5_what_a_fork_adds_is_sealed_and_joined_behind_the_shared_segment_that_its_boundary_cuts() {
    let home = tempfile::tempdir().unwrap();
    let engine = EngineOptions::new().background_sealing(false).open(home.path()).unwrap();
    let head = append(&engine, "s", &create(&engine, "s", 3), 93);
    engine.release(&id("s"), head.epoch).unwrap();
    engine.seal(&id("s"), SealOptions::new()).unwrap();
    engine.fork(&id("s"), 40, &header("child")).unwrap();
    for next in [44, 48, 60] {
        go_on(&engine, "child", next);
        engine.seal(&id("child"), SealOptions::new()).unwrap();
        assert_holds(&engine, "child", next);
        assert_eq!(segments(&engine.locate(&id("child"))).len(), 2, "the shared one and the child's own");
    }
    assert_holds(&engine, "s", 93);
}

#[test]
fn l5_a_fork_shares_the_segments_before_its_boundary_for_every_seq() {
    let home = tempfile::tempdir().unwrap();
    let engine = EngineOptions::new().rotate_at(900).open(home.path()).unwrap();
    let count = source(&engine);
    let original = engine.locate(&id("s"));
    let names = segments(&original);
    assert!(names.len() >= 2, "{names:?}");
    let before: Vec<Vec<u8>> = files_below(&original).iter().map(|path| fs::read(path).unwrap()).collect();
    for boundary in (0..count).step_by(3).chain([count - 1]) {
        let name = format!("child-{boundary}");
        assert_eq!(engine.fork(&id("s"), boundary, &header(&name)).unwrap().next_seq, boundary + 1);
        assert_holds(&engine, &name, boundary + 1);
        go_on(&engine, &name, boundary + 4);
        assert_holds(&engine, &name, boundary + 4);
        let shared = segments(&engine.locate(&id(&name)));
        let shared = shared.iter().filter(|path| fs::metadata(path).unwrap().nlink() > 1).count();
        if boundary % 2 == 0 {
            engine.seal(&id(&name), SealOptions::new().level(1)).unwrap();
            assert_holds(&engine, &name, boundary + 4);
            go_on(&engine, &name, boundary + 6);
            assert_holds(&engine, &name, boundary + 6);
        }
        if boundary + 1 == count {
            assert!(boundary % 2 == 0 || shared == names.len());
        }
    }
    assert_eq!(engine.fork(&id("s"), count, &header("late")).unwrap_err().kind, ErrorKind::NotFound);
    let after: Vec<Vec<u8>> = files_below(&original).iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(before == after, "the source has changed");

    // A fork of a fork, and each of the three without the others.
    engine.fork(&id("child-102"), 100, &header("grandchild")).unwrap();
    engine.delete(&id("s")).unwrap();
    assert_holds(&engine, "child-102", 108);
    engine.delete(&id("child-102")).unwrap();
    assert_holds(&engine, "grandchild", 101);
    assert_holds(&engine, "child-99", 103);
    let sealed = engine.seal(&id("grandchild"), SealOptions::new()).unwrap();
    assert!(sealed.after <= sealed.before);
    assert_holds(&engine, "grandchild", 101);
    go_on(&engine, "grandchild", 110);
    assert_holds(&engine, "grandchild", 110);
    assert_holds(&engine, "child-99", 103);
}

#[test]
fn g12_a_fork_of_a_long_log_costs_no_more_than_of_a_short_one() {
    let calls = |events: u64, boundary: u64| {
        let files = SimulatedFiles::new(1);
        let engine = simulated(&files).open("/store").unwrap();
        let head = create(&engine, "s", events);
        engine.release(&id("s"), head.epoch).unwrap();
        engine.seal(&id("s"), SealOptions::new().level(1)).unwrap();
        let before = files.calls();
        engine.fork(&id("s"), boundary, &header("child")).unwrap();
        let calls = files.calls() - before;
        assert_holds(&engine, "child", boundary + 1);
        let seqs: Vec<u64> = (0..=boundary).step_by(3).collect();
        let fetched: Vec<u64> = engine.read_events(&id("child"), &seqs).unwrap().iter().map(Event::seq).collect();
        assert_eq!(fetched, seqs);
        assert!(engine.read_events(&id("child"), &[boundary + 1]).is_err());
        // Sealed, the child has a checkpoint of its own.
        go_on(&engine, "child", boundary + 3);
        engine.seal(&id("child"), SealOptions::new().level(1)).unwrap();
        assert_holds(&engine, "child", boundary + 3);
        calls
    };
    let short = calls(100, 50);
    let long = calls(20_000, 19_000);
    assert!(long <= short, "{long} calls, {short} for a short log");
}

#[test]
fn r4_a_shared_segment_counts_only_where_it_is_listed() {
    let home = tempfile::tempdir().unwrap();
    let engine = EngineOptions::new().rotate_at(900).open(home.path()).unwrap();
    source(&engine);
    engine.fork(&id("s"), 124, &header("child")).unwrap();
    let child = engine.locate(&id("child"));
    let list = fs::read(child.join("shared")).unwrap();
    let class = |engine: &Engine, name: &str| {
        let error = engine.verify(&id(name)).error?;
        assert!(engine.take_over(&id(name)).is_err());
        error.damage.map(|damage| damage.class)
    };
    fs::remove_file(child.join("shared")).unwrap();
    assert_eq!(class(&engine, "child"), Some(DamageClass::IdentityMismatch));
    for at in 0..list.len() {
        let mut bad = list.clone();
        bad[at] ^= 4;
        fs::write(child.join("shared"), bad).unwrap();
        assert_eq!(class(&engine, "child"), Some(DamageClass::BadHeader));
    }
    fs::write(child.join("shared"), &list).unwrap();
    assert_holds(&engine, "child", 125);
    // A segment of some third session is none of those listed.
    let third = create(&engine, "third", 60);
    engine.release(&id("third"), third.epoch).unwrap();
    engine.seal(&id("third"), SealOptions::new()).unwrap();
    let first = segments(&child).remove(0);
    fs::remove_file(&first).unwrap();
    fs::copy(segments(&engine.locate(&id("third"))).remove(0), &first).unwrap();
    assert_eq!(class(&engine, "child"), Some(DamageClass::IdentityMismatch));
    assert_holds(&engine, "s", 125);
}

fn half_sealed(seed: u64) -> (SimulatedFiles, Engine) {
    let files = SimulatedFiles::new(seed);
    let engine = simulated(&files).rotate_at(900).open("/store").unwrap();
    let head = create(&engine, "s", 40);
    engine.release(&id("s"), head.epoch).unwrap();
    engine.seal(&id("s"), SealOptions::new().level(1)).unwrap();
    go_on(&engine, "s", 50);
    (files, engine)
}

#[test]
fn r1_r2_a_fork_is_whole_or_absent_whatever_call_fails() {
    for (kind, boundary) in [
        (FaultKind::Errno(libc::EIO), 44),
        (FaultKind::PowerOff, 44),
        (FaultKind::Errno(libc::EIO), 20),
        (FaultKind::PowerOff, 20),
    ] {
        for call in 1_u64.. {
            let (files, engine) = half_sealed(call);
            let before = files.calls();
            files.fail(Fault { call, operation: None, lasting: false, kind });
            let forked = engine.fork(&id("s"), boundary, &header("child"));
            let used = files.calls() - before;
            files.heal();
            drop(engine);
            files.crash();
            let engine = simulated(&files).rotate_at(900).open("/store").unwrap();
            assert_holds(&engine, "s", 50);
            let there = engine.open_session(&id("child"));
            match (&forked, there) {
                (_, Ok(_)) => assert_holds(&engine, "child", boundary + 1),
                (Ok(_), Err(error)) => panic!("call {call}: an acknowledged fork is lost: {error}"),
                (Err(_), Err(error)) => {
                    assert_eq!(error.kind, ErrorKind::NotFound, "call {call}: {error}");
                    engine.fork(&id("s"), boundary, &header("child")).unwrap();
                    assert_holds(&engine, "child", boundary + 1);
                }
            }
            if used < call {
                break;
            }
        }
    }
}

#[test]
fn a_file_system_without_links_gets_copies() {
    let (files, engine) = half_sealed(1);
    let fault = FaultKind::Errno(libc::EPERM);
    files.fail(Fault { call: 1, operation: Some(Operation::Link), lasting: true, kind: fault });
    engine.fork(&id("s"), 44, &header("child")).unwrap();
    files.crash();
    let engine = simulated(&files).open("/store").unwrap();
    assert_holds(&engine, "child", 45);
    engine.delete(&id("s")).unwrap();
    assert_holds(&engine, "child", 45);
}
