//! Many interleavings of what goes on at once: flush, close and failure in the write-behind; sealing beside appending and reading.
//!
//! The write-behind's tasks can only change places where one of them waits, and its account is one lock that nothing is called
//! under. So seeded waits in the medium and in the tasks, on one thread and a clock that stands still, reach the interleavings
//! there are, and the same seed reaches the same one. Sealing runs in a thread of its own: there, one thread at a time is held up
//! at a file operation until the others have made a number of theirs, at a few seeded places in a run.
#![cfg(feature = "store")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;
mod store_common;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use sessionlog::backend::memory::{Fault, MemoryBackend, Operation};
use sessionlog::backend::{
    AppendError, Backend, BackendError, ErrorKind, Expected, Head, ListPage, Opened, Page, ReadLimit, Taken,
};
use sessionlog::event::{Batch, JsonText, NewEvent, SessionHeader, SessionId};
use sessionlog::segment::files::{Access, File, Files, SimulatedFiles, Stat};
use sessionlog::segment::{CheckStatus, EngineOptions, SealOptions};
use sessionlog::store::{Health, LiveSession};
use store_common::{id, lines, options};

fn schedules(default: u64) -> u64 {
    std::env::var("SESSIONLOG_SCHEDULES").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Numbers that look random and follow from a seed.
#[derive(Debug, Clone)]
struct Numbers(Arc<AtomicU64>);

impl Numbers {
    fn new(seed: u64) -> Self {
        Self(Arc::new(AtomicU64::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))))
    }

    fn below(&self, bound: u64) -> u64 {
        let mut mixed = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// Lets others go first, some number of times.
    async fn wait(&self) {
        for _ in 0..self.below(5) {
            tokio::task::yield_now().await;
        }
    }
}

/// A medium in memory whose calls take some turns before and after their effect.
struct Unhurried {
    memory: MemoryBackend,
    numbers: Numbers,
    appending: AtomicBool,
}

impl Backend for Unhurried {
    async fn open(&self, id: &SessionId) -> Result<Opened, BackendError> {
        self.numbers.wait().await;
        self.memory.open(id).await
    }

    async fn read(&self, id: &SessionId, from: u64, limit: ReadLimit) -> Result<Page, BackendError> {
        self.numbers.wait().await;
        self.memory.read(id, from, limit).await
    }

    async fn take_over(&self, id: &SessionId) -> Result<Taken, BackendError> {
        self.numbers.wait().await;
        self.memory.take_over(id).await
    }

    async fn append(
        &self,
        id: &SessionId,
        header: Option<&SessionHeader>,
        expected: Expected,
        batch: &Batch,
    ) -> Result<Head, AppendError> {
        assert!(!self.appending.swap(true, Ordering::SeqCst), "two batches of one session are in flight");
        self.numbers.wait().await;
        let result = self.memory.append(id, header, expected, batch).await;
        self.numbers.wait().await;
        self.appending.store(false, Ordering::SeqCst);
        result
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<ListPage, BackendError> {
        self.memory.list(after, limit).await
    }

    async fn delete(&self, id: &SessionId) -> Result<(), BackendError> {
        self.memory.delete(id).await
    }

    async fn release(&self, id: &SessionId, epoch: u64) -> Result<(), BackendError> {
        self.numbers.wait().await;
        self.memory.release(id, epoch).await
    }
}

type Live = LiveSession<Unhurried>;

async fn appender(live: Live, numbers: Numbers, name: u64) -> u64 {
    let mut accepted = 0;
    for number in 0..2 + numbers.below(8) {
        let text = JsonText::parse(&format!("[{name},{number}]")).unwrap();
        // Once the session is closed, nothing is accepted any more.
        if live.append_event(NewEvent::named("app/note", text)).is_err() {
            break;
        }
        accepted += 1;
        numbers.wait().await;
    }
    accepted
}

async fn flusher(live: Live, memory: MemoryBackend, numbers: Numbers) -> u64 {
    let mut lies = 0;
    for _ in 0..=numbers.below(4) {
        numbers.wait().await;
        let before = live.next_seq();
        match live.flush().await {
            Ok(()) => lies += u64::from((memory.events(live.id()).len() as u64) < before),
            Err(error) => {
                lies += u64::from(error.events == 0);
                assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::DiskFull | ErrorKind::Poisoned), "{error}");
            }
        }
    }
    lies
}

