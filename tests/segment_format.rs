//! The vectors in `format-spec/vectors` are what the engine reads and writes.
//!
//! Run with `SESSIONLOG_WRITE_VECTORS=1` to write them anew after a change of the format that is meant.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use segment_common::{files_below, id, lines};
use sessionlog::backend::{DamageClass, ErrorKind, Expected, ReadLimit};
use sessionlog::event::{Batch, Event, JsonText, NewEvent, Placement, SessionHeader};
use sessionlog::segment::{CheckStatus, Engine, EngineOptions, Reader, SealOptions};

const SESSIONS: [&str; 3] = ["Plain/1", "packed", "sealed"];

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("format-spec/vectors")
}

/// One event of every shape that records know.
fn sample() -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    let mut add = |event_type: &str, data: &str, placement: Option<Placement>, ignorable: bool| {
        let mut new = NewEvent::named(event_type, JsonText::parse(data).unwrap());
        new.placement = placement;
        new.ignorable = ignorable;
        let seq = events.len() as u64;
        events.push(new.at(seq, 1_700_000_000_000 + (seq * 37 % 50).cast_signed()));
    };
    add("turn/start", r#"{"turn":1}"#, None, false);
    let text =
        r#"{"id":"m1","role":"user","content":[{"type":"text","text":"caf\u00e9 \ud800"}],"source":{"kind":"user"}}"#;
    add("user/message", text, Some(Placement::append()), false);
    add("step/start", r#"{"turn":1,"step":1}"#, None, false);
    for delta in ["Hel", "lo", " \\ud83d\\ude00", ""] {
        let data = format!(r#"{{"turn":1,"step":1,"chunk":{{"type":"text-delta","index":0,"text":"{delta}"}}}}"#);
        add("assistant/chunk", &data, None, false);
    }
    for delta in ["a", "b", "c"] {
        let data = format!(r#"{{"turn":1,"step":1,"chunk":{{"type":"reasoning-delta","index":1,"text":"{delta}"}}}}"#);
        add("assistant/chunk", &data, None, false);
    }
    for delta in ["{\\\"x\\\"", ":", "1}"] {
        let data = format!(
            r#"{{"turn":1,"step":1,"chunk":{{"type":"tool-call-delta","index":2,"id":"c1","name":"bash","argumentsDelta":"{delta}"}}}}"#
        );
        add("assistant/chunk", &data, None, false);
    }
    add("assistant/message", "{}", Some(Placement::append().from((3..13).chain([1]))), false);
    add("app/odd", r#"{"n":1.50,"n":-0.0,"big":123456789012345678901234567890}"#, None, true);
    add("user/message", "[]", Some(Placement::replace(1, 13).from([1, 13])), false);
    events
}

/// Writes the store of the vectors. `packed` is one batch, long enough to be compressed; `sealed` a segment and a journal behind it.
fn write_store(root: &Path) {
    let engine =
        EngineOptions::new().seed(42).rotate_at(500).background_sealing(false).compress(false).open(root).unwrap();
    let events = sample();
    let plain = id(SESSIONS[0]);
    let header = SessionHeader::new(SESSIONS[0]).cwd("/srv/app").created_at(1_700_000_000_000);
    let mut head = None;
    for stretch in [0..1, 1..7, 7..13, 13..15] {
        let batch = Batch::pack(events[stretch].iter().cloned()).unwrap();
        let expected = head.map_or(Expected::ABSENT, |next_seq| Expected { epoch: 1, next_seq });
        let create = head.is_none().then_some(&header);
        head = Some(engine.append(&plain, create, expected, &batch).unwrap().next_seq);
    }
    engine.release(&plain, 1).unwrap();
    engine.take_over(&plain).unwrap();
    let batch = Batch::pack(events[15..].iter().cloned()).unwrap();
    engine.append(&plain, None, Expected { epoch: 2, next_seq: 15 }, &batch).unwrap();

    let engine = EngineOptions::new().seed(43).open(root).unwrap();
    let long = (0..40).map(|seq| {
        let data = JsonText::parse(&format!(r#"{{"turn":{seq},"text":"the same words again and again"}}"#)).unwrap();
        NewEvent::named("app/turn", data).at(seq, 1_700_000_000_000)
    });
    engine
        .append(&id(SESSIONS[1]), Some(&SessionHeader::new(SESSIONS[1])), Expected::ABSENT, &Batch::pack(long).unwrap())
        .unwrap();
    write_sealed(root);
}

/// The sample as a segment of several journals, and a later event in a journal behind it.
fn write_sealed(root: &Path) {
    let engine = EngineOptions::new().seed(44).rotate_at(500).background_sealing(false).open(root).unwrap();
    let session = id(SESSIONS[2]);
    let events = sample();
    let mut head = None;
    for stretch in [0..1, 1..7, 7..13, 13..16] {
        let batch = Batch::pack(events[stretch].iter().cloned()).unwrap();
        let expected = head.map_or(Expected::ABSENT, |next_seq| Expected { epoch: 1, next_seq });
        let header = SessionHeader::new(SESSIONS[2]);
        head = Some(engine.append(&session, head.is_none().then_some(&header), expected, &batch).unwrap().next_seq);
    }
    engine.release(&session, 1).unwrap();
    engine.seal(&session, SealOptions::new()).unwrap();
    engine.take_over(&session).unwrap();
    let last = NewEvent::named("turn/end", JsonText::parse(r#"{"turn":1}"#).unwrap()).at(16, 1_700_000_000_100);
    engine.append(&session, None, Expected { epoch: 2, next_seq: 16 }, &Batch::pack([last]).unwrap()).unwrap();
}

/// The files that make up the store; lock files say nothing that lasts.
fn hex_of(root: &Path) -> String {
    let mut out = String::new();
    for path in files_below(root).iter().filter(|path| path.file_name().unwrap() != "lock") {
        let _ = writeln!(out, "# {}", path.strip_prefix(root).unwrap().to_str().unwrap());
        for line in fs::read(path).unwrap().chunks(32) {
            for byte in line {
                let _ = write!(out, "{byte:02x}");
            }
            out.push('\n');
        }
    }
    out
}

fn write_hex(text: &str, root: &Path) {
    let mut files: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    for line in text.lines() {
        if let Some(path) = line.strip_prefix("# ") {
            files.push((root.join(path), Vec::new()));
        } else {
            let bytes = (0..line.len() / 2).map(|at| u8::from_str_radix(&line[at * 2..at * 2 + 2], 16).unwrap());
            files.last_mut().unwrap().1.extend(bytes);
        }
    }
    for (path, bytes) in files {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn read_lines(root: &Path, name: &str) -> Vec<String> {
    let engine = Engine::open(root).unwrap();
    assert_eq!(engine.verify(&id(name)).status, CheckStatus::Ok);
    let mut reader = Reader::open(engine.locate(&id(name))).unwrap();
    let mut events = Vec::new();
    loop {
        let page = reader.next_page(ReadLimit { events: 3, bytes: 1 << 20 }).unwrap();
        if page.items.is_empty() {
            return lines(&events);
        }
        events.extend(page.items.iter().flat_map(|item| item.events()));
    }
}

fn events_file(name: &str) -> PathBuf {
    vectors().join(format!("{}.jsonl", name.to_lowercase().replace('/', "-")))
}

#[test]
fn the_vectors_decode_to_their_events_and_the_engine_writes_them_again_byte_for_byte() {
    let home = tempfile::tempdir().unwrap();
    let (written, stored) = (home.path().join("written"), home.path().join("stored"));
    write_store(&written);
    let hex = hex_of(&written);
    if std::env::var_os("SESSIONLOG_WRITE_VECTORS").is_some() {
        fs::create_dir_all(vectors()).unwrap();
        fs::write(vectors().join("store.hex"), &hex).unwrap();
        for name in SESSIONS {
            fs::write(events_file(name), read_lines(&written, name).join("\n") + "\n").unwrap();
        }
    }
    let vector = fs::read_to_string(vectors().join("store.hex")).unwrap();
    write_hex(&vector, &stored);
    for name in SESSIONS {
        let events = fs::read_to_string(events_file(name)).unwrap();
        let events: Vec<&str> = events.lines().collect();
        assert_eq!(read_lines(&stored, name), events, "{name} is read otherwise");
        assert_eq!(read_lines(&written, name), events, "{name} is written otherwise");
    }
    // Another release of the compressor may find other bytes for the same events; everything else is the same for ever.
    let plain = |hex: &str| hex.split("# sessions/packed/").next().unwrap().to_owned();
    assert_eq!(plain(&hex), plain(&vector), "the format has changed");
    let zstd_magic = vector.replace('\n', "").contains("28b52ffd");
    assert!(zstd_magic, "the vectors hold no compressed record");
}

#[test]
fn n2_segments_of_the_layout_before_are_refused_and_the_way_out_is_named() {
    let home = tempfile::tempdir().unwrap();
    write_hex(&fs::read_to_string(vectors().join("store.hex")).unwrap(), home.path());
    let engine = Engine::open(home.path()).unwrap();
    let sealed = engine.locate(&id("sealed"));
    let path = files_below(&sealed).into_iter().find(|path| path.extension().is_some_and(|end| end == "seg")).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    for (version, way_out) in [(1_u16, "export"), (3, "upgrade")] {
        bytes[8..10].copy_from_slice(&version.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..92]);
        bytes[92..96].copy_from_slice(&checksum.to_le_bytes());
        fs::write(&path, &bytes).unwrap();
        let mut reader = Reader::open(sealed.clone()).unwrap();
        let error = reader.next_page(ReadLimit { events: 3, bytes: 1 << 20 }).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unsupported);
        assert_eq!(error.damage.as_ref().unwrap().class, DamageClass::ForeignVersion);
        assert!(error.to_string().contains(way_out), "{error}");
        assert_eq!(engine.take_over(&id("sealed")).unwrap_err().kind, ErrorKind::Unsupported);
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}
