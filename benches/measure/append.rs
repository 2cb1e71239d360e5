//! Appending to a live session (G1, G14), and the processor time of the whole durable path (G2).

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sessionlog::event::chunk::AssistantChunk;
use sessionlog::event::control::{StepEnd, StepStart, TurnEnd, TurnStart};
use sessionlog::event::message::UserMessage;
use sessionlog::event::{Event, NewEvent, Payload, Placement, SessionHeader};
use sessionlog::sample::{Recording, SMALL_EVENTS};
use sessionlog::segment::{EngineOptions, SegmentBackend};
use sessionlog::session::{Observer, Session};
use sessionlog::store::{LiveSession, Store, StoreOptions};

use super::child::{self, Taken};
use super::inputs::renewed;
use super::row::{Row, Unit, count, median};
use super::{Figures, Plan, files, memory};

/// An observer that does the least an observer can.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Observer for Counter {
    fn event(&self, _session: &Session, event: &Event) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.0.fetch_add(event.seq(), Ordering::Relaxed);
        Ok(())
    }
}

/// An append as the agent loop makes it.
#[derive(Debug)]
pub enum Append {
    Chunk(AssistantChunk),
    New(NewEvent),
}

impl Append {
    pub fn of(event: &Event) -> Self {
        match event.payload::<AssistantChunk>() {
            Ok(Some(chunk)) => Self::Chunk(chunk),
            _ => Self::New(renewed(event)),
        }
    }

    pub fn to(self, session: &Session) {
        let appended = match self {
            Self::Chunk(chunk) => session.append(chunk),
            Self::New(new) => session.append_event(new),
        };
        appended.expect("an append");
    }
}

/// A runtime as an agent server has it.
pub fn runtime(threads: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().expect("a runtime")
}

/// A live session in a step, with an observer and its writer at work.
async fn open_step(root: &Path) -> (Store<SegmentBackend>, LiveSession<SegmentBackend>) {
    let options = StoreOptions::new().observer(Arc::new(Counter::default()));
    let store = options.open(SegmentBackend::open(root).expect("a store")).expect("a store");
    let session = store.create(SessionHeader::new("live")).await.expect("a session");
    session.append(TurnStart::new(1)).expect("an append");
    session.append_surface(UserMessage::text("go"), Placement::append()).expect("an append");
    session.append(StepStart::new(1, 1)).expect("an append");
    (store, session)
}

const DELTAS: u64 = 200_000;

/// Seconds a delta and allocations a delta, appended from a thread of its own as a client's callback does.
fn deltas(session: &LiveSession<SegmentBackend>) -> (f64, f64) {
    let chunks: Vec<AssistantChunk> = (0..DELTAS).map(|_| AssistantChunk::text(1, 1, 0, " token")).collect();
    let (start, before) = (Instant::now(), memory::allocations());
    for chunk in chunks {
        session.append(chunk).expect("an append");
    }
    let elapsed = start.elapsed().as_secs_f64();
    (elapsed / DELTAS as f64, (memory::allocations() - before) as f64 / DELTAS as f64)
}

/// The least that a log of JSON text can do with a delta: print it and keep the text.
fn as_json() -> f64 {
    let chunks: Vec<AssistantChunk> = (0..DELTAS).map(|_| AssistantChunk::text(1, 1, 0, " token")).collect();
    let mut kept: Vec<String> = Vec::new();
    let start = Instant::now();
    for chunk in chunks {
        kept.push(serde_json::to_string(&chunk).expect("JSON"));
    }
    let elapsed = start.elapsed().as_secs_f64();
    black_box(kept);
    elapsed / DELTAS as f64
}

/// Bytes that a live session holds for each delta of a recording beyond its text (`held`), and the mean text (`bytes`). A process of
/// its own, where nothing else allocates or frees.
pub fn held_child() -> Taken {
    let recording = Recording::new(1).events(SMALL_EVENTS * 4);
    let mut text = 0.0;
    let mut deltas = 0.0;
    for event in recording.iter() {
        if let Ok(Some(chunk)) = event.payload::<AssistantChunk>()
            && let Some(delta) = chunk.as_delta()
        {
            deltas += 1.0;
            text += delta.text.len() as f64;
        }
    }
    let session = |events: &mut dyn Iterator<Item = Event>| {
        let before = memory::held();
        let session = Session::create(recording.header(), sessionlog::session::SessionOptions::default());
        let session = session.expect("a session");
        for event in events {
            // Whatever the generator shares with its events dies here: only what the session itself holds is left.
            session.append_event(renewed(&event)).expect("an append");
        }
        let held = memory::held() - before;
        drop(session);
        held
    };
    let whole = session(&mut recording.iter());
    let others = recording.iter().filter(|event| {
        let chunk = event.payload::<AssistantChunk>().expect("a sound chunk");
        chunk.as_ref().and_then(Payload::as_delta).is_none()
    });
    // Their sources would name deltas that are not there.
    let others = others.zip(0..).map(|(event, seq)| {
        let mut new = renewed(&event);
        new.placement = new.placement.map(|_| Placement::append());
        new.at(seq, event.time())
    });
    let without = session(&mut others.into_iter());
    Taken { held: (whole - without - text) / deltas, bytes: text / deltas, ..Taken::default() }
}

