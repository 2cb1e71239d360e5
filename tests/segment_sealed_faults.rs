//! Sealing under faults: every call fails once, power goes at every call, and nothing is lost or doubled.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "seqs and names are small and known"
)]

mod segment_common;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use segment_common::{append, create, events, expected, id, lines, simulated, try_events};
use sessionlog::backend::ErrorKind;
use sessionlog::segment::files::{Access, Fault, FaultKind, File, Files, Operation, RealFiles, SimulatedFiles, Stat};
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

/// The system's files, where giving a segment its name fails or panics.
#[derive(Debug, Clone, Default)]
struct Unsealable(Arc<AtomicU8>);

impl Files for Unsealable {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn File>> {
        RealFiles.open(path, access)
    }
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        RealFiles.create_directory(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if to.extension().is_some_and(|extension| extension == "seg") {
            match self.0.load(Ordering::SeqCst) {
                0 => return Err(io::Error::from_raw_os_error(libc::ENOSPC)),
                1 => panic!("sealing is told to panic"),
                _ => {}
            }
        }
        RealFiles.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        RealFiles.remove_file(path)
    }
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        RealFiles.remove_directory(path)
    }
    fn read_directory(&self, path: &Path) -> io::Result<Vec<String>> {
        RealFiles.read_directory(path)
    }
    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        RealFiles.sync_directory(path)
    }
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        RealFiles.stat(path)
    }
    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        RealFiles.resolve(path)
    }
}

#[test]
fn h2_a_failure_or_panic_of_background_sealing_leaves_the_journals_in_service_and_shows() {
    let home = tempfile::tempdir().unwrap();
    let files = Unsealable::default();
    let engine = EngineOptions::new().files(Arc::new(files.clone())).rotate_at(900).open(home.path()).unwrap();
    let mut head = create(&engine, "s", 3);
    for (mode, kind) in [(0, Some(ErrorKind::DiskFull)), (1, None)] {
        files.0.store(mode, Ordering::SeqCst);
        let to = head.next_seq + 60;
        while head.next_seq < to {
            head = append(&engine, "s", &head, head.next_seq + 4);
        }
        engine.release(&id("s"), head.epoch).unwrap();
        let failures = engine.sealing_failures();
        assert_eq!(failures.len(), 1);
        assert_eq!((failures[0].session.as_str(), failures[0].kind), ("s", kind));
        assert_eq!(lines(&try_events(&engine, "s").unwrap()), lines(&expected(head.next_seq)));
        head = engine.take_over(&id("s")).unwrap().head;
    }
    files.0.store(2, Ordering::SeqCst);
    let to = head.next_seq + 60;
    while head.next_seq < to {
        head = append(&engine, "s", &head, head.next_seq + 4);
    }
    engine.release(&id("s"), head.epoch).unwrap();
    assert!(engine.sealing_failures().is_empty());
    assert_eq!(lines(&events(&engine, "s")), lines(&expected(head.next_seq)));
    assert_eq!(engine.verify(&id("s")).status, CheckStatus::Ok);
}
