//! Named limits: at them, and one beyond; and input that is larger, deeper or more than anything that means well.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use segment_common::{create, header, id};
use sessionlog::backend::{AppendError, ErrorKind, Expected, ReadLimit};
use sessionlog::event::limits::{
    MAX_EVENT_BYTES, MAX_HEADER_BYTES, MAX_SAFE_INTEGER, MAX_SESSION_EVENTS, MAX_SOURCES, MAX_TITLE_BYTES,
    MAX_TYPE_BYTES,
};
use sessionlog::event::message::UserMessage;
use sessionlog::event::{
    Batch, EnvelopeError, Event, JsonText, NewEvent, Placement, RawEnvelope, SessionHeader, Sources,
};
use sessionlog::interop::{Import, ImportErrorKind, ImportOptions, JsonlWriter, MAX_LINE_BYTES};
use sessionlog::segment::{Engine, SealOptions};
use sessionlog::session::{Seed, Session, SessionOptions};

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
fn type_names_at_the_limit_and_beyond_it() {
    let _alone = alone();
    let home = tempfile::tempdir().unwrap();
    let engine = Engine::open(home.path()).unwrap();
    let named = |bytes: usize| NewEvent::named(&"t".repeat(bytes), JsonText::parse("1").unwrap());
    let session = new_session();
    session.append_event(named(MAX_TYPE_BYTES)).unwrap();
    assert!(session.append_event(named(MAX_TYPE_BYTES + 1)).is_err());
    assert_eq!(session.next_seq(), 1);
    for (name, bytes, fits) in [("at", MAX_TYPE_BYTES, true), ("beyond", MAX_TYPE_BYTES + 1, false), ("none", 0, false)]
    {
        // Whoever appends to the engine without a session meets the same limit.
        let result = engine.append(&id(name), Some(&header(name)), Expected::ABSENT, &one(named(bytes)));
        match result {
            Ok(_) => assert!(fits && engine.verify(&id(name)).error.is_none(), "{name}"),
            Err(AppendError::Failed(error)) => assert!(!fits && error.kind == ErrorKind::Invalid, "{name}: {error}"),
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

#[test]
fn headers_at_the_limit_and_beyond_it() {
    let home = tempfile::tempdir().unwrap();
    let engine = Engine::open(home.path()).unwrap();
    let with_cwd = |bytes: usize| {
        let empty = SessionHeader::new("s").created_at(1).cwd("/").to_line().len();
        SessionHeader::new("s").created_at(1).cwd(format!("/{}", "d".repeat(bytes - empty)))
    };
    let (largest, beyond) = (with_cwd(MAX_HEADER_BYTES), with_cwd(MAX_HEADER_BYTES + 1));
    assert_eq!(largest.to_line().len(), MAX_HEADER_BYTES);
    let batch = segment_common::batch(0, 2);
    let head = engine.append(&id("s"), Some(&largest), Expected::ABSENT, &batch).unwrap();
    engine.release(&id("s"), head.epoch).unwrap();
    assert_eq!(engine.open_session(&id("s")).unwrap().header, largest);
    assert!(Session::create(beyond.clone(), SessionOptions::new()).is_err());
    let refused = engine.append(&id("s"), Some(&beyond), Expected::ABSENT, &batch);
    assert!(matches!(refused, Err(AppendError::Failed(error)) if error.kind == ErrorKind::Invalid));
    for (header, fits) in [(largest, true), (beyond, false)] {
        let line = header.to_line() + "\n";
        assert_eq!(Import::open(line.as_bytes(), ImportOptions::default()).is_ok(), fits);
    }
    // A header of very many members is refused for its size, before its members are compared with each other.
    let members: Vec<String> = (0..1_000_000).map(|member| format!("\"m{member}\":0")).collect();
    let line = format!("{{\"type\":\"session\",\"id\":\"s\",{}}}\n", members.join(","));
    let error = Import::open(line.as_bytes(), ImportOptions::default()).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("larger than 1048576 bytes"), "{error}");
}

#[test]
fn titles_are_kept_up_to_the_limit_and_whole_in_their_event() {
    let session = new_session();
    let (fits, long) = ("t".repeat(MAX_TITLE_BYTES), format!("{}\u{e9}", "t".repeat(MAX_TITLE_BYTES - 1)));
    for (title, shown) in [(&fits, fits.as_str()), (&long, &long[..MAX_TITLE_BYTES - 1])] {
        let data = JsonText::parse(&format!("{{\"title\":\"{title}\"}}")).unwrap();
        let event = session.append_event(NewEvent::named("session/title", data.clone())).unwrap();
        assert_eq!((event.json(), session.title().as_deref()), (data, Some(shown)));
    }
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

/// A session whose log stands at `next_seq`, by way of a checkpoint.
fn session_at(next_seq: u64) -> Session {
    let checkpoint = new_session().checkpoint();
    let state = checkpoint.state.as_str().replace("\"nextSeq\":0", &format!("\"nextSeq\":{next_seq}"));
    let checkpoint = sessionlog::backend::Checkpoint { next_seq, state: JsonText::parse(&state).unwrap() };
    let seed = Seed { checkpoint: Some((checkpoint, Vec::new())), items: Vec::new() };
    Session::from_seed(SessionHeader::new("s").created_at(1), seed, SessionOptions::new()).unwrap()
}

#[test]
fn the_last_seq_of_a_session_and_the_one_beyond_it() {
    use sessionlog::event::chunk::AssistantChunk;
    assert_eq!(MAX_SESSION_EVENTS, MAX_SAFE_INTEGER.unsigned_abs());
    // The mark that follows a seed takes one seq.
    let session = session_at(MAX_SESSION_EVENTS - 3);
    assert_eq!(session.next_seq(), MAX_SESSION_EVENTS - 2);
    let note = || NewEvent::named("app/note", JsonText::parse("1").unwrap());
    session.append_event(note()).unwrap();
    let last = session.append(AssistantChunk::text(1, 1, 0, "last")).unwrap();
    assert_eq!(last.seq(), MAX_SESSION_EVENTS - 1);
    for error in
        [session.append_event(note()).unwrap_err(), session.append(AssistantChunk::text(1, 1, 0, "more")).unwrap_err()]
    {
        assert!(error.to_string().contains("go on in a new session"), "{error}");
    }
    assert_eq!(session.next_seq(), MAX_SESSION_EVENTS);
}

#[test]
fn nesting_of_100_000_is_kept_through_everything_on_a_small_stack() {
    let body = || {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let objects = format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
        let home = tempfile::tempdir().unwrap();
        let engine = Engine::open(home.path()).unwrap();
        let message = format!(
            r#"{{"id":"m","role":"user","content":[{{"type":"text","text":"t","x":{deep}}}],"source":{{"kind":"user"}},"y":{objects}}}"#
        );
        let session = new_session();
        session.append_event(NewEvent::named("app/deep", JsonText::parse(&objects).unwrap())).unwrap();
        let data = JsonText::parse(&message).unwrap();
        let new = NewEvent::named("user/message", data.clone()).placed(Placement::append());
        let event = session.append_event(new).unwrap();
        assert_eq!(session.messages().len(), 1);
        assert!(event.payload::<UserMessage>().is_ok());
        let batch = Batch::pack(session.events(..)).unwrap();
        let head = engine.append(&id("s"), Some(&header("s")), Expected::ABSENT, &batch).unwrap();
        engine.release(&id("s"), head.epoch).unwrap();
        engine.seal(&id("s"), SealOptions::new()).unwrap();
        let page = engine.read(&id("s"), 0, ReadLimit::default()).unwrap();
        let stored: Vec<Event> = page.items.iter().flat_map(sessionlog::event::Item::events).collect();
        assert_eq!(stored[1].json(), data);
        assert!(engine.verify(&id("s")).error.is_none());

        let lines: Vec<String> = stored.iter().map(Event::to_line).collect();
        let line = format!("{}\n{}", header("s").to_line(), lines.join("\n"));
        let mut import = Import::open(line.as_bytes(), ImportOptions::default()).unwrap();
        assert_eq!(import.events().map(|event| event.unwrap().to_line()).collect::<Vec<_>>(), lines);
    };
    std::thread::Builder::new().stack_size(512 << 10).spawn(body).unwrap().join().unwrap();
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

#[test]
fn a_catalogue_that_unpacks_to_more_than_it_states_is_made_anew() {
    let _alone = alone();
    let home = tempfile::tempdir().unwrap();
    let engine = Engine::open(home.path()).unwrap();
    let head = create(&engine, "s", 3);
    engine.release(&id("s"), head.epoch).unwrap();
    for stated in [1 << 20, u32::MAX, 1] {
        let packed = bomb(b' ', 2000);
        let mut bytes = b"slogCATA".to_vec();
        bytes.extend_from_slice(&2_u32.to_le_bytes());
        bytes.extend_from_slice(&stated.to_le_bytes());
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes);
        hasher.update(&packed);
        bytes.extend_from_slice(&hasher.finalize().to_le_bytes());
        bytes.extend_from_slice(&packed);
        std::fs::write(home.path().join("catalog"), bytes).unwrap();
        let engine = Engine::open(home.path()).unwrap();
        let (summaries, most) = most_held(|| engine.summaries().unwrap());
        assert_eq!(summaries.len(), 1);
        assert!(most < 16 * MIB, "{} MiB", most / MIB);
    }
}
