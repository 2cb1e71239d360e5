//! The fuzz targets, run on the committed seeds: each passes as it stands, and those made by the project's own code are up to date.
//!
//! Run with `SESSIONLOG_WRITE_SEEDS=1` to have the latter written anew.
#![cfg(feature = "store")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(clippy::cast_possible_truncation, clippy::cast_lossless, reason = "inputs are small")]

#[path = "simulation/agent.rs"]
mod agent;
#[path = "simulation/faults.rs"]
#[allow(dead_code, reason = "what many programs met is counted by the simulation alone")]
mod faults;
#[path = "simulation/model.rs"]
mod model;
mod store_common;
#[path = "../fuzz/src/targets/mod.rs"]
#[allow(clippy::pedantic, reason = "a package of its own with its own lints")]
mod targets;
#[path = "simulation/world.rs"]
mod world;

use std::fs;
use std::path::{Path, PathBuf};

fn seeds(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target)
}

/// Runs a target on its seeds. What the project's code makes of them is compared or, if that is asked for, written.
fn run(target: &str, body: fn(&[u8]), made: Vec<(String, Vec<u8>)>) {
    let directory = seeds(target);
    for (name, bytes) in made {
        let path = directory.join(&name);
        if std::env::var_os("SESSIONLOG_WRITE_SEEDS").is_some() {
            fs::create_dir_all(&directory).unwrap();
            fs::write(&path, &bytes).unwrap();
        }
        assert_eq!(fs::read(&path).unwrap_or_default(), bytes, "{target}/{name}: see the top of this file");
    }
    let mut names: Vec<PathBuf> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort_unstable();
    assert!(names.len() >= 4, "{target} has seeds");
    for path in names {
        println!("{}", path.display());
        body(&fs::read(&path).unwrap());
    }
}

#[test]
fn packing() {
    run("packing", targets::packing::run, Vec::new());
}

#[test]
fn record() {
    run("record", targets::record::run, Vec::new());
}

#[test]
fn import() {
    run("import", targets::import::run, Vec::new());
}

/// The footer's text of a sealed segment.
fn footer_of(file: &[u8]) -> Vec<u8> {
    let trailer = &file[file.len() - 32..];
    let at = u64::from_le_bytes(trailer[..8].try_into().unwrap()) as usize;
    zstd::bulk::decompress(&file[at..file.len() - 32], 1 << 20).unwrap()
}

/// The first block's parts, unpacked, behind the lengths of two of them and the number of events.
fn block_of(file: &[u8]) -> Vec<u8> {
    let footer: serde_json::Value = serde_json::from_slice(&footer_of(file)).unwrap();
    let block = &footer["blocks"][0];
    let mut at = block["offset"].as_u64().unwrap() as usize;
    let mut parts: Vec<Vec<u8>> = Vec::new();
    for name in ["conversation", "marks", "text"] {
        let number = |what: &str| block[name][what].as_u64().unwrap() as usize;
        let mut out = Vec::with_capacity(number("unpacked"));
        if number("stored") > 0 {
            let prefix = if name == "text" { &parts[0][..] } else { &[] };
            let mut decoder = zstd::zstd_safe::DCtx::create();
            decoder.ref_prefix(prefix).unwrap();
            decoder.decompress(&mut out, &file[at..at + number("stored")]).unwrap();
        }
        at += number("stored");
        parts.push(out);
    }
    let numbers = [parts[0].len() as u64, parts[1].len() as u64, block["next_seq"].as_u64().unwrap()];
    let numbers = numbers.map(|number| u16::try_from(number).unwrap().to_le_bytes());
    [numbers.concat(), parts.concat()].concat()
}

#[test]
fn segment() {
    let with_mode = |mode: u8, bytes: &[u8]| [&[mode], bytes].concat();
    let mut made = Vec::new();
    for (name, events) in [("small", 5), ("deltas", 40), ("whole", 150)] {
        let (file, _) = targets::segment::sealed(targets::stored::session_events(events).into_iter());
        made.push((format!("{name}-block"), with_mode(2, &block_of(&file))));
        made.push((format!("{name}-footer"), with_mode(3, &footer_of(&file))));
        if events == 5 {
            made.push((format!("{name}-file"), with_mode(0, &file)));
            made.push((format!("{name}-behind-header"), with_mode(1, &file[96..])));
        }
    }
    // The footer that belongs to the blocks which the target puts it behind.
    made.push(("own-footer".to_owned(), with_mode(3, &footer_of(targets::segment::sound()))));
    run("segment", targets::segment::run, made);
}

