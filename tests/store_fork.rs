//! A child is what a reader of its stored log finds, whichever way its parent was at hand.
#![cfg(feature = "store")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking"
)]

#[path = "simulation/agent.rs"]
mod agent;
mod store_common;

use proptest::prelude::*;
use sessionlog::backend::memory::{Fault, MemoryBackend, Operation};
use sessionlog::backend::{Backend, ErrorKind};
use sessionlog::event::control::{TurnEnd, TurnStart};
use sessionlog::event::message::UserMessage;
use sessionlog::event::{JsonText, NewEvent, Placement, SessionHeader};
use sessionlog::segment::SegmentBackend;
use sessionlog::session::Session;
use sessionlog::store::{ForkAt, ForkError, Store, StoreError};
use store_common::{lines, options, stored};

/// What the parent is when it is forked.
#[derive(Debug, Clone, Copy)]
enum Parent {
    /// Live since it was created.
    Live,
    /// Live, opened from what is stored.
    Resumed,
    /// Closed.
    Stored,
}

#[derive(Debug, Clone)]
struct Case {
    choices: Vec<u64>,
    parent: Parent,
    /// Bytes of a note at the front; more than a session holds off the surface makes it be opened by its state.
    note: usize,
    at: Option<u64>,
    more: Vec<u64>,
}

fn cases() -> impl Strategy<Value = Case> {
    let choices = || proptest::collection::vec(any::<u64>(), 0..60);
    let parent = prop_oneof![Just(Parent::Live), Just(Parent::Resumed), Just(Parent::Stored)];
    let note = prop_oneof![2 => Just(0), 1 => Just(1_100_000)];
    (choices(), parent, note, proptest::option::of(any::<u64>()), choices())
        .prop_map(|(choices, parent, note, at, more)| Case { choices, parent, note, at, more })
}

fn assert_same(one: &Session, other: &Session) {
    assert_eq!(one.checkpoint(), other.checkpoint());
    assert_eq!(one.surface().nodes(), other.surface().nodes());
    assert_eq!(one.messages(), other.messages());
    assert_eq!(one.request_header(), other.request_header());
    assert_eq!(one.todos(), other.todos());
    assert_eq!(one.usage(), other.usage());
    assert_eq!(one.title(), other.title());
    assert_eq!(one.next_seq(), other.next_seq());
}

async fn play<B: Backend>(store: Store<B>, case: &Case) {
    let mut source = store.create(SessionHeader::new("source")).await.unwrap();
    if case.note > 0 {
        let note = JsonText::parse(&format!("\"{}\"", "n".repeat(case.note))).unwrap();
        source.append_event(NewEvent::named("app/note", note)).unwrap();
    }
    source.append_surface(UserMessage::text("hello"), Placement::append()).unwrap();
    case.choices.iter().for_each(|choice| agent::act(&source, *choice));
    if matches!(case.parent, Parent::Resumed) {
        source.close().await.unwrap();
        source = store.resume("source").await.unwrap();
        case.more.iter().for_each(|choice| agent::act(&source, *choice));
    }
    let at = case.at.map_or(ForkAt::LastTurn, |at| ForkAt::Seq(at % source.next_seq()));
    let forked = if matches!(case.parent, Parent::Stored) {
        source.close().await.unwrap();
        store.fork("source", at, "child").await
    } else {
        store.fork(&source, at, "child").await
    };
    let child = match forked {
        Ok(child) => child,
        Err(StoreError::Fork(ForkError::InsideTurn { .. })) => return,
        Err(error) => panic!("{error}"),
    };
    let prefix = child.header().seed_length.unwrap() as usize;
    child.flush().await.unwrap();
    assert_eq!(stored(&store, "child").await[..prefix], stored(&store, "source").await[..prefix]);
    assert_same(&child, store.inspect("child").await.unwrap().session());
    case.more.iter().for_each(|choice| agent::act(&child, *choice));
    child.flush().await.unwrap();
    let seen = store.inspect("child").await.unwrap();
    assert_eq!(child.messages(), seen.session().messages());
    let held = child.events(..);
    let first = held.first().map_or(0, |event| event.seq() as usize);
    assert_eq!(lines(&held), stored(&store, "child").await[first..]);
    child.close().await.unwrap();
    store.close().await.unwrap();
}

#[tokio::test]
async fn l5_a_live_session_hands_its_state_on_and_its_child_is_not_read() {
    for (note, held_from) in [(10, 0), (1_100_000, 5)] {
        let backend = MemoryBackend::new();
        let store = options().open(backend.clone()).unwrap();
        let source = store.create(SessionHeader::new("source")).await.unwrap();
        let text = JsonText::parse(&format!("\"{}\"", "n".repeat(note))).unwrap();
        source.append_event(NewEvent::named("app/note", text)).unwrap();
        source.append_surface(UserMessage::text("hello"), Placement::append()).unwrap();
        source.append(TurnStart::new(1)).unwrap();
        source.append(TurnEnd::completed(1)).unwrap();
        source.append_surface(UserMessage::text("more"), Placement::append()).unwrap();
        // This backend's own fork reads the source to copy it; whoever reads a session opens it first.
        backend.inject(Operation::Open, Fault::Fail(ErrorKind::Io));
        let child = store.fork(&source, ForkAt::End, "child").await.unwrap();
        assert_eq!((child.next_seq(), child.first_held_seq()), (6, held_from), "of {note} bytes");
        assert_eq!(child.messages(), source.messages());
        backend.clear_faults();
        child.flush().await.unwrap();
        assert_eq!(stored(&store, "child").await[..5], stored(&store, "source").await[..]);
    }
}

fn run(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn l5_a_child_is_what_its_stored_log_says(case in cases()) {
        run(play(options().open(MemoryBackend::new()).unwrap(), &case));
        let directory = tempfile::tempdir().unwrap();
        run(play(options().open(SegmentBackend::open(directory.path()).unwrap()).unwrap(), &case));
    }
}