async fn one_schedule(seed: u64) {
    let numbers = Numbers::new(seed);
    let memory = MemoryBackend::new();
    let medium = Unhurried { memory: memory.clone(), numbers: numbers.clone(), appending: AtomicBool::new(false) };
    let store = options().check_invariants(false).open(medium).unwrap();
    let live = store.create(SessionHeader::new("s")).await.unwrap();
    for _ in 0..numbers.below(4) {
        let fault = match numbers.below(4) {
            0 => Fault::Fail(ErrorKind::DiskFull),
            1 => Fault::Fail(ErrorKind::Io),
            2 => Fault::LostBefore,
            _ => Fault::LostAfter,
        };
        memory.inject(Operation::Append, fault);
    }
    let appenders: Vec<_> = (0..3).map(|name| tokio::spawn(appender(live.clone(), numbers.clone(), name))).collect();
    let flushers: Vec<_> =
        (0..2).map(|_| tokio::spawn(flusher(live.clone(), memory.clone(), numbers.clone()))).collect();
    for _ in 0..numbers.below(30) {
        tokio::task::yield_now().await;
    }
    let mut closed = live.close().await;
    // A failure is told; closing again tries again.
    for _ in 0..6 {
        if closed.is_ok() {
            break;
        }
        assert!(!live.health().is_ok(), "seed {seed}: {closed:?}, yet {:?}", live.health());
        closed = live.close().await;
    }
    closed.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let mut accepted = 0;
    for task in appenders {
        accepted += task.await.unwrap();
    }
    for task in flushers {
        assert_eq!(task.await.unwrap(), 0, "seed {seed}: a flush lied");
    }
    let stored = memory.events(&id("s"));
    assert_eq!(stored.len() as u64, accepted, "seed {seed}: a close lied");
    assert_eq!(lines(&stored), lines(&live.events(..)), "seed {seed}");
    assert_eq!(live.health(), Health::Ok, "seed {seed}");
    memory.clear_faults();
    if accepted > 0 {
        let again = store.resume("s").await.unwrap_or_else(|error| panic!("seed {seed}: not given back: {error}"));
        again.close().await.unwrap();
    }
    store.close().await.unwrap();
}

#[test]
fn l7_flush_close_and_failure_in_many_interleavings_never_lie() {
    for seed in 0..schedules(2_000) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            // Time only passes when nobody can go on: then somebody waits for ever.
            let limit = Duration::from_secs(1_000_000);
            let done = tokio::time::timeout(limit, one_schedule(seed)).await;
            done.unwrap_or_else(|_| panic!("seed {seed}: somebody waits for ever"));
        });
    }
}

/// Files on which a thread is held up, at seeded calls, until others have made some calls of theirs.
#[derive(Debug, Clone)]
struct Interleaved {
    files: SimulatedFiles,
    calls: Arc<AtomicU64>,
    /// Calls at which the caller is held up, and for how many calls of others.
    points: Arc<Mutex<Vec<(u64, u64)>>>,
    held: Arc<AtomicU64>,
}

impl Interleaved {
    fn new(seed: u64) -> Self {
        let numbers = Numbers::new(seed);
        let points = (0..4 + seed % 5).map(|_| (numbers.below(700), 1 + numbers.below(120))).collect();
        let (calls, held) = (Arc::default(), Arc::default());
        Self { files: SimulatedFiles::new(seed), calls, points: Arc::new(Mutex::new(points)), held }
    }

    fn point(&self) {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        let wanted = self.points.lock().unwrap().iter().find(|(at, _)| *at == call).map(|(_, others)| *others);
        let Some(others) = wanted else { return };
        self.held.fetch_add(1, Ordering::SeqCst);
        // Whoever waits for a lock that this thread holds makes no calls; so nobody is held up for long.
        let until = Instant::now() + Duration::from_millis(3);
        while self.calls.load(Ordering::SeqCst) < call + others && Instant::now() < until {
            thread::yield_now();
        }
    }
}

