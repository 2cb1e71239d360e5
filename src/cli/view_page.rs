//! `view`: a session as one page for a browser.

use std::collections::HashSet;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use sessionlog::backend::{BackendError, ReadLimit};
use sessionlog::event::{Item, SessionHeader, SessionId, Vocabulary, envelope};
use sessionlog::segment::{SegmentBackend, Selection, StateError};
use sessionlog::session::fold::Fold;

use super::failure::{Failure, status_of};
use super::output::{Output, one_line};
use super::page::Page;
use super::replacement::Replacement;
use super::streamed::{self, Unheld};
use super::view::{TOOL_CALL, Turns, called_in};
use super::{store, time};

#[derive(Debug, Args)]
pub struct ViewPage {
    /// Session id, or an unambiguous beginning of it
    #[arg(value_name = "ID")]
    pub id: String,
    /// The page to write; it appears whole or not at all, for its owner's eyes only. - is standard output
    #[arg(short, long, value_name = "FILE.html")]
    pub output: PathBuf,
}

/// The `--json` document.
#[derive(serde::Serialize)]
struct Document<'a> {
    id: &'a str,
    file: String,
    entries: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub async fn run(backend: &SegmentBackend, arguments: &ViewPage, json: bool, out: &mut Output) -> Result<(), Failure> {
    let to_stdout = arguments.output.as_os_str() == "-";
    if to_stdout && json {
        return Err(Failure::usage("--json and the page cannot both go to standard output; name a file with -o"));
    }
    let id = store::resolve(backend, &arguments.id).await?;
    let header = backend.engine().reader(&id)?.header().clone();
    let (entries, error) = if to_stdout {
        let (_, entries, error) = write(backend, &id, &header, &mut *out)?;
        (entries, error)
    } else {
        let file = Replacement::begin(&arguments.output)?;
        let (file, entries, error) = write(backend, &id, &header, file)?;
        file.finish()?;
        (entries, error)
    };
    if json {
        let file = arguments.output.display().to_string();
        out.json(&Document { id: id.as_str(), file, entries, error: error.as_ref().map(ToString::to_string) })?;
    }
    error.map_or(Ok(()), |error| {
        let text = format!("{error}; the page holds what comes before it");
        Err(Failure::Message { text, status: status_of(error.kind) })
    })
}

/// Writes the page. What is wrong with the log is said in it, and given back.
fn write<W: Write>(
    backend: &SegmentBackend,
    id: &SessionId,
    header: &SessionHeader,
    out: W,
) -> Result<(W, u64, Option<BackendError>), Failure> {
    let engine = backend.engine();
    let mut fold = Fold::new();
    let folded = engine.fold_before(id, u64::MAX, &mut fold);
    let title = fold.title().map_or_else(|| format!("Session {id}"), |title| format!("{title} ({id})"));
    let mut page = Page::begin(BufWriter::new(out), &title)?;
    page.facts(&facts(id, header, &fold))?;
    let (error, read_to) = transcript(backend, id, &fold, &mut page)?;
    page.end_transcript(&fold.todos(), &fold.usage().total())?;
    if let Some(error) = &error {
        page.banner(&format!("The log is damaged: {error}. Only what comes before event {read_to} is shown."))?;
    }
    if let Err(StateError::Invalid(invalid)) = &folded {
        page.banner(&format!(
            "The log breaks a rule of the session model: {invalid}. What the model sees is told as of the event before."
        ))?;
    }
    if let Err(unknown) = fold.check_vocabulary(&Vocabulary::well_known()) {
        page.banner(&format!("What this page shows may not be all that the model sees: {unknown}."))?;
    }
    let opened = engine.open_session(id).ok();
    let live = opened.as_ref().is_some_and(|opened| opened.live);
    if let Some(torn) = opened.and_then(|opened| opened.torn).filter(|_| !live) {
        page.banner(&format!(
            "An incomplete record of {} bytes at the end is left out; sessionlog repair {id} sets it aside.",
            torn.bytes
        ))?;
    }
    if let Some(turn) = fold.open_turn() {
        let why = if live { "its writer is at work" } else { "a crash left it" };
        page.banner(&format!("Turn {} is open: {why}.", turn.turn))?;
    }
    let entries = page.entries;
    let out = page.finish()?.into_inner().map_err(|error| Failure::from(error.into_error()))?;
    Ok((out, entries, error))
}

