//! Taking a session over after whatever happened to its last writer.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::directory::{SessionDirectory, TEMPORARY, TORN_DIRECTORY};
use super::files::{Access, File, FileKind, read_full_at, write_all_at};
use super::journal;
use super::lock::SessionLock;
use super::log::{self, LogEnd, Newest};
use super::random::Random;
use super::record::RecordWriter;
use super::tree;
use super::writer::{Writer, WriterParts};
use crate::backend::{BackendError, DamageClass, TornTail};

/// How much of a torn tail is copied at a time, in bytes.
const COPY_BYTES: usize = 1 << 20;

/// Locks the session, finds the log's end, sets a torn tail aside and starts a new journal under the next epoch.
///
/// # Errors
/// `NotFound`, `Busy`, damage (then nothing was changed), I/O.
pub(crate) fn take_over(
    directory: SessionDirectory,
    random: Arc<Random>,
    rotate_at: u64,
    compress: bool,
) -> Result<(Writer, Option<TornTail>), BackendError> {
    directory.check()?;
    directory.read_header()?;
    let lock = SessionLock::take(&directory)?;
    // Read again under the lock: the session may have been replaced by another of the same id.
    directory.read_header()?;
    let log = log::scan(&directory)?;
    tree::clear_session(&directory);
    clear_leftovers(&directory, &log);
    let torn = match &log.torn {
        Some(torn) => Some(set_aside(&directory, &random, &log, torn)?),
        None => None,
    };
    if let Some(newest) = &log.newest {
        confirm(&directory, newest)?;
    }
    let parts = WriterParts { directory, lock, random, rotate_at, records: RecordWriter::new(compress) };
    Ok((Writer::start(parts, &log)?, torn))
}

/// Removes files whose content is sealed elsewhere. Failing to is no failure: readers pass over them.
pub(crate) fn clear_leftovers(directory: &SessionDirectory, log: &LogEnd) {
    if log.leftovers.is_empty() {
        return;
    }
    // Whoever gave the segment its name may have been stopped before that was durable.
    let cleared = directory.files.sync_directory(&directory.path).and_then(|()| {
        log.leftovers.iter().try_for_each(|path| match directory.files.remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        })
    });
    if let Err(error) = cleared {
        tracing::debug!(path = %directory.path.display(), %error, "files that were sealed remain");
    }
}

/// Makes the last append durable, whatever became of its writer. If its sync failed, the system may show bytes that are not on
/// disk and hold them for clean; writing them once more makes it write them. Everything before was durable when it was written.
fn confirm(directory: &SessionDirectory, newest: &Newest) -> Result<(), BackendError> {
    let path = directory.file(&journal::file_name(newest.header.first_seq));
    let rewrite = || -> io::Result<()> {
        let file = open_same(directory, &path, newest)?;
        let mut buffer = Vec::new();
        let mut at = newest.last_append;
        while at < newest.end {
            let wanted = usize::try_from(newest.end - at).unwrap_or(COPY_BYTES).min(COPY_BYTES);
            buffer.resize(wanted, 0);
            if read_full_at(&*file, &mut buffer, at)? < wanted {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            write_all_at(&*file, &buffer, at)?;
            at = at.saturating_add(wanted as u64);
        }
        file.sync_all()
    };
    rewrite().map_err(|error| directory.io("confirming the end of the log", &path, error))
}

/// Opens the newest journal for writing, if it is still the file that was scanned.
fn open_same(directory: &SessionDirectory, path: &Path, newest: &Newest) -> io::Result<Box<dyn File>> {
    let file = directory.files.open(path, Access::Write)?;
    if file.stat()?.identity != newest.identity {
        return Err(io::Error::other("the journal was replaced since it was scanned"));
    }
    Ok(file)
}

/// Copies a torn tail to `torn/`, durably, and only then cuts it.
pub(crate) fn set_aside(
    directory: &SessionDirectory,
    random: &Random,
    log: &LogEnd,
    torn: &TornTail,
) -> Result<TornTail, BackendError> {
    let Some(source) = &torn.file else { return Ok(torn.clone()) };
    let place = directory.file(TORN_DIRECTORY);
    let failed = |error| directory.io("setting the torn end of the log aside", &place, error);
    match directory.files.create_directory(&place) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if directory.files.stat(&place).map_err(failed)?.kind != FileKind::Directory {
                let detail = "this should be the directory that keeps cut bytes; move it away";
                return Err(directory.damage(DamageClass::WrongFileType, &place, None, log.next_seq, detail));
            }
        }
        result => result.map_err(failed)?,
    }
    directory.files.sync_directory(&directory.path).map_err(failed)?;
    let number = random.number().map_err(failed)?;
    let name = source.file_name().and_then(|name| name.to_str()).unwrap_or("journal");
    let kept = place.join(format!("{name}.{}.{number:016x}", torn.offset));
    let temporary = place.join(format!("{TEMPORARY}{number:016x}"));
    let copy = || -> io::Result<()> {
        let journal = directory.files.open(source, Access::Read)?;
        let target = directory.files.open(&temporary, Access::CreateNew)?;
        let mut buffer = vec![0; COPY_BYTES];
        let mut copied = 0_u64;
        loop {
            let filled = read_full_at(&*journal, &mut buffer, torn.offset.saturating_add(copied))?;
            let Some(piece) = buffer.get(..filled).filter(|piece| !piece.is_empty()) else { break };
            write_all_at(&*target, piece, copied)?;
            copied = copied.saturating_add(filled as u64);
        }
        target.sync_all()?;
        directory.files.rename(&temporary, &kept)?;
        directory.files.sync_directory(&place)
    };
    copy().map_err(failed)?;
    // A journal without a whole header is replaced as a whole by the next one.
    if let Some(newest) = log.newest.filter(|newest| newest.end == torn.offset) {
        let cut = || -> io::Result<()> {
            let journal = open_same(directory, source, &newest)?;
            journal.truncate(torn.offset)?;
            journal.sync_all()
        };
        cut().map_err(|error| directory.io("cutting the torn end of the log", source, error))?;
    }
    Ok(TornTail { kept: Some(kept), ..torn.clone() })
}
