//! Reading a stored session, as far as the model needs it.

use std::collections::HashMap;
use std::sync::Arc;

use super::Store;
use super::error::StoreError;
use super::recovery::ClosedTurn;
use crate::backend::{
    Backend, BackendError, Checkpoint, Damage, DamageClass, ErrorKind, Head, Opened, ReadLimit, TornTail,
};
use crate::event::{Batch, Event, Item, SessionHeader, SessionId, envelope};
use crate::session::seed::Prepared;
use crate::session::validator::InvalidEvent;
use crate::session::{Fold, SessionError, repair};

/// Most bytes behind the checkpoint that are held as they are. Of a longer stretch only what the surface names is: memory follows
/// what the model sees, not what was streamed.
pub(crate) const HELD_BYTES: usize = 1 << 20;

/// A stored session as it was read.
#[derive(Clone)]
pub(crate) struct Loaded {
    pub(crate) header: SessionHeader,
    /// The log's end at the moment of reading; the seed goes exactly up to it.
    pub(crate) head: Head,
    pub(crate) seed: Arc<Prepared>,
    /// The state at the log's end.
    fold: Arc<Fold>,
    /// Whether a writer had the session open.
    pub(crate) live: bool,
    pub(crate) torn: Option<TornTail>,
    /// About how many bytes the seed holds.
    pub(crate) weight: usize,
}

impl<B: Backend> Store<B> {
    /// Reads a session: from its checkpoint on, if it has a usable one, else from the beginning.
    ///
    /// # Errors
    /// Of the medium; an event that the validator refuses (E4), a required one of an unknown type (V2).
    pub(crate) async fn load(&self, id: &SessionId) -> Result<Loaded, StoreError> {
        let opened = self.shared.backend.open(id).await?;
        check_identity(id, &opened.header)?;
        let Opened { header, head, checkpoint, torn, live } = opened;
        let end = head.next_seq;
        let base = match checkpoint {
            Some(checkpoint) => self.surface_of(id, &checkpoint, end).await?,
            None => None,
        };
        let mut tail = Tail::behind(base);
        if let Err(invalid) = self.follow(id, &mut tail, end).await? {
            // Behind an event of unknown meaning nothing can be called damaged.
            self.check_vocabulary(id, &tail.fold)?;
            return Err(SessionError::from(invalid).into());
        }
        self.check_vocabulary(id, &tail.fold)?;
        Ok(Loaded { live, torn, ..Loaded::of(header, head, tail) })
    }

    /// The checkpoint's state with the events that it names. A checkpoint is derived and never trusted over the log: one that
    /// cannot be read is left aside.
    async fn surface_of(
        &self,
        id: &SessionId,
        checkpoint: &Checkpoint,
        end: u64,
    ) -> Result<Option<(Fold, Vec<Event>)>, StoreError> {
        let fold = match Fold::from_checkpoint(checkpoint) {
            Ok(fold) if fold.next_seq() <= end => fold,
            Ok(_) => return Ok(None),
            Err(error) => {
                tracing::warn!(session = %id, %error, "reading the whole log instead");
                return Ok(None);
            }
        };
        let events = self.shared.backend.read_events(id, fold.surface().nodes()).await?;
        Ok(Some((fold, events)))
    }

    /// Takes in the stored events up to but excluding `end`.
    async fn follow(&self, id: &SessionId, tail: &mut Tail, end: u64) -> Result<Result<(), InvalidEvent>, StoreError> {
        while tail.fold.next_seq() < end {
            let at = tail.fold.next_seq();
            let page = self.shared.backend.read(id, at, ReadLimit::default()).await?;
            // Beside a live writer the log may have grown since its end was read.
            for item in page.items.iter().filter_map(|item| item.slice(at, end)) {
                if let Err(invalid) = tail.take(item) {
                    return Ok(Err(invalid));
                }
            }
            if tail.fold.next_seq() == at {
                let detail = format!("the log ends at seq {at}, its head says {end}");
                let damage = Damage { class: DamageClass::Gap, offset: None, intact_before: at };
                let error = BackendError::new(ErrorKind::Damaged, detail).with_session(id).with_damage(damage);
                return Err(error.into());
            }
        }
        Ok(Ok(()))
    }

    fn check_vocabulary(&self, id: &SessionId, fold: &Fold) -> Result<(), StoreError> {
        fold.check_vocabulary(&self.shared.options.vocabulary).map_err(|unknown| StoreError::Unsupported {
            session: id.clone(),
            location: self.shared.backend.locate(id),
            unknown,
        })
    }
}

