//! The trash: sessions go and come back whole, under faults and losses of power too, and space is counted by links.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use segment_common::{append, batch, create, events, expected, header, id, lines, simulated};
use sessionlog::backend::{BackendError, ErrorKind, Expected};
use sessionlog::segment::files::{Access, Fault, FaultKind, Files, Operation, SimulatedFiles};
use sessionlog::segment::{CheckStatus, Engine, EngineOptions, SealOptions, Trashed};

const TOTAL: u64 = 20;

fn engine(files: &SimulatedFiles) -> Engine {
    simulated(files).rotate_at(900).open("/store").unwrap()
}

/// A store with the session `s`, which nobody has open.
fn store(seed: u64) -> SimulatedFiles {
    let files = SimulatedFiles::new(seed);
    let engine = engine(&files);
    let head = create(&engine, "s", 3);
    let head = append(&engine, "s", &head, TOTAL);
    engine.release(&id("s"), head.epoch).unwrap();
    files
}

fn only(engine: &Engine) -> Trashed {
    let mut trashed = engine.trashed().unwrap();
    assert_eq!(trashed.len(), 1, "{trashed:?}");
    trashed.remove(0)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Stored,
    Trash,
    Gone,
}

/// Where the session is; wherever that is, it is whole.
fn place(files: &SimulatedFiles, what: &str) -> Place {
    let engine = engine(files);
    let listed = engine.list(None, 10).unwrap().entries;
    let trashed = engine.trashed().unwrap();
    let place = match (listed.len(), trashed.len()) {
        (1, 0) => Place::Stored,
        (0, 1) => {
            assert_eq!(engine.open_session(&id("s")).unwrap_err().kind, ErrorKind::NotFound, "{what}");
            engine.restore(&trashed[0]).unwrap_or_else(|error| panic!("{what}: {error}"));
            Place::Trash
        }
        (0, 0) => return Place::Gone,
        counts => panic!("{what}: {counts:?}"),
    };
    let check = engine.verify(&id("s"));
    assert_eq!((check.status, check.events), (CheckStatus::Ok, TOTAL), "{what}: {:?}", check.error);
    assert_eq!(lines(&events(&engine, "s")), lines(&expected(TOTAL)), "{what}");
    // And it goes on as if nothing had happened.
    let taken = engine.take_over(&id("s")).unwrap();
    let head = append(&engine, "s", &taken.head, TOTAL + 5);
    engine.release(&id("s"), head.epoch).unwrap();
    assert_eq!(lines(&events(&engine, "s")), lines(&expected(TOTAL + 5)), "{what}");
    let remains = files.read_directory(Path::new("/store/sessions")).unwrap();
    assert_eq!(remains, ["s"], "{what}: what was begun was not cleared");
    place
}

/// One operation on the session.
type Step = fn(&Engine) -> Result<(), BackendError>;

/// Each operation with where the session was before, and where it is after.
fn steps() -> [(&'static str, bool, Step, Place, Place); 4] {
    [
        ("trash", false, |engine| engine.trash(&id("s")).map(drop), Place::Stored, Place::Trash),
        ("restore", true, |engine| engine.restore(&only(engine)), Place::Trash, Place::Stored),
        ("discard", true, |engine| engine.discard(&only(engine)), Place::Trash, Place::Gone),
        ("delete", false, |engine| engine.delete(&id("s")), Place::Stored, Place::Gone),
    ]
}

fn prepared(seed: u64, in_trash: bool) -> SimulatedFiles {
    let files = store(seed);
    if in_trash {
        engine(&files).trash(&id("s")).unwrap();
    }
    files
}

#[test]
fn r1_power_lost_at_any_call_leaves_the_session_whole_in_one_place() {
    for (name, in_trash, step, before, after) in steps() {
        let mut lost = 0;
        for call in 1_u64.. {
            let mut done = false;
            for seed in 0..4 {
                let files = prepared(call * 97 + seed, in_trash);
                let acting = engine(&files);
                let trashed = acting.trashed().unwrap();
                assert_eq!(trashed.len(), usize::from(in_trash));
                files.fail(Fault { call, operation: None, lasting: false, kind: FaultKind::PowerOff });
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| step(&acting)));
                drop(acting);
                files.crash();
                let what = format!("{name}, power lost at call {call}, seed {seed}: {result:?}");
                let found = place(&files, &what);
                match result {
                    Ok(Ok(())) => {
                        assert_eq!(found, after, "{what}");
                        done = true;
                    }
                    _ => assert!(found == before || found == after, "{what}: {found:?}"),
                }
                lost += 1;
            }
            if done {
                break;
            }
        }
        assert!(lost > 20, "{name}: {lost}");
    }
}

