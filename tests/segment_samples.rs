//! A small store with a session in every state that files can be in.
//!
//! Run with `SESSIONLOG_WRITE_SAMPLES=DIRECTORY` to have it written there, for tools that damage it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use std::fs;
use std::path::Path;

use segment_common::{files_below, header, id, lines, try_events};
use sessionlog::backend::{BackendError, DamageClass, ErrorKind, Expected, Head, ReadLimit};
use sessionlog::event::{Batch, Event};
use sessionlog::sample::Recording;
use sessionlog::segment::{CheckStatus, Engine, EngineOptions, SealOptions};

/// Appends events up to seq `to`, a few more in each append than in the one before.
fn append(engine: &Engine, name: &str, events: &[Event], head: Option<Head>, to: usize) -> Head {
    let mut head = head;
    let mut size = 1;
    loop {
        let from = head.as_ref().map_or(0, |head| usize::try_from(head.next_seq).unwrap());
        if from >= to {
            return head.unwrap();
        }
        let batch = Batch::pack(events[from..to.min(from + size)].iter().cloned()).unwrap();
        let expected =
            head.as_ref().map_or(Expected::ABSENT, |head| Expected { epoch: head.epoch, next_seq: head.next_seq });
        head = Some(engine.append(&id(name), head.is_none().then(|| header(name)).as_ref(), expected, &batch).unwrap());
        size = size % 40 + 9;
    }
}

/// Appends events up to seq `to` as one writer, and lets go of the session.
fn write(engine: &Engine, name: &str, events: &[Event], to: usize) {
    let head = engine.take_over(&id(name)).ok().map(|taken| taken.head);
    let head = append(engine, name, events, head, to);
    engine.release(&id(name), head.epoch).unwrap();
}

fn seal(engine: &Engine, name: &str) {
    engine.seal(&id(name), SealOptions::new()).unwrap();
}

/// Writes the store. Journals of the session `plain` are not compressed.
fn write_store(root: &Path) -> Vec<(&'static str, Vec<Event>)> {
    let options = || EngineOptions::new().seed(7).rotate_at(6000).background_sealing(false);
    let engine = options().open(root).unwrap();
    let recorded = |seed, events| Recording::new(seed).events(events).iter().collect::<Vec<_>>();
    let (short, long) = (recorded(3, 300), recorded(4, 700));

    write(&engine, "journals", &long, 200);
    write(&engine, "journals", &long, 700);
    let plain = options().compress(false).open(root).unwrap();
    write(&plain, "plain", &short, 300);
    write(&engine, "torn", &short, 300);
    let newest = files_below(&engine.locate(&id("torn"))).into_iter().rfind(|path| path.extension().is_some()).unwrap();
    let bytes = fs::read(&newest).unwrap();
    fs::write(&newest, &bytes[..bytes.len() - 5]).unwrap();
    let kept = usize::try_from(engine.verify(&id("torn")).events).unwrap();

    write(&engine, "sealed", &long, 700);
    seal(&engine, "sealed");
    // Sealed on close: segments of which each is much smaller than the one before are not joined.
    let sealing = EngineOptions::new().seed(8).rotate_at(6000).open(root).unwrap();
    for to in [400, 560] {
        write(&engine, "half", &long, to);
        // All journals are there before any is sealed, so that the outcome does not depend on time.
        let head = sealing.take_over(&id("half")).unwrap().head;
        sealing.release(&id("half"), head.epoch).unwrap();
        sealing.finish_sealing();
    }
    write(&engine, "half", &long, 700);
    for (child, boundary) in [("fork", 320_usize), ("fork-of-all", 519)] {
        engine.fork(&id("half"), boundary as u64, &header(child)).unwrap();
        write(&engine, child, &long, boundary + 40);
    }
    let part = |count: usize| long[..count].to_vec();
    vec![
        ("journals", part(700)),
        ("plain", short.clone()),
        ("torn", short[..kept].to_vec()),
        ("sealed", part(700)),
        ("half", part(700)),
        ("fork", part(360)),
        ("fork-of-all", part(559)),
    ]
}

