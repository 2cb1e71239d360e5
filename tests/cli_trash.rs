//! `rm` and `prune`: to the trash and back, for good, beside writers, with damage, and what is freed.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod cli_common;

use std::fs;
use std::path::Path;

use cli_common::{FAILED, Home, MISSING, USAGE, cut, files, flip, header, log, messages, recording, said};
use serde_json::Value;
use sessionlog::event::SessionId;
use sessionlog::segment::Engine;

/// Sessions whose last events are of the given days of 1970.
fn aged(home: &Home, sessions: &[(&str, u64)]) {
    for (id, day) in sessions {
        let line = said(0, &"words ".repeat(100)).replace("1700000000000", &(day * 86_400_000).to_string());
        home.record(id, format!("{}\n{line}\n", header(id)));
    }
}

fn ids(home: &Home) -> Vec<String> {
    let mut ids: Vec<String> =
        home.run(["ls", "--json"]).json().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    ids
}

fn size(directory: &Path) -> u64 {
    files(directory).iter().map(|file| fs::metadata(file).unwrap().len()).sum()
}

#[test]
fn a_session_goes_to_the_trash_and_comes_back_as_it_was() {
    let home = Home::with_good();
    home.import("other", messages("x", 2));
    let before = home.run(["export", "good"]).ok().out;
    let bytes = size(&home.session("good"));
    let line = home.run(["rm", "goo", "--json"]).ok().document();
    assert!(line["id"] == "good" && line["status"] == "trashed" && line["bytes"] == bytes && line["freed_bytes"] == 0);
    assert_eq!(ids(&home), ["other"]);
    home.run(["show", "good"]).with(MISSING).says(&["no session good"]);
    let listed = home.run(["rm", "--list", "--json"]).ok().document();
    assert!(listed["id"] == "good" && listed["trashed_at"] == line["trashed_at"] && listed["freeable_bytes"] == bytes);
    assert!(home.run(["rm", "--list"]).ok().out.starts_with("good "));
    let plain = home.run(["rm", "--restore", "good"]).ok().out;
    assert!(plain.starts_with("restored good"), "{plain}");
    assert_eq!(home.run(["export", "good"]).ok().out, before);
    assert_eq!(home.run(["rm", "--list"]).ok().out, "the trash is empty\n");
    assert_eq!(home.run(["rm", "--list", "--json"]).ok().out, "");
    home.run(["rm", "--restore", "good"]).with(MISSING).says(&["no session good", "rm --list"]);
    home.run(["verify"]).ok();
}

