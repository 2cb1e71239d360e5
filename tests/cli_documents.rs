//! Every verb and flag as a process, on good, damaged, busy, empty and missing stores: exit status, standard error, and `--json`
//! against the schemas in `tests/schema`.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod cli_common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use cli_common::{FAILED, Home, MISSING, Ran, USAGE, flip, header, messages, recording, said, schema};
use sessionlog::event::SessionId;
use sessionlog::segment::Engine;

/// What a store is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Good,
    /// The session `a` is damaged behind its tenth event.
    Damaged,
    /// The session `a` is open for writing, by the test itself.
    Busy,
    Empty,
    Missing,
}

const STATES: [State; 5] = [State::Good, State::Damaged, State::Busy, State::Empty, State::Missing];

/// Arguments, and the exit status on a store of each state.
type Case = (&'static [&'static str], [i32; 5]);

/// Reading and writing verbs with all their flags. `a` is a session of two journals, `rec` a recording, `old` one of 1970, `gone` is
/// in the trash.
const CASES: &[Case] = &[
    (&["import", "in.jsonl"], [0, 0, 0, 0, 0]),
    (&["import", "in.jsonl", "--id", "a"], [FAILED, FAILED, FAILED, 0, 0]),
    (&["import", "longer.jsonl", "--id", "a"], [0, FAILED, MISSING, 0, 0]),
    (&["import", "in.jsonl", "--from", "sessionlog"], [0, 0, 0, 0, 0]),
    (&["import", "in.jsonl", "nowhere.jsonl"], [FAILED; 5]),
    (&["export", "a"], [0, FAILED, 0, MISSING, MISSING]),
    (&["export", "rec", "--format", "jsonl"], [0, 0, 0, MISSING, MISSING]),
    (&["export", "rec", "-o", "out.jsonl"], [0, 0, 0, MISSING, MISSING]),
    (&["export", "rec", "--output", "out.jsonl"], [0, 0, 0, MISSING, MISSING]),
    (&["export", "rec", "--format", "dsh", "--source-ranges"], [0, 0, 0, MISSING, MISSING]),
    (&["export", "rec", "--format", "dsh-zstd", "-o", "out.jsonl.zstd"], [0, 0, 0, MISSING, MISSING]),
    (&["export", "a", "--format", "markdown"], [0, FAILED, 0, MISSING, MISSING]),
    (&["export", "rec", "--redact", "--redact-pattern", "nothing like this"], [0, 0, 0, MISSING, MISSING]),
    (&["last", "rec"], [0, 0, 0, MISSING, MISSING]),
    (&["last", "a", "--role", "user"], [0, FAILED, 0, MISSING, MISSING]),
    (&["last", "a"], [FAILED, FAILED, FAILED, MISSING, MISSING]),
    (&["last", "rec", "--assume-known", "x/y"], [0, 0, 0, MISSING, MISSING]),
    (&["grep", "message"], [0, FAILED, 0, 0, MISSING]),
    (
        &["grep", "MESS.*e", "a", "--regex", "--ignore-case", "--role", "user", "--type", "user/*"],
        [0, FAILED, 0, MISSING, MISSING],
    ),
    (&["grep", "message", "--limit", "2"], [0, 0, 0, 0, MISSING]),
    (&["grep", "message", "a", "--list"], [0, 0, 0, MISSING, MISSING]),
    (&["view", "a", "--output", "page.html"], [0, FAILED, 0, MISSING, MISSING]),
    (&["view", "rec", "-o", "page.html"], [0, 0, 0, MISSING, MISSING]),
    (&["stats"], [0, FAILED, 0, 0, MISSING]),
    (&["stats", "a"], [0, FAILED, 0, MISSING, MISSING]),
    (&["ls"], [0, FAILED, 0, 0, MISSING]),
    (&["ls", "--tree"], [0, FAILED, 0, 0, MISSING]),
    (&["ls", "--cwd", ".", "--since", "7d", "--limit", "1"], [0, FAILED, 0, 0, MISSING]),
    (&["show", "a"], [0, FAILED, 0, MISSING, MISSING]),
    (&["show", "rec", "--raw", "--width", "40"], [0, 0, 0, MISSING, MISSING]),
    (&["show", "rec", "--assume-known", "x/y"], [0, 0, 0, MISSING, MISSING]),
    (&["messages", "a"], [0, FAILED, 0, MISSING, MISSING]),
    (&["messages", "rec", "--request", "--at", "100"], [0, 0, 0, MISSING, MISSING]),
    (&["messages", "a", "--at", "5000"], [USAGE, FAILED, USAGE, MISSING, MISSING]),
    (&["messages", "rec", "--assume-known", "x/y"], [0, 0, 0, MISSING, MISSING]),
    (&["events", "a"], [0, FAILED, 0, MISSING, MISSING]),
    (&["events", "rec", "--from", "3", "--to", "90", "--type", "t*", "--limit", "2"], [0, 0, 0, MISSING, MISSING]),
    (&["last", "a", "--role", "user"], [0, FAILED, 0, MISSING, MISSING]),
    (&["last", "rec", "--assume-known", "x/y"], [0, 0, 0, MISSING, MISSING]),
    (&["grep", "message"], [0, FAILED, 0, 0, MISSING]),
    (
        &[
            "grep",
            "E",
            "rec",
            "--regex",
            "--ignore-case",
            "--role",
            "assistant",
            "--type",
            "a*",
            "--limit",
            "2",
            "--list",
        ],
        [0, 0, 0, MISSING, MISSING],
    ),
    (&["view", "a", "--output", "page.html"], [0, FAILED, 0, MISSING, MISSING]),
    (&["stats"], [0, FAILED, 0, 0, MISSING]),
    (&["stats", "a"], [0, FAILED, 0, MISSING, MISSING]),
    (&["verify"], [0, FAILED, 0, 0, MISSING]),
    (&["verify", "a", "rec"], [0, FAILED, 0, MISSING, MISSING]),
    (&["verify", "--repair-derived"], [0, FAILED, 0, 0, MISSING]),
    (&["repair", "a"], [0, FAILED, MISSING, MISSING, MISSING]),
    (&["repair", "rec", "--dry-run"], [0, 0, 0, MISSING, MISSING]),
    (&["seal"], [0, FAILED, 0, 0, MISSING]),
    (&["seal", "a", "rec", "--level", "1"], [0, FAILED, MISSING, MISSING, MISSING]),
    (&["fork", "a", "--as", "new"], [0, FAILED, 0, MISSING, MISSING]),
    (&["fork", "a", "--at", "3", "--as", "new"], [0, FAILED, 0, MISSING, MISSING]),
    (&["fork", "a", "--at", "99", "--as", "new"], [USAGE, FAILED, USAGE, MISSING, MISSING]),
    (&["fork", "a", "--as", "rec", "--assume-known", "x/y"], [FAILED, FAILED, FAILED, MISSING, MISSING]),
    (&["salvage", "a", "--as", "new"], [FAILED, 0, FAILED, MISSING, MISSING]),
    (&["salvage", "a", "--as", "new", "--cwd", "/srv"], [FAILED, 0, FAILED, MISSING, MISSING]),
    (&["rm", "a", "rec"], [0, 0, MISSING, MISSING, MISSING]),
    (&["rm", "--now", "a", "gone"], [0, 0, MISSING, MISSING, MISSING]),
    (&["rm", "--list"], [0, 0, 0, 0, MISSING]),
    (&["rm", "--restore", "gone"], [0, 0, 0, MISSING, MISSING]),
    (&["rm", "--restore", "gone", "--time", "2"], [0, 0, 0, MISSING, MISSING]),
    (&["prune", "--older-than", "1000d"], [0, FAILED, 0, 0, MISSING]),
    (&["prune", "--older-than", "1s", "--keep-forks", "--apply"], [0, FAILED, 0, 0, MISSING]),
    (&["prune", "--max-bytes", "0", "--apply"], [0, FAILED, FAILED, 0, MISSING]),
    (&["explain"], [0; 5]),
    (&["explain", "gap"], [0; 5]),
    (&["completions", "zsh"], [0; 5]),
    (&["man"], [0; 5]),
    (&["man", "ls"], [0; 5]),
    (&["man", "--output", "pages"], [0; 5]),
];