#[test]
fn r1_power_lost_at_every_sync_and_rename_with_many_outcomes() {
    for (name, in_trash, step, before, after) in steps() {
        for operation in [Operation::SyncDirectory, Operation::Rename, Operation::RemoveFile] {
            for call in 1..4 {
                for seed in 0..16 {
                    let files = prepared(seed, in_trash);
                    let acting = engine(&files);
                    files.fail(Fault { call, operation: Some(operation), lasting: false, kind: FaultKind::PowerOff });
                    let result = step(&acting);
                    drop(acting);
                    files.crash();
                    let what = format!("{name}, power lost at {operation:?} {call}, seed {seed}: {result:?}");
                    let found = place(&files, &what);
                    assert!(found == after || result.is_err() && found == before, "{what}: {found:?}");
                }
            }
        }
    }
}

#[test]
fn r2_a_failing_call_is_an_error_that_leaves_the_session_where_it_was() {
    for (name, in_trash, step, before, after) in steps().into_iter().take(2) {
        for errno in [libc::EIO, libc::ENOSPC] {
            for call in 1_u64.. {
                let files = prepared(call, in_trash);
                let acting = engine(&files);
                let trashed = acting.trashed().unwrap();
                let calls = files.calls();
                let fault = Fault { call, operation: None, lasting: false, kind: FaultKind::Errno(errno) };
                files.fail(fault);
                let result = match trashed.first() {
                    Some(trashed) => acting.restore(trashed),
                    None => step(&acting),
                };
                let used = files.calls() - calls;
                files.heal();
                drop(acting);
                let what = format!("{name}, call {call}: {result:?}");
                let expected = if result.is_ok() { after } else { before };
                assert_eq!(place(&files, &what), expected, "{what}");
                if used < call {
                    break;
                }
            }
        }
    }
}

#[test]
fn r2_a_move_that_failed_is_taken_back_durably() {
    for (name, in_trash, step, before, after) in steps().into_iter().take(2) {
        let mut failed = 0;
        for (call, seed) in (1..6).flat_map(|call| (0..24).map(move |seed| (call, seed))) {
            let files = prepared(seed, in_trash);
            let acting = engine(&files);
            let kind = FaultKind::Errno(libc::EIO);
            files.fail(Fault { call, operation: Some(Operation::SyncDirectory), lasting: false, kind });
            let result = step(&acting);
            files.heal();
            drop(acting);
            files.crash();
            let what = format!("{name}, sync {call}, seed {seed}: {result:?}");
            assert_eq!(place(&files, &what), if result.is_ok() { after } else { before }, "{what}");
            failed += u32::from(result.is_err());
        }
        assert!(failed >= 24, "{name}: {failed}");
    }
}

/// Every file below a directory, by its path from there, with its bytes.
fn contents(files: &SimulatedFiles, root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        match files.contents(&path) {
            // Its text is the last holder's.
            Some(_) if path.ends_with("lock") => {}
            Some(bytes) => drop(found.insert(path.strip_prefix(root).unwrap().to_owned(), bytes)),
            None => pending.extend(files.read_directory(&path).unwrap().into_iter().map(|name| path.join(name))),
        }
    }
    found
}

/// A store with a session that has every kind of file: a shared segment, its list and checkpoint, journals, bytes that were set aside.
fn store_of_every_file(seed: u64) -> SimulatedFiles {
    let files = SimulatedFiles::new(seed);
    let sealing = EngineOptions::new().files(Arc::new(files.clone())).seed(seed).open("/store").unwrap();
    let head = create(&sealing, "parent", 3);
    let head = append(&sealing, "parent", &head, TOTAL);
    sealing.release(&id("parent"), head.epoch).unwrap();
    sealing.seal(&id("parent"), SealOptions::new()).unwrap();
    sealing.fork(&id("parent"), 9, &header("s")).unwrap();
    sealing.finish_sealing();
    drop(sealing);
    let engine = engine(&files);
    let taken = engine.take_over(&id("s")).unwrap();
    let head = append(&engine, "s", &taken.head, 15);
    let head = append(&engine, "s", &head, TOTAL);
    engine.release(&id("s"), head.epoch).unwrap();
    let journal = Path::new("/store/sessions/s/00000000000000000010.log");
    let mut bytes = files.contents(journal).unwrap();
    bytes.truncate(bytes.len() - 1);
    files.overwrite(journal, &bytes).unwrap();
    let taken = engine.take_over(&id("s")).unwrap();
    assert!(taken.torn.is_some());
    let head = append(&engine, "s", &taken.head, TOTAL);
    engine.release(&id("s"), head.epoch).unwrap();
    // A checkpoint is derived and not synced by who makes it; in time the system does that.
    files.open(Path::new("/store/sessions/s/checkpoint"), Access::Write).unwrap().sync_all().unwrap();
    files.sync_directory(Path::new("/store/sessions/s")).unwrap();
    files
}

