//! The full check of a session.

use std::collections::BTreeMap;

use super::directory::SessionDirectory;
use super::log::{self, Visitor};
use super::scan::{Content, Fault, Record, Scanner};
use super::sealed::segment::Segment;
use crate::backend::{BackendError, DamageClass, ErrorKind, TornTail};
use crate::event::chunk::ASSISTANT_CHUNK;
use crate::event::{Item, json};
use crate::session::fold::Fold;

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
    /// State of the log so far; `None` behind an event that no session accepts, where there are no checkpoints either.
    fold: Option<Fold>,
}

impl Visitor for Thorough {
    fn begin(&mut self) {
        self.fold = Some(Fold::new());
    }

    fn segment(&mut self, directory: &SessionDirectory, segment: &Segment) -> Result<(), BackendError> {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        let mut last_time = 0;
        for (index, block) in segment.footer.blocks.iter().enumerate() {
            for item in segment.block(directory, index)? {
                let (name, count) = match &item {
                    Item::Event(event) => (event.event_type(), 1),
                    Item::Run(run) => (ASSISTANT_CHUNK, run.len()),
                };
                match counts.get_mut(name) {
                    Some(sum) => *sum += count,
                    None => drop(counts.insert(name.to_owned(), count)),
                }
                if !payload_is_json(&item) {
                    let detail = "a payload in a sealed segment is not valid JSON";
                    let place = Some(block.offset);
                    return Err(directory.damage(DamageClass::Checksum, &segment.path, place, block.first_seq, detail));
                }
                last_time = item.last_time();
                self.fold = self.fold.take().and_then(|mut fold| fold.apply_item(&item).ok().map(|()| fold));
            }
        }
        if segment.until.is_some() {
            // What it derives holds for the session that it was sealed in.
            return Ok(());
        }
        let state = self.fold.as_ref().map(|fold| fold.checkpoint().state);
        let wrong = if counts != segment.footer.counts || last_time != segment.footer.last_time {
            "the counts in the segment's footer are not those of its events"
        } else if state != segment.footer.checkpoint {
            "the checkpoint in the segment's footer does not follow from the log"
        } else {
            return Ok(());
        };
        Err(directory.damage(DamageClass::Checksum, &segment.path, None, segment.next_seq(), wrong))
    }

    fn record(&mut self, scanner: &mut Scanner, record: &Record) -> Result<(), Fault> {
        let Content::Batch(prefix) = record.content else { return Ok(()) };
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

pub(crate) fn session(directory: &SessionDirectory) -> SessionCheck {
    match directory.check().and_then(|()| directory.read_header()) {
        Ok(_) => log(directory),
        Err(error) => failed(error),
    }
}

/// Checks the log alone, whatever the header says.
pub(crate) fn log(directory: &SessionDirectory) -> SessionCheck {
    match log::scan_with(directory, &mut Thorough { fold: None }) {
        Ok(log) => SessionCheck {
            status: if log.torn.is_some() { CheckStatus::Torn } else { CheckStatus::Ok },
            events: log.next_seq,
            bytes: log.bytes,
            torn: log.torn,
            error: None,
        },
        Err(error) => failed(error),
    }
}

fn failed(error: BackendError) -> SessionCheck {
    SessionCheck {
        status: if error.kind == ErrorKind::Unsupported { CheckStatus::Unsupported } else { CheckStatus::Damaged },
        events: error.damage.as_ref().map_or(0, |damage| damage.intact_before),
        bytes: 0,
        torn: None,
        error: Some(error),
    }
}
