//! The stores that are read from.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sessionlog::backend::{BackendError, Expected};
use sessionlog::event::{Batch, Event, NewEvent, SessionHeader, SessionId};
use sessionlog::sample::{Cadence, MEDIUM_EVENTS, Recording};
use sessionlog::segment::{Engine, EngineOptions, SealOptions};

use super::Plan;
use super::files::{self, UnsyncedFiles};

/// What live streaming flushes: 200 ms of recorded time.
pub const STREAMED: Cadence = Cadence::Window(200);

/// Events of the log of tiny batches.
pub const TINY_BATCHES: u64 = 120_000;

/// A stored session, alone in its store.
#[derive(Debug)]
pub struct Stored {
    pub root: PathBuf,
    pub recording: Recording,
    pub id: SessionId,
    pub events: u64,
}

/// The sessions that most rows are about.
#[derive(Debug)]
pub struct Inputs {
    work: PathBuf,
    /// The large recording, streamed, closed and sealed in the background.
    pub large: Stored,
    /// The medium one.
    pub medium: Stored,
    /// A large recording that compacts its history.
    pub compacted: Stored,
    /// One ten times as long.
    pub longer: Stored,
    /// A log of one-event batches.
    pub tiny: Stored,
}

/// A store that does not wait for the disk.
pub fn unsynced(root: &Path, background_sealing: bool) -> Engine {
    let files = Arc::new(UnsyncedFiles);
    EngineOptions::new().files(files).background_sealing(background_sealing).open(root).expect("a store")
}

/// Appends batches to a new session as its writer would, and gives the session back.
pub fn stream(engine: &Engine, header: &SessionHeader, batches: impl Iterator<Item = Batch>) {
    let id = header.session_id().expect("a plain id");
    let mut expected = Expected::ABSENT;
    for batch in batches {
        let create = (expected == Expected::ABSENT).then_some(header);
        let head = engine.append(&id, create, expected, &batch).expect("an append");
        expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
    }
    engine.release(&id, expected.epoch).expect("the session given back");
}

/// Stores batches whole, as an import does.
pub fn store_whole(engine: &Engine, header: &SessionHeader, mut batches: impl Iterator<Item = Batch>) {
    engine.create_whole(header, || Ok::<_, BackendError>(batches.next())).expect("a session");
}

/// Seals at the level of the background thread what that thread has left.
pub fn settle(engine: &Engine, id: &SessionId) {
    engine.seal(id, SealOptions::new().level(3)).expect("a seal");
}

impl Stored {
    /// Streams a recording into a store of its own and has it sealed in the background.
    pub fn streamed(work: &Path, name: &str, recording: Recording, events: u64, cadence: Cadence) -> Self {
        let root = files::fresh(work, name);
        let engine = unsynced(&root, true);
        let header = recording.header();
        stream(&engine, &header, recording.batches(cadence));
        let id = header.session_id().expect("a plain id");
        settle(&engine, &id);
        Self { root, recording, id, events }
    }

    /// Its id as an argument of a child.
    pub fn name(&self) -> &str {
        self.id.as_str()
    }
}

impl Inputs {
    /// Makes them all.
    pub fn make(plan: &Plan) -> Self {
        let work = files::fresh(&plan.work, "inputs");
        let large = plan.large();
        let recorded = |events| Recording::new(1).events(events);
        let streamed = |name: &str, recording: Recording, events| {
            Stored::streamed(&work, name, recording.events(events), events, STREAMED)
        };
        Self {
            large: streamed("large", recorded(large), large),
            medium: streamed("medium", recorded(MEDIUM_EVENTS), MEDIUM_EVENTS),
            compacted: streamed("compacted", recorded(large).compacting(), large),
            longer: Stored::streamed(
                &work,
                "longer",
                recorded(large * 10).compacting(),
                large * 10,
                // How it was cut into flushes does not matter once it is sealed, and this is quicker.
                Cadence::Step,
            ),
            tiny: Stored::streamed(&work, "tiny", recorded(TINY_BATCHES), TINY_BATCHES, Cadence::Event),
            work,
        }
    }

    /// Gives the disk back.
    pub fn remove(self) {
        let _ = fs::remove_dir_all(&self.work);
    }
}

/// A recorded event as the agent loop appended it.
pub fn renewed(event: &Event) -> NewEvent {
    let mut new = NewEvent::named(event.event_type(), event.json());
    new.placement = event.placement().cloned();
    new.ignorable = event.ignorable();
    new
}
