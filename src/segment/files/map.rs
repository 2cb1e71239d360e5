//! Memory maps of sealed segments: the one place with unsafe code for them.
//!
//! # Why it is sound, as far as it is
//!
//! Reading a map as `&[u8]` is sound as long as the bytes under it do not change and stay there.
//!
//! - *They do not change.* The engine maps nothing but sealed segments. A segment is written under a temporary name, synced and renamed
//!   before anyone opens it under its own, and no code of this crate opens one for writing again: merging and repairing write another
//!   file and rename it over the name, which leaves the mapped one as it is.
//! - *They stay there.* A file lasts as long as it is open or mapped, whatever becomes of its names. The map is made of the open file,
//!   after its length was found to be the one that its trailer, checked before, ends at; every access is within that length.
//! - *Somebody else may do it all the same.* A process of the same user (the directories have mode 0700) can truncate or overwrite
//!   the file in place. Bytes that change are met by the checksums and by a decoder that takes any input; in the language's terms it is a
//!   data race, as with every map there is. A map that is cut kills the process with SIGBUS at the next access, where a read would
//!   have given an error. The same happens when a device fails under a map, and on network file systems when the server
//!   replaces the file. What is durable stays durable; but an agent's host should not die of it, and therefore maps are off unless
//!   asked for: see [`EngineOptions::map_segments`](crate::segment::EngineOptions::map_segments).
#![allow(unsafe_code)]

use std::fs;
use std::io;

use memmap2::{Mmap, MmapOptions, UncheckedAdvice};

/// A sealed file's bytes in memory, read on access.
#[derive(Debug)]
pub struct FileMap(Mmap);

impl FileMap {
    /// Maps the first `length` bytes of a file that nobody writes to.
    pub(super) fn of(file: &fs::File, length: u64) -> io::Result<Self> {
        if file.metadata()?.len() < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let length = usize::try_from(length).map_err(io::Error::other)?;
        // SAFETY: the caller maps sealed segments alone, which are never written to; see the module's text for what others can do.
        let map = unsafe { MmapOptions::new().len(length).map(file) }?;
        Ok(Self(map))
    }

    /// `length` bytes at `offset`; `None` if they are not all there.
    pub fn bytes(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let from = usize::try_from(offset).ok()?;
        self.0.get(from..from.checked_add(length)?)
    }

    /// Lets the system take the pages of a range back, so that reading a large file from end to end does not hold all of it. They
    /// are read again when they are accessed again.
    pub fn release(&self, offset: u64, length: u64) {
        let range = usize::try_from(offset).ok().zip(usize::try_from(length).ok());
        let Some((offset, length)) =
            range.filter(|(offset, length)| offset.checked_add(*length).is_some_and(|end| end <= self.0.len()))
        else {
            return;
        };
        // SAFETY: the map is shared and of a file, and nothing was written to it, so dropping pages loses nothing: the next access
        // reads the same bytes from the file. The range was checked to lie in the map.
        let advised = unsafe { self.0.unchecked_advise_range(UncheckedAdvice::DontNeed, offset, length) };
        if let Err(error) = advised {
            tracing::debug!(%error, "mapped pages stay in memory");
        }
    }
}
