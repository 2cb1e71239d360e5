//! The full check of a session, and rebuilding what is derived from its records.

use std::io;
use std::path::PathBuf;

use super::directory::{SessionDirectory, TEMPORARY};
use super::files::{Access, write_all_at};
use super::log::{self, LogEnd, Visitor};
use super::random::Random;
use super::scan::{Content, Fault, Record, Scanner};
use super::sealed::derived::{self, Replay, Right, Wrong};
use super::sealed::footer::Footer;
use super::sealed::segment::Segment;
use crate::backend::{BackendError, DamageClass, ErrorKind, TornTail};
use crate::event::{Item, JsonText, json};

/// How a session fared in a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckStatus {
    /// Sound.
    Ok,
    /// Sound up to an incomplete record at the end, which the next writer sets aside.
    Torn,
    /// The stored bytes are not what was written, or could not be read.
    Damaged,
    /// Written by a newer version.
    Unsupported,
}

/// The result of [`Engine::verify`](super::Engine::verify).
#[derive(Debug)]
pub struct SessionCheck {
    /// The outcome.
    pub status: CheckStatus,
    /// Events that are intact, counted from the start of the log.
    pub events: u64,
    /// Bytes of all segments and journals that were looked at.
    pub bytes: u64,
    /// The incomplete record at the end, if any.
    pub torn: Option<TornTail>,
    /// What is wrong, when `status` is damaged or unsupported. Kind `NotFound` says that there is no such session.
    pub error: Option<BackendError>,
}

/// Looks at everything: blocks, payloads, and whether what a segment derives from its events follows from them.
struct Thorough {
    replay: Replay,
    /// What does not follow, in log order.
    wrong: Vec<Wrong>,
    /// Whether the journals' payloads are looked at, too.
    journals: bool,
}

impl Visitor for Thorough {
    fn begin(&mut self) {
        self.replay = Replay::new();
        self.wrong.clear();
    }

    fn segment(&mut self, directory: &SessionDirectory, segment: &Segment) -> Result<(), BackendError> {
        let wrong = self.replay.segment(directory, segment, |block, item| {
            if payload_is_json(item) {
                return Ok(());
            }
            let detail = "a payload in a sealed segment is not valid JSON";
            Err(directory.damage(DamageClass::Checksum, &segment.path, Some(block.offset), block.first_seq, detail))
        })?;
        self.wrong.extend(wrong);
        Ok(())
    }

    fn record(&mut self, scanner: &mut Scanner, record: &Record) -> Result<(), Fault> {
        let Content::Batch(prefix) = record.content else { return Ok(()) };
        if !self.journals {
            return Ok(());
        }
        let sound = scanner.items(record, &prefix)?.iter().all(payload_is_json);
        if sound { Ok(()) } else { Err(Fault::Nonsense("a payload is not valid JSON")) }
    }
}

/// The deltas of runs have been checked by unpacking them.
fn payload_is_json(item: &Item) -> bool {
    match item {
        Item::Event(event) => json::check_syntax(&event.data()).is_ok(),
        Item::Run(_) => true,
    }
}

/// Checks everything; damage of the records comes before parts that merely do not follow from them.
fn check(directory: &SessionDirectory, journals: bool) -> Result<(LogEnd, Vec<Wrong>), BackendError> {
    directory.check()?;
    directory.read_header()?;
    check_log(directory, journals)
}

fn check_log(directory: &SessionDirectory, journals: bool) -> Result<(LogEnd, Vec<Wrong>), BackendError> {
    let mut look = Thorough { replay: Replay::new(), wrong: Vec::new(), journals };
    let log = log::scan_with(directory, &mut look)?;
    Ok((log, look.wrong))
}

pub(crate) fn session(directory: &SessionDirectory) -> SessionCheck {
    conclude(directory, check(directory, true))
}

/// Checks the log alone, whatever the header says.
pub(crate) fn log(directory: &SessionDirectory) -> SessionCheck {
    conclude(directory, check_log(directory, true))
}

fn conclude(directory: &SessionDirectory, checked: Result<(LogEnd, Vec<Wrong>), BackendError>) -> SessionCheck {
    match checked {
        Ok((log, wrong)) => {
            let error = wrong.first().map(|wrong| wrong.error(directory));
            SessionCheck {
                status: match (&error, &log.torn) {
                    (Some(_), _) => CheckStatus::Damaged,
                    (None, Some(_)) => CheckStatus::Torn,
                    (None, None) => CheckStatus::Ok,
                },
                events: log.next_seq,
                bytes: log.bytes,
                torn: log.torn,
                error,
            }
        }
        Err(error) => SessionCheck {
            status: if error.kind == ErrorKind::Unsupported { CheckStatus::Unsupported } else { CheckStatus::Damaged },
            events: error.damage.as_ref().map_or(0, |damage| damage.intact_before),
            bytes: 0,
            torn: None,
            error: Some(error),
        },
    }
}

