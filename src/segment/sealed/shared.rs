//! Segments that a session shares with the one it was forked from: which foreign segments may stand in a directory.

use std::cell::Cell;
use std::path::PathBuf;

use super::chain::{self, Walk};
use super::footer::FORMAT as SEGMENT_FORMAT;
use crate::backend::{BackendError, DamageClass};
use crate::segment::bytes::{array_at, crc, u32_at, u64_at};
use crate::segment::directory::{SessionDirectory, read_small};
use crate::segment::files::{Access, File, Identity, read_full_at, write_all_at};
use crate::segment::journal::{HEADER_BYTES, JournalHeader, Predecessor, segment_name};

/// Name of the file that lists them.
pub(crate) const SHARED_FILE: &str = "shared";

const MAGIC: [u8; 8] = *b"slogSHAR";
const VERSION: u32 = 1;
/// Magic, version, number of entries.
const FRAME_BYTES: usize = 16;
/// First seq, salt, identity of the session that the segment was sealed in, and up to where it counts.
const ENTRY_BYTES: usize = 40;
/// Most segments that are shared; a log of more shares its first ones.
const MAX_ENTRIES: usize = 10_000;

/// A segment that is sound although another session's identity stands in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    first_seq: u64,
    salt: u64,
    session: [u8; 16],
    /// Seq from which on its events are not part of this log; 0 when they all are.
    until: u64,
}

impl Entry {
    fn of(header: &JournalHeader, until: Option<u64>) -> Self {
        let JournalHeader { first_seq, salt, session, .. } = *header;
        Self { first_seq, salt, session, until: until.unwrap_or(0) }
    }

    fn names(&self, header: &JournalHeader) -> bool {
        *self == Self::of(header, Some(self.until))
    }

    /// Seq from which on the segment does not count, if it does not count as a whole.
    pub(crate) fn until(&self) -> Option<u64> {
        (self.until != 0).then_some(self.until)
    }
}

fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&u32::try_from(entries.len()).unwrap_or(u32::MAX).to_le_bytes());
    for entry in entries {
        bytes.extend_from_slice(&entry.first_seq.to_le_bytes());
        bytes.extend_from_slice(&entry.salt.to_le_bytes());
        bytes.extend_from_slice(&entry.session);
        bytes.extend_from_slice(&entry.until.to_le_bytes());
    }
    let checksum = crc(&[&bytes]);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The entries; `Err` with a version that is not known; `None` for anything that is not such a list.
fn decode(bytes: &[u8]) -> Option<Result<Vec<Entry>, u32>> {
    let checked = bytes.len().checked_sub(4)?;
    if bytes.get(..8)? != MAGIC || crc(&[bytes.get(..checked)?]) != u32_at(bytes, checked)? {
        return None;
    }
    let version = u32_at(bytes, 8)?;
    if version != VERSION {
        return Some(Err(version));
    }
    let rows = bytes.get(FRAME_BYTES..checked)?;
    let count = usize::try_from(u32_at(bytes, 12)?).ok()?;
    if rows.len() != count.checked_mul(ENTRY_BYTES)? {
        return None;
    }
    let row = |row: &[u8]| {
        let (first_seq, salt, session) = (u64_at(row, 0)?, u64_at(row, 8)?, array_at(row, 16)?);
        let until = u64_at(row, 32).filter(|until| *until == 0 || *until > first_seq)?;
        Some(Entry { first_seq, salt, session, until })
    };
    rows.chunks_exact(ENTRY_BYTES).map(row).collect::<Option<_>>().map(Ok)
}

