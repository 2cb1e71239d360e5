//! `export` as a process: every format, what it says, and what comes back in.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod cli_common;

use std::fs;

use cli_common::{Home, USAGE, event, log, recording, said};
use sessionlog::sample::Recording;

/// A log with `tail` behind a closed turn of one message.
fn conversation(id: &str, tail: &[String]) -> String {
    let start = [event(0, "turn/start", r#"{"turn":1}"#), said(1, "hello")];
    log(id, start.iter().chain(tail))
}

#[test]
fn dsh_and_dsh_zstd_come_back_in_unchanged() {
    let home = Home::new();
    for (id, recording) in [("a", Recording::new(1).events(3_000)), ("b", Recording::new(2).events(3_000).compacting())]
    {
        home.import(id, recording.write_jsonl(Vec::new()).unwrap());
        let lines = home.run(["export", id]).ok().out;
        let rows = home.run(["export", id, "--format", "dsh"]).ok().out;
        assert!(rows.contains("\"version\":0") && rows.contains("-chunks\"") && rows.len() * 2 < lines.len());
        home.run(["export", id, "--format", "dsh-zstd", "-o", "out.jsonl.zstd"]).ok();
        let packed = fs::read(home.path("out.jsonl.zstd")).unwrap();
        assert_eq!(zstd::decode_all(packed.as_slice()).unwrap(), rows.as_bytes());
        let file = home.write("rows.jsonl", &rows);
        for file in [&file, "out.jsonl.zstd"] {
            // The header states a depth in this format, which the stored one may not: it is the same session all the same.
            assert_eq!(home.run(["import", file, "--json"]).ok().document()["status"], "unchanged");
            let copy = format!("{id}-{file}");
            home.run(["import", file, "--id", &copy]).ok();
            assert_eq!(home.run(["import", file, "--id", &copy, "--json"]).ok().document()["status"], "unchanged");
            let again = home.run(["export", &copy]).ok().out;
            assert_eq!(again.split_once('\n').unwrap().1, lines.split_once('\n').unwrap().1);
        }
    }
}

#[test]
fn dsh_names_the_types_that_the_harness_may_not_know() {
    let home = Home::new();
    let tail = [event(2, "app/x", "1"), event(3, "app/y", "1").replace("\"data\":1", "\"data\":1,\"ignorable\":true")];
    home.import("s", conversation("s", &tail));
    home.run(["export", "s", "--format", "dsh"]).with(0).says(&["session s", "1 events", "app/x"]);
    home.run(["export", "s"]).ok();
}

#[test]
fn source_ranges_are_a_switch_of_the_dsh_formats() {
    let home = Home::new();
    home.import("s", Recording::new(2).events(3_000).compacting().write_jsonl(Vec::new()).unwrap());
    let plain = home.run(["export", "s", "--format", "dsh"]).ok().out;
    let ranged = home.run(["export", "s", "--format", "dsh", "--source-ranges"]).ok().out;
    assert!(!plain.contains("\"sourceEventSeqs\":[[") && ranged.contains("\"sourceEventSeqs\":[["));
    home.run(["export", "s", "--source-ranges"]).with(USAGE).says(&["--source-ranges", "dsh"]);
    home.run(["export", "s", "--format", "markdown", "--source-ranges"]).with(USAGE);
}

#[test]
fn markdown_has_a_heading_a_turn_and_fences_that_nothing_closes() {
    let home = Home::new();
    let call = r#"{"turn":1,"step":1,"message":{"role":"assistant","content":[{"type":"reasoning","text":"hm\n# not a heading"},{"type":"text","text":"```rust\nunclosed"},{"type":"tool-call","id":"c`1","name":"bash","arguments":"{\"c\":\"````\"}"}],"source":{"kind":"model","provider":"p","model":"m"}},"usage":{"inputTokens":3,"outputTokens":4}}"#;
    let result = r#"{"turn":1,"step":1,"message":{"role":"user","content":[{"type":"tool-result","toolCallId":"c`1","content":[{"type":"text","text":"a\n```\nb\u001b[2J\n"},{"type":"image","attachment":{"mediaType":"image/png","name":"red.png","data":"iVBOR"}}],"isError":true}],"source":{"kind":"tool","callId":"c`1"}}}"#;
    let on_surface = |line: String| line.strip_suffix('}').unwrap().to_owned() + ",\"surfaceOp\":\"append\"}";
    let summary = said(6, "summary").replace("\"append\"", r#"{"op":"replace","start":1,"end":4}"#);
    let summary = summary.replace(",\"surfaceOp\"", ",\"sourceEventSeqs\":[1,3,4],\"surfaceOp\"");
    let tail = [
        event(2, "step/start", r#"{"turn":1,"step":1}"#),
        on_surface(event(3, "assistant/message", call)),
        on_surface(event(4, "tool/result", result)),
        event(5, "turn/end", r#"{"turn":1,"reason":{"kind":"interrupted"}}"#),
        summary,
        event(7, "session/title", r#"{"title":"A *title*"}"#),
        event(8, "todo/write", r#"{"todos":[{"content":"do","status":"completed"}]}"#),
    ];
    home.import("s", conversation("s", &tail));
    let text = home.run(["export", "s", "--format", "markdown"]).ok().out;
    for part in [
        "# A \\*title\\*\n",
        "\n- Session: `s`\n",
        "\n## Turn 1\n",
        "### [1] User - replaced later",
        "\n> hello\n",
        "\n*Reasoning:*\n\n> hm\n> # not a heading\n",
        "\n> ```rust\n> unclosed\n",
        "\nCalls `bash` (``c`1``):\n\n`````json\n{\"c\":\"````\"}\n`````\n",
        "### [4] Result of `bash` - replaced later",
        "\n*Failed:*\n\n````text\na\n```\nb\\u{1b}[2J\n````\n",
        "\n*Image 1: `red.png`, `image/png`*\n",
        "\n*The turn ended: interrupted*\n",
        "### [6] User - replaces 1 to 4\n",
        "\n## Todo\n\n- [x] do\n",
        "\nTokens: 3 in, 4 out\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    assert!(!text.contains("iVBOR") && !text.contains('\u{1b}'));
    // No line outside a quote or a fence but our own headings starts like one.
    let mut fence: Option<String> = None;
    for line in text.lines() {
        match &fence {
            Some(open) if line == open => fence = None,
            None if line.starts_with("```") => fence = Some(line.trim_end_matches(char::is_alphabetic).to_owned()),
            None if line.starts_with('#') => {
                assert!(["# A", "## Turn 1", "## Todo", "### ["].iter().any(|start| line.starts_with(start)), "{line}");
            }
            Some(_) | None => {}
        }
    }
    assert!(fence.is_none());
}

#[test]
fn every_format_goes_to_a_private_file_and_nothing_of_a_damaged_log_is_written() {
    let home = Home::new();
    // In two records, so that damage to the first is no torn tail.
    let whole = String::from_utf8(recording(1, 2_000)).unwrap();
    let part: String = whole.lines().take(900).flat_map(|line| [line, "\n"]).collect();
    home.record("s", part);
    home.record("s", whole);
    for format in ["jsonl", "dsh", "dsh-zstd", "markdown"] {
        home.run(["export", "s", "--format", format, "-o", format]).ok();
        let piped = home.command(["export", "s", "--format", format]).output().unwrap();
        assert!(piped.status.success() && piped.stderr.is_empty());
        assert_eq!(fs::read(home.path(format)).unwrap(), piped.stdout, "{format}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(home.path(format)).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
    cli_common::flip(&home.journal("s"), 120);
    for format in ["jsonl", "dsh", "dsh-zstd", "markdown"] {
        let before = fs::read(home.path(format)).unwrap();
        let ran = home.run(["export", "s", "--format", format, "-o", format]).with(cli_common::FAILED);
        assert_eq!(ran.out, "");
        assert_eq!(fs::read(home.path(format)).unwrap(), before);
    }
}

#[test]
fn n3_redaction_is_the_same_in_every_format_and_the_session_stays_as_it_was() {
    let home = Home::new();
    let deltas = ["mail ja", "ne@x.o", "rg"].iter().zip(2..).map(|(text, seq)| {
        event(
            seq,
            "assistant/chunk",
            &format!(r#"{{"turn":1,"step":1,"chunk":{{"type":"text-delta","index":0,"text":"{text}"}}}}"#),
        )
    });
    let call = r#"{"turn":1,"step":1,"message":{"role":"assistant","content":[{"type":"text","text":"mail jane@x.org"},{"type":"tool-call","id":"c","name":"sh","arguments":"{\"k\":\"-----BEGIN PRIVATE KEY-----\\nMIIEabcd\\n-----END PRIVATE KEY-----\",\"jane@x.org\":\"ACME-1234\"}"}],"source":{"kind":"model","provider":"p","model":"m"}}}"#;
    let on_surface =
        event(5, "assistant/message", call).strip_suffix('}').unwrap().to_owned() + ",\"surfaceOp\":\"append\"}";
    let tail: Vec<String> = deltas
        .chain([
            on_surface,
            event(6, "session/title", r#"{"title":"Write to jane@x.org"}"#),
            event(7, "todo/write", r#"{"todos":[{"content":"ask jane@x.org","status":"pending"}]}"#),
        ])
        .collect();
    let text = conversation("s", &tail).replace("\"createdAt\"", "\"cwd\":\"/home/jane\",\"createdAt\"");
    home.import("s", &text);
    let before = home.run(["export", "s"]).ok().out;
    let marks = |text: &str| text.matches("[redacted:").count();
    for format in ["jsonl", "dsh", "dsh-zstd", "markdown"] {
        let arguments = ["export", "s", "--format", format, "--redact-pattern", "ACME-[0-9]+"];
        let ran = home.command(arguments).output().unwrap();
        assert!(ran.status.success());
        let out = if format == "dsh-zstd" { zstd::decode_all(ran.stdout.as_slice()).unwrap() } else { ran.stdout };
        let out = String::from_utf8(out).unwrap();
        for secret in ["jane", "MIIEabcd", "ACME-1234", "ne@x.o"] {
            assert!(!out.contains(secret), "{format}: {secret} is in {out}");
        }
        assert!(marks(&out) >= 6, "{out}");
        let told = String::from_utf8(ran.stderr).unwrap();
        assert!(
            told.contains("places redacted") && told.contains("1 home") && told.contains("1 private-key"),
            "{told}"
        );
        if format != "markdown" {
            let file = home.write("redacted.jsonl", &out);
            home.run(["import", &file, "--id", &format!("copy-{format}")]).ok();
        }
        // Without the flag nothing is taken out.
        let plain = home.command(["export", "s", "--format", format]).output().unwrap();
        assert!(plain.stderr.is_empty());
        let plain =
            if format == "dsh-zstd" { zstd::decode_all(plain.stdout.as_slice()).unwrap() } else { plain.stdout };
        assert_eq!(marks(std::str::from_utf8(&plain).unwrap()), 0);
    }
    home.run(["export", "s", "--redact", "-o", "out.jsonl"]).with(0).says(&["session s", "redacted"]);
    assert!(fs::read_to_string(home.path("out.jsonl")).unwrap().contains("ACME-1234"), "known only to the pattern");
    assert_eq!(home.run(["export", "s"]).ok().out, before);
    home.run(["export", "s", "--redact-pattern", "("]).with(USAGE).says(&["--redact-pattern", "\"(\""]);
}
