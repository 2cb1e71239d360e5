//! Damage as people meet it: which verbs still work, what they say, that nothing else suffers, and what `repair` does.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod cli_common;

use std::fs;
use std::path::{Path, PathBuf};

use cli_common::{FAILED, Home, Ran, below, cut, event, files, flip, log, messages, recording, said};
use serde_json::Value;
use sessionlog::backend::ReadLimit;
use sessionlog::event::{Event, SessionId};
use sessionlog::segment::{CheckStatus, Engine};

/// A store with the session `bad` of two journals and sound ones around it.
fn store() -> Home {
    let home = Home::new();
    home.record("a-sound", messages("s", 4));
    home.record("bad", messages("s", 10));
    home.record("bad", messages("s", 20));
    home.record("z-sound", recording(3, 60));
    home
}

/// Checks that `bad` is reported by every verb and that its neighbours are as they were.
#[track_caller]
fn reported(home: &Home, status: &str, class: &str, file: &str) {
    let file = home.store().join("sessions").join(file);
    let file = file.to_str().unwrap();
    let rows = home.run(["verify", "--json"]).with(FAILED).json();
    let statuses: Vec<&Value> = rows.iter().map(|row| &row["status"]).collect();
    assert_eq!(statuses, [&Value::from("ok"), &Value::from(status), &Value::from("ok"), &Value::Null]);
    let row = &rows[1];
    assert!(row["id"] == "bad" && row["class"] == class && row["file"] == file, "{row}");
    assert!(row["seq"].is_u64() && row["detail"].as_str().unwrap().contains("bad"), "{row}");
    assert_eq!(rows[3]["summary"]["sessions"], 3);
    let plain = home.run(["verify"]).with(FAILED);
    assert!(plain.out.contains(file) && plain.out.lines().count() == 4, "{}", plain.out);
    assert!(plain.out.contains("; `sessionlog "), "what to do next: {}", plain.out);

    let sessions = home.run(["ls", "--json"]).with(FAILED).json();
    let listed = sessions.iter().find(|row| row["id"] == "bad").unwrap();
    assert!(listed["state"] == "damaged" && listed["error"].as_str().unwrap().contains(file), "{listed}");
    assert_eq!(sessions.len(), 3);
    let plain = home.run(["ls"]).with(FAILED);
    assert!(plain.out.lines().any(|line| line.starts_with("! session bad: ")), "{}", plain.out);

    for arguments in [
        &["messages", "bad"][..],
        &["show", "bad"],
        &["export", "bad"],
        &["repair", "bad"],
        &["repair", "bad", "--dry-run"],
        &["seal", "bad"],
        &["fork", "bad", "--as", "new"],
        &["messages", "bad", "--json"],
        &["export", "bad", "-o", "out.jsonl"],
    ] {
        let ran = home.run(arguments).with(FAILED);
        assert_eq!(ran.out, "", "{arguments:?}");
        ran.says(&["session bad", file, "; `sessionlog "]);
    }
    assert!(!home.path("out.jsonl").exists() && !home.session("new").exists());
    let ran = home.run(["events", "bad", "--json"]).with(FAILED);
    assert_eq!(ran.json().len() as u64, row["seq"].as_u64().unwrap(), "what is intact is printed");
    ran.says(&["session bad", file]);
    for id in ["a-sound", "z-sound"] {
        for verb in ["events", "messages", "show", "export", "verify"] {
            home.run([verb, id]).ok();
        }
    }
}

#[test]
fn r4_a_flipped_byte_in_each_kind_of_place_is_named_and_costs_one_session() {
    for (file, offset, class) in [
        ("bad/header", 3, "bad-header"),
        ("bad/header", 40, "bad-header"),
        ("bad/00000000000000000000.log", 2, "bad-header"),
        ("bad/00000000000000000000.log", 100, "checksum"),
    ] {
        let home = store();
        flip(&home.store().join("sessions").join(file), offset);
        reported(&home, "damaged", class, file);
    }
}

