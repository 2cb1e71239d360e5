//! Real processes: a writer that is killed with SIGKILL at random moments, and two writers that meet.
#![cfg(all(unix, feature = "store"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking"
)]

use std::hash::{DefaultHasher, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sessionlog::backend::{ErrorKind, ReadLimit};
use sessionlog::event::chunk::AssistantChunk;
use sessionlog::event::content::{ContentBlock, ModelSource};
use sessionlog::event::control::{StepEnd, StepStart, ToolCall, TurnEnd, TurnStart};
use sessionlog::event::message::{AssistantMessage, ToolResult, UserMessage};
use sessionlog::event::{Event, Item, Placement, SessionHeader, SessionId};
use sessionlog::segment::{EngineOptions, SegmentBackend};
use sessionlog::session::invariants::first_violation;
use sessionlog::store::{ListOptions, LiveSession, Store};

const ID: &str = "crash";
/// Names the store to a child; its absence makes the child's entry point a test that passes at once.
const STORE_VARIABLE: &str = "SESSIONLOG_TEST_CHILD_STORE";
/// How often the writer is killed; more in a soak.
const KILLS: u64 = 200;

type Live = LiveSession<SegmentBackend>;

/// Small journals, so that kills also meet rotation.
fn open(directory: &Path) -> Store<SegmentBackend> {
    let backend = SegmentBackend::with_options(directory, EngineOptions::new().rotate_at(16 * 1024)).unwrap();
    Store::open(backend).unwrap()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(future)
}

fn hash_of(events: impl IntoIterator<Item = Event>) -> u64 {
    let mut hasher = DefaultHasher::new();
    events.into_iter().for_each(|event| hasher.write(event.to_line().as_bytes()));
    hasher.finish()
}

/// The child's entry point.
#[test]
fn child_process_writer() {
    let Some(directory) = std::env::var_os(STORE_VARIABLE) else { return };
    block_on(async {
        let store = open(Path::new(&directory));
        let session = match store.resume(ID).await {
            Ok(session) => session,
            Err(error) if error.kind() == ErrorKind::NotFound => store.create(SessionHeader::new(ID)).await.unwrap(),
            Err(error) => panic!("{error}"),
        };
        for turn in session.next_turn().. {
            run_turn(&session, turn).await;
        }
    });
}

async fn run_turn(session: &Live, turn: u64) {
    session.append(TurnStart::new(turn)).unwrap();
    session.append_surface(UserMessage::text(format!("question {turn}")), Placement::append()).unwrap();
    for step in 1..=1 + turn % 3 {
        session.append(StepStart::new(turn, step)).unwrap();
        report(session).await;
        let mut text = String::new();
        for number in 0..20 + turn * 7 % 40 {
            let piece = format!(" w{}", number * turn % 97);
            session.append(AssistantChunk::text(turn, step, 0, piece.as_str())).unwrap();
            text.push_str(&piece);
            if number % 16 == 7 {
                report(session).await;
            }
        }
        let call = format!("call-{turn}-{step}");
        let content = vec![ContentBlock::text(text), ContentBlock::tool_call(&call, "tool", "{}")];
        let message = AssistantMessage::new(turn, step, content, ModelSource::new("p", "m"));
        session.append_surface(message, Placement::append().from(session.step_chunks())).unwrap();
        report(session).await;
        let called = session.append(ToolCall::new(turn, step, &call, "tool", "{}")).unwrap();
        report(session).await;
        let result = ToolResult::text(turn, step, &call, "x".repeat((turn * 613 % 4000) as usize));
        session.append_surface(result, Placement::append().from([called.seq()])).unwrap();
        session.append(StepEnd::new(turn, step)).unwrap();
    }
    session.append(TurnEnd::completed(turn)).unwrap();
    report(session).await;
}

/// Flushes, then says up to where, with a digest of everything before that this process has appended.
async fn report(session: &Live) {
    let next = session.next_seq();
    session.flush().await.unwrap();
    let from = session.first_live_seq();
    let digest = hash_of(session.events(from..next));
    println!("\nflushed {from} {next} {digest}");
    std::io::stdout().flush().unwrap();
}

struct Writer {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Writer {
    fn start(directory: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_process_writer", "--nocapture"])
            .env(STORE_VARIABLE, directory)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next report, or `None` once the child is gone and everything it said has been read.
    fn report(&mut self) -> Option<(u64, u64, u64)> {
        for line in self.lines.by_ref().map_while(Result::ok) {
            let mut words = line.split(' ');
            if words.next() == Some("flushed") {
                let mut number = || words.next()?.parse::<u64>().ok();
                return Some((number()?, number()?, number()?));
            }
        }
        None
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A small generator of moments; the seed is printed with every failure.
fn moment(seed: u64) -> u64 {
    let mut number = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678_9abc_def1);
    number ^= number >> 29;
    number = number.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number ^ (number >> 32)
}

#[test]
fn l7_r2_what_was_flushed_survives_kill_nine_at_any_moment_and_turns_are_closed_once() {
    let kills = std::env::var("SESSIONLOG_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    let home = tempfile::tempdir().unwrap();
    let mut directory = home.path().join("store-0");
    for round in 0..kills {
        if round % 25 == 0 {
            // A fresh store now and then, so that creation is met too and sessions stay small.
            directory = home.path().join(format!("store-{round}"));
        }
        let mut writer = Writer::start(&directory);
        // Wait for some reports, then a bit more.
        let mut reported = None;
        for _ in 0..moment(round) % 12 {
            match writer.report() {
                Some(report) => reported = Some(report),
                None => break,
            }
        }
        std::thread::sleep(Duration::from_micros(moment(round + 1_000_000) % 6_000));
        writer.kill();
        while let Some(report) = writer.report() {
            reported = Some(report);
        }
        block_on(check_after_kill(&directory, reported, round));
    }
}

/// Everything that is stored, sealed or not.
fn stored(store: &Store<SegmentBackend>) -> Vec<Item> {
    let mut reader = store.backend().engine().reader(&SessionId::new(ID).unwrap()).unwrap();
    let mut items = Vec::new();
    loop {
        let page = reader.next_page(ReadLimit::default()).unwrap();
        if page.items.is_empty() {
            return items;
        }
        items.extend(page.items);
    }
}

async fn check_after_kill(directory: &Path, reported: Option<(u64, u64, u64)>, round: u64) {
    let store = open(directory);
    let session = match store.resume(ID).await {
        Ok(session) => session,
        Err(error) => {
            assert!(reported.is_none() && error.kind() == ErrorKind::NotFound, "round {round}: {error}");
            return;
        }
    };
    session.flush().await.unwrap();
    let items = stored(&store);
    let events: Vec<Event> = items.iter().flat_map(Item::events).collect();
    assert!(events.iter().zip(0..).all(|(event, seq)| event.seq() == seq), "round {round}: seqs are contiguous");
    if let Some((from, next, digest)) = reported {
        assert!(events.len() as u64 >= next, "round {round}: flushed to {next}, found {}", events.len());
        assert_eq!(
            hash_of(events[from as usize..next as usize].iter().cloned()),
            digest,
            "round {round}: flushed events are byte-equal"
        );
    }
    assert_eq!(first_violation(&items), Ok(None), "round {round}: every turn is closed, once");
    assert!(session.open_turn().is_none(), "round {round}");
    let next = session.next_seq();
    session.close().await.unwrap();
    drop(session);
    let again = store.resume(ID).await.unwrap();
    assert_eq!(again.next_seq(), next, "round {round}: nothing is cut or closed twice");
    again.close().await.unwrap();
    store.close().await.unwrap();
}

#[test]
fn k3_a_second_writer_is_refused_with_the_first_ones_pid_and_gets_in_at_once_after_a_kill() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("store");
    let mut writer = Writer::start(&directory);
    let pid = writer.child.id();
    for _ in 0..3 {
        writer.report().unwrap();
    }
    block_on(async {
        let store = open(&directory);
        let Err(error) = store.resume(ID).await else { panic!("a live writer holds the session") };
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        assert!(error.to_string().contains(&pid.to_string()), "{error} names process {pid}");

        // Reading needs no lock: an inspection and a listing beside the writer, and a follower that sees it go on.
        let inspected = store.inspect(ID).await.unwrap();
        assert!(inspected.next_seq() > 0);
        let listing = store.list(ListOptions::default()).await.unwrap();
        assert_eq!(listing.sessions.len(), 1);
        let (from, next, digest) = writer.report().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut reader = store.backend().engine().reader(inspected.id()).unwrap();
        let mut seen: Vec<Event> = Vec::new();
        while (seen.len() as u64) < next {
            assert!(Instant::now() < deadline, "a flushed event does not show");
            let page = reader.next_page(ReadLimit::default()).unwrap();
            seen.extend(page.items.iter().flat_map(|item| item.events()));
        }
        seen.truncate(next as usize);
        assert_eq!(hash_of(seen.into_iter().skip(from as usize)), digest);

        writer.kill();
        let session = store.resume(ID).await.unwrap();
        assert!(session.next_seq() >= next);
        session.close().await.unwrap();
    });
}
