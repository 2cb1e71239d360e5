//! Rows of the report: a figure beside what it is to be compared with.

use std::fmt;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Seconds,
    Bytes,
    BytesPerSecond,
    PerSecond,
    /// A share of something, 1 being all of it.
    Share,
    /// A plain number.
    Count,
}

/// A figure with its unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    #[serde(deserialize_with = "number")]
    pub value: f64,
    pub unit: Unit,
}

/// A number; JSON has `null` for what is not one.
fn number<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Option::<f64>::deserialize(deserializer).map(|value| value.unwrap_or(f64::NAN))
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (steps, names): (&[f64], &[&str]) = match self.unit {
            Unit::Seconds => (&[1e-9, 1e-6, 1e-3, 1.0], &["ns", "us", "ms", "s"]),
            Unit::Bytes => (&[1.0, 1e3, 1e6, 1e9], &["B", "kB", "MB", "GB"]),
            Unit::BytesPerSecond => (&[1.0, 1e3, 1e6, 1e9], &["B/s", "kB/s", "MB/s", "GB/s"]),
            Unit::PerSecond => (&[1.0, 1e3], &["/s", "k/s"]),
            Unit::Share => (&[0.01], &["%"]),
            Unit::Count => (&[1.0], &[""]),
        };
        let place = steps.iter().rposition(|step| self.value.abs() >= *step).unwrap_or(0);
        let (step, name) = (steps.get(place).copied().unwrap_or(1.0), names.get(place).copied().unwrap_or_default());
        let scaled = self.value / step;
        let digits = if scaled.abs() >= 100.0 || (place == 0 && scaled.fract() == 0.0) {
            0
        } else {
            1 + usize::from(scaled.abs() < 10.0)
        };
        write!(f, "{scaled:.digits$}")?;
        if name.is_empty() { Ok(()) } else { write!(f, " {name}") }
    }
}

/// Makes figures of plain numbers.
pub fn seconds(value: f64) -> Figure {
    Figure { value, unit: Unit::Seconds }
}
pub fn bytes(value: f64) -> Figure {
    Figure { value, unit: Unit::Bytes }
}
pub fn rate(value: f64) -> Figure {
    Figure { value, unit: Unit::BytesPerSecond }
}
pub fn count(value: f64) -> Figure {
    Figure { value, unit: Unit::Count }
}

/// Something to compare with. `ratio` is ours divided by it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Comparison {
    pub name: String,
    pub figure: Figure,
    #[serde(deserialize_with = "number")]
    pub ratio: f64,
}

/// One row of the report.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// The goal's number, such as `G7`.
    pub goal: String,
    pub measure: String,
    /// The median of `samples`.
    pub ours: Figure,
    /// Every repetition.
    pub samples: Vec<Option<f64>>,
    /// What was measured beside it in this run: physical limits and other stores.
    pub beside: Vec<Comparison>,
    /// The original system's figure as its authors' table states it; not measured here.
    pub stated: Option<Comparison>,
    pub target: String,
    /// Whether the goal is met; `None` for rows that only inform.
    pub met: Option<bool>,
    pub note: String,
}

impl Row {
    /// A row whose figure is the median of `samples`.
    pub fn new(goal: &str, measure: impl Into<String>, samples: &[f64], unit: Unit) -> Self {
        Self {
            goal: goal.to_owned(),
            measure: measure.into(),
            ours: Figure { value: median(samples), unit },
            samples: samples.iter().copied().map(Some).collect(),
            beside: Vec::new(),
            stated: None,
            target: String::new(),
            met: None,
            note: String::new(),
        }
    }

    fn compared(&self, name: &str, value: f64) -> Comparison {
        let figure = Figure { value, unit: self.ours.unit };
        Comparison { name: name.to_owned(), figure, ratio: self.ours.value / value }
    }

    /// Puts a figure of the same run beside it.
    pub fn beside(mut self, name: &str, samples: &[f64]) -> Self {
        if !samples.is_empty() {
            self.beside.push(self.compared(name, median(samples)));
        }
        self
    }

    /// Puts the original system's stated figure beside it.
    pub fn stated(mut self, name: &str, value: f64) -> Self {
        self.stated = Some(self.compared(name, value));
        self
    }

    /// Says what the goal is and whether it is met.
    pub fn judged(mut self, target: impl Into<String>, met: bool) -> Self {
        (self.target, self.met) = (target.into(), Some(met));
        self
    }

    /// The goal is to be at most this.
    pub fn at_most(self, limit: f64) -> Self {
        let (text, met) = (Figure { value: limit, unit: self.ours.unit }.to_string(), self.ours.value <= limit);
        self.judged(format!("<= {text}"), met)
    }

    /// The goal is to be at least this.
    pub fn at_least(self, limit: f64) -> Self {
        let (text, met) = (Figure { value: limit, unit: self.ours.unit }.to_string(), self.ours.value >= limit);
        self.judged(format!(">= {text}"), met)
    }

    /// The goal is to be at most so many times the first figure beside it.
    pub fn at_most_times(self, limit: f64) -> Self {
        let Some(first) = self.beside.first().cloned() else { return self };
        self.judged(format!("<= {limit:.2} x {}", first.name), first.ratio <= limit)
    }

    /// The goal is to be at least so many times the first figure beside it.
    pub fn at_least_times(self, limit: f64) -> Self {
        let Some(first) = self.beside.first().cloned() else { return self };
        self.judged(format!(">= {limit:.2} x {}", first.name), first.ratio >= limit)
    }

    /// Adds a remark.
    pub fn note(mut self, text: impl AsRef<str>) -> Self {
        if !self.note.is_empty() {
            self.note.push_str("; ");
        }
        self.note.push_str(text.as_ref());
        self
    }

    /// Where the row stands in the report.
    pub fn order(&self) -> u32 {
        self.goal.trim_start_matches('G').parse().unwrap_or(u32::MAX)
    }
}

/// Flush latencies of one contender.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Latency {
    pub contender: String,
    pub sessions: usize,
    pub flushes: u64,
    /// Flushes a second over all sessions.
    pub throughput: f64,
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
    /// Latency in seconds at evenly spaced shares, for the chart.
    pub distribution: Vec<(f64, f64)>,
}

impl Latency {
    /// Reads off a histogram of nanoseconds; `rates` are flushes a second, one for each round.
    pub fn of(contender: &str, sessions: usize, histogram: &Histogram<u64>, rates: &[f64]) -> Self {
        let at = |share: f64| histogram.value_at_quantile(share) as f64 / 1e9;
        let shares = (1..100).map(|percent| f64::from(percent) / 100.0).chain([0.995, 0.999]);
        Self {
            contender: contender.to_owned(),
            sessions,
            flushes: histogram.len(),
            throughput: median(rates),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max() as f64 / 1e9,
            distribution: shares.map(|share| (share, at(share))).collect(),
        }
    }
}

/// A cost against a size.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Curve {
    pub name: String,
    /// What the first member of each point counts.
    pub against: String,
    pub unit: Unit,
    pub points: Vec<(f64, f64)>,
}

/// The middle of the samples; NaN of none.
pub fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted.get(odd / 2).copied().unwrap_or(f64::NAN),
        even => sorted.get(even / 2 - 1..=even / 2).map_or(f64::NAN, |pair| pair.iter().sum::<f64>() / 2.0),
    }
}
