//! Modes of what the engine creates. Alone in its process, because the umask is the process's.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use segment_common::{create, id};
use sessionlog::segment::Engine;

#[test]
fn files_and_directories_are_private_under_any_umask() {
    let home = tempfile::tempdir().unwrap();
    for umask in [0, 0o277] {
        let root = home.path().join(format!("store-{umask:o}/deep"));
        // SAFETY: changes a number of the process; no other test runs in this process.
        let before = unsafe { libc::umask(umask) };
        let engine = Engine::open(&root).unwrap();
        let head = create(&engine, "s", 3);
        engine.release(&id("s"), head.epoch).unwrap();
        engine.take_over(&id("s")).unwrap();
        // SAFETY: as above.
        unsafe { libc::umask(before) };
        for path in segment_common::files_below(&root) {
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{}", path.display());
        }
        for path in [&root, &root.join("sessions"), &root.join("sessions/s")] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o700, "{}", path.display());
        }
    }
}
