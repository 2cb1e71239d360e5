//! `repair`: cut a torn tail, close an orphaned turn.

use serde::Serialize;
use sessionlog::backend::{Backend, BackendError, Expected, TornTail};
use sessionlog::event::{Batch, JsonText, SessionId};
use sessionlog::segment::SegmentBackend;
use sessionlog::session::repair::close;

use super::args::Repair;
use super::failure::Failure;
use super::output::{Output, one_line, shortened};
use super::store;
use super::summary::summarise;

/// The `--json` document.
#[derive(Debug, Serialize)]
struct Document {
    id: String,
    cut_bytes: u64,
    closers: Vec<JsonText>,
}

pub async fn run(backend: &SegmentBackend, arguments: &Repair, json: bool, out: &mut Output) -> Result<(), Failure> {
    let id = store::resolve(backend, &arguments.id).await?;
    let (torn, closers) = if arguments.dry_run {
        plan(backend, &id).await?
    } else {
        let taken = backend.take_over(&id).await?;
        let result = commit(backend, &id, Expected { epoch: taken.head.epoch, next_seq: taken.head.next_seq }).await;
        backend.release(&id, taken.head.epoch).await?;
        (taken.torn, result?)
    };
    let cut_bytes = torn.as_ref().map_or(0, |torn| torn.bytes);
    let events: Vec<_> = closers.iter().flat_map(Batch::events).collect();
    if json {
        let closers = events.iter().map(|event| JsonText::parse(&event.to_line())).collect::<Result<Vec<_>, _>>();
        let closers = closers.map_err(|error| Failure::failed(error.to_string()))?;
        out.json(&Document { id: id.as_str().to_owned(), cut_bytes, closers })?;
        return Ok(());
    }
    let (cut, closed) = if arguments.dry_run { ("would cut", "would close") } else { ("cut", "closed") };
    match &torn {
        Some(torn) => {
            let kept = torn.kept.as_ref().map(|path| format!(", kept in {}", path.display())).unwrap_or_default();
            out.line(&format!("{cut} an incomplete record: {} bytes from offset {}{kept}", torn.bytes, torn.offset))?;
        }
        None => out.line("no incomplete record at the end")?,
    }
    if events.is_empty() {
        out.line("no open turn")?;
    } else {
        out.line(&format!("{closed} an open turn with {} events:", events.len()))?;
    }
    for event in &events {
        out.line(&format!(
            "  {:>8}  {:<16} {}",
            event.seq(),
            event.event_type(),
            shortened(&one_line(&event.data()), 90)
        ))?;
    }
    Ok(())
}

/// What a repair would do now; beside a live writer there is nothing that may be done.
async fn plan(backend: &SegmentBackend, id: &SessionId) -> Result<(Option<TornTail>, Option<Batch>), Failure> {
    let summary = summarise(backend, id).await?;
    if summary.opened.live {
        return Err(Failure::missing(format!("session {id} is open for writing; a live session needs no repair")));
    }
    if let Some(invalid) = summary.invalid {
        return Err(Failure::failed(format!("session {id}: {invalid}; repair cannot mend that")));
    }
    Ok((summary.opened.torn, close(&summary.fold, id)))
}

/// Makes the closers durable, if any are needed. The session is owned.
async fn commit(backend: &SegmentBackend, id: &SessionId, expected: Expected) -> Result<Option<Batch>, Failure> {
    let summary = summarise(backend, id).await?;
    if let Some(invalid) = summary.invalid {
        return Err(Failure::failed(format!("session {id}: {invalid}; repair cannot mend that")));
    }
    let Some(closers) = close(&summary.fold, id) else { return Ok(None) };
    backend.repair(id, expected, &closers).await.map_err(|error| -> BackendError { error.into_backend(id) })?;
    Ok(Some(closers))
}
