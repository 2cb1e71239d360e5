//! Files on which sealing fails.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sessionlog::segment::files::{Access, File, Files, RealFiles, Stat};

/// The system's files, where giving a segment its name fails or panics.
#[derive(Debug, Clone, Default)]
pub struct Unsealable(Arc<Mutex<Sealing>>);

/// What happens when a segment is given its name.
#[derive(Debug, Clone, Copy, Default)]
pub enum Sealing {
    #[default]
    Fails,
    Panics,
    Works,
    /// The sealing thread stands still before it writes, until it is told otherwise.
    Waits,
}

impl Unsealable {
    fn asked(&self) -> Sealing {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn behave(&self, sealing: Sealing) {
        // A panic under the lock is one of the things that are asked for.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = sealing;
    }
}

impl Files for Unsealable {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn File>> {
        if access == Access::CreateNew && std::thread::current().name() == Some("sessionlog-sealing") {
            while matches!(self.asked(), Sealing::Waits) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        RealFiles.open(path, access)
    }
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        RealFiles.create_directory(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if to.extension().is_some_and(|extension| extension == "seg") {
            match self.asked() {
                Sealing::Fails => return Err(io::Error::from_raw_os_error(libc::ENOSPC)),
                Sealing::Panics => panic!("sealing is told to panic"),
                Sealing::Works | Sealing::Waits => {}
            }
        }
        RealFiles.rename(from, to)
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
    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        RealFiles.resolve(path)
    }
}