/// Flags that other tests drive, because they do not end by themselves or because every case is run with them.
const ELSEWHERE: [&str; 4] = ["--follow", "--json", "--store", "--help"];

/// A store to copy.
fn template(state: State) -> Home {
    let home = Home::new();
    home.write("in.jsonl", messages("new", 3));
    home.write("longer.jsonl", messages("a", 25));
    if state == State::Missing {
        return home;
    }
    home.import("gone", messages("x", 2));
    if state == State::Empty {
        home.run(["rm", "--now", "gone"]).ok();
        home.write("in.jsonl", messages("new", 3));
        return home;
    }
    home.run(["rm", "gone"]).ok();
    home.record("a", messages("x", 10));
    home.record("a", messages("x", 20));
    home.import("rec", recording(1, 400));
    home.import("old", format!("{}\n{}\n", header("old"), said(0, "x").replace("1700000000000", "5")));
    home.write("in.jsonl", messages("new", 3));
    if state == State::Damaged {
        flip(&home.session("a").join("00000000000000000010.log"), 3);
    }
    home
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() { copy(&path, &target) } else { fs::write(&target, fs::read(&path).unwrap()).unwrap() }
    }
}

/// Runs on a copy of the template.
fn run_on(template: &Home, state: State, arguments: &[&str]) -> Ran {
    let home = Home::new();
    copy(&template.path("."), &home.path("."));
    let owner = (state == State::Busy).then(|| {
        let engine = Engine::open(home.store()).unwrap();
        engine.take_over(&SessionId::new("a").unwrap()).unwrap();
        engine
    });
    let ran = home.run(arguments);
    drop(owner);
    ran
}