#[test]
fn catalog() {
    let text = targets::catalog::text();
    // Two sessions with a name of one letter each: length and name, length and entry. An entry's first byte is its flags, and behind the
    // header's text stands how many events there are.
    let entry = 1 + 2 + 1..1 + 2 + 1 + usize::from(text[3]);
    assert!(text[0] == 2 && text[1..3] == *b"\x01a" && text[entry.end..][..2] == *b"\x01b");
    let changed = |at: usize, by: u8| {
        let mut text = text.clone();
        text[at] ^= by;
        text
    };
    // Without the stamps of the files, which are what is left behind the directory's: inode, seconds and nanoseconds.
    let brace = entry.start + text[entry.clone()].iter().position(|byte| *byte == b'}').unwrap();
    let numbers = (brace + 1..entry.end).filter(|at| text[*at] < 0x80);
    // Events, turns, the last time, and those three.
    let bare = &text[entry.start..=numbers.clone().nth(5).unwrap()];
    let bare = [&text[..3], &[u8::try_from(bare.len()).unwrap()], bare, &text[entry.end..]].concat();
    let made = [
        ("sound", text.clone()),
        ("another-count", changed(brace + 1, 1)),
        ("another-flag", changed(entry.start, 1)),
        ("not-free", changed(entry.start, 8)),
        ("another-stamp", changed(entry.end - 1, 1)),
        ("another-id", changed(text.windows(8).position(|bytes| bytes == br#""id":"a""#).unwrap() + 6, 3)),
        ("no-stamps", bare),
        ("cut", text[..entry.end].to_vec()),
        ("empty", vec![0]),
    ];
    let mut made: Vec<_> = made.map(|(name, text)| (name.to_owned(), [&[1], &text[..]].concat())).into();
    made.push(("file".to_owned(), [&[0], &targets::catalog::base().1[..]].concat()));
    run("catalog", targets::catalog::run, made);
}

#[test]
fn identifier() {
    let long = "\u{1f600}x".repeat(60);
    let made = [
        ("case", vec!["Session-1", "session-1", "SESSION-1", "%53ession-1"]),
        ("devices", vec!["con", "CON", "con.txt", "lpt9", "%63on", "aux "]),
        ("hostile", vec!["../../x", ".", "a\0b", "a\\b:c", "x. ", "a%2e", "a.", ".tmp-1"]),
        ("long", vec![&long, &long[5..], "%%0011", "y"]),
    ];
    let made = made.map(|(name, ids)| {
        let texts: Vec<&[u8]> = ids.iter().map(|id| id.as_bytes()).collect();
        (name.to_owned(), texts.join(&[0xff][..]))
    });
    run("identifier", targets::identifier::run, made.into());
}

#[test]
fn store() {
    let file = |index: u8, what: u8, x: u8, y: u8| [index, what, x, y];
    let made = [
        ("as-it-is", vec![], vec![]),
        ("flipped", vec![file(4, 0, 130, 3), file(9, 0, 20, 1)], vec![]),
        ("cut", vec![file(3, 1, 90, 0), file(7, 2, 7, 0), file(12, 1, 200, 1)], vec![]),
        ("zeros", vec![file(5, 3, 0, 0), file(10, 3, 96, 0), file(11, 4, 40, 0)], vec![]),
        ("copied", vec![file(6, 9, 6, 3), file(12, 9, 12, 5), file(13, 9, 13, 81)], vec![]),
        ("renamed", vec![file(8, 10, 8, 2), file(14, 10, 3, 0)], vec![]),
        ("swapped", vec![file(2, 12, 3, 0), file(9, 12, 10, 0), file(16, 12, 17, 0)], vec![]),
        ("removed", vec![file(0, 11, 0, 0), file(5, 11, 0, 0), file(11, 11, 0, 0), file(15, 13, 0, 0)], vec![]),
        ("foreign", vec![file(4, 7, 0, 0), file(6, 6, 96, 0), file(13, 5, 0, 0)], b"slogJRNL".to_vec()),
    ];
    let made = made
        .map(|(name, changes, tail)| (name.to_owned(), [vec![changes.len() as u8], changes.concat(), tail].concat()));
    run("store", targets::store::run, made.into());
}

#[test]
fn programs() {
    let mut made = Vec::new();
    for seed in 0..8_u64 {
        let mut word = seed + 1;
        let steps = (0..30).flat_map(|_| {
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb).wrapping_add(0x9e37_79b9_7f4a_7c15);
            ((word >> 20) as u32).to_le_bytes()
        });
        made.push((format!("{seed:02}"), std::iter::once(seed as u8).chain(steps).collect()));
    }
    run("programs", targets::programs::run, made);
}
