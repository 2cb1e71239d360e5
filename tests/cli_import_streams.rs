//! Large logs through the command: memory that does not follow their length, and what an interruption leaves.
#![cfg(all(feature = "cli", target_os = "linux"))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod cli_common;

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use cli_common::{Home, recording};

/// Runs a command and returns the most memory that it was seen to hold, in KiB.
fn peak(command: &mut Command) -> u64 {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
        peak = peak.max(kib.unwrap_or(0));
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success());
            return peak;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn memory_does_not_follow_the_length_of_the_log() {
    let home = Home::new();
    let mut peaks = Vec::new();
    for (id, events) in [("short", 20_000), ("long", 80_000)] {
        let text = recording(1, events);
        let bytes = text.len() as u64 / 1024;
        let file = home.write(&format!("{id}.jsonl"), text);
        let imported = peak(&mut home.command(["import", &file, "--id", id]));
        let jsonl = peak(&mut home.command(["export", id, "-o", "out"]));
        let packed = peak(&mut home.command(["export", id, "--format", "dsh-zstd", "-o", "out"]));
        let redacted = peak(&mut home.command(["export", id, "--redact", "-o", "out"]));
        peaks.push((bytes, [imported, jsonl, packed, redacted]));
    }
    let [(short, small), (long, large)] = peaks[..] else { unreachable!() };
    assert!(long > short + 10 * 1024);
    for (small, large) in small.iter().zip(large) {
        // Buffers that fill once, not the log.
        assert!(large < small + 8 * 1024 && large < 64 * 1024, "{peaks:?}");
    }
}

/// The session as an export, once it was found sound.
fn verified(home: &Home, id: &str) -> String {
    home.run(["verify", id]).ok();
    home.run(["export", id]).ok().out
}

#[test]
fn an_interrupted_import_leaves_nothing_or_a_session_that_a_rerun_completes() {
    let home = Home::new();
    let whole = recording(1, 20_000);
    let lines: Vec<&str> = std::str::from_utf8(&whole).unwrap().lines().collect();
    let part: String = lines[..lines.len() / 4].iter().flat_map(|line| [line, "\n"]).collect();
    home.import("whole", &whole);
    let expected = verified(&home, "whole");
    let (whole, part) = (home.write("whole.jsonl", &whole), home.write("part.jsonl", part));
    // Sooner and sooner, until runs have been met at work, however quick the machine is.
    let (mut round, mut interrupted, mut delay) = (0, 0, Duration::from_millis(270));
    while interrupted < 4 && round < 40 {
        let id = format!("s{round}");
        if round % 2 == 1 {
            home.run(["import", &part, "--id", &id]).ok();
        }
        let mut child =
            home.command(["import", &whole, "--id", &id]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(delay);
        let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).stderr(Stdio::null()).status().unwrap();
        interrupted += u64::from(!child.wait().unwrap().success());
        delay = delay * 2 / 3;
        // The store is sound, and what is there of the session is a beginning of the log.
        home.run(["verify"]).with(0);
        let row = home.run(["import", &whole, "--id", &id, "--json"]).ok().document();
        let status = row["status"].as_str().unwrap();
        assert!(if round % 2 == 1 { status != "imported" } else { status != "refused" }, "{row}");
        assert_eq!(verified(&home, &id).split_once('\n').unwrap().1, expected.split_once('\n').unwrap().1);
        round += 1;
    }
    assert!(interrupted > 0, "every run was over before its signal");
    // Nothing but sessions is left.
    let names = |path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut sessions: Vec<String> = names(home.store().join("sessions")).collect();
    sessions.sort();
    assert_eq!(sessions.len(), 1 + round, "{sessions:?}");
}
