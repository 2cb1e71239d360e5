//! What is on a simulated disk, and what of it a loss of power leaves.

use std::collections::BTreeMap;

use super::super::Lock;
use crate::segment::random::SplitMix;

/// What a disk writes whole or not at all, in bytes.
const SECTOR: usize = 512;

#[derive(Debug, Clone, Default)]
pub(super) struct FileNode {
    pub(super) live: Vec<u8>,
    pub(super) durable: Vec<u8>,
    pub(super) pending: Vec<Change>,
    pub(super) locks: Vec<(u64, Lock)>,
}

#[derive(Debug, Clone)]
pub(super) enum Change {
    Write(usize, Vec<u8>),
    Length(usize),
}

#[derive(Debug, Clone, Default)]
pub(super) struct DirectoryNode {
    pub(super) live: BTreeMap<String, u64>,
    pub(super) durable: BTreeMap<String, u64>,
    pub(super) pending: Vec<Naming>,
    /// Raised with every change of the live names.
    pub(super) changes: u64,
}

impl DirectoryNode {
    /// When a name was made, renamed or removed last: another time than before each such change.
    pub(super) fn change_time(&self) -> (i64, i64) {
        let numbers: Vec<[u8; 8]> = self.live.values().map(|number| number.to_le_bytes()).collect();
        let changes = self.changes.to_le_bytes();
        let named = self.live.keys().zip(&numbers).flat_map(|(name, number)| [name.as_bytes(), number]);
        change_time(named.chain([&changes[..]]))
    }
}

/// A change time that differs when the content does, and is long past.
pub(super) fn change_time<'a>(content: impl IntoIterator<Item = &'a [u8]>) -> (i64, i64) {
    let mut hasher = crc32fast::Hasher::new();
    content.into_iter().for_each(|piece| hasher.update(piece));
    (-1 - i64::from(hasher.finalize()), 0)
}

#[derive(Debug, Clone)]
pub(super) enum Naming {
    Set(String, u64),
    Remove(String),
    Rename(String, String, u64),
    /// A directory is made, or moved within its parent: it has one name at any time, whatever order changes reach the disk in.
    Directory(String, u64),
}

impl Naming {
    pub(super) fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Naming::Set(name, number) => drop(names.insert(name.clone(), *number)),
            Naming::Remove(name) => drop(names.remove(name)),
            Naming::Rename(from, to, number) => {
                names.remove(from);
                names.insert(to.clone(), *number);
            }
            Naming::Directory(name, number) => {
                names.retain(|_, other| other != number);
                names.insert(name.clone(), *number);
            }
        }
    }
}

pub(super) fn write_into(image: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset.saturating_add(bytes.len());
    if image.len() < end {
        image.resize(end, 0);
    }
    if let Some(target) = image.get_mut(offset..end) {
        target.copy_from_slice(bytes);
    }
}

/// How likely each single change is to have reached the disk: all of them, none of them, or something between. Even odds alone
/// would hardly ever keep all or none of many.
#[derive(Debug, Clone, Copy)]
pub(super) struct Odds(pub(super) u64);

impl Odds {
    pub(super) fn pick(random: &mut SplitMix) -> Self {
        Self(match random.below(6) {
            0 => 0,
            1 => 1,
            2 | 3 => 4,
            4 => 7,
            _ => 8,
        })
    }

    pub(super) fn keep(self, random: &mut SplitMix) -> bool {
        random.below(8) < self.0
    }
}

/// Applies a random subset of the changes to what is on disk: writes by sector, and one of the lengths the file had.
pub(super) fn settle(durable: &mut Vec<u8>, pending: &mut Vec<Change>, random: &mut SplitMix) {
    let odds = Odds::pick(random);
    let mut lengths = vec![durable.len()];
    let mut length = durable.len();
    let mut image = durable.clone();
    for change in pending.drain(..) {
        match change {
            Change::Length(to) => {
                length = to;
                if odds.keep(random) {
                    image.resize(to, 0);
                }
            }
            Change::Write(offset, bytes) => {
                length = length.max(offset + bytes.len());
                let mut at = 0;
                while at < bytes.len() {
                    let boundary = ((offset + at) / SECTOR + 1) * SECTOR - offset;
                    let end = boundary.min(bytes.len());
                    if let Some(part) = bytes.get(at..end).filter(|_| odds.keep(random)) {
                        write_into(&mut image, offset + at, part);
                    }
                    at = end;
                }
            }
        }
        lengths.push(length);
    }
    let pick = match odds {
        Odds(0) => 0,
        Odds(8) => lengths.len() as u64 - 1,
        _ => random.below(lengths.len() as u64),
    };
    let length = usize::try_from(pick).ok().and_then(|pick| lengths.get(pick).copied()).unwrap_or(length);
    image.resize(length, 0);
    *durable = image;
}
