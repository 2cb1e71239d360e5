//! `show`: the transcript for people.

use std::collections::HashMap;

use sessionlog::event::content::TokenUsage;
use sessionlog::event::control::TodoItem;
use sessionlog::event::{Event, envelope};
use sessionlog::segment::SegmentBackend;
use sessionlog::session::surface::fold_surface;

use super::args::Show;
use super::failure::Failure;
use super::messages::{view, vocabulary};
use super::output::Output;
use super::transcript::{Entry, Transcript};
use super::{store, time};

/// Columns where standard output is no terminal.
const PLAIN_WIDTH: u16 = 100;
/// Lines longer than this are hard to read on any terminal.
const WIDEST: u16 = 120;

/// The `--json` document.
#[derive(serde::Serialize)]
struct Document<'a> {
    id: &'a str,
    turns: Vec<Turn>,
    todos: Vec<TodoItem>,
    usage: TokenUsage,
}

#[derive(serde::Serialize)]
struct Turn {
    turn: Option<u64>,
    entries: Vec<Shown>,
}

#[derive(serde::Serialize)]
struct Shown {
    seq: u64,
    time: i64,
    #[serde(rename = "type")]
    event_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced_by: Option<u64>,
    message: Option<sessionlog::event::JsonText>,
}

pub async fn run(backend: &SegmentBackend, arguments: &Show, json: bool, out: &mut Output) -> Result<(), Failure> {
    let id = store::resolve(backend, &arguments.id).await?;
    let session = view(backend, &id, None, vocabulary(&arguments.known)).await?;
    // Message events, and the turn that each stands in.
    let mut shown: Vec<(Event, Option<u64>)> = Vec::new();
    let mut turn = None;
    for event in session.events(..) {
        match event.event_type() {
            "turn/start" => turn = event.json().member("turn").and_then(|turn| turn.read().ok()),
            "turn/end" => turn = None,
            event_type if envelope::is_surface_type(event_type) => {
                let stated = event.json().member("turn").and_then(|turn| turn.read().ok());
                shown.push((event, stated.or(turn)));
            }
            _ => {}
        }
    }
    let mut replaced: HashMap<u64, u64> = HashMap::new();
    if let Ok(fold) = fold_surface(&session.events(..)) {
        for replacement in fold.replacements {
            replaced.extend(replacement.shadowed.iter().map(|seq| (*seq, replacement.seq)));
        }
    }
    if !arguments.raw {
        // In the order that the model sees.
        let order: HashMap<u64, usize> =
            session.surface().nodes().iter().enumerate().map(|(place, seq)| (*seq, place)).collect();
        shown.retain(|(event, _)| order.contains_key(&event.seq()));
        shown.sort_by_key(|(event, _)| order.get(&event.seq()).copied());
    }
    let entries = shown.iter().map(|(event, turn)| Entry {
        event,
        turn: *turn,
        replaced_by: replaced.get(&event.seq()).copied(),
    });
    if json {
        return print_json(&session, entries, out);
    }
    let width = arguments.width.unwrap_or_else(|| {
        let terminal = terminal_size::terminal_size().filter(|_| out.is_terminal());
        terminal.map_or(PLAIN_WIDTH, |(columns, _)| columns.0.clamp(20, WIDEST))
    });
    let header = session.header();
    let mut transcript = Transcript::new(out, usize::from(width));
    transcript.heading(&format!("Session {id}"))?;
    if let Some(title) = session.title() {
        transcript.fact("title", &title)?;
    }
    if let Some(cwd) = &header.cwd {
        transcript.fact("directory", cwd)?;
    }
    if let Some(created) = header.created_at {
        transcript.fact("created", &format!("{} UTC", time::format(created)))?;
    }
    if let Some(parent) = &header.parent_session {
        transcript.fact("forked from", parent)?;
    }
    for entry in entries {
        transcript.entry(&entry)?;
    }
    transcript.todos(&session.todos())?;
    transcript.usage(&session.usage().total())?;
    if let Some(turn) = session.open_turn() {
        transcript.fact(
            "open turn",
            &format!("{} (its writer is at work, or a crash left it: `sessionlog repair {id}`)", turn.turn),
        )?;
    }
    Ok(())
}

fn print_json<'a>(
    session: &sessionlog::session::Session,
    entries: impl Iterator<Item = Entry<'a>>,
    out: &mut Output,
) -> Result<(), Failure> {
    let mut turns: Vec<Turn> = Vec::new();
    for entry in entries {
        if turns.last().is_none_or(|last| last.turn != entry.turn) {
            turns.push(Turn { turn: entry.turn, entries: Vec::new() });
        }
        let message = sessionlog::session::history::derive_message(entry.event);
        if let Some(last) = turns.last_mut() {
            last.entries.push(Shown {
                seq: entry.event.seq(),
                time: entry.event.time(),
                event_type: entry.event.event_type().to_owned(),
                replaced_by: entry.replaced_by,
                message: message.map(|message| message.json().clone()),
            });
        }
    }
    let (todos, usage) = (session.todos().to_vec(), session.usage().total());
    out.json(&Document { id: session.id().as_str(), turns, todos, usage })?;
    Ok(())
}
