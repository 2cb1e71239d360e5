//! A whole store whose files were changed, cut, copied, renamed, swapped, removed and replaced: listing, inspecting, resuming, checking
//! and reading never panic and give the same verdict on every session; what is not damaged goes on.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use sessionlog::backend::Expected;
use sessionlog::event::{Batch, Event, SessionHeader, SessionId};
use sessionlog::segment::files::{Files, SimulatedFiles};
use sessionlog::segment::{CheckStatus, Engine, SealOptions, SegmentBackend};
use sessionlog::store::Store;
use tokio::runtime::Builder;

use super::stored::{Found, ROOT, continue_log, engine_options, look, open, session_events};

/// Most changes to the store.
const MOST_CHANGES: usize = 12;

const SESSIONS: [&str; 5] = ["journals", "sealed", "half", "fork", "other"];

/// Appends events up to `to` in pieces, as one writer, and lets go.
fn write(engine: &Engine, name: &str, events: &[Event], to: usize) {
    let id = SessionId::new(name).expect("a plain id");
    let mut head = engine.take_over(&id).ok().map(|taken| taken.head);
    loop {
        let from = head.as_ref().map_or(0, |head| usize::try_from(head.next_seq).expect("a small log"));
        if from >= to {
            break;
        }
        let batch = Batch::pack(events[from..to.min(from + 9)].iter().cloned()).expect("events");
        let expected =
            head.as_ref().map_or(Expected::ABSENT, |head| Expected { epoch: head.epoch, next_seq: head.next_seq });
        let header = head.is_none().then(|| SessionHeader::new(name).created_at(0));
        head = Some(engine.append(&id, header.as_ref(), expected, &batch).expect("nothing disturbs"));
    }
    engine.release(&id, head.expect("events were written").epoch).expect("a release");
}

/// A small store with sessions in every state that files can be in.
fn base() -> &'static SimulatedFiles {
    static BASE: OnceLock<SimulatedFiles> = OnceLock::new();
    BASE.get_or_init(|| {
        let files = SimulatedFiles::new(1);
        let engine = engine_options(&files).rotate_at(700).open(ROOT).expect("a store in memory");
        let events = session_events(120);
        let id = |name: &str| SessionId::new(name).expect("a plain id");
        let seal = |name: &str| engine.seal(&id(name), SealOptions::new().level(1)).map(drop).expect("sound sessions");
        write(&engine, "journals", &events, 60);
        write(&engine, "other", &events, 10);
        write(&engine, "sealed", &events, 40);
        seal("sealed");
        // Two segments, the second too heavy for the first to be taken in, and journals behind.
        let sealing =
            engine_options(&files).background_sealing(true).rotate_at(700).open(ROOT).expect("a store in memory");
        for to in [80, 110] {
            write(&engine, "half", &events, to);
            // All journals are there before any is sealed, so that the outcome does not depend on time.
            let head = sealing.take_over(&id("half")).expect("a sound session").head;
            sealing.release(&id("half"), head.epoch).expect("a release");
            sealing.finish_sealing();
        }
        drop(sealing);
        write(&engine, "half", &events, 120);
        engine.fork(&id("half"), 100, &SessionHeader::new("fork").created_at(0)).expect("a fork");
        let files_of = |name: &str| files.read_directory(&engine.locate(&id(name))).expect("a session's directory");
        let count = |name: &str, kind: &str| files_of(name).iter().filter(|file| file.ends_with(kind)).count();
        assert!(count("half", ".seg") >= 2 && count("half", ".log") >= 1 && count("fork", ".seg") >= 2);
        assert!(count("journals", ".log") >= 3 && count("sealed", ".seg") == 1);
        files
    })
}

/// The files of the store that hold something, sorted.
fn paths(files: &SimulatedFiles) -> Vec<PathBuf> {
    let mut found = vec![Path::new(ROOT).join("STORE"), Path::new(ROOT).join("catalog")];
    for name in SESSIONS {
        let directory = Path::new(ROOT).join("sessions").join(name);
        let mut names = files.read_directory(&directory).unwrap_or_default();
        names.sort_unstable();
        found.extend(names.into_iter().filter(|name| name != "lock").map(|name| directory.join(name)));
    }
    found
}

