//! `events`, `messages`, `show`, `export` and `ls` on sound sessions: what they select, in which order, and what they leave behind.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod cli_common;

use std::fs;

use cli_common::{FAILED, Home, Ran, USAGE, below, cut, event, flip, header, log, messages, recording, said};
use serde_json::Value;

fn seqs(ran: &Ran) -> Vec<u64> {
    ran.json().iter().map(|row| row["seq"].as_u64().unwrap()).collect()
}

#[test]
fn events_are_selected_by_seq_type_and_number() {
    let home = Home::with_good();
    let all = home.run(["events", "good", "--json"]).ok();
    let total = all.json().len() as u64;
    assert_eq!(seqs(&all), (0..total).collect::<Vec<_>>());
    let select = |arguments: &[&str]| seqs(&home.run([&["events", "good", "--json"], arguments].concat()).ok());
    assert_eq!(select(&["--from", "5", "--to", "9"]), [5, 6, 7, 8, 9]);
    assert_eq!(select(&["--from", "5", "--limit", "2"]), [5, 6]);
    assert_eq!(select(&["--limit", "0"]), Vec::<u64>::new());
    assert_eq!(select(&["--from", "99999999"]), Vec::<u64>::new());
    assert_eq!(select(&["--to", "0"]), [0]);
    let of_type = |wanted: &dyn Fn(&str) -> bool| -> Vec<u64> {
        let rows = all.json();
        let kept = rows.iter().filter(|row| wanted(row["type"].as_str().unwrap()));
        kept.map(|row| row["seq"].as_u64().unwrap()).collect()
    };
    let chunks = of_type(&|name| name == "assistant/chunk");
    assert!(chunks.len() > 10);
    assert_eq!(select(&["--type", "assistant/chunk"]), chunks);
    assert_eq!(select(&["--type", "t?rn/*"]), of_type(&|name| name.starts_with("turn/")));
    assert_eq!(select(&["--type", "assistant/chunk", "--limit", "3", "--from", "1"])[..], chunks[..3]);
    assert_eq!(select(&["--type", "nothing/*"]), Vec::<u64>::new());
    // E1: the lines are those of the export.
    let exported = home.run(["export", "good"]).ok().out;
    assert_eq!(exported.split_once('\n').unwrap().1, all.out);
    // People get one line an event.
    assert_eq!(home.run(["events", "good"]).ok().out.lines().count() as u64, total);
}

