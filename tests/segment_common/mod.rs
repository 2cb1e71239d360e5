//! What the segment engine's tests share.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "each test binary uses a part")]

pub mod unsealable;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sessionlog::backend::{Expected, Head, ReadLimit};
use sessionlog::event::{Batch, Event, JsonText, NewEvent, SessionHeader, SessionId};
use sessionlog::segment::files::SimulatedFiles;
use sessionlog::segment::{Engine, EngineOptions};

pub fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

pub fn header(text: &str) -> SessionHeader {
    SessionHeader::new(text).cwd("/srv").created_at(1_700_000_000_000)
}

/// The event that every test expects at this seq; sizes and shapes vary.
pub fn event(seq: u64) -> Event {
    let (event_type, data) = match seq % 5 {
        0..=2 => {
            let text = "word ".repeat(usize::try_from(seq % 7).unwrap());
            let block = seq / 5;
            let data =
                format!(r#"{{"turn":1,"step":1,"chunk":{{"type":"text-delta","index":{block},"text":"{text}"}}}}"#);
            ("assistant/chunk", data)
        }
        3 => {
            ("app/note", format!(r#"{{"n":{seq},"text":"{}"}}"#, "x".repeat(usize::try_from(seq * 37 % 200).unwrap())))
        }
        _ => ("app/mark", format!("{seq}")),
    };
    NewEvent::named(event_type, JsonText::parse(&data).unwrap()).at(seq, 1_700_000_000_000 + seq.cast_signed())
}

pub fn batch(from: u64, to: u64) -> Batch {
    Batch::pack((from..to).map(event)).unwrap()
}

pub fn create(engine: &Engine, name: &str, events: u64) -> Head {
    engine.append(&id(name), Some(&header(name)), Expected::ABSENT, &batch(0, events)).unwrap()
}

pub fn append(engine: &Engine, name: &str, head: &Head, to: u64) -> Head {
    let expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
    engine.append(&id(name), None, expected, &batch(head.next_seq, to)).unwrap()
}

/// All events of a session, read page by page.
pub fn events(engine: &Engine, name: &str) -> Vec<Event> {
    try_events(engine, name).unwrap()
}

pub fn try_events(engine: &Engine, name: &str) -> Result<Vec<Event>, sessionlog::backend::BackendError> {
    let mut events = Vec::new();
    let mut from = Some(0);
    while let Some(seq) = from {
        let page = engine.read(&id(name), seq, ReadLimit { events: 7, bytes: 600 })?;
        events.extend(page.items.iter().flat_map(|item| item.events()));
        from = page.next;
    }
    Ok(events)
}

pub fn expected(count: u64) -> Vec<Event> {
    (0..count).map(event).collect()
}

pub fn lines(events: &[Event]) -> Vec<String> {
    events.iter().map(Event::to_line).collect()
}

/// An engine over simulated files, as a process of its own.
pub fn simulated(files: &SimulatedFiles) -> EngineOptions {
    EngineOptions::new()
        .files(Arc::new(files.clone()))
        .background_sealing(false)
        .seed(files.calls().wrapping_mul(31).wrapping_add(7))
}

/// Every file below `root`, by path.
pub fn files_below(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { pending.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

pub fn journals(session: &Path) -> Vec<PathBuf> {
    files_below(session)
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect()
}

/// Copies a directory tree.
pub fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            let _ = std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
