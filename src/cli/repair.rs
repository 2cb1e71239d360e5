//! `repair`: cut a torn tail, close an orphaned turn.

use serde::Serialize;
use sessionlog::backend::{Backend, BackendError, Expected, TornTail};
use sessionlog::event::{Batch, JsonText, SessionId, Vocabulary};
use sessionlog::segment::SegmentBackend;
use sessionlog::session::repair::close;

use super::args::Repair;
use super::failure::Failure;
use super::output::{Output, counted, one_line, shortened};
use super::store;
use super::summary::{Summary, summarise};

/// The `--json` document.
#[derive(Debug, Serialize)]
struct Document {
    id: String,
    cut_bytes: u64,
    closers: Vec<JsonText>,
}

pub async fn run(backend: &SegmentBackend, arguments: &Repair, json: bool, out: &mut Output) -> Result<(), Failure> {
    let id = store::resolve(backend, &arguments.id).await?;
    let plan = plan(backend, &id).await?;
    let nothing_to_do = plan.0.is_none() && plan.1.is_none();
    let (torn, closers) = if arguments.dry_run || nothing_to_do {
        plan
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
        out.line(&format!("{closed} an open turn with {}:", counted(events.len() as u64, "event")))?;
    }
    for event in &events {
        out.line(&format!(
            "  {:>8}  {:<16} {}",
            event.seq(),
            event.event_type(),
            one_line(&shortened(&event.data(), 90))
        ))?;
    }
    Ok(())
}

/// What a repair would do now; beside a live writer there is nothing that may be done.
async fn plan(backend: &SegmentBackend, id: &SessionId) -> Result<(Option<TornTail>, Option<Batch>), Failure> {
    let summary = summarise(backend, id).await?;
    if summary.opened.live {
        let holder = backend.engine().holder(id)?.unwrap_or_default();
        return Err(Failure::missing(format!(
            "session {id} is open for writing by {holder}; it needs no repair while its writer lives"
        )));
    }
    let closers = closers(&summary, id)?;
    Ok((summary.opened.torn, closers))
}

/// Makes the closers durable, if any are needed. The session is owned.
async fn commit(backend: &SegmentBackend, id: &SessionId, expected: Expected) -> Result<Option<Batch>, Failure> {
    let summary = summarise(backend, id).await?;
    let Some(closers) = closers(&summary, id)? else { return Ok(None) };
    backend.repair(id, expected, &closers).await.map_err(|error| -> BackendError { error.into_backend(id) })?;
    Ok(Some(closers))
}

/// The events that close an open turn. They follow from the whole log, so all of it must be understood (V2).
fn closers(summary: &Summary, id: &SessionId) -> Result<Option<Batch>, Failure> {
    if let Some(invalid) = &summary.invalid {
        return Err(Failure::failed(format!(
            "session {id}: {invalid}; repair cannot mend that, `sessionlog events {id} --json` prints the log as it is"
        )));
    }
    let closers = close(&summary.fold, id);
    if closers.is_some() {
        let known = summary.fold.check_vocabulary(&Vocabulary::well_known());
        known.map_err(|unknown| Failure::failed(format!("session {id}: its open turn is left alone: {unknown}")))?;
    }
    Ok(closers)
}
