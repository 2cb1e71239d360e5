//! Making the store itself.

use std::io;
use std::path::Path;

use super::{Engine, StoreState, locked};
use crate::backend::BackendError;
use crate::segment::files::Files;
use crate::segment::lock::StoreLock;
use crate::segment::{store_file, tree, trust};

impl Engine {
    /// Makes the store if need be, and makes sure that writing to it is safe and that it is still the one that was opened. Any
    /// number of processes may do so at once.
    pub(super) fn make_store(&self) -> Result<(), BackendError> {
        let (site, root) = (&self.0.site, &self.0.root);
        let files = &*site.files;
        let ready = locked(&self.0.store).ready;
        if let Some([root_identity, sessions_identity]) = ready {
            trust::check_same(files, root, root_identity)?;
            return trust::check_same(files, &site.sessions, sessions_identity);
        }
        let mut store = locked(&self.0.store);
        if store.ready.is_some() {
            return Ok(());
        }
        make_directories(files, root)?;
        let root_identity = trust::check(files, root, self.0.trust_directory)?;
        let lock = StoreLock::take(files, &site.store_lock)?;
        let id = match store_file::read(files, root)? {
            Some(id) => id,
            None => store_file::create(files, root, &site.random)?,
        };
        make_directory(files, &site.sessions)?;
        let sessions_identity = trust::check(files, &site.sessions, self.0.trust_directory)?;
        // Durable even if another process made them and was stopped before it could sync.
        files.sync_directory(root).map_err(|error| BackendError::io("making the store", root, error))?;
        drop(lock);
        match &self.0.sealer {
            Some(sealer) => sealer.clear(site),
            None => tree::clear_store(files, &site.sessions, &site.store_lock),
        }
        *store = StoreState { id: Some(id), ready: Some([root_identity, sessions_identity]) };
        Ok(())
    }
}

/// Makes a directory and those above it that are missing, each name durable. Names that are there already are synced too:
/// whoever made them may have been stopped before it could.
fn make_directories(files: &dyn Files, path: &Path) -> Result<(), BackendError> {
    let failed = |path: &Path, error| BackendError::io("making a directory", path, error);
    let mut missing = Vec::new();
    for here in path.ancestors() {
        match files.stat(here) {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(here),
            Err(error) => return Err(failed(here, error)),
        }
    }
    for directory in missing.into_iter().rev() {
        make_directory(files, directory)?;
    }
    for parent in path.ancestors().skip(1) {
        match files.sync_directory(parent) {
            // Where this process may not even look, it has made nothing.
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(failed(parent, error)),
            _ => {}
        }
    }
    Ok(())
}

fn make_directory(files: &dyn Files, path: &Path) -> Result<(), BackendError> {
    match files.create_directory(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(BackendError::io("making a directory", path, error))
        }
        // Another process was quicker, or something else stands there, which the next step will meet.
        _ => Ok(()),
    }
}
