//! Round trips over generated logs: lines, rows, zstd in any framing, and every way of cutting and mixing them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::io::{self, Read};

use proptest::prelude::*;
use sessionlog::event::{Batch, Event, Item, JsonText, NewEvent, Placement, SessionHeader};
use sessionlog::interop::{DshWriter, Import, ImportError, ImportOptions, JsonlWriter};
use sessionlog::sample::Recording;
use sessionlog::session::invariants::first_violation;
use sessionlog::session::{Session, SessionOptions};

fn import(input: impl Read) -> Result<(Vec<Event>, SessionHeader), ImportError> {
    let mut import = Import::open(input, ImportOptions::default())?;
    let events = import.events().collect::<Result<Vec<_>, _>>()?;
    Ok((events, import.header().clone()))
}

/// What there is to say of a log, without its bytes: items, what was odd, and the fault.
fn read(bytes: &[u8]) -> (Vec<Item>, [u64; 4], Option<String>) {
    let told = |error: ImportError| {
        Some(format!("{} in line {}, seq {:?}, behind {}", error.class(), error.line, error.seq, error.intact))
    };
    let mut import = match Import::open(bytes, ImportOptions::default()) {
        Ok(import) => import,
        Err(error) => return (Vec::new(), [0; 4], told(error)),
    };
    let mut items = Vec::new();
    let fault = loop {
        match import.next_item() {
            Ok(Some(item)) => items.push(item),
            Ok(None) => break None,
            Err(error) => break told(error),
        }
    };
    let report = import.report();
    (items, [report.events, report.lines, report.overlaps_dropped, u64::from(report.unterminated_last_line)], fault)
}

fn header() -> SessionHeader {
    SessionHeader::new("s").created_at(5).subagent("p", 0)
}

/// String bodies with letters of every width, escapes, and now and then a lone surrogate.
fn body() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => "[a-z \u{e9}\u{4f60}\u{2028}\u{1f680}]{0,6}",
        2 => proptest::sample::select(vec![r"\n", r#"\""#, r"\\", r"\u00e9", r"\ud83d\ude80", r"\u0000", "\\/"])
            .prop_map(str::to_owned),
        1 => Just(r"\ud800".to_owned()),
    ]
}

