//! Looking at a stored session without opening it for writing.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard};

use super::error::StoreError;
use super::load::{Loaded, closed};
use super::recovery::Recovery;
use super::{Store, named};
use crate::backend::{Backend, Revision};
use crate::event::SessionId;
use crate::session::Session;
use crate::sync;

/// Most sessions whose inspected content is kept for a resume.
const SEEN_SESSIONS: usize = 4;

/// Most bytes of inspected content kept for resumes, all together.
const SEEN_BYTES: usize = 32 << 20;

/// A stored session as it is at one moment: a [`Session`] that refuses appends, and what was found on the way.
#[derive(Debug, Clone)]
pub struct Inspected {
    session: Session,
    revision: Revision,
    recovery: Recovery,
    live: bool,
}

impl Inspected {
    /// The view. Behind the stored events stand the closers of an orphaned turn, unless a writer has the session open.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Number of stored events; what the view holds behind them is in memory only.
    pub fn durable_seq(&self) -> u64 {
        self.recovery.events
    }

    /// Revision of the log that was read.
    pub fn revision(&self) -> &Revision {
        &self.revision
    }

    /// What a resume would mend.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Whether a writer has the session open. Then an open turn is its business and stays open in the view.
    pub fn is_live(&self) -> bool {
        self.live
    }
}

impl Deref for Inspected {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl<B: Backend> Store<B> {
    /// Reads a stored session as a resume would see it, and writes nothing: an orphaned turn is closed in memory (R3). Needs no
    /// ownership; beside a live writer it shows the durable prefix with its open turn.
    ///
    /// Cost: what the model sees and what follows the last checkpoint; without one, the log. Memory: what the model sees; of what
    /// follows the checkpoint everything is held as long as it is less than a mebibyte ([`Session::first_held_seq`]).
    ///
    /// # Errors
    /// `NotFound`, `Damaged` (R4), `Unsupported` (N2, V2), or [`StoreError::Session`] for a log that is not a valid one.
    pub async fn inspect(&self, id: impl TryInto<SessionId, Error: Into<StoreError>>) -> Result<Inspected, StoreError> {
        let id = named(id)?;
        let loaded = self.load(&id).await?;
        let mut recovery =
            Recovery { events: loaded.head.next_seq, torn: loaded.torn.clone(), closed: None, stored: false };
        let mut closers = loaded.closers(&id);
        if loaded.live {
            // Neither the turn nor a half-written record is orphaned while their writer is alive.
            (closers, recovery.torn) = (None, None);
        }
        recovery.closed = closers.as_ref().map(|(closed, _)| *closed);
        let seed = closed(Arc::clone(&loaded.seed), closers.as_ref().map(|(_, batch)| batch));
        let session = Session::view_prepared(loaded.header.clone(), seed, self.shared.options.view())?;
        let (revision, live) = (loaded.head.revision.clone(), loaded.live);
        self.shared.seen.put(id, loaded);
        Ok(Inspected { session, revision, recovery, live })
    }
}

/// What inspections read, kept for resumes that follow.
#[derive(Default)]
pub(crate) struct Seen {
    kept: Mutex<VecDeque<(SessionId, Loaded)>>,
}

impl Seen {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(SessionId, Loaded)>> {
        sync::lock(&self.kept)
    }

    /// Keeps what was read, at the expense of what was read longest ago.
    fn put(&self, id: SessionId, loaded: Loaded) {
        let mut kept = self.lock();
        kept.retain(|(other, _)| *other != id);
        kept.push_back((id, loaded));
        let weight = |kept: &VecDeque<(SessionId, Loaded)>| kept.iter().map(|(_, loaded)| loaded.weight).sum::<usize>();
        while kept.len() > SEEN_SESSIONS || weight(&kept) > SEEN_BYTES {
            kept.pop_front();
        }
    }

    /// Takes out what was read of a session.
    pub(crate) fn take(&self, id: &SessionId) -> Option<Loaded> {
        let mut kept = self.lock();
        let index = kept.iter().position(|(other, _)| other == id)?;
        kept.remove(index).map(|(_, loaded)| loaded)
    }
}
