//! Reading stored events on demand, in bounded memory.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use super::error::StoreError;
use super::{Store, named};
use crate::backend::{Backend, ReadLimit};
use crate::event::{Event, Item, SessionId};

/// Stored events of one session, read page by page as they are asked for.
pub struct EventPages<B: Backend> {
    backend: Arc<B>,
    id: Result<SessionId, Option<StoreError>>,
    limit: ReadLimit,
    /// Seq to read on from; `None` at the end.
    at: Option<u64>,
    end: u64,
    /// What is left of the last page.
    items: VecDeque<Item>,
    /// The events of the item in hand, the next one last.
    events: Vec<Event>,
}

impl<B: Backend> Store<B> {
    /// The stored events with seqs in `range`, in order; events that are not durable yet are not among them. Reads nothing before
    /// the first call of [`EventPages::next`], which also reports a bad id.
    pub fn events(
        &self,
        id: impl TryInto<SessionId, Error: Into<StoreError>>,
        range: impl RangeBounds<u64>,
    ) -> EventPages<B> {
        let from = match range.start_bound() {
            Bound::Included(&from) => from,
            Bound::Excluded(&from) => from.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => u64::MAX,
        };
        EventPages {
            backend: Arc::clone(&self.shared.backend),
            id: named(id).map_err(Some),
            limit: ReadLimit::default(),
            at: Some(from),
            end,
            items: VecDeque::new(),
            events: Vec::new(),
        }
    }
}

impl<B: Backend> EventPages<B> {
    /// About how many bytes to hold at once; 4 MiB by default.
    pub fn limit_bytes(mut self, bytes: usize) -> Self {
        self.limit.bytes = bytes;
        self
    }

    /// Most events to hold at once, counted unpacked; 65,536 by default.
    pub fn limit_events(mut self, events: u64) -> Self {
        self.limit.events = events.max(1);
        self
    }

    /// The next event; `None` at the range's or the log's end. After an error, asking again tries again.
    ///
    /// # Errors
    /// As [`Backend::read`].
    pub async fn next(&mut self) -> Result<Option<Event>, StoreError> {
        loop {
            if let Some(event) = self.events.pop() {
                return Ok(Some(event));
            }
            match self.next_item().await? {
                Some(item) => {
                    self.events = item.events().collect();
                    self.events.reverse();
                }
                None => return Ok(None),
            }
        }
    }

    /// The next event or packed run of events: the cheap form of [`EventPages::next`]. Do not mix the two within a run.
    ///
    /// # Errors
    /// As [`EventPages::next`].
    pub async fn next_item(&mut self) -> Result<Option<Item>, StoreError> {
        loop {
            if let Some(item) = self.items.pop_front() {
                return Ok(Some(item));
            }
            let Some(at) = self.at.filter(|at| *at < self.end) else { return Ok(None) };
            let id = match &mut self.id {
                Ok(id) => &*id,
                Err(error) => return error.take().map_or(Ok(None), Err),
            };
            let events = self.limit.events.min(self.end - at);
            let page = self.backend.read(id, at, ReadLimit { events, ..self.limit }).await?;
            self.items.extend(page.items.into_iter().filter_map(|item| item.slice(at, self.end)));
            self.at = page.next;
        }
    }
}

impl<B: Backend> fmt::Debug for EventPages<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventPages").field("id", &self.id).field("at", &self.at).finish_non_exhaustive()
    }
}
