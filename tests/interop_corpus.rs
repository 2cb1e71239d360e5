//! Real recorded sessions: every file of the corpus comes in as an independent reading of it says, or is refused for a true
//! reason.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sessionlog::event::control::TurnEnd;
use sessionlog::event::message::{AssistantMessage, ToolResult, UserMessage};
use sessionlog::event::{Batch, Event, Item, SessionHeader, SurfaceOp};
use sessionlog::interop::{DshWriter, Import, ImportError, ImportOptions, ImportReport, JsonlWriter};
use sessionlog::session::{Session, SessionOptions};

fn corpus() -> Vec<PathBuf> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/corpus"));
    let mut files = Vec::new();
    let Ok(folders) = fs::read_dir(root) else {
        println!("skipped: {} is absent", root.display());
        return files;
    };
    for folder in folders.filter_map(|entry| entry.ok().map(|entry| entry.path())).filter(|path| path.is_dir()) {
        let inside = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        files.extend(inside.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl")));
    }
    files.sort();
    files
}

fn name(path: &Path) -> String {
    let folder = path.parent().unwrap().file_name().unwrap().to_str().unwrap();
    format!("{folder}/{}", path.file_name().unwrap().to_str().unwrap())
}

fn import(bytes: &[u8]) -> Result<(Vec<Event>, ImportReport, String), ImportError> {
    let mut import = Import::open(bytes, ImportOptions::default())?;
    let events = import.events().collect::<Result<Vec<_>, _>>()?;
    Ok((events, import.report().clone(), import.header().to_line()))
}

/// One event as a plain reading of the file gives it.
#[derive(Debug)]
struct Plain {
    event_type: String,
    seq: u64,
    time: i64,
    data: String,
    surface_op: Option<Value>,
    sources: Option<Vec<u64>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    #[serde(rename = "type")]
    tag: String,
    seq: Option<u64>,
    seq0: Option<u64>,
    time: Option<i64>,
    time0: Option<i64>,
    data: Option<Box<RawValue>>,
    surface_op: Option<Value>,
    source_event_seqs: Option<Vec<Value>>,
    created_at: Option<i64>,
}

#[derive(Deserialize)]
struct RowData<'a> {
    turn: u64,
    step: u64,
    index: u64,
    dt: Vec<i64>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    texts: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    args: Option<Vec<&'a RawValue>>,
}

fn expand(text: &str) -> Vec<Plain> {
    let mut events: Vec<Plain> = Vec::new();
    let mut created_at = 0;
    for line in text.split('\n').filter(|line| !line.is_empty()) {
        let line: Line = serde_json::from_str(line).unwrap();
        if line.tag == "session" {
            created_at = line.created_at.unwrap();
            continue;
        }
        let data = line.data.unwrap();
        let next = events.len() as u64;
        let kind = match line.tag.as_str() {
            "text-chunks" => "text-delta",
            "reasoning-chunks" => "reasoning-delta",
            "tool-call-chunks" => "tool-call-delta",
            _ => {
                let sources = line.source_event_seqs.map(|list| {
                    list.iter()
                        .flat_map(|entry| match entry.as_array() {
                            Some(range) => range[0].as_u64().unwrap()..=range[1].as_u64().unwrap(),
                            None => entry.as_u64().unwrap()..=entry.as_u64().unwrap(),
                        })
                        .collect()
                });
                events.push(Plain {
                    event_type: line.tag,
                    seq: line.seq.unwrap_or(next),
                    time: line.time.unwrap_or(created_at),
                    data: data.get().to_owned(),
                    surface_op: line.surface_op,
                    sources,
                });
                continue;
            }
        };
        let row: RowData = serde_json::from_str(data.get()).unwrap();
        let mut time = line.time0.unwrap_or(created_at);
        let names: String = [("id", row.id), ("name", row.name)]
            .iter()
            .filter_map(|(key, value)| value.map(|value| format!("\"{key}\":{},", value.get())))
            .collect();
        let key = if row.args.is_some() { "argumentsDelta" } else { "text" };
        for (number, text) in row.texts.or(row.args).unwrap().into_iter().enumerate() {
            time += if number == 0 { 0 } else { row.dt[number - 1] };
            let data = format!(
                r#"{{"turn":{},"step":{},"chunk":{{"type":"{kind}","index":{},{names}"{key}":{}}}}}"#,
                row.turn,
                row.step,
                row.index,
                text.get()
            );
            events.push(Plain {
                event_type: "assistant/chunk".to_owned(),
                seq: line.seq0.unwrap_or(next) + number as u64,
                time,
                data,
                surface_op: None,
                sources: None,
            });
        }
    }
    events
}

