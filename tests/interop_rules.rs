//! What an import accepts, fills and refuses, rule by rule.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::io::{self, Read};

use sessionlog::event::{Event, Item};
use sessionlog::interop::{Import, ImportError, ImportErrorKind, ImportOptions, ImportReport};

const HEADER: &str = r#"{"type":"session","version":0,"id":"s-1","createdAt":100,"cwd":"/w","delegationDepth":0}"#;

/// A log of format 0 with these lines behind its header.
fn log(lines: &[&str]) -> String {
    let mut text = format!("{HEADER}\n");
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
    text
}

fn import(text: impl AsRef<[u8]>) -> Result<(Vec<Event>, ImportReport), ImportError> {
    let (events, report, failed) = read(text.as_ref())?;
    failed.map_or(Ok((events, report)), Err)
}

/// The events before a fault, and the fault.
fn read(bytes: &[u8]) -> Result<(Vec<Event>, ImportReport, Option<ImportError>), ImportError> {
    let mut import = Import::open(bytes, ImportOptions::default().file("log.jsonl"))?;
    let mut events = Vec::new();
    let mut failed = None;
    for event in import.events() {
        match event {
            Ok(event) => events.push(event),
            Err(error) => failed = Some(error),
        }
    }
    let report = import.report().clone();
    assert_eq!(report.events, events.len() as u64);
    Ok((events, report, failed))
}

fn refusal(text: impl AsRef<[u8]>) -> ImportError {
    import(text).expect_err("refused")
}

