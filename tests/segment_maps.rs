//! Memory maps of sealed segments change nothing but how bytes come in.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;
use segment_common::{append, create, events, expected, header, id, lines, try_events};
use sessionlog::backend::{BackendError, ReadLimit};
use sessionlog::segment::files::{Access, Files, MappedFiles, RealFiles};
use sessionlog::segment::{CheckStatus, Engine, EngineOptions, SealOptions};

/// What is done to a session.
#[derive(Debug, Clone, Copy)]
enum Step {
    Append(u64),
    Seal,
    Reopen,
    Fork(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_u64..30).prop_map(Step::Append),
        2 => Just(Step::Seal),
        1 => Just(Step::Reopen),
        1 => any::<prop::sample::Index>().prop_map(Step::Fork),
    ]
}

/// Does everything and says all that can be asked of the store afterwards.
fn told(map: bool, steps: &[Step]) -> Vec<String> {
    let home = tempfile::tempdir().unwrap();
    let open = || EngineOptions::new().map_segments(map).rotate_at(1_500).background_sealing(false).open(home.path());
    let mut engine = open().unwrap();
    let head = create(&engine, "s", 3);
    engine.release(&id("s"), head.epoch).unwrap();
    let mut told = Vec::new();
    let mut count = 3;
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Append(events) => {
                let head = engine.take_over(&id("s")).unwrap().head;
                count += events;
                let head = append(&engine, "s", &head, count);
                engine.release(&id("s"), head.epoch).unwrap();
            }
            Step::Seal => drop(engine.seal(&id("s"), SealOptions::new().level(1)).unwrap()),
            Step::Reopen => engine = open().unwrap(),
            Step::Fork(index) => {
                let boundary = index.index(usize::try_from(count).unwrap()) as u64;
                let child = format!("child-{number}");
                engine.fork(&id("s"), boundary, &header(&child)).unwrap();
                assert_eq!(lines(&events(&engine, &child)), lines(&expected(boundary + 1)));
                told.push(format!("{:?}", engine.verify(&id(&child)).status));
            }
        }
        let whole = lines(&events(&engine, "s"));
        assert_eq!(whole, lines(&expected(count)));
        told.extend(whole);
        let seqs: Vec<u64> = (0..count).step_by(7).collect();
        told.extend(lines(&engine.read_events(&id("s"), &seqs).unwrap()));
        let page = engine.read(&id("s"), count / 2, ReadLimit { events: 5, bytes: 500 }).unwrap();
        told.push(format!("{page:?}"));
        let opened = engine.open_session(&id("s")).unwrap();
        told.push(format!("{:?}", opened.checkpoint.map(|checkpoint| checkpoint.state)));
        let check = engine.verify(&id("s"));
        told.push(format!("{:?} {}", check.status, check.events));
    }
    told
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_store_says_the_same_with_maps_and_without(steps in prop::collection::vec(step(), 1..8)) {
        prop_assert_eq!(told(true, &steps), told(false, &steps));
    }
}

fn sealed(map: bool) -> (tempfile::TempDir, Engine, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let engine = EngineOptions::new().map_segments(map).background_sealing(false).seed(7).open(home.path()).unwrap();
    let head = create(&engine, "s", 400);
    engine.release(&id("s"), head.epoch).unwrap();
    engine.seal(&id("s"), SealOptions::new().level(1)).unwrap();
    let segment = engine.locate(&id("s")).join("00000000000000000000.seg");
    (home, engine, segment)
}

#[test]
fn r3_flipped_bytes_are_told_alike_with_maps_and_without() {
    let (mapped, read) = (sealed(true), sealed(false));
    let length = fs::read(&read.2).unwrap().len();
    let found = |(_, engine, segment): &(tempfile::TempDir, Engine, PathBuf), at: usize| {
        let sound = fs::read(segment).unwrap();
        // Another file under the name, as whatever replaces one does.
        let mut bad = sound.clone();
        bad[at] ^= 0x20;
        fs::remove_file(segment).unwrap();
        fs::write(segment, &bad).unwrap();
        let text = |error: &BackendError| format!("{:?} {:?}", error.kind, error.damage);
        let told = (
            try_events(engine, "s").map(|events| lines(&events)).map_err(|error| text(&error)),
            engine.verify(&id("s")).error.map(|error| text(&error)),
        );
        fs::remove_file(segment).unwrap();
        fs::write(segment, &sound).unwrap();
        told
    };
    for at in (0..length).step_by(length / 60 + 1) {
        let (told, other) = (found(&mapped, at), found(&read, at));
        assert_eq!(told, other, "byte {at}");
        assert!(told.1.is_some(), "byte {at}");
    }
    assert_eq!(mapped.1.verify(&id("s")).status, CheckStatus::Ok);
}

#[test]
fn a_map_lasts_as_long_as_it_is_held_whatever_becomes_of_the_name() {
    let (_home, engine, segment) = sealed(true);
    let bytes = fs::read(&segment).unwrap();
    let file = MappedFiles.open(&segment, Access::Read).unwrap();
    let map = file.map(bytes.len() as u64).unwrap().unwrap();
    drop(file);
    engine.delete(&id("s")).unwrap();
    assert!(!segment.exists());
    assert_eq!(map.bytes(0, bytes.len()), Some(&bytes[..]));
    map.release(0, bytes.len() as u64);
    assert_eq!(map.bytes(96, 10), Some(&bytes[96..106]), "given back, and read again");
    for (offset, length) in [(bytes.len() as u64, 1), (u64::MAX, 1), (1, usize::MAX), (0, bytes.len() + 1)] {
        assert_eq!(map.bytes(offset, length), None);
        map.release(offset, length as u64);
    }
}

#[test]
fn nothing_is_mapped_beyond_a_file_s_end_or_unasked() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("file");
    fs::write(&path, b"seven").unwrap();
    assert!(MappedFiles.open(&path, Access::Read).unwrap().map(6).is_err());
    assert!(RealFiles.open(&path, Access::Read).unwrap().map(5).unwrap().is_none());
}
