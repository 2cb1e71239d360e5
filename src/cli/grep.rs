//! `grep`: finds where something was said, over all sessions.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;

use clap::Args;
use sessionlog::backend::{BackendError, ErrorKind, ReadLimit};
use sessionlog::event::message::ASSISTANT_MESSAGE;
use sessionlog::event::{Event, Item, SessionId};
use sessionlog::segment::{Engine, SegmentBackend, Selection};
use wildmatch::WildMatch;

use super::failure::{Failure, PARTLY_FAILED, WRONG_USAGE, status_of};
use super::output::{Output, complain, one_line, paragraph};
use super::pattern::Pattern;
use super::store::{self, Entry};
use super::streamed::{self, Unheld};
use super::text::{Role, pieces};

/// Type under which streamed text is found that no message repeats.
const STREAMED: &str = "assistant/chunk";
/// Hits of one session that wait to be printed.
const WAITING_HITS: usize = 64;
/// Most threads that search.
const MOST_THREADS: usize = 8;
/// Letters of a line that people are shown around what was found.
const SHOWN_BEFORE: usize = 60;
const SHOWN_IN_ALL: usize = 200;

#[derive(Debug, Args)]
pub struct Grep {
    /// What to look for, as it was said: not as JSON spells it
    #[arg(value_name = "PATTERN", allow_hyphen_values = true)]
    pub pattern: String,
    /// Sessions to search, by id or an unambiguous beginning of it [default: all]
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
    /// The pattern is a regular expression (syntax of the Rust regex crate); ^ and $ stand for the ends of lines
    #[arg(short = 'E', long)]
    pub regex: bool,
    /// Upper and lower case are the same
    #[arg(short, long)]
    pub ignore_case: bool,
    /// Only what this one said
    #[arg(long, value_enum)]
    pub role: Option<Role>,
    /// Only in events whose type matches, with * and ? as wildcards; also finds strings in the payloads of other events than
    /// messages and tool calls
    #[arg(long = "type", value_name = "GLOB")]
    pub event_type: Option<String>,
    /// At most this many hits
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Print the ids of the sessions that have a hit, and nothing else
    #[arg(short = 'l', long)]
    pub list: bool,
}

/// One line of `--json`; with `--list` the id alone.
#[derive(serde::Serialize)]
struct Line<'a> {
    id: &'a str,
    #[serde(flatten)]
    hit: Option<&'a Hit>,
}

#[derive(serde::Serialize)]
struct Hit {
    seq: u64,
    #[serde(rename = "type")]
    event_type: String,
    text: String,
    #[serde(skip)]
    at: Range<usize>,
}

pub async fn run(backend: &SegmentBackend, arguments: &Grep, json: bool, out: &mut Output) -> Result<(), Failure> {
    let pattern = Pattern::new(&arguments.pattern, arguments.regex, arguments.ignore_case)?;
    let types = arguments.event_type.as_deref().map(WildMatch::new);
    let search = Search { pattern, types, role: arguments.role, once: arguments.list };
    let mut status = None;
    let sessions = chosen(backend, &arguments.ids, &mut status).await?;
    let engine = backend.engine();
    let jobs = Mutex::new(sessions.iter());
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = cores.clamp(1, MOST_THREADS).min(sessions.len());
    let mut printer = Printer { out, json, list: arguments.list, left: arguments.limit.unwrap_or(u64::MAX) };
    let ended = thread::scope(|scope| {
        let (queue, turns) = sync_channel(threads.max(1) * 2);
        for _ in 0..threads {
            let (queue, jobs, search) = (queue.clone(), &jobs, &search);
            scope.spawn(move || {
                while let Some((entry, found)) = next_job(jobs, &queue) {
                    search.session(engine, entry, &found);
                }
            });
        }
        drop(queue);
        // Every session's hits have a channel of their own, and the channels come in the order of the sessions.
        printer.print_all(&turns, arguments.ids.is_empty(), &mut status)
    });
    ended?;
    status.map_or(Ok(()), |status| Err(Failure::Status(status)))
}