#[test]
fn r4_zeros_holes_missing_and_foreign_files_are_named_and_cost_one_session() {
    let first = "bad/00000000000000000000.log";
    let change = |what: &dyn Fn(&Home), class: &str, file: &str| {
        let home = store();
        what(&home);
        reported(&home, "damaged", class, file);
    };
    change(
        &|home| {
            let mut bytes = fs::read(home.journal("bad")).unwrap();
            let end = bytes.len();
            bytes[96..end].fill(0);
            fs::write(home.journal("bad"), bytes).unwrap();
        },
        "nul-hole",
        first,
    );
    change(
        &|home| {
            fs::remove_file(home.journal("bad")).unwrap();
            fs::create_dir(home.journal("bad")).unwrap();
        },
        "wrong-file-type",
        first,
    );
    change(
        &|home| {
            fs::remove_file(home.session("bad").join("header")).unwrap();
            fs::create_dir(home.session("bad").join("header")).unwrap();
        },
        "wrong-file-type",
        "bad/header",
    );
    change(&|home| fs::remove_file(home.session("bad").join("header")).unwrap(), "bad-header", "bad/header");
    change(
        &|home| {
            let _ = fs::copy(home.session("a-sound").join("header"), home.session("bad").join("header")).unwrap();
        },
        "identity-mismatch",
        "bad/header",
    );
}

#[test]
fn a_plain_file_or_an_unknown_directory_among_the_sessions_is_named() {
    let home = store();
    fs::remove_dir_all(home.session("bad")).unwrap();
    fs::write(home.session("bad"), "plain").unwrap();
    fs::create_dir(home.store().join("sessions").join("%zz")).unwrap();
    let rows = home.run(["verify", "--json"]).with(FAILED).json();
    let bad: Vec<&str> =
        rows.iter().filter(|row| row["status"] == "damaged").map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!(bad, ["%zz", "bad"]);
    // It can be asked for by the name that it is shown under.
    let row = &home.run(["verify", "%zz", "--json"]).with(FAILED).json()[0];
    assert!(row["id"] == "%zz" && row["class"] == "bad-header", "{row}");
    home.run(["show", "%zz"]).with(FAILED).says(&["%zz", "header"]);
    assert_eq!(home.run(["ls", "--json"]).with(FAILED).json().len(), 4);
}

#[test]
fn limits_and_filters_of_ls_do_not_hide_damage() {
    let home = store();
    flip(&home.session("bad").join("header"), 30);
    let ran = home.run(["ls", "--limit", "1", "--json"]).with(FAILED);
    assert_eq!(ran.json().len(), 1);
    ran.says(&["damaged", "session bad"]);
    let ran = home.run(["ls", "--cwd", "/nowhere", "--since", "1s", "--json"]).with(FAILED);
    assert!(ran.err.is_empty() && ran.document()["id"] == "bad");
    home.run(["ls", "--limit", "0"]).with(FAILED).says(&["session bad"]);
}

#[test]
fn a_damaged_session_keeps_its_facts_and_place_in_the_listing() {
    let home = store();
    flip(&home.session("bad").join("00000000000000000010.log"), 30);
    let rows = home.run(["ls", "--json"]).with(FAILED).json();
    let row = rows.iter().find(|row| row["id"] == "bad").unwrap();
    assert!(row["events"] == 10 && row["created_at"] == 1_700_000_000_000_u64, "{row}");
    assert_eq!(row["last_time"], 1_700_000_000_009_u64);
    // Any moment before the damage can still be seen.
    let document = home.run(["messages", "bad", "--at", "9", "--json"]).ok().document();
    assert_eq!(document["messages"].as_array().unwrap().len(), 10);
}

