//! Every limit at, below and above it: refused with a clear error where data enters, and bounded where bytes that nobody wrote
//! claim more.
#![cfg(feature = "store")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod process_common;
mod store_common;

use std::fs;
use std::path::Path;
use std::time::Duration;

use process_common::{Child, block_on, report, store_of_child};
use sessionlog::backend::ErrorKind;
use sessionlog::event::limits::{MAX_EVENT_BYTES, MAX_HEADER_BYTES, MAX_ID_BYTES, MAX_SAFE_INTEGER, MAX_TYPE_BYTES};
use sessionlog::event::{JsonText, NewEvent, SessionHeader, SessionId, Vocabulary};
use sessionlog::segment::{CheckStatus, Engine, EngineOptions, SealOptions, SegmentBackend};
use sessionlog::session::AppendError;
use sessionlog::store::{ListOptions, Store, StoreOptions};
use store_common::id;

fn open(root: &Path) -> Store<SegmentBackend> {
    let vocabulary = Vocabulary::core().with_name("app/x");
    StoreOptions::new().vocabulary(vocabulary).open(SegmentBackend::open(root).unwrap()).unwrap()
}

fn note(text: &str) -> NewEvent {
    NewEvent::named("app/x", JsonText::parse(text).unwrap())
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
    });
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
                live.append_event(message.placed(sessionlog::event::Placement::append())).unwrap();
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
    for claimed in [1_u32, 64 << 20, 1 << 31, u32::MAX] {
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
