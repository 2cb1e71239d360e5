//! Opening stored sessions: to go on with them, and to look at them.

use std::ops::Deref;
use std::sync::Arc;

use super::error::StoreError;
use super::ledger::Ledger;
use super::live::LiveSession;
use super::recovery::Recovery;
use super::writer::Served;
use super::{Store, busy};
use crate::backend::{
    AppendError, Backend, BackendError, Damage, DamageClass, ErrorKind, Expected, Opened, ReadLimit, Revision, Taken,
};
use crate::event::{Batch, Item, SessionHeader, SessionId};
use crate::session::fold::Fold;
use crate::session::{Seed, Session, SessionError, repair};

/// How many inspected logs are kept for a resume that may follow, and how large each may be in bytes.
const KEPT_LOGS: usize = 4;
const KEPT_BYTES: usize = 16 << 20;

/// A stored log as it was read.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    header: SessionHeader,
    seed: Seed,
    next_seq: u64,
}

/// A log read by an inspection, for the resume that may follow.
#[derive(Debug)]
pub(super) struct Kept {
    id: SessionId,
    revision: Revision,
    stored: Stored,
}

/// A stored session to look at; see [`Store::inspect`]. Derefs to [`Session`], whose appends are refused.
#[derive(Clone)]
pub struct Inspection {
    session: Session,
    recovery: Recovery,
    live: bool,
    durable: u64,
}

impl Deref for Inspection {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl Inspection {
    /// What a resume would cut and close. The closers are part of this view; nothing was written.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Whether a writer has the session open: then this is the durable prefix as it stood, with its open turn.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Number of events that are stored; what follows in this view are closers.
    pub fn durable_seq(&self) -> u64 {
        self.durable
    }
}

impl<B: Backend + Clone> Store<B> {
    /// Opens a stored session to go on with it: takes it over, sets a torn tail aside, closes an orphaned turn durably, and
    /// returns it live. Its log gets a mark behind the seed (L3), durable with the next flush.
    ///
    /// Cost: what the backend's checkpoint leaves to be read; without one, the log.
    ///
    /// # Errors
    /// `NotFound`; `Busy` naming the writer that has it; `Damaged` (R4); [`StoreError::Unsupported`] for a required event type
    /// that this reader does not know (V2). Whatever fails, the session is given back and never another one returned.
    pub async fn resume(&self, id: impl AsRef<str>) -> Result<LiveSession<B>, StoreError> {
        let id = SessionId::new(id)?;
        self.check_open()?;
        let _opening = self.claim(&id).await?;
        let kept = self.take_kept(&id).await;
        let taken = self.shared.backend.take_over(&id).await?;
        let epoch = taken.head.epoch;
        match self.resume_taken(&id, taken, kept).await {
            Ok(live) => Ok(live),
            Err(error) => {
                if let Err(also) = self.shared.backend.release(&id, epoch).await {
                    tracing::warn!(session = %id, "giving the session back failed: {also}");
                }
                Err(error)
            }
        }
    }

    async fn resume_taken(
        &self,
        id: &SessionId,
        taken: Taken,
        kept: Option<Stored>,
    ) -> Result<LiveSession<B>, StoreError> {
        let kept = kept.filter(|kept| taken.torn.is_none() && kept.next_seq == taken.head.next_seq);
        let mut stored = match kept {
            Some(kept) => kept,
            None => self.read_stored(id, None).await?.1,
        };
        let mut expected = Expected { epoch: taken.head.epoch, next_seq: taken.head.next_seq };
        if stored.next_seq != expected.next_seq {
            let found = Expected { epoch: expected.epoch, next_seq: stored.next_seq };
            return Err(AppendError::Conflict { expected, found }.into_backend(id).into());
        }
        let mut recovery = Recovery { torn: taken.torn, closers: Vec::new() };
        if let Some(closers) = self.closers(id, &stored)? {
            expected = self.commit(id, expected, &closers).await?;
            recovery.closers = closers.events().collect();
            stored.seed.items.extend(closers.into_items());
        }
        self.go_live(stored.header, stored.seed, expected, recovery)
    }

