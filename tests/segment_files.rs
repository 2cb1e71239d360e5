//! The laws of the file interface, over both implementations, and what the simulated one loses.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use sessionlog::segment::files::{
    Access, Fault, FaultKind, FileKind, Files, Lock, Operation, RealFiles, SimulatedFiles, is_wrong_type,
};

/// What every implementation must do. `root` is an empty directory.
fn laws(files: &dyn Files, root: &Path) {
    let (a, b, directory) = (root.join("a"), root.join("b"), root.join("directory"));
    assert_eq!(files.open(&a, Access::Read).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(files.open(&a, Access::Write).unwrap_err().kind(), ErrorKind::NotFound);
    let file = files.open(&a, Access::CreateNew).unwrap();
    assert_eq!(files.open(&a, Access::CreateNew).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(file.write_at(b"hello", 3).unwrap(), 5);
    let mut buffer = [9; 10];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 8);
    assert_eq!(&buffer[..8], b"\0\0\0hello");
    assert_eq!(file.read_at(&mut buffer, 8).unwrap(), 0);
    assert_eq!(file.read_at(&mut buffer, 100).unwrap(), 0);
    file.truncate(4).unwrap();
    file.sync_data().unwrap();
    file.sync_all().unwrap();
    let stat = file.stat().unwrap();
    assert_eq!((stat.kind, stat.length, stat.mode & 0o777), (FileKind::File, 4, 0o600));
    assert_eq!(files.stat(&a).unwrap(), stat);
    assert!(files.open(&a, Access::Read).unwrap().write_at(b"x", 0).is_err());

    // From an open directory the same is seen, and nothing else.
    let open = files.open_directory(root).unwrap().unwrap();
    assert_eq!(open.stat("a").unwrap(), stat);
    assert_eq!(open.stat("b").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(open.stat("a/b").unwrap_err().kind(), ErrorKind::NotADirectory);
    assert!(files.open_directory(&a).is_err() && files.open_directory(&b).is_err());

    // Locks belong to handles.
    let other = files.open(&a, Access::Write).unwrap();
    assert!(file.try_lock(Lock::Exclusive).unwrap() && file.try_lock(Lock::Exclusive).unwrap());
    assert!(!other.try_lock(Lock::Shared).unwrap() && !other.try_lock(Lock::Exclusive).unwrap());
    drop(file);
    assert!(other.try_lock(Lock::Shared).unwrap());
    let third = files.open(&a, Access::Read).unwrap();
    assert!(third.try_lock(Lock::Shared).unwrap() && !third.try_lock(Lock::Exclusive).unwrap());
    drop(third);
    assert!(other.try_lock(Lock::Exclusive).unwrap());

    // A file replaces a file, and a handle goes with the file.
    let replacement = files.open(&b, Access::CreateNew).unwrap();
    files.rename(&b, &a).unwrap();
    assert_eq!(files.stat(&a).unwrap().identity, replacement.stat().unwrap().identity);
    assert_ne!(files.stat(&a).unwrap().identity, other.stat().unwrap().identity);
    assert_eq!(other.stat().unwrap().length, 4);

    // A directory with entries is never replaced.
    files.create_directory(&directory).unwrap();
    assert_eq!(open.stat("directory").unwrap(), files.stat(&directory).unwrap());
    assert_eq!(files.create_directory(&directory).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert!(is_wrong_type(&files.open(&directory, Access::Read).unwrap_err()));
    assert!(is_wrong_type(&files.open(&directory, Access::Write).unwrap_err()));
    drop(files.open(&directory.join("inside"), Access::CreateNew).unwrap());
    assert_eq!(open.stat("directory/inside").unwrap(), files.stat(&directory.join("inside")).unwrap());
    let second = root.join("second");
    files.create_directory(&second).unwrap();
    drop(files.open(&second.join("inside"), Access::CreateNew).unwrap());
    assert_eq!(files.rename(&second, &directory).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    assert!(files.rename(&second, &a).is_err());
    assert!(files.remove_directory(&second).is_err());
    files.remove_file(&second.join("inside")).unwrap();
    files.remove_directory(&second).unwrap();
    files.sync_directory(root).unwrap();
    let names: BTreeSet<String> = files.read_directory(root).unwrap().into_iter().collect();
    assert_eq!(names, ["a", "directory"].map(String::from).into());
    files.rename(&directory, &second).unwrap();
    assert_eq!(files.read_directory(&second).unwrap(), ["inside"]);
    assert_eq!(files.stat(&directory).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(files.resolve(&second).unwrap(), second);
}

#[test]
fn the_systems_files_and_the_simulated_ones_keep_the_same_laws() {
    let home = tempfile::tempdir().unwrap();
    laws(&RealFiles, &home.path().canonicalize().unwrap());
    let simulated = SimulatedFiles::new(1);
    simulated.create_directory(Path::new("/root")).unwrap();
    laws(&simulated, Path::new("/root"));
}

const FILE: &str = "/f";

#[test]
fn a_crash_keeps_what_was_synced_and_any_sectors_of_what_was_not() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..200 {
        let files = SimulatedFiles::new(seed);
        let file = files.open(Path::new(FILE), Access::CreateNew).unwrap();
        file.write_at(&[1; 512], 0).unwrap();
        file.sync_data().unwrap();
        files.sync_directory(Path::new("/")).unwrap();
        file.write_at(&[2; 1536], 256).unwrap();
        files.crash();
        assert!(file.read_at(&mut [0; 1], 0).is_err(), "a handle survived the crash");
        let bytes = files.contents(Path::new(FILE)).unwrap();
        assert!(bytes[..256].iter().all(|byte| *byte == 1));
        assert!(bytes.len() == 512 || bytes.len() == 1792);
        // Sectors are whole or not there.
        outcomes.insert((bytes[256], bytes.get(512).copied(), bytes.get(1024).copied(), bytes.get(1536).copied()));
    }
    assert!(outcomes.len() > 10, "{outcomes:?}");
}

#[test]
fn names_are_undone_unless_their_directory_was_synced() {
    let (mut kept, mut undone) = (0, 0);
    for seed in 0..100 {
        let files = SimulatedFiles::new(seed);
        let file = files.open(Path::new("/old"), Access::CreateNew).unwrap();
        file.sync_all().unwrap();
        files.sync_directory(Path::new("/")).unwrap();
        files.rename(Path::new("/old"), Path::new("/new")).unwrap();
        files.crash();
        match (files.contents(Path::new("/old")), files.contents(Path::new("/new"))) {
            (Some(_), None) => undone += 1,
            (None, Some(_)) => kept += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(kept > 20 && undone > 20, "{kept} {undone}");
}

/// Also where syncs fail in between, after which some of the changes before them have reached the disk and others have not.
#[test]
fn a_directory_never_has_two_names() {
    let (mut old, mut new, mut gone) = (0, 0, 0);
    for seed in 0..300 {
        let files = SimulatedFiles::new(seed);
        files.create_directory(Path::new("/old")).unwrap();
        let operation = Some(Operation::SyncDirectory);
        files.fail(Fault { call: 1, operation, lasting: true, kind: FaultKind::Errno(libc::EIO) });
        for (from, to) in [("/old", "/new"), ("/new", "/old")] {
            files.rename(Path::new(from), Path::new(to)).unwrap();
            files.sync_directory(Path::new("/")).unwrap_err();
        }
        files.crash();
        match ["/old", "/new"].map(|name| files.stat(Path::new(name)).is_ok()) {
            [true, true] => panic!("seed {seed}: both"),
            [true, false] => old += 1,
            [false, true] => new += 1,
            [false, false] => gone += 1,
        }
    }
    assert!(old > 20 && new > 20 && gone > 5, "{old} {new} {gone}");
}

#[test]
fn a_failed_sync_drops_the_data_and_a_later_one_does_not_bring_it_back() {
    let mut lost = 0;
    for seed in 0..50 {
        let files = SimulatedFiles::new(seed);
        let file = files.open(Path::new(FILE), Access::CreateNew).unwrap();
        files.sync_directory(Path::new("/")).unwrap();
        file.write_at(&[7; 100], 0).unwrap();
        let operation = Some(Operation::SyncData);
        files.fail(Fault { call: 1, operation, lasting: false, kind: FaultKind::Errno(libc::EIO) });
        assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(libc::EIO));
        file.sync_data().unwrap();
        assert_eq!(files.contents(Path::new(FILE)).unwrap(), [7; 100], "a reader still sees it");
        files.crash();
        lost += u32::from(files.contents(Path::new(FILE)).unwrap() != [7; 100]);
    }
    assert!(lost > 10);
}

#[test]
fn planned_failures_come_at_their_call_and_are_counted() {
    let files = SimulatedFiles::new(1);
    let file = files.open(Path::new(FILE), Access::CreateNew).unwrap();
    let plan = |call, lasting, kind| files.fail(Fault { call, operation: Some(Operation::WriteAt), lasting, kind });
    plan(2, false, FaultKind::ShortWrite);
    assert_eq!(file.write_at(&[1; 10], 0).unwrap(), 10);
    assert_eq!(file.write_at(&[1; 10], 0).unwrap(), 5);
    assert_eq!(file.write_at(&[1; 10], 0).unwrap(), 10);
    plan(1, true, FaultKind::Errno(libc::ENOSPC));
    for _ in 0..3 {
        assert_eq!(file.write_at(&[1; 10], 0).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    }
    files.heal();
    assert_eq!(file.write_at(&[1; 10], 0).unwrap(), 10);
    assert_eq!(files.calls_of(Operation::WriteAt), 7);
    files.fail(Fault { call: 1, operation: Some(Operation::ReadAt), lasting: false, kind: FaultKind::ShortRead });
    assert_eq!(file.read_at(&mut [0; 10], 0).unwrap(), 5);
    files.fail(Fault { call: 1, operation: None, lasting: false, kind: FaultKind::PowerOff });
    assert!(file.stat().is_err() && files.stat(Path::new("/")).is_err());
    files.crash();
    assert!(files.stat(Path::new("/")).is_ok());
}