/// The sessions to search, in the store's order or in that of the arguments.
async fn chosen(
    backend: &SegmentBackend,
    ids: &[String],
    status: &mut Option<u8>,
) -> Result<Vec<(String, Result<SessionId, String>)>, Failure> {
    let mut entries: Vec<Entry> = Vec::new();
    if ids.is_empty() {
        entries = store::entries(backend).await?;
    }
    for given in ids {
        match store::find(backend, given).await {
            Ok(entry) => entries.push(entry),
            Err(Failure::Message { text, status: why }) if why != WRONG_USAGE => {
                // The others are still searched.
                complain(&format!("sessionlog: {}", paragraph(&text)));
                *status = status.or(Some(why));
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(entries
        .into_iter()
        .map(|entry| (entry.name.clone(), entry.id().map_err(|error| Failure::from(error).to_string())))
        .collect())
}

type Job<'a> = &'a (String, Result<SessionId, String>);

/// What a search tells the printer.
enum Found {
    Hit(Hit),
    Failed(BackendError),
    Unreadable(String),
}

/// The hits of one session, as they are found.
struct Turn<'a> {
    name: &'a str,
    found: Receiver<Found>,
}

/// Takes the next session and puts its channel in line, both at once; `None` when there is none or nobody listens any more.
fn next_job<'a>(
    jobs: &Mutex<std::slice::Iter<'a, (String, Result<SessionId, String>)>>,
    queue: &SyncSender<Turn<'a>>,
) -> Option<(Job<'a>, SyncSender<Found>)> {
    let mut jobs = jobs.lock().ok()?;
    let entry = jobs.next()?;
    let (sender, found) = sync_channel(WAITING_HITS);
    queue.send(Turn { name: &entry.0, found }).ok()?;
    Some((entry, sender))
}

struct Search {
    pattern: Pattern,
    types: Option<WildMatch>,
    role: Option<Role>,
    /// Whether one hit of a session is enough.
    once: bool,
}

impl Search {
    /// Searches a session; the printer hears of everything unless it has gone.
    fn session(&self, engine: &Engine, (_, id): Job<'_>, found: &SyncSender<Found>) {
        let searched = match id {
            Ok(id) => self.events(engine, id, &mut |hit| found.send(Found::Hit(hit)).is_ok() && !self.once),
            Err(error) => return drop(found.send(Found::Unreadable(error.clone()))),
        };
        if let Err(error) = searched {
            let _ = found.send(Found::Failed(error));
        }
    }

    fn wants_type(&self, event_type: &str) -> bool {
        let role = Role::of_type(event_type);
        let typed = match &self.types {
            Some(glob) => glob.matches(event_type),
            None => role.is_some(),
        };
        // A tool's input stands in the model's messages.
        let either = event_type == ASSISTANT_MESSAGE && self.role == Some(Role::Tool);
        typed && (self.role.is_none() || self.role == role || either)
    }

    /// Whether streamed text is looked at where no message repeats it.
    fn wants_streams(&self) -> bool {
        self.role != Some(Role::User) && self.types.as_ref().is_none_or(|glob| glob.matches(STREAMED))
    }

    fn events(&self, engine: &Engine, id: &SessionId, emit: &mut dyn FnMut(Hit) -> bool) -> Result<(), BackendError> {
        let streams = self.wants_streams();
        let types = |name: &str| name != STREAMED && self.wants_type(name) || streams && streamed::delimits(name);
        let events = |name: &str, data: &str| streams && streamed::delimits(name) || self.pattern.may_be_in(data);
        let selection = Selection::types(&types).which(&events);
        let mut reader = engine.reader(id)?;
        let mut unheld = Unheld::default();
        let mut calls = Calls::default();
        loop {
            let page = reader.next_page_of(ReadLimit { events: 4096, bytes: 1 << 20 }, &selection)?;
            for event in page.items.iter().flat_map(Item::events) {
                if streams
                    && let Some(range) = unheld.take(&event)
                    && !self.streams(engine, id, &range, emit)?
                {
                    return Ok(());
                }
                let repeated = calls.repeats(&event);
                if self.wants_type(event.event_type()) && !repeated && !self.event(&event, emit) {
                    return Ok(());
                }
            }
            if page.next.is_none() {
                break;
            }
        }
        if let Some(range) = unheld.finish().filter(|_| streams) {
            self.streams(engine, id, &range, emit)?;
        }
        Ok(())
    }

    /// Searches one event; `false` when nobody wants more.
    fn event(&self, event: &Event, emit: &mut dyn FnMut(Hit) -> bool) -> bool {
        if !self.pattern.may_be_in(&event.data()) {
            return true;
        }
        let mut go_on = true;
        pieces(event, &mut |piece| {
            if go_on && self.role.is_none_or(|role| role == piece.role) {
                go_on = self.text(event.seq(), event.event_type(), &piece.text, emit);
            }
        });
        go_on
    }

    fn streams(
        &self,
        engine: &Engine,
        id: &SessionId,
        range: &Range<u64>,
        emit: &mut dyn FnMut(Hit) -> bool,
    ) -> Result<bool, BackendError> {
        let mut go_on = true;
        streamed::assemble(engine, id, range, &mut |piece| {
            if self.role.is_none_or(|role| role == piece.role) {
                go_on = self.text(piece.seq, STREAMED, &piece.text, emit);
            }
            go_on
        })?;
        Ok(go_on)
    }

    fn text(&self, seq: u64, event_type: &str, text: &str, emit: &mut dyn FnMut(Hit) -> bool) -> bool {
        self.pattern.lines_in(text).all(|found| {
            emit(Hit { seq, event_type: event_type.to_owned(), text: found.lines.to_owned(), at: found.at })
        })
    }
}

/// Tells a `tool/call` that repeats what the model's message asked for.
#[derive(Default)]
struct Calls(std::collections::HashSet<String>);

impl Calls {
    fn repeats(&mut self, event: &Event) -> bool {
        match event.event_type() {
            ASSISTANT_MESSAGE => {
                // A call stands behind the message that asks for it, in the same step.
                self.0.clear();
                self.0.extend(super::view::called_in(event));
                false
            }
            super::view::TOOL_CALL => {
                let id = event.json().member("callId").and_then(|id| id.read::<String>().ok());
                id.is_some_and(|id| self.0.contains(&id))
            }
            _ => false,
        }
    }
}

struct Printer<'a> {
    out: &'a mut Output,
    json: bool,
    list: bool,
    left: u64,
}