    /// Makes a session live whose events before `expected.next_seq` are stored.
    pub(super) fn go_live(
        &self,
        header: SessionHeader,
        seed: Seed,
        expected: Expected,
        recovery: Recovery,
    ) -> Result<LiveSession<B>, StoreError> {
        let id = header.session_id()?;
        let shared = &self.shared;
        let unsupported = |error| match error {
            SessionError::Unsupported(unknown) => StoreError::Unsupported { session: id.clone(), unknown },
            other => other.into(),
        };
        let fresh = expected == Expected::ABSENT;
        let make = |options| {
            if fresh { Session::create(header, options) } else { Session::from_seed(header, seed, options) }
        };
        if !shared.options.persistence {
            let session = make(shared.options.session()).map_err(unsupported)?;
            return Ok(LiveSession::new(session, None, recovery));
        }
        let (window, limit) = (shared.options.window, shared.options.queue_bytes);
        let clock = Arc::clone(&shared.options.clock);
        let ledger = Arc::new(Ledger::new(id.clone(), expected.next_seq, window, limit, clock));
        let options = shared.options.session().sink(Arc::clone(&ledger) as Arc<dyn crate::session::Sink>);
        let session = make(options).map_err(unsupported)?;
        let served = Arc::new(Served::new(shared.backend.clone(), session.clone(), ledger, expected));
        self.register(&id, &served);
        Ok(LiveSession::new(session, Some(served), recovery))
    }

    /// Looks at a stored session: the same view that a resume would give, with the closers in memory. Writes nothing, takes no
    /// lock, works beside a live writer.
    ///
    /// # Errors
    /// As [`Store::resume`], without `Busy`.
    pub async fn inspect(&self, id: impl AsRef<str>) -> Result<Inspection, StoreError> {
        let id = SessionId::new(id)?;
        self.check_open()?;
        let (opened, stored) = self.read_stored(&id, None).await?;
        let closers = if opened.live { None } else { self.closers(&id, &stored)? };
        let torn = opened.torn.filter(|_| !opened.live);
        let durable = stored.next_seq;
        if torn.is_none() {
            self.keep(&id, opened.head.revision, &stored);
        }
        let Stored { header, mut seed, .. } = stored;
        let recovery = Recovery { torn, closers: closers.iter().flat_map(Batch::events).collect() };
        seed.items.extend(closers.into_iter().flat_map(Batch::into_items));
        let session = Session::view(header, seed, self.shared.options.session()).map_err(|error| match error {
            SessionError::Unsupported(unknown) => StoreError::Unsupported { session: id.clone(), unknown },
            other => other.into(),
        })?;
        Ok(Inspection { session, recovery, live: opened.live, durable })
    }

    /// Reads a stored log up to but excluding `end`: through its checkpoint if there is one before that, else from the start.
    pub(super) async fn read_stored(&self, id: &SessionId, end: Option<u64>) -> Result<(Opened, Stored), StoreError> {
        let backend = &self.shared.backend;
        let opened = backend.open(id).await?;
        if opened.header.id != id.as_str() {
            let detail = format!("the backend answered with session {:?} instead", opened.header.id);
            let damage = Damage { class: DamageClass::IdentityMismatch, offset: None, intact_before: 0 };
            return Err(BackendError::new(ErrorKind::Damaged, detail).with_session(id).with_damage(damage).into());
        }
        let end = end.unwrap_or(opened.head.next_seq);
        let mut from = 0;
        let mut seed = Seed::default();
        if let Some(checkpoint) = opened.checkpoint.clone().filter(|checkpoint| checkpoint.next_seq <= end) {
            // A checkpoint is derived: one that cannot be used costs a full read and nothing else.
            if let Ok(fold) = Fold::from_checkpoint(&checkpoint) {
                let events = backend.read_events(id, fold.surface().nodes()).await?;
                from = checkpoint.next_seq;
                seed.checkpoint = Some((checkpoint, events));
            }
        }
        let mut at = Some(from);
        while let Some(seq) = at.filter(|seq| *seq < end) {
            let page = backend.read(id, seq, ReadLimit::default()).await?;
            seed.items.extend(page.items.iter().filter_map(|item| item.slice(seq, end)));
            at = page.next;
        }
        let next_seq = seed.items.last().map_or(from, Item::next_seq);
        Ok((opened.clone(), Stored { header: opened.header, seed, next_seq }))
    }

