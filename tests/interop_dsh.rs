//! What DeepSeek Harness asks of a log that it loads, checked on our exports by a reader that shares no code with them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde_json::Value;
use sessionlog::event::{Event, JsonText, NewEvent, Placement, SessionHeader};
use sessionlog::interop::{DshWriter, Import, ImportOptions, ZstdLines};
use sessionlog::sample::Recording;

const SURFACE: [&str; 3] = ["user/message", "assistant/message", "tool/result"];

fn import(bytes: &[u8]) -> (SessionHeader, Vec<Event>) {
    let mut import = Import::open(bytes, ImportOptions::default()).unwrap();
    let events = import.events().collect::<Result<_, _>>().unwrap();
    (import.header().clone(), events)
}

fn plain(header: &SessionHeader, events: &[Event], ranges: bool) -> Vec<u8> {
    let mut writer = DshWriter::new(Vec::new(), header).unwrap().source_ranges(ranges);
    events.iter().for_each(|event| writer.event(event).unwrap());
    writer.finish().unwrap()
}

fn framed(header: &SessionHeader, events: &[Event]) -> Vec<u8> {
    let mut writer = DshWriter::new(ZstdLines::new(Vec::new()).unwrap(), header).unwrap();
    events.iter().for_each(|event| writer.event(event).unwrap());
    writer.finish().unwrap().finish().unwrap()
}

/// The frames of a compressed log as (has a checksum, text), cut apart by the block headers of RFC 8878.
fn frames(bytes: &[u8]) -> Vec<(bool, Vec<u8>)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        assert_eq!(bytes[at..at + 4], [0x28, 0xb5, 0x2f, 0xfd]);
        let descriptor = bytes[at + 4];
        let (single, checksum) = (descriptor >> 5 & 1 == 1, descriptor >> 2 & 1 == 1);
        let content = match descriptor >> 6 {
            0 => usize::from(single),
            1 => 2,
            2 => 4,
            _ => 8,
        };
        let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
        at += 5 + usize::from(!single) + dictionary + content;
        loop {
            let block = u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], 0]);
            let stored = if block >> 1 & 3 == 1 { 1 } else { block >> 3 };
            at += 3 + stored as usize;
            if block & 1 == 1 {
                break;
            }
        }
        at += 4 * usize::from(checksum);
        found.push((checksum, zstd::decode_all(&bytes[start..at]).unwrap()));
    }
    found
}

