//! The write-behind over a memory backend: windows, the shared barrier, bounds, failures, lost answers, ownership, closing.
#![cfg(feature = "store")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use sessionlog::backend::ErrorKind;
use sessionlog::backend::memory::{Fault, MemoryBackend, Operation};
use sessionlog::event::control::{TurnEnd, TurnStart};
use sessionlog::event::message::UserMessage;
use sessionlog::event::{Event, JsonText, NewEvent, Placement, SessionHeader, SessionId, Vocabulary};
use sessionlog::session::{AppendError, Observer, Session, Veto};
use sessionlog::store::{ForkAt, ForkError, Health, ListOptions, LiveSession, Store, StoreError, StoreOptions};

type Live = LiveSession<MemoryBackend>;

const WINDOW: Duration = Duration::from_millis(200);

fn options() -> StoreOptions {
    StoreOptions::new().vocabulary(Vocabulary::core().with_name("app/x"))
}

fn store_over(backend: &MemoryBackend) -> Store<MemoryBackend> {
    options().open(backend.clone()).unwrap()
}

fn id() -> SessionId {
    SessionId::new("s").unwrap()
}

async fn session_over(backend: &MemoryBackend) -> (Store<MemoryBackend>, Live) {
    let store = store_over(backend);
    let session = store.create(SessionHeader::new("s")).await.unwrap();
    (store, session)
}

