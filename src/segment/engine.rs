//! The engine: all sessions of one store directory.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::builder::{self, Builder, Site};
use super::catalog::{Catalog, Summarised};
use super::directory::{SessionDirectory, TEMPORARY};
use super::fetch;
use super::files::{FileKind, Files, RealFiles};
use super::key;
use super::lock::{self, SessionLock, StoreLock};
use super::log;
use super::random::Random;
use super::reader::Reader;
use super::recovery;
use super::seal::{self, SealOptions, Sealed};
use super::sealed::shared::SharedPrefix;
use super::sealer::{Job, Sealer, SealingFailure};
use super::store_file::{self, StoreId};
use super::tree;
use super::verify::{self, SessionCheck};
use super::writer::Writer;
use crate::backend::{
    AppendError, BackendError, ErrorKind, Expected, Head, Holder, ListPage, Listed, Opened, Page, ReadLimit, Revision,
    Taken,
};
use crate::event::header::FORMAT_VERSION;
use crate::event::{Batch, Event, Item, SessionHeader, SessionId};

/// Name of the directory of all sessions.
const SESSIONS: &str = "sessions";
/// Name of the store's own lock file.
const STORE_LOCK: &str = "lock";
/// Readers kept between pages, so that reading on does not search again.
const KEPT_READERS: usize = 16;

/// How an engine works; the defaults suit any store.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    files: Arc<dyn Files>,
    rotate_at: u64,
    compress: bool,
    background_sealing: bool,
    seed: Option<u64>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        let files = Arc::new(RealFiles);
        Self { files, rotate_at: Self::ROTATE_AT, compress: true, background_sealing: true, seed: None }
    }
}

impl EngineOptions {
    /// Default of [`EngineOptions::rotate_at`]: 8 MiB, a size that is rewritten in a moment when it is sealed.
    pub const ROTATE_AT: u64 = 8 << 20;

    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes after which an append goes to a new journal. A single append is never divided, so journals may exceed it.
    pub fn rotate_at(mut self, bytes: u64) -> Self {
        self.rotate_at = bytes;
        self
    }

    /// Whether larger records are compressed (they are by default).
    pub fn compress(mut self, compress: bool) -> Self {
        self.compress = compress;
        self
    }

    /// Whether journals that a writer is done with are sealed by a thread of low priority (they are by default). Without it they
    /// stay as they are until [`Engine::seal`].
    pub fn background_sealing(mut self, seal: bool) -> Self {
        self.background_sealing = seal;
        self
    }

    /// Uses other files than the operating system's.
    pub fn files(mut self, files: Arc<dyn Files>) -> Self {
        self.files = files;
        self
    }

    /// Takes file identities from a seed instead of the system, so that a store comes out the same byte for byte. For tests
    /// and format examples; two real stores must never share one.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Opens the store in `root`; see [`Engine::open`].
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open(self, root: impl AsRef<Path>) -> Result<Engine, BackendError> {
        Engine::with_options(root.as_ref(), self)
    }
}

/// The sessions of one store directory, for use from any thread. Cloning gives another handle to the same engine.
///
/// All calls block for I/O. Nothing is written before a session is created.
#[derive(Debug, Clone)]
pub struct Engine(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    root: PathBuf,
    site: Site,
    store: Mutex<StoreState>,
    writers: Mutex<HashMap<SessionId, Arc<Mutex<Writer>>>>,
    /// Sessions that became visible although their creation was reported as failed; taken back before the id is used again.
    stuck: Mutex<HashMap<SessionId, Box<Writer>>>,
    readers: Mutex<Vec<(SessionId, Reader)>>,
    catalog: Mutex<Option<Catalog>>,
    sealer: Option<Sealer>,
}

#[derive(Debug, Default)]
struct StoreState {
    id: Option<StoreId>,
    /// Whether this engine has made sure that the store's directories are there and durable.
    ready: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        let EngineOptions { files, rotate_at, compress, background_sealing, seed } = options;
        let failed = |error| BackendError::io("opening the store", root, error);
        let root = match files.resolve(root) {
            Ok(resolved) => resolved,
            Err(error) if error.kind() == io::ErrorKind::NotFound => std::path::absolute(root).map_err(failed)?,
            Err(error) => return Err(failed(error)),
        };
        match files.stat(&root) {
            Ok(stat) if stat.kind != FileKind::Directory => {
                return Err(
                    BackendError::new(ErrorKind::Invalid, "a store is a directory; this is not").with_file(root)
                );
            }
            Ok(stat) if stat.mode & 0o022 != 0 => {
                tracing::warn!(store = %root.display(), mode = format!("{:o}", stat.mode), "others may write to the store");
            }
            _ => {}
        }
        let id = store_file::read(&*files, &root)?;
        let site = Site {
            files,
            sessions: root.join(SESSIONS),
            store_lock: root.join(STORE_LOCK),
            random: Arc::new(Random::new(seed)),
            rotate_at,
            compress,
        };
        Ok(Self(Arc::new(Shared {
            root,
            site,
            store: Mutex::new(StoreState { id, ready: false }),
            writers: Mutex::default(),
            stuck: Mutex::default(),
            readers: Mutex::default(),
            catalog: Mutex::default(),
            sealer: background_sealing.then(Sealer::default),
        })))
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

