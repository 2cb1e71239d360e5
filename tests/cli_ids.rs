//! Ids at the command line: hostile ones stay inside the store, short ones are found, and nothing drives the terminal.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod cli_common;

use cli_common::{Home, MISSING, USAGE, event, header, log, messages, said};

const ESCAPE: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}";

fn hostile() -> Vec<String> {
    let mut ids: Vec<String> = [
        "../../x",
        "..",
        ".",
        "/",
        "/etc/passwd",
        "a/b",
        "a\\b",
        "..\\..\\x",
        "CON",
        "con",
        "con.txt",
        "NUL",
        "COM1",
        "A",
        "a",
        "Aa",
        "aA",
        "trailing.",
        "trailing ",
        "trailing",
        " ",
        "-",
        "--json",
        "~",
        "%",
        "%2e%2e",
        "*",
        "a:b",
        ".tmp-1",
        "lock",
        "STORE",
        "\u{1F600}",
        "\u{e9}",
        "e\u{301}",
        "\u{130}",
        "\u{df}",
        "\u{202e}gnp",
    ]
    .map(str::to_owned)
    .into();
    ids.push("x".repeat(300));
    ids.push(format!("{}y", "x".repeat(300)));
    ids.push("\u{1F600}".repeat(100));
    ids
}

#[test]
fn hostile_ids_stay_inside_the_store_and_apart_from_each_other() {
    let home = Home::new();
    let file = home.write("in.jsonl", messages("original", 1));
    let mut all = hostile();
    for (number, id) in all.iter().enumerate() {
        if number % 2 == 0 {
            home.run(["import", &file, &format!("--id={id}")]).ok();
        } else {
            let file = home.write("named.jsonl", messages(id, 1));
            home.run(["import", &file]).ok();
        }
    }
    // These cannot be typed.
    for id in ["nul\0byte", "line\nbreak", ESCAPE] {
        let file = home.write("named.jsonl", messages(id, 1));
        home.run(["import", &file]).ok();
        all.push(id.to_owned());
    }
    for id in hostile() {
        let out = home.run(["export", "--", &id]).ok().out;
        let stated: serde_json::Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
        assert_eq!(stated["id"], id.as_str(), "another session was opened");
        let row = &home.run(["verify", "--json", "--", &id]).ok().json()[0];
        assert!(row["id"] == id.as_str() && row["status"] == "ok", "{row}");
    }
    assert_eq!(home.run(["export", "nul\\u{0}byte"]).ok().out.lines().count(), 2, "as it is shown");
    assert_eq!(home.run(["export", "nul"]).ok().out.lines().count(), 2, "by what can be typed");

    let mut listed: Vec<String> =
        home.run(["ls", "--json"]).ok().json().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect();
    listed.sort();
    all.sort();
    assert_eq!(listed, all);
    assert_eq!(home.outside(), [home.path("in.jsonl"), home.path("named.jsonl")]);
    let sessions = home.store().join("sessions");
    let mut keys: Vec<String> = std::fs::read_dir(sessions)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap().to_lowercase())
        .collect();
    assert_eq!(keys.len(), all.len());
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), all.len(), "names differ by more than case");
    home.run(["verify"]).ok();
}

#[test]
fn an_id_may_be_shortened_while_it_is_unambiguous() {
    let home = Home::new();
    for id in ["alpha-1", "alpha-2", "alpha", "beta"] {
        home.import(id, messages(id, 1));
    }
    assert!(home.run(["export", "b"]).ok().out.contains("\"beta\""));
    assert!(home.run(["export", "alpha"]).ok().out.contains("\"id\":\"alpha\""), "an exact id wins");
    for arguments in [["export", "al"], ["show", "alpha-"], ["verify", "al"], ["repair", "a"]] {
        let ran = home.run(arguments).with(USAGE);
        assert_eq!(ran.out, "");
        let ran = ran.says(&["is the beginning of", "\n  alpha-1\n  alpha-2"]);
        assert!(!ran.err.contains("beta"));
    }
    home.run(["events", "gamma"]).with(MISSING).says(&["no session gamma", "sessionlog ls"]);
    let ran = home.run(["verify", "beta", "gamma", "alpha-1", "--json"]).with(MISSING);
    let rows = ran.json();
    assert_eq!(rows.len(), 3, "the others are still checked");
    ran.says(&["gamma"]);
    for number in 0..30 {
        home.import(&format!("many-{number:02}"), messages("m", 1));
    }
    home.run(["show", "many"]).with(USAGE).says(&["30 ids", "many-00", "and 10 more"]);
}

