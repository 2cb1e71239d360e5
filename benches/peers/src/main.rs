//! Other stores, fed the same recorded events with the same durability as the engine: run by `bench_report` as children of its own.
//!
//! `sessionlog-peers WORK NAME DIRECTORY WORDS..` does one piece of work and prints what it took as JSON; `sessionlog-peers names`
//! prints the stores.

mod database;
mod embedded;
mod lines;
mod text;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use sessionlog::event::{Batch, SessionHeader};
use sessionlog::sample::{Cadence, Recording};

/// One store of several sessions, each known by its number.
pub trait Peer: Send + Sync {
    /// Appends a batch; when it returns, the batch is durable, unless the store was opened without that.
    fn append(&self, session: u64, batch: &Batch);

    /// The stored text of a session from the beginning: a header line, then events or packed rows, one a line.
    fn read(&self, session: u64) -> Box<dyn std::io::Read + '_>;

    /// The same of about the last `events` events.
    fn tail(&self, session: u64, events: usize) -> Vec<u8>;

    /// How long it takes to make session `child` of all that `session` holds, durably; takes it away again. `None` for formats that
    /// the original system does not have.
    fn fork(&self, _session: u64, _child: u64) -> Option<Duration> {
        None
    }

    /// Puts everything in its final place.
    fn close(&self) {}
}

/// The stores by name, cheapest first.
const NAMES: [&str; 7] = ["jsonl", "zstd-frames", "sqlite-rows", "sqlite-packed", "redb", "fjall", "raft-engine"];

/// Events that streaming flushes at once: 200 ms of recorded time.
const STREAMED: Cadence = Cadence::Window(200);

fn open(name: &str, root: &Path, durable: bool) -> Box<dyn Peer> {
    fs::create_dir_all(root).expect("a directory");
    match name {
        "jsonl" => Box::new(lines::Plain::open(root, durable)),
        "zstd-frames" => Box::new(lines::Frames::open(root, durable)),
        "sqlite-rows" => Box::new(database::Sqlite::open(root, durable, false)),
        "sqlite-packed" => Box::new(database::Sqlite::open(root, durable, true)),
        "redb" => Box::new(embedded::Redb::open(root, durable)),
        "fjall" => Box::new(embedded::Fjall::open(root, durable)),
        "raft-engine" => Box::new(embedded::Raft::open(root, durable)),
        other => panic!("there is no store {other}"),
    }
}

/// What a piece of work took; the reader of it is `benches/measure/child.rs`.
#[derive(Debug, Default, Serialize)]
pub struct Taken {
    pub seconds: f64,
    pub processor: f64,
    pub count: u64,
    pub bytes: f64,
    pub each: Vec<u64>,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let taken = match words[..] {
        ["names"] => {
            NAMES.iter().for_each(|name| println!("{name}"));
            return;
        }
        ["store", name, root, events, cadence, mode] => {
            let cadence = if cadence == "step" { Cadence::Step } else { STREAMED };
            store(name, Path::new(root), number(events), cadence, mode == "durable")
        }
        ["flush", name, root, sessions, flushes] => flush(name, Path::new(root), number(sessions), number(flushes)),
        ["read", name, root] => timed(name, root, |peer| text::count(peer.read(0))),
        ["tail", name, root] => timed(name, root, |peer| text::count_rows(&peer.tail(0, 100))),
        ["fork", name, root] => {
            let elapsed = open(name, Path::new(root), true).fork(0, 1);
            let elapsed = elapsed.unwrap_or_else(|| panic!("forking is not measured for {name}"));
            Taken { seconds: elapsed.as_secs_f64(), ..Taken::default() }
        }
        ["list", "sqlite-packed", root, sessions] => list(Path::new(root), number(sessions)),
        _ => panic!("no such work: {words:?}"),
    };
    println!("{}", serde_json::to_string(&taken).expect("plain numbers"));
}

fn number(word: &str) -> u64 {
    word.parse().expect("a number")
}

fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn size(root: &Path) -> f64 {
    let entries = fs::read_dir(root).expect("a directory").map(|entry| entry.expect("an entry").path());
    let bytes = |path: PathBuf| {
        if path.is_dir() { size(&path) } else { fs::metadata(path).map_or(0.0, |stat| stat.len() as f64) }
    };
    entries.map(bytes).sum()
}

/// Opens the store and does `work`, which says how many events it saw.
fn timed(name: &str, root: &str, work: impl FnOnce(&dyn Peer) -> u64) -> Taken {
    let start = Instant::now();
    let peer = open(name, Path::new(root), true);
    let count = work(&*peer);
    Taken { seconds: start.elapsed().as_secs_f64(), count, ..Taken::default() }
}

/// Stores a recording as session 0.
fn store(name: &str, root: &Path, events: u64, cadence: Cadence, durable: bool) -> Taken {
    let peer = open(name, root, durable);
    let recording = Recording::new(1).events(events);
    // Durable work is measured, so the recording is not made meanwhile.
    let ready: Vec<Batch> = if durable { recording.batches(cadence).collect() } else { Vec::new() };
    let (processor, start) = (processor_time(), Instant::now());
    if durable {
        ready.iter().for_each(|batch| peer.append(0, batch));
    } else {
        recording.batches(cadence).for_each(|batch| peer.append(0, &batch));
    }
    let (processor, seconds) = (processor_time() - processor, start.elapsed().as_secs_f64());
    peer.close();
    drop(peer);
    Taken { seconds, processor, count: events, bytes: size(root), ..Taken::default() }
}

/// Makes so many flushes durable in each of so many sessions at once; the first of each session is not counted.
fn flush(name: &str, root: &Path, sessions: u64, flushes: u64) -> Taken {
    let peer = open(name, root, true);
    let recording = Recording::new(1).events(200_000);
    let batches: Vec<Batch> = recording.batches(STREAMED).take(usize::try_from(flushes).expect("few")).collect();
    let (first, rest) = batches.split_first().expect("a flush");
    (0..sessions).for_each(|session| peer.append(session, first));
    let start = Instant::now();
    let each = thread::scope(|scope| {
        let peer = &peer;
        let stream = |session| {
            move || {
                let append = |batch: &Batch| {
                    let start = Instant::now();
                    peer.append(session, batch);
                    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
                };
                rest.iter().map(append).collect::<Vec<u64>>()
            }
        };
        let running: Vec<_> = (0..sessions).map(|session| scope.spawn(stream(session))).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("a thread that ends")).collect()
    });
    Taken { seconds: start.elapsed().as_secs_f64(), each, ..Taken::default() }
}

/// Lists so many sessions of a database, from a connection that has not seen them.
fn list(root: &Path, sessions: u64) -> Taken {
    fs::create_dir_all(root).expect("a directory");
    let database = database::Sqlite::open(root, false, true);
    let batch = Batch::pack(Recording::new(1).events(40).iter()).expect("events");
    database.fill(sessions, &batch);
    drop(database);
    let start = Instant::now();
    let count = database::Sqlite::open(root, true, true).list();
    assert_eq!(count, sessions);
    Taken { seconds: start.elapsed().as_secs_f64(), count, ..Taken::default() }
}

/// The header line of a session.
pub fn header(session: u64) -> SessionHeader {
    SessionHeader::new(format!("session-{session}")).cwd("/srv/example").created_at(1)
}
