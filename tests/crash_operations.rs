//! Every operation of the engine on a simulated disk: power lost at every call, also while what was left is being recovered, and
//! every call failing in every way, once or from then on. What was acknowledged is there, everything else is before or after.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(clippy::case_sensitive_file_extension_comparisons, reason = "names are known")]

mod segment_common;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use segment_common::{append, batch, create, events, expected, header, id, lines, simulated};
use sessionlog::backend::{AppendError, BackendError, ErrorKind, Expected};
use sessionlog::segment::files::{Fault, FaultKind, Files, Operation, SimulatedFiles};
use sessionlog::segment::{CheckStatus, Engine, SealOptions};

const ROOT: &str = "/data/store";

/// Outcomes of a crash that are tried at each call; more in a soak.
fn outcomes() -> u64 {
    std::env::var("SESSIONLOG_CRASH_OUTCOMES").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Whether a call is among those at which a thing is tried by default: one in `step`; in a soak, all of them.
fn is_picked(call: u64, number: u64, step: u64) -> bool {
    outcomes() > 1 || (call + number).is_multiple_of(step)
}

fn engine(files: &SimulatedFiles) -> Engine {
    simulated(files).rotate_at(700).open(ROOT).unwrap()
}

/// What must be true of a session: how many of its events are there, and whether it may be absent.
#[derive(Debug, Clone)]
struct Truth {
    events: RangeInclusive<u64>,
    may_be_absent: bool,
    may_be_there: bool,
}

fn there(events: RangeInclusive<u64>) -> Truth {
    Truth { events, may_be_absent: false, may_be_there: true }
}

fn perhaps(events: RangeInclusive<u64>) -> Truth {
    Truth { may_be_absent: true, ..there(events) }
}

fn gone() -> Truth {
    Truth { events: 0..=0, may_be_absent: true, may_be_there: false }
}

type World = BTreeMap<&'static str, Truth>;

/// An operation: what it does, and how the world is before, afterwards, and when it is unknown how far it came.
struct Case {
    name: &'static str,
    prepare: fn(&Engine),
    before: World,
    run: fn(&Engine) -> Result<(), BackendError>,
    between: World,
    after: World,
}

fn grow(engine: &Engine, name: &str, to: u64) {
    let mut head = engine.take_over(&id(name)).unwrap().head;
    while head.next_seq < to {
        head = append(engine, name, &head, to.min(head.next_seq + 4));
    }
    engine.release(&id(name), head.epoch).unwrap();
}

fn make(engine: &Engine, name: &str, to: u64) {
    let head = create(engine, name, 3);
    engine.release(&id(name), head.epoch).unwrap();
    grow(engine, name, to);
}

fn seal(engine: &Engine, name: &str) -> Result<(), BackendError> {
    engine.seal(&id(name), SealOptions::new().level(1)).map(drop)
}

/// Two journals' worth sealed, and more behind.
fn half_sealed(engine: &Engine) {
    make(engine, "s", 20);
    seal(engine, "s").unwrap();
    grow(engine, "s", 36);
}

/// Appends as a store does: a batch that failed is tried again with the same bytes.
fn append_to(engine: &Engine, to: u64) -> Result<(), BackendError> {
    let mut head = engine.take_over(&id("s"))?.head;
    while head.next_seq < to {
        let expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
        let next = to.min(head.next_seq + 3);
        let append = || engine.append(&id("s"), None, expected, &batch(head.next_seq, next));
        // A failed batch is tried again by the same writer first, and then by another one.
        head = match append().or_else(|_| append()) {
            Ok(head) => head,
            Err(error) => {
                let _ = engine.release(&id("s"), head.epoch);
                return Err(error.into_backend(&id("s")));
            }
        };
    }
    engine.release(&id("s"), head.epoch)
}

fn create_new(engine: &Engine) -> Result<(), BackendError> {
    match engine.append(&id("new"), Some(&header("new")), Expected::ABSENT, &batch(0, 5)) {
        Ok(head) => engine.release(&id("new"), head.epoch),
        // An earlier attempt was heard of as failed by a process that is gone.
        Err(AppendError::Conflict { found, .. }) if found.next_seq == 5 => Ok(()),
        Err(error) => Err(error.into_backend(&id("new"))),
    }
}

fn fork_at(engine: &Engine, boundary: u64) -> Result<(), BackendError> {
    match engine.fork(&id("s"), boundary, &header("child")) {
        Err(error) if error.kind == ErrorKind::Exists => Ok(()),
        result => result.map(drop),
    }
}

fn delete(engine: &Engine, name: &str) -> Result<(), BackendError> {
    match engine.delete(&id(name)) {
        Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn cases() -> Vec<Case> {
    let s = |events: u64| World::from([("s", there(events..=events)), ("other", there(7..=7))]);
    let with = |world: &World, name: &'static str, truth: Truth| {
        let mut world = world.clone();
        world.insert(name, truth);
        world
    };
    let same = |name, prepare, run, events| Case {
        name,
        prepare,
        before: s(events),
        run,
        between: s(events),
        after: s(events),
    };
    let mut cases = vec![
        same("seal a half sealed session", half_sealed, |engine| seal(engine, "s"), 36),
        same(
            "merge segments",
            |engine| {
                half_sealed(engine);
                seal(engine, "s").unwrap();
                grow(engine, "s", 41);
            },
            |engine| seal(engine, "s"),
            41,
        ),
        same("take over and give back", half_sealed, |engine| append_to(engine, 36), 36),
        same("list", half_sealed, |engine| engine.summaries().map(drop), 36),
    ];
    let unborn = with(&s(36), "new", gone());
    cases.push(Case {
        name: "create",
        prepare: half_sealed,
        before: unborn.clone(),
        run: create_new,
        between: with(&s(36), "new", perhaps(5..=5)),
        after: with(&s(36), "new", there(5..=5)),
    });
    cases.push(Case {
        name: "append and rotate",
        prepare: half_sealed,
        before: s(36),
        run: |engine| append_to(engine, 60),
        between: with(&s(36), "s", there(36..=60)),
        after: s(60),
    });
    for (name, run) in [
        ("fork inside a segment", (|engine| fork_at(engine, 12)) as fn(&Engine) -> Result<(), BackendError>),
        ("fork behind the segments", |engine| fork_at(engine, 30)),
    ] {
        let count = if name.contains("inside") { 13 } else { 31 };
        cases.push(Case {
            name,
            prepare: half_sealed,
            before: with(&s(36), "child", gone()),
            run,
            between: with(&s(36), "child", perhaps(count..=count)),
            after: with(&s(36), "child", there(count..=count)),
        });
    }
    let forked: fn(&Engine) = |engine| {
        half_sealed(engine);
        fork_at(engine, 12).unwrap();
    };
    cases.push(Case {
        name: "delete a fork",
        prepare: forked,
        before: with(&s(36), "child", there(13..=13)),
        run: |engine| delete(engine, "child"),
        between: with(&s(36), "child", perhaps(13..=13)),
        after: with(&s(36), "child", gone()),
    });
    cases.push(Case {
        name: "delete the source of a fork",
        prepare: forked,
        before: with(&s(36), "child", there(13..=13)),
        run: |engine| delete(engine, "s"),
        between: with(&with(&s(36), "child", there(13..=13)), "s", perhaps(36..=36)),
        after: with(&with(&s(36), "child", there(13..=13)), "s", gone()),
    });
    cases.push(Case {
        name: "seal a fork",
        prepare: forked,
        before: with(&s(36), "child", there(13..=13)),
        run: |engine| seal(engine, "child"),
        between: with(&s(36), "child", there(13..=13)),
        after: with(&s(36), "child", there(13..=13)),
    });
    cases.push(Case {
        name: "set a torn end aside and go on",
        prepare: half_sealed,
        before: s(36),
        run: |engine| append_to(engine, 37),
        between: with(&s(36), "s", there(36..=37)),
        after: s(37),
    });
    cases
}

/// The disk before the operation, with everything acknowledged.
fn prepared(case: &Case) -> SimulatedFiles {
    let files = SimulatedFiles::new(1);
    let engine = engine(&files);
    make(&engine, "other", 7);
    (case.prepare)(&engine);
    if case.name.starts_with("set a torn end") {
        let session = Path::new(ROOT).join("sessions/s");
        let names = files.read_directory(&session).unwrap();
        let newest = session.join(names.iter().filter(|name| name.ends_with(".log")).max().unwrap());
        let mut bytes = files.contents(&newest).unwrap();
        bytes.extend_from_slice(&[9; 700]);
        files.overwrite(&newest, &bytes).unwrap();
    }
    assert_true(&files, &case.before, case.name);
    files
}

fn assert_true(files: &SimulatedFiles, world: &World, what: &str) {
    let engine = engine(files);
    for (name, truth) in world {
        let check = engine.verify(&id(name));
        if check.error.as_ref().is_some_and(|error| error.kind == ErrorKind::NotFound) {
            assert!(truth.may_be_absent, "{what}: {name} is lost");
            continue;
        }
        assert!(truth.may_be_there, "{what}: {name} is there: {check:?}");
        assert!(matches!(check.status, CheckStatus::Ok | CheckStatus::Torn), "{what}: {name}: {:?}", check.error);
        assert!(truth.events.contains(&check.events), "{what}: {name} has {} events, not {truth:?}", check.events);
        assert_eq!(lines(&events(&engine, name)), lines(&expected(check.events)), "{what}: {name}");
    }
    let listing = engine.list(None, 100).unwrap();
    for entry in listing.entries {
        assert!(entry.header.is_ok(), "{what}: {}: {:?}", entry.name, entry.header);
        assert!(world.contains_key(entry.name.as_str()), "{what}: {} is nobody's", entry.name);
    }
}

/// The store goes on as if nothing had happened, and keeps nothing that it does not need.
fn assert_goes_on(files: &SimulatedFiles, world: &World, what: &str) {
    let engine = engine(files);
    for name in world.keys() {
        let Ok(taken) = engine.take_over(&id(name)) else { continue };
        let to = taken.head.next_seq + 3;
        let head = append(&engine, name, &taken.head, to);
        engine.release(&id(name), head.epoch).unwrap();
        seal(&engine, name).unwrap_or_else(|error| panic!("{what}: {name}: {error}"));
        assert_eq!(lines(&events(&engine, name)), lines(&expected(to)), "{what}: {name}");
        let check = engine.verify(&id(name));
        assert_eq!(check.status, CheckStatus::Ok, "{what}: {name}: {:?}", check.error);
        let names = files.read_directory(&Path::new(ROOT).join("sessions").join(name)).unwrap();
        let log = names.iter().filter(|name| name.ends_with(".log") || name.ends_with(".seg")).count();
        // A segment that is shared with the source of a fork stays beside the fork's own.
        let wanted = 1 + usize::from(names.iter().any(|name| name == "shared"));
        assert!(log <= wanted && !names.iter().any(|name| name.starts_with(".tmp-")), "{what}: {name}: {names:?}");
    }
    let names = files.read_directory(&Path::new(ROOT).join("sessions")).unwrap();
    assert!(!names.iter().any(|name| name.starts_with(".tmp-")), "{what}: {names:?}");
}

fn lose_power_at(files: &SimulatedFiles, call: u64) {
    files.fail(Fault { call, operation: None, lasting: true, kind: FaultKind::PowerOff });
}

/// Opens the store and every session of it for writing.
fn recover(files: &SimulatedFiles, world: &World) {
    let Ok(engine) = simulated(files).rotate_at(700).open(ROOT) else { return };
    for name in world.keys() {
        if let Ok(taken) = engine.take_over(&id(name)) {
            let _ = engine.release(&id(name), taken.head.epoch);
        }
    }
}

#[test]
fn r1_r2_power_lost_at_any_call_of_any_operation_and_again_while_recovering() {
    let mut crashes = 0_u64;
    for case in cases() {
        let base = prepared(&case);
        for call in 1_u64.. {
            let mut finished = false;
            for outcome in 0..outcomes() {
                let seed = call * 1000 + outcome;
                let files = base.copy(seed);
                let _told = files.tell_on_panic();
                let working = engine(&files);
                lose_power_at(&files, call);
                let result = (case.run)(&working);
                drop(working);
                files.crash();
                let what = format!("{}, power lost at call {call}, outcome {outcome}: {result:?}", case.name);
                finished = result.is_ok();
                let world = if finished { &case.after } else { &case.between };
                assert_true(&files, world, &what);
                // Once more, in the middle of what the next process does first, and in the middle of that again.
                for again in 0..outcomes() {
                    lose_power_at(&files, 1 + (seed * 31 + again * 17) % 70);
                    recover(&files, world);
                    files.crash();
                    assert_true(&files, world, &what);
                }
                assert_goes_on(&files, world, &what);
                crashes += 1 + outcomes();
            }
            if finished {
                break;
            }
        }
    }
    println!("{crashes} crashes");
    assert!(crashes > 1000, "{crashes}");
}

#[test]
fn r2_a_crash_at_any_call_of_the_recovery_from_a_crash_at_any_sync() {
    let syncs = [Operation::SyncAll, Operation::SyncData, Operation::SyncDirectory];
    let mut crashes = 0_u64;
    for case in cases() {
        let base = prepared(&case);
        for operation in syncs {
            for call in 1_u64.. {
                let first = base.copy(call * 77);
                let working = engine(&first);
                first.fail(Fault { call, operation: Some(operation), lasting: true, kind: FaultKind::PowerOff });
                let result = (case.run)(&working);
                drop(working);
                first.crash();
                let world = if result.is_ok() { &case.after } else { &case.between };
                // One in some calls, from another one each time: their neighbours are met by other syncs.
                for again in (1_u64..).filter(|again| is_picked(*again, call, 9)) {
                    let files = first.copy(call * 1000 + again);
                    let _told = files.tell_on_panic();
                    lose_power_at(&files, again);
                    recover(&files, world);
                    let calls = files.calls() - first.calls();
                    files.crash();
                    let what = format!("{}, {operation:?} {call}, recovery stopped at call {again}", case.name);
                    assert_true(&files, world, &what);
                    crashes += 1;
                    if calls + 1 < again {
                        break;
                    }
                }
                if result.is_ok() {
                    break;
                }
            }
        }
    }
    println!("{crashes} crashes of a recovery");
    assert!(crashes > 700, "{crashes}");
}

fn kinds() -> Vec<FaultKind> {
    let errnos = [libc::EIO, libc::ENOSPC, libc::EDQUOT, libc::EINTR].map(FaultKind::Errno);
    let others = [FaultKind::ShortWrite, FaultKind::ShortRead, FaultKind::Late(libc::EIO)];
    errnos.into_iter().chain(others).collect()
}

#[test]
fn c1_every_call_of_every_operation_failing_in_every_way_once_or_from_then_on() {
    let mut failures = 0_u64;
    for case in cases() {
        let base = prepared(&case);
        let total = {
            let files = base.copy(0);
            let engine = engine(&files);
            let before = files.calls();
            (case.run)(&engine).unwrap();
            files.calls() - before
        };
        for (number, kind) in (0_u64..).zip(kinds()) {
            for lasting in [false, true] {
                // A call that a signal interrupts is repeated; signals do not come for ever.
                if lasting && kind == FaultKind::Errno(libc::EINTR) {
                    continue;
                }
                let step = match kind {
                    _ if lasting => 29,
                    FaultKind::Errno(libc::EIO) | FaultKind::Late(_) => 2,
                    _ => 11,
                };
                for call in (1..=total).filter(|call| is_picked(*call, number, step)) {
                    let files = base.copy(call * 100 + number);
                    let _told = files.tell_on_panic();
                    let what = format!("{}, {kind:?} at call {call}, lasting: {lasting}", case.name);
                    let one = engine(&files);
                    files.fail(Fault { call, operation: None, lasting, kind });
                    let result = (case.run)(&one);
                    files.heal();
                    if let Err(error) = &result {
                        failures += 1;
                        let typed = matches!(error.kind, ErrorKind::Io | ErrorKind::DiskFull);
                        assert!(typed, "{what}: {error} ({:?})", error.kind);
                    }
                    let world = if result.is_ok() { &case.after } else { &case.between };
                    let what = format!("{what}: {result:?}");
                    assert_true(&files, world, &what);
                    let crashed = files.copy(call);
                    crashed.crash();
                    assert_true(&crashed, world, &what);
                    // The same engine tries again, and it works.
                    (case.run)(&one).unwrap_or_else(|error| panic!("{what}, tried again: {error}"));
                    assert_true(&files, &case.after, &what);
                    drop(one);
                    files.crash();
                    assert_true(&files, &case.after, &what);
                    if is_picked(call, 0, 8) {
                        assert_goes_on(&files, &case.after, &what);
                    }
                }
            }
        }
    }
    println!("{failures} failures");
    assert!(failures > 400, "{failures}");
}

#[test]
fn a_deletion_that_failed_halfway_is_durable_once_the_session_is_said_to_be_gone() {
    for (operation, kind) in
        [(Operation::Rename, FaultKind::Late(libc::EIO)), (Operation::SyncDirectory, FaultKind::Errno(libc::EIO))]
    {
        for seed in 0..12 {
            let files = SimulatedFiles::new(seed);
            let engine = engine(&files);
            make(&engine, "s", 9);
            files.fail(Fault { call: 1, operation: Some(operation), lasting: false, kind });
            assert_eq!(engine.delete(&id("s")).unwrap_err().kind, ErrorKind::Io);
            assert_eq!(engine.delete(&id("s")).unwrap_err().kind, ErrorKind::NotFound);
            files.crash();
            assert_true(&files, &World::from([("s", gone())]), &format!("{operation:?}, seed {seed}"));
        }
    }
}

/// A writer was stopped between giving its journal a name and making that name durable. A sealing that counts on the journal must
/// not be what survives alone.
#[test]
fn r1_a_segment_never_outlives_the_journal_that_it_says_follows() {
    let session = Path::new(ROOT).join("sessions/s");
    for seed in 0..60 {
        let files = SimulatedFiles::new(seed);
        half_sealed(&engine(&files));
        let writer = engine(&files);
        files.fail(Fault {
            call: 1,
            operation: Some(Operation::Rename),
            lasting: false,
            kind: FaultKind::Late(libc::EIO),
        });
        // The journal has its name, and the writer goes away with an error before that is durable.
        assert!(writer.take_over(&id("s")).is_err());
        drop(writer);
        let files = files.copy(seed);
        assert!(files.read_directory(&session).unwrap().iter().any(|name| name.starts_with("00000000000000000036")));
        let sealing = engine(&files);
        let renamed =
            Fault { call: 1, operation: Some(Operation::Rename), lasting: false, kind: FaultKind::Late(libc::EIO) };
        files.fail(renamed);
        assert!(seal(&sealing, "s").is_err());
        drop(sealing);
        files.crash();
        let world = World::from([("s", there(36..=36))]);
        assert_true(&files, &world, &format!("seed {seed}"));
        assert_goes_on(&files, &world, &format!("seed {seed}"));
    }
}

/// The catalogue is made without a sync, and so is the lock's note: after a crash either may be there without the other.
#[test]
fn a_catalogue_and_a_lock_that_a_crash_parted_are_no_damage() {
    let files = SimulatedFiles::new(1);
    half_sealed(&engine(&files));
    engine(&files).summaries().unwrap();
    let lock = Path::new(ROOT).join("sessions/s/lock");
    assert!(!files.contents(&lock).unwrap().is_empty());
    files.overwrite(&lock, b"").unwrap();
    let check = engine(&files).verify(&id("s"));
    assert_eq!(check.status, CheckStatus::Ok, "{:?}", check.error);
}

#[test]
fn slow_calls_change_nothing() {
    for case in cases() {
        let base = prepared(&case);
        let files = base.copy(3);
        let engine = engine(&files);
        files.fail(Fault {
            call: 1,
            operation: None,
            lasting: true,
            kind: FaultKind::Slow(Duration::from_micros(200)),
        });
        (case.run)(&engine).unwrap();
        drop(engine);
        files.crash();
        assert_true(&files, &case.after, case.name);
    }
}