/// Two messages and a third that takes the place of both.
fn compacted() -> String {
    let replacing =
        said(2, "summary").replace("\"append\"", r#"{"op":"replace","start":0,"end":1},"sourceEventSeqs":[0,1]"#);
    log("s", [said(0, "first"), said(1, "second"), replacing, said(3, "last")])
}

#[test]
fn d2_messages_and_show_give_the_surface_and_raw_what_was_replaced() {
    let home = Home::new();
    home.import("s", compacted());
    let texts = |arguments: &[&str]| -> Vec<String> {
        let document = home.run([&["messages", "s", "--json"], arguments].concat()).ok().document();
        let texts = document["messages"].as_array().unwrap().iter();
        texts.map(|message| message["content"][0]["text"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(texts(&[]), ["summary", "last"]);
    assert_eq!(texts(&["--at", "0"]), ["first"]);
    assert_eq!(texts(&["--at", "1"]), ["first", "second"]);
    assert_eq!(texts(&["--at", "2"]), ["summary"]);
    home.run(["messages", "s", "--at", "4"]).with(USAGE);
    let requested = home.run(["messages", "s", "--request", "--json"]).ok().document();
    assert!(requested["header"].is_null() && requested.as_object().unwrap().contains_key("header"));

    let shown = home.run(["show", "s"]).ok().out;
    assert!(shown.contains("summary") && shown.contains("last") && !shown.contains("first"), "{shown}");
    let raw = home.run(["show", "s", "--raw"]).ok().out;
    let place = |word: &str| raw.find(word).unwrap_or_else(|| panic!("{word} in {raw}"));
    assert!(place("first") < place("second") && place("second") < place("summary") && place("summary") < place("last"));
    assert_eq!(raw.matches("replaced by 2").count(), 2);
    let document = home.run(["show", "s", "--raw", "--json"]).ok().document();
    let entries = document["turns"][0]["entries"].as_array().unwrap();
    let replaced: Vec<&Value> = entries.iter().map(|entry| &entry["replaced_by"]).collect();
    assert_eq!(replaced, [&Value::from(2), &Value::from(2), &Value::Null, &Value::Null]);
}

#[test]
fn d4_messages_of_a_long_log_equal_the_recording_at_any_moment() {
    let home = Home::new();
    let recorded = sessionlog::sample::Recording::new(9).events(600).compacting();
    home.import("s", recorded.write_jsonl(Vec::new()).unwrap());
    let events: Vec<_> = recorded.iter().collect();
    for at in (0..events.len()).step_by(97).chain([events.len() - 1]) {
        let expected = sessionlog::session::history::fold_messages(&events[..=at]).unwrap();
        let expected: Vec<&str> = expected.iter().map(|message| message.json().as_str()).collect();
        let out = home.run(["messages", "s", "--json", "--at", &at.to_string()]).ok().out;
        assert_eq!(out, format!("{{\"messages\":[{}]}}\n", expected.join(",")), "{at}");
    }
}

#[test]
fn show_is_a_transcript_of_turns_calls_results_todos_and_usage() {
    let home = Home::with_good();
    let shown = home.run(["show", "good", "--width", "60"]).ok().out;
    for part in ["Session good", "directory: ", "created: ", "\nTurn 1\n", "] user", "] assistant", "tokens: "] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    let long = shown.lines().filter(|line| line.chars().count() > 60 && line.starts_with("  ")).count();
    assert_eq!(long, 0, "wrapped at 60");
}

#[test]
fn show_has_the_tool_calls_that_no_message_mentions_and_says_what_is_torn() {
    let home = Home::new();
    let call = |seq: u64, id: &str| {
        let data =
            format!(r#"{{"turn":1,"step":1,"callId":"{id}","name":"bash","arguments":"{{\"command\":\"ls {id}\"}}"}}"#);
        event(seq, "tool/call", &data)
    };
    let asking = r#"{"id":"a","role":"assistant","content":[{"type":"tool-call","id":"known","name":"bash","arguments":"{\"command\":\"ls known\"}"}],"source":{"kind":"model","provider":"p","model":"m"}}"#;
    let asked = event(5, "assistant/message", &format!(r#"{{"turn":1,"step":1,"message":{asking}}}"#));
    let asked = format!("{},\"surfaceOp\":\"append\"}}", asked.strip_suffix('}').unwrap());
    home.record(
        "s",
        log(
            "s",
            [
                said(0, "before any turn"),
                event(1, "turn/start", r#"{"turn":1}"#),
                said(2, "do it"),
                event(3, "step/start", r#"{"turn":1,"step":1}"#),
                call(4, "alone"),
                asked,
                call(6, "known"),
                said(7, "steering"),
                event(8, "turn/end", r#"{"turn":1,"reason":{"kind":"completed"}}"#),
                said(9, "between"),
            ],
        ),
    );
    for seal in [false, true] {
        if seal {
            home.run(["seal", "s"]).ok();
        }
        for arguments in [&["show", "s"][..], &["show", "s", "--raw"]] {
            let shown = home.run(arguments).ok().out;
            assert_eq!(shown.matches("bash(").count(), 2, "{shown}");
            assert!(shown.contains("[4] tool call\n  -> bash({\"command\":\"ls alone\"})"), "{shown}");
            let document = home.run([arguments, &["--json"]].concat()).ok().document();
            let turns: Vec<(Option<u64>, Vec<u64>)> = document["turns"]
                .as_array()
                .unwrap()
                .iter()
                .map(|turn| {
                    let entries = turn["entries"].as_array().unwrap().iter();
                    (turn["turn"].as_u64(), entries.map(|entry| entry["seq"].as_u64().unwrap()).collect())
                })
                .collect();
            assert_eq!(turns, [(None, vec![0]), (Some(1), vec![2, 4, 5, 7]), (None, vec![9])]);
            assert_eq!(document["turns"][1]["entries"][1]["call"]["callId"], "alone");
        }
    }
    home.record("torn", messages("m", 3));
    home.record("torn", messages("m", 5));
    cut(&home.session("torn").join("00000000000000000003.log"), 1);
    let ran = home.run(["show", "torn"]).with(0);
    assert!(ran.out.contains("message 2") && !ran.out.contains("message 3"), "{}", ran.out);
    ran.says(&["session torn", "incomplete", "sessionlog repair torn"]);
}

#[test]
fn show_wraps_wide_letters_and_narrow_widths_and_breaks_nothing() {
    let home = Home::new();
    let wide = "\u{4f60}\u{597d}".repeat(60);
    home.record("s", log("s", [said(0, &wide), said(1, &"long".repeat(60)), said(2, "caf\u{e9} \u{1f680} e\u{301}")]));
    let shown = home.run(["show", "s", "--width", "20"]).ok().out;
    let columns = |line: &str| line.chars().map(|letter| if letter >= '\u{1100}' { 2 } else { 1 }).sum::<usize>();
    let text: Vec<&str> = shown.lines().filter(|line| line.starts_with("  ")).collect();
    assert!(text.len() > 20 && text.iter().all(|line| columns(line) <= 20), "{shown}");
    let whole: String = text.iter().map(|line| line.trim()).collect();
    assert!(whole.contains(&wide) && whole.contains(&"long".repeat(60)) && whole.contains("e\u{301}"), "{shown}");
}

/// Runs a command line in a pseudo-terminal, where there is a program that makes one.
#[cfg(target_os = "linux")]
fn in_terminal(home: &Home, setting: &str, arguments: &str) -> Option<String> {
    let program = env!("CARGO_BIN_EXE_sessionlog");
    let shell = format!("stty cols 40 rows 20; {setting} {program} {arguments}");
    let made = std::process::Command::new("script")
        .args(["-qec", &shell, "/dev/null"])
        .env("SESSIONLOG_STORE", home.store())
        .env("SHELL", "/bin/sh")
        .stdin(std::process::Stdio::null())
        .output();
    let Ok(made) = made else {
        println!("no program that makes a pseudo-terminal here: left out");
        return None;
    };
    assert!(made.status.success(), "{made:?}");
    Some(String::from_utf8(made.stdout).unwrap())
}

#[cfg(target_os = "linux")]
#[test]
fn on_a_terminal_there_are_colours_its_width_and_the_pager_that_was_asked_for() {
    let home = Home::new();
    home.import("s", log("s", [said(0, &"word ".repeat(40))]));
    let Some(coloured) = in_terminal(&home, "NO_COLOR= PAGER=cat", "show s") else { return };
    assert!(coloured.contains("\u{1b}[36m[0] user\u{1b}[0m"), "{coloured}");
    assert!(
        coloured.lines().all(|line| line.trim_end().chars().count() <= 40 || line.contains('\u{1b}')),
        "{coloured}"
    );
    let plain = in_terminal(&home, "NO_COLOR=1 PAGER=", "show s").unwrap();
    assert!(!plain.contains('\u{1b}') && plain.contains("[0] user"), "{plain}");
    let paged = in_terminal(&home, "NO_COLOR=1 PAGER='sed s/^/paged:/'", "show s").unwrap();
    assert!(paged.lines().count() > 3 && paged.lines().all(|line| line.starts_with("paged:")), "{paged}");
    // A pager that is not there, and one that leaves early, cost nothing.
    assert!(in_terminal(&home, "PAGER=no-such-pager-here", "show s").unwrap().contains("[0] user"));
    in_terminal(&home, "PAGER='head -n 1'", "show s").unwrap();
    let hits = in_terminal(&home, "NO_COLOR= PAGER=cat", "grep word").unwrap();
    assert!(hits.contains("\u{1b}[1;31mword\u{1b}[0m"), "{hits}");
    assert!(!in_terminal(&home, "NO_COLOR=1", "grep word").unwrap().contains('\u{1b}'));
}

#[test]
fn a_sealed_session_gives_the_same_bytes_for_types_ranges_and_moments() {
    let home = Home::new();
    home.record("s", recording(11, 3_000));
    let answers = || {
        [
            &["events", "s", "--json", "--type", "tool/*"][..],
            &["events", "s", "--json", "--type", "assistant/c*", "--limit", "7", "--from", "100"],
            &["events", "s", "--json", "--from", "2990"],
            &["events", "s", "--json", "--from", "700", "--to", "800"],
            &["messages", "s", "--json"],
            &["messages", "s", "--json", "--request", "--at", "700"],
            &["last", "s", "--json"],
            &["show", "s", "--json"],
            &["grep", "return", "--json"],
        ]
        .map(|arguments| home.run(arguments).ok().out)
    };
    let before = answers();
    home.run(["seal", "s"]).ok();
    let after = answers();
    assert!(before.iter().all(|answer| !answer.is_empty()));
    assert_eq!(before, after);
    // E1: what a type selects are the same bytes as without it.
    let all = home.run(["events", "s", "--json"]).ok().out;
    let expected: Vec<&str> = all.lines().filter(|line| line.starts_with("{\"type\":\"tool/")).collect();
    assert_eq!(after[0].lines().collect::<Vec<_>>(), expected);
}

#[cfg(unix)]
#[test]
fn a_follower_ends_when_its_session_is_replaced_between_two_looks() {
    use std::io::{BufRead, BufReader, Read};
    let home = Home::new();
    home.import("s", messages("m", 3));
    home.import("other", messages("m", 9));
    let mut child = home
        .command(["events", "s", "--follow", "--json"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for seq in 0..3 {
        let row: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(row["seq"], seq);
    }
    // A longer session takes its place in one moment; its events are not those that follow.
    home.import("next", messages("m", 9));
    let renamed = home.path("renamed");
    fs::rename(home.session("s"), &renamed).unwrap();
    fs::rename(home.session("other"), home.session("s")).unwrap();
    assert!(lines.next().is_none(), "nothing of the other session is printed");
    let mut complaints = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert!(complaints.contains("session s was deleted while it was followed"), "{complaints}");
}

#[cfg(unix)]
#[test]
fn an_exported_file_appears_whole_private_and_only_where_a_file_may_be() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let home = Home::with_good();
    let expected = home.run(["export", "good", "--format", "jsonl"]).ok().out;
    assert_eq!(home.run(["export", "good", "-o", "-"]).ok().out, expected);
    assert_eq!(home.run(["export", "good", "-o", "out.jsonl"]).ok().out, "");
    let out = home.path("out.jsonl");
    assert_eq!(fs::read_to_string(&out).unwrap(), expected);
    assert_eq!(fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
    // An older file is replaced as a whole, through a link too.
    fs::write(&out, "old").unwrap();
    symlink("out.jsonl", home.path("link.jsonl")).unwrap();
    home.run(["export", "good", "-o", "link.jsonl"]).ok();
    assert!(fs::symlink_metadata(home.path("link.jsonl")).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&out).unwrap(), expected);

    fs::create_dir(home.path("directory")).unwrap();
    for (target, word) in [("directory", "directory"), ("nowhere/x", "nowhere/x"), ("/dev/null", "regular file")] {
        let ran = home.run(["export", "good", "-o", target]).with(FAILED);
        assert_eq!(ran.out, "");
        ran.says(&["cannot write", target, word]);
    }
    // What cannot be exported leaves what was there, and nothing beside it.
    home.record("bad", messages("m", 10));
    home.record("bad", messages("m", 20));
    flip(&home.journal("bad"), 120);
    home.run(["export", "bad", "-o", "out.jsonl"]).with(FAILED).says(&["session bad", "checksum"]);
    assert_eq!(fs::read_to_string(&out).unwrap(), expected);
    let outside = home.outside();
    assert!(outside.iter().all(|path| !path.to_str().unwrap().contains(".part")), "{outside:?}");
    assert_eq!(below(&home.path("directory")).len(), 0);
    // A torn tail was never promised to anyone, but it is not left out without a word.
    cut(&home.journal("good"), 1);
    let ran = home.run(["export", "good"]).with(0);
    assert_eq!(ran.out.lines().count(), 1);
    ran.says(&["session good", "incomplete", "sessionlog repair good"]);
}

fn dated(id: &str, cwd: &str, time: i64, title: Option<&str>) -> String {
    let header = header(id).replace('}', &format!(",\"cwd\":\"{cwd}\"}}"));
    let mut text =
        format!("{header}\n{{\"type\":\"app/x\",\"seq\":0,\"time\":{time},\"data\":1,\"ignorable\":true}}\n");
    if let Some(title) = title {
        let line = event(1, "session/title", &format!("{{\"title\":\"{title}\"}}"));
        text += &(line.replace("1700000000001", &time.to_string()) + "\n");
    }
    text
}

#[test]
fn ls_orders_by_last_activity_and_filters_by_directory_time_and_number() {
    let home = Home::new();
    let recent = i64::try_from(std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap() - 3_600_000;
    for (id, cwd, time, title) in [
        ("old", "/srv/a", 1_600_000_000_000, None),
        ("new", "/srv/a/", recent, Some("the newest")),
        ("middle", "/srv/b", 1_700_000_000_000, Some("in between")),
        ("same-time", "/srv/b", 1_700_000_000_000, None),
    ] {
        home.import(id, dated("x", cwd, time, title));
    }
    home.import("nothing", header("x") + "\n");
    let ids = |arguments: &[&str]| -> Vec<String> {
        let rows = home.run([&["ls", "--json"], arguments].concat()).ok().json();
        rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&[]), ["new", "middle", "same-time", "old", "nothing"]);
    assert_eq!(ids(&["--limit", "2"]), ["new", "middle"]);
    assert_eq!(ids(&["--cwd", "/srv/a"]), ["new", "old"]);
    assert_eq!(ids(&["--cwd", "/srv/a/"]), ["new", "old"]);
    assert_eq!(ids(&["--cwd", "/srv"]), Vec::<String>::new());
    assert_eq!(ids(&["--since", "2h"]), ["new"]);
    assert_eq!(ids(&["--since", "2023-11-14"]), ["new", "middle", "same-time"]);
    assert_eq!(ids(&["--since", "2023-11-14T22:13:20Z", "--cwd", "/srv/b", "--limit", "1"]), ["middle"]);
    let here = fs::canonicalize(home.path(".")).unwrap();
    home.import("here", dated("x", here.to_str().unwrap(), 1_500_000_000_000, None));
    assert_eq!(ids(&["--cwd", "."]), ["here"]);

    let rows = home.run(["ls", "--json"]).ok().json();
    let row = &rows[0];
    let keys: Vec<&str> = row.as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = vec!["id", "title", "cwd", "created_at", "last_time", "events", "turns", "bytes", "state"];
    expected.sort_unstable();
    let mut sorted = keys.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, expected);
    assert!(row["title"] == "the newest" && row["cwd"] == "/srv/a/" && row["last_time"] == recent, "{row}");
    assert!(
        row["events"] == 2 && row["turns"] == 0 && row["state"] == "ok" && row["bytes"].as_u64() > Some(100),
        "{row}"
    );
    let table = home.run(["ls"]).ok().out;
    assert!(table.starts_with("ID ") && table.lines().count() == 7 && table.contains("the newest"), "{table}");
    assert_eq!(home.run(["ls", "--since", "1s"]).ok().out, "no such sessions; `sessionlog ls` shows all\n");
}

#[test]
fn ls_says_whose_fork_a_session_is_and_counts_turns() {
    let home = Home::new();
    let text = String::from_utf8(recording(2, 300)).unwrap();
    let (header, rest) = text.split_once('\n').unwrap();
    home.import(
        "child",
        format!("{},\"parentSession\":\"p\",\"seedLength\":3}}\n{rest}", header.strip_suffix('}').unwrap()),
    );
    let row = home.run(["ls", "--json"]).ok().document();
    let turns = rest.matches("\"type\":\"turn/start\"").count();
    assert!(row["parent"] == "p" && row["turns"] == turns && turns > 0, "{row}");
    assert!(home.run(["show", "child"]).ok().out.contains("forked from: p"));
}

#[test]
fn messages_of_an_old_log_are_those_of_its_upgraded_form() {
    let home = Home::new();
    let old = "{\"type\":\"session\",\"version\":0,\"id\":\"old\",\"createdAt\":5}\n\
        {\"type\":\"context/message\",\"data\":{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"hi\"}]}}\n\
        {\"type\":\"turn/end\",\"data\":{\"turn\":1,\"reason\":{\"kind\":\"disposed\"}}}\n";
    let file = home.write("old.jsonl", old);
    let ran = home.run(["import", &file]).ok();
    assert!(ran.out.contains("upgraded"), "{}", ran.out);
    let document = home.run(["messages", "old", "--json"]).ok().document();
    assert!(document["messages"][0]["id"].is_string() && document["messages"][0]["role"] == "user", "{document}");
    let stated: Value = serde_json::from_str(home.run(["export", "old"]).ok().out.lines().next().unwrap()).unwrap();
    assert_eq!(stated["version"], 1);
    home.import("messages", messages("m", 1));
}
