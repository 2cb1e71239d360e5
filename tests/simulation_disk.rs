//! What the simulated disk can do to those who use it: outcomes of a crash, lost answers, slow calls, copies, the trace.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use sessionlog::segment::files::{Access, Fault, FaultKind, Files, Lock, Operation, SimulatedFiles};

fn at(path: &str) -> &Path {
    Path::new(path)
}

fn plan(files: &SimulatedFiles, operation: Operation, kind: FaultKind) {
    files.fail(Fault { call: 1, operation: Some(operation), lasting: false, kind });
}

#[test]
fn a_crash_keeps_all_none_or_any_part_of_many_writes() {
    let (mut all, mut none, mut parts) = (0, 0, BTreeSet::new());
    for seed in 0..300 {
        let files = SimulatedFiles::new(seed);
        let file = files.open(at("/f"), Access::CreateNew).unwrap();
        files.sync_directory(at("/")).unwrap();
        for sector in 0..40 {
            file.write_at(&[1; 512], sector * 512).unwrap();
        }
        files.crash();
        let bytes = files.contents(at("/f")).unwrap();
        assert!(bytes.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])), "a sector is torn");
        let kept: Vec<bool> = bytes.chunks(512).map(|sector| sector[0] == 1).collect();
        all += u32::from(kept.len() == 40 && kept.iter().all(|kept| *kept));
        none += u32::from(kept.iter().all(|kept| !kept));
        parts.insert(kept);
    }
    assert!(all > 20 && none > 20 && parts.len() > 100, "{all} {none} {}", parts.len());
}

#[test]
fn a_later_write_may_be_kept_without_an_earlier_one_and_a_length_without_its_bytes() {
    let (mut reordered, mut hollow) = (0, 0);
    for seed in 0..200 {
        let files = SimulatedFiles::new(seed);
        let file = files.open(at("/f"), Access::CreateNew).unwrap();
        files.sync_directory(at("/")).unwrap();
        file.write_at(&[1; 512], 0).unwrap();
        file.write_at(&[2; 512], 512).unwrap();
        files.crash();
        let bytes = files.contents(at("/f")).unwrap();
        reordered += u32::from(bytes.len() == 1024 && bytes[0] == 0 && bytes[512] == 2);
        hollow += u32::from(!bytes.is_empty() && bytes.iter().all(|byte| *byte == 0));
    }
    assert!(reordered > 5 && hollow > 5, "{reordered} {hollow}");
}

#[test]
fn unsynced_names_are_undone_each_on_its_own() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..300 {
        let files = SimulatedFiles::new(seed);
        for name in ["/a", "/b", "/c"] {
            files.open(at(name), Access::CreateNew).unwrap().sync_all().unwrap();
        }
        files.crash();
        let mut names = files.read_directory(at("/")).unwrap();
        names.sort_unstable();
        outcomes.insert(names.concat());
    }
    assert_eq!(outcomes.len(), 8, "{outcomes:?}");
}

#[test]
fn a_failed_sync_of_a_directory_may_have_reached_the_disk_and_a_later_one_covers_it() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..100 {
        let files = SimulatedFiles::new(seed);
        files.create_directory(at("/d")).unwrap();
        files.create_directory(at("/e")).unwrap();
        plan(&files, Operation::SyncDirectory, FaultKind::Errno(libc::EIO));
        assert!(files.sync_directory(at("/")).is_err());
        let later = files.copy(seed);
        files.crash();
        outcomes.insert(files.read_directory(at("/")).unwrap().len());
        later.sync_directory(at("/")).unwrap();
        later.crash();
        assert_eq!(later.read_directory(at("/")).unwrap().len(), 2);
    }
    assert_eq!(outcomes, BTreeSet::from([0, 1, 2]));
}

