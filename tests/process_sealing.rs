//! Processes killed with SIGKILL while they seal, merge, fork and delete: what they had said is there, and nothing else is.
#![cfg(all(unix, feature = "store"))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "counts and names are small and known"
)]

mod process_common;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use process_common::{Child, block_on, count, digest, moment, report, seed_of_child, store_of_child};
use sessionlog::backend::{ErrorKind, ReadLimit};
use sessionlog::event::chunk::AssistantChunk;
use sessionlog::event::content::{ContentBlock, ModelSource};
use sessionlog::event::control::{StepEnd, StepStart, TodoStatus, TodoWrite, ToolCall, TurnEnd, TurnStart};
use sessionlog::event::message::{AssistantMessage, ToolResult, UserMessage};
use sessionlog::event::{Event, Item, Placement, SessionHeader, SessionId};
use sessionlog::segment::{CheckStatus, Engine, EngineOptions, SealOptions, SegmentBackend};
use sessionlog::session::{Session, SessionOptions};
use sessionlog::store::{ForkAt, ListOptions, LiveSession, Store};

/// How often a process is killed; more in a soak (`SESSIONLOG_KILLS`).
const KILLS: u64 = 200;
/// Kills that one store survives before a fresh one is taken, so that creation is met too and sessions stay small.
const KILLS_A_STORE: u64 = 4;
const MAIN: &str = "main";

type Live = LiveSession<SegmentBackend>;

/// Journals of a few records, so that everything has something to seal; the child seals in the background as well, which the
/// parent, who looks at what is left, does not.
fn open(directory: &Path, sealing: bool) -> Store<SegmentBackend> {
    let options = EngineOptions::new().rotate_at(3000).background_sealing(sealing);
    Store::open(SegmentBackend::with_options(directory, options).unwrap()).unwrap()
}

fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

fn stored_lines(engine: &Engine, session: &str) -> Vec<String> {
    items(engine, session).iter().flat_map(Item::events).map(|event| event.to_line()).collect()
}

fn items(engine: &Engine, session: &str) -> Vec<Item> {
    let mut items = Vec::new();
    let mut from = Some(0);
    while let Some(seq) = from {
        let page = engine.read(&id(session), seq, ReadLimit { events: 300, bytes: 20_000 }).unwrap();
        items.extend(page.items);
        from = page.next;
    }
    items
}

/// The child: one process that never stops by itself.
struct Process {
    store: Store<SegmentBackend>,
    /// Every line of the log of a session, as it should be.
    logs: BTreeMap<String, Vec<String>>,
}

impl Process {
    async fn open(&mut self, session: &str) -> Live {
        let live = match self.store.resume(session).await {
            Ok(live) => live,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.store.create(SessionHeader::new(session)).await.unwrap()
            }
            Err(error) => panic!("{error}"),
        };
        if !self.logs.contains_key(session) && live.next_seq() > 0 {
            live.flush().await.unwrap();
            self.logs.insert(session.to_owned(), stored_lines(self.store.backend().engine(), session));
        }
        live
    }

    /// Takes down what was appended.
    fn note(&mut self, live: &Live) {
        let log = self.logs.entry(live.id().to_string()).or_default();
        log.extend(live.events(log.len() as u64..).iter().map(Event::to_line));
    }

    /// Flushes, then says up to where, with a digest of everything before.
    async fn flushed(&mut self, live: &Live) {
        self.note(live);
        let log = &self.logs[live.id().as_str()];
        live.flush().await.unwrap();
        report(&format!("flushed {} {} {}", live.id(), log.len(), digest(log.iter().map(String::as_str))));
    }

    async fn turn(&mut self, live: &Live) {
        let turn = live.next_turn();
        live.append(TurnStart::new(turn)).unwrap();
        live.append_surface(UserMessage::text(format!("question {turn}")), Placement::append()).unwrap();
        live.append(TodoWrite::new([(format!("do {turn}"), TodoStatus::Pending)])).unwrap();
        for step in 1..=1 + turn % 2 {
            live.append(StepStart::new(turn, step)).unwrap();
            let mut text = String::new();
            for number in 0..12 + turn * 7 % 20 {
                let piece = format!(" w{}", number * turn % 97);
                live.append(AssistantChunk::text(turn, step, 0, piece.as_str())).unwrap();
                text.push_str(&piece);
            }
            self.flushed(live).await;
            let call = format!("call-{turn}-{step}");
            let content = vec![ContentBlock::text(text), ContentBlock::tool_call(&call, "tool", "{}")];
            let message = AssistantMessage::new(turn, step, content, ModelSource::new("p", "m"));
            live.append_surface(message, Placement::append().from(live.step_chunks())).unwrap();
            let called = live.append(ToolCall::new(turn, step, &call, "tool", "{}")).unwrap();
            self.flushed(live).await;
            let output = ToolResult::text(turn, step, &call, "x".repeat((turn * 613 % 1500) as usize));
            live.append_surface(output, Placement::append().from([called.seq()])).unwrap();
            live.append(StepEnd::new(turn, step)).unwrap();
        }
        live.append(TurnEnd::completed(turn)).unwrap();
        self.flushed(live).await;
    }

    async fn close(&mut self, live: Live) {
        self.flushed(&live).await;
        live.close().await.unwrap();
    }

    fn seal(&self, session: &str) {
        report(&format!("sealing {session}"));
        self.store.backend().engine().seal(&id(session), SealOptions::new().level(1)).unwrap();
    }

    async fn fork(&mut self, live: &Live, child: &str) {
        report(&format!("forking {child}"));
        let born = self.store.fork(live, ForkAt::LastTurn, child).await.unwrap();
        let seed = born.header().seed_length.unwrap() as usize;
        self.note(live);
        let own = self.logs[live.id().as_str()][..seed].to_vec();
        self.logs.insert(child.to_owned(), own);
        self.turn(&born).await;
        self.close(born).await;
    }

    async fn delete(&mut self, session: &str) {
        report(&format!("deleting {session}"));
        self.store.delete(session).await.unwrap();
        self.logs.remove(session);
        report(&format!("deleted {session}"));
    }

    async fn go_on_for_ever(&mut self, seed: u64) {
        for round in 0.. {
            let mut live = self.open(MAIN).await;
            for _ in 0..=moment(seed + round) % 3 {
                self.turn(&live).await;
            }
            let child = format!("fork-{}", moment(seed + round) % 3);
            if self.store.list(ListOptions::new()).await.unwrap().sessions.iter().any(|header| header.id == child) {
                self.delete(&child).await;
            }
            if round % 2 == 0 {
                self.fork(&live, &child).await;
            }
            self.close(live).await;
            self.seal(MAIN);
            if round % 2 == 1 {
                live = self.open(MAIN).await;
                self.fork(&live, &child).await;
                self.close(live).await;
            }
            self.seal(&child);
        }
    }
}