impl Loaded {
    /// A stored session whose log is known from memory; `None` if that does not reach exactly to its head.
    pub(crate) fn from_prefix(header: SessionHeader, head: Head, prefix: Prepared) -> Option<Self> {
        let mut tail = Tail::behind(prefix.base);
        for item in prefix.items {
            tail.take(item).ok()?;
        }
        (tail.fold.next_seq() == head.next_seq).then(|| Self::of(header, head, tail))
    }

    /// A whole session that nobody has open.
    fn of(header: SessionHeader, head: Head, tail: Tail) -> Self {
        let (seed, fold) = tail.finish();
        let surface = seed.base.iter().flat_map(|(_, events)| events);
        let weight = surface.map(Event::weight).sum::<usize>() + seed.items.iter().map(Item::weight).sum::<usize>();
        Self { header, head, seed: Arc::new(seed), fold: Arc::new(fold), live: false, torn: None, weight }
    }

    /// The closers of an orphaned turn (section 8), if there is one.
    pub(crate) fn closers(&self, id: &SessionId) -> Option<(ClosedTurn, Batch)> {
        let (turn, closers) = self.fold.open_turn().zip(repair::close(&self.fold, id))?;
        Some((ClosedTurn::of(turn, &closers), closers))
    }
}

/// What is read behind a checkpoint, or from the beginning on.
struct Tail {
    fold: Fold,
    /// The checkpoint's state with its surface, as long as everything behind it is held.
    base: Option<(Fold, Vec<Event>)>,
    held: Held,
}

enum Held {
    /// Everything.
    All { items: Vec<Item>, weight: usize },
    /// Of what the surface names. May hold more for a while: what replacements take away goes page by page.
    Surface { events: HashMap<u64, Event>, generation: u64 },
}

impl Tail {
    fn behind(base: Option<(Fold, Vec<Event>)>) -> Self {
        let fold = base.as_ref().map_or_else(Fold::new, |(fold, _)| fold.clone());
        Self { fold, base, held: Held::All { items: Vec::new(), weight: 0 } }
    }

    fn take(&mut self, item: Item) -> Result<(), InvalidEvent> {
        self.fold.apply_item(&item)?;
        match &mut self.held {
            Held::All { items, weight } => {
                *weight = weight.saturating_add(item.weight());
                items.push(item);
                if *weight > HELD_BYTES {
                    self.let_go();
                }
            }
            Held::Surface { events, generation } => {
                if let Some(event) = surface_event(item) {
                    events.insert(event.seq(), event);
                }
                let surface = self.fold.surface();
                if surface.replace_generation() != *generation {
                    *generation = surface.replace_generation();
                    keep(events, surface.nodes());
                }
            }
        }
        Ok(())
    }

    /// Keeps of what is held the events on the surface alone.
    fn let_go(&mut self) {
        let Held::All { items, .. } = &mut self.held else { return };
        let older = self.base.take().map(|(_, events)| events).unwrap_or_default();
        let newer = std::mem::take(items).into_iter().filter_map(surface_event);
        let mut events = older.into_iter().chain(newer).map(|event| (event.seq(), event)).collect();
        let surface = self.fold.surface();
        keep(&mut events, surface.nodes());
        self.held = Held::Surface { events, generation: surface.replace_generation() };
    }

    /// The seed, and the state at its end.
    fn finish(self) -> (Prepared, Fold) {
        match self.held {
            Held::All { items, .. } => (Prepared { base: self.base, items }, self.fold),
            Held::Surface { events, .. } => {
                let base = Some((self.fold.clone(), events.into_values().collect()));
                (Prepared { base, items: Vec::new() }, self.fold)
            }
        }
    }
}

fn surface_event(item: Item) -> Option<Event> {
    match item {
        Item::Event(event) if envelope::is_surface_type(event.event_type()) => Some(event),
        _ => None,
    }
}

fn keep(events: &mut HashMap<u64, Event>, nodes: &[u64]) {
    if events.len() > nodes.len() {
        let mut kept = HashMap::with_capacity(nodes.len());
        kept.extend(nodes.iter().filter_map(|node| events.remove_entry(node)));
        *events = kept;
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
pub(crate) fn closed(seed: Arc<Prepared>, closers: Option<&Batch>) -> Prepared {
    let mut seed = Arc::unwrap_or_clone(seed);
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
