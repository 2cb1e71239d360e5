//! Files of the stores that are measured: made without waiting for the disk, and put out of the page cache.

use std::fs::{self, File as StdFile};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};
use sessionlog::segment::files::{Access, File, Files, Lock, RealFiles, Stat};

/// The operating system's files, never synced: for making in seconds what a machine records in hours. Never for what is timed.
#[derive(Debug, Clone, Copy, Default)]
pub struct UnsyncedFiles;

#[derive(Debug)]
struct UnsyncedFile(Box<dyn File>);

impl Files for UnsyncedFiles {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn File>> {
        Ok(Box::new(UnsyncedFile(RealFiles.open(path, access)?)))
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

    fn sync_directory(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        RealFiles.stat(path)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        RealFiles.resolve(path)
    }
}

impl File for UnsyncedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.truncate(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn stat(&self) -> io::Result<Stat> {
        self.0.stat()
    }

    fn try_lock(&self, lock: Lock) -> io::Result<bool> {
        self.0.try_lock(lock)
    }
}

/// Every regular file below `root`.
pub fn below(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { directories.push(path) } else { files.push(path) }
        }
    }
    files
}

/// Writes everything below `root` to the disk and asks the kernel to forget the contents. Names and inodes stay cached.
pub fn evict(root: &Path) {
    for path in below(root) {
        let file = StdFile::open(&path).expect("a file");
        file.sync_all().expect("a sync");
        fadvise(&file, 0, None, Advice::DontNeed).expect("advice");
    }
}

/// Reads everything below `root` once.
pub fn warm(root: &Path) {
    for path in below(root) {
        let _ = fs::read(path);
    }
}

/// An empty directory of this name.
pub fn fresh(parent: &Path, name: &str) -> PathBuf {
    let path = parent.join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a directory");
    path
}