/// Loads a log by the harness's rules and returns its events, rows unpacked, as (type, seq, time, data).
fn load(text: &str) -> Vec<(String, u64, i64, Value)> {
    let mut lines = text.lines();
    let header: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert_eq!(header["type"], "session");
    assert_eq!(header["version"], 0, "any other version is refused");
    assert!(header["delegationDepth"].is_u64() && header["createdAt"].is_u64() && header["id"].is_string());
    let mut events: Vec<(String, u64, i64, Value)> = Vec::new();
    let mut surface: Vec<u64> = Vec::new();
    let mut last_delta: Option<(Value, u64)> = None;
    for line in lines {
        let record: serde_json::Map<String, Value> = serde_json::from_str(line).unwrap();
        let next = events.len() as u64;
        let tag = record["type"].as_str().unwrap().to_owned();
        if let Some(kind) = tag.strip_suffix("-chunks") {
            assert_eq!(record.len(), 4);
            assert_eq!(record["seq0"], next);
            let data = record["data"].as_object().unwrap();
            let bodies = data.get("texts").or(data.get("args")).unwrap().as_array().unwrap();
            let gaps = data["dt"].as_array().unwrap();
            assert!(bodies.len() >= 3 && gaps.len() + 1 == bodies.len(), "{line}");
            let mut time = record["time0"].as_i64().unwrap();
            for (number, body) in bodies.iter().enumerate() {
                time += if number > 0 { gaps[number - 1].as_i64().unwrap() } else { 0 };
                let mut chunk = serde_json::Map::new();
                chunk.insert("type".to_owned(), format!("{kind}-delta").into());
                for key in ["index", "id", "name"] {
                    data.get(key).map(|value| chunk.insert(key.to_owned(), value.clone()));
                }
                chunk.insert(if kind == "tool-call" { "argumentsDelta" } else { "text" }.to_owned(), body.clone());
                let data = serde_json::json!({"turn": data["turn"], "step": data["step"], "chunk": chunk});
                events.push(("assistant/chunk".to_owned(), next + number as u64, time, data));
            }
            last_delta = None;
            continue;
        }
        let order = ["type", "seq", "time", "data", "sourceEventSeqs", "surfaceOp", "ignorable"];
        let mut places = Vec::new();
        for key in order {
            // Compact text has its members where they were written; those of `data` come before the last three.
            let found = if order[4..].contains(&key) {
                line.rfind(&format!(",\"{key}\":"))
            } else {
                line.find(&format!("\"{key}\":"))
            };
            places.extend(found.filter(|_| record.contains_key(key)));
        }
        assert!(places.is_sorted(), "{line}");
        assert!(record.keys().all(|key| order.contains(&key.as_str())), "{line}");
        assert_eq!(record["seq"], next);
        assert!(record.get("ignorable").is_none_or(|value| value == true));
        assert_eq!(SURFACE.contains(&tag.as_str()), record.contains_key("surfaceOp"), "{line}");
        let sources: Option<Vec<u64>> = record.get("sourceEventSeqs").map(|list| {
            // Plain integers: a [start,end] pair would fail here.
            list.as_array().unwrap().iter().map(|seq| seq.as_u64().unwrap()).collect()
        });
        if let Some(sources) = &sources {
            assert!(tag == "assistant/message" || !sources.is_empty());
            assert_eq!(sources.iter().collect::<HashSet<_>>().len(), sources.len());
            assert!(sources.iter().all(|seq| *seq < next));
        }
        match record.get("surfaceOp") {
            None => {}
            Some(Value::String(op)) => {
                assert_eq!(op, "append");
                surface.push(next);
            }
            Some(replace) => {
                assert_eq!((replace["op"].as_str(), replace.as_object().unwrap().len()), (Some("replace"), 3));
                let place = |key: &str| surface.iter().position(|node| replace[key] == *node).unwrap();
                let (start, end) = (place("start"), place("end"));
                let shadowed: Vec<u64> = surface.splice(start..=end, [next]).collect();
                assert!(shadowed.iter().all(|node| sources.as_ref().unwrap().contains(node)));
            }
        }
        if tag == "assistant/chunk" {
            // A run of three would have been packed.
            let key = |chunk: &Value| serde_json::json!([chunk["type"], chunk["index"], chunk["id"], chunk["name"]]);
            let mine = key(&record["data"]["chunk"]);
            let count = last_delta.filter(|(head, _)| *head == mine).map_or(1, |(_, count)| count + 1);
            let packs = line.contains("-delta\"") && !line.contains("\\ud800");
            assert!(!packs || count < 3, "{line}");
            last_delta = packs.then_some((mine, count));
        } else {
            last_delta = None;
        }
        events.push((tag, next, record["time"].as_i64().unwrap(), record["data"].clone()));
    }
    events
}

fn check(header: &SessionHeader, events: &[Event]) {
    let text = plain(header, events, false);
    let loaded = load(std::str::from_utf8(&text).unwrap());
    assert_eq!(loaded.len(), events.len());
    for ((tag, seq, time, data), event) in loaded.iter().zip(events) {
        assert_eq!((tag.as_str(), *seq, *time), (event.event_type(), event.seq(), event.time()));
        assert_eq!(*data, serde_json::from_str::<Value>(&event.data()).unwrap());
    }
    let packed = framed(header, events);
    let frames = frames(&packed);
    assert!(frames.iter().all(|(checksum, text)| *checksum && text.ends_with(b"\n")));
    assert_eq!(String::from_utf8_lossy(&frames[0].1).lines().count(), 1, "the header alone");
    assert_eq!(frames.iter().flat_map(|(_, text)| text.clone()).collect::<Vec<_>>(), text);
    // And back in, event by event.
    for form in [text, packed, plain(header, events, true)] {
        let (again, back) = import(&form);
        assert_eq!(back, events);
        assert_eq!(
            SessionHeader { delegation_depth: None, ..again },
            SessionHeader { delegation_depth: None, ..header.clone() }
        );
    }
}

#[test]
fn recordings_load_by_the_harness_rules_in_every_form() {
    for recording in [Recording::new(3).events(9_000), Recording::new(4).events(9_000).compacting()] {
        check(&recording.header(), &recording.iter().collect::<Vec<_>>());
    }
}

#[test]
fn a_large_log_is_cut_into_frames_of_bounded_size() {
    let events: Vec<Event> =
        Recording::new(5).events(60_000).iter().filter(|event| event.event_type() == "tool/call").collect();
    let repeated: Vec<Event> = (0..40_000)
        .map(|seq| {
            let event = &events[seq % events.len()];
            NewEvent::named(event.event_type(), event.json()).at(seq as u64, event.time())
        })
        .collect();
    let packed = framed(&SessionHeader::new("s").created_at(5), &repeated);
    let frames = frames(&packed);
    assert!(frames.len() > 3 && frames.iter().all(|(_, text)| text.len() < 2 << 20), "{}", frames.len());
}

