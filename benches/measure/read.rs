//! Reading: everything (G7, G15), and the end alone (G10).

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::path::Path;
use std::time::Instant;

use sessionlog::backend::ReadLimit;
use sessionlog::event::chunk::AssistantChunk;
use sessionlog::event::control::{
    RequestContext, RequestHeader, StepEnd, StepStart, TodoWrite, ToolCall, TurnEnd, TurnStart,
};
use sessionlog::event::message::{AssistantMessage, ToolResult, UserMessage};
use sessionlog::event::{Event, Payload, SessionId};
use sessionlog::segment::Engine;

use super::child::{self, Taken, taken};
use super::inputs::{Inputs, Stored};
use super::row::{Row, Unit, bytes, median};
use super::size::Length;
use super::{Figures, Plan, files, memory};

/// Most memory that a streaming read may take.
const MOST_MEMORY: f64 = 64.0 * 1024.0 * 1024.0;

/// The event's payload as its Rust type, if the core has one for it.
fn parsed(event: &Event) -> bool {
    fn is<P: Payload>(event: &Event) -> bool {
        event.payload::<P>().expect("a sound payload").map(black_box).is_some()
    }
    is::<AssistantChunk>(event)
        || is::<AssistantMessage>(event)
        || is::<ToolCall>(event)
        || is::<ToolResult>(event)
        || is::<UserMessage>(event)
        || is::<TurnStart>(event)
        || is::<TurnEnd>(event)
        || is::<StepStart>(event)
        || is::<StepEnd>(event)
        || is::<TodoWrite>(event)
        || is::<RequestHeader>(event)
        || is::<RequestContext>(event)
}

/// Reads all events. `typed`: every delta as the chunk it was appended as, all others with their envelope taken apart and their
/// payload as text; `parsed`: every payload as its Rust type.
pub fn read_child(root: &Path, words: &[&str]) -> Taken {
    let [name, how] = words else { panic!("an id and a manner") };
    let parse = *how == "parsed";
    taken(|| {
        let engine = Engine::open(root).expect("a store");
        let mut reader = engine.reader(&SessionId::new(*name).expect("an id")).expect("the session");
        let (mut events, mut seen) = (0, 0);
        loop {
            let page = reader.next_page(ReadLimit::default()).expect("a page");
            for event in page.items.iter().flat_map(sessionlog::event::Item::events) {
                events += 1;
                if parse {
                    seen += usize::from(parsed(&event));
                } else if let Some(chunk) = event.payload::<AssistantChunk>().expect("a sound chunk") {
                    black_box(chunk);
                } else {
                    seen += black_box(event.data()).len();
                }
            }
            if page.next.is_none() {
                break;
            }
        }
        black_box(seen);
        (events, 0.0)
    })
}

/// Reads the last hundred events, from a store that this process has not seen, and then again.
pub fn tail_child(root: &Path, words: &[&str]) -> Taken {
    let [name] = words else { panic!("an id") };
    let id = SessionId::new(*name).expect("an id");
    let tail = |engine: &Engine| {
        let end = engine.head(&id).expect("the session").next_seq;
        let page = engine.read(&id, end.saturating_sub(100), ReadLimit::default()).expect("a page");
        page.items.iter().flat_map(sessionlog::event::Item::events).map(black_box).count() as u64
    };
    let start = Instant::now();
    let engine = Engine::open(root).expect("a store");
    let count = tail(&engine);
    let seconds = start.elapsed().as_secs_f64();
    let again: Vec<f64> = (0..9)
        .map(|_| {
            let start = Instant::now();
            tail(&engine);
            start.elapsed().as_secs_f64()
        })
        .collect();
    Taken { seconds, again: median(&again), count, peak: memory::peak(), ..Taken::default() }
}

/// Decodes a zstd file and forgets the bytes.
pub fn decode_child(file: &Path) -> Taken {
    taken(|| {
        let file = File::open(file).expect("a file");
        let mut decoder = zstd::Decoder::new(file).expect("a decoder");
        let length = io::copy(&mut decoder, &mut Length::default()).expect("a sound file");
        (0, length as f64)
    })
}