    /// Makes the store if need be. Any number of processes may do so at once.
    fn make_store(&self) -> Result<(), BackendError> {
        let mut store = locked(&self.0.store);
        if store.ready {
            return Ok(());
        }
        let (site, root) = (&self.0.site, &self.0.root);
        let files = &*site.files;
        make_directories(files, root)?;
        let lock = StoreLock::take(files, &site.store_lock)?;
        let id = match store_file::read(files, root)? {
            Some(id) => id,
            None => store_file::create(files, root, &site.random)?,
        };
        make_directory(files, &site.sessions)?;
        // Durable even if another process made them and was stopped before it could sync.
        files.sync_directory(root).map_err(|error| BackendError::io("making the store", root, error))?;
        tree::clear_store(files, &site.sessions);
        drop(lock);
        *store = StoreState { id: Some(id), ready: true };
        Ok(())
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
        let live = lock::is_live(&directory);
        let log = log::scan(&directory)?;
        let head = self.head_of_log(&log)?;
        let checkpoint = log.sealed.and_then(|sealed| sealed.checkpoint);
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
    /// next page alone.
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
            None => self.reader(id)?,
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
        let (writer, torn) = recovery::take_over(directory, Arc::clone(&site.random), site.rotate_at, site.compress)?;
        let head = self.head_of_writer(&writer)?;
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
        if let Some(sealer) = self.0.sealer.as_ref().filter(|_| writer.position().0 != journal) {
            sealer.enqueue(Job {
                id: id.clone(),
                directory: writer.directory.clone(),
                lock: Arc::clone(&writer.lock),
                random: Arc::clone(&self.0.site.random),
                upto: writer.position().0,
            });
        }
        self.head_of_writer(&writer).map_err(failed)
    }

    fn create(&self, id: &SessionId, header: &SessionHeader, batch: &Batch) -> Result<Head, AppendError> {
        let failed = |error: BackendError| AppendError::Failed(error.with_session(id));
        check_header(id, header).map_err(failed)?;
        let target = self.locate(id);
        self.make_store().map_err(failed)?;
        self.take_back_stuck(id).map_err(failed)?;
        if self.0.site.files.stat(&target).is_ok() {
            return Err(self.occupied(id));
        }
        let mut builder = Builder::begin(&self.0.site, id, header, None).map_err(failed)?;
        if let Err(error) = builder.add(batch) {
            builder.abandon();
            return Err(failed(error));
        }
        match builder.publish(&target) {
            Ok(writer) => {
                let head = self.head_of_writer(&writer).map_err(failed)?;
                locked(&self.0.writers).insert(id.clone(), Arc::new(Mutex::new(writer)));
                Ok(head)
            }
            Err(unpublished) if unpublished.error.kind == ErrorKind::Exists => Err(self.occupied(id)),
            Err(unpublished) => {
                if let Some(writer) = unpublished.stuck {
                    locked(&self.0.stuck).insert(id.clone(), writer);
                }
                Err(failed(unpublished.error))
            }
        }
    }

    /// What stands where a session should be created.
    fn occupied(&self, id: &SessionId) -> AppendError {
        match self.head(id) {
            Ok(head) => {
                let found = Expected { epoch: head.epoch, next_seq: head.next_seq };
                AppendError::Conflict { expected: Expected::ABSENT, found }
            }
            Err(error) => AppendError::Failed(error.with_session(id)),
        }
    }

    /// Takes a session back whose creation was reported as failed.
    fn take_back_stuck(&self, id: &SessionId) -> Result<(), BackendError> {
        let mut stuck = locked(&self.0.stuck);
        let Some(writer) = stuck.get(id) else { return Ok(()) };
        let site = &self.0.site;
        let directory = &writer.directory;
        let number = site.random.number().map_err(|error| directory.io("naming", &directory.path, error))?;
        let temporary = site.sessions.join(format!("{TEMPORARY}{number:016x}"));
        if site.files.stat(&directory.path).is_ok() && !builder::take_back(&*site.files, &directory.path, &temporary) {
            let detail = "an earlier attempt to create the session failed and could not be taken back yet; try again";
            return Err(directory.error(ErrorKind::Io, detail));
        }
        stuck.remove(id);
        Ok(())
    }

