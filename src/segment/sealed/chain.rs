//! The sealed part of a log: segments that follow each other without gap, and what they leave of the journals.

use std::path::PathBuf;
use std::sync::Arc;

use super::derived;
use super::segment::{Segment, open_header};
use crate::backend::{BackendError, Checkpoint, DamageClass};
use crate::segment::directory::{Layout, SessionDirectory};
use crate::segment::journal::{self, JournalHeader, Predecessor, segment_name};
use crate::segment::scan::{Journal, Opening};

/// One segment of the chain, closed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) first_seq: u64,
    pub(crate) next_seq: u64,
    /// Length of the file in bytes.
    pub(crate) length: u64,
    /// Bytes of its parts, unpacked.
    pub(crate) weight: u64,
    /// Whether it came from another session, which may hold the same file.
    pub(crate) shared: bool,
    /// Level at which it was compressed.
    pub(crate) level: i32,
    /// How many names its file has: more than one where forks share it.
    pub(crate) names: u64,
}

/// Where the sealed part of a log ends.
#[derive(Debug, Clone)]
pub(crate) struct SealedEnd {
    pub(crate) header: JournalHeader,
    /// The last journal that was sealed.
    pub(crate) last_journal: Predecessor,
    pub(crate) next_seq: u64,
    /// Whether another file followed when the last segment was sealed.
    pub(crate) continued: bool,
    /// The last segment that does not count in part.
    pub(crate) whole: Option<Arc<Segment>>,
    /// Whether the last segment counts in part.
    pub(crate) cut: bool,
    pub(crate) links: Vec<Link>,
    /// Segments that a merged one has taken the place of.
    pub(crate) leftovers: Vec<u64>,
}

/// What walking the chain found.
pub(crate) enum Walk {
    /// No segments.
    Empty,
    /// A file that was listed is gone.
    Gone,
    Sealed(Box<SealedEnd>),
}

/// Goes through the segments in order, reading header and footer of each and showing it to `visit`.
///
/// # Errors
/// Damage, `Unsupported`, I/O, and what `visit` reports.
pub(crate) fn walk(
    directory: &SessionDirectory,
    names: &[u64],
    mut visit: impl FnMut(&Segment) -> Result<(), BackendError>,
) -> Result<Walk, BackendError> {
    let mut end: Option<Box<SealedEnd>> = None;
    for &name in names {
        let expected = end.as_ref().map_or(0, |end| end.next_seq);
        let Some(segment) = Segment::open(directory, name, expected)? else { return Ok(Walk::Gone) };
        if let Some(end) = end.as_mut().filter(|end| segment.next_seq() <= end.next_seq) {
            end.leftovers.push(name);
            continue;
        }
        if name != expected {
            let class = if name > expected { DamageClass::Gap } else { DamageClass::Overlap };
            let detail = format!("the log goes on at seq {expected}, but this is the next file there is");
            return Err(directory.damage(class, &segment.path, Some(0), expected, detail));
        }
        visit(&segment)?;
        let (mut links, earlier) = end.take().map_or_else(Default::default, |end| (end.links, end.whole));
        links.push(Link {
            first_seq: name,
            next_seq: segment.next_seq(),
            length: segment.length,
            weight: segment.footer.weight(),
            shared: segment.shared,
            level: segment.footer.level,
            names: segment.names,
        });
        end = Some(Box::new(SealedEnd {
            header: segment.header,
            last_journal: segment.last_journal,
            next_seq: segment.next_seq(),
            continued: segment.footer.continued,
            cut: segment.until.is_some(),
            links,
            leftovers: Vec::new(),
            whole: if segment.until.is_none() { Some(Arc::new(segment)) } else { earlier },
        }));
    }
    Ok(end.map_or(Walk::Empty, Walk::Sealed))
}

