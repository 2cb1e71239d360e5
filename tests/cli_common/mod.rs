//! What the command line's tests share: the real binary as a process, and logs to feed it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "each test binary uses a part")]

pub mod schema;

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use sessionlog::backend::{BackendError, Expected};
use sessionlog::event::{Batch, SessionId};
use sessionlog::interop::{Import, ImportOptions};
use sessionlog::sample::Recording;
use sessionlog::segment::EngineOptions;

/// Damaged, refused or partly failed.
pub const FAILED: i32 = 1;
/// Wrong usage.
pub const USAGE: i32 = 2;
/// Busy or missing.
pub const MISSING: i32 = 3;

/// Every verb that reads one session, with the arguments that it needs beside the id.
pub const READERS: [&[&str]; 9] = [
    &["export"],
    &["show"],
    &["messages"],
    &["events"],
    &["last"],
    &["grep", "e"],
    &["stats"],
    &["verify"],
    &["repair", "--dry-run"],
];

/// How a run ended and what it printed.
#[derive(Debug)]
pub struct Ran {
    pub status: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// The run, which must have ended with `status`.
    #[track_caller]
    pub fn with(self, status: i32) -> Self {
        assert_eq!(self.status, status, "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }

    /// The run, which must have succeeded without a word on standard error.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.err, "");
        self.with(0)
    }

    /// Standard output as JSON lines, and nothing else.
    #[track_caller]
    pub fn json(&self) -> Vec<Value> {
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(self.out.is_empty() || self.out.ends_with('\n'), "{}", self.out);
        self.out.lines().map(parse).collect()
    }

    /// The only JSON line.
    #[track_caller]
    pub fn document(&self) -> Value {
        let mut lines = self.json();
        assert_eq!(lines.len(), 1, "{}", self.out);
        lines.remove(0)
    }

    /// Standard error, which must contain every one of `words`.
    #[track_caller]
    pub fn says(self, words: &[&str]) -> Self {
        words.iter().for_each(|word| assert!(self.err.contains(word), "{word:?} is not in: {}", self.err));
        self
    }
}

/// A temporary directory with a store in it.
pub struct Home {
    directory: tempfile::TempDir,
}

impl Home {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn store(&self) -> PathBuf {
        self.path("store")
    }

    /// The directory of a session whose id needs no escaping.
    pub fn session(&self, id: &str) -> PathBuf {
        self.store().join("sessions").join(id)
    }

    /// The first journal of a session.
    pub fn journal(&self, id: &str) -> PathBuf {
        self.session(id).join("00000000000000000000.log")
    }

    pub fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sessionlog"));
        command.args(arguments).env("SESSIONLOG_STORE", self.store()).env_remove("PAGER").stdin(Stdio::null());
        command.current_dir(self.directory.path());
        command
    }

    pub fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Ran {
        ran(&mut self.command(arguments), b"")
    }

    pub fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> Ran {
        ran(self.command(arguments).stdin(Stdio::piped()), input)
    }

    /// Writes a file and returns its name for the command line.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), bytes).unwrap();
        name.to_owned()
    }

    /// Brings a log in, which must succeed.
    #[track_caller]
    pub fn import(&self, id: &str, log: impl AsRef<[u8]>) {
        let file = self.write("in.jsonl", log);
        self.run(["import", &file, "--id", id]).ok();
    }

    /// Stores a log, or what it has beyond the stored one, as a live writer leaves it that was killed: in a journal.
    #[track_caller]
    pub fn record(&self, id: &str, log: impl AsRef<[u8]>) {
        let engine = EngineOptions::new().background_sealing(false).open(self.store()).unwrap();
        let mut reading = Import::open(log.as_ref(), ImportOptions::default().id(id)).unwrap();
        let header = reading.header().clone();
        let id = SessionId::new(id).unwrap();
        if engine.reader(&id).is_err() {
            engine.create_whole::<BackendError>(&header, || Ok(reading.next_batch(1 << 20).unwrap())).unwrap();
            return;
        }
        let head = engine.take_over(&id).unwrap().head;
        let expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
        let mut items = Vec::new();
        while let Some(batch) = reading.next_batch(1 << 20).unwrap() {
            items.extend(batch.items().iter().filter_map(|item| item.slice(head.next_seq, u64::MAX)));
        }
        engine.append(&id, None, expected, &Batch::new(items).unwrap()).unwrap();
        engine.release(&id, head.epoch).unwrap();
    }

    /// The verbs that `--help` names.
    pub fn verbs(&self) -> Vec<String> {
        let help = self.run(["--help"]).ok().out;
        let verbs = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
        let names = verbs.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
        names.filter(|verb| !verb.is_empty()).map(str::to_owned).collect()
    }

    /// A store with a recorded session `good`, which several verbs have something to say about.
    pub fn with_good() -> Self {
        let home = Self::new();
        home.record("good", recording(1, 400));
        home
    }

    /// Every path below the home that is not in the store.
    pub fn outside(&self) -> Vec<PathBuf> {
        let store = self.store();
        below(self.directory.path()).into_iter().filter(|path| !path.starts_with(&store)).collect()
    }
}

/// Runs a command that was made with [`Home::command`].
pub fn ran(command: &mut Command, input: &[u8]) -> Ran {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    if let Some(mut pipe) = child.stdin.take() {
        // A program that refuses its arguments does not read.
        let _ = pipe.write_all(input);
    }
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { status: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// Everything below a directory.
pub fn below(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path.clone());
            }
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The files below a directory.
pub fn files(root: &Path) -> Vec<PathBuf> {
    below(root).into_iter().filter(|path| path.is_file()).collect()
}

/// A recorded session as JSONL; its own id is that of the recording.
pub fn recording(seed: u64, events: u64) -> Vec<u8> {
    Recording::new(seed).events(events).write_jsonl(Vec::new()).unwrap()
}

pub fn header(id: &str) -> String {
    format!("{{\"type\":\"session\",\"version\":1,\"id\":{},\"createdAt\":1700000000000}}", Value::from(id))
}

/// An event that does not touch the surface.
pub fn event(seq: u64, event_type: &str, data: &str) -> String {
    let time = 1_700_000_000_000 + seq;
    format!("{{\"type\":\"{event_type}\",\"seq\":{seq},\"time\":{time},\"data\":{data}}}")
}

/// A user message on the surface; `text` is JSON text without its quotes.
pub fn said(seq: u64, text: &str) -> String {
    let data = format!(
        r#"{{"id":"m-{seq}","role":"user","content":[{{"type":"text","text":"{text}"}}],"source":{{"kind":"user"}}}}"#
    );
    let line = event(seq, "user/message", &data);
    format!("{},\"surfaceOp\":\"append\"}}", line.strip_suffix('}').unwrap())
}

/// A log of lines.
pub fn log<S: AsRef<str>>(id: &str, lines: impl IntoIterator<Item = S>) -> String {
    let mut log = header(id) + "\n";
    for line in lines {
        log += line.as_ref();
        log += "\n";
    }
    log
}

/// A log of `count` user messages between turns.
pub fn messages(id: &str, count: u64) -> String {
    log(id, (0..count).map(|seq| said(seq, &format!("message {seq}"))))
}

/// Flips a byte of a file.
pub fn flip(path: &Path, offset: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[offset] ^= 0x41;
    fs::write(path, bytes).unwrap();
}

/// Cuts bytes off the end of a file.
pub fn cut(path: &Path, bytes: u64) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() - bytes).unwrap();
}
