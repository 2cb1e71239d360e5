//! Every limit at, below and above it: refused with a clear error where data enters, and bounded where bytes that nobody wrote
//! claim more.
#![cfg(feature = "store")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod process_common;
mod store_common;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use process_common::{Child, block_on, report, store_of_child};
use sessionlog::backend::{self, ErrorKind, Expected, ReadLimit};
use sessionlog::event::limits::{
    MAX_EVENT_BYTES, MAX_HEADER_BYTES, MAX_ID_BYTES, MAX_RUN_BYTES, MAX_RUN_EVENTS, MAX_SAFE_INTEGER,
    MAX_SESSION_EVENTS, MAX_TITLE_BYTES, MAX_TYPE_BYTES, MIN_RUN_EVENTS,
};
use sessionlog::event::message::UserMessage;
use sessionlog::event::{Batch, Item, JsonText, NewEvent, Placement, SessionHeader, SessionId, Vocabulary};
use sessionlog::interop::{Import, ImportOptions};
use sessionlog::segment::files::SimulatedFiles;
use sessionlog::segment::{CheckStatus, Engine, EngineOptions, SealOptions, SegmentBackend};
use sessionlog::session::{AppendError, Seed, Session, SessionOptions};
use sessionlog::store::{ListOptions, Store, StoreOptions};
use store_common::id;

fn open(root: &Path) -> Store<SegmentBackend> {
    let vocabulary = Vocabulary::core().with_name("app/x");
    StoreOptions::new().vocabulary(vocabulary).open(SegmentBackend::open(root).unwrap()).unwrap()
}

fn note(text: &str) -> NewEvent {
    NewEvent::named("app/x", JsonText::parse(text).unwrap())
}

fn new_session() -> Session {
    Session::create(SessionHeader::new("s").created_at(1), SessionOptions::new()).unwrap()
}

#[test]
fn an_id_has_at_most_a_stated_length_and_the_longest_one_works() {
    let home = tempfile::tempdir().unwrap();
    block_on(async {
        let store = open(home.path());
        for length in [MAX_ID_BYTES - 1, MAX_ID_BYTES] {
            let name = "i".repeat(length);
            let live = store.create(SessionHeader::new(name.as_str())).await.unwrap();
            live.append_event(note("1")).unwrap();
            live.close().await.unwrap();
            assert_eq!(store.resume(name.as_str()).await.unwrap().id().as_str(), name);
            assert!(store.locate(name.as_str()).unwrap().starts_with(home.path().canonicalize().unwrap()));
        }
        assert_eq!(store.list(ListOptions::new()).await.unwrap().sessions.len(), 2);
        let long = "i".repeat(MAX_ID_BYTES + 1);
        let error = SessionId::new(long.as_str()).unwrap_err().to_string();
        assert!(error.contains(&MAX_ID_BYTES.to_string()), "{error}");
        assert!(store.create(SessionHeader::new(long.as_str())).await.is_err());
        assert!(SessionId::new("").is_err());
    });
}

