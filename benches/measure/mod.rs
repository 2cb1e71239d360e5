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

use std::panic::{AssertUnwindSafe, catch_unwind};
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
    /// What could not be measured, because something went wrong on the way.
    #[serde(default)]
    pub failed: Vec<String>,
}

/// Measures everything, telling on standard error how far it has come. What fails is named in the figures, and the rest goes on.
pub fn run(plan: &Plan) -> Figures {
    let mut figures = Figures::default();
    let started = Instant::now();
    let stage = |name: &str, figures: &mut Figures, work: &mut dyn FnMut(&mut Figures)| {
        eprintln!("[{:>4} s] {name}", started.elapsed().as_secs());
        if catch_unwind(AssertUnwindSafe(|| work(figures))).is_err() {
            eprintln!("{name} failed; the other figures are taken all the same");
            figures.failed.push(name.to_owned());
        }
    };
    stage("append in memory", &mut figures, &mut |figures| append::measure(plan, figures));
    stage("durable flushes", &mut figures, &mut |figures| flush::measure(plan, figures));
    let mut inputs = None;
    stage("making the stores to read from", &mut figures, &mut |_| inputs = Some(Inputs::make(plan)));
    if let Some(inputs) = inputs {
        stage("bytes stored", &mut figures, &mut |figures| size::measure(plan, &inputs, figures));
        stage("reading", &mut figures, &mut |figures| read::measure(plan, &inputs, figures));
        stage("resuming", &mut figures, &mut |figures| resume::measure(plan, &inputs, figures));
        stage("forking", &mut figures, &mut |figures| fork::measure(plan, &inputs, figures));
        stage("export and import", &mut figures, &mut |figures| exchange::measure(plan, &inputs, figures));
        inputs.remove();
    }
    stage("listing", &mut figures, &mut |figures| list::measure(plan, figures));
    stage("opening after a kill", &mut figures, &mut |figures| recovery::measure(plan, figures));
    if plan.scale {
        for (name, measure) in scale::PARTS {
            stage(name, &mut figures, &mut |figures| measure(plan, figures));
        }
    }
    eprintln!("[{:>4} s] done", started.elapsed().as_secs());
    figures.rows.sort_by_key(row::Row::order);
    figures
}
