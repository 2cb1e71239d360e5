//! The `STORE` file: which store this is and in which layout.

use std::io;
use std::path::Path;

use super::bytes::{array_at, crc, u32_at};
use super::directory::{TEMPORARY, read_small};
use super::files::{Access, Files, write_all_at};
use super::random::Random;
use crate::backend::{BackendError, Damage, DamageClass, ErrorKind};

/// Name of the file in the store's root.
pub(crate) const STORE_FILE: &str = "STORE";

const MAGIC: [u8; 8] = *b"slogSTOR";
/// Version of the store's layout.
const LAYOUT_VERSION: u32 = 1;
/// Magic, layout version, four bytes of zero, id, checksum.
const BYTES: usize = 36;
/// Longest such file of any later layout that is looked at.
const MAX_BYTES: usize = 4096;

/// A store's random identity.
pub(crate) type StoreId = [u8; 16];

/// Reads the store's identity; `None` when there is no store yet.
///
/// # Errors
/// Damage, `Unsupported`, I/O.
pub(crate) fn read(files: &dyn Files, root: &Path) -> Result<Option<StoreId>, BackendError> {
    let path = root.join(STORE_FILE);
    let failed = |error| BackendError::io("reading the store's identity", &path, error);
    let file = match files.open(&path, Access::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if super::files::is_wrong_type(&error) => {
            let damage = Damage { class: DamageClass::WrongFileType, offset: None, intact_before: 0 };
            let detail = "this should be a regular file; move it away";
            return Err(BackendError::new(ErrorKind::Damaged, detail).with_file(&path).with_damage(damage));
        }
        Err(error) => return Err(failed(error)),
    };
    let bytes = read_small(&*file, MAX_BYTES).map_err(failed)?.unwrap_or_default();
    match decode(&bytes) {
        Some(Ok(id)) => Ok(Some(id)),
        Some(Err(version)) => {
            let detail = if version > LAYOUT_VERSION {
                format!("store layout {version} is newer than this build reads; upgrade")
            } else {
                format!(
                    "store layout {version} is older than what this build reads: export its sessions with the build that wrote \
                     them and import them again. The store is left as it is"
                )
            };
            let damage = Damage { class: DamageClass::ForeignVersion, offset: Some(8), intact_before: 0 };
            Err(BackendError::new(ErrorKind::Unsupported, detail).with_file(&path).with_damage(damage))
        }
        None => {
            let detail = "the store's identity cannot be read. No session depends on it: move the file away, and the next \
                          writer makes a new one";
            let damage = Damage { class: DamageClass::BadHeader, offset: Some(0), intact_before: 0 };
            Err(BackendError::new(ErrorKind::Damaged, detail).with_file(&path).with_damage(damage))
        }
    }
}

/// Writes the identity of a new store, atomically and durably. The caller holds the store's lock.
///
/// # Errors
/// I/O; the store is as it was.
pub(crate) fn create(files: &dyn Files, root: &Path, random: &Random) -> Result<StoreId, BackendError> {
    let path = root.join(STORE_FILE);
    let make = || -> io::Result<StoreId> {
        let mut id = [0; 16];
        let (low, high) = id.split_at_mut(8);
        low.copy_from_slice(&random.number()?.to_le_bytes());
        high.copy_from_slice(&random.number()?.to_le_bytes());
        let temporary = root.join(format!("{TEMPORARY}{:016x}", random.number()?));
        let file = files.open(&temporary, Access::CreateNew)?;
        let written = write_all_at(&*file, &encode(&id), 0).and_then(|()| file.sync_all());
        if let Err(error) = written.and_then(|()| files.rename(&temporary, &path)) {
            let _ = files.remove_file(&temporary);
            return Err(error);
        }
        files.sync_directory(root)?;
        Ok(id)
    };
    make().map_err(|error| BackendError::io("making the store", &path, error))
}

fn encode(id: &StoreId) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&LAYOUT_VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(id);
    let checksum = crc(&[&bytes]);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The id, or the version of a layout that is sound and unknown; `None` for anything else.
fn decode(bytes: &[u8]) -> Option<Result<StoreId, u32>> {
    let checked = bytes.len().checked_sub(4).filter(|checked| *checked >= BYTES - 4)?;
    let sound = bytes.get(..8)? == MAGIC && crc(&[bytes.get(..checked)?]) == u32_at(bytes, checked)?;
    let version = u32_at(bytes, 8)?;
    match sound {
        true if version != LAYOUT_VERSION => Some(Err(version)),
        true if bytes.len() == BYTES => Some(Ok(array_at(bytes, 16)?)),
        _ => None,
    }
}
