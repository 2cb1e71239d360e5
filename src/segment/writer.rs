//! The writer of one session: appends, and what it does when that fails.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directory::{SessionDirectory, TEMPORARY, identity};
use super::files::{Access, File, Identity, read_full_at, write_all_at};
use super::journal::{self, FIRST_RECORD, JournalHeader, Predecessor};
use super::lock::SessionLock;
use super::log::LogEnd;
use super::random::Random;
use super::record::{self, Encoded, RecordWriter, encode_continued};
use crate::backend::{BackendError, BatchMark, ErrorKind};
use crate::event::Batch;

/// A journal open for appending.
#[derive(Debug)]
struct Active {
    file: Box<dyn File>,
    path: PathBuf,
    identity: Identity,
    header: JournalHeader,
    /// Behind the last record that is durable: where the next one goes.
    end: u64,
    /// The last record's header and where it stands: the end as this writer left it.
    tail: Option<(u64, Vec<u8>)>,
    /// Set when the bytes behind `end`, or whether the disk has those before it as they were, cannot be told. The file is not
    /// written any more; the log goes on in another one.
    doubtful: bool,
}

impl Active {
    fn predecessor(&self) -> Option<Predecessor> {
        // A journal without records is replaced by its successor, which starts at the same seq and so has the same name.
        if self.end <= FIRST_RECORD {
            return self.header.predecessor;
        }
        Some(Predecessor { first_seq: self.header.first_seq, salt: self.header.salt, end: self.end })
    }
}

/// The one writer of a session, from taking it over until it is dropped.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) directory: SessionDirectory,
    /// Shared with the sealing of journals that this writer is done with.
    pub(crate) lock: Arc<SessionLock>,
    random: Arc<Random>,
    rotate_at: u64,
    records: RecordWriter,
    pub(crate) epoch: u64,
    pub(crate) next_seq: u64,
    pub(crate) last_batch: Option<BatchMark>,
    active: Active,
    /// Journals this writer gave a name that may not be durable; the next journal takes their place.
    unconfirmed: Vec<Identity>,
    lost: bool,
}

/// What a new writer is made of.
pub(crate) struct WriterParts {
    pub(crate) directory: SessionDirectory,
    pub(crate) lock: SessionLock,
    pub(crate) random: Arc<Random>,
    pub(crate) rotate_at: u64,
    pub(crate) records: RecordWriter,
}

/// A journal under its temporary name, complete and durable, not yet part of the log.
struct Draft {
    active: Active,
    temporary: PathBuf,
    mark: Option<BatchMark>,
}

impl Writer {
    /// Starts a new journal behind `log`'s end, under the next epoch. The caller holds the lock and has cut a torn tail.
    ///
    /// # Errors
    /// I/O; the log is as it was, apart from a journal without records that the next writer replaces.
    pub(crate) fn start(parts: WriterParts, log: &LogEnd) -> Result<Self, BackendError> {
        let WriterParts { directory, lock, random, rotate_at, mut records } = parts;
        let epoch = log.epoch().saturating_add(1);
        let draft = draft(&directory, &random, &mut records, (log.next_seq, epoch, log.predecessor()), None)?;
        let target = directory.file(&journal::file_name(log.next_seq));
        let active = publish(&directory, draft, &target).map_err(|failure| failure.error)?;
        let writer = Self {
            directory,
            lock: Arc::new(lock),
            random,
            rotate_at,
            records,
            epoch,
            next_seq: log.next_seq,
            last_batch: log.last_batch,
            active,
            unconfirmed: Vec::new(),
            lost: false,
        };
        if let Some(newest) = log.newest.filter(|newest| newest.end > FIRST_RECORD) {
            let path = writer.directory.file(&journal::file_name(newest.header.first_seq));
            match writer.directory.files.open(&path, Access::Write) {
                Ok(file) => writer.leave_continuation(&*file, &path, newest.header.salt, newest.end),
                Err(error) => tracing::debug!(path = %path.display(), %error, "no continuation record"),
            }
        }
        Ok(writer)
    }

    /// Goes on in the journal of a session that was just created.
    pub(crate) fn of_new_session(parts: WriterParts, tail: NewJournal, next_seq: u64, mark: Option<BatchMark>) -> Self {
        let WriterParts { directory, lock, random, rotate_at, records } = parts;
        let path = directory.file(&journal::file_name(tail.header.first_seq));
        let active = Active {
            file: tail.file,
            path,
            identity: tail.identity,
            header: tail.header,
            end: tail.end,
            tail: tail.tail,
            doubtful: false,
        };
        Self {
            directory,
            lock: Arc::new(lock),
            random,
            rotate_at,
            records,
            epoch: tail.header.epoch,
            next_seq,
            last_batch: mark,
            active,
            unconfirmed: Vec::new(),
            lost: false,
        }
    }

    /// The parts of a revision token: the newest journal's first seq, salt and length.
    pub(crate) fn position(&self) -> (u64, u64, u64) {
        (self.active.header.first_seq, self.active.header.salt, self.active.end)
    }

    /// Whether the session was found to be another's.
    pub(crate) fn has_lost(&self) -> bool {
        self.lost
    }

