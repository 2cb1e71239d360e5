//! Random lives of stored sessions: sealed, half sealed and in memory they agree on everything, for every prefix.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "seqs and names are small and known"
)]

#[path = "model_session/program.rs"]
#[allow(dead_code, reason = "a part is used here")]
mod program;
mod segment_common;

use proptest::prelude::*;
use segment_common::{header, id, lines, simulated};
use sessionlog::backend::{Checkpoint, Expected, ReadLimit};
use sessionlog::event::{Batch, Event, Item};
use sessionlog::sample::Recording;
use sessionlog::segment::files::{Operation, SimulatedFiles};
use sessionlog::segment::{CheckStatus, Engine, SealOptions};
use sessionlog::session::fold::Fold;
use sessionlog::session::{Seed, Session, SessionOptions};

fn items_from(engine: &Engine, from: u64) -> Vec<Item> {
    let mut items = Vec::new();
    let mut next = Some(from);
    while let Some(seq) = next {
        let page = engine.read(&id("s"), seq, ReadLimit { events: 13, bytes: 700 }).unwrap();
        items.extend(page.items);
        next = page.next;
    }
    items
}

fn view(seed: impl Into<Seed>) -> Session {
    Session::view(header("s"), seed, SessionOptions::new()).unwrap()
}

/// What a resuming store reads: the checkpoint, the events on its surface, and what follows.
fn seed_of(engine: &Engine) -> (Seed, Option<u64>) {
    let opened = engine.open_session(&id("s")).unwrap();
    let Some(checkpoint) = opened.checkpoint else { return (items_from(engine, 0).into(), None) };
    let Checkpoint { next_seq, .. } = checkpoint;
    let fold = Fold::from_checkpoint(&checkpoint).unwrap();
    let surface = engine.read_events(&id("s"), fold.surface().nodes()).unwrap();
    assert_eq!(surface.iter().map(Event::seq).collect::<Vec<_>>(), fold.surface().nodes());
    let items = if next_seq < opened.head.next_seq { items_from(engine, next_seq) } else { Vec::new() };
    (Seed { checkpoint: Some((checkpoint, surface)), items }, Some(next_seq))
}

fn assert_agrees(engine: &Engine, events: &[Event]) -> Option<u64> {
    let items = items_from(engine, 0);
    let stored: Vec<Event> = items.iter().flat_map(Item::events).collect();
    assert_eq!(lines(&stored), lines(events));
    let memory = view(events.to_vec());
    let (seed, sealed) = seed_of(engine);
    for (what, session) in [("replayed", view(items)), ("from the checkpoint", view(seed))] {
        assert_eq!(session.checkpoint(), memory.checkpoint(), "{what}");
        assert_eq!(session.surface().nodes(), memory.surface().nodes(), "{what}");
        assert_eq!(session.messages(), memory.messages(), "{what}");
        assert_eq!(session.request_header(), memory.request_header(), "{what}");
        assert_eq!(session.todos(), memory.todos(), "{what}");
        assert_eq!(session.usage(), memory.usage(), "{what}");
        assert_eq!(session.open_turn(), memory.open_turn(), "{what}");
        assert_eq!(session.pending_calls(), memory.pending_calls(), "{what}");
        assert_eq!(session.title(), memory.title(), "{what}");
    }
    sealed
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Append(usize),
    Reopen,
    Seal(i32),
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1_usize..12).prop_map(Step::Append),
        1 => Just(Step::Reopen),
        2 => (1_i32..5).prop_map(Step::Seal),
        1 => Just(Step::Crash),
    ];
    prop::collection::vec(step, 1..25)
}

struct Life {
    files: SimulatedFiles,
    engine: Engine,
    background: bool,
    head: Option<(u64, u64)>,
    stored: usize,
}

impl Life {
    fn open(files: &SimulatedFiles, background: bool) -> Engine {
        simulated(files).rotate_at(1200).background_sealing(background).open("/store").unwrap()
    }

    fn append(&mut self, events: &[Event]) {
        let Some(batch) = Batch::pack(events.iter().cloned()) else { return };
        let session = id("s");
        let head = match self.head {
            Some((epoch, next_seq)) => {
                self.engine.append(&session, None, Expected { epoch, next_seq }, &batch).unwrap()
            }
            None if self.stored == 0 => {
                self.engine.append(&session, Some(&header("s")), Expected::ABSENT, &batch).unwrap()
            }
            None => {
                let taken = self.engine.take_over(&session).unwrap().head;
                let expected = Expected { epoch: taken.epoch, next_seq: taken.next_seq };
                self.engine.append(&session, None, expected, &batch).unwrap()
            }
        };
        self.head = Some((head.epoch, head.next_seq));
        self.stored += events.len();
    }

