//! The trash beside live sessions: what comes back never takes the place of a session that is open, though nothing of that is stored yet.
#![cfg(feature = "store")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod store_common;

use std::sync::Arc;

use sessionlog::backend::ErrorKind;
use sessionlog::event::SessionHeader;
use sessionlog::event::control::{TurnEnd, TurnStart};
use sessionlog::segment::files::SimulatedFiles;
use sessionlog::segment::{EngineOptions, SegmentBackend};
use sessionlog::store::Store;
use store_common::id;

#[tokio::test]
async fn r3_nothing_comes_back_from_the_trash_under_a_live_session_that_has_written_nothing_yet() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(SegmentBackend::open(home.path()).unwrap()).unwrap();
    let engine = store.backend().engine().clone();
    let old = store.create(SessionHeader::new("s")).await.unwrap();
    old.append(TurnStart::new(1)).unwrap();
    old.close().await.unwrap();
    let trashed = engine.trash(&id("s")).unwrap();

    let live = store.create(SessionHeader::new("s")).await.unwrap();
    for refused in [engine.restore(&trashed).unwrap_err(), engine.trash(&id("s")).unwrap_err()] {
        assert_eq!(refused.kind, ErrorKind::Busy);
        assert!(refused.to_string().contains("in this very process"), "{refused}");
        assert_eq!(refused.holder.unwrap().pid, Some(std::process::id()));
    }
    // What it writes goes where it should.
    live.append(TurnStart::new(1)).unwrap();
    live.append(TurnEnd::completed(1)).unwrap();
    live.flush().await.unwrap();
    assert_eq!(engine.restore(&trashed).unwrap_err().kind, ErrorKind::Exists);
    live.close().await.unwrap();
    assert_eq!(engine.verify(&id("s")).events, 2);

    // Nor does anything under one that is never written, until that is closed. Another id is free.
    engine.delete(&id("s")).unwrap();
    let idle = store.create(SessionHeader::new("s")).await.unwrap();
    let other = store.create(SessionHeader::new("other")).await.unwrap();
    assert_eq!(engine.restore(&trashed).unwrap_err().kind, ErrorKind::Busy);
    idle.close().await.unwrap();
    engine.restore(&trashed).unwrap();
    assert_eq!(engine.verify(&id("s")).events, 1);
    other.close().await.unwrap();

    // The id is free again in the store, which holds no reservation; and a store that is gone is asked no more.
    let again = store.resume("s").await.unwrap();
    assert_eq!(engine.trash(&id("s")).unwrap_err().kind, ErrorKind::Busy);
    again.close().await.unwrap();
    store.close().await.unwrap();
    drop((store, old, live, idle, other, again));
    engine.trash(&id("s")).unwrap();
}

/// Whoever is first has the id; the other is told, and neither loses anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r3_of_a_restore_and_a_creation_at_once_one_has_the_id() {
    let mut outcomes = [0; 2];
    for seed in 0..200 {
        let files = SimulatedFiles::new(seed);
        let options = EngineOptions::new().files(Arc::new(files)).background_sealing(false);
        let store = Store::open(SegmentBackend::with_options("/store", options).unwrap()).unwrap();
        let engine = store.backend().engine().clone();
        let old = store.create(SessionHeader::new("s")).await.unwrap();
        old.append(TurnStart::new(1)).unwrap();
        old.close().await.unwrap();
        let trashed = engine.trash(&id("s")).unwrap();

        let restoring = tokio::task::spawn_blocking(move || engine.restore(&trashed));
        if seed % 2 == 0 {
            tokio::task::yield_now().await;
        }
        let created = store.create(SessionHeader::new("s")).await;
        if let Ok(live) = &created {
            live.append(TurnStart::new(1)).unwrap();
            live.append(TurnEnd::completed(1)).unwrap();
            live.close().await.unwrap();
        }
        let restored = restoring.await.unwrap();
        let engine = store.backend().engine();
        match (restored, created) {
            (Ok(()), Err(error)) => {
                assert!(matches!(error.kind(), ErrorKind::Exists | ErrorKind::Busy), "{error}");
                assert_eq!(engine.verify(&id("s")).events, 1);
                outcomes[0] += 1;
            }
            (Err(error), Ok(_)) => {
                assert!(matches!(error.kind, ErrorKind::Exists | ErrorKind::Busy), "{error}");
                assert_eq!((engine.verify(&id("s")).events, engine.trashed().unwrap().len()), (2, 1));
                outcomes[1] += 1;
            }
            (restored, created) => panic!("{restored:?}, {:?}", created.map(|live| live.id().clone())),
        }
    }
    println!("restored {}, created {}", outcomes[0], outcomes[1]);
}