    /// Lists sessions by key; see [`Backend::list`](crate::backend::Backend::list). Reads one header a session and no journal.
    ///
    /// # Errors
    /// I/O on the directory as a whole.
    pub fn list(&self, after: Option<&str>, limit: usize) -> Result<ListPage, BackendError> {
        let mut names = self.session_names()?;
        names.retain(|name| after.is_none_or(|after| name.as_str() > after));
        let mut page = ListPage::default();
        let mut names = names.into_iter().peekable();
        for name in names.by_ref() {
            if let Some(listed) = self.listed(&name) {
                page.entries.push(listed);
            }
            if page.entries.len() >= limit.max(1) {
                page.next = Some(name);
                break;
            }
        }
        if names.peek().is_none() {
            page.next = None;
        }
        Ok(page)
    }

    /// What a listing shows of every session, by key. Costs a look at the files of each session that has not changed since the
    /// last listing; the others are read, from their checkpoints on. The answers do not depend on the catalogue that makes this
    /// quick: it is checked against the files, and made anew when it is absent, stale or damaged.
    ///
    /// # Errors
    /// I/O on the directory as a whole. What is wrong with one session is said in its entry.
    pub fn summaries(&self) -> Result<Vec<Summarised>, BackendError> {
        let names = self.session_names()?;
        let site = &self.0.site;
        let mut kept = locked(&self.0.catalog);
        let catalog = kept.get_or_insert_with(|| Catalog::read(&*site.files, &self.0.root));
        catalog.keep(&names);
        let mut entries = Vec::with_capacity(names.len());
        for name in names {
            let id = key::decode(&name);
            let directory =
                SessionDirectory { files: Arc::clone(&site.files), path: site.sessions.join(&name), id: id.clone() };
            let summary = catalog.summary(&name, &directory);
            if matches!(&summary, Err(error) if error.kind == ErrorKind::NotFound) {
                continue;
            }
            let shown = match (&summary, &id) {
                (Ok(summary), _) => summary.header.id.clone(),
                (Err(_), Some(id)) => id.as_str().to_owned(),
                (Err(_), None) => name,
            };
            entries.push(Summarised { name: shown, summary });
        }
        // A store that may only be read is listed all the same.
        let written = site.random.number().and_then(|number| catalog.write(&*site.files, &self.0.root, number));
        if let Err(error) = written {
            tracing::debug!(%error, "the catalogue was not written");
        }
        Ok(entries)
    }

