//! Sealing under faults: every call fails once, power goes at every call, and nothing is lost or doubled.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "seqs and names are small and known"
)]

mod segment_common;

use std::path::Path;
use std::sync::{Arc, Mutex};

use segment_common::unsealable::{Sealing, Unsealable};
use segment_common::{append, batch, create, events, expected, id, lines, simulated, try_events};
use sessionlog::backend::{ErrorKind, Expected, Head, SealingCause};
use sessionlog::segment::files::{Fault, FaultKind, Files, Operation, RealFiles, SimulatedFiles};
use sessionlog::segment::{CheckStatus, Engine, EngineOptions, SealOptions};

const TOTAL: u64 = 45;

fn engine(files: &SimulatedFiles) -> Engine {
    simulated(files).rotate_at(900).open("/store").unwrap()
}

fn go_on(engine: &Engine, to: u64) {
    let mut head = engine.take_over(&id("s")).unwrap().head;
    while head.next_seq < to {
        head = append(engine, "s", &head, to.min(head.next_seq + 4));
    }
    engine.release(&id("s"), head.epoch).unwrap();
}

/// A session sealed in part, with journals behind.
fn half_sealed(seed: u64) -> SimulatedFiles {
    let files = SimulatedFiles::new(seed);
    let engine = engine(&files);
    let head = create(&engine, "s", 3);
    engine.release(&id("s"), head.epoch).unwrap();
    go_on(&engine, 25);
    engine.seal(&id("s"), SealOptions::new().level(1)).unwrap();
    go_on(&engine, TOTAL);
    files
}

fn assert_whole(files: &SimulatedFiles, what: &str) {
    let engine = engine(files);
    let check = engine.verify(&id("s"));
    assert_eq!((check.status, check.events), (CheckStatus::Ok, TOTAL), "{what}: {:?}", check.error);
    assert_eq!(lines(&events(&engine, "s")), lines(&expected(TOTAL)), "{what}");
}

/// The session goes on, and is sealed, as if nothing had happened.
fn assert_goes_on(files: &SimulatedFiles, what: &str) {
    let engine = engine(files);
    go_on(&engine, TOTAL + 5);
    engine.seal(&id("s"), SealOptions::new().level(1)).unwrap();
    assert_eq!(lines(&events(&engine, "s")), lines(&expected(TOTAL + 5)), "{what}");
    assert_eq!(engine.verify(&id("s")).status, CheckStatus::Ok, "{what}");
    let names = files.read_directory(Path::new("/store/sessions/s")).unwrap();
    let files_of_the_log = names.iter().filter(|name| name.ends_with(".log") || name.ends_with(".seg"));
    assert_eq!(files_of_the_log.count(), 1, "{what}: {names:?}");
    assert!(!names.iter().any(|name| name.starts_with(".tmp-")), "{what}: {names:?}");
}

#[test]
fn r2_every_failing_call_of_sealing_leaves_the_log_whole() {
    for kind in [FaultKind::Errno(libc::EIO), FaultKind::Errno(libc::ENOSPC), FaultKind::ShortWrite] {
        let mut failed = 0;
        for call in 1_u64.. {
            let files = half_sealed(call);
            let sealing = engine(&files);
            let before = files.calls();
            files.fail(Fault { call, operation: None, lasting: false, kind });
            let result = sealing.seal(&id("s"), SealOptions::new().level(1));
            let used = files.calls() - before;
            files.heal();
            let what = format!("call {call} with {kind:?}: {result:?}");
            if let Err(error) = &result {
                failed += 1;
                assert!(matches!(error.kind, ErrorKind::Io | ErrorKind::DiskFull), "{what}");
            }
            assert_whole(&files, &what);
            files.crash();
            assert_whole(&files, &what);
            assert_goes_on(&files, &what);
            if used < call {
                break;
            }
        }
        assert!(failed > 20 || kind == FaultKind::ShortWrite, "{failed} calls failed with {kind:?}");
    }
}

#[test]
fn r1_power_lost_at_any_call_of_sealing_leaves_the_log_before_or_after() {
    let mut lost = 0;
    for call in 1_u64.. {
        let files = half_sealed(call.wrapping_mul(977));
        let sealing = engine(&files);
        files.fail(Fault { call, operation: None, lasting: false, kind: FaultKind::PowerOff });
        let result = sealing.seal(&id("s"), SealOptions::new().level(1));
        drop(sealing);
        files.crash();
        let what = format!("power lost at call {call}: {result:?}");
        assert_whole(&files, &what);
        assert_goes_on(&files, &what);
        if result.is_ok() {
            break;
        }
        lost += 1;
    }
    assert!(lost > 50, "{lost}");
}

