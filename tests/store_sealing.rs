//! Sealing that fails shows in health, and durability does not look degraded by it.
#![cfg(feature = "store")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod process_common;
mod segment_common;

use std::sync::Arc;
use std::time::Duration;

use process_common::{Child, report, store_of_child};
use segment_common::unsealable::{Sealing, Unsealable};
use sessionlog::backend::{ErrorKind, SealingCause, SealingFailure};
use sessionlog::event::SessionHeader;
use sessionlog::event::control::{TurnEnd, TurnStart};
use sessionlog::segment::{EngineOptions, SegmentBackend};
use sessionlog::store::{Health, LiveSession, Store};

/// Appends until some journals have been rotated, and waits for what the background makes of them.
async fn rotate(store: &Store<SegmentBackend>, session: &LiveSession<SegmentBackend>) {
    for _ in 0..30 {
        let turn = session.next_turn();
        session.append(TurnStart::new(turn)).unwrap();
        session.append(TurnEnd::completed(turn)).unwrap();
        session.flush().await.unwrap();
    }
    finish(store).await;
}

async fn finish(store: &Store<SegmentBackend>) {
    let engine = store.backend().engine().clone();
    tokio::task::spawn_blocking(move || engine.finish_sealing()).await.unwrap();
}

fn unsealed(health: Health) -> Vec<SealingFailure> {
    match health {
        Health::Unsealed(failures) => failures,
        other => panic!("{other:?}"),
    }
}

/// A user whose threads the system counts.
const NOBODY: u32 = 65_534;

/// How many processes and threads the user may have: none more than now, or as many as may be.
fn allow_threads(allowed: bool) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the calls read and write what they are given.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NPROC, &raw mut limit), 0);
        limit.rlim_cur = if allowed { limit.rlim_max } else { 0 };
        assert_eq!(libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit), 0);
    }
}

/// Child: rotates journals while no thread can be had, and again when one can.
#[test]
fn child_without_threads() {
    let Some(directory) = store_of_child() else { return };
    // SAFETY: the calls have no preconditions. Threads of the superuser are not counted.
    if unsafe { libc::geteuid() == 0 && libc::setuid(NOBODY) != 0 } {
        return report("skipped");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(1)
        .thread_keep_alive(Duration::from_secs(3600))
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        // The runtime has its threads from here on.
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        allow_threads(false);
        if std::thread::Builder::new().spawn(|| ()).is_ok() {
            return report("skipped");
        }
        let options = EngineOptions::new().rotate_at(700);
        let store = Store::open(SegmentBackend::with_options(&directory, options).unwrap()).unwrap();
        let session = store.create(SessionHeader::new("s")).await.unwrap();
        let mut watch = session.watch();
        rotate(&store, &session).await;
        for health in [session.health(), store.health(), watch.borrow_and_update().clone()] {
            assert!(health.is_ok(), "{health}");
            let failure = unsealed(health).remove(0);
            assert_eq!((failure.session.as_str(), failure.cause), ("s", SealingCause::Error(ErrorKind::Io)));
            assert!(failure.detail.contains("no thread could be started for sealing"), "{}", failure.detail);
        }
        report("shown");
        allow_threads(true);
        rotate(&store, &session).await;
        assert_eq!((session.health(), watch.borrow_and_update().clone()), (Health::Ok, Health::Ok));
        session.close().await.unwrap();
        finish(&store).await;
        let check = store.backend().engine().verify(session.id());
        assert!(check.error.is_none() && check.events >= 120, "{check:?}");
        report("sealed");
    });
}

#[test]
fn h2_a_sealing_thread_that_cannot_be_had_shows_until_there_is_one() {
    let home = tempfile::tempdir().unwrap();
    // The child may be somebody else.
    std::fs::set_permissions(home.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let mut child = Child::start("child_without_threads", &home.path().join("store"), 0);
    let first = child.report().unwrap_or_else(|| panic!("{}", child.complaints()));
    if first == ["skipped"] {
        println!("skipped: threads of this user are not counted");
        return;
    }
    assert_eq!(first, ["shown"]);
    assert_eq!(child.report().unwrap_or_else(|| panic!("{}", child.complaints())), ["sealed"]);
    assert!(child.wait().success());
}

#[tokio::test]
async fn h2_sealing_that_fails_shows_until_it_succeeds_and_durability_stays_ok() {
    let home = tempfile::tempdir().unwrap();
    let files = Unsealable::default();
    let options = EngineOptions::new().files(Arc::new(files.clone())).rotate_at(700);
    let store = Store::open(SegmentBackend::with_options(home.path(), options).unwrap()).unwrap();
    let session = store.create(SessionHeader::new("s")).await.unwrap();
    let mut watch = session.watch();
    assert_eq!(*watch.borrow_and_update(), Health::Ok);

    for (mode, cause) in
        [(Sealing::Fails, SealingCause::Error(ErrorKind::DiskFull)), (Sealing::Panics, SealingCause::Panic)]
    {
        files.behave(mode);
        rotate(&store, &session).await;
        for health in [session.health(), store.health(), watch.borrow_and_update().clone()] {
            assert!(health.is_ok(), "{health}");
            let failures = unsealed(health);
            assert_eq!((failures.len(), failures[0].session.as_str(), failures[0].cause), (1, "s", cause));
            assert!(failures[0].since > 0);
        }
        assert!(session.health().to_string().starts_with("ok, but not sealed: 1 sessions, s since "));
    }
    // Closed, it is still the store's to tell; opened again, the session tells it from the start.
    session.close().await.unwrap();
    finish(&store).await;
    assert_eq!(unsealed(store.health())[0].cause, SealingCause::Panic);
    let session = store.resume("s").await.unwrap();
    assert_eq!(unsealed(session.health())[0].cause, SealingCause::Panic);

    let mut watch = session.watch();
    files.behave(Sealing::Works);
    rotate(&store, &session).await;
    assert_eq!(
        (session.health(), store.health(), watch.borrow_and_update().clone()),
        (Health::Ok, Health::Ok, Health::Ok)
    );
    store.close().await.unwrap();
}
