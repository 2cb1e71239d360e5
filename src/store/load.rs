//! Reading a stored session whole, as far as the model needs it.

use std::sync::Arc;

use super::Store;
use super::error::StoreError;
use super::recovery::ClosedTurn;
use crate::backend::{
    Backend, BackendError, Checkpoint, Damage, DamageClass, ErrorKind, Head, Opened, ReadLimit, TornTail,
};
use crate::event::{Batch, Event, Item, SessionHeader, SessionId};
use crate::session::{Fold, Seed, SessionError, repair};

/// A stored session as it was read.
#[derive(Clone)]
pub(crate) struct Loaded {
    pub(crate) header: SessionHeader,
    /// The log's end at the moment of reading; the seed goes exactly up to it.
    pub(crate) head: Head,
    pub(crate) seed: Arc<Seed>,
    /// Whether a writer had the session open.
    pub(crate) live: bool,
    pub(crate) torn: Option<TornTail>,
    /// About how many bytes the seed holds.
    pub(crate) weight: usize,
}

impl<B: Backend> Store<B> {
    /// Reads a session: from its checkpoint on, if it has a usable one, else from the beginning.
    pub(crate) async fn load(&self, id: &SessionId) -> Result<Loaded, StoreError> {
        let opened = self.shared.backend.open(id).await?;
        check_identity(id, &opened.header)?;
        let Opened { header, head, checkpoint, torn, live } = opened;
        let end = head.next_seq;
        let mut seed = Seed::default();
        if let Some(checkpoint) = checkpoint {
            seed.checkpoint = self.surface_of(id, checkpoint, end).await?;
        }
        let from = seed.checkpoint.as_ref().map_or(0, |(checkpoint, _)| checkpoint.next_seq);
        seed.items = self.items(id, from, end).await?;
        let surface = seed.checkpoint.iter().flat_map(|(_, events)| events);
        let weight = surface.map(Event::weight).sum::<usize>() + seed.items.iter().map(Item::weight).sum::<usize>();
        Ok(Loaded { header, head, seed: Arc::new(seed), live, torn, weight })
    }

    /// The checkpoint with the events that it names. A checkpoint is derived and never trusted over the log: one that cannot be
    /// read is left aside.
    async fn surface_of(
        &self,
        id: &SessionId,
        checkpoint: Checkpoint,
        end: u64,
    ) -> Result<Option<(Checkpoint, Vec<Event>)>, StoreError> {
        let fold = match Fold::from_checkpoint(&checkpoint) {
            Ok(fold) if fold.next_seq() <= end => fold,
            Ok(_) => return Ok(None),
            Err(error) => {
                tracing::warn!(session = %id, %error, "reading the whole log instead");
                return Ok(None);
            }
        };
        let events = self.shared.backend.read_events(id, fold.surface().nodes()).await?;
        Ok(Some((checkpoint, events)))
    }

    /// The stored events from `from` up to but excluding `end`.
    async fn items(&self, id: &SessionId, from: u64, end: u64) -> Result<Vec<Item>, StoreError> {
        let mut items: Vec<Item> = Vec::new();
        let mut at = from;
        while at < end {
            let page = self.shared.backend.read(id, at, ReadLimit::default()).await?;
            // Beside a live writer the log may have grown since its end was read.
            items.extend(page.items.iter().filter_map(|item| item.slice(at, end)));
            match items.last().map(Item::next_seq) {
                Some(next) if next > at => at = next,
                _ => {
                    let detail = format!("the log ends at seq {at}, its head says {end}");
                    let damage = Damage { class: DamageClass::Gap, offset: None, intact_before: at };
                    let error = BackendError::new(ErrorKind::Damaged, detail).with_session(id).with_damage(damage);
                    return Err(error.into());
                }
            }
        }
        Ok(items)
    }

    /// Checks what was read (E4, V2) and gives the closers of an orphaned turn (section 8), if there is one.
    pub(crate) fn judge(&self, id: &SessionId, seed: &Seed) -> Result<Option<(ClosedTurn, Batch)>, StoreError> {
        let mut fold = match &seed.checkpoint {
            Some((checkpoint, _)) => Fold::from_checkpoint(checkpoint).map_err(SessionError::from)?,
            None => Fold::new(),
        };
        seed.items.iter().try_for_each(|item| fold.apply_item(item)).map_err(SessionError::from)?;
        fold.check_vocabulary(&self.shared.options.vocabulary).map_err(|unknown| StoreError::Unsupported {
            session: id.clone(),
            location: self.shared.backend.locate(id),
            unknown,
        })?;
        let closers = fold.open_turn().zip(repair::close(&fold, id));
        Ok(closers.map(|(turn, closers)| (ClosedTurn::of(turn, &closers), closers)))
    }
}

/// Opening by id gives that session or an error, never another one.
pub(crate) fn check_identity(id: &SessionId, header: &SessionHeader) -> Result<(), BackendError> {
    if header.id == id.as_str() {
        return Ok(());
    }
    let detail = format!("the stored header is that of session {}", header.id.escape_debug());
    let damage = Damage { class: DamageClass::IdentityMismatch, offset: None, intact_before: 0 };
    Err(BackendError::new(ErrorKind::Damaged, detail).with_session(id).with_damage(damage))
}

/// A seed with closers behind it.
pub(crate) fn closed(seed: &Seed, closers: Option<&Batch>) -> Seed {
    let mut seed = seed.clone();
    seed.items.extend(closers.into_iter().flat_map(|closers| closers.items().iter().cloned()));
    seed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e8_opening_by_id_never_gives_another_session() {
        let id = SessionId::new("a").unwrap();
        check_identity(&id, &SessionHeader::new("a")).unwrap();
        let error = check_identity(&id, &SessionHeader::new("A")).unwrap_err();
        assert_eq!(error.damage.as_ref().unwrap().class, DamageClass::IdentityMismatch);
        assert!(error.to_string().starts_with("session a: identity-mismatch: the stored header is that of session A"));
    }
}
