//! What can be read off a session. Every read is a snapshot of one moment; none of them waits for observers or I/O.

use std::ops::{Bound, RangeBounds};

use super::calls::PendingCall;
use super::fold::{Fold, OpenStep, OpenTurn, Route};
use super::fork::{BoundaryError, ForkAt};
use super::handle::Session;
use super::history::Messages;
use super::request::{ModelVisibleError, Request, RequestHead};
#[cfg(feature = "store")]
use super::seed::Prepared;
use super::surface::Surface;
use super::usage::Usage;
use crate::backend::Checkpoint;
use crate::event::control::TodoItem;
use crate::event::{Event, Item, Sources};

impl Session {
    /// Seq that the next event will have: the log's length.
    pub fn next_seq(&self) -> u64 {
        self.state().fold.next_seq()
    }

    /// The event at `seq`; `None` beyond the log's end, and for events that are not held in memory (before a seed's checkpoint,
    /// unless they are on its surface).
    pub fn event(&self, seq: u64) -> Option<Event> {
        self.state().event(seq)
    }

    /// The events with seqs in `range`, in order, as far as they are held in memory. Unpacks runs: cost and memory follow the
    /// number of events; [`Session::items`] is the cheap form.
    pub fn events(&self, range: impl RangeBounds<u64>) -> Vec<Event> {
        let from = match range.start_bound() {
            Bound::Included(&from) => from,
            Bound::Excluded(&from) => from.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(&to) => to.saturating_add(1),
            Bound::Excluded(&to) => to,
            Bound::Unbounded => u64::MAX,
        };
        let items = self.items(from, to);
        items.iter().flat_map(Item::events).collect()
    }

    /// The events from `from` up to but excluding `to` with runs packed as rule P1 says, as far as they are held in memory.
    pub fn items(&self, from: u64, to: u64) -> Vec<Item> {
        self.state().log.items(from, to)
    }

    /// Seq of the first event that is held in memory and not only because it is on the surface; [`Session::next_seq`] if there
    /// is none.
    pub fn first_held_seq(&self) -> u64 {
        let state = self.state();
        state.log.first_seq().unwrap_or(state.fold.next_seq())
    }

    /// The surface.
    pub fn surface(&self) -> Surface {
        self.state().fold.surface()
    }

    /// The derived history (D2). Cheap; a snapshot that is kept never changes.
    pub fn messages(&self) -> Messages {
        self.state().history.snapshot()
    }

    /// The request header in force, in canonical form (D3).
    pub fn request_header(&self) -> Option<RequestHead> {
        self.state().fold.request_header().cloned()
    }

    /// The exact model request at this moment (D4).
    pub fn request(&self) -> Request {
        let state = self.state();
        Request { header: state.fold.request_header().cloned(), messages: state.history.snapshot() }
    }

    /// Compares a request about to be sent with the log's (D4).
    ///
    /// # Errors
    /// [`ModelVisibleError`] naming the first difference.
    pub fn assert_model_visible(&self, request: &Request) -> Result<(), ModelVisibleError> {
        self.request().assert_same(request)
    }

    /// The current todo list.
    pub fn todos(&self) -> Vec<TodoItem> {
        self.state().fold.todos()
    }

    /// The route in force.
    pub fn route(&self) -> Option<Route> {
        self.state().fold.route().cloned()
    }

    /// The session's title, where one was recorded.
    pub fn title(&self) -> Option<String> {
        self.state().fold.title().map(String::from)
    }

    /// Token usage per step and in total.
    pub fn usage(&self) -> Usage {
        self.state().fold.usage().clone()
    }

    /// The open turn.
    pub fn open_turn(&self) -> Option<OpenTurn> {
        self.state().fold.open_turn()
    }

    /// The open step.
    pub fn open_step(&self) -> Option<OpenStep> {
        self.state().fold.open_step()
    }

    /// Number that the next turn will have.
    pub fn next_turn(&self) -> u64 {
        self.state().fold.next_turn()
    }

    /// The open step's tool calls without a result, in order.
    pub fn pending_calls(&self) -> Vec<PendingCall> {
        self.state().fold.pending_calls()
    }

    /// Seqs of the open step's chunks so far, to name as sources of the message assembled from them.
    pub fn step_chunks(&self) -> Sources {
        self.state().fold.step_chunks().clone()
    }

    /// A copy of the whole fold state. Cost: the surface.
    pub fn fold(&self) -> Fold {
        self.state().fold.clone()
    }

    /// The fold state as a checkpoint.
    pub fn checkpoint(&self) -> Checkpoint {
        self.state().fold.checkpoint()
    }

    /// Where a fork would end (L5): the boundary's seq, or `None` for an empty child. The outer `None` says that the boundary
    /// lies before what is held in memory; scan the stored log with [`super::fork::BoundaryScan`] then.
    pub fn fork_boundary(&self, at: ForkAt) -> Option<Result<Option<u64>, BoundaryError>> {
        let scan = self.state().fork_boundary(at)?;
        Some(scan.finish())
    }

    /// The log up to and with `boundary` as a seed, if what is held in memory suffices for it; without events off
    /// the surface where they are more than `most_bytes` and need not be folded.
    #[cfg(feature = "store")]
    pub(crate) fn prefix(&self, boundary: u64, most_bytes: usize) -> Option<Prepared> {
        self.state().prefix(boundary, most_bytes)
    }
}
