//! Durable flushes: one at a time (G3) and many sessions at once (G4), with every latency kept.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use sessionlog::backend::Expected;
use sessionlog::event::{Batch, SessionHeader, SessionId};
use sessionlog::sample::Recording;
use sessionlog::segment::{Engine, EngineOptions, SegmentBackend};
use sessionlog::store::{Store, StoreOptions};

use super::append::{Append, runtime};
use super::inputs::STREAMED;
use super::row::{Latency, Row, Unit};
use super::{Figures, Plan, files};

/// A length that no file of a round grows past.
const LENGTHENED: u64 = 4 << 20;

/// Sessions that stream at once.
pub const CROWDS: [usize; 4] = [1, 8, 64, 512];

/// The contenders of this program; the other stores follow.
pub const STORE: &str = "sessionlog, Store::flush";
pub const ENGINE: &str = "sessionlog, Engine::append";
pub const RAW: &str = "raw write + fdatasync";

/// What stands beside them to tell where time goes: the same calls made on the runtime's blocking pool and awaited, as `Store::flush`
/// has to; and the same calls into a file whose length was set in advance, which spares the file system's journal a commit.
pub const RAW_AWAITED: &str = "raw write + fdatasync, awaited";
pub const RAW_LENGTHENED: &str = "raw write + fdatasync, length set in advance";

/// The first flushes of a recorded session, as streaming gives them.
pub fn flushes(count: usize) -> Vec<Batch> {
    Recording::new(1).events(200_000).batches(STREAMED).take(count).collect()
}

/// What one round of one contender gave: each latency in nanoseconds, and how long all took together.
#[derive(Debug, Default)]
pub struct Round {
    pub each: Vec<u64>,
    pub seconds: f64,
}

impl Round {
    fn rate(&self) -> f64 {
        self.each.len() as f64 / self.seconds
    }
}

fn nanoseconds(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

/// Runs `work` for each of `crowd` sessions on a thread of its own, all at once; it returns its latencies.
fn together(crowd: usize, work: impl Fn(usize) -> Vec<u64> + Sync) -> Round {
    let start = Instant::now();
    let each = thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..crowd).map(|number| scope.spawn(move || work(number))).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("a thread that ends")).collect()
    });
    Round { each, seconds: start.elapsed().as_secs_f64() }
}

/// Bytes of the record that each batch becomes, which is what the raw contender writes.
fn record_sizes(work: &Path, batches: &[Batch]) -> Vec<usize> {
    let root = files::fresh(work, "sizes");
    let engine = EngineOptions::new().background_sealing(false).open(&root).expect("a store");
    let id = SessionId::new("s").expect("a plain id");
    let mut expected = Expected::ABSENT;
    let mut before = 0;
    let mut sizes = Vec::new();
    for batch in batches {
        let create = (expected == Expected::ABSENT).then(|| SessionHeader::new("s"));
        let head = engine.append(&id, create.as_ref(), expected, batch).expect("an append");
        expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
        let now = engine.stored_bytes(&id).expect("the session");
        sizes.push(usize::try_from(now - before).unwrap_or(1));
        before = now;
    }
    sizes
}

/// Files as long as a session's after its first flush, which also makes it: not counted here, nor for anyone else.
fn raw_files(root: &Path, crowd: usize, length: Option<u64>) -> Vec<File> {
    let made = |number: usize| {
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(root.join(number.to_string()));
        let file = file.expect("a file");
        file.write_all_at(&[0x5a; 4096], 0).expect("a write");
        length.into_iter().for_each(|length| file.set_len(length).expect("a length"));
        file.sync_all().expect("a sync");
        file
    };
    (0..crowd).map(made).collect()
}

