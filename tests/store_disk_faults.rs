//! A live session over a failing disk: each of the first file operations fails in each way, once or for good. The error is
//! typed, health shows it, and once the disk is well again nothing is lost and nothing is doubled.
#![cfg(feature = "store")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sessionlog::backend::ErrorKind;
use sessionlog::event::{Event, JsonText, NewEvent, SessionHeader, Vocabulary};
use sessionlog::segment::files::{Fault, FaultKind, SimulatedFiles};
use sessionlog::segment::{EngineOptions, SegmentBackend};
use sessionlog::store::{Health, LiveSession, Store, StoreOptions};

/// How many of the first operations are made to fail.
const OPERATIONS: u64 = 200;
/// Events that the program appends, a flush after every fourth.
const EVENTS: u64 = 96;

type Live = LiveSession<SegmentBackend>;

fn open(files: &SimulatedFiles) -> Result<Store<SegmentBackend>, Box<dyn std::error::Error>> {
    // Journals of a few records, so that rotation is among the operations that fail.
    let options = EngineOptions::new().files(Arc::new(files.clone())).rotate_at(1200).background_sealing(false).seed(3);
    let backend = SegmentBackend::with_options(Path::new("/store"), options)?;
    // Only flushes write: the window never ends by itself within a test.
    Ok(StoreOptions::new()
        .window(Duration::from_secs(3600))
        .vocabulary(Vocabulary::core().with_name("app/x"))
        .open(backend)?)
}

fn append(session: &Live, number: u64) -> Event {
    let data = format!(r#"{{"n":{number},"pad":"{}"}}"#, "p".repeat((number * 37 % 90) as usize));
    session.append_event(NewEvent::named("app/x", JsonText::parse(&data).unwrap())).unwrap()
}

/// Appends and flushes; gives what was accepted, the kinds of error met, and whether health told of each.
async fn program(session: &Live, expected: &mut Vec<Event>) -> Vec<ErrorKind> {
    let mut kinds = Vec::new();
    for number in 0..EVENTS {
        expected.push(append(session, number));
        if number % 4 == 3 {
            match session.flush().await {
                Ok(()) => assert_eq!(session.health(), Health::Ok),
                Err(error) => {
                    let Health::Degraded { cause, events, .. } = session.health() else {
                        panic!("a failed flush shows in health: {error}");
                    };
                    assert_eq!(cause, error.kind());
                    assert!(events > 0, "what waits is counted");
                    kinds.push(error.kind());
                }
            }
        }
    }
    kinds
}

async fn stored(files: &SimulatedFiles) -> Vec<Event> {
    let store = open(files).unwrap();
    let session = store.inspect("s").await.unwrap();
    session.events(..)
}

fn faults() -> [(FaultKind, &'static [ErrorKind]); 6] {
    let io: &[ErrorKind] = &[ErrorKind::Io, ErrorKind::Damaged, ErrorKind::LostOwnership];
    [
        (FaultKind::Errno(libc::ENOSPC), &[ErrorKind::DiskFull]),
        (FaultKind::Errno(libc::EDQUOT), &[ErrorKind::DiskFull]),
        (FaultKind::Errno(libc::EIO), io),
        (FaultKind::Errno(libc::EINTR), io),
        (FaultKind::ShortWrite, &[]),
        (FaultKind::ShortRead, &[]),
    ]
}

#[tokio::test]
async fn c1_c5_a_fault_at_any_of_the_first_operations_loses_and_doubles_nothing() {
    for (kind, kinds) in faults() {
        for call in 1..=OPERATIONS {
            let files = SimulatedFiles::new(call);
            let place = format!("{kind:?} at operation {call}");
            files.fail(Fault { call, operation: None, lasting: false, kind });
            // Opening a store is allowed to fail once; the next attempt must not.
            let store = match open(&files) {
                Ok(store) => store,
                Err(_) => open(&files).unwrap_or_else(|error| panic!("{place}: {error}")),
            };
            let session = match store.create(SessionHeader::new("s")).await {
                Ok(session) => session,
                Err(_) => {
                    store.create(SessionHeader::new("s")).await.unwrap_or_else(|error| panic!("{place}: {error}"))
                }
            };
            let mut expected = Vec::new();
            let met = program(&session, &mut expected).await;
            assert!(met.len() <= 1, "{place}: one fault fails one flush: {met:?}");
            assert!(met.iter().all(|kind| kinds.contains(kind)), "{place}: {met:?}");
            assert!(files.calls() > call, "{place}: the program reaches the operation");
            session.flush().await.unwrap_or_else(|error| panic!("{place}: {error}"));
            assert_eq!(session.health(), Health::Ok, "{place}");
            session.close().await.unwrap_or_else(|error| panic!("{place}: {error}"));
            drop(session);
            store.close().await.unwrap_or_else(|error| panic!("{place}: {error}"));
            assert_eq!(stored(&files).await, expected, "{place}");
        }
    }
}

#[tokio::test]
async fn c1_a_disk_that_stays_bad_keeps_telling_and_heals_without_loss() {
    for (kind, call) in [(libc::ENOSPC, 40), (libc::ENOSPC, 90), (libc::EIO, 61), (libc::EDQUOT, 130)] {
        let files = SimulatedFiles::new(9);
        let store = open(&files).unwrap();
        let session = store.create(SessionHeader::new("s")).await.unwrap();
        let mut expected = Vec::new();
        files.fail(Fault { call, operation: None, lasting: true, kind: FaultKind::Errno(kind) });
        let met = program(&session, &mut expected).await;
        assert!(met.len() > 1, "every flush fails from then on");
        assert!(session.flush().await.is_err());
        assert_ne!(store.health(), Health::Ok);
        files.heal();
        session.flush().await.unwrap();
        assert_eq!((session.health(), store.health()), (Health::Ok, Health::Ok));
        session.close().await.unwrap();
        drop(session);
        store.close().await.unwrap();
        assert_eq!(stored(&files).await, expected);
    }
}

#[tokio::test]
async fn power_loss_after_any_flush_keeps_what_was_flushed() {
    for seed in 0..60 {
        let files = SimulatedFiles::new(seed);
        let store = open(&files).unwrap();
        let session = store.create(SessionHeader::new("s")).await.unwrap();
        let mut accepted = Vec::new();
        let mut flushed = 0;
        for number in 0..8 + seed % 40 {
            accepted.push(append(&session, number));
            if number % 3 == seed % 3 {
                session.flush().await.unwrap();
                flushed = accepted.len();
            }
        }
        files.crash();
        drop((session, store));
        if flushed == 0 {
            continue;
        }
        let found = stored(&files).await;
        assert!(found.len() >= flushed, "seed {seed}: {} of {flushed} flushed events are there", found.len());
        assert_eq!(found[..], accepted[..found.len()], "seed {seed}");
    }
}
