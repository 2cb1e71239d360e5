//! Sessions as wholes: create, resume, inspect, fork, list, read, over the memory backend and the segment engine alike.
#![cfg(feature = "store")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking"
)]

mod store_common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sessionlog::backend::memory::{Fault, MemoryBackend, Operation};
use sessionlog::backend::{Backend, Checkpoint, ErrorKind, TornTail};
use sessionlog::event::control::{StepStart, TurnStart};
use sessionlog::event::{Event, JsonText, NewEvent, SessionHeader, SessionId, Vocabulary};
use sessionlog::segment::SegmentBackend;
use sessionlog::session::{Observer, Session, SessionError, Veto};
use sessionlog::store::{ClosedTurn, ForkAt, ForkError, ListOptions, Store, StoreError};
use store_common::{end_turn, id, lines, open_turn, options, stored, turn};

/// Runs a test over every backend.
macro_rules! over_backends {
    ($($(#[$meta:meta])* $name:ident;)*) => {
        mod memory {
            use super::*;
            $(
                $(#[$meta])*
                #[tokio::test]
                async fn $name() {
                    super::$name(options().open(MemoryBackend::new()).unwrap()).await;
                }
            )*
        }
        mod segment {
            use super::*;
            $(
                $(#[$meta])*
                #[tokio::test]
                async fn $name() {
                    let directory = tempfile::tempdir().unwrap();
                    super::$name(options().open(SegmentBackend::open(directory.path()).unwrap()).unwrap()).await;
                }
            )*
        }
    };
}

over_backends! {
    a_session_comes_back_as_it_was;
    create_refuses_what_exists;
    r2_resume_closes_an_orphaned_turn_once;
    r3_inspect_writes_nothing_and_works_beside_a_writer;
    a_live_session_cannot_be_opened_twice;
    v2_a_refused_resume_gives_the_session_back;
    l2_a_veto_leaves_nothing_behind;
    l5_fork_takes_exactly_the_prefix_and_leaves_the_source;
    l5_every_refusal_of_a_fork_is_its_own;
    l6_out_of_band_events_are_durable_at_once;
    listings_go_on_where_they_ended;
    events_are_read_in_bounded_pages;
    a_deleted_session_is_gone;
    hostile_ids_are_sessions_like_others;
}

async fn a_session_comes_back_as_it_was<B: Backend>(store: Store<B>) {
    let session = store.create(SessionHeader::new("s").cwd("/srv/app")).await.unwrap();
    for number in 1..4 {
        turn(&session, number);
        session.flush().await.unwrap();
    }
    let (own, request, header) = (lines(&session.events(..)), session.request(), session.header().clone());
    session.close().await.unwrap();
    assert_eq!(stored(&store, "s").await, own);
    let again = store.resume("s").await.unwrap();
    assert_eq!((again.header(), again.first_live_seq()), (&header, own.len() as u64));
    assert_eq!(lines(&again.events(..own.len() as u64)), own);
    again.assert_model_visible(&request).unwrap();
    assert!(again.recovery().is_clean());
    assert_eq!(again.recovery().to_string(), "nothing to mend: 15 events stored, no turn open");
    // L3: the mark follows the seed and is stored with the next flush.
    assert_eq!(again.events(own.len() as u64..)[0].event_type(), "session/end-seed");
    again.flush().await.unwrap();
    turn(&again, 4);
    again.flush().await.unwrap();
    let own = lines(&again.events(..));
    store.close().await.unwrap();
    assert_eq!(stored(&store, "s").await, own);
}

async fn create_refuses_what_exists<B: Backend>(store: Store<B>) {
    let session = store.create(SessionHeader::new("s")).await.unwrap();
    assert_eq!(store.create(SessionHeader::new("s")).await.unwrap_err().kind(), ErrorKind::Busy);
    turn(&session, 1);
    session.close().await.unwrap();
    assert_eq!(store.create(SessionHeader::new("s")).await.unwrap_err().kind(), ErrorKind::Exists);
    assert_eq!(store.create(SessionHeader::new("")).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(store.create(SessionHeader::new("t").cwd("not/absolute")).await.unwrap_err().kind(), ErrorKind::Invalid);
    // A refusal leaves the id free, and so does a session that never had an event.
    let session = store.create(SessionHeader::new("t")).await.unwrap();
    session.close().await.unwrap();
    assert_eq!(store.resume("t").await.unwrap_err().kind(), ErrorKind::NotFound);
    store.create(SessionHeader::new("t")).await.unwrap();
}

async fn r2_resume_closes_an_orphaned_turn_once<B: Backend>(store: Store<B>) {
    let session = store.create(SessionHeader::new("s")).await.unwrap();
    turn(&session, 1);
    open_turn(&session, 2);
    let before = lines(&session.events(..));
    session.close().await.unwrap();
    let mut expected: Option<Vec<String>> = None;
    for round in 0..3 {
        let again = store.resume("s").await.unwrap();
        // The closers are durable before the handle is there; the mark is not yet.
        let now = stored(&store, "s").await;
        assert_eq!(now[..before.len()], before);
        let closers: Vec<String> = now[before.len()..].to_vec();
        let expected = expected.get_or_insert_with(|| closers.clone());
        assert_eq!(closers[..4], expected[..4], "round {round}");
        if round == 0 {
            let first_seq = before.len() as u64;
            let closed = ClosedTurn { turn: 2, not_started: 1, outcome_unknown: 1, first_seq, next_seq: first_seq + 4 };
            assert_eq!(again.recovery().closed, Some(closed));
            assert_eq!(
                again.recovery().to_string(),
                "10 events stored; turn 2 was interrupted and is closed, 1 tool call had not been started, 1 tool call had \
                 been started and the outcome is unknown (4 events added, from seq 10 to 13)"
            );
        } else {
            assert!(again.recovery().is_clean());
        }
        assert_eq!(again.messages().len(), 5);
        assert!(again.open_turn().is_none());
        again.close().await.unwrap();
        // Three rounds, one set of closers, one mark.
        assert_eq!(stored(&store, "s").await.len(), before.len() + 5);
    }
}

async fn r3_inspect_writes_nothing_and_works_beside_a_writer<B: Backend>(store: Store<B>) {
    assert_eq!(store.inspect("s").await.unwrap_err().kind(), ErrorKind::NotFound);
    let session = store.create(SessionHeader::new("s")).await.unwrap();
    open_turn(&session, 1);
    session.flush().await.unwrap();
    session.append(StepStart::new(1, 9)).unwrap_err();
    let beside = store.inspect("s").await.unwrap();
    assert!(beside.is_live() && beside.open_turn().is_some() && beside.recovery().is_clean());
    assert_eq!((beside.next_seq(), beside.durable_seq()), (5, 5));
    // The writer is not disturbed.
    end_turn(&session, 1);
    open_turn(&session, 2);
    session.close().await.unwrap();
    let revision = store.revision("s").await.unwrap();
    let seen = store.inspect("s").await.unwrap();
    assert!(!seen.is_live() && seen.open_turn().is_none() && seen.is_closed());
    assert_eq!((seen.durable_seq(), seen.next_seq(), seen.revision()), (15, 19, &revision));
    assert!(seen.recovery().to_string().contains("4 events added in memory only"), "{}", seen.recovery());
    assert_eq!((store.revision("s").await.unwrap(), stored(&store, "s").await.len()), (revision, 15));
    // What it showed is what a resume makes.
    let again = store.resume("s").await.unwrap();
    assert_eq!(lines(&again.events(..19)), lines(&seen.events(..)));
    again.close().await.unwrap();
}

async fn a_live_session_cannot_be_opened_twice<B: Backend>(store: Store<B>) {
    let session = store.create(SessionHeader::new("s")).await.unwrap();
    turn(&session, 1);
    session.close().await.unwrap();
    let (first, second) = tokio::join!(store.resume("s"), store.resume("s"));
    let (live, error) = match (first, second) {
        (Ok(live), Err(error)) | (Err(error), Ok(live)) => (live, error),
        other => panic!("{other:?}"),
    };
    let StoreError::Backend(error) = error else { panic!("{error}") };
    assert_eq!(error.holder.as_ref().and_then(|holder| holder.pid), Some(std::process::id()));
    assert!(error.to_string().contains("in this very process"), "{error}");
    assert_eq!(store.delete("s").await.unwrap_err().kind(), ErrorKind::Busy);
    // Given back by closing as by dropping.
    live.close().await.unwrap();
    drop(store.resume("s").await.unwrap());
    store.resume("s").await.unwrap();
}

async fn v2_a_refused_resume_gives_the_session_back<B: Backend>(store: Store<B>) {
    let session = store.create(SessionHeader::new("s")).await.unwrap();
    open_turn(&session, 1);
    session.append_event(NewEvent::named("app/unheard-of", JsonText::parse("{}").unwrap())).unwrap();
    session.close().await.unwrap();
    for _ in 0..2 {
        for error in [store.resume("s").await.unwrap_err(), store.inspect("s").await.unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            let StoreError::Unsupported { unknown, .. } = &error else { panic!("{error}") };
            assert_eq!((unknown.event_type.as_str(), unknown.seq), ("app/unheard-of", 5));
        }
    }
    // Nothing was closed or marked, raw reading works, and nobody holds the session.
    assert_eq!(stored(&store, "s").await.len(), 6);
    let taken = store.backend().take_over(&id("s")).await.unwrap();
    store.backend().release(&id("s"), taken.head.epoch).await.unwrap();
}

/// Writes down what it is told, and vetoes sessions whose id begins with `veto`.
#[derive(Default)]
struct Guard(Mutex<Vec<String>>);

impl Observer for Guard {
    fn created(&self, session: &Session) -> Result<(), Veto> {
        self.0.lock().unwrap().push(format!("created {}", session.id()));
        if session.id().as_str().starts_with("veto") { Err(Veto::new("not today")) } else { Ok(()) }
    }

    fn event(&self, _session: &Session, _event: &Event) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(())
    }

    fn disposed(&self, id: &SessionId) {
        self.0.lock().unwrap().push(format!("disposed {id}"));
    }
}

async fn l2_a_veto_leaves_nothing_behind<B: Backend>(store: Store<B>) {
    let source = store.create(SessionHeader::new("source")).await.unwrap();
    turn(&source, 1);
    source.close().await.unwrap();
    let guard = Arc::new(Guard::default());
    let guarded = options().observer(guard.clone()).open(Shared(store.clone())).unwrap();
    let refused = [
        guarded.create(SessionHeader::new("veto-new")).await.unwrap_err(),
        guarded.fork("source", ForkAt::End, "veto-fork").await.unwrap_err(),
    ];
    for error in refused {
        assert!(matches!(error, StoreError::Session(SessionError::Veto(_))), "{error}");
    }
    let told = ["created veto-new", "disposed veto-new", "created veto-fork", "disposed veto-fork"];
    assert_eq!(*guard.0.lock().unwrap(), told);
    assert_eq!(store.list(ListOptions::new()).await.unwrap().sessions.len(), 1);
    let live = guarded.create(SessionHeader::new("welcome")).await.unwrap();
    live.close().await.unwrap();
    assert_eq!(guard.0.lock().unwrap()[4..], ["created welcome", "disposed welcome"]);
}

async fn l5_fork_takes_exactly_the_prefix_and_leaves_the_source<B: Backend>(store: Store<B>) {
    let source = store.create(SessionHeader::new("source").cwd("/srv/app").agent_preset("x")).await.unwrap();
    // An empty source gives an empty child, which is not stored before it has an event.
    let empty = store.fork(&source, ForkAt::End, "empty").await.unwrap();
    assert_eq!((empty.next_seq(), empty.header().seed_length), (0, Some(0)));
    turn(&empty, 1);
    empty.close().await.unwrap();

    turn(&source, 1);
    turn(&source, 2);
    open_turn(&source, 3);
    // The live source is flushed first; its open turn is left out.
    let child = store.fork(&source, ForkAt::LastTurn, "child").await.unwrap();
    let header = child.header();
    assert_eq!((header.cwd.as_deref(), header.parent_session.as_deref()), (Some("/srv/app"), Some("source")));
    assert_eq!((header.seed_length, header.agent_preset.as_deref(), child.first_live_seq()), (Some(10), None, 10));
    let own = lines(&source.events(..));
    assert_eq!(lines(&child.events(..10)), own[..10]);
    assert_eq!(child.events(10..)[0].event_type(), "session/end-seed");
    assert_eq!(stored(&store, "source").await, own);
    let revision = store.revision("source").await.unwrap();

    let by_id = store.fork("source", ForkAt::Seq(4), "by-id").await.unwrap();
    assert_eq!((by_id.next_seq(), by_id.header().seed_length), (6, Some(5)));
    turn(&by_id, 2);
    for live in [&child, &by_id] {
        live.close().await.unwrap();
    }
    source.close().await.unwrap();
    let stored_fork = store.fork("source", ForkAt::LastTurn, "stored").await.unwrap();
    assert_eq!(stored_fork.first_live_seq(), 10);
    // A fork of a fork, at its end.
    let grandchild = store.fork("child", ForkAt::End, "grandchild").await.unwrap();
    assert_eq!(
        (grandchild.first_live_seq(), grandchild.next_seq()),
        (11, 11),
        "a seed that ends in a mark gets no other"
    );
    assert_eq!((store.revision("source").await.unwrap(), stored(&store, "source").await), (revision, own));
}

async fn l5_every_refusal_of_a_fork_is_its_own<B: Backend>(store: Store<B>) {
    fn refusal<B: Backend>(result: Result<sessionlog::store::LiveSession<B>, StoreError>) -> ForkError {
        match result {
            Err(StoreError::Fork(error)) => error,
            other => panic!("{other:?}"),
        }
    }
    let source = store.create(SessionHeader::new("source")).await.unwrap();
    turn(&source, 1);
    open_turn(&source, 2);
    source.flush().await.unwrap();
    let own = lines(&source.events(..));
    for by_handle in [true, false] {
        let fork = async |at, child: &str| {
            if by_handle { store.fork(&source, at, child).await } else { store.fork("source", at, child).await }
        };
        let error = refusal(fork(ForkAt::Seq(10), "child").await);
        assert!(matches!(error, ForkError::NoSuchEvent { boundary: 10, next_seq: 10, .. }), "{error}");
        let error = refusal(fork(ForkAt::Seq(2), "child").await);
        assert!(matches!(error, ForkError::InsideTurn { boundary: 2, opened_at: 0, last_closed: None, .. }), "{error}");
        let error = refusal(fork(ForkAt::End, "child").await);
        assert!(
            matches!(error, ForkError::InsideTurn { boundary: 9, opened_at: 5, last_closed: Some(4), .. }),
            "{error}"
        );
        assert!(matches!(refusal(fork(ForkAt::LastTurn, "source").await), ForkError::ChildExists { .. }));
    }
    assert_eq!(store.fork("source", ForkAt::LastTurn, "").await.unwrap_err().kind(), ErrorKind::Invalid);
    assert!(matches!(refusal(store.fork("nobody", ForkAt::End, "child").await), ForkError::SourceNotFound { .. }));
    let other = store.create(SessionHeader::new("other")).await.unwrap();
    assert!(matches!(refusal(store.fork(&source, ForkAt::LastTurn, "other").await), ForkError::ChildExists { .. }));
    open_turn(&other, 1);
    other.close().await.unwrap();
    assert!(matches!(refusal(store.fork(&source, ForkAt::LastTurn, "other").await), ForkError::ChildExists { .. }));
    assert!(matches!(refusal(store.fork("other", ForkAt::LastTurn, "child").await), ForkError::NoTurn { .. }));
    assert!(matches!(refusal(store.fork(&other, ForkAt::End, "child").await), ForkError::StaleHandle { .. }));
    assert_eq!(stored(&store, "source").await, own);
    assert_eq!(store.list(ListOptions::new()).await.unwrap().sessions.len(), 2, "refused forks left nothing");
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Remark {
    text: String,
}

sessionlog::log_event!(Remark, "app/remark", ignorable, out_of_band);

async fn l6_out_of_band_events_are_durable_at_once<B: Backend>(store: Store<B>) {
    let session = store.create(SessionHeader::new("s")).await.unwrap();
    session.append_out_of_band(Remark { text: "between turns".into() }).await.unwrap();
    assert_eq!((session.durable_seq(), stored(&store, "s").await.len()), (3, 3));
    session.append(TurnStart::new(2)).unwrap();
    session.append_out_of_band(Remark { text: "within".into() }).await.unwrap();
    assert_eq!((session.durable_seq(), stored(&store, "s").await.len()), (5, 5));
}

async fn listings_go_on_where_they_ended<B: Backend>(store: Store<B>) {
    for number in 0..7 {
        let session = store.create(SessionHeader::new(format!("s-{number}"))).await.unwrap();
        turn(&session, 1);
        session.close().await.unwrap();
    }
    let all = store.list(ListOptions::default()).await.unwrap();
    assert_eq!((all.sessions.len(), all.errors.len(), all.next), (7, 0, None));
    let (mut listed, mut options) = (Vec::new(), ListOptions::new().limit(3));
    loop {
        let page = store.list(options).await.unwrap();
        assert!(page.sessions.len() <= 3);
        listed.extend(page.sessions);
        match page.next {
            Some(next) => options = ListOptions::new().limit(3).after(next),
            None => break,
        }
    }
    assert_eq!(listed, all.sessions);
}

async fn events_are_read_in_bounded_pages<B: Backend>(store: Store<B>) {
    let session = store.create(SessionHeader::new("s")).await.unwrap();
    session.append(TurnStart::new(1)).unwrap();
    session.append(StepStart::new(1, 1)).unwrap();
    for number in 0..300 {
        let chunk = sessionlog::event::chunk::AssistantChunk::text(1, 1, 0, format!("piece {number} "));
        session.append(chunk).unwrap();
    }
    session.flush().await.unwrap();
    let own = lines(&session.events(..));
    for (range, expected) in
        [(0..302, &own[..]), (17..40, &own[17..40]), (290..9000, &own[290..]), (400..500, &own[..0])]
    {
        for limit in [1, 10, 1000] {
            for bytes in [1, 500, 1 << 20] {
                let mut pages = store.events("s", range.clone()).limit_events(limit).limit_bytes(bytes);
                let mut read = Vec::new();
                while let Some(event) = pages.next().await.unwrap() {
                    read.push(event.to_line());
                }
                assert_eq!(read, expected);
                assert!(pages.next().await.unwrap().is_none());
            }
        }
    }
    assert_eq!(store.events("nobody", ..).next().await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(store.events("", ..).next().await.unwrap_err().kind(), ErrorKind::Invalid);
}

async fn a_deleted_session_is_gone<B: Backend>(store: Store<B>) {
    let session = store.create(SessionHeader::new("s")).await.unwrap();
    turn(&session, 1);
    session.close().await.unwrap();
    store.inspect("s").await.unwrap();
    store.delete("s").await.unwrap();
    for kind in [
        store.delete("s").await.unwrap_err().kind(),
        store.inspect("s").await.unwrap_err().kind(),
        store.resume("s").await.unwrap_err().kind(),
    ] {
        assert_eq!(kind, ErrorKind::NotFound);
    }
    let session = store.create(SessionHeader::new("s")).await.unwrap();
    open_turn(&session, 1);
    session.close().await.unwrap();
    assert_eq!(store.resume("s").await.unwrap().next_seq(), 10);
}

async fn hostile_ids_are_sessions_like_others<B: Backend>(store: Store<B>) {
    for hostile in ["../../x", "nul\0", "CON", "a/b", "A", "a", &"x".repeat(300)] {
        let session = store.create(SessionHeader::new(hostile)).await.unwrap();
        turn(&session, 1);
        session.close().await.unwrap();
        assert_eq!(store.resume(hostile).await.unwrap().id().as_str(), hostile);
    }
    let absent = "x".repeat(301);
    assert_eq!(store.resume(absent.as_str()).await.unwrap_err().kind(), ErrorKind::NotFound);
}

/// A store's backend under another store, as another process would have it.
struct Shared<B: Backend>(Store<B>);

impl<B: Backend> Backend for Shared<B> {
    async fn open(&self, id: &SessionId) -> Result<sessionlog::backend::Opened, sessionlog::backend::BackendError> {
        self.0.backend().open(id).await
    }

    async fn read(
        &self,
        id: &SessionId,
        from: u64,
        limit: sessionlog::backend::ReadLimit,
    ) -> Result<sessionlog::backend::Page, sessionlog::backend::BackendError> {
        self.0.backend().read(id, from, limit).await
    }

    async fn take_over(&self, id: &SessionId) -> Result<sessionlog::backend::Taken, sessionlog::backend::BackendError> {
        self.0.backend().take_over(id).await
    }

    async fn append(
        &self,
        id: &SessionId,
        header: Option<&SessionHeader>,
        expected: sessionlog::backend::Expected,
        batch: &sessionlog::event::Batch,
    ) -> Result<sessionlog::backend::Head, sessionlog::backend::AppendError> {
        self.0.backend().append(id, header, expected, batch).await
    }

    async fn list(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<sessionlog::backend::ListPage, sessionlog::backend::BackendError> {
        self.0.backend().list(after, limit).await
    }

    async fn delete(&self, id: &SessionId) -> Result<(), sessionlog::backend::BackendError> {
        self.0.backend().delete(id).await
    }

    async fn release(&self, id: &SessionId, epoch: u64) -> Result<(), sessionlog::backend::BackendError> {
        self.0.backend().release(id, epoch).await
    }
}

async fn with_memory() -> (MemoryBackend, Store<MemoryBackend>) {
    let memory = MemoryBackend::new();
    let store = options().open(memory.clone()).unwrap();
    let session = store.create(SessionHeader::new("s")).await.unwrap();
    turn(&session, 1);
    open_turn(&session, 2);
    session.close().await.unwrap();
    (memory, store)
}

#[tokio::test]
async fn a_resume_after_an_inspection_reads_nothing_again_unless_the_log_changed() {
    let (memory, store) = with_memory().await;
    let seen = store.inspect("s").await.unwrap();
    let reads = memory.calls(Operation::Read);
    let live = store.resume("s").await.unwrap();
    assert_eq!(memory.calls(Operation::Read), reads);
    assert_eq!(lines(&live.events(..seen.next_seq())), lines(&seen.events(..)));
    live.close().await.unwrap();

    store.inspect("s").await.unwrap();
    let elsewhere = options().open(memory.clone()).unwrap();
    let live = elsewhere.resume("s").await.unwrap();
    turn(&live, 3);
    let own = lines(&live.events(..));
    live.close().await.unwrap();
    let reads = memory.calls(Operation::Read);
    let live = store.resume("s").await.unwrap();
    assert!(memory.calls(Operation::Read) > reads);
    assert_eq!(lines(&live.events(..own.len() as u64)), own);
}

#[tokio::test]
async fn a_resume_uses_the_checkpoint_and_never_trusts_a_broken_one() {
    for cut in [0, 2, 5, 7, 10] {
        let (memory, store) = with_memory().await;
        let whole = store.inspect("s").await.unwrap();
        let items = whole.items(0, cut);
        let checkpoint = sessionlog::session::Fold::of(&items).unwrap().checkpoint();
        memory.set_checkpoint(&id("s"), checkpoint);
        let seen = store.inspect("s").await.unwrap();
        assert_eq!((seen.next_seq(), seen.first_held_seq()), (whole.next_seq(), cut));
        assert_eq!(seen.request(), whole.request());
        assert_eq!(lines(&seen.events(..)), lines(&whole.events(cut..)));
        let live = store.resume("s").await.unwrap();
        live.assert_model_visible(&whole.request()).unwrap();
        turn(&live, 3);
        live.close().await.unwrap();
        assert_eq!(memory.events(&id("s"))[..14], whole.events(..)[..14]);
        // Forking looks at what the checkpoint hides as well.
        for (at, seed) in [(ForkAt::Seq(4), 5), (ForkAt::LastTurn, 20), (ForkAt::End, 20)] {
            let child = store.fork("s", at, format!("child-{seed}-{at:?}")).await.unwrap();
            assert_eq!(child.first_live_seq(), seed);
        }
    }
    let (memory, store) = with_memory().await;
    let whole = lines(&store.inspect("s").await.unwrap().events(..));
    for (next_seq, state) in [(5, "{}"), (5, "[]"), (9999, "{\"v\":1}")] {
        memory.set_checkpoint(&id("s"), Checkpoint { next_seq, state: JsonText::parse(state).unwrap() });
        assert_eq!(lines(&store.inspect("s").await.unwrap().events(..)), whole);
    }
}

#[tokio::test]
async fn r3_any_failure_of_a_resume_gives_the_session_back() {
    for (operation, fault) in [
        (Operation::Open, Fault::Fail(ErrorKind::Damaged)),
        (Operation::Read, Fault::Fail(ErrorKind::Io)),
        (Operation::Append, Fault::Fail(ErrorKind::DiskFull)),
        (Operation::Append, Fault::LostBefore),
        (Operation::Append, Fault::Usurped),
    ] {
        let (memory, store) = with_memory().await;
        memory.inject(operation, fault);
        store.resume("s").await.unwrap_err();
        if fault == Fault::Usurped {
            memory.crash();
        }
        assert!(!memory.open(&id("s")).await.unwrap().live, "{operation:?} {fault:?}");
        let live = store.resume("s").await.unwrap();
        assert_eq!((memory.events(&id("s")).len(), live.next_seq()), (14, 15));
    }
    // Closers whose answer was lost have landed all the same: there is one set of them.
    let (memory, store) = with_memory().await;
    memory.inject(Operation::Append, Fault::LostAfter);
    store.resume("s").await.unwrap();
    assert_eq!(memory.events(&id("s")).len(), 14);
    // A caller that stops waiting does not keep the session.
    let (memory, store) = with_memory().await;
    let hold = memory.hold_appends();
    tokio::time::timeout(Duration::from_millis(1), store.resume("s")).await.unwrap_err();
    drop(hold);
    while memory.open(&id("s")).await.unwrap().live {
        tokio::task::yield_now().await;
    }
    store.resume("s").await.unwrap();
}

#[tokio::test]
async fn r1_recovery_says_what_was_cut() {
    let (memory, store) = with_memory().await;
    let torn = TornTail { file: Some("s/7.log".into()), offset: 1234, bytes: 35, kept: Some("s/torn/7".into()) };
    memory.tear(&id("s"), torn);
    let live = store.resume("s").await.unwrap();
    assert!(live.recovery().to_string().starts_with(
        "10 events stored; cut an incomplete record of 35 bytes at offset 1234 of s/7.log (kept in s/torn/7); turn 2 was"
    ));
}

#[tokio::test]
async fn r3_a_live_writer_elsewhere_makes_a_resume_refuse() {
    let (memory, store) = with_memory().await;
    let elsewhere = options().open(memory.clone()).unwrap();
    let live = elsewhere.resume("s").await.unwrap();
    assert_eq!(store.resume("s").await.unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(store.delete("s").await.unwrap_err().kind(), ErrorKind::Busy);
    live.close().await.unwrap();
    store.resume("s").await.unwrap();
}

#[tokio::test]
async fn v2_types_that_the_caller_names_are_known() {
    let (memory, store) = with_memory().await;
    let live = store.resume("s").await.unwrap();
    live.append_event(NewEvent::named("app/mine", JsonText::parse("{}").unwrap())).unwrap();
    live.close().await.unwrap();
    assert_eq!(store.resume("s").await.unwrap_err().kind(), ErrorKind::Unsupported);
    let knowing = options().vocabulary(Vocabulary::well_known().with_name("app/mine")).open(memory).unwrap();
    knowing.resume("s").await.unwrap();
}

#[tokio::test]
async fn with_persistence_off_a_stored_session_is_looked_at_and_left_alone() {
    let (memory, _store) = with_memory().await;
    let off = options().persistence(false).open(memory.clone()).unwrap();
    let live = off.resume("s").await.unwrap();
    turn(&live, 3);
    live.flush().await.unwrap();
    assert_eq!((live.next_seq(), live.durable_seq(), memory.events(&id("s")).len()), (20, 0, 10));
    assert!(!memory.open(&id("s")).await.unwrap().live);
    assert_eq!(off.fork("s", ForkAt::End, "child").await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(off.delete("s").await.unwrap_err().kind(), ErrorKind::Invalid);
}