#[test]
fn a_type_and_a_time_have_stated_limits() {
    let home = tempfile::tempdir().unwrap();
    block_on(async {
        let store = open(home.path());
        let live = store.create(SessionHeader::new("s")).await.unwrap();
        for (length, fits) in [(MAX_TYPE_BYTES - 1, true), (MAX_TYPE_BYTES, true), (MAX_TYPE_BYTES + 1, false)] {
            let event = NewEvent::named(&"t".repeat(length), JsonText::parse("1").unwrap());
            assert_eq!(live.append_event(event).is_ok(), fits, "{length}");
        }
        assert_eq!(live.next_seq(), 2, "what was refused is not in the log");
        live.close().await.unwrap();
        let engine = store.backend().engine();
        assert_eq!(engine.verify(&id("s")).events, 2);
        // Whoever appends to the engine without a session, or imports, meets the same limit.
        for (length, fits) in [(0, false), (MAX_TYPE_BYTES, true), (MAX_TYPE_BYTES + 1, false)] {
            let event = NewEvent::named(&"t".repeat(length), JsonText::parse("1").unwrap()).at(0, 1);
            let name = format!("of-{length}");
            assert_eq!(imported(&name, &[event.to_line()], ImportOptions::default()).is_ok(), fits, "{length}");
            let batch = Batch::pack([event]).unwrap();
            match engine.append(&id(&name), Some(&SessionHeader::new(name.as_str())), Expected::ABSENT, &batch) {
                Ok(_) => assert!(fits && engine.verify(&id(&name)).error.is_none(), "{length}"),
                Err(backend::AppendError::Failed(error)) => {
                    assert!(!fits && error.kind == ErrorKind::Invalid, "{error}");
                }
                Err(error) => panic!("{length}: {error}"),
            }
        }
        for (time, fits) in [(MAX_SAFE_INTEGER, true), (-MAX_SAFE_INTEGER, true), (MAX_SAFE_INTEGER + 1, false)] {
            let text = format!(r#"{{"type":"a/b","seq":0,"time":{time},"data":1}}"#);
            let parsed =
                sessionlog::event::RawEnvelope::parse(&text).and_then(sessionlog::event::RawEnvelope::into_event);
            assert_eq!(parsed.is_ok(), fits, "{time}");
        }
    });
}

#[test]
fn a_header_has_a_stated_size_and_a_larger_one_leaves_nothing_behind() {
    let home = tempfile::tempdir().unwrap();
    block_on(async {
        let store = open(home.path());
        let header = |length: usize| SessionHeader::new("s").created_at(1).cwd(format!("/{}", "d".repeat(length)));
        let overhead = header(0).to_line().len();
        for (size, fits) in [(MAX_HEADER_BYTES + 1, false), (MAX_HEADER_BYTES, true)] {
            let made = store.create(header(size - overhead)).await;
            assert_eq!(made.is_ok(), fits, "{size}");
            if let Ok(live) = made {
                live.append_event(note("1")).unwrap();
                live.close().await.unwrap();
            } else {
                assert!(store.list(ListOptions::new()).await.unwrap().sessions.is_empty());
                assert!(!home.path().join("sessions").exists());
            }
        }
        assert_eq!(store.list(ListOptions::new()).await.unwrap().sessions.len(), 1);
        let engine = store.backend().engine();
        for (size, fits) in [(MAX_HEADER_BYTES + 1, false), (MAX_HEADER_BYTES, true), (MAX_HEADER_BYTES - 1, true)] {
            let name = format!("e{size}");
            let header = SessionHeader { id: name.clone(), ..header(size - overhead + 1 - name.len()) };
            assert_eq!(header.to_line().len(), size);
            let batch = Batch::pack([note("1").at(0, 1)]).unwrap();
            match engine.append(&id(&name), Some(&header), Expected::ABSENT, &batch) {
                Ok(_) => assert!(fits && engine.open_session(&id(&name)).unwrap().header == header, "{size}"),
                Err(backend::AppendError::Failed(error)) => {
                    assert!(!fits && error.kind == ErrorKind::Invalid, "{error}");
                }
                Err(error) => panic!("{size}: {error}"),
            }
            let line = header.to_line() + "\n";
            assert_eq!(Import::open(line.as_bytes(), ImportOptions::default()).is_ok(), fits, "{size}");
        }
    });
    // A header of very many members is refused for its size, before its members are compared with each other.
    let members: Vec<String> = (0..1_000_000).map(|member| format!("\"m{member}\":0")).collect();
    let line = format!("{{\"type\":\"session\",\"id\":\"s\",{}}}\n", members.join(","));
    let error = Import::open(line.as_bytes(), ImportOptions::default()).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("larger than 1048576 bytes"), "{error}");
}