/// The child's entry point.
#[test]
fn child_process_sealer() {
    let Some(directory) = store_of_child() else { return };
    block_on(async {
        let mut process = Process { store: open(&directory, true), logs: BTreeMap::new() };
        process.go_on_for_ever(seed_of_child()).await;
    });
}

/// What the parent has heard of a session.
#[derive(Debug, Clone, Default)]
struct Heard {
    /// Events flushed, and their digest.
    flushed: Option<(usize, u64)>,
    /// Whether its absence would be right: it is being made or removed.
    may_be_absent: bool,
    deleted: bool,
}

fn hear(heard: &mut BTreeMap<String, Heard>, words: &[String]) {
    let session = heard.entry(words[1].clone()).or_insert(Heard { may_be_absent: true, ..Heard::default() });
    match words[0].as_str() {
        "flushed" => {
            let flushed = Some((words[2].parse().unwrap(), words[3].parse().unwrap()));
            *session = Heard { flushed, ..Heard::default() };
        }
        "forking" => *session = Heard { may_be_absent: true, ..Heard::default() },
        "deleting" => session.may_be_absent = true,
        "deleted" => *session = Heard { deleted: true, may_be_absent: true, flushed: None },
        _ => {}
    }
}

#[test]
fn r1_r2_killed_at_any_moment_of_sealing_merging_forking_and_deleting_nothing_acknowledged_is_lost() {
    let kills = count("SESSIONLOG_KILLS", KILLS);
    let seed = count("SESSIONLOG_KILLS_SEED", 1);
    // A kill loses nothing that the system was given, so most stores may as well lie in memory, where syncs take no time. On a
    // disk, syncs take long, and kills meet them.
    let memory = Path::new("/dev/shm");
    let quick = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let slow = tempfile::tempdir().unwrap();
    let mut met: BTreeMap<String, u64> = BTreeMap::new();
    let mut heard = BTreeMap::new();
    let mut directory = slow.path().join("store");
    for kill in 0..kills {
        if kill % KILLS_A_STORE == 0 {
            let _ = std::fs::remove_dir_all(&directory);
            let home = if (kill / KILLS_A_STORE).is_multiple_of(5) { &slow } else { &quick };
            directory = home.path().join(format!("store-{kill}"));
            heard.clear();
        }
        let what = format!("SESSIONLOG_KILLS_SEED={seed}, kill {kill}");
        let mut child = Child::start("child_process_sealer", &directory, seed.wrapping_add(kill * 1000));
        let wanted = ["sealing", "forking", "deleting", "flushed"][(moment(seed ^ kill) % 4) as usize];
        let mut last = None;
        for _ in 0..200 {
            let Some(words) = child.report() else {
                panic!("{what}: the child stopped by itself: {}", child.complaints())
            };
            hear(&mut heard, &words);
            let aimed = words[0] == wanted;
            last = Some(words);
            if aimed {
                break;
            }
        }
        std::thread::sleep(Duration::from_micros(moment(seed ^ (kill << 20)) % 4_000));
        child.kill();
        while let Some(words) = child.report() {
            hear(&mut heard, &words);
            last = Some(words);
        }
        *met.entry(last.unwrap()[0].clone()).or_default() += 1;
        block_on(check(&directory, &mut heard, &what, kill % 3 == 2));
    }
    println!("killed {kills} times, while: {met:?}");
}