    /// The closers that the log needs; `None` if no turn is open.
    fn closers(&self, id: &SessionId, stored: &Stored) -> Result<Option<Batch>, StoreError> {
        let mut fold = match &stored.seed.checkpoint {
            Some((checkpoint, _)) => Fold::from_checkpoint(checkpoint).map_err(SessionError::from)?,
            None => Fold::new(),
        };
        for item in &stored.seed.items {
            if let Err(invalid) = fold.apply_item(item) {
                // Behind an event of unknown meaning nothing can be called damaged (V2).
                self.check_vocabulary(id, &fold)?;
                return Err(SessionError::from(invalid).into());
            }
        }
        self.check_vocabulary(id, &fold)?;
        Ok(repair::close(&fold, id))
    }

    fn check_vocabulary(&self, id: &SessionId, fold: &Fold) -> Result<(), StoreError> {
        fold.check_vocabulary(self.shared.options.known())
            .map_err(|unknown| StoreError::Unsupported { session: id.clone(), unknown })
    }

    /// Makes the closers durable, once (R2): an append whose answer is lost is looked for before anything else is done.
    async fn commit(&self, id: &SessionId, expected: Expected, closers: &Batch) -> Result<Expected, StoreError> {
        let backend = &self.shared.backend;
        let after = Expected { epoch: expected.epoch, next_seq: closers.next_seq() };
        match backend.repair(id, expected, closers).await {
            Ok(_) => Ok(after),
            Err(AppendError::Indeterminate(cause)) => {
                let head = backend.head(id).await?;
                let landed = head
                    .last_batch
                    .is_some_and(|mark| mark.first_seq == closers.first_seq() && mark.checksum == closers.checksum());
                if landed && head.epoch == after.epoch && head.next_seq == after.next_seq {
                    Ok(after)
                } else {
                    Err(cause.into())
                }
            }
            Err(error) => Err(error.into_backend(id).into()),
        }
    }

    fn keep(&self, id: &SessionId, revision: Revision, stored: &Stored) {
        let weight: usize = stored.seed.items.iter().map(Item::weight).sum();
        if weight > KEPT_BYTES {
            return;
        }
        let mut kept = self.shared.kept();
        kept.retain(|kept| kept.id != *id);
        if kept.len() == KEPT_LOGS {
            kept.remove(0);
        }
        kept.push(Kept { id: id.clone(), revision, stored: stored.clone() });
    }

    /// What an inspection read of this session, if its revision still holds.
    async fn take_kept(&self, id: &SessionId) -> Option<Stored> {
        let candidate = {
            let mut kept = self.shared.kept();
            let index = kept.iter().position(|kept| kept.id == *id)?;
            kept.remove(index)
        };
        let revision = self.shared.backend.revision(id).await.ok()?;
        (revision == candidate.revision).then_some(candidate.stored)
    }

    /// Makes sure that this store does not have the session open, waiting for one that is just being given back, and that no
    /// other task opens it at the same time.
    pub(super) async fn claim(&self, id: &SessionId) -> Result<super::Opening<'_, B>, StoreError> {
        loop {
            let Some(served) = self.shared.served(id) else { break };
            if served.ledger.phase() < super::ledger::Phase::Closing {
                return Err(busy(id).into());
            }
            // Being given back: help it along. What cannot be written keeps the session here.
            super::live::close(&served).await?;
            self.shared.forget(id, &served);
        }
        self.shared.begin_opening(id).ok_or_else(|| busy(id).into())
    }
}