fn event(seq: u64) -> String {
    format!(r#"{{"type":"app/x","seq":{seq},"time":{seq},"data":{{"n":{seq}}}}}"#)
}

fn row(seq: u64, texts: &str, gaps: &str) -> String {
    format!(
        r#"{{"type":"text-chunks","seq0":{seq},"time0":50,"data":{{"turn":1,"step":1,"index":0,"dt":{gaps},"texts":{texts}}}}}"#
    )
}

#[test]
fn e1_lines_split_at_line_feeds_only_and_payloads_stay_byte_for_byte() {
    let odd =
        "{\"type\":\"app/x\",\"seq\":0,\"time\":1,\"data\":{\"b\":\"\u{2028}\u{85}\\ud800\",\"a\":1e5,\"a\":[1.0]}}";
    let last = odd.replace("\"seq\":0", "\"seq\":1");
    let (events, report) = import(log(&[odd, &last])).unwrap();
    assert_eq!(events.iter().map(Event::to_line).collect::<Vec<_>>(), [odd, &last]);
    assert!(report.is_verbatim());
}

#[test]
fn f_byte_order_mark_crlf_and_blank_lines_are_passed_over_and_counted() {
    let text = format!("\u{feff}{HEADER}\r\n\r\n  \n{}\r\n\n{}", event(0), event(1));
    let (events, report) = import(&text).unwrap();
    assert_eq!((events.len(), report.lines, report.blank_lines, report.crlf_lines), (2, 6, 3, 3));
    assert!(report.byte_order_mark && report.unterminated_last_line);
    assert_eq!((report.bytes_in, report.bytes_decoded), (text.len() as u64, text.len() as u64));
    // A second mark is no white space.
    assert_eq!(refusal(format!("\u{feff}\u{feff}{HEADER}\n")).class(), "json");
}

#[test]
fn files_that_are_no_logs_are_refused_for_what_they_are() {
    for (bytes, class) in [
        (&b""[..], "empty"),
        (b"\n \r\n\t\n", "empty"),
        (b"\xef\xbb\xbf", "empty"),
        (b"hello\n", "json"),
        (b"\x89PNG\r\n\x1a\n", "utf8"),
        (b"\0\0\0\0", "nul-run"),
        (b"{\"a\":1}\n", "no-header"),
        (b"[1]\n", "no-header"),
        (b"7", "no-header"),
        (b"{\"type\":\"session\"}\n", "header"),
        (b"{\"type\":\"session\",\"id\":7}\n", "header"),
        (b"{\"type\":\"session\",\"id\":\"a\",\"version\":\"x\"}\n", "header"),
        (b"{\"type\":\"session\",\"id\":\"a\",\"createdAt\":-1}\n", "header"),
        (b"{\"type\":\"session\",\"id\":\"a", "cut-line"),
        (b"{\"type\":\"session\",\"id\":\"\xc3", "cut-line"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\x28\xb5\x2f\xfdnonsense that is no frame", "zstd"),
    ] {
        let error = refusal(bytes);
        assert_eq!((error.class(), error.intact, error.file.as_deref()), (class, 0, Some("log.jsonl")), "{error}");
    }
    let error = refusal(format!("{}\n", event(1)));
    assert_eq!((error.class(), error.seq, error.line), ("no-header", Some(1), 1));
    assert!(error.to_string().contains("event 1 of type \"app/x\""), "{error}");
}

#[test]
fn l4_a_header_alone_is_a_session_that_was_never_used() {
    let mut import = Import::open(&b"{\"type\":\"session\",\"id\":\"a\"}\n"[..], ImportOptions::default()).unwrap();
    assert!(import.next_item().unwrap().is_none());
    assert_eq!((import.header().created_at, import.report().events), (Some(0), 0));
}

#[test]
fn n2_a_newer_version_is_told_before_anything_else() {
    let error =
        refusal("{\"type\":\"session\",\"version\":2,\"id\":\"s-9\",\"createdAt\":\"tomorrow\",\"id\":7}\nnonsense\n");
    assert!(matches!(*error.kind, ImportErrorKind::NewerVersion { found: 2 }), "{error}");
    assert!(error.to_string().contains("newer version") && error.to_string().contains("upgrade sessionlog"));
}

#[test]
fn n3_a_header_without_version_depth_or_creation_time_is_filled() {
    let text = format!(
        "{{\"type\":\"session\",\"id\":\"a\",\"cwd\":\"{{{{cwd}}}}/x\"}}\n{}\n",
        event(0).replace("\"time\":0", "\"time\":9")
    );
    let mut import = Import::open(text.as_bytes(), ImportOptions::default().id("b")).unwrap();
    assert_eq!(
        import.header().to_line(),
        r#"{"type":"session","version":1,"id":"b","createdAt":9,"cwd":"{{cwd}}/x","delegationDepth":0}"#
    );
    assert_eq!(import.events().count(), 1);
    let report = import.report();
    assert!(report.filled_version && report.filled_delegation_depth && report.filled_created_at && report.relative_cwd);
    assert!(Import::open(text.as_bytes(), ImportOptions::default().id("x".repeat(2_000))).is_err());
    // A current header states what it states.
    let text = format!("{{\"type\":\"session\",\"version\":1,\"id\":\"a\",\"createdAt\":5}}\n{}\n", event(0));
    let import = Import::open(text.as_bytes(), ImportOptions::default()).unwrap();
    assert_eq!(import.header().to_line(), r#"{"type":"session","version":1,"id":"a","createdAt":5}"#);
    assert!(import.report().is_verbatim());
}

#[test]
fn n3_missing_seqs_and_times_take_position_and_creation_time() {
    let lines = [
        r#"{"type":"app/x","data":1}"#,
        r#"{"type":"text-chunks","data":{"turn":1,"step":1,"index":0,"dt":[5,-2],"texts":["a","b","c"]}}"#,
        r#"{"type":"app/x","seq":4,"time":7,"data":2}"#,
        r#"{"type":"app/x","data":3}"#,
    ];
    let (events, report) = import(log(&lines)).unwrap();
    let places: Vec<_> = events.iter().map(|event| (event.seq(), event.time())).collect();
    assert_eq!(places, [(0, 100), (1, 100), (2, 105), (3, 103), (4, 7), (5, 100)]);
    assert_eq!((report.filled_seq, report.filled_time, report.rows), (5, 5, 1));
    let error = refusal(log(&[lines[0], r#"{"type":"app/x","seq":3,"time":7,"data":2}"#]));
    assert!(error.to_string().contains("expected 1, got 3"), "{error}");
}

#[test]
fn n3_missing_surface_ops_are_filled_only_where_none_is_recorded() {
    let message = |seq: u64, op: &str| {
        format!(
            r#"{{"type":"user/message","seq":{seq},"time":1,"data":{{"id":"m","role":"user","content":[],"source":{{"kind":"user"}}}}{op}}}"#
        )
    };
    let with = ",\"surfaceOp\":\"append\"";
    let (events, report) = import(log(&[&message(0, ""), &event(1), &message(2, "")])).unwrap();
    assert_eq!((report.filled_surface_op, report.upgraded.total()), (2, 0));
    assert!(events[2].to_line().ends_with(",\"surfaceOp\":\"append\"}"));
    for (first, second) in [("", with), (with, "")] {
        let error = refusal(log(&[&message(0, first), &message(1, second)]));
        assert_eq!((error.class(), error.seq, error.intact), ("surface", Some(1), 1), "{error}");
        assert!(error.to_string().contains("seq 0"), "{error}");
    }
    // Format 1 fills nothing.
    let text = log(&[&message(0, "")]).replace("\"version\":0", "\"version\":1");
    assert_eq!(refusal(text).class(), "surface");
}

#[test]
fn p3_rows_expand_to_their_deltas_and_join_across_lines() {
    let lines =
        [row(0, r#"["a","\n","\u00e9"]"#, "[3,-9]"), row(3, r#"["x"]"#, "[]"), row(4, r#"["\ud800","y"]"#, "[0]")];
    let text = log(&lines.each_ref().map(String::as_str));
    let (events, report) = import(&text).unwrap();
    let data =
        |text: &str| format!(r#"{{"turn":1,"step":1,"chunk":{{"type":"text-delta","index":0,"text":"{text}"}}}}"#);
    let expected: Vec<_> = [("a", 50), (r"\n", 53), (r"\u00e9", 44), ("x", 50), (r"\ud800", 50), ("y", 50)]
        .iter()
        .map(|(text, time)| (data(text), *time))
        .collect();
    assert_eq!(events.iter().map(|event| (event.data().into_owned(), event.time())).collect::<Vec<_>>(), expected);
    assert_eq!((report.rows, report.events), (3, 6));
    let mut import = Import::open(text.as_bytes(), ImportOptions::default()).unwrap();
    let lengths: Vec<_> = std::iter::from_fn(|| import.next_item().unwrap())
        .map(|item| (matches!(item, Item::Run(_)), item.next_seq() - item.first_seq()))
        .collect();
    assert_eq!(lengths, [(true, 4), (false, 1), (false, 1)], "the lone surrogate stands alone");
    let mut import = Import::open(text.as_bytes(), ImportOptions::default()).unwrap();
    let batch = import.next_batch(1 << 20).unwrap().unwrap();
    assert_eq!((batch.first_seq(), batch.next_seq()), (0, 6));
    assert!(import.next_batch(1).unwrap().is_none());
}

#[test]
fn p3_a_malformed_row_is_an_error_and_never_an_event() {
    let good = row(0, r#"["a","b"]"#, "[1]");
    for (from, to) in [
        ("[1]", "[1,2]"),
        ("[1]", "[]"),
        ("[1]", "[1.5]"),
        ("[1]", "[9007199254740991]"),
        ("[1]", "7"),
        ("[\"a\",\"b\"]", "[]"),
        ("[\"a\",\"b\"]", "[\"a\",7]"),
        ("[\"a\",\"b\"]", "\"ab\""),
        ("\"seq0\":0", "\"seq0\":-1"),
        ("\"seq0\":0", "\"seq\":0"),
        ("\"seq0\":0", "\"seq0\":0,\"seq0\":0"),
        ("\"time0\":50", "\"time0\":\"x\""),
        ("\"time0\":50", "\"time0\":50,\"ignorable\":true"),
        ("\"turn\":1", "\"turn\":-1"),
        ("\"turn\":1,", ""),
        ("\"index\":0", "\"index\":0,\"id\":\"c\""),
        ("text-chunks", "tool-call-chunks"),
        ("\"data\":{", "\"data\":[{"),
    ] {
        let bad = good.replacen(from, to, 1);
        let error = refusal(log(&[&event(0), &bad.replacen("\"seq0\":0", "\"seq0\":1", 1)]));
        let class = if to.contains("[{") { "json" } else { "row" };
        assert_eq!((error.class(), error.line, error.intact), (class, 3, 1), "{bad}: {error}");
    }
    let tool = r#"{"type":"tool-call-chunks","seq0":0,"time0":0,"data":{"turn":1,"step":1,"index":0,"dt":[0,0],"id":"c","args":["a","b","c"]}}"#;
    let (events, _) = import(log(&[tool])).unwrap();
    assert_eq!(
        events[2].data(),
        r#"{"turn":1,"step":1,"chunk":{"type":"tool-call-delta","index":0,"id":"c","argumentsDelta":"c"}}"#
    );
}

#[test]
fn b_gaps_and_conflicts_name_what_was_expected_and_identical_overlaps_count_once() {
    let error = refusal(log(&[&event(0), &event(2)]));
    assert_eq!((error.class(), error.seq, error.line, error.intact), ("gap", Some(2), 3, 1));
    assert!(error.to_string().contains("expected 1, got 2"), "{error}");
    let error = refusal(log(&[&event(0), &row(5, r#"["a"]"#, "[]")]));
    assert_eq!((error.class(), error.seq), ("gap", Some(5)));

    let error = refusal(log(&[&event(0), &event(1), &event(0).replace("\"n\":0", "\"n\":7")]));
    assert_eq!((error.class(), error.seq, error.line), ("conflict", Some(0), 4));
    assert!(error.to_string().contains("line 2"), "{error}");
    let error = refusal(log(&[&event(0), &event(1), &event(1).replace("\"time\":1", "\"time\":7")]));
    assert_eq!(error.class(), "conflict");

    // A second writer flushed again what the first had flushed, as a row and as lines, and then went on.
    let delta = r#"{"type":"assistant/chunk","seq":2,"time":51,"data":{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"b"}}}"#;
    let lines = [
        event(0),
        row(1, r#"["a","b","c"]"#, "[1,1]"),
        event(0),
        delta.to_owned(),
        row(1, r#"["a","b","c","d"]"#, "[1,1,1]"),
        event(5),
    ];
    let (events, report) = import(log(&lines.each_ref().map(String::as_str))).unwrap();
    assert_eq!((events.len(), report.overlaps_dropped), (6, 5));
    let error = refusal(log(&[
        &lines[1].replace("\"seq0\":1", "\"seq0\":0"),
        &row(1, r#"["b","x"]"#, "[1]").replace("50", "51"),
    ]));
    assert_eq!((error.class(), error.seq, error.intact), ("conflict", Some(2), 3), "{error}");
}

#[test]
fn b_an_overlap_too_far_back_to_compare_is_refused_as_such() {
    let lines: Vec<String> = (0..66_000).map(event).chain([event(0)]).collect();
    let error = refusal(log(&lines.iter().map(String::as_str).collect::<Vec<_>>()));
    assert_eq!((error.class(), error.seq, error.intact), ("overlap", Some(0), 66_000));
}

#[test]
fn h3_a_second_header_is_refused() {
    let error = refusal(log(&[&event(0), &HEADER.replace("s-1", "s-2"), &event(1)]));
    assert_eq!((error.class(), error.line, error.intact), ("second-header", 3, 1));
    assert!(error.to_string().contains("\"s-2\""), "{error}");
}

#[test]
fn e3_envelopes_and_retired_shapes_are_refused_by_seq() {
    for (bad, class) in [
        (r#"{"type":"app/x","seq":1,"time":1,"data":1,"extra":1}"#, "envelope"),
        (r#"{"type":"app/x","seq":1,"time":1}"#, "envelope"),
        (r#"{"type":"app/x","seq":-1,"time":1,"data":1}"#, "envelope"),
        (r#"{"type":"","seq":1,"time":1,"data":1}"#, "envelope"),
        (r#"{"type":"app/x","seq":1,"time":1,"data":1,"surfaceOp":"append"}"#, "surface"),
        (r#"{"type":"request/header-delta","seq":1,"time":1,"data":{}}"#, "retired"),
        (r#"{"type":"request/header","seq":1,"time":1,"data":{"header":{},"reason":"fallback"}}"#, "retired"),
        (r#"{"type":"assistant/message","seq":1,"time":1,"data":{"content":[]},"surfaceOp":"append"}"#, "upgrade"),
        (r#"["an array"]"#, "json"),
        (r#"{"type":"app/x","seq":1 "time":1}"#, "json"),
        (r#"{"type":"app/x","seq":1,"time":1,"data":{"te{"type":"app/x","seq":1,"time":1,"data":1}"#, "json"),
        (r#"{"type":"app/x","seq":1,"time":1,"da"#, "cut-line"),
    ] {
        let error = refusal(log(&[&event(0), bad, &event(2)]));
        assert_eq!((error.class(), error.line, error.intact), (class, 3, 1), "{bad}: {error}");
        assert_eq!(error.seq, Some(1), "{bad}: {error}");
        assert_eq!(error.offset, (HEADER.len() + 1 + event(0).len() + 1) as u64);
        assert_eq!(error.session.as_deref(), Some("s-1"));
    }
}

#[test]
fn e4_the_validator_of_the_live_log_judges_every_event() {
    let message = |seq: u64, tail: &str| {
        format!(
            r#"{{"type":"user/message","seq":{seq},"time":1,"data":{{"id":"m","role":"user","content":[],"source":{{"kind":"user"}}}},{tail}}}"#
        )
    };
    let first = message(0, r#""surfaceOp":"append""#);
    for (tail, words) in [
        (r#""surfaceOp":{"op":"replace","start":0,"end":0}"#, "sourceEventSeqs does not name"),
        (r#""surfaceOp":{"op":"replace","start":7,"end":7},"sourceEventSeqs":[0]"#, "not on the surface"),
        (r#""surfaceOp":"append","sourceEventSeqs":[0,[0,0]]"#, "twice"),
        (r#""surfaceOp":"append","sourceEventSeqs":[1]"#, "not earlier"),
        (r#""surfaceOp":"append","sourceEventSeqs":[]"#, "empty"),
    ] {
        let error = refusal(log(&[&first, &message(1, tail)]));
        assert_eq!((error.class(), error.seq, error.line, error.intact), ("surface", Some(1), 3, 1), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let ranges = message(1, r#""surfaceOp":{"op":"replace","start":0,"end":0},"sourceEventSeqs":[[0,0]]"#);
    import(log(&[&first, &ranges])).unwrap();
}

#[test]
fn n3_a_flat_tool_result_replaced_by_a_flat_one_passes_the_surface_rules() {
    let flat = |seq: u64, text: &str, tail: &str| {
        format!(
            r#"{{"type":"tool/result","seq":{seq},"time":1,"data":{{"turn":1,"step":1,"callId":"c","content":[{{"type":"text","text":"{text}"}}],"isError":false}},{tail}}}"#
        )
    };
    let original = flat(0, "long", r#""surfaceOp":"append""#);
    let pruned = flat(1, "short", r#""surfaceOp":{"op":"replace","start":0,"end":0},"sourceEventSeqs":[0]"#);
    let again = flat(2, "", r#""surfaceOp":{"op":"replace","start":1,"end":1},"sourceEventSeqs":[1]"#);
    let (events, report) = import(log(&[&original, &pruned, &again])).unwrap();
    assert!(events.iter().all(|event| event.data().contains(r#""id":"s-1#0""#)));
    assert_eq!((report.upgraded.wrapped, report.upgraded.ids), (3, 3));
}

#[test]
fn a5_nul_runs_are_reported_as_what_a_crash_left() {
    let start = log(&[&event(0)]);
    for (middle, length) in
        [("\0".repeat(700), 700), ("\0".repeat(143_000), 143_000), (format!("{}\0", &event(1)[..9]), 1)]
    {
        let lead = middle.find('\0').unwrap();
        for tail in [String::new(), format!("\n{}\n", event(1)), event(1)] {
            let error = refusal(format!("{start}{middle}{tail}"));
            assert!(matches!(*error.kind, ImportErrorKind::NulRun { length: found } if found == length), "{error}");
            assert_eq!((error.offset, error.intact), ((start.len() + lead) as u64, 1));
        }
    }
}

#[test]
fn f9_invalid_utf8_is_refused_with_line_and_offset() {
    let mut bytes = log(&[&event(0), &event(1)]).into_bytes();
    let place = bytes.len() - 5;
    bytes[place] = 0xff;
    let error = refusal(&bytes);
    assert_eq!((error.class(), error.line, error.offset, error.intact), ("utf8", 3, place as u64, 1));
}

#[test]
fn a9_a_log_cut_at_any_byte_is_refused_there_and_everything_before_is_intact() {
    let letters = "{\"type\":\"app/x\",\"seq\":1,\"time\":1,\"data\":\"\u{e9}\u{2028}\u{1f680}\\u00e9\\ud83d\\ude80\"}";
    let text = log(&[&event(0), letters, &row(2, r#"["a","b","\ud800"]"#, "[1,1]"), &event(5)]);
    let (whole, _) = import(&text).unwrap();
    // Where each line ends, and how many events there are by then.
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let counts = [0, 1, 2, 5, 6];
    for cut in 0..text.len() {
        let bytes = &text.as_bytes()[..cut];
        let lines = ends.iter().filter(|end| **end < cut).count();
        let complete = ends.iter().any(|end| *end == cut || *end + 1 == cut) || cut == 0;
        let intact = ends.iter().zip(counts).filter(|(end, _)| **end <= cut).map(|(_, count)| count).max().unwrap_or(0);
        match read(bytes) {
            Ok((events, _, None)) => {
                // Cut behind the header it is a log that was never used.
                assert!(complete, "cut at {cut}");
                assert_eq!(events, whole[..intact]);
            }
            Ok((events, _, Some(error))) => {
                assert_eq!((error.class(), error.intact), ("cut-line", intact as u64), "cut at {cut}: {error}");
                assert_eq!((error.line, error.seq), (lines as u64 + 1, Some(intact as u64)));
                assert_eq!(events, whole[..intact]);
            }
            Err(error) => {
                // No event was reached: nothing at all, a cut header, or a cut first event.
                let class = if cut == 0 { "empty" } else { "cut-line" };
                assert_eq!((error.class(), error.intact, intact), (class, 0, 0), "cut at {cut}: {error}");
            }
        }
    }
}

#[test]
fn d_lines_and_blank_space_are_bounded() {
    let long = format!("{{\"type\":\"app/x\",\"seq\":1,\"time\":1,\"data\":\"{}\"}}", "x".repeat(5_000));
    let text = log(&[&event(0), &long]);
    let mut import = Import::open(text.as_bytes(), ImportOptions::default().max_line_bytes(4_096)).unwrap();
    let error = import.events().find_map(Result::err).unwrap();
    assert_eq!((error.class(), error.line, error.intact), ("too-large", 3, 1));
    let bomb = zstd::encode_all(io::repeat(b'\n').take(66 << 20), 3).unwrap();
    let error = refusal(bomb);
    assert_eq!(error.class(), "too-large", "{error}");
    let spaces = zstd::encode_all(io::repeat(b' ').take(66 << 20), 3).unwrap();
    let options = ImportOptions::default().max_line_bytes(1 << 20);
    assert_eq!(Import::open(spaces.as_slice(), options).err().unwrap().class(), "too-large");
    let packed = zstd::encode_all(log(&[&event(0), &long]).as_bytes(), 3).unwrap();
    let mut import = Import::open(packed.as_slice(), ImportOptions::default().max_decoded_bytes(3_000));
    let error =
        import.as_mut().map_or_else(|error| error.class(), |import| import.next_batch(1 << 20).unwrap_err().class());
    assert_eq!(error, "too-large");
}

#[test]
fn io_errors_keep_their_source_and_the_events_before() {
    struct Failing<'a>(&'a [u8]);
    impl Read for Failing<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Err(io::Error::other("the disk is gone"));
            }
            self.0.read(out)
        }
    }
    let text = log(&[&event(0), &event(1)]);
    let mut import = Import::open(Failing(text.as_bytes()), ImportOptions::default()).unwrap();
    let results: Vec<_> = import.events().collect();
    assert_eq!(results.len(), 3);
    let error = results.into_iter().find_map(Result::err).unwrap();
    assert_eq!((error.class(), error.intact), ("io", 2));
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("the disk is gone"));
    assert!(import.next_item().unwrap().is_none(), "an error is given out once");
}

#[test]
fn g5_empty_and_repeated_call_ids_are_counted_and_kept() {
    let call = |seq: u64, id: &str| {
        format!(
            r#"{{"type":"tool/call","seq":{seq},"time":1,"data":{{"turn":1,"step":1,"callId":{id},"name":"n","arguments":"{{}}"}}}}"#
        )
    };
    let result = |seq: u64, id: &str| {
        format!(
            r#"{{"type":"tool/result","seq":{seq},"time":1,"data":{{"turn":1,"step":1,"message":{{"id":"m","role":"user","content":[{{"type":"tool-result","toolCallId":{id},"content":[]}}],"source":{{"kind":"tool","callId":{id}}}}}}},"surfaceOp":"append"}}"#
        )
    };
    let lines = [
        call(0, r#""a""#),
        call(1, r#""""#),
        call(2, r#""\u0061""#),
        result(3, r#""a""#),
        result(4, r#""""#),
        result(5, r#""a""#),
        r#"{"type":"tool/call","seq":6,"time":1,"data":{"turn":1,"step":1,"callId":"b","name":"n","arguments":{"an":"object"}}}"#
            .to_owned(),
    ];
    let (events, report) = import(log(&lines.each_ref().map(String::as_str))).unwrap();
    assert_eq!(events.iter().map(Event::to_line).collect::<Vec<_>>(), lines);
    assert_eq!((report.empty_call_ids, report.repeated_call_ids), (2, 1));
    // Written twice word for word it is one call.
    let (_, report) = import(log(&[&lines[0], &lines[0]])).unwrap();
    assert_eq!((report.overlaps_dropped, report.repeated_call_ids), (1, 0));
}

#[test]
fn j2_j4_members_sources_and_types_that_no_reader_knows_stay_byte_for_byte() {
    let lines = [
        // A retired kind of source, a descriptor of another version, members from a later release.
        r#"{"type":"user/message","seq":0,"time":1,"data":{"content":[],"source":{"kind":"retired","v":1.0},"role":"user","id":"m","zz":[{}]},"surfaceOp":"append"}"#,
        r#"{"type":"subagent/descriptor","seq":1,"time":1,"data":{"version":2,"extra":null}}"#,
        r#"{"type":"some-plugin/thing","seq":2,"time":1,"data":{"n":1e400}}"#,
        r#"{"type":"turn/end","seq":3,"time":1,"data":{"turn":1,"reason":{"kind":"someday","why":[1]},"later":true}}"#,
    ];
    let (events, report) = import(log(&lines)).unwrap();
    assert_eq!(events.iter().map(Event::to_line).collect::<Vec<_>>(), lines);
    assert_eq!(report.upgraded.total(), 0);
    // What lacks an id or a role gets one, and nothing else of it changes.
    let bare = r#"{"type":"user/message","seq":0,"time":1,"data":{"content":[],"source":{"kind":"retired"},"zz":1.50},"surfaceOp":"append"}"#;
    let (events, report) = import(log(&[bare])).unwrap();
    assert!(events[0].data().contains(r#""source":{"kind":"retired"},"zz":1.50"#), "{}", events[0].data());
    assert_eq!((report.upgraded.ids, report.upgraded.roles), (1, 1));
}
