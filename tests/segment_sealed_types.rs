//! Which blocks of a sealed segment hold which type: whoever looks for a rare one reads those blocks and passes over all others.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use segment_common::{header, id};
use sessionlog::backend::{Expected, ReadLimit};
use sessionlog::event::{Batch, Event, Item, JsonText, NewEvent};
use sessionlog::segment::files::{Access, File, Files, Lock, SimulatedFiles, Stat};
use sessionlog::segment::{CheckStatus, Engine, EngineOptions, SealOptions, Selection};

/// Files that count the bytes read.
#[derive(Debug)]
struct Counting {
    files: SimulatedFiles,
    read: Arc<AtomicU64>,
}

#[derive(Debug)]
struct CountingFile {
    file: Box<dyn File>,
    read: Arc<AtomicU64>,
}

impl Files for Counting {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn File>> {
        let file = self.files.open(path, access)?;
        Ok(Box::new(CountingFile { file, read: Arc::clone(&self.read) }))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.files.create_directory(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.files.remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.files.remove_directory(path)
    }

    fn read_directory(&self, path: &Path) -> io::Result<Vec<String>> {
        self.files.read_directory(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.files.sync_directory(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.files.stat(path)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.files.resolve(path)
    }
}

impl File for CountingFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let count = self.file.read_at(buffer, offset)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(bytes, offset)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.truncate(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn stat(&self) -> io::Result<Stat> {
        self.file.stat()
    }

    fn try_lock(&self, lock: Lock) -> io::Result<bool> {
        self.file.try_lock(lock)
    }
}

/// About a mebibyte that does not shrink below half of it.
fn noise(seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut text = String::with_capacity(1 << 20);
    while text.len() < 1 << 20 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let _ = write!(text, "{state:016x}");
    }
    text
}

const BLOCKS: u64 = 10;
/// Blocks that a title stands in.
const TITLED: [u64; 2] = [3, 8];

/// A sealed session of ten blocks, in the tenth of which a model streamed.
fn events() -> Vec<Event> {
    let mut events = Vec::new();
    let mut add = |event_type: &str, data: String| {
        let seq = events.len() as u64;
        events.push(NewEvent::named(event_type, JsonText::parse(&data).unwrap()).at(seq, 0));
    };
    for block in 0..BLOCKS {
        add("app/note", format!("\"{}\"", noise(block)));
        if TITLED.contains(&block) {
            add("session/title", format!("{{\"title\":\"the {block}th\"}}"));
        }
        for _ in 0..if block == 9 { 20 } else { 0 } {
            let chunk = r#"{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"word "}}"#;
            add("assistant/chunk", chunk.to_owned());
        }
        add("step/end", "{}".to_owned());
    }
    events
}

fn chosen(engine: &Engine, wanted: &(dyn Fn(&str) -> bool + Sync)) -> Vec<Event> {
    let mut reader = engine.reader(&id("s")).unwrap();
    let mut events = Vec::new();
    loop {
        let page = reader.next_page_of(ReadLimit::default(), &Selection::types(wanted)).unwrap();
        events.extend(page.items.iter().flat_map(Item::events));
        if page.next.is_none() {
            return events;
        }
    }
}

#[test]
fn the_cost_of_a_type_follows_the_blocks_that_hold_it() {
    let read = Arc::new(AtomicU64::new(0));
    let files = Counting { files: SimulatedFiles::new(1), read: Arc::clone(&read) };
    let options = EngineOptions::new().files(Arc::new(files)).background_sealing(false).rotate_at(1 << 30);
    let engine = options.open("/store").unwrap();
    let events = events();
    let batch = Batch::pack(events.iter().cloned()).unwrap();
    let head = engine.append(&id("s"), Some(&header("s")), Expected::ABSENT, &batch).unwrap();
    engine.release(&id("s"), head.epoch).unwrap();
    engine.seal(&id("s"), SealOptions::new().level(1)).unwrap();
    assert_eq!(engine.verify(&id("s")).status, CheckStatus::Ok);
    let block = engine.sections(&id("s")).unwrap().conversation.stored / BLOCKS;
    assert!(block > 400_000, "{block}");

    // What opening costs beside the blocks is a header and a footer, here far less than half a block.
    for (name, blocks) in
        [("app/nothing", 0), ("session/title", 2), ("assistant/chunk", 1), ("step/end", BLOCKS), ("app/note", BLOCKS)]
    {
        read.store(0, Ordering::Relaxed);
        let found = chosen(&engine, &|event_type| event_type == name);
        let expected: Vec<&Event> = events.iter().filter(|event| event.event_type() == name).collect();
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{name}");
        let read = read.load(Ordering::Relaxed);
        assert!((block * blocks..block * blocks + block / 2).contains(&read), "{name}: {read} bytes, {block} a block");
    }
    read.store(0, Ordering::Relaxed);
    let found = chosen(&engine, &|name| ["session/title", "assistant/chunk"].contains(&name));
    assert_eq!(found.len(), 22);
    let read = read.load(Ordering::Relaxed);
    assert!(read < block * 7 / 2, "{read}");
}
