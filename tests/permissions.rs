//! Who may read and write what is made: modes of everything, from the moment it exists, of temporary files and exports too.
//!
//! One test alone in this binary, because it changes the umask, which is the process's.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use segment_common::{append, create, header, id, journals};
use sessionlog::segment::files::{Access, File, Files, RealFiles, Stat};
use sessionlog::segment::{EngineOptions, SealOptions};

/// The system's files; looks at the mode of everything the moment it has been made.
#[derive(Debug, Clone, Default)]
struct Watched {
    made: Arc<AtomicU64>,
    temporary: Arc<AtomicU64>,
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

impl Watched {
    fn note(&self, path: &Path, expected: u32) {
        assert_eq!(mode(path), expected, "{}", path.display());
        self.made.fetch_add(1, Ordering::Relaxed);
        if path.to_string_lossy().contains("/.tmp-") {
            self.temporary.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Files for Watched {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn File>> {
        let file = RealFiles.open(path, access)?;
        if access == Access::CreateNew {
            self.note(path, 0o600);
        }
        Ok(file)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        RealFiles.create_directory(path)?;
        self.note(path, 0o700);
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

/// Everything that an engine makes: a store, journals, a torn end set aside, segments, a fork, a catalogue.
fn make_everything(root: &Path, files: Watched) {
    let engine =
        EngineOptions::new().files(Arc::new(files)).rotate_at(600).background_sealing(false).open(root).unwrap();
    let mut head = create(&engine, "s", 3);
    while head.next_seq < 43 {
        head = append(&engine, "s", &head, head.next_seq + 4);
    }
    engine.release(&id("s"), head.epoch).unwrap();
    let newest = journals(&engine.locate(&id("s"))).pop().unwrap();
    let mut bytes = fs::read(&newest).unwrap();
    bytes.extend_from_slice(&[9; 50]);
    fs::write(&newest, bytes).unwrap();
    let head = engine.take_over(&id("s")).unwrap().head;
    engine.release(&id("s"), head.epoch).unwrap();
    engine.seal(&id("s"), SealOptions::new().level(1)).unwrap();
    engine.fork(&id("s"), 20, &header("fork")).unwrap();
    engine.summaries().unwrap();
}

fn with_umask<T>(umask: u32, work: impl FnOnce() -> T) -> T {
    // SAFETY: changes a number of the process; no other test runs in this process.
    let before = unsafe { libc::umask(libc::mode_t::try_from(umask).unwrap()) };
    let result = work();
    // SAFETY: as above.
    unsafe { libc::umask(before) };
    result
}

#[test]
fn a1_everything_is_private_from_the_moment_it_exists_under_any_umask() {
    let home = tempfile::tempdir().unwrap();
    for umask in [0, 0o022, 0o077, 0o177, 0o277, 0o777] {
        let root = home.path().join(format!("store-{umask:o}/deep"));
        let files = Watched::default();
        with_umask(umask, || make_everything(&root, files.clone()));
        let (made, temporary) = (files.made.load(Ordering::Relaxed), files.temporary.load(Ordering::Relaxed));
        assert!(made > 15 && temporary > 8, "{made} {temporary}");
        let mut directories = vec![root.clone()];
        while let Some(directory) = directories.pop() {
            assert_eq!(mode(&directory), 0o700, "{umask:o}: {}", directory.display());
            let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
            directories.extend(entries.filter(|path| path.is_dir()));
        }
        for path in segment_common::files_below(&root) {
            assert_eq!(mode(&path), 0o600, "{umask:o}: {}", path.display());
        }
        if cfg!(feature = "cli") {
            let out = home.path().join(format!("export-{umask:o}.jsonl"));
            let mut export = Command::new(env!("CARGO_BIN_EXE_sessionlog"));
            export.args(["export", "s", "-o"]).arg(&out).env("SESSIONLOG_STORE", &root);
            assert!(with_umask(umask, || export.status().unwrap()).success(), "{umask:o}");
            assert_eq!(mode(&out), 0o600, "{umask:o}");
        }
    }
}
