//! The engine: all sessions of one store directory.

mod checking;
mod creation;
mod keepers;
mod listing;
mod making;
mod options;
mod removal;
mod salvage;
mod sections;
mod state;
mod trash;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use super::builder::Site;
use super::catalog::{Catalog, Stamp};
use super::directory::SessionDirectory;
use super::fetch;
use super::files::{FileKind, Files, Identity};
use super::key;
use super::lock;
use super::log;
use super::random::Random;
use super::reader::Reader;
use super::recent::RecentBlocks;
use super::recovery;
use super::seal::{self, Extent, SealOptions, Sealed};
use super::sealer::{Job, Sealer};
use super::store_file::{self, StoreId};
use super::trust;
use super::writer::Writer;
use crate::backend::{
    AppendError, BackendError, ErrorKind, Expected, Head, Holder, Opened, Page, ReadLimit, Revision, SealingFailure,
    SealingObserver, Taken,
};
use crate::event::{Batch, Event, SessionHeader, SessionId};
use crate::sync::lock as locked;

use keepers::Keepers;
pub use options::EngineOptions;
pub use salvage::Remains;
pub use sections::{SectionBytes, Sections};
pub use state::StateError;
pub use trash::Trashed;

/// Name of the directory of all sessions.
const SESSIONS: &str = "sessions";
/// Name of the store's own lock file.
const STORE_LOCK: &str = "lock";
/// Readers kept between pages, so that reading on does not search again.
const KEPT_READERS: usize = 16;

/// The sessions of one store directory, for use from any thread. Cloning gives another handle to the same engine.
///
/// All calls block for I/O. Nothing is written before a session is created.
#[derive(Debug, Clone)]
pub struct Engine(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    root: PathBuf,
    site: Site,
    trust_directory: bool,
    /// The mode of the root, if others might write to it when it was opened.
    open_to_others: Option<u32>,
    store: Mutex<StoreState>,
    writers: Mutex<HashMap<SessionId, Arc<Mutex<Writer>>>>,
    /// Sessions that became visible although their creation was reported as failed; taken back before the id is used again.
    stuck: Mutex<HashMap<SessionId, Box<Writer>>>,
    readers: Mutex<Vec<(SessionId, Reader)>>,
    recent: Arc<RecentBlocks>,
    catalog: Mutex<Option<Catalog>>,
    keepers: Keepers,
    /// Names of all sessions, and the state of their directory in which it had these.
    names: Mutex<Option<(Stamp, Arc<[String]>)>>,
    sealer: Option<Sealer>,
}

#[derive(Debug, Default)]
struct StoreState {
    id: Option<StoreId>,
    /// The root and the directory of all sessions, once this engine has made sure that they are there, durable and safe.
    ready: Option<[Identity; 2]>,
}