/// Appends a recording of that many events, flushing at the end of each step and turn, and counts the processor time of the
/// whole process. The second word says whether sealing in the background counts.
pub fn durable_child(root: &Path, words: &[&str]) -> Taken {
    let events = words.first().and_then(|word| word.parse().ok()).unwrap_or(SMALL_EVENTS);
    let sealing = words.get(1) == Some(&"sealing");
    let recording = Recording::new(1).events(events);
    let mut steps: Vec<Vec<Append>> = vec![Vec::new()];
    for event in recording.iter() {
        let ends = event.is::<StepEnd>() || event.is::<TurnEnd>();
        steps.last_mut().expect("a step").push(Append::of(&event));
        if ends {
            steps.push(Vec::new());
        }
    }
    let runtime = runtime(1);
    runtime.block_on(async {
        let engine = EngineOptions::new().background_sealing(sealing);
        let backend = SegmentBackend::with_options(root, engine).expect("a store");
        let store = StoreOptions::new().window(Duration::from_secs(60)).open(backend).expect("a store");
        let live = store.create(recording.header()).await.expect("a session");
        let (processor, start) = (memory::processor_time(), Instant::now());
        for step in steps {
            step.into_iter().for_each(|append| append.to(live.session()));
            live.flush().await.expect("a flush");
        }
        let seconds = start.elapsed().as_secs_f64();
        if sealing {
            live.close().await.expect("a close");
            super::inputs::settle(store.backend().engine(), live.id());
        }
        let processor = memory::processor_time() - processor;
        Taken { seconds, processor, peak: memory::peak(), count: events, ..Taken::default() }
    })
}

/// Rows G1, G2 and G14.
pub fn measure(plan: &Plan, figures: &mut Figures) {
    let root = files::fresh(&plan.work, "append");
    let runtime = runtime(1);
    let (_store, session) = runtime.block_on(open_step(&root));
    let (mut ours, mut json, mut allocations) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.rounds().max(5) {
        let (seconds, count) = deltas(&session);
        ours.push(seconds);
        allocations.push(count);
        json.push(as_json());
    }
    runtime.block_on(session.close()).expect("a close");
    drop(session);
    let each = median(&allocations);
    let none = each < 0.01;
    let row = Row::new("G1", "append of a streamed delta, observer and write-behind attached", &ours, Unit::Seconds);
    let row = row.beside("the delta printed as JSON and kept", &json).stated("dsh", 25e-6);
    let met = row.ours.value <= 0.5e-6 && none;
    figures.rows.push(row.judged("<= 0.5 us, no allocation in the steady state", met).note(format!(
        "{} allocations a delta (the growing run's and one each {} deltas)",
        count((each * 1e4).round() / 1e4),
        4096
    )));

    let Taken { held, bytes, .. } = child::run("held", &root, &[]);
    assert!(held >= 0.0, "a delta is held: {held} bytes beyond its text");
    let row = Row::new("G14", "memory of a live session for a streamed delta, beyond its text", &[held], Unit::Bytes);
    let row = row.beside("the text itself", &[bytes]).stated("dsh, text included", 230.0);
    figures.rows.push(row.at_most(12.0).note("bytes allocated with the deltas less those without, over the deltas"));

    let events = plan.large() / 10;
    let name = events.to_string();
    let (mut path, mut sealed, mut elapsed) = (Vec::new(), Vec::new(), Vec::new());
    let mut jsonl = Vec::new();
    for round in 0..plan.rounds() {
        let root = files::fresh(&plan.work, "durable");
        let taken = child::run("durable", &root, &[&name, "bare"]);
        path.push(taken.processor / taken.count as f64);
        elapsed.push(taken.seconds / taken.count as f64);
        if round < 3 {
            let root = files::fresh(&plan.work, "durable");
            let taken = child::run("durable", &root, &[&name, "sealing"]);
            sealed.push(taken.processor / taken.count as f64);
        }
        if let Some(peers) = &plan.peers {
            let root = files::fresh(&plan.work, "durable");
            jsonl.push(peers.processor_per_event("jsonl", &root, events));
        }
    }
    let row = Row::new("G2", "processor time an event, appended and flushed at each step", &path, Unit::Seconds);
    let row = row.beside("JSON lines + fdatasync", &jsonl).stated("dsh", 42e-6).at_most(1e-6);
    figures.rows.push(row.note(format!(
        "{events} events; sealing in the background adds {}",
        super::row::seconds(median(&sealed) - median(&path))
    )));
    let _ = std::fs::remove_dir_all(root);
}