#[test]
fn r1_power_lost_at_every_sync_with_many_outcomes() {
    for operation in [Operation::SyncAll, Operation::SyncDirectory, Operation::Rename, Operation::RemoveFile] {
        for call in 1..12 {
            for seed in 0..12 {
                let files = half_sealed(seed);
                let sealing = engine(&files);
                files.fail(Fault { call, operation: Some(operation), lasting: false, kind: FaultKind::PowerOff });
                let result = sealing.seal(&id("s"), SealOptions::new().level(1));
                drop(sealing);
                files.crash();
                let what = format!("power lost at {operation:?} {call}, seed {seed}: {result:?}");
                assert_whole(&files, &what);
                // Again, in the middle of going on.
                let next = engine(&files);
                files.fail(Fault { call, operation: Some(operation), lasting: false, kind: FaultKind::PowerOff });
                let _ = next.take_over(&id("s"));
                drop(next);
                files.crash();
                assert_whole(&files, &what);
                assert_goes_on(&files, &what);
            }
        }
    }
}

#[test]
fn a_torn_end_is_set_aside_before_sealing() {
    let files = half_sealed(3);
    let names = files.read_directory(Path::new("/store/sessions/s")).unwrap();
    let newest = names.iter().filter(|name| name.ends_with(".log")).max().unwrap();
    let path = Path::new("/store/sessions/s").join(newest);
    let mut bytes = files.contents(&path).unwrap();
    bytes.extend_from_slice(&[9; 40]);
    files.overwrite(&path, &bytes).unwrap();
    engine(&files).seal(&id("s"), SealOptions::new()).unwrap();
    assert_whole(&files, "torn");
    assert_eq!(files.read_directory(Path::new("/store/sessions/s/torn")).unwrap().len(), 1);
}

/// Appends until some journals have been rotated.
fn rotate(engine: &Engine, mut head: Head) -> Head {
    let to = head.next_seq + 60;
    while head.next_seq < to {
        head = append(engine, "s", &head, head.next_seq + 4);
    }
    engine.finish_sealing();
    head
}

#[test]
fn h2_a_failure_or_panic_of_background_sealing_leaves_the_journals_in_service_and_shows() {
    let home = tempfile::tempdir().unwrap();
    let files = Unsealable::default();
    let engine = EngineOptions::new().files(Arc::new(files.clone())).rotate_at(900).open(home.path()).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let hears = Arc::clone(&told);
    engine.observe_sealing(Box::new(move |session, failure| {
        hears.lock().unwrap().push((session.clone(), failure.map(|failure| failure.cause)));
        true
    }));
    let mut head = create(&engine, "s", 3);
    let mut since = None;
    for (mode, cause) in
        [(Sealing::Fails, SealingCause::Error(ErrorKind::DiskFull)), (Sealing::Panics, SealingCause::Panic)]
    {
        files.behave(mode);
        head = rotate(&engine, head);
        let failures = engine.sealing_failures();
        assert_eq!(failures.len(), 1);
        assert_eq!((failures[0].session.as_str(), failures[0].cause), ("s", cause));
        assert_eq!(told.lock().unwrap().last().unwrap(), &(id("s"), Some(cause)));
        assert_eq!(*since.get_or_insert(failures[0].since), failures[0].since, "since the first failure");
        assert_eq!(lines(&try_events(&engine, "s").unwrap()), lines(&expected(head.next_seq)));
        // Closing fails to seal, too, and keeps nobody from opening.
        engine.release(&id("s"), head.epoch).unwrap();
        engine.finish_sealing();
        assert_eq!(engine.sealing_failures()[0].cause, cause);
        head = engine.take_over(&id("s")).unwrap().head;
    }
    files.behave(Sealing::Works);
    head = rotate(&engine, head);
    assert!(engine.sealing_failures().is_empty());
    assert_eq!(told.lock().unwrap().last().unwrap(), &(id("s"), None));
    engine.release(&id("s"), head.epoch).unwrap();
    engine.finish_sealing();
    assert_eq!(lines(&events(&engine, "s")), lines(&expected(head.next_seq)));
    assert_eq!(engine.verify(&id("s")).status, CheckStatus::Ok);
    let names = RealFiles.read_directory(&engine.locate(&id("s"))).unwrap();
    assert!(!names.iter().any(|name| name.starts_with(".tmp-")), "{names:?}");
}

