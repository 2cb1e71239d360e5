//! `seal`: the same answers from sealed segments.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod cli_common;

use std::path::PathBuf;

use cli_common::{Home, log, said};
use sessionlog::event::SessionId;
use sessionlog::sample::Recording;
use sessionlog::segment::Engine;

#[test]
fn sealed_sessions_answer_every_verb_as_before() {
    let home = Home::new();
    for (id, recording) in [("plain", Recording::new(1)), ("compacted", Recording::new(2).compacting())] {
        home.record(id, recording.events(6_000).write_dsh(Vec::new()).unwrap());
    }
    let asked = [
        &["events", "plain", "--json"][..],
        &["events", "compacted", "--json", "--from", "5900"],
        &["events", "plain", "--json", "--type", "tool/*"],
        &["messages", "compacted", "--json", "--request"],
        &["messages", "compacted", "--json", "--at", "4000"],
        &["show", "compacted", "--raw"],
        &["export", "plain"],
        &["verify", "--json"],
    ];
    let before: Vec<String> = asked.iter().map(|arguments| home.run(*arguments).ok().out).collect();

    let rows = home.run(["seal", "--json"]).ok().json();
    assert_eq!(rows.len(), 2);
    for row in &rows {
        let bytes = |key: &str| row[key].as_u64().unwrap();
        // Already packed in large records, it gains an index and a checkpoint and no more.
        assert!(bytes("after") < bytes("before") * 5 / 4, "{row}");
    }
    let after: Vec<String> = asked.iter().map(|arguments| home.run(*arguments).ok().out).collect();
    assert_eq!(after, before);
    let again = home.run(["seal", "--json", "plain"]).ok().json();
    assert_eq!(again[0]["before"], again[0]["after"], "sealed is sealed");
    let text = Recording::new(1).events(6_000).write_dsh(Vec::new()).unwrap();
    let file = home.write("plain.jsonl", text);
    let row = home.run(["import", &file, "--id", "plain", "--json"]).ok().json().remove(0);
    assert_eq!((row["status"].as_str(), &row["bytes_stored"]), (Some("unchanged"), &again[0]["after"]));
    for row in home.run(["ls", "--json"]).ok().json() {
        assert!(row["state"] == "ok" && row["events"] == 6_000, "{row}");
    }
}

#[test]
fn what_became_of_each_session_is_said_in_words() {
    let home = Home::new();
    home.import("a", log("a", [said(0, "x")]));
    home.record("b", Recording::new(1).events(300).write_dsh(Vec::new()).unwrap());
    let out = home.run(["seal"]).ok().out;
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("unchanged  a  ") && lines[0].ends_with(" B"), "{out}");
    assert!(lines[1].starts_with("sealed     b  ") && lines[1].contains(" -> "), "{out}");
    assert_eq!(home.run(["seal", "b"]).ok().out.split("  ").next(), Some("unchanged"));
}

#[test]
fn a_session_that_is_open_for_writing_is_not_sealed() {
    let home = Home::new();
    let text = Recording::new(1).events(50).write_dsh(Vec::new()).unwrap();
    let file = home.write("a.jsonl", text);
    home.run(["import", &file, "--id", "a"]).ok();
    let engine = Engine::open(home.store()).unwrap();
    let _writer = engine.take_over(&SessionId::new("a").unwrap()).unwrap();
    let ran = home.run(["seal", "a"]).with(3);
    assert!(ran.err.contains(&std::process::id().to_string()), "{}", ran.err);
}

#[test]
fn an_import_is_sealed_as_a_whole_and_says_the_bytes_after_that() {
    let home = Home::new();
    let text = Recording::new(1).events(3_000).write_jsonl(Vec::new()).unwrap();
    for (events, status) in [(2_000, "imported"), (3_000, "extended")] {
        let end = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(events).unwrap().0 + 1;
        let file = home.write("a.jsonl", &text[..end]);
        let row = home.run(["import", &file, "--id", "a", "--json"]).ok().json().remove(0);
        assert_eq!((row["status"].as_str(), row["events"].as_u64()), (Some(status), Some(events as u64)));
        let kinds = ["log", "seg"].map(|kind| {
            let of_kind = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == kind);
            cli_common::files(&home.session("a")).iter().filter(of_kind).count()
        });
        assert_eq!(kinds, [0, 1]);
        let sealed = home.run(["seal", "a", "--json"]).ok().json().remove(0);
        assert_eq!(sealed["before"], row["bytes_stored"]);
    }
}
