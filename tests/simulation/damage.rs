//! Steps that damage what is stored of a session while nobody has it open, on a copy of the disk, and look at what is told of it.

use std::path::{Path, PathBuf};

use sessionlog::backend::{ErrorKind, ReadLimit};
use sessionlog::event::{Event, SessionHeader};
use sessionlog::segment::files::{Files, SimulatedFiles};
use sessionlog::segment::{CheckStatus, Engine, SealOptions};

use super::checks::assert_stored_views_agree;
use super::{IDS, ROOT, World, digest, engine_options, events_of, stored};
use crate::store_common::id;

/// A session that is there for a step alone.
const FORK: &str = "fork";

/// Bytes of a segment's trailer.
const TRAILER: usize = 32;

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().unwrap()
}

/// Where the footer of a sealed segment begins.
fn footer_of(segment: &[u8]) -> usize {
    usize::try_from(u64::from_le_bytes(number(segment, segment.len() - TRAILER))).unwrap()
}

fn checksum(parts: &[&[u8]]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize().to_le_bytes()
}

/// A footer that leaves out the last event, in its index and its counts.
fn one_event_fewer(footer: &str) -> Option<String> {
    let mut footer: serde_json::Value = serde_json::from_str(footer).unwrap();
    let next = footer["next_seq"].as_u64().unwrap() - 1;
    let many = |count: &&mut serde_json::Value| count.as_u64().is_some_and(|count| count > 1);
    let count = footer["counts"].as_object_mut().unwrap().values_mut().find(many)?;
    *count = (count.as_u64().unwrap() - 1).into();
    let block = footer["blocks"].as_array_mut().unwrap().last_mut().unwrap();
    if block["first_seq"].as_u64().unwrap() >= next {
        return None;
    }
    block["next_seq"] = next.into();
    footer["next_seq"] = next.into();
    Some(footer.to_string())
}

/// The segment with something else in its footer, and every checksum right: as a defect would have written it.
fn written_wrong(segment: &[u8], pick: u64) -> Vec<u8> {
    let (at, end) = (footer_of(segment), segment.len() - TRAILER);
    let text = zstd::bulk::decompress(&segment[at..end], 1 << 20).unwrap();
    let text = String::from_utf8(text).unwrap();
    let wrong = match pick % 4 {
        0 => text.replacen("\"last_time\":", "\"last_time\":1", 1),
        1 => {
            // The last of the counts is another type's.
            let counts = text.find("\"counts\":{").unwrap();
            let close = counts + text[counts..].find('}').unwrap();
            let name = text[..close].rfind("\":").unwrap();
            format!("{}z{}", &text[..name], &text[name..])
        }
        2 => one_event_fewer(&text).unwrap_or_else(|| text.replacen("\"last_time\":", "\"last_time\":1", 1)),
        _ => text.replacen("\"unpacked\":", "\"unpacked\":1", 1),
    };
    assert_ne!(wrong, text);
    let footer = zstd::bulk::compress(wrong.as_bytes(), 1).unwrap();
    let (salt, offset) = (&segment[16..24], (at as u64).to_le_bytes());
    let mut trailer = offset.to_vec();
    trailer.extend(u32::try_from(footer.len()).unwrap().to_le_bytes());
    trailer.extend(u32::try_from(wrong.len()).unwrap().to_le_bytes());
    trailer.extend(checksum(&[salt, &offset, &footer]));
    let sum = checksum(&[salt, &offset, &trailer]);
    trailer.extend(sum);
    trailer.extend(b"slogSEAL");
    [&segment[..at], &footer, &trailer].concat()
}

/// Flips a bit, cuts, or writes zeros, in what lies behind `from`.
fn spoilt(bytes: &[u8], from: usize, pick: u64) -> Vec<u8> {
    let mut spoilt = bytes.to_vec();
    let at = from + usize::try_from(pick >> 8).unwrap() % (bytes.len() - from);
    match pick % 3 {
        0 => spoilt[at] ^= 1 << (pick >> 2 & 7),
        1 => spoilt.truncate(at),
        _ => {
            let end = (at + 1 + usize::try_from(pick >> 5 & 63).unwrap()).min(bytes.len());
            spoilt[at..end].fill(0);
        }
    }
    spoilt
}

/// The events that are given out before an error, if there is one.
fn read(engine: &Engine, name: &str) -> (Vec<Event>, Option<ErrorKind>) {
    let (mut events, mut from) = (Vec::new(), Some(0));
    while let Some(seq) = from {
        match engine.read(&id(name), seq, ReadLimit { events: 40, bytes: 3000 }) {
            Ok(page) => {
                events.extend(events_of(&page.items));
                from = page.next;
            }
            Err(error) => {
                if error.kind == ErrorKind::Damaged {
                    assert!(
                        error.damage.is_some() && error.file.is_some(),
                        "{name}: damage has a class and a file: {error}"
                    );
                }
                return (events, Some(error.kind));
            }
        }
    }
    (events, None)
}

fn files_of(files: &SimulatedFiles, directory: &Path) -> Vec<PathBuf> {
    let names = files.read_directory(directory).unwrap_or_default();
    let paths = names.iter().map(|name| directory.join(name));
    paths.filter(|path| path.ends_with("checkpoint") || path.extension().is_some_and(|kind| kind == "seg")).collect()
}

