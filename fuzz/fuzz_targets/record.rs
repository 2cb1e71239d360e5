//! The record decoder and everything above it: a journal of arbitrary bytes, or of records with sound checksums and arbitrary
//! payloads, opens to one verdict that all readers share; after a take-over appending works and nothing before it has changed.
#![no_main]

use std::path::Path;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use sessionlog::backend::{Expected, ReadLimit};
use sessionlog::event::{Batch, Event, JsonText, NewEvent, SessionHeader, SessionId};
use sessionlog::segment::files::SimulatedFiles;
use sessionlog::segment::{CheckStatus, Engine, EngineOptions};

const JOURNAL_HEADER_BYTES: usize = 96;
const SALT_AT: usize = 16;

fuzz_target!(|input: &[u8]| {
    let Some((&mode, bytes)) = input.split_first() else { return };
    let files = SimulatedFiles::new(1);
    let id = SessionId::new("s").expect("a plain id");
    let events = [event(0, "{}"), event(1, "[1,2]")];
    let path = {
        let engine = open(&files);
        let batch = Batch::pack(events.clone()).expect("two events");
        let head = engine.append(&id, Some(&SessionHeader::new("s").created_at(0)), Expected::ABSENT, &batch);
        engine.release(&id, head.expect("an append that nothing disturbs").epoch).expect("a release");
        engine.locate(&id).join("00000000000000000000.log")
    };
    let written = files.contents(&path).expect("the journal");
    let mut journal = written.clone();
    match mode % 4 {
        // Bytes behind sound records.
        0 => journal.extend_from_slice(bytes),
        // Bytes in the place of records.
        1 => {
            journal.truncate(JOURNAL_HEADER_BYTES);
            journal.extend_from_slice(bytes);
        }
        // Any file at all.
        2 => journal = bytes.to_vec(),
        // Records with sound checksums.
        _ => append_framed(&mut journal, bytes),
    }
    files.overwrite(&path, &journal).expect("the simulation takes any file");

    let engine = open(&files);
    let opened = engine.open_session(&id);
    let check = engine.verify(&id);
    let read = read_all(&engine, &id);
    let Ok(opened) = opened else {
        assert!(matches!(check.status, CheckStatus::Damaged | CheckStatus::Unsupported), "verify agrees with open");
        return;
    };
    if mode % 4 == 0 {
        assert_eq!(read[..2], events, "records before the fault are as they were");
    }
    if !matches!(check.status, CheckStatus::Ok | CheckStatus::Torn) {
        // Sound records whose payload is no JSON: only the full check looks that closely.
        return;
    }
    assert_eq!(opened.head.next_seq, read.len() as u64, "open and read agree on the end");
    assert_eq!(check.events, opened.head.next_seq, "verify and open agree on the end");
    let taken = engine.take_over(&id).expect("what opens can be taken over");
    let expected = Expected { epoch: taken.head.epoch, next_seq: taken.head.next_seq };
    let more = Batch::pack([event(expected.next_seq, "\"more\"")]).expect("one event");
    engine.append(&id, None, expected, &more).expect("appending goes on");
    let after = read_all(&engine, &id);
    assert_eq!(after[..read.len()], read, "nothing before the new event has changed");
    assert_eq!(after.len(), read.len() + 1);
});

fn open(files: &SimulatedFiles) -> Engine {
    let options = EngineOptions::new().files(Arc::new(files.clone())).seed(7);
    options.open(Path::new("/store")).expect("a store in memory")
}

fn event(seq: u64, data: &str) -> Event {
    NewEvent::named("app/x", JsonText::parse(data).expect("valid JSON")).at(seq, 5)
}

/// The events before the end or the first fault.
fn read_all(engine: &Engine, id: &SessionId) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    while let Ok(page) = engine.read(id, events.len() as u64, ReadLimit::default()) {
        events.extend(page.items.iter().flat_map(|item| item.events()));
        if page.next.is_none() {
            break;
        }
    }
    events
}

/// Takes `bytes` as (kind, flags, length, payload) and frames each payload as the format says.
fn append_framed(journal: &mut Vec<u8>, mut bytes: &[u8]) {
    let salt = journal[SALT_AT..SALT_AT + 8].to_vec();
    while let [kind, flags, length, rest @ ..] = bytes {
        let (payload, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        bytes = rest;
        let place = [salt.as_slice(), &(journal.len() as u64).to_le_bytes()].concat();
        let mut fixed = (payload.len() as u32).to_le_bytes().to_vec();
        fixed.extend_from_slice(&[*kind, *flags, 0, 0]);
        let header = crc32fast::hash(&[place.as_slice(), &fixed].concat());
        let checksum = crc32fast::hash(&[place.as_slice(), payload].concat());
        journal.extend_from_slice(&fixed);
        journal.extend_from_slice(&header.to_le_bytes());
        journal.extend_from_slice(&checksum.to_le_bytes());
        journal.extend_from_slice(payload);
    }
}