/// `path` with every link in the part of it that exists resolved, so that links changed later lead nowhere else.
fn resolved(files: &dyn Files, path: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    for here in absolute.ancestors() {
        match files.resolve(here) {
            Ok(mut real) => {
                real.extend(absolute.strip_prefix(here).unwrap_or(Path::new("")).components());
                return Ok(real);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(absolute)
}

impl Engine {
    /// Opens the store in `root` with the default options. A store that does not exist yet is made by the first append.
    ///
    /// # Errors
    /// Damage of the `STORE` file, `Unsupported` for a newer layout, I/O.
    pub fn open(root: impl AsRef<Path>) -> Result<Self, BackendError> {
        EngineOptions::new().open(root)
    }

    fn with_options(root: &Path, options: EngineOptions) -> Result<Self, BackendError> {
        let EngineOptions { files, rotate_at, compress, background_sealing, seed, trust_directory } = options;
        let failed = |error| BackendError::io("opening the store", root, error);
        let root = resolved(&*files, root).map_err(failed)?;
        let open_to_others = match files.stat(&root) {
            Ok(stat) if stat.kind != FileKind::Directory => {
                return Err(
                    BackendError::new(ErrorKind::Invalid, "a store is a directory; this is not").with_file(root)
                );
            }
            Ok(stat) if stat.mode & 0o022 != 0 => {
                tracing::warn!(store = %root.display(), mode = format!("{:o}", stat.mode), "others may write to the store");
                Some(stat.mode)
            }
            _ => None,
        };
        let sessions = root.join(SESSIONS);
        if files.stat(&sessions).is_ok() {
            trust::check_kind(&*files, &sessions)?;
        }
        let id = store_file::read(&*files, &root)?;
        let site = Site {
            files,
            sessions,
            store_lock: root.join(STORE_LOCK),
            random: Arc::new(Random::new(seed)),
            rotate_at,
            compress,
        };
        Ok(Self(Arc::new(Shared {
            root,
            site,
            trust_directory,
            open_to_others,
            store: Mutex::new(StoreState { id, ready: None }),
            writers: Mutex::default(),
            stuck: Mutex::default(),
            readers: Mutex::default(),
            recent: Arc::default(),
            catalog: Mutex::default(),
            keepers: Keepers::default(),
            names: Mutex::default(),
            sealer: background_sealing.then(Sealer::default),
        })))
    }

    /// The permission bits of the store's directory, if its group or everybody might write to it when it was opened: whoever may, can
    /// lead what is written there elsewhere. For a warning to people; it is also said through `tracing`.
    pub fn open_to_others(&self) -> Option<u32> {
        self.0.open_to_others
    }

    /// The store's directory, with links resolved.
    pub fn root(&self) -> &Path {
        &self.0.root
    }

    /// The directory of a session, whether it exists or not.
    pub fn locate(&self, id: &SessionId) -> PathBuf {
        self.0.site.sessions.join(key::key(id))
    }

    fn directory(&self, id: &SessionId) -> SessionDirectory {
        SessionDirectory { files: Arc::clone(&self.0.site.files), path: self.locate(id), id: Some(id.clone()) }
    }

    /// The store's identity, as far as there is one yet.
    fn store_id(&self) -> Result<StoreId, BackendError> {
        let mut store = locked(&self.0.store);
        if store.id.is_none() {
            store.id = store_file::read(&*self.0.site.files, &self.0.root)?;
        }
        Ok(store.id.unwrap_or_default())
    }

    fn revision_of(&self, (first_seq, salt, length): (u64, u64, u64)) -> Result<Revision, BackendError> {
        let mut token = String::with_capacity(80);
        for byte in self.store_id()? {
            let _ = write!(token, "{byte:02x}");
        }
        let _ = write!(token, "-{first_seq:x}-{salt:016x}-{length:x}");
        Ok(Revision(token))
    }

    fn head_of_log(&self, log: &log::LogEnd) -> Result<Head, BackendError> {
        let revision = self.revision_of(log.position())?;
        Ok(Head { epoch: log.epoch(), next_seq: log.next_seq, last_batch: log.last_batch, revision })
    }

    fn head_of_writer(&self, writer: &Writer) -> Result<Head, BackendError> {
        let revision = self.revision_of(writer.position())?;
        Ok(Head { epoch: writer.epoch, next_seq: writer.next_seq, last_batch: writer.last_batch, revision })
    }

    #[cfg(test)]
    pub(super) fn recent(&self) -> &RecentBlocks {
        &self.0.recent
    }

    fn writer(&self, id: &SessionId) -> Option<Arc<Mutex<Writer>>> {
        locked(&self.0.writers).get(id).cloned()
    }

    /// Opens a session for reading; see [`Backend::open`](crate::backend::Backend::open). Of
    /// what is sealed it reads headers and footers alone; the journals behind are checked once.
    ///
    /// # Errors
    /// `NotFound`, damage, `Unsupported`, I/O.
    pub fn open_session(&self, id: &SessionId) -> Result<Opened, BackendError> {
        let directory = self.directory(id);
        directory.check()?;
        let header = directory.read_header()?;
        let live = lock::is_live(&directory)?;
        let log = log::scan(&directory)?;
        let head = self.head_of_log(&log)?;
        let checkpoint = log.sealed.and_then(|sealed| sealed.checkpoint(&directory));
        Ok(Opened { header, head, checkpoint, torn: log.torn, live })
    }

    /// A reader of a session; no lock, nothing written.
    ///
    /// # Errors
    /// `NotFound`, damage of the header, `Unsupported`, I/O.
    pub fn reader(&self, id: &SessionId) -> Result<Reader, BackendError> {
        let directory = self.directory(id);
        directory.check()?;
        let header = directory.read_header()?;
        Ok(Reader::over(directory, header))
    }

    /// Reads events from `from` on; see [`Backend::read`](crate::backend::Backend::read). Reading on where a page ended costs the
    /// next page alone, and where it was read lately, sealed blocks are not unpacked again (up to 8 MiB of them are held): damage that
    /// came to such a block since is not noticed here, as it is not noticed in what the system caches. [`Engine::verify`] and
    /// [`Engine::reader`] read what is stored.
    ///
    /// # Errors
    /// As [`Reader::next_page`].
    pub fn read(&self, id: &SessionId, from: u64, limit: ReadLimit) -> Result<Page, BackendError> {
        let kept = {
            let mut readers = locked(&self.0.readers);
            let index = readers.iter().position(|(owner, reader)| owner == id && reader.position() == from);
            index.map(|index| readers.remove(index).1)
        };
        let mut reader = match kept {
            Some(reader) => reader,
            None => self.reader(id)?.sharing(&self.0.recent),
        };
        reader.seek(from);
        let page = reader.next_page(limit)?;
        if page.next.is_some() {
            let mut readers = locked(&self.0.readers);
            if readers.len() >= KEPT_READERS {
                readers.remove(0);
            }
            readers.push((id.clone(), reader));
        }
        Ok(page)
    }

    /// Reads single events by seq, in the order given; see [`Backend::read_events`](crate::backend::Backend::read_events). Cost
    /// follows the blocks that hold them.
    ///
    /// # Errors
    /// As [`Reader::next_page`]; `NotFound` for a seq beyond the end.
    pub fn read_events(&self, id: &SessionId, seqs: &[u64]) -> Result<Vec<Event>, BackendError> {
        fetch::events(self.reader(id)?, seqs)
    }

    /// Takes a session over as its writer; see [`Backend::take_over`](crate::backend::Backend::take_over).
    ///
    /// # Errors
    /// `NotFound`; `Busy` naming the holder, which may be this process; damage, and then nothing was changed; I/O.
    pub fn take_over(&self, id: &SessionId) -> Result<Taken, BackendError> {
        let site = &self.0.site;
        let directory = self.directory(id);
        directory.check()?;
        // The session's own name may not be durable: its creator may have been stopped, or told that it failed.
        self.make_store()?;
        let synced = site.files.sync_directory(&site.sessions);
        synced.map_err(|error| directory.io("taking the session over", &site.sessions, error))?;
        self.give_way(id);
        let (writer, torn) = recovery::take_over(directory, Arc::clone(&site.random), site.rotate_at, site.compress)?;
        let head = self.head_of_writer(&writer)?;
        self.seal_behind(id, &writer);
        // The kernel's lock has just said that there is no other writer, so an entry that remains is one that lost the session.
        locked(&self.0.writers).insert(id.clone(), Arc::new(Mutex::new(writer)));
        Ok(Taken { head, torn })
    }

    /// Appends a batch; see [`Backend::append`](crate::backend::Backend::append). One write and one sync.
    ///
    /// # Errors
    /// [`AppendError`].
    pub fn append(
        &self,
        id: &SessionId,
        header: Option<&SessionHeader>,
        expected: Expected,
        batch: &Batch,
    ) -> Result<Head, AppendError> {
        let failed = |error: BackendError| AppendError::Failed(error.with_session(id));
        if batch.first_seq() != expected.next_seq {
            let detail = format!("the batch starts at seq {}, not at {}", batch.first_seq(), expected.next_seq);
            return Err(failed(BackendError::new(ErrorKind::Invalid, detail)));
        }
        if let Some(header) = header.filter(|_| expected == Expected::ABSENT) {
            return self.create(id, header, batch);
        }
        let Some(writer) = self.writer(id) else {
            let head = self.head(id).map_err(failed)?;
            let found = Expected { epoch: head.epoch, next_seq: head.next_seq };
            if found != expected {
                return Err(AppendError::Conflict { expected, found });
            }
            let detail = "this process is not the session's writer; take the session over first";
            return Err(failed(BackendError::new(ErrorKind::LostOwnership, detail)));
        };
        let mut writer = locked(&writer);
        let found = Expected { epoch: writer.epoch, next_seq: writer.next_seq };
        if found != expected {
            return Err(AppendError::Conflict { expected, found });
        }
        let journal = writer.position().0;
        writer.append(batch).map_err(failed)?;
        if writer.position().0 != journal {
            self.seal_behind(id, &writer);
        }
        self.head_of_writer(&writer).map_err(failed)
    }

    /// Has the journals sealed that a writer is done with.
    fn seal_behind(&self, id: &SessionId, writer: &Writer) {
        if let Some(sealer) = &self.0.sealer {
            sealer.enqueue(Job {
                id: id.clone(),
                directory: writer.directory.clone(),
                random: Arc::clone(&self.0.site.random),
                extent: Extent::Before(writer.position().0),
                lock: Arc::downgrade(&writer.lock),
            });
        }
    }

    /// Has the background leave a session alone, for somebody who needs its lock.
    fn give_way(&self, id: &SessionId) {
        if let Some(sealer) = &self.0.sealer {
            sealer.give_way(id);
        }
    }

    /// The log's end: from memory where this engine is the session's writer, else from a scan.
    ///
    /// # Errors
    /// As [`Engine::open_session`].
    pub fn head(&self, id: &SessionId) -> Result<Head, BackendError> {
        if let Some(writer) = self.writer(id) {
            let writer = locked(&writer);
            if !writer.has_lost() {
                return self.head_of_writer(&writer);
            }
        }
        let directory = self.directory(id);
        directory.check()?;
        directory.read_header()?;
        self.head_of_log(&log::scan(&directory)?)
    }

    /// The revision token, from the newest journal's header and length alone.
    ///
    /// # Errors
    /// `NotFound`, damage of the newest journal's header, I/O.
    pub fn revision(&self, id: &SessionId) -> Result<Revision, BackendError> {
        let directory = self.directory(id);
        directory.check()?;
        directory.read_header()?;
        self.revision_of(log::newest_position(&directory)?)
    }

    /// Rewrites a session that nobody has open into as few bytes as it takes: its journals become one sealed segment, into which
    /// small segments next to it are taken, and segments that were compressed less than at this level are compressed again, unless
    /// another name keeps their bytes, as forks do. When it returns, the result is durable; a stop at any moment leaves the log whole.
    /// What was sealed before is checked, and derived afresh where it does not follow from the records, as
    /// [`Engine::rebuild_derived`] does. Cost: reading the session once, and compressing what is not sealed at this level yet. Memory
    /// does not depend on the length: up to 96 MiB at the default level, up to 64 MiB at 9 and below.
    ///
    /// # Errors
    /// `NotFound`; `Busy` beside a writer, also this process's own; damage, and then nothing was changed; I/O.
    pub fn seal(&self, id: &SessionId, options: SealOptions) -> Result<Sealed, BackendError> {
        let directory = self.directory(id);
        let before = self.stored_bytes(id)?;
        self.make_store()?;
        self.give_way(id);
        seal::seal_session(&directory, &self.0.site.random, options)?;
        if let Some(sealer) = &self.0.sealer {
            sealer.settle(id);
        }
        Ok(Sealed { before, after: self.stored_bytes(id)? })
    }

    /// Sessions that could not be sealed in the background when that was tried last, the longest failing first. Nothing is lost by
    /// it: their journals stay in service, and the next rotation, resume, close or [`Engine::seal`] tries again. At most 1,024.
    pub fn sealing_failures(&self) -> Vec<SealingFailure> {
        self.0.sealer.as_ref().map_or_else(Vec::new, Sealer::failures)
    }

    /// Has `observer` told of every attempt at sealing in the background.
    pub fn observe_sealing(&self, observer: SealingObserver) {
        if let Some(sealer) = &self.0.sealer {
            sealer.observe(observer);
        }
    }

    /// Waits until the background has nothing left to seal: for a process that would rather end with small files than at once.
    /// Dropping the last handle instead stops sealing where it is, and what is not sealed stays in its journals.
    pub fn finish_sealing(&self) {
        if let Some(sealer) = &self.0.sealer {
            sealer.finish();
        }
    }

    /// Gives a session back: the kernel's lock is free when this returns. What is not sealed yet is sealed in the background, which
    /// gives way to whoever opens the session next.
    ///
    /// # Errors
    /// None at present; the session is not owned any more in any case.
    pub fn release(&self, id: &SessionId, epoch: u64) -> Result<(), BackendError> {
        let released = {
            // An append may be under way, and while this waits for it, other sessions must not wait as well.
            let writer = self.writer(id).filter(|writer| locked(writer).epoch == epoch);
            let mut writers = locked(&self.0.writers);
            let same = writer.is_some_and(|writer| writers.get(id).is_some_and(|now| Arc::ptr_eq(now, &writer)));
            if same { writers.remove(id) } else { None }
        };
        let Some(writer) = released else { return Ok(()) };
        let lost = locked(&writer).has_lost();
        let directory = locked(&writer).directory.clone();
        drop(writer);
        if let Some(sealer) = &self.0.sealer {
            sealer.let_go(id);
        }
        if !lost {
            self.seal_closed(id, directory);
        }
        Ok(())
    }

    /// Has a session sealed that nobody has open.
    fn seal_closed(&self, id: &SessionId, directory: SessionDirectory) {
        if let Some(sealer) = &self.0.sealer {
            let random = Arc::clone(&self.0.site.random);
            sealer.enqueue(Job { id: id.clone(), directory, random, extent: Extent::Closed, lock: Weak::new() });
        }
    }

    /// Who has a session open for writing, as far as its lock's note says; `None` when nobody has. For messages to people.
    ///
    /// # Errors
    /// I/O, also a lock that may not be read: then it cannot be told whether somebody has it open.
    pub fn holder(&self, id: &SessionId) -> Result<Option<Holder>, BackendError> {
        lock::holder(&self.directory(id))
    }

    /// Bytes of the files in a session's directory, but for the lock and what is just being written.
    ///
    /// # Errors
    /// `NotFound`, I/O.
    pub fn stored_bytes(&self, id: &SessionId) -> Result<u64, BackendError> {
        let directory = self.directory(id);
        directory.check()?;
        directory.stored_bytes()
    }
}
