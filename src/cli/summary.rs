//! What a whole log says about a session: read once, in bounded memory.

use sessionlog::backend::{Backend, BackendError, Opened};
use sessionlog::event::SessionId;
use sessionlog::segment::SegmentBackend;
use sessionlog::session::fold::Fold;
use sessionlog::session::validator::InvalidEvent;

use super::failure::Failure;

/// A session whose records are sound.
pub struct Summary {
    pub opened: Opened,
    pub fold: Fold,
    /// The first event that breaks a rule of the model, if one does; the fold ends before it.
    pub invalid: Option<InvalidEvent>,
}

/// Reads and folds the session.
pub async fn summarise(backend: &SegmentBackend, id: &SessionId) -> Result<Summary, BackendError> {
    let opened = backend.open(id).await?;
    let mut fold = Fold::new();
    let mut from = Some(0);
    while let Some(seq) = from {
        let page = backend.read(id, seq, Default::default()).await?;
        for item in &page.items {
            if let Err(invalid) = fold.apply_item(item) {
                return Ok(Summary { opened, fold, invalid: Some(invalid) });
            }
        }
        from = page.next;
    }
    Ok(Summary { opened, fold, invalid: None })
}

/// One entry of a listing.
pub struct Entry {
    /// The id, or the directory's name where the header cannot be read.
    pub name: String,
    pub header: Result<SessionId, BackendError>,
}

/// All sessions of the store, in its own order.
pub async fn entries(backend: &SegmentBackend) -> Result<Vec<Entry>, Failure> {
    let mut entries = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = backend.list(after.as_deref(), 1000).await?;
        for listed in page.entries {
            let header = listed.header.and_then(|header| header.session_id().map_err(BackendError::header));
            entries.push(Entry { name: listed.name, header });
        }
        after = page.next;
        if after.is_none() {
            return Ok(entries);
        }
    }
}
