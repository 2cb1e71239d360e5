//! What a whole log says about a session: read once, in bounded memory.

use sessionlog::backend::{Backend, BackendError, Opened, ReadLimit};
use sessionlog::event::SessionId;
use sessionlog::segment::SegmentBackend;
use sessionlog::session::fold::Fold;
use sessionlog::session::validator::InvalidEvent;

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
    let invalid = fold_on(backend, id, &mut fold).await?;
    Ok(Summary { opened, fold, invalid })
}

/// What the events before the damage say about a damaged session.
pub async fn fold_intact(backend: &SegmentBackend, id: &SessionId) -> Fold {
    let mut fold = Fold::new();
    // How it ends is known already.
    let _ = fold_on(backend, id, &mut fold).await;
    fold
}

async fn fold_on(
    backend: &SegmentBackend,
    id: &SessionId,
    fold: &mut Fold,
) -> Result<Option<InvalidEvent>, BackendError> {
    let mut from = Some(0);
    while let Some(seq) = from {
        let page = backend.read(id, seq, ReadLimit::default()).await?;
        for item in &page.items {
            if let Err(invalid) = fold.apply_item(item) {
                return Ok(Some(invalid));
            }
        }
        from = page.next;
    }
    Ok(None)
}

/// Number of turns begun.
pub fn turns(fold: &Fold) -> u64 {
    fold.counts().get("turn/start").map_or(0, |count| count.count)
}