#[test]
fn an_id_in_the_trash_is_free_and_generations_are_chosen_by_their_time() {
    let home = Home::new();
    for count in [1, 2] {
        home.import("s", messages("s", count));
        home.run(["rm", "s"]).ok();
    }
    home.import("s", messages("s", 3));
    let times: Vec<String> = home
        .run(["rm", "--list", "--json"])
        .ok()
        .json()
        .iter()
        .map(|row| row["time"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(times.len(), 2);
    home.run(["rm", "--restore", "s"]).with(USAGE).says(&["2 sessions", &times[0], &times[1], "--time"]);
    home.run(["rm", "--restore", "s", "--time", &times[0]]).with(FAILED).says(&["session s", "again"]);
    home.run(["rm", "--restore", "s", "--time", "1999"]).with(MISSING).says(&[&times[0], "--time"]);
    home.run(["rm", "s", "--time", &times[0]]).with(USAGE).says(&["--restore or --now"]);
    home.run(["rm", "--now", "s"]).ok();
    home.run(["rm", "--restore", "s", "--time", &times[0]]).ok();
    assert_eq!(home.run(["events", "s", "--json"]).ok().json().len(), 1);
    // What is left in the trash goes for good.
    home.run(["rm", "--now", "s", "--time", &times[1]]).ok();
    assert_eq!(ids(&home), ["s"]);
    assert_eq!(home.run(["rm", "--list", "--json"]).ok().out, "");
}

#[test]
fn removing_for_good_frees_what_no_fork_shares() {
    let home = Home::new();
    home.import("p", recording(5, 3000));
    home.run(["seal", "p"]).ok();
    home.run(["fork", "p", "--as", "c"]).ok();
    let store = size(&home.store().join("sessions"));
    let segment = fs::metadata(home.session("p").join("00000000000000000000.seg")).unwrap().len();
    let parent = size(&home.session("p"));
    // Neither a copy in the trash nor the fork lets it go before both are gone.
    home.run(["rm", "p"]).ok();
    let line = home.run(["rm", "--now", "p", "--json"]).ok().document();
    assert_eq!((line["bytes"].as_u64(), line["freed_bytes"].as_u64()), (Some(parent), Some(parent - segment)));
    assert_eq!(size(&home.store().join("sessions")), store - parent);
    let child = size(&home.session("c"));
    let line = home.run(["rm", "c", "--now", "--json"]).ok().document();
    assert_eq!((line["bytes"].as_u64(), line["freed_bytes"].as_u64()), (Some(child), Some(child)));
    assert_eq!(size(&home.store().join("sessions")), 0);
}

#[test]
fn each_refusal_names_its_session_and_the_rest_is_done() {
    let home = Home::new();
    for id in ["a", "b", "live", "damaged"] {
        home.import(id, messages(id, 2));
    }
    let engine = Engine::open(home.store()).unwrap();
    let taken = engine.take_over(&SessionId::new("live").unwrap()).unwrap();
    let holder = format!("process {}", std::process::id());
    flip(&home.session("damaged").join("header"), 30);
    let ran = home.run(["rm", "live", "a", "a", "--json"]).with(MISSING).says(&["session live", &holder]);
    assert_eq!(ran.json().len(), 1);
    let ran = home
        .run(["rm", "--now", "live", "nope", "b", "--json"])
        .with(MISSING)
        .says(&["session live", "no session nope"]);
    assert!(ran.document()["id"] == "b" && ran.document()["status"] == "freed");
    let line = home.run(["rm", "damaged", "--json"]).ok().document();
    assert_eq!(line["status"], "trashed");
    assert!(home.run(["rm", "--list", "--json"]).ok().json().iter().any(|row| row["error"].is_string()));
    home.run(["rm", "--restore", "damaged"]).ok();
    assert_eq!(ids(&home), ["damaged", "live"]);
    engine.release(&SessionId::new("live").unwrap(), taken.head.epoch).unwrap();
    home.run(["rm", "live"]).ok();
    home.run(["rm"]).with(USAGE);
    home.run(["rm", "--list", "x"]).with(USAGE);
    home.run(["rm", "--now", "--restore", "x"]).with(USAGE);
    // An ambiguous beginning is wrong usage, and then nothing at all is done.
    home.import("d2", messages("x", 1));
    home.run(["rm", "d2", "d"]).with(USAGE).says(&["d2", "damaged"]);
    assert_eq!(ids(&home), ["d2", "damaged"]);
}

fn actions(rows: &[Value]) -> Vec<(String, String)> {
    let of = |row: &Value| (row["id"].as_str().unwrap().to_owned(), row["action"].as_str().unwrap().to_owned());
    rows.iter().filter(|row| row["id"].is_string()).map(of).collect()
}

fn pairs(wanted: &[(&str, &str)]) -> Vec<(String, String)> {
    wanted.iter().map(|(id, action)| ((*id).to_owned(), (*action).to_owned())).collect()
}

#[test]
fn prune_by_age_is_a_dry_run_until_it_is_applied_and_goes_by_events() {
    let home = Home::new();
    aged(&home, &[("new", 300), ("old", 100), ("older", 50)]);
    let before = size(&home.store().join("sessions"));
    let rows = home.run(["prune", "--older-than", "1970-06-01", "--json"]).ok().json();
    assert_eq!(actions(&rows), pairs(&[("older", "would-free"), ("old", "would-free")]));
    let summary = &rows[2]["summary"];
    assert!(summary["applied"] == false && summary["sessions"] == 2 && summary["freed_bytes"].as_u64().unwrap() > 100);
    assert_eq!(size(&home.store().join("sessions")), before);
    assert_eq!(ids(&home).len(), 3);
    assert!(home.run(["prune", "--older-than", "1970-06-01"]).ok().out.contains("--apply"));
    let applied = home.run(["prune", "--older-than", "1970-06-01", "--apply", "--json"]).ok().json();
    assert_eq!(actions(&applied), pairs(&[("older", "freed"), ("old", "freed")]));
    assert_eq!(applied[2]["summary"]["freed_bytes"], summary["freed_bytes"]);
    assert_eq!(applied[2]["summary"]["bytes_left"], size(&home.store().join("sessions")));
    assert_eq!(ids(&home), ["new"]);
    home.run(["prune"]).with(USAGE);
    home.run(["prune", "--max-bytes", "lots"]).with(USAGE);
}

#[test]
fn prune_empties_the_trash_by_the_time_of_removal() {
    let home = Home::new();
    aged(&home, &[("a", 10), ("b", 20)]);
    home.run(["rm", "a"]).ok();
    // It was put there just now, however old it is.
    let rows = home.run(["prune", "--older-than", "1h", "--apply", "--json"]).ok().json();
    assert_eq!(actions(&rows), pairs(&[("b", "freed")]));
    let sessions = home.store().join("sessions");
    let trashed = fs::read_dir(&sessions).unwrap().next().unwrap().unwrap().path();
    fs::rename(&trashed, sessions.join(".trash-000000000001-a")).unwrap();
    let rows = home.run(["prune", "--older-than", "1h", "--apply", "--json"]).ok().json();
    assert_eq!(actions(&rows), pairs(&[("a", "freed")]));
    assert!(rows[0]["trashed_at"] == 1 && rows[1]["summary"]["from_trash"] == 1);
    assert_eq!(fs::read_dir(&sessions).unwrap().count(), 0);
}

#[test]
fn prune_to_a_size_takes_the_trash_and_then_the_oldest_until_it_fits() {
    let home = Home::new();
    aged(&home, &[("a", 10), ("b", 20), ("c", 30), ("t", 40)]);
    home.run(["rm", "t"]).ok();
    let one = size(&home.session("c"));
    let most = (one * 5 / 2).to_string();
    let rows = home.run(["prune", "--max-bytes", &most, "--json"]).ok().json();
    assert_eq!(actions(&rows), pairs(&[("t", "would-free"), ("a", "would-free")]));
    let rows = home.run(["prune", "--max-bytes", &most, "--apply", "--json"]).ok().json();
    assert_eq!(actions(&rows), pairs(&[("t", "freed"), ("a", "freed")]));
    assert_eq!(rows[2]["summary"]["bytes_left"], size(&home.store().join("sessions")));
    let rows = home.run(["prune", "--max-bytes", &most, "--apply", "--json"]).ok().json();
    assert!(actions(&rows).is_empty());
}

#[test]
fn live_and_damaged_sessions_are_kept_and_named() {
    let home = Home::new();
    aged(&home, &[("damaged", 1), ("live", 2), ("old", 3)]);
    flip(&home.session("damaged").join("header"), 30);
    let engine = Engine::open(home.store()).unwrap();
    let taken = engine.take_over(&SessionId::new("live").unwrap()).unwrap();
    assert!(taken.torn.is_none());
    let holder = format!("process {}", std::process::id());
    let ran = home.run(["prune", "--older-than", "1d", "--apply", "--json"]).with(FAILED);
    let rows = ran.json();
    assert_eq!(actions(&rows), pairs(&[("damaged", "kept"), ("live", "kept"), ("old", "freed")]));
    let reason = |row: &Value| row["reason"].as_str().unwrap().to_owned();
    assert!(reason(&rows[0]).contains("bad-header") && reason(&rows[1]).contains(&holder), "{rows:?}");
    assert_eq!(ids(&home), ["damaged", "live"]);
    home.run(["prune", "--max-bytes", "0", "--apply"]).with(FAILED).says(&["larger than asked for"]);
    assert_eq!(ids(&home), ["damaged", "live"]);
    // A writer alone is no fault, and what is young is not worth a word.
    home.run(["rm", "--now", "damaged"]).ok();
    let rows = home.run(["prune", "--older-than", "1970-01-02", "--json"]).ok().json();
    assert!(actions(&rows).is_empty(), "{rows:?}");
    let rows = home.run(["prune", "--older-than", "1d", "--json"]).ok().json();
    assert_eq!(actions(&rows), pairs(&[("live", "kept")]));
    // What a crash tore is looked at by its owner first.
    aged(&home, &[("torn", 1)]);
    cut(&home.journal("torn"), 1);
    home.run(["rm", "--now", "live"]).with(MISSING);
    drop(engine);
    home.run(["rm", "--now", "live"]).ok();
    let rows = home.run(["prune", "--older-than", "1d", "--json"]).ok().json();
    assert!(
        actions(&rows) == pairs(&[("torn", "kept")]) && reason(&rows[0]).contains("sessionlog repair torn"),
        "{rows:?}"
    );
}

#[test]
fn families_go_whole_and_are_as_old_as_their_youngest() {
    let home = Home::new();
    home.import("p", recording(6, 2000));
    home.run(["seal", "p"]).ok();
    // The mark that a fork begins with is of today.
    home.run(["fork", "p", "--as", "c"]).ok();
    aged(&home, &[("lone", 5)]);
    let family = ["prune", "--older-than", "1d", "--keep-forks", "--json"];
    assert_eq!(actions(&home.run(family).ok().json()), pairs(&[("lone", "would-free")]));
    let alone = home.run(["prune", "--older-than", "1d", "--json"]).ok().json();
    assert_eq!(actions(&alone), pairs(&[("lone", "would-free"), ("p", "would-free")]));
    let bytes = |row: &Value, member: &str| row[member].as_u64().unwrap();
    assert!(bytes(&alone[1], "freed_bytes") < bytes(&alone[1], "bytes"), "the fork keeps what it shares");
    let rows = home.run(["prune", "--max-bytes", "0", "--keep-forks", "--apply", "--json"]).ok().json();
    assert_eq!(actions(&rows)[1..].len(), 2);
    assert_eq!(rows[3]["summary"]["bytes_left"], 0);
    assert!(ids(&home).is_empty());
}

#[test]
fn a_session_in_the_trash_does_not_confuse_a_log_named_like_one() {
    let home = Home::new();
    home.import(".trash-0123456789ab-x", log("x", [said(0, "x")]));
    assert_eq!(ids(&home), [".trash-0123456789ab-x"]);
    assert_eq!(home.run(["rm", "--list", "--json"]).ok().out, "");
}

#[test]
fn damage_that_no_listing_meets_keeps_a_session_from_being_pruned() {
    let home = Home::new();
    home.import("bad", recording(7, 60_000));
    aged(&home, &[("old", 3)]);
    let segment = home.session("bad").join("00000000000000000000.seg");
    let length = usize::try_from(fs::metadata(&segment).unwrap().len()).unwrap();
    flip(&segment, length / 2);
    assert!(home.run(["ls", "--json"]).ok().json().iter().all(|row| row["state"] != "damaged"));
    let rows = home.run(["prune", "--older-than", "1s", "--apply", "--json"]).with(FAILED).json();
    assert_eq!(actions(&rows), pairs(&[("old", "freed"), ("bad", "kept")]));
    assert!(rows[1]["reason"].as_str().unwrap().contains("checksum"), "{rows:?}");
    assert_eq!(ids(&home), ["bad"]);
}
