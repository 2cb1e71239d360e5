//! `show`: the transcript for people.

use sessionlog::backend::Backend;
use sessionlog::event::JsonText;
use sessionlog::event::content::TokenUsage;
use sessionlog::event::control::TodoItem;
use sessionlog::segment::SegmentBackend;
use sessionlog::session::history::derive_message;

use super::args::Show;
use super::failure::Failure;
use super::output::Output;
use super::transcript::Transcript;
use super::view::{Shown, TOOL_CALL, View};
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
    entries: Vec<Line>,
}

#[derive(serde::Serialize)]
struct Line {
    seq: u64,
    time: i64,
    #[serde(rename = "type")]
    event_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced_by: Option<u64>,
    message: Option<JsonText>,
    /// The payload of a tool call that no message mentions.
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<JsonText>,
}

pub async fn run(backend: &SegmentBackend, arguments: &Show, json: bool, out: &mut Output) -> Result<(), Failure> {
    let id = store::resolve(backend, &arguments.id).await?;
    let view = View::read(backend, &id, None, &arguments.known)?;
    store::note_torn(&backend.open(&id).await?, &id);
    let shown = if arguments.raw { view.raw(backend)? } else { view.shown(backend)? };
    if json {
        return print_json(&view, &shown, out);
    }
    let width = arguments.width.unwrap_or_else(|| {
        let terminal = terminal_size::terminal_size().filter(|_| out.is_terminal());
        terminal.map_or(PLAIN_WIDTH, |(columns, _)| columns.0.clamp(20, WIDEST))
    });
    out.page()?;
    let (header, fold) = (&view.header, &view.fold);
    let mut transcript = Transcript::new(out, usize::from(width));
    transcript.heading(&format!("Session {id}"))?;
    if let Some(title) = fold.title() {
        transcript.fact("title", title)?;
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
    for entry in &shown {
        transcript.entry(entry)?;
    }
    transcript.todos(&fold.todos())?;
    transcript.usage(&fold.usage().total())?;
    if let Some(turn) = fold.open_turn() {
        transcript.fact(
            "open turn",
            &format!("{} (its writer is at work, or a crash left it: `sessionlog repair {id}`)", turn.turn),
        )?;
    }
    Ok(())
}

fn print_json(view: &View, shown: &[Shown], out: &mut Output) -> Result<(), Failure> {
    let mut turns: Vec<Turn> = Vec::new();
    for entry in shown {
        if turns.last().is_none_or(|last| last.turn != entry.turn) {
            turns.push(Turn { turn: entry.turn, entries: Vec::new() });
        }
        let message = derive_message(&entry.event);
        let call = (entry.event.event_type() == TOOL_CALL).then(|| entry.event.json());
        if let Some(last) = turns.last_mut() {
            last.entries.push(Line {
                seq: entry.event.seq(),
                time: entry.event.time(),
                event_type: entry.event.event_type().to_owned(),
                replaced_by: entry.replaced_by,
                message: message.map(|message| message.json().clone()),
                call,
            });
        }
    }
    let (todos, usage) = (view.fold.todos(), view.fold.usage().total());
    out.json(&Document { id: &view.header.id, turns, todos, usage })?;
    Ok(())
}