fn delta() -> impl Strategy<Value = String> {
    (0_u8..4, 0_u8..2, body()).prop_map(|(kind, index, body)| {
        let chunk = match kind {
            0 => format!(r#""type":"text-delta","index":{index},"text":"{body}""#),
            1 => format!(r#""type":"reasoning-delta","index":{index},"text":"{body}""#),
            2 => format!(r#""type":"tool-call-delta","index":{index},"id":"c","argumentsDelta":"{body}""#),
            _ => format!(r#""type":"tool-call-delta","index":{index},"id":"c","name":"n","argumentsDelta":"{body}""#),
        };
        format!(r#"{{"turn":1,"step":1,"chunk":{{{chunk}}}}}"#)
    })
}

fn any_event() -> impl Strategy<Value = NewEvent> {
    let named = |name: &'static str, data: String| NewEvent::named(name, JsonText::parse(&data).unwrap());
    prop_oneof![
        12 => delta().prop_map(move |data| named("assistant/chunk", data)),
        2 => body().prop_map(move |body| named("app/x", format!("{{\"t\":\"{body}\",\"t\":1.50,\"n\":1e5}}"))),
        1 => Just(named("app/y", "null".to_owned()).ignorable()),
        1 => body().prop_map(move |body| {
            let data = format!(r#"{{"id":"{body}","role":"user","content":[],"source":{{"kind":"user"}}}}"#);
            named("user/message", data).placed(Placement::append())
        }),
        1 => Just(named("turn/end", r#"{"turn":1,"reason":{"kind":"completed"}}"#.to_owned())),
    ]
}

/// Runs are likely: each drawn event stands up to six times, at drifting times.
fn events() -> impl Strategy<Value = Vec<Event>> {
    let stretch = (any_event(), 1_usize..7, proptest::collection::vec(-30_i64..60, 6));
    (proptest::collection::vec(stretch, 1..40), -5_i64..2_000_000_000_000).prop_map(|(stretches, start)| {
        let mut time = start;
        let mut log: Vec<Event> = Vec::new();
        for (new, times, gaps) in stretches {
            for gap in gaps.into_iter().take(times) {
                time += gap;
                log.push(new.clone().at(log.len() as u64, time));
            }
        }
        log
    })
}

fn lines(events: &[Event]) -> Vec<u8> {
    let mut writer = JsonlWriter::new(Vec::new(), &header()).unwrap();
    for event in events {
        writer.event(event).unwrap();
    }
    writer.finish().unwrap()
}

fn rows(events: &[Event]) -> Vec<u8> {
    let mut writer = DshWriter::new(Vec::new(), &header()).unwrap();
    for event in events {
        writer.event(event).unwrap();
    }
    writer.finish().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn e1_events_written_as_lines_read_back_identically(events in events()) {
        let (again, again_header) = import(lines(&events).as_slice()).unwrap();
        prop_assert_eq!(again.iter().map(Event::to_line).collect::<Vec<_>>(), events.iter().map(Event::to_line).collect::<Vec<_>>());
        prop_assert_eq!(again_header, header());
    }

    /// A line in its usual spelling takes a short way in; whatever it says, the long way comes to the same.
    #[test]
    fn lines_of_any_spelling_come_to_the_same(events in events(), at in any::<prop::sample::Index>(), byte in proptest::option::of(any::<u8>()), again in proptest::option::of(any::<prop::sample::Index>())) {
        let mut usual = lines(&events);
        if let Some(byte) = byte {
            let place = at.index(usual.len());
            usual[place] = byte;
        }
        if let Some(again) = again {
            let mut split: Vec<&[u8]> = usual.split_inclusive(|byte| *byte == b'\n').collect();
            let place = again.index(split.len());
            split.insert(place, split[place]);
            usual = split.concat();
        }
        let mut spaced = Vec::new();
        for line in usual.split_inclusive(|byte| *byte == b'\n') {
            match line.split_first() {
                Some((b'{', rest)) => spaced.extend([b"{ ", rest].concat()),
                _ => spaced.extend(line),
            }
        }
        prop_assert_eq!(read(&usual), read(&spaced));
    }

    #[test]
    fn p3_events_written_as_rows_read_back_identically(events in events()) {
        let written = rows(&events);
        let (again, _) = import(written.as_slice()).unwrap();
        prop_assert_eq!(&again, &events);
        prop_assert_eq!(rows(&again), written);
    }

    #[test]
    fn a16_any_zstd_framing_reads_the_same(events in events(), cuts in proptest::collection::vec(1_usize..400, 1..30), skip in any::<bool>()) {
        let text = rows(&events);
        let mut packed = Vec::new();
        let mut rest = text.as_slice();
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (frame, tail) = rest.split_at(rest.len().min(*cut));
            packed.extend(zstd::encode_all(frame, 3).unwrap());
            if skip {
                packed.extend([0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]);
                packed.extend(zstd::encode_all(io::empty(), 3).unwrap());
            }
            rest = tail;
        }
        prop_assert_eq!(import(packed.as_slice()).unwrap().0, events.clone());
        prop_assert_eq!(import(Trickle(packed.as_slice())).unwrap().0, events);
    }

    #[test]
    fn d_damage_anywhere_is_a_typed_error_or_leaves_a_readable_log(events in events(), at in any::<prop::sample::Index>(), byte in any::<u8>(), zipped in any::<bool>()) {
        let mut bytes = rows(&events);
        if zipped {
            bytes = zstd::encode_all(bytes.as_slice(), 3).unwrap();
        }
        let place = at.index(bytes.len());
        bytes[place] = byte;
        if let Ok(mut import) = Import::open(bytes.as_slice(), ImportOptions::default()) {
            let mut count = 0;
            for event in import.events() {
                match event {
                    Ok(event) => {
                        prop_assert_eq!(event.seq(), count);
                        count += 1;
                    }
                    Err(error) => prop_assert_eq!(error.intact, count),
                }
            }
        }
    }
}

/// A log of format 0 with every old shape in it.
const OLD: &str = concat!(
    r#"{"type":"session","id":"old","createdAt":5}"#,
    "\n",
    r#"{"type":"turn/start","data":{"turn":1,"trigger":{"kind":"message"}}}"#,
    "\n",
    r#"{"type":"context/message","data":{"content":[{"type":"text","text":"\u00e9"}],"source":{"kind":"x"},"meta":{}}}"#,
    "\n",
    r#"{"type":"text-chunks","data":{"turn":1,"step":1,"index":0,"dt":[1,2],"texts":["a","\ud800","c"]}}"#,
    "\n",
    r#"{"type":"assistant/message","data":{"turn":1,"step":1,"content":[],"provenance":{"provider":"p","model":"m"}}}"#,
    "\n",
    r#"{"type":"tool/result","data":{"turn":1,"step":1,"callId":"c","content":[],"isError":false,"meta":[1]}}"#,
    "\n",
    r#"{"type":"turn/end","data":{"turn":1,"reason":{"kind":"error","step":1,"message":"m"}}}"#,
    "\n",
);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn n3_a_damaged_old_log_is_a_typed_error_or_upgrades(at in any::<prop::sample::Index>(), piece in "[ -~]{0,3}", width in 0_usize..4) {
        let place = at.index(OLD.len());
        let mut bytes = OLD.as_bytes().to_vec();
        bytes.splice(place..(place + width).min(OLD.len()), piece.bytes());
        if let Ok((events, header)) = import(bytes.as_slice()) {
            let mut writer = JsonlWriter::new(Vec::new(), &header).unwrap();
            for event in &events {
                writer.event(event).unwrap();
            }
            prop_assert_eq!(import(writer.finish().unwrap().as_slice()).unwrap(), (events, header));
        }
    }
}

/// Gives out one byte a read.
struct Trickle<'a>(&'a [u8]);

impl Read for Trickle<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = out.len().min(1);
        self.0.read(&mut out[..count])
    }
}

#[test]
fn d7_a_log_of_a_hundred_thousand_tiny_frames_streams() {
    let recording = Recording::new(11).events(3_000);
    let text = recording.write_jsonl(Vec::new()).unwrap();
    let mut packed = Vec::new();
    let mut frames = 0;
    let mut compressor = zstd::bulk::Compressor::new(1).unwrap();
    for piece in text.chunks(text.len() / 100_000) {
        packed.extend(compressor.compress(piece).unwrap());
        frames += 1;
    }
    assert!(frames >= 100_000);
    let (events, _) = import(packed.as_slice()).unwrap();
    assert!(events.into_iter().eq(recording.iter()));
}

#[test]
fn a_zstd_log_cut_at_any_byte_keeps_the_events_before() {
    let recording = Recording::new(12).events(40);
    let text = recording.write_jsonl(Vec::new()).unwrap();
    let packed: Vec<u8> =
        text.split_inclusive(|byte| *byte == b'\n').flat_map(|line| zstd::encode_all(line, 3).unwrap()).collect();
    let whole: Vec<Event> = recording.iter().collect();
    for cut in (0..packed.len()).step_by(7) {
        let (mut count, mut failed) = (0, None);
        match Import::open(&packed[..cut], ImportOptions::default()) {
            Err(error) => failed = Some(error),
            Ok(mut import) => {
                for event in import.events() {
                    match event {
                        Ok(event) => {
                            assert_eq!(event, whole[count]);
                            count += 1;
                        }
                        Err(error) => failed = Some(error),
                    }
                }
            }
        }
        // Only between two frames does a cut log look whole.
        match failed {
            None => assert!(count > 0),
            Some(error) => {
                assert!(matches!(error.class(), "zstd" | "empty" | "cut-line"), "cut at {cut}: {error}");
                assert_eq!(error.intact, count as u64);
            }
        }
    }
}

#[test]
fn a_recording_survives_every_form() {
    for recording in [Recording::new(5), Recording::new(6).compacting()] {
        let events: Vec<Event> = recording.iter().collect();
        let lines = recording.write_jsonl(Vec::new()).unwrap();
        let rows = recording.write_dsh(Vec::new()).unwrap();
        assert!(rows.len() * 2 < lines.len());
        let (from_lines, header) = import(lines.as_slice()).unwrap();
        assert_eq!(header, recording.header());
        let (from_rows, header) = import(rows.as_slice()).unwrap();
        assert_eq!(header.delegation_depth, Some(0));
        assert!(from_lines == events && from_rows == events);
    }
}

#[test]
fn recordings_keep_every_rule_of_the_model() {
    for recording in [Recording::new(8).events(60_000), Recording::new(9).events(60_000).compacting()] {
        let items = Batch::pack(recording.iter()).unwrap().into_items();
        assert_eq!(first_violation(&items).unwrap(), None);
        let session = Session::view(recording.header(), items, SessionOptions::default()).unwrap();
        assert!(session.messages().len() > 10);
    }
}
