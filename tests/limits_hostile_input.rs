//! Input that is larger or more than anything that means well: refused, or taken in, in bounded memory.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use segment_common::{header, id};
use sessionlog::backend::{AppendError, ErrorKind, Expected};
use sessionlog::event::limits::{MAX_EVENT_BYTES, MAX_SOURCES};
use sessionlog::event::message::UserMessage;
use sessionlog::event::{Batch, EnvelopeError, JsonText, NewEvent, Placement, RawEnvelope, SessionHeader, Sources};
use sessionlog::interop::{Import, ImportErrorKind, ImportOptions, JsonlWriter, MAX_LINE_BYTES};
use sessionlog::segment::Engine;
use sessionlog::session::{Session, SessionOptions};

/// Counts what is allocated, so that tests can say how much was held at most.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn count(more: usize, less: usize) {
    let held = HELD.fetch_add(more, Ordering::Relaxed) + more;
    HELD.fetch_sub(less, Ordering::Relaxed);
    MOST.fetch_max(held, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MIB: usize = 1 << 20;

/// Tests that measure memory run one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The most bytes held while `work` ran, beyond those held before.
fn most_held<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let result = work();
    (result, MOST.load(Ordering::Relaxed).saturating_sub(before))
}

fn text_of(bytes: usize) -> JsonText {
    JsonText::parse(&format!("\"{}\"", "x".repeat(bytes - 2))).unwrap()
}

fn new_session() -> Session {
    Session::create(SessionHeader::new("s").created_at(1), SessionOptions::new()).unwrap()
}

fn one(new: NewEvent) -> Batch {
    Batch::pack([new.at(0, 1)]).unwrap()
}

#[test]
fn sources_at_the_limit_and_beyond_it() {
    let _alone = alone();
    let limit = MAX_SOURCES as u64;
    let line = |last: u64| {
        format!(
            r#"{{"type":"user/message","seq":9007199254740990,"time":1,"data":0,"sourceEventSeqs":[[9007190000000000,{last}]],"surfaceOp":"append"}}"#
        )
    };
    let first = 9_007_190_000_000_000;
    let event = RawEnvelope::parse(&line(first + limit - 1)).and_then(RawEnvelope::into_event).unwrap();
    let (written, held) = most_held(|| event.to_line());
    assert!(
        written.len() <= MAX_LINE_BYTES - MAX_EVENT_BYTES,
        "the longest list can be imported beside the largest payload"
    );
    assert!(held <= 4 * 17 * MAX_SOURCES, "{} MiB", held / MIB);
    for last in [first + limit, 9_007_199_254_740_989] {
        let error = RawEnvelope::parse(&line(last)).and_then(RawEnvelope::into_event).unwrap_err();
        assert!(matches!(&error, EnvelopeError::Member { member, .. } if member == "sourceEventSeqs"), "{error}");
    }
    // In memory an event may name any range; appending it is refused, whoever appends it.
    let sources: Sources = [0].into_iter().collect();
    let mut endless = sources.clone();
    endless.push_range(1, 9_007_199_254_740_989);
    let new = |sources| NewEvent::named("user/message", text_of(2)).placed(Placement::append().from_sources(sources));
    let session = new_session();
    assert!(session.append_event(new(endless.clone())).is_err());
    let home = tempfile::tempdir().unwrap();
    let engine = Engine::open(home.path()).unwrap();
    let refused = engine.append(&id("s"), Some(&header("s")), Expected::ABSENT, &one(new(endless)));
    assert!(matches!(refused, Err(AppendError::Failed(error)) if error.kind == ErrorKind::Invalid));
}

#[test]
fn a_log_in_which_everything_cites_everything_is_exported_in_bounded_memory() {
    let _alone = alone();
    let count: u64 = 2_000;
    let cite_all = |seq: u64| {
        let mut sources = Sources::default();
        if seq > 0 {
            sources.push_range(0, seq - 1);
        }
        let placement = if seq == 0 { Placement::append() } else { Placement::append().from_sources(sources) };
        let content = r#"{"id":"m","role":"user","content":[],"source":{"kind":"user"}}"#;
        NewEvent::named("user/message", JsonText::parse(content).unwrap()).placed(placement).at(seq, 1)
    };
    let ((), held) = most_held(|| {
        let mut out = Sink(0);
        let mut writer = JsonlWriter::new(&mut out, &header("s")).unwrap();
        for seq in 0..count {
            writer.event(&cite_all(seq)).unwrap();
        }
        writer.finish().unwrap();
        assert!(out.0 > 8_000_000, "{}", out.0);
    });
    assert!(held < MIB, "{held} bytes were held for lines of 10 KB");
}

