//! `ls`: what is in the store.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde::Serialize;
use sessionlog::backend::BackendError;
use sessionlog::event::header::is_absolute;
use sessionlog::event::{SessionHeader, SessionId};
use sessionlog::segment::{SegmentBackend, Summarised};
use sessionlog::session::fold::Fold;

use super::args::Ls;
use super::failure::{Failure, PARTLY_FAILED};
use super::output::{Output, bytes, complain, one_line, shortened};
use super::summary::{fold_intact, turns};
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
    /// With `--tree`: how many of the sessions shown above it was forked from, one through the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    depth: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub async fn run(backend: &SegmentBackend, arguments: &Ls, json: bool, out: &mut Output) -> Result<(), Failure> {
    let cwd = arguments.cwd.as_deref().map(absolute);
    let engine = backend.engine().clone();
    let listed = tokio::task::spawn_blocking(move || engine.summaries()).await;
    let listed = listed.map_err(|error| Failure::failed(format!("the listing broke off: {error}; run it again")))??;
    let mut lines = Vec::with_capacity(listed.len());
    for entry in listed {
        lines.push(line(backend, entry).await);
    }
    // A damaged session is shown whatever the filters say: it may be the one that is looked for.
    lines.retain(|line| {
        let here = cwd.as_deref().is_none_or(|cwd| line.cwd.as_deref().is_some_and(|other| same_directory(cwd, other)));
        let recent = arguments.since.is_none_or(|since| line.last_time.is_some_and(|time| time >= since));
        line.state == State::Damaged || here && recent
    });
    lines.sort_by(|a, b| Reverse(a.last_time).cmp(&Reverse(b.last_time)).then_with(|| a.id.cmp(&b.id)));
    if arguments.tree {
        lines = tree(lines);
    }
    let damaged = lines.iter().any(|line| line.state == State::Damaged);
    let hidden = lines.split_off(lines.len().min(arguments.limit.unwrap_or(usize::MAX)));
    if json {
        lines.iter().try_for_each(|line| out.json(line))?;
    } else if lines.is_empty() && hidden.is_empty() {
        let chosen = arguments.cwd.is_some() || arguments.since.is_some();
        out.line(if chosen { "no such sessions; `sessionlog ls` shows all" } else { "no sessions" })?;
    } else {
        table(&lines, out)?;
    }
    out.flush()?;
    // The exit status speaks of them too, so they are named.
    for line in hidden.iter().filter(|line| line.state == State::Damaged) {
        complain(&format!(
            "sessionlog: not shown, but damaged: {}",
            one_line(line.error.as_deref().unwrap_or(&line.id))
        ));
    }
    if damaged { Err(Failure::Status(PARTLY_FAILED)) } else { Ok(()) }
}

/// A directory as it was typed, from the root on.
fn absolute(typed: &str) -> String {
    if is_absolute(typed) {
        return typed.to_owned();
    }
    // Logs of other places may state relative directories; one that is no directory here is looked for as it is.
    let here = std::path::Path::new(typed).canonicalize();
    here.ok().and_then(|path| path.to_str().map(str::to_owned)).unwrap_or_else(|| typed.to_owned())
}

fn same_directory(one: &str, other: &str) -> bool {
    let bare = |path: &str| {
        let bare = path.trim_end_matches(['/', '\\']);
        if bare.is_empty() { path.to_owned() } else { bare.to_owned() }
    };
    bare(one) == bare(other)
}

async fn line(backend: &SegmentBackend, entry: Summarised) -> Line {
    let id = entry.name;
    let summary = match entry.summary {
        Ok(summary) => summary,
        Err(error) => {
            // What is intact still tells which session this is.
            let Ok(session) = SessionId::new(&id) else { return damaged(id, &error, None, &Fold::new(), 0) };
            let header = backend.engine().reader(&session).ok().map(|reader| reader.header().clone());
            let intact = fold_intact(backend, &session).await;
            let stored = backend.engine().stored_bytes(&session).unwrap_or(0);
            return damaged(id, &error, header.as_ref(), &intact, stored);
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
            "session {shown}: the last record is incomplete ({} bytes); `sessionlog repair {shown}` sets them aside",
            torn.bytes
        )),
        (None, None) => None,
    };
    Line {
        id,
        title: summary.title.clone(),
        cwd: summary.header.cwd.clone(),
        created_at: summary.header.created_at,
        last_time: summary.last_time,
        events: summary.events,
        turns: summary.turns,
        bytes: summary.bytes,
        state,
        parent: summary.header.parent_session.clone(),
        depth: None,
        error,
    }
}

