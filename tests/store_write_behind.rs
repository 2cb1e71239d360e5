//! Write-behind: windows, the flush barrier, failures, lost answers, lost ownership, the bound of the queue.
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

use sessionlog::backend::memory::{Fault, MemoryBackend, Operation};
use sessionlog::backend::{Backend, ErrorKind};
use sessionlog::event::control::{TodoWrite, TurnEnd, TurnStart};
use sessionlog::event::{JsonText, NewEvent, SessionHeader};
use sessionlog::session::{AppendError, Session};
use sessionlog::store::checkpoint::Moment;
use sessionlog::store::{Health, ListOptions, LiveSession, Store, StoreError};
use store_common::{id, lines, options, stored, turn};

type Live = LiveSession<MemoryBackend>;

async fn fresh() -> (MemoryBackend, Store<MemoryBackend>, Live) {
    let memory = MemoryBackend::new();
    let store = options().open(memory.clone()).unwrap();
    let session = store.create(SessionHeader::new("s")).await.unwrap();
    (memory, store, session)
}

fn note(session: &Session, text: &str) {
    let data = JsonText::parse(&format!("\"{text}\"")).unwrap();
    session.append_event(NewEvent::named("app/note", data)).unwrap();
}

fn is_stored(memory: &MemoryBackend, session: &Session) -> bool {
    lines(&memory.events(session.id())) == lines(&session.events(..))
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn creation_is_lazy_and_the_first_batch_brings_the_header() {
    let (memory, store, session) = fresh().await;
    session.flush().await.unwrap();
    assert_eq!(
        (memory.calls(Operation::Append), store.list(ListOptions::default()).await.unwrap().sessions.len()),
        (0, 0)
    );
    note(&session, "first");
    session.flush().await.unwrap();
    assert_eq!(memory.open(session.id()).await.unwrap().header, *session.header());
    assert!(is_stored(&memory, &session));
}

#[tokio::test(start_paused = true)]
async fn the_window_is_fixed_and_never_extended() {
    let (memory, _store, session) = fresh().await;
    for round in 0..3 {
        let before = memory.batches(session.id()).len();
        note(&session, "first after idle");
        for _ in 0..19 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            note(&session, "later");
        }
        assert_eq!(memory.batches(session.id()).len(), before, "round {round}: nothing is written within the window");
        let accepted = session.next_seq();
        tokio::time::sleep(Duration::from_millis(11)).await;
        assert_eq!(memory.batches(session.id()).len(), before + 1, "round {round}: one batch when it ends");
        assert_eq!(memory.events(session.id()).len() as u64, accepted);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(memory.batches(session.id()).len(), before + 1, "and nothing while idle");
    }
}

#[tokio::test(start_paused = true)]
async fn at_most_one_batch_is_in_flight_and_what_arrives_meanwhile_is_the_next() {
    let (memory, _store, session) = fresh().await;
    let hold = memory.hold_appends();
    note(&session, "a");
    tokio::time::sleep(Duration::from_millis(201)).await;
    note(&session, "b");
    note(&session, "c");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(memory.batches(session.id()).is_empty());
    drop(hold);
    session.flush().await.unwrap();
    assert_eq!(memory.batches(session.id()), [0, 1]);
    assert!(is_stored(&memory, &session));
}

#[tokio::test(start_paused = true)]
async fn l7_flush_cuts_the_window_short_and_callers_share_it() {
    let (memory, _store, session) = fresh().await;
    let hold = memory.hold_appends();
    note(&session, "a");
    let flushes: Vec<_> =
        (0..20).map(|_| session.clone()).map(|live| tokio::spawn(async move { live.flush().await })).collect();
    tokio::task::yield_now().await;
    note(&session, "while it runs");
    let late = tokio::spawn({
        let live = session.clone();
        async move { live.flush().await }
    });
    tokio::task::yield_now().await;
    assert!(flushes.iter().all(|flush| !flush.is_finished()));
    drop(hold);
    for flush in flushes {
        flush.await.unwrap().unwrap();
    }
    late.await.unwrap().unwrap();
    // Drained to quiescence: the second batch holds what came in meanwhile.
    assert_eq!(memory.batches(session.id()), [0, 1]);
    assert_eq!(memory.calls(Operation::Append), 2);
}

