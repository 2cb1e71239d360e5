//! What the tests with real processes share: this very test binary, started again as a child that talks over a pipe.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "each test binary uses a part")]

use std::hash::{DefaultHasher, Hasher};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};

use sessionlog::event::Event;

/// Names the store to a child; its absence makes a child's entry point a test that passes at once.
const STORE_VARIABLE: &str = "SESSIONLOG_TEST_CHILD_STORE";
/// The seed of what a child does.
const SEED_VARIABLE: &str = "SESSIONLOG_TEST_CHILD_SEED";
/// Starts the lines that a child means for its parent; the test harness prints others.
const REPORT: &str = "report";

/// The store that this process was started for, if it is a child.
pub fn store_of_child() -> Option<PathBuf> {
    std::env::var_os(STORE_VARIABLE).map(PathBuf::from)
}

pub fn seed_of_child() -> u64 {
    std::env::var(SEED_VARIABLE).unwrap().parse().unwrap()
}

/// Tells the parent.
pub fn report(words: &str) {
    let mut out = std::io::stdout().lock();
    write!(out, "\n{REPORT} {words}\n").unwrap();
    out.flush().unwrap();
}

/// This test binary as another process. Killed when dropped.
pub struct Child {
    process: std::process::Child,
    lines: Lines<BufReader<ChildStdout>>,
    complaints: PathBuf,
}

impl Child {
    /// Starts the test named `entry` over a store.
    pub fn start(entry: &str, store: &Path, seed: u64) -> Self {
        let complaints = store.with_extension("stderr");
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", entry, "--nocapture"])
            .env(STORE_VARIABLE, store)
            .env(SEED_VARIABLE, seed.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&complaints).unwrap())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines, complaints }
    }

    /// What the child wrote to its standard error.
    pub fn complaints(&self) -> String {
        std::fs::read_to_string(&self.complaints).unwrap_or_default()
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The words of the next report, or `None` once the child is gone and everything it said has been read.
    pub fn report(&mut self) -> Option<Vec<String>> {
        let mut lines = self.lines.by_ref().map_while(Result::ok);
        lines.find_map(|line| Some(line.strip_prefix(REPORT)?.split_whitespace().map(str::to_owned).collect()))
    }

    /// Lets a child go on that waits for its standard input to end.
    pub fn release(&mut self) {
        drop(self.process.stdin.take());
    }

    /// Sends a signal.
    pub fn signal(&self, signal: i32) {
        let process = i32::try_from(self.process.id()).unwrap();
        // SAFETY: the process is a child that has not been waited for, so the number is its own.
        assert_eq!(unsafe { libc::kill(process, signal) }, 0);
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.process.wait().unwrap()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits, in a child, until the parent says that it may go on.
pub fn wait_for_parent() {
    let mut nothing = String::new();
    let _ = std::io::stdin().read_line(&mut nothing);
}

/// A digest of lines.
pub fn digest<'a>(lines: impl IntoIterator<Item = &'a str>) -> u64 {
    let mut hasher = DefaultHasher::new();
    lines.into_iter().for_each(|line| hasher.write(line.as_bytes()));
    hasher.finish()
}

pub fn digest_of(events: impl IntoIterator<Item = Event>) -> u64 {
    let lines: Vec<String> = events.into_iter().map(|event| event.to_line()).collect();
    digest(lines.iter().map(String::as_str))
}

/// A number that looks random and follows from the seed.
pub fn moment(seed: u64) -> u64 {
    let mut number = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678_9abc_def1);
    number ^= number >> 29;
    number = number.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number ^ (number >> 32)
}

/// A count from the environment, else the default.
pub fn count(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(future)
}
