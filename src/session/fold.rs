//! Everything that follows from a log, kept up to date event by event (rules S5, D3, D5).

use std::collections::BTreeMap;

use compact_str::CompactString;

use super::calls::{self, PendingCall, StepCalls};
use super::request::RequestHead;
use super::surface::{Change, Spot, Surface, SurfaceState};
use super::usage::{self, Usage};
use super::validator::{self, InvalidEvent};
use crate::event::chunk::ASSISTANT_CHUNK;
use crate::event::control::{
    END_SEED, REQUEST_CONTEXT, REQUEST_HEADER, STEP_END, STEP_START, TODO_WRITE, TOOL_CALL, TURN_END, TURN_START,
    TodoItem,
};
use crate::event::limits::MAX_TITLE_BYTES;
use crate::event::message::{ASSISTANT_MESSAGE, TOOL_RESULT};
use crate::event::vocabulary::UnknownType;
use crate::event::{ChunkRun, Event, Item, JsonText, Sources, Vocabulary, json};

/// Type name of the events that carry a session's title.
const SESSION_TITLE: &str = "session/title";

/// The turn that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenTurn {
    /// Turn number.
    pub turn: u64,
    /// Seq of its `turn/start`.
    pub started_at: u64,
}

/// The step that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenStep {
    /// Turn number.
    pub turn: u64,
    /// Step number within the turn.
    pub step: u64,
    /// Seq of its `step/start`.
    pub started_at: u64,
}

/// The route of the next request and its capacity: the last `request/context`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Route {
    /// Provider name.
    pub provider: Option<String>,
    /// Model name.
    pub model: Option<String>,
    /// Context window in tokens.
    pub context_window: Option<u64>,
}

/// How often a type occurs, and where it first occurs as one that a reader must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TypeCount {
    /// Number of events.
    pub count: u64,
    /// Seq of the first one that is not marked ignorable.
    pub first_required: Option<u64>,
}

/// The fold state of a log prefix. Its size follows the surface, the header and the number of steps, never the log.
#[derive(Debug, Clone, Default)]
pub struct Fold {
    pub(crate) next_seq: u64,
    pub(crate) last_time: Option<i64>,
    pub(crate) surface: SurfaceState,
    pub(crate) header: Option<(u64, RequestHead)>,
    pub(crate) todos: Option<JsonText>,
    pub(crate) route: Option<Route>,
    pub(crate) title: Option<String>,
    pub(crate) turn: Option<OpenTurn>,
    pub(crate) step: Option<OpenStep>,
    pub(crate) step_chunks: Sources,
    pub(crate) calls: StepCalls,
    pub(crate) next_turn: u64,
    /// Number that the next step of the open turn will have.
    pub(crate) next_step: u64,
    pub(crate) usage: Usage,
    /// Chunks are counted apart: looking up the type for each streamed delta would cost more than the rest of the fold.
    pub(crate) chunks: TypeCount,
    pub(crate) types: BTreeMap<CompactString, TypeCount>,
    pub(crate) last_mark: Option<u64>,
}

/// An event that was checked against the fold, with what it does to the surface.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Checked(pub(crate) Option<Change>);

impl Fold {
    /// The state of an empty log.
    pub fn new() -> Self {
        Self { next_turn: 1, next_step: 1, ..Self::default() }
    }

