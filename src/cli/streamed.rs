//! Streamed text that no message repeats: what a model had said when its step was cut short.

use std::ops::Range;

use sessionlog::backend::{BackendError, ReadLimit};
use sessionlog::event::chunk::{AssistantChunk, StreamChunk};
use sessionlog::event::control::{STEP_END, STEP_START, TURN_END, TURN_START};
use sessionlog::event::message::ASSISTANT_MESSAGE;
use sessionlog::event::{Event, Item, SessionId};
use sessionlog::segment::Engine;
use sessionlog::session::history::derive_message;

use super::text::Role;

/// A piece of streamed text is handed on when it has grown to this many bytes, so that no step is held as a whole.
const PIECE_BYTES: usize = 1 << 20;

/// Finds the steps of a log whose streamed text no message repeats, while the log goes by.
#[derive(Default)]
pub struct Unheld {
    /// Seq behind the start of the open step, as long as no message of it has come.
    from: Option<u64>,
}

/// Whether [`Unheld::take`] must see the events of a type.
pub fn delimits(event_type: &str) -> bool {
    matches!(event_type, TURN_START | TURN_END | STEP_START | STEP_END | ASSISTANT_MESSAGE)
}

impl Unheld {
    /// Takes the next event that [`delimits`]; gives the seqs of a step that just ended without a message.
    pub fn take(&mut self, event: &Event) -> Option<Range<u64>> {
        match event.event_type() {
            ASSISTANT_MESSAGE => {
                if derive_message(event).is_some() {
                    self.from = None;
                }
                None
            }
            STEP_START => self.from.replace(event.seq() + 1).map(|from| from..event.seq()),
            TURN_START | TURN_END | STEP_END => self.from.take().map(|from| from..event.seq()),
            _ => None,
        }
    }

    /// The seqs of a step that is still open at the log's end.
    pub fn finish(mut self) -> Option<Range<u64>> {
        self.from.take().map(|from| from..u64::MAX)
    }
}

/// Streamed text put together again.
pub struct Streamed {
    /// Seq and time of its first delta.
    pub seq: u64,
    pub time: i64,
    pub role: Role,
    pub text: String,
}

/// Puts the streamed text in a range of seqs together, block by block, and hands it to `take` until that returns `false`.
///
/// # Errors
/// Those of reading.
pub fn assemble(
    engine: &Engine,
    id: &SessionId,
    range: &Range<u64>,
    take: &mut dyn FnMut(Streamed) -> bool,
) -> Result<(), BackendError> {
    let mut reader = engine.reader(id)?;
    reader.seek(range.start);
    let mut open: Option<(u64, Streamed)> = None;
    while reader.position() < range.end {
        let page = reader.next_page(ReadLimit::default())?;
        let here = page.items.iter().filter_map(|item| item.slice(range.start, range.end));
        for event in here.flat_map(|item| Item::events(&item).collect::<Vec<_>>()) {
            let Some((index, role, delta)) = delta_of(&event) else { continue };
            let goes_on = open.as_ref().is_some_and(|(block, before)| {
                *block == index && before.role == role && before.text.len() < PIECE_BYTES
            });
            if !goes_on && open.take().is_some_and(|(_, whole)| !take(whole)) {
                return Ok(());
            }
            let fresh = || (index, Streamed { seq: event.seq(), time: event.time(), role, text: String::new() });
            open.get_or_insert_with(fresh).1.text.push_str(&delta);
        }
        if page.next.is_none() {
            break;
        }
    }
    if let Some((_, last)) = open {
        take(last);
    }
    Ok(())
}

/// The content block that a delta belongs to, whose text it is, and the text.
fn delta_of(event: &Event) -> Option<(u64, Role, String)> {
    match event.payload::<AssistantChunk>().ok()??.chunk {
        StreamChunk::TextDelta(delta) | StreamChunk::ReasoningDelta(delta) => {
            Some((delta.index, Role::Assistant, delta.text))
        }
        StreamChunk::ToolCallDelta(delta) => Some((delta.index, Role::Tool, delta.arguments_delta)),
        _ => None,
    }
}
