//! Failing calls and lost power, over simulated files: nothing acknowledged is ever lost, nothing is ever doubled.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use std::path::Path;

use segment_common::{batch, event, expected, header, id, lines, simulated, try_events};
use sessionlog::backend::{AppendError, ErrorKind, Expected, Head};
use sessionlog::segment::files::{Fault, FaultKind, Operation, SimulatedFiles};
use sessionlog::segment::{CheckStatus, Engine};

const ROOT: &str = "/data/store";
const ERRNOS: [i32; 4] = [libc::EIO, libc::ENOSPC, libc::EDQUOT, libc::EINTR];
/// How many calls of a program are made to fail, one after the other.
const CALLS: u64 = 200;

/// What a program knows of its session.
#[derive(Debug, Default)]
struct Known {
    /// Events that some call reported as durable.
    durable: u64,
    /// Events that some call may have written, acknowledged or not.
    tried: u64,
    failures: u64,
}

/// One process: creates or takes over the session, appends batch by batch up to `goal`, trying a failed batch again as a store does.
/// Gives up after `patience` failures.
fn run(engine: &Engine, known: &mut Known, goal: u64, patience: u64) -> Result<(), String> {
    let start = known.failures;
    let mut head: Option<Head> = None;
    while known.durable < goal || head.is_none() {
        if known.failures - start > patience {
            return Err("out of patience".into());
        }
        let result = match &head {
            None if known.durable == 0 => {
                known.tried = known.tried.max(4);
                match engine.append(&id("s"), Some(&header("s")), Expected::ABSENT, &batch(0, 4)) {
                    // An earlier attempt landed after all (its process died before it could know).
                    Err(AppendError::Conflict { .. }) => engine.take_over(&id("s")).map(|taken| taken.head),
                    Ok(head) => Ok(head),
                    Err(error) => Err(error.into_backend(&id("s"))),
                }
            }
            None => engine.take_over(&id("s")).map(|taken| taken.head),
            Some(head) => {
                let to = head.next_seq + 1 + (head.next_seq * 7) % 9;
                known.tried = known.tried.max(to);
                let expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
                match engine.append(&id("s"), None, expected, &batch(head.next_seq, to)) {
                    Ok(head) => Ok(head),
                    Err(AppendError::Failed(error)) => Err(error),
                    Err(other) => return Err(format!("untyped: {other}")),
                }
            }
        };
        match result {
            Ok(new) => {
                assert!(new.next_seq >= known.durable, "the log got shorter: {new:?} {known:?}");
                assert!(new.next_seq <= known.tried);
                known.durable = new.next_seq;
                head = Some(new);
            }
            Err(error) => {
                known.failures += 1;
                let fine = matches!(error.kind, ErrorKind::Io | ErrorKind::DiskFull | ErrorKind::NotFound);
                assert!(fine, "{error} ({:?})", error.kind);
                assert!(!(error.kind == ErrorKind::NotFound && known.durable > 0), "{error}");
            }
        }
    }
    let head = head.unwrap();
    engine.release(&id("s"), head.epoch).unwrap();
    Ok(())
}

/// The whole log is a prefix of what was tried and holds everything acknowledged.
fn check(files: &SimulatedFiles, known: &Known, context: &str) {
    let engine = simulated(files).open(ROOT).unwrap();
    let found = engine.verify(&id("s"));
    if known.durable == 0 && found.error.as_ref().is_some_and(|error| error.kind == ErrorKind::NotFound) {
        return;
    }
    assert!(matches!(found.status, CheckStatus::Ok | CheckStatus::Torn), "{context}: {:?}", found.error);
    let events = try_events(&engine, "s").unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(found.events, events.len() as u64, "{context}");
    assert!(found.events >= known.durable && found.events <= known.tried, "{context}: {} {known:?}", found.events);
    assert_eq!(lines(&events), lines(&expected(found.events)), "{context}");
    let listing = engine.list(None, 10).unwrap();
    assert_eq!(listing.entries.len(), 1, "{context}");
    assert!(listing.entries[0].header.is_ok(), "{context}");
}

fn engine(files: &SimulatedFiles) -> Engine {
    simulated(files).rotate_at(1500).open(ROOT).unwrap()
}

/// Create, append, rotate, hand over, append again.
fn program(files: &SimulatedFiles, known: &mut Known, patience: u64) -> Result<(), String> {
    let first = simulated(files).rotate_at(1500).open(ROOT).map_err(|error| error.to_string())?;
    run(&first, known, 60, patience)?;
    drop(first);
    let second = simulated(files).rotate_at(1500).open(ROOT).map_err(|error| error.to_string())?;
    run(&second, known, 90, patience)
}