/// Counts what is written to it.
struct Sink(u64);

impl std::io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_object_of_a_million_members_is_read_in_a_time_that_follows_its_size() {
    let _alone = alone();
    let members: Vec<String> = (0..1_000_000).map(|member| format!("\"m{member}\":0")).collect();
    let data = format!(r#"{{"id":"m","role":"user","content":[],"source":{{"kind":"user"}},{}}}"#, members.join(","));
    let data = JsonText::parse(&data).unwrap();
    let event = NewEvent::named("user/message", data).placed(Placement::append()).at(0, 1);
    let (message, held) = most_held(|| event.payload::<UserMessage>().unwrap().unwrap());
    assert!(held < 512 * MIB, "{} MiB", held / MIB);
    assert_eq!(message.extra.len(), 1_000_000);
}

/// A log whose one event line goes on and on, made as it is read.
struct LongLine {
    head: Vec<u8>,
    left: u64,
}

impl Read for LongLine {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if !self.head.is_empty() {
            let count = self.head.len().min(buffer.len());
            buffer[..count].copy_from_slice(&self.head[..count]);
            self.head.drain(..count);
            return Ok(count);
        }
        let count = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        buffer[..count].fill(b'x');
        self.left -= count as u64;
        Ok(count)
    }
}

fn long_line(bytes: u64) -> LongLine {
    let head = format!("{}\n{{\"type\":\"app/x\",\"seq\":0,\"time\":1,\"data\":\"", header("s").to_line());
    LongLine { head: head.into_bytes(), left: bytes }
}

#[test]
fn a_line_beyond_the_limit_is_refused_in_bounded_memory() {
    let _alone = alone();
    let limit = 4 * MIB;
    let (result, held) =
        most_held(|| Import::open(long_line(u64::MAX), ImportOptions::default().max_line_bytes(limit)).map(|_| ()));
    let error = result.unwrap_err();
    assert!(matches!(*error.kind, ImportErrorKind::TooLarge { limit: found, .. } if found == limit as u64), "{error}");
    assert!(held < 3 * limit, "{} MiB were held for a limit of 4", held / MIB);
    // The limit that holds unless another is asked for.
    let (result, held) = most_held(|| Import::open(long_line(u64::MAX), ImportOptions::default()).map(|_| ()));
    assert!(matches!(*result.unwrap_err().kind, ImportErrorKind::TooLarge { .. }));
    assert!(held < 3 * MAX_LINE_BYTES, "{} MiB", held / MIB);
}

/// zstd frames that each unpack to a mebibyte of one byte.
fn bomb(byte: u8, mebibytes: usize) -> Vec<u8> {
    zstd::bulk::compress(&vec![byte; MIB], 3).unwrap().repeat(mebibytes)
}

#[test]
fn compressed_logs_that_unpack_to_gigabytes_are_refused_in_bounded_memory() {
    let _alone = alone();
    for (byte, options, expected) in [
        (b'x', ImportOptions::default().max_line_bytes(4 * MIB), "line"),
        (b'\n', ImportOptions::default(), "blank"),
        (b' ', ImportOptions::default().max_line_bytes(4 * MIB), "line"),
        (b'\n', ImportOptions::default().max_decoded_bytes(8 << 20), "decode"),
        (0, ImportOptions::default().max_decoded_bytes(8 << 20), "decode"),
    ] {
        let packed = bomb(byte, 4096);
        assert!(packed.len() < MIB);
        let (result, held) = most_held(|| Import::open(packed.as_slice(), options).map(|_| ()));
        let error = result.unwrap_err();
        assert!(matches!(*error.kind, ImportErrorKind::TooLarge { .. }), "{expected}: {error}");
        // What tells the format apart may look through all the blank bytes that are allowed.
        assert!(held < 128 * MIB, "{expected}: {} MiB", held / MIB);
    }
}