#[test]
fn a_lost_answer_has_had_its_effect() {
    let files = SimulatedFiles::new(1);
    let late = FaultKind::Late(libc::EIO);
    let file = files.open(at("/f"), Access::CreateNew).unwrap();
    plan(&files, Operation::WriteAt, late);
    assert!(file.write_at(b"abc", 0).is_err());
    assert_eq!(files.contents(at("/f")).unwrap(), b"abc");
    plan(&files, Operation::SyncData, late);
    assert!(file.sync_data().is_err());
    plan(&files, Operation::SyncDirectory, late);
    assert!(files.sync_directory(at("/")).is_err());
    plan(&files, Operation::Rename, late);
    assert!(files.rename(at("/f"), at("/g")).is_err());
    assert!(files.contents(at("/g")).is_some());
    files.sync_directory(at("/")).unwrap();
    plan(&files, Operation::Open, late);
    assert!(files.open(at("/made"), Access::CreateNew).is_err());
    assert!(files.contents(at("/made")).is_some());
    files.crash();
    assert_eq!(files.contents(at("/g")).unwrap(), b"abc");
}

#[test]
fn a_slow_call_takes_its_time_and_holds_nobody_up() {
    const SLOW: Duration = Duration::from_millis(80);
    // Whether another call comes back within the slow one's time. It never would if it had to wait for it; on a busy machine it
    // may be late by itself.
    let passes = || {
        let files = SimulatedFiles::new(1);
        let file = files.open(at("/f"), Access::CreateNew).unwrap();
        plan(&files, Operation::SyncData, FaultKind::Slow(SLOW));
        let other = files.clone();
        let begun = Instant::now();
        let slow = thread::spawn(move || file.sync_data().map(|()| begun.elapsed()));
        while other.calls_of(Operation::SyncData) == 0 {
            thread::yield_now();
        }
        other.stat(at("/f")).unwrap();
        let quick = begun.elapsed();
        assert!(slow.join().unwrap().unwrap() >= SLOW);
        quick < SLOW
    };
    assert!((0..50).any(|_| passes()));
}

#[test]
fn a_copy_is_a_disk_of_its_own_without_the_originals_locks_handles_and_failures() {
    let files = SimulatedFiles::new(1);
    let file = files.open(at("/f"), Access::CreateNew).unwrap();
    assert!(file.try_lock(Lock::Exclusive).unwrap());
    file.write_at(b"pending", 0).unwrap();
    files.fail(Fault { call: 1, operation: None, lasting: true, kind: FaultKind::Errno(libc::EIO) });
    let copy = files.copy(7);
    let again = copy.open(at("/f"), Access::Write).unwrap();
    assert!(again.try_lock(Lock::Exclusive).unwrap());
    again.write_at(b"other", 0).unwrap();
    assert_eq!(copy.contents(at("/f")).unwrap(), b"otherng");
    assert_eq!(files.contents(at("/f")).unwrap(), b"pending");
    // What was pending is pending in both.
    let outcomes: BTreeSet<_> = (0..60)
        .map(|seed| {
            let copy = copy.copy(seed);
            copy.crash();
            copy.contents(at("/f"))
        })
        .collect();
    assert!(outcomes.contains(&None) && outcomes.len() > 2, "{outcomes:?}");
}

#[test]
fn the_trace_names_each_call_and_what_it_met_and_the_same_seed_gives_the_same_disk() {
    let run = |seed| {
        let files = SimulatedFiles::new(seed);
        let file = files.open(at("/f"), Access::CreateNew).unwrap();
        plan(&files, Operation::WriteAt, FaultKind::Errno(libc::ENOSPC));
        assert!(file.write_at(&[3; 4000], 0).is_err());
        drop(file);
        files.crash();
        (files.contents(at("/f")), files.trace())
    };
    let (bytes, trace) = run(5);
    assert!(trace.contains("1 Open /f\n") && trace.contains("2 WriteAt /f -> Errno(28)\n"), "{trace}");
    assert_eq!(run(5), (bytes, trace));
    let distinct: BTreeSet<_> = (0..40).map(|seed| run(seed).0.map(|bytes| bytes.len())).collect();
    assert!(distinct.len() > 3, "{distinct:?}");
}