#[test]
fn a_failure_is_forgotten_with_its_session() {
    let home = tempfile::tempdir().unwrap();
    let files = Unsealable::default();
    let engine = EngineOptions::new().files(Arc::new(files)).rotate_at(900).open(home.path()).unwrap();
    let head = create(&engine, "s", 3);
    let head = rotate(&engine, head);
    assert_eq!(engine.sealing_failures().len(), 1);
    engine.release(&id("s"), head.epoch).unwrap();
    engine.delete(&id("s")).unwrap();
    engine.finish_sealing();
    assert!(engine.sealing_failures().is_empty());
}

#[test]
fn o1_whoever_opens_a_closed_session_does_not_wait_for_its_sealing() {
    let home = tempfile::tempdir().unwrap();
    let files = Unsealable::default();
    files.behave(Sealing::Waits);
    let engine = EngineOptions::new().files(Arc::new(files.clone())).rotate_at(900).open(home.path()).unwrap();
    let mut head = create(&engine, "s", 3);
    while head.next_seq < 60 {
        head = append(&engine, "s", &head, head.next_seq + 4);
    }
    engine.release(&id("s"), head.epoch).unwrap();
    // Another process, while the background stands in the middle of sealing.
    let other = EngineOptions::new().background_sealing(false).open(home.path()).unwrap();
    let taken = other.take_over(&id("s")).unwrap().head;
    let taken = append(&other, "s", &taken, 70);
    files.behave(Sealing::Works);
    engine.finish_sealing();
    assert!(engine.sealing_failures().is_empty(), "coming too late is no failure");
    let taken = append(&other, "s", &taken, 75);
    other.release(&id("s"), taken.epoch).unwrap();
    // The same within the process, twice, and deleting.
    for to in [90, 110] {
        files.behave(Sealing::Waits);
        let head = engine.take_over(&id("s")).unwrap().head;
        let head = append(&engine, "s", &head, to);
        engine.release(&id("s"), head.epoch).unwrap();
    }
    files.behave(Sealing::Works);
    engine.finish_sealing();
    assert_eq!(lines(&events(&engine, "s")), lines(&expected(110)));
    assert_eq!(engine.verify(&id("s")).status, CheckStatus::Ok);
    let names = RealFiles.read_directory(&engine.locate(&id("s"))).unwrap();
    assert!(!names.iter().any(|name| name.starts_with(".tmp-")), "{names:?}");
    files.behave(Sealing::Waits);
    let head = engine.take_over(&id("s")).unwrap().head;
    engine.release(&id("s"), head.epoch).unwrap();
    engine.delete(&id("s")).unwrap();
    files.behave(Sealing::Works);
    engine.finish_sealing();
    assert!(engine.sealing_failures().is_empty() && !engine.locate(&id("s")).exists());
}

#[test]
fn r1_power_lost_at_any_call_while_the_background_seals_loses_nothing() {
    for call in (1_u64..400).step_by(3) {
        let files = half_sealed(call.wrapping_mul(31));
        let engine = simulated(&files).background_sealing(true).rotate_at(900).open("/store").unwrap();
        files.fail(Fault { call, operation: None, lasting: false, kind: FaultKind::PowerOff });
        let mut durable = TOTAL;
        if let Ok(taken) = engine.take_over(&id("s")) {
            let mut head = taken.head;
            while head.next_seq < TOTAL + 20 {
                let expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
                match engine.append(&id("s"), None, expected, &batch(head.next_seq, head.next_seq + 4)) {
                    Ok(next) => head = next,
                    Err(_) => break,
                }
                durable = head.next_seq;
            }
            engine.release(&id("s"), head.epoch).unwrap();
            engine.finish_sealing();
        }
        drop(engine);
        files.crash();
        let engine = self::engine(&files);
        let found = events(&engine, "s");
        assert!(found.len() as u64 >= durable, "call {call}: {} of {durable}", found.len());
        assert_eq!(lines(&found), lines(&expected(found.len() as u64)), "call {call}");
        assert_eq!(engine.verify(&id("s")).events, found.len() as u64);
        go_on(&engine, 90);
        engine.seal(&id("s"), SealOptions::new().level(1)).unwrap();
        assert_eq!(lines(&events(&engine, "s")), lines(&expected(90)), "call {call}");
    }
}
