//! The engine's everyday work: create, append, read, take over, fork, list, delete.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use segment_common::{append, batch, create, event, events, expected, header, id, lines};
use sessionlog::backend::{AppendError, ErrorKind, Expected, ReadLimit};
use sessionlog::event::{Batch, JsonText, NewEvent};
use sessionlog::segment::{CheckStatus, Engine, EngineOptions, Reader};

fn store() -> (tempfile::TempDir, Engine) {
    let directory = tempfile::tempdir().unwrap();
    let engine =
        EngineOptions::new().rotate_at(2000).background_sealing(false).open(directory.path().join("store")).unwrap();
    (directory, engine)
}

#[test]
fn what_was_appended_is_read_back_across_journals_and_writers() {
    let (_directory, engine) = store();
    let mut head = create(&engine, "s", 3);
    assert_eq!((head.epoch, head.next_seq), (1, 3));
    for to in [4, 40, 41, 90, 120] {
        head = append(&engine, "s", &head, to);
    }
    assert_eq!(lines(&events(&engine, "s")), lines(&expected(120)));
    let opened = engine.open_session(&id("s")).unwrap();
    assert!(opened.live && opened.torn.is_none());
    assert_eq!(opened.head, head);
    assert_eq!(opened.head.last_batch.unwrap().checksum, batch(90, 120).checksum());
    assert_eq!(opened.header, header("s"));
    assert_eq!(engine.revision(&id("s")).unwrap(), head.revision);

    engine.release(&id("s"), 1).unwrap();
    for epoch in 2..6 {
        let taken = engine.take_over(&id("s")).unwrap();
        assert_eq!((taken.head.epoch, taken.head.next_seq, taken.head.last_batch), (epoch, 120, head.last_batch));
        assert_ne!(taken.head.revision, head.revision);
        engine.release(&id("s"), epoch).unwrap();
        head = taken.head;
    }
    assert!(!engine.open_session(&id("s")).unwrap().live);
    let journals = segment_common::journals(&engine.locate(&id("s"))).len();
    let taken = engine.take_over(&id("s")).unwrap();
    assert_eq!(segment_common::journals(&engine.locate(&id("s"))).len(), journals, "resumes do not pile up files");
    append(&engine, "s", &taken.head, 130);
    assert_eq!(lines(&events(&engine, "s")), lines(&expected(130)));
    let check = engine.verify(&id("s"));
    assert_eq!((check.status, check.events), (CheckStatus::Ok, 130), "{:?}", check.error);
}

#[test]
fn appends_are_conditional_on_epoch_and_seq() {
    let (_directory, engine) = store();
    let head = create(&engine, "s", 3);
    let again = engine.append(&id("s"), Some(&header("s")), Expected::ABSENT, &batch(0, 2));
    assert!(matches!(again, Err(AppendError::Conflict { found, .. }) if found == Expected { epoch: 1, next_seq: 3 }));
    for expected in [Expected { epoch: 2, next_seq: 3 }, Expected { epoch: 1, next_seq: 2 }] {
        let result = engine.append(&id("s"), None, expected, &batch(expected.next_seq, 5));
        assert!(matches!(result, Err(AppendError::Conflict { .. })));
    }
    engine.release(&id("s"), head.epoch).unwrap();
    let result = engine.append(&id("s"), None, Expected { epoch: 1, next_seq: 3 }, &batch(3, 5));
    assert!(matches!(result, Err(AppendError::Failed(error)) if error.kind == ErrorKind::LostOwnership));
    let result = engine.append(&id("other"), None, Expected { epoch: 1, next_seq: 3 }, &batch(3, 5));
    assert!(matches!(result, Err(AppendError::Failed(error)) if error.kind == ErrorKind::NotFound));
    assert_eq!(lines(&events(&engine, "s")), lines(&expected(3)));
}