fn append(session: &Session, number: u64) -> Event {
    let data = JsonText::parse(&format!("{{\"n\":{number}}}")).unwrap();
    session.append_event(NewEvent::named("app/x", data)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_first_event_after_idle_starts_a_window_that_later_events_do_not_extend() {
    let backend = MemoryBackend::new();
    let (_store, session) = session_over(&backend).await;
    append(&session, 0);
    tokio::time::sleep(WINDOW / 2).await;
    append(&session, 1);
    assert!(backend.events(&id()).is_empty(), "nothing is stored before the window ends");
    tokio::time::sleep(WINDOW / 2 + Duration::from_millis(5)).await;
    assert_eq!(backend.events(&id()).len(), 2, "the window is counted from the first event");
    // The next event starts a window of its own.
    append(&session, 2);
    tokio::time::sleep(WINDOW / 2).await;
    assert_eq!(backend.events(&id()).len(), 2);
    tokio::time::sleep(WINDOW / 2 + Duration::from_millis(5)).await;
    assert_eq!(backend.events(&id()).len(), 3);
    assert_eq!(backend.batches(&id()), [0, 2], "a window is one batch");
}

#[tokio::test(start_paused = true)]
async fn l7_a_flush_is_shared_and_covers_what_was_appended_before_it() {
    let backend = MemoryBackend::new();
    let (_store, session) = session_over(&backend).await;
    for number in 0..5 {
        append(&session, number);
    }
    let hold = backend.hold_appends();
    let flushes: Vec<_> = (0..10)
        .map(|_| {
            let session = session.clone();
            tokio::spawn(async move { session.flush().await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(1)).await;
    // Admitted while the batch is in flight: the same drain takes it.
    append(&session, 5);
    assert!(backend.events(&id()).is_empty());
    drop(hold);
    for flush in flushes {
        flush.await.unwrap().unwrap();
    }
    assert_eq!(backend.events(&id()).len(), 6);
    assert_eq!(backend.batches(&id()), [0, 5], "at most one batch is in flight; what arrives meanwhile is the next");
    session.flush().await.unwrap();
    assert_eq!(backend.calls(Operation::Append), 2, "a flush of nothing asks the backend nothing");
}

#[tokio::test(start_paused = true)]
async fn c1_a_failed_batch_stays_at_the_head_shows_in_health_and_is_retried() {
    let backend = MemoryBackend::new();
    let (store, session) = session_over(&backend).await;
    let mut watch = session.watch();
    append(&session, 0);
    backend.inject(Operation::Append, Fault::Fail(ErrorKind::DiskFull));
    let error = session.flush().await.unwrap_err();
    assert_eq!((error.kind(), error.events), (ErrorKind::DiskFull, 1));
    assert!(watch.has_changed().unwrap());
    assert!(matches!(&*watch.borrow_and_update(), Health::Degraded { cause: ErrorKind::DiskFull, events: 1, .. }));
    // Appends go on, health keeps telling, and counts what waits.
    append(&session, 1);
    assert!(matches!(store.health(), Health::Degraded { events: 2, .. }));
    // The next event's window is the next attempt.
    tokio::time::sleep(WINDOW + Duration::from_millis(5)).await;
    assert_eq!(backend.events(&id()).len(), 2);
    assert_eq!((session.health(), store.health()), (Health::Ok, Health::Ok));
    assert!(matches!(&*watch.borrow_and_update(), Health::Ok));
    assert_eq!(backend.batches(&id()), [0], "one batch, in order");
}

#[tokio::test(start_paused = true)]
async fn at_the_bound_appends_are_refused_and_nothing_accepted_is_lost() {
    let backend = MemoryBackend::new();
    let store = options().queue_bytes(2_000).open(backend.clone()).unwrap();
    let session = store.create(SessionHeader::new("s")).await.unwrap();
    let mut accepted = Vec::new();
    let refused = loop {
        let data = JsonText::parse(&format!("\"{}\"", "x".repeat(100))).unwrap();
        match session.append_event(NewEvent::named("app/x", data)) {
            Ok(event) => accepted.push(event),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, AppendError::BufferFull(full) if full.limit == 2_000 && full.waiting_bytes <= 2_000));
    assert_eq!(session.next_seq(), accepted.len() as u64, "a refused event is not in the log");
    session.flush().await.unwrap();
    accepted.push(append(&session, 9));
    session.flush().await.unwrap();
    assert_eq!(backend.events(&id()), accepted);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_settled_by_looking_never_by_writing_again_blindly() {
    for (fault, batches) in [(Fault::LostAfter, vec![0, 1]), (Fault::LostBefore, vec![0])] {
        let backend = MemoryBackend::new();
        let (store, session) = session_over(&backend).await;
        append(&session, 0);
        backend.inject(Operation::Append, fault);
        let first = session.flush().await;
        assert_eq!(
            first.is_ok(),
            fault == Fault::LostAfter,
            "what has landed is no failure, what has not is no success"
        );
        append(&session, 1);
        session.flush().await.unwrap();
        let stored = backend.events(&id());
        assert_eq!(stored, session.events(..), "{fault:?}");
        assert_eq!(backend.batches(&id()), batches, "{fault:?}");
        assert_eq!(store.health(), Health::Ok);
    }
}

#[tokio::test(start_paused = true)]
async fn b3_b8_a_writer_that_lost_its_session_fails_for_good_and_never_rebases() {
    let backend = MemoryBackend::new();
    let (store, session) = session_over(&backend).await;
    append(&session, 0);
    session.flush().await.unwrap();
    backend.usurp(&id());
    append(&session, 1);
    let error = session.flush().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LostOwnership);
    assert_eq!(session.flush().await.unwrap_err().kind(), ErrorKind::LostOwnership, "it stays lost");
    assert!(matches!(session.health(), Health::Degraded { cause: ErrorKind::LostOwnership, events: 1, .. }));
    assert_eq!(backend.events(&id()).len(), 1);
    assert_eq!(session.events(..).len(), 2, "what was accepted is still in memory");
    assert!(session.close().await.is_err(), "closing says that something was never written");
    assert!(matches!(
        store.fork(&session, ForkAt::End, "c").await,
        Err(StoreError::Fork(ForkError::StaleHandle { .. }))
    ));
}

#[tokio::test(start_paused = true)]
async fn dropping_a_flush_loses_nothing() {
    let backend = MemoryBackend::new();
    let (_store, session) = session_over(&backend).await;
    append(&session, 0);
    let hold = backend.hold_appends();
    let cancelled = tokio::time::timeout(Duration::from_millis(1), session.flush()).await;
    assert!(cancelled.is_err());
    append(&session, 1);
    drop(hold);
    session.flush().await.unwrap();
    assert_eq!(backend.events(&id()), session.events(..));
}

#[tokio::test(start_paused = true)]
async fn a14_closing_drains_and_dropping_drains_in_the_background() {
    let backend = MemoryBackend::new();
    let (store, session) = session_over(&backend).await;
    append(&session, 0);
    session.close().await.unwrap();
    assert_eq!(backend.events(&id()).len(), 1);
    assert!(matches!(
        session.append_event(NewEvent::named("app/x", JsonText::parse("1").unwrap())),
        Err(AppendError::Disposed { .. })
    ));

    let again = store.resume("s").await.unwrap();
    append(&again, 1);
    drop(again);
    // Resuming waits for the session that is just being given back.
    let last = store.resume("s").await.unwrap();
    assert_eq!(last.events(..).iter().filter(|event| event.event_type() == "app/x").count(), 2);
    last.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn c4_a_store_that_cannot_write_says_so_when_it_closes_and_can_be_closed_again() {
    let backend = MemoryBackend::new();
    let (store, session) = session_over(&backend).await;
    append(&session, 0);
    backend.inject(Operation::Append, Fault::Fail(ErrorKind::Io));
    let Err(StoreError::Unwritten(errors)) = store.close().await else { panic!("closing is not silent") };
    assert_eq!((errors[0].session.clone(), errors[0].kind()), (id(), ErrorKind::Io));
    assert!(matches!(store.create(SessionHeader::new("t")).await, Err(StoreError::Closed)));
    store.close().await.unwrap();
    assert_eq!(backend.events(&id()).len(), 1);
}

#[test]
fn flush_blocking_works_from_a_plain_thread_also_after_the_runtime_is_gone() {
    let backend = MemoryBackend::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (_store, session) = runtime.block_on(session_over(&backend));
    append(&session, 0);
    session.flush_blocking().unwrap();
    assert_eq!(backend.events(&id()).len(), 1);
    drop(runtime);
    append(&session, 1);
    session.flush_blocking().unwrap();
    assert_eq!(backend.events(&id()).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn without_persistence_nothing_is_written_and_health_says_off() {
    let backend = MemoryBackend::new();
    let store = options().persistence(false).open(backend.clone()).unwrap();
    let session = store.create(SessionHeader::new("s")).await.unwrap();
    append(&session, 0);
    session.flush().await.unwrap();
    assert_eq!((session.health(), store.health()), (Health::Off, Health::Off));
    assert_eq!(backend.calls(Operation::Append), 0);
}

#[tokio::test(start_paused = true)]
async fn an_effect_runs_only_after_its_checkpoint() {
    let backend = MemoryBackend::new();
    let (_store, session) = session_over(&backend).await;
    append(&session, 0);
    backend.inject(Operation::Append, Fault::Fail(ErrorKind::DiskFull));
    let mut ran = false;
    let outcome = session.before_tool(async || ran = true).await;
    assert!(outcome.is_err() && !ran);
    assert_eq!(session.before_tool(async || 7).await.unwrap(), 7);
    assert_eq!(backend.events(&id()).len(), 1);
}

struct Refuses;

impl Observer for Refuses {
    fn created(&self, _: &Session) -> Result<(), Veto> {
        Err(Veto::new("not today"))
    }

    fn event(&self, _: &Session, _: &Event) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn l2_a_veto_leaves_nothing_behind() {
    let backend = MemoryBackend::new();
    let store = options().observer(Arc::new(Refuses)).open(backend.clone()).unwrap();
    assert!(matches!(store.create(SessionHeader::new("s")).await, Err(StoreError::Session(_))));
    assert_eq!(store.health(), Health::Ok);
    assert!(store_over(&backend).create(SessionHeader::new("s")).await.is_ok(), "the id is free");
}

#[tokio::test(start_paused = true)]
async fn l3_r2_r3_inspecting_writes_nothing_and_resuming_closes_once() {
    let backend = MemoryBackend::new();
    let (store, session) = session_over(&backend).await;
    session.append(TurnStart::new(1)).unwrap();
    session.append_surface(UserMessage::text("hi"), Placement::append()).unwrap();
    session.flush().await.unwrap();

    let beside = store.inspect("s").await.unwrap();
    assert!(beside.is_live() && beside.recovery().is_clean() && beside.open_turn().is_some());
    assert!(matches!(store.resume("s").await, Err(error) if error.kind() == ErrorKind::Busy));

    // The process dies.
    backend.crash();
    let other = store_over(&backend);
    let before = backend.events(&id());
    let inspected = other.inspect("s").await.unwrap();
    assert_eq!((inspected.durable_seq(), inspected.recovery().closed.map(|closed| closed.next_seq)), (2, Some(3)));
    assert!(inspected.open_turn().is_none() && !inspected.is_live());
    assert_eq!(backend.events(&id()), before, "an inspection writes nothing");

    let reads = backend.calls(Operation::Read);
    let resumed = other.resume("s").await.unwrap();
    assert_eq!(backend.calls(Operation::Read), reads, "what the inspection read is used while its revision holds");
    assert_eq!(resumed.recovery().closed, inspected.recovery().closed);
    assert_eq!(backend.events(&id()).len(), 3, "the closers are durable at once");
    resumed.close().await.unwrap();
    let again = other.resume("s").await.unwrap();
    assert!(again.recovery().is_clean());
    assert_eq!(again.first_live_seq(), again.next_seq(), "the seed ends in its mark already");
    again.close().await.unwrap();
    drop(session);
}

#[tokio::test(start_paused = true)]
async fn v2_a_required_type_that_nobody_knows_is_refused_and_the_session_is_given_back() {
    let backend = MemoryBackend::new();
    let (store, session) = session_over(&backend).await;
    append(&session, 0);
    session.close().await.unwrap();
    let strict = StoreOptions::new().vocabulary(Vocabulary::core()).open(backend.clone()).unwrap();
    for error in [strict.resume("s").await.err().unwrap(), strict.inspect("s").await.err().unwrap()] {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("app/x"), "{error}");
    }
    store.resume("s").await.unwrap().close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn l5_forks_copy_the_prefix_and_refuse_with_distinct_errors() {
    let backend = MemoryBackend::new();
    let store = store_over(&backend);
    let session = store.create(SessionHeader::new("s").cwd("/srv")).await.unwrap();
    for turn in 1..=2 {
        session.append(TurnStart::new(turn)).unwrap();
        session.append_surface(UserMessage::text("hi"), Placement::append()).unwrap();
        session.append(TurnEnd::completed(turn)).unwrap();
    }
    session.append(TurnStart::new(3)).unwrap();
    let kind = |result: Result<Live, StoreError>| match result {
        Err(StoreError::Fork(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(matches!(kind(store.fork("nobody", ForkAt::End, "c").await), ForkError::SourceNotFound { .. }));
    assert!(matches!(kind(store.fork(&session, ForkAt::End, "c").await), ForkError::InsideTurn { boundary: 6, .. }));
    assert!(matches!(kind(store.fork(&session, ForkAt::Seq(4), "c").await), ForkError::InsideTurn { boundary: 4, .. }));
    assert!(matches!(
        kind(store.fork(&session, ForkAt::Seq(70), "c").await),
        ForkError::NoSuchEvent { next_seq: 7, .. }
    ));
    assert!(matches!(kind(store.fork(&session, ForkAt::LastTurn, "s").await), ForkError::ChildExists { .. }));

    let source = backend.events(&id());
    for (at, boundary) in [(ForkAt::LastTurn, 5), (ForkAt::Seq(2), 2)] {
        let child_id = format!("child-{boundary}");
        let child = store.fork(&session, at, child_id.as_str()).await.unwrap();
        let taken = child.events(..=boundary);
        assert_eq!(taken, source[..=usize::try_from(boundary).unwrap()], "the prefix, byte for byte");
        assert_eq!(child.next_seq(), boundary + 2, "and the mark behind it (L3)");
        let header = child.header();
        assert_eq!((header.cwd.as_deref(), header.parent_session.as_deref()), (Some("/srv"), Some("s")));
        assert_eq!(header.seed_length, Some(boundary + 1));
        child.close().await.unwrap();
    }
    assert_eq!(backend.events(&id()), source, "the source does not change");

    let empty = store.create(SessionHeader::new("empty")).await.unwrap();
    let child = store.fork(&empty, ForkAt::End, "empty-child").await.unwrap();
    assert_eq!(child.next_seq(), 0);
    session.close().await.unwrap();
    assert!(matches!(kind(store.fork(&session, ForkAt::LastTurn, "c").await), ForkError::StaleHandle { .. }));
}

#[tokio::test(start_paused = true)]
async fn listings_pages_and_deletion() {
    let backend = MemoryBackend::new();
    let (store, session) = session_over(&backend).await;
    for number in 0..100 {
        append(&session, number);
    }
    session.flush().await.unwrap();
    let listing = store.list(ListOptions::default()).await.unwrap();
    assert_eq!((listing.sessions.len(), listing.errors.len()), (1, 0));
    let reads = backend.calls(Operation::Read);
    let mut pages = store.events("s", 10..=50).limit_events(5);
    let mut seqs = Vec::new();
    while let Some(event) = pages.next().await.unwrap() {
        seqs.push(event.seq());
    }
    assert_eq!(seqs, (10..=50).collect::<Vec<_>>());
    assert!(backend.calls(Operation::Read) - reads >= 8, "a page holds no more than its limit");
    assert!(matches!(store.delete("s").await, Err(error) if error.kind() == ErrorKind::Busy));
    session.close().await.unwrap();
    store.delete("s").await.unwrap();
    assert!(matches!(store.resume("s").await, Err(error) if error.kind() == ErrorKind::NotFound));
}

#[derive(Debug, Clone)]
enum Step {
    Append,
    Flush,
    Sleep(u64),
    Fault(Fault),
    FaultHead(Fault),
    CancelFlush,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let fault = prop_oneof![
        Just(Fault::Fail(ErrorKind::DiskFull)),
        Just(Fault::Fail(ErrorKind::Io)),
        Just(Fault::LostBefore),
        Just(Fault::LostAfter),
        (1_u32..5).prop_map(Fault::Delayed),
    ];
    let step = prop_oneof![
        6 => Just(Step::Append),
        2 => Just(Step::Flush),
        2 => (1_u64..400).prop_map(Step::Sleep),
        2 => fault.prop_map(Step::Fault),
        1 => Just(Step::FaultHead(Fault::Fail(ErrorKind::Io))),
        1 => Just(Step::CancelFlush),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever fails when: a flush that says `Ok` has everything before it stored, the stored log is always a prefix of what was
    /// accepted, and once the backend is well nothing is missing and nothing is there twice.
    #[test]
    fn l7_under_any_faults_nothing_acknowledged_is_lost_and_nothing_is_doubled(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let backend = MemoryBackend::new();
            let (store, session) = session_over(&backend).await;
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Append => drop(append(&session, number as u64)),
                    Step::Flush => {
                        let before = session.next_seq();
                        if session.flush().await.is_ok() {
                            assert!(backend.events(&id()).len() as u64 >= before, "a flush that says Ok is durable");
                            assert_eq!(session.health(), Health::Ok);
                        } else {
                            assert_ne!(session.health(), Health::Ok, "a failed flush shows");
                        }
                    }
                    Step::Sleep(milliseconds) => tokio::time::sleep(Duration::from_millis(milliseconds)).await,
                    Step::Fault(fault) => backend.inject(Operation::Append, fault),
                    Step::FaultHead(fault) => backend.inject(Operation::Head, fault),
                    Step::CancelFlush => {
                        let _ = tokio::time::timeout(Duration::ZERO, session.flush()).await;
                    }
                }
                let (stored, accepted) = (backend.events(&id()), session.events(..));
                assert_eq!(stored[..], accepted[..stored.len()], "what is stored is a prefix of what was accepted");
            }
            backend.clear_faults();
            session.flush().await.unwrap();
            assert_eq!(backend.events(&id()), session.events(..));
            assert_eq!(store.health(), Health::Ok);
            store.close().await.unwrap();
        });
    }
}
