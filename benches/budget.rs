//! A guard that no clock can disturb: instructions that fixed work takes, counted by `valgrind --tool=callgrind` and compared with
//! `benches/budget/instructions.json`. More than five per cent either way fails; `cargo bench --bench budget -- --update` writes the new
//! figures, to be committed with the change that explains them. `.ci/budget` runs it where valgrind can be had.

#![allow(missing_docs, reason = "a benchmark has no readers of its items but its own")]
#![allow(clippy::expect_used, reason = "a measurement ends when its world is not as it should be")]
#![allow(clippy::cast_precision_loss, reason = "shares are shown with two digits")]

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::pin::pin;
use std::process::{Command, ExitCode};
use std::task::{Context, Poll, Waker};

use serde::{Deserialize, Serialize};
use sessionlog::backend::{BackendError, Expected, ReadLimit};
use sessionlog::event::chunk::AssistantChunk;
use sessionlog::event::control::{StepStart, TurnStart};
use sessionlog::event::message::UserMessage;
use sessionlog::event::{Batch, Event, Item, Placement, SessionHeader, SessionId};
use sessionlog::interop::JsonlWriter;
use sessionlog::sample::{Cadence, Recording};
use sessionlog::segment::{Engine, EngineOptions, SealOptions, SegmentBackend};
use sessionlog::store::Store;

/// What may change without anyone having to say so.
const TOLERANCE: f64 = 0.05;

/// The function whose instructions count, by a part of its name that no other has.
const REGION: &str = "*only_what_is_inside_counts*";

/// Events of the stored session that cases work on.
const EVENTS: u64 = 20_000;

const CASES: [(&str, fn()); 7] = [
    ("append", append),
    ("flush-encoding", flush_encoding),
    ("journal-append", journal_append),
    ("seal", seal),
    ("scan", scan),
    ("resume", resume),
    ("export", export),
];

#[inline(never)]
fn only_what_is_inside_counts<T>(work: impl FnOnce() -> T) -> T {
    black_box(work())
}

/// Figures as they are kept.
#[derive(Debug, Serialize, Deserialize)]
struct Budget {
    /// The compiler that the figures hold for; another one's may differ.
    compiler: String,
    /// Whose instructions are counted besides: the C library's. Another release of it, or another counter, may differ.
    tools: String,
    /// Instructions by case.
    instructions: BTreeMap<String, u64>,
}

/// Completes a future that never waits: outside a runtime the engine works where it is called.
fn completed<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
    }
}

fn engine(root: &Path) -> Engine {
    EngineOptions::new().background_sealing(false).seed(1).open(root).expect("a store")
}

/// A recorded session in journals.
fn stored(root: &Path) -> (Engine, SessionId) {
    let engine = engine(root);
    let recording = Recording::new(1).events(EVENTS).compacting();
    let header = recording.header();
    let mut batches = recording.batches(Cadence::Step);
    engine.create_whole(&header, || Ok::<_, BackendError>(batches.next())).expect("a session");
    (engine, header.session_id().expect("a plain id"))
}

fn sealed(root: &Path) -> (Engine, SessionId) {
    let (engine, id) = stored(root);
    engine.seal(&id, SealOptions::new().level(3)).expect("a seal");
    (engine, id)
}

/// 20,000 streamed deltas to a live session with its write-behind, which never gets a turn.
fn append() {
    let directory = tempfile::tempdir().expect("a directory");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = Store::open(SegmentBackend::from(engine(directory.path()))).expect("a store");
        let session = store.create(SessionHeader::new("s").created_at(1)).await.expect("a session");
        session.append(TurnStart::new(1)).expect("an append");
        session.append_surface(UserMessage::text("go"), Placement::append()).expect("an append");
        session.append(StepStart::new(1, 1)).expect("an append");
        let chunks: Vec<AssistantChunk> = (0..EVENTS).map(|_| AssistantChunk::text(1, 1, 0, " token")).collect();
        only_what_is_inside_counts(|| {
            for chunk in chunks {
                session.append(chunk).expect("an append");
            }
        });
    });
}

/// Batches of 200 ms, as records hold them.
fn flush_encoding() {
    let batches: Vec<Batch> = Recording::new(1).events(EVENTS).batches(Cadence::Window(200)).collect();
    let mut out = Vec::with_capacity(8 << 20);
    only_what_is_inside_counts(|| batches.iter().for_each(|batch| batch.encode_into(&mut out)));
    black_box(out);
}

/// The same batches appended to a session's journal.
fn journal_append() {
    let directory = tempfile::tempdir().expect("a directory");
    let engine = engine(directory.path());
    let recording = Recording::new(1).events(EVENTS);
    let batches: Vec<Batch> = recording.batches(Cadence::Window(200)).collect();
    let (header, id) = (recording.header(), recording.header().session_id().expect("a plain id"));
    let (first, rest) = batches.split_first().expect("a batch");
    let mut head = engine.append(&id, Some(&header), Expected::ABSENT, first).expect("an append");
    only_what_is_inside_counts(|| {
        for batch in rest {
            let expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
            head = engine.append(&id, None, expected, batch).expect("an append");
        }
    });
}

