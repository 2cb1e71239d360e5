//! Beside a live writer in another process: what is refused, what works, and a follower that sees every event.
#![cfg(all(unix, feature = "cli"))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod cli_common;

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use cli_common::{FAILED, Home, MISSING, event, log, messages};
use serde_json::Value;
use sessionlog::backend::{ErrorKind, Expected, Head};
use sessionlog::event::{Batch, JsonText, NewEvent, SessionHeader, SessionId};
use sessionlog::segment::{Engine, EngineOptions};

/// Names the store to a child; its absence makes the child's entry point a test that passes at once.
const STORE_VARIABLE: &str = "SESSIONLOG_TEST_WRITER_STORE";
/// Far longer than anything here takes; only a hang meets it.
const PATIENCE: Duration = Duration::from_secs(60);

fn note(seq: u64) -> NewEvent {
    let text = "x".repeat(usize::try_from(seq % 50).unwrap());
    NewEvent::named("app/note", JsonText::parse(&format!("{{\"n\":{seq},\"text\":\"{text}\"}}")).unwrap()).ignorable()
}

fn batch(from: u64, to: u64) -> Batch {
    Batch::pack((from..to).map(|seq| note(seq).at(seq, 1_700_000_000_000))).unwrap()
}

/// The child's entry point: a writer that does what its standard input says, and answers when it is done.
#[test]
fn child_process_writer() {
    let Some(store) = std::env::var_os(STORE_VARIABLE) else { return };
    // Small journals, so that every few appends begin another.
    let engine = EngineOptions::new().rotate_at(500).open(Path::new(&store)).unwrap();
    let id = SessionId::new("live").unwrap();
    let mut head: Option<Head> = None;
    println!();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let count: u64 = words.get(1).map_or(0, |count| count.parse().unwrap());
        match words[0] {
            "create" => {
                let header = SessionHeader::new("live").created_at(1_700_000_000_000);
                head = Some(engine.append(&id, Some(&header), Expected::ABSENT, &batch(0, count)).unwrap());
            }
            "take" => head = Some(engine.take_over(&id).unwrap().head),
            "append" => {
                let at = head.take().unwrap();
                let expected = Expected { epoch: at.epoch, next_seq: at.next_seq };
                head = Some(engine.append(&id, None, expected, &batch(at.next_seq, at.next_seq + count)).unwrap());
            }
            "delete" => {
                engine.release(&id, head.take().unwrap().epoch).unwrap();
                engine.delete(&id).unwrap();
            }
            other => panic!("{other}"),
        }
        println!("done");
    }
}

