//! The record decoder and everything above it: a journal of arbitrary bytes, or of records with sound checksums and arbitrary
//! payloads, opens to one verdict that all readers share; after a take-over appending works and nothing before it has changed.

use sessionlog::backend::Expected;
use sessionlog::event::{Batch, SessionHeader, SessionId};
use sessionlog::segment::CheckStatus;
use sessionlog::segment::files::SimulatedFiles;

use super::stored::{continue_log, event, look, open};

const JOURNAL_HEADER_BYTES: usize = 96;
const SALT_AT: usize = 16;

/// Runs the target on one input.
pub fn run(input: &[u8]) {
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
    let found = look(&engine, &id);
    if mode % 4 == 0 && found.opened.is_ok() {
        assert_eq!(found.events[..2], events, "records before the fault are as they were");
    }
    if matches!(found.check.status, CheckStatus::Ok | CheckStatus::Torn) {
        continue_log(&engine, &id, &found.events);
    }
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