impl Printer<'_> {
    fn print_all(&mut self, turns: &Receiver<Turn<'_>>, all: bool, status: &mut Option<u8>) -> Result<(), Failure> {
        loop {
            let turn = match turns.try_recv() {
                Ok(turn) => turn,
                Err(TryRecvError::Disconnected) => return Ok(()),
                Err(TryRecvError::Empty) => {
                    self.out.flush()?;
                    let Ok(turn) = turns.recv() else { return Ok(()) };
                    turn
                }
            };
            while self.left > 0
                && let Some(found) = self.next_of(&turn.found)?
            {
                let (text, why) = match found {
                    Found::Hit(hit) => {
                        self.hit(turn.name, &hit)?;
                        continue;
                    }
                    // Deleted since it was listed.
                    Found::Failed(error) if error.kind == ErrorKind::NotFound && all => continue,
                    Found::Failed(error) => {
                        let why = status_of(error.kind);
                        (Failure::from(error).to_string(), why)
                    }
                    Found::Unreadable(text) => (text, PARTLY_FAILED),
                };
                complain(&format!("sessionlog: {}", paragraph(&text)));
                *status = status.or(Some(why));
            }
            if self.left == 0 {
                // Whoever still searches notices that nobody listens.
                return Ok(());
            }
        }
    }

    /// The next thing that a session's search says. What is found is handed on before it is waited for.
    fn next_of(&mut self, found: &Receiver<Found>) -> Result<Option<Found>, Failure> {
        match found.try_recv() {
            Ok(found) => Ok(Some(found)),
            Err(TryRecvError::Disconnected) => Ok(None),
            Err(TryRecvError::Empty) => {
                self.out.flush()?;
                Ok(found.recv().ok())
            }
        }
    }

    fn hit(&mut self, id: &str, hit: &Hit) -> Result<(), Failure> {
        self.left -= 1;
        if self.json {
            return Ok(self.out.json(&Line { id, hit: Some(hit).filter(|_| !self.list) })?);
        }
        let id = one_line(id);
        if self.list {
            return Ok(self.out.line(&id)?);
        }
        let (before, found, after) = excerpt(&hit.text, &hit.at);
        let found = if self.out.colour() { format!("\u{1b}[1;31m{found}\u{1b}[0m") } else { found };
        let place = format!("{id}:{}:{}", hit.seq, one_line(&hit.event_type));
        let place = if self.out.colour() { format!("\u{1b}[35m{place}\u{1b}[0m") } else { place };
        Ok(self.out.line(&format!("{place}: {before}{found}{after}"))?)
    }
}

/// What of a line people are shown: what was found, and as much around it as is read at a glance.
fn excerpt(line: &str, at: &Range<usize>) -> (String, String, String) {
    let before = line.get(..at.start).unwrap_or_default();
    let found = line.get(at.clone()).unwrap_or_default();
    let after = line.get(at.end..).unwrap_or_default();
    let skipped = before.chars().count().saturating_sub(SHOWN_BEFORE);
    let mut left: String = before.trim_start().to_owned();
    if skipped > 0 {
        left = format!("...{}", before.chars().skip(skipped).collect::<String>());
    }
    let found: String = super::output::shortened(found, SHOWN_IN_ALL);
    let room = SHOWN_IN_ALL.saturating_sub(left.chars().count() + found.chars().count());
    let right = super::output::shortened(after.trim_end(), room.max(3));
    (one_line(&left), one_line(&found), one_line(&right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_shows_what_was_found_in_long_lines_too() {
        assert_eq!(excerpt("  a needle b ", &(4..10)), ("a ".into(), "needle".into(), " b".into()));
        let long = format!("{}needle{}", "\u{e9}".repeat(500), "y".repeat(500));
        let (before, found, after) = excerpt(&long, &(1000..1006));
        assert_eq!((before.chars().count(), found.as_str()), (63, "needle"));
        assert!(after.ends_with("...") && after.len() < 200, "{after}");
    }
}
