//! What the figures are made of, compiled into `benches/goals.rs` and into the example `bench_report`.
//!
//! Everything works on [`sessionlog::sample`]'s recordings, which the tests use as well. A figure that depends on a process having
//! just started, or on how much memory one needed, is taken in a child: the program runs itself again and the child prints what it
//! measured. Contenders take turns within a round, and rounds are repeated, so that what disturbs the machine disturbs all.

#![allow(clippy::expect_used, reason = "a measurement ends when its world is not as it should be")]
#![allow(clippy::cast_precision_loss, reason = "figures are shown with three digits")]
#![allow(dead_code, reason = "the printed table and the report use a part each")]

pub mod append;
pub mod child;
pub mod exchange;
pub mod files;
pub mod flush;
pub mod fork;
pub mod inputs;
pub mod list;
pub mod memory;
pub mod peers;
pub mod read;
pub mod recovery;
pub mod resume;
pub mod row;
pub mod scale;
pub mod size;

use std::path::PathBuf;
use std::time::Instant;

use sessionlog::sample::{LARGE_EVENTS, MEDIUM_EVENTS};

use inputs::Inputs;
use peers::Peers;
use row::{Curve, Latency, Row};

/// What to measure, and where.
#[derive(Debug)]
pub struct Plan {
    /// A directory on the file system that is to be measured; emptied before and after.
    pub work: PathBuf,
    /// Everything smaller and fewer, for a look within two minutes.
    pub quick: bool,
    /// Also what takes hours and tens of gigabytes.
    pub scale: bool,
    /// The other stores, if they were built.
    pub peers: Option<Peers>,
}

impl Plan {
    /// How often everything that is cheap enough is repeated.
    pub fn rounds(&self) -> usize {
        if self.quick { 3 } else { 5 }
    }

    /// Events of the recording that stands for the large one.
    pub fn large(&self) -> u64 {
        if self.quick { MEDIUM_EVENTS } else { LARGE_EVENTS }
    }

    /// The part of the large recording that is measured: bounds and stated figures that grow with the log are scaled by it.
    pub fn share(&self) -> f64 {
        self.large() as f64 / LARGE_EVENTS as f64
    }
}

/// Everything that was measured.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Figures {
    /// The rows of the table.
    pub rows: Vec<Row>,
    /// Flush latencies by contender and number of sessions.
    pub latencies: Vec<Latency>,
    /// Costs against sizes.
    pub curves: Vec<Curve>,
}

/// Measures everything, telling on standard error how far it has come.
pub fn run(plan: &Plan) -> Figures {
    let mut figures = Figures::default();
    let started = Instant::now();
    let stage = |name: &str| eprintln!("[{:>4} s] {name}", started.elapsed().as_secs());
    stage("append in memory");
    append::measure(plan, &mut figures);
    stage("durable flushes");
    flush::measure(plan, &mut figures);
    stage("making the stores to read from");
    let inputs = Inputs::make(plan);
    stage("bytes stored");
    size::measure(plan, &inputs, &mut figures);
    stage("reading");
    read::measure(plan, &inputs, &mut figures);
    stage("resuming");
    resume::measure(plan, &inputs, &mut figures);
    stage("forking");
    fork::measure(plan, &inputs, &mut figures);
    stage("export and import");
    exchange::measure(plan, &inputs, &mut figures);
    inputs.remove();
    stage("listing");
    list::measure(plan, &mut figures);
    stage("opening after a kill");
    recovery::measure(plan, &mut figures);
    if plan.scale {
        stage("scale");
        scale::measure(plan, &mut figures);
    }
    stage("done");
    figures.rows.sort_by_key(row::Row::order);
    figures
}
