//! The catalogue of arbitrary bytes, and of arbitrary text under a sound checksum: listings and checks of the sessions give what the logs
//! say, unless an entry that holds says otherwise, and that is found and mended.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use sessionlog::backend::{DamageClass, Expected};
use sessionlog::event::{Batch, SessionHeader, SessionId};
use sessionlog::segment::files::SimulatedFiles;
use sessionlog::segment::{CheckStatus, Engine, SealOptions};

use super::stored::{ROOT, class_of, event, open};

const FRAME_BYTES: usize = 20;

/// A store with a sealed session and one in a journal, and its catalogue.
pub fn base() -> &'static (SimulatedFiles, Vec<u8>) {
    static BASE: OnceLock<(SimulatedFiles, Vec<u8>)> = OnceLock::new();
    BASE.get_or_init(|| {
        let files = SimulatedFiles::new(1);
        let engine = open(&files);
        for name in ["a", "b"] {
            let id = SessionId::new(name).expect("a plain id");
            let batch = Batch::pack([event(0, "{}"), event(1, "[1,2]")]).expect("two events");
            let head = engine.append(&id, Some(&SessionHeader::new(name).created_at(0)), Expected::ABSENT, &batch);
            engine.release(&id, head.expect("an append that nothing disturbs").epoch).expect("a release");
        }
        engine.seal(&SessionId::new("a").expect("a plain id"), SealOptions::new().level(1)).expect("a sealed session");
        engine.summaries().expect("a listing");
        let catalog = files.contents(&Path::new(ROOT).join("catalog")).expect("a listing makes the catalogue");
        (files, catalog)
    })
}

/// The text of the store's catalogue.
pub fn text() -> Vec<u8> {
    zstd::bulk::decompress(&base().1[FRAME_BYTES..], 1 << 20).expect("a catalogue just made")
}

fn listing(engine: &Engine) -> BTreeMap<String, String> {
    let summaries = engine.summaries().expect("a listing");
    summaries.into_iter().map(|entry| (entry.name, format!("{:?}", entry.summary))).collect()
}

/// Runs the target on one input: a byte that says what the rest is.
pub fn run(input: &[u8]) {
    let Some((&mode, bytes)) = input.split_first() else { return };
    let (files, sound) = base();
    let files = files.copy(1);
    let truth = listing(&open(&files));
    let catalog = if mode % 2 == 0 {
        bytes.to_vec()
    } else {
        let mut catalog = sound[..12].to_vec();
        catalog.extend((bytes.len() as u32).to_le_bytes());
        let packed = zstd::bulk::compress(bytes, 1).expect("memory takes everything");
        catalog.extend(crc32fast::hash(&[&catalog[..], &packed].concat()).to_le_bytes());
        catalog.extend_from_slice(&packed);
        catalog
    };
    files.overwrite(&Path::new(ROOT).join("catalog"), &catalog).expect("the simulation takes any file");
    let engine = open(&files);
    let found = listing(&engine);
    assert!(found.keys().eq(truth.keys()), "the directories say which sessions there are");
    let engine = open(&files);
    for (name, summary) in &found {
        let id = SessionId::new(name.as_str()).expect("a plain id");
        let check = engine.verify(&id);
        match &check.error {
            None => assert_eq!((check.status, *summary == truth[name]), (CheckStatus::Ok, true), "{name}: {summary}"),
            Some(error) => assert_eq!(class_of(error), Some(DamageClass::Catalogue), "{error:?}"),
        }
        assert_eq!(check.events, 2);
        engine.rebuild_derived(&id).expect("the log is sound");
        assert_eq!(engine.verify(&id).status, CheckStatus::Ok, "{name}");
    }
    assert_eq!(listing(&open(&files)), truth);
}
