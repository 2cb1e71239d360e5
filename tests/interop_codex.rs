//! `OpenAI` Codex rollouts: turns, calls, compaction, rollbacks, old shapes, damage, images.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod interop_common;

use interop_common::{file, grows, import, import_as};
use proptest::prelude::*;
use serde_json::{Value, json};
use sessionlog::interop::{Import, ImportOptions, SourceFormat};

fn record(second: usize, kind: &str, payload: &Value) -> String {
    format!(
        r#"{{"timestamp":"2026-11-30T14:{:02}:{:02}.000Z","type":"{kind}","payload":{payload}}}"#,
        second / 60,
        second % 60
    )
}

fn meta() -> Value {
    json!({"id": "r-1", "timestamp": "2026-11-30T14:00:00.000Z", "cwd": "/w", "originator": "cli", "cli_version": "0.9", "model_provider": "openai"})
}

fn said(role: &str, text: &str) -> Value {
    let kind = if role == "assistant" { "output_text" } else { "input_text" };
    json!({"type": "message", "role": role, "content": [{"type": kind, "text": text}]})
}

/// Numbers records and gives them their times.
fn rollout(records: &[(&str, Value)]) -> Vec<String> {
    let meta = ("session_meta", meta());
    [meta].iter().chain(records).enumerate().map(|(second, (kind, payload))| record(second, kind, payload)).collect()
}

fn event(kind: &str) -> (&'static str, Value) {
    ("event_msg", json!({"type": kind, "turn_id": "t"}))
}

fn item(item: Value) -> (&'static str, Value) {
    ("response_item", item)
}

#[test]
fn a_rollout_with_explicit_turns_comes_in_turn_by_turn() {
    let counts = json!({"type": "token_count", "info": {"last_token_usage": {"input_tokens": 10, "cached_input_tokens": 4, "output_tokens": 9, "reasoning_output_tokens": 2}}});
    let lines = rollout(&[
        item(said("developer", "be terse")),
        item(said("user", "<environment_context>\n<cwd>/w</cwd>")),
        event("task_started"),
        ("turn_context", json!({"cwd": "/w", "model": "gpt-x", "effort": "high"})),
        item(said("user", "list it")),
        ("event_msg", json!({"type": "user_message", "message": "list it"})),
        item(
            json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}], "encrypted_content": "gAAA"}),
        ),
        item(json!({"type": "function_call", "name": "shell", "arguments": "{\"command\":[\"ls\"]}", "call_id": "c1"})),
        item(
            json!({"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin", "call_id": "c2", "status": "completed"}),
        ),
        ("event_msg", counts),
        item(json!({"type": "function_call_output", "call_id": "c1", "output": "{\"output\":\"a.txt\"}"})),
        item(
            json!({"type": "custom_tool_call_output", "call_id": "c2", "output": {"content": "bad", "success": false}}),
        ),
        item(
            json!({"type": "function_call", "name": "update_plan", "arguments": "{\"plan\":[{\"step\":\"x\",\"status\":\"completed\"}]}", "call_id": "c3"}),
        ),
        item(
            json!({"type": "function_call_output", "call_id": "c3", "output": [{"type": "input_text", "text": "ok"}, {"type": "input_image", "image_url": "data:image/png;base64,iVBOR"}]}),
        ),
        item(said("assistant", "one file")),
        ("event_msg", json!({"type": "thread_name_updated", "thread_name": "Listing"})),
        event("task_complete"),
        event("task_started"),
        item(said("user", "stop")),
        ("event_msg", json!({"type": "turn_aborted", "reason": "interrupted"})),
    ]);
    let log = import(file(&lines));
    assert_eq!(log.report.source_format, SourceFormat::Codex);
    assert_eq!(
        (log.header.id.as_str(), log.header.cwd.as_deref(), log.header.created_at),
        ("r-1", Some("/w"), Some(1_796_047_200_000))
    );
    assert_eq!(log.records(), lines);
    assert_eq!(
        log.conversation(),
        [
            "developer: be terse",
            "context: <environment_context>\n<cwd>/w</cwd>",
            "user: list it",
            "model: (a\n\nb)",
            r#"model: shell{"command":["ls"]}"#,
            "model: apply_patch*** Begin",
            r#"tool: {"output":"a.txt"}"#,
            "tool: bad",
            r#"model: update_plan{"plan":[{"step":"x","status":"completed"}]}"#,
            "tool: ok <image>",
            "model: one file",
            "user: stop",
        ]
    );
    log.is_well_behaved();
    assert_eq!(log.fold.title(), Some("Listing"));
    let ends = log.of_type("turn/end");
    assert_eq!(
        (&ends[0]["reason"]["kind"], &ends[1]["reason"]),
        (&json!("completed"), &json!({"kind": "aborted", "reason": {"kind": "user"}}))
    );
    assert_eq!(log.of_type("step/start").len(), 3);
    let usage = log.fold.usage().total();
    assert_eq!(
        (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens, usage.reasoning_tokens),
        (6, Some(4), 7, Some(2))
    );
    assert_eq!(log.of_type("todo/write"), [json!({"todos": [{"content": "x", "status": "completed"}]})]);
    assert_eq!(log.of_type("request/context"), [json!({"provider": "openai", "model": "gpt-x"})]);
    let results = log.of_type("tool/result");
    assert_eq!(results[1]["message"]["content"][0]["isError"], true);
    assert_eq!(
        results[2]["message"]["content"][0]["content"][1]["attachment"],
        json!({"mediaType": "image/png", "url": "data:image/png;base64,iVBOR"})
    );
    assert_eq!(log.of_type("assistant/message")[0]["message"]["content"][0]["encryptedContent"], "gAAA");
    grows(&lines, &ImportOptions::default());
}

