//! Removing sessions for good, and what that frees.

use std::io;

use super::{Engine, locked};
use crate::backend::{BackendError, DamageClass, ErrorKind, Revision};
use crate::event::SessionId;
use crate::segment::directory::{SessionDirectory, TEMPORARY};
use crate::segment::files::Stat;
use crate::segment::lock::SessionLock;
use crate::segment::tree;

impl Engine {
    /// Removes a session for good: it disappears at once, then its files go. Files that it shares with a fork last as long as
    /// that. [`Engine::trash`] removes it so that it can come back.
    ///
    /// # Errors
    /// `NotFound`; `Busy` beside a writer, also this process's own; identity mismatch, because the files are another
    /// session's; I/O.
    pub fn delete(&self, id: &SessionId) -> Result<(), BackendError> {
        let (directory, lock) = self.claim(id)?;
        self.erase(&directory, lock)
    }

    /// As [`Engine::delete`], if the log still is as it was when it had this revision.
    ///
    /// # Errors
    /// As [`Engine::delete`] and [`Engine::revision`]; `Busy` when it has changed since, and then nothing is removed.
    pub fn delete_unchanged(&self, id: &SessionId, revision: &Revision) -> Result<(), BackendError> {
        let (directory, lock) = self.claim(id)?;
        if self.revision(id)? != *revision {
            let detail = "the session was written to since it was looked at; nothing was removed, look again";
            return Err(BackendError::new(ErrorKind::Busy, detail).with_session(id));
        }
        self.erase(&directory, lock)
    }

    /// Facts about every file of a session. What removing the session for good frees are the files of which all
    /// [`Stat::links`] go with it: segments that forks share have more.
    ///
    /// # Errors
    /// `NotFound`, I/O.
    pub fn stored_files(&self, id: &SessionId) -> Result<Vec<Stat>, BackendError> {
        let directory = self.directory(id);
        directory.check()?;
        tree::files(&*self.0.site.files, &directory.path)
            .map_err(|error| directory.io("looking at the session's files", &directory.path, error))
    }

    /// Takes the lock of a session that is to go. One whose header cannot be read may go; one that is another's may not.
    pub(super) fn claim(&self, id: &SessionId) -> Result<(SessionDirectory, SessionLock), BackendError> {
        let directory = self.directory(id);
        if let Err(error) = directory.check() {
            return Err(self.gone_durably(&directory, error));
        }
        if let Err(error) = directory.read_header() {
            let class = error.damage.as_ref().map(|damage| damage.class);
            if class == Some(DamageClass::IdentityMismatch) {
                return Err(error);
            }
        }
        self.make_store()?;
        self.give_way(id);
        let lock = SessionLock::take(&directory)?;
        Ok((directory, lock))
    }

    /// An earlier attempt may have made a session disappear and failed to make that durable: whoever hears that it is not there
    /// must not find it again after a loss of power.
    fn gone_durably(&self, directory: &SessionDirectory, error: BackendError) -> BackendError {
        if error.kind != ErrorKind::NotFound {
            return error;
        }
        match self.0.site.files.sync_directory(&self.0.site.sessions) {
            Err(failure) if failure.kind() != io::ErrorKind::NotFound => {
                directory.io("deleting the session", &directory.path, failure)
            }
            _ => error,
        }
    }

    /// Makes a directory invisible and removes it. Its lock is held, so that nobody takes what is half removed for abandoned.
    pub(super) fn erase(&self, directory: &SessionDirectory, lock: SessionLock) -> Result<(), BackendError> {
        let site = &self.0.site;
        let failed = |error| directory.io("deleting the session", &directory.path, error);
        let number = site.random.number().map_err(failed)?;
        let temporary = site.sessions.join(format!("{TEMPORARY}{number:016x}"));
        site.files.rename(&directory.path, &temporary).map_err(failed)?;
        self.forget(directory);
        site.files.sync_directory(&site.sessions).map_err(failed)?;
        tree::remove(&*site.files, &temporary).map_err(failed)?;
        drop(lock);
        site.files.sync_directory(&site.sessions).map_err(failed)
    }

    /// Forgets what is kept of the session that was in this directory.
    pub(super) fn forget(&self, directory: &SessionDirectory) {
        let path = &directory.path;
        locked(&self.0.writers).retain(|id, _| self.locate(id) != *path);
        locked(&self.0.readers).retain(|(id, _)| self.locate(id) != *path);
        if let (Some(sealer), Some(id)) = (&self.0.sealer, &directory.id)
            && self.locate(id) == *path
        {
            sealer.settle(id);
        }
    }
}
