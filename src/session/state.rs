//! What a session knows: its log, its fold and its history, changed together.

use std::collections::HashMap;
use std::sync::Arc;

use super::error::SessionError;
use super::fold::{Checked, Fold};
use super::fork::{BoundaryScan, ForkAt};
use super::history::History;
use super::log::Log;
use super::seed::Prepared;
use crate::event::run::RunHead;
use crate::event::{Event, Item, Vocabulary};

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) log: Log,
    pub(crate) fold: Fold,
    pub(crate) history: History,
    /// Surface events from before what the log holds.
    older: HashMap<u64, Event>,
    /// The fold that the log's first event follows, if the log does not begin at 0.
    base: Option<Box<Fold>>,
}

impl State {
    pub(crate) fn new() -> Self {
        Self { fold: Fold::new(), ..Self::default() }
    }

    /// Validates and folds a seed (E4, V2).
    pub(crate) fn of_seed(seed: Prepared, vocabulary: &Vocabulary) -> Result<Self, SessionError> {
        let mut state = Self::new();
        if let Some((fold, surface_events)) = seed.base {
            state.fold = fold;
            state.older = surface_events.into_iter().map(|event| (event.seq(), event)).collect();
            let nodes = Arc::clone(&state.fold.surface.nodes);
            let found = |seq: &u64| state.older.get(seq).ok_or(SessionError::SurfaceEvent { seq: *seq });
            let events = nodes.iter().map(found).collect::<Result<Vec<_>, _>>()?;
            state.history = History::of_nodes(events);
            state.base = Some(Box::new(state.fold.clone()));
        }
        for item in seed.items {
            if let Err(refused) = state.take(item) {
                // Behind an event of unknown meaning nothing can be called damaged.
                state.fold.check_vocabulary(vocabulary)?;
                return Err(refused);
            }
        }
        state.fold.check_vocabulary(vocabulary)?;
        Ok(state)
    }

    fn take(&mut self, item: Item) -> Result<(), SessionError> {
        match item {
            Item::Run(_) => {
                self.fold.apply_item(&item)?;
                self.log.push_item(item);
            }
            Item::Event(event) => {
                let checked = self.fold.check(&event, self.fold.next_seq)?;
                self.commit(&event, checked);
            }
        }
        Ok(())
    }

    /// Takes in an event that the fold accepted in this very state.
    pub(crate) fn commit(&mut self, event: &Event, checked: Checked) {
        if let Some(change) = checked.0 {
            self.history.apply(event, change);
        }
        self.fold.apply_checked(event, checked);
        self.log.push(event);
    }

    /// Takes in a delta; returns its seq.
    pub(crate) fn commit_delta(&mut self, head: &Arc<RunHead>, time: i64, body: &str) -> u64 {
        let seq = self.fold.next_seq;
        self.log.push_delta(head, seq, time, body);
        self.fold.apply_deltas(seq, 1, time);
        seq
    }

    pub(crate) fn event(&self, seq: u64) -> Option<Event> {
        self.log.event(seq).or_else(|| self.older.get(&seq).cloned())
    }

    /// The log up to and with `boundary` as a seed, if it reaches back no further than what is held. At the end of a log of more
    /// than `most_bytes` that is the state itself with its surface.
    #[cfg(feature = "store")]
    pub(crate) fn prefix(&self, boundary: u64, most_bytes: usize) -> Option<Prepared> {
        let next_seq = boundary.checked_add(1)?;
        if next_seq == self.fold.next_seq && self.log.is_heavier_than(most_bytes) {
            return Some(Prepared {
                base: Some((self.fold.clone(), self.surface_events(&self.fold)?)),
                items: Vec::new(),
            });
        }
        let base = match &self.base {
            Some(fold) if fold.next_seq > next_seq => return None,
            Some(fold) => Some((Fold::clone(fold), self.surface_events(fold)?)),
            None => None,
        };
        let from = base.as_ref().map_or(0, |(fold, _)| fold.next_seq);
        Some(Prepared { base, items: self.log.items(from, next_seq) })
    }

    #[cfg(feature = "store")]
    fn surface_events(&self, fold: &Fold) -> Option<Vec<Event>> {
        fold.surface.nodes.iter().map(|node| self.event(*node)).collect()
    }

    /// Where a fork there would end; the outer `None` says that only the stored log can tell.
    pub(crate) fn fork_boundary(&self, at: ForkAt) -> Option<BoundaryScan> {
        let mut scan = match &self.base {
            None => BoundaryScan::new(at),
            Some(base) => {
                if matches!(at, ForkAt::Seq(boundary) if boundary < base.next_seq()) {
                    return None;
                }
                BoundaryScan::from_fold(at, base)
            }
        };
        // The end's answer is in the fold; only an earlier boundary has to be looked for.
        if matches!(at, ForkAt::Seq(_)) {
            self.log.scan(&mut scan);
        } else {
            scan = BoundaryScan::from_fold(at, &self.fold);
        }
        Some(scan)
    }
}
