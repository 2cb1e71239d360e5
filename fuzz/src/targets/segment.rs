//! Sealed segments of arbitrary bytes, and of arbitrary parts under sound checksums: whatever a segment holds, every reader gives the
//! same verdict, what opens can be sealed anew and forked within a block, and what is derived is rebuilt from the records.
//!
//! Checksums are made here from what the input says, so that mutations reach what lies behind them.

use std::path::Path;
use std::sync::OnceLock;

use sessionlog::backend::{DamageClass, ErrorKind, Expected};
use sessionlog::event::{Batch, Event, SessionHeader, SessionId};
use sessionlog::segment::files::SimulatedFiles;
use sessionlog::segment::{CheckStatus, SealOptions};

use super::stored::{class_of, continue_log, event, look, open};

const SEGMENT: &str = "/store/sessions/s/00000000000000000000.seg";
const HEADER_BYTES: usize = 96;
const TRAILER_BYTES: usize = 32;

/// The session that the segment stands in.
pub fn id() -> SessionId {
    SessionId::new("s").expect("a plain id")
}

/// A segment that holds these events, and the store in which it alone stands for them.
pub fn sealed(events: impl Iterator<Item = Event>) -> (Vec<u8>, SimulatedFiles) {
    let files = SimulatedFiles::new(1);
    let engine = open(&files);
    let batch = Batch::pack(events).expect("contiguous events");
    let head = engine.append(&id(), Some(&SessionHeader::new("s").created_at(0)), Expected::ABSENT, &batch);
    engine.release(&id(), head.expect("an append that nothing disturbs").epoch).expect("a release");
    engine.seal(&id(), SealOptions::new().level(1)).expect("a sealed session");
    let bytes = files.contents(Path::new(SEGMENT)).expect("the segment");
    (bytes, files)
}

fn base() -> &'static (Vec<u8>, SimulatedFiles) {
    static BASE: OnceLock<(Vec<u8>, SimulatedFiles)> = OnceLock::new();
    BASE.get_or_init(|| sealed([event(0, "{}"), event(1, "[1,2]")].into_iter()))
}

/// The segment whose header and blocks inputs are put behind.
pub fn sound() -> &'static [u8] {
    &base().0
}

/// Runs the target on one input: a byte that says what the rest is.
pub fn run(input: &[u8]) {
    let Some((&mode, bytes)) = input.split_first() else { return };
    let (sound, files) = base();
    let files = files.copy(1);
    let header = &sound[..HEADER_BYTES];
    // What is derived need not fit what it is derived from, and readers that go by it may come to another end.
    let mut crafted_index = false;
    let segment = match mode % 4 {
        // Any file at all.
        0 => bytes.to_vec(),
        // Any bytes behind a sound header.
        1 => [header, bytes].concat(),
        // A block of any parts: the lengths of the first two, the number of events, the parts.
        2 => {
            let [a, b, c, d, e, f, parts @ ..] = bytes else { return };
            let length = |low: u8, high: u8| usize::from(u16::from_le_bytes([low, high]));
            let (conversation, rest) = parts.split_at(length(*a, *b).min(parts.len()));
            let (marks, text) = rest.split_at(length(*c, *d).min(rest.len()));
            crafted_index = true;
            with_block(header, length(*e, *f), [conversation, marks, text])
        }
        // Any footer behind sound blocks.
        _ => {
            let trailer = &sound[sound.len() - TRAILER_BYTES..];
            let footer = u64::from_le_bytes(trailer[..8].try_into().expect("eight bytes"));
            crafted_index = true;
            let mut file = sound[..usize::try_from(footer).expect("a small file")].to_vec();
            add_footer(&mut file, bytes);
            file
        }
    };
    files.overwrite(Path::new(SEGMENT), &segment).expect("the simulation takes any file");
    let engine = open(&files);
    let found = if crafted_index {
        let check = engine.verify(&id());
        if check.status == CheckStatus::Ok {
            look(&engine, &id())
        } else {
            let opened = engine.open_session(&id());
            let (events, fault) = super::stored::read_all(&engine, &id());
            let class = check.error.as_ref().and_then(class_of).expect("a class");
            assert!(class.is_derived() || fault.is_some() || check.events < events.len() as u64, "{:?}", check.error);
            super::stored::Found { events, check, opened }
        }
    } else {
        look(&engine, &id())
    };
    for summarised in engine.summaries().expect("a listing") {
        let summary = summarised.summary;
        assert!(summary.is_ok() || found.check.status != CheckStatus::Ok, "{summary:?}");
    }
    if found.opened.is_err() {
        return;
    }
    // A fork reads the blocks up to its boundary and shares or copies them.
    let boundary = found.events.len() as u64 / 2;
    let child = SessionId::new("child").expect("a plain id");
    if engine.fork(&id(), boundary, &SessionHeader::new("child")).is_ok() && found.check.status == CheckStatus::Ok {
        let forked = look(&engine, &child);
        assert_eq!(forked.check.status, CheckStatus::Ok, "{:?}", forked.check.error);
        assert_eq!(forked.events[..], found.events[..=usize::try_from(boundary).expect("a small log")]);
    }
    match engine.rebuild_derived(&id()) {
        Ok(_) => {
            let mended = look(&engine, &id());
            assert_eq!(mended.check.status, CheckStatus::Ok, "{:?}", mended.check.error);
            continue_log(&engine, &id(), &mended.events);
        }
        Err(error) => {
            let damaged = found.check.error.as_ref().and_then(class_of).is_some_and(|class| !class.is_derived());
            assert!(damaged && matches!(error.kind, ErrorKind::Damaged | ErrorKind::Unsupported), "{error:?}");
            assert!(!class_of(&error).is_some_and(DamageClass::is_derived), "{error:?}");
        }
    }
}

