//! Export to JSON lines and import from them (G16).

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{BufReader, BufWriter};
use std::path::Path;
use std::time::Instant;

use sessionlog::backend::{BackendError, ReadLimit};
use sessionlog::event::SessionId;
use sessionlog::interop::{Import, ImportOptions, JsonlWriter};
use sessionlog::segment::Engine;

use super::child::{self, Taken, taken};
use super::inputs::Inputs;
use super::row::{Row, Unit, bytes};
use super::{Figures, Plan, files};

/// Most memory that either may take.
const MOST_MEMORY: f64 = 128.0 * 1024.0 * 1024.0;
const BUFFER: usize = 256 * 1024;
const BATCH: usize = 4 << 20;

/// Writes a session to a file as JSON lines.
pub fn export_child(root: &Path, words: &[&str]) -> Taken {
    let [name, target] = words else { panic!("an id and a file") };
    taken(|| {
        let engine = Engine::open(root).expect("a store");
        let mut reader = engine.reader(&SessionId::new(*name).expect("an id")).expect("the session");
        let file = BufWriter::with_capacity(BUFFER, File::create(target).expect("a file"));
        let mut writer = JsonlWriter::new(file, reader.header()).expect("a header");
        let mut events = 0;
        loop {
            let page = reader.next_page(ReadLimit::default()).expect("a page");
            for item in &page.items {
                writer.item(item).expect("a line");
                events += item.next_seq() - item.first_seq();
            }
            if page.next.is_none() {
                break;
            }
        }
        let file = writer.finish().expect("a flush").into_inner().expect("a file");
        (events, file.metadata().expect("a file").len() as f64)
    })
}

/// Stores a file of JSON lines as a session, durably.
pub fn import_child(root: &Path, words: &[&str]) -> Taken {
    let [source] = words else { panic!("a file") };
    taken(|| {
        let file = File::open(source).expect("a file");
        let length = file.metadata().expect("a file").len();
        let input = BufReader::with_capacity(BUFFER, file);
        let options = ImportOptions::default().id("imported");
        let mut import = Import::open(input, options).expect("a recording");
        let header = import.header().clone();
        let engine = Engine::open(root).expect("a store");
        let next = || {
            import
                .next_batch(BATCH)
                .map_err(|error| BackendError::new(sessionlog::backend::ErrorKind::Invalid, error.to_string()))
        };
        let head = engine.create_whole(&header, next).expect("a session");
        (head.next_seq, length as f64)
    })
}

/// Row G16.
pub fn measure(plan: &Plan, inputs: &Inputs, figures: &mut Figures) {
    let lines = plan.work.join("lines.jsonl");
    let name = lines.to_str().expect("a plain path");
    let (mut out, mut in_, mut copied) = (Vec::new(), Vec::new(), Vec::new());
    let (mut out_peak, mut in_peak) = (0.0_f64, 0.0_f64);
    for _ in 0..plan.rounds() {
        let taken = child::run("export", &inputs.large.root, &[inputs.large.name(), name]);
        assert!(taken.count >= inputs.large.events);
        out.push(taken.bytes / taken.seconds);
        out_peak = out_peak.max(taken.peak);
        let root = files::fresh(&plan.work, "imported");
        let taken = child::run("import", &root, &[name]);
        in_.push(taken.bytes / taken.seconds);
        in_peak = in_peak.max(taken.peak);
        let text = fs::read(&lines).expect("a file");
        let start = Instant::now();
        black_box(text.clone());
        copied.push(text.len() as f64 / start.elapsed().as_secs_f64());
    }
    let row = |what: &str, samples: &[f64], limit: f64, peak: f64| {
        let row = Row::new("G16", what, samples, Unit::BytesPerSecond).beside("memcpy of the same bytes", &copied);
        let met = row.ours.value >= limit && peak <= MOST_MEMORY;
        let target = format!(">= {}, <= 128 MiB", super::row::rate(limit));
        row.judged(target, met).note(format!("most memory {}", bytes(peak)))
    };
    figures.rows.push(row("export to JSON lines, into a file", &out, 400e6, out_peak));
    figures.rows.push(row("import from JSON lines, durable", &in_, 150e6, in_peak));
    let _ = fs::remove_file(&lines);
    let _ = fs::remove_dir_all(plan.work.join("imported"));
}