fn damaged(name: String, error: &BackendError, header: Option<&SessionHeader>, intact: &Fold, bytes: u64) -> Line {
    Line { state: State::Damaged, error: Some(error.to_string()), ..known(name, header, intact, bytes) }
}

/// What header and log say.
fn known(id: String, header: Option<&SessionHeader>, fold: &Fold, bytes: u64) -> Line {
    Line {
        id,
        title: fold.title().map(str::to_owned),
        cwd: header.and_then(|header| header.cwd.clone()),
        created_at: header.and_then(|header| header.created_at),
        last_time: fold.last_time(),
        events: fold.next_seq(),
        turns: turns(fold),
        bytes,
        state: State::Ok,
        parent: header.and_then(|header| header.parent_session.clone()),
        depth: None,
        error: None,
    }
}

/// Puts forks under their parents, at each level in the order given. A session whose parent is not among them stands at the top, and of
/// sessions that name each other as parents the first one does.
fn tree(lines: Vec<Line>) -> Vec<Line> {
    let index: HashMap<&str, usize> = lines.iter().enumerate().map(|(at, line)| (line.id.as_str(), at)).collect();
    let parent = |line: &Line| line.parent.as_deref().and_then(|parent| index.get(parent)).copied();
    let parents: Vec<Option<usize>> = lines.iter().map(parent).collect();
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); lines.len()];
    for (child, parent) in parents.iter().enumerate().rev() {
        if let Some(siblings) = parent.and_then(|parent| children.get_mut(parent)) {
            siblings.push(child);
        }
    }
    let mut left: Vec<Option<Line>> = lines.into_iter().map(Some).collect();
    let mut ordered = Vec::with_capacity(left.len());
    let tops = (0..left.len()).filter(|at| parents.get(*at).is_some_and(Option::is_none));
    // What no top leads to lies on a cycle.
    for top in tops.chain(0..left.len()).collect::<Vec<_>>() {
        let mut pending = vec![(top, 0)];
        while let Some((at, depth)) = pending.pop() {
            if let Some(mut line) = left.get_mut(at).and_then(Option::take) {
                line.depth = Some(depth);
                ordered.push(line);
                pending.extend(children.get(at).into_iter().flatten().map(|child| (*child, depth + 1)));
            }
        }
    }
    ordered
}

/// The id as the table shows it: under its parent, or naming the parent that is not there.
fn shown_id(line: &Line) -> String {
    let id = one_line(&line.id);
    match (line.depth, &line.parent) {
        (None, _) | (Some(0), None) => id,
        (Some(0), Some(parent)) => format!("{id} (of {})", one_line(parent)),
        // However deep, the line stays readable.
        (Some(depth), _) => format!("{}`- {id}", "   ".repeat(depth.min(20) - 1)),
    }
}

fn table(lines: &[Line], out: &mut Output) -> Result<(), Failure> {
    let widest = lines.iter().map(|line| shown_id(line).chars().count()).max().unwrap_or(0).clamp(2, 40);
    out.line(&format!(
        "{:<widest$}  {:<19}  {:<9}  {:>9}  {:>6}  {:>10}  TITLE",
        "ID", "LAST ACTIVITY (UTC)", "STATE", "EVENTS", "TURNS", "BYTES"
    ))?;
    for line in lines {
        let last = line.last_time.map_or_else(|| "-".to_owned(), time::format);
        let title = line.title.as_deref().or(line.cwd.as_deref()).unwrap_or_default();
        out.line(&format!(
            "{:<widest$}  {last:<19}  {:<9}  {:>9}  {:>6}  {:>10}  {}",
            shown_id(line),
            line.state.name(),
            line.events,
            line.turns,
            bytes(line.bytes),
            one_line(&shortened(title, 60))
        ))?;
    }
    for error in lines.iter().filter_map(|line| line.error.as_ref()) {
        out.line(&format!("! {}", one_line(error)))?;
    }
    Ok(())
}