async fn check(directory: &Path, heard: &mut BTreeMap<String, Heard>, what: &str, seal: bool) {
    let store = open(directory, false);
    let engine = store.backend().engine().clone();
    let listing = store.list(ListOptions::new()).await.unwrap();
    assert!(listing.errors.is_empty(), "{what}: {:?}", listing.errors);
    let listed: Vec<String> = listing.sessions.into_iter().map(|header| header.id).collect();
    for session in &listed {
        assert!(heard.get(session).is_some_and(|heard| !heard.deleted), "{what}: {session} should not be there");
    }
    for (session, heard) in heard.iter_mut() {
        let what = format!("{what}, {session}");
        if !listed.contains(session) {
            assert!(heard.may_be_absent, "{what} is lost");
            *heard = Heard { deleted: true, may_be_absent: true, flushed: None };
            continue;
        }
        let found = engine.verify(&id(session));
        assert!(matches!(found.status, CheckStatus::Ok | CheckStatus::Torn), "{what}: {:?}", found.error);
        let before = stored_lines(&engine, session);
        if let Some((next, digest_then)) = heard.flushed {
            assert!(before.len() >= next, "{what}: {next} events were flushed, {} are there", before.len());
            assert_eq!(digest(before[..next].iter().map(String::as_str)), digest_then, "{what}: not the same events");
        }
        assert_views_agree(&store, session, &what).await;
        let live = store.resume(session.as_str()).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(live.open_turn().is_none(), "{what}");
        live.close().await.unwrap();
        if seal {
            engine.seal(&id(session), SealOptions::new().level(1)).unwrap();
        }
        let found = engine.verify(&id(session));
        assert_eq!(found.status, CheckStatus::Ok, "{what}: {:?}", found.error);
        let after = stored_lines(&engine, session);
        assert_eq!(after[..before.len()], before[..], "{what}: opening it changed what was there");
        assert_views_agree(&store, session, &what).await;
        assert_tidy(&engine, session, seal, &what);
        *heard = Heard { flushed: Some((after.len(), digest(after.iter().map(String::as_str)))), ..Heard::default() };
    }
    assert_catalogue_agrees(&engine, what);
    let remains = std::fs::read_dir(directory.join("sessions")).unwrap();
    let remains: Vec<_> = remains.map(|entry| entry.unwrap().file_name()).collect();
    assert!(!remains.iter().any(|name| name.to_string_lossy().starts_with(".tmp-")), "{what}: {remains:?}");
    store.close().await.unwrap();
}

/// What a resume derives from checkpoint and surface is what the whole log says.
async fn assert_views_agree(store: &Store<SegmentBackend>, session: &str, what: &str) {
    let engine = store.backend().engine();
    let inspected = store.inspect(session).await.unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut whole = items(engine, session);
    whole.extend(inspected.items(inspected.durable_seq(), u64::MAX));
    let replayed = Session::view(inspected.header().clone(), whole, SessionOptions::new()).unwrap();
    assert_eq!(inspected.checkpoint(), replayed.checkpoint(), "{what}");
    assert_eq!(inspected.messages(), replayed.messages(), "{what}");
}

/// Nothing but what a session consists of; after a sealing, one segment.
fn assert_tidy(engine: &Engine, session: &str, sealed: bool, what: &str) {
    let entries = std::fs::read_dir(engine.locate(&id(session))).unwrap();
    let names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let known = |name: &String| {
        ["header", "lock", "torn", "shared"].contains(&name.as_str())
            || name.ends_with(".log")
            || name.ends_with(".seg")
    };
    assert!(names.iter().all(known), "{what}: {names:?}");
    // A journal without records stays: it holds the epoch of a writer that wrote nothing.
    let of = |extension| names.iter().filter(|name| name.ends_with(extension)).count();
    // Segments that are shared with the source of a fork stay beside the fork's own.
    let shares = names.iter().any(|name| name == "shared");
    assert!(!sealed || (of(".seg") == 1 || shares) && of(".log") <= 1, "{what}: {names:?}");
}

/// A listing from the catalogue is the listing without one.
fn assert_catalogue_agrees(engine: &Engine, what: &str) {
    let show = |engine: &Engine| {
        let entries = engine.summaries().unwrap();
        entries.into_iter().map(|entry| (entry.name, entry.summary.unwrap())).collect::<Vec<_>>()
    };
    let kept = show(engine);
    let _ = std::fs::remove_file(engine.root().join("catalog"));
    assert_eq!(show(&Engine::open(engine.root()).unwrap()), kept, "{what}");
}