#[test]
fn a_store_whose_identity_is_damaged_says_so_and_what_to_do() {
    let home = store();
    home.write("in.jsonl", messages("s", 3));
    flip(&home.store().join("STORE"), 20);
    for arguments in [&["ls"][..], &["verify", "--json"], &["show", "bad"], &["import", "in.jsonl", "--id", "new"]] {
        let ran = home.run(arguments).with(FAILED);
        assert_eq!(ran.out, "");
        ran.says(&["STORE", "move the file away"]);
    }
    fs::remove_file(home.store().join("STORE")).unwrap();
    home.run(["verify"]).ok();
    home.run(["import", "in.jsonl", "--id", "new"]).ok();
    assert!(home.store().join("STORE").exists());
}

fn open_turn() -> String {
    let call = r#"{"turn":1,"step":1,"message":{"id":"a","role":"assistant","content":[{"type":"tool-call","id":"c1","name":"run","arguments":"{}"}],"source":{"kind":"model","provider":"p","model":"m"}}}"#;
    let call = event(3, "assistant/message", call);
    log(
        "s",
        [
            event(0, "turn/start", r#"{"turn":1}"#),
            said(1, "go"),
            event(2, "step/start", r#"{"turn":1,"step":1}"#),
            format!("{},\"surfaceOp\":\"append\"}}", call.strip_suffix('}').unwrap()),
            event(4, "tool/call", r#"{"turn":1,"step":1,"callId":"c1","name":"run","arguments":"{}"}"#),
        ],
    )
}

fn tree(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    files(root).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn r2_an_open_turn_is_sound_and_repair_closes_it_once() {
    let home = Home::new();
    home.record("s", open_turn());
    assert_eq!(home.run(["ls", "--json"]).ok().document()["state"], "open-turn");
    assert_eq!(home.run(["verify", "--json"]).ok().json()[0]["status"], "open-turn");
    assert!(home.run(["show", "s"]).ok().out.contains("open turn: 1"));
    let seen = home.run(["messages", "s", "--json"]).ok().document()["messages"].as_array().unwrap().len();
    assert_eq!(seen, 2, "reading adds no closers");

    let before = tree(&home.store());
    let planned = home.run(["repair", "s", "--dry-run", "--json"]).ok().document();
    assert!(home.run(["repair", "s", "--dry-run"]).ok().out.contains("would close"));
    assert!(tree(&home.store()) == before, "a dry run writes nothing");
    let types: Vec<&str> =
        planned["closers"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["tool/result", "step/end", "turn/end"]);
    assert_eq!(planned["closers"][0]["data"]["error"]["code"], "TOOL_OUTCOME_UNKNOWN");

    assert_eq!(home.run(["repair", "s", "--json"]).ok().document(), planned);
    let repaired = tree(&home.store());
    let again = home.run(["repair", "s", "--json"]).ok().document();
    assert!(again["closers"].as_array().unwrap().is_empty() && again["cut_bytes"] == 0);
    assert!(tree(&home.store()) == repaired, "a session that needs nothing is left as it is");
    assert_eq!(home.run(["verify", "--json"]).ok().json()[0]["status"], "ok");
    let events = home.run(["events", "s", "--from", "5", "--json"]).ok().json();
    assert_eq!(&Value::from(events), &planned["closers"]);
}

#[test]
fn r1_a_torn_tail_is_reported_until_repair_sets_its_bytes_aside() {
    let home = Home::new();
    home.record("s", messages("s", 5));
    home.record("s", messages("s", 9));
    let newest = home.session("s").join("00000000000000000005.log");
    let whole = fs::read(&newest).unwrap();
    cut(&newest, 3);
    let row = &home.run(["verify", "s", "--json"]).with(FAILED).json()[0];
    assert!(row["status"] == "torn" && row["events"] == 5 && row["seq"] == 5, "{row}");
    assert!(row["file"] == newest.to_str().unwrap() && row["detail"].as_str().unwrap().contains("repair s"), "{row}");
    let offset = usize::try_from(row["offset"].as_u64().unwrap()).unwrap();
    let listed = home.run(["ls", "--json"]).ok().document();
    assert!(listed["events"] == 5 && listed["error"].as_str().unwrap().contains("incomplete"), "{listed}");
    assert_eq!(home.run(["messages", "s", "--json"]).ok().document()["messages"].as_array().unwrap().len(), 5);
    assert_eq!(home.run(["events", "s", "--json"]).ok().json().len(), 5);

    let planned = home.run(["repair", "s", "--dry-run", "--json"]).ok().document();
    assert_eq!(planned["cut_bytes"], whole.len() - 3 - offset);
    let done = home.run(["repair", "s"]).ok().out;
    assert!(done.contains("kept in") && done.contains("no open turn"), "{done}");
    let kept: Vec<PathBuf> = below(&home.session("s").join("torn"));
    assert_eq!(fs::read(&kept[0]).unwrap(), whole[offset..whole.len() - 3]);
    assert_eq!(home.run(["verify", "--json"]).ok().json()[0]["status"], "ok");
    home.import("s", messages("s", 9));
    assert_eq!(home.run(["events", "s", "--json"]).ok().json().len(), 9);
}

#[test]
fn v2_repair_leaves_a_turn_alone_that_it_does_not_understand() {
    let home = Home::new();
    home.record("s", open_turn() + &event(5, "app/odd", "{}") + "\n");
    let before = tree(&home.store());
    for arguments in [&["repair", "s"][..], &["repair", "s", "--dry-run"]] {
        home.run(arguments).with(FAILED).says(&["session s", "event 5", "app/odd"]);
    }
    assert!(tree(&home.store()) == before);
}

fn content(engine: &Engine, id: &str) -> Option<Vec<Event>> {
    let mut reader = engine.reader(&SessionId::new(id).unwrap()).ok()?;
    let mut events = Vec::new();
    loop {
        let page = reader.next_page(ReadLimit::default()).ok()?;
        if page.items.is_empty() {
            return Some(events);
        }
        events.extend(page.items.iter().flat_map(|item| item.events()));
    }
}

/// `verify` as the engine does it: whether the session is reported, and that it is the only one.
fn flipped_is_found(home: &Home, path: &Path, offset: usize, bit: u8, sound: &[Event]) {
    let original = fs::read(path).unwrap();
    let mut bytes = original.clone();
    bytes[offset] ^= bit;
    fs::write(path, bytes).unwrap();
    let place = format!("{} at {offset}", path.display());
    if let Ok(engine) = Engine::open(home.store()) {
        let check = engine.verify(&SessionId::new("small").unwrap());
        if check.status == CheckStatus::Ok {
            assert!(content(&engine, "small").is_some_and(|events| events == sound), "{place}: silently changed");
        }
        for other in ["one", "two"] {
            assert_eq!(engine.verify(&SessionId::new(other).unwrap()).status, CheckStatus::Ok, "{place}");
        }
    } else {
        assert!(path.ends_with("STORE"), "{place}");
    }
    fs::write(path, original).unwrap();
}

#[test]
fn r4_every_flipped_byte_of_a_session_is_reported_or_changes_nothing() {
    let home = Home::new();
    for id in ["one", "two"] {
        home.record(id, messages("s", 3));
    }
    let delta = |seq, text| {
        let chunk = format!(r#"{{"turn":1,"step":1,"chunk":{{"type":"text-delta","index":0,"text":"{text}"}}}}"#);
        event(seq, "assistant/chunk", &chunk) + "\n"
    };
    home.record("small", open_turn());
    home.record("small", open_turn() + &delta(5, "a") + &delta(6, "few") + &delta(7, "words") + &delta(8, "more"));
    let engine = Engine::open(home.store()).unwrap();
    let sound = content(&engine, "small").unwrap();
    assert_eq!(sound.len(), home.run(["events", "small", "--json"]).ok().json().len());
    let mut places: Vec<PathBuf> = files(&home.session("small"));
    places.extend(files(&home.store()).into_iter().filter(|path| path.parent() == Some(&home.store())));
    for path in &places {
        for offset in 0..fs::read(path).unwrap().len() {
            flipped_is_found(&home, path, offset, 1 << (offset % 8), &sound);
        }
    }
    // A long one at a sample of places.
    let long = home.store().join("sessions").join("long");
    let text = String::from_utf8(recording(5, 700)).unwrap();
    home.record("long", text.split_inclusive('\n').take(300).collect::<String>());
    home.record("long", text);
    let sound = content(&engine, "long").unwrap();
    for path in files(&long) {
        let original = fs::read(&path).unwrap();
        for offset in (0..original.len()).step_by(original.len() / 40 + 1) {
            flip(&path, offset);
            let check = engine.verify(&SessionId::new("long").unwrap());
            let same =
                check.status != CheckStatus::Ok || content(&engine, "long").is_some_and(|events| events == sound);
            assert!(same, "{} at {offset}: silently changed", path.display());
            fs::write(&path, &original).unwrap();
        }
    }
    // And some as people see them.
    let exported = home.run(["export", "small"]).ok().out;
    for path in files(&home.session("small")) {
        let original = fs::read(&path).unwrap();
        for offset in (0..original.len()).step_by(original.len() / 6 + 1) {
            flip(&path, offset);
            let ran = home.run(["verify", "--json"]);
            assert!(matches!(ran.status, 0 | FAILED), "{ran:?}");
            let rows = ran.json();
            let reported =
                rows.iter().any(|row| row["id"] == "small" && row["status"] != "ok" && row["status"] != "open-turn");
            assert_eq!(reported, ran.status == FAILED, "{ran:?}");
            assert!(rows.iter().all(|row| row["id"] == "small" || row["status"] != "damaged"), "{ran:?}");
            let export: Ran = home.run(["export", "small"]);
            assert!(reported || export.out == exported, "{} at {offset}", path.display());
            fs::write(&path, &original).unwrap();
        }
    }
    home.run(["verify"]).ok();
}

/// Has the catalogue say that `bad` has one event more than it has, with the right checksum.
fn falsify_catalogue(home: &Home) {
    let path = home.store().join("catalog");
    // What changed a moment ago is not kept yet. The text begins with how many sessions there are.
    let listed = || {
        home.run(["ls"]).ok();
        let bytes = fs::read(&path).ok()?;
        let text = zstd::decode_all(&bytes[20..]).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        (text[0] == 3).then_some((bytes, text))
    };
    let (bytes, mut text) = (0..1000).find_map(|_| listed()).unwrap();
    // Behind a header's text stands how many events there are.
    let at = text.windows(2).position(|bytes| bytes == [b'}', 20]).unwrap();
    text[at + 1] = 21;
    let packed = zstd::bulk::compress(&text, 1).unwrap();
    let mut wrong = bytes[..16].to_vec();
    // Unpacked it is as long as before.
    wrong.extend(crc32fast::hash(&[&wrong[..], &packed[..]].concat()).to_le_bytes());
    wrong.extend(&packed);
    fs::write(&path, &wrong).unwrap();
}

#[test]
fn a_wrong_catalogue_is_told_and_rebuilt() {
    let home = store();
    falsify_catalogue(&home);
    let rows = home.run(["verify", "--json"]).with(FAILED).json();
    let row = &rows[1];
    assert!(row["status"] == "damaged" && row["class"] == "catalogue" && row["events"] == 20, "{row}");
    assert!(row["file"] == home.store().join("catalog").to_str().unwrap() && row.get("rebuilt").is_none(), "{row}");
    assert!(rows[0]["status"] == "ok" && rows[2]["status"] == "ok");
    assert!(home.run(["verify"]).with(FAILED).out.contains("--repair-derived"));

    let row = home.run(["verify", "bad", "--repair-derived", "--json"]).ok().json().remove(0);
    assert!(row["status"] == "ok" && row["rebuilt"][0]["class"] == "catalogue", "{row}");
    assert!(home.run(["verify", "--json"]).ok().json().iter().all(|row| row.get("rebuilt").is_none()));
    falsify_catalogue(&home);
    let told = home.run(["verify", "--repair-derived"]).ok().out;
    assert!(told.contains("rebuilt") && told.contains("catalogue in "), "{told}");
    home.run(["verify"]).ok();
}
