//! Making a session: header and first events are put together under a temporary name and appear at once.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directory::{HEADER_FILE, SessionDirectory, TEMPORARY, encode_header, identity};
use super::files::{Access, File, Files, write_all_at};
use super::journal::{self, FIRST_RECORD, JournalHeader, Predecessor};
use super::lock::{SessionLock, StoreLock};
use super::random::Random;
use super::record::{self, RecordWriter, encode_continued};
use super::sealed::shared::SharedPrefix;
use super::tree;
use super::writer::{NewJournal, Writer, WriterParts};
use crate::backend::{BackendError, BatchMark, ErrorKind};
use crate::event::{Batch, SessionHeader, SessionId};

/// Epoch of a session's first writer.
const FIRST_EPOCH: u64 = 1;

/// What a builder needs to know of its store.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    pub(crate) files: Arc<dyn Files>,
    /// The directory of all sessions.
    pub(crate) sessions: PathBuf,
    pub(crate) store_lock: PathBuf,
    pub(crate) random: Arc<Random>,
    pub(crate) rotate_at: u64,
    pub(crate) compress: bool,
}

/// A session under construction, invisible to everyone.
pub(crate) struct Builder {
    site: Site,
    directory: SessionDirectory,
    lock: SessionLock,
    records: RecordWriter,
    journal: NewJournal,
    path: PathBuf,
    next_seq: u64,
    mark: Option<BatchMark>,
    /// Files beside the journal, written and not synced yet: syncing all at the end lets the file system do it as one.
    written: Vec<Box<dyn File>>,
}

/// A session that could not be given its name.
pub(crate) struct Unpublished {
    pub(crate) error: BackendError,
    /// The session when it is visible although it does not count, and could not be taken back.
    pub(crate) stuck: Option<Box<Writer>>,
}

impl Builder {
    /// Begins a session, perhaps behind segments of another. The temporary directory has its lock from the start, so that nobody takes it for abandoned.
    ///
    /// # Errors
    /// I/O; nothing is left behind that a later writer would not clear.
    pub(crate) fn begin(
        site: &Site,
        id: &SessionId,
        header: &SessionHeader,
        prefix: Option<&SharedPrefix>,
    ) -> Result<Self, BackendError> {
        let number = site.random.number().map_err(|error| BackendError::io("naming", &site.sessions, error))?;
        let path = site.sessions.join(format!("{TEMPORARY}{number:016x}"));
        let directory = SessionDirectory { files: Arc::clone(&site.files), path, id: Some(id.clone()) };
        let built = Self::fill(site, &directory, header, prefix);
        if built.is_err() {
            discard(&directory);
        }
        built
    }

    fn fill(
        site: &Site,
        directory: &SessionDirectory,
        header: &SessionHeader,
        prefix: Option<&SharedPrefix>,
    ) -> Result<Self, BackendError> {
        let failed = |error| directory.io("starting a session", &directory.path, error);
        let store = StoreLock::take(&*site.files, &site.store_lock)?;
        site.files.create_directory(&directory.path).map_err(failed)?;
        let lock = SessionLock::take(directory)?;
        drop(store);
        let header_path = directory.file(HEADER_FILE);
        let file = site.files.open(&header_path, Access::CreateNew).map_err(failed)?;
        write_all_at(&*file, &encode_header(header), 0).map_err(failed)?;
        let mut written = vec![file];
        if let Some(prefix) = prefix
            && !prefix.place(directory, &mut written).map_err(failed)?
        {
            return Err(
                directory.error(ErrorKind::Io, "segments were replaced while they were to be shared; try again")
            );
        }
        let next_seq = prefix.map_or(0, |prefix| prefix.next_seq);
        let before = prefix.and_then(|prefix| prefix.last_journal);
        let (journal, path) = start_journal(directory, &site.random, next_seq, before).map_err(failed)?;
        Ok(Self {
            site: site.clone(),
            directory: directory.clone(),
            lock,
            records: RecordWriter::new(site.compress),
            journal,
            path,
            next_seq,
            mark: None,
            written,
        })
    }

    /// Adds the next events. Nothing is durable before [`Builder::publish`].
    ///
    /// # Errors
    /// `Invalid`, I/O: the builder is of no use any more; call [`Builder::abandon`].
    pub(crate) fn add(&mut self, batch: &Batch) -> Result<(), BackendError> {
        let mut encoded = self.records.encode(batch, self.journal.header.salt, self.journal.end)?;
        let grown = self.journal.end.saturating_add(encoded.bytes.len() as u64);
        if grown > self.site.rotate_at && self.journal.end > FIRST_RECORD {
            self.rotate()?;
            encoded = self.records.encode(batch, self.journal.header.salt, self.journal.end)?;
        }
        let journal = &mut self.journal;
        write_all_at(&*journal.file, &encoded.bytes, journal.end)
            .map_err(|error| self.directory.io("writing a new session's journal", &self.path, error))?;
        let last = encoded.bytes.get(encoded.last_header..).and_then(|rest| rest.get(..record::HEADER_BYTES));
        journal.tail = last.map(|last| (journal.end + encoded.last_header as u64, last.to_vec()));
        journal.end = journal.end.saturating_add(encoded.bytes.len() as u64);
        self.next_seq = batch.next_seq();
        self.mark = Some(encoded.mark);
        Ok(())
    }