    /// Appends a batch that starts at the log's end. On `Ok` it is durable; on an error nothing of it counts, and the same batch
    /// may be tried again.
    ///
    /// # Errors
    /// `LostOwnership` when the session's files are not as this writer left them (for good); `Invalid`; I/O.
    pub(crate) fn append(&mut self, batch: &Batch) -> Result<(), BackendError> {
        self.check_ownership()?;
        if !self.active.doubtful {
            let encoded = self.records.encode(batch, self.active.header.salt, self.active.end)?;
            let grown = self.active.end.saturating_add(encoded.bytes.len() as u64);
            if grown <= self.rotate_at || self.active.end <= FIRST_RECORD {
                match self.write(&encoded) {
                    Ok(()) => {
                        self.settle(batch, encoded.mark);
                        return Ok(());
                    }
                    // After a failed sync the same bytes go to a new file; after a failed write there is nothing to save.
                    Err(error) if !self.active.doubtful => return Err(error),
                    Err(error) => {
                        tracing::warn!(%error, "the journal is given up; the log goes on in a new one");
                    }
                }
            }
        }
        let result = self.go_on_in_new_journal(batch);
        if result.is_err() && self.active.doubtful {
            // Nothing of the batch counts, so readers should not see it either; whether this works changes nothing.
            let _ = self.active.file.truncate(self.active.end);
        }
        result
    }

    fn settle(&mut self, batch: &Batch, mark: BatchMark) {
        self.next_seq = batch.next_seq();
        self.last_batch = Some(mark);
    }

    /// One write, one sync. After an error either the file is back at its last good end or it is doubtful.
    fn write(&mut self, encoded: &Encoded) -> Result<(), BackendError> {
        let Active { file, path, end, tail, doubtful, .. } = &mut self.active;
        if let Err(error) = write_all_at(&**file, &encoded.bytes, *end) {
            // What was taken is cut before anything else happens, durably: a crash must not bring it back.
            let undone = file.truncate(*end).and_then(|()| file.sync_data());
            let failure = self.directory.io("writing to the journal", path, error);
            *doubtful = undone.is_err();
            return Err(failure);
        }
        if let Err(error) = file.sync_data() {
            let failure = self.directory.io("syncing the journal", path, error);
            *doubtful = true;
            return Err(failure);
        }
        let header = encoded.bytes.get(encoded.last_header..).and_then(|rest| rest.get(..record::HEADER_BYTES));
        *tail = header.map(|header| (*end + encoded.last_header as u64, header.to_vec()));
        *end = end.saturating_add(encoded.bytes.len() as u64);
        Ok(())
    }

    /// Writes the batch to a new journal that says how much of the present one counts.
    fn go_on_in_new_journal(&mut self, batch: &Batch) -> Result<(), BackendError> {
        let before = self.active.predecessor();
        let identity = (self.next_seq, self.epoch, before);
        let draft = draft(&self.directory, &self.random, &mut self.records, identity, Some(batch))?;
        let mark = draft.mark;
        let target = self.directory.file(&journal::file_name(self.next_seq));
        match publish(&self.directory, draft, &target) {
            Ok(active) => {
                let old = std::mem::replace(&mut self.active, active);
                self.unconfirmed.clear();
                if !old.doubtful && old.end > FIRST_RECORD {
                    self.leave_continuation(&*old.file, &old.path, old.header.salt, old.end);
                }
                if let Some(mark) = mark {
                    self.settle(batch, mark);
                }
                Ok(())
            }
            Err(failure) => {
                // Whatever stands under the name now, the next journal takes its place.
                self.unconfirmed.push(failure.identity);
                self.active.doubtful = true;
                Err(failure.error)
            }
        }
    }

    /// Marks the end of a journal whose successor is durable, so that a successor that disappears is missed. The log is whole
    /// without the mark, so failing to leave it is no failure.
    fn leave_continuation(&self, file: &dyn File, path: &Path, salt: u64, end: u64) {
        let leave = || -> io::Result<()> {
            let bytes = encode_continued(self.active.header.first_seq, salt, end).map_err(io::Error::other)?;
            write_all_at(file, &bytes, end)?;
            file.sync_data()
        };
        if let Err(error) = leave() {
            tracing::debug!(path = %path.display(), %error, "no continuation record");
        }
    }

    /// Proves that the log is as this writer left it and nobody else's.
    fn check_ownership(&mut self) -> Result<(), BackendError> {
        let reason = if self.lost { Some("it was lost before") } else { self.intrusion()? };
        let Some(reason) = reason else { return Ok(()) };
        self.lost = true;
        let detail = format!("this writer does not own the session any more: {reason}; reopen the session to go on");
        Err(self.directory.error(ErrorKind::LostOwnership, detail))
    }

