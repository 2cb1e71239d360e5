//! The charts, as SVG.

use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::ranged1d::Ranged;
use plotters::prelude::*;

use crate::Report;
use crate::measure::row::{Curve, Figure, Latency, Row, Unit};

type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

const SIZE: (u32, u32) = (960, 540);
const FONT: &str = "sans-serif";
const OURS: RGBColor = RGBColor(0, 90, 180);
const COLOURS: [RGBColor; 10] = [
    RGBColor(110, 110, 110),
    RGBColor(80, 160, 230),
    OURS,
    RGBColor(200, 60, 40),
    RGBColor(230, 140, 30),
    RGBColor(60, 150, 80),
    RGBColor(130, 90, 170),
    RGBColor(170, 120, 70),
    RGBColor(220, 90, 160),
    RGBColor(40, 170, 170),
];

/// Draws all charts of a report into its directory.
pub fn draw(report: &Report, to: &Path) {
    let chart = |name: &str, paint: &dyn Fn(&Canvas) -> Drawn| {
        let path = to.join(name);
        let canvas = SVGBackend::new(&path, SIZE).into_drawing_area();
        let drawn = canvas.fill(&WHITE).map_err(Into::into).and_then(|()| paint(&canvas));
        drawn.and_then(|()| Ok(canvas.present()?)).expect("a chart");
    };
    let figures = &report.figures;
    chart("ratios.svg", &|canvas| ratios(canvas, &figures.rows));
    let crowd = figures.latencies.iter().map(|one| one.sessions).filter(|count| *count <= 64).max().unwrap_or(1);
    chart("latency.svg", &|canvas| {
        let halves = canvas.split_evenly((1, 2));
        for (half, sessions) in halves.iter().zip([1, crowd]) {
            let shown: Vec<&Latency> = figures.latencies.iter().filter(|one| one.sessions == sessions).collect();
            distributions(half, sessions, &shown)?;
        }
        Ok(())
    });
    let of = |part: &str| figures.curves.iter().filter(|curve| curve.name.contains(part)).collect::<Vec<&Curve>>();
    chart("recovery.svg", &|canvas| {
        let halves = canvas.split_evenly((1, 2));
        for (half, name) in halves.iter().zip(["by log", "by journal"]) {
            curves(half, "open after kill -9", &of(name), Some(50e-3))?;
        }
        Ok(())
    });
    let rest: Vec<&Curve> = figures.curves.iter().filter(|curve| !curve.name.contains("kill")).collect();
    chart("scale.svg", &|canvas| {
        let mut kinds: Vec<&str> = rest.iter().map(|curve| curve.against.as_str()).collect();
        kinds.dedup();
        let parts = canvas.split_evenly((1, kinds.len().max(1)));
        for (part, kind) in parts.iter().zip(kinds) {
            let shown: Vec<&Curve> = rest.iter().copied().filter(|curve| curve.against == kind).collect();
            curves(part, "cost as the count grows", &shown, None)?;
        }
        Ok(())
    });
}

fn seconds(value: f64) -> String {
    Figure { value, unit: Unit::Seconds }.to_string()
}

/// A power of ten at or below, and one at or above.
fn decades(values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
    let (low, high) = values
        .filter(|value| value.is_finite() && *value > 0.0)
        .fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        return 0.1..10.0;
    }
    let low = 10_f64.powf(low.log10().floor());
    let high = 10_f64.powf(high.log10().ceil());
    if high > low { low..high } else { low..low * 10.0 }
}

/// How many times better than the original system, row by row, on a logarithmic scale.
fn ratios(canvas: &Canvas, rows: &[Row]) -> Drawn {
    let better: Vec<(String, f64, bool)> = rows
        .iter()
        .filter_map(|row| {
            let stated = row.stated.as_ref()?;
            Some((format!("{} {}", row.goal, row.measure), 1.0 / stated.ratio, row.met != Some(false)))
        })
        .filter(|(_, ratio, _)| ratio.is_finite() && *ratio > 0.0)
        .collect();
    let range = decades(better.iter().map(|(_, ratio, _)| *ratio).chain([1.0]));
    let count = better.len().max(1);
    let mut chart = ChartBuilder::on(canvas)
        .caption("times better than the original system, as stated for the same recordings", (FONT, 18))
        .margin(12)
        .margin_right(32)
        .x_label_area_size(32)
        .build_cartesian_2d(range.clone().log_scale(), 0.0..f64::from(u32::try_from(count)?))?;
    chart.configure_mesh().disable_y_axis().disable_y_mesh().x_label_formatter(&|ratio| format!("{ratio} x")).draw()?;
    for (place, (name, ratio, met)) in better.iter().rev().enumerate() {
        let low = f64::from(u32::try_from(place)?);
        let colour = if *met { OURS.mix(0.45) } else { RED.mix(0.45) };
        let bar = Rectangle::new([(range.start.max(1e-3), low + 0.12), (*ratio, low + 0.88)], colour.filled());
        chart.draw_series([bar])?;
        let text = format!("{name}: {ratio:.1} x");
        chart.draw_series([Text::new(text, (range.start * 1.05, low + 0.68), (FONT, 12))])?;
    }
    Ok(())
}