/// Whether a payload is in a shape that the upgrade rewrites.
fn is_old_shape(event: &Plain) -> bool {
    let data: Value = serde_json::from_str(&event.data).unwrap();
    match event.event_type.as_str() {
        "user/message" => data.get("role").is_none() || data.get("id").is_none(),
        "assistant/message" | "tool/result" => data.get("message").is_none(),
        _ => false,
    }
}

/// What an old payload must have become, member order aside.
fn upgraded(event: &Plain, id: &str) -> Value {
    let mut data: Value = serde_json::from_str(&event.data).unwrap();
    let members = data.as_object_mut().unwrap();
    let id = Value::from(format!("{id}#{}", event.seq));
    match event.event_type.as_str() {
        "user/message" => {
            members.insert("role".into(), "user".into());
            members.insert("id".into(), id);
        }
        "assistant/message" => {
            let mut source = members.remove("provenance").unwrap();
            source["kind"] = "model".into();
            let content = members.remove("content").unwrap();
            let message = serde_json::json!({"role":"assistant","content":content,"source":source,"id":id});
            members.insert("message".into(), message);
        }
        _ => {
            let call = members.remove("callId").unwrap();
            let (content, error) = (members.remove("content").unwrap(), members.remove("isError").unwrap());
            let block = serde_json::json!({"type":"tool-result","toolCallId":call,"content":content,"isError":error});
            let source = serde_json::json!({"kind":"tool","callId":call});
            let message = serde_json::json!({"role":"user","content":[block],"source":source,"id":id});
            members.insert("message".into(), message);
        }
    }
    data
}

fn surface_op(event: &Event) -> Option<Value> {
    event.placement().map(|placement| match placement.op() {
        SurfaceOp::Append => Value::from("append"),
        SurfaceOp::Replace { start, end } => serde_json::json!({"op":"replace","start":start,"end":end}),
    })
}

#[test]
fn n3_every_corpus_file_comes_in_as_it_stands_or_is_refused_for_a_true_reason() {
    let mut refused = BTreeMap::new();
    let mut imported = 0;
    for path in corpus() {
        let bytes = fs::read(&path).unwrap();
        let (events, report, header) = match import(&bytes) {
            Ok(imported) => imported,
            Err(error) => {
                assert!(error.to_string().len() > 40, "{error}");
                refused.insert(name(&path), (error.class(), error.seq, error.to_string()));
                continue;
            }
        };
        imported += 1;
        let text = String::from_utf8(bytes).unwrap();
        let plain = expand(&text);
        assert_eq!(events.len(), plain.len(), "{}", name(&path));
        let recorded: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        let id = recorded["id"].as_str().unwrap();
        let records_surface = plain.iter().any(|event| event.surface_op.is_some());
        let mut old = 0;
        for (event, plain) in events.iter().zip(&plain) {
            let place = format!("{} seq {}", name(&path), plain.seq);
            assert_eq!(
                (event.event_type(), event.seq(), event.time()),
                (plain.event_type.as_str(), plain.seq, plain.time)
            );
            let sources = event.placement().and_then(|placement| placement.sources());
            assert_eq!(sources.map(|sources| sources.iter().collect()), plain.sources, "{place}");
            if records_surface {
                assert_eq!(surface_op(event), plain.surface_op, "{place}");
            }
            if is_old_shape(plain) {
                old += 1;
                let data: Value = serde_json::from_str(&event.data()).unwrap();
                assert_eq!(data, upgraded(plain, id), "{place}");
            } else {
                assert_eq!(event.data(), plain.data, "{place}");
            }
        }
        assert_eq!((report.upgraded.wrapped + report.upgraded.roles, report.events), (old, events.len() as u64));
        assert!(header.starts_with("{\"type\":\"session\",\"version\":1,"), "{header}");
    }
    if imported == 0 {
        return;
    }
    let expect = [
        ("dsh-community/fail-logger.jsonl", "no-header", Some(1)),
        ("dsh/apps__web__cordis-tool-round__session.jsonl", "gap", Some(87)),
    ];
    for (file, class, seq) in expect {
        assert_eq!((refused[file].0, refused[file].1), (class, seq));
    }
    assert!(refused["dsh/apps__web__cordis-tool-round__session.jsonl"].2.contains("expected 6, got 87"));
    for (file, refusal) in &refused {
        if ["authored-error", "blocked-log"].iter().any(|part| file.contains(part)) {
            assert!(refusal.2.contains("expected 0, got 1"), "{}", refusal.2);
        }
    }
    println!("imported {imported}, refused {}", refused.len());
    assert_eq!(refused.len(), 4, "{refused:#?}");
}

