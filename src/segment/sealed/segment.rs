//! A sealed segment in its session's directory.

use std::io;
use std::path::{Path, PathBuf};

use super::block::Wanted;
use super::file::{
    SealedFault, Source, read_block, read_block_afresh, read_checkpoint, read_conversation, read_footer,
};
use super::footer::{BlockEntry, FORMAT, Footer};
use super::shared;
use crate::backend::{BackendError, Checkpoint, DamageClass, ErrorKind};
use crate::event::{Event, Item};
use crate::segment::directory::{SessionDirectory, identity};
use crate::segment::files::{Access, File, Identity, Stat, read_full_at};
use crate::segment::journal::{HeaderFault, JournalHeader, Predecessor, segment_name};

/// Bytes that are copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// A sealed segment whose header and footer are sound, open for reading.
#[derive(Debug)]
pub(crate) struct Segment {
    source: Source,
    pub(crate) path: PathBuf,
    pub(crate) header: JournalHeader,
    /// The last journal sealed into it: what the journal behind it names as its predecessor.
    pub(crate) last_journal: Predecessor,
    pub(crate) identity: Identity,
    /// How many names the file has.
    pub(crate) names: u64,
    /// Length in bytes.
    pub(crate) length: u64,
    /// Index and counts; of a segment that counts in part the index of that part alone.
    pub(crate) footer: Footer,
    /// Seq from which on its events are another session's alone.
    pub(crate) until: Option<u64>,
    /// Whether it was sealed in another session.
    pub(crate) shared: bool,
}

/// A segment of which the header is sound.
pub(crate) struct Headed {
    file: Box<dyn File>,
    header: JournalHeader,
    stat: Stat,
    /// What the journal behind it names as its predecessor.
    pub(crate) last_journal: Predecessor,
    until: Option<u64>,
    shared: bool,
}

/// The segment as what a journal continues: that of a segment that counts in part is none of its journals.
fn itself(header: &JournalHeader, length: u64) -> Predecessor {
    Predecessor { first_seq: header.first_seq, salt: header.salt, end: length }
}

/// Reads the header of the segment of this name; `None` when there is no such file.
///
/// # Errors
/// Damage or `Unsupported`, with `intact_before` as given; I/O.
pub(crate) fn open_header(
    directory: &SessionDirectory,
    name: u64,
    intact_before: u64,
) -> Result<Option<Headed>, BackendError> {
    open_header_at(directory, &directory.file(&segment_name(name)), name, intact_before)
}

fn open_header_at(
    directory: &SessionDirectory,
    path: &Path,
    name: u64,
    intact_before: u64,
) -> Result<Option<Headed>, BackendError> {
    let file = match directory.files.open(path, Access::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let mut error = directory.io("opening a sealed segment", path, error);
            if let Some(damage) = &mut error.damage {
                damage.intact_before = intact_before;
            }
            return Err(error);
        }
    };
    let failed = |error| directory.io("reading a sealed segment's header", path, error);
    let stat = file.stat().map_err(failed)?;
    let mut bytes = vec![0; JournalHeader::sample_bytes()];
    let filled = read_full_at(&*file, &mut bytes, 0).map_err(failed)?;
    bytes.truncate(filled);
    let damage = |class, detail: &str| Err(directory.damage(class, path, Some(0), intact_before, detail));
    let header = match JournalHeader::decode_as(&bytes, FORMAT) {
        Ok(header) => header,
        Err(HeaderFault::Cut) => return damage(DamageClass::Gap, "the file was cut within its header"),
        Err(HeaderFault::Nul) => return damage(DamageClass::NulHole, "zeros stand where the segment's header was"),
        Err(HeaderFault::Bad) => return damage(DamageClass::BadHeader, "this is not a sound segment header"),
        Err(HeaderFault::Foreign(version)) if version < FORMAT.version => {
            let detail = format!(
                "segment format {version} is older than what this build reads: export the session with the build that wrote \
                 it and import it again. The log is left as it is"
            );
            let mut earlier = directory.damage(DamageClass::ForeignVersion, path, Some(8), intact_before, detail);
            earlier.kind = ErrorKind::Unsupported;
            return Err(earlier);
        }
        Err(HeaderFault::Foreign(version)) => {
            let what = format!("segment format {version}");
            return Err(directory.unsupported(path, Some(8), intact_before, &what));
        }
    };
    let own = header.session == identity(directory.id.as_ref());
    let listed = shared::find(directory, &header, intact_before)?;
    if !own && listed.is_none() {
        return damage(DamageClass::IdentityMismatch, "this segment belongs to another session");
    }
    if header.first_seq != name {
        let detail = format!("this segment starts at seq {}, not where its name says", header.first_seq);
        return damage(DamageClass::IdentityMismatch, &detail);
    }
    let Some(last_journal) = header.predecessor.filter(|last| last.first_seq >= name) else {
        return damage(DamageClass::BadHeader, "the segment does not say which journals it stands for");
    };
    let until = listed.and_then(|entry| entry.until());
    let last_journal = if until.is_some() { itself(&header, stat.length) } else { last_journal };
    Ok(Some(Headed { file, header, stat, last_journal, until, shared: !own }))
}

