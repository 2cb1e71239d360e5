//! The command line's contract: usage errors, missing and empty stores, every verb with and without `--json`, quiet pipes.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod cli_common;

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use cli_common::{FAILED, Home, MISSING, READERS, USAGE, log, messages, said};

const VERBS: [&str; 20] = [
    "import",
    "export",
    "ls",
    "show",
    "messages",
    "events",
    "last",
    "grep",
    "view",
    "stats",
    "verify",
    "repair",
    "seal",
    "fork",
    "salvage",
    "rm",
    "prune",
    "explain",
    "completions",
    "man",
];

#[test]
fn wrong_usage_exits_with_2_says_why_and_writes_nothing() {
    let home = Home::new();
    let file = home.write("a.jsonl", messages("a", 1));
    let long = "x".repeat(1025);
    let cases: &[&[&str]] = &[
        &[],
        &["nope"],
        &["grep"],
        &["grep", "x", "--role", "nobody"],
        &["view", "a"],
        &["stats", "a", "b"],
        &["last"],
        &["fork", "a"],
        &["ls", "--nope"],
        &["ls", "--tree=x"],
        &["explain", "nope"],
        &["man", "nope"],
        &["completions", "nope"],
        &["rm"],
        &["prune"],
        &["salvage", "a"],
        &["ls", "extra"],
        &["ls", "--limit", "-1"],
        &["ls", "--since", "yesterday-ish"],
        &["import"],
        &["import", &file, &file, "--id", "x"],
        &["import", &file, "--id", ""],
        &["import", &file, "--id", &long],
        &["export"],
        &["export", "a", "--format", "xml"],
        &["events", "a", "--from", "x"],
        &["show", "a", "--width", "3"],
        &["--store", "", "ls"],
    ];
    for arguments in cases {
        let ran = home.run(*arguments).with(USAGE);
        assert!(ran.out.is_empty() && !ran.err.is_empty(), "{arguments:?}: {ran:?}");
        assert!(!home.store().exists(), "{arguments:?}");
    }
    home.run(["import", &file]).ok();
    for arguments in [
        &["events", "a", "--from", "2", "--to", "1"][..],
        &["messages", "a", "--at", "5"],
        &["messages", ""],
        &["prune"],
        &["verify", ""],
        &["verify", &long],
    ] {
        let ran = home.run(arguments).with(USAGE);
        assert!(ran.out.is_empty() && !ran.err.is_empty(), "{arguments:?}: {ran:?}");
    }
    home.run(["prune"]).says(&["--older-than", "--max-bytes"]);
    home.run(["last", "a", "--role", "tool"]).with(FAILED).says(&["session a", "no tool text", "`sessionlog show a`"]);
    home.run(["export", "a", "-o", "nowhere/x"]).with(FAILED).says(&["nowhere/x", "its directory must be there"]);
    home.run(["messages", "a", "--at", "5"]).says(&["session a", "no event 5", "its last one is 0"]);
}

#[test]
fn help_names_every_verb_and_the_readme_no_other() {
    let home = Home::new();
    let help = home.run(["--help"]).ok().out;
    for verb in VERBS {
        assert!(help.lines().any(|line| line.trim_start().starts_with(verb)), "{verb}");
        let own = home.run([verb, "--help"]).ok().out;
        assert!(own.contains("--store") && own.contains("--json"), "{verb}");
        // What the verb has for itself comes first.
        let options: Vec<&str> = own.lines().filter_map(|line| line.trim_start().strip_prefix("--")).collect();
        let common = options.iter().position(|option| option.starts_with("store"));
        assert!(
            options
                .iter()
                .skip(common.unwrap())
                .all(|option| option.starts_with("store") || option.starts_with("json")),
            "{own}"
        );
    }
    assert!(home.run(["--version"]).ok().out.starts_with("sessionlog "));
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let rows = readme.lines().filter_map(|line| line.strip_prefix("| `")?.split([' ', '`']).next());
    assert_eq!(rows.collect::<Vec<_>>(), VERBS);
}

#[test]
fn a_missing_store_exits_with_3_and_stays_missing() {
    let home = Home::new();
    fs::create_dir(home.path("empty")).unwrap();
    for store in ["nowhere", "empty"] {
        for json in [&[][..], &["--json"]] {
            for verb in READERS.iter().map(|reader| [*reader, &["s"]].concat()).chain([vec!["ls"], vec!["verify"]]) {
                let ran = home.run([&["--store", store], &verb[..], json].concat()).with(MISSING);
                assert!(ran.out.is_empty(), "{verb:?}: {}", ran.out);
                ran.says(&[store, "import"]);
            }
        }
    }
    assert!(!home.path("nowhere").exists());
    assert_eq!(fs::read_dir(home.path("empty")).unwrap().count(), 0);
    let file = home.write("plain", "x");
    for verb in [&["ls"][..], &["import", &file]] {
        home.run([&["--store", &file], verb].concat()).with(FAILED).says(&["plain", "not a directory", "--store DIR"]);
    }
}