/// Latency against the share of flushes that took no longer.
fn distributions(canvas: &Canvas, sessions: usize, shown: &[&Latency]) -> Drawn {
    let all = shown.iter().flat_map(|one| one.distribution.iter().map(|(_, latency)| *latency));
    let range = decades(all);
    let caption =
        if sessions == 1 { "flush latency, 1 session".to_owned() } else { format!("{sessions} sessions at once") };
    let mut chart = ChartBuilder::on(canvas)
        .caption(caption, (FONT, 16))
        .margin(10)
        .margin_right(24)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..1.0, range.log_scale())?;
    chart
        .configure_mesh()
        .x_desc("share of flushes")
        .x_label_formatter(&|share| format!("{:.0} %", share * 100.0))
        .y_label_formatter(&|value| seconds(*value))
        .draw()?;
    for (one, colour) in shown.iter().zip(COLOURS.iter().cycle()) {
        let style = ShapeStyle { color: colour.to_rgba(), filled: true, stroke_width: 2 };
        let line = LineSeries::new(one.distribution.iter().copied(), style);
        let key = move |(x, y)| PathElement::new([(x, y), (x + 14, y)], style);
        chart.draw_series(line)?.label(one.contender.clone()).legend(key);
    }
    legend(&mut chart)
}

/// Costs against sizes, both on logarithmic scales, with a bound drawn where there is one.
fn curves(canvas: &Canvas, caption: &str, shown: &[&Curve], bound: Option<f64>) -> Drawn {
    let points = || shown.iter().flat_map(|curve| curve.points.iter());
    let across = decades(points().map(|(at, _)| *at));
    let up = decades(points().map(|(_, cost)| *cost).chain(bound));
    let against = shown.first().map_or("", |curve| curve.against.as_str());
    let across_unit = if against.starts_with("bytes") { Unit::Bytes } else { Unit::Count };
    let mut chart = ChartBuilder::on(canvas)
        .caption(caption, (FONT, 16))
        .margin(10)
        .margin_right(24)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d(across.clone().log_scale(), up.log_scale())?;
    chart
        .configure_mesh()
        .x_desc(against)
        .x_labels(6)
        .x_label_formatter(&|at| Figure { value: *at, unit: across_unit }.to_string())
        .y_label_formatter(&|value| seconds(*value))
        .draw()?;
    if let Some(bound) = bound {
        let line = LineSeries::new([(across.start, bound), (across.end, bound)], RED);
        chart.draw_series(line)?.label("goal").legend(|(x, y)| PathElement::new([(x, y), (x + 14, y)], RED));
    }
    for (curve, colour) in shown.iter().zip(COLOURS.iter().skip(2).cycle()) {
        let style = ShapeStyle { color: colour.to_rgba(), filled: true, stroke_width: 2 };
        let key = move |(x, y)| PathElement::new([(x, y), (x + 14, y)], style);
        chart.draw_series(LineSeries::new(curve.points.iter().copied(), style))?.label(curve.name.clone()).legend(key);
        chart.draw_series(curve.points.iter().map(|point| Circle::new(*point, 3, style)))?;
    }
    legend(&mut chart)
}

fn legend<'a, 'b: 'a, X, Y>(chart: &mut ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>) -> Drawn
where
    X: Ranged<ValueType = f64> + 'a,
    Y: Ranged<ValueType = f64> + 'a,
{
    let mut labels = chart.configure_series_labels();
    labels.background_style(WHITE.mix(0.85)).border_style(BLACK.mix(0.3)).label_font((FONT, 11));
    labels.position(SeriesLabelPosition::UpperLeft).draw()?;
    Ok(())
}
