//! The machine that was measured.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// What figures depend on.
#[derive(Debug, Serialize, Deserialize)]
pub struct Machine {
    processor: String,
    cores: usize,
    memory_bytes: u64,
    kernel: String,
    file_system: String,
    compiler: String,
    version: String,
    /// Seconds since the epoch.
    taken_at: u64,
}

fn line_of(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn output_of(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).output().ok()?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// The file system that holds `path`, with its mount options: the mount whose place is the longest prefix of it.
fn file_system(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?, words.next()?))
    });
    let (place, kind, options) =
        mounts.filter(|(place, ..)| path.starts_with(place)).max_by_key(|(place, ..)| place.len())?;
    Some(format!("{kind} at {place} ({options})"))
}

impl Machine {
    /// This one, with the file system of `work`.
    pub fn of(work: &Path) -> Self {
        let unknown = || "unknown".to_owned();
        let kilobytes = line_of("/proc/meminfo", "MemTotal").and_then(|text| text.trim_end_matches(" kB").parse().ok());
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            processor: line_of("/proc/cpuinfo", "model name").unwrap_or_else(unknown),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: kilobytes.unwrap_or(0_u64) * 1024,
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .map_or_else(|_| unknown(), |text| text.trim().to_owned()),
            file_system: file_system(work).unwrap_or_else(unknown),
            compiler: output_of("rustc", &["--version"]).unwrap_or_else(unknown),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            taken_at: since.map_or(0, |since| since.as_secs()),
        }
    }

    /// As lines of Markdown.
    pub fn lines(&self) -> String {
        format!(
            "- {} x {}, {} GB of memory, Linux {}\n- {}\n- {}, sessionlog {}, taken at {} (seconds since 1970)\n",
            self.cores,
            self.processor,
            self.memory_bytes / 1_000_000_000,
            self.kernel,
            self.file_system,
            self.compiler,
            self.version,
            self.taken_at
        )
    }
}