fn import_whole(bytes: &[u8]) -> (Vec<Event>, ImportReport, String) {
    import(bytes).unwrap()
}

#[test]
fn p3_what_is_written_as_lines_or_rows_reads_back_identically() {
    let (mut files, mut same_bytes) = (0, 0);
    for path in corpus() {
        let Ok(mut import) = Import::open(fs::File::open(&path).unwrap(), ImportOptions::default()) else { continue };
        let mut items: Vec<Item> = Vec::new();
        let whole = loop {
            match import.next_item() {
                Ok(Some(item)) => items.push(item),
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        if !whole {
            continue;
        }
        let events: Vec<Event> = items.iter().flat_map(Item::events).collect();
        let mut lines = JsonlWriter::new(Vec::new(), import.header()).unwrap();
        for item in &items {
            lines.item(item).unwrap();
        }
        let lines = lines.finish().unwrap();
        let (again, report, header) = import_whole(&lines);
        assert_eq!((again, header), (events.clone(), import.header().to_line()), "{}", name(&path));
        assert!(report.is_verbatim(), "{report:?}");

        let mut rows = DshWriter::new(Vec::new(), import.header()).unwrap();
        for event in &events {
            rows.event(event).unwrap();
        }
        let rows = rows.finish().unwrap();
        assert_eq!(import_whole(&rows).0, events, "{}", name(&path));
        // A log that stands in the current shapes and was not cut by flush timing is written back byte for byte.
        let source = fs::read_to_string(&path).unwrap();
        let usual_order = !source.contains("\"surfaceOp\":\"append\",\"sourceEventSeqs\"");
        if import.report().is_verbatim() && rows.len() == source.len() && usual_order {
            assert_eq!(String::from_utf8(rows).unwrap(), source, "{}", name(&path));
            same_bytes += 1;
        }
        files += 1;
    }
    println!("{files} files round trip, {same_bytes} of them byte for byte");
    assert!(files == 0 || same_bytes > 40, "{same_bytes} of {files}");
}

#[test]
fn e4_whatever_came_in_can_be_reconstructed() {
    for path in corpus() {
        let Ok((events, _, _)) = import(&fs::read(&path).unwrap()) else { continue };
        let items = Batch::pack(events.iter().cloned()).map_or_else(Vec::new, Batch::into_items);
        let session = Session::view(SessionHeader::new("any"), items, SessionOptions::default())
            .unwrap_or_else(|error| panic!("{}: {error}", name(&path)));
        let on_surface = events.iter().filter(|event| event.placement().is_some()).count();
        assert!(session.messages().len() <= on_surface, "{}", name(&path));
        for event in &events {
            let shape = match event.event_type() {
                "user/message" => event.payload::<UserMessage>().map(|_| ()),
                "assistant/message" => event.payload::<AssistantMessage>().map(|_| ()),
                "tool/result" => event.payload::<ToolResult>().map(|_| ()),
                "turn/end" => event.payload::<TurnEnd>().map(|_| ()),
                _ => Ok(()),
            };
            shape.unwrap_or_else(|error| panic!("{} seq {}: {error}", name(&path), event.seq()));
        }
    }
}
