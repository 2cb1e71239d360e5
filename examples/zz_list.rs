//! Scratch: makes a store of many sessions, or lists one.
#![allow(missing_docs, clippy::all, clippy::pedantic)]
use std::time::Instant;
#[path = "../benches/measure/mod.rs"]
mod measure;
use sessionlog::backend::Expected;
use sessionlog::event::{Batch, SessionHeader, SessionId};
use sessionlog::sample::Recording;
use sessionlog::segment::{Engine, EngineOptions};
fn main() {
    let words: Vec<String> = std::env::args().collect();
    if words[1] == "sizes" {
        return sizes();
    }
    let root = std::path::Path::new(&words[2]);
    if words[1] == "make" {
        let _ = (Expected::ABSENT, SessionId::new("a"));
        measure::list::many(root, words[3].parse().unwrap());
        return;
    }
    let start = Instant::now();
    let engine = Engine::open(root).unwrap();
    let list = |engine: &Engine| engine.summaries().unwrap().iter().filter(|one| one.summary.is_ok()).count();
    let count = list(&engine);
    let first = start.elapsed();
    let rounds: usize = words.get(3).map_or(1, |w| w.parse().unwrap());
    let mut again = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        list(&engine);
        again.push(start.elapsed());
    }
    again.sort();
    println!(
        "{count} cold {:.2} ms again {:.2} ms",
        first.as_secs_f64() * 1e3,
        again[again.len() / 2].as_secs_f64() * 1e3
    );
    let _ = EngineOptions::new();
}
#[allow(dead_code)]
fn sizes() {
    use std::mem::size_of;
    println!(
        "BackendError {} Summary {} Summarised {} header {}",
        size_of::<sessionlog::backend::BackendError>(),
        size_of::<sessionlog::segment::Summary>(),
        size_of::<sessionlog::segment::Summarised>(),
        size_of::<SessionHeader>()
    );
}