    fn intrusion(&self) -> Result<Option<&'static str>, BackendError> {
        let failed =
            |error| self.directory.io("checking that the session is still this writer's", &self.active.path, error);
        let files = &*self.directory.files;
        if !self.lock.is_held(files).map_err(failed)? {
            return Ok(Some("its lock was replaced, or the process is a copy of the one that took it"));
        }
        let active = &self.active;
        // An unconfirmed journal of the same name has taken the place of the present one.
        let stat_of = |path: &Path| match files.stat(path) {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        };
        let stat = stat_of(&active.path)?;
        let known = |found: Identity| found == active.identity || self.unconfirmed.contains(&found);
        if !stat.is_some_and(|stat| known(stat.identity)) {
            return Ok(Some("its journal was replaced or removed"));
        }
        if !active.doubtful {
            if stat.is_none_or(|stat| stat.length != active.end) {
                return Ok(Some("its journal has another length than it was left with"));
            }
            if let Some((offset, tail)) = &active.tail {
                let mut found = vec![0; tail.len()];
                let filled = read_full_at(&*active.file, &mut found, *offset).map_err(failed)?;
                if filled != tail.len() || found != *tail {
                    return Ok(Some("the end of its journal is not what it wrote"));
                }
            }
        }
        let newest = self.directory.layout()?.journals.last().copied();
        if newest == Some(active.header.first_seq) {
            return Ok(None);
        }
        // The one newer journal there may be is this writer's own, published without being confirmed.
        let own = newest == Some(self.next_seq)
            && stat_of(&self.directory.file(&journal::file_name(self.next_seq)))?
                .is_some_and(|stat| self.unconfirmed.contains(&stat.identity));
        Ok(if own { None } else { Some("the session has a journal that this writer did not write") })
    }
}

/// The journal of a session being created.
pub(crate) struct NewJournal {
    pub(crate) file: Box<dyn File>,
    pub(crate) identity: Identity,
    pub(crate) header: JournalHeader,
    pub(crate) end: u64,
    pub(crate) tail: Option<(u64, Vec<u8>)>,
}

/// Writes a journal under a temporary name and makes it durable.
fn draft(
    directory: &SessionDirectory,
    random: &Random,
    records: &mut RecordWriter,
    (first_seq, epoch, predecessor): (u64, u64, Option<Predecessor>),
    batch: Option<&Batch>,
) -> Result<Draft, BackendError> {
    let failed = |path: &Path, error| directory.io("starting a journal", path, error);
    let salt = random.number().map_err(|error| failed(&directory.path, error))?;
    let name = random.number().map_err(|error| failed(&directory.path, error))?;
    let temporary = directory.file(&format!("{TEMPORARY}{name:016x}"));
    let header = JournalHeader { salt, session: identity(directory.id.as_ref()), first_seq, epoch, predecessor };
    let mut bytes = header.encode().to_vec();
    let mut tail = None;
    let mut mark = None;
    if let Some(batch) = batch {
        let encoded = records.encode(batch, salt, FIRST_RECORD)?;
        let last = encoded.bytes.get(encoded.last_header..).and_then(|rest| rest.get(..record::HEADER_BYTES));
        tail = last.map(|last| (FIRST_RECORD + encoded.last_header as u64, last.to_vec()));
        mark = Some(encoded.mark);
        bytes.extend_from_slice(&encoded.bytes);
    }
    let write = || -> io::Result<(Box<dyn File>, Identity)> {
        let file = directory.files.open(&temporary, Access::CreateNew)?;
        write_all_at(&*file, &bytes, 0)?;
        file.sync_all()?;
        let identity = file.stat()?.identity;
        Ok((file, identity))
    };
    match write() {
        Ok((file, identity)) => {
            let end = bytes.len() as u64;
            let path = temporary.clone();
            let active = Active { file, path, identity, header, end, tail, doubtful: false };
            Ok(Draft { active, temporary, mark })
        }
        Err(error) => {
            discard(directory, &temporary);
            Err(failed(&temporary, error))
        }
    }
}

/// A journal that could not be published.
struct Unpublished {
    error: BackendError,
    identity: Identity,
}

/// Gives a draft its name in the log, durably.
fn publish(directory: &SessionDirectory, draft: Draft, target: &Path) -> Result<Active, Unpublished> {
    let Draft { mut active, temporary, .. } = draft;
    let renamed = directory.files.rename(&temporary, target);
    let failure = match renamed.and_then(|()| directory.files.sync_directory(&directory.path)) {
        Ok(()) => {
            target.clone_into(&mut active.path);
            return Ok(active);
        }
        Err(error) => directory.io("giving a journal its name", target, error),
    };
    // Whether the rename took place decides, not what was said about it.
    let there = directory.files.stat(target).is_ok_and(|stat| stat.identity == active.identity);
    if there {
        // Nothing of the batch counts: what readers see of this journal is emptied. The next journal replaces it.
        if let Err(error) = active.file.truncate(FIRST_RECORD).and_then(|()| active.file.sync_data()) {
            tracing::warn!(path = %target.display(), %error, "a batch that was reported as failed may be visible");
        }
    } else {
        discard(directory, &temporary);
    }
    Err(Unpublished { error: failure, identity: active.identity })
}

/// Removes a temporary file of this writer; what remains is cleared by the next one.
fn discard(directory: &SessionDirectory, temporary: &Path) {
    match directory.files.remove_file(temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::debug!(path = %temporary.display(), %error, "a temporary file remains");
        }
        _ => {}
    }
}
