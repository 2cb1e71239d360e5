//! The [`Backend`] trait: what a medium must do to keep session logs, its laws, and the errors it answers with.
//!
//! The laws that every implementation must keep are written at each method and tested by [`conformance`]; an implementor runs
//! the whole suite over their own backend. [`memory::MemoryBackend`] is the smallest complete implementation.

pub mod conformance;
pub mod error;
pub mod memory;
mod sealing;

use std::future::Future;
use std::path::PathBuf;

use crate::event::{Batch, Event, Item, JsonText, SessionHeader, SessionId};

pub use error::{AppendError, BackendError, Damage, DamageClass, ErrorKind, Holder};
pub use sealing::{SealingCause, SealingFailure, SealingObserver};

/// What an append is conditional on: a compare-and-swap over the stored log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// The writer epoch that [`Backend::take_over`] or the creating append gave.
    pub epoch: u64,
    /// The stored next seq.
    pub next_seq: u64,
}

impl Expected {
    /// The session does not exist yet.
    pub const ABSENT: Expected = Expected { epoch: 0, next_seq: 0 };
}

/// Keeps an id free in a store until what it gives is dropped: nobody opens or creates a session of that id there meanwhile. It
/// answers `Busy` where the id is live already, perhaps with nothing written yet, and `None` once the store is gone.
pub type IdKeeper = Box<dyn Fn(&SessionId) -> Option<Result<Box<dyn Send>, BackendError>> + Send + Sync>;

/// Identity of a stored batch, to find out whether an append whose answer was lost has landed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchMark {
    /// Seq of its first event.
    pub first_seq: u64,
    /// [`Batch::checksum`].
    pub checksum: u32,
}

/// A token that changes with every change of the stored log and differs between stores. Compare, never order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Revision(pub String);

/// The end of a stored log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Current writer epoch; at least 1.
    pub epoch: u64,
    /// Seq that the next event will have.
    pub next_seq: u64,
    /// The last batch appended, where the medium still knows its bounds.
    pub last_batch: Option<BatchMark>,
    /// Revision of the log.
    pub revision: Revision,
}

/// What recovery found at the end of a log and set aside. Nothing here was ever acknowledged as durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// File that was cut, if the medium has files.
    pub file: Option<PathBuf>,
    /// Offset of the first byte that belongs to no whole record.
    pub offset: u64,
    /// Number of bytes cut.
    pub bytes: u64,
    /// Where the bytes are kept; `None` when they have not been moved (an inspection).
    pub kept: Option<PathBuf>,
}

/// A session taken over for writing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The log's end; `head.epoch` is the new writer epoch.
    pub head: Head,
    /// What was cut, if anything.
    pub torn: Option<TornTail>,
}

/// What opening a log for reading gives before any event is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The session's header.
    pub header: SessionHeader,
    /// The log's end, as far as whole records go.
    pub head: Head,
    /// Fold state at some seq, when the medium keeps one: events before it need not be read to resume.
    pub checkpoint: Option<Checkpoint>,
    /// An incomplete record behind the last whole one: a crash's, or a live writer's that is just being written.
    pub torn: Option<TornTail>,
    /// Whether a writer has the session open, as far as the medium can tell.
    pub live: bool,
}

/// Fold state of a log prefix, made by [`crate::session::fold::Fold::checkpoint`]: derived, rebuildable, never trusted over the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The state holds for events `0..next_seq`.
    pub next_seq: u64,
    /// The state.
    pub state: JsonText,
}

/// How much one read may return. At least one event is returned if there is one, whatever its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimit {
    /// Most events, counted unpacked.
    pub events: u64,
    /// About how many bytes of payload in memory.
    pub bytes: usize,
}

impl Default for ReadLimit {
    /// 65,536 events or 4 MiB, whichever is reached first.
    fn default() -> Self {
        Self { events: 65_536, bytes: 4 << 20 }
    }
}

/// A contiguous stretch of a log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The events, runs packed. Empty only at the log's end.
    pub items: Vec<Item>,
    /// Seq to read on from; `None` at the end of the durable log.
    pub next: Option<u64>,
}