fn check(state: State) {
    let home = template(state);
    let at = STATES.iter().position(|other| *other == state).unwrap();
    for (arguments, statuses) in CASES {
        let schema = schema::of(arguments[0]);
        // What people read is the same text on all stores without the session.
        let plain = matches!(state, State::Good | State::Damaged | State::Busy);
        for json in [false, true].into_iter().filter(|json| *json || plain) {
            let arguments = if json { [*arguments, &["--json"]].concat() } else { arguments.to_vec() };
            let ran = run_on(&home, state, &arguments);
            let what = format!("{state:?} {arguments:?}: {ran:?}");
            assert_eq!(ran.status, statuses[at], "{what}");
            // Who fails says why, and what to do; who succeeds keeps quiet, but for what is passed over or taken out.
            if ran.status == 0 {
                let speaks = arguments[0] == "seal" || arguments.contains(&"--redact");
                assert!(ran.err.is_empty() || speaks, "{what}");
            } else {
                assert!(!ran.err.is_empty() || !ran.out.is_empty(), "{what}");
            }
            assert!(!ran.out.contains('\u{1b}') && !ran.err.contains('\u{1b}'), "{what}");
            let refused = ran.err.lines().all(|line| !line.contains("panicked"));
            assert!(refused && !ran.err.contains("RUST_BACKTRACE"), "{what}");
            let foreign = arguments.contains(&"dsh") || arguments.contains(&"markdown");
            if (json || arguments[0] == "export") && !foreign {
                for line in ran.json() {
                    schema::check(&schema, &line).unwrap_or_else(|fault| panic!("{what}: {line}{fault}"));
                }
            }
        }
    }
}

#[test]
fn every_verb_on_a_good_store() {
    check(State::Good);
}

#[test]
fn every_verb_on_a_damaged_store() {
    check(State::Damaged);
}

#[test]
fn every_verb_on_a_busy_store() {
    check(State::Busy);
}