fn raw_awaited(root: &Path, crowd: usize, sizes: &[usize]) -> Round {
    let files = raw_files(root, crowd, None);
    let sizes: Arc<[usize]> = sizes.into();
    runtime(2).block_on(async {
        let start = Instant::now();
        let write = |file: File| {
            let sizes = Arc::clone(&sizes);
            let (file, bytes) = (Arc::new(file), vec![0x5a_u8; sizes.iter().copied().max().unwrap_or(1)]);
            tokio::spawn(async move {
                let (mut each, mut offset) = (Vec::new(), 4096);
                for &size in sizes.iter().skip(1) {
                    let start = Instant::now();
                    let (file, bytes) = (Arc::clone(&file), bytes.get(..size).unwrap_or(&bytes).to_vec());
                    let work = move || file.write_all_at(&bytes, offset).and_then(|()| file.sync_data());
                    tokio::task::spawn_blocking(work).await.expect("a call that ends").expect("a write and a sync");
                    each.push(nanoseconds(start.elapsed()));
                    offset += size as u64;
                }
                each
            })
        };
        let tasks: Vec<_> = files.into_iter().map(write).collect();
        let mut each = Vec::new();
        for task in tasks {
            each.extend(task.await.expect("a task that ends"));
        }
        Round { each, seconds: start.elapsed().as_secs_f64() }
    })
}

fn raw(root: &Path, crowd: usize, sizes: &[usize], length: Option<u64>) -> Round {
    let files = raw_files(root, crowd, length);
    let bytes = vec![0x5a; sizes.iter().copied().max().unwrap_or(1)];
    together(crowd, |number| {
        let (Some(file), mut offset) = (files.get(number), 4096) else { return Vec::new() };
        let write = |size: &usize| {
            let start = Instant::now();
            file.write_all_at(bytes.get(..*size).unwrap_or(&bytes), offset).expect("a write");
            file.sync_data().expect("a sync");
            offset += *size as u64;
            nanoseconds(start.elapsed())
        };
        sizes.iter().skip(1).map(write).collect()
    })
}

fn engine(root: &Path, crowd: usize, batches: &[Batch]) -> Round {
    let engine = Engine::open(root).expect("a store");
    let ids: Vec<SessionId> = (0..crowd).map(|number| SessionId::new(format!("s-{number}")).expect("an id")).collect();
    let first = batches.first().expect("a batch");
    let heads: Vec<Expected> = ids
        .iter()
        .map(|id| {
            let header = SessionHeader::new(id.as_str());
            let head = engine.append(id, Some(&header), Expected::ABSENT, first).expect("an append");
            Expected { epoch: head.epoch, next_seq: head.next_seq }
        })
        .collect();
    together(crowd, |number| {
        let (Some(id), Some(mut expected)) = (ids.get(number), heads.get(number).copied()) else { return Vec::new() };
        let append = |batch: &Batch| {
            let start = Instant::now();
            expected.next_seq = engine.append(id, None, expected, batch).expect("an append").next_seq;
            nanoseconds(start.elapsed())
        };
        batches.iter().skip(1).map(append).collect()
    })
}

/// As agents use it: events are appended one by one, then the flush is awaited. Only the flush is timed.
fn store(root: &Path, crowd: usize, batches: &Arc<Vec<Batch>>) -> Round {
    runtime(2).block_on(async {
        let options = StoreOptions::new().window(Duration::from_secs(60));
        let store = options.open(SegmentBackend::open(root).expect("a store")).expect("a store");
        let mut sessions = Vec::new();
        for number in 0..crowd {
            let live = store.create(SessionHeader::new(format!("s-{number}"))).await.expect("a session");
            let first = batches.first().expect("a batch");
            first.events().for_each(|event| Append::of(&event).to(live.session()));
            live.flush().await.expect("a flush");
            sessions.push(live);
        }
        let start = Instant::now();
        let tasks: Vec<_> = sessions
            .iter()
            .cloned()
            .map(|live| {
                let batches = Arc::clone(batches);
                tokio::spawn(async move {
                    let mut each = Vec::new();
                    for batch in batches.iter().skip(1) {
                        batch.events().for_each(|event| Append::of(&event).to(live.session()));
                        let start = Instant::now();
                        live.flush().await.expect("a flush");
                        each.push(nanoseconds(start.elapsed()));
                    }
                    each
                })
            })
            .collect();
        let mut each = Vec::new();
        for task in tasks {
            each.extend(task.await.expect("a task that ends"));
        }
        let seconds = start.elapsed().as_secs_f64();
        close(&store).await;
        Round { each, seconds }
    })
}

async fn close(store: &Store<SegmentBackend>) {
    store.close().await.expect("a close");
}

/// A contender's rounds so far.
struct Contender {
    name: String,
    histogram: Histogram<u64>,
    rates: Vec<f64>,
    medians: Vec<f64>,
}

