//! The narrow interface through which the engine touches files, so that every fault the engine promises to survive can be
//! simulated.
//!
//! [`RealFiles`] is the operating system's file system, [`MappedFiles`] the same with memory maps; [`SimulatedFiles`] keeps files in memory, loses what was not synced
//! and fails the calls it is told to fail. The engine never touches a file in any other way.

mod map;
mod real;
mod simulated;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub use map::FileMap;
pub use real::{MappedFiles, RealFiles};
pub use simulated::{Fault, FaultKind, Operation, SimulatedFiles, TellOnPanic};

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// An existing file, for reading.
    Read,
    /// An existing file, for reading and writing.
    Write,
    /// A new file, for reading and writing; an error of kind `AlreadyExists` if the name is taken.
    CreateNew,
}

/// What a directory entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Anything else: a symbolic link, a FIFO, a socket, a device.
    Other,
}

/// Which file a name or handle stands for: equal exactly when it is the same file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

/// Facts about a file, taken without following a symbolic link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: FileKind,
    /// Which file it is.
    pub identity: Identity,
    /// Length in bytes.
    pub length: u64,
    /// How many names the file has; 1 where that cannot be told.
    pub links: u64,
    /// Permission bits.
    pub mode: u32,
    /// When the bytes, the length or a name changed last, in seconds and nanoseconds. Compare for equality only: clocks jump.
    pub changed: (i64, i64),
}

/// An advisory lock's strength.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// Excludes every other lock.
    Exclusive,
    /// Excludes only [`Lock::Exclusive`].
    Shared,
}

/// A file system. Paths are absolute.
///
/// Laws common to all methods: nothing is durable before the matching sync returned `Ok`; no method follows a symbolic link in
/// the last component of a path; a call interrupted by a signal is repeated inside.
pub trait Files: fmt::Debug + Send + Sync + 'static {
    /// Opens a regular file. Never blocks, whatever stands there; anything but a regular file is refused with an error that
    /// [`is_wrong_type`] recognises. A new file has mode 0600 under any umask; its name is durable after
    /// [`Files::sync_directory`].
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn File>>;

    /// Creates a directory of mode 0700 under any umask. Durable after the parent's [`Files::sync_directory`].
    fn create_directory(&self, path: &Path) -> io::Result<()>;

    /// Gives a file or directory another name, atomically. A file replaces a file of that name. A directory never replaces a
    /// directory with entries. Durable after [`Files::sync_directory`]; until then a crash may undo it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Gives a file a second name, which nothing has yet. The file lasts until its last name is removed. Durable after
    /// [`Files::sync_directory`]. A file system without links answers with an error, as this default does; callers copy then.
    fn link(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Removes a name that is not a directory's.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// Names in a directory, in no order. A name that is not UTF-8 comes with replacement characters, so it matches no name
    /// that the engine gives.
    fn read_directory(&self, path: &Path) -> io::Result<Vec<String>>;

    /// Makes the directory's entries durable: names made, renamed and removed. Unlike a file's data, names stay pending after an
    /// error: a later `Ok` covers them.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// Facts about what the name stands for now.
    fn stat(&self, path: &Path) -> io::Result<Stat>;

    /// The time on the clock that dates changes, give or take less than a tenth of a second.
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    /// A handle through which facts about what lies below a directory are had without going its whole path each time. `None`, as this
    /// default gives, where there are none; callers go by [`Files::stat`] then.
    fn open_directory(&self, _path: &Path) -> io::Result<Option<Box<dyn Directory>>> {
        Ok(None)
    }

    /// The user who owns a file or directory, if that is neither this process's nor the system's own. A file system without users
    /// answers `None`, as this default does.
    fn foreign_owner(&self, _path: &Path) -> io::Result<Option<u32>> {
        Ok(None)
    }

    /// The path with every symbolic link resolved.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf>;
}

/// An open directory: this one, whatever its name stands for by now.
pub trait Directory: fmt::Debug + Send + Sync {
    /// Facts about what stands below the directory now. The path is relative and made of plain names; like any other, its last
    /// component alone is sure not to be followed as a link.
    fn stat(&self, below: &str) -> io::Result<Stat>;
}

/// An open regular file. Closing it (dropping) gives its lock back.
pub trait File: fmt::Debug + Send + Sync {
    /// Reads at `offset`; fewer bytes than asked for are not an error, none mean the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes at `offset`, extending the file if need be, and says how many bytes were taken: fewer than given is a short
    /// write, which the caller completes or undoes. After an error any part may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Sets the length.
    fn truncate(&self, length: u64) -> io::Result<()>;

    /// Makes the file's bytes and length durable. After an error nothing written since the last sync may be trusted, and a
    /// later `Ok` proves nothing about it.
    fn sync_data(&self) -> io::Result<()>;

    /// As [`File::sync_data`], with all metadata.
    fn sync_all(&self) -> io::Result<()>;

    /// Facts about the open file, whatever its name stands for by now.
    fn stat(&self) -> io::Result<Stat>;

    /// The file's first `length` bytes as memory, for a file that is sealed: nobody writes to it any more. `None`, as this default
    /// gives, where there are no maps; callers read then.
    fn map(&self, _length: u64) -> io::Result<Option<FileMap>> {
        Ok(None)
    }

    /// Takes an advisory lock that lasts until the handle is dropped or the process dies; `false` when another handle, of this
    /// process or any other, holds one that excludes it.
    fn try_lock(&self, lock: Lock) -> io::Result<bool>;
}

/// Fills `buffer` from `offset`, up to the end of the file; returns how much was filled.
pub(crate) fn read_full_at(file: &dyn File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(count) => filled = filled.saturating_add(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Writes all of `bytes` at `offset`, completing short writes. After an error any part may be in the file: the caller cuts it.
pub(crate) fn write_all_at(file: &dyn File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match file.write_at(rest, offset.saturating_add(written as u64)) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => written = written.saturating_add(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The error behind [`is_wrong_type`].
#[derive(Debug, thiserror::Error)]
#[error("not a regular file")]
struct WrongType;

pub(crate) fn wrong_type() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, WrongType)
}

/// Whether opening failed because something other than a regular file stands there.
pub fn is_wrong_type(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<WrongType>)
}
