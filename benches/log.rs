//! What takes processor time alone: appending in memory, importing, and loading. What waits for the disk is measured by `goals`,
//! which keeps every latency.

#![allow(clippy::expect_used, missing_docs, reason = "a benchmark ends when its world is not as it should be")]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use sessionlog::backend::ReadLimit;
use sessionlog::event::chunk::AssistantChunk;
use sessionlog::event::control::{StepStart, TurnStart};
use sessionlog::event::message::UserMessage;
use sessionlog::event::{Batch, Event, Item, Placement, SessionHeader};
use sessionlog::interop::{Import, ImportOptions};
use sessionlog::sample::{Recording, SMALL_EVENTS};
use sessionlog::segment::Engine;
use sessionlog::session::{Session, SessionOptions};

fn open_step() -> Session {
    let session = Session::create(SessionHeader::new("bench"), SessionOptions::default()).expect("a plain header");
    session.append(TurnStart::new(1)).expect("an append");
    session.append_surface(UserMessage::text("go"), Placement::append()).expect("an append");
    session.append(StepStart::new(1, 1)).expect("an append");
    session
}

/// One streamed delta, and one message, appended to a live session without I/O.
fn append_in_memory(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("append_in_memory");
    group.throughput(Throughput::Elements(1));
    let session = open_step();
    group.bench_function("streamed_delta", |bencher| {
        bencher.iter_batched(
            || AssistantChunk::text(1, 1, 0, " token"),
            |chunk| session.append(chunk).expect("an append"),
            BatchSize::SmallInput,
        );
    });
    let session = open_step();
    group.bench_function("user_message", |bencher| {
        bencher.iter_batched(
            || UserMessage::text("a message of ordinary length, as people write them"),
            |message| session.append_surface(message, Placement::append()).expect("an append"),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

/// Reading a packed recording into items (no store), and the bare parse of its lines as JSON for comparison.
fn import(criterion: &mut Criterion) {
    let recording = Recording::new(1).events(SMALL_EVENTS);
    let packed = recording.write_dsh(Vec::new()).expect("memory takes everything");
    let lines = recording.write_jsonl(Vec::new()).expect("memory takes everything");
    let mut group = criterion.benchmark_group("import");
    group.sample_size(20);
    for (name, text) in [("packed_rows", &packed), ("one_event_a_line", &lines)] {
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut import = Import::open(text.as_slice(), ImportOptions::default()).expect("a recording");
                while let Some(item) = import.next_item().expect("a recording") {
                    black_box(item);
                }
            });
        });
    }
    group.throughput(Throughput::Bytes(lines.len() as u64));
    group.bench_function("yardstick_json_syntax_alone", |bencher| {
        bencher.iter(|| {
            for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                black_box(serde_json::from_slice::<&serde_json::value::RawValue>(line).expect("JSON"));
            }
        });
    });
    group.finish();
}

/// Opening a stored session and reading all of it into a session with its messages ready.
fn load(criterion: &mut Criterion) {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = Engine::open(directory.path().join("store")).expect("a store");
    let recording = Recording::new(1).events(SMALL_EVENTS);
    let events: Vec<Event> = recording.iter().collect();
    let mut header = recording.header();
    header.version = sessionlog::event::header::FORMAT_VERSION;
    let id = header.session_id().expect("a plain id");
    let mut batches = events.chunks(1000).map(|events| Batch::pack(events.iter().cloned()));
    engine
        .create_whole(&header, || Ok::<_, sessionlog::backend::BackendError>(batches.next().flatten()))
        .expect("a session");
    let mut group = criterion.benchmark_group("load");
    group.sample_size(20);
    group.throughput(Throughput::Elements(events.len() as u64));
    group.bench_function("stored_session_to_messages", |bencher| {
        bencher.iter(|| {
            let opened = engine.open_session(&id).expect("the session");
            let mut reader = engine.reader(&id).expect("the session");
            let mut items: Vec<Item> = Vec::new();
            loop {
                let page = reader.next_page(ReadLimit::default()).expect("a page");
                if page.items.is_empty() {
                    break;
                }
                items.extend(page.items);
            }
            let session = Session::view(opened.header, items, SessionOptions::default()).expect("a sound log");
            black_box(session.messages().len())
        });
    });
    group.finish();
}

criterion_group!(benches, append_in_memory, import, load);
criterion_main!(benches);
