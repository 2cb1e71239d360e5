//! Real recorded logs through the command: in, read back event by event, in again, out and in under another id, verified.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod cli_common;

use std::fs;
use std::path::{Path, PathBuf};

use cli_common::{FAILED, Home};
use serde_json::Value;
use serde_json::value::RawValue;

/// One event as its envelope states it; `data` and the surface members are the exact text.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    event_type: String,
    seq: u64,
    time: i64,
    data: String,
    surface_op: Option<String>,
    sources: Option<String>,
}

#[derive(serde::Deserialize)]
struct Envelope<'a> {
    #[serde(rename = "type")]
    event_type: String,
    seq: Option<u64>,
    time: Option<i64>,
    seq0: Option<u64>,
    time0: Option<i64>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow, rename = "surfaceOp")]
    surface_op: Option<&'a RawValue>,
    #[serde(borrow, rename = "sourceEventSeqs")]
    sources: Option<&'a RawValue>,
    #[serde(rename = "createdAt")]
    created_at: Option<i64>,
}

/// The row's deltas as the events that they stand for.
fn unpacked(row: &Envelope<'_>, position: u64, created: i64) -> Vec<Line> {
    let (kind, list, body) = match row.event_type.as_str() {
        "text-chunks" => ("text-delta", "texts", "text"),
        "reasoning-chunks" => ("reasoning-delta", "texts", "text"),
        _ => ("tool-call-delta", "args", "argumentsDelta"),
    };
    let data: Value = serde_json::from_str(row.data.unwrap().get()).unwrap();
    let mut time = row.time0.unwrap_or(created);
    let named = ["id", "name"].into_iter().filter_map(|key| Some(format!(r#","{key}":{}"#, data.get(key)?)));
    let head = format!(r#""type":"{kind}","index":{}{}"#, data["index"], named.collect::<String>());
    let pieces = data[list].as_array().unwrap().iter().enumerate();
    pieces
        .map(|(number, piece)| {
            if number > 0 {
                time += data["dt"][number - 1].as_i64().unwrap();
            }
            Line {
                event_type: "assistant/chunk".into(),
                seq: row.seq0.unwrap_or(position) + number as u64,
                time,
                data: format!(
                    r#"{{"turn":{},"step":{},"chunk":{{{head},"{body}":{piece}}}}}"#,
                    data["turn"], data["step"]
                ),
                surface_op: None,
                sources: None,
            }
        })
        .collect()
}

/// A log's events, rows unpacked and positions filled in; nothing upgraded.
fn expanded(text: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut created = 0;
    for line in text.lines().filter(|line| !line.is_empty()) {
        let envelope: Envelope<'_> = serde_json::from_str(line).unwrap();
        let position = lines.len() as u64;
        if envelope.event_type == "session" {
            created = envelope.created_at.unwrap_or(0);
        } else if envelope.event_type.ends_with("-chunks") {
            lines.extend(unpacked(&envelope, position, created));
        } else {
            let text = |raw: Option<&RawValue>| raw.map(|raw| raw.get().to_owned());
            lines.push(Line {
                seq: envelope.seq.unwrap_or(position),
                time: envelope.time.unwrap_or(created),
                data: text(envelope.data).unwrap(),
                surface_op: text(envelope.surface_op),
                sources: text(envelope.sources),
                event_type: envelope.event_type,
            });
        }
    }
    lines
}

fn corpus() -> Option<Vec<PathBuf>> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/corpus"));
    if !root.is_dir() {
        println!("skipped: no corpus at {}", root.display());
        return None;
    }
    let mut logs = cli_common::files(root);
    logs.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    Some(logs)
}

/// Why the four that are no sessions are none: class, seq and words.
const REFUSED: [(&str, &str, Option<u64>, &str); 4] = [
    ("cordis-tool-round", "gap", Some(87), "expected 6, got 87"),
    ("authored-error", "gap", Some(1), "expected 0, got 1"),
    ("blocked-log", "gap", Some(1), "expected 0, got 1"),
    ("fail-logger", "no-header", Some(1), "no session header"),
];

fn refusal(path: &Path) -> Option<&'static (&'static str, &'static str, Option<u64>, &'static str)> {
    REFUSED.iter().find(|(name, ..)| path.to_str().unwrap().contains(name))
}

/// Compares event by event; upgraded events keep their place and time. Returns the number of those.
fn compare(path: &Path, stored: &[Line], source: &[Line]) -> u64 {
    assert_eq!(stored.len(), source.len(), "{}", path.display());
    let mut upgraded = 0;
    for (stored, source) in stored.iter().zip(source) {
        assert_eq!((stored.seq, stored.time), (source.seq, source.time), "{}", path.display());
        if stored.event_type != source.event_type || stored.data != source.data {
            upgraded += 1;
        } else {
            let filled = source.surface_op.is_none() && stored.surface_op.as_deref() == Some("\"append\"");
            assert!(filled || stored == source, "{}: {stored:?} {source:?}", path.display());
        }
    }
    upgraded
}

#[test]
fn every_recorded_log_comes_in_and_out_as_it_was() {
    let Some(logs) = corpus() else { return };
    let home = Home::new();
    let (mut refused, mut imported) = (0, 0);
    for (number, path) in logs.iter().enumerate() {
        let file = path.to_str().unwrap();
        let id = format!("s{number}");
        let ran = home.run(["import", file, "--id", &id, "--json"]);
        let row = ran.document();
        if let Some((_, class, seq, words)) = refusal(path) {
            refused += 1;
            assert!(ran.status == FAILED && row["status"] == "refused" && row["class"] == *class, "{row}");
            assert!(row["seq"].as_u64() == *seq && row["error"].as_str().unwrap().contains(words), "{row}");
            assert!(row["error"].as_str().unwrap().contains(file), "{row}");
            continue;
        }
        imported += 1;
        assert_eq!((ran.status, &row["status"]), (0, &Value::from("imported")), "{row}");
        let events = home.run(["events", &id, "--json"]).ok().out;
        let upgraded = compare(path, &expanded(&events), &expanded(&fs::read_to_string(path).unwrap()));
        let counted = &row["report"]["upgraded"];
        let stated: u64 = counted.as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
        assert!(upgraded <= stated, "{file}: {upgraded} events differ, {stated} were upgraded");

        let again = home.run(["import", file, "--id", &id, "--json"]).ok().document();
        assert_eq!(again["status"], "unchanged", "{again}");
        home.run(["export", &id, "-o", "export.jsonl"]).ok();
        let copy = format!("{id}-copy");
        let row = home.run(["import", "export.jsonl", "--id", &copy, "--json"]).ok().document();
        assert_eq!(row["status"], "imported", "{row}");
        assert_eq!(home.run(["events", &copy, "--json"]).ok().out, events, "{file}");
    }
    assert_eq!((imported, refused), (96, 4));
    let rows = home.run(["verify", "--json"]).ok().json();
    let summary = &rows.last().unwrap()["summary"];
    assert!(summary["sessions"] == 192 && summary["damaged"] == 0 && summary["torn"] == 0, "{summary}");
    assert_eq!(summary["unsupported"], 0);
    assert_eq!(home.run(["ls", "--json"]).ok().json().len(), 192);
}

#[test]
fn every_recorded_log_can_be_shown_and_asked_for_its_request() {
    let Some(logs) = corpus() else { return };
    let home = Home::new();
    let good: Vec<&PathBuf> = logs.iter().filter(|path| refusal(path).is_none()).collect();
    for (number, path) in good.iter().enumerate() {
        let id = format!("s{number}");
        home.run(["import", path.to_str().unwrap(), "--id", &id]).ok();
        assert!(!home.run(["show", &id]).ok().out.is_empty());
        let request = home.run(["messages", &id, "--request", "--json"]).ok().document();
        assert!(request["messages"].is_array() && request.as_object().unwrap().contains_key("header"));
    }
}

#[test]
fn many_logs_under_one_placeholder_id_are_told_apart() {
    let Some(logs) = corpus() else { return };
    let home = Home::new();
    let files: Vec<&str> = logs.iter().map(|path| path.to_str().unwrap()).collect();
    let rows = home.run([&["import", "--json"][..], &files].concat()).with(FAILED).json();
    assert_eq!(rows.len(), logs.len(), "the rest is done");
    let taken = rows.iter().filter(|row| row["class"] == "exists");
    for row in taken.clone() {
        let error = row["error"].as_str().unwrap();
        assert!(error.contains(row["id"].as_str().unwrap()) && error.contains("another --id"), "{row}");
    }
    assert!(taken.count() > 0);
    home.run(["verify"]).ok();
}
