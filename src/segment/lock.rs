//! The writer's lock on a session. The kernel keeps it and releases it with the process; what the file says is for people.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::directory::{LOCK_FILE, SessionDirectory, read_small};
use super::files::{Access, File, Files, Identity, Lock, is_wrong_type, write_all_at};
use crate::backend::{BackendError, Damage, DamageClass, ErrorKind, Holder};
use crate::sync::pause;

/// How often a lock is tried. Readers hold it for a moment to see whether a writer is there.
const ATTEMPTS: u32 = 6;
/// Wait before the second try; each later wait is twice the one before.
const FIRST_WAIT: Duration = Duration::from_millis(1);
/// How often a lock is tried on top of that while its note says that it is held for the moment in which sealing puts a segment in
/// place: somebody who opens a session that was closed a moment ago is not to be refused for it. The lock decides all the same.
const MOMENT_ATTEMPTS: u32 = 250;
const MOMENT_WAIT: Duration = Duration::from_millis(20);
/// Line of a note that says so.
const FOR_A_MOMENT: &str = "for a moment";
/// Longest note that is read.
const MAX_NOTE_BYTES: usize = 4096;

/// The exclusive lock on a session's directory, held until dropped.
#[derive(Debug)]
pub(crate) struct SessionLock {
    file: Box<dyn File>,
    path: PathBuf,
    identity: Identity,
    process: u32,
}

impl SessionLock {
    /// Takes the lock.
    ///
    /// # Errors
    /// `Busy` naming the holder; `NotFound` when the session was deleted meanwhile; I/O.
    pub(crate) fn take(directory: &SessionDirectory) -> Result<Self, BackendError> {
        Self::take_noting(directory, "")
    }

    /// Takes the lock for a few file operations; whoever wants it meanwhile waits.
    ///
    /// # Errors
    /// As [`SessionLock::take`].
    pub(crate) fn take_for_a_moment(directory: &SessionDirectory) -> Result<Self, BackendError> {
        Self::take_noting(directory, FOR_A_MOMENT)
    }

    fn take_noting(directory: &SessionDirectory, purpose: &str) -> Result<Self, BackendError> {
        let path = directory.file(LOCK_FILE);
        let failed = |error| directory.io("opening the session's lock", &path, error);
        let file = open_or_create(&*directory.files, &path).map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound { directory.not_found() } else { failed(error) }
        })?;
        if !patiently(&*file).map_err(failed)? {
            return Err(busy(directory, &*file));
        }
        let identity = file.stat().map_err(failed)?.identity;
        let lock = Self { file, path, identity, process: std::process::id() };
        if !lock.is_held(&*directory.files).map_err(|error| directory.io("checking the lock", &lock.path, error))? {
            // Deleting a session takes its lock along.
            directory.check()?;
            return Err(directory.error(ErrorKind::Busy, "the session's lock was replaced just now; try again"));
        }
        lock.leave_note(purpose);
        Ok(lock)
    }

    /// Whether this process still holds the lock that others would look at.
    pub(crate) fn is_held(&self, files: &dyn Files) -> io::Result<bool> {
        if self.process != std::process::id() {
            return Ok(false);
        }
        match files.stat(&self.path) {
            Ok(stat) => Ok(stat.identity == self.identity),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Follows the directory to its new name.
    pub(crate) fn moved_to(&mut self, directory: &Path) {
        self.path = directory.join(LOCK_FILE);
    }

    /// Tells people who holds the lock. Nothing depends on it, so a full disk does not keep anyone from writing.
    fn leave_note(&self, purpose: &str) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_millis());
        let note = format!("pid {}\nhost {}\nsince {since}\n{purpose}", self.process, host_name());
        let written = self.file.truncate(0).and_then(|()| write_all_at(&*self.file, note.as_bytes(), 0));
        if let Err(error) = written {
            tracing::debug!(path = %self.path.display(), %error, "the lock's note could not be written");
        }
    }
}

fn open_or_create(files: &dyn Files, path: &Path) -> io::Result<Box<dyn File>> {
    match files.open(path, Access::Write) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        result => return result,
    }
    match files.open(path, Access::CreateNew) {
        // Another process was quicker.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => files.open(path, Access::Write),
        result => result,
    }
}

