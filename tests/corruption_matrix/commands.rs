//! What the commands say of a damaged store, which is what the library says: `ls`, `verify` and `events` as processes.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use sessionlog::backend::ErrorKind;

use crate::Judged;
use crate::sample::expected;
use crate::segment_common::lines;
use crate::verdict::{Refusal, Verdict};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_sessionlog");
/// Its name beside the test, where somebody who may not see the original runs that.
pub const NAME: &str = "sessionlog";

struct Ran {
    status: i32,
    out: String,
    err: String,
}

impl Ran {
    fn json(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn run(root: &Path, arguments: &[&str]) -> Ran {
    let beside = std::env::current_exe().unwrap().with_file_name(NAME);
    let mut command = Command::new(if beside.exists() { beside } else { PROGRAM.into() });
    let output = command.arg("--store").arg(root).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { status: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// Every command refuses a store that the library refuses, and names the file.
pub fn refuse(root: &Path, refusal: &Refusal, what: &str) {
    let file = refusal.file.as_ref().unwrap().display().to_string();
    for arguments in [&["ls", "--json"][..], &["verify", "--json"], &["events", "s", "--json"]] {
        let ran = run(root, arguments);
        assert_eq!((ran.status, ran.out.as_str()), (1, ""), "{what}: {arguments:?}: {}", ran.err);
        let named = ran.err.contains(&file) && refusal.class.is_none_or(|class| ran.err.contains(class.name()));
        assert!(named, "{what}: {arguments:?}: {}", ran.err);
    }
}

/// The commands say of each session what the library says, with the exit status that the worst of it makes.
pub fn agree(root: &Path, judged: &[Judged], what: &str) {
    verify(root, judged, what);
    ls(root, judged, what);
    for session in judged {
        events(root, session, what);
    }
}

fn is_gone(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Refused(refusal) if refusal.kind == ErrorKind::NotFound)
}

fn verify(root: &Path, judged: &[Judged], what: &str) {
    let ran = run(root, &["verify", "--json"]);
    let mut rows = ran.json();
    let summary = rows.pop().unwrap();
    let shown = judged.iter().filter(|(_, _, verdict)| !is_gone(verdict));
    assert_eq!(rows.len(), shown.clone().count(), "{what}: {}", ran.out);
    for (row, (name, total, verdict)) in rows.iter().zip(shown) {
        let what = format!("{what}: verify: {row}");
        assert_eq!(row["id"], *name, "{what}");
        match verdict {
            Verdict::Identical => {
                assert!(
                    row["status"] == "open-turn" && row["events"] == *total && row.get("class").is_none(),
                    "{what}"
                );
            }
            Verdict::Prefix(count, torn) => {
                assert!(row["status"] == "torn" && row["class"] == "torn-tail" && row["events"] == *count, "{what}");
                let place = (row["file"].as_str(), row["offset"].as_u64(), row["seq"].as_u64());
                assert_eq!(place, (torn.file.to_str(), Some(torn.offset), Some(*count)), "{what}");
            }
            Verdict::Refused(refusal) => {
                let status = if refusal.kind == ErrorKind::Unsupported { "unsupported" } else { "damaged" };
                let class = refusal.class.map_or(refusal.kind.name(), |class| class.name());
                assert!(row["status"] == status && row["class"] == class, "{what}");
                assert_eq!(row["file"].as_str(), refusal.file.as_ref().and_then(|file| file.to_str()), "{what}");
                assert_eq!(row["offset"].as_u64(), refusal.offset, "{what}");
                assert_eq!(row["seq"].as_u64(), refusal.intact_before, "{what}");
            }
        }
    }
    let sound = judged.iter().all(|(_, _, verdict)| *verdict == Verdict::Identical || is_gone(verdict));
    assert_eq!(ran.status, i32::from(!sound), "{what}: verify: {summary} {}", ran.err);
}

fn ls(root: &Path, judged: &[Judged], what: &str) {
    let ran = run(root, &["ls", "--json"]);
    let rows = ran.json();
    let mut worst = 0;
    assert_eq!(rows.len(), judged.iter().filter(|(_, _, verdict)| !is_gone(verdict)).count(), "{what}: {}", ran.out);
    for (name, total, verdict) in judged.iter().filter(|(_, _, verdict)| !is_gone(verdict)) {
        let row = rows.iter().find(|row| row["id"] == *name).unwrap_or_else(|| panic!("{what}: {name}: {}", ran.out));
        let what = format!("{what}: ls: {row}");
        let error = row["error"].as_str().unwrap_or_default();
        match verdict {
            Verdict::Identical => assert!(error.is_empty() && row["events"] == *total, "{what}"),
            Verdict::Prefix(count, torn) => {
                assert!(row["events"] == *count && error.contains(&format!("{} bytes", torn.bytes)), "{what}");
            }
            Verdict::Refused(refusal)
                if refusal.is_of_a_checkpoint() || refusal.is_of_a_block() && row["state"] != "damaged" =>
            {
                assert!(error.is_empty() && row["events"] == *total, "{what}");
            }
            Verdict::Refused(refusal) => {
                worst = 1;
                assert_eq!(row["state"], "damaged", "{what}");
                refusal.words().iter().for_each(|word| assert!(error.contains(word), "{what}: {word}"));
            }
        }
        assert!(row["state"] == "damaged" || row["state"] == "open-turn" || row["state"] == "ok", "{what}");
    }
    assert_eq!(ran.status, worst, "{what}: ls: {} {}", ran.out, ran.err);
}

/// What is intact is printed, then the refusal, with its place.
fn events(root: &Path, (name, total, verdict): &Judged, what: &str) {
    let ran = run(root, &["events", name, "--json"]);
    let what = format!("{what}: events {name}: {}", ran.err);
    let printed: Vec<&str> = ran.out.lines().collect();
    assert_eq!(printed, lines(&expected(printed.len() as u64)), "{what}");
    let (status, count) = match verdict {
        Verdict::Identical => (0, Some(*total)),
        Verdict::Prefix(count, _) => (0, Some(*count)),
        Verdict::Refused(refusal) if refusal.is_of_a_checkpoint() => (0, Some(*total)),
        Verdict::Refused(refusal) => {
            refusal.words().iter().for_each(|word| assert!(ran.err.contains(word), "{what}: {word}"));
            (if refusal.kind == ErrorKind::NotFound { 3 } else { 1 }, refusal.intact_before)
        }
    };
    assert_eq!(ran.status, status, "{what}");
    assert!(count.is_none_or(|count| count == printed.len() as u64), "{what}: {} are printed", printed.len());
}
