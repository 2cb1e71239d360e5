//! What a segment says of its events beside them: index, counts, checkpoint. All of it follows from the blocks; here it is derived
//! from them afresh, to compare with what is stored and to take its place.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::footer::{BlockEntry, Footer};
use super::holders::Holders;
use super::segment::Segment;
use crate::backend::{BackendError, Checkpoint, DamageClass};
use crate::event::chunk::ASSISTANT_CHUNK;
use crate::event::{Item, JsonText};
use crate::segment::bytes::{crc, u32_at, u64_at};
use crate::segment::directory::{SessionDirectory, TEMPORARY, read_small};
use crate::segment::files::{Access, write_all_at};
use crate::segment::random::Random;
use crate::session::checkpoint;
use crate::session::fold::Fold;

/// A log as far as it has been replayed.
#[derive(Debug)]
pub(crate) struct Replay {
    /// State of the log so far; `None` behind an event that no session accepts, where there are no checkpoints either.
    fold: Option<Fold>,
}

/// A stored part that does not follow from the records, with what should stand in its place.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub(crate) class: DamageClass,
    /// The first file that says so.
    pub(crate) path: PathBuf,
    /// Seq behind the events that it is about, which are intact.
    pub(crate) next_seq: u64,
    pub(crate) right: Right,
}

/// What follows from the records.
#[derive(Debug)]
pub(crate) enum Right {
    /// The footer of the segment of this first seq, and the checkpoint before it.
    Footer(u64, Box<Footer>, Option<JsonText>),
    /// The content of the checkpoint file.
    Checkpoint(u64, Checkpoint),
}

impl Wrong {
    /// The same as damage.
    pub(crate) fn error(&self, directory: &SessionDirectory) -> BackendError {
        let what = match self.class {
            DamageClass::DerivedIndex => "the index in the segment's footer is not that of its blocks",
            DamageClass::DerivedCounts => "the counts in the segment's footer are not those of its events",
            _ => "the stored checkpoint does not follow from the log",
        };
        let detail = format!("{what}; every event is intact, `sessionlog verify --repair-derived` derives it afresh");
        directory.damage(self.class, &self.path, None, self.next_seq, detail)
    }
}

impl Replay {
    pub(crate) fn new() -> Self {
        Self { fold: Some(Fold::new()) }
    }

    fn state(&self) -> Option<JsonText> {
        self.fold.as_ref().map(|fold| fold.checkpoint().state)
    }

    /// Goes through the next segment of a log and compares. Of the footer nothing is believed but where the parts stand and what their
    /// checksums are; those are not derived: they vouch for the blocks. `show` sees every item that counts.
    ///
    /// # Errors
    /// Damage of the blocks themselves, what `show` reports, I/O.
    pub(crate) fn segment(
        &mut self,
        directory: &SessionDirectory,
        segment: &Segment,
        mut show: impl FnMut(&BlockEntry, &Item) -> Result<(), BackendError>,
    ) -> Result<Option<Wrong>, BackendError> {
        let stored = &segment.footer;
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        let mut holders = Holders::default();
        let mut blocks = Vec::with_capacity(stored.blocks.len());
        let mut last_time = 0;
        let mut next_seq = stored.first_seq;
        for entry in &stored.blocks {
            let (right, items) = segment.block_afresh(directory, entry, next_seq)?;
            for item in &items {
                holders.note(blocks.len(), item);
                let Some(item) = item.slice(0, segment.until.unwrap_or(u64::MAX)) else { continue };
                show(&right, &item)?;
                let (name, count) = match &item {
                    Item::Event(event) => (event.event_type(), 1),
                    Item::Run(run) => (ASSISTANT_CHUNK, run.len()),
                };
                match counts.get_mut(name) {
                    Some(sum) => *sum += count,
                    None => drop(counts.insert(name.to_owned(), count)),
                }
                last_time = item.last_time();
                self.fold = self.fold.take().and_then(|mut fold| fold.apply_item(&item).ok().map(|()| fold));
            }
            next_seq = right.next_seq;
            blocks.push(right);
        }
        let wrong = |class, right| {
            let path = segment.path.clone();
            Ok(Some(Wrong { class, path, next_seq: next_seq.min(segment.next_seq()), right }))
        };
        let held = holders == stored.holders();
        let footer = Footer {
            first_seq: stored.first_seq,
            next_seq,
            last_time,
            continued: stored.continued,
            checkpoint: stored.checkpoint,
            level: stored.level,
            blocks,
            counts,
            holders: holders.into_stretches(),
        };
        let state = self.state();
        let footer_of = |footer, state| Right::Footer(stored.first_seq, Box::new(footer), state);
        if footer.blocks != stored.blocks || next_seq < segment.next_seq() {
            return wrong(DamageClass::DerivedIndex, footer_of(footer, state));
        }
        if let Some(until) = segment.until {
            if !held {
                return wrong(DamageClass::DerivedIndex, footer_of(footer, state));
            }
            // Counts and checkpoint hold for the session that it was sealed in; what holds here is in a file of its own.
            return Ok(self.checkpoint_of(directory, segment, until));
        }
        if footer.counts != stored.counts || footer.last_time != stored.last_time {
            return wrong(DamageClass::DerivedCounts, footer_of(footer, state));
        }
        if !held {
            return wrong(DamageClass::DerivedIndex, footer_of(footer, state));
        }
        let same = match (&state, stored.checkpoint) {
            (Some(state), Some(_)) => segment.checkpoint().is_some_and(|stored| checkpoint::says(&stored, state)),
            (None, None) => true,
            _ => false,
        };
        if !same {
            return wrong(DamageClass::DerivedCheckpoint, footer_of(footer, state));
        }
        Ok(None)
    }

