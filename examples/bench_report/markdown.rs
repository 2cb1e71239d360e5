//! The report as Markdown.

use std::fmt::Write as _;

use crate::Report;
use crate::measure::row::{Comparison, Figure, Row, Unit};

fn verdict(row: &Row) -> &'static str {
    match row.met {
        None => "",
        Some(true) => "met",
        Some(false) => "**missed**",
    }
}

fn compared(other: &Comparison) -> String {
    format!("{}: {} ({})", other.name, other.figure, times(other.ratio))
}

/// A ratio as people read it.
fn times(ratio: f64) -> String {
    let digits = if ratio >= 100.0 {
        0
    } else if ratio >= 0.1 {
        2
    } else {
        4
    };
    format!("x {ratio:.digits$}")
}

fn table(report: &Report, out: &mut String) {
    out.push_str("| # | measure | here | ratio to dsh as stated | goal | | beside it, measured in the same run |\n");
    out.push_str("|---|---|---|---|---|---|---|\n");
    for row in &report.figures.rows {
        let stated = row.stated.as_ref().map(compared).unwrap_or_default();
        let beside: Vec<String> = row.beside.iter().map(compared).collect();
        let measured = if row.ours.value.is_nan() { "-".to_owned() } else { row.ours.to_string() };
        let note = if row.note.is_empty() { String::new() } else { format!(" ({})", row.note) };
        let _ = writeln!(
            out,
            "| {} | {}{note} | {measured} | {stated} | {} | {} | {} |",
            row.goal,
            row.measure,
            row.target,
            verdict(row),
            beside.join("; ")
        );
    }
}

/// What stands in the way of each goal that is missed: the nearest physical limit of the same run.
fn missed(report: &Report, out: &mut String) {
    let missed: Vec<&Row> = report.figures.rows.iter().filter(|row| row.met == Some(false)).collect();
    if missed.is_empty() {
        out.push_str("Every goal that could be measured here is met.\n");
        return;
    }
    for row in missed {
        let _ = write!(out, "- {} {}: {} against {}", row.goal, row.measure, row.ours, row.target);
        if let Some(floor) = row.beside.first() {
            let _ = write!(out, "; the floor measured beside it is {} ({})", floor.figure, floor.name);
        }
        if !row.note.is_empty() {
            let _ = write!(out, "; {}", row.note);
        }
        out.push('\n');
    }
}

fn latencies(report: &Report, out: &mut String) {
    out.push_str(
        "| sessions | store | p50 | p99 | p99.9 | longest | flushes/s | flushes |\n|---|---|---|---|---|---|---|---|\n",
    );
    let seconds = |value| Figure { value, unit: Unit::Seconds };
    for one in &report.figures.latencies {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {:.0} | {} |",
            one.sessions,
            one.contender,
            seconds(one.p50),
            seconds(one.p99),
            seconds(one.p999),
            seconds(one.max),
            one.throughput,
            one.flushes
        );
    }
}

fn curves(report: &Report, out: &mut String) {
    for curve in &report.figures.curves {
        let points = curve.points.iter().map(|(at, cost)| {
            let cost = Figure { value: *cost, unit: curve.unit };
            format!("{}: {cost}", Figure { value: *at, unit: Unit::Count })
        });
        let _ = writeln!(out, "- {}, against {}: {}", curve.name, curve.against, points.collect::<Vec<_>>().join(", "));
    }
}

/// The whole report.
pub fn of(report: &Report) -> String {
    let mut out = String::from("# Figures\n\n");
    out.push_str("Made by `cargo run --release --example bench_report");
    let switches = [(report.quick, " --quick"), (report.scale, " --scale")];
    let only = report.only.as_ref().map(|words| format!(" --only '{words}'"));
    let words: String =
        switches.iter().filter(|(given, _)| *given).map(|(_, word)| *word).chain(only.as_deref()).collect();
    if !words.is_empty() {
        let _ = write!(out, " --{words}");
    }
    let _ = writeln!(out, "` in {:.0} s.\n", report.seconds);
    out.push_str(&report.machine.lines());
    out.push_str(
        "- Flushes are one `write` and one `fdatasync` unless a row says otherwise; every store was given the same events and made \
         them durable in its own way before it answered.\n\
         - Figures are medians of at least three, most of five, repetitions in which the contenders took turns. A ratio is the figure here over the other \
         one.\n\
         - The original system (\"dsh\") was not run: its figures are those that its users stated for the same recordings on a machine of the \
         same size. The store `zstd-frames` does on this machine what it does on disk.\n\
         - The page cache is warm unless a row says that it was dropped (`posix_fadvise`; names and inodes stay cached).\n",
    );
    if report.quick {
        out.push_str("- A quick run: the medium recording stands for the large one, and bounds that grow with the log are scaled.\n");
    }
    if !report.figures.failed.is_empty() {
        let _ = writeln!(
            out,
            "- **Could not be measured, as something failed on the way: {}.**",
            report.figures.failed.join(", ")
        );
    }
    out.push_str("\n## Goals\n\n");
    table(report, &mut out);
    out.push_str("\n## Goals that are missed\n\n");
    missed(report, &mut out);
    out.push_str("\n![ratios](ratios.svg)\n\n## Flush latency\n\n");
    latencies(report, &mut out);
    out.push_str("\n![latency](latency.svg)\n\n## Costs against sizes\n\n");
    curves(report, &mut out);
    out.push_str("\n![recovery](recovery.svg)\n\n![scale](scale.svg)\n");
    out
}
