//! The state before any seq, through checkpoints, is that of a full replay; pages of chosen events hold exactly those.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(clippy::cast_possible_truncation, reason = "seqs are small and known")]

#[path = "model_session/program.rs"]
#[allow(dead_code, reason = "a part is used here")]
mod program;
mod segment_common;

use proptest::prelude::*;
use segment_common::{header, id, lines, simulated};
use sessionlog::backend::{Expected, ReadLimit};
use sessionlog::event::{Batch, Event, Item};
use sessionlog::sample::Recording;
use sessionlog::segment::files::{Operation, SimulatedFiles};
use sessionlog::segment::{Engine, SealOptions, Selection, StateError};
use sessionlog::session::fold::Fold;
use sessionlog::session::history::{derive_message, fold_messages};

/// A stored session: appended in pieces, sealed after each piece that says so.
fn stored(files: &SimulatedFiles, events: &[Event], pieces: &[(usize, bool)]) -> Engine {
    let engine = simulated(files).rotate_at(1500).open("/store").unwrap();
    let session = id("s");
    let mut owned: Option<Expected> = None;
    let mut at = 0_usize;
    for (count, seal) in pieces.iter().copied().chain([(usize::MAX, false)]) {
        let to = events.len().min(at.saturating_add(count));
        if let Some(batch) = Batch::pack(events[at..to].iter().cloned()) {
            let expected = match owned {
                Some(expected) => expected,
                None if at == 0 => Expected::ABSENT,
                None => {
                    let taken = engine.take_over(&session).unwrap().head;
                    Expected { epoch: taken.epoch, next_seq: taken.next_seq }
                }
            };
            let create = (expected == Expected::ABSENT).then(|| header("s"));
            let head = engine.append(&session, create.as_ref(), expected, &batch).unwrap();
            owned = Some(Expected { epoch: head.epoch, next_seq: head.next_seq });
            at = to;
        }
        if at > 0
            && (seal || at == events.len())
            && let Some(expected) = owned.take()
        {
            engine.release(&session, expected.epoch).unwrap();
        }
        if at > 0 && seal {
            engine.seal(&session, SealOptions::new().level(1)).unwrap();
        }
    }
    engine
}

/// Everything that a state says but the time of a last event that is a streamed delta.
fn told(fold: &Fold) -> String {
    let state = fold.checkpoint().state.as_str().to_owned();
    let Some(at) = state.find(",\"lastTime\":") else { return state };
    let rest = &state[at + 12..];
    let end = rest.find([',', '}']).unwrap();
    format!("{}{}", &state[..at], &rest[end..])
}

fn assert_state_before(engine: &Engine, events: &[Event], end: u64) {
    let mut fold = Fold::new();
    engine.fold_before(&id("s"), end, &mut fold).unwrap();
    let prefix = &events[..events.len().min(end as usize)];
    let mut replayed = Fold::new();
    prefix.iter().for_each(|event| replayed.apply(event).unwrap());
    assert_eq!(told(&fold), told(&replayed), "before {end}");
    let surface = engine.read_events(&id("s"), fold.surface().nodes()).unwrap();
    let messages: Vec<_> = surface.iter().filter_map(derive_message).collect();
    assert_eq!(messages, fold_messages(prefix).unwrap().to_vec(), "before {end}");
}

fn chosen(engine: &Engine, from: u64, limit: ReadLimit, selection: &Selection<'_>) -> Vec<Event> {
    let mut reader = engine.reader(&id("s")).unwrap();
    reader.seek(from);
    let mut found = Vec::new();
    loop {
        let page = reader.next_page_of(limit, selection).unwrap();
        found.extend(page.items.iter().flat_map(Item::events));
        match page.next {
            Some(next) => assert_eq!(next, reader.position()),
            None => return found,
        }
    }
}

