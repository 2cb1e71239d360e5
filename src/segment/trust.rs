//! Whether a directory can be trusted with what is written below it.
//!
//! Files are opened by path. Whoever may rename entries of the store's directory can put a link in the place of one between two
//! calls, and so lead a writer elsewhere; no check of the entries themselves closes that gap. So a store is written only where
//! neither another user nor everybody can do so, as `ssh` and `git` ask of the files they trust; a group is only warned about.
//! Reading is always allowed: what it meets is checked.

use std::path::Path;

use super::files::{FileKind, Files, Identity};
use crate::backend::{BackendError, Damage, DamageClass, ErrorKind};

const OTHERS_WRITE: u32 = 0o002;

/// Checks that `path` is a directory and not a link to one.
///
/// # Errors
/// Damage of class wrong file type; I/O.
pub(crate) fn check_kind(files: &dyn Files, path: &Path) -> Result<Identity, BackendError> {
    let stat = files.stat(path).map_err(|error| BackendError::io("looking at the store's directory", path, error))?;
    if stat.kind == FileKind::Directory {
        return Ok(stat.identity);
    }
    let detail = "a directory belongs here, and no link is followed below the store's root; move it away, or open the store \
                  under the path that the link leads to";
    let damage = Damage { class: DamageClass::WrongFileType, offset: None, intact_before: 0 };
    Err(BackendError::new(ErrorKind::Damaged, detail).with_file(path).with_damage(damage))
}

/// Checks that a directory is this process's user's, or the system's, and that not everybody can change its entries.
///
/// # Errors
/// `PermissionDenied` saying what to do, unless `trusted`; as [`check_kind`].
pub(crate) fn check(files: &dyn Files, path: &Path, trusted: bool) -> Result<Identity, BackendError> {
    let identity = check_kind(files, path)?;
    let failed = |error| BackendError::io("looking at the store's directory", path, error);
    let mode = files.stat(path).map_err(failed)?.mode;
    let problem = if let Some(owner) = files.foreign_owner(path).map_err(failed)? {
        format!("this directory belongs to another user (uid {owner})")
    } else if mode & OTHERS_WRITE != 0 {
        format!("everybody may write to this directory (mode {mode:o})")
    } else {
        // A group is often its user's own; that it may write is said when the store is opened.
        return Ok(identity);
    };
    if trusted {
        return Ok(identity);
    }
    let detail = format!(
        "{problem}, who could lead what is written here elsewhere; reading works. Use a directory of your own with mode 700 \
         (chmod go-w takes the right away), or, if everybody who can write here is trusted, open the store with \
         EngineOptions::trust_directory, for the command line SESSIONLOG_TRUST_STORE=1"
    );
    Err(BackendError::new(ErrorKind::PermissionDenied, detail).with_file(path))
}

/// Checks that a path still stands for the directory it stood for.
///
/// # Errors
/// `LostOwnership`; I/O.
pub(crate) fn check_same(files: &dyn Files, path: &Path, identity: Identity) -> Result<(), BackendError> {
    match files.stat(path) {
        Ok(stat) if stat.identity == identity => Ok(()),
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(BackendError::io("looking at the store's directory", path, error))
        }
        _ => {
            let detail = "the store's directory was moved or replaced while it was open; nothing was written. Open the store again";
            Err(BackendError::new(ErrorKind::LostOwnership, detail).with_file(path))
        }
    }
}
