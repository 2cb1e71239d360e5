//! [`MemoryBackend`]: the smallest complete backend, and the one that fails on request.
//!
//! It keeps every law of [`Backend`] within one process; "durable" means "in this value's memory". Faults are injected through
//! [`MemoryBackend::inject`] and [`MemoryBackend::hold_appends`], so that what stands on top of a backend can be tested
//! against failures, lost answers, slow media and rival writers without a disk.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::poll_fn;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

use super::{
    AppendError, Backend, BackendError, BatchMark, Checkpoint, ErrorKind, Expected, Head, Holder, ListPage, Listed,
    Opened, Page, ReadLimit, Revision, Taken, TornTail,
};
use crate::event::{Batch, Event, Item, SessionHeader, SessionId};
use crate::sync;

/// A backend that keeps everything in memory. Clones share the same sessions.
#[derive(Clone, Default)]
pub struct MemoryBackend {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
}

struct State {
    /// Tells this backend's revisions from those of any other.
    instance: u64,
    sessions: BTreeMap<SessionId, Stored>,
    /// Counts changes over all sessions, so that a session made again after a deletion has new revisions.
    changes: u64,
    faults: HashMap<Operation, VecDeque<Fault>>,
    calls: HashMap<Operation, u64>,
    holds: u64,
    waiting: Vec<Waker>,
}

impl Default for State {
    fn default() -> Self {
        static INSTANCES: AtomicU64 = AtomicU64::new(0);
        let mut random = [0; 8];
        // Without a random source, instances of one process still differ.
        let _ = getrandom::fill(&mut random);
        let instance = u64::from_le_bytes(random).wrapping_add(INSTANCES.fetch_add(1, Ordering::Relaxed));
        Self {
            instance,
            sessions: BTreeMap::new(),
            changes: 0,
            faults: HashMap::new(),
            calls: HashMap::new(),
            holds: 0,
            waiting: Vec::new(),
        }
    }
}

struct Stored {
    header: SessionHeader,
    items: Vec<Item>,
    epoch: u64,
    owned: bool,
    batches: Vec<BatchMark>,
    change: u64,
    checkpoint: Option<Checkpoint>,
    torn: Option<TornTail>,
}

/// What a fault is injected into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// [`Backend::open`].
    Open,
    /// [`Backend::read`].
    Read,
    /// [`Backend::take_over`].
    TakeOver,
    /// [`Backend::append`], and with it [`Backend::repair`].
    Append,
    /// [`Backend::list`].
    List,
    /// [`Backend::delete`].
    Delete,
    /// [`Backend::head`] and [`Backend::revision`].
    Head,
    /// [`Backend::fork`].
    Fork,
    /// [`Backend::release`].
    Release,
}

/// What goes wrong with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It fails with an error of this kind and changes nothing.
    Fail(ErrorKind),
    /// An append whose answer is lost before anything was stored. Other operations fail with an I/O error.
    LostBefore,
    /// An append whose answer is lost after the batch was stored. Other operations fail with an I/O error.
    LostAfter,
    /// Another writer takes the session over just before the call, which then goes on.
    Usurped,
    /// The call gives way to other tasks this many times before it goes on.
    Delayed(u32),
}

/// Keeps every append waiting until it is dropped; see [`MemoryBackend::hold_appends`].
#[must_use = "appends go on as soon as this is dropped"]
pub struct AppendHold {
    shared: Arc<Shared>,
}

impl Drop for AppendHold {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.holds -= 1;
        if state.holds == 0 {
            state.waiting.drain(..).for_each(Waker::wake);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code below can leave the state half changed.
        sync::lock(&self.state)
    }

