//! The operating system's file system.

use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, openat, statat};

use super::{Access, Directory, File, FileKind, FileMap, Files, Identity, Lock, Stat, wrong_type};

/// The operating system's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFiles;

/// The operating system's file system, where sealed segments are memory-mapped instead of read. Not for network file systems; see
/// [`EngineOptions::map_segments`](crate::segment::EngineOptions::map_segments) for what it costs when a file is cut.
#[derive(Debug, Clone, Copy, Default)]
pub struct MappedFiles;

const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// Repeats a call that a signal interrupted.
fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn stat_of(metadata: &fs::Metadata) -> Stat {
    let kind = if metadata.is_file() {
        FileKind::File
    } else if metadata.is_dir() {
        FileKind::Directory
    } else {
        FileKind::Other
    };
    let identity = Identity { device: metadata.dev(), inode: metadata.ino() };
    Stat {
        kind,
        identity,
        length: metadata.len(),
        links: metadata.nlink(),
        mode: metadata.mode() & 0o7777,
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    }
}

fn open_file(path: &Path, access: Access) -> io::Result<RealFile> {
    let mut options = OpenOptions::new();
    options.read(true).mode(FILE_MODE);
    match access {
        Access::Read => {}
        Access::Write => drop(options.write(true)),
        Access::CreateNew => drop(options.write(true).create_new(true)),
    }
    // Neither may a link lead elsewhere nor a FIFO without a peer stall the caller.
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = uninterrupted(|| options.open(path)).map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP | libc::EISDIR | libc::ENXIO) => wrong_type(),
        _ => error,
    })?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(wrong_type());
    }
    if access == Access::CreateNew && metadata.mode() & 0o7777 != FILE_MODE {
        file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    }
    Ok(RealFile { file, maps: false })
}

impl Files for RealFiles {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn File>> {
        Ok(Box::new(open_file(path, access)?))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        uninterrupted(|| fs::DirBuilder::new().mode(DIRECTORY_MODE).create(path))?;
        if fs::symlink_metadata(path)?.mode() & 0o777 != DIRECTORY_MODE {
            fs::set_permissions(path, Permissions::from_mode(DIRECTORY_MODE))?;
        }
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        uninterrupted(|| fs::rename(from, to))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        uninterrupted(|| fs::hard_link(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        uninterrupted(|| fs::remove_file(path))
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        uninterrupted(|| fs::remove_dir(path))
    }

    fn read_directory(&self, path: &Path) -> io::Result<Vec<String>> {
        fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        let directory = uninterrupted(|| OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(path))?;
        uninterrupted(|| directory.sync_all())
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        uninterrupted(|| fs::symlink_metadata(path)).map(|metadata| stat_of(&metadata))
    }

    fn open_directory(&self, path: &Path) -> io::Result<Option<Box<dyn Directory>>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = uninterrupted(|| Ok(openat(CWD, path, flags, Mode::empty())?))?;
        Ok(Some(Box::new(RealDirectory(directory))))
    }

    fn foreign_owner(&self, path: &Path) -> io::Result<Option<u32>> {
        let owner = uninterrupted(|| fs::symlink_metadata(path))?.uid();
        let known = owner == 0 || owner == rustix::process::geteuid().as_raw();
        Ok((!known).then_some(owner))
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        fs::canonicalize(path)
    }
}

impl Files for MappedFiles {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn File>> {
        Ok(Box::new(RealFile { maps: true, ..open_file(path, access)? }))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        RealFiles.create_directory(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFiles.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFiles.link(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        RealFiles.remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        RealFiles.remove_directory(path)
    }

    fn read_directory(&self, path: &Path) -> io::Result<Vec<String>> {
        RealFiles.read_directory(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        RealFiles.sync_directory(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        RealFiles.stat(path)
    }

    fn open_directory(&self, path: &Path) -> io::Result<Option<Box<dyn Directory>>> {
        RealFiles.open_directory(path)
    }

    fn foreign_owner(&self, path: &Path) -> io::Result<Option<u32>> {
        RealFiles.foreign_owner(path)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        RealFiles.resolve(path)
    }
}

#[derive(Debug)]
struct RealDirectory(OwnedFd);

impl Directory for RealDirectory {
    #[allow(
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap,
        clippy::cast_lossless,
        clippy::unnecessary_cast,
        reason = "systems differ in the widths of these fields, none of which is negative; the standard library casts them so"
    )]
    fn stat(&self, below: &str) -> io::Result<Stat> {
        let stat = uninterrupted(|| Ok(statat(&self.0, below, AtFlags::SYMLINK_NOFOLLOW)?))?;
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Directory,
            _ => FileKind::Other,
        };
        Ok(Stat {
            kind,
            identity: Identity { device: stat.st_dev as u64, inode: stat.st_ino as u64 },
            length: stat.st_size as u64,
            links: stat.st_nlink as u64,
            mode: stat.st_mode as u32 & 0o7777,
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        })
    }
}

#[derive(Debug)]
struct RealFile {
    file: fs::File,
    maps: bool,
}

impl File for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        uninterrupted(|| self.file.read_at(buffer, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        uninterrupted(|| self.file.write_at(bytes, offset))
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        uninterrupted(|| self.file.set_len(length))
    }

    fn sync_data(&self) -> io::Result<()> {
        uninterrupted(|| self.file.sync_data())
    }

    fn sync_all(&self) -> io::Result<()> {
        uninterrupted(|| self.file.sync_all())
    }

    fn stat(&self) -> io::Result<Stat> {
        self.file.metadata().map(|metadata| stat_of(&metadata))
    }

    fn map(&self, length: u64) -> io::Result<Option<FileMap>> {
        if self.maps { FileMap::of(&self.file, length).map(Some) } else { Ok(None) }
    }

    /// Since Rust 1.89 the standard library's own lock methods shadow those of `fs2` on a file, with other results; calling by
    /// path says which is meant.
    fn try_lock(&self, lock: Lock) -> io::Result<bool> {
        let result = match lock {
            Lock::Exclusive => fs2::FileExt::try_lock_exclusive(&self.file),
            Lock::Shared => fs2::FileExt::try_lock_shared(&self.file),
        };
        match result {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == fs2::lock_contended_error().raw_os_error() => Ok(false),
            Err(error) => Err(error),
        }
    }
}
