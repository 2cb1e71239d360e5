//! Opening a stored session for writing.

use std::sync::Arc;

use super::error::StoreError;
use super::load::{Loaded, closed};
use super::recovery::Recovery;
use super::registry::Reservation;
use super::settle::{Fate, settle};
use super::{LiveSession, Store, named};
use crate::backend::{AppendError, Backend, Expected, Head, Taken};
use crate::event::{Batch, SessionId};
use crate::session::Session;

/// Ownership of a stored session. Given back when dropped, in the background, unless it was passed on.
struct Owned<B: Backend> {
    backend: Arc<B>,
    id: SessionId,
    epoch: u64,
    kept: bool,
}

impl<B: Backend> Owned<B> {
    /// Gives the session back and waits for it.
    async fn give_back(mut self) {
        self.kept = true;
        if let Err(error) = self.backend.release(&self.id, self.epoch).await {
            tracing::warn!(session = %self.id, %error, "giving the session back failed");
        }
    }
}

impl<B: Backend> Drop for Owned<B> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        // The caller stopped waiting in the middle of a resume.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (backend, id, epoch) = (Arc::clone(&self.backend), self.id.clone(), self.epoch);
            runtime.spawn(async move {
                let _ = backend.release(&id, epoch).await;
            });
        }
    }
}

impl<B: Backend> Store<B> {
    /// Opens a stored session for writing: takes it over, sets an incomplete last record aside (R1), closes an orphaned turn
    /// durably, once (R2, R3), and marks the seed's end (L3). The mark becomes durable with the next flush or window.
    ///
    /// Cost: as [`Store::inspect`]; what that read is used again if the log has not changed since.
    ///
    /// # Errors
    /// `Busy` naming the holder, this process if it is live here; otherwise as [`Store::inspect`], and what appending the
    /// closers can meet. The session is not owned then.
    pub async fn resume(
        &self,
        id: impl TryInto<SessionId, Error: Into<StoreError>>,
    ) -> Result<LiveSession<B>, StoreError> {
        let id = named(id)?;
        let reservation = self.reserve(&id).await?;
        self.resume_reserved(id, reservation, None).await
    }

    /// With `known`, what the stored session is known to hold, nothing is read if its end is still the same.
    pub(crate) async fn resume_reserved(
        &self,
        id: SessionId,
        reservation: Reservation<B>,
        known: Option<Loaded>,
    ) -> Result<LiveSession<B>, StoreError> {
        let seen = match known {
            Some(known) => Some(known),
            None => self.unchanged_since_seen(&id).await?,
        };
        if !self.shared.options.persistence {
            let loaded = self.load(&id).await?;
            let recovery = Recovery { events: loaded.head.next_seq, ..Recovery::default() };
            return self.live_from(loaded, None, recovery, reservation).await;
        }
        let Taken { head, torn } = self.shared.backend.take_over(&id).await?;
        let backend = Arc::clone(&self.shared.backend);
        let mut owned = Owned { backend, id: id.clone(), epoch: head.epoch, kept: false };
        let recovery = Recovery { events: head.next_seq, torn, closed: None, stored: true };
        let resumed = async {
            let loaded = match seen.filter(|seen| is_same(&seen.head, &head)) {
                Some(seen) => seen,
                None => self.load(&id).await?,
            };
            self.live_from(loaded, Some(head), recovery, reservation).await
        };
        let resumed = resumed.await;
        if resumed.is_ok() {
            owned.kept = true;
        } else {
            owned.give_back().await;
        }
        resumed
    }

    /// What an inspection read of the session, if its revision still holds.
    async fn unchanged_since_seen(&self, id: &SessionId) -> Result<Option<Loaded>, StoreError> {
        let Some(seen) = self.shared.seen.take(id) else { return Ok(None) };
        let revision = self.shared.backend.revision(id).await?;
        Ok((revision == seen.head.revision).then_some(seen))
    }

    /// A live session from what was read; with `owner`, the head that taking over gave, closers are stored first.
    async fn live_from(
        &self,
        loaded: Loaded,
        owner: Option<Head>,
        mut recovery: Recovery,
        reservation: Reservation<B>,
    ) -> Result<LiveSession<B>, StoreError> {
        let id = loaded.header.session_id()?;
        let closers = loaded.closers(&id);
        let mut stored = owner.as_ref().map_or(Expected::ABSENT, after);
        recovery.events = loaded.head.next_seq;
        if let Some((closed, batch)) = &closers {
            recovery.closed = Some(*closed);
            if owner.is_some() {
                stored = after(&self.repair(&loaded, &id, stored, batch).await?);
            }
        }
        let ledger = self.ledger(&id, stored.next_seq);
        let seed = closed(loaded.seed, closers.as_ref().map(|(_, batch)| batch));
        let session = Session::from_prepared(loaded.header, seed, self.shared.options.session(self.sink(&ledger)))?;
        ledger.catch_up(session.next_seq());
        self.go_live(session, ledger, stored, reservation, recovery)
    }

    /// Stores closers; an answer that is lost is looked for before anything else is believed.
    async fn repair(
        &self,
        loaded: &Loaded,
        id: &SessionId,
        expected: Expected,
        closers: &Batch,
    ) -> Result<Head, StoreError> {
        let backend = &*self.shared.backend;
        let lost = match backend.repair(id, expected, closers).await {
            Ok(head) => return Ok(head),
            Err(AppendError::Indeterminate(lost)) => lost,
            Err(error) => return Err(error.into_backend(id).into()),
        };
        match settle(backend, &loaded.header, id, expected, closers).await {
            Fate::Landed(head) if head.next_seq == closers.next_seq() => Ok(head),
            // The next resume adds exactly the closers that are missing (R2).
            Fate::Landed(_) | Fate::Missing => Err(lost.into()),
            Fate::Lost(error) | Fate::Unknown(error) => Err(error.into()),
        }
    }
}

fn after(head: &Head) -> Expected {
    Expected { epoch: head.epoch, next_seq: head.next_seq }
}

/// Whether the log that was taken over is the one that was read when its revision was last compared. Taking over may change the
/// revision itself, so what tells is the log's end.
fn is_same(seen: &Head, taken: &Head) -> bool {
    let batches_agree = match (seen.last_batch, taken.last_batch) {
        (Some(seen), Some(taken)) => seen == taken,
        _ => true,
    };
    seen.next_seq == taken.next_seq && batches_agree
}
