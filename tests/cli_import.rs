//! `import` as a process: what comes in, what is refused with which words, and that a refusal leaves nothing behind.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod cli_common;

use std::fs;

use cli_common::{FAILED, Home, Ran, event, header, log, messages, recording, said};
use serde_json::Value;

/// Imports bytes under the name `case.jsonl`.
fn import(home: &Home, bytes: impl AsRef<[u8]>) -> Ran {
    let file = home.write("case.jsonl", bytes);
    home.run(["import", &file, "--json"])
}

fn lines_of(home: &Home, id: &str) -> Vec<Value> {
    home.run(["events", id, "--json"]).ok().json()
}

#[test]
fn bad_files_are_refused_by_class_and_place_and_leave_no_store() {
    let home = Home::new();
    fs::create_dir(home.path("directory")).unwrap();
    let two = log("s", [said(0, "a"), said(1, "b")]);
    let second_line = header("s").len() as u64 + 1;
    let newer = header("s").replace("\"version\":1", "\"version\":2");
    let cases: Vec<(&str, Vec<u8>, &str, Option<u64>)> = vec![
        ("foreign text", b"hello, world\n".to_vec(), "json", None),
        ("foreign binary", b"\x7fELF\x02\x01\x01".to_vec(), "utf8|json|nul-run|no-header", None),
        ("empty", Vec::new(), "empty", None),
        ("blank lines", b"\n\r\n\n".to_vec(), "empty", None),
        ("only NUL", vec![0; 512], "nul-run", None),
        ("headerless", (event(0, "turn/start", r#"{"turn":1}"#) + "\n").into(), "no-header", None),
        ("no id", b"{\"type\":\"session\",\"version\":1}\n".to_vec(), "header", None),
        ("empty id", (header("") + "\n").into(), "header", None),
        ("long id", (header(&"x".repeat(1025)) + "\n").into(), "header", None),
        ("newer", (newer + "\n").into(), "newer-version", None),
        ("gap", log("s", [said(0, "a"), said(2, "b")]).into(), "gap", Some(2)),
        ("duplicate seq", log("s", [said(0, "a"), said(0, "b")]).into(), "conflict", Some(0)),
        ("two headers", (two.clone() + &header("other") + "\n").into(), "second-header", None),
        ("no surfaceOp among others", log("s", [said(0, "a"), said(1, "b").replace(",\"surfaceOp\":\"append\"", "")]).into(), "surface", Some(1)),
        ("replaces what is not there", log("s", [said(0, "a").replace("\"append\"", r#"{"op":"replace","start":7,"end":9}"#)]).into(), "surface", Some(0)),
        ("unknown envelope member", log("s", [said(0, "a").replace("\"seq\":0", "\"seq\":0,\"zz\":1")]).into(), "envelope", Some(0)),
        ("retired shape", log("s", [event(0, "request/header-delta", "{}")]).into(), "retired", Some(0)),
        ("malformed row", log("s", [r#"{"type":"text-chunks","seq0":0,"time0":1,"data":{"turn":1,"step":1,"index":0,"dt":[],"texts":["a","b","c"]}}"#]).into(), "row", Some(0)),
        ("NUL run between lines", (two.clone() + "\0\0\0\0" + &said(2, "c") + "\n").into(), "nul-run", Some(2)),
        ("cut inside a code point", { let mut bytes = log("s", [said(0, "\u{e9}")]).into_bytes(); let at = bytes.iter().position(|byte| *byte == 0xc3).unwrap(); bytes.truncate(at + 1); bytes }, "cut-line", Some(0)),
        ("not UTF-8", { let mut bytes = two.clone().into_bytes(); let at = bytes.len() - 20; bytes[at] = 0xff; bytes }, "utf8", Some(1)),
        ("cut zstd", { let mut bytes = zstd::encode_all(two.as_bytes(), 3).unwrap(); bytes.truncate(bytes.len() - 5); bytes }, "zstd", None),
    ];
    for (what, bytes, class, seq) in cases {
        let ran = import(&home, bytes).with(FAILED);
        assert_eq!(ran.err, "", "{what}");
        let row = ran.document();
        let told = row["class"].as_str().unwrap();
        assert!(class.split('|').any(|class| class == told), "{what}: {row}");
        assert_eq!(row["status"], "refused", "{what}");
        assert!(row["error"].as_str().unwrap().contains("case.jsonl"), "{what}: {row}");
        if let Some(seq) = seq {
            assert_eq!(row["seq"], seq, "{what}: {row}");
            assert!(
                row["offset"].as_u64().unwrap() >= second_line && row["line"].as_u64().unwrap() >= 2,
                "{what}: {row}"
            );
        }
        assert!(!home.store().exists(), "{what}");
        // People are told the same.
        let ran = home.run(["import", "case.jsonl"]).with(FAILED);
        assert!(
            ran.out.is_empty() && ran.err.contains("case.jsonl") && ran.err.lines().count() == 1,
            "{what}: {ran:?}"
        );
        assert!(!ran.err.chars().any(|letter| letter.is_control() && letter != '\n'), "{what}: {ran:?}");
    }
    for (file, words) in [("missing.jsonl", "No such file"), ("directory", "no session logs")] {
        home.run(["import", file]).with(FAILED).says(&["refused", file, words]);
        let row = home.run(["import", file, "--json"]).with(FAILED).document();
        assert!(row["class"] == "file" && row["file"] == file && row["id"].is_null(), "{row}");
        assert!(!home.store().exists());
    }
}

#[test]
fn a_file_cut_anywhere_comes_in_whole_or_not_at_all() {
    let home = Home::new();
    let whole = log("s", [said(0, "caf\u{e9}"), event(1, "app/x", "{}")]);
    let ends: Vec<usize> = whole.match_indices('\n').map(|(at, _)| at).collect();
    for length in (0..whole.len()).step_by(3).chain(ends.iter().copied()).chain(ends.iter().map(|end| end + 1)) {
        let _ = fs::remove_dir_all(home.store());
        let ran = import(&home, &whole.as_bytes()[..length]);
        let complete = ends.iter().position(|end| length == *end || length == end + 1);
        if let Some(events) = complete {
            let row = ran.ok().document();
            assert!(row["status"] == "imported" && row["events"] == events, "{length}: {row}");
        } else {
            let row = ran.with(FAILED).document();
            assert!(row["status"] == "refused" && row["error"].is_string(), "{length}: {row}");
            assert!(!home.store().exists(), "{length}");
        }
    }
}

#[test]
fn odd_but_sound_files_come_in_and_keep_their_text() {
    let home = Home::new();
    let row = import(&home, header("only-a-header") + "\n").ok().document();
    assert!(row["status"] == "imported" && row["events"] == 0, "{row}");
    assert_eq!(lines_of(&home, "only-a-header"), Vec::<Value>::new());
    assert_eq!(home.run(["messages", "only-a-header", "--json"]).ok().out, "{\"messages\":[]}\n");
    let ran = home.run(["messages", "only-a-header", "--at", "0"]).with(2);
    ran.says(&["only-a-header", "no events"]);

    let plain = log("plain", [said(0, "a")]);
    for (name, bytes) in [
        ("bom", format!("\u{feff}{plain}")),
        ("crlf", plain.replace('\n', "\r\n")),
        ("blank", plain.replace('\n', "\n\n")),
        ("unterminated", plain.trim_end().to_owned()),
    ] {
        let file = home.write("odd.jsonl", bytes);
        let row = home.run(["import", &file, "--id", name, "--json"]).ok().document();
        assert!(row["status"] == "imported" && row["events"] == 1, "{name}: {row}");
        assert_eq!(lines_of(&home, name).len(), 1);
    }

    // E1: text that other readers split or change at.
    let text = "a\u{2028}b\u{85}c\u{2029}\\ud800 \\u0000 \\u00e9\u{e9}";
    let line = said(0, text);
    import(&home, log("text", [&line])).ok();
    assert_eq!(home.run(["events", "text", "--json"]).ok().out, line.clone() + "\n");
    let exported = home.run(["export", "text"]).ok().out;
    assert_eq!(exported, log("text", [&line]));
    assert!(home.run(["messages", "text", "--json"]).ok().out.contains(text));
    for verb in ["show", "messages", "events"] {
        let out = home.run([verb, "text"]).ok().out;
        assert!(!out.contains(['\u{2028}', '\u{85}', '\u{2029}', '\0']), "{verb}: {out:?}");
    }
}

#[test]
fn an_overlap_that_repeats_word_for_word_is_taken_once_and_counted() {
    let home = Home::new();
    let row = import(&home, log("s", [said(0, "a"), said(1, "b"), said(1, "b"), said(2, "c")])).ok().document();
    assert!(row["status"] == "imported" && row["events"] == 3 && row["report"]["overlaps_dropped"] == 1, "{row}");
}

#[test]
fn v2_an_unknown_required_type_comes_in_and_only_its_meaning_is_refused() {
    let home = Home::new();
    import(&home, log("s", [said(0, "a"), event(1, "app/odd", "{\"x\":1.50}"), said(2, "b")])).ok();
    for verb in ["messages", "show"] {
        let ran = home.run([verb, "s", "--json"]).with(FAILED);
        assert_eq!(ran.out, "");
        let path = home.session("s");
        ran.says(&["session s", path.to_str().unwrap(), "event 1", "app/odd", "--assume-known app/odd"]);
        home.run([verb, "s", "--json", "--assume-known", "app/odd"]).ok();
    }
    let before = home.run(["messages", "s", "--at", "0", "--json"]).ok().document();
    assert_eq!(before["messages"].as_array().unwrap().len(), 1);
    let row = &home.run(["verify", "--json"]).with(FAILED).json()[0];
    assert!(row["status"] == "unsupported" && row["seq"] == 1 && row["class"] == "unknown-type", "{row}");
    assert_eq!(lines_of(&home, "s")[1]["type"], "app/odd");
    assert!(home.run(["export", "s"]).ok().out.contains("1.50"));
    home.run(["ls"]).ok();
}

#[test]
fn n2_a_newer_format_is_refused_from_its_header_alone() {
    let home = Home::new();
    let newer = "{\"type\":\"session\",\"version\":7,\"id\":\"s\"}\n{\"shape\":\"of the future\"}\n";
    let ran = home.run_with_input(&["import", "-"], newer.as_bytes()).with(FAILED);
    ran.says(&["newer version", "format 7", "upgrade"]);
    assert!(!home.store().exists());
}

#[test]
fn one_bad_file_of_several_costs_only_itself() {
    let home = Home::new();
    let first = home.write("first.jsonl", messages("first", 2));
    let bad = home.write("bad.jsonl", log("bad", [said(0, "a"), said(5, "b")]));
    let last = home.write("last.jsonl", messages("last", 3));
    let ran = home.run(["import", &first, &bad, "missing", &last]).with(FAILED);
    assert_eq!(ran.out.lines().filter(|line| line.starts_with("imported")).count(), 2);
    let complaints: Vec<&str> = ran.err.lines().collect();
    assert!(complaints.len() == 2 && complaints[0].contains("bad.jsonl") && complaints[1].contains("missing"));
    let rows = home.run(["import", &first, &bad, "missing", &last, "--json"]).with(FAILED).json();
    let statuses: Vec<&str> = rows.iter().map(|row| row["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["unchanged", "refused", "refused", "unchanged"]);
    assert!(rows[0]["bytes_stored"].as_u64().unwrap() > 0 && rows[0]["bytes_in"].as_u64().unwrap() > 0);
    let before = cli_common::below(&home.store());
    home.run(["import", &bad]).with(FAILED);
    assert_eq!(cli_common::below(&home.store()), before, "nothing is left of a refused log");
    assert_eq!(home.run(["ls", "--json"]).ok().json().len(), 2);
}

#[test]
fn the_same_log_is_unchanged_a_longer_one_extends_and_another_is_refused() {
    let home = Home::new();
    let longer = messages("s", 5);
    let shorter = messages("s", 3);
    let status = |log: &str| {
        let ran = import(&home, log);
        let row = ran.document();
        (row["status"].as_str().unwrap().to_owned(), ran.status, row["error"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(status(&shorter).0, "imported");
    let stored = || -> Vec<Vec<u8>> {
        cli_common::files(&home.session("s")).iter().map(|path| fs::read(path).unwrap()).collect()
    };
    let before = stored();
    assert_eq!(status(&shorter).0, "unchanged");
    assert!(stored() == before);
    assert_eq!(status(&longer).0, "extended");
    assert_eq!(lines_of(&home, "s").len(), 5);
    assert_eq!(status(&longer).0, "unchanged");

    let (told, code, error) = status(&shorter);
    assert!(told == "refused" && code == FAILED && error.contains("goes on after these 3"), "{error}");
    let (told, code, error) = status(&longer.replace("message 4", "another 4"));
    assert!(told == "refused" && code == FAILED && error.contains("event 4") && error.contains("--id"), "{error}");
    let (told, _, error) = status(&longer.replace("\"id\":\"s\"", "\"id\":\"s\",\"cwd\":\"/x\""));
    assert!(told == "refused" && error.contains("header"), "{error}");
    // An extension with a fault anywhere changes nothing.
    let (told, ..) = status(&(messages("s", 7) + "{\"type\":"));
    assert_eq!(told, "refused");
    assert_eq!(lines_of(&home, "s").len(), 5);
    home.run(["verify"]).ok();
}

#[test]
fn standard_input_and_pipes_come_in_like_files() {
    let home = Home::new();
    let row = home.run_with_input(&["import", "-", "--json"], &recording(1, 50)).ok().document();
    assert!(row["file"] == "-" && row["status"] == "imported", "{row}");
    let packed = zstd::encode_all(recording(1, 50).as_slice(), 3).unwrap();
    let row = home.run_with_input(&["import", "-", "--json"], &packed).ok().document();
    assert!(row["file"] == "-" && row["status"] == "unchanged", "{row}");
    let row = home.run_with_input(&["import", "-", "--json", "--id", "other"], &packed).ok().document();
    assert!(row["id"] == "other" && row["status"] == "imported", "{row}");
    home.run_with_input(&["import", "-"], b"").with(FAILED).says(&["refused", "-", "empty"]);
}

#[test]
fn a_damaged_session_under_the_id_is_neither_replaced_nor_touched() {
    let home = Home::new();
    home.record("s", messages("s", 10));
    home.record("s", messages("s", 30));
    let file = home.write("s.jsonl", messages("s", 30));
    // Not in the last record, which would count as torn.
    cli_common::flip(&home.journal("s"), 100);
    let before: Vec<Vec<u8>> =
        cli_common::files(&home.session("s")).iter().map(|path| fs::read(path).unwrap()).collect();
    let row = home.run(["import", &file, "--json"]).with(FAILED).document();
    assert!(row["status"] == "refused" && row["class"] == "damaged", "{row}");
    let after: Vec<Vec<u8>> =
        cli_common::files(&home.session("s")).iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(before == after);
}

#[test]
fn a_directory_stands_for_every_log_below_it() {
    let home = Home::new();
    fs::create_dir_all(home.path("logs/deep/er")).unwrap();
    for (name, id) in [("logs/b.jsonl", "b"), ("logs/deep/a.jsonl", "a"), ("logs/deep/er/c.jsonl.zstd", "c")] {
        let text = messages(id, 2);
        let bytes = if id == "c" { zstd::encode_all(text.as_bytes(), 3).unwrap() } else { text.into_bytes() };
        home.write(name, bytes);
    }
    home.write("logs/notes.txt", "not a log");
    home.write("logs/deep/odd.jsonl", "{\"a\":1}\n");
    #[cfg(unix)]
    std::os::unix::fs::symlink("..", home.path("logs/deep/loop")).unwrap();
    let ran = home.run(["import", "logs", "--json"]).with(FAILED);
    let rows: Vec<_> = ran.json().iter().map(|row| (row["file"].clone(), row["status"].clone())).collect();
    let expected = [
        ("logs/b.jsonl", "imported"),
        ("logs/deep/a.jsonl", "imported"),
        ("logs/deep/odd.jsonl", "refused"),
        ("logs/deep/er/c.jsonl.zstd", "imported"),
    ];
    assert_eq!(rows, expected.map(|(file, status)| (Value::from(file), Value::from(status))));
    let ran = home.run(["import", "logs"]).with(FAILED).says(&["logs/deep/odd.jsonl"]);
    assert!(ran.out.ends_with("4 logs: 3 unchanged, 1 refused\n"), "{}", ran.out);
    home.run(["verify"]).ok();
    home.run(["import", "logs", "--id", "x"]).with(cli_common::USAGE).says(&["--id"]);
    fs::create_dir(home.path("void")).unwrap();
    home.run(["import", "void"]).with(FAILED).says(&["void", "no session logs", ".jsonl.zstd"]);
}

#[test]
fn of_a_migrated_log_the_highest_generation_is_taken_and_the_others_are_named() {
    let home = Home::new();
    fs::create_dir_all(home.path("logs/s")).unwrap();
    for (name, count) in
        [("session.jsonl", 1), ("session.v1.jsonl", 2), ("session.v2.jsonl", 9), ("session.v10.jsonl", 3)]
    {
        home.write(&format!("logs/s/{name}"), messages("s", count));
    }
    let older = ["session.jsonl", "session.v1.jsonl", "session.v2.jsonl"];
    for given in [
        &["logs"][..],
        &["logs/s"],
        &["logs/s/session.v1.jsonl"],
        &["logs/s/session.v10.jsonl"],
        &["logs/s/session.jsonl", "logs/s/session.v2.jsonl"],
    ] {
        let arguments = ["import", "--json"].iter().chain(given);
        let row = home.run(arguments).ok().document();
        assert_eq!(
            (&row["file"], &row["events"]),
            (&Value::from("logs/s/session.v10.jsonl"), &Value::from(3)),
            "{row}"
        );
        let shadowed: Vec<_> = row["shadowed"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        assert_eq!(shadowed, older.map(|name| format!("logs/s/{name}")), "{row}");
    }
    let ran = home.run(["import", "logs/s/session.v1.jsonl"]).ok();
    assert!(ran.out.contains("not read: logs/s/session.jsonl, logs/s/session.v1.jsonl"), "{}", ran.out);
    // Other names state no generation.
    home.write("logs/notes.v1.jsonl", messages("n1", 1));
    home.write("logs/notes.v2.jsonl", messages("n2", 1));
    assert_eq!(home.run(["import", "logs/notes.v1.jsonl", "--json"]).ok().document()["id"], "n1");
}

#[test]
fn g5_odd_call_ids_are_told() {
    let home = Home::new();
    let call = |seq| event(seq, "tool/call", r#"{"turn":1,"step":1,"callId":"","name":"n","arguments":"{}"}"#);
    let file = home.write("calls.jsonl", log("s", [call(0), call(1)]));
    let ran = home.run(["import", &file]).ok();
    assert!(ran.out.contains("2 events have an empty call id, kept as it is"), "{}", ran.out);
}

/// A transcript of Claude Code, a rollout of Codex and a session of pi that say the same, as lines.
fn foreign() -> [(&'static str, &'static str, &'static str, Vec<String>); 3] {
    let claude = |kind: &str, uuid: &str, parent: &str, message: &str| {
        format!(
            r#"{{"parentUuid":{parent},"isSidechain":false,"cwd":"/w","sessionId":"claude","type":"{kind}","uuid":"{uuid}","timestamp":"2026-11-30T14:02:00Z","message":{message}}}"#
        )
    };
    let codex = |kind: &str, payload: &str| {
        format!(r#"{{"timestamp":"2026-11-30T14:02:00Z","type":"{kind}","payload":{payload}}}"#)
    };
    let pi = |id: &str, parent: &str, message: &str| {
        format!(
            r#"{{"type":"message","id":"{id}","parentId":{parent},"timestamp":"2026-11-30T14:02:00Z","message":{message}}}"#
        )
    };
    [
        (
            "claude",
            "claude-code",
            "logs/claude.jsonl",
            vec![
                claude("user", "u1", "null", r#"{"role":"user","content":"hello"}"#),
                claude(
                    "assistant",
                    "a1",
                    "\"u1\"",
                    r#"{"id":"m1","role":"assistant","model":"x","content":[{"type":"text","text":"hi there"}],"stop_reason":"end_turn"}"#,
                ),
                claude("user", "u2", "\"a1\"", r#"{"role":"user","content":"more"}"#),
            ],
        ),
        (
            "codex",
            "codex",
            "logs/rollout-2026.jsonl",
            vec![
                codex("session_meta", r#"{"id":"codex","cwd":"/w"}"#),
                codex(
                    "response_item",
                    r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"hello"}]}"#,
                ),
                codex(
                    "response_item",
                    r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"hi there"}]}"#,
                ),
                codex(
                    "response_item",
                    r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"more"}]}"#,
                ),
            ],
        ),
        (
            "pi",
            "pi",
            "logs/pi.jsonl",
            vec![
                r#"{"type":"session","version":3,"id":"pi","timestamp":"2026-11-30T14:02:00Z","cwd":"/w"}"#.to_owned(),
                pi("1", "null", r#"{"role":"user","content":"hello"}"#),
                pi(
                    "2",
                    "\"1\"",
                    r#"{"role":"assistant","content":[{"type":"text","text":"hi there"}],"provider":"p","model":"x","stopReason":"stop"}"#,
                ),
                pi("3", "\"2\"", r#"{"role":"user","content":"more"}"#),
            ],
        ),
    ]
}

#[test]
fn logs_of_other_tools_come_in_read_like_sessions_and_grow() {
    let home = Home::new();
    fs::create_dir(home.path("logs")).unwrap();
    let text = |lines: &[String]| lines.iter().flat_map(|line| [line, "\n"]).collect::<String>();
    for (id, format, file, lines) in foreign() {
        home.write(file, text(&lines[..lines.len() - 1]));
        let row = home.run(["import", file, "--json"]).ok().document();
        assert_eq!(
            (&row["id"], &row["status"], &row["report"]["source_format"]),
            (&id.into(), &"imported".into(), &format.into())
        );
        assert_eq!(home.run(["import", file, "--json"]).ok().document()["status"], "unchanged");
        home.write(file, text(&lines));
        assert_eq!(home.run(["import", file, "--json"]).ok().document()["status"], "extended");
        assert_eq!(home.run(["import", file, "--from", format, "--json"]).ok().document()["status"], "unchanged");
        let shown = home.run(["show", id]).ok().out;
        for part in ["Turn 1", "] user", "hello", "] assistant", "hi there", "Turn 2", "more"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let messages = home.run(["messages", id, "--json"]).ok().document();
        assert_eq!(messages["messages"].as_array().unwrap().len(), 3);
        let records = home.run(["events", id, "--json", "--type", "*/record"]).ok().json();
        let source: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(records.iter().map(|record| record["data"].clone()).collect::<Vec<_>>(), source);
        home.run(["import", file, "--from", "sessionlog", "--id", "other"]).with(FAILED);
        // Out as one of ours and in again.
        home.run(["export", id, "-o", "out.jsonl"]).ok();
        assert_eq!(home.run(["import", "out.jsonl", "--json"]).ok().document()["status"], "unchanged");
    }
    home.run(["verify"]).ok();
    let ran = home.run(["import", "logs"]).ok();
    assert!(ran.out.ends_with("3 logs: 3 unchanged\n"), "{}", ran.out);
}

#[test]
fn damage_in_another_tools_log_is_told_and_the_rest_comes_in() {
    let home = Home::new();
    let (id, _, _, mut lines) = foreign().into_iter().next().unwrap();
    lines.insert(2, "{\"parentUuid\":\"a1\",\"ty".to_owned());
    let whole: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
    let file = home.write("case.jsonl", whole + "{\"half");
    let ran = home.run(["import", &file]).with(FAILED);
    assert!(ran.out.contains("imported") && ran.out.contains("1 last line that breaks off, left out"), "{}", ran.out);
    ran.says(&["damaged", "case.jsonl", "1 lines cannot be read", "*/unreadable"]);
    let row = home.run(["import", &file, "--json"]).with(FAILED).document();
    assert_eq!((&row["status"], &row["report"]["unreadable_lines"]), (&"unchanged".into(), &1.into()));
    let kept = home.run(["events", id, "--json", "--type", "*/unreadable"]).ok().document();
    assert_eq!((&kept["data"]["line"], &kept["data"]["text"]), (&3.into(), &"{\"parentUuid\":\"a1\",\"ty".into()));
    home.run(["verify", id]).ok();
    assert_eq!(home.run(["messages", id, "--json"]).ok().document()["messages"].as_array().unwrap().len(), 3);
}