#[test]
fn nothing_is_on_disk_before_the_first_append() {
    let (directory, engine) = store();
    assert!(engine.list(None, 10).unwrap().entries.is_empty());
    assert_eq!(engine.open_session(&id("s")).unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(engine.delete(&id("s")).unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_linked_root_is_resolved_once_and_a_file_is_no_store() {
    let home = tempfile::tempdir().unwrap();
    let real = home.path().join("real");
    std::fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, home.path().join("link")).unwrap();
    let engine = Engine::open(home.path().join("link")).unwrap();
    std::fs::remove_file(home.path().join("link")).unwrap();
    create(&engine, "s", 2);
    assert!(real.join("sessions/s/header").exists());
    assert_eq!(Engine::open(real.join("STORE")).unwrap_err().kind, ErrorKind::Invalid);
}

#[test]
fn reading_from_any_seq_gives_the_rest() {
    let (_directory, engine) = store();
    let mut head = create(&engine, "s", 3);
    for to in (10..100).step_by(9) {
        head = append(&engine, "s", &head, to);
    }
    let end = head.next_seq;
    for from in 0..end + 3 {
        let page = engine.read(&id("s"), from, ReadLimit::default()).unwrap();
        let read: Vec<_> = page.items.iter().flat_map(|item| item.events()).collect();
        assert_eq!(lines(&read), lines(&(from.min(end)..end).map(event).collect::<Vec<_>>()), "from {from}");
        assert_eq!(page.next, None);
        let one = engine.read(&id("s"), from, ReadLimit { events: 1, bytes: 0 }).unwrap();
        assert_eq!(one.items.iter().flat_map(|item| item.events()).count(), usize::from(from < end));
        assert_eq!(one.next, (from + 1 < end).then_some(from + 1));
    }
}

#[test]
fn a_reader_follows_a_live_log_through_rotation_takeover_and_deletion() {
    let (_directory, engine) = store();
    let mut head = create(&engine, "s", 1);
    let mut reader = Reader::open(engine.locate(&id("s"))).unwrap();
    let mut read = Vec::new();
    for round in 0..60 {
        let page = reader.next_page(ReadLimit { events: 4, bytes: 1 << 20 }).unwrap();
        read.extend(page.items.iter().flat_map(|item| item.events()));
        if round % 7 == 6 {
            engine.release(&id("s"), head.epoch).unwrap();
            head = engine.take_over(&id("s")).unwrap().head;
        }
        if round < 50 {
            let to = head.next_seq + 1 + round % 5;
            head = append(&engine, "s", &head, to);
        }
    }
    while let Ok(page) = reader.next_page(ReadLimit::default()) {
        if page.items.is_empty() {
            break;
        }
        read.extend(page.items.iter().flat_map(|item| item.events()));
    }
    assert_eq!(lines(&read), lines(&expected(head.next_seq)));
    engine.release(&id("s"), head.epoch).unwrap();
    engine.delete(&id("s")).unwrap();
    assert_eq!(reader.next_page(ReadLimit::default()).unwrap_err().kind, ErrorKind::NotFound);
    create(&engine, "s", 2);
    reader.seek(0);
    assert_eq!(reader.next_page(ReadLimit::default()).unwrap().items.len(), 2);
}

#[test]
fn l5_a_fork_holds_exactly_the_events_up_to_its_boundary_for_every_seq() {
    let (_directory, engine) = store();
    let head = create(&engine, "s", 31);
    append(&engine, "s", &head, 45);
    let before = std::fs::read(&segment_common::journals(&engine.locate(&id("s")))[0]).unwrap();
    for boundary in 0..45 {
        let name = format!("child-{boundary}");
        let head = engine.fork(&id("s"), boundary, &header(&name)).unwrap();
        assert_eq!(head.next_seq, boundary + 1);
        assert_eq!(lines(&events(&engine, &name)), lines(&expected(boundary + 1)));
        assert!(!engine.open_session(&id(&name)).unwrap().live);
        assert_eq!(engine.take_over(&id(&name)).unwrap().head.epoch, 2);
    }
    assert_eq!(std::fs::read(&segment_common::journals(&engine.locate(&id("s")))[0]).unwrap(), before);
    assert_eq!(engine.fork(&id("s"), 45, &header("late")).unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(engine.fork(&id("none"), 0, &header("late")).unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(engine.fork(&id("s"), 1, &header("child-1")).unwrap_err().kind, ErrorKind::Exists);
    assert_eq!(engine.open_session(&id("late")).unwrap_err().kind, ErrorKind::NotFound);
    let names = std::fs::read_dir(engine.root().join("sessions")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().all(|name| !name.to_str().unwrap().starts_with('.')), "a temporary directory remains");
}

#[test]
fn listing_pages_in_key_order() {
    let (_directory, engine) = store();
    for name in ["b", "A", "a/b", "\u{e9}", "x".repeat(300).as_str()] {
        create(&engine, name, 1);
    }
    let all: Vec<String> = engine.list(None, 100).unwrap().entries.into_iter().map(|listed| listed.name).collect();
    assert_eq!(all.len(), 5);
    let mut paged = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = engine.list(after.as_deref(), 2).unwrap();
        paged.extend(page.entries.into_iter().map(|listed| listed.header.unwrap().id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(paged, all);
}

#[test]
fn a_batch_of_many_records_keeps_its_mark() {
    let (_directory, engine) = store();
    let text = "y".repeat(300_000);
    let make = |seq: u64| NewEvent::named("app/big", JsonText::parse(&format!("\"{text}{seq}\"")).unwrap()).at(seq, 5);
    let large = Batch::pack((0..12).map(make)).unwrap();
    let head = engine.append(&id("s"), Some(&header("s")), Expected::ABSENT, &large).unwrap();
    assert_eq!(engine.open_session(&id("s")).unwrap().head.last_batch, head.last_batch);
    assert_eq!(head.last_batch.unwrap().checksum, large.checksum());
    let page = engine.read(&id("s"), 5, ReadLimit { events: 100, bytes: 400_000 }).unwrap();
    assert_eq!(page.items[0].first_seq(), 5);
    assert_eq!((page.items.len(), page.next), (2, Some(7)));
}

#[test]
fn a_reader_does_not_go_on_in_another_session_of_the_same_id() {
    let (_directory, engine) = store();
    let head = create(&engine, "s", 2);
    engine.release(&id("s"), head.epoch).unwrap();
    let mut reader = engine.reader(&id("s")).unwrap();
    assert_eq!(reader.next_page(ReadLimit::default()).unwrap().items.len(), 2);
    engine.delete(&id("s")).unwrap();
    let batch = Batch::pack(expected(9)).unwrap();
    let other = header("s").created_at(99);
    engine.append(&id("s"), Some(&other), Expected::ABSENT, &batch).unwrap();
    assert_eq!(reader.next_page(ReadLimit::default()).unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(events(&engine, "s").len(), 9);
}
