//! `salvage`: from every kind of damage the events before it come out as a new session, and the damaged one is not touched.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod cli_common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use cli_common::{FAILED, Home, MISSING, USAGE, cut, event, files, flip, log, messages, recording, said};
use serde_json::Value;
use sessionlog::backend::Expected;
use sessionlog::event::envelope::RawEnvelope;
use sessionlog::event::{Batch, SessionId};
use sessionlog::segment::Engine;

/// A store with the session `bad` of three journals of ten messages each, and one more session.
fn store() -> Home {
    let home = Home::new();
    home.record("other", messages("s", 4));
    for count in [10, 20, 30] {
        home.record("bad", messages("s", count));
    }
    home
}

const SECOND: &str = "00000000000000000010.log";
const THIRD: &str = "00000000000000000020.log";
const FIRST: &str = "00000000000000000000.log";

/// The regular files below a directory, with their bytes.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    files(directory).into_iter().filter_map(|file| fs::read(&file).ok().map(|bytes| (file, bytes))).collect()
}

/// Salvages `bad` as `new` after `change`, and checks what came of it.
#[track_caller]
fn salvaged(change: impl Fn(&Path), events: u64, class: &str, file: &str) -> Value {
    let home = store();
    let original = home.run(["events", "bad", "--json"]).ok().out;
    change(&home.session("bad"));
    let before = contents(&home.session("bad"));
    let document = home.run(["salvage", "bad", "--as", "new", "--json"]).ok().document();
    assert_eq!((document["events"].as_u64(), document["from"].as_str()), (Some(events), Some("bad")), "{document}");
    let left = &document["left"][0];
    assert_eq!(left["class"], class, "{document}");
    assert!(left["file"].as_str().unwrap().ends_with(file) && left["detail"].as_str().unwrap().len() > 5, "{document}");
    assert_eq!(contents(&home.session("bad")), before, "the damaged session was touched");
    let lines: Vec<&str> = original.lines().take(usize::try_from(events).unwrap()).collect();
    let salvaged = home.run(["events", "new", "--json"]).ok().out;
    assert_eq!(salvaged.lines().collect::<Vec<_>>(), lines);
    assert_eq!(home.run(["verify", "new", "--json"]).ok().json()[0]["status"], "ok");
    let rows = home.run(["ls", "--json"]).json();
    let row = rows.iter().find(|row| row["id"] == "new").unwrap();
    assert_eq!(row["parent"], "bad");
    // It goes on as any session does, and a second one of that name is refused.
    home.run(["repair", "new"]).ok();
    home.run(["salvage", "bad", "--as", "new"]).with(FAILED).says(&["new", "exists"]);
    let plain = home.run(["salvage", "bad", "--as", "again"]).ok().out;
    assert!(plain.contains(&format!("salvaged {events} events of bad as again")) && plain.contains(class), "{plain}");
    document
}

