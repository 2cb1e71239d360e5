//! Prints the project's figures beside what they are to be, without the other stores: `cargo bench --bench goals`, or with
//! `-- --quick`. The example `bench_report` measures the same beside other stores and writes a report.

#![allow(missing_docs, reason = "a benchmark has no readers of its items but its own")]
#![allow(clippy::expect_used, reason = "a measurement ends when its world is not as it should be")]

mod measure;

use std::path::Path;

use measure::{Plan, child, run};

fn main() {
    if child::serve() {
        return;
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| words.iter().any(|given| given == word);
    // `cargo bench` says so; `cargo test --benches` only wants to see that it starts.
    if !has("--bench") {
        return;
    }
    let work = Path::new(env!("CARGO_TARGET_TMPDIR")).join("goals");
    let plan = Plan {
        work: measure::files::fresh(&work, "work"),
        quick: has("--quick"),
        scale: has("--scale"),
        peers: None,
        only: None,
    };
    let figures = run(&plan);
    for row in &figures.rows {
        let verdict = row.met.map_or("", |met| if met { "met" } else { "MISSED" });
        println!("{:<4} {:<72} {:>10}  {:<44} {verdict}", row.goal, row.measure, row.ours.to_string(), row.target);
        for other in &row.beside {
            println!("     {:>72} {:>10}  x {:.3}", other.name, other.figure.to_string(), other.ratio);
        }
        if !row.note.is_empty() {
            println!("     ({})", row.note);
        }
    }
    for latency in &figures.latencies {
        println!(
            "     {:<40} {:>4} sessions: p50 {:.3} ms, p99 {:.3} ms, p99.9 {:.3} ms, {:.0} flushes/s",
            latency.contender,
            latency.sessions,
            latency.p50 * 1e3,
            latency.p99 * 1e3,
            latency.p999 * 1e3,
            latency.throughput
        );
    }
    for curve in &figures.curves {
        println!("     {} ({}): {:?}", curve.name, curve.against, curve.points);
    }
    let _ = std::fs::remove_dir_all(work);
}