#[test]
fn j3_source_ranges_are_written_on_request_only() {
    let message = |seq: u64, placement| {
        let data = format!(r#"{{"id":"m{seq}","role":"user","content":[],"source":{{"kind":"user"}}}}"#);
        NewEvent::named("user/message", JsonText::parse(&data).unwrap()).placed(placement).at(seq, 1)
    };
    let mut events: Vec<Event> = (0..8).map(|seq| message(seq, Placement::append())).collect();
    events.push(message(8, Placement::replace(0, 6).from([0, 1, 2, 3, 5, 4, 6, 7])));
    let header = SessionHeader::new("s").created_at(5);
    let last = |ranges| String::from_utf8(plain(&header, &events, ranges)).unwrap().lines().last().unwrap().to_owned();
    assert!(last(false).contains(r#""sourceEventSeqs":[0,1,2,3,5,4,6,7],"surfaceOp""#));
    assert!(last(true).contains(r#""sourceEventSeqs":[[0,3],5,4,6,7],"surfaceOp""#), "{}", last(true));
    assert_eq!(import(&plain(&header, &events, true)).1, events);
}

#[test]
fn every_log_of_the_corpus_makes_the_round_trip() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/corpus"));
    if !root.exists() {
        println!("skipped: {} is absent", root.display());
        return;
    }
    let mut done = 0;
    for folder in ["dsh", "dsh-positional", "dsh-community"] {
        for file in fs::read_dir(root.join(folder)).unwrap() {
            let bytes = fs::read(file.unwrap().path()).unwrap();
            let Ok(mut log) = Import::open(bytes.as_slice(), ImportOptions::default()) else { continue };
            let Ok(events) = log.events().collect::<Result<Vec<_>, _>>() else { continue };
            check(log.header(), &events);
            done += 1;
        }
    }
    assert!(done > 80, "{done}");
}

/// Deltas in runs, odd string bodies, application events and messages.
fn log() -> impl Strategy<Value = Vec<Event>> {
    let body = prop_oneof![
        6 => "[a-z\u{e9}\u{2028}]{0,5}",
        2 => proptest::sample::select(vec![r"\n", r#"\""#, r"\ud83d\ude80", r"\u0000"]).prop_map(str::to_owned),
        1 => Just(r"\ud800".to_owned()),
    ];
    let event = (0_u8..6, body).prop_map(|(kind, body)| match kind {
        0..=2 => {
            let (tag, id, key) =
                [("text", "", "text"), ("reasoning", "", "text"), ("tool-call", r#""id":"c","#, "argumentsDelta")]
                    [usize::from(kind)];
            let data =
                format!(r#"{{"turn":1,"step":1,"chunk":{{"type":"{tag}-delta","index":0,{id}"{key}":"{body}"}}}}"#);
            NewEvent::named("assistant/chunk", JsonText::parse(&data).unwrap())
        }
        3 => NewEvent::named("goal/change", JsonText::parse(&format!(r#"{{"t":"{body}","n":[1.5,{{}}]}}"#)).unwrap()),
        4 => NewEvent::named("app/y", JsonText::parse("null").unwrap()).ignorable(),
        _ => {
            let data = format!(r#"{{"id":"{body}","role":"user","content":[],"source":{{"kind":"user"}}}}"#);
            NewEvent::named("user/message", JsonText::parse(&data).unwrap()).placed(Placement::append())
        }
    });
    proptest::collection::vec((event, 1_usize..6, -9_i64..40), 1..30).prop_map(|stretches| {
        let mut log = Vec::new();
        let mut time = 1_700_000_000_000;
        for (new, times, gap) in stretches {
            for _ in 0..times {
                time += gap;
                log.push(new.clone().at(log.len() as u64, time));
            }
        }
        log
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_log_makes_the_round_trip(events in log()) {
        // A lone surrogate is beyond serde_json's values; the harness reads it.
        let smooth: Vec<Event> = events.iter().filter(|event| !event.data().contains("ud800")).enumerate().map(|(seq, event)| {
            let mut new = NewEvent::named(event.event_type(), event.json());
            new.ignorable = event.ignorable();
            new.placement = event.placement().cloned();
            new.at(seq as u64, event.time())
        }).collect();
        let header = SessionHeader::new("s").created_at(5);
        check(&header, &smooth);
        for form in [plain(&header, &events, false), framed(&header, &events)] {
            prop_assert_eq!(&import(&form).1, &events);
        }
    }
}
