//! What the model sees of a log, read in one pass; memory follows what is kept, never the stream.

use std::collections::{BTreeMap, HashSet};

use sessionlog::backend::{Backend, ReadLimit};
use sessionlog::event::{Event, Item, SessionHeader, SessionId, Vocabulary, envelope};
use sessionlog::segment::SegmentBackend;
use sessionlog::session::fold::Fold;

use super::args::Known;
use super::failure::Failure;

/// A message event, with its place among the others.
pub struct Shown {
    pub event: Event,
    /// The turn it belongs to, if any.
    pub turn: Option<u64>,
    /// The event that took its place on the surface, when the model does not see it any more.
    pub replaced_by: Option<u64>,
}

/// A log up to some event, read-only and without closers.
pub struct View {
    pub header: SessionHeader,
    pub fold: Fold,
    shown: BTreeMap<u64, Shown>,
}

/// How far to read, and what to keep.
pub struct Reading<'a> {
    /// The last event to read; all when `None`.
    pub at: Option<u64>,
    /// Whether to keep what replacements took off the surface.
    pub keep_replaced: bool,
    /// Types to treat as known beside the published ones.
    pub known: &'a Known,
}

impl View {
    /// Reads the session.
    pub async fn read(backend: &SegmentBackend, id: &SessionId, reading: Reading<'_>) -> Result<Self, Failure> {
        let header = backend.engine().reader(id)?.header().clone();
        let mut view = View { header, fold: Fold::new(), shown: BTreeMap::new() };
        let place = backend.engine().locate(id);
        let refused =
            |error: &dyn std::fmt::Display| Failure::failed(format!("session {id} ({}): {error}", place.display()));
        let end = reading.at.map_or(u64::MAX, |at| at.saturating_add(1));
        let mut from = Some(0);
        while let Some(seq) = from.filter(|seq| *seq < end) {
            let page = backend.read(id, seq, ReadLimit::default()).await?;
            for item in page.items.iter().filter_map(|item| item.slice(0, end)) {
                view.apply(&item, reading.keep_replaced).map_err(|invalid| refused(&invalid))?;
            }
            from = page.next;
        }
        if let Some(at) = reading.at.filter(|_| view.fold.next_seq() != end) {
            let end = match view.fold.next_seq() {
                0 => "it has no events".to_owned(),
                next => format!("its last one is {}", next - 1),
            };
            return Err(Failure::usage(format!("session {id} has no event {at}; {end}")));
        }
        let published = Vocabulary::well_known();
        let known = &reading.known.assume_known;
        let vocabulary = known.iter().fold(published, |vocabulary, name| vocabulary.with_name(name));
        view.fold.check_vocabulary(&vocabulary).map_err(|unknown| refused(&unknown))?;
        Ok(view)
    }

    fn apply(&mut self, item: &Item, keep_replaced: bool) -> Result<(), sessionlog::session::validator::InvalidEvent> {
        let generation = self.fold.surface().replace_generation();
        self.fold.apply_item(item)?;
        let Item::Event(event) = item else { return Ok(()) };
        if !envelope::is_surface_type(event.event_type()) {
            return Ok(());
        }
        let stated = event.json().member("turn").and_then(|turn| turn.read().ok());
        let turn = stated.or(self.fold.open_turn().map(|open| open.turn));
        self.shown.insert(event.seq(), Shown { event: event.clone(), turn, replaced_by: None });
        let surface = self.fold.surface();
        if surface.replace_generation() != generation {
            let nodes: HashSet<u64> = surface.nodes().iter().copied().collect();
            let mut gone =
                self.shown.iter_mut().filter(|(seq, shown)| shown.replaced_by.is_none() && !nodes.contains(seq));
            gone.by_ref().for_each(|(_, shown)| shown.replaced_by = Some(event.seq()));
            if !keep_replaced {
                self.shown.retain(|_, shown| shown.replaced_by.is_none());
            }
        }
        Ok(())
    }

    /// The message events that the model sees, in its order.
    pub fn surface(&self) -> impl Iterator<Item = &Shown> {
        let nodes = self.fold.surface().nodes().to_vec();
        nodes.into_iter().filter_map(|seq| self.shown.get(&seq))
    }

    /// Every message event that was kept, in log order.
    pub fn log(&self) -> impl Iterator<Item = &Shown> {
        self.shown.values()
    }
}