#[test]
fn a_title_is_kept_up_to_the_limit_and_whole_in_its_event() {
    let session = new_session();
    let (fits, long) = ("t".repeat(MAX_TITLE_BYTES), format!("{}\u{e9}", "t".repeat(MAX_TITLE_BYTES - 1)));
    for (title, shown) in
        [(&fits[1..], &fits[1..]), (fits.as_str(), fits.as_str()), (long.as_str(), &long[..MAX_TITLE_BYTES - 1])]
    {
        let data = JsonText::parse(&format!("{{\"title\":\"{title}\"}}")).unwrap();
        let event = session.append_event(NewEvent::named("session/title", data.clone())).unwrap();
        assert_eq!((event.json(), session.title().as_deref()), (data, Some(shown)));
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

/// Deltas of text, one after the other.
fn deltas(count: usize, bytes: usize) -> Batch {
    let data =
        format!(r#"{{"turn":1,"step":1,"chunk":{{"type":"text-delta","index":0,"text":"{}"}}}}"#, "d".repeat(bytes));
    let data = JsonText::parse(&data).unwrap();
    Batch::pack((0..count as u64).map(|seq| NewEvent::named("assistant/chunk", data.clone()).at(seq, 1))).unwrap()
}

#[test]
fn p1_a_run_has_a_fewest_and_a_most_of_deltas_and_a_most_of_text() {
    let lengths = |batch: Batch| -> Vec<u64> {
        let length = |item: &Item| match item {
            Item::Run(run) => run.len(),
            Item::Event(_) => 0,
        };
        batch.items().iter().map(length).collect()
    };
    assert_eq!(lengths(deltas(MIN_RUN_EVENTS - 1, 1)), [0, 0], "as they are");
    assert_eq!(lengths(deltas(MIN_RUN_EVENTS, 1)), [3]);
    assert_eq!(lengths(deltas(MIN_RUN_EVENTS + 1, 1)), [4]);
    let most = MAX_RUN_EVENTS as u64;
    assert_eq!(lengths(deltas(MAX_RUN_EVENTS - 1, 1)), [most - 1]);
    assert_eq!(lengths(deltas(MAX_RUN_EVENTS, 1)), [most]);
    assert_eq!(lengths(deltas(MAX_RUN_EVENTS + 3, 1)), [most, 3], "continued by another");
    let fits = (MAX_RUN_BYTES / 1024) as u64;
    assert_eq!(lengths(deltas(MAX_RUN_BYTES / 1024 - 1, 1024)), [fits - 1]);
    assert_eq!(lengths(deltas(MAX_RUN_BYTES / 1024, 1024)), [fits]);
    assert_eq!(lengths(deltas(MAX_RUN_BYTES / 1024 + 3, 1024)), [fits, 3]);
}

/// Imports a log of these lines and counts its events.
fn imported(name: &str, lines: &[String], options: ImportOptions) -> Result<usize, String> {
    let log = format!("{}\n{}\n", SessionHeader::new(name).created_at(1).to_line(), lines.join("\n"));
    let mut import = Import::open(log.as_bytes(), options).map_err(|error| error.to_string())?;
    let mut count = 0;
    for event in import.events() {
        let _ = event.map_err(|error| error.to_string())?;
        count += 1;
    }
    Ok(count)
}

#[test]
fn a_log_is_imported_up_to_the_limits_of_its_id_lines_and_text() {
    let line = note("1").at(0, 1).to_line();
    for (length, fits) in [(MAX_ID_BYTES - 1, true), (MAX_ID_BYTES, true), (MAX_ID_BYTES + 1, false)] {
        let done = imported(&"i".repeat(length), std::slice::from_ref(&line), ImportOptions::default());
        assert_eq!(done.is_ok(), fits, "{length}: {done:?}");
    }
    let long = note(&format!("\"{}\"", "l".repeat(1000))).at(1, 1).to_line();
    for (limit, fits) in [(long.len() + 1, true), (long.len(), true), (long.len() - 1, false)] {
        let options = ImportOptions::default().max_line_bytes(limit);
        let done = imported("s", &[line.clone(), long.clone()], options);
        assert_eq!(done.as_ref().ok(), fits.then_some(&2), "{limit}: {done:?}");
        assert!(fits || done.unwrap_err().contains(&limit.to_string()));
    }
    let text = format!("{}\n{line}\n{long}\n", SessionHeader::new("s").created_at(1).to_line());
    let packed = zstd::bulk::compress(text.as_bytes(), 1).unwrap();
    for (limit, fits) in [(text.len() + 1, true), (text.len(), true), (text.len() - 1, false)] {
        let options = ImportOptions::default().max_decoded_bytes(limit as u64);
        let done = Import::open(packed.as_slice(), options)
            .and_then(|mut import| import.events().collect::<Result<Vec<_>, _>>());
        assert_eq!(done.is_ok(), fits, "{limit}");
        assert!(fits || done.unwrap_err().to_string().contains(&limit.to_string()));
    }
}

#[test]
fn blank_lines_of_an_imported_log_have_a_most() {
    let line = [vec![b' '; (1 << 20) - 1], b"\n".to_vec()].concat();
    let log = format!("{}\n{}\n", SessionHeader::new("s").created_at(1).to_line(), note("1").at(0, 1).to_line());
    for (more, fits) in [("", true), ("\n", false)] {
        let blank = line.repeat(64);
        let text = [&blank[..], more.as_bytes(), log.as_bytes()].concat();
        assert_eq!(Import::open(text.as_slice(), ImportOptions::default()).is_ok(), fits, "{more:?}");
        let text = [&blank[1..], more.as_bytes(), log.as_bytes()].concat();
        assert!(Import::open(text.as_slice(), ImportOptions::default()).is_ok(), "{more:?}");
    }
}

/// Objects within objects: `user/message` with a tool result in a tool result, and so on.
#[test]
fn typed_views_go_64_objects_deep_and_say_so_beyond() {
    let view = |blocks: usize| {
        let open = r#"{"type":"tool-result","toolCallId":"c","content":["#.repeat(blocks);
        let content = format!("{open}{}", "]}".repeat(blocks));
        let data = format!(r#"{{"id":"m","role":"user","content":[{content}],"source":{{"kind":"user"}}}}"#);
        let data = JsonText::parse(&data).unwrap();
        let event = NewEvent::named("user/message", data).placed(Placement::append()).at(0, 1);
        event.payload::<UserMessage>().map(|message| message.unwrap().content.len())
    };
    // The message's own members are the first level, the members of the innermost block the last one.
    for (blocks, fits) in [(62, true), (63, true), (64, false), (65, false)] {
        let seen = view(blocks);
        assert_eq!(seen.is_ok(), fits, "{blocks}: {seen:?}");
        assert!(fits || seen.unwrap_err().to_string().contains("nested deeper than 64 objects"));
    }
}

#[test]
fn sessions_of_a_store_have_no_limit_and_are_listed_page_by_page() {
    const COUNT: usize = 300;
    let files = SimulatedFiles::new(5);
    let options = || EngineOptions::new().files(Arc::new(files.clone())).background_sealing(false);
    let engine = options().open("/store").unwrap();
    let batch = Batch::pack([note("1").at(0, 1)]).unwrap();
    for number in 0..COUNT {
        let name = format!("s{number:05}");
        let head =
            engine.append(&id(&name), Some(&SessionHeader::new(name.as_str())), Expected::ABSENT, &batch).unwrap();
        engine.release(&id(&name), head.epoch).unwrap();
    }
    for size in [COUNT - 1, COUNT, COUNT + 1, 7] {
        let (mut names, mut after) = (Vec::new(), None);
        loop {
            let page = engine.list(after.as_deref(), size).unwrap();
            assert!(page.entries.len() <= size);
            names.extend(page.entries.into_iter().map(|listed| listed.name));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert!(names.len() == COUNT && names.is_sorted_by(|a, b| a < b), "pages of {size}: {}", names.len());
    }
    assert_eq!(engine.summaries().unwrap().len(), COUNT);
    assert_eq!(options().open("/store").unwrap().summaries().unwrap().len(), COUNT, "with the catalogue");
}

#[test]
fn the_queue_is_bounded_in_bytes_and_refuses_without_losing() {
    let home = tempfile::tempdir().unwrap();
    block_on(async {
        let backend = SegmentBackend::open(home.path()).unwrap();
        let options = StoreOptions::new().queue_bytes(100_000).window(Duration::from_secs(3600));
        let store = options.open(backend).unwrap();
        let live = store.create(SessionHeader::new("s")).await.unwrap();
        let text = format!("\"{}\"", "q".repeat(9_000));
        let mut accepted = 0;
        let refusal = loop {
            match live.append_event(note(&text)) {
                Ok(_) => accepted += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(refusal, AppendError::BufferFull(_)), "{refusal}");
        assert!((9..=12).contains(&accepted), "{accepted}");
        live.flush().await.unwrap();
        live.append_event(note(&text)).unwrap();
        live.close().await.unwrap();
        assert_eq!(store.backend().engine().verify(&id("s")).events, accepted + 1);
        // To the byte.
        let weight = note(&text).at(0, 1).weight();
        for (limit, fits) in [(5 * weight - 1, 4), (5 * weight, 5), (5 * weight + 1, 5)] {
            let options = StoreOptions::new().queue_bytes(limit).window(Duration::from_secs(3600));
            let store = options.open(SegmentBackend::open(home.path()).unwrap()).unwrap();
            let live = store.create(SessionHeader::new(format!("q{limit}"))).await.unwrap();
            let accepted = (0..6).filter(|_| live.append_event(note(&text)).is_ok()).count();
            assert_eq!(accepted, fits, "{limit}");
            live.close().await.unwrap();
        }
    });
}

#[test]
fn an_event_of_the_largest_size_is_stored_and_read_and_a_larger_one_is_refused_at_append() {
    // Half a gigabyte goes through this test; by default it takes the smaller half of the question.
    let whole = std::env::var_os("SESSIONLOG_LARGE").is_some();
    let home = tempfile::tempdir().unwrap();
    block_on(async {
        let store = open(home.path());
        let live = store.create(SessionHeader::new("s")).await.unwrap();
        let text = |length: usize| format!("\"{}\"", "e".repeat(length - 2));
        let error = live.append_event(note(&text(MAX_EVENT_BYTES + 1))).unwrap_err().to_string();
        assert!(error.contains(&MAX_EVENT_BYTES.to_string()), "{error}");
        assert_eq!(live.next_seq(), 0);
        let size = if whole { MAX_EVENT_BYTES } else { MAX_EVENT_BYTES / 64 };
        live.append_event(note(&text(size))).unwrap();
        live.close().await.unwrap();
        let mut pages = store.events("s", ..);
        assert_eq!(pages.next().await.unwrap().unwrap().data().len(), size);
        let engine = store.backend().engine();
        engine.seal(&id("s"), SealOptions::new().level(1)).unwrap();
        assert_eq!(engine.verify(&id("s")).status, CheckStatus::Ok);
        let mut pages = store.events("s", ..);
        assert_eq!(pages.next().await.unwrap().unwrap().data().len(), size);
    });
}

/// A hundred thousand levels, on a stack that recursion would overflow at once.
#[test]
fn nesting_of_any_depth_goes_through_everything_without_recursion() {
    const DEPTH: usize = 100_000;
    let deep = "[".repeat(DEPTH) + &"]".repeat(DEPTH);
    let objects = "{\"a\":".repeat(DEPTH) + "1" + &"}".repeat(DEPTH);
    let work = move || {
        let home = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(2)
            .thread_stack_size(256 * 1024)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let store = open(home.path());
            let live = store.create(SessionHeader::new("s")).await.unwrap();
            for text in [&deep, &objects] {
                live.append_event(note(text)).unwrap();
                let message = format!(r#"{{"id":"m","role":"user","content":[{{"type":"app/odd","x":{text}}}],"source":{{"kind":"user"}}}}"#);
                let message = NewEvent::named("user/message", JsonText::parse(&message).unwrap());
                live.append_event(message.placed(Placement::append())).unwrap();
            }
            assert_eq!(live.messages().len(), 2);
            live.request().assert_same(&live.request()).unwrap();
            live.close().await.unwrap();
            let engine = store.backend().engine();
            assert_eq!(engine.verify(&id("s")).status, CheckStatus::Ok);
            engine.seal(&id("s"), SealOptions::new().level(1)).unwrap();
            assert_eq!(engine.verify(&id("s")).status, CheckStatus::Ok);
            let again = store.resume("s").await.unwrap();
            assert_eq!(again.messages().len(), 2);
            again.close().await.unwrap();
            assert!(engine.summaries().unwrap()[0].summary.is_ok());
            // Out of the store and in again.
            let page = engine.read(&id("s"), 0, ReadLimit::default()).unwrap();
            let lines: Vec<String> =
                page.items.iter().flat_map(Item::events).map(|event| event.to_line()).collect();
            assert!(lines.iter().any(|line| line.contains(&deep)) && lines.iter().any(|line| line.contains(&objects)));
            assert_eq!(imported("s", &lines, ImportOptions::default()), Ok(lines.len()));
        });
        let broken = "[".repeat(DEPTH);
        assert!(JsonText::parse(&broken).is_err());
    };
    std::thread::Builder::new().stack_size(256 * 1024).spawn(work).unwrap().join().unwrap();
}

/// Child: looks at a store with little memory to its name.
#[test]
fn child_with_little_memory() {
    let Some(directory) = store_of_child() else { return };
    let limit = libc::rlimit { rlim_cur: 1 << 30, rlim_max: 1 << 30 };
    // SAFETY: the call takes what it is given.
    unsafe { assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &raw const limit), 0) };
    let engine = Engine::open(&directory).unwrap();
    let listed = engine.summaries().unwrap();
    report(&format!("listed {}", listed.len()));
    let check = engine.verify(&id("s"));
    report(&format!("verified {:?} {:?}", check.status, check.error.map(|error| error.kind)));
    let taken = engine.take_over(&id("s"));
    report(&format!("taken {}", taken.is_ok()));
}

fn crc(pieces: &[&[u8]]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    pieces.iter().for_each(|piece| hasher.update(piece));
    hasher.finalize().to_le_bytes()
}

/// What a child with little memory says of the store.
fn said_by_a_child(root: &Path) -> [Vec<String>; 3] {
    let mut child = Child::start("child_with_little_memory", root, 0);
    let said = std::array::from_fn(|_| child.report().unwrap_or_else(|| panic!("{}", child.complaints())));
    child.wait();
    said
}

#[test]
fn a_bomb_for_a_catalogue_is_no_catalogue_and_costs_little() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("store");
    block_on(async {
        let store = open(&root);
        let live = store.create(SessionHeader::new("s")).await.unwrap();
        live.append_event(note("1")).unwrap();
        live.close().await.unwrap();
    });
    // A megabyte of frames that unpack to gigabytes, under a sound checksum, with every length one may claim.
    let bomb = zstd::bulk::compress(&vec![b' '; 64 << 20], 1).unwrap();
    for claimed in [1_u32, 1 << 20, 64 << 20, 1 << 31, u32::MAX] {
        let mut frame = b"slogCATA".to_vec();
        frame.extend_from_slice(&2_u32.to_le_bytes());
        frame.extend_from_slice(&claimed.to_le_bytes());
        let packed = bomb.repeat(40);
        let checksum = crc(&[&frame, &packed]);
        frame.extend_from_slice(&checksum);
        frame.extend_from_slice(&packed);
        fs::write(root.join("catalog"), frame).unwrap();
        let said = said_by_a_child(&root);
        assert_eq!(said[0], ["listed", "1"], "claimed {claimed}");
        assert_eq!(said[1], ["verified", "Ok", "None"]);
        assert_eq!(said[2], ["taken", "true"]);
    }
}

#[test]
fn a_segment_whose_trailer_claims_impossible_lengths_is_damage_and_costs_little() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("store");
    let engine = EngineOptions::new().background_sealing(false).open(&root).unwrap();
    block_on(async {
        let store = open(&root);
        let live = store.create(SessionHeader::new("s")).await.unwrap();
        live.append_event(note("1")).unwrap();
        live.close().await.unwrap();
    });
    engine.seal(&id("s"), SealOptions::new().level(1)).unwrap();
    let path = root.join("sessions/s/00000000000000000000.seg");
    let sealed = fs::read(&path).unwrap();
    let salt = &sealed[16..24];
    let trailer_at = sealed.len() - 32;
    let trailer = &sealed[trailer_at..];
    // Offset of the footer, stored and unpacked length, checksum; then the trailer's own checksum over salt and offset.
    for (offset, stored, unpacked) in [
        (1_u64 << 63, None, None),
        (u64::MAX, None, None),
        (0, Some(u32::MAX), None),
        (96, None, Some(u32::MAX)),
        (96, None, Some(256 << 20)),
    ] {
        let genuine = u64::from_le_bytes(trailer[..8].try_into().unwrap());
        let offset = if offset == 96 { genuine } else { offset };
        let mut new = offset.to_le_bytes().to_vec();
        new.extend_from_slice(
            &stored.map_or_else(|| trailer[8..12].to_vec(), |stored: u32| stored.to_le_bytes().to_vec()),
        );
        new.extend_from_slice(
            &unpacked.map_or_else(|| trailer[12..16].to_vec(), |bytes: u32| bytes.to_le_bytes().to_vec()),
        );
        new.extend_from_slice(&trailer[16..20]);
        let checksum = crc(&[salt, &offset.to_le_bytes(), &new]);
        new.extend_from_slice(&checksum);
        new.extend_from_slice(&trailer[24..]);
        fs::write(&path, [&sealed[..trailer_at], &new[..]].concat()).unwrap();
        let said = said_by_a_child(&root);
        assert_eq!(said[1], ["verified", "Damaged", "Some(Damaged)"], "{offset} {stored:?} {unpacked:?}");
        assert_eq!(said[2], ["taken", "false"]);
        let error = engine.verify(&id("s")).error.unwrap();
        assert_eq!(
            (error.kind, error.file.as_deref()),
            (ErrorKind::Damaged, Some(path.canonicalize().unwrap().as_path()))
        );
    }
    fs::write(&path, sealed).unwrap();
    assert_eq!(engine.verify(&id("s")).status, CheckStatus::Ok);
}
