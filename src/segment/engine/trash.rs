//! The trash: sessions that were removed and can come back.
//!
//! A session goes there and comes back by one rename within the directory of all sessions, which every file system makes
//! durable as one change: after a crash at any moment it stands under one of its two names, whole.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::Engine;
use crate::backend::{BackendError, ErrorKind};
use crate::event::{SessionHeader, SessionId};
use crate::segment::directory::{SessionDirectory, parse_trashed, trashed_name};
use crate::segment::files::{FileKind, Stat};
use crate::segment::key;
use crate::segment::lock::SessionLock;
use crate::segment::tree;

/// How many names are tried for sessions of one id that are put into the trash within one millisecond.
const NAMES: u64 = 1000;

/// A session in the trash. An id may be there several times, each time it was removed.
#[derive(Debug)]
pub struct Trashed {
    /// The id, or the directory's key where it cannot be told.
    pub name: String,
    /// When it was put there, in epoch milliseconds.
    pub time: i64,
    /// The session's header, or what is wrong with it.
    pub header: Result<SessionHeader, BackendError>,
    /// Its directory.
    pub path: PathBuf,
    key: String,
}

impl Engine {
    /// Puts a session into the trash: it is gone from listings and its id is free, and its files stay where
    /// [`Engine::trashed`] finds them. When it returns, that is durable; after a crash before, the session is in its place or in
    /// the trash, whole. Frees no space.
    ///
    /// # Errors
    /// As [`Engine::delete`]; the session is where it was then. `Busy`, too, when a session of this id is live in this process that
    /// has written nothing yet.
    pub fn trash(&self, id: &SessionId) -> Result<Trashed, BackendError> {
        let _kept = self.0.keepers.keep(id)?;
        let (directory, lock) = self.claim(id)?;
        // Read before: afterwards nothing may fail.
        let header = directory.read_header();
        let site = &self.0.site;
        let key = key::key(id);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_millis()).unwrap_or_default();
        let mut places =
            (now..now.saturating_add(NAMES)).map(|time| (time, site.sessions.join(trashed_name(&key, time))));
        let Some((time, path)) = places.find(|(_, path)| site.files.stat(path).is_err()) else {
            return Err(
                directory.error(ErrorKind::Exists, "the trash holds the id too often for this moment; try again")
            );
        };
        self.rename_durably(&directory, &directory.path, &path)?;
        self.forget(&directory);
        drop(lock);
        let name = id.as_str().to_owned();
        Ok(Trashed { name, time: time.cast_signed(), header, path, key })
    }

    /// What is in the trash, by id and then by time. Reads one header a session and no journal.
    ///
    /// # Errors
    /// I/O on the directory as a whole.
    pub fn trashed(&self) -> Result<Vec<Trashed>, BackendError> {
        let sessions = &self.0.site.sessions;
        let names = match self.0.site.files.read_directory(sessions) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(BackendError::io("listing the trash", sessions, error)),
        };
        let mut found: Vec<Trashed> = names.iter().filter_map(|name| self.trashed_at(&sessions.join(name))).collect();
        found.sort_by(|one, other| (&one.name, one.time).cmp(&(&other.name, other.time)));
        Ok(found)
    }

    /// Brings a session back from the trash, as it was. Durable when it returns.
    ///
    /// # Errors
    /// `Exists` when there is a session of that id again; `Busy` when one is live in this process, also one that has written nothing
    /// yet; `NotFound` when it is not in the trash any more; I/O, and then it is still
    /// in the trash.
    pub fn restore(&self, trashed: &Trashed) -> Result<(), BackendError> {
        let site = &self.0.site;
        let directory = self.trashed_directory(trashed);
        let target = site.sessions.join(&trashed.key);
        let exists = || {
            let detail =
                "there is a session of this id again; move that one away first, or leave this one in the trash";
            let mut error = directory.error(ErrorKind::Exists, detail);
            error.file = Some(target.clone());
            error
        };
        // A directory without entries would be replaced; it is not ours to remove.
        match site.files.stat(&target) {
            Ok(_) => return Err(exists()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(directory.io("looking at the place of", &target, error)),
        }
        directory.check()?;
        self.make_store()?;
        // A session of this id may be live that has written nothing yet: its first write would find the place taken.
        let _kept = directory.id.as_ref().map(|id| self.0.keepers.keep(id)).transpose()?;
        self.rename_durably(&directory, &trashed.path, &target).map_err(|error| {
            let occupied = site.files.stat(&trashed.path).is_ok() && site.files.stat(&target).is_ok();
            if occupied { exists() } else { error }
        })
    }

    /// Removes a session in the trash for good. What it frees are the files of which all [`Stat::links`] go with it.
    ///
    /// # Errors
    /// `NotFound` when it is not there any more; `Busy` while another process removes it; I/O.
    pub fn discard(&self, trashed: &Trashed) -> Result<(), BackendError> {
        let directory = self.trashed_directory(trashed);
        directory.check()?;
        self.make_store()?;
        let lock = SessionLock::take(&directory)?;
        self.erase(&directory, lock)
    }

    /// Facts about every file of a session in the trash; see [`Engine::stored_files`].
    ///
    /// # Errors
    /// `NotFound`, I/O.
    pub fn trashed_files(&self, trashed: &Trashed) -> Result<Vec<Stat>, BackendError> {
        let directory = self.trashed_directory(trashed);
        directory.check()?;
        tree::files(&*self.0.site.files, &directory.path)
            .map_err(|error| directory.io("looking at a session in the trash", &directory.path, error))
    }

    /// Renames a session's directory within the directory of all sessions. When that cannot be made durable it is taken back.
    fn rename_durably(&self, directory: &SessionDirectory, from: &Path, to: &Path) -> Result<(), BackendError> {
        let site = &self.0.site;
        let failed = |error: io::Error| {
            if error.kind() == io::ErrorKind::NotFound {
                return directory.not_found();
            }
            directory.io("moving the session", from, error)
        };
        site.files.rename(from, to).map_err(failed)?;
        site.files.sync_directory(&site.sessions).map_err(|error| {
            // If this fails too, the session is whole under one of the names, and a later look finds it there.
            let _ = site.files.rename(to, from).and_then(|()| site.files.sync_directory(&site.sessions));
            failed(error)
        })
    }

    /// The session in the trash whose directory this is; `None` for anything else.
    fn trashed_at(&self, path: &Path) -> Option<Trashed> {
        let (time, key) = parse_trashed(path.file_name()?.to_str()?)?;
        let files = Arc::clone(&self.0.site.files);
        if files.stat(path).ok()?.kind != FileKind::Directory {
            return None;
        }
        let id = key::decode(key);
        let directory = SessionDirectory { files, path: path.to_owned(), id: id.clone() };
        let header = directory.read_header();
        let name = match (&header, id) {
            (Ok(header), _) => header.id.clone(),
            (Err(_), Some(id)) => id.as_str().to_owned(),
            (Err(_), None) => key.to_owned(),
        };
        Some(Trashed { name, time: time.cast_signed(), header, path: path.to_owned(), key: key.to_owned() })
    }

    fn trashed_directory(&self, trashed: &Trashed) -> SessionDirectory {
        let id = SessionId::new(&trashed.name).ok();
        SessionDirectory { files: Arc::clone(&self.0.site.files), path: trashed.path.clone(), id }
    }
}
