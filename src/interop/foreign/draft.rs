//! The session under construction: turns, steps, and a surface that follows the active branch.

use std::collections::BTreeSet;

use super::content::put;
use crate::event::control::{STEP_END, STEP_START, TODO_WRITE, TOOL_CALL, TURN_END, TURN_START};
use crate::event::message::{ASSISTANT_MESSAGE, TOOL_RESULT, USER_MESSAGE};
use crate::event::{Event, JsonText, NewEvent, Placement, json};

/// Most text of messages that is held so that a branch can be taken up again, in bytes. Past it the oldest is let go.
const HELD_BYTES: usize = 48 << 20;

/// What kind of surface event a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    User,
    Assistant,
    Result,
}

/// A message about to be logged.
pub(super) struct Said {
    pub(super) kind: Kind,
    /// The message object.
    pub(super) message: String,
    /// The `usage` object of an assistant message.
    pub(super) usage: Option<String>,
    /// What all parts of one answer share.
    pub(super) group: Option<String>,
}

impl Said {
    pub(super) fn new(kind: Kind, message: String) -> Self {
        Self { kind, message, usage: None, group: None }
    }
}

/// A place in the conversation: behind a message, or at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot(Option<usize>);

impl Spot {
    pub(super) const START: Spot = Spot(None);
}

/// A message of any branch.
struct Node {
    parent: Option<usize>,
    kind: Kind,
    /// Its newest event.
    seq: u64,
    /// Position on the surface, if it is there. All its ancestors are there too then, in front of it.
    on: Option<usize>,
    message: Option<JsonText>,
    group: Option<String>,
}

/// What the mapping had to decide, for the report.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::interop) struct Counts {
    pub(in crate::interop) branches: u64,
    pub(in crate::interop) compactions: u64,
    pub(in crate::interop) bridged: u64,
    pub(in crate::interop) unrestored: u64,
}

/// Turns what a mapping says into events.
pub(in crate::interop) struct Draft {
    prefix: &'static str,
    session: String,
    next_seq: u64,
    time: i64,
    /// Seq of the event that holds the record being mapped.
    record: u64,
    out: Vec<Event>,
    nodes: Vec<Node>,
    surface: Vec<usize>,
    held: usize,
    /// Nodes before this one hold no text any more.
    oldest_held: usize,
    turn: u64,
    turn_open: bool,
    step: u64,
    step_open: bool,
    /// What the answer of the open step is known by.
    step_key: Option<String>,
    /// Whether the last message left nothing to do.
    settled: bool,
    route: Option<(String, String)>,
    counts: Counts,
}

impl Draft {
    /// A session whose recorded id is `session`, created at `time`.
    pub(in crate::interop) fn new(prefix: &'static str, session: &str, time: i64) -> Self {
        Self {
            prefix,
            session: session.to_owned(),
            next_seq: 0,
            time,
            record: 0,
            out: Vec::new(),
            nodes: Vec::new(),
            surface: Vec::new(),
            held: 0,
            oldest_held: 0,
            turn: 0,
            turn_open: false,
            step: 0,
            step_open: false,
            step_key: None,
            settled: false,
            route: None,
            counts: Counts::default(),
        }
    }

