//! Write-behind under random faults: nothing acknowledged is lost, nothing is doubled, order is kept.
#![cfg(feature = "store")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking"
)]

mod store_common;

use std::time::Duration;

use proptest::prelude::*;
use sessionlog::backend::ErrorKind;
use sessionlog::backend::memory::{Fault, MemoryBackend, Operation};
use sessionlog::event::chunk::AssistantChunk;
use sessionlog::event::{JsonText, NewEvent, SessionHeader};
use sessionlog::session::Session;
use sessionlog::store::{Health, LiveSession};
use store_common::{id, lines, options};

#[derive(Debug, Clone)]
enum Step {
    Note,
    Deltas(u8),
    Flush,
    /// A flush whose caller stops waiting after this many milliseconds.
    Impatient(u64),
    Concurrent,
    Sleep(u64),
    Inject(Operation, Fault),
    Hold(u64),
    Reopen,
    Drop,
}

fn faults() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::Fail(ErrorKind::DiskFull)),
        Just(Fault::Fail(ErrorKind::Io)),
        Just(Fault::LostBefore),
        Just(Fault::LostAfter),
        (1_u32..20).prop_map(Fault::Delayed),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => Just(Step::Note),
        4 => (1_u8..9).prop_map(Step::Deltas),
        4 => Just(Step::Flush),
        2 => (0_u64..300).prop_map(Step::Impatient),
        2 => Just(Step::Concurrent),
        4 => (0_u64..500).prop_map(Step::Sleep),
        6 => faults().prop_map(|fault| Step::Inject(Operation::Append, fault)),
        2 => Just(Step::Inject(Operation::Head, Fault::Fail(ErrorKind::Io))),
        1 => Just(Step::Inject(Operation::Open, Fault::Fail(ErrorKind::Io))),
        1 => Just(Step::Inject(Operation::Read, Fault::Fail(ErrorKind::Io))),
        2 => (0_u64..600).prop_map(Step::Hold),
        1 => Just(Step::Reopen),
        1 => Just(Step::Drop),
    ];
    prop::collection::vec(step, 1..60)
}

fn note(session: &Session, number: u64) {
    session.append_event(NewEvent::named("app/note", JsonText::parse(&number.to_string()).unwrap())).unwrap();
}

/// The stored log must be a beginning of the session's, and reach at least as far as was acknowledged.
fn check(memory: &MemoryBackend, session: &Session, acknowledged: u64) {
    let (stored, own) = (lines(&memory.events(session.id())), lines(&session.events(..)));
    assert!(stored.len() as u64 >= acknowledged, "{} stored, {acknowledged} acknowledged", stored.len());
    assert!(stored.len() <= own.len() && stored == own[..stored.len()], "stored {stored:#?}\nown {own:#?}");
}

async fn flush(memory: &MemoryBackend, live: &LiveSession<MemoryBackend>, acknowledged: &mut u64) {
    let before = live.next_seq();
    let result = live.flush().await;
    if result.is_ok() {
        *acknowledged = (*acknowledged).max(before);
        assert!(live.durable_seq() >= before);
    } else {
        assert!(matches!(live.health(), Health::Degraded { .. }), "{result:?}, yet {:?}", live.health());
    }
    check(memory, live, *acknowledged);
}

async fn play(steps: Vec<Step>) {
    let memory = MemoryBackend::new();
    let store = options().check_invariants(false).open(memory.clone()).unwrap();
    let mut live = store.create(SessionHeader::new("s")).await.unwrap();
    let mut acknowledged = 0;
    let mut number = 0;
    for step in steps {
        match step {
            Step::Note => {
                note(&live, number);
                number += 1;
            }
            Step::Deltas(count) => {
                for delta in 0..count {
                    live.append(AssistantChunk::text(1, 1, 0, format!("{delta} of {number}"))).unwrap();
                }
            }
            Step::Flush => flush(&memory, &live, &mut acknowledged).await,
            Step::Impatient(wait) => {
                let before = live.next_seq();
                if let Ok(Ok(())) = tokio::time::timeout(Duration::from_millis(wait), live.flush()).await {
                    acknowledged = acknowledged.max(before);
                }
            }
            Step::Concurrent => {
                let before = live.next_seq();
                let flushes =
                    (0..3).map(|_| live.clone()).map(|live| tokio::spawn(async move { live.flush().await.is_ok() }));
                let flushes: Vec<_> = flushes.collect();
                note(&live, number);
                number += 1;
                for done in flushes {
                    if done.await.unwrap() {
                        acknowledged = acknowledged.max(before);
                    }
                }
            }
            Step::Sleep(wait) => tokio::time::sleep(Duration::from_millis(wait)).await,
            Step::Inject(operation, fault) => memory.inject(operation, fault),
            Step::Hold(wait) => {
                let hold = memory.hold_appends();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(wait)).await;
                    drop(hold);
                });
            }
            Step::Reopen | Step::Drop => {
                memory.clear_faults();
                let own = lines(&live.events(..));
                if matches!(step, Step::Reopen) {
                    live.close().await.unwrap();
                }
                drop(live);
                live = match store.resume("s").await {
                    Ok(live) => live,
                    // It never had an event.
                    Err(_) if own.is_empty() => store.create(SessionHeader::new("s")).await.unwrap(),
                    Err(error) => panic!("{error}"),
                };
                assert_eq!(lines(&live.events(..own.len() as u64)), own);
                acknowledged = own.len() as u64;
            }
        }
        check(&memory, &live, acknowledged);
    }
    memory.clear_faults();
    live.flush().await.unwrap();
    assert_eq!(lines(&memory.events(&id("s"))), lines(&live.events(..)));
    assert!(live.health().is_ok());
    store.close().await.unwrap();
}

async fn play_with_a_rival(steps: Vec<Step>, at: usize) {
    let memory = MemoryBackend::new();
    let store = options().check_invariants(false).open(memory.clone()).unwrap();
    let live = store.create(SessionHeader::new("s")).await.unwrap();
    note(&live, 0);
    live.flush().await.unwrap();
    let mut at_usurpation = None;
    for (index, step) in steps.into_iter().enumerate() {
        if index == at {
            memory.usurp(live.id());
            at_usurpation = Some(memory.events(live.id()).len());
        }
        match step {
            Step::Note | Step::Deltas(_) => note(&live, index as u64),
            Step::Inject(operation, fault) => memory.inject(operation, fault),
            Step::Sleep(wait) => tokio::time::sleep(Duration::from_millis(wait)).await,
            _ => {
                let _ = live.flush().await;
            }
        }
        check(&memory, &live, 0);
    }
    if let Some(stored) = at_usurpation {
        memory.clear_faults();
        note(&live, u64::MAX >> 12);
        let error = live.flush().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LostOwnership);
        assert_eq!(memory.events(live.id()).len(), stored, "not one event after another took over");
    }
}

fn run(future: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap().block_on(future);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn l7_nothing_acknowledged_is_lost_and_nothing_doubled(steps in steps()) {
        run(play(steps));
    }

    #[test]
    fn b8_a_writer_that_was_superseded_stores_nothing_more(steps in steps(), at in 0_usize..60) {
        run(play_with_a_rival(steps, at));
    }
}