#[test]
fn nothing_of_a_log_drives_the_terminal() {
    let home = Home::new();
    let json = serde_json::to_string(ESCAPE).unwrap();
    let inner = json.trim_matches('"');
    let raw = "\u{9b}31m\u{202e}\u{2066}\u{7f}";
    let quoted = format!("\"{inner}{raw}\"");
    let call = format!(
        r#"{{"turn":1,"step":1,"message":{{"id":"m","role":"assistant","content":[{{"type":"reasoning","text":{quoted}}},{{"type":"text","text":{quoted}}},{{"type":"tool-call","id":{quoted},"name":{quoted},"arguments":{quoted}}},{{"type":{quoted},"x":{quoted}}}],"source":{{"kind":"model","provider":{quoted},"model":"m"}}}}}}"#
    );
    let result = format!(
        r#"{{"turn":1,"step":1,"message":{{"id":"r","role":"user","content":[{{"type":"tool-result","toolCallId":{quoted},"content":[{{"type":"text","text":{quoted}}}],"isError":true}}],"source":{{"kind":"tool","callId":{quoted}}}}}}}"#
    );
    let surface = |line: String| format!("{},\"surfaceOp\":\"append\"}}", line.strip_suffix('}').unwrap());
    let lines = [
        event(0, "turn/start", r#"{"turn":1}"#),
        said(1, &format!("{inner}{raw}")),
        event(2, "session/title", &format!(r#"{{"title":{quoted}}}"#)),
        event(3, "step/start", r#"{"turn":1,"step":1}"#),
        surface(event(4, "assistant/message", &call)),
        event(
            5,
            "tool/call",
            &format!(r#"{{"turn":1,"step":1,"callId":{quoted},"name":{quoted},"arguments":{quoted}}}"#),
        ),
        surface(event(6, "tool/result", &result)),
        event(7, "todo/write", &format!(r#"{{"todos":[{{"content":{quoted},"status":"pending"}}]}}"#)),
        event(8, &format!("app/{inner}{raw}"), "{}"),
    ];
    let id = format!("id{ESCAPE}{raw}");
    let header = header(&id).replace('}', &format!(",\"cwd\":{quoted},\"parentSession\":{quoted}}}"));
    let text = log("x", lines).replacen(&cli_common::header("x"), &header, 1);
    let file = home.write("hostile.jsonl", text);
    let name = format!("name{ESCAPE}.jsonl");
    let mut printed = vec![home.run(["import", &file, &name])];
    assert!(printed[0].out.starts_with("imported"), "{:?}", printed[0]);
    let assumed = format!("app/{ESCAPE}{raw}");
    for arguments in [
        vec!["ls"],
        vec!["events", "id"],
        vec!["verify"],
        vec!["show", "id"],
        vec!["messages", "id"],
        vec!["show", "id", "--raw", "--assume-known", &assumed],
        vec!["messages", "id", "--request", "--assume-known", &assumed],
        vec!["messages", "id", "--at", "99"],
        vec!["repair", "id", "--dry-run"],
        vec!["show", ESCAPE],
        vec!["export", "id", "-o", "no\u{1b}where/x"],
    ] {
        printed.push(home.run(arguments));
    }
    for ran in printed {
        let all = ran.out.clone() + &ran.err;
        assert!(!all.is_empty());
        let raw = all
            .chars()
            .find(|letter| letter.is_control() && *letter != '\n' || ('\u{202a}'..='\u{2069}').contains(letter));
        assert_eq!(raw, None, "{ran:?}");
    }
}
