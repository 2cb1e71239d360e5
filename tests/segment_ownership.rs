//! One writer at a time: locks, lost ownership, racing processes, readers beside a writer.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use segment_common::{append, batch, create, events, expected, header, id, journals, lines};
use sessionlog::backend::{AppendError, ErrorKind, Expected, Head, ReadLimit};
use sessionlog::segment::{CheckStatus, Engine, EngineOptions, Reader};

fn lost(engine: &Engine, head: &Head) -> String {
    let expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
    match engine.append(&id("s"), None, expected, &batch(head.next_seq, head.next_seq + 2)) {
        Err(AppendError::Failed(error)) if error.kind == ErrorKind::LostOwnership => error.to_string(),
        other => panic!("not lost: {other:?}"),
    }
}

#[test]
fn a_second_writer_is_refused_naming_the_first_and_gets_in_when_it_has_gone() {
    let home = tempfile::tempdir().unwrap();
    let first = Engine::open(home.path()).unwrap();
    let second = Engine::open(home.path()).unwrap();
    let head = create(&first, "s", 3);
    for engine in [&second, &first] {
        let error = engine.take_over(&id("s")).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Busy);
        assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
        let holder = error.holder.unwrap();
        assert!(holder.pid == Some(std::process::id()) && holder.since.is_some() && holder.host.is_some());
    }
    assert_eq!(lines(&events(&second, "s")), lines(&expected(3)));
    assert!(second.open_session(&id("s")).unwrap().live);
    drop(first);
    let taken = second.take_over(&id("s")).unwrap();
    assert_eq!((taken.head.epoch, taken.head.next_seq), (head.epoch + 1, 3));
}

#[test]
fn a_writer_whose_lock_was_stolen_writes_nothing_more() {
    let home = tempfile::tempdir().unwrap();
    let first = Engine::open(home.path()).unwrap();
    let second = Engine::open(home.path()).unwrap();
    let head = create(&first, "s", 3);
    fs::remove_file(first.locate(&id("s")).join("lock")).unwrap();
    let taken = second.take_over(&id("s")).unwrap();
    assert!(lost(&first, &head).contains("lock"));
    append(&second, "s", &taken.head, 8);
    // For good: putting the file back does not bring the session back.
    assert!(lost(&first, &head).contains("reopen"));
    assert_eq!(lines(&events(&second, "s")), lines(&expected(8)));
    assert_eq!(second.verify(&id("s")).status, CheckStatus::Ok);
}