#[test]
fn each_failing_call_is_a_typed_error_and_what_follows_loses_and_doubles_nothing() {
    let kinds: Vec<FaultKind> =
        ERRNOS.into_iter().map(FaultKind::Errno).chain([FaultKind::ShortWrite, FaultKind::ShortRead]).collect();
    for (number, kind) in kinds.iter().enumerate() {
        for call in 1..=CALLS {
            let files = SimulatedFiles::new(call * 10 + number as u64);
            files.fail(Fault { call, operation: None, lasting: false, kind: *kind });
            let mut known = Known::default();
            let mut attempt = 0;
            // A program that cannot even open the store is started again.
            while let Err(error) = program(&files, &mut known, 3) {
                attempt += 1;
                assert!(attempt < 3, "{kind:?} at call {call}: {error}");
            }
            assert!(known.durable >= 90);
            check(&files, &known, &format!("{kind:?} at call {call}"));
            files.crash();
            check(&files, &known, &format!("{kind:?} at call {call}, then a crash"));
        }
    }
}

#[test]
fn failing_from_some_call_on_never_ends_in_a_false_ok_and_heals() {
    for kind in [FaultKind::Errno(libc::EIO), FaultKind::Errno(libc::ENOSPC)] {
        for call in 1..=CALLS {
            let files = SimulatedFiles::new(call);
            files.fail(Fault { call, operation: None, lasting: true, kind });
            let mut known = Known::default();
            assert!(program(&files, &mut known, 4).is_err());
            let mut healed = files.clone();
            if call % 2 == 0 {
                files.crash();
            } else {
                files.heal();
            }
            check(&healed, &known, &format!("{kind:?} from call {call} on"));
            program(&healed, &mut known, 0).unwrap_or_else(|error| panic!("{kind:?} from {call} on: {error}"));
            check(&healed, &known, &format!("{kind:?} from call {call} on, healed"));
            healed = files;
            healed.crash();
            check(&healed, &known, &format!("{kind:?} from call {call} on, healed, crashed"));
        }
    }
}

#[test]
fn one_engine_outlives_a_time_of_failing_syncs_and_writes() {
    for operation in
        [Operation::SyncData, Operation::SyncAll, Operation::SyncDirectory, Operation::WriteAt, Operation::Rename]
    {
        for call in 1..=12 {
            for lasting in [false, true] {
                for errno in [libc::EIO, libc::ENOSPC] {
                    let context = format!("{operation:?} {call} {lasting} {errno}");
                    let files = SimulatedFiles::new(call);
                    let engine = engine(&files);
                    let mut known = Known::default();
                    run(&engine, &mut known, 20, 0).unwrap();
                    let mut head = engine.take_over(&id("s")).unwrap().head;
                    files.fail(Fault { call, operation: Some(operation), lasting, kind: FaultKind::Errno(errno) });
                    for round in 0..40 {
                        if round == 25 {
                            files.heal();
                        }
                        let to = head.next_seq + 1 + round % 4;
                        known.tried = known.tried.max(to);
                        let expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
                        match engine.append(&id("s"), None, expected, &batch(head.next_seq, to)) {
                            Ok(new) => head = new,
                            Err(AppendError::Failed(error)) => {
                                assert!(round < 25, "{context}: not healed: {error}");
                                assert!(
                                    matches!(error.kind, ErrorKind::Io | ErrorKind::DiskFull),
                                    "{context}: {error}"
                                );
                                assert_eq!(engine.head(&id("s")).unwrap().next_seq, head.next_seq);
                            }
                            Err(other) => panic!("{context}: {other}"),
                        }
                        known.durable = head.next_seq;
                    }
                    check(&files, &known, &context);
                    files.crash();
                    check(&files, &known, &context);
                }
            }
        }
    }
}

#[test]
fn power_lost_at_any_call_keeps_everything_acknowledged_and_the_next_open_works_at_once() {
    let mut calls = 0;
    let total = {
        let files = SimulatedFiles::new(1);
        program(&files, &mut Known::default(), 0).unwrap();
        files.calls()
    };
    for call in 1..=total {
        for seed in 0..3 {
            let files = SimulatedFiles::new(call * 1000 + seed);
            files.fail(Fault { call, operation: None, lasting: true, kind: FaultKind::PowerOff });
            let mut known = Known::default();
            let _ = program(&files, &mut known, 0);
            files.crash();
            let context = format!("power lost at call {call}, seed {seed}");
            check(&files, &known, &context);
            // The next open works at once, and again after a crash in the middle of it.
            files.fail(Fault {
                call: 1 + (call * 13 + seed) % 60,
                operation: None,
                lasting: true,
                kind: FaultKind::PowerOff,
            });
            let _ = program(&files, &mut known, 0);
            files.crash();
            check(&files, &known, &context);
            program(&files, &mut known, 0).unwrap_or_else(|error| panic!("{context}: {error}"));
            check(&files, &known, &context);
            calls += 1;
        }
    }
    assert!(calls > 600, "the programs are long enough to mean something: {calls}");
}

