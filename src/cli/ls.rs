//! `ls`: what is in the store.

use std::cmp::Reverse;

use serde::Serialize;
use sessionlog::backend::BackendError;
use sessionlog::event::SessionId;
use sessionlog::segment::{SegmentBackend, Summarised};

use super::args::Ls;
use super::failure::{Failure, PARTLY_FAILED};
use super::output::{Output, bytes, one_line, shortened};
use super::time;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    Ok,
    OpenTurn,
    Live,
    Damaged,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::OpenTurn => "open-turn",
            State::Live => "live",
            State::Damaged => "damaged",
        }
    }
}

/// One line of `--json`.
#[derive(Debug, Serialize)]
struct Line {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<String>,
    created_at: Option<i64>,
    last_time: Option<i64>,
    events: u64,
    turns: u64,
    bytes: u64,
    state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub async fn run(backend: &SegmentBackend, arguments: &Ls, json: bool, out: &mut Output) -> Result<(), Failure> {
    let engine = backend.engine().clone();
    let listed = tokio::task::spawn_blocking(move || engine.summaries()).await;
    let listed = listed.map_err(|error| Failure::failed(format!("the listing broke off: {error}")))??;
    let mut lines: Vec<Line> = listed.into_iter().map(|entry| line(backend, entry)).collect();
    // A damaged session is shown whatever the filters say: it may be the one that is looked for.
    lines.retain(|line| {
        let here = arguments.cwd.as_ref().is_none_or(|cwd| line.cwd.as_ref() == Some(cwd));
        let recent = arguments.since.is_none_or(|since| line.last_time.is_some_and(|time| time >= since));
        line.state == State::Damaged || here && recent
    });
    lines.sort_by(|a, b| Reverse(a.last_time).cmp(&Reverse(b.last_time)).then_with(|| a.id.cmp(&b.id)));
    let damaged = lines.iter().any(|line| line.state == State::Damaged);
    lines.truncate(arguments.limit.unwrap_or(usize::MAX));
    if json {
        lines.iter().try_for_each(|line| out.json(line))?;
    } else {
        table(&lines, out)?;
    }
    if damaged { Err(Failure::Status(PARTLY_FAILED)) } else { Ok(()) }
}

fn line(backend: &SegmentBackend, entry: Summarised) -> Line {
    let id = entry.name;
    let summary = match entry.summary {
        Ok(summary) => summary,
        Err(error) => {
            let session = SessionId::new(&id).ok();
            let stored = session.and_then(|session| backend.engine().stored_bytes(&session).ok()).unwrap_or(0);
            return damaged(id, &error, stored);
        }
    };
    let state = match (&summary.invalid, summary.live, summary.open_turn) {
        (Some(_), _, _) => State::Damaged,
        (None, true, _) => State::Live,
        (None, false, true) => State::OpenTurn,
        (None, false, false) => State::Ok,
    };
    let shown = one_line(&id);
    let error = match (&summary.invalid, &summary.torn) {
        (Some(invalid), _) => Some(format!("session {shown}: {invalid}")),
        (None, Some(torn)) => Some(format!(
            "session {shown}: the last record is incomplete ({} bytes); `sessionlog repair {shown}` cuts it",
            torn.bytes
        )),
        (None, None) => None,
    };
    Line {
        id,
        title: summary.title,
        cwd: summary.header.cwd,
        created_at: summary.header.created_at,
        last_time: summary.last_time,
        events: summary.events,
        turns: summary.turns,
        bytes: summary.bytes,
        state,
        parent: summary.header.parent_session,
        error,
    }
}

fn damaged(id: String, error: &BackendError, bytes: u64) -> Line {
    Line {
        id,
        title: None,
        cwd: None,
        created_at: None,
        last_time: None,
        events: error.damage.as_ref().map_or(0, |damage| damage.intact_before),
        turns: 0,
        bytes,
        state: State::Damaged,
        parent: None,
        error: Some(error.to_string()),
    }
}

fn table(lines: &[Line], out: &mut Output) -> Result<(), Failure> {
    if lines.is_empty() {
        out.line("no sessions")?;
        return Ok(());
    }
    let widest = lines.iter().map(|line| line.id.chars().count()).max().unwrap_or(0).clamp(2, 40);
    out.line(&format!(
        "{:<widest$}  {:<19}  {:<9}  {:>9}  {:>6}  {:>10}  TITLE",
        "ID", "LAST ACTIVITY (UTC)", "STATE", "EVENTS", "TURNS", "BYTES"
    ))?;
    for line in lines {
        let last = line.last_time.map_or_else(|| "-".to_owned(), time::format);
        let title = line.title.as_deref().or(line.cwd.as_deref()).unwrap_or_default();
        out.line(&format!(
            "{:<widest$}  {last:<19}  {:<9}  {:>9}  {:>6}  {:>10}  {}",
            one_line(&line.id),
            line.state.name(),
            line.events,
            line.turns,
            bytes(line.bytes),
            shortened(&one_line(title), 60)
        ))?;
    }
    for error in lines.iter().filter_map(|line| line.error.as_ref()) {
        out.line(&format!("! {}", one_line(error)))?;
    }
    Ok(())
}