#[test]
fn every_verb_on_an_empty_store() {
    check(State::Empty);
}

#[test]
fn every_verb_on_a_missing_store() {
    check(State::Missing);
}

#[test]
fn every_verb_and_flag_is_driven_and_has_a_schema() {
    let home = Home::new();
    let words = |text: &str| -> BTreeSet<String> {
        let flag =
            |word: &str| word.starts_with("--").then(|| word.trim_end_matches([',', ']', '.', ';', ')']).to_owned());
        let line = |line: &str| line.split_whitespace().find_map(flag);
        text.lines().filter(|line| line.trim_start().starts_with('-')).filter_map(line).collect()
    };
    let mut schemas: Vec<String> = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schema"))
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    for verb in home.verbs() {
        let flags = words(&home.run([verb.as_str(), "--help"]).ok().out);
        assert!(flags.contains("--json"), "{verb}: {flags:?}");
        let driven: BTreeSet<&str> = CASES
            .iter()
            .filter(|(arguments, _)| arguments[0] == verb)
            .flat_map(|(arguments, _)| *arguments)
            .copied()
            .collect();
        assert!(!driven.is_empty(), "{verb} is not driven");
        for flag in flags.iter().filter(|flag| !ELSEWHERE.contains(&flag.as_str())) {
            assert!(driven.contains(flag.as_str()), "{verb} {flag} is not driven");
        }
        let known = schemas.len();
        schemas.retain(|name| *name != verb);
        assert_eq!(schemas.len() + 1, known, "{verb} has no schema");
    }
    assert!(schemas.is_empty(), "schemas of no verb: {schemas:?}");
}

#[test]
fn standard_output_that_is_closed_from_the_start_is_a_quiet_success_of_every_verb() {
    let template = template(State::Good);
    let cases = CASES.iter().filter(|(_, statuses)| statuses[0] == 0).map(|(arguments, _)| arguments.to_vec());
    for arguments in cases.chain([vec!["events", "a", "--follow"]]) {
        for json in [&[][..], &["--json"]] {
            let arguments = [&arguments, json].concat();
            let home = Home::new();
            copy(&template.path("."), &home.path("."));
            let mut command = home.command(&arguments);
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            drop(child.stdout.take());
            let output = child.wait_with_output().unwrap();
            let complaints = String::from_utf8(output.stderr).unwrap();
            assert_eq!((output.status.code(), complaints.as_str()), (Some(0), ""), "{arguments:?}");
        }
    }
}

#[cfg(unix)]
#[test]
fn arguments_that_are_not_utf8_are_wrong_usage_or_names_of_files() {
    use std::ffi::{OsStr, OsString};
    use std::os::unix::ffi::OsStrExt;

    let home = template(State::Good);
    let odd = OsStr::from_bytes(b"odd-\xff");
    let with = |arguments: &[&str]| -> Vec<OsString> {
        arguments.iter().map(OsString::from).chain([odd.to_owned()]).collect()
    };
    for arguments in [
        &["show"][..],
        &["rm"],
        &["ls", "--cwd"],
        &["fork", "a", "--as"],
        &["salvage", "a", "--as"],
        &["explain"],
        &["man"],
        &["prune", "--max-bytes"],
    ] {
        let ran = home.run(with(arguments)).with(USAGE);
        assert!(ran.out.is_empty() && ran.err.contains("UTF-8"), "{arguments:?}: {ran:?}");
    }
    fs::write(home.path("x").with_file_name(odd), messages("odd", 2)).unwrap();
    let row = home.run(with(&["import", "--json"])).ok().document();
    schema::check(&schema::of("import"), &row).unwrap();
    assert_eq!(row["status"], "imported");
    home.run(with(&["export", "odd", "-o"])).ok();
    fs::remove_file(home.path("x").with_file_name(odd)).unwrap();
    let ran = home.run(with(&["ls", "--store"])).with(MISSING);
    assert!(ran.err.contains("odd-") && ran.out.is_empty(), "{ran:?}");
}
