//! `grep`: finds decoded text wherever it stands, once, in order, over sound, damaged and busy sessions.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod cli_common;

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use cli_common::{FAILED, Home, MISSING, Ran, USAGE, event, flip, log, messages, recording, said};
use serde_json::Value;

fn placed(seq: u64, event_type: &str, data: &str) -> String {
    let line = event(seq, event_type, data);
    format!("{},\"surfaceOp\":\"append\"}}", line.strip_suffix('}').unwrap())
}

fn delta(seq: u64, step: u64, text: &str) -> String {
    let chunk = format!(r#"{{"type":"text-delta","index":0,"text":"{text}"}}"#);
    event(seq, "assistant/chunk", &format!(r#"{{"turn":1,"step":{step},"chunk":{chunk}}}"#))
}

/// A turn with a whole step and one that was cut short while it streamed.
fn interrupted() -> String {
    let call = r#"{"type":"tool-call","id":"c","name":"bash","arguments":"{\"command\":\"grep \\\"caf\\u00e9\\\" /srv\\nls\"}"}"#;
    let message = format!(
        r#"{{"id":"a","role":"assistant","content":[{{"type":"reasoning","text":"think hard"}},{{"type":"text","text":"say \"hi\"\nto them"}},{call}],"source":{{"kind":"model","provider":"p","model":"m"}}}}"#
    );
    let block = r#"{"type":"tool-result","toolCallId":"c","content":[{"type":"text","text":"found it\nin line two"}]}"#;
    let result = format!(r#"{{"id":"t","role":"user","content":[{block}],"source":{{"kind":"tool","callId":"c"}}}}"#);
    let arguments = r#""arguments":"{\"command\":\"grep \\\"caf\\u00e9\\\" /srv\\nls\"}""#;
    log(
        "s",
        [
            event(0, "turn/start", r#"{"turn":1}"#),
            said(1, "please greet"),
            event(2, "step/start", r#"{"turn":1,"step":1}"#),
            delta(3, 1, "say \\\"h"),
            delta(4, 1, "i\\\"\\nto"),
            delta(5, 1, " them"),
            placed(6, "assistant/message", &format!(r#"{{"turn":1,"step":1,"message":{message}}}"#)),
            event(7, "tool/call", &format!(r#"{{"turn":1,"step":1,"callId":"c","name":"bash",{arguments}}}"#)),
            placed(8, "tool/result", &format!(r#"{{"turn":1,"step":1,"message":{result}}}"#)),
            event(9, "step/end", r#"{"turn":1,"step":1}"#),
            event(10, "step/start", r#"{"turn":1,"step":2}"#),
            delta(11, 2, "half a sen"),
            delta(12, 2, "tence that"),
            delta(13, 2, " was never"),
            delta(14, 2, " finished"),
            event(15, "session/title", r#"{"title":"greeting them"}"#),
        ],
    )
}

fn hits(ran: &Ran) -> Vec<(String, u64, String, String)> {
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    let hit = |row: &Value| (text(row, "id"), row["seq"].as_u64().unwrap(), text(row, "type"), text(row, "text"));
    ran.json().iter().map(hit).collect()
}

#[test]
fn every_kind_of_text_is_found_decoded_and_once() {
    let home = Home::new();
    home.record("s", interrupted());
    for seal in [false, true] {
        if seal {
            home.run(["seal"]).ok();
        }
        let found = |arguments: &[&str]| hits(&home.run([&["grep", "--json"], arguments].concat()).ok());
        let one = |seq: u64, kind: &str, text: &str| vec![("s".to_owned(), seq, kind.to_owned(), text.to_owned())];
        assert_eq!(found(&["please"]), one(1, "user/message", "please greet"));
        assert_eq!(found(&["say \"hi\""]), one(6, "assistant/message", "say \"hi\""));
        assert_eq!(found(&["hi\"\nto"]), one(6, "assistant/message", "say \"hi\"\nto them"));
        assert_eq!(found(&["think"]), one(6, "assistant/message", "think hard"));
        // A tool's input is JSON within JSON; the call that repeats it is no second hit.
        assert_eq!(found(&["\"caf\u{e9}\" /srv"]), one(6, "assistant/message", "grep \"caf\u{e9}\" /srv"));
        assert_eq!(found(&["line two"]), one(8, "tool/result", "in line two"));
        // What was streamed and never put into a message.
        assert_eq!(found(&["sentence"]), one(11, "assistant/chunk", "half a sentence that was never finished"));
        assert_eq!(found(&["callId"]), []);
        assert_eq!(found(&["greeting"]), []);
        assert_eq!(found(&["greeting", "--type", "session/*"]), one(15, "session/title", "greeting them"));
        assert_eq!(found(&["THINK"]), []);
        assert_eq!(found(&["THINK", "-i"]).len(), 1);
        assert_eq!(found(&["--regex", "^(think|found) \\w+$"]).len(), 2);
        let roles = ["user", "assistant", "tool"].map(|role| found(&["-E", "e", "--role", role]).len());
        assert_eq!(roles, [1, 2, 2], "{:?}", found(&["-E", "e"]));
        // Without the message that asks for it the call is what there is to find.
        let kinds: Vec<String> = found(&["l", "--type", "tool/*"]).into_iter().map(|hit| hit.2).collect();
        assert_eq!(kinds, ["tool/call", "tool/result"]);
        assert_eq!(found(&["-E", "e", "--limit", "2"]).len(), 2);
        assert_eq!(home.run(["grep", "--json", "-l", "e"]).ok().document(), serde_json::json!({"id": "s"}));
    }
    assert_eq!(home.run(["grep", "please"]).ok().out, "s:1:user/message: please greet\n");
    assert_eq!(home.run(["grep", "-l", "please"]).ok().out, "s\n");
    assert_eq!(home.run(["grep", "nowhere"]).ok().out, "");
}

#[test]
fn all_sessions_in_order_as_one_search_of_each_would_find() {
    let home = Home::new();
    let ids: Vec<String> = (0..18).map(|number| format!("session-{number:02}")).collect();
    for (number, id) in ids.iter().enumerate() {
        home.record(id, recording(number as u64, 150 + number as u64 * 7));
    }
    home.run(["seal", "session-1"]).with(USAGE);
    home.run(["seal", "session-11", "session-12"]).ok();
    let all = hits(&home.run(["grep", "--json", "return"]).ok());
    let mut each = Vec::new();
    for id in &ids {
        each.extend(hits(&home.run(["grep", "--json", "return", id]).ok()));
    }
    assert!(all.len() > 15, "{}", all.len());
    assert_eq!(all, each);
    let seqs: Vec<_> = all.iter().map(|(id, seq, ..)| (id.clone(), *seq)).collect();
    assert!(seqs.is_sorted(), "{seqs:?}");
    let named = hits(&home.run(["grep", "--json", "return", "session-07", "session-03"]).ok());
    assert!(named.is_sorted_by_key(|(id, ..)| std::cmp::Reverse(id.clone())) && !named.is_empty());
    // What it says of an event is what stands in it.
    for (id, seq, kind, text) in all.iter().take(50) {
        let row = home.run(["events", id, "--json", "--from", &seq.to_string(), "--limit", "1"]).ok().document();
        assert_eq!(row["type"], kind.as_str());
        assert!(text.contains("return"), "{text}");
    }
}

#[test]
fn patterns_that_cannot_be_searched_for_are_wrong_usage() {
    let home = Home::with_good();
    for (arguments, words) in [
        (&["grep", ""][..], &["empty"][..]),
        (&["grep", "-E", "("], &["pattern", "unclosed"]),
        (&["grep", "-E", "(?:a{1000}){1000}"], &["pattern", "size"]),
        (&["grep"], &["PATTERN"]),
        (&["grep", "x", "good", "--role", "nobody"], &["nobody"]),
    ] {
        let ran = home.run(arguments).with(USAGE);
        assert_eq!(ran.out, "");
        ran.says(words);
    }
    // Without --regex nothing in a pattern is special.
    home.run(["grep", "(?:a{1000}){1000}"]).ok();
    home.run(["grep", "-e"]).ok();
}

#[test]
fn damaged_and_missing_sessions_are_named_and_the_others_searched() {
    let home = Home::new();
    for id in ["a", "b", "c"] {
        home.record(id, messages("m", 4));
        home.record(id, messages("m", 8));
        home.record(id, messages("m", 12));
    }
    flip(&home.session("b").join("00000000000000000004.log"), 120);
    let ran = home.run(["grep", "--json", "message"]).with(FAILED);
    let found = hits(&ran);
    let of = |id: &str| found.iter().filter(|hit| hit.0 == id).count();
    assert_eq!((of("a"), of("b"), of("c")), (12, 4, 12), "before the damage everything is found");
    ran.says(&["session b", "checksum"]);
    let ran = home.run(["grep", "--json", "message 1", "a", "nobody", "c"]).with(MISSING);
    assert_eq!(hits(&ran).len(), 6, "1, 10 and 11 of each");
    ran.says(&["no session nobody"]);
    std::fs::remove_file(home.session("c").join("header")).unwrap();
    let ran = home.run(["grep", "message 1", "--json"]).with(FAILED);
    assert_eq!(hits(&ran).len(), 4, "three of a, one of b");
    ran.says(&["header"]);
    let empty = Home::new();
    empty.record("s", messages("s", 1));
    std::fs::remove_dir_all(empty.session("s")).unwrap();
    assert_eq!(empty.run(["grep", "x"]).ok().out, "");
}

#[test]
fn hits_come_at_once_and_a_reader_that_has_enough_ends_the_search_quietly() {
    let home = Home::new();
    for number in 0..5 {
        home.record(&format!("s-{number:02}"), recording(number, 8_000));
    }
    let mut child = home.command(["grep", "e"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    output.read_line(&mut first).unwrap();
    assert!(first.starts_with("s-00:"), "{first}");
    drop(output);
    let mut complaints = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(complaints, "");
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let home = Home::new();
    home.record("s", log("s", [said(0, "red \\u001b[31m needle \\u202e")]));
    assert_eq!(home.run(["grep", "needle"]).ok().out, "s:0:user/message: red \\u{1b}[31m needle \\u{202e}\n");
    assert_eq!(hits(&home.run(["grep", "\u{1b}[31m", "--json"]).ok()).len(), 1);
}
