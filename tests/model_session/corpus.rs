//! Recorded logs of real harnesses, when they are at hand: everything that their releases wrote in the current shape is accepted.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sessionlog::event::{Batch, Event, Item, RawEnvelope, SessionHeader, SessionId, Vocabulary};
use sessionlog::session::fold::Fold;
use sessionlog::session::{Seed, Session, SessionOptions, Validator, invariants, repair};

fn corpus_files() -> Vec<PathBuf> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/corpus"));
    let folders = std::fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = folders.filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let mut files: Vec<_> = files.map(|entry| entry.path()).filter(|path| path.extension().is_some()).collect();
    files.sort();
    files
}

/// The events of a log line: one, or those of a packed row.
fn events_of(line: &str) -> Option<Vec<Event>> {
    let value: Value = serde_json::from_str(line).ok()?;
    let (kind, texts) = match value["type"].as_str()? {
        "text-chunks" => ("text-delta", "texts"),
        "reasoning-chunks" => ("reasoning-delta", "texts"),
        "tool-call-chunks" => ("tool-call-delta", "args"),
        _ => return Some(vec![RawEnvelope::parse(line).ok()?.into_event().ok()?]),
    };
    let data = &value["data"];
    let mut time = value["time0"].as_i64()?;
    let mut events = Vec::new();
    for (number, text) in data[texts].as_array()?.iter().enumerate() {
        time += if number == 0 { 0 } else { data["dt"][number - 1].as_i64()? };
        let mut chunk = format!("\"type\":\"{kind}\",\"index\":{}", data["index"]);
        for key in ["id", "name"] {
            if data.get(key).is_some() {
                write!(chunk, ",\"{key}\":{}", data[key]).ok()?;
            }
        }
        let tag = if kind == "tool-call-delta" { "argumentsDelta" } else { "text" };
        write!(chunk, ",\"{tag}\":{text}").ok()?;
        let (turn, step, seq) = (&data["turn"], &data["step"], value["seq0"].as_u64()? + number as u64);
        events.extend(events_of(&format!(
            "{{\"type\":\"assistant/chunk\",\"seq\":{seq},\"time\":{time},\
             \"data\":{{\"turn\":{turn},\"step\":{step},\"chunk\":{{{chunk}}}}}}}"
        ))?);
    }
    Some(events)
}

/// The events of a file that is wholly in the current shape, gaps and old shapes excluded.
fn current_log(path: &Path) -> Option<Vec<Event>> {
    let text = std::fs::read_to_string(path).ok()?;
    let mut events = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if serde_json::from_str::<Value>(line).ok()?["type"] == "session" {
            continue;
        }
        events.extend(events_of(line)?);
    }
    let contiguous = events.iter().zip(0..).all(|(event, seq)| event.seq() == seq);
    let old = events.iter().any(|event| {
        let data: Value = serde_json::from_str(&event.data()).unwrap_or_default();
        match event.event_type() {
            "assistant/message" | "tool/result" => data.get("message").is_none(),
            "context/message" | "steering/message" => true,
            _ => false,
        }
    });
    (contiguous && !old && !events.is_empty()).then_some(events)
}

#[test]
fn e4_every_current_log_of_the_corpus_is_accepted_folded_and_repaired() {
    let (mut read, mut skipped) = (0, 0);
    for path in corpus_files() {
        let name = path.display();
        let Some(events) = current_log(&path) else {
            skipped += 1;
            continue;
        };
        read += 1;
        let mut validator = Validator::new();
        for event in &events {
            validator.check(event).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        let items = Batch::pack(events.iter().cloned()).unwrap().into_items();
        let fold = Fold::of(&items).unwrap();
        assert_eq!(Fold::from_checkpoint(&fold.checkpoint()).unwrap().checkpoint(), fold.checkpoint(), "{name}");
        let types = events.iter().map(Event::event_type);
        let vocabulary = types.fold(Vocabulary::core(), Vocabulary::with_name);
        let options = SessionOptions::new().vocabulary(vocabulary);
        let view = Session::view(SessionHeader::new("c"), items.clone(), options.clone()).unwrap();
        assert_eq!(view.events(..), events, "{name}");
        assert_eq!(*view.messages(), *sessionlog::session::history::fold_messages(&events).unwrap(), "{name}");
        let id = SessionId::new("c").unwrap();
        let mut closed = items;
        closed.extend(repair::close(&fold, &id).into_iter().flat_map(Batch::into_items).collect::<Vec<Item>>());
        assert_eq!(repair::close_log(&closed, &id).unwrap(), None, "{name}");
        Session::from_seed(SessionHeader::new("c"), Seed::from(closed.clone()), options).unwrap();
        if let Ok(Some(violation)) = invariants::first_violation(&closed) {
            println!("{name}: {violation}");
        }
    }
    println!(
        "{read} logs read, {skipped} left to the upgrade step (none at all: the corpus is absent, nothing was tested)"
    );
}