    fn release(&mut self) {
        if let Some((epoch, _)) = self.head.take() {
            self.engine.release(&id("s"), epoch).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn l3_sealed_half_sealed_and_in_memory_agree_for_every_prefix(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        steps in steps(),
        seed: u64,
        background: bool,
    ) {
        let events = program::run(&bytes).events(..);
        let files = SimulatedFiles::new(seed);
        let engine = Life::open(&files, background);
        let mut life = Life { files, engine, background, head: None, stored: 0 };
        for step in steps {
            match step {
                Step::Append(count) => {
                    let to = events.len().min(life.stored + count);
                    life.append(&events[life.stored..to]);
                }
                Step::Reopen => life.release(),
                Step::Seal(level) if life.stored > 0 => {
                    life.release();
                    life.engine.seal(&id("s"), SealOptions::new().level(level)).unwrap();
                }
                Step::Seal(_) => {}
                Step::Crash => {
                    life.head = None;
                    life.engine = Life::open(&SimulatedFiles::new(0), false);
                    life.files.crash();
                    life.engine = Life::open(&life.files, life.background);
                }
            }
            if life.stored > 0 {
                assert_agrees(&life.engine, &events[..life.stored]);
            }
        }
        if life.stored > 0 {
            life.release();
            let check = life.engine.verify(&id("s"));
            prop_assert_eq!(check.status, CheckStatus::Ok, "{:?}", check.error);
            life.engine.seal(&id("s"), SealOptions::new()).unwrap();
            let sealed = assert_agrees(&life.engine, &events[..life.stored]);
            prop_assert_eq!(sealed, Some(life.stored as u64), "a program's log is one that a session accepts");
        }
    }
}

/// A recorded session on simulated files, in appends of `window` events.
fn recorded(recording: &Recording, window: usize) -> (SimulatedFiles, Engine, Vec<Event>) {
    let files = SimulatedFiles::new(9);
    let engine = simulated(&files).rotate_at(1 << 20).open("/store").unwrap();
    let events: Vec<Event> = recording.iter().collect();
    let mut expected = Expected::ABSENT;
    for piece in events.chunks(window) {
        let batch = Batch::pack(piece.iter().cloned()).unwrap();
        let create = (expected == Expected::ABSENT).then(|| header("s"));
        let head = engine.append(&id("s"), create.as_ref(), expected, &batch).unwrap();
        expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
    }
    engine.release(&id("s"), expected.epoch).unwrap();
    (files, engine, events)
}

#[test]
fn l3_recorded_sessions_resume_from_their_checkpoint() {
    for recording in [Recording::new(3).events(6_000), Recording::new(4).events(6_000).compacting()] {
        let (_, engine, events) = recorded(&recording, 37);
        engine.seal(&id("s"), SealOptions::new().level(1)).unwrap();
        assert_eq!(assert_agrees(&engine, &events), Some(6_000));
    }
}

#[test]
fn g10_reading_the_end_and_resuming_touch_only_the_blocks_they_need() {
    const EVENTS: u64 = 100_000;
    let (files, engine, events) = recorded(&Recording::new(5).events(EVENTS).compacting(), 400);
    engine.seal(&id("s"), SealOptions::new().level(1)).unwrap();
    let path = std::path::Path::new("/store/sessions/s/00000000000000000000.seg");
    let whole = files.contents(path).unwrap();
    let deltas: Vec<u64> = (0..10).rev().map(|number| number * 9_777).collect();
    let fetched = engine.read_events(&id("s"), &deltas).unwrap();
    let wanted: Vec<Event> = deltas.iter().map(|seq| events[*seq as usize].clone()).collect();
    assert_eq!(lines(&fetched), lines(&wanted));
    assert!(engine.read_events(&id("s"), &[EVENTS]).is_err());
    assert_eq!(engine.read_events(&id("s"), &[5, 5]).unwrap().len(), 2);

    // The first block cannot be read any more, and nobody who does not need it notices.
    let mut bad = whole.clone();
    bad[100] ^= 1;
    files.overwrite(path, &bad).unwrap();
    let before = files.calls_of(Operation::ReadAt);
    let (seed, sealed) = seed_of(&engine);
    let resuming = files.calls_of(Operation::ReadAt) - before;
    assert_eq!((sealed, view(seed).checkpoint()), (Some(EVENTS), view(events.clone()).checkpoint()));
    let before = files.calls_of(Operation::ReadAt);
    let mut reader = engine.reader(&id("s")).unwrap();
    reader.seek(EVENTS - 100);
    let page = reader.next_page(ReadLimit::default()).unwrap();
    let last = files.calls_of(Operation::ReadAt) - before;
    let read: Vec<Event> = page.items.iter().flat_map(Item::events).collect();
    assert_eq!(lines(&read), lines(&events[(EVENTS - 100) as usize..]));
    println!("{} bytes sealed; {resuming} reads to resume, {last} for the last hundred events", whole.len());
    assert!(last <= 14, "{last}");
    assert_eq!(engine.verify(&id("s")).status, CheckStatus::Damaged);
    reader.seek(0);
    assert!(reader.next_page(ReadLimit::default()).is_err());
}