impl SealedEnd {
    /// The checkpoint at the end, or where the last segment counts in part and has none of its own, that of the one before.
    pub(crate) fn checkpoint(&self, directory: &SessionDirectory) -> Option<Checkpoint> {
        let own = if self.cut { derived::read_checkpoint(directory, self.header.salt, self.next_seq) } else { None };
        own.or_else(|| self.whole.as_ref()?.checkpoint())
    }

    /// Bytes of the segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.links.iter().fold(0, |sum, link| sum.saturating_add(link.length))
    }

    /// The journals that go on behind the segments; those that were sealed and remain count no more.
    ///
    /// # Errors
    /// Damage when a journal lies across the sealed part instead.
    pub(crate) fn live_journals<'a>(
        &self,
        directory: &SessionDirectory,
        journals: &'a [u64],
    ) -> Result<&'a [u64], BackendError> {
        let (covered, live) = split_at_seq(journals, self.next_seq);
        if let Some(&name) = covered.last() {
            let path = directory.file(&journal::file_name(name));
            let damage = |class, detail: &str| Err(directory.damage(class, &path, Some(0), self.next_seq, detail));
            if name > self.last_journal.first_seq {
                // What is wrong with the file itself says more than where its name puts it.
                Journal::open(directory, name, self.next_seq)?;
                return damage(DamageClass::Overlap, "a journal starts within what is sealed and is not part of it");
            }
            // One that cannot be read any more has been read when it was sealed.
            if name == self.last_journal.first_seq
                && let Ok(Opening::Sound(journal)) = Journal::open(directory, name, self.next_seq)
                && journal.header.salt != self.last_journal.salt
            {
                return damage(DamageClass::IdentityMismatch, "this is not the journal that was sealed");
            }
        }
        Ok(live)
    }

    /// Files that the segments have taken the place of.
    pub(crate) fn leftovers(&self, directory: &SessionDirectory, layout: &Layout) -> Vec<PathBuf> {
        let (covered, _) = split_at_seq(&layout.journals, self.next_seq);
        let segments = self.leftovers.iter().map(|name| segment_name(*name));
        let journals = covered.iter().map(|name| journal::file_name(*name));
        segments.chain(journals).map(|name| directory.file(&name)).collect()
    }

    /// Checks that `next`, the first journal behind the segments, continues what was sealed.
    ///
    /// # Errors
    /// Damage, classified as between journals.
    pub(crate) fn check_link(&self, directory: &SessionDirectory, next: &Journal) -> Result<(), BackendError> {
        check_link(directory, self.last_journal, self.next_seq, next)
    }
}

fn split_at_seq(names: &[u64], seq: u64) -> (&[u64], &[u64]) {
    names.split_at(names.partition_point(|name| *name < seq))
}

/// Checks that `next` continues a segment that ends before `next_seq` with `last_journal`.
///
/// # Errors
/// Damage: a gap when it continues another file, which is missing; else an identity mismatch.
pub(crate) fn check_link(
    directory: &SessionDirectory,
    last_journal: Predecessor,
    next_seq: u64,
    next: &Journal,
) -> Result<(), BackendError> {
    let (class, detail) = match next.header.predecessor {
        Some(before) if before == last_journal => return Ok(()),
        Some(before) if before.first_seq > last_journal.first_seq => {
            (DamageClass::Gap, format!("it continues {}, which is missing", journal::file_name(before.first_seq)))
        }
        _ => (DamageClass::IdentityMismatch, "it does not continue the segment before it".to_owned()),
    };
    Err(directory.damage(class, &next.path, Some(56), next_seq, detail))
}

/// The last journal sealed, from the newest segment's header alone.
///
/// # Errors
/// Damage, `Unsupported`, I/O.
pub(crate) fn last_journal(directory: &SessionDirectory, names: &[u64]) -> Result<Option<Predecessor>, BackendError> {
    // A segment that was merged and remains ends with the same journal as the merged one, or is not the newest.
    for &name in names.iter().rev() {
        if let Some(headed) = open_header(directory, name, 0)? {
            return Ok(Some(headed.last_journal));
        }
    }
    Ok(None)
}
