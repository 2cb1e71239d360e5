//! Where a session's bytes are.

use super::Engine;
use crate::backend::BackendError;
use crate::event::SessionId;
use crate::segment::files::FileKind;
use crate::segment::journal;
use crate::segment::sealed::segment::Segment;

/// Stored bytes, and what they are unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SectionBytes {
    /// Bytes in files.
    pub stored: u64,
    /// Bytes in memory once unpacked; `stored` where nothing is packed as a whole.
    pub unpacked: u64,
}

impl SectionBytes {
    fn add(&mut self, stored: u64, unpacked: u64) {
        self.stored = self.stored.saturating_add(stored);
        self.unpacked = self.unpacked.saturating_add(unpacked);
    }
}

/// The bytes of a session's files by what they hold; [`Engine::sections`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sections {
    /// Of sealed segments, everything that is no streamed delta.
    pub conversation: SectionBytes,
    /// Of sealed segments, the streamed deltas.
    pub stream: SectionBytes,
    /// Of sealed segments, what is derived: index, counts, checkpoint; and their headers.
    pub index: SectionBytes,
    /// Journals, which wait to be sealed.
    pub journals: SectionBytes,
    /// The session's header, its lock, and files that do not count any more.
    pub other: SectionBytes,
}

impl Sections {
    /// Bytes of all files.
    pub fn stored(&self) -> u64 {
        let all = [self.conversation, self.stream, self.index, self.journals, self.other];
        all.iter().fold(0, |sum, section| sum.saturating_add(section.stored))
    }
}

impl Engine {
    /// Where a session's bytes are. Costs the footers of its sealed segments; segments that it shares with a fork count in both.
    ///
    /// # Errors
    /// `NotFound`, I/O. A segment that cannot be read counts among the other files.
    pub fn sections(&self, id: &SessionId) -> Result<Sections, BackendError> {
        let directory = self.directory(id);
        directory.check()?;
        let mut sections = Sections::default();
        for name in directory.names()? {
            let path = directory.file(&name);
            let Some(stat) = directory.files.stat(&path).ok().filter(|stat| stat.kind == FileKind::File) else {
                continue;
            };
            if journal::seq_of(&name, "log").is_some() {
                sections.journals.add(stat.length, stat.length);
                continue;
            }
            let segment =
                journal::seq_of(&name, "seg").and_then(|seq| Segment::open(&directory, seq, seq).ok().flatten());
            let Some(segment) = segment else {
                sections.other.add(stat.length, stat.length);
                continue;
            };
            let mut rest = segment.length;
            for block in &segment.footer.blocks {
                let [conversation, marks, text] = [block.conversation, block.marks, block.text];
                sections.conversation.add(u64::from(conversation.stored), u64::from(conversation.unpacked));
                let stored = u64::from(marks.stored) + u64::from(text.stored);
                sections.stream.add(stored, u64::from(marks.unpacked) + u64::from(text.unpacked));
                rest = rest.saturating_sub(u64::from(conversation.stored) + stored);
            }
            // Of a segment that counts in part this is more than its index: the blocks that another session alone has.
            sections.index.add(rest, rest);
        }
        Ok(sections)
    }
}