fn facts(id: &SessionId, header: &SessionHeader, fold: &Fold) -> Vec<(&'static str, String)> {
    let mut facts = vec![("session", one_line(id.as_str()))];
    let mut add = |name, value: Option<String>| facts.extend(value.map(|value| (name, value)));
    add("directory", header.cwd.clone());
    add("created", header.created_at.map(|created| format!("{} UTC", time::format(created))));
    add("last event", fold.last_time().map(|last| format!("{} UTC", time::format(last))));
    add("forked from", header.parent_session.clone());
    let route = fold.route();
    add("model", route.and_then(|route| route.model.clone()));
    add("provider", route.and_then(|route| route.provider.clone()));
    add("events", Some(fold.next_seq().to_string()));
    facts
}

/// The log as it goes by: messages, tool calls that no message mentions, and what was streamed in steps that were cut short. Gives
/// the damage that ended it, and how far it went.
fn transcript<W: Write>(
    backend: &SegmentBackend,
    id: &SessionId,
    fold: &Fold,
    page: &mut Page<W>,
) -> Result<(Option<BackendError>, u64), Failure> {
    let engine = backend.engine();
    let surface: HashSet<u64> = fold.surface().nodes().iter().copied().collect();
    let types = |name: &str| envelope::is_surface_type(name) || name == TOOL_CALL || streamed::delimits(name);
    let mut reader = engine.reader(id)?;
    let (mut turns, mut unheld) = (Turns::default(), Unheld::default());
    let mut mentioned: HashSet<String> = HashSet::new();
    let mut failed = None;
    loop {
        let read = reader.next_page_of(ReadLimit { events: 4096, bytes: 1 << 20 }, &Selection::types(&types));
        let events = match read {
            Ok(events) => events,
            Err(error) if error.damage.is_some() => {
                failed = Some(error);
                break;
            }
            Err(error) => return Err(error.into()),
        };
        for event in events.items.iter().flat_map(Item::events) {
            let turn = turns.of(&event).number();
            if let Some(range) = unheld.take(&event) {
                cut_short(backend, id, &range, turn, page)?;
            }
            match event.event_type() {
                "turn/end" => page.turn_end(&event)?,
                TOOL_CALL => {
                    let call: Option<String> = event.json().member("callId").and_then(|id| id.read().ok());
                    if call.is_none_or(|call| !mentioned.contains(&call)) {
                        page.entry(&event, turn, true)?;
                    }
                }
                name if envelope::is_surface_type(name) => {
                    if name == sessionlog::event::message::ASSISTANT_MESSAGE {
                        // Calls stand behind the message that asks for them.
                        mentioned.clear();
                        mentioned.extend(called_in(&event));
                    }
                    let visible = surface.contains(&event.seq()) || event.seq() >= fold.next_seq();
                    page.entry(&event, turn, visible)?;
                }
                _ => {}
            }
        }
        if events.next.is_none() {
            break;
        }
    }
    if let Some(range) = unheld.finish().filter(|_| failed.is_none()) {
        cut_short(backend, id, &range, fold.open_turn().map(|open| open.turn), page)?;
    }
    Ok((failed, reader.position()))
}

fn cut_short<W: Write>(
    backend: &SegmentBackend,
    id: &SessionId,
    range: &std::ops::Range<u64>,
    turn: Option<u64>,
    page: &mut Page<W>,
) -> Result<(), Failure> {
    let mut written = Ok(());
    let read = streamed::assemble(backend.engine(), id, range, &mut |piece| {
        written = page.streamed(&piece, turn);
        written.is_ok()
    });
    written?;
    match read {
        // The transcript meets it too, and says so.
        Err(error) if error.damage.is_none() => Err(error.into()),
        _ => Ok(()),
    }
}