fn pieces() -> impl Strategy<Value = Vec<(usize, bool)>> {
    prop::collection::vec((1_usize..40, prop::bool::weighted(0.4)), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn d2_messages_at_every_seq_through_checkpoints_are_those_of_a_full_replay(
        bytes in prop::collection::vec(any::<u8>(), 1..160),
        pieces in pieces(),
        seed: u64,
    ) {
        let events = program::run(&bytes).events(..);
        prop_assume!(!events.is_empty());
        let engine = stored(&SimulatedFiles::new(seed), &events, &pieces);
        for end in 0..=events.len() as u64 + 1 {
            assert_state_before(&engine, &events, end);
        }
    }

    #[test]
    fn a_selection_gives_exactly_the_events_that_it_names(
        bytes in prop::collection::vec(any::<u8>(), 1..300),
        pieces in pieces(),
        seed: u64,
        from in 0_u64..80,
        end in 0_u64..200,
        limit in (1_u64..9, 0_usize..900),
        wanted in prop::sample::subsequence(vec!["assistant/chunk", "turn/start", "user/message", "tool/result", "none"], 0..4),
    ) {
        let events = program::run(&bytes).events(..);
        prop_assume!(!events.is_empty());
        let engine = stored(&SimulatedFiles::new(seed), &events, &pieces);
        let limit = ReadLimit { events: limit.0, bytes: limit.1 };
        let types = |name: &str| wanted.contains(&name);
        let expected = |end: u64| -> Vec<Event> {
            let named = events.iter().filter(|event| types(event.event_type()));
            named.filter(|event| (from..end).contains(&event.seq())).cloned().collect()
        };
        let all = Selection::types(&types);
        prop_assert_eq!(lines(&chosen(&engine, from, limit, &all)), lines(&expected(u64::MAX)));
        prop_assert_eq!(lines(&chosen(&engine, from, limit, &all.before(end))), lines(&expected(end)));
        // By payload: what is no delta is asked about, one by one.
        let odd = |_: &str, data: &str| data.len() % 2 == 1;
        let found = chosen(&engine, from, limit, &Selection::conversation().which(&odd));
        prop_assert!(found.iter().all(|event| event.data().len() % 2 == 1 && event.seq() >= from));
        let others = events.iter().filter(|event| event.seq() >= from && event.event_type() != "assistant/chunk");
        let others: Vec<Event> = others.filter(|event| event.data().len() % 2 == 1).cloned().collect();
        let found: Vec<Event> = found.into_iter().filter(|event| event.event_type() != "assistant/chunk").collect();
        prop_assert_eq!(lines(&found), lines(&others));
    }
}

#[test]
fn d2_a_recorded_session_at_any_moment_is_that_of_a_full_replay() {
    let events: Vec<Event> = Recording::new(6).events(5_000).compacting().iter().collect();
    let engine = stored(&SimulatedFiles::new(1), &events, &[(1_200, true), (900, false), (800, true), (700, true)]);
    for end in (0..=5_000).step_by(173).chain([1_199, 1_200, 1_201, 5_001]) {
        assert_state_before(&engine, &events, end);
    }
}

#[test]
fn g9_what_is_not_asked_for_is_not_read() {
    let events: Vec<Event> = Recording::new(7).events(60_000).compacting().iter().collect();
    let files = SimulatedFiles::new(2);
    let engine = stored(&files, &events, &[(20_000, true), (20_000, true), (20_000, true)]);
    let reads = |work: &dyn Fn()| {
        let before = files.calls_of(Operation::ReadAt);
        work();
        files.calls_of(Operation::ReadAt) - before
    };
    let all = reads(&|| drop(chosen(&engine, 0, ReadLimit::default(), &Selection::types(&|_| true))));
    let calls =
        reads(&|| drop(chosen(&engine, 0, ReadLimit::default(), &Selection::types(&|name| name == "tool/call"))));
    let nothing =
        reads(&|| drop(chosen(&engine, 0, ReadLimit::default(), &Selection::types(&|name| name == "app/none"))));
    let state = reads(&|| engine.fold_before(&id("s"), u64::MAX, &mut Fold::new()).unwrap());
    println!("{all} reads for everything, {calls} for the tool calls, {nothing} for nothing, {state} for the state");
    // Finding its way costs every reader the same. A block has three parts, of which what is said is one.
    assert!((calls - nothing) * 2 < all - nothing && state <= nothing, "{all} {calls} {nothing} {state}");
}

#[test]
fn r4_the_state_stops_at_damage_and_says_how_far_it_came() {
    let events: Vec<Event> = Recording::new(8).events(3_000).iter().collect();
    let files = SimulatedFiles::new(3);
    // Nothing sealed: all of it is read.
    let engine = stored(&files, &events, &[(1_000, false), (1_000, false)]);
    let path = std::path::Path::new("/store/sessions/s/00000000000000001000.log");
    let mut bytes = files.contents(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    files.overwrite(path, &bytes).unwrap();
    let mut fold = Fold::new();
    let Err(StateError::Backend(error)) = engine.fold_before(&id("s"), u64::MAX, &mut fold) else { panic!("damage") };
    assert_eq!(error.damage.unwrap().intact_before, fold.next_seq());
    assert_eq!(fold.next_seq(), 1_000);
    // Before the damage nothing is wrong.
    assert_state_before(&engine, &events, 900);
}