/// What the directory's list says of the segment with this header.
///
/// # Errors
/// Damage of the list, with `intact_before` as given; `Unsupported`, I/O.
pub(crate) fn find(
    directory: &SessionDirectory,
    header: &JournalHeader,
    intact_before: u64,
) -> Result<Option<Entry>, BackendError> {
    let path = directory.file(SHARED_FILE);
    let failed = |error| directory.io("reading the list of shared segments", &path, error);
    let file = match directory.files.open(&path, Access::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let most = FRAME_BYTES + MAX_ENTRIES * ENTRY_BYTES + 4;
    let bytes = read_small(&*file, most).map_err(failed)?.unwrap_or_default();
    match decode(&bytes) {
        Some(Ok(entries)) => Ok(entries.into_iter().find(|entry| entry.names(header))),
        Some(Err(version)) => {
            let what = format!("a list of shared segments of version {version}");
            Err(directory.unsupported(&path, Some(8), intact_before, &what))
        }
        None => {
            let detail = "the list of segments shared with another session cannot be read, so they cannot be told from \
                          misplaced ones";
            Err(directory.damage(DamageClass::BadHeader, &path, Some(0), intact_before, detail))
        }
    }
}

/// Segments of a session that hold what lies before a seq, for another session to share.
#[derive(Debug, Default)]
pub(crate) struct SharedPrefix {
    segments: Vec<(PathBuf, u64, Identity)>,
    entries: Vec<Entry>,
    pub(crate) next_seq: u64,
    /// What the journal behind them continues.
    pub(crate) last_journal: Option<Predecessor>,
    /// Whether one was replaced before it could be shared.
    replaced: Cell<bool>,
}

impl SharedPrefix {
    /// The segments of `source` that start before `end`; of the last one a part may lie behind.
    ///
    /// # Errors
    /// Damage, `Unsupported`, I/O.
    pub(crate) fn of(source: &SessionDirectory, end: u64) -> Result<Self, BackendError> {
        let mut prefix = Self::default();
        let mut names = source.layout()?.segments;
        names.retain(|name| *name < end);
        let walked = chain::walk(source, &names, |segment| {
            if prefix.entries.len() < MAX_ENTRIES {
                let until = if segment.next_seq() > end { Some(end) } else { segment.until };
                prefix.segments.push((segment.path.clone(), segment.footer.first_seq, segment.identity));
                prefix.entries.push(Entry::of(&segment.header, until));
                prefix.next_seq = segment.next_seq().min(end);
                prefix.last_journal = Some(if until.is_some() { segment.itself() } else { segment.last_journal });
            }
            Ok(())
        })?;
        // Files that are merged at this moment are copied event by event instead.
        Ok(if matches!(walked, Walk::Gone) { Self::default() } else { prefix })
    }

    /// Whether the segments were replaced when they were to be shared: a joined one has taken their place, and looking again finds it.
    pub(crate) fn was_replaced(&self) -> bool {
        self.replaced.get()
    }

    /// Puts the segments into a directory being built: as links where the file system has them, else as copies. `false` when one
    /// was replaced meanwhile. Names are durable after the directory's sync, copies are when this returns, and the list is when its
    /// file, added to `written`, has been synced.
    ///
    /// # Errors
    /// I/O.
    pub(crate) fn place(&self, target: &SessionDirectory, written: &mut Vec<Box<dyn File>>) -> std::io::Result<bool> {
        if self.segments.is_empty() {
            return Ok(true);
        }
        for (source, name, identity) in &self.segments {
            let path = target.file(&segment_name(*name));
            if target.files.link(source, &path).is_err() && !copy(target, source, &path)? {
                self.replaced.set(true);
                return Ok(false);
            }
            let placed = target.files.open(&path, Access::Read)?;
            if placed.stat()?.identity != *identity && !self.is_entry(&*placed)? {
                self.replaced.set(true);
                return Ok(false);
            }
        }
        let file = target.files.open(&target.file(SHARED_FILE), Access::CreateNew)?;
        write_all_at(&*file, &encode(&self.entries), 0)?;
        written.push(file);
        Ok(true)
    }

    /// Whether a file starts with a header that is on the list.
    fn is_entry(&self, file: &dyn File) -> std::io::Result<bool> {
        let mut bytes = [0; HEADER_BYTES];
        let filled = read_full_at(file, &mut bytes, 0)?;
        let header = JournalHeader::decode_as(bytes.get(..filled).unwrap_or_default(), SEGMENT_FORMAT);
        Ok(header.is_ok_and(|header| self.entries.iter().any(|entry| entry.names(&header))))
    }
}

/// Bytes that are copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// Copies a file, durably; `false` when it is not there any more.
fn copy(target: &SessionDirectory, source: &std::path::Path, path: &std::path::Path) -> std::io::Result<bool> {
    let source = match target.files.open(source, Access::Read) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    let file = target.files.open(path, Access::CreateNew)?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut copied = 0_u64;
    loop {
        let filled = read_full_at(&*source, &mut buffer, copied)?;
        let Some(piece) = buffer.get(..filled).filter(|piece| !piece.is_empty()) else { break };
        write_all_at(&*file, piece, copied)?;
        copied = copied.saturating_add(filled as u64);
    }
    file.sync_all()?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_comes_back_and_every_flip_and_cut_is_noticed() {
        let entry = |number: u64| Entry { first_seq: number, salt: number + 1, session: [7; 16], until: number * 2 };
        let entries = vec![entry(0), entry(40)];
        let bytes = encode(&entries);
        assert_eq!(decode(&bytes), Some(Ok(entries)));
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            assert_eq!(decode(&bad), None);
            assert_eq!(decode(&bytes[..at]), None);
        }
    }

    #[test]
    fn a_list_at_below_and_above_the_limit() {
        use crate::backend::DamageClass;
        use crate::segment::files::RealFiles;

        let place = tempfile::tempdir().unwrap();
        let path = place.path().to_owned();
        let directory = SessionDirectory { files: std::sync::Arc::new(RealFiles), path, id: None };
        let entry = |number: usize| Entry { first_seq: number as u64, salt: 1, session: [7; 16], until: 0 };
        for (count, fits) in [(MAX_ENTRIES - 1, true), (MAX_ENTRIES, true), (MAX_ENTRIES + 1, false)] {
            let entries: Vec<Entry> = (0..count).map(entry).collect();
            std::fs::write(directory.file(SHARED_FILE), encode(&entries)).unwrap();
            let header =
                JournalHeader { session: [7; 16], first_seq: count as u64 - 1, epoch: 1, salt: 1, predecessor: None };
            match find(&directory, &header, 0) {
                Ok(found) => assert!(fits && found == entries.last().copied(), "{count}"),
                Err(error) => {
                    assert!(!fits && error.damage.unwrap().class == DamageClass::BadHeader, "{count}");
                }
            }
        }
    }
}
