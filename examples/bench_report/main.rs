//! Measures the project beside other stores and beside the machine's limits, in one process tree, and writes what came out:
//!
//! ```text
//! cargo run --release --example bench_report             # within twelve minutes, to benches/report/
//! cargo run --release --example bench_report -- --quick  # smaller, within two; to target/report/
//! cargo run --release --example bench_report -- --scale  # also 100,000 sessions, 10 GB, 2,000 streams, a day
//! ```
//!
//! `--only WORDS` keeps to the stages whose name, as printed on the way, holds the words; `--to DIRECTORY` writes elsewhere, `--work DIRECTORY` measures another file system than that of `target/`, `--without-peers` leaves
//! the other stores out, `--draw` only draws the charts of the report that is there again.

#![allow(clippy::expect_used, reason = "a measurement ends when its world is not as it should be")]

mod charts;
mod machine;
mod markdown;
#[path = "../../benches/measure/mod.rs"]
mod measure;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use machine::Machine;
use measure::peers::Peers;
use measure::{Figures, Plan};

/// Everything in a report.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    machine: Machine,
    /// How the run was asked for.
    quick: bool,
    scale: bool,
    /// The stages it was kept to.
    #[serde(default)]
    only: Option<String>,
    /// Seconds that it took.
    seconds: f64,
    figures: Figures,
}

fn value_of<'a>(words: &'a [String], name: &str) -> Option<&'a String> {
    let place = words.iter().position(|word| word == name)?;
    words.get(place + 1)
}

fn main() {
    if measure::child::serve() {
        return;
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| words.iter().any(|given| given == word);
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let usual = if has("--quick") { "target/report" } else { "benches/report" };
    let to = value_of(&words, "--to").map_or_else(|| package.join(usual), PathBuf::from);
    fs::create_dir_all(&to).expect("a directory for the report");
    let kept = to.join("report.json");
    let report = if has("--draw") {
        serde_json::from_slice(&fs::read(&kept).expect("a report to draw")).expect("a report of this version")
    } else {
        let work = value_of(&words, "--work").map_or_else(|| package.join("target"), PathBuf::from).join("bench-work");
        let work = measure::files::fresh(&work, "run");
        let peers = if has("--without-peers") { None } else { Peers::build() };
        let started = Instant::now();
        let plan = Plan {
            work: work.clone(),
            quick: has("--quick"),
            scale: has("--scale"),
            peers,
            only: value_of(&words, "--only").cloned(),
        };
        let machine = Machine::of(&work);
        let figures = measure::run(&plan);
        let _ = fs::remove_dir_all(work);
        let seconds = started.elapsed().as_secs_f64();
        Report { machine, quick: plan.quick, scale: plan.scale, only: plan.only, seconds, figures }
    };
    fs::write(&kept, serde_json::to_string_pretty(&report).expect("plain numbers")).expect("the report");
    charts::draw(&report, &to);
    fs::write(to.join("report.md"), markdown::of(&report)).expect("the report");
    println!("{}", to.join("report.md").display());
}