/// Rows G7, G10 and G15.
pub fn measure(plan: &Plan, inputs: &Inputs, figures: &mut Figures) {
    let compressed = plan.work.join("packed.zst");
    let encoder = zstd::Encoder::new(File::create(&compressed).expect("a file"), 3).expect("an encoder");
    inputs.large.recording.write_dsh(encoder).expect("a recording").finish().expect("a file");
    let peers = stored_by_peers(plan, inputs.large.events);

    let (mut typed, mut cold, mut whole, mut decode, mut tiny) = (vec![], vec![], vec![], vec![], vec![]);
    let mut theirs: Vec<(String, Vec<f64>)> = peers.iter().map(|(name, _)| (name.clone(), Vec::new())).collect();
    let (mut peak, mut tiny_peak) = (0.0_f64, 0.0_f64);
    let read = |stored: &Stored, how: &str| {
        let taken = child::run("read", &stored.root, &[stored.name(), how]);
        assert_eq!(taken.count, stored.events);
        taken
    };
    for round in 0..plan.rounds() {
        files::warm(&inputs.large.root);
        let taken = read(&inputs.large, "typed");
        typed.push(taken.seconds);
        peak = peak.max(taken.peak);
        whole.push(read(&inputs.large, "parsed").seconds);
        decode.push(child::run("decode", &compressed, &[]).seconds);
        files::evict(&inputs.large.root);
        cold.push(read(&inputs.large, "typed").seconds);
        let taken = read(&inputs.tiny, "typed");
        tiny.push(taken.seconds);
        tiny_peak = tiny_peak.max(taken.peak);
        for ((name, root), (_, samples)) in peers.iter().zip(&mut theirs).filter(|_| round < 3) {
            let peers = plan.peers.as_ref().expect("peers");
            samples.push(peers.run(name, "read", root, &[]).seconds);
        }
    }
    let share = plan.share();
    let memory = |row: Row, peak: f64, limit: f64| {
        let met = row.ours.value <= limit && peak <= MOST_MEMORY;
        let target = format!("<= {}, <= 64 MiB", super::row::seconds(limit));
        row.judged(target, met).note(format!("most memory {}", bytes(peak)))
    };
    let mut row = Row::new("G7", "full read, every event typed, new process", &typed, Unit::Seconds)
        .beside("zstd decode of the same as packed rows", &decode)
        .stated("dsh", 7.2 * share);
    for (name, samples) in &theirs {
        row = row.beside(name, samples);
    }
    figures.rows.push(memory(row, peak, 7.2 * share / 25.0).note("page cache warm"));
    let row = Row::new("G7", "the same, page cache dropped", &cold, Unit::Seconds);
    figures.rows.push(row.stated("dsh", 7.2 * share));
    let row = Row::new("G7", "the same, every payload parsed into its Rust type", &whole, Unit::Seconds);
    figures.rows.push(row.stated("dsh", 7.2 * share));
    let part = inputs.tiny.events as f64 / inputs.large.events as f64;
    let row = Row::new("G15", "full read of 120,000 one-event batches", &tiny, Unit::Seconds);
    figures.rows.push(memory(row, tiny_peak, 7.2 * share / 25.0 * part).note("sealed, as every closed session"));

    let (mut first, mut again, mut dropped) = (vec![], vec![], vec![]);
    let mut theirs: Vec<(String, Vec<f64>)> = peers.iter().map(|(name, _)| (name.clone(), Vec::new())).collect();
    for round in 0..plan.rounds().max(5) {
        let tail = || child::run("tail", &inputs.large.root, &[inputs.large.name()]);
        files::warm(&inputs.large.root);
        let taken = tail();
        first.push(taken.seconds);
        again.push(taken.again);
        files::evict(&inputs.large.root);
        dropped.push(tail().seconds);
        for ((name, root), (_, samples)) in peers.iter().zip(&mut theirs).filter(|_| round < 3) {
            samples.push(plan.peers.as_ref().expect("peers").run(name, "tail", root, &[]).seconds);
        }
    }
    let mut row = Row::new("G10", "last 100 events, new process", &first, Unit::Seconds).stated("dsh", 18.0 * share);
    for (name, samples) in &theirs {
        row = row.beside(name, samples);
    }
    figures.rows.push(row.at_most(5e-3).note("page cache warm"));
    let row = Row::new("G10", "the same, page cache dropped", &dropped, Unit::Seconds);
    figures.rows.push(row.at_most(5e-3));
    figures.rows.push(Row::new("G10", "the same again in one process", &again, Unit::Seconds).at_most(1e-3));
    let _ = std::fs::remove_dir_all(plan.work.join("read"));
}

/// The recording in each of the other stores.
fn stored_by_peers(plan: &Plan, events: u64) -> Vec<(String, std::path::PathBuf)> {
    let Some(peers) = &plan.peers else { return Vec::new() };
    let root = files::fresh(&plan.work, "read");
    let stored = |name: &String| {
        let root = files::fresh(&root, name);
        peers.streamed(name, &root, events);
        (name.clone(), root)
    };
    peers.names().iter().map(stored).collect()
}