#[test]
fn a_fork_and_a_deletion_are_whole_or_absent_whenever_power_is_lost() {
    let prepare = |seed| {
        let files = SimulatedFiles::new(seed);
        let engine = engine(&files);
        let mut known = Known::default();
        run(&engine, &mut known, 50, 0).unwrap();
        (files, engine, known)
    };
    let total = {
        let (files, engine, _) = prepare(1);
        let before = files.calls();
        engine.fork(&id("s"), 40, &header("child")).unwrap();
        engine.delete(&id("child")).unwrap();
        files.calls() - before
    };
    for call in 1..=total {
        let (files, engine, known) = prepare(call);
        files.fail(Fault { call, operation: None, lasting: true, kind: FaultKind::PowerOff });
        let forked = engine.fork(&id("s"), 40, &header("child"));
        let deleted = if forked.is_ok() { engine.delete(&id("child")).is_ok() } else { false };
        files.crash();
        let engine = simulated(&files).open(ROOT).unwrap();
        let child = engine.verify(&id("child"));
        let absent = child.error.as_ref().is_some_and(|error| error.kind == ErrorKind::NotFound);
        if deleted {
            assert!(absent, "call {call}: deleted and there again");
        } else if !absent {
            assert_eq!((child.status, child.events), (CheckStatus::Ok, 41), "call {call}: {:?}", child.error);
        } else if forked.is_ok() {
            // A deletion had begun.
            assert!(call > 40, "call {call}: an acknowledged fork is lost");
        }
        if !absent {
            engine.delete(&id("child")).unwrap();
        }
        check(&files, &known, &format!("call {call}"));
        engine.fork(&id("s"), 40, &header("child-2")).unwrap();
        let names =
            sessionlog::segment::files::Files::read_directory(&files, &Path::new(ROOT).join("sessions")).unwrap();
        assert!(names.iter().all(|name| !name.starts_with('.')), "call {call}: {names:?}");
    }
}

#[test]
fn a_failed_creation_can_be_tried_again() {
    for operation in [Operation::SyncDirectory, Operation::Rename, Operation::SyncAll, Operation::CreateDirectory] {
        for call in 1..=6 {
            for lasting in [false, true] {
                let files = SimulatedFiles::new(call);
                let engine = engine(&files);
                files.fail(Fault { call, operation: Some(operation), lasting, kind: FaultKind::Errno(libc::EIO) });
                let mut results = Vec::new();
                for round in 0..3 {
                    if round == 2 {
                        files.heal();
                    }
                    // Each attempt has another content: nothing of a failed one may remain.
                    let to = 3 + round;
                    match engine.append(&id("s"), Some(&header("s")), Expected::ABSENT, &batch(0, to)) {
                        Ok(head) => {
                            results.push(head.next_seq);
                            break;
                        }
                        Err(AppendError::Failed(error)) => assert_eq!(error.kind, ErrorKind::Io, "{error}"),
                        Err(other) => panic!("{operation:?} {call} {lasting}: {other}"),
                    }
                }
                let count = *results.last().unwrap();
                files.crash();
                let again = simulated(&files).open(ROOT).unwrap();
                assert_eq!(lines(&try_events(&again, "s").unwrap()), lines(&expected(count)));
            }
        }
    }
}

#[test]
fn a_restart_beside_an_engine_that_still_holds_the_lock_is_busy() {
    let files = SimulatedFiles::new(5);
    let first = engine(&files);
    let mut known = Known::default();
    run(&first, &mut known, 10, 0).unwrap();
    first.take_over(&id("s")).unwrap();
    let second = engine(&files);
    let error = second.take_over(&id("s")).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Busy);
    assert_eq!(error.holder.unwrap().pid, Some(std::process::id()));
    assert_eq!(second.delete(&id("s")).unwrap_err().kind, ErrorKind::Busy);
    assert!(second.open_session(&id("s")).unwrap().live);
    files.crash();
    assert_eq!(engine(&files).take_over(&id("s")).unwrap().head.next_seq, known.durable);
    assert_eq!(event(3).seq(), 3);
}
