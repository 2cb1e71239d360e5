//! Random programs over the public interface on a disk that fails, against a plain model in memory, checked after every step.
//!
//! `SESSIONLOG_PROGRAMS` says how many programs are run, `SESSIONLOG_SEED` runs one alone, and `SESSIONLOG_PROGRAM` runs the
//! given steps (as a failure prints them) on the disk of that seed.
#![cfg(feature = "store")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(clippy::cast_possible_truncation, reason = "counts are small")]

mod agent;
mod model;
#[path = "../store_common/mod.rs"]
mod store_common;
mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use world::World;

/// Programs run by default.
const PROGRAMS: u64 = 500;
/// Runs spent on making a failing program shorter.
const SHRINKING_RUNS: u32 = 400;

/// Numbers that look random and follow from a seed.
struct Words(u64);

impl Iterator for Words {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some(mixed ^ (mixed >> 31))
    }
}

fn program(seed: u64) -> Vec<u64> {
    let mut words = Words(seed);
    let length = 10 + words.next().unwrap() % 50;
    words.take(length as usize).collect()
}

fn run(seed: u64, program: &[u64], tell: bool) -> BTreeMap<&'static str, u64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut world = World::new(seed, tell);
        for word in program {
            world.step(*word).await;
        }
        world.end().await
    })
}

fn fails(seed: u64, program: &[u64]) -> bool {
    catch_unwind(AssertUnwindSafe(|| run(seed, program, false))).is_err()
}

/// Leaves out what the failure does not need.
fn shrink(seed: u64, mut program: Vec<u64>) -> Vec<u64> {
    let mut runs = 0;
    let mut size = program.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at < program.len() && runs < SHRINKING_RUNS {
            let mut shorter = program.clone();
            shorter.drain(at..(at + size).min(program.len()));
            runs += 1;
            if fails(seed, &shorter) { program = shorter } else { at += size }
        }
        size /= 2;
    }
    program
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[test]
fn random_programs_on_a_failing_disk_agree_with_a_plain_model() {
    if let Some(seed) = variable("SESSIONLOG_SEED").and_then(|text| text.parse().ok()) {
        let given = variable("SESSIONLOG_PROGRAM");
        let given = given.map(|text| text.split(',').map(|word| u64::from_str_radix(word, 16).unwrap()).collect());
        run(seed, &given.unwrap_or_else(|| program(seed)), true);
        return;
    }
    let number = |name, default| variable(name).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (first, programs) = (number("SESSIONLOG_FIRST", 0), number("SESSIONLOG_PROGRAMS", PROGRAMS));
    let (mut steps, mut done) = (0, BTreeMap::new());
    for seed in first..first + programs {
        let words = program(seed);
        match catch_unwind(AssertUnwindSafe(|| run(seed, &words, false))) {
            Ok(counts) => counts.into_iter().for_each(|(what, count)| *done.entry(what).or_insert(0) += count),
            Err(panic) => {
                std::panic::set_hook(Box::new(|_| {}));
                let shorter: Vec<String> = shrink(seed, words).iter().map(|word| format!("{word:x}")).collect();
                let _ = std::panic::take_hook();
                let program = shorter.join(",");
                println!("program {seed} fails; the same with fewer steps ({}):", shorter.len());
                println!("SESSIONLOG_SEED={seed} SESSIONLOG_PROGRAM={program} cargo test --test simulation");
                std::panic::resume_unwind(panic);
            }
        }
        steps += words.len();
    }
    println!("{programs} programs, {steps} steps: {done:?}");
    let wanted = ["append", "flush", "failed flush", "resume", "seal", "fork", "delete", "follow", "crash"];
    assert!(wanted.iter().all(|what| done.get(what).is_some_and(|count| count * 40 > programs)), "{done:?}");
}