/// The checksum of stored bytes at their place, under the salt of this file's header.
fn checksum(file: &[u8], offset: usize, bytes: &[u8]) -> u32 {
    crc32fast::hash(&[&file[16..24], &(offset as u64).to_le_bytes(), bytes].concat())
}

fn with_block(header: &[u8], events: usize, parts: [&[u8]; 3]) -> Vec<u8> {
    let mut file = header.to_vec();
    let mut entries = String::new();
    for (name, unpacked) in ["conversation", "marks", "text"].into_iter().zip(parts) {
        let prefix = if name == "text" { parts[0] } else { &[] };
        let packed = if unpacked.is_empty() { Vec::new() } else { pack(unpacked, prefix) };
        let crc = checksum(&file, file.len(), &packed);
        let (stored, unpacked) = (packed.len(), unpacked.len());
        entries.push_str(&format!(",\"{name}\":{{\"stored\":{stored},\"unpacked\":{unpacked},\"crc\":{crc}}}"));
        file.extend_from_slice(&packed);
    }
    let footer = format!(
        "{{\"first_seq\":0,\"next_seq\":{events},\"last_time\":0,\"blocks\":[{{\"first_seq\":0,\"next_seq\":{events},\"offset\":96{entries}}}],\
         \"counts\":{{\"x\":{events}}},\"continued\":false,\"checkpoint\":null}}"
    );
    add_footer(&mut file, footer.as_bytes());
    file
}

fn pack(bytes: &[u8], prefix: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = zstd::stream::write::Encoder::with_ref_prefix(Vec::new(), 1, prefix).expect("an encoder");
    encoder.set_pledged_src_size(Some(bytes.len() as u64)).expect("a length that fits");
    encoder.write_all(bytes).expect("memory takes everything");
    encoder.finish().expect("a whole frame")
}

fn add_footer(file: &mut Vec<u8>, footer: &[u8]) {
    let (at, packed) = (file.len(), pack(footer, &[]));
    let mut trailer = (at as u64).to_le_bytes().to_vec();
    trailer.extend((packed.len() as u32).to_le_bytes());
    trailer.extend((footer.len() as u32).to_le_bytes());
    trailer.extend(checksum(file, at, &packed).to_le_bytes());
    trailer.extend(checksum(file, at, &trailer).to_le_bytes());
    trailer.extend_from_slice(b"slogSEAL");
    file.extend_from_slice(&packed);
    file.extend_from_slice(&trailer);
}
