//! `fork`: a new session of the beginning of another.

use clap::Args;
use serde::Serialize;
use sessionlog::backend::{ErrorKind, ReadLimit};
use sessionlog::event::control::TURN_END;
use sessionlog::event::{Item, SessionId, Vocabulary};
use sessionlog::segment::SegmentBackend;
use sessionlog::session::ForkAt;
use sessionlog::store::{ForkError, StoreError, StoreOptions};

use super::args::Known;
use super::failure::Failure;
use super::output::{Output, bytes, counted, one_line};
use super::store;

#[derive(Debug, Args)]
pub struct Fork {
    /// Session id, or an unambiguous beginning of it
    #[arg(value_name = "ID")]
    pub id: String,
    /// Last event that the new session takes over; it must lie outside every turn [default: the last one]
    #[arg(long, value_name = "SEQ")]
    pub at: Option<u64>,
    /// Id of the new session
    #[arg(long = "as", value_name = "NEW")]
    pub new: String,
    #[command(flatten)]
    pub known: Known,
}

/// The `--json` document.
#[derive(Debug, Serialize)]
struct Document<'a> {
    id: &'a str,
    parent: &'a str,
    events: u64,
    shared_bytes: u64,
}

pub async fn run(backend: &SegmentBackend, arguments: &Fork, json: bool, out: &mut Output) -> Result<(), Failure> {
    let child = store::id(&arguments.new)?;
    let parent = store::resolve(backend, &arguments.id).await?;
    let known = arguments.known.assume_known.iter();
    let vocabulary = known.fold(Vocabulary::well_known(), |vocabulary, name| vocabulary.with_name(name));
    let store = StoreOptions::new().vocabulary(vocabulary).open(backend.clone()).map_err(failure)?;
    let at = arguments.at.map_or(ForkAt::End, ForkAt::Seq);
    let session = match store.fork(&parent, at, &child).await {
        Ok(session) => session,
        Err(StoreError::Fork(ForkError::InsideTurn { boundary, opened_at, last_closed, .. })) => {
            return Err(inside_turn(backend, &parent, boundary, opened_at, last_closed));
        }
        Err(StoreError::Backend(error)) if error.damage.is_some() && error.session.as_ref() == Some(&child) => {
            // What was shared with the fork, which is gone again, is damaged where it comes from.
            return Err(backend.engine().verify(&parent).error.unwrap_or(error).into());
        }
        Err(error) => return Err(failure(error)),
    };
    let events = session.next_seq();
    session.close().await.map_err(|error| failure(error.into()))?;
    let files = backend.engine().stored_files(&child)?;
    let shared_bytes = files.iter().filter(|file| file.links > 1).map(|file| file.length).sum();
    if json {
        out.json(&Document { id: child.as_str(), parent: parent.as_str(), events, shared_bytes })?;
    } else {
        let (events, shared) = (counted(events, "event"), bytes(shared_bytes));
        let (child, parent) = (one_line(child.as_str()), one_line(parent.as_str()));
        out.line(&format!("forked {parent} as {child}: {events}, {shared} shared with other sessions"))?;
    }
    Ok(())
}

/// The refusal of a boundary inside a turn, which names those before and behind it.
fn inside_turn(
    backend: &SegmentBackend,
    parent: &SessionId,
    boundary: u64,
    opened_at: u64,
    before: Option<u64>,
) -> Failure {
    // A log that cannot be read on has no boundary behind.
    let after = next_turn_end(backend, parent, boundary).unwrap_or_default();
    let near = match (before, after) {
        (Some(before), Some(after)) => {
            format!("fork with --at {before}, before that turn, or --at {after}, at its end")
        }
        (Some(before), None) => format!("fork with --at {before}, before that turn; it has not ended yet"),
        (None, Some(after)) => format!("fork with --at {after}, at its end"),
        (None, None) => format!("`sessionlog repair {parent}` closes it, once nobody has the session open"),
    };
    Failure::failed(format!(
        "session {parent} cannot be forked at seq {boundary}: the turn that began at seq {opened_at} is open there; {near}"
    ))
}

fn next_turn_end(
    backend: &SegmentBackend,
    parent: &SessionId,
    boundary: u64,
) -> Result<Option<u64>, sessionlog::backend::BackendError> {
    let mut reader = backend.engine().reader(parent)?;
    reader.seek(boundary);
    loop {
        let page = reader.next_page(ReadLimit::default())?;
        if page.items.is_empty() {
            return Ok(None);
        }
        for item in &page.items {
            match item {
                Item::Event(event) if event.event_type() == TURN_END => return Ok(Some(event.seq())),
                _ => {}
            }
        }
    }
}

fn failure(error: StoreError) -> Failure {
    match error {
        StoreError::Backend(error) => error.into(),
        StoreError::Fork(error @ ForkError::SourceNotFound { .. }) => {
            Failure::missing(format!("{error}; `sessionlog ls` shows what there is"))
        }
        StoreError::Fork(error @ ForkError::NoSuchEvent { .. }) => {
            Failure::usage(format!("{error}; name one of those"))
        }
        error if matches!(error.kind(), ErrorKind::Busy | ErrorKind::LostOwnership) => {
            Failure::missing(error.to_string())
        }
        error => Failure::failed(format!("{error}; `sessionlog explain {}` says more", error.kind())),
    }
}
