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
    /// Also what takes tens of gigabytes.
    pub scale: bool,
    /// The other stores, if they were built.
    pub peers: Option<Peers>,
    /// Only the stages whose name holds these words.
    pub only: Option<String>,
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

/// Measures with the stores that are made once and read by several stages.
type Reading = fn(&Plan, &Inputs, &mut Figures);

/// The stages that read them.
const READING: [(&str, Reading); 5] = [
    ("bytes stored", size::measure),
    ("reading", read::measure),
    ("resuming", resume::measure),
    ("forking", fork::measure),
    ("export and import", exchange::measure),
];

/// Measures everything, telling on standard error how far it has come. What fails is named in the figures, and the rest goes on.
pub fn run(plan: &Plan) -> Figures {
    let mut figures = Figures::default();
    let started = Instant::now();
    let wanted = |name: &str| plan.only.as_ref().is_none_or(|words| name.contains(words.as_str()));
    let stage = |name: &str, figures: &mut Figures, work: &mut dyn FnMut(&mut Figures)| {
        eprintln!("[{:>4} s] {name}", started.elapsed().as_secs());
        if catch_unwind(AssertUnwindSafe(|| work(figures))).is_err() {
            eprintln!("{name} failed; the other figures are taken all the same");
            figures.failed.push(name.to_owned());
        }
    };
    let parts = |parts: &[(&str, scale::Part)], figures: &mut Figures| {
        for (name, measure) in parts.iter().filter(|(name, _)| wanted(name)) {
            stage(name, figures, &mut |figures| measure(plan, figures));
        }
    };
    parts(&[("append in memory", append::measure), ("durable flushes", flush::measure)], &mut figures);
    if READING.iter().any(|(name, _)| wanted(name)) {
        let mut inputs = None;
        stage("making the stores to read from", &mut figures, &mut |_| inputs = Some(Inputs::make(plan)));
        if let Some(inputs) = inputs {
            for (name, measure) in READING.iter().filter(|(name, _)| wanted(name)) {
                stage(name, &mut figures, &mut |figures| measure(plan, &inputs, figures));
            }
            inputs.remove();
        }
    }
    parts(&[("listing", list::measure), ("opening after a kill", recovery::measure)], &mut figures);
    if plan.scale {
        parts(&scale::PARTS, &mut figures);
    }
    eprintln!("[{:>4} s] done", started.elapsed().as_secs());
    figures.rows.sort_by_key(row::Row::order);
    figures
}
