//! Redaction: what counts as a secret, that nothing else changes, and that no way of writing a secret down gets through.
#![cfg(feature = "redact")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::Value;
use sessionlog::event::{Batch, Event, Item, JsonText, NewEvent, Placement, SessionHeader};
use sessionlog::interop::{DshWriter, Import, ImportOptions, JsonlWriter, Redactor};
use sessionlog::sample::Recording;

fn redact(own: &[&str], events: Vec<Event>) -> (Vec<Event>, Redactor) {
    let own: Vec<String> = own.iter().map(|pattern| (*pattern).to_owned()).collect();
    let mut redactor = Redactor::new(&own).unwrap();
    let items = Batch::pack(events).map(Batch::into_items).unwrap_or_default();
    let mut out: Vec<Item> = items.into_iter().flat_map(|item| redactor.item(item)).collect();
    out.extend(redactor.finish());
    (out.iter().flat_map(Item::events).collect(), redactor)
}

fn event(event_type: &str, data: &str) -> NewEvent {
    NewEvent::named(event_type, JsonText::parse(data).unwrap())
}

fn log(events: Vec<NewEvent>) -> Vec<Event> {
    events.into_iter().zip(0..).map(|(event, seq)| event.at(seq, 1_700_000_000_000)).collect()
}

fn data(own: &[&str], text: &str) -> String {
    let (events, _) = redact(own, log(vec![event("app/x", text)]));
    events[0].data().into_owned()
}

#[test]
fn n2_what_looks_like_a_secret_goes_and_its_surroundings_stay() {
    let mut redactor = Redactor::new(&[]).unwrap();
    for (text, expected) in [
        ("mail jane.doe+x@mail.example.org now", "mail [redacted:email:1] now"),
        (
            "cd /home/jane/src && ls /Users/Jane Doe/x",
            "cd /home/[redacted:home:2]/src && ls /Users/[redacted:home:3] Doe/x",
        ),
        (r"C:\Users\jane\x and C:\\Users\\jane", r"C:\Users\[redacted:home:2]\x and C:\\Users\\[redacted:home:2]"),
        ("key sk-ant-api03-abcdefghijklmnopqrstuvwx.", "key [redacted:token:4]."),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "[redacted:token:5]"),
        ("AKIAABCDEFGHIJKLMNOP", "[redacted:token:6]"),
        ("Authorization: Bearer abcdef0123456789abcdef", "Authorization: Bearer [redacted:token:7]"),
        ("postgres://bob:hunter2@db/x", "postgres://bob:[redacted:password:8]@db/x"),
        ("export API_KEY='s3cr3t-value'; x", "export API_KEY='[redacted:password:9]'; x"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "[redacted:token:10]"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----\nrest",
            "[redacted:private-key:11]\nrest",
        ),
        ("\u{8bf7}jane.doe+x@mail.example.org\u{8c22}", "\u{8bf7}[redacted:email:1]\u{8c22}"),
        ("\u{8bf7}AKIAABCDEFGHIJKLMNOP\u{8c22}", "\u{8bf7}[redacted:token:6]\u{8c22}"),
        ("API_KEY=[redacted:password:9]", "API_KEY=[redacted:password:9]"),
        (
            "no secrets: a@b, sk-short, /home/, 12:30, pk-1, x = y",
            "no secrets: a@b, sk-short, /home/, 12:30, pk-1, x = y",
        ),
    ] {
        assert_eq!(redactor.text(text), expected);
    }
    assert_eq!(redactor.counts().values().sum::<u64>(), 15);
    // Cut off at either end it is a key all the same.
    for cut in
        ["-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG", "MIIEvQIBADANBgkqhkiG\nAAAA\n-----END PRIVATE KEY-----"]
    {
        assert!(!redactor.text(cut).contains("MIIEvQ"), "{cut}");
    }
}

