//! `fork` and `ls --tree`: where a fork may begin, what it holds and shares, and how families are shown.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod cli_common;

use std::fs;

use cli_common::{FAILED, Home, MISSING, USAGE, event, files, log, recording, said};
use serde_json::Value;
use sessionlog::backend::Expected;
use sessionlog::event::{Batch, JsonText, NewEvent, SessionHeader, SessionId};
use sessionlog::segment::Engine;

/// A message, two turns, and a third one that is open.
fn turns() -> String {
    let turn = |seq, number| event(seq, "turn/start", &format!("{{\"turn\":{number}}}"));
    let end =
        |seq, number| event(seq, "turn/end", &format!("{{\"turn\":{number},\"reason\":{{\"kind\":\"completed\"}}}}"));
    log(
        "p",
        [
            said(0, "hello"),
            turn(1, 1),
            said(2, "a"),
            end(3, 1),
            said(4, "b"),
            turn(5, 2),
            end(6, 2),
            turn(7, 3),
            said(8, "c"),
        ],
    )
}

fn events(home: &Home, id: &str) -> Vec<String> {
    home.run(["events", id, "--json"]).ok().out.lines().map(str::to_owned).collect()
}

#[test]
fn l5_a_fork_is_the_beginning_of_its_parent_and_changes_nothing_in_it() {
    let home = Home::new();
    home.import("p", turns());
    let before: Vec<Vec<u8>> = files(&home.session("p")).iter().map(|file| fs::read(file).unwrap()).collect();
    for (at, child) in [(0, "c0"), (3, "c3"), (4, "c4"), (6, "c6")] {
        let document = home.run(["fork", "p", "--at", &at.to_string(), "--as", child, "--json"]).ok().document();
        assert_eq!(document["id"], child);
        assert_eq!(document["parent"], "p");
        let (parent, own) = (events(&home, "p"), events(&home, child));
        assert_eq!(own[..=at], parent[..=at]);
        assert_eq!(own.len(), at + 2, "behind what was taken over stands the mark of the seed's end alone");
        assert!(own[at + 1].contains("session/end-seed"));
        assert_eq!(document["events"], own.len());
        assert_eq!(home.run(["verify", child, "--json"]).ok().json()[0]["status"], "ok");
    }
    let after: Vec<Vec<u8>> = files(&home.session("p")).iter().map(|file| fs::read(file).unwrap()).collect();
    assert_eq!(before, after);
    let plain = home.run(["fork", "p", "--at", "4", "--as", "c5"]).ok().out;
    assert!(plain.contains("forked p as c5: 6 events"), "{plain}");
}

#[test]
fn l5_a_boundary_inside_a_turn_or_behind_the_end_is_refused_and_the_near_ones_are_named() {
    let home = Home::new();
    home.import("p", turns());
    let fork = |at: &str| home.run(["fork", "p", "--at", at, "--as", "c"]);
    fork("2").with(FAILED).says(&["session p", "seq 2", "turn that began at seq 1", "--at 0", "--at 3"]);
    fork("5").with(FAILED).says(&["--at 4", "--at 6"]);
    fork("8").with(FAILED).says(&["--at 6", "has not ended yet"]);
    fork("9").with(USAGE).says(&["seq 9", "before seq 9"]);
    // Without --at it is the last event, which lies in an open turn.
    home.run(["fork", "p", "--as", "c"]).with(FAILED).says(&["seq 8", "--at 6"]);
    home.run(["fork", "p", "--at", "4", "--as", "p"]).with(FAILED).says(&["exists"]);
    home.run(["fork", "nope", "--at", "4", "--as", "c"]).with(MISSING).says(&["no session nope"]);
    home.run(["fork", "p", "--at", "4", "--as", ""]).with(USAGE).says(&["empty"]);
    home.import("first", log("first", [event(0, "turn/start", "{\"turn\":1}"), said(1, "x")]));
    home.run(["fork", "first", "--at", "1", "--as", "c"]).with(FAILED).says(&["sessionlog repair first"]);
    assert_eq!(home.run(["ls", "--json"]).ok().json().len(), 2);
}

#[test]
fn v2_a_fork_of_what_is_not_understood_needs_the_type_named() {
    let home = Home::new();
    home.import("p", log("p", [said(0, "x"), event(1, "mine/thing", "1")]));
    home.run(["fork", "p", "--as", "c"]).with(FAILED).says(&["mine/thing", "--assume-known"]);
    home.run(["fork", "p", "--as", "c", "--assume-known", "mine/thing"]).ok();
    home.run(["fork", "p", "--at", "0", "--as", "d"]).ok();
}

