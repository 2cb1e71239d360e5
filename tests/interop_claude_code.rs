//! Claude Code transcripts: branches, gaps, compaction, side chains, parallel calls, damage, images.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod interop_common;

use interop_common::{file, grows, import, import_as};
use proptest::prelude::*;
use serde_json::{Value, json};
use sessionlog::interop::{ImportOptions, SourceFormat};

const SESSION: &str = "0b7c1f0e-7d0c-4a55-9b52-0d6f6a2f7c11";

/// A record in the order of members that the tool writes.
fn record(kind: &str, uuid: &str, parent: Option<&str>, rest: &str) -> String {
    let parent = parent.map_or("null".to_owned(), |parent| format!("\"{parent}\""));
    let second: u32 = uuid.bytes().map(u32::from).sum::<u32>() % 60;
    format!(
        r#"{{"parentUuid":{parent},"isSidechain":false,"cwd":"/home/u/p","sessionId":"{SESSION}","version":"2.0.1","type":"{kind}","uuid":"{uuid}","timestamp":"2026-11-30T14:02:{second:02}.250Z"{rest}}}"#
    )
}

fn user(uuid: &str, parent: Option<&str>, text: &str) -> String {
    record("user", uuid, parent, &format!(r#","message":{{"role":"user","content":{}}}"#, Value::from(text)))
}

fn assistant(uuid: &str, parent: Option<&str>, answer: &str, blocks: &Value, stop: Option<&str>) -> String {
    let message = json!({"id": answer, "type": "message", "role": "assistant", "model": "claude-x", "content": blocks,
        "stop_reason": stop, "usage": {"input_tokens": 3, "cache_read_input_tokens": 7, "output_tokens": 5}});
    record("assistant", uuid, parent, &format!(r#","message":{message}"#))
}

fn says(uuid: &str, parent: Option<&str>, text: &str) -> String {
    assistant(uuid, parent, &format!("msg-{uuid}"), &json!([{"type": "text", "text": text}]), Some("end_turn"))
}

fn result(uuid: &str, parent: Option<&str>, call: &str, text: &str) -> String {
    let message = json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": text}]});
    record("user", uuid, parent, &format!(r#","message":{message},"toolUseResult":{{"stdout":"{text}"}}"#))
}

#[test]
fn a_conversation_with_a_tool_call_comes_in_turn_by_turn() {
    let lines = [
        r#"{"type":"summary","summary":"Some other transcript","leafUuid":"elsewhere"}"#.to_owned(),
        r#"{"type":"file-history-snapshot","messageId":"u1","snapshot":{"x":1.50},"isSnapshotUpdate":false}"#
            .to_owned(),
        user("u1", None, "list it"),
        assistant("a1", Some("u1"), "m1", &json!([{"type": "thinking", "thinking": "hm", "signature": "sig"}]), None),
        assistant(
            "a2",
            Some("a1"),
            "m1",
            &json!([{"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "ls"}}]),
            Some("tool_use"),
        ),
        result("r1", Some("a2"), "c1", "a.txt"),
        says("a3", Some("r1"), "one file"),
        r#"{"type":"summary","summary":"Listing files","leafUuid":"a3"}"#.to_owned(),
        record("system", "s1", Some("a3"), r#","subtype":"turn_duration","durationMs":5"#),
        user("u2", Some("s1"), "thanks"),
    ];
    let log = import(file(&lines));
    assert_eq!(log.report.source_format, SourceFormat::ClaudeCode);
    assert_eq!(log.header.id, SESSION);
    assert_eq!(log.header.cwd.as_deref(), Some("/home/u/p"));
    assert_eq!(log.records(), lines, "every record, byte for byte");
    assert_eq!(
        log.conversation(),
        [
            "user: list it",
            "model: (hm)",
            r#"model: Bash{"command":"ls"}"#,
            "tool: a.txt",
            "model: one file",
            "user: thanks"
        ]
    );
    log.is_well_behaved();
    assert_eq!(log.fold.title(), Some("Listing files"));
    assert_eq!(log.of_type("turn/end"), [json!({"turn": 1, "reason": {"kind": "completed"}})]);
    assert_eq!(log.of_type("step/start").len(), 2, "two answers, of which the first came in two records");
    assert_eq!(log.of_type("tool/call")[0]["arguments"], r#"{"command":"ls"}"#);
    let usage = log.fold.usage().total();
    assert_eq!((usage.input_tokens, usage.cache_read_tokens, usage.output_tokens), (6, Some(14), 10), "once an answer");
    assert_eq!(log.fold.open_turn().unwrap().turn, 2, "the end of the last turn is not recorded yet");
    // Every message names the record that it comes from.
    for event in log.events.iter().filter(|event| event.placement().is_some()) {
        let source = event.placement().unwrap().sources().unwrap().iter().next().unwrap();
        assert_eq!(log.events[usize::try_from(source).unwrap()].event_type(), "claude-code/record");
    }
    assert_eq!(
        log.events[2].time(),
        1_796_047_320_250 + i64::from("u1".bytes().map(u32::from).sum::<u32>() % 60) * 1000
    );
    assert!(
        log.events
            .iter()
            .filter(|event| event.event_type().starts_with("claude-code/"))
            .all(sessionlog::event::Event::ignorable)
    );
    grows(&lines, &ImportOptions::default());
}

#[test]
fn h2_branches_are_all_kept_and_the_last_one_is_on_the_surface() {
    let lines = [
        user("u1", None, "one"),
        says("a1", Some("u1"), "first"),
        user("u2", Some("a1"), "left"),
        says("a2", Some("u2"), "left answer"),
        user("u3", Some("a1"), "right"),
        says("a3", Some("u3"), "right answer"),
    ];
    let log = import(file(&lines));
    assert_eq!(log.conversation(), ["user: one", "model: first", "user: right", "model: right answer"]);
    assert_eq!((log.report.branches, log.report.bridged_gaps), (1, 0));
    assert_eq!(log.records(), lines);
    assert!(log.events.iter().any(|event| event.event_type() == "user/message" && event.data().contains("left")));
    // Back to the branch that was left: its messages come again.
    let mut lines = lines.to_vec();
    lines.push(user("u4", Some("a2"), "left after all"));
    let log = import(file(&lines));
    assert_eq!(
        log.conversation(),
        ["user: one", "model: first", "user: left", "model: left answer", "user: left after all"]
    );
    assert_eq!(log.report.branches, 2);
    // From the very start again.
    lines.push(user("u5", None, "afresh"));
    assert_eq!(import(file(&lines)).conversation(), ["user: afresh"]);
    grows(&lines, &ImportOptions::default());
}

#[test]
fn h2_a_branch_that_begins_with_a_result_brings_the_call_again() {
    let call = json!([{"type": "tool_use", "id": "c1", "name": "Bash", "input": {}}]);
    let lines = [
        user("u1", None, "go"),
        assistant("a1", Some("u1"), "m1", &call, Some("tool_use")),
        result("r1", Some("a1"), "c1", "old"),
        says("a2", Some("r1"), "old answer"),
        result("r2", Some("a1"), "c1", "new"),
        says("a3", Some("r2"), "new answer"),
    ];
    let log = import(file(&lines));
    assert_eq!(log.conversation(), ["user: go", "model: Bash{}", "tool: new", "model: new answer"]);
    // Without anything before it the result still has its place.
    let lines = [result("r1", None, "c0", "a"), says("a1", Some("r1"), "b"), result("r2", None, "c0", "c")];
    let log = import(file(&lines));
    assert_eq!(log.conversation(), ["tool: c"]);
    grows(&lines, &ImportOptions::default());
}

#[test]
fn h2_parallel_calls_and_their_results_are_no_branches() {
    let call = |id: &str| json!([{"type": "tool_use", "id": id, "name": "Read", "input": {"n": id}}]);
    // The order in which a stream with two calls is really written, and one where the second call comes late.
    for order in [["a1", "a2", "r1", "r2"], ["a1", "r1", "a2", "r2"], ["a1", "a2", "r2", "r1"]] {
        let mut lines = vec![user("u1", None, "read both")];
        lines.extend(order.map(|uuid| match uuid {
            "a1" => assistant("a1", Some("u1"), "m1", &call("c1"), Some("tool_use")),
            "a2" => assistant("a2", Some("a1"), "m1", &call("c2"), Some("tool_use")),
            "r1" => result("r1", Some("a1"), "c1", "first"),
            _ => result("r2", Some("a2"), "c2", "second"),
        }));
        lines.push(record("progress", "p1", Some("a1"), r#","data":{}"#));
        lines.push(says("a3", Some(if order[3] == "r1" { "r2" } else { "r1" }), "read"));
        let log = import(file(&lines));
        assert_eq!(log.report.branches, 0, "{order:?}");
        assert_eq!(log.conversation().len(), 6, "{order:?}: {:?}", log.conversation());
        log.is_well_behaved();
    }
}

#[test]
fn h1_a_parent_that_was_never_written_is_bridged_and_marked() {
    let lines = [
        user("u1", None, "one"),
        says("a1", Some("u1"), "first"),
        user("u2", Some("lost"), "two"),
        says("a2", Some("u2"), "second"),
    ];
    let log = import(file(&lines));
    assert_eq!(log.conversation(), ["user: one", "model: first", "user: two", "model: second"]);
    assert_eq!((log.report.branches, log.report.bridged_gaps), (0, 1));
    assert_eq!(log.of_type("claude-code/gap"), [json!({"missing": "lost"})]);
    grows(&lines, &ImportOptions::default());
}

#[test]
fn i1_compaction_replaces_everything_by_the_summary() {
    let summary = user("u3", Some("b1"), "what happened so far")
        .replace("\"type\":\"user\"", "\"isCompactSummary\":true,\"type\":\"user\"");
    let lines = [
        user("u1", None, "one"),
        says("a1", Some("u1"), "first"),
        record(
            "system",
            "b1",
            None,
            r#","logicalParentUuid":"a1","subtype":"compact_boundary","content":"Conversation compacted""#,
        ),
        summary,
        user("u4", Some("u3"), "go on"),
        says("a4", Some("u4"), "gladly"),
    ];
    let log = import(file(&lines));
    assert_eq!(log.conversation(), ["compaction: what happened so far", "user: go on", "model: gladly"]);
    assert_eq!((log.report.compactions, log.report.branches), (1, 0));
    assert_eq!(log.fold.surface().replace_generation(), 1);
    log.is_well_behaved();
    // Back behind the compaction: everything that it replaced comes again.
    let mut lines = lines.to_vec();
    lines.push(user("u5", Some("a1"), "not like that"));
    assert_eq!(import(file(&lines)).conversation(), ["user: one", "model: first", "user: not like that"]);
    grows(&lines, &ImportOptions::default());
}

#[test]
fn side_chains_stay_out_and_a_subagents_own_file_is_its_conversation() {
    let side = |line: String| line.replace("\"isSidechain\":false", "\"isSidechain\":true");
    let lines = [
        user("u1", None, "one"),
        side(user("x1", None, "sub")),
        side(says("x2", Some("x1"), "subbed")),
        says("a1", Some("u1"), "first"),
    ];
    let log = import(file(&lines));
    assert_eq!(log.conversation(), ["user: one", "model: first"]);
    assert_eq!(log.records(), lines);
    let own: Vec<String> = lines[1..3]
        .iter()
        .map(|line| line.replace("\"isSidechain\"", "\"agentId\":\"7f3a\",\"isSidechain\""))
        .collect();
    let log = import(file(&own));
    assert_eq!(log.conversation(), ["user: sub", "model: subbed"]);
    assert_eq!((log.header.id.as_str(), log.header.parent_session.as_deref()), ("agent-7f3a", Some(SESSION)));
    assert_eq!((log.header.origin.as_deref(), log.header.delegation_depth), (Some("subagent"), Some(1)));
}

#[test]
fn h3_the_file_name_says_which_session_it_is() {
    let other = "11111111-2222-3333-4444-555555555555";
    let lines = [user("u1", None, "one"), user("u2", Some("u1"), "two").replace(SESSION, other)];
    let named = |name: &str| import_as(file(&lines).as_bytes(), ImportOptions::default().file(name)).unwrap().header.id;
    assert_eq!(named(&format!("/x/{other}.jsonl")), other);
    assert_eq!(named("copy.jsonl"), SESSION);
    assert_eq!(import(file(&lines)).conversation().len(), 2, "both sessions' records are its history");
}

#[test]
fn damage_is_kept_and_told_and_the_rest_comes_in() {
    let mut bytes = file(&[user("u1", None, "one"), says("a1", Some("u1"), "first")]).into_bytes();
    bytes.extend(br#"{"parentUuid":"a1","type":"user","uu"#);
    bytes.extend(b"\n\xff\xfe{}\n");
    bytes.extend([0; 300]);
    bytes.extend(file(&[user("u2", Some("lost"), "two"), says("a2", Some("u2"), "second")]).bytes());
    let log = import(&bytes);
    assert_eq!(log.conversation(), ["user: one", "model: first", "user: two", "model: second"]);
    assert_eq!((log.report.unreadable_lines, log.report.bridged_gaps), (3, 1));
    let unreadable = log.of_type("claude-code/unreadable");
    assert_eq!(
        (&unreadable[0]["class"], &unreadable[0]["text"]),
        (&json!("cut-line"), &json!(r#"{"parentUuid":"a1","type":"user","uu"#))
    );
    assert_eq!(
        (&unreadable[1]["class"], &unreadable[1]["hex"], &unreadable[1]["line"]),
        (&json!("utf8"), &json!("fffe7b7d"), &json!(4))
    );
    assert_eq!(unreadable[2]["class"], "nul-run");
    assert!(unreadable[2]["detail"].as_str().unwrap().contains("300 NUL"));
}

#[test]
fn images_todos_interruptions_and_failures_have_their_equivalents() {
    let image = json!({"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}]});
    let todos = json!([{"type": "tool_use", "id": "c1", "name": "TodoWrite", "input": {"todos": [{"content": "do it", "status": "in_progress", "activeForm": "Doing"}]}}]);
    let lines = [
        record("user", "u1", None, &format!(r#","message":{image}"#)),
        assistant("a1", Some("u1"), "m1", &todos, Some("tool_use")),
        record(
            "user",
            "r1",
            Some("a1"),
            &format!(
                r#","message":{}"#,
                json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "is_error": true, "content": [{"type": "text", "text": "no"}, {"type": "image", "source": {"type": "url", "url": "http://x"}}]}]})
            ),
        ),
        record(
            "user",
            "i1",
            Some("r1"),
            &format!(
                r#","message":{}"#,
                json!({"role": "user", "content": [{"type": "text", "text": "[Request interrupted by user for tool use]"}]})
            ),
        ),
        user("u2", Some("i1"), "again"),
        says("e1", Some("u2"), "API Error: 529")
            .replace("\"type\":\"assistant\"", "\"isApiErrorMessage\":true,\"type\":\"assistant\""),
        user("m1", Some("e1"), "reminder").replace("\"type\":\"user\"", "\"isMeta\":true,\"type\":\"user\""),
        user("odd\\ud800", Some("m1"), "x"),
    ];
    let log = import(file(&lines));
    assert_eq!(
        log.conversation()[..2],
        [
            "user: see <image>".to_owned(),
            format!(
                "model: TodoWrite{}",
                r#"{"todos":[{"activeForm":"Doing","content":"do it","status":"in_progress"}]}"#
            )
        ]
    );
    assert_eq!(
        log.conversation()[2..5],
        ["tool: no <image>", "user: [Request interrupted by user for tool use]", "user: again"]
    );
    assert_eq!(log.conversation()[5], "meta: reminder");
    let image = &log.of_type("user/message")[0]["content"][1]["attachment"];
    assert_eq!((&image["mediaType"], &image["data"]), (&json!("image/png"), &json!("iVBORw0KGgo=")));
    assert_eq!(log.of_type("todo/write"), [json!({"todos": [{"content": "do it", "status": "in_progress"}]})]);
    let ends = log.of_type("turn/end");
    assert_eq!(ends[0]["reason"], json!({"kind": "aborted", "reason": {"kind": "user"}}));
    assert_eq!(
        ends[1]["reason"],
        json!({"kind": "error", "error": {"message": "API Error: 529", "code": "API_ERROR"}})
    );
    assert_eq!(log.of_type("tool/result")[0]["message"]["content"][0]["isError"], true);
    assert_eq!(log.records(), lines);
    log.is_well_behaved();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever tree the records form, the surface is the path to the last one, and a longer file only adds.
    #[test]
    fn h2_the_surface_is_the_path_to_the_last_message(choices in proptest::collection::vec((any::<bool>(), any::<prop::sample::Index>(), 0_u8..4), 1..24)) {
        let mut lines = Vec::new();
        // Each node's path of texts.
        let mut paths: Vec<Vec<String>> = Vec::new();
        for (number, (assistant, parent, how)) in choices.iter().enumerate() {
            let uuid = format!("n{number}");
            let from = match how {
                _ if number == 0 => None,
                0 => Some(parent.index(number)),
                1 if parent.index(9) == 0 => None,
                _ => Some(number - 1),
            };
            let parent = from.map(|index| format!("n{index}"));
            let mut path = from.map(|index| paths[index].clone()).unwrap_or_default();
            let text = format!("t{number}");
            path.push(format!("{}: {text}", if *assistant { "model" } else { "user" }));
            lines.push(if *assistant { says(&uuid, parent.as_deref(), &text) } else { user(&uuid, parent.as_deref(), &text) });
            paths.push(path);
        }
        let log = import(file(&lines));
        prop_assert_eq!(&log.conversation(), paths.last().unwrap());
        prop_assert_eq!(log.records(), lines.clone());
        prop_assert_eq!(log.report.bridged_gaps, 0);
        grows(&lines, &ImportOptions::default());
    }

    /// Damage anywhere never stops the import, once the first record is there.
    #[test]
    fn any_damage_leaves_an_importable_log(at in any::<prop::sample::Index>(), bytes in proptest::collection::vec(any::<u8>(), 0..4), width in 0_usize..40) {
        let call = json!([{"type": "tool_use", "id": "c1", "name": "Bash", "input": {}}]);
        let head = file(&[user("u0", None, "zero")]);
        let text = file(&[user("u1", Some("u0"), "go"), assistant("a1", Some("u1"), "m1", &call, Some("tool_use")), result("r1", Some("a1"), "c1", "old"), says("a2", Some("r1"), "done")]);
        let mut damaged = text.into_bytes();
        let place = at.index(damaged.len());
        let end = (place + width).min(damaged.len());
        damaged.splice(place..end, bytes);
        let log = import([head.as_bytes(), &damaged].concat());
        prop_assert!(!log.fold.surface().nodes().is_empty());
    }
}
