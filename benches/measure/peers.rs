//! The other stores: a package of its own under `benches/peers`, whose program is run as a child like this one's own cases.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::child::Taken;

/// The program of the other stores.
#[derive(Debug)]
pub struct Peers {
    program: PathBuf,
    names: Vec<String>,
}

impl Peers {
    /// Builds the package; `None`, with the reason on standard error, where that cannot be done.
    pub fn build() -> Option<Self> {
        let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers");
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target"), PathBuf::from);
        let target = target.join("peers");
        eprintln!("building the other stores (minutes, the first time)");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--release", "--quiet", "--manifest-path"]).arg(package.join("Cargo.toml"));
        let built = cargo.env("CARGO_TARGET_DIR", &target).stdout(Stdio::null()).status();
        if !built.is_ok_and(|status| status.success()) {
            eprintln!("they do not build here; the report goes without them");
            return None;
        }
        let program = target.join("release/sessionlog-peers");
        let names = Command::new(&program).arg("names").output().ok()?;
        let names = String::from_utf8(names.stdout).ok()?.lines().map(str::to_owned).collect();
        Some(Self { program, names })
    }

    /// The stores that it knows.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Runs `work` on the store `name` in `root`.
    ///
    /// # Panics
    /// When it fails or does not say what it measured.
    pub fn run(&self, name: &str, work: &str, root: &Path, words: &[&str]) -> Taken {
        let mut command = Command::new(&self.program);
        command.arg(work).arg(name).arg(root).args(words);
        let output = command.stderr(Stdio::inherit()).output().expect("the program of the other stores");
        assert!(output.status.success(), "{work} on {name} failed: {}", output.status);
        serde_json::from_slice(&output.stdout).expect("what it measured")
    }

    /// Processor time of an event of the recording, stored with a flush at each step.
    pub fn processor_per_event(&self, name: &str, root: &Path, events: u64) -> f64 {
        let taken = self.run(name, "store", root, &[&events.to_string(), "step", "durable"]);
        taken.processor / taken.count as f64
    }

    /// Latencies of `flushes` flushes in each of `crowd` sessions at once, without the first of each.
    pub fn flush(&self, name: &str, root: &Path, crowd: usize, flushes: usize) -> Taken {
        self.run(name, "flush", root, &[&crowd.to_string(), &flushes.to_string()])
    }

    /// Stores the recording as streaming would cut it, without waiting for the disk; `bytes` says what it takes.
    pub fn streamed(&self, name: &str, root: &Path, events: u64) -> Taken {
        self.run(name, "store", root, &[&events.to_string(), "window", "unsynced"])
    }
}