fn patiently(file: &dyn File) -> io::Result<bool> {
    let mut wait = FIRST_WAIT;
    for attempt in 1..=ATTEMPTS {
        if file.try_lock(Lock::Exclusive)? {
            return Ok(true);
        }
        if attempt < ATTEMPTS {
            pause(wait);
            wait *= 2;
        }
    }
    for _ in 0..MOMENT_ATTEMPTS {
        if !note(file).lines().any(|line| line == FOR_A_MOMENT) {
            break;
        }
        pause(MOMENT_WAIT);
        if file.try_lock(Lock::Exclusive)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The refusal that names the holder.
fn busy(directory: &SessionDirectory, file: &dyn File) -> BackendError {
    let holder = noted(file);
    let detail =
        format!("open for writing by {holder}; reading works meanwhile, writing once it has closed the session");
    let mut error = directory.error(ErrorKind::Busy, detail);
    error.file = None;
    error.holder = Some(holder);
    error
}

fn note(file: &dyn File) -> String {
    let note = read_small(file, MAX_NOTE_BYTES).ok().flatten().unwrap_or_default();
    String::from_utf8_lossy(&note).into_owned()
}

fn noted(file: &dyn File) -> Holder {
    parse_note(&note(file))
}

fn parse_note(note: &str) -> Holder {
    let value = |key: &str| note.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    Holder {
        pid: value("pid").and_then(|pid| pid.parse().ok()),
        host: value("host").map(|host| host.chars().filter(|letter| !letter.is_control()).take(255).collect()),
        since: value("since").and_then(|since| since.parse().ok()),
    }
}

/// Whether somebody holds the session's lock.
///
/// # Errors
/// I/O: it cannot be told.
pub(crate) fn is_held(directory: &SessionDirectory) -> io::Result<bool> {
    let had = directory.files.open(&directory.file(LOCK_FILE), Access::Read)?.try_lock(Lock::Shared)?;
    Ok(!had)
}

/// Whether a writer has the session open, as far as can be told.
pub(crate) fn is_live(directory: &SessionDirectory) -> bool {
    is_held(directory).unwrap_or(false)
}

/// Who has the session open for writing, as its note says; `None` when nobody has.
pub(crate) fn holder(directory: &SessionDirectory) -> Option<Holder> {
    let file = directory.files.open(&directory.file(LOCK_FILE), Access::Read).ok()?;
    matches!(file.try_lock(Lock::Shared), Ok(false)).then(|| noted(&*file))
}

/// The store's own lock, held for moments: while the store is made, a session's directory is begun, or remains are cleared.
#[derive(Debug)]
pub(crate) struct StoreLock {
    _file: Box<dyn File>,
}

/// How long to wait for it: it is only ever held for a few file operations.
const STORE_WAIT: Duration = Duration::from_millis(2);
const STORE_ATTEMPTS: u32 = 2500;

impl StoreLock {
    /// Takes the lock, waiting for others to finish.
    ///
    /// # Errors
    /// `Busy` when it cannot be had for seconds; damage when something else stands in its place; I/O.
    pub(crate) fn take(files: &dyn Files, path: &Path) -> Result<Self, BackendError> {
        let failed = |error| {
            if !is_wrong_type(&error) {
                return BackendError::io("locking the store", path, error);
            }
            let damage = Damage { class: DamageClass::WrongFileType, offset: None, intact_before: 0 };
            let detail =
                "something that is not a regular file stands where the store's lock belongs; move it away to write";
            BackendError::new(ErrorKind::Damaged, detail).with_file(path).with_damage(damage)
        };
        let file = open_or_create(files, path).map_err(failed)?;
        for _ in 0..STORE_ATTEMPTS {
            if file.try_lock(Lock::Exclusive).map_err(failed)? {
                return Ok(Self { _file: file });
            }
            pause(STORE_WAIT);
        }
        let detail = "another process has been changing the store for seconds; see whether it hangs";
        Err(BackendError::new(ErrorKind::Busy, detail).with_file(path))
    }
}

/// Whether whoever made a temporary directory is gone: nobody holds the lock in it. The caller holds the store's lock, under
/// which a directory gets its own.
pub(crate) fn is_abandoned(files: &dyn Files, directory: &Path) -> bool {
    match files.open(&directory.join(LOCK_FILE), Access::Write) {
        Ok(file) => matches!(file.try_lock(Lock::Exclusive), Ok(true)),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .or_else(|| std::env::var("HOSTNAME").ok())
        .unwrap_or_else(|| "unknown".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;
    use crate::event::SessionId;
    use crate::segment::files::RealFiles;

    fn directory() -> (tempfile::TempDir, SessionDirectory) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().to_owned();
        (place, SessionDirectory { files: Arc::new(RealFiles), path, id: Some(SessionId::new("s").unwrap()) })
    }

    #[test]
    fn k3_a_lock_that_is_held_for_a_moment_is_waited_for() {
        let (_place, directory) = directory();
        let held = SessionLock::take_for_a_moment(&directory).unwrap();
        let other = directory.clone();
        let waiting = thread::spawn(move || SessionLock::take(&other).map(drop));
        // Far longer than a lock without such a note is tried for.
        thread::sleep(FIRST_WAIT * 2_u32.pow(ATTEMPTS) * 3);
        assert!(!waiting.is_finished());
        drop(held);
        waiting.join().unwrap().unwrap();
    }

    #[test]
    fn k3_a_writers_lock_is_not_waited_for_whatever_was_noted_before() {
        let (_place, directory) = directory();
        drop(SessionLock::take_for_a_moment(&directory).unwrap());
        let _writer = SessionLock::take(&directory).unwrap();
        let refused = SessionLock::take(&directory).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Busy);
        assert_eq!(refused.holder.unwrap().pid, Some(std::process::id()));
        assert!(
            !note(&*directory.files.open(&directory.file(LOCK_FILE), Access::Read).unwrap()).contains(FOR_A_MOMENT)
        );
    }
}