    async fn unheld(&self) {
        poll_fn(|context| {
            let mut state = self.lock();
            if state.holds == 0 {
                return Poll::Ready(());
            }
            state.waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn usurp(&self, id: &SessionId) {
        if let Ok(stored) = self.lock().get_mut(id) {
            stored.epoch += 1;
        }
    }

    /// Counts a call and plays the fault injected into it. What is left to the caller are the lost answers.
    async fn enter(&self, operation: Operation, id: Option<&SessionId>) -> Result<Option<Fault>, BackendError> {
        let fault = {
            let mut state = self.lock();
            *state.calls.entry(operation).or_default() += 1;
            state.faults.get_mut(&operation).and_then(VecDeque::pop_front)
        };
        let failure = |kind| {
            let mut error = BackendError::new(kind, "injected fault");
            error.session = id.cloned();
            error
        };
        match fault {
            None => Ok(None),
            Some(Fault::Fail(kind)) => Err(failure(kind)),
            Some(Fault::LostBefore | Fault::LostAfter) if operation != Operation::Append => Err(failure(ErrorKind::Io)),
            Some(Fault::LostBefore | Fault::LostAfter) => Ok(fault),
            Some(Fault::Usurped) => {
                if let Some(id) = id {
                    self.usurp(id);
                }
                Ok(None)
            }
            Some(Fault::Delayed(times)) => {
                for _ in 0..times {
                    give_way().await;
                }
                Ok(None)
            }
        }
    }
}

async fn give_way() {
    let mut given = false;
    poll_fn(|context| {
        if std::mem::replace(&mut given, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl State {
    fn get(&self, id: &SessionId) -> Result<&Stored, BackendError> {
        self.sessions.get(id).ok_or_else(|| BackendError::not_found(id))
    }

    fn get_mut(&mut self, id: &SessionId) -> Result<&mut Stored, BackendError> {
        self.sessions.get_mut(id).ok_or_else(|| BackendError::not_found(id))
    }

    fn change(&mut self) -> u64 {
        self.changes += 1;
        self.changes
    }

    fn head(&self, id: &SessionId) -> Result<Head, BackendError> {
        let stored = self.get(id)?;
        Ok(Head {
            epoch: stored.epoch,
            next_seq: stored.next_seq(),
            last_batch: stored.batches.last().copied(),
            revision: Revision(format!("memory-{:016x}-{}", self.instance, stored.change)),
        })
    }

    fn append(
        &mut self,
        id: &SessionId,
        header: Option<&SessionHeader>,
        expected: Expected,
        batch: &Batch,
    ) -> Result<Head, AppendError> {
        let invalid = |what: &str| AppendError::Failed(BackendError::new(ErrorKind::Invalid, what).with_session(id));
        if batch.first_seq() != expected.next_seq {
            return Err(invalid("the batch does not start at the expected seq"));
        }
        let change = self.changes + 1;
        match (self.sessions.get_mut(id), header) {
            (Some(stored), _) => {
                let found = Expected { epoch: stored.epoch, next_seq: stored.next_seq() };
                if found != expected {
                    return Err(AppendError::Conflict { expected, found });
                }
                if !stored.owned {
                    let detail = "the writer gave the session back; take it over again to append";
                    let error = BackendError::new(ErrorKind::LostOwnership, detail).with_session(id);
                    return Err(AppendError::Failed(error));
                }
                stored.push(batch, change);
            }
            (None, _) if expected != Expected::ABSENT => {
                return Err(AppendError::Failed(BackendError::not_found(id)));
            }
            (None, None) => return Err(invalid("a new session needs a header")),
            (None, Some(header)) => {
                if header.id != id.as_str() {
                    return Err(invalid("the header is another session's"));
                }
                header
                    .check_stored()
                    .map_err(|error| AppendError::Failed(BackendError::header(error).with_session(id)))?;
                let mut stored = Stored {
                    header: header.clone(),
                    items: Vec::new(),
                    epoch: 1,
                    owned: true,
                    batches: Vec::new(),
                    change,
                    checkpoint: None,
                    torn: None,
                };
                stored.push(batch, change);
                self.sessions.insert(id.clone(), stored);
            }
        }
        self.changes = change;
        self.head(id).map_err(AppendError::Failed)
    }
}

impl Stored {
    fn next_seq(&self) -> u64 {
        self.items.last().map_or(0, Item::next_seq)
    }

    fn push(&mut self, batch: &Batch, change: u64) {
        self.items.extend_from_slice(batch.items());
        self.batches.push(BatchMark { first_seq: batch.first_seq(), checksum: batch.checksum() });
        self.change = change;
    }

    fn page(&self, from: u64, limit: ReadLimit) -> Page {
        let end = self.next_seq();
        let first = self.items.partition_point(|item| item.next_seq() <= from);
        let to = from.saturating_add(limit.events.max(1));
        let mut items = Vec::new();
        let mut bytes = 0_usize;
        for item in self.items.get(first..).unwrap_or_default() {
            let Some(part) = item.slice(from, to) else { break };
            let room = limit.bytes.saturating_sub(bytes);
            if part.weight() <= room {
                bytes += part.weight();
                items.push(part);
                continue;
            }
            items.extend(part.beginning_within(room, items.is_empty()));
            break;
        }
        let next = items.last().map_or(end, Item::next_seq);
        Page { items, next: (next < end).then_some(next) }
    }
}

impl MemoryBackend {
    /// An empty backend.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the next call of `operation` that has no fault yet meet `fault`. Faults of one operation queue up.
    pub fn inject(&self, operation: Operation, fault: Fault) {
        self.shared.lock().faults.entry(operation).or_default().push_back(fault);
    }

    /// Takes back every fault not yet met.
    pub fn clear_faults(&self) {
        self.shared.lock().faults.clear();
    }

    /// Keeps every append waiting, before it stores anything, until all holds are dropped.
    pub fn hold_appends(&self) -> AppendHold {
        self.shared.lock().holds += 1;
        AppendHold { shared: Arc::clone(&self.shared) }
    }

    /// Another writer takes the session over: the epoch rises and whoever owned it does not any more. Does nothing when there
    /// is no such session.
    pub fn usurp(&self, id: &SessionId) {
        self.shared.usurp(id);
    }

    /// Every writer's process dies: nobody owns a session any more, and what is stored stays.
    pub fn crash(&self) {
        self.shared.lock().sessions.values_mut().for_each(|stored| stored.owned = false);
    }

    /// Makes the log end in an incomplete record, which the next [`Backend::take_over`] reports and sets aside.
    pub fn tear(&self, id: &SessionId, torn: TornTail) {
        if let Ok(stored) = self.shared.lock().get_mut(id) {
            stored.torn = Some(torn);
        }
    }

    /// Keeps a checkpoint for [`Backend::open`] to hand out. It is the caller's to be true.
    pub fn set_checkpoint(&self, id: &SessionId, checkpoint: Checkpoint) {
        if let Ok(stored) = self.shared.lock().get_mut(id) {
            stored.checkpoint = Some(checkpoint);
        }
    }

    /// How often `operation` was called.
    pub fn calls(&self, operation: Operation) -> u64 {
        self.shared.lock().calls.get(&operation).copied().unwrap_or(0)
    }

    /// All events of a session, unpacked; none if there is no such session.
    pub fn events(&self, id: &SessionId) -> Vec<Event> {
        self.shared
            .lock()
            .get(id)
            .map(|stored| stored.items.iter().flat_map(Item::events).collect())
            .unwrap_or_default()
    }

    /// The first seq of every batch that was appended to a session, in order.
    pub fn batches(&self, id: &SessionId) -> Vec<u64> {
        let state = self.shared.lock();
        state.get(id).map(|stored| stored.batches.iter().map(|mark| mark.first_seq).collect()).unwrap_or_default()
    }
}

impl Backend for MemoryBackend {
    async fn open(&self, id: &SessionId) -> Result<Opened, BackendError> {
        self.shared.enter(Operation::Open, Some(id)).await?;
        let state = self.shared.lock();
        let head = state.head(id)?;
        let stored = state.get(id)?;
        Ok(Opened {
            header: stored.header.clone(),
            head,
            checkpoint: stored.checkpoint.clone(),
            torn: stored.torn.clone(),
            live: stored.owned,
        })
    }

    async fn read(&self, id: &SessionId, from: u64, limit: ReadLimit) -> Result<Page, BackendError> {
        self.shared.enter(Operation::Read, Some(id)).await?;
        Ok(self.shared.lock().get(id)?.page(from, limit))
    }

    async fn take_over(&self, id: &SessionId) -> Result<Taken, BackendError> {
        self.shared.enter(Operation::TakeOver, Some(id)).await?;
        let mut state = self.shared.lock();
        let change = state.changes + 1;
        let stored = state.get_mut(id)?;
        if stored.owned {
            let holder = Holder { pid: Some(std::process::id()), ..Holder::default() };
            let mut error =
                BackendError::new(ErrorKind::Busy, format!("open for writing by {holder}")).with_session(id);
            error.holder = Some(holder);
            return Err(error);
        }
        stored.owned = true;
        stored.epoch += 1;
        stored.change = change;
        let torn = stored.torn.take();
        state.change();
        Ok(Taken { head: state.head(id)?, torn })
    }

    async fn append(
        &self,
        id: &SessionId,
        header: Option<&SessionHeader>,
        expected: Expected,
        batch: &Batch,
    ) -> Result<Head, AppendError> {
        self.shared.unheld().await;
        let fault = self.shared.enter(Operation::Append, Some(id)).await.map_err(AppendError::Failed)?;
        let lost = || {
            let error = BackendError::new(ErrorKind::Io, "injected fault: the answer was lost").with_session(id);
            AppendError::Indeterminate(error)
        };
        if fault == Some(Fault::LostBefore) {
            return Err(lost());
        }
        let head = self.shared.lock().append(id, header, expected, batch)?;
        if fault == Some(Fault::LostAfter) { Err(lost()) } else { Ok(head) }
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<ListPage, BackendError> {
        self.shared.enter(Operation::List, None).await?;
        let after = after.map(SessionId::new).transpose().map_err(BackendError::header)?;
        let state = self.shared.lock();
        let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = state.sessions.range((from, Bound::Unbounded));
        let listed = |(id, stored): (&SessionId, &Stored)| Listed {
            name: id.as_str().to_owned(),
            header: Ok(stored.header.clone()),
        };
        let entries: Vec<Listed> = rest.by_ref().take(limit.max(1)).map(listed).collect();
        let next = rest.next().and(entries.last()).map(|entry| entry.name.clone());
        Ok(ListPage { entries, next })
    }

    async fn delete(&self, id: &SessionId) -> Result<(), BackendError> {
        self.shared.enter(Operation::Delete, Some(id)).await?;
        let mut state = self.shared.lock();
        if state.get(id)?.owned {
            return Err(BackendError::new(ErrorKind::Busy, "a live writer has the session open").with_session(id));
        }
        state.sessions.remove(id);
        state.change();
        Ok(())
    }

    async fn head(&self, id: &SessionId) -> Result<Head, BackendError> {
        self.shared.enter(Operation::Head, Some(id)).await?;
        self.shared.lock().head(id)
    }

    async fn fork(&self, source: &SessionId, boundary: u64, child: &SessionHeader) -> Result<Head, BackendError> {
        self.shared.enter(Operation::Fork, Some(source)).await?;
        super::copy_prefix(self, source, boundary, child).await
    }

    async fn release(&self, id: &SessionId, epoch: u64) -> Result<(), BackendError> {
        self.shared.enter(Operation::Release, Some(id)).await?;
        let mut state = self.shared.lock();
        let stored = state.get_mut(id)?;
        if stored.epoch == epoch {
            stored.owned = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suite_holds() {
        poll_to_end(super::super::conformance::run(MemoryBackend::new));
    }

    #[test]
    fn a_delayed_or_held_append_waits_without_blocking() {
        let backend = MemoryBackend::new();
        backend.inject(Operation::Append, Fault::Delayed(3));
        let batch = super::super::conformance::sample::turn(0, 1).unwrap();
        let header = SessionHeader::new("s");
        let id = header.session_id().unwrap();
        poll_to_end(backend.append(&id, Some(&header), Expected::ABSENT, &batch)).unwrap();
        assert_eq!(backend.calls(Operation::Append), 1);
        let hold = backend.hold_appends();
        let next = super::super::conformance::sample::turn(batch.next_seq(), 2).unwrap();
        let expected = Expected { epoch: 1, next_seq: batch.next_seq() };
        let mut append = Box::pin(backend.append(&id, None, expected, &next));
        let mut context = std::task::Context::from_waker(Waker::noop());
        assert!(append.as_mut().poll(&mut context).is_pending());
        assert_eq!(backend.batches(&id), [0]);
        drop(hold);
        assert!(append.as_mut().poll(&mut context).is_ready());
        assert_eq!(backend.batches(&id), [0, batch.next_seq()]);
    }

    fn poll_to_end<T>(future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        let mut context = std::task::Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
                return value;
            }
        }
    }
}