#[test]
fn a_writer_notices_every_way_its_log_can_change_under_it() {
    type Change<'a> = &'a dyn Fn(&std::path::Path);
    let changes: [(&str, Change<'_>); 6] = [
        ("longer", &|path| {
            let mut bytes = fs::read(path).unwrap();
            bytes.push(0);
            fs::write(path, bytes).unwrap();
        }),
        ("shorter", &|path| {
            let bytes = fs::read(path).unwrap();
            fs::write(path, &bytes[..bytes.len() - 1]).unwrap();
        }),
        ("another file", &|path| {
            let copy = path.with_extension("copy");
            fs::copy(path, &copy).unwrap();
            fs::rename(copy, path).unwrap();
        }),
        ("gone", &|path| fs::remove_file(path).unwrap()),
        ("another end", &|path| {
            let mut bytes = fs::read(path).unwrap();
            for byte in &mut bytes[96..] {
                *byte ^= 1;
            }
            fs::write(path, bytes).unwrap();
        }),
        ("a newer journal", &|path| {
            let _ = fs::copy(path, path.with_file_name("00000000000000000077.log")).unwrap();
        }),
    ];
    for (what, change) in changes {
        let home = tempfile::tempdir().unwrap();
        let engine = Engine::open(home.path()).unwrap();
        let head = create(&engine, "s", 3);
        let path = journals(&engine.locate(&id("s"))).pop().unwrap();
        change(&path);
        let text = lost(&engine, &head);
        assert!(text.contains("does not own"), "{what}: {text}");
    }
}

#[test]
fn a_session_deleted_or_moved_under_its_writer_is_lost() {
    let home = tempfile::tempdir().unwrap();
    let engine = Engine::open(home.path()).unwrap();
    let head = create(&engine, "s", 3);
    fs::rename(engine.locate(&id("s")), home.path().join("sessions/t")).unwrap();
    lost(&engine, &head);
    assert_eq!(engine.delete(&id("s")).unwrap_err().kind, ErrorKind::NotFound);
    engine.release(&id("s"), head.epoch).unwrap();
    create(&engine, "s", 5);
    assert_eq!(lines(&events(&engine, "s")), lines(&expected(5)));
}

#[test]
fn many_engines_racing_on_a_fresh_store_all_succeed_with_one_store_and_one_winner_a_session() {
    for _ in 0..10 {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("a/b/store");
        let barrier = Arc::new(Barrier::new(8));
        let threads: Vec<_> = (0..8)
            .map(|number| {
                let (root, barrier) = (root.clone(), Arc::clone(&barrier));
                thread::spawn(move || {
                    let engine = Engine::open(&root).unwrap();
                    barrier.wait();
                    let own = create(&engine, &format!("own-{number}"), 2).revision.0;
                    let shared = engine.append(&id("shared"), Some(&header("shared")), Expected::ABSENT, &batch(0, 3));
                    let won = match shared {
                        Ok(_) => true,
                        Err(AppendError::Conflict { found, .. }) => {
                            assert_eq!(found, Expected { epoch: 1, next_seq: 3 });
                            false
                        }
                        Err(other) => panic!("{other}"),
                    };
                    (own.split_once('-').unwrap().0.to_owned(), won, engine)
                })
            })
            .collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(results.iter().filter(|(_, won, _)| *won).count(), 1);
        assert!(results.iter().all(|(store, ..)| *store == results[0].0), "two stores were made");
        assert_eq!(Engine::open(&root).unwrap().list(None, 100).unwrap().entries.len(), 9);
    }
}

#[test]
fn readers_beside_a_live_writer_only_ever_see_a_growing_prefix() {
    let home = tempfile::tempdir().unwrap();
    let options = EngineOptions::new().rotate_at(3000).background_sealing(false);
    let writer = options.clone().open(home.path()).unwrap();
    create(&writer, "s", 1);
    writer.release(&id("s"), 1).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|kind| {
            let (done, root) = (Arc::clone(&done), home.path().to_owned());
            thread::spawn(move || {
                let engine = Engine::open(&root).unwrap();
                let mut reader = Reader::open(engine.locate(&id("s"))).unwrap();
                let mut followed = Vec::new();
                let mut length = 0;
                loop {
                    let last = done.load(Ordering::Acquire);
                    if kind == 0 {
                        let opened = engine.open_session(&id("s")).unwrap();
                        assert!(opened.head.next_seq >= length, "the log got shorter");
                        length = opened.head.next_seq;
                        let all = events(&engine, "s");
                        assert_eq!(lines(&all), lines(&expected(all.len() as u64)));
                    } else {
                        loop {
                            let page = reader.next_page(ReadLimit { events: 9, bytes: 4096 }).unwrap();
                            if page.items.is_empty() {
                                break;
                            }
                            followed.extend(page.items.iter().flat_map(|item| item.events()));
                        }
                        assert_eq!(lines(&followed), lines(&expected(followed.len() as u64)));
                        length = followed.len() as u64;
                    }
                    if last {
                        return length;
                    }
                }
            })
        })
        .collect();
    let mut head = writer.take_over(&id("s")).unwrap().head;
    for round in 0..250 {
        let to = head.next_seq + 1 + round % 6;
        head = append(&writer, "s", &head, to);
        if round % 40 == 39 {
            writer.release(&id("s"), head.epoch).unwrap();
            head = writer.take_over(&id("s")).unwrap().head;
        }
    }
    done.store(true, Ordering::Release);
    for reader in readers {
        assert_eq!(reader.join().unwrap(), head.next_seq);
    }
}

#[test]
fn remains_of_dead_creators_are_cleared_and_those_of_live_ones_left() {
    let home = tempfile::tempdir().unwrap();
    let engine = EngineOptions::new().background_sealing(false).open(home.path()).unwrap();
    let head = create(&engine, "s", 3);
    let sessions = home.path().join("sessions");
    let dead = sessions.join(".tmp-dead");
    fs::create_dir_all(dead.join("torn")).unwrap();
    fs::write(dead.join("lock"), b"").unwrap();
    let alive = sessions.join(".tmp-alive");
    fs::create_dir(&alive).unwrap();
    let lock = fs::File::create(alive.join("lock")).unwrap();
    lock.lock().unwrap();
    fs::write(engine.locate(&id("s")).join(".tmp-0"), b"x").unwrap();
    assert_eq!(engine.list(None, 10).unwrap().entries.len(), 1);
    engine.release(&id("s"), head.epoch).unwrap();

    let next = Engine::open(home.path()).unwrap();
    let taken = next.take_over(&id("s")).unwrap();
    assert!(dead.exists(), "no write waits for it");
    next.release(&id("s"), taken.head.epoch).unwrap();
    next.finish_sealing();
    assert!(!dead.exists() && alive.exists());
    assert!(!engine.locate(&id("s")).join(".tmp-0").exists());
}
