//! `stats`: counts that agree with the log, of one session and of a store.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(clippy::cast_precision_loss, reason = "a ratio is compared roughly")]

mod cli_common;

use std::collections::BTreeMap;

use cli_common::{FAILED, Home, MISSING, USAGE, files, flip, messages, recording};
use serde_json::Value;

#[test]
fn counts_and_bytes_are_those_of_the_log_sealed_or_not() {
    let home = Home::new();
    home.record("s", recording(3, 2_500));
    let rows = home.run(["events", "s", "--json"]).ok();
    let mut types: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (row, line) in rows.json().iter().zip(rows.out.lines()) {
        let of_type = types.entry(row["type"].as_str().unwrap().to_owned()).or_default();
        of_type.0 += 1;
        of_type.1 += line.len() as u64 + 1;
    }
    let show = home.run(["show", "s", "--json"]).ok().document();
    for seal in [false, true] {
        if seal {
            home.run(["seal", "s"]).ok();
        }
        let stats = home.run(["stats", "s", "--json"]).ok().document();
        let number = |key: &str| stats[key].as_u64().unwrap_or_else(|| panic!("{key}: {stats}"));
        assert_eq!((stats["id"].as_str(), number("events")), (Some("s"), 2_500));
        let counted: BTreeMap<String, (u64, u64)> = stats["by_type"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, row)| (name.clone(), (row["events"].as_u64().unwrap(), row["bytes"].as_u64().unwrap())))
            .collect();
        assert_eq!(counted, types);
        assert_eq!(number("plain_bytes"), rows.out.len() as u64);
        for (key, name) in [("turns", "turn/start"), ("steps", "step/start"), ("tool_calls", "tool/call")] {
            assert_eq!(number(key), types.get(name).map_or(0, |of_type| of_type.0), "{key}");
        }
        assert_eq!(stats["tokens"]["input"], show["usage"]["inputTokens"]);
        assert_eq!(stats["tokens"]["output"], show["usage"]["outputTokens"]);
        let stored: u64 = files(&home.session("s")).iter().map(|path| path.metadata().unwrap().len()).sum();
        assert_eq!(number("stored_bytes"), stored);
        let sections = stats["sections"].as_object().unwrap();
        assert_eq!(sections.values().map(|section| section["stored"].as_u64().unwrap()).sum::<u64>(), stored);
        let in_stream = sections["stream"]["unpacked"].as_u64().unwrap();
        let in_journals = sections["journals"]["stored"].as_u64().unwrap();
        assert_eq!((in_stream > 0, in_journals > 0), (seal, !seal), "{stats}");
        let ratio = stats["ratio"].as_f64().unwrap();
        assert!((ratio - stored as f64 / rows.out.len() as f64).abs() < 0.001, "{ratio}");
        assert!(number("duration_ms") >= number("turns_ms") && number("turns_ms") >= number("longest_turn_ms"));
    }
    let people = home.run(["stats", "s"]).ok().out;
    for part in ["Session s", "2500 events", "assistant/chunk", "conversation", "tokens: ", "as JSON Lines"] {
        assert!(people.contains(part), "{part} is not in {people}");
    }
}

#[test]
fn a_store_is_the_sum_of_its_sessions_and_damage_is_named() {
    let home = Home::new();
    for id in ["a", "b"] {
        home.record(id, recording(1, 300));
    }
    for count in [4, 8, 12] {
        home.record("c", messages("m", count));
    }
    let each: Vec<Value> = ["a", "b", "c"].map(|id| home.run(["stats", id, "--json"]).ok().document()).to_vec();
    let all = home.run(["stats", "--json"]).ok().document();
    for key in ["events", "turns", "steps", "tool_calls", "messages", "plain_bytes", "stored_bytes", "duration_ms"] {
        let sum: u64 = each.iter().map(|stats| stats[key].as_u64().unwrap()).sum();
        assert_eq!(all[key], sum, "{key}");
    }
    assert!(all["sessions"] == 3 && all["damaged"] == 0, "{all}");
    flip(&home.session("c").join("00000000000000000004.log"), 120);
    let ran = home.run(["stats", "--json"]).with(FAILED);
    let document = ran.document();
    assert!(document["sessions"] == 3 && document["damaged"] == 1 && document["events"] == 604, "{document}");
    ran.says(&["session c", "checksum", "was counted"]);
    let ran = home.run(["stats", "c", "--json"]).with(FAILED);
    assert_eq!(ran.document()["events"], 4);
    ran.says(&["session c", "was counted"]);
    home.run(["stats", "nobody"]).with(MISSING).says(&["no session nobody"]);
    home.run(["stats", "a", "b"]).with(USAGE);
}

#[test]
fn an_empty_store_has_nothing_to_count() {
    let home = Home::new();
    home.record("s", messages("s", 1));
    std::fs::remove_dir_all(home.session("s")).unwrap();
    let document = home.run(["stats", "--json"]).ok().document();
    assert!(document["sessions"] == 0 && document["events"] == 0 && document.get("ratio").is_none(), "{document}");
}
