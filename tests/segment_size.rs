//! Large and numerous: memory follows the page, not the log. Alone in its process, because it counts the process's memory.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use segment_common::{create, header, id};
use sessionlog::backend::{AppendError, ErrorKind, Expected, ReadLimit};
use sessionlog::event::{Batch, Item, JsonText, NewEvent};
use sessionlog::segment::{CheckStatus, Engine, EngineOptions, Reader};

/// Counts what is allocated at present and the most there was.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: as for the function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as for the function.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Most bytes that `work` had allocated at any time, beyond what there was before.
fn most_during(work: impl FnOnce()) -> usize {
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    work();
    MOST.load(Ordering::Relaxed).saturating_sub(before)
}

fn tiny(seq: u64) -> Batch {
    let event = NewEvent::named("a/b", JsonText::parse("1").unwrap()).at(seq, seq.cast_signed());
    Batch::new(vec![Item::Event(event)]).unwrap()
}

const RECORDS: u64 = 120_000;

#[test]
fn memory_follows_the_page_and_not_the_log() {
    let home = tempfile::tempdir().unwrap();
    many_tiny_records(&home.path().join("tiny"));
    one_large_event(&home.path().join("large"));
    a_claim_of_more_than_there_is(&home.path().join("claim"));
}

/// Syncs would take minutes, so the files are simulated and then written out.
fn many_tiny_records(root: &std::path::Path) {
    use sessionlog::segment::files::{Files, SimulatedFiles};
    let files = SimulatedFiles::new(1);
    let simulated =
        EngineOptions::new().files(std::sync::Arc::new(files.clone())).rotate_at(1 << 20).background_sealing(false);
    let engine = simulated.open("/store").unwrap();
    let mut head = engine.append(&id("s"), Some(&header("s")), Expected::ABSENT, &tiny(0)).unwrap();
    while head.next_seq < RECORDS {
        let expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
        head = engine.append(&id("s"), None, expected, &tiny(head.next_seq)).unwrap();
    }
    std::fs::create_dir_all(root.join("sessions/s")).unwrap();
    let session = std::path::Path::new("/store/sessions/s");
    let names = files.read_directory(session).unwrap();
    assert!(names.len() > 4);
    for name in names {
        if let Some(bytes) = files.contents(&session.join(&name)) {
            std::fs::write(root.join("sessions/s").join(&name), bytes).unwrap();
        }
    }
    drop(engine);
    drop(files);

    let engine = Engine::open(root).unwrap();
    let most = most_during(|| assert_eq!(engine.open_session(&id("s")).unwrap().head.next_seq, RECORDS));
    assert!(most < 1 << 20, "opening held {most} bytes");
    let most = most_during(|| {
        let check = engine.verify(&id("s"));
        assert_eq!((check.status, check.events), (CheckStatus::Ok, RECORDS));
    });
    assert!(most < 1 << 20, "verifying held {most} bytes");
    let most = most_during(|| {
        let mut reader = Reader::open(engine.locate(&id("s"))).unwrap();
        let mut next = 0;
        loop {
            let page = reader.next_page(ReadLimit { events: 500, bytes: 1 << 20 }).unwrap();
            if page.items.is_empty() {
                break;
            }
            assert_eq!(page.items[0].first_seq(), next);
            next = page.items.last().unwrap().next_seq();
        }
        assert_eq!(next, RECORDS);
    });
    assert!(most < 2 << 20, "reading held {most} bytes");
    let most = most_during(|| {
        assert_eq!(engine.fork(&id("s"), RECORDS - 1, &header("child")).unwrap().next_seq, RECORDS);
    });
    assert!(most < 48 << 20, "forking held {most} bytes");
}

fn one_large_event(root: &std::path::Path) {
    let engine = Engine::open(root).unwrap();
    let head = create(&engine, "s", 2);
    let text = format!("\"{}\"", "0123456789abcdef".repeat(2 << 20));
    let event = NewEvent::named("app/large", JsonText::parse(&text).unwrap()).at(2, 0);
    let batch = Batch::pack([event]).unwrap();
    let expected = Expected { epoch: head.epoch, next_seq: 2 };
    engine.append(&id("s"), None, expected, &batch).unwrap();
    let page = engine.read(&id("s"), 2, ReadLimit::default()).unwrap();
    assert_eq!(page.items[0].events().next().unwrap().data(), text);
    let most = most_during(|| assert_eq!(engine.verify(&id("s")).status, CheckStatus::Ok));
    assert!(most < 6 * text.len(), "verifying held {most} bytes");
    let sources: Vec<u64> = (0..10_000).map(|number| number * 2).collect();
    let placed = NewEvent::named("user/message", JsonText::parse("{}").unwrap())
        .placed(sessionlog::event::Placement::append().from(sources));
    let batch = Batch::pack([placed.at(3, 0)]).unwrap();
    let expected = Expected { next_seq: 3, ..expected };
    engine.append(&id("s"), None, expected, &batch).unwrap();
    let gap = engine.append(&id("s"), None, Expected { next_seq: 4, ..expected }, &batch);
    assert!(matches!(gap, Err(AppendError::Failed(error)) if error.kind == ErrorKind::Invalid));
}

/// A journal that promises gigabytes costs what is there.
fn a_claim_of_more_than_there_is(root: &std::path::Path) {
    let engine = Engine::open(root).unwrap();
    let head = create(&engine, "s", 2);
    engine.release(&id("s"), head.epoch).unwrap();
    let path = segment_common::journals(&engine.locate(&id("s"))).pop().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(64 << 20).unwrap();
    let most = most_during(|| {
        let check = engine.verify(&id("s"));
        assert_eq!((check.status, check.events), (CheckStatus::Torn, 2));
    });
    assert!(most < 2 << 20, "looking through a hole held {most} bytes");
}