#[test]
fn what_is_sealed_is_shared_and_lasts_as_long_as_one_of_the_two() {
    let home = Home::new();
    home.import("p", recording(4, 3000));
    home.run(["seal", "p"]).ok();
    let end = home.run(["ls", "--json"]).ok().json()[0]["events"].as_u64().unwrap() - 1;
    let document = home.run(["fork", "p", "--as", "c", "--json"]).ok().document();
    let shared = document["shared_bytes"].as_u64().unwrap();
    assert!(shared > 1000, "{document}");
    let segment = fs::metadata(home.session("p").join("00000000000000000000.seg")).unwrap().len();
    assert_eq!(shared, segment);
    let parent = events(&home, "p");
    home.run(["rm", "--now", "p"]).ok();
    assert_eq!(events(&home, "c")[..=usize::try_from(end).unwrap()], parent);
    home.run(["verify", "c"]).ok();
}

#[test]
fn beside_a_live_writer_a_fork_is_made_of_what_is_durable() {
    let home = Home::new();
    let engine = Engine::open(home.store()).unwrap();
    let id = SessionId::new("live").unwrap();
    let note = |seq| NewEvent::named("session/title", JsonText::parse(r#"{"title":"t"}"#).unwrap()).at(seq, 5);
    let batch = Batch::pack((0..4).map(note)).unwrap();
    let head = engine.append(&id, Some(&SessionHeader::new("live")), Expected::ABSENT, &batch).unwrap();
    let document = home.run(["fork", "live", "--at", "2", "--as", "c", "--json"]).ok().document();
    assert_eq!(document["events"], 4);
    let expected = Expected { epoch: head.epoch, next_seq: 4 };
    engine.append(&id, None, expected, &Batch::pack([note(4)]).unwrap()).unwrap();
    assert_eq!(events(&home, "live").len(), 5);
    assert_eq!(events(&home, "c").len(), 4);
}

fn header_of(id: &str, parent: &str) -> String {
    format!(r#"{{"type":"session","version":1,"id":"{id}","createdAt":1,"parentSession":"{parent}"}}"#)
}

#[test]
fn forks_stand_under_their_parents_and_cycles_and_missing_parents_survive() {
    let home = Home::new();
    for (id, parent, time) in [
        ("root", "", 5),
        ("child-old", "root", 6),
        ("child-new", "root", 9),
        ("grandchild", "child-old", 3),
        ("orphan", "gone", 8),
        ("loop-a", "loop-b", 2),
        ("loop-b", "loop-a", 1),
        ("self", "self", 0),
    ] {
        let head = if parent.is_empty() { cli_common::header(id) } else { header_of(id, parent) };
        let line = said(0, id).replace("1700000000000", &time.to_string());
        home.import(id, format!("{head}\n{line}\n"));
    }
    let rows = home.run(["ls", "--tree", "--json"]).ok().json();
    let shown: Vec<(String, u64)> =
        rows.iter().map(|row| (row["id"].as_str().unwrap().to_owned(), row["depth"].as_u64().unwrap())).collect();
    let wanted = [
        ("orphan", 0),
        ("root", 0),
        ("child-new", 1),
        ("child-old", 1),
        ("grandchild", 2),
        ("loop-a", 0),
        ("loop-b", 1),
        ("self", 0),
    ];
    assert_eq!(shown, wanted.map(|(id, depth)| (id.to_owned(), depth)));
    let table = home.run(["ls", "--tree"]).ok().out;
    for line in ["orphan (of gone) ", "root ", "`- child-new ", "   `- grandchild ", "`- loop-b "] {
        assert!(table.lines().any(|row| row.starts_with(line)), "{line:?} in {table}");
    }
    let plain = home.run(["ls", "--json"]).ok().json();
    assert!(plain.iter().all(|row| row["depth"] == Value::Null) && plain.len() == 8);
    assert_eq!(home.run(["ls", "--tree", "--limit", "3", "--json"]).ok().json().len(), 3);
}

#[test]
fn a_long_chain_of_forks_is_shown() {
    let home = Home::new();
    let names: Vec<String> = (0..300).map(|number| format!("s{number:03}")).collect();
    let mut paths = Vec::new();
    for pair in names.windows(2) {
        let text = format!("{}\n{}\n", header_of(&pair[1], &pair[0]), said(0, "x"));
        paths.push(home.write(&pair[1], text));
    }
    home.run([vec!["import"], paths.iter().map(String::as_str).collect()].concat()).with(0);
    let rows = home.run(["ls", "--tree", "--json"]).ok().json();
    assert_eq!(rows.last().unwrap()["depth"], 298);
    let table = home.run(["ls", "--tree"]).ok().out;
    assert!(table.lines().count() == 300 && table.lines().all(|line| line.chars().count() < 250), "{table}");
}
