//! Opening the store and finding sessions by shortened ids.

use std::path::{Path, PathBuf};

use sessionlog::backend::{Backend, ErrorKind};
use sessionlog::event::{Event, SessionId};
use sessionlog::segment::SegmentBackend;

use super::args::Common;
use super::failure::Failure;

/// Where the store is: the option or `$SESSIONLOG_STORE`, else the platform's data directory.
pub fn root(common: &Common) -> Result<PathBuf, Failure> {
    if let Some(root) = &common.store {
        return Ok(root.clone());
    }
    let data = dirs::data_dir().ok_or_else(|| {
        Failure::usage(
            "no data directory is known on this system; name the store with --store DIR or $SESSIONLOG_STORE",
        )
    })?;
    Ok(data.join("sessionlog"))
}

/// Opens an existing store.
pub fn open(root: &Path) -> Result<SegmentBackend, Failure> {
    if !root.exists() {
        return Err(Failure::missing(format!(
            "no store at {}; `sessionlog import FILE` makes one, --store DIR or $SESSIONLOG_STORE names another place",
            root.display()
        )));
    }
    Ok(SegmentBackend::open(root)?)
}

/// The session that `given` names: its id, or an unambiguous beginning of it.
pub async fn resolve(backend: &SegmentBackend, given: &str) -> Result<SessionId, Failure> {
    let exact = SessionId::new(given).map_err(|error| Failure::usage(error.to_string()))?;
    match backend.head(&exact).await {
        Err(error) if error.kind == ErrorKind::NotFound => {}
        // Damaged, busy or fine: it is there.
        _ => return Ok(exact),
    }
    let mut candidates = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = backend.list(after.as_deref(), 1000).await?;
        for entry in page.entries {
            let id = entry.header.map_or(entry.name, |header| header.id);
            if id.starts_with(given) {
                candidates.extend(SessionId::new(&id));
            }
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    candidates.sort();
    match candidates.as_slice() {
        [] => Err(Failure::missing(format!("no session {exact}; `sessionlog ls` shows what there is"))),
        [only] => Ok(only.clone()),
        several => {
            let shown: Vec<String> = several.iter().take(20).map(|id| format!("  {id}")).collect();
            let more = several.len().saturating_sub(shown.len());
            let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
            Err(Failure::usage(format!(
                "{exact} is the beginning of {} ids; write more of the one you mean:\n{}{more}",
                several.len(),
                shown.join("\n")
            )))
        }
    }
}

/// Reads a session's events from `from` on, page by page, in bounded memory. `take` returns `false` to stop.
pub async fn for_each_event(
    backend: &SegmentBackend,
    id: &SessionId,
    from: u64,
    mut take: impl FnMut(Event) -> Result<bool, Failure>,
) -> Result<u64, Failure> {
    let mut at = from;
    loop {
        let page = backend.read(id, at, Default::default()).await?;
        for event in page.items.iter().flat_map(sessionlog::event::Item::events) {
            at = event.seq() + 1;
            if !take(event)? {
                return Ok(at);
            }
        }
        match page.next {
            Some(next) => at = next,
            None => return Ok(at),
        }
    }
}