fn zero(path: &Path, range: std::ops::Range<usize>) {
    let mut bytes = fs::read(path).unwrap();
    bytes[range].fill(0);
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_changed_byte_zeros_and_what_is_behind_are_left_and_named() {
    let document = salvaged(|bad| flip(&bad.join(SECOND), 120), 10, "checksum", SECOND);
    let left = document["left"].as_array().unwrap();
    assert!(
        left[0]["offset"].is_u64() && left[0]["seq"] == 10 && left[0]["bytes"].as_u64().unwrap() > 100,
        "{document}"
    );
    assert_eq!(left.len(), 2, "{document}");
    assert!(left[1]["class"] == "behind" && left[1]["file"].as_str().unwrap().ends_with(THIRD) && left[1]["seq"] == 20);
    salvaged(|bad| zero(&bad.join(SECOND), 96..140), 10, "nul-hole", SECOND);
    salvaged(|bad| zero(&bad.join(SECOND), 0..96), 10, "nul-hole", SECOND);
    salvaged(|bad| flip(&bad.join(THIRD), 3), 20, "bad-header", THIRD);
}

#[test]
fn missing_foreign_and_odd_files_are_left_and_named() {
    salvaged(|bad| fs::remove_file(bad.join(SECOND)).unwrap(), 10, "gap", "");
    salvaged(
        |bad| fs::write(bad.join(SECOND), "something else altogether".repeat(20)).unwrap(),
        10,
        "bad-header",
        SECOND,
    );
    let foreign =
        |bad: &Path| fs::write(bad.join(THIRD), fs::read(bad.with_file_name("other").join(FIRST)).unwrap()).unwrap();
    salvaged(foreign, 20, "identity-mismatch", THIRD);
    let directory = |bad: &Path| {
        fs::remove_file(bad.join(THIRD)).unwrap();
        fs::create_dir(bad.join(THIRD)).unwrap();
    };
    salvaged(directory, 20, "wrong-file-type", THIRD);
    let link = |bad: &Path| {
        fs::rename(bad.join(SECOND), bad.join("elsewhere")).unwrap();
        symlink("elsewhere", bad.join(SECOND)).unwrap();
    };
    salvaged(link, 10, "wrong-file-type", SECOND);
    let shorter = |bad: &Path| {
        let length = fs::metadata(bad.join(FIRST)).unwrap().len();
        cut(&bad.join(FIRST), length / 3);
    };
    let home = store();
    shorter(&home.session("bad"));
    // The only record of the first journal is cut: nothing is before it.
    home.run(["salvage", "bad", "--as", "new"]).with(FAILED).says(&["session bad", "no event is intact", FIRST]);
    assert_eq!(home.run(["ls", "--json"]).with(FAILED).json().len(), 2);
}

#[test]
fn a_torn_tail_is_left_and_the_whole_records_come_out() {
    let document = salvaged(|bad| cut(&bad.join(THIRD), 3), 20, "torn-tail", THIRD);
    assert_eq!(document["header"], "kept");
}

#[test]
fn a_lost_header_is_rebuilt_from_the_events_and_the_command_line() {
    let lost = |change: &dyn Fn(&Path), class: &str| {
        let document = salvaged(change, 30, class, "header");
        assert_eq!((&document["header"], document["left"].as_array().unwrap().len()), (&Value::from("rebuilt"), 1));
    };
    lost(&|bad| flip(&bad.join("header"), 30), "bad-header");
    lost(&|bad| fs::remove_file(bad.join("header")).unwrap(), "bad-header");
    lost(&|bad| fs::write(bad.join("header"), "").unwrap(), "bad-header");
    lost(
        &|bad| fs::write(bad.join("header"), fs::read(bad.with_file_name("other").join("header")).unwrap()).unwrap(),
        "identity-mismatch",
    );
    lost(
        &|bad| {
            fs::remove_file(bad.join("header")).unwrap();
            fs::create_dir(bad.join("header")).unwrap();
        },
        "wrong-file-type",
    );
    let home = store();
    flip(&home.session("bad").join("header"), 30);
    home.run(["salvage", "bad", "--as", "new", "--cwd", "relative"]).with(USAGE).says(&["--cwd"]);
    home.run(["salvage", "bad", "--as", "new", "--cwd", "/srv/app"]).ok();
    let rows = home.run(["ls", "--json"]).with(FAILED).json();
    let row = rows.iter().find(|row| row["id"] == "new").unwrap();
    assert!(row["cwd"] == "/srv/app" && row["created_at"] == 1_700_000_000_000_u64, "{row}");
}

#[test]
fn a_renamed_directory_keeps_its_header() {
    let home = store();
    fs::rename(home.session("bad"), home.session("moved")).unwrap();
    let document = home.run(["salvage", "moved", "--as", "new", "--json"]).ok().document();
    assert!(document["events"] == 30 && document["header"] == "kept", "{document}");
    assert_eq!(document["left"][0]["class"], "identity-mismatch");
    home.run(["verify", "new"]).ok();
}

#[test]
fn sealed_segments_give_the_blocks_before_the_damage() {
    let home = Home::new();
    home.record("bad", recording(7, 60_000));
    home.run(["seal", "bad", "--level", "3"]).ok();
    let segment = home.session("bad").join(FIRST.replace(".log", ".seg"));
    let length = usize::try_from(fs::metadata(&segment).unwrap().len()).unwrap();
    let original = home.run(["events", "bad", "--json"]).ok().out;
    flip(&segment, length * 3 / 4);
    let document = home.run(["salvage", "bad", "--as", "new", "--json"]).ok().document();
    let events = usize::try_from(document["events"].as_u64().unwrap()).unwrap();
    assert!(events > 0 && events < original.lines().count(), "{document}");
    let lines: Vec<&str> = original.lines().take(events).collect();
    assert_eq!(home.run(["events", "new", "--json"]).ok().out.lines().collect::<Vec<_>>(), lines);
    assert_eq!(document["left"][0]["class"], "checksum");
    // What opens inside a turn is closed by whoever goes on.
    if document["open_turn"].is_u64() {
        let repaired = home.run(["repair", "new", "--json"]).ok().document();
        assert!(!repaired["closers"].as_array().unwrap().is_empty());
    }
}

#[test]
fn a_turn_that_is_open_where_the_log_stops_is_closed_by_a_repair() {
    let home = Home::new();
    let open = [said(0, "x"), event(1, "turn/start", "{\"turn\":1}"), said(2, "y")];
    home.record("bad", log("bad", &open));
    let more: Vec<String> = open.iter().cloned().chain([said(3, "z")]).collect();
    home.record("bad", log("bad", more));
    flip(&home.session("bad").join("00000000000000000003.log"), 3);
    let document = home.run(["salvage", "bad", "--as", "new", "--json"]).ok().document();
    assert_eq!((document["events"].as_u64(), document["open_turn"].as_u64()), (Some(3), Some(1)));
    let plain = home.run(["salvage", "bad", "--as", "new2"]).ok().out;
    assert!(plain.contains("sessionlog repair new2"), "{plain}");
    assert_eq!(home.run(["repair", "new", "--json"]).ok().document()["closers"].as_array().unwrap().len(), 1);
}

#[test]
fn sound_missing_and_newer_sessions_are_refused() {
    let home = store();
    home.run(["salvage", "other", "--as", "new"]).with(FAILED).says(&["not damaged", "sessionlog fork other --as new"]);
    home.run(["salvage", "nope", "--as", "new"]).with(MISSING).says(&["no session nope"]);
    home.run(["salvage", "other"]).with(USAGE);
    fs::write(home.store().join("sessions/plain"), "x").unwrap();
    home.run(["salvage", "plain", "--as", "new"]).with(FAILED).says(&["wrong-file-type"]);
    let path = home.session("other").join("header");
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] = 9;
    let checksum = {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes[..16]);
        hasher.update(&bytes[20..]);
        hasher.finalize().to_le_bytes()
    };
    bytes[16..20].copy_from_slice(&checksum);
    fs::write(&path, bytes).unwrap();
    home.run(["salvage", "other", "--as", "new"]).with(FAILED).says(&["newer version", "upgrade"]);
    assert!(!home.session("new").exists());
}