fn seal() {
    let directory = tempfile::tempdir().expect("a directory");
    let (engine, id) = stored(directory.path());
    only_what_is_inside_counts(|| engine.seal(&id, SealOptions::new().level(3))).expect("a seal");
}

fn typed(event: &Event) -> u64 {
    black_box(event.payload::<AssistantChunk>().expect("a sound chunk"));
    1
}

/// Every event of a sealed session, deltas as the chunks they were appended as.
fn scan() {
    let directory = tempfile::tempdir().expect("a directory");
    let (engine, id) = sealed(directory.path());
    let count = only_what_is_inside_counts(|| {
        let mut reader = engine.reader(&id).expect("the session");
        let mut count = 0;
        loop {
            let page = reader.next_page(ReadLimit::default()).expect("a page");
            for event in page.items.iter().flat_map(Item::events) {
                count += typed(&event);
            }
            if page.next.is_none() {
                return count;
            }
        }
    });
    assert_eq!(count, EVENTS);
}

fn resume() {
    let directory = tempfile::tempdir().expect("a directory");
    let (engine, id) = sealed(directory.path());
    let store = Store::open(SegmentBackend::from(engine)).expect("a store");
    let messages = only_what_is_inside_counts(|| {
        let session = completed(store.inspect(id.as_str())).expect("the session");
        session.session().messages().len()
    });
    assert!(messages > 0);
}

fn export() {
    let directory = tempfile::tempdir().expect("a directory");
    let (engine, id) = sealed(directory.path());
    let out = Vec::with_capacity(32 << 20);
    let out = only_what_is_inside_counts(|| {
        let mut reader = engine.reader(&id).expect("the session");
        let mut writer = JsonlWriter::new(out, reader.header()).expect("memory takes everything");
        loop {
            let page = reader.next_page(ReadLimit::default()).expect("a page");
            page.items.iter().for_each(|item| writer.item(item).expect("memory takes everything"));
            if page.next.is_none() {
                return writer.finish().expect("memory takes everything");
            }
        }
    });
    assert!(!out.is_empty());
}

/// Runs this program's case under callgrind and reads off what it collected.
fn counted(case: &str) -> Option<u64> {
    let program = std::env::current_exe().expect("this program's own path");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"]);
    valgrind.arg(format!("--toggle-collect={REGION}")).arg(program).args(["--case", case]);
    let output = valgrind.output().ok()?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        eprintln!("{said}");
        return None;
    }
    let line = said.lines().find_map(|line| line.split_once("Collected :"))?.1;
    line.trim().parse().ok()
}

/// The first line of what a program says of its version; empty where it is not there.
fn version_of(program: &str) -> String {
    let output = Command::new(program).arg("--version").output();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    said.lines().next().unwrap_or_default().trim().to_owned()
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [first, name] = &words[..]
        && first == "--case"
    {
        let (_, case) = CASES.iter().find(|(known, _)| known == name).expect("a known case");
        case();
        return ExitCode::SUCCESS;
    }
    // `cargo bench` says so; `cargo test --benches` only wants to see that it starts.
    if !words.iter().any(|word| word == "--bench") {
        return ExitCode::SUCCESS;
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/budget/instructions.json");
    let kept: Option<Budget> = fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
    let tools = format!("{}, {}", version_of("valgrind"), version_of("ldd"));
    let mut now = Budget { compiler: version_of("rustc"), tools, instructions: BTreeMap::new() };
    let mut within = true;
    println!("{:<16} {:>14} {:>14} {:>8}", "case", "kept", "now", "change");
    for (name, _) in CASES {
        let Some(count) = counted(name) else {
            eprintln!("{name} could not be counted: is valgrind there?");
            return ExitCode::FAILURE;
        };
        let before = kept.as_ref().and_then(|kept| kept.instructions.get(name)).copied();
        let change = before.map(|before| count as f64 / before as f64 - 1.0);
        within &= change.is_some_and(|change| change.abs() <= TOLERANCE);
        let shown = change.map_or("new".to_owned(), |change| format!("{:+.2} %", change * 100.0));
        println!("{name:<16} {:>14} {count:>14} {shown:>8}", before.unwrap_or(0));
        now.instructions.insert(name.to_owned(), count);
    }
    if words.iter().any(|word| word == "--update") {
        let text = serde_json::to_string_pretty(&now).expect("plain numbers");
        fs::write(&file, text + "\n").expect("the figures");
        return ExitCode::SUCCESS;
    }
    if within {
        return ExitCode::SUCCESS;
    }
    if let Some(kept) = kept.filter(|kept| (&kept.compiler, &kept.tools) != (&now.compiler, &now.tools)) {
        println!(
            "the kept figures are those of {}, {}; this is {}, {}: not judged",
            kept.compiler, kept.tools, now.compiler, now.tools
        );
        return ExitCode::SUCCESS;
    }
    println!(
        "beyond {} %: if it is meant, commit the result of `cargo bench --bench budget -- --update`",
        TOLERANCE * 100.0
    );
    ExitCode::FAILURE
}
