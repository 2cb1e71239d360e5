//! What the model sees of a log at some moment, from the nearest checkpoint on; memory follows what is kept, never the stream.

use std::collections::{BTreeMap, HashMap, HashSet};

use sessionlog::backend::ReadLimit;
use sessionlog::event::message::ASSISTANT_MESSAGE;
use sessionlog::event::{Event, Item, JsonText, SessionHeader, SessionId, SurfaceOp, Vocabulary, envelope};
use sessionlog::segment::{SegmentBackend, Selection, StateError};
use sessionlog::session::fold::Fold;
use sessionlog::session::history::Message;

use super::args::Known;
use super::failure::Failure;

/// Bytes that are read at a time where what is wanted lies scattered.
const PIECE: ReadLimit = ReadLimit { events: 65_536, bytes: 256 * 1024 };

/// Type name of the events that a tool's start is recorded with.
pub const TOOL_CALL: &str = "tool/call";

/// An event to show: one with a message, or a tool call that no message mentions.
pub struct Shown {
    pub event: Event,
    /// The turn it belongs to, if any.
    pub turn: Option<u64>,
    /// The event that took its place on the surface, when the model does not see it any more.
    pub replaced_by: Option<u64>,
}

/// A log up to some event, read-only and without closers.
pub struct View {
    pub header: SessionHeader,
    pub fold: Fold,
    id: SessionId,
}

impl View {
    /// The state after event `at`, or at the log's end. `known` names types to treat as known beside the published ones.
    pub fn read(backend: &SegmentBackend, id: &SessionId, at: Option<u64>, known: &Known) -> Result<Self, Failure> {
        let engine = backend.engine();
        let header = engine.reader(id)?.header().clone();
        let end = at.map_or(u64::MAX, |at| at.saturating_add(1));
        let mut fold = Fold::new();
        let folded = engine.fold_before(id, end, &mut fold);
        let place = engine.locate(id);
        let refused =
            |error: &dyn std::fmt::Display| Failure::failed(format!("session {id} ({}): {error}", place.display()));
        if let Err(StateError::Backend(error)) = folded {
            return Err(error.into());
        }
        let published = Vocabulary::well_known();
        let vocabulary = known.assume_known.iter().fold(published, |vocabulary, name| vocabulary.with_name(name));
        let judged = fold.check_vocabulary(&vocabulary);
        match folded {
            // Behind an event of unknown meaning nothing can be called invalid.
            Err(error) => {
                let next = format!("`sessionlog salvage {id} --as NEW` saves what comes before it");
                return Err(judged.map_or_else(|unknown| refused(&unknown), |()| refused(&format!("{error}; {next}"))));
            }
            Ok(()) if at.is_some() && fold.next_seq() != end => {
                let last = match fold.next_seq() {
                    0 => "it has no events".to_owned(),
                    next => format!("its last one is {}", next - 1),
                };
                let at = at.unwrap_or_default();
                return Err(Failure::usage(format!("session {id} has no event {at}; {last}: give --at up to that")));
            }
            Ok(()) => judged.map_err(|unknown| refused(&unknown))?,
        }
        Ok(View { header, fold, id: id.clone() })
    }

    /// The events that the model sees the messages of, in its order.
    pub fn surface(&self, backend: &SegmentBackend) -> Result<Vec<Event>, Failure> {
        Ok(backend.engine().read_events(&self.id, self.fold.surface().nodes())?)
    }

    /// The surface in its order, and with it the tool calls that stand between its events and that no message mentions.
    pub fn shown(&self, backend: &SegmentBackend) -> Result<Vec<Shown>, Failure> {
        let surface = self.fold.surface();
        let mut nodes = surface.nodes().to_vec();
        nodes.sort_unstable();
        let on_surface: HashSet<u64> = nodes.iter().copied().collect();
        let mut reader = backend.engine().reader(&self.id)?;
        let mut gathering = Gathering::default();
        let mut rest = nodes.as_slice();
        while reader.position() < self.fold.next_seq() {
            if let Some(next) = rest.first().filter(|next| **next > reader.position()) {
                gathering.jump();
                reader.seek(*next);
            }
            let page = reader.next_page_of(PIECE, &Selection::types(&tells_a_story))?;
            for event in page.items.iter().flat_map(Item::events) {
                gathering.take(event, |seq| on_surface.contains(&seq));
            }
            if page.next.is_none() {
                break;
            }
            rest = rest.get(rest.partition_point(|seq| *seq < reader.position())..).unwrap_or_default();
        }
        gathering.settle(self.fold.open_turn().map(|open| open.turn));
        let Gathering { mut events, mut calls, .. } = gathering;
        let mut shown = calls.remove(&None).unwrap_or_default();
        for node in surface.nodes() {
            shown.extend(events.remove(node));
            shown.extend(calls.remove(&Some(*node)).into_iter().flatten());
        }
        Ok(shown)
    }

    /// Every message event of the log in its order, what was replaced included, and the tool calls that no message mentions.
    pub fn raw(&self, backend: &SegmentBackend) -> Result<Vec<Shown>, Failure> {
        let mut reader = backend.engine().reader(&self.id)?;
        let mut gathering = Gathering::default();
        let mut replacements = Replacements::default();
        loop {
            let page = reader.next_page_of(PIECE, &Selection::types(&tells_a_story))?;
            for event in page.items.iter().flat_map(Item::events) {
                replacements.take(&event);
                gathering.take(event, |_| true);
            }
            if page.next.is_none() {
                break;
            }
        }
        gathering.settle(self.fold.open_turn().map(|open| open.turn));
        let calls = gathering.calls.into_values().flatten();
        let mut shown: Vec<Shown> = gathering.events.into_values().chain(calls).collect();
        shown.sort_unstable_by_key(|shown| shown.event.seq());
        for entry in &mut shown {
            entry.replaced_by = replacements.replaced.get(&entry.event.seq()).copied();
        }
        Ok(shown)
    }
}

