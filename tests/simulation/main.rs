//! Random programs over the public interface on a disk that fails, against a plain model in memory, checked after every step.
//!
//! `SESSIONLOG_PROGRAMS` says how many programs are run, from seed `SESSIONLOG_FIRST` on; `SESSIONLOG_PROGRAMS_SECONDS` runs, instead of
//! a number of them, as many as this time allows. `SESSIONLOG_SEED` runs one alone, and `SESSIONLOG_PROGRAM` runs the given steps (as
//! a failure prints them) on the disk of that seed. A program depends on nothing but its seed.
#![cfg(feature = "store")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(clippy::cast_possible_truncation, reason = "counts are small")]

mod agent;
mod faults;
mod model;
#[path = "../store_common/mod.rs"]
mod store_common;
mod world;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use faults::Faults;
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

/// What one program did: its steps, and the failures of the disk that it planned and met.
type Did = (BTreeMap<&'static str, u64>, Faults);

fn run(seed: u64, program: &[u64], tell: bool) -> Did {
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

/// What many programs did together.
#[derive(Default)]
struct Sum {
    programs: u64,
    steps: usize,
    done: BTreeMap<&'static str, u64>,
    faults: Faults,
    /// The seed of a program that failed, and the fewest of its steps that still do.
    failed: Option<(u64, Vec<u64>)>,
}

/// Runs the programs of these seeds on every core, until one fails or the time is over; each that was begun is ended.
fn run_all(first: u64, last: u64, time: Option<Duration>) -> Sum {
    let begun = Instant::now();
    let (next, stop, sum) = (AtomicU64::new(first), AtomicBool::new(false), Mutex::new(Sum::default()));
    let over = || stop.load(Ordering::Relaxed) || time.is_some_and(|time| begun.elapsed() >= time);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while !over() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= last {
                        return;
                    }
                    let words = program(seed);
                    let result = catch_unwind(AssertUnwindSafe(|| run(seed, &words, false)));
                    let mut sum = sum.lock().unwrap();
                    sum.programs += 1;
                    sum.steps += words.len();
                    if let Ok((done, faults)) = result {
                        for (what, count) in done {
                            *sum.done.entry(what).or_insert(0) += count;
                        }
                        sum.faults.add(&faults);
                    } else {
                        stop.store(true, Ordering::Relaxed);
                        sum.failed.get_or_insert((seed, words));
                    }
                }
            });
        }
    });
    let mut sum = sum.into_inner().unwrap();
    if let Some((seed, words)) = sum.failed.take() {
        std::panic::set_hook(Box::new(|_| {}));
        let shorter = shrink(seed, words);
        let _ = std::panic::take_hook();
        sum.failed = Some((seed, shorter));
    }
    sum
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
    let number =
        |name| variable(name).map(|text| text.parse::<u64>().unwrap_or_else(|_| panic!("{name} is no number")));
    let seconds = number("SESSIONLOG_PROGRAMS_SECONDS").map(Duration::from_secs);
    let unbounded = seconds.map_or(PROGRAMS, |_| u64::MAX);
    let first = number("SESSIONLOG_FIRST").unwrap_or(0);
    let last = first.saturating_add(number("SESSIONLOG_PROGRAMS").unwrap_or(unbounded));
    let sum = run_all(first, last, seconds);
    let (end, programs) = (first + sum.programs, sum.programs);
    println!("{programs} programs, seeds {first} to {end} without the last, {} steps: {:?}", sum.steps, sum.done);
    println!("failures of the disk: {}", sum.faults);
    if let Some((seed, program)) = sum.failed {
        let words: Vec<String> = program.iter().map(|word| format!("{word:x}")).collect();
        println!("program {seed} fails; the same with fewer steps ({}):", words.len());
        println!("SESSIONLOG_SEED={seed} SESSIONLOG_PROGRAM={} cargo test --test simulation", words.join(","));
        run(seed, &program, true);
        panic!("program {seed} failed, and did not when it was run again");
    }
    if programs < PROGRAMS {
        return;
    }
    let wanted = "append, flush, failed flush, resume, seal, fork, delete, trash, restore, follow, crash, import, extend, \
                  refused import, wrong footer, rebuild of damage";
    for what in wanted.split(", ") {
        assert!(sum.done.get(what).is_some_and(|count| count * 40 > programs), "{what}: {:?}", sum.done);
    }
    sum.faults.assert_all_fired();
}

/// A creation fails with the first events of a log; the process dies when it has more; another one makes a session of that name. The
/// power may go before its first flush, and what was renamed first is back: the beginning of the other log.
#[test]
fn a_loss_of_power_may_bring_back_the_beginning_of_a_log_whose_creation_failed() {
    let program = [
        0x0f47_eb0f_4c3b_2017,
        0x0563_e37a_0a4c_2069,
        0x0deb_d23c_485b_64f5,
        0xa836_6bad_c004_ce06,
        0x5003_17bb_cb6a_c12c,
        0x17b1_ec27_abd6_e4e2,
        0x1520_5e28_ca9e_36bb,
        0x2d8d_ac15_2f80_7159,
        0x7c4b_8b3d_46e9_f625,
        0x0c72_f69b_9700_6029,
        0xabe1_0016_5159_1c7f,
        0xf530_fde9_25af_571f,
        0x0803_bb09_582b_b6ea,
        0x60c5_4449_f677_f21d,
    ];
    run(1_003_289, &program, false);
}