impl Files for Interleaved {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn File>> {
        self.point();
        self.files.open(path, access)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.point();
        self.files.create_directory(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.point();
        let result = self.files.rename(from, to);
        self.point();
        result
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.point();
        self.files.link(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.point();
        let result = self.files.remove_file(path);
        self.point();
        result
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.point();
        self.files.remove_directory(path)
    }

    fn read_directory(&self, path: &Path) -> io::Result<Vec<String>> {
        self.point();
        let result = self.files.read_directory(path);
        self.point();
        result
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.point();
        self.files.sync_directory(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.point();
        self.files.stat(path)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.files.resolve(path)
    }
}

/// A writer with background sealing, a reader that follows, one that reads all of it again and again, and somebody who wants to seal.
fn seal_beside(seed: u64) -> u64 {
    let files = Interleaved::new(seed);
    let open =
        || EngineOptions::new().files(Arc::new(files.clone())).rotate_at(700).seed(seed + 1).open("/store").unwrap();
    let engine = open();
    let mut head = segment_common::create(&engine, "s", 2);
    let done = Arc::new(AtomicBool::new(false));
    let follower = {
        let (done, engine) = (Arc::clone(&done), open());
        thread::spawn(move || {
            let mut reader = engine.reader(&id("s")).unwrap();
            let mut found = Vec::new();
            loop {
                let last = done.load(Ordering::Acquire);
                loop {
                    let page = reader.next_page(ReadLimit { events: 5, bytes: 700 }).unwrap();
                    if page.items.is_empty() {
                        break;
                    }
                    found.extend(page.items.iter().flat_map(|item| item.events()));
                }
                if last {
                    return found;
                }
            }
        })
    };
    let stranger = {
        let (done, engine) = (Arc::clone(&done), open());
        thread::spawn(move || {
            while !done.load(Ordering::Acquire) {
                let sealed = engine.seal(&id("s"), SealOptions::new().level(1));
                assert!(sealed.as_ref().err().is_none_or(|error| error.kind == ErrorKind::Busy), "{sealed:?}");
                let all = segment_common::events(&engine, "s");
                assert_eq!(lines(&all), lines(&segment_common::expected(all.len() as u64)));
                let check = engine.verify(&id("s"));
                assert!(matches!(check.status, CheckStatus::Ok | CheckStatus::Torn), "{:?}", check.error);
            }
        })
    };
    let mut given_back = false;
    while head.next_seq < 46 {
        if given_back {
            match engine.take_over(&id("s")) {
                Ok(taken) => head = taken.head,
                Err(error) if error.kind == ErrorKind::Busy => continue,
                Err(error) => panic!("seed {seed}: {error}"),
            }
        }
        head = segment_common::append(&engine, "s", &head, head.next_seq + 3);
        given_back = head.next_seq.is_multiple_of(4);
        if given_back {
            engine.release(&id("s"), head.epoch).unwrap();
        }
    }
    if !given_back {
        engine.release(&id("s"), head.epoch).unwrap();
    }
    done.store(true, Ordering::Release);
    let read = follower.join().unwrap();
    stranger.join().unwrap();
    assert_eq!(lines(&read), lines(&segment_common::expected(head.next_seq)), "seed {seed}: followed");
    drop(engine);
    let engine = open();
    assert_eq!(lines(&segment_common::events(&engine, "s")), lines(&segment_common::expected(head.next_seq)));
    let check = engine.verify(&id("s"));
    assert_eq!(check.status, CheckStatus::Ok, "seed {seed}: {:?}", check.error);
    files.held.load(Ordering::SeqCst)
}

#[test]
fn sealing_beside_appending_and_reading_in_many_interleavings() {
    let runs = schedules(60);
    let held: u64 = (0..runs).map(seal_beside).sum();
    println!("{runs} runs, a thread held up {held} times");
    assert!(held > runs, "{held}");
}