#[test]
fn sample_stores_hold_what_was_written() {
    let home = tempfile::tempdir().unwrap();
    let chosen = std::env::var_os("SESSIONLOG_WRITE_SAMPLES");
    let root = chosen.map_or_else(|| home.path().join("store"), Into::into);
    let sessions = write_store(&root);
    let engine = Engine::open(&root).unwrap();
    for (name, events) in &sessions {
        let check = engine.verify(&id(name));
        let status = if *name == "torn" { CheckStatus::Torn } else { CheckStatus::Ok };
        assert_eq!((check.status, check.events), (status, events.len() as u64), "{name}: {:?}", check.error);
        assert_eq!(lines(&try_events(&engine, name).unwrap()), lines(events), "{name}");
    }
    let count = |extension: &str, name: &str| {
        let files = files_below(&engine.locate(&id(name)));
        files.iter().filter(|path| path.extension().is_some_and(|end| end == extension)).count()
    };
    assert!(count("log", "journals") >= 3 && count("log", "plain") >= 3);
    assert_eq!((count("seg", "sealed"), count("log", "sealed")), (1, 0));
    assert!(count("seg", "half") >= 2 && count("log", "half") >= 1 && count("seg", "fork-of-all") >= 1);
    assert!(engine.locate(&id("fork")).join("shared").exists());
}

/// What reading gives before the end or a fault, and that.
fn read_before_fault(engine: &Engine, name: &str) -> (usize, Option<BackendError>) {
    let mut count = 0;
    loop {
        match engine.read(&id(name), count as u64, ReadLimit::default()) {
            Ok(page) => count += page.items.iter().map(|item| item.events().count()).sum::<usize>(),
            Err(error) => return (count, Some(error)),
        }
        if engine.read(&id(name), count as u64, ReadLimit::default()).is_ok_and(|page| page.items.is_empty()) {
            return (count, None);
        }
    }
}

#[test]
fn r4_a_file_under_another_name_gets_one_verdict_from_every_reader() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("store");
    let sessions = write_store(&root);
    let class = |error: &BackendError| error.damage.as_ref().map(|damage| damage.class);
    let (mut sound, mut damaged) = (0, 0);
    for (name, _) in &sessions {
        let directory = Engine::open(&root).unwrap().locate(&id(name));
        for path in files_below(&directory).into_iter().filter(|path| path.extension().is_some()) {
            let Some(seq) = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok()) else { continue };
            let found = [1, 40, 300, 5000].map(|step| directory.join(format!("{:020}", seq + step)));
            for target in found.iter().flat_map(|target| ["seg", "log"].map(|kind| target.with_extension(kind))) {
                if target.exists() {
                    continue;
                }
                fs::copy(&path, &target).unwrap();
                let engine = Engine::open(&root).unwrap();
                let check = engine.verify(&id(name));
                let (events, fault) = read_before_fault(&engine, name);
                let what = format!("{} as {}", path.display(), target.display());
                assert_eq!(events as u64, check.events, "{what}: {:?}, {fault:?}", check.error);
                assert_eq!(fault.as_ref().map(class), check.error.as_ref().map(class), "{what}");
                let opened = engine.open_session(&id(name));
                assert_eq!(opened.as_ref().err().map(class), check.error.as_ref().map(class), "{what}");
                if let Some(error) = &check.error {
                    damaged += 1;
                    assert_eq!(error.kind, ErrorKind::Damaged, "{what}");
                    if target.extension().is_some_and(|kind| kind == "seg") && path.extension() == target.extension() {
                        assert_eq!(class(error), Some(DamageClass::IdentityMismatch), "{what}");
                    }
                } else {
                    sound += 1;
                }
                fs::remove_file(&target).unwrap();
            }
        }
    }
    assert!(damaged > 60, "{sound} sound, {damaged} damaged");
}
