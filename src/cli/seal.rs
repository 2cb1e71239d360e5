//! `seal`: cold sessions into as few bytes as it takes.

use serde::Serialize;
use sessionlog::backend::{BackendError, ErrorKind};
use sessionlog::event::SessionId;
use sessionlog::segment::{SealOptions, Sealed, SegmentBackend};

use super::args::Seal;
use super::failure::{Failure, Refusals};
use super::output::{Output, bytes, complain, one_line, paragraph};
use super::store;

/// One line of `--json`.
#[derive(Debug, Serialize)]
struct Line<'a> {
    id: &'a str,
    before: u64,
    after: u64,
}

pub async fn run(backend: &SegmentBackend, arguments: &Seal, json: bool, out: &mut Output) -> Result<(), Failure> {
    let options = SealOptions::new().level(arguments.level);
    let mut refusals = Refusals::default();
    let mut chosen: Vec<SessionId> = Vec::new();
    for given in &arguments.ids {
        match store::resolve(backend, given).await {
            Ok(id) => chosen.push(id),
            // The others are still sealed.
            Err(failure) => refusals.add(failure)?,
        }
    }
    if arguments.ids.is_empty() {
        for entry in store::entries(backend).await? {
            match entry.id() {
                Ok(id) => chosen.push(id),
                Err(error) => refusals.add(error.into())?,
            }
        }
    }
    for id in &chosen {
        match seal(backend, id, options).await {
            Ok(Sealed { before, after }) if json => out.json(&Line { id: id.as_str(), before, after })?,
            Ok(Sealed { before, after }) => {
                let id = one_line(id.as_str());
                let line = if after == before {
                    format!("unchanged  {id}  {}", bytes(after))
                } else {
                    format!("sealed     {id}  {} -> {}", bytes(before), bytes(after))
                };
                out.line(&line)?;
            }
            // Of all sessions, those that are open for writing are not cold.
            Err(error) if error.kind == ErrorKind::Busy && arguments.ids.is_empty() => {
                complain(&format!("sessionlog: {}", paragraph(&error.to_string())));
            }
            Err(error) => refusals.add(error.into())?,
        }
    }
    refusals.end()
}

async fn seal(backend: &SegmentBackend, id: &SessionId, options: SealOptions) -> Result<Sealed, BackendError> {
    let engine = backend.engine().clone();
    let session = id.clone();
    let sealed = tokio::task::spawn_blocking(move || engine.seal(&session, options)).await;
    sealed.unwrap_or_else(|error| {
        Err(BackendError::new(ErrorKind::Io, format!("sealing broke off: {error}")).with_session(id))
    })
}
