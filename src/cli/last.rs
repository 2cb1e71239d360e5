//! `last`: the newest text of a session, for shell hooks.

use clap::Args;
use sessionlog::backend::ReadLimit;
use sessionlog::event::message::{ASSISTANT_MESSAGE, TOOL_RESULT, USER_MESSAGE};
use sessionlog::event::{Event, Item};
use sessionlog::segment::{SegmentBackend, Selection};
use sessionlog::session::history::derive_message;

use super::args::Known;
use super::failure::Failure;
use super::output::{Output, paragraph};
use super::text::{Role, pieces};
use super::view::View;
use super::{store, view};

/// How many events are looked at first, from the end of the surface on.
const FIRST_LOOK: usize = 16;

#[derive(Debug, Args)]
pub struct Last {
    /// Session id, or an unambiguous beginning of it
    #[arg(value_name = "ID")]
    pub id: String,
    /// Whose text: the model's answer, what the person wrote last, or the last output of a tool
    #[arg(long, value_enum, default_value = "assistant")]
    pub role: Role,
    #[command(flatten)]
    pub known: Known,
}

/// The `--json` document.
#[derive(serde::Serialize)]
struct Document {
    seq: u64,
    time: i64,
    text: String,
}

pub async fn run(backend: &SegmentBackend, arguments: &Last, json: bool, out: &mut Output) -> Result<(), Failure> {
    let id = store::resolve(backend, &arguments.id).await?;
    let role = arguments.role;
    let view = View::read(backend, &id, None, &arguments.known)?;
    let found = match on_surface(backend, &id, &view, role)? {
        Some(found) => Some(found),
        None => in_log(backend, &id, role)?,
    };
    let Some(found) = found else {
        return Err(Failure::failed(format!(
            "session {id} holds no {} text yet; `sessionlog show {id}` shows what it holds",
            role.name()
        )));
    };
    if json {
        out.json(&found)?;
    } else if out.is_terminal() {
        out.line(&paragraph(&found.text))?;
    } else {
        // A program gets the text as it is.
        out.line(&found.text)?;
    }
    Ok(())
}

/// The last one that the model still sees.
fn on_surface(
    backend: &SegmentBackend,
    id: &sessionlog::event::SessionId,
    view: &View,
    role: Role,
) -> Result<Option<Document>, Failure> {
    let surface = view.fold.surface();
    let mut rest = surface.nodes();
    let mut count = FIRST_LOOK;
    while !rest.is_empty() {
        let (earlier, look) = rest.split_at(rest.len().saturating_sub(count));
        let events = backend.engine().read_events(id, look)?;
        if let Some(found) = events.iter().rev().find_map(|event| text_of(event, role)) {
            return Ok(Some(found));
        }
        rest = earlier;
        count = count.saturating_mul(4);
    }
    Ok(None)
}

/// The last one of the log, for a session whose answers were all taken off the surface.
fn in_log(
    backend: &SegmentBackend,
    id: &sessionlog::event::SessionId,
    role: Role,
) -> Result<Option<Document>, Failure> {
    let mut reader = backend.engine().reader(id)?;
    let wanted = |event_type: &str| event_type == type_of(role);
    let mut found = None;
    loop {
        let page = reader.next_page_of(ReadLimit::default(), &Selection::types(&wanted))?;
        let events = page.items.iter().rev().flat_map(Item::events);
        found = events.into_iter().find_map(|event| text_of(&event, role)).or(found);
        if page.next.is_none() {
            return Ok(found);
        }
    }
}

fn type_of(role: Role) -> &'static str {
    match role {
        Role::User => USER_MESSAGE,
        Role::Assistant => ASSISTANT_MESSAGE,
        Role::Tool => TOOL_RESULT,
    }
}

/// The text of an event, if it is one of that role and holds more than blanks.
fn text_of(event: &Event, role: Role) -> Option<Document> {
    if event.event_type() != type_of(role) {
        return None;
    }
    let message = derive_message(event)?;
    let text = match role {
        Role::Assistant => message.text(),
        // What a program put into the history is no word of the person's.
        Role::User => message.text().split_off(if view::is_spoken(&message) { 0 } else { message.text().len() }),
        Role::Tool => {
            let mut text = String::new();
            pieces(event, &mut |piece| text.push_str(&piece.text));
            text
        }
    };
    (!text.trim().is_empty()).then(|| Document { seq: event.seq(), time: event.time(), text })
}