/// A derived part that was wrong and has been derived afresh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebuilt {
    /// What was wrong.
    pub class: DamageClass,
    /// The file that was replaced.
    pub file: PathBuf,
}

/// Derives afresh what does not follow from the records. The caller holds the session's lock. A segment keeps its blocks byte by
/// byte; it is replaced by one with another footer. `journals` says whether payloads in journals are checked first, too.
///
/// # Errors
/// Damage of the records (then nothing was changed), I/O.
pub(crate) fn rebuild(
    directory: &SessionDirectory,
    random: &Random,
    journals: bool,
) -> Result<Vec<Rebuilt>, BackendError> {
    let (_, wrong) = check(directory, journals)?;
    let mut rebuilt = Vec::with_capacity(wrong.len());
    for wrong in wrong {
        match &wrong.right {
            Right::Footer(first_seq, footer, state) => {
                replace_footer(directory, random, *first_seq, (footer, state.as_ref()), &wrong)?;
            }
            Right::Checkpoint(salt, checkpoint) => derived::write_checkpoint(directory, random, *salt, checkpoint)?,
        }
        tracing::info!(class = %wrong.class, path = %wrong.path.display(), "a derived part was rebuilt");
        rebuilt.push(Rebuilt { class: wrong.class, file: wrong.path });
    }
    Ok(rebuilt)
}

