//! Real processes: a writer that is killed with SIGKILL at random moments, and two writers that meet.
#![cfg(all(unix, feature = "store"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking"
)]

mod process_common;

use std::path::Path;
use std::time::{Duration, Instant};

use process_common::{Child, block_on, count, digest_of, moment, store_of_child};
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
/// How often the writer is killed; more in a soak.
const KILLS: u64 = 200;

type Live = LiveSession<SegmentBackend>;

/// Small journals, so that kills also meet rotation. Nothing is sealed, so that a resumed session holds its whole log; kills at
/// sealing are another suite's.
fn open(directory: &Path) -> Store<SegmentBackend> {
    let backend =
        SegmentBackend::with_options(directory, EngineOptions::new().rotate_at(16 * 1024).background_sealing(false))
            .unwrap();
    Store::open(backend).unwrap()
}

/// The child's entry point.
#[test]
fn child_process_writer() {
    let Some(directory) = store_of_child() else { return };
    block_on(async {
        let store = open(&directory);
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
    let digest = digest_of(session.events(from..next));
    process_common::report(&format!("flushed {from} {next} {digest}"));
}

/// The next report of a writer: from where to where it has flushed, and a digest of that.
fn flushed(writer: &mut Child) -> Option<(u64, u64, u64)> {
    let words = writer.report()?;
    Some((words[1].parse().unwrap(), words[2].parse().unwrap(), words[3].parse().unwrap()))
}

fn start(directory: &Path) -> Child {
    Child::start("child_process_writer", directory, 0)
}

#[test]
fn l7_r2_what_was_flushed_survives_kill_nine_at_any_moment_and_turns_are_closed_once() {
    let kills = count("SESSIONLOG_KILLS", KILLS);
    let home = tempfile::tempdir().unwrap();
    let mut directory = home.path().join("store-0");
    for round in 0..kills {
        if round % 25 == 0 {
            // A fresh store now and then, so that creation is met too and sessions stay small.
            directory = home.path().join(format!("store-{round}"));
        }
        let mut writer = start(&directory);
        // Wait for some reports, then a bit more.
        let mut reported = None;
        for _ in 0..moment(round) % 12 {
            match flushed(&mut writer) {
                Some(report) => reported = Some(report),
                None => break,
            }
        }
        std::thread::sleep(Duration::from_micros(moment(round + 1_000_000) % 6_000));
        writer.kill();
        while let Some(report) = flushed(&mut writer) {
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
        let flushed = events[from as usize..next as usize].to_vec();
        assert_eq!(digest_of(flushed), digest, "round {round}: flushed events are byte-equal");
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
    let mut writer = start(&directory);
    let pid = writer.id();
    for _ in 0..3 {
        flushed(&mut writer).unwrap();
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
        let (from, next, digest) = flushed(&mut writer).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut reader = store.backend().engine().reader(inspected.id()).unwrap();
        let mut seen: Vec<Event> = Vec::new();
        while (seen.len() as u64) < next {
            assert!(Instant::now() < deadline, "a flushed event does not show");
            let page = reader.next_page(ReadLimit::default()).unwrap();
            seen.extend(page.items.iter().flat_map(|item| item.events()));
        }
        seen.truncate(next as usize);
        assert_eq!(digest_of(seen.into_iter().skip(from as usize)), digest);

        writer.kill();
        let session = store.resume(ID).await.unwrap();
        assert!(session.next_seq() >= next);
        session.close().await.unwrap();
    });
}