impl Segment {
    /// Opens the segment of this name: header and footer are read and checked, blocks are not. `None` when it is gone.
    ///
    /// # Errors
    /// Damage or `Unsupported`, with `intact_before` as given; I/O.
    pub(crate) fn open(
        directory: &SessionDirectory,
        name: u64,
        intact_before: u64,
    ) -> Result<Option<Self>, BackendError> {
        Self::open_at(directory, &directory.file(&segment_name(name)), name, intact_before)
    }

    /// As [`Segment::open`], of a segment that has another name so far.
    ///
    /// # Errors
    /// As [`Segment::open`].
    pub(crate) fn open_at(
        directory: &SessionDirectory,
        path: &Path,
        name: u64,
        intact_before: u64,
    ) -> Result<Option<Self>, BackendError> {
        let headed = open_header_at(directory, path, name, intact_before)?;
        let Some(Headed { file, header, stat, last_journal, until, shared }) = headed else { return Ok(None) };
        let path = path.to_owned();
        let footer = read_footer(&*file, stat.length, header.salt);
        let mut footer = footer.map_err(|fault| error_of(directory, &path, fault, intact_before))?;
        let fits = footer.first_seq == name
            && footer.next_seq > name
            && (footer.first_seq..footer.next_seq).contains(&last_journal.first_seq)
            && until.is_none_or(|until| until <= footer.next_seq);
        if !fits {
            let detail = "the segment's footer is not that of the file it stands in";
            return Err(directory.damage(DamageClass::Checksum, &path, None, intact_before, detail));
        }
        if let Some(until) = until {
            footer.blocks.retain(|block| block.first_seq < until);
            footer.next_seq = until;
            footer.checkpoint = None;
            // The session that shares it has its own journal behind.
            footer.continued = true;
        }
        let Stat { identity, length, links: names, .. } = stat;
        let source = Source::new(file, length);
        Ok(Some(Self { source, path, header, last_journal, identity, names, length, footer, until, shared }))
    }

    /// The segment as what a journal continues when it counts in part.
    pub(crate) fn itself(&self) -> Predecessor {
        itself(&self.header, self.length)
    }

    /// Seq behind its last event.
    pub(crate) fn next_seq(&self) -> u64 {
        self.footer.next_seq
    }

    /// The checkpoint behind its last event, if it has one. One that cannot be read is none: it is derived, and the log is replayed.
    pub(crate) fn checkpoint(&self) -> Option<Checkpoint> {
        let part = self.footer.checkpoint?;
        let offset = self.footer.blocks.last().and_then(BlockEntry::end)?;
        match read_checkpoint(self.source.file(), offset, part, self.header.salt) {
            Ok(state) => Some(Checkpoint { next_seq: self.next_seq(), state }),
            Err(fault) => {
                tracing::warn!(path = %self.path.display(), ?fault, "a checkpoint cannot be read");
                None
            }
        }
    }