/// A fork whose last segment counts in part, with the checkpoint behind it in a file of its own.
fn forked_inside(engine: &Engine, files: &SimulatedFiles, name: &str, pick: u64) -> Option<&'static str> {
    let events = engine.head(&id(name)).ok()?.next_seq;
    let boundary = pick % events.checked_sub(1).filter(|last| *last > 0)?;
    let header = SessionHeader { parent_session: Some(name.to_owned()), ..SessionHeader::new(FORK) };
    let engine = engine_options(files).background_sealing(true).open(ROOT).unwrap();
    engine.fork(&id(name), boundary, &header).unwrap_or_else(|error| panic!("{name}: {error}"));
    engine.finish_sealing();
    Some(FORK)
}

impl World {
    /// Damages one part of one file: what follows from the log, or the log itself. No other content is ever given out for it; where
    /// the log is sound, what follows from it is brought back.
    pub async fn damage(&mut self, name: &str, pick: u64) {
        self.close(name).await;
        let files = self.files.copy(pick);
        let engine = engine_options(&files).open(ROOT).unwrap();
        if pick & 1 == 1 && engine.reader(&id(name)).is_ok() {
            engine.seal(&id(name), SealOptions::new().level(1)).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        let shortened = (pick >> 12 & 1 == 1).then(|| forked_inside(&engine, &files, name, pick >> 13)).flatten();
        let name = shortened.unwrap_or(name);
        let directory = engine.locate(&id(name));
        let parts = files_of(&files, &directory);
        if parts.is_empty() {
            return;
        }
        let forked = engine.reader(&id(name)).unwrap().header().parent_session.is_some();
        let sound = events_of(&stored(&engine, name).unwrap());
        let others: Vec<(&str, u64)> = IDS
            .into_iter()
            .filter(|other| *other != name)
            .map(|other| (other, digest(&files, &engine.locate(&id(other)))))
            .collect();
        let path = &parts[usize::try_from(pick >> 1).unwrap() % parts.len()];
        let bytes = files.contents(path).unwrap();
        let of_segment = path.extension().is_some();
        let pick = pick >> 4;
        let wrong = match pick & 3 {
            0 | 1 if of_segment => written_wrong(&bytes, pick >> 2),
            2 if of_segment => spoilt(&bytes, footer_of(&bytes), pick >> 2),
            _ => spoilt(&bytes, 0, pick >> 2),
        };
        if wrong == bytes {
            return;
        }
        files.overwrite(path, &wrong).unwrap();
        self.did(match pick & 3 {
            _ if !of_segment => "damage checkpoint",
            0 | 1 => "wrong footer",
            2 => "damage footer",
            _ => "damage segment",
        });

        let engine = engine_options(&files).open(ROOT).unwrap();
        let (given, refused) = read(&engine, name);
        assert!(sound.starts_with(&given), "{name}: other events are given out of {}", path.display());
        assert!(refused.is_some() || given == sound, "{name}: events are missing and nothing is said");
        let kinds = [None, Some(ErrorKind::Damaged), Some(ErrorKind::Unsupported)];
        assert!(kinds.contains(&refused), "{name}: {refused:?}");
        let check = engine.verify(&id(name));
        if matches!(check.status, CheckStatus::Ok | CheckStatus::Torn) {
            assert_eq!(refused, None, "{name}: verify passes what cannot be read");
            assert_stored_views_agree(name, stored(&engine, name).unwrap(), &engine).await;
        }
        let class = check.error.as_ref().and_then(|error| error.damage.as_ref()).map(|damage| damage.class);
        assert!(check.status != CheckStatus::Damaged || class.is_some(), "{name}: damage has a class");
        if of_segment && pick & 3 < 2 {
            // Counts hold for the session that a segment was sealed in, and a fork may count it in part.
            assert!(class.is_some() || forked, "{name}: a footer that was written wrong passes");
        }
        assert!(of_segment || refused.is_none(), "{name}: a checkpoint beside the log keeps nobody from reading it");

        match engine.rebuild_derived(&id(name)) {
            Ok(_) => {
                let check = engine.verify(&id(name));
                assert!(matches!(check.status, CheckStatus::Ok | CheckStatus::Torn), "{name}: {:?}", check.error);
                assert_eq!(read(&engine, name), (sound, None), "{name}: with its derived parts brought back");
                self.did("rebuild of damage");
            }
            Err(error) => {
                assert!(matches!(error.kind, ErrorKind::Damaged | ErrorKind::Unsupported), "{name}: {error}");
                assert_ne!(class, None, "{name}: refused, and verify passes it: {error}");
                assert_eq!(files.contents(path).unwrap(), wrong, "{name}: what cannot be rebuilt is left alone");
            }
        }
        for (other, bytes) in others {
            if digest(&files, &engine.locate(&id(other))) == bytes {
                // One that shares the damaged file has changed with it.
                let events = stored(&engine, other).map(|items| events_of(&items));
                let known = self.model.sessions.get(other);
                if let Some(known) = known {
                    known.check(events.as_deref()).unwrap_or_else(|error| panic!("{other}, beside damage: {error}"));
                }
            }
        }
    }
}