/// Whether a message of role user is a person's own words, as far as its source says.
pub fn is_spoken(message: &Message) -> bool {
    let kind = message.source().and_then(|source| source.member("kind")).and_then(|kind| kind.read::<String>().ok());
    kind.is_none_or(|kind| kind == "user")
}

/// Types that a transcript is made of.
fn tells_a_story(event_type: &str) -> bool {
    envelope::is_surface_type(event_type) || matches!(event_type, TOOL_CALL | "turn/start" | "turn/end")
}

/// Which event took whose place on the surface.
#[derive(Default)]
pub struct Replacements {
    nodes: Vec<u64>,
    pub replaced: HashMap<u64, u64>,
}

impl Replacements {
    /// Follows a log event by event; those that are not of surface types may be left out.
    pub fn take(&mut self, event: &Event) {
        let Some(placement) = event.placement() else { return };
        let at = |nodes: &[u64], seq| nodes.iter().position(|node| *node == seq);
        match placement.op() {
            SurfaceOp::Append => self.nodes.push(event.seq()),
            SurfaceOp::Replace { start, end } => {
                // The log has been checked: both are there, in this order.
                let (Some(first), Some(last)) = (at(&self.nodes, start), at(&self.nodes, end)) else { return };
                if first <= last {
                    let gone = self.nodes.splice(first..=last, [event.seq()]);
                    self.replaced.extend(gone.map(|node| (node, event.seq())));
                }
            }
        }
    }
}

/// Puts together what is shown while parts of a log go by in order.
#[derive(Default)]
struct Gathering {
    turns: Turns,
    events: BTreeMap<u64, Shown>,
    /// Tool calls that no message mentions, by the message event that they stand behind.
    calls: BTreeMap<Option<u64>, Vec<Shown>>,
    mentioned: HashSet<String>,
    /// The message event before, and whether it is shown.
    before: Option<(u64, bool)>,
    /// Message events whose turn is not known yet.
    waiting: Vec<u64>,
}

impl Gathering {
    /// What follows does not stand right behind what came before.
    fn jump(&mut self) {
        self.settle(None);
        self.turns = Turns::default();
    }

    fn take(&mut self, event: Event, is_shown: impl Fn(u64) -> bool) {
        let place = self.turns.of(&event);
        if place != Turn::Unknown {
            self.settle(place.number());
        }
        let (seq, turn) = (event.seq(), place.number());
        if event.event_type() == TOOL_CALL {
            let call_id: Option<String> = event.json().member("callId").and_then(|id| id.read().ok());
            let mentioned = call_id.is_some_and(|id| self.mentioned.contains(&id));
            if !mentioned && self.before.is_none_or(|(_, shown)| shown) {
                let behind = self.before.map(|(seq, _)| seq);
                self.calls.entry(behind).or_default().push(Shown { event, turn, replaced_by: None });
            }
            return;
        }
        if !envelope::is_surface_type(event.event_type()) {
            self.mentioned.clear();
            return;
        }
        if event.event_type() == ASSISTANT_MESSAGE {
            self.mentioned.extend(called_in(&event));
        }
        let shown = is_shown(seq);
        self.before = Some((seq, shown));
        if shown {
            if place == Turn::Unknown {
                self.waiting.push(seq);
            }
            self.events.insert(seq, Shown { event, turn, replaced_by: None });
        }
    }

    /// Gives the events whose turn was not known the one that it turned out to be.
    fn settle(&mut self, turn: Option<u64>) {
        for seq in self.waiting.drain(..) {
            if let Some(shown) = self.events.get_mut(&seq) {
                shown.turn = turn;
            }
        }
    }
}

/// The ids of the tool calls in an assistant message.
pub fn called_in(event: &Event) -> impl Iterator<Item = String> {
    let content = event.json().member("message").and_then(|message| message.member("content"));
    let blocks = content.as_ref().and_then(JsonText::elements).unwrap_or_default();
    let text = |block: &JsonText, key| block.member(key).and_then(|value| value.read::<String>().ok());
    blocks.into_iter().filter_map(move |block| {
        let is_call = text(&block, "type").is_some_and(|kind| kind == "tool-call");
        text(&block, "id").filter(|_| is_call)
    })
}

/// Where in the turns of a log an event stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Turn {
    /// Not known: what came before was passed over.
    #[default]
    Unknown,
    Between,
    In(u64),
}

impl Turn {
    /// Its number, if it is in one and that is known.
    pub fn number(self) -> Option<u64> {
        match self {
            Turn::In(number) => Some(number),
            Turn::Unknown | Turn::Between => None,
        }
    }
}

/// Follows the turns of a log.
#[derive(Default)]
pub struct Turns {
    now: Turn,
}

impl Turns {
    /// The turn that the next event belongs to. What belongs to none stands before a turn's start.
    pub fn of(&mut self, event: &Event) -> Turn {
        let stated: Option<u64> = event.json().member("turn").and_then(|turn| turn.read().ok());
        let before = self.now;
        self.now = match (event.event_type(), stated) {
            ("turn/end", _) => Turn::Between,
            (_, Some(number)) => Turn::In(number),
            ("turn/start", None) => Turn::Unknown,
            (_, None) => before,
        };
        match event.event_type() {
            "turn/start" => Turn::Between,
            "turn/end" => stated.map_or(before, Turn::In),
            _ => self.now,
        }
    }
}
