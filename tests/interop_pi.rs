//! pi sessions: the tree of entries, compaction that keeps a tail, old linear files, damage, images.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod interop_common;

use interop_common::{file, grows, import};
use proptest::prelude::*;
use serde_json::{Value, json};
use sessionlog::interop::{ImportOptions, SourceFormat};

const HEADER: &str = r#"{"type":"session","version":3,"id":"p-1","timestamp":"2026-11-30T14:00:00.000Z","cwd":"/w","parentSession":"p-0"}"#;

fn entry(kind: &str, id: &str, parent: Option<&str>, rest: &str) -> String {
    let parent = Value::from(parent);
    format!(r#"{{"type":"{kind}","id":"{id}","parentId":{parent},"timestamp":"2026-11-30T14:00:01.000Z"{rest}}}"#)
}

fn message(id: &str, parent: Option<&str>, message: &Value) -> String {
    entry("message", id, parent, &format!(",\"message\":{message}"))
}

fn user(id: &str, parent: Option<&str>, text: &str) -> String {
    message(id, parent, &json!({"role": "user", "content": [{"type": "text", "text": text}], "timestamp": 1}))
}

fn assistant(id: &str, parent: Option<&str>, content: &Value, stop: &str) -> String {
    let usage =
        json!({"input": 3, "output": 4, "cacheRead": 5, "cacheWrite": 0, "totalTokens": 12, "cost": {"total": 0.1}});
    message(
        id,
        parent,
        &json!({"role": "assistant", "content": content, "api": "x", "provider": "anthropic", "model": "claude-x", "usage": usage, "stopReason": stop, "errorMessage": "boom"}),
    )
}

fn says(id: &str, parent: Option<&str>, text: &str) -> String {
    assistant(id, parent, &json!([{"type": "text", "text": text}]), "stop")
}

#[test]
fn a_session_with_a_tool_call_comes_in_turn_by_turn() {
    let lines = [
        HEADER.to_owned(),
        entry("model_change", "k1", None, r#","provider":"anthropic","modelId":"claude-x""#),
        user("u1", Some("k1"), "list it"),
        assistant(
            "a1",
            Some("u1"),
            &json!([{"type": "thinking", "thinking": "hm", "thinkingSignature": "s"}, {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "ls"}}]),
            "toolUse",
        ),
        message(
            "r1",
            Some("a1"),
            &json!({"role": "toolResult", "toolCallId": "c1", "toolName": "bash", "content": [{"type": "text", "text": "a.txt"}, {"type": "image", "data": "iVBOR", "mimeType": "image/png"}], "isError": false}),
        ),
        says("a2", Some("r1"), "one file"),
        entry("session_info", "n1", Some("a2"), r#","name":"Listing""#),
        entry("custom", "k2", Some("n1"), r#","customType":"ext","data":{"n":1.50}"#),
        entry("custom_message", "k3", Some("k2"), r#","customType":"ext","content":"mind the gap","display":true"#),
        message("b1", Some("k3"), &json!({"role": "bashExecution", "command": "pwd", "output": "/w", "exitCode": 0})),
        message(
            "b2",
            Some("b1"),
            &json!({"role": "bashExecution", "command": "secret", "output": "", "excludeFromContext": true}),
        ),
        user("u2", Some("b2"), "more"),
        assistant("a3", Some("u2"), &json!([]), "error"),
        user("u3", Some("a3"), "again"),
        assistant("a4", Some("u3"), &json!([{"type": "text", "text": "cut"}]), "length"),
    ];
    let log = import(file(&lines));
    assert_eq!(log.report.source_format, SourceFormat::Pi);
    assert_eq!(
        (log.header.id.as_str(), log.header.parent_session.as_deref(), log.header.created_at),
        ("p-1", Some("p-0"), Some(1_796_047_200_000))
    );
    assert_eq!(log.records(), lines);
    assert_eq!(
        log.conversation().iter().filter(|line| !line.is_empty()).collect::<Vec<_>>(),
        [
            "user: list it",
            r#"model: (hm) bash{"command":"ls"}"#,
            "tool: a.txt <image>",
            "model: one file",
            "custom: mind the gap",
            "bash: Ran `pwd`\n```\n/w\n```",
            "user: more",
            "user: again",
            "model: cut",
        ]
    );
    log.is_well_behaved();
    assert_eq!(log.fold.title(), Some("Listing"));
    let kinds: Vec<_> = log.of_type("turn/end").iter().map(|end| end["reason"]["kind"].clone()).collect();
    assert_eq!(kinds, ["completed", "error", "max-tokens"]);
    assert_eq!(log.of_type("turn/end")[1]["reason"]["error"]["message"], "boom");
    assert!(log.fold.open_turn().is_none(), "the ends of turns are recorded");
    assert_eq!(
        log.of_type("tool/result")[0]["message"]["content"][0]["content"][1]["attachment"],
        json!({"mediaType": "image/png", "data": "iVBOR"})
    );
    assert_eq!(log.fold.usage().total().cache_read_tokens, Some(20));
    grows(&lines, &ImportOptions::default());
}

#[test]
fn h2_branches_are_kept_and_a_branch_summary_is_what_the_model_sees_of_the_one_left() {
    let lines = [
        HEADER.to_owned(),
        user("u1", None, "one"),
        says("a1", Some("u1"), "first"),
        user("u2", Some("a1"), "left"),
        says("a2", Some("u2"), "left answer"),
        entry("branch_summary", "s1", Some("a1"), r#","fromId":"a2","summary":"went left""#),
        user("u3", Some("s1"), "right"),
    ];
    let log = import(file(&lines));
    assert_eq!(log.conversation(), ["user: one", "model: first", "branch-summary: went left", "user: right"]);
    assert_eq!(log.report.branches, 1);
    let lines = [&lines[..], &[user("u4", Some("a2"), "left again"), user("u5", Some("gone"), "bridged")]].concat();
    let log = import(file(&lines));
    assert_eq!(
        log.conversation(),
        ["user: one", "model: first", "user: left", "model: left answer", "user: left again", "user: bridged"]
    );
    assert_eq!((log.report.branches, log.report.bridged_gaps), (2, 1));
    grows(&lines, &ImportOptions::default());
}

#[test]
fn i3_compaction_keeps_the_tail_from_the_entry_that_it_names() {
    let start = [
        HEADER.to_owned(),
        user("u1", None, "one"),
        says("a1", Some("u1"), "first"),
        user("u2", Some("a1"), "two"),
        says("a2", Some("u2"), "second"),
    ];
    let compaction = |kept: &str| {
        entry(
            "compaction",
            "z1",
            Some("a2"),
            &format!(r#","summary":"so far","firstKeptEntryId":"{kept}","tokensBefore":9"#),
        )
    };
    for (kept, expected) in [
        ("u2", &["compaction: so far", "user: two", "model: second", "user: three"][..]),
        ("a2", &["compaction: so far", "model: second", "user: three"]),
        ("u1", &["compaction: so far", "user: one", "model: first", "user: two", "model: second", "user: three"]),
        ("gone", &["compaction: so far", "user: three"]),
    ] {
        let lines = [&start[..], &[compaction(kept), user("u3", Some("z1"), "three")]].concat();
        let log = import(file(&lines));
        assert_eq!(log.conversation(), expected, "{kept}");
        assert_eq!((log.report.compactions, log.report.branches), (1, 0));
        // The kept messages were not logged again where they could stay.
        let again = log.events.iter().filter(|event| event.event_type() == "assistant/message").count();
        assert_eq!(again, if kept == "u1" { 4 } else { 2 });
        // Back in front of the compaction, and then behind it once more.
        let back = [&lines[..], &[user("u4", Some("a1"), "instead")]].concat();
        assert_eq!(import(file(&back)).conversation(), ["user: one", "model: first", "user: instead"]);
        let forth = [&back[..], &[user("u5", Some("u3"), "four")]].concat();
        assert_eq!(import(file(&forth)).conversation(), [expected, &["user: four"]].concat());
        grows(&forth, &ImportOptions::default());
    }
}

#[test]
fn j2_old_files_without_ids_are_one_line_of_entries_and_damage_is_kept() {
    let bare = |line: String| {
        let mut entry: Value = serde_json::from_str(&line).unwrap();
        let members = entry.as_object_mut().unwrap();
        members.remove("id");
        members.remove("parentId");
        entry.to_string()
    };
    let lines = [
        HEADER.replace("\"version\":3,", ""),
        bare(user("", None, "one")),
        "{\"type\":\"mess".to_owned(),
        bare(says("", None, "first")),
    ];
    let log = import(file(&lines));
    assert_eq!(log.conversation(), ["user: one", "model: first"]);
    assert_eq!((log.report.unreadable_lines, log.report.bridged_gaps), (1, 0));
    assert_eq!(log.of_type("user/message")[0]["id"], "p-1#2");
    grows(&lines, &ImportOptions::default());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever tree the entries form, compactions included, the surface is what pi builds for the last entry.
    #[test]
    fn h2_the_surface_is_what_the_path_to_the_last_entry_says(choices in proptest::collection::vec((0_u8..5, any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<bool>()), 1..24)) {
        let mut lines = vec![HEADER.to_owned()];
        // By entry: the entries on the way down to it.
        let mut paths: Vec<Vec<usize>> = Vec::new();
        let mut kept_by: Vec<Option<usize>> = Vec::new();
        for (number, (kind, parent, kept, branch)) in choices.iter().enumerate() {
            let id = format!("e{number}");
            let from = (number > 0).then(|| if *branch { parent.index(number) } else { number - 1 });
            let parent = from.map(|from| format!("e{from}"));
            let path = from.map(|from| paths[from].clone()).unwrap_or_default();
            let text = format!("t{number}");
            let first = (!path.is_empty()).then(|| path[kept.index(path.len())]);
            lines.push(match kind {
                0 | 1 => user(&id, parent.as_deref(), &text),
                2 | 3 => says(&id, parent.as_deref(), &text),
                _ => {
                    let named = first.map_or("none".to_owned(), |first| format!("e{first}"));
                    entry("compaction", &id, parent.as_deref(), &format!(r#","summary":"{text}","firstKeptEntryId":"{named}""#))
                }
            });
            kept_by.push(first);
            paths.push([path, vec![number]].concat());
        }
        // What pi does: the last compaction on the way, the messages from the one that it names on, and what came behind it.
        let path = paths.last().unwrap();
        let said = |number: usize| match choices[number].0 {
            0 | 1 => Some(format!("user: t{number}")),
            2 | 3 => Some(format!("model: t{number}")),
            _ => None,
        };
        let compaction = path.iter().rposition(|number| choices[*number].0 == 4);
        let expected: Vec<String> = match compaction {
            None => path.iter().filter_map(|number| said(*number)).collect(),
            Some(place) => {
                let first = kept_by[path[place]].and_then(|first| path.iter().position(|number| *number == first)).unwrap_or(place);
                let kept = path[first..place].iter().filter_map(|number| said(*number));
                let behind = path[place + 1..].iter().filter_map(|number| said(*number));
                [format!("compaction: t{}", path[place])].into_iter().chain(kept).chain(behind).collect()
            }
        };
        let log = import(file(&lines));
        prop_assert_eq!(log.conversation(), expected);
        prop_assert_eq!(log.records(), lines.clone());
        grows(&lines, &ImportOptions::default());
    }
}
