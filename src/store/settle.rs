//! What became of an append whose answer was lost.

use crate::backend::{Backend, BackendError, BatchMark, ErrorKind, Expected, Head, ReadLimit};
use crate::event::{Batch, Event, Item, SessionHeader, SessionId};

/// What became of a batch.
pub(crate) enum Fate {
    /// It is stored, or a beginning of it is: up to the head's next seq.
    Landed(Head),
    /// Nothing of it is stored.
    Missing,
    /// The log is another writer's now.
    Lost(BackendError),
    /// The backend could not tell.
    Unknown(BackendError),
}

/// Reads the head and compares epoch, seq and checksum (where the medium does not keep one: the events) with those of `batch`,
/// which was to be appended at `expected`.
pub(crate) async fn settle<B: Backend>(
    backend: &B,
    header: &SessionHeader,
    id: &SessionId,
    expected: Expected,
    batch: &Batch,
) -> Fate {
    let creating = expected == Expected::ABSENT;
    let opened = if creating {
        backend.open(id).await.map(|opened| (Some(opened.header), opened.head))
    } else {
        backend.head(id).await.map(|head| (None, head))
    };
    let (stored_header, head) = match opened {
        Ok(found) => found,
        Err(error) if error.kind == ErrorKind::NotFound && creating => return Fate::Missing,
        Err(error) if error.kind == ErrorKind::NotFound => {
            return Fate::Lost(lost(id, "the session was deleted while it was open for writing"));
        }
        Err(error) => return Fate::Unknown(error),
    };
    if stored_header.is_some_and(|stored| stored != *header) {
        return Fate::Lost(BackendError::exists(id));
    }
    // A session that was just created has its first epoch; a higher one belongs to somebody who has taken it over since.
    let epoch = if creating { FIRST_EPOCH } else { expected.epoch };
    if head.epoch != epoch {
        return Fate::Lost(lost(id, "another writer has taken the session over; reopen it to go on"));
    }
    if head.next_seq == expected.next_seq {
        return Fate::Missing;
    }
    let mark = BatchMark { first_seq: batch.first_seq(), checksum: batch.checksum() };
    if head.next_seq == batch.next_seq() && head.last_batch == Some(mark) {
        return Fate::Landed(head);
    }
    match holds_beginning(backend, id, batch, head.next_seq).await {
        Ok(true) => Fate::Landed(head),
        Ok(false) => Fate::Lost(lost(id, "the stored log holds events of another writer; reopen the session to go on")),
        Err(error) => Fate::Unknown(error),
    }
}

/// The epoch of a session that nobody has taken over since its creation.
const FIRST_EPOCH: u64 = 1;

/// Whether the stored events from the batch's first seq up to `end` are the batch's.
async fn holds_beginning<B: Backend>(
    backend: &B,
    id: &SessionId,
    batch: &Batch,
    end: u64,
) -> Result<bool, BackendError> {
    if end <= batch.first_seq() || end > batch.next_seq() {
        return Ok(false);
    }
    let mut at = batch.first_seq();
    while at < end {
        let page = backend.read(id, at, ReadLimit { events: end - at, ..ReadLimit::default() }).await?;
        let stored: Vec<Event> = page.items.iter().flat_map(Item::events).collect();
        let mut own = batch.events().skip_while(|event| event.seq() < at);
        if stored.is_empty() || stored.iter().any(|event| own.next().as_ref() != Some(event)) {
            return Ok(false);
        }
        at += stored.len() as u64;
    }
    Ok(true)
}

fn lost(id: &SessionId, detail: &str) -> BackendError {
    BackendError::new(ErrorKind::LostOwnership, detail).with_session(id)
}
