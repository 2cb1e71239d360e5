//! What a log comes to at any seq, from the nearest checkpoint on.

use super::Engine;
use crate::backend::{BackendError, Checkpoint, ReadLimit};
use crate::event::SessionId;
use crate::segment::sealed::segment::Segment;
use crate::segment::select::Selection;
use crate::session::fold::Fold;
use crate::session::validator::InvalidEvent;

/// Why the state of a log cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The log cannot be read.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// An event breaks a rule of the model; the records are sound.
    #[error(transparent)]
    Invalid(#[from] InvalidEvent),
}

impl Engine {
    /// The nearest stored checkpoint that holds for no event from `end` on; `None` when there is none, and the log must be read
    /// from its beginning. Costs a footer or two.
    ///
    /// # Errors
    /// `NotFound`, I/O. Segments that cannot be read are passed over: reading the events they hold says what is wrong with them.
    pub fn checkpoint_before(&self, id: &SessionId, end: u64) -> Result<Option<Checkpoint>, BackendError> {
        Ok(self.nearest(id, end)?.map(|(checkpoint, _)| checkpoint))
    }

    /// As [`Engine::checkpoint_before`], and whether the log ends where the checkpoint stands.
    fn nearest(&self, id: &SessionId, end: u64) -> Result<Option<(Checkpoint, bool)>, BackendError> {
        let directory = self.directory(id);
        directory.check()?;
        let layout = directory.layout()?;
        for name in layout.segments.iter().rev().filter(|name| **name < end) {
            if let Ok(Some(segment)) = Segment::open(&directory, *name, *name)
                && segment.next_seq() <= end
                && let Some(checkpoint) = segment.checkpoint()
            {
                let more = segment.footer.continued
                    || layout.segments.last() != Some(name)
                    || layout.journals.last().is_some_and(|journal| *journal >= segment.next_seq());
                return Ok(Some((checkpoint, !more)));
            }
        }
        Ok(None)
    }

    /// Brings an empty `fold` to the state before event `end`, or at the log's end if that comes first. Reads the nearest
    /// checkpoint and, of what follows it, everything but the text that was streamed; the time of a last event that is a streamed
    /// delta stays that of the event before.
    ///
    /// # Errors
    /// [`StateError`]; `fold` is then the state of all events before the one that it stopped at.
    pub fn fold_before(&self, id: &SessionId, end: u64, fold: &mut Fold) -> Result<(), StateError> {
        if let Some((checkpoint, is_end)) = self.nearest(id, end)? {
            match Fold::from_checkpoint(&checkpoint) {
                Ok(state) => {
                    *fold = state;
                    if is_end {
                        return Ok(());
                    }
                }
                // A checkpoint is derived and never trusted over the log.
                Err(error) => tracing::warn!(session = %id, %error, "reading the whole log instead"),
            }
        }
        let mut reader = self.reader(id)?;
        reader.seek(fold.next_seq());
        while fold.next_seq() < end {
            let page = reader.next_page_of(ReadLimit::default(), &Selection::conversation().before(end))?;
            for item in &page.items {
                fold.apply_unread_deltas(item.first_seq());
                fold.apply_item(item)?;
            }
            fold.apply_unread_deltas(reader.position().min(end));
            if page.next.is_none() {
                break;
            }
        }
        Ok(())
    }
}