    /// The events since this was last asked.
    pub(in crate::interop) fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.out)
    }

    pub(in crate::interop) fn counts(&self) -> Counts {
        self.counts
    }

    /// Logs the next record; without a time of its own it gets that of the one before.
    pub(in crate::interop) fn record(&mut self, record: &JsonText, time: Option<i64>) {
        self.time = time.unwrap_or(self.time);
        self.record = self.next_seq;
        let new = NewEvent::named(&format!("{}/record", self.prefix), record.clone()).ignorable();
        self.push(new);
    }

    /// Logs something that the source has and the model has not: `data` is a JSON object.
    pub(in crate::interop) fn note(&mut self, name: &str, data: String) {
        self.push(NewEvent::named(&format!("{}/{name}", self.prefix), JsonText::trusted(data)).ignorable());
    }

    /// An id for a message that has none, the same whenever the log is read. JSON text.
    pub(super) fn made_up_id(&self) -> String {
        json::quoted(&format!("{}#{}", self.session, self.next_seq))
    }

    /// Says that the record's parent `missing` was never written.
    pub(super) fn bridge(&mut self, missing: &str) {
        self.counts.bridged += 1;
        self.note("gap", format!("{{\"missing\":{}}}", json::quoted(missing)));
    }

    fn push(&mut self, new: NewEvent) {
        self.out.push(new.at(self.next_seq, self.time));
        self.next_seq += 1;
    }

    fn log(&mut self, event_type: &str, data: String) {
        self.push(NewEvent::named(event_type, JsonText::trusted(data)));
    }

    /// Whether a turn is open.
    pub(super) fn turn_is_open(&self) -> bool {
        self.turn_open
    }

    /// Whether the open turn has a step, which is whether the model has begun to answer.
    pub(super) fn is_answering(&self) -> bool {
        self.turn_open && self.step > 0
    }

    /// Opens the next turn. One that is open is closed: as completed when its last message left nothing to do.
    pub(super) fn begin_turn(&mut self) {
        if self.turn_open {
            let reason = if self.settled { r#"{"kind":"completed"}"# } else { r#"{"kind":"unrecorded"}"# };
            self.end_turn(reason);
        }
        self.turn += 1;
        self.turn_open = true;
        self.settled = false;
        self.step = 0;
        self.log(TURN_START, format!("{{\"turn\":{}}}", self.turn));
    }

    /// Closes the open turn, if there is one; `reason` is a JSON object.
    pub(super) fn end_turn(&mut self, reason: &str) {
        if !self.turn_open {
            return;
        }
        self.end_step();
        self.turn_open = false;
        self.log(TURN_END, format!("{{\"turn\":{},\"reason\":{reason}}}", self.turn));
    }

    fn end_step(&mut self) {
        if std::mem::take(&mut self.step_open) {
            self.log(STEP_END, format!("{{\"turn\":{},\"step\":{}}}", self.turn, self.step));
        }
        self.step_key = None;
    }

    /// Makes sure that the step of the answer `key` is open; without a key any open step will do.
    pub(super) fn open_step(&mut self, key: Option<&str>) {
        if !self.turn_open {
            self.begin_turn();
        }
        if self.step_open && (key.is_none() || self.step_key.as_deref() == key) {
            return;
        }
        self.end_step();
        self.step += 1;
        self.step_open = true;
        self.step_key = key.map(str::to_owned);
        self.log(STEP_START, format!("{{\"turn\":{},\"step\":{}}}", self.turn, self.step));
    }

    /// States the route of the open step's answer where it is another than before.
    pub(super) fn route(&mut self, provider: &str, model: &str) {
        let same =
            self.route.as_ref().is_some_and(|(old_provider, old_model)| old_provider == provider && old_model == model);
        if same || !self.turn_open {
            return;
        }
        self.route = Some((provider.to_owned(), model.to_owned()));
        let (provider, model) = (json::quoted(provider), json::quoted(model));
        self.log("request/context", format!("{{\"provider\":{provider},\"model\":{model}}}"));
    }

    /// Logs that the model asked for a tool, in the open step. All three are JSON strings.
    pub(super) fn call(&mut self, id: &str, name: &str, arguments: &str) {
        self.open_step(None);
        self.settled = false;
        let data = format!(
            "{{\"turn\":{},\"step\":{},\"callId\":{id},\"name\":{name},\"arguments\":{arguments}}}",
            self.turn, self.step
        );
        self.log(TOOL_CALL, data);
    }

    /// Logs token counts that came apart from a message.
    pub(super) fn usage(&mut self, usage: &str) {
        if self.step_open {
            let (turn, step) = (self.turn, self.step);
            let chunk = format!("{{\"type\":\"usage\",\"usage\":{usage}}}");
            self.log("assistant/chunk", format!("{{\"turn\":{turn},\"step\":{step},\"chunk\":{chunk}}}"));
        }
    }

    /// Logs the whole todo list: (content, status), the first a JSON string. A status that the model lacks leaves it out.
    pub(super) fn todos(&mut self, todos: &[(&str, &str)]) {
        let items: Vec<String> = todos
            .iter()
            .filter(|(_, status)| matches!(*status, "pending" | "in_progress" | "completed"))
            .map(|(content, status)| format!("{{\"content\":{content},\"status\":\"{status}\"}}"))
            .collect();
        if items.len() == todos.len() && self.turn_open {
            self.log(TODO_WRITE, format!("{{\"todos\":{}}}", super::content::list(&items)));
        }
    }

    /// Gives the session a title, a JSON string.
    pub(super) fn title(&mut self, title: &str) {
        self.log("session/title", format!("{{\"title\":{title},\"source\":{{\"kind\":\"import\"}}}}"));
    }

    /// The place behind the last message of the active branch.
    pub(super) fn tail(&self) -> Spot {
        Spot(self.surface.last().copied())
    }

    /// Whether the message that the place is behind is on the surface.
    pub(super) fn is_visible(&self, spot: Spot) -> bool {
        spot.0.is_none_or(|index| self.nodes.get(index).is_some_and(|node| node.on.is_some()))
    }

    /// Whether what was said behind `spot` are only results, and parts of the answer that `spot` belongs to: written beside
    /// each other, not instead of each other.
    pub(super) fn only_parallel_behind(&self, spot: Spot) -> bool {
        let Some(place) = spot.0.and_then(|index| self.nodes.get(index)).and_then(|node| node.on) else { return false };
        let (before, behind) = self.surface.split_at_checked(place + 1).unwrap_or((&self.surface, &[]));
        let node = |index: &usize| self.nodes.get(*index);
        let answer = before.iter().rev().filter_map(node).find(|node| node.kind == Kind::Assistant);
        let group = answer.and_then(|node| node.group.as_ref());
        behind.iter().filter_map(node).all(|node| match node.kind {
            Kind::Result => true,
            Kind::Assistant => group.is_some() && node.group.as_ref() == group,
            Kind::User => false,
        })
    }

    /// The user-role messages of the active branch whose texts are held, in order.
    pub(super) fn visible_users(&self) -> Vec<JsonText> {
        let users =
            self.surface.iter().filter_map(|index| self.nodes.get(*index)).filter(|node| node.kind == Kind::User);
        users.filter_map(|node| node.message.clone()).collect()
    }

    /// Logs a message behind `after` and returns the place behind it. Assistant messages and results go into the open step,
    /// which is opened where there is none.
    pub(super) fn say(&mut self, after: Spot, said: Said) -> Spot {
        let index = self.add(after.0, said.kind, said.group);
        let mut list = vec![(index, Some(said.message), said.usage)];
        let mut at = after.0;
        let keep = loop {
            let Some((ancestor, node)) = at.and_then(|at| Some((at, self.nodes.get(at)?))) else { break 0 };
            if let Some(place) = node.on {
                break place + 1;
            }
            at = node.parent;
            list.push((ancestor, None, None));
        };
        self.counts.branches += u64::from(self.place(keep, list));
        Spot(Some(index))
    }

    /// Replaces what is on the surface by a summary, but for the messages `kept`, each named by the place behind it, in order.
    /// Returns the place behind the last message.
    pub(super) fn compact(&mut self, kept: &[Spot], summary: Said) -> Spot {
        self.counts.compactions += 1;
        let kept: Vec<usize> = kept.iter().filter_map(|spot| spot.0).collect();
        // Kept messages that are the last ones on the surface stay where they are.
        let seqs = |list: &[usize]| -> Vec<u64> {
            list.iter().filter_map(|index| self.nodes.get(*index)).map(|node| node.seq).collect()
        };
        let first = self.surface.len().saturating_sub(kept.len());
        let in_place = first > 0 && seqs(self.surface.get(first..).unwrap_or_default()) == seqs(&kept);
        let root = self.add(None, summary.kind, summary.group);
        // From here on they stand on a branch of their own, behind the summary.
        let mut parent = root;
        let mut twins = Vec::new();
        for index in &kept {
            let Some(node) = self.nodes.get(*index) else { continue };
            let (kind, seq, message, group) = (node.kind, node.seq, node.message.clone(), node.group.clone());
            let twin = self.add(Some(parent), kind, group);
            if let Some(node) = self.nodes.get_mut(twin) {
                (node.seq, node.message) = (seq, message);
            }
            twins.push(twin);
            parent = twin;
        }
        if in_place {
            let behind = self.surface.split_off(first);
            behind.iter().for_each(|index| self.leave(*index));
            self.place(0, vec![(root, Some(summary.message), None)]);
            twins.into_iter().for_each(|twin| self.enter(twin));
        } else {
            let mut list: Vec<_> = twins.into_iter().rev().map(|twin| (twin, None, None)).collect();
            list.push((root, Some(summary.message), None));
            self.place(0, list);
        }
        Spot(Some(parent))
    }

    fn add(&mut self, parent: Option<usize>, kind: Kind, group: Option<String>) -> usize {
        self.nodes.push(Node { parent, kind, seq: 0, on: None, message: None, group });
        self.nodes.len() - 1
    }

    fn enter(&mut self, index: usize) {
        let place = self.surface.len();
        if let Some(node) = self.nodes.get_mut(index) {
            node.on = Some(place);
            self.surface.push(index);
        }
    }

    fn leave(&mut self, index: usize) {
        if let Some(node) = self.nodes.get_mut(index) {
            node.on = None;
        }
    }

    /// Keeps the first `keep` messages of the surface and puts those of `list` (last one first) behind them: (message, its text
    /// if it is new, its usage). Says whether something was taken off the surface.
    fn place(&mut self, mut keep: usize, mut list: Vec<(usize, Option<String>, Option<String>)>) -> bool {
        let is_lost = |draft: &Self, index: usize| draft.nodes.get(index).is_none_or(|node| node.message.is_none());
        let before = list.len();
        list.retain(|(index, new, _)| new.is_some() || !is_lost(self, *index));
        if list.len() < before {
            let count = (before - list.len()) as u64;
            self.counts.unrestored += count;
            self.note("not-restored", format!("{{\"messages\":{count}}}"));
        }
        let branches = keep < self.surface.len();
        if branches {
            // A result can replace nothing but a result (S3), so the message before it comes again too.
            while list
                .last()
                .is_some_and(|(index, ..)| self.nodes.get(*index).is_some_and(|node| node.kind == Kind::Result))
            {
                let Some(again) = keep.checked_sub(1).and_then(|place| self.surface.get(place)).copied() else { break };
                if is_lost(self, again) {
                    break;
                }
                keep -= 1;
                list.push((again, None, None));
            }
        }
        let shadowed = self.surface.split_off(keep.min(self.surface.len()));
        shadowed.iter().for_each(|index| self.leave(*index));
        let mut shadowed: Vec<u64> =
            shadowed.iter().filter_map(|index| self.nodes.get(*index)).map(|node| node.seq).collect();
        while let Some((index, new, usage)) = list.pop() {
            self.place_one(index, new, usage.as_deref(), &std::mem::take(&mut shadowed));
        }
        branches
    }

    fn place_one(&mut self, index: usize, new: Option<String>, usage: Option<&str>, shadowed: &[u64]) {
        let Some(node) = self.nodes.get(index) else { return };
        let (mut kind, old_seq) = (node.kind, node.seq);
        let is_new = new.is_some();
        let Some(message) = new.or_else(|| node.message.as_ref().map(|message| message.as_str().to_owned())) else {
            return;
        };
        if kind == Kind::Result && !shadowed.is_empty() {
            // Nothing before it can come again: the result goes on the surface as a message of the user role, which it is.
            kind = Kind::User;
        }
        let data = if kind == Kind::User {
            message
        } else {
            self.open_step(None);
            let mut data = format!("{{\"turn\":{},\"step\":{},\"message\":{message}", self.turn, self.step);
            if let Some(usage) = usage {
                put(&mut data, "usage", usage);
            }
            data.push('}');
            data
        };
        let mut sources: BTreeSet<u64> = shadowed.iter().copied().collect();
        sources.insert(if is_new { self.record } else { old_seq });
        let placement = match (shadowed.first(), shadowed.last()) {
            (Some(first), Some(last)) => Placement::replace(*first, *last),
            _ => Placement::append(),
        };
        let data = JsonText::trusted(data);
        let event_type = match kind {
            Kind::User => USER_MESSAGE,
            Kind::Assistant => ASSISTANT_MESSAGE,
            Kind::Result => TOOL_RESULT,
        };
        if is_new {
            self.settled = kind == Kind::Assistant;
        }
        let seq = self.next_seq;
        self.push(NewEvent::named(event_type, data.clone()).placed(placement.from(sources)));
        let message = if kind == Kind::User { Some(data) } else { data.member("message") };
        self.enter(index);
        if let Some(node) = self.nodes.get_mut(index) {
            node.seq = seq;
            if node.message.is_none() {
                self.held += message.as_ref().map_or(0, JsonText::len);
                node.message = message;
            }
        }
        self.let_go();
    }

    /// Lets go of the oldest texts once too much is held.
    fn let_go(&mut self) {
        while self.held > HELD_BYTES {
            let Some(node) = self.nodes.get_mut(self.oldest_held) else { return };
            self.held -= node.message.take().map_or(0, |message| message.len()).min(self.held);
            self.oldest_held += 1;
        }
    }
}