#[test]
fn every_file_of_a_session_goes_and_comes_back_byte_by_byte_whatever_fails() {
    let session = Path::new("/store/sessions/s");
    let before = contents(&store_of_every_file(1), session);
    for kind in ["header", "checkpoint", "shared", ".seg", ".log", "torn/"] {
        assert!(before.keys().any(|path| path.to_str().unwrap().contains(kind)), "no {kind} in {:?}", before.keys());
    }
    for fault in [None, Some(FaultKind::Errno(libc::EIO)), Some(FaultKind::PowerOff)] {
        for restoring in [false, true] {
            for call in 1_u64.. {
                let files = store_of_every_file(call);
                // What is random in them depends on when the background came to its turn.
                let before = contents(&files, session);
                if restoring {
                    engine(&files).trash(&id("s")).unwrap();
                }
                let acting = engine(&files);
                let trashed = acting.trashed().unwrap();
                if let Some(kind) = fault {
                    files.fail(Fault { call, operation: None, lasting: false, kind });
                }
                let calls = files.calls();
                let result = match trashed.first() {
                    Some(trashed) => acting.restore(trashed),
                    None => acting.trash(&id("s")).map(drop),
                };
                let used = files.calls() - calls;
                files.heal();
                drop(acting);
                if fault.is_some() {
                    files.crash();
                }
                let again = engine(&files);
                let path = again.trashed().unwrap().first().map_or(session.to_owned(), |trashed| trashed.path.clone());
                let what = format!("{fault:?} at call {call}, restoring: {restoring}: {result:?}, {}", path.display());
                let found = contents(&files, &path);
                assert!(found.keys().eq(before.keys()), "{what}: {:?}", found.keys());
                let other = before.iter().find(|(name, bytes)| found[*name] != **bytes);
                assert!(other.is_none(), "{what}: {:?}", other.map(|(name, _)| name));
                if path != session {
                    again.restore(&only(&again)).unwrap();
                    assert!(contents(&files, session) == before, "{what}: brought back");
                }
                assert_eq!(again.verify(&id("s")).status, CheckStatus::Ok, "{what}");
                assert_eq!(again.open_session(&id("s")).unwrap().checkpoint.unwrap().next_seq, 10, "{what}");
                if fault.is_none() || used < call {
                    break;
                }
            }
        }
    }
}

#[test]
fn an_id_in_the_trash_is_free_and_each_generation_comes_back_as_it_was() {
    let files = SimulatedFiles::new(1);
    let engine = engine(&files);
    for count in [3, 7, 11] {
        let head = create(&engine, "s", count);
        assert_eq!(engine.trash(&id("s")).unwrap_err().kind, ErrorKind::Busy, "beside its own writer");
        engine.release(&id("s"), head.epoch).unwrap();
        let trashed = engine.trash(&id("s")).unwrap();
        assert!(trashed.name == "s" && trashed.header.unwrap().id == "s" && trashed.time > 1_600_000_000_000);
        assert_eq!(engine.trash(&id("s")).unwrap_err().kind, ErrorKind::NotFound);
        assert!(engine.list(None, 10).unwrap().entries.is_empty() && engine.summaries().unwrap().is_empty());
    }
    let trashed = engine.trashed().unwrap();
    assert_eq!(trashed.len(), 3);
    assert!(trashed.is_sorted_by(|one, other| one.time < other.time), "{trashed:?}");
    for (generation, count) in trashed.iter().zip([3, 7, 11]) {
        engine.restore(generation).unwrap();
        assert_eq!(engine.restore(generation).unwrap_err().kind, ErrorKind::Exists);
        assert_eq!(lines(&events(&engine, "s")), lines(&expected(count)));
        engine.delete(&id("s")).unwrap();
        assert_eq!(engine.restore(generation).unwrap_err().kind, ErrorKind::NotFound);
    }
    assert!(engine.trashed().unwrap().is_empty());
}