#[tokio::test(start_paused = true)]
async fn l7_a_source_faster_than_the_medium_does_not_keep_a_flush_for_ever() {
    let (memory, _store, session) = fresh().await;
    for _ in 0..100 {
        memory.inject(Operation::Append, Fault::Delayed(5));
    }
    note(&session, "a");
    let source = tokio::spawn({
        let live = session.clone();
        async move {
            loop {
                note(&live, "more");
                tokio::task::yield_now().await;
            }
        }
    });
    session.flush().await.unwrap();
    source.abort();
}

#[tokio::test(start_paused = true)]
async fn a_failed_batch_stays_at_the_head_shows_and_is_retried() {
    let (memory, store, session) = fresh().await;
    let mut watch = session.watch();
    assert_eq!(*watch.borrow_and_update(), Health::Ok);
    turn(&session, 1);
    memory.inject(Operation::Append, Fault::Fail(ErrorKind::DiskFull));
    let error = session.flush().await.unwrap_err();
    assert_eq!((error.kind(), error.events), (ErrorKind::DiskFull, 5));
    assert!(error.bytes > 0 && error.to_string().contains("session s: 5 events"), "{error}");
    let Health::Degraded { since, cause, events, bytes, .. } = session.health() else {
        panic!("{:?}", session.health())
    };
    assert_eq!((cause, events, bytes), (ErrorKind::DiskFull, 5, error.bytes));
    assert_eq!(store.health(), session.health());
    assert!(matches!(*watch.borrow_and_update(), Health::Degraded { events: 5, .. }));

    // No event, no flush: no retry behind anyone's back.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(memory.calls(Operation::Append), 1);

    // The window of the next event tries again; the failure goes on from where it began.
    memory.inject(Operation::Append, Fault::Fail(ErrorKind::Io));
    note(&session, "next");
    tokio::time::sleep(Duration::from_millis(201)).await;
    let Health::Degraded { since: still, cause, events, .. } = session.health() else { panic!() };
    assert_eq!((still, cause, events), (since, ErrorKind::Io, 6));

    note(&session, "and another");
    tokio::time::sleep(Duration::from_millis(201)).await;
    assert_eq!(session.health(), Health::Ok);
    assert!(watch.has_changed().unwrap() && watch.borrow_and_update().is_ok());
    assert_eq!(memory.batches(session.id()), [0], "one batch with everything, in order");
    assert!(is_stored(&memory, &session));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_arrives_during_a_failing_attempt_brings_the_retry() {
    let (memory, _store, session) = fresh().await;
    memory.inject(Operation::Append, Fault::Fail(ErrorKind::Io));
    let hold = memory.hold_appends();
    note(&session, "a");
    tokio::time::sleep(Duration::from_millis(201)).await;
    note(&session, "b");
    drop(hold);
    tokio::time::sleep(Duration::from_millis(201)).await;
    assert!(is_stored(&memory, &session) && session.health().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_looked_for_before_anything_else() {
    for (fault, landed) in [(Fault::LostAfter, true), (Fault::LostBefore, false)] {
        for first in [true, false] {
            let (memory, _store, session) = fresh().await;
            if !first {
                note(&session, "first");
                session.flush().await.unwrap();
            }
            turn(&session, 1);
            memory.inject(Operation::Append, fault);
            let result = session.flush().await;
            assert_eq!(result.is_ok(), landed, "{fault:?} {first}: {result:?}");
            assert_eq!(is_stored(&memory, &session), landed, "success and failure are both told truly");
            assert_eq!(session.health().is_ok(), landed);
            note(&session, "next");
            session.flush().await.unwrap();
            assert!(is_stored(&memory, &session), "{fault:?} {first}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_that_cannot_be_looked_for_stays_open_until_it_can() {
    for fault in [Fault::LostAfter, Fault::LostBefore] {
        let (memory, _store, session) = fresh().await;
        note(&session, "first");
        session.flush().await.unwrap();
        turn(&session, 1);
        memory.inject(Operation::Append, fault);
        memory.inject(Operation::Head, Fault::Fail(ErrorKind::Io));
        session.flush().await.unwrap_err();
        memory.inject(Operation::Head, Fault::Fail(ErrorKind::Io));
        session.flush().await.unwrap_err();
        assert_eq!(memory.calls(Operation::Append), 2, "never retried blindly");
        session.flush().await.unwrap();
        assert_eq!(memory.calls(Operation::Append), if fault == Fault::LostAfter { 2 } else { 3 });
        assert!(is_stored(&memory, &session));
        note(&session, "next");
        session.flush().await.unwrap();
        assert!(is_stored(&memory, &session));
    }
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_lost_the_session_never_writes_again_and_keeps_its_events() {
    let (memory, store, session) = fresh().await;
    turn(&session, 1);
    session.flush().await.unwrap();
    let before = memory.events(session.id()).len();
    note(&session, "mine");
    memory.usurp(session.id());
    let error = session.flush().await.unwrap_err();
    assert_eq!((error.kind(), error.events), (ErrorKind::LostOwnership, 1));
    note(&session, "more");
    let calls = memory.calls(Operation::Append);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(session.flush().await.unwrap_err().events, 2);
    assert_eq!(memory.calls(Operation::Append), calls, "not tried again");
    assert!(matches!(store.health(), Health::Degraded { cause: ErrorKind::LostOwnership, events: 2, .. }));
    assert_eq!(
        (memory.events(session.id()).len(), session.next_seq() as usize),
        (before, before + 2),
        "nothing rebased"
    );
    // Closing says so and lets go; the events are still in the handle.
    assert_eq!(session.close().await.unwrap_err().kind(), ErrorKind::LostOwnership);
    assert_eq!(session.events(..).len(), before + 2);
    memory.crash();
    store.resume("s").await.unwrap().close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_in_another_epoch_is_lost_ownership() {
    for fault in [Fault::LostAfter, Fault::LostBefore] {
        let (memory, _store, session) = fresh().await;
        note(&session, "first");
        session.flush().await.unwrap();
        note(&session, "second");
        memory.inject(Operation::Append, fault);
        memory.inject(Operation::Head, Fault::Usurped);
        assert_eq!(session.flush().await.unwrap_err().kind(), ErrorKind::LostOwnership);
        assert_eq!(session.flush().await.unwrap_err().kind(), ErrorKind::LostOwnership);
    }
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_loses_the_race_for_its_id_is_refused_for_good() {
    let (memory, _store, session) = fresh().await;
    let other = options().open(memory.clone()).unwrap();
    let rival = other.create(SessionHeader::new("s")).await.unwrap();
    note(&rival, "rival");
    rival.flush().await.unwrap();
    note(&session, "mine");
    assert_eq!(session.flush().await.unwrap_err().kind(), ErrorKind::Exists);
    assert!(is_stored(&memory, &rival));
    let error = other.create(SessionHeader::new("s")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    rival.close().await.unwrap();
    assert_eq!(other.create(SessionHeader::new("s")).await.unwrap_err().kind(), ErrorKind::Exists);
}

#[tokio::test(start_paused = true)]
async fn at_the_bound_append_refuses_and_nothing_accepted_is_lost() {
    let memory = MemoryBackend::new();
    let store = options().queue_bytes(2000).open(memory.clone()).unwrap();
    let session = store.create(SessionHeader::new("s")).await.unwrap();
    let big = JsonText::parse(&format!("\"{}\"", "x".repeat(5000))).unwrap();
    session.append_event(NewEvent::named("app/big", big.clone())).unwrap();
    let error = session.append_event(NewEvent::named("app/note", JsonText::parse("1").unwrap())).unwrap_err();
    let AppendError::BufferFull(full) = error else { panic!("{error}") };
    assert!(full.waiting_bytes > 5000 && full.limit == 2000);
    memory.inject(Operation::Append, Fault::Fail(ErrorKind::DiskFull));
    session.flush().await.unwrap_err();
    assert!(session.append(TurnStart::new(1)).is_err(), "a failing medium does not open the gate");
    session.flush().await.unwrap();
    session.append(TurnStart::new(1)).unwrap();
    let mut accepted = session.next_seq();
    while session.append(TodoWrite::new(Vec::new())).is_ok() {
        accepted += 1;
    }
    assert_eq!(session.next_seq(), accepted);
    session.flush().await.unwrap();
    session.append(TurnEnd::completed(1)).unwrap();
    session.flush().await.unwrap();
    assert!(is_stored(&memory, &session));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_flush_loses_nothing() {
    let (memory, _store, session) = fresh().await;
    let hold = memory.hold_appends();
    turn(&session, 1);
    for _ in 0..3 {
        let flush = tokio::time::timeout(Duration::from_millis(10), session.flush());
        assert!(flush.await.is_err());
    }
    drop(hold);
    session.flush().await.unwrap();
    assert!(is_stored(&memory, &session));
    assert_eq!(memory.batches(session.id()), [0]);
}

#[test]
fn flush_blocking_works_from_a_plain_thread_and_after_the_runtime_is_gone() {
    let memory = MemoryBackend::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let session = runtime.block_on(async {
        let store = options().open(memory.clone()).unwrap();
        let session = store.create(SessionHeader::new("s")).await.unwrap();
        note(&session, "inside");
        assert_eq!(session.flush_blocking().unwrap_err().kind(), ErrorKind::Invalid, "inside a runtime it refuses");
        let blocking = session.clone();
        let inner = tokio::task::spawn_blocking(move || tokio::runtime::Handle::current().block_on(blocking.flush()));
        inner.await.unwrap().unwrap();
        session
    });
    note(&session, "outside");
    session.flush_blocking().unwrap();
    assert!(is_stored(&memory, &session));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    note(&session, "from a thread");
                    let before = session.next_seq();
                    session.flush_blocking().unwrap();
                    assert!(memory.events(session.id()).len() as u64 >= before);
                }
            });
        }
    });
    drop(runtime);
    note(&session, "later");
    session.flush_blocking().unwrap();
    assert!(is_stored(&memory, &session));
    // And on another runtime the session is served again.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    note(&session, "again");
    runtime.block_on(session.flush()).unwrap();
    runtime.block_on(session.close()).unwrap();
    assert!(is_stored(&memory, &session));
}

#[test]
fn a_batch_in_flight_when_the_runtime_goes_down_is_settled_before_the_next() {
    let memory = MemoryBackend::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let hold = memory.hold_appends();
    let session = runtime.block_on(async {
        let store = options().open(memory.clone()).unwrap();
        let session = store.create(SessionHeader::new("s")).await.unwrap();
        turn(&session, 1);
        let flush = tokio::time::timeout(Duration::from_millis(1), session.flush()).await;
        assert!(flush.is_err());
        session
    });
    drop(runtime);
    drop(hold);
    // Nothing landed: the attempt finds that out first, then writes.
    session.flush_blocking().unwrap();
    assert!(is_stored(&memory, &session));
}

#[tokio::test(start_paused = true)]
async fn a14_dropping_the_last_handle_writes_what_waits_and_gives_the_session_back() {
    let (memory, store, session) = fresh().await;
    turn(&session, 1);
    let expected = lines(&session.events(..));
    drop(session);
    let again = store.resume("s").await.unwrap();
    assert_eq!(lines(&again.events(..expected.len() as u64)), expected);
    turn(&again, 2);
    drop((again, store));
    until(|| !memory.events(&id("s")).is_empty() && memory.events(&id("s")).len() > 10).await;
    until(|| memory.calls(Operation::Release) == 2).await;
}

#[tokio::test(start_paused = true)]
async fn a14_a_dropped_session_that_cannot_be_written_stays_visible_until_the_store_is_closed() {
    let (memory, store, session) = fresh().await;
    turn(&session, 1);
    let expected = lines(&session.events(..));
    memory.inject(Operation::Append, Fault::Fail(ErrorKind::DiskFull));
    drop(session);
    until(|| !store.health().is_ok()).await;
    assert!(matches!(store.health(), Health::Degraded { cause: ErrorKind::DiskFull, events: 5, .. }));
    memory.inject(Operation::Append, Fault::Fail(ErrorKind::DiskFull));
    let error = store.close().await.unwrap_err();
    let StoreError::Unwritten(errors) = &error else { panic!("{error}") };
    assert_eq!((errors.len(), errors[0].events), (1, 5));
    assert!(matches!(store.create(SessionHeader::new("t")).await, Err(StoreError::Closed)));
    store.close().await.unwrap();
    assert!(store.health().is_ok());
    assert_eq!(stored(&store, "s").await, expected);
}

#[tokio::test(start_paused = true)]
async fn an_orphan_of_a_dropped_store_gets_one_last_attempt() {
    let (memory, store, session) = fresh().await;
    turn(&session, 1);
    drop(store);
    memory.inject(Operation::Append, Fault::Fail(ErrorKind::DiskFull));
    session.flush().await.unwrap_err();
    drop(session);
    until(|| memory.events(&id("s")).len() == 5).await;
}

#[tokio::test(start_paused = true)]
async fn closing_the_store_drains_every_session_and_refuses_appends() {
    let memory = MemoryBackend::new();
    let store = options().open(memory.clone()).unwrap();
    let mut sessions = Vec::new();
    for number in 0..10 {
        let session = store.create(SessionHeader::new(format!("s-{number}"))).await.unwrap();
        turn(&session, 1);
        sessions.push(session);
    }
    store.close().await.unwrap();
    for session in &sessions {
        assert!(is_stored(&memory, session));
        assert!(matches!(session.append(TurnStart::new(2)), Err(AppendError::Disposed { .. })));
        session.close().await.unwrap();
        session.flush().await.unwrap();
    }
    assert_eq!(memory.calls(Operation::Release), 10);
}

#[tokio::test(start_paused = true)]
async fn c4_if_a_checkpoint_fails_the_effect_does_not_happen() {
    let (memory, _store, session) = fresh().await;
    turn(&session, 1);
    memory.inject(Operation::Append, Fault::Fail(ErrorKind::DiskFull));
    let mut ran = false;
    let error = session.before_tool(async || ran = true).await.unwrap_err();
    assert_eq!((error.moment, error.error.kind(), ran), (Moment::BeforeTool, ErrorKind::DiskFull, false));
    assert!(error.to_string().starts_with("before the tool runs: session s"), "{error}");
    let seen = session.before_request(async || memory.events(session.id()).len()).await.unwrap();
    assert_eq!(seen, 5, "durable before the effect");
    session.after_step().await.unwrap();
    session.turn_end().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn with_persistence_off_health_says_so_and_nothing_is_written() {
    let memory = MemoryBackend::new();
    let store = options().persistence(false).open(memory.clone()).unwrap();
    let session = store.create(SessionHeader::new("s")).await.unwrap();
    turn(&session, 1);
    session.flush().await.unwrap();
    assert_eq!(
        (session.health(), store.health(), session.watch().borrow().clone()),
        (Health::Off, Health::Off, Health::Off)
    );
    assert_eq!(store.create(SessionHeader::new("s")).await.unwrap_err().kind(), ErrorKind::Busy);
    session.close().await.unwrap();
    store.create(SessionHeader::new("s")).await.unwrap();
    assert_eq!(memory.calls(Operation::Append), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn any_number_of_tasks_append_and_flush_at_once() {
    let memory = MemoryBackend::new();
    let store = options().check_invariants(false).window(Duration::from_millis(1)).open(memory.clone()).unwrap();
    let session = store.create(SessionHeader::new("s")).await.unwrap();
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let (live, memory) = (session.clone(), memory.clone());
            tokio::spawn(async move {
                for number in 0..100 {
                    let data = JsonText::parse(&format!("[{task},{number}]")).unwrap();
                    let event = live.append_event(NewEvent::named("app/note", data)).unwrap();
                    if number % 7 == 0 {
                        live.flush().await.unwrap();
                        assert_eq!(memory.events(live.id())[event.seq() as usize], event);
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    session.close().await.unwrap();
    assert_eq!(memory.events(session.id()).len(), 800);
    assert!(is_stored(&memory, &session));
}