#[test]
fn n4_secrets_are_found_in_what_strings_say_and_cut_out_of_how_they_are_spelled() {
    // The escapes around a secret, numbers, key order and duplicates stay as they are.
    assert_eq!(
        data(&[], r#"{"b":1e5,"a":"\u00e9\ud800 <jane@x.org>\n","a":[1.50,"jane@x.org"]}"#),
        r#"{"b":1e5,"a":"\u00e9\ud800 <[redacted:email:1]>\n","a":[1.50,"[redacted:email:1]"]}"#
    );
    assert_eq!(data(&[], r#"["jan\u0065@x\u002eorg"]"#), r#"["[redacted:email:1]"]"#);
    // Names of members count, and what they say about their values.
    assert_eq!(data(&[], r#"{"jane@x.org":1,"joe@x.org":2}"#), r#"{"[redacted:email:1]":1,"[redacted:email:2]":2}"#);
    assert_eq!(
        data(&[], r#"{"password":"abc","max_tokens":"9","x-api-key":["k"],"passwords":{"note":"n"}}"#),
        r#"{"password":"[redacted:password:1]","max_tokens":"9","x-api-key":["[redacted:password:2]"],"passwords":{"note":"n"}}"#
    );
    // JSON in a string, in a string.
    let inner = r#"{"to":"j\u0061ne@x.org","pem":"-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n"}"#;
    let middle = Value::from(format!("{{\"args\":{}}}", Value::from(inner))).to_string();
    let outer = data(&[], &format!("{{\"arguments\":{middle}}}"));
    assert!(!outer.contains("MIIE") && !outer.contains("ne@x"), "{outer}");
    let middle: Value =
        serde_json::from_str(serde_json::from_str::<Value>(&outer).unwrap()["arguments"].as_str().unwrap()).unwrap();
    let inner: Value = serde_json::from_str(middle["args"].as_str().unwrap()).unwrap();
    assert_eq!(inner["to"], "[redacted:email:1]");
    assert_eq!(inner["pem"], "[redacted:private-key:2]\n");
    // The user's own patterns, also across what only looks like an escape.
    assert_eq!(
        data(&["ACME-([0-9]+)", "Zeus"], r#"{"Zeus":"ACME-17"}"#),
        r#"{"[redacted:pattern:1]":"ACME-[redacted:pattern:2]"}"#
    );
    assert!(Redactor::new(&["(".to_owned()]).unwrap_err().to_string().contains("\"(\""));
}

fn delta(index: u64, text: &str) -> NewEvent {
    event(
        "assistant/chunk",
        &format!(r#"{{"turn":1,"step":1,"chunk":{{"type":"text-delta","index":{index},"text":"{text}"}}}}"#),
    )
}

fn texts(events: &[Event]) -> Vec<String> {
    let text = |event: &Event| event.json().member("chunk")?.member("text")?.read().ok();
    events.iter().filter_map(text).collect()
}

#[test]
fn a_secret_that_spans_deltas_is_cut_from_each_of_them() {
    let (events, redactor) =
        redact(&[], log(["to ja", "ne", "@x.", "org", "!", "ok"].map(|text| delta(0, text)).to_vec()));
    assert_eq!(texts(&events), ["to [redacted:email:1]", "", "", "", "!", "ok"]);
    assert_eq!(redactor.counts()["email"], 1);
    // Blocks that stream side by side, other events in between, an escape that is cut apart, a delta with more members.
    let odd = delta(0, "rg").data.as_str().replace("\"text\":", "\"x\":[1.50],\"text\":");
    let events = log(vec![
        delta(0, "jane"),
        delta(1, "a"),
        event("app/note", r#"{"n":"joe@x.org"}"#),
        delta(0, r"\u0040x"),
        delta(1, "b"),
        delta(0, ".o"),
        event("assistant/chunk", &odd),
        delta(1, r"\ud83d"),
        event("step/end", r#"{"turn":1,"step":1}"#),
        delta(0, "jane"),
    ]);
    let (redacted, _) = redact(&[], events.clone());
    assert_eq!(texts(&redacted), ["[redacted:email:1]", "a", "", "b", "", "", "\u{fffd}", "jane"].map(str::to_owned));
    assert!(redacted[6].data().contains(r#""x":[1.50],"text":"""#), "{}", redacted[6].data());
    assert_eq!(redacted[7], events[7]);
    // Arguments of a call are JSON in the making.
    let call = |text: &str| {
        event(
            "assistant/chunk",
            &format!(
                r#"{{"turn":1,"step":1,"chunk":{{"type":"tool-call-delta","index":0,"id":"c","argumentsDelta":"{text}"}}}}"#
            ),
        )
    };
    let (events, _) = redact(&[], log([r#"{\"a\":\"\\u00"#, r"6aane@", r#"x.org\"}"#].map(call).to_vec()));
    let joined: String = events
        .iter()
        .map(|event| {
            serde_json::from_str::<Value>(&event.data()).unwrap()["chunk"]["argumentsDelta"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(joined, r#"{"a":"[redacted:email:1]"}"#);
}

#[test]
fn a_stream_too_large_to_hold_loses_its_text_rather_than_a_secret() {
    let long = "x".repeat(200_000);
    let mut events: Vec<NewEvent> =
        (0..200).map(|number| delta(0, if number == 150 { "jane" } else { &long })).collect();
    events.insert(151, delta(0, "@x.org"));
    events.push(event("step/end", r#"{"turn":1,"step":1}"#));
    events.push(delta(0, "free again"));
    let (redacted, redactor) = redact(&[], log(events));
    assert_eq!(redactor.emptied_deltas(), 201);
    assert_eq!(redacted.len(), 203);
    let texts = texts(&redacted);
    assert!(texts[..201].iter().all(String::is_empty) && texts[201] == "free again");
}

#[test]
fn a_log_without_secrets_passes_unchanged() {
    for recording in [Recording::new(5).events(6_000), Recording::new(6).events(6_000).compacting()] {
        let events: Vec<Event> = recording.iter().collect();
        let (redacted, redactor) = redact(&["never-there-[0-9]"], events.clone());
        assert_eq!(redactor.counts().values().sum::<u64>(), 0, "{:?}", redactor.counts());
        assert_eq!(redacted, events);
    }
}

#[test]
fn headers_and_types_are_redacted_too() {
    let mut redactor = Redactor::new(&[]).unwrap();
    let mut header = SessionHeader::new("jane@x.org").created_at(5).cwd("/home/jane/p");
    header.extra.push(("token-of".to_owned(), JsonText::parse(r#"{"joe@x.org":[1.0]}"#).unwrap()));
    header.extra.push(("api_key".to_owned(), JsonText::parse("\"k\"").unwrap()));
    assert_eq!(
        redactor.header(&header).to_line(),
        r#"{"type":"session","version":1,"id":"[redacted:email:1]","createdAt":5,"cwd":"/home/[redacted:home:2]/p","token-of":{"[redacted:email:3]":[1.0]},"api_key":"[redacted:password:4]"}"#
    );
    let (events, _) = redact(&[], log(vec![event("app/jane@x.org", "1").ignorable()]));
    assert_eq!(
        events[0].to_line(),
        r#"{"type":"app/[redacted:email:1]","seq":0,"time":1700000000000,"data":1,"ignorable":true}"#
    );
}

/// A secret that the built-in patterns or the test's own one know.
fn secret() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{3,9}\\.[a-z]{3,9}@[a-z]{4,9}\\.(org|com)",
        "sk-[A-Za-z0-9]{24}",
        "ghp_[A-Za-z0-9]{36}",
        "AKIA[A-Z0-9]{16}",
        "PLANT<[a-z\"\\\\/\n\u{e9}\u{1f680}]{6,12}>",
        "[A-Za-z0-9+/]{64}\n[A-Za-z0-9+/]{20}"
            .prop_map(|body| format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----")),
    ]
}

/// A JSON string that says `text`, with some letters escaped that need not be.
fn spelled(text: &str, escape: &[bool]) -> String {
    let mut out = String::from("\"");
    for (letter, escaped) in text.chars().zip(escape.iter().cycle()) {
        let plain = Value::from(letter.to_string()).to_string();
        if *escaped {
            letter.encode_utf16(&mut [0; 2]).iter().for_each(|unit| write!(out, "\\u{unit:04x}").unwrap());
        } else {
            out.push_str(&plain[1..plain.len() - 1]);
        }
    }
    out.push('"');
    out
}

/// Everything that a JSON text says at any level of strings in strings.
fn says(text: &str, depth: u8, out: &mut Vec<String>) {
    fn walk(value: &Value, depth: u8, out: &mut Vec<String>) {
        match value {
            Value::String(text) => {
                out.push(text.clone());
                if depth > 0 {
                    says(text, depth - 1, out);
                }
            }
            Value::Array(values) => values.iter().for_each(|value| walk(value, depth, out)),
            Value::Object(members) => members.iter().for_each(|(name, value)| {
                out.push(name.clone());
                walk(value, depth, out);
            }),
            _ => {}
        }
    }
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        walk(&value, depth, out);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn n3_no_planted_secret_is_left_in_any_form(
        secret in secret(),
        escape in proptest::collection::vec(any::<bool>(), 1..8),
        levels in 0_u8..3,
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..5),
        around in "[ ,;()]{1,3}",
    ) {
        let sentence = format!("before{around}{secret}{around}after");
        let mut nested = spelled(&sentence, &escape);
        for _ in 0..levels {
            nested = spelled(&format!("{{\"k\":{nested}}}"), &[false]);
        }
        let name = spelled(&secret, &escape);
        // The same sentence cut into deltas at any letter.
        let letters: Vec<char> = sentence.chars().collect();
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(letters.len())).collect();
        places.extend([0, letters.len()]);
        places.sort_unstable();
        let pieces = places.windows(2).map(|pair| spelled(&letters[pair[0]..pair[1]].iter().collect::<String>(), &escape));
        let mut events = vec![
            event("app/x", &format!("{{\"v\":{nested},{name}:1.50}}")),
            event("user/message", &format!(r#"{{"id":"m","role":"user","content":[{{"type":"text","text":{nested}}}],"source":{{"kind":"user"}}}}"#)).placed(Placement::append()),
        ];
        events.extend(pieces.map(|piece| delta(0, &piece[1..piece.len() - 1])));
        events.push(event("app/keep", "{\"b\":1.50,\"a\":\"\\u00e9\\ud800\"}"));
        let events = log(events);
        let (redacted, redactor) = redact(&["PLANT<[^>]*>"], events.clone());
        prop_assert!(redactor.counts().values().sum::<u64>() >= 4);
        prop_assert_eq!(redacted.len(), events.len());
        prop_assert_eq!(redacted.last(), events.last(), "what holds no secret is the same bytes");
        let mut lines = JsonlWriter::new(Vec::new(), &SessionHeader::new("s").created_at(1)).unwrap();
        let mut rows = DshWriter::new(Vec::new(), &SessionHeader::new("s").created_at(1)).unwrap();
        for event in &redacted {
            lines.event(event).unwrap();
            rows.event(event).unwrap();
        }
        let smooth = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        for output in [smooth(lines.finish().unwrap()), smooth(rows.finish().unwrap())] {
            // It reads back as the same events, so it is valid through and through.
            let again: Vec<Event> = Import::open(output.as_bytes(), ImportOptions::default()).unwrap().events().collect::<Result<_, _>>().unwrap();
            prop_assert_eq!(&again, &redacted);
            let mut said = vec![output.clone()];
            output.lines().for_each(|line| says(&line.replace("\\ud800", ""), 4, &mut said));
            let mut streams: HashMap<String, String> = HashMap::new();
            for event in &again {
                let data = event.data().replace("\\ud800", "");
                says(&data, 4, &mut said);
                let chunk = &serde_json::from_str::<Value>(&data).unwrap()["chunk"];
                streams.entry(chunk["index"].to_string()).or_default().push_str(chunk["text"].as_str().unwrap_or_default());
            }
            said.extend(streams.into_values());
            prop_assert!(said.iter().all(|text| !text.contains(&secret)), "{secret:?} is in {output}");
        }
        // The words around it are all there.
        let message = redacted[1].data();
        prop_assert!(message.contains("before") || escape.contains(&true), "{message}");
    }
}