struct Writer {
    child: Child,
    input: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Writer {
    fn start(home: &Home) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_process_writer", "--nocapture"])
            .env(STORE_VARIABLE, home.store())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, answers: BufReader::new(output).lines() }
    }

    fn does(&mut self, what: &str) {
        writeln!(self.input, "{what}").unwrap();
        while self.answers.next().unwrap().unwrap() != "done" {}
    }

    /// Kills it as `kill -9` does.
    fn kill(self) {
        drop(self);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn r3_a_session_held_by_another_process_is_busy_for_writers_and_open_to_readers() {
    let home = Home::new();
    let mut writer = Writer::start(&home);
    writer.does("create 5");
    writer.does("append 5");
    let pid = format!("process {}", writer.child.id());

    let before = cli_common::below(&home.store());
    for arguments in [&["repair", "live"][..], &["repair", "live", "--dry-run"], &["repair", "live", "--json"]] {
        let ran = home.run(arguments).with(MISSING);
        assert_eq!(ran.out, "");
        ran.says(&["session live", &pid]);
    }
    let longer: String = (0..12).map(|seq| note(seq).at(seq, 1_700_000_000_000).to_line() + "\n").collect();
    let header = SessionHeader::new("live").created_at(1_700_000_000_000).to_line();
    let file = home.write("longer.jsonl", format!("{header}\n{longer}"));
    home.run(["import", &file]).with(MISSING).says(&["longer.jsonl", "session live", &pid]);
    let row = home.run(["import", &file, "--json"]).with(MISSING).document();
    assert!(row["status"] == "refused" && row["class"] == "busy", "{row}");
    // Busy and something worse is worse.
    home.run(["import", &file, "missing"]).with(FAILED);
    assert_eq!(cli_common::below(&home.store()), before);

    assert_eq!(home.run(["ls", "--json"]).ok().document()["state"], "live");
    assert_eq!(home.run(["events", "live", "--json"]).ok().json().len(), 10);
    assert_eq!(home.run(["verify", "--json"]).ok().json()[0]["status"], "ok");
    for verb in ["show", "messages", "export", "events", "ls", "verify"] {
        home.run([verb].iter().chain(["live"].iter().filter(|_| verb != "ls"))).ok();
    }

    writer.kill();
    home.run(["import", &file]).ok();
    assert_eq!(home.run(["ls", "--json"]).ok().document()["state"], "ok");
    assert_eq!(home.run(["events", "live", "--json"]).ok().json().len(), 12);
}

#[test]
fn r3_a_session_held_by_this_process_is_busy_for_the_command() {
    let home = Home::new();
    home.import("held", log("held", [event(0, "turn/start", r#"{"turn":1}"#)]));
    let engine = Engine::open(home.store()).unwrap();
    let id = SessionId::new("held").unwrap();
    let taken = engine.take_over(&id).unwrap();
    let pid = format!("process {}", std::process::id());
    home.run(["repair", "held"]).with(MISSING).says(&["session held", &pid]);
    assert_eq!(engine.take_over(&id).unwrap_err().kind, ErrorKind::Busy);
    engine.release(&id, taken.head.epoch).unwrap();
    home.run(["repair", "held"]).ok();
}

/// A running `events --follow`, read in the background so that a hang fails instead of hanging.
struct Follower {
    child: Child,
    lines: Receiver<String>,
}

impl Follower {
    fn start(home: &Home, arguments: &[&str]) -> Self {
        let mut command = home.command([&["events", "live", "--follow", "--json"], arguments].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || output.lines().try_for_each(|line| sender.send(line.unwrap())));
        Self { child, lines }
    }

    #[track_caller]
    fn sees(&self, from: u64, to: u64) {
        for seq in from..to {
            let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("event {seq}: {error}"));
            let row: Value = serde_json::from_str(&line).unwrap();
            assert!(row["seq"] == seq && row["data"]["n"] == seq, "{line}");
        }
    }

    /// Waits for its end, with nothing more on standard output.
    fn ends(mut self) -> (std::process::ExitStatus, String) {
        assert!(self.lines.recv_timeout(PATIENCE).is_err(), "nothing more comes");
        let mut complaints = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
        (self.child.wait().unwrap(), complaints)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_follower_sees_every_event_across_rotation_a_killed_writer_and_its_successor() {
    let home = Home::new();
    let mut writer = Writer::start(&home);
    writer.does("create 3");
    let follower = Follower::start(&home, &[]);
    follower.sees(0, 3);
    let mut next = 3;
    for count in [1, 7, 2, 30, 1, 1, 12] {
        writer.does(&format!("append {count}"));
        follower.sees(next, next + count);
        next += count;
    }
    let files = cli_common::files(&home.session("live"));
    let newest = files.iter().filter(|path| path.extension().is_some_and(|kind| kind == "log")).max();
    assert!(!newest.unwrap().ends_with("00000000000000000000.log"), "rotated: {files:?}");
    writer.kill();
    let mut writer = Writer::start(&home);
    writer.does("take");
    writer.does("append 9");
    follower.sees(next, next + 9);

    let limited = Follower::start(&home, &["--from", "2", "--to", "60", "--limit", "4"]);
    limited.sees(2, 6);
    let (status, complaints) = limited.ends();
    assert!(status.success() && complaints.is_empty(), "{complaints}");
    let ranged = Follower::start(&home, &["--from", &(next + 8).to_string(), "--to", &(next + 10).to_string()]);
    ranged.sees(next + 8, next + 9);
    writer.does("append 4");
    ranged.sees(next + 9, next + 11);
    assert!(ranged.ends().0.success());
    follower.sees(next + 9, next + 13);

    writer.does("delete");
    let (status, complaints) = follower.ends();
    assert_eq!(status.code(), Some(MISSING));
    assert!(complaints.contains("session live") && complaints.contains("deleted"), "{complaints}");
}

#[test]
fn an_interrupted_follower_leaves_nothing_behind() {
    use std::os::unix::process::ExitStatusExt;
    let home = Home::new();
    let mut writer = Writer::start(&home);
    writer.does("create 3");
    let before = cli_common::below(&home.store());
    let follower = Follower::start(&home, &[]);
    follower.sees(0, 3);
    let interrupted = Command::new("kill").args(["-INT", &follower.child.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    let (status, complaints) = follower.ends();
    assert!(status.signal() == Some(2) || status.code() == Some(130), "{status}");
    assert_eq!(complaints, "");
    assert_eq!(cli_common::below(&home.store()), before);
    assert!(home.outside().is_empty());
    writer.does("append 1");
}

#[test]
fn an_interrupted_export_leaves_no_file() {
    let home = Home::new();
    home.import("big", cli_common::recording(1, 60_000));
    for _ in 0..5 {
        let mut child = home.command(["export", "big", "-o", "out.jsonl"]).spawn().unwrap();
        // At work, or already done: in either case no half is left.
        let begun = |path: &std::path::PathBuf| path.to_str().unwrap().contains("out.jsonl");
        while !home.outside().iter().any(begun) {
            std::thread::yield_now();
        }
        let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).stderr(Stdio::null()).status().unwrap();
        let status = child.wait().unwrap();
        let left: Vec<_> = home.outside().into_iter().filter(begun).collect();
        let whole = home.path("out.jsonl");
        assert!(left.is_empty() || left == [whole.clone()], "{left:?}");
        if whole.exists() {
            let lines = std::fs::read_to_string(&whole).unwrap().lines().count();
            assert_eq!(lines, 1 + home.run(["events", "big", "--json"]).ok().json().len());
            std::fs::remove_file(whole).unwrap();
        } else {
            assert_eq!(status.code(), Some(130));
        }
    }
}

#[test]
fn verify_and_ls_stay_sound_while_a_writer_is_at_work() {
    let home = Home::new();
    home.import("other", messages("m", 2));
    let mut writer = Writer::start(&home);
    writer.does("create 1");
    for round in 0..15 {
        writeln!(writer.input, "append {}", 1 + round % 5).unwrap();
        home.run(["verify"]).ok();
        let rows = home.run(["ls", "--json"]).ok().json();
        assert_eq!(rows.len(), 2);
        home.run(["export", "live"]).ok();
    }
}