/// Makes one change, as four bytes say: which file, what, and two numbers.
fn change(files: &SimulatedFiles, [which, what, x, y]: [u8; 4], tail: &[u8]) {
    let all = paths(files);
    let path = &all[usize::from(which) % all.len()];
    let other = &all[usize::from(x) % all.len()];
    let Some(mut bytes) = files.contents(path) else { return };
    let number = usize::from(u16::from_le_bytes([x, y]));
    let at = number % bytes.len().max(1);
    let end = (at + 16).min(bytes.len());
    match what % 14 {
        0 if at < bytes.len() => bytes[at] ^= 1 << (y % 8),
        1 => bytes.truncate(at),
        2 => bytes.truncate(bytes.len().saturating_sub(usize::from(x))),
        3 => bytes[at..end].fill(0),
        4 => bytes.extend_from_slice(&vec![y; usize::from(x)]),
        5 => bytes.extend_from_slice(tail),
        6 => bytes.splice(at..end, tail.iter().copied().take(64)).for_each(drop),
        7 => bytes = tail.to_vec(),
        8 => bytes = files.contents(other).unwrap_or_default(),
        9 | 10 => {
            // Under another name in the same session, or in another.
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let seq = name.get(..20).and_then(|digits| digits.parse::<u64>().ok()).unwrap_or_default();
            let kind = if y & 1 == 0 { "log" } else { "seg" };
            let target = other.with_file_name(format!("{:020}.{kind}", seq + u64::from(y >> 1)));
            if what % 14 == 9 {
                // A target that is a directory stays one.
                let _ = files.overwrite(&target, &bytes);
            } else {
                let _ = files.rename(path, &target);
            }
            return;
        }
        11 => drop(files.remove_file(path)),
        12 => {
            let theirs = files.contents(other).unwrap_or_default();
            let _ = files.overwrite(other, &bytes);
            bytes = theirs;
        }
        _ => {
            let _ = files.remove_file(path);
            let _ = files.create_directory(path);
            return;
        }
    }
    if what % 14 != 11 {
        let _ = files.overwrite(path, &bytes);
    }
}

/// Runs the target on one input: a number of changes, four bytes for each, and bytes that changes put somewhere.
pub fn run(input: &[u8]) {
    let Some((&count, rest)) = input.split_first() else { return };
    let files = base().copy(1);
    let (changes, tail) = rest.split_at((usize::from(count) % (MOST_CHANGES + 1) * 4).min(rest.len()));
    for piece in changes.chunks_exact(4) {
        change(&files, [piece[0], piece[1], piece[2], piece[3]], tail);
    }
    let opened = engine_options(&files).open(ROOT);
    let Ok(engine) = opened else {
        // A store's identity that cannot be read or is a newer version's refuses everything alike.
        assert!(engine_options(&files).open(ROOT).is_err());
        return;
    };
    let found = SESSIONS.map(|name| look(&engine, &SessionId::new(name).expect("a plain id")));
    listings_agree(&engine, &found);
    // One of them is used further; what is done to it does not touch the others.
    let chosen = usize::from(count) / (MOST_CHANGES + 1) % SESSIONS.len();
    views_agree(&files.copy(2), SESSIONS[chosen], &found[chosen]);
    if is_sound(&found[chosen]) {
        let id = SessionId::new(SESSIONS[chosen]).expect("a plain id");
        continue_log(&open(&files.copy(3)), &id, &found[chosen].events);
    }
}

fn is_sound(found: &Found) -> bool {
    matches!(found.check.status, CheckStatus::Ok | CheckStatus::Torn)
}

/// What listings say is what the engine found.
fn listings_agree(engine: &Engine, all: &[Found]) {
    let listed = engine.list(None, 100).expect("a listing").entries;
    let summaries = engine.summaries().expect("a listing");
    for (name, found) in SESSIONS.iter().zip(all) {
        match listed.iter().find(|entry| entry.name == *name) {
            Some(entry) => assert!(entry.header.is_ok() || found.opened.is_err(), "{name}: {:?}", entry.header),
            None => assert!(found.opened.is_err(), "{name} opens and is not listed"),
        }
        match summaries.iter().find(|entry| entry.name == *name).map(|entry| &entry.summary) {
            Some(Ok(summary)) => {
                assert!(found.opened.is_ok(), "{name}: {:?}", found.check.error);
                assert!(!is_sound(found) || summary.events == found.check.events, "{name}: {summary:?}");
            }
            other => assert!(!is_sound(found), "{name}: {other:?}"),
        }
    }
}

/// What `inspect` and `resume` say is what the engine found.
fn views_agree(files: &SimulatedFiles, name: &str, found: &Found) {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime without I/O");
    runtime.block_on(async {
        let backend = SegmentBackend::with_options(ROOT, engine_options(files)).expect("a store in memory");
        let store = Store::open(backend).expect("a store");
        let inspected = store.inspect(name).await;
        let resumed = store.resume(name).await;
        for (verb, result) in [
            ("inspect", inspected.as_ref().map(|view| view.durable_seq())),
            ("resume", resumed.as_ref().map(|live| live.recovery().events)),
        ] {
            match result {
                Ok(events) => {
                    assert!(found.opened.is_ok(), "{verb} {name}: {:?}", found.opened);
                    assert!(!is_sound(found) || events == found.check.events, "{verb} {name}: {events}");
                }
                Err(error) => assert!(!is_sound(found), "{verb} {name}: {error}"),
            }
        }
        drop(resumed);
        // A session that nothing was appended to has nothing to flush.
        let _ = store.close().await;
    });
}