/// One entry of a listing: a readable session's header, or the error that stands for a bad one.
#[derive(Debug)]
pub struct Listed {
    /// The id, as far as it can be told; for an unreadable header the medium's own name of the entry.
    pub name: String,
    /// The header, or why there is none.
    pub header: Result<SessionHeader, BackendError>,
}

/// A page of a listing.
#[derive(Debug, Default)]
pub struct ListPage {
    /// Entries in the medium's stable order.
    pub entries: Vec<Listed>,
    /// Where to go on; `None` at the end.
    pub next: Option<String>,
}

/// A medium that keeps session logs.
///
/// Implementations are used from many tasks at once and must not block the thread for I/O. Every method names its durability;
/// unless one says otherwise, `Ok` means that the effect survives a crash of the process and of the machine.
///
/// Six methods are required; the others have defaults that are correct everywhere and worth replacing where the medium can do
/// better.
pub trait Backend: Send + Sync + 'static {
    /// Opens a log for reading: header, end, checkpoint. Needs no ownership, writes nothing, works beside a live writer.
    ///
    /// # Errors
    /// `NotFound`, `Damaged` (R4), `Unsupported` (N2) or the medium's own.
    fn open(&self, id: &SessionId) -> impl Future<Output = Result<Opened, BackendError>> + Send;

    /// Reads events from seq `from` on, in order. Needs no ownership. Only whole, durable-order events are returned: a prefix
    /// of the log as some append left it.
    ///
    /// # Errors
    /// As [`Backend::open`]. `from` beyond the end gives an empty page.
    fn read(
        &self,
        id: &SessionId,
        from: u64,
        limit: ReadLimit,
    ) -> impl Future<Output = Result<Page, BackendError>> + Send;

    /// Takes the session over as its writer: raises the writer epoch durably, so that no earlier writer can append any more.
    /// An incomplete record at the end is set aside (R1).
    ///
    /// # Errors
    /// `Busy` naming the holder when the medium knows of a live writer; `NotFound`; `Damaged`: then nothing was changed.
    fn take_over(&self, id: &SessionId) -> impl Future<Output = Result<Taken, BackendError>> + Send;

    /// Appends `batch` if and only if the stored next seq and writer epoch equal `expected`, atomically with respect to other
    /// appends. With [`Expected::ABSENT`] and a header it creates the session: header and batch appear together or not at all,
    /// and the caller is its writer with the epoch in the returned head.
    ///
    /// On `Ok` the whole batch is durable. A reader may see a prefix of the batch while the append runs and after a crash.
    ///
    /// # Errors
    /// [`AppendError`] says which of three things holds: another writer came first and nothing of this batch was written;
    /// nothing was written for a reason given; or the outcome is unknown.
    fn append(
        &self,
        id: &SessionId,
        header: Option<&SessionHeader>,
        expected: Expected,
        batch: &Batch,
    ) -> impl Future<Output = Result<Head, AppendError>> + Send;

    /// Lists sessions in a stable order, from the start or from where a page ended. One bad session costs one entry.
    ///
    /// # Errors
    /// Only when the listing as a whole is impossible.
    fn list(&self, after: Option<&str>, limit: usize) -> impl Future<Output = Result<ListPage, BackendError>> + Send;

    /// Removes a session and all its events.
    ///
    /// # Errors
    /// `NotFound`; `Busy` beside a live writer.
    fn delete(&self, id: &SessionId) -> impl Future<Output = Result<(), BackendError>> + Send;

    /// The log's end. Cheap: used to settle an append whose answer was lost.
    ///
    /// # Errors
    /// As [`Backend::open`].
    fn head(&self, id: &SessionId) -> impl Future<Output = Result<Head, BackendError>> + Send {
        async { Ok(self.open(id).await?.head) }
    }

    /// The revision token alone.
    ///
    /// # Errors
    /// As [`Backend::open`].
    fn revision(&self, id: &SessionId) -> impl Future<Output = Result<Revision, BackendError>> + Send {
        async { Ok(self.head(id).await?.revision) }
    }

    /// Commits repair closers under the same condition as [`Backend::append`].
    ///
    /// # Errors
    /// As [`Backend::append`].
    fn repair(
        &self,
        id: &SessionId,
        expected: Expected,
        closers: &Batch,
    ) -> impl Future<Output = Result<Head, AppendError>> + Send {
        self.append(id, None, expected, closers)
    }

    /// Reads single events by seq, in the order asked for.
    ///
    /// # Errors
    /// As [`Backend::read`]; `NotFound` for a seq beyond the end.
    fn read_events(
        &self,
        id: &SessionId,
        seqs: &[u64],
    ) -> impl Future<Output = Result<Vec<Event>, BackendError>> + Send {
        async move {
            let mut events = Vec::with_capacity(seqs.len());
            for &seq in seqs {
                let page = self.read(id, seq, ReadLimit { events: 1, bytes: 0 }).await?;
                let event = page.items.first().and_then(|item| item.events().next());
                events.push(event.ok_or_else(|| BackendError::missing_event(id, seq))?);
            }
            Ok(events)
        }
    }

    /// Makes `child` with the events of `source` up to and including `boundary`, sharing them where the medium can. The child
    /// appears whole or not at all; the source does not change. No one owns the child afterwards.
    ///
    /// # Errors
    /// `NotFound` for the source or a boundary beyond its end; `Exists` for the child.
    fn fork(
        &self,
        source: &SessionId,
        boundary: u64,
        child: &SessionHeader,
    ) -> impl Future<Output = Result<Head, BackendError>> + Send {
        async move { copy_prefix(self, source, boundary, child).await }
    }

    /// A path that shows a person where the log is, if there is one.
    fn locate(&self, _id: &SessionId) -> Option<PathBuf> {
        None
    }

    /// Sessions that could not be rewritten in the background when that was tried last, for media that do so. Cheap: no I/O.
    fn sealing_failures(&self) -> Vec<SealingFailure> {
        Vec::new()
    }

    /// Has `observer` told of every attempt at such rewriting from now on, until it gives `false`.
    fn observe_sealing(&self, _observer: SealingObserver) {}

    /// Is given a way to ask the store above to keep an id free. A medium that can put a session in its place by itself, without
    /// being told to by that store, asks before it does; others need not remember it.
    fn keep_ids_with(&self, _keeper: IdKeeper) {}

    /// Gives ownership back. Appends with this epoch fail afterwards until the session is taken over again.
    ///
    /// # Errors
    /// The medium's own; the session is not owned any more in any case.
    fn release(&self, _id: &SessionId, _epoch: u64) -> impl Future<Output = Result<(), BackendError>> + Send {
        async { Ok(()) }
    }
}

/// [`Backend::fork`] by copying, for media that cannot share. The whole prefix is one batch, so that the child appears at once.
async fn copy_prefix<B: Backend + ?Sized>(
    backend: &B,
    source: &SessionId,
    boundary: u64,
    child: &SessionHeader,
) -> Result<Head, BackendError> {
    let child_id = child.session_id().map_err(BackendError::header)?;
    let missing = || BackendError::missing_event(source, boundary);
    let end = boundary.checked_add(1).ok_or_else(missing)?;
    let mut items: Vec<Item> = Vec::new();
    let mut from = Some(0);
    while let Some(seq) = from {
        let page = backend.read(source, seq, ReadLimit::default()).await?;
        items.extend(page.items.iter().filter_map(|item| item.slice(0, end)));
        from = page.next.filter(|next| *next <= boundary);
    }
    let batch = Batch::new(items).filter(|batch| batch.next_seq() == end);
    let batch = batch.ok_or_else(missing)?;
    match backend.append(&child_id, Some(child), Expected::ABSENT, &batch).await {
        Ok(head) => {
            backend.release(&child_id, head.epoch).await?;
            Ok(head)
        }
        Err(error) => Err(error.into_backend(&child_id)),
    }
}
