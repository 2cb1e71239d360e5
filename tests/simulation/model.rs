//! What is known of each session without looking at any disk.

use std::collections::BTreeMap;

use sessionlog::event::{Event, Item, SessionId};
use sessionlog::session::repair;

/// A session as its users know it.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Every event accepted, in order; the stored log is a beginning of it.
    pub accepted: Vec<Event>,
    /// How many of them were acknowledged as durable. With none, the session may be absent.
    pub durable: usize,
    /// A deletion was begun and its end is not known.
    pub perhaps_deleted: bool,
    /// It was on its way to or from the trash when that failed: it stands in one of both places, whole.
    pub moving: bool,
    /// Other logs of which a beginning may stand under this id: of creations and forks that failed, or sessions whose deletion did.
    pub ghosts: Vec<Vec<Event>>,
    /// Logs that a resume or an import which failed may have left: closers and events of which nobody heard, and which a loss of
    /// power may bring back.
    pub perhaps_left: Vec<Vec<Event>>,
}

/// A session in the trash.
#[derive(Debug, Clone)]
pub struct Removed {
    pub name: String,
    pub time: i64,
    pub known: Known,
    /// A digest of its files as they went there, or as the last loss of power left them: nothing else changes them.
    pub bytes: u64,
}

#[derive(Debug, Clone, Default)]
pub struct Model {
    pub sessions: BTreeMap<String, Known>,
    pub trash: Vec<Removed>,
    /// Sessions that a failure left between their place, the trash and nowhere.
    pub unsettled: BTreeMap<String, Known>,
}

impl Known {
    /// What is known of it when it stands in its place again, or may do so.
    pub fn back(&self, moving: bool) -> Self {
        // A deletion that failed, and then something else of that name: which of them it is, only the log tells.
        let durable = if self.perhaps_deleted && !self.ghosts.is_empty() { 0 } else { self.durable };
        Self { moving: moving && !self.perhaps_deleted, perhaps_deleted: moving, durable, ..self.clone() }
    }

    /// A resume of the session failed.
    pub fn resume_failed(&mut self, id: &SessionId) {
        for end in self.durable..=self.accepted.len() {
            let mut log = self.accepted[..end].to_vec();
            log.extend(closers(&log, id));
            self.perhaps_left.push(log);
        }
        let closed = self.perhaps_left.iter().map(|log| (log, closers(log, id))).filter(|(_, end)| !end.is_empty());
        let closed: Vec<Vec<Event>> = closed.map(|(log, end)| [&log[..], &end[..]].concat()).collect();
        self.perhaps_left.extend(closed);
    }

    /// Every log of which a beginning may be stored or have been.
    pub fn logs(&self) -> impl Iterator<Item = &Vec<Event>> {
        std::iter::once(&self.accepted).chain(&self.perhaps_left).chain(&self.ghosts)
    }

    /// The first `count` events of a log that is stored, if it is one of those that may be.
    pub fn log_behind(&self, found: &[Event], count: usize) -> Option<Vec<Event>> {
        let found = found.get(..count)?;
        self.logs().any(|log| log.starts_with(found)).then(|| found.to_vec())
    }

    /// Checks that a log, or its absence, is one that may be found now.
    pub fn check(&self, found: Option<&[Event]>) -> Result<(), String> {
        let Some(found) = found else {
            return if self.durable == 0 || self.perhaps_deleted {
                Ok(())
            } else {
                Err(format!("lost, with {} durable events", self.durable))
            };
        };
        if !found.iter().zip(0..).all(|(event, seq)| event.seq() == seq) {
            return Err("its seqs are not contiguous".to_owned());
        }
        let same = found.len() <= self.accepted.len() && *found == self.accepted[..found.len()];
        if same && found.len() >= self.durable {
            return Ok(());
        }
        if self.perhaps_left.iter().any(|log| log == found) {
            return Ok(());
        }
        if (self.durable == 0 || self.perhaps_deleted) && self.ghosts.iter().any(|ghost| ghost.starts_with(found)) {
            return Ok(());
        }
        let first = found.iter().zip(&self.accepted).position(|(found, accepted)| found != accepted);
        Err(format!(
            "{} events are stored, {} durable and {} accepted; first difference: {first:?}",
            found.len(),
            self.durable,
            self.accepted.len()
        ))
    }
}

/// What a resume makes of a stored log: closers of an orphaned turn, then the mark. The mark's time is not foretold.
pub fn closers(stored: &[Event], id: &SessionId) -> Vec<Event> {
    let items: Vec<Item> = stored.iter().cloned().map(Item::Event).collect();
    repair::close_log(&items, id).unwrap().map_or_else(Vec::new, |batch| batch.events().collect())
}

/// Whether a resume appends the mark behind this log.
pub fn wants_mark(stored: &[Event]) -> bool {
    stored.last().is_some_and(|last| last.event_type() != "session/end-seed")
}