    fn rotate(&mut self) -> Result<(), BackendError> {
        let old = &self.journal;
        let continued = encode_continued(self.next_seq, old.header.salt, old.end)?;
        let failed = |error| self.directory.io("rotating a new session's journal", &self.path, error);
        write_all_at(&*old.file, &continued, old.end).and_then(|()| old.file.sync_all()).map_err(failed)?;
        let before = Predecessor { first_seq: old.header.first_seq, salt: old.header.salt, end: old.end };
        let (journal, path) =
            start_journal(&self.directory, &self.site.random, self.next_seq, Some(before)).map_err(failed)?;
        (self.journal, self.path) = (journal, path);
        Ok(())
    }

    /// Seq behind the last event added.
    pub(crate) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Removes what was built.
    pub(crate) fn abandon(self) {
        discard(&self.directory);
    }

    /// Makes everything durable and gives the session its name, if nothing has that name. The caller is its writer.
    ///
    /// # Errors
    /// `Exists`; I/O. Nothing is visible afterwards, unless [`Unpublished::stuck`] says so.
    pub(crate) fn publish(self, target: &Path) -> Result<Writer, Unpublished> {
        let plain = |directory: &SessionDirectory, error| {
            discard(directory);
            Err(Unpublished { error, stuck: None })
        };
        let directory = &self.directory;
        let beside = self.written.iter().try_for_each(|file| file.sync_all());
        let synced = beside
            .and_then(|()| self.journal.file.sync_all())
            .and_then(|()| self.site.files.sync_directory(&directory.path));
        if let Err(error) = synced {
            return plain(directory, directory.io("syncing a new session", &directory.path, error));
        }
        // A directory with entries is never replaced by a rename; one without is not a session but not ours to remove either.
        let taken = self.site.files.stat(target).is_ok();
        let renamed = if taken {
            Err(io::ErrorKind::AlreadyExists.into())
        } else {
            self.site.files.rename(&directory.path, target)
        };
        if let Err(error) = renamed {
            let still_here = self.site.files.stat(&directory.path).is_ok();
            if still_here {
                let occupied = matches!(
                    error.kind(),
                    io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory
                );
                let id = directory.id.as_ref();
                let error = match id.filter(|_| occupied) {
                    Some(id) => BackendError::exists(id).with_file(target),
                    None => directory.io("giving a new session its name", target, error),
                };
                return plain(directory, error);
            }
        }
        let failure = self.site.files.sync_directory(&self.site.sessions).err();
        let temporary = self.directory.path.clone();
        let Self { site, mut directory, mut lock, records, journal, next_seq, mark, .. } = self;
        target.clone_into(&mut directory.path);
        lock.moved_to(target);
        let parts = WriterParts { directory, lock, random: site.random, rotate_at: site.rotate_at, records };
        let writer = Writer::of_new_session(parts, journal, next_seq, mark);
        let Some(error) = failure else { return Ok(writer) };
        let error = writer.directory.io("making a new session's name durable", target, error);
        if take_back(&*site.files, target, &temporary) {
            return Err(Unpublished { error, stuck: None });
        }
        Err(Unpublished { error, stuck: Some(Box::new(writer)) })
    }
}

/// Makes a session invisible that its creator was told does not exist. The caller holds its lock.
pub(crate) fn take_back(files: &dyn Files, visible: &Path, temporary: &Path) -> bool {
    if files.rename(visible, temporary).is_err() {
        return false;
    }
    // Until the old name is gone for good, a loss of power may bring it back, and it must not come back without its files.
    let gone = visible.parent().map_or(Ok(()), |parent| files.sync_directory(parent));
    if let Err(error) = gone.and_then(|()| tree::remove(files, temporary)) {
        tracing::debug!(path = %temporary.display(), %error, "a temporary directory remains");
    }
    true
}

fn discard(directory: &SessionDirectory) {
    match tree::remove(&*directory.files, &directory.path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::debug!(path = %directory.path.display(), %error, "a temporary directory remains");
        }
        _ => {}
    }
}

fn start_journal(
    directory: &SessionDirectory,
    random: &Random,
    first_seq: u64,
    predecessor: Option<Predecessor>,
) -> io::Result<(NewJournal, PathBuf)> {
    let session = identity(directory.id.as_ref());
    let header = JournalHeader { salt: random.number()?, session, first_seq, epoch: FIRST_EPOCH, predecessor };
    let path = directory.file(&journal::file_name(first_seq));
    let file: Box<dyn File> = directory.files.open(&path, Access::CreateNew)?;
    write_all_at(&*file, &header.encode(), 0)?;
    let identity = file.stat()?.identity;
    Ok((NewJournal { file, identity, header, end: FIRST_RECORD, tail: None }, path))
}