impl Contender {
    fn new(name: &str) -> Self {
        let histogram = Histogram::new_with_bounds(1_000, 60_000_000_000, 3).expect("a range of latencies");
        Self { name: name.to_owned(), histogram, rates: Vec::new(), medians: Vec::new() }
    }

    fn add(&mut self, round: &Round) {
        let mut own = Histogram::<u64>::new_with_bounds(1_000, 60_000_000_000, 3).expect("a range of latencies");
        for latency in &round.each {
            self.histogram.saturating_record(*latency);
            own.saturating_record(*latency);
        }
        self.rates.push(round.rate());
        self.medians.push(own.value_at_quantile(0.5) as f64 / 1e9);
    }
}

/// Flushes of each session in one round.
fn flushes_each(plan: &Plan, crowd: usize) -> usize {
    let (most, all) = if plan.quick { (30, 240) } else { (120, 1_200) };
    (all / crowd).clamp(3, most)
}

/// Rows G3 and G4, and all latencies.
pub fn measure(plan: &Plan, figures: &mut Figures) {
    let crowds = if plan.quick { &CROWDS[..3] } else { &CROWDS[..] };
    for &crowd in crowds {
        let batches = Arc::new(flushes(1 + flushes_each(plan, crowd)));
        let sizes = record_sizes(&plan.work, &batches);
        let mut contenders = Vec::from([RAW, RAW_AWAITED, RAW_LENGTHENED, ENGINE, STORE].map(Contender::new));
        let peers: Vec<&str> = match &plan.peers {
            Some(peers) => peers.names().iter().map(String::as_str).collect(),
            None => Vec::new(),
        };
        contenders.extend(peers.iter().map(|name| Contender::new(name)));
        for _ in 0..plan.rounds() {
            for contender in &mut contenders {
                let root = files::fresh(&plan.work, "flush");
                let round = match contender.name.as_str() {
                    RAW => raw(&root, crowd, &sizes, None),
                    RAW_AWAITED => raw_awaited(&root, crowd, &sizes),
                    RAW_LENGTHENED => raw(&root, crowd, &sizes, Some(LENGTHENED)),
                    ENGINE => engine(&root, crowd, &batches),
                    STORE => store(&root, crowd, &batches),
                    peer => {
                        let peers = plan.peers.as_ref().expect("peers");
                        let taken = peers.flush(peer, &root, crowd, batches.len());
                        Round { each: taken.each, seconds: taken.seconds }
                    }
                };
                contender.add(&round);
            }
        }
        if crowd == 1 {
            figures.rows.push(single(&contenders, &batches, &sizes));
        }
        if crowd == 64 {
            figures.rows.push(crowded(&contenders));
        }
        let latencies = contenders.iter().map(|one| Latency::of(&one.name, crowd, &one.histogram, &one.rates));
        figures.latencies.extend(latencies);
    }
    let _ = std::fs::remove_dir_all(plan.work.join("flush"));
}

fn samples<'a>(contenders: &'a [Contender], name: &str) -> &'a Contender {
    contenders.iter().find(|one| one.name == name).expect("a contender")
}

fn single(contenders: &[Contender], batches: &[Batch], sizes: &[usize]) -> Row {
    let mean = sizes.iter().skip(1).sum::<usize>() / (sizes.len() - 1).max(1);
    let mut row = Row::new("G3", "one durable flush of 200 ms", &samples(contenders, STORE).medians, Unit::Seconds);
    row = row.beside(RAW, &samples(contenders, RAW).medians);
    row = row.stated("dsh", 9e-3).at_most_times(1.15);
    for other in contenders.iter().filter(|one| one.name != RAW && one.name != STORE) {
        row = row.beside(&other.name, &other.medians);
    }
    row.note(format!("{} flushes a round, records of {mean} bytes on average", batches.len() - 1))
}

fn crowded(contenders: &[Contender]) -> Row {
    let mut row =
        Row::new("G4", "flushes a second, 64 live sessions", &samples(contenders, STORE).rates, Unit::PerSecond);
    row = row.beside("raw parallel write + fdatasync", &samples(contenders, RAW).rates).at_least_times(0.9);
    for other in contenders.iter().filter(|one| one.name != RAW && one.name != STORE) {
        row = row.beside(&other.name, &other.rates);
    }
    row
}