    /// Folds a whole log.
    ///
    /// # Errors
    /// [`InvalidEvent`] for the first event that the validator refuses.
    pub fn of<'a>(items: impl IntoIterator<Item = &'a Item>) -> Result<Self, InvalidEvent> {
        let mut fold = Self::new();
        items.into_iter().try_for_each(|item| fold.apply_item(item))?;
        Ok(fold)
    }

    /// Validates the next event and folds it in. Lenient about payloads: what cannot be read has no effect.
    ///
    /// Cost: one pass over the payload of the types that the fold reads; O(surface) for a replacement.
    ///
    /// # Errors
    /// [`InvalidEvent`]; the state is unchanged then.
    pub fn apply(&mut self, event: &Event) -> Result<(), InvalidEvent> {
        let checked = self.check(event, self.next_seq)?;
        self.apply_checked(event, checked);
        Ok(())
    }

    /// As [`Fold::apply`], for an item. A packed run costs O(1).
    ///
    /// # Errors
    /// [`InvalidEvent`] for the item's first event that is refused.
    pub fn apply_item(&mut self, item: &Item) -> Result<(), InvalidEvent> {
        match item {
            Item::Event(event) => self.apply(event),
            Item::Run(run) => self.apply_run(run),
        }
    }

    fn apply_run(&mut self, run: &ChunkRun) -> Result<(), InvalidEvent> {
        validator::check_seq(run.first_seq(), self.next_seq).map_err(|problem| InvalidEvent {
            seq: run.first_seq(),
            event_type: ASSISTANT_CHUNK.to_owned(),
            problem,
        })?;
        self.apply_deltas(run.first_seq(), run.len(), run.last_time());
        Ok(())
    }

    pub(crate) fn check(&self, event: &Event, expected_seq: u64) -> Result<Checked, InvalidEvent> {
        validator::check(event, expected_seq, &self.surface).map(Checked)
    }

    /// Folds in deltas that follow each other from `first_seq` on.
    pub(crate) fn apply_deltas(&mut self, first_seq: u64, count: u64, last_time: i64) {
        self.next_seq = first_seq + count;
        self.last_time = Some(last_time);
        self.chunks.count += count;
        self.chunks.first_required.get_or_insert(first_seq);
        if self.step.is_some() {
            self.step_chunks.push_range(first_seq, first_seq + count - 1);
        }
    }

    /// Folds in streamed deltas that are not at hand, up to seq `next_seq`. The time of the last event stays that of the last one
    /// that was at hand.
    pub(crate) fn apply_unread_deltas(&mut self, next_seq: u64) {
        if let Some(count) = next_seq.checked_sub(self.next_seq).filter(|count| *count > 0) {
            let time = self.last_time;
            self.apply_deltas(self.next_seq, count, 0);
            self.last_time = time;
        }
    }

    /// Folds in an event that [`Fold::check`] accepted in this very state.
    pub(crate) fn apply_checked(&mut self, event: &Event, checked: Checked) {
        let (seq, time) = (event.seq(), event.time());
        if event.as_packed_delta().is_some() {
            return self.apply_deltas(seq, 1, time);
        }
        self.next_seq = seq + 1;
        self.last_time = Some(time);
        let data = event.json();
        let event_type = event.event_type();
        let seen = if event_type == ASSISTANT_CHUNK {
            &mut self.chunks
        } else if let Some(seen) = self.types.get_mut(event_type) {
            seen
        } else {
            self.types.entry(event_type.into()).or_default()
        };
        seen.count += 1;
        if !event.ignorable() {
            seen.first_required.get_or_insert(seq);
        }
        let replaces = matches!(checked.0, Some(Change { spot: Spot::Range { .. }, .. }));
        if let Some(change) = checked.0 {
            self.surface.apply(seq, change);
        }
        match event_type {
            ASSISTANT_CHUNK => self.fold_chunk(seq, data.as_str()),
            ASSISTANT_MESSAGE => self.fold_assistant(data.as_str(), replaces),
            TOOL_CALL => self.fold_call(seq, data.as_str()),
            // A replacement rewrites a result that was counted when it came.
            TOOL_RESULT if !replaces => self.fold_result(data.as_str()),
            TURN_START => self.fold_turn_start(seq, data.as_str()),
            TURN_END => {
                self.turn = None;
                self.close_step();
            }
            STEP_START => self.fold_step_start(seq, data.as_str()),
            STEP_END => self.close_step(),
            TODO_WRITE => self.todos = data.member("todos").or(self.todos.take()),
            REQUEST_HEADER => {
                if let Some(head) = RequestHead::of(event) {
                    self.header = Some((seq, head));
                }
            }
            REQUEST_CONTEXT => self.fold_context(data.as_str()),
            SESSION_TITLE => {
                if let Some(title) = json::member(data.as_str(), "title").and_then(json::string) {
                    let fits = title.char_indices().map(|(at, letter)| at + letter.len_utf8());
                    let end = fits.take_while(|end| *end <= MAX_TITLE_BYTES).last().unwrap_or(0);
                    self.title = title.get(..end).map(String::from);
                }
            }
            END_SEED => self.last_mark = Some(seq),
            _ => {}
        }
    }

    fn fold_chunk(&mut self, seq: u64, data: &str) {
        if self.step.is_some() {
            self.step_chunks.push(seq);
        }
        let Some(chunk) = json::member(data, "chunk") else { return };
        if json::member(chunk, "type").and_then(json::string).is_some_and(|kind| kind == "usage")
            && let Some(counts) = json::member(chunk, "usage").and_then(usage::counts)
        {
            self.usage.chunk(self.named_step(data), counts);
        }
    }

    fn fold_assistant(&mut self, data: &str, replaces: bool) {
        if let Some(counts) = json::member(data, "usage").and_then(usage::counts) {
            self.usage.message(self.named_step(data), counts);
        }
        if self.step.is_some() {
            for call_id in calls::asked_calls(data) {
                // A replacement asks again for what it keeps; only ids that are new to the step are new calls.
                if !replaces || !self.calls.knows(&call_id) {
                    self.calls.ask(&call_id);
                }
            }
        }
    }

    fn fold_call(&mut self, seq: u64, data: &str) {
        if let Some(call_id) = calls::started_call(data).filter(|_| self.step.is_some()) {
            self.calls.call(&call_id, seq);
        }
    }

    fn fold_result(&mut self, data: &str) {
        if let Some(call_id) = calls::answered_call(data).filter(|_| self.step.is_some()) {
            self.calls.answer(&call_id);
        }
    }

    fn fold_turn_start(&mut self, seq: u64, data: &str) {
        let turn = number(data, "turn").unwrap_or(self.next_turn);
        self.close_step();
        self.turn = Some(OpenTurn { turn, started_at: seq });
        self.next_turn = turn.saturating_add(1);
        self.next_step = 1;
    }

    fn fold_step_start(&mut self, seq: u64, data: &str) {
        let turn = number(data, "turn").or(self.turn.map(|open| open.turn)).unwrap_or(0);
        let step = number(data, "step").unwrap_or(self.next_step);
        self.close_step();
        self.next_step = step.saturating_add(1);
        self.step = Some(OpenStep { turn, step, started_at: seq });
    }

    fn close_step(&mut self) {
        self.step = None;
        self.calls.clear();
        self.step_chunks = Sources::default();
    }

    fn fold_context(&mut self, data: &str) {
        let text = |key| json::member(data, key).and_then(json::string).map(String::from);
        let context_window = number(data, "contextWindow");
        self.route = Some(Route { provider: text("provider"), model: text("model"), context_window });
    }

    /// The step that an event names, else the open one.
    fn named_step(&self, data: &str) -> (u64, u64) {
        let open = self.step.map_or((0, 0), |open| (open.turn, open.step));
        (number(data, "turn").unwrap_or(open.0), number(data, "step").unwrap_or(open.1))
    }

    /// Seq that the next event will have: the number of events folded.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Time of the last event in epoch milliseconds.
    pub fn last_time(&self) -> Option<i64> {
        self.last_time
    }

    /// The surface.
    pub fn surface(&self) -> Surface {
        self.surface.snapshot()
    }

    /// The request header in force, in canonical form.
    pub fn request_header(&self) -> Option<&RequestHead> {
        self.header.as_ref().map(|(_, head)| head)
    }

    /// The current todo list; entries that do not have the shape of one are left out.
    pub fn todos(&self) -> Vec<TodoItem> {
        let entries = self.todos.as_ref().and_then(JsonText::elements).unwrap_or_default();
        entries.iter().filter_map(|entry| entry.read().ok()).collect()
    }

    /// The route in force.
    pub fn route(&self) -> Option<&Route> {
        self.route.as_ref()
    }

    /// The session's title: that of the last `session/title` event, up to
    /// [`MAX_TITLE_BYTES`].
    pub fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// Token usage per step and in total.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// The turn that is open.
    pub fn open_turn(&self) -> Option<OpenTurn> {
        self.turn
    }

    /// The step that is open.
    pub fn open_step(&self) -> Option<OpenStep> {
        self.step
    }

    /// Number that the next turn will have.
    pub fn next_turn(&self) -> u64 {
        self.next_turn
    }

    /// Number that the next step of the open turn will have.
    pub fn next_step(&self) -> u64 {
        self.next_step
    }

    /// The open step's tool calls without a result, in order.
    pub fn pending_calls(&self) -> Vec<PendingCall> {
        self.calls.pending().map(|(_, call)| call).collect()
    }

    /// Seqs of the open step's chunks.
    pub fn step_chunks(&self) -> &Sources {
        &self.step_chunks
    }

    /// How often each type occurs, by name.
    pub fn counts(&self) -> BTreeMap<String, TypeCount> {
        let mut counts: BTreeMap<String, TypeCount> =
            self.types.iter().map(|(name, seen)| (name.to_string(), *seen)).collect();
        if self.chunks.count > 0 {
            counts.insert(ASSISTANT_CHUNK.to_owned(), self.chunks);
        }
        counts
    }

    /// Whether the last event is a `session/end-seed` mark.
    pub fn ends_in_mark(&self) -> bool {
        self.last_mark.is_some_and(|mark| mark + 1 == self.next_seq)
    }

    /// Checks that every required event so far is of a known type (V2), without reading the log again.
    ///
    /// # Errors
    /// [`UnknownType`] for the first that is not.
    pub fn check_vocabulary(&self, vocabulary: &Vocabulary) -> Result<(), UnknownType> {
        let chunks = std::iter::once((ASSISTANT_CHUNK, &self.chunks));
        let all = self.types.iter().map(|(name, seen)| (name.as_str(), seen)).chain(chunks);
        let unknown = all.filter(|(name, _)| !vocabulary.knows(name));
        let first = unknown.filter_map(|(name, seen)| Some((seen.first_required?, name))).min();
        match first {
            Some((seq, name)) => Err(UnknownType { event_type: name.to_owned(), seq }),
            None => Ok(()),
        }
    }
}

/// A count or number that may be absent or unreadable.
pub(crate) fn number(data: &str, key: &str) -> Option<u64> {
    json::member(data, key).and_then(json::integer).and_then(|number| u64::try_from(number).ok())
}