#[test]
fn an_empty_store_is_sound_and_has_no_sessions() {
    let home = Home::new();
    home.import("s", messages("s", 1));
    fs::remove_dir_all(home.session("s")).unwrap();
    assert_eq!(home.run(["ls"]).ok().out, "no sessions\n");
    assert_eq!(home.run(["ls", "--json"]).ok().out, "");
    assert!(home.run(["verify"]).ok().out.starts_with("0 sessions"));
    assert_eq!(home.run(["verify", "--json"]).ok().document()["summary"]["sessions"], 0);
    for reader in READERS {
        for json in [&[][..], &["--json"]] {
            let ran = home.run([reader, &["s"], json].concat()).with(MISSING);
            assert_eq!(ran.out.lines().filter(|line| !line.contains("sessions")).count(), 0);
            ran.says(&["no session s", "sessionlog ls"]);
        }
    }
}

#[test]
fn every_verb_on_a_good_store_with_and_without_json() {
    let home = Home::with_good();
    for arguments in READERS.iter().map(|reader| [*reader, &["good"]].concat()).chain([vec!["ls"], vec!["verify"]]) {
        let plain = home.run(&arguments).ok().out;
        let json = home.run([&arguments[..], &["--json"]].concat()).ok();
        assert!(!plain.is_empty() && !json.json().is_empty(), "{arguments:?}");
        assert!(!plain.contains('\u{1b}'), "{arguments:?}: colours without a terminal");
    }
    let document = home.run(["messages", "good", "--request", "--json"]).ok().document();
    assert!(document["header"]["config"]["model"].is_string() && document["messages"][0]["role"] == "user");
    let document = home.run(["messages", "good", "--json"]).ok().document();
    assert_eq!(document.as_object().unwrap().keys().collect::<Vec<_>>(), ["messages"]);
    let document = home.run(["show", "good", "--json"]).ok().document();
    assert!(document["id"] == "good" && document["turns"][0]["entries"][0]["message"].is_object());
    let document = home.run(["repair", "good", "--json"]).ok().document();
    assert!(document["id"] == "good" && document["cut_bytes"] == 0 && document["closers"].is_array());
    let again = home.run(["repair", "good", "--json"]).ok().document();
    assert_eq!(again["closers"], serde_json::json!([]));
}

#[test]
fn a_store_that_others_may_write_to_is_warned_about_once_unless_they_are_trusted() {
    let home = Home::with_good();
    let file = home.write("more.jsonl", messages("more", 2));
    for (mode, who) in [(0o775, "its group"), (0o777, "everybody"), (0o702, "everybody")] {
        fs::set_permissions(home.store(), Permissions::from_mode(mode)).unwrap();
        for arguments in [&["ls"][..], &["ls", "--json"], &["events", "good", "--json"], &["verify"]] {
            let ran = home.run(arguments).with(0).says(&[
                who,
                home.store().to_str().unwrap(),
                &format!("{mode:o}"),
                "chmod go-w",
            ]);
            assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
            assert!(ran.err.starts_with("sessionlog: warning: ") && !ran.out.contains("warning"));
            let ran = cli_common::ran(home.command(arguments).env("SESSIONLOG_TRUST_STORE", "1"), b"");
            assert_eq!((ran.status, ran.err.as_str()), (0, ""));
        }
        let refused = mode & 0o002 != 0;
        let ran = home.run(["import", &file, "--id", &format!("new-{mode:o}")]).with(i32::from(refused));
        let warned = ran.err.lines().filter(|line| line.contains("warning: ")).count();
        assert!(warned == 1 && ran.err.contains("reading works") == refused, "{}", ran.err);
    }
    fs::set_permissions(home.store(), Permissions::from_mode(0o755)).unwrap();
    home.run(["ls"]).ok();
}

#[test]
fn standard_output_that_closes_early_is_a_quiet_success() {
    let home = Home::new();
    home.import("long", log("long", (0..3000).map(|seq| said(seq, &"words ".repeat(30)))));
    let file = home.write("other.jsonl", messages("other", 1));
    for arguments in [
        vec!["events", "long"],
        vec!["events", "long", "--json"],
        vec!["export", "long"],
        vec!["show", "long"],
        vec!["messages", "long"],
        vec!["messages", "long", "--json"],
    ] {
        let mut command = home.command(&arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0_u8; 10];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let mut complaints = String::new();
        child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
        assert_eq!((child.wait().unwrap().code(), complaints.as_str()), (Some(0), ""), "{arguments:?}");
    }
    // The work is done although nobody listens, to either stream.
    let mut command = home.command(["import", "missing.jsonl", "in.jsonl", &file]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(FAILED));
    home.run(["messages", "other"]).ok();
}

#[test]
fn a_follower_ends_when_its_reader_goes_away_although_nothing_happens() {
    let home = Home::with_good();
    let mut command = home.command(["events", "good", "--follow", "--from", "10"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().trim_start().starts_with("10"));
    drop(lines);
    let mut complaints = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
    assert_eq!((child.wait().unwrap().code(), complaints.as_str()), (Some(0), ""));
}