#[test]
fn nothing_is_restored_over_what_stands_there_and_a_session_that_went_on_is_not_deleted() {
    let files = store(2);
    let engine = engine(&files);
    let revision = engine.revision(&id("s")).unwrap();
    engine.trash(&id("s")).unwrap();
    let head = engine.append(&id("s"), Some(&header("s")), Expected::ABSENT, &batch(0, 2)).unwrap();
    let trashed = only(&engine);
    assert_eq!(engine.restore(&trashed).unwrap_err().kind, ErrorKind::Exists);
    engine.release(&id("s"), head.epoch).unwrap();
    assert_eq!(engine.delete_unchanged(&id("s"), &revision).unwrap_err().kind, ErrorKind::Busy);
    assert_eq!(lines(&events(&engine, "s")), lines(&expected(2)));
    engine.delete_unchanged(&id("s"), &head.revision).unwrap();
    engine.restore(&trashed).unwrap();
    assert_eq!(lines(&events(&engine, "s")), lines(&expected(TOTAL)));
    engine.delete_unchanged(&id("s"), &revision).unwrap();
    assert_eq!(files.read_directory(Path::new("/store/sessions")).unwrap(), Vec::<String>::new());
}

#[test]
fn r2_a_place_that_cannot_be_looked_at_is_not_free() {
    for call in 1_u64..9 {
        let files = store(3);
        let engine = engine(&files);
        let session = Path::new("/store/sessions/s");
        engine.trash(&id("s")).unwrap();
        files.create_directory(session).unwrap();
        let trashed = only(&engine);
        files.fail(Fault { call, operation: None, lasting: false, kind: FaultKind::Errno(libc::EIO) });
        engine.restore(&trashed).unwrap_err();
        files.heal();
        assert_eq!(files.read_directory(session).unwrap(), Vec::<String>::new(), "call {call}");
        files.remove_directory(session).unwrap();
        engine.restore(&only(&engine)).unwrap();
        assert_eq!(lines(&events(&engine, "s")), lines(&expected(TOTAL)));
    }
}

#[test]
fn long_hostile_and_damaged_sessions_go_and_come_back() {
    let home = tempfile::tempdir().unwrap();
    let engine = Engine::open(home.path()).unwrap();
    let long = "L".repeat(1024);
    for name in [long.as_str(), "../x", ".trash-0123456789ab-s", "CON", "a\0b"] {
        let head = create(&engine, name, 4);
        engine.release(&id(name), head.epoch).unwrap();
        let trashed = engine.trash(&id(name)).unwrap();
        assert!(trashed.name == name && trashed.header.is_ok());
        assert!(trashed.path.file_name().unwrap().len() <= 170);
        engine.restore(&only(&engine)).unwrap();
        assert_eq!(lines(&events(&engine, name)), lines(&expected(4)));
        engine.trash(&id(name)).unwrap();
        engine.discard(&only(&engine)).unwrap();
    }
    let head = create(&engine, "bad", 4);
    engine.release(&id("bad"), head.epoch).unwrap();
    let path = home.path().join("sessions/bad/header");
    fs::write(&path, "no header").unwrap();
    let trashed = engine.trash(&id("bad")).unwrap();
    assert!(trashed.name == "bad" && trashed.header.is_err() && !path.exists());
    engine.restore(&trashed).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"no header");
    for odd in [".trash-", ".trash-0123456789ab-", ".trash-0123456789AB-s", ".trash-012-s", ".trash-0123456789ab-file"]
    {
        fs::write(home.path().join("sessions").join(odd), "").unwrap();
    }
    assert!(engine.trashed().unwrap().is_empty());
    assert_eq!(engine.list(None, 10).unwrap().entries.len(), 1);
}

#[test]
fn what_is_freed_counts_a_shared_segment_with_the_last_of_those_that_share_it() {
    let home = tempfile::tempdir().unwrap();
    let engine = EngineOptions::new().background_sealing(false).open(home.path()).unwrap();
    let head = create(&engine, "parent", 200);
    engine.release(&id("parent"), head.epoch).unwrap();
    engine.seal(&id("parent"), SealOptions::new()).unwrap();
    engine.fork(&id("parent"), 99, &header("child")).unwrap();
    let shared = |files: &[sessionlog::segment::files::Stat]| -> u64 {
        files.iter().filter(|stat| stat.links > 1).map(|stat| stat.length).sum()
    };
    let segment = fs::metadata(home.path().join("sessions/parent/00000000000000000000.seg")).unwrap().len();
    assert_eq!(shared(&engine.stored_files(&id("parent")).unwrap()), segment);
    let trashed = engine.trash(&id("parent")).unwrap();
    assert_eq!(shared(&engine.trashed_files(&trashed).unwrap()), segment, "the trash still holds it");
    engine.discard(&trashed).unwrap();
    let left = engine.stored_files(&id("child")).unwrap();
    assert_eq!(shared(&left), 0);
    assert!(left.iter().any(|stat| stat.length == segment && stat.links == 1));
    assert_eq!(lines(&events(&engine, "child")), lines(&expected(100)));
    assert_eq!(engine.stored_files(&id("parent")).unwrap_err().kind, ErrorKind::NotFound);
}
