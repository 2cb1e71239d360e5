//! Reading a stored session's events on demand, streaming and bounded.

use std::ops::{Bound, RangeBounds};
use std::vec::IntoIter;

use super::error::StoreError;
use crate::backend::{Backend, ReadLimit};
use crate::event::{Event, Item, SessionId};

/// A stretch of a stored log, handed out event by event. Holds one page of the backend at a time, whatever the log's length.
#[derive(Debug)]
pub struct EventPages<B> {
    backend: B,
    id: SessionId,
    /// Seq to read next; `None` at the end.
    next: Option<u64>,
    end: u64,
    position: u64,
    events_left: u64,
    bytes_left: usize,
    items: IntoIter<Item>,
    events: IntoIter<Event>,
}

impl<B: Backend> EventPages<B> {
    pub(crate) fn new(backend: B, id: SessionId, range: &impl RangeBounds<u64>) -> Self {
        let from = match range.start_bound() {
            Bound::Included(from) => *from,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        Self {
            backend,
            id,
            next: Some(from),
            end,
            position: from,
            events_left: u64::MAX,
            bytes_left: usize::MAX,
            items: Vec::new().into_iter(),
            events: Vec::new().into_iter(),
        }
    }

    /// Ends the stretch after this many events.
    pub fn limit_events(mut self, events: u64) -> Self {
        self.events_left = events;
        self
    }

    /// Ends the stretch once events of this many bytes were handed out; at least one is.
    pub fn limit_bytes(mut self, bytes: usize) -> Self {
        self.bytes_left = bytes;
        self
    }

    /// The next event; `None` at the end of the range, of the durable log, or at a limit.
    ///
    /// # Errors
    /// `NotFound`, damage with its place (events before it have been handed out), I/O.
    pub async fn next(&mut self) -> Result<Option<Event>, StoreError> {
        loop {
            if self.events_left == 0 || self.bytes_left == 0 {
                return Ok(None);
            }
            if let Some(event) = self.events.next() {
                if event.seq() >= self.end {
                    self.next = None;
                    return Ok(None);
                }
                self.position = event.seq() + 1;
                self.events_left -= 1;
                self.bytes_left = self.bytes_left.saturating_sub(event.weight());
                return Ok(Some(event));
            }
            if let Some(item) = self.items.next() {
                self.events = item.events().collect::<Vec<_>>().into_iter();
                continue;
            }
            let Some(from) = self.next.filter(|from| *from < self.end) else { return Ok(None) };
            let wanted = self.end.saturating_sub(from).min(self.events_left);
            let default = ReadLimit::default();
            let limit = ReadLimit { events: wanted.min(default.events), bytes: self.bytes_left.min(default.bytes) };
            let page = self.backend.read(&self.id, from, limit).await?;
            self.next = page.next;
            self.items = page.items.into_iter();
        }
    }

    /// Seq behind the last event handed out: where to go on.
    pub fn position(&self) -> u64 {
        self.position
    }
}