fn replace_footer(
    directory: &SessionDirectory,
    random: &Random,
    first_seq: u64,
    (footer, state): (&Footer, Option<&JsonText>),
    wrong: &Wrong,
) -> Result<(), BackendError> {
    let Some(segment) = Segment::open(directory, first_seq, first_seq)? else { return Err(directory.not_found()) };
    if segment.until.is_some() {
        let detail = "the index of a segment that is shared with another session is wrong and cannot be replaced in this one; \
                      export the session and import it under another id";
        return Err(directory.damage(wrong.class, &wrong.path, None, wrong.next_seq, detail));
    }
    let failed = |error| directory.io("replacing a segment's footer", &segment.path, error);
    let temporary = directory.file(&format!("{TEMPORARY}{:016x}", random.number().map_err(failed)?));
    let write = || -> io::Result<()> {
        let file = directory.files.open(&temporary, Access::CreateNew)?;
        let end = segment.copy_blocks(|piece, at| write_all_at(&*file, piece, at))?;
        write_all_at(&*file, &footer.clone().encode(state, end, segment.header.salt)?, end)?;
        file.sync_all()?;
        directory.files.rename(&temporary, &segment.path)?;
        directory.files.sync_directory(&directory.path)
    };
    write().map_err(|error| {
        // Best effort; the next writer clears what remains.
        let _ = directory.files.remove_file(&temporary);
        failed(error)
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::backend::{Checkpoint, Expected};
    use crate::event::content::TokenUsage;
    use crate::event::{Batch, JsonText, SessionHeader, SessionId, json};
    use crate::sample::Recording;
    use crate::segment::files::{Fault as PlannedFault, FaultKind, SimulatedFiles};
    use crate::segment::{Engine, EngineOptions, SealOptions};
    use crate::session::fold::Fold;

    const SEGMENT: &str = "/store/sessions/s/00000000000000000000.seg";

    fn engine(files: &SimulatedFiles) -> Engine {
        let options = EngineOptions::new().files(Arc::new(files.clone())).background_sealing(false);
        options.open("/store").unwrap()
    }

    /// A sealed session with a journal behind; of several blocks from about 80,000 events on.
    fn store(count: usize) -> (SimulatedFiles, SessionId, u64) {
        let files = SimulatedFiles::new(3);
        let engine = engine(&files);
        let id = SessionId::new("s").unwrap();
        let events: Vec<_> = Recording::new(9).events(count as u64).compacting().iter().collect();
        let (sealed, behind) = events.split_at(count - 20);
        let batch = |events: &[crate::event::Event]| Batch::pack(events.to_vec()).unwrap();
        let head = engine.append(&id, Some(&SessionHeader::new("s")), Expected::ABSENT, &batch(sealed)).unwrap();
        engine.release(&id, head.epoch).unwrap();
        engine.seal(&id, SealOptions::new().level(1)).unwrap();
        let head = engine.take_over(&id).unwrap().head;
        let expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
        engine.append(&id, None, expected, &batch(behind)).unwrap();
        engine.release(&id, head.epoch).unwrap();
        assert_eq!(engine.verify(&id).status, CheckStatus::Ok);
        (files, id, count as u64)
    }

    fn directory(files: &SimulatedFiles, id: &SessionId, name: &str) -> SessionDirectory {
        let path = Path::new("/store/sessions").join(name);
        SessionDirectory { files: Arc::new(files.clone()), path, id: Some(id.clone()) }
    }

    /// Puts another footer into the segment, with every checksum right.
    fn plant(files: &SimulatedFiles, id: &SessionId, change: Change) {
        let segment = Segment::open(&directory(files, id, "s"), 0, 0).unwrap().unwrap();
        let mut footer = segment.footer.clone();
        let mut state = segment.checkpoint().map(|checkpoint| checkpoint.state);
        change(&mut footer, &mut state);
        let end = usize::try_from(segment.footer.blocks.last().unwrap().end().unwrap()).unwrap();
        let mut bytes = files.contents(Path::new(SEGMENT)).unwrap();
        bytes.truncate(end);
        bytes.extend(footer.encode(state.as_ref(), end as u64, segment.header.salt).unwrap());
        files.overwrite(Path::new(SEGMENT), &bytes).unwrap();
    }

    /// What is planted, and how it is told.
    type Case = (&'static str, DamageClass, Change);
    type Change = fn(&mut Footer, &mut Option<JsonText>);

    const CASES: [Case; 9] = [
        ("blocks meet elsewhere", DamageClass::DerivedIndex, |footer, _| {
            footer.blocks[0].next_seq -= 1;
            footer.blocks[1].first_seq -= 1;
        }),
        ("an unpacked length", DamageClass::DerivedIndex, |footer, _| footer.blocks[0].conversation.unpacked += 1),
        ("where a type is", DamageClass::DerivedIndex, |footer, _| {
            let index = footer.counts.keys().position(|name| name == "user/message").unwrap();
            let last = footer.holders[index].last().unwrap().1;
            assert!(last > 0);
            footer.holders[index] = vec![(last, last)];
        }),
        ("another type", DamageClass::DerivedCounts, |footer, _| {
            let count = footer.counts.remove("turn/start").unwrap();
            footer.counts.insert("turn/begin".to_owned(), count);
        }),
        ("the last time", DamageClass::DerivedCounts, |footer, _| footer.last_time += 1),
        ("the surface", DamageClass::DerivedCheckpoint, |_, checkpoint| {
            let state = checkpoint.take().unwrap();
            let nodes = state.as_str().find("\"nodes\":[").unwrap() + 9;
            let comma = state.as_str()[nodes..].find(',').unwrap() + nodes;
            let text = format!("{}{}", &state.as_str()[..nodes], &state.as_str()[comma + 1..]);
            *checkpoint = Some(JsonText::parse(&text).unwrap());
        }),
        ("no checkpoint", DamageClass::DerivedCheckpoint, |_, state| *state = None),
        ("one of another layout", DamageClass::DerivedCheckpoint, |_, state| {
            *state = Some(JsonText::parse("{\"v\":999}").unwrap());
        }),
        ("one that is no JSON", DamageClass::DerivedCheckpoint, |_, state| *state = Some(JsonText::trusted("{"))),
    ];

    /// The state as builds wrote it that told usage as a list.
    fn in_the_first_layout(state: &JsonText) -> JsonText {
        let fold = Fold::from_checkpoint(&Checkpoint { next_seq: 701, state: state.clone() }).unwrap();
        let counts = |usage: &TokenUsage| {
            let mut text = format!("{{\"inputTokens\":{},\"outputTokens\":{}", usage.input_tokens, usage.output_tokens);
            for (name, count) in [
                ("cacheReadTokens", usage.cache_read_tokens),
                ("cacheWriteTokens", usage.cache_write_tokens),
                ("reasoningTokens", usage.reasoning_tokens),
            ] {
                text.extend(count.map(|count| format!(",\"{name}\":{count}")));
            }
            text + "}"
        };
        // Of recordings, stream and message report the same.
        let rows = fold.usage().steps().map(|row| {
            let counts = counts(&row.usage);
            format!("[{},{},{counts},{counts}]", row.turn, row.step)
        });
        let list = format!("[{}]", rows.collect::<Vec<_>>().join(","));
        let usage = json::member(state.as_str(), "usage").unwrap();
        assert!(usage.contains(";=|"));
        JsonText::parse(&state.as_str().replace(usage, &list).replace("\"v\":2", "\"v\":1")).unwrap()
    }

    #[test]
    fn a_checkpoint_of_the_first_layout_is_right_and_used() {
        let (files, id, count) = store(721);
        plant(&files, &id, |_, state| *state = state.as_ref().map(in_the_first_layout));
        let engine = engine(&files);
        let check = engine.verify(&id);
        assert_eq!((check.status, check.events), (CheckStatus::Ok, count), "{:?}", check.error);
        let stored = engine.open_session(&id).unwrap().checkpoint.unwrap();
        assert_eq!(json::member(stored.state.as_str(), "v"), Some("1"));
        assert_eq!(Fold::from_checkpoint(&stored).unwrap().next_seq(), 701);
        // One that says something else is wrong in either.
        plant(&files, &id, |_, state| {
            let text = state.as_ref().map(|state| state.as_str().replacen("\"inputTokens\":", "\"inputTokens\":1", 1));
            *state = text.map(|text| JsonText::parse(&text).unwrap());
        });
        let damage = engine.verify(&id).error.unwrap().damage.unwrap();
        assert_eq!(damage.class, DamageClass::DerivedCheckpoint);
    }

    #[test]
    fn every_wrong_derived_part_is_told_as_such_and_rebuilt_from_the_records() {
        for (what, class, change) in CASES {
            let blocks = [CASES[0].0, CASES[2].0].contains(&what);
            let (files, id, count) = store(if blocks { 90_000 } else { 1_000 });
            let sound = files.contents(Path::new(SEGMENT)).unwrap();
            plant(&files, &id, change);
            let engine = engine(&files);
            let check = engine.verify(&id);
            let error = check.error.unwrap();
            let damage = error.damage.clone().unwrap();
            assert_eq!((check.status, check.events, damage.class), (CheckStatus::Damaged, count, class), "{what}");
            assert_eq!(error.file.as_deref(), Some(Path::new(SEGMENT)), "{what}");
            assert!(error.to_string().contains("--repair-derived"), "{error}");

            let live = engine.take_over(&id).unwrap().head;
            assert_eq!(engine.rebuild_derived(&id).unwrap_err().kind, ErrorKind::Busy);
            engine.release(&id, live.epoch).unwrap();
            let rebuilt = engine.rebuild_derived(&id).unwrap();
            assert_eq!(rebuilt, [Rebuilt { class, file: SEGMENT.into() }], "{what}");
            assert_eq!(engine.verify(&id).status, CheckStatus::Ok, "{what}");
            assert!(files.contents(Path::new(SEGMENT)).unwrap() == sound, "{what}: byte by byte as before");
            assert_eq!(engine.rebuild_derived(&id).unwrap(), []);

            // The next sealing does so, too.
            plant(&files, &id, change);
            engine.seal(&id, SealOptions::new().level(1)).unwrap();
            let check = engine.verify(&id);
            assert_eq!((check.status, check.events), (CheckStatus::Ok, count), "{what}: {:?}", check.error);
        }
    }

    #[test]
    fn r2_power_lost_at_any_call_of_rebuilding_leaves_the_segment_before_or_after() {
        let (_, class, change) = CASES[5];
        for call in 1.. {
            let (files, id, count) = store(1_000);
            plant(&files, &id, change);
            let broken = engine(&files);
            files.fail(PlannedFault { call, operation: None, lasting: false, kind: FaultKind::PowerOff });
            let result = broken.rebuild_derived(&id);
            drop(broken);
            files.crash();
            let engine = engine(&files);
            let check = engine.verify(&id);
            assert_eq!(check.events, count, "call {call}: {:?}", check.error);
            let wrong = check.error.and_then(|error| error.damage).map(|damage| damage.class);
            assert!(wrong == Some(class) || wrong.is_none(), "call {call}: {wrong:?}");
            assert!(result.is_err() || wrong.is_none(), "call {call}");
            engine.rebuild_derived(&id).unwrap();
            assert_eq!(engine.verify(&id).status, CheckStatus::Ok, "call {call}");
            if result.is_ok() {
                break;
            }
        }
    }

    #[test]
    fn a_bad_block_is_no_derived_part_whatever_else_is_wrong() {
        let (files, id, _) = store(1_000);
        plant(&files, &id, CASES[5].2);
        let mut bytes = files.contents(Path::new(SEGMENT)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        files.overwrite(Path::new(SEGMENT), &bytes).unwrap();
        let engine = engine(&files);
        let class = |error: BackendError| error.damage.map(|damage| damage.class);
        assert_eq!(class(engine.verify(&id).error.unwrap()), Some(DamageClass::Checksum));
        assert_eq!(class(engine.rebuild_derived(&id).unwrap_err()), Some(DamageClass::Checksum));
        assert!(files.contents(Path::new(SEGMENT)).unwrap() == bytes);
    }

    #[test]
    fn the_checkpoint_of_a_fork_is_compared_and_rebuilt_like_any_other() {
        let (files, id, _) = store(1_000);
        let engine = EngineOptions::new().files(Arc::new(files.clone())).open("/store").unwrap();
        let child = SessionId::new("child").unwrap();
        engine.fork(&id, 700, &SessionHeader::new("child")).unwrap();
        engine.finish_sealing();
        let opened = engine.open_session(&child).unwrap();
        let checkpoint = opened.checkpoint.unwrap();
        assert_eq!((checkpoint.next_seq, opened.head.next_seq), (701, 701));
        assert_eq!(engine.verify(&child).status, CheckStatus::Ok);

        let place = directory(&files, &child, "child");
        let salt = Segment::open(&place, 0, 0).unwrap().unwrap().header.salt;
        let other = crate::backend::Checkpoint {
            state: JsonText::parse(&checkpoint.state.as_str().replace("\"nextTurn\":", "\"nextTurn\":1")).unwrap(),
            ..checkpoint.clone()
        };
        derived::write_checkpoint(&place, &Random::new(Some(1)), salt, &other).unwrap();
        let damage = engine.verify(&child).error.unwrap().damage.unwrap();
        assert_eq!((damage.class, damage.intact_before), (DamageClass::DerivedCheckpoint, 701));
        let rebuilt = engine.rebuild_derived(&child).unwrap();
        assert_eq!(rebuilt[0].file, place.file(derived::CHECKPOINT_FILE));
        assert_eq!(engine.open_session(&child).unwrap().checkpoint.unwrap(), checkpoint);

        // One that cannot be read, or is another session's, is none.
        let path = place.file(derived::CHECKPOINT_FILE);
        let bytes = files.contents(&path).unwrap();
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 2;
            files.overwrite(&path, &bad).unwrap();
            assert_eq!(engine.open_session(&child).unwrap().checkpoint, None, "byte {at}");
        }
        assert_eq!(engine.verify(&child).status, CheckStatus::Ok);
        assert!(derived::read_checkpoint(&place, salt + 1, 701).is_none());
    }

    #[test]
    fn the_catalogue_is_compared_with_the_log_and_rebuilt() {
        let (files, id, count) = store(1_000);
        let summarised = engine(&files).summaries().unwrap();
        assert_eq!(summarised[0].summary.as_ref().unwrap().events, count);
        // The lock's text is another one after every holder, and no part of the log.
        files.overwrite(Path::new("/store/sessions/s/lock"), b"pid 123456789\n").unwrap();
        assert_eq!(engine(&files).verify(&id).status, CheckStatus::Ok);
        let path = Path::new("/store/catalog");
        let bytes = files.contents(path).unwrap();
        let mut text = zstd::decode_all(&bytes[20..]).unwrap();
        // Behind the header's text stands how many events there are.
        let at = text.windows(3).position(|bytes| bytes == [b'}', 0xe8, 0x07]).unwrap();
        text[at + 1] += 1;
        let packed = zstd::bulk::compress(&text, 1).unwrap();
        let mut bad = bytes[..16].to_vec();
        let checksum = crate::segment::bytes::crc(&[&bad, &packed]);
        bad.extend(checksum.to_le_bytes());
        bad.extend(packed);
        files.overwrite(path, &bad).unwrap();

        let engine = engine(&files);
        let check = engine.verify(&id);
        let error = check.error.unwrap();
        assert_eq!((check.status, check.events), (CheckStatus::Damaged, count));
        assert_eq!((error.damage.unwrap().class, error.file.as_deref()), (DamageClass::Catalogue, Some(path)));
        assert_eq!(
            engine.rebuild_derived(&id).unwrap(),
            [Rebuilt { class: DamageClass::Catalogue, file: path.into() }]
        );
        assert_eq!(engine.verify(&id).status, CheckStatus::Ok);
        let again = self::engine(&files);
        assert_eq!(again.verify(&id).status, CheckStatus::Ok);
        assert_eq!(again.summaries().unwrap()[0].summary.as_ref().unwrap().events, count);
    }
}
