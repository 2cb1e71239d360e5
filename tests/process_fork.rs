//! A writer's process is copied, as `fork` does: the copy has its descriptors, and with them its locks.
//!
//! One test, so that no other one's descriptors are copied along.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use segment_common::{append, batch, create, events, expected, id, lines};
use sessionlog::backend::{AppendError, ErrorKind, Expected};
use sessionlog::segment::EngineOptions;

#[test]
fn k3_a_forked_copy_may_not_write_and_keeps_the_session_until_it_ends() {
    a_copy_may_not_write();
    a_copy_keeps_the_session_until_it_ends();
}

fn a_copy_may_not_write() {
    let home = tempfile::tempdir().unwrap();
    let engine = EngineOptions::new().background_sealing(false).open(home.path()).unwrap();
    let head = create(&engine, "s", 2);
    // Everything that the copy needs is made before, so that it allocates as little as may be.
    let (session, next) = (id("s"), batch(2, 4));
    let at = Expected { epoch: head.epoch, next_seq: head.next_seq };
    // SAFETY: the copy calls into the engine, which takes no lock that another thread of this test may hold, and leaves by _exit.
    let copy = unsafe { libc::fork() };
    if copy == 0 {
        let refused = match engine.append(&session, None, at, &next) {
            Err(AppendError::Failed(error)) => error.kind == ErrorKind::LostOwnership,
            _ => false,
        };
        // SAFETY: ends the copy at once.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(copy, &raw mut status, 0) }, copy);
    assert_eq!(status, 0, "the copy wrote");
    let head = append(&engine, "s", &head, 6);
    engine.release(&id("s"), head.epoch).unwrap();
    assert_eq!(lines(&events(&engine, "s")), lines(&expected(6)));
}

fn a_copy_keeps_the_session_until_it_ends() {
    let home = tempfile::tempdir().unwrap();
    let engine = EngineOptions::new().background_sealing(false).open(home.path()).unwrap();
    let head = create(&engine, "s", 2);
    // SAFETY: the copy only waits and is killed.
    let copy = unsafe { libc::fork() };
    if copy == 0 {
        loop {
            // SAFETY: has no preconditions.
            unsafe { libc::pause() };
        }
    }
    engine.release(&id("s"), head.epoch).unwrap();
    let refused = engine.take_over(&id("s"));
    // SAFETY: the child made above, not waited for yet.
    unsafe {
        libc::kill(copy, libc::SIGKILL);
        libc::waitpid(copy, std::ptr::null_mut(), 0);
    }
    // The lock belongs to the open file, which the copy still had: refused, never shared.
    assert_eq!(refused.unwrap_err().kind, ErrorKind::Busy);
    let head = engine.take_over(&id("s")).unwrap().head;
    append(&engine, "s", &head, 4);
    assert_eq!(lines(&events(&engine, "s")), lines(&expected(4)));
}
