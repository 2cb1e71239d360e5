//! Removing whole directories and what an interrupted writer left.

use std::io;
use std::path::{Path, PathBuf};

use super::directory::{SessionDirectory, TEMPORARY, TORN_DIRECTORY};
use super::files::{FileKind, Files, Stat};
use super::lock::{self, StoreLock};

/// Removes a directory with everything in it. Follows no link and uses no stack, however deep. What somebody else removes meanwhile
/// is gone, as it should be.
pub(crate) fn remove(files: &dyn Files, top: &Path) -> io::Result<()> {
    let mut pending: Vec<(PathBuf, bool)> = vec![(top.to_owned(), false)];
    while let Some((path, emptied)) = pending.pop() {
        if emptied {
            unless_gone(files.remove_directory(&path))?;
            continue;
        }
        let names = match files.read_directory(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && path != top => continue,
            names => names?,
        };
        pending.push((path.clone(), true));
        for name in names {
            let entry = path.join(name);
            match unless_gone(files.stat(&entry))? {
                Some(stat) if stat.kind == FileKind::Directory => pending.push((entry, false)),
                Some(_) => {
                    unless_gone(files.remove_file(&entry))?;
                }
                None => {}
            }
        }
    }
    Ok(())
}

fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// Facts about every regular file below a directory. Follows no link and uses no stack; what disappears meanwhile is passed over.
pub(crate) fn files(files: &dyn Files, path: &Path) -> io::Result<Vec<Stat>> {
    let mut found = Vec::new();
    let mut pending = vec![path.to_owned()];
    while let Some(directory) = pending.pop() {
        let names = match files.read_directory(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && directory != path => continue,
            names => names?,
        };
        for name in names {
            let entry = directory.join(name);
            match files.stat(&entry) {
                Ok(stat) if stat.kind == FileKind::Directory => pending.push(entry),
                Ok(stat) if stat.kind == FileKind::File => found.push(stat),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(found)
}

/// Removes what writers of a session left under temporary names. The caller holds the session's lock, so they are gone.
pub(crate) fn clear_session(directory: &SessionDirectory) {
    for place in [directory.path.clone(), directory.file(TORN_DIRECTORY)] {
        // A link in its place may lead anywhere.
        if !directory.files.stat(&place).is_ok_and(|stat| stat.kind == FileKind::Directory) {
            continue;
        }
        let names = directory.files.read_directory(&place).unwrap_or_default();
        for name in names.iter().filter(|name| name.starts_with(TEMPORARY)) {
            let path = place.join(name);
            if let Err(error) = directory.files.remove_file(&path) {
                tracing::debug!(path = %path.display(), %error, "a temporary file remains");
            }
        }
    }
}

/// Removes directories that writers began or moved away and did not finish with, if nobody holds their lock. Looks at every name
/// in the store, and takes the store's lock only when it finds one that is not a session's: under it a directory gets its own lock.
pub(crate) fn clear_store(files: &dyn Files, sessions: &Path, store_lock: &Path) {
    let mut names = files.read_directory(sessions).unwrap_or_default();
    names.retain(|name| name.starts_with(TEMPORARY));
    // A name that was a session's before may come back as long as it is not gone for good; its files stay that long.
    if names.is_empty() || files.sync_directory(sessions).is_err() {
        return;
    }
    for name in &names {
        let path = sessions.join(name);
        let Ok(lock) = StoreLock::take(files, store_lock) else { return };
        let is_directory = files.stat(&path).is_ok_and(|stat| stat.kind == FileKind::Directory);
        let abandoned = is_directory && lock::is_abandoned(files, &path);
        drop(lock);
        if abandoned && let Err(error) = remove(files, &path) {
            tracing::debug!(path = %path.display(), %error, "a temporary directory remains");
        }
    }
}
