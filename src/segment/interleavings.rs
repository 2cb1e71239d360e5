//! Appending, rotation, sealing, reading, forking and deleting at once, under every order of file operations that a scheduler finds.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::files::{Access, File, Files, Lock, SimulatedFiles, Stat};
use super::{Engine, EngineOptions, SealOptions};
use crate::backend::{BackendError, ErrorKind, Expected, Head, ReadLimit};
use crate::event::{Batch, Event, JsonText, NewEvent, SessionHeader, SessionId};
use crate::sync::turns::{self, Scenario, effort, explore, shuffle};

/// Files whose every call is a place where another thread may go first.
#[derive(Debug, Clone)]
struct SteppingFiles(SimulatedFiles);

#[derive(Debug)]
struct SteppingFile(Box<dyn File>);

impl Files for SteppingFiles {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn File>> {
        turns::point();
        self.0.open(path, access).map(|file| Box::new(SteppingFile(file)) as Box<dyn File>)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        turns::point();
        self.0.create_directory(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        turns::point();
        self.0.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        turns::point();
        self.0.link(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        turns::point();
        self.0.remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        turns::point();
        self.0.remove_directory(path)
    }

    fn read_directory(&self, path: &Path) -> io::Result<Vec<String>> {
        turns::point();
        self.0.read_directory(path)
    }

    // Syncs change nothing that another thread sees.
    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.0.sync_directory(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        turns::point();
        self.0.stat(path)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.0.resolve(path)
    }
}

impl File for SteppingFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        turns::point();
        self.0.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        turns::point();
        self.0.write_at(bytes, offset)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        turns::point();
        self.0.truncate(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn stat(&self) -> io::Result<Stat> {
        turns::point();
        self.0.stat()
    }

    fn try_lock(&self, lock: Lock) -> io::Result<bool> {
        turns::point();
        self.0.try_lock(lock)
    }
}

/// Events of one batch.
const BATCH: u64 = 3;

fn id() -> SessionId {
    SessionId::new("s").unwrap()
}

fn event(seq: u64) -> Event {
    let data = JsonText::parse(&format!(r#"{{"n":{seq},"text":"{}"}}"#, "x".repeat(60))).unwrap();
    NewEvent::named("app/note", data).at(seq, 1_000)
}

fn batch(from: u64) -> Batch {
    Batch::pack((from..from + BATCH).map(event)).unwrap()
}

/// One session on one disk, and how much of it was reported as durable.
#[derive(Clone)]
struct World {
    files: SimulatedFiles,
    durable: Arc<AtomicU64>,
    deleted: Arc<AtomicBool>,
}

impl World {
    /// A session of one batch, whose every further batch goes to a new journal.
    fn new() -> (Self, Engine, Head) {
        let world = Self { files: SimulatedFiles::new(1), durable: Arc::default(), deleted: Arc::default() };
        let engine = world.engine(true);
        let header = SessionHeader::new("s").created_at(1);
        let head = engine.append(&id(), Some(&header), Expected::ABSENT, &batch(0)).unwrap();
        world.durable.store(head.next_seq, Ordering::Relaxed);
        (world, engine, head)
    }

    /// Another process over the same disk.
    fn engine(&self, sealing: bool) -> Engine {
        let files = Arc::new(SteppingFiles(self.files.clone()));
        let seed = self.files.calls();
        let options = EngineOptions::new().files(files).rotate_at(64).background_sealing(sealing).seed(seed);
        options.open("/store").unwrap()
    }

    fn append(&self, engine: &Engine, head: &Head) -> Head {
        let expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
        let head = engine.append(&id(), None, expected, &batch(head.next_seq)).unwrap();
        self.durable.store(head.next_seq, Ordering::Relaxed);
        head
    }

    /// Reads the whole log: everything durable before must be there, and nothing else than what was appended.
    fn read(&self, engine: &Engine) {
        let before = self.durable.load(Ordering::Relaxed);
        match events(engine, &id()) {
            Ok(found) => {
                assert!(found.iter().map(Event::to_line).eq((0..found.len() as u64).map(|seq| event(seq).to_line())));
                assert!(found.len() as u64 >= before, "{} of {before} durable events", found.len());
            }
            Err(error) => {
                assert!(self.deleted.load(Ordering::Relaxed) && error.kind == ErrorKind::NotFound, "{error}");
            }
        }
    }

    fn check(&self) {
        let engine = self.engine(false);
        self.read(&engine);
        if !self.deleted.load(Ordering::Relaxed) {
            let check = engine.verify(&id());
            assert!(check.error.is_none() && check.events >= self.durable.load(Ordering::Relaxed), "{check:?}");
        }
    }
}

fn events(engine: &Engine, id: &SessionId) -> Result<Vec<Event>, BackendError> {
    let (mut found, mut from) = (Vec::new(), Some(0));
    while let Some(seq) = from {
        let page = engine.read(id, seq, ReadLimit { events: 4, bytes: 1 << 20 })?;
        found.extend(page.items.iter().flat_map(crate::event::Item::events));
        from = page.next;
    }
    Ok(found)
}

fn try_both(name: &str, runs: usize, scenario: impl Fn() -> Scenario) {
    let (tried, all) = explore(name, 1, effort(runs), &scenario);
    shuffle(name, 0, effort(runs) as u64, &scenario);
    println!(
        "{name}: {tried} orders of one preemption at most{}, {} random",
        if all { " (all)" } else { "" },
        effort(runs)
    );
}

#[test]
fn readers_beside_a_writer_and_sealing_see_everything_durable() {
    try_both("read", 150, || {
        let (world, engine, head) = World::new();
        let (writing, own, other, checked) = (world.clone(), world.clone(), world.clone(), world.clone());
        let reading = engine.clone();
        Scenario::new()
            .thread("writer", move || {
                let head = writing.append(&engine, &head);
                let head = writing.append(&engine, &head);
                engine.release(&id(), head.epoch).unwrap();
                assert_eq!(engine.sealing_failures(), []);
            })
            .thread("reader", move || own.read(&reading))
            .thread("other process", move || {
                let engine = other.engine(false);
                other.read(&engine);
                other.read(&engine);
            })
            .afterwards(move || checked.check())
    });
}

#[test]
fn deleting_beside_a_writer_and_sealing_is_refused_or_whole() {
    try_both("delete", 150, || {
        let (world, engine, head) = World::new();
        let (writing, deleting, reading, checked) = (world.clone(), world.clone(), world.clone(), world.clone());
        let deleted = Arc::clone(&world.deleted);
        Scenario::new()
            .thread("writer", move || {
                let head = writing.append(&engine, &head);
                engine.release(&id(), head.epoch).unwrap();
            })
            .thread("deleter", move || {
                let engine = deleting.engine(false);
                deleted.store(true, Ordering::Relaxed);
                match engine.delete(&id()) {
                    Ok(()) => {}
                    Err(error) if error.kind == ErrorKind::Busy => {
                        deleted.store(false, Ordering::Relaxed);
                        assert!(error.holder.is_some(), "{error}");
                    }
                    Err(error) => panic!("{error}"),
                }
            })
            .thread("reader", move || {
                let engine = reading.engine(false);
                let before = reading.durable.load(Ordering::Relaxed);
                match events(&engine, &id()) {
                    Ok(found) => assert!(found.len() as u64 >= before, "{} of {before}", found.len()),
                    Err(error) => assert_eq!(error.kind, ErrorKind::NotFound, "{error}"),
                }
            })
            .afterwards(move || checked.check())
    });
}

#[test]
fn taking_over_and_sealing_on_demand_race_a_release() {
    try_both("take over", 150, || {
        let (world, engine, head) = World::new();
        let (writing, taking, sealing, checked) = (world.clone(), world.clone(), world.clone(), world.clone());
        Scenario::new()
            .thread("writer", move || {
                let head = writing.append(&engine, &head);
                engine.release(&id(), head.epoch).unwrap();
            })
            .thread("next writer", move || {
                let engine = taking.engine(true);
                match engine.take_over(&id()) {
                    Ok(taken) => {
                        assert_eq!(taken.head.next_seq, 2 * BATCH);
                        let head = taking.append(&engine, &taken.head);
                        engine.release(&id(), head.epoch).unwrap();
                    }
                    Err(error) => assert_eq!(error.kind, ErrorKind::Busy, "{error}"),
                }
            })
            .thread("sealing", move || {
                let engine = sealing.engine(false);
                if let Err(error) = engine.seal(&id(), SealOptions::new()) {
                    assert_eq!(error.kind, ErrorKind::Busy, "{error}");
                }
            })
            .afterwards(move || checked.check())
    });
}

#[test]
fn a_fork_beside_a_writer_and_sealing_is_the_prefix() {
    try_both("fork", 150, || {
        let (world, engine, head) = World::new();
        let (writing, checked) = (world.clone(), world.clone());
        let forking = engine.clone();
        Scenario::new()
            .thread("writer", move || {
                let head = writing.append(&engine, &head);
                let head = writing.append(&engine, &head);
                engine.release(&id(), head.epoch).unwrap();
            })
            .thread("fork", move || {
                let child = SessionHeader::new("child").created_at(1);
                forking.fork(&id(), BATCH - 2, &child).unwrap();
                let found = events(&forking, &SessionId::new("child").unwrap()).unwrap();
                assert!(found.iter().map(Event::to_line).eq((0..BATCH - 1).map(|seq| event(seq).to_line())));
            })
            .afterwards(move || checked.check())
    });
}