    /// Names of all session directories, sorted.
    fn session_names(&self) -> Result<Vec<String>, BackendError> {
        let sessions = &self.0.site.sessions;
        let mut names = match self.0.site.files.read_directory(sessions) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(BackendError::io("listing the store", sessions, error)),
        };
        names.retain(|name| !name.starts_with(TEMPORARY));
        names.sort_unstable();
        Ok(names)
    }

    /// One entry of a listing; `None` when it is gone by now.
    fn listed(&self, name: &str) -> Option<Listed> {
        let id = key::decode(name);
        let path = self.0.site.sessions.join(name);
        let directory = SessionDirectory { files: Arc::clone(&self.0.site.files), path, id };
        let header = directory.check().and_then(|()| directory.read_header());
        if matches!(&header, Err(error) if error.kind == ErrorKind::NotFound) {
            return None;
        }
        let shown = match (&header, &directory.id) {
            (Ok(header), _) => header.id.clone(),
            (Err(_), Some(id)) => id.as_str().to_owned(),
            (Err(_), None) => name.to_owned(),
        };
        Some(Listed { name: shown, header })
    }

    /// Removes a session: it disappears at once, then its files go.
    ///
    /// # Errors
    /// `NotFound`; `Busy` beside a writer, also this process's own; identity mismatch, because the files are another
    /// session's; I/O.
    pub fn delete(&self, id: &SessionId) -> Result<(), BackendError> {
        let site = &self.0.site;
        let directory = self.directory(id);
        directory.check()?;
        // A session whose header cannot be read may go; one that is another's may not.
        if let Err(error) = directory.read_header() {
            let class = error.damage.as_ref().map(|damage| damage.class);
            if class == Some(crate::backend::DamageClass::IdentityMismatch) {
                return Err(error);
            }
        }
        let lock = SessionLock::take(&directory)?;
        let failed = |error| directory.io("deleting the session", &directory.path, error);
        let number = site.random.number().map_err(failed)?;
        let temporary = site.sessions.join(format!("{TEMPORARY}{number:016x}"));
        site.files.rename(&directory.path, &temporary).map_err(failed)?;
        locked(&self.0.writers).remove(id);
        locked(&self.0.readers).retain(|(owner, _)| owner != id);
        site.files.sync_directory(&site.sessions).map_err(failed)?;
        tree::remove(&*site.files, &temporary).map_err(failed)?;
        drop(lock);
        site.files.sync_directory(&site.sessions).map_err(failed)
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
        self.open_session(id).map(|opened| opened.head)
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

    /// Makes a session of `source` up to and including `boundary`; see [`Backend::fork`](crate::backend::Backend::fork). Sealed
    /// segments that start before the boundary are shared between the two, as links to the same files; what is behind them is
    /// copied. The source does not change, and either may be deleted; a segment's bytes last as long as one of those that share
    /// it. Cost follows what is copied and not the length of what is sealed; holds one page at a time.
    ///
    /// # Errors
    /// `NotFound` for the source or the boundary, `Exists` for the child, `Invalid` for its header, damage of the source, I/O.
    pub fn fork(&self, source: &SessionId, boundary: u64, child: &SessionHeader) -> Result<Head, BackendError> {
        let missing = || BackendError::missing_event(source, boundary);
        let end = boundary.checked_add(1).ok_or_else(missing)?;
        let mut reader = self.reader(source)?;
        let prefix = SharedPrefix::of(reader.session(), end)?;
        let mut copied = prefix.next_seq;
        reader.seek(copied);
        self.create_behind(child, Some(&prefix), || {
            if copied >= end {
                return Ok(None);
            }
            let page = reader.next_page(ReadLimit::default())?;
            let items: Vec<Item> = page.items.iter().filter_map(|item| item.slice(0, end)).collect();
            let batch = Batch::new(items).ok_or_else(missing)?;
            copied = batch.next_seq();
            Ok(Some(batch))
        })
    }

    /// Makes a session of the batches that `next` gives, in log order, until it gives `None`. The session appears whole and
    /// durable or not at all, and no one owns it afterwards. Without any batch it is a session of no events. Holds one batch at a
    /// time.
    ///
    /// # Errors
    /// What `next` reports; `Exists`; `Invalid` for the header or for batches that do not continue each other from seq 0; I/O.
    pub fn create_whole<E: From<BackendError>>(
        &self,
        header: &SessionHeader,
        next: impl FnMut() -> Result<Option<Batch>, E>,
    ) -> Result<Head, E> {
        self.create_behind(header, None, next)
    }

    fn create_behind<E: From<BackendError>>(
        &self,
        header: &SessionHeader,
        prefix: Option<&SharedPrefix>,
        mut next: impl FnMut() -> Result<Option<Batch>, E>,
    ) -> Result<Head, E> {
        let id = header.session_id().map_err(BackendError::header)?;
        let target = self.locate(&id);
        // The first batch comes before anything is made, so that a source that refuses at once leaves no store behind.
        let mut batch = next()?;
        let mut builder = self.begin(&id, header, &target, prefix)?;
        let filled = loop {
            let Some(full) = batch else { break Ok(()) };
            if let Err(error) = add_in_order(&mut builder, &full) {
                break Err(E::from(error.with_session(&id)));
            }
            match next() {
                Ok(following) => batch = following,
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = filled {
            builder.abandon();
            return Err(error);
        }
        match builder.publish(&target) {
            Ok(writer) => Ok(self.head_of_writer(&writer)?),
            Err(unpublished) => {
                if let Some(writer) = unpublished.stuck {
                    locked(&self.0.stuck).insert(id, writer);
                }
                Err(unpublished.error.into())
            }
        }
    }

    /// Begins a session that nothing stands in the place of.
    fn begin(
        &self,
        id: &SessionId,
        header: &SessionHeader,
        target: &Path,
        prefix: Option<&SharedPrefix>,
    ) -> Result<Builder, BackendError> {
        check_header(id, header)?;
        self.make_store()?;
        self.take_back_stuck(id)?;
        if self.0.site.files.stat(target).is_ok() {
            return Err(BackendError::exists(id));
        }
        Builder::begin(&self.0.site, id, header, prefix)
    }

    /// Rewrites a session that nobody has open into as few bytes as it takes: its journals become one sealed segment, into which
    /// small segments next to it are taken. When it returns, the result is durable; a stop at any moment leaves the log whole.
    /// Cost: reading and compressing what is not sealed yet; memory does not depend on it.
    ///
    /// # Errors
    /// `NotFound`; `Busy` beside a writer, also this process's own; damage, and then nothing was changed; I/O.
    pub fn seal(&self, id: &SessionId, options: SealOptions) -> Result<Sealed, BackendError> {
        let directory = self.directory(id);
        let before = self.stored_bytes(id)?;
        self.make_store()?;
        seal::seal_session(&directory, &self.0.site.random, options)?;
        if let Some(sealer) = &self.0.sealer {
            sealer.settle(id);
        }
        Ok(Sealed { before, after: self.stored_bytes(id)? })
    }

    /// Sessions whose journals could not be sealed in the background when that was tried last. Nothing is lost by it: their
    /// journals stay in service.
    pub fn sealing_failures(&self) -> Vec<SealingFailure> {
        self.0.sealer.as_ref().map_or_else(Vec::new, Sealer::failures)
    }

    /// Gives a session back, once journals that its writer was done with are sealed. Closing the files releases the kernel's lock.
    ///
    /// # Errors
    /// None at present; the session is not owned any more in any case.
    pub fn release(&self, id: &SessionId, epoch: u64) -> Result<(), BackendError> {
        let released = {
            let mut writers = locked(&self.0.writers);
            let matches = writers.get(id).is_some_and(|writer| locked(writer).epoch == epoch);
            if matches { writers.remove(id) } else { None }
        };
        if let (Some(_), Some(sealer)) = (&released, &self.0.sealer) {
            sealer.finish(id);
        }
        drop(released);
        Ok(())
    }

    /// Who has a session open for writing, as far as its lock's note says; `None` when nobody has. For messages to people.
    pub fn holder(&self, id: &SessionId) -> Option<Holder> {
        lock::holder(&self.directory(id))
    }

    /// Checks every byte of a session: checksums, the chain of journals, seqs, and the JSON syntax of every payload. Writes
    /// nothing and needs no lock.
    pub fn verify(&self, id: &SessionId) -> SessionCheck {
        verify::session(&self.directory(id))
    }

    /// Bytes of all files of a session.
    ///
    /// # Errors
    /// `NotFound`, I/O.
    pub fn stored_bytes(&self, id: &SessionId) -> Result<u64, BackendError> {
        let directory = self.directory(id);
        directory.check()?;
        let mut bytes = 0_u64;
        for name in directory.names()? {
            if let Ok(stat) = directory.files.stat(&directory.file(&name)) {
                bytes = bytes.saturating_add(if stat.kind == FileKind::File { stat.length } else { 0 });
            }
        }
        Ok(bytes)
    }
}

/// Adds a batch if it goes on where the last one ended.
fn add_in_order(builder: &mut Builder, batch: &Batch) -> Result<(), BackendError> {
    if batch.first_seq() != builder.next_seq() {
        let detail = format!("a batch starts at seq {}, expected {}", batch.first_seq(), builder.next_seq());
        return Err(BackendError::new(ErrorKind::Invalid, detail));
    }
    builder.add(batch)
}

fn check_header(id: &SessionId, header: &SessionHeader) -> Result<(), BackendError> {
    header.check_stored().map_err(BackendError::header)?;
    if header.id != id.as_str() {
        return Err(BackendError::new(ErrorKind::Invalid, "the header names another session").with_session(id));
    }
    if header.version != FORMAT_VERSION {
        let detail = format!("sessions are written in format {FORMAT_VERSION}, not {}", header.version);
        return Err(BackendError::new(ErrorKind::Invalid, detail).with_session(id));
    }
    Ok(())
}

/// Makes a directory and those above it that are missing, each name durable. Names that are there already are synced too:
/// whoever made them may have been stopped before it could.
fn make_directories(files: &dyn Files, path: &Path) -> Result<(), BackendError> {
    let failed = |path: &Path, error| BackendError::io("making a directory", path, error);
    let mut missing = Vec::new();
    for here in path.ancestors() {
        match files.stat(here) {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(here),
            Err(error) => return Err(failed(here, error)),
        }
    }
    for directory in missing.into_iter().rev() {
        make_directory(files, directory)?;
    }
    for parent in path.ancestors().skip(1) {
        match files.sync_directory(parent) {
            // Where this process may not even look, it has made nothing.
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(failed(parent, error)),
            _ => {}
        }
    }
    Ok(())
}

fn make_directory(files: &dyn Files, path: &Path) -> Result<(), BackendError> {
    match files.create_directory(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(BackendError::io("making a directory", path, error))
        }
        // Another process was quicker, or something else stands there, which the next step will meet.
        _ => Ok(()),
    }
}