    /// Compares the checkpoint behind a segment that counts in part.
    fn checkpoint_of(&self, directory: &SessionDirectory, segment: &Segment, until: u64) -> Option<Wrong> {
        let stored = read_checkpoint(directory, segment.header.salt, until)?;
        let right = self.state().filter(|right| !checkpoint::says(&stored, right))?;
        Some(Wrong {
            class: DamageClass::DerivedCheckpoint,
            path: directory.file(CHECKPOINT_FILE),
            next_seq: until,
            right: Right::Checkpoint(segment.header.salt, Checkpoint { next_seq: until, state: right }),
        })
    }
}

/// Name of the file with the checkpoint behind a segment that counts in part.
pub(crate) const CHECKPOINT_FILE: &str = "checkpoint";

const MAGIC: [u8; 8] = *b"slogCKPT";
const VERSION: u32 = 1;
/// Bytes before the state: magic, version, unpacked length, seq, salt, checksum.
const FRAME_BYTES: usize = 36;
/// Longest state that is read, in bytes: as long as a footer may be.
const MAX_STATE_BYTES: usize = 256 << 20;

/// The checkpoint behind a segment of this salt that counts up to `until`; `None` when there is none that can be used.
pub(crate) fn read_checkpoint(directory: &SessionDirectory, salt: u64, until: u64) -> Option<Checkpoint> {
    let file = directory.files.open(&directory.file(CHECKPOINT_FILE), Access::Read).ok()?;
    let bytes = read_small(&*file, MAX_STATE_BYTES).ok()??;
    let (frame, packed) = bytes.split_at_checked(FRAME_BYTES)?;
    let sound = frame.get(..8)? == MAGIC
        && u32_at(frame, 8)? == VERSION
        && (u64_at(frame, 16)?, u64_at(frame, 24)?) == (until, salt)
        && crc(&[frame.get(..32)?, packed]) == u32_at(frame, 32)?;
    let length = usize::try_from(u32_at(frame, 12)?).ok().filter(|length| sound && *length <= MAX_STATE_BYTES)?;
    let text = String::from_utf8(super::block::decompress(packed, length, &[])?).ok()?;
    Some(Checkpoint { next_seq: until, state: JsonText::parse(&text).ok()? })
}

/// Puts a checkpoint there. It is not synced: one that did not survive a crash is derived again, or the log is replayed.
pub(crate) fn write_checkpoint(
    directory: &SessionDirectory,
    random: &Random,
    salt: u64,
    checkpoint: &Checkpoint,
) -> Result<(), BackendError> {
    let path = directory.file(CHECKPOINT_FILE);
    let write = || -> std::io::Result<()> {
        let text = checkpoint.state.as_str();
        let packed = zstd::bulk::compress(text.as_bytes(), 3)?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(text.len()).map_err(std::io::Error::other)?.to_le_bytes());
        bytes.extend_from_slice(&checkpoint.next_seq.to_le_bytes());
        bytes.extend_from_slice(&salt.to_le_bytes());
        let checksum = crc(&[&bytes, &packed]);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes.extend_from_slice(&packed);
        let temporary = directory.file(&format!("{TEMPORARY}{:016x}", random.number()?));
        let written = || -> std::io::Result<()> {
            let file = directory.files.open(&temporary, Access::CreateNew)?;
            write_all_at(&*file, &bytes, 0)?;
            directory.files.rename(&temporary, &path)
        };
        written().inspect_err(|_| {
            // Best effort; the name says what it is.
            let _ = directory.files.remove_file(&temporary);
        })
    };
    write().map_err(|error| directory.io("writing a checkpoint", &path, error))
}
