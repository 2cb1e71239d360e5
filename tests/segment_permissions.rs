//! Who may read what the engine creates, and where it refuses to write. One test in this process: the umask is the process's.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use segment_common::{append, create, events, expected, files_below, id};
use sessionlog::backend::{BackendError, ErrorKind};
use sessionlog::segment::files::{Access, File, Files, RealFiles, Stat};
use sessionlog::segment::{Engine, EngineOptions, SealOptions};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// The system's files, looked at as soon as they are there: temporary ones are gone when the engine is done.
#[derive(Debug)]
struct Watched;

impl Files for Watched {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn File>> {
        let file = RealFiles.open(path, access)?;
        assert_eq!(mode(path), 0o600, "{}", path.display());
        Ok(file)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        RealFiles.create_directory(path)?;
        assert_eq!(mode(path), 0o700, "{}", path.display());
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFiles.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFiles.link(from, to)
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

fn with_umask<T>(umask: u32, work: impl FnOnce() -> T) -> T {
    // SAFETY: changes a number of the process; no other test runs in this process.
    let before = unsafe { libc::umask(libc::mode_t::try_from(umask).unwrap()) };
    let result = work();
    // SAFETY: as above.
    unsafe { libc::umask(before) };
    result
}

/// Everything that puts files in place: creation, appends, rotation, sealing, a fork, a torn end, the catalogue.
fn exercise(root: &Path) {
    let engine = EngineOptions::new().files(Arc::new(Watched)).rotate_at(400).open(root).unwrap();
    let mut head = create(&engine, "s", 3);
    for to in [10, 20, 30] {
        head = append(&engine, "s", &head, to);
    }
    engine.release(&id("s"), head.epoch).unwrap();
    engine.seal(&id("s"), SealOptions::new()).unwrap();
    engine.fork(&id("s"), 9, &segment_common::header("child")).unwrap();
    let head = engine.take_over(&id("s")).unwrap().head;
    let head = append(&engine, "s", &head, 33);
    engine.release(&id("s"), head.epoch).unwrap();
    let journal = segment_common::journals(&root.join("sessions/s")).pop().unwrap();
    let bytes = fs::read(&journal).unwrap();
    fs::write(&journal, &bytes[..bytes.len() - 5]).unwrap();
    let taken = engine.take_over(&id("s")).unwrap();
    assert!(taken.torn.is_some());
    engine.release(&id("s"), taken.head.epoch).unwrap();
    engine.summaries().unwrap();
    for name in ["catalog", "lock", "STORE", "sessions/s/lock", "sessions/s/torn"] {
        assert!(root.join(name).exists(), "{name}");
    }
}

fn everything_is_private_under_any_umask(home: &Path) {
    for umask in [0, 0o022, 0o077, 0o277, 0o777] {
        let root = home.join(format!("store-{umask:o}/deep"));
        with_umask(umask, || exercise(&root));
        let mut directories = vec![root.clone()];
        while let Some(directory) = directories.pop() {
            assert_eq!(mode(&directory), 0o700, "{umask:o}: {}", directory.display());
            let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
            directories.extend(entries.filter(|path| path.is_dir()));
        }
        for path in files_below(&root) {
            assert_eq!(mode(&path), 0o600, "{umask:o}: {}", path.display());
        }
        if cfg!(feature = "cli") {
            let out = home.join(format!("export-{umask:o}.jsonl"));
            let mut export = Command::new(env!("CARGO_BIN_EXE_sessionlog"));
            export.args(["export", "s", "-o"]).arg(&out).env("SESSIONLOG_STORE", &root);
            assert!(with_umask(umask, || export.status().unwrap()).success(), "{umask:o}");
            assert_eq!(mode(&out), 0o600, "{umask:o}");
        }
    }
}

fn refused<T>(result: Result<T, BackendError>) -> String {
    let Err(error) = result else { panic!("writing was not refused") };
    assert_eq!(error.kind, ErrorKind::PermissionDenied, "{error}");
    error.to_string()
}

/// Writing is refused whatever is asked for, reading works, trust is a way on.
fn writes_need_trust(root: &Path, what: &str) {
    let engine = Engine::open(root).unwrap();
    let detail = refused(engine.take_over(&id("s")).map(|_| ()));
    assert!(detail.contains(what) && detail.contains("trust_directory"), "{detail}");
    refused(engine.seal(&id("s"), SealOptions::new()));
    refused(engine.fork(&id("s"), 1, &segment_common::header("child")));
    refused(engine.delete(&id("s")));
    assert_eq!(segment_common::lines(&events(&engine, "s")), segment_common::lines(&expected(3)));
    assert!(engine.verify(&id("s")).error.is_none());
    assert_eq!(engine.summaries().unwrap().len(), 1);
    let trusting = EngineOptions::new().trust_directory(true).open(root).unwrap();
    let head = trusting.take_over(&id("s")).unwrap().head;
    trusting.release(&id("s"), head.epoch).unwrap();
}

fn store_with_a_session(root: &Path) {
    let engine = Engine::open(root).unwrap();
    let head = create(&engine, "s", 3);
    engine.release(&id("s"), head.epoch).unwrap();
}

fn a_directory_that_others_can_change_is_not_written(home: &Path) {
    let root = home.join("shared");
    store_with_a_session(&root);
    for place in [root.clone(), root.join("sessions")] {
        for open in [0o777, 0o1777, 0o702] {
            fs::set_permissions(&place, Permissions::from_mode(open)).unwrap();
            writes_need_trust(&root, "everybody may write");
        }
        // A group may be the user's own, so this is only warned about.
        fs::set_permissions(&place, Permissions::from_mode(0o770)).unwrap();
        let engine = Engine::open(&root).unwrap();
        let head = engine.take_over(&id("s")).unwrap().head;
        engine.release(&id("s"), head.epoch).unwrap();
        fs::set_permissions(&place, Permissions::from_mode(0o700)).unwrap();
    }
    if fs::metadata(home).unwrap().uid() != 0 {
        println!("skipped: only the system's own user can give a directory away");
        return;
    }
    chown(&root, Some(4711), None).unwrap();
    writes_need_trust(&root, "another user (uid 4711)");
}

fn links_lead_nowhere(home: &Path) {
    // A link to the root is resolved when the store is opened, and never again.
    let (first, second, link) = (home.join("first"), home.join("second"), home.join("link"));
    fs::create_dir(&first).unwrap();
    fs::create_dir(&second).unwrap();
    for directory in [&first, &second] {
        fs::set_permissions(directory, Permissions::from_mode(0o700)).unwrap();
    }
    for (name, root) in [("there", link.clone()), ("to be made", link.join("deep/store"))] {
        let _ = fs::remove_file(&link);
        symlink(&first, &link).unwrap();
        let engine = Engine::open(&root).unwrap();
        fs::remove_file(&link).unwrap();
        symlink(&second, &link).unwrap();
        let head = create(&engine, "s", 3);
        assert!(engine.root().starts_with(fs::canonicalize(&first).unwrap()), "{name}");
        assert_eq!(fs::read_dir(&second).unwrap().count(), 0, "{name}");
        let head = append(&engine, "s", &head, 6);
        engine.release(&id("s"), head.epoch).unwrap();
        assert_eq!(events(&engine, "s").len(), 6);
    }
    // The directory itself is replaced while the store is open.
    let root = home.join("replaced");
    store_with_a_session(&root);
    let engine = Engine::open(&root).unwrap();
    let head = engine.take_over(&id("s")).unwrap().head;
    engine.release(&id("s"), head.epoch).unwrap();
    fs::rename(&root, home.join("moved")).unwrap();
    symlink(&second, &root).unwrap();
    for error in [
        engine.take_over(&id("s")).map(|_| ()).unwrap_err(),
        engine.fork(&id("s"), 1, &segment_common::header("c")).map(|_| ()).unwrap_err(),
    ] {
        assert!(matches!(error.kind, ErrorKind::LostOwnership | ErrorKind::NotFound), "{error}");
    }
    let new = engine.append(
        &id("n"),
        Some(&segment_common::header("n")),
        sessionlog::backend::Expected::ABSENT,
        &segment_common::batch(0, 2),
    );
    assert!(new.unwrap_err().to_string().contains("moved or replaced"));
    assert_eq!(fs::read_dir(&second).unwrap().count(), 0);
}

fn links_inside_the_store_are_not_followed(home: &Path) {
    let elsewhere = home.join("elsewhere");
    store_with_a_session(&elsewhere);
    let untouched =
        || files_below(&elsewhere).into_iter().map(|path| (fs::read(&path).unwrap(), path)).collect::<Vec<_>>();
    let before = untouched();
    // The directory of all sessions.
    let root = home.join("linked");
    fs::create_dir(&root).unwrap();
    fs::set_permissions(&root, Permissions::from_mode(0o700)).unwrap();
    symlink(elsewhere.join("sessions"), root.join("sessions")).unwrap();
    let error = Engine::open(&root).map(|_| ()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Damaged, "{error}");
    fs::remove_file(root.join("sessions")).unwrap();
    let engine = Engine::open(&root).unwrap();
    symlink(elsewhere.join("sessions"), root.join("sessions")).unwrap();
    let new = engine.append(
        &id("n"),
        Some(&segment_common::header("n")),
        sessionlog::backend::Expected::ABSENT,
        &segment_common::batch(0, 2),
    );
    assert!(new.is_err());
    fs::remove_file(root.join("sessions")).unwrap();
    // A session's directory, and each of its files.
    store_with_a_session(&root);
    let engine = Engine::open(&root).unwrap();
    symlink(elsewhere.join("sessions/s"), root.join("sessions/t")).unwrap();
    for result in
        [engine.take_over(&id("t")).map(|_| ()), engine.delete(&id("t")), engine.open_session(&id("t")).map(|_| ())]
    {
        assert_eq!(result.unwrap_err().kind, ErrorKind::Damaged);
    }
    for name in ["header", "lock", "00000000000000000000.log"] {
        let file = root.join("sessions/s").join(name);
        let own = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        symlink(elsewhere.join("sessions/s").join(name), &file).unwrap();
        assert!(engine.take_over(&id("s")).is_err(), "{name}");
        fs::remove_file(&file).unwrap();
        fs::write(&file, own).unwrap();
    }
    let journal = segment_common::journals(&root.join("sessions/s")).pop().unwrap();
    symlink(&elsewhere, root.join("sessions/s/torn")).unwrap();
    let bytes = fs::read(&journal).unwrap();
    fs::write(&journal, &bytes[..bytes.len() - 5]).unwrap();
    assert!(engine.take_over(&id("s")).is_err());
    fs::write(&journal, &bytes).unwrap();
    // The catalogue is made anew in the place of a link.
    let _ = fs::remove_file(root.join("catalog"));
    symlink(elsewhere.join("STORE"), root.join("catalog")).unwrap();
    Engine::open(&root).unwrap().summaries().unwrap();
    // Deleting a session removes the link in it and not what it leads to.
    engine.delete(&id("s")).unwrap();
    assert!(home.join("elsewhere").exists());
    assert_eq!(untouched(), before);
}

#[test]
fn hostile_files_and_umasks() {
    let temporary = tempfile::tempdir().unwrap();
    let home = fs::canonicalize(temporary.path()).unwrap();
    everything_is_private_under_any_umask(&home);
    a_directory_that_others_can_change_is_not_written(&home);
    links_lead_nowhere(&home);
    links_inside_the_store_are_not_followed(&home);
}