#[test]
fn without_recorded_turns_every_prompt_opens_one() {
    let lines = rollout(&[
        item(said("user", "one")),
        item(said("assistant", "first")),
        item(said("user", "two")),
        item(json!({"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"})),
        item(said("user", "three")),
    ]);
    let log = import(file(&lines));
    log.is_well_behaved();
    let kinds: Vec<_> = log.of_type("turn/end").iter().map(|end| end["reason"]["kind"].clone()).collect();
    assert_eq!(kinds, ["completed", "unrecorded"], "a call was left without its result");
    grows(&lines, &ImportOptions::default());
}

#[test]
fn i1_compaction_puts_the_recorded_history_in_place_of_everything() {
    let before = [
        item(said("user", "one")),
        item(said("assistant", "first")),
        item(said("user", "two")),
        item(said("assistant", "second")),
    ];
    let after = [item(said("user", "three"))];
    let with = |compacted: Value| {
        let lines = rollout(&[&before[..], &[("compacted", compacted)], &after].concat());
        let log = import(file(&lines));
        assert_eq!(log.records(), lines);
        assert_eq!((log.report.compactions, log.report.branches), (1, 0));
        grows(&lines, &ImportOptions::default());
        log.conversation()
    };
    let history = json!([said("user", "one"), said("assistant", "kept"), said("user", "SUMMARY")]);
    assert_eq!(
        with(json!({"message": "SUMMARY", "replacement_history": history})),
        ["compaction: one", "model: kept", "compaction: SUMMARY", "user: three"]
    );
    // Older rollouts record the summary alone; what the user had said stayed in front of it.
    assert_eq!(with(json!({"message": "SUMMARY"})), ["user: one", "user: two", "compaction: SUMMARY", "user: three"]);
    assert_eq!(with(json!({"message": "SUMMARY", "replacement_history": []})), ["compaction: SUMMARY", "user: three"]);
}

#[test]
fn a_rollback_takes_the_last_turns_back_when_the_next_message_comes() {
    let turn = |text: &str| {
        vec![event("task_started"), item(said("user", text)), item(said("assistant", "ok")), event("task_complete")]
    };
    let back = |turns: u64| vec![("event_msg", json!({"type": "thread_rolled_back", "num_turns": turns}))];
    let lines = rollout(&[turn("one"), turn("two"), turn("three"), back(2), turn("four")].concat());
    let log = import(file(&lines));
    assert_eq!(log.conversation(), ["user: one", "model: ok", "user: four", "model: ok"]);
    assert_eq!(log.report.branches, 1);
    let lines = rollout(&[turn("one"), turn("two"), back(9), turn("three")].concat());
    assert_eq!(import(file(&lines)).conversation(), ["user: three", "model: ok"]);
    grows(&lines, &ImportOptions::default());
}

#[test]
fn j2_the_oldest_rollouts_are_bare_items() {
    let mut lines =
        vec![r#"{"id":"r-0","timestamp":"2025-05-01T00:00:00.000Z","instructions":null,"git":{}}"#.to_owned()];
    lines.extend([said("user", "one"), said("assistant", "first")].map(|item| item.to_string()));
    lines.push(r#"{"record_type":"state"}"#.to_owned());
    let log = import(file(&lines));
    assert_eq!((log.header.id.as_str(), log.header.created_at), ("r-0", Some(1_746_057_600_000)));
    assert_eq!(log.conversation(), ["user: one", "model: first"]);
    assert_eq!(log.records(), lines);
}

#[test]
fn damage_is_kept_and_the_format_can_be_forced() {
    let mut lines = rollout(&[item(said("user", "one")), item(said("assistant", "first"))]);
    lines.insert(1, "{\"timestamp\":\"2026".to_owned());
    lines.insert(0, "not a record".to_owned());
    let log = import(file(&lines));
    assert_eq!(log.conversation(), ["user: one", "model: first"]);
    assert_eq!(log.report.unreadable_lines, 2);
    // Without its session_meta the log is nobody's.
    let text = file(&lines[3..]);
    let error = import_as(text.as_bytes(), ImportOptions::default()).err().unwrap();
    assert_eq!(error.class(), "no-header");
    assert!(error.to_string().contains("session_meta"), "{error}");
    let options = ImportOptions::default().format(SourceFormat::ClaudeCode);
    assert_eq!(Import::open(text.as_bytes(), options).err().unwrap().class(), "no-header");
    let options = ImportOptions::default().format(SourceFormat::Sessionlog);
    assert_eq!(Import::open(file(&rollout(&[])).as_bytes(), options).err().unwrap().class(), "no-header");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_order_of_records_comes_in_and_only_grows(kinds in proptest::collection::vec(0_u8..12, 0..24)) {
        let records: Vec<_> = kinds.iter().enumerate().map(|(number, kind)| match kind {
            0 | 1 => item(said("user", &format!("u{number}"))),
            2 | 3 => item(said("assistant", &format!("a{number}"))),
            4 => item(json!({"type": "function_call", "name": "f", "arguments": "{}", "call_id": format!("c{}", number / 2)})),
            5 => item(json!({"type": "function_call_output", "call_id": format!("c{}", number / 2), "output": "o"})),
            6 => event("task_started"),
            7 => event("task_complete"),
            8 => ("compacted", json!({"message": "S", "replacement_history": [said("user", "kept"), said("assistant", "too")]})),
            9 => ("compacted", json!({"message": "S"})),
            10 => ("event_msg", json!({"type": "thread_rolled_back", "num_turns": number % 3})),
            _ => ("event_msg", json!({"type": "token_count", "info": null})),
        }).collect();
        let lines = rollout(&records);
        let log = import(file(&lines));
        prop_assert_eq!(log.records(), lines.clone());
        grows(&lines, &ImportOptions::default());
    }
}
