//! Figures that need a process of their own.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::memory;

/// The first argument of a child.
const CHILD: &str = "--measure-child";

/// What a child measured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Taken {
    /// How long the work took, from inside the process.
    pub seconds: f64,
    /// The same work again in the same process, where that was asked for.
    #[serde(default)]
    pub again: f64,
    /// Processor time of the work.
    #[serde(default)]
    pub processor: f64,
    /// The most memory the process had.
    #[serde(default)]
    pub peak: f64,
    /// How many of whatever it was: events, messages, sessions.
    #[serde(default)]
    pub count: u64,
    /// Bytes that the work produced or holds.
    #[serde(default)]
    pub bytes: f64,
    /// Bytes that it left allocated.
    #[serde(default)]
    pub held: f64,
    /// Nanoseconds of single operations, where they matter.
    #[serde(default)]
    pub each: Vec<u64>,
}

/// Times `work`, which says how many and how many bytes.
pub fn taken(work: impl FnOnce() -> (u64, f64)) -> Taken {
    let processor = memory::processor_time();
    let start = Instant::now();
    let (count, bytes) = work();
    let seconds = start.elapsed().as_secs_f64();
    let processor = memory::processor_time() - processor;
    Taken { seconds, processor, peak: memory::peak(), count, bytes, ..Taken::default() }
}

fn command(case: &str, root: &Path, rest: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program's own path"));
    command.arg(CHILD).arg(case).arg(root).args(rest);
    command
}

/// Runs a case in a child.
///
/// # Panics
/// When the child fails or does not say what it measured.
pub fn run(case: &str, root: &Path, rest: &[&str]) -> Taken {
    let output = command(case, root, rest).stderr(Stdio::inherit()).output().expect("a child of this program");
    assert!(output.status.success(), "the case {case} failed: {}", output.status);
    serde_json::from_slice(&output.stdout).expect("what the child measured")
}

/// Starts a case that goes on until it is killed.
pub fn start(case: &str, root: &Path, rest: &[&str]) -> Child {
    command(case, root, rest).stdout(Stdio::piped()).spawn().expect("a child of this program")
}

/// Does what a child is for, if this process is one, and says whether it was. Call it first in `main`.
pub fn serve() -> bool {
    let words: Vec<String> = std::env::args().collect();
    let [_, mark, case, root, rest @ ..] = &words[..] else { return false };
    if mark != CHILD {
        return false;
    }
    let (root, rest) = (Path::new(root), rest.iter().map(String::as_str).collect::<Vec<_>>());
    let taken = match case.as_str() {
        "durable" => super::append::durable_child(root, &rest),
        "held" => super::append::held_child(),
        "read" => super::read::read_child(root, &rest),
        "tail" => super::read::tail_child(root, &rest),
        "decode" => super::read::decode_child(root),
        "resume" => super::resume::resume_child(root, &rest),
        "list" => super::list::list_child(root, &rest),
        "fork" => super::fork::fork_child(root, &rest),
        "export" => super::exchange::export_child(root, &rest),
        "import" => super::exchange::import_child(root, &rest),
        "stream" => super::recovery::stream_child(root, &rest),
        "crowd" => super::scale::crowd_child(root, &rest),
        other => panic!("there is no case {other}"),
    };
    println!("{}", serde_json::to_string(&taken).expect("plain numbers"));
    true
}