#[test]
fn an_event_that_no_session_accepts_ends_what_is_salvaged() {
    let home = Home::new();
    home.record("bad", messages("bad", 5));
    // The engine keeps what it is given; the model's rules are the session's.
    let engine = Engine::open(home.store()).unwrap();
    let id = SessionId::new("bad").unwrap();
    let head = engine.take_over(&id).unwrap().head;
    let message = said(5, "x")
        .replace(r#""surfaceOp":"append""#, r#""surfaceOp":{"op":"replace","start":1,"end":2},"sourceEventSeqs":[1]"#);
    let batch = Batch::pack([RawEnvelope::parse(&message).unwrap().into_event().unwrap()]).unwrap();
    let expected = Expected { epoch: head.epoch, next_seq: 5 };
    engine.append(&id, None, expected, &batch).unwrap();
    engine.release(&id, head.epoch).unwrap();
    drop(engine);
    assert_eq!(home.run(["verify", "bad", "--json"]).with(FAILED).json()[0]["class"], "invalid-event");
    let document = home.run(["salvage", "bad", "--as", "new", "--json"]).ok().document();
    assert_eq!((document["events"].as_u64(), &document["left"][0]["class"]), (Some(5), &Value::from("invalid-event")));
    assert!(document["left"][0]["detail"].as_str().unwrap().contains("event 5") && document["left"][0]["seq"] == 5);
    assert_eq!(home.run(["verify", "new", "--json"]).ok().json()[0]["status"], "ok");
}
