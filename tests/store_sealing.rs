//! Sealing that fails shows in health, and durability does not look degraded by it.
#![cfg(feature = "store")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use std::sync::Arc;

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