    /// The block that holds `seq`, and its index.
    pub(crate) fn block_of(&self, seq: u64) -> Option<(usize, BlockEntry)> {
        let index = self.footer.block_of(seq)?;
        let block = *self.footer.blocks.get(index)?;
        Some((index, BlockEntry { next_seq: block.next_seq.min(self.next_seq()), ..block }))
    }

    /// All items of a block, in log order.
    ///
    /// # Errors
    /// Damage, with the events before the block intact; I/O.
    pub(crate) fn block(&self, directory: &SessionDirectory, index: usize) -> Result<Vec<Item>, BackendError> {
        let Some(block) = self.footer.blocks.get(index) else { return Ok(Vec::new()) };
        let mut items = read_block(&self.source, block, self.header.salt)
            .map_err(|fault| error_of(directory, &self.path, fault, block.first_seq))?;
        if block.next_seq > self.next_seq() {
            items = items.iter().filter_map(|item| item.slice(block.first_seq, self.next_seq())).collect();
        }
        Ok(items)
    }

    /// All items of the block of this entry, which starts at `first_seq` whatever the entry says, and the entry that it should have.
    ///
    /// # Errors
    /// As [`Segment::block`].
    pub(crate) fn block_afresh(
        &self,
        directory: &SessionDirectory,
        entry: &BlockEntry,
        first_seq: u64,
    ) -> Result<(BlockEntry, Vec<Item>), BackendError> {
        read_block_afresh(&self.source, entry, self.header.salt, first_seq)
            .map_err(|fault| error_of(directory, &self.path, fault, first_seq))
    }

    /// The bytes before the footer, piece by piece.
    ///
    /// # Errors
    /// I/O, and what `write` reports.
    pub(crate) fn copy_blocks(&self, mut write: impl FnMut(&[u8], u64) -> io::Result<()>) -> io::Result<u64> {
        let end = self.footer.blocks.last().and_then(BlockEntry::end).ok_or(io::ErrorKind::InvalidData)?;
        let mut buffer = vec![0; COPY_BYTES];
        let mut at = 0_u64;
        while at < end {
            let wanted = usize::try_from(end - at).unwrap_or(COPY_BYTES).min(COPY_BYTES);
            let piece = buffer.get_mut(..wanted).unwrap_or_default();
            if read_full_at(self.source.file(), piece, at)? < wanted {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            write(piece, at)?;
            at = at.saturating_add(wanted as u64);
        }
        Ok(end)
    }

    /// The wanted events of a block that are no packed deltas, in log order.
    ///
    /// # Errors
    /// As [`Segment::block`].
    pub(crate) fn conversation(
        &self,
        directory: &SessionDirectory,
        index: usize,
        wanted: Wanted<'_>,
    ) -> Result<Vec<Event>, BackendError> {
        let Some(block) = self.footer.blocks.get(index) else { return Ok(Vec::new()) };
        let here = |seq: u64, event_type: &str, data: &str| seq < self.next_seq() && wanted(seq, event_type, data);
        read_conversation(&self.source, block, self.header.salt, &here)
            .map_err(|fault| error_of(directory, &self.path, fault, block.first_seq))
    }
}

fn error_of(directory: &SessionDirectory, path: &Path, fault: SealedFault, intact_before: u64) -> BackendError {
    match fault {
        SealedFault::Io(error) => directory.io("reading a sealed segment", path, error),
        SealedFault::Damaged { offset, what } => directory.damage(
            DamageClass::Checksum,
            path,
            Some(offset),
            intact_before,
            format!("in a sealed segment {what}"),
        ),
    }
}
