//! A fold's state as JSON, so that a log can be continued from some seq on without reading what lies before.
//!
//! The text is deterministic: equal states give equal texts, so a checkpoint is verified by comparing it with a full replay's.

#![allow(clippy::option_option, reason = "absent, null and a value are three different things in a checkpoint")]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use super::calls::{Slot, StepCalls};
use super::difference::ValueDigest;
use super::fold::{Fold, OpenStep, OpenTurn, Route, TypeCount};
use super::request::{RequestHead, object};
use super::surface::SurfaceState;
use super::usage::Usage;
use crate::backend::Checkpoint;
use crate::event::limits::MAX_SAFE_INTEGER;
use crate::event::{JsonText, Sources, json};

/// Version of the state's own layout. A checkpoint of another one is not used, and the log is replayed instead; but for the first,
/// which told usage in a longer way and is still read.
const STATE_VERSION: i64 = 2;
const FIRST_VERSION: i64 = 1;

/// Why a checkpoint cannot be used. The log itself may still be fine: replay it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("checkpoint at seq {next_seq} cannot be used: {problem}; replay the log from its beginning instead")]
pub struct CheckpointError {
    /// The seq that the checkpoint claims to hold for.
    pub next_seq: u64,
    /// What is wrong with it.
    pub problem: String,
}

/// Whether a checkpoint holds the state that follows from the log, in this layout or in the first.
pub(crate) fn says(stored: &Checkpoint, right: &JsonText) -> bool {
    let earlier = || json::member(stored.state.as_str(), "v").and_then(json::integer) == Some(FIRST_VERSION);
    stored.state == *right
        || earlier() && Fold::from_checkpoint(stored).is_ok_and(|fold| fold.checkpoint().state == *right)
}

impl Fold {
    /// The state as a checkpoint. Cost: the surface, the header in force and the number of steps.
    pub fn checkpoint(&self) -> Checkpoint {
        let mut members: Vec<(&str, String)> = vec![
            ("v", STATE_VERSION.to_string()),
            ("nextSeq", self.next_seq.to_string()),
            ("nextTurn", self.next_turn.to_string()),
            ("nextStep", self.next_step.to_string()),
            ("nodes", list(self.surface.nodes.iter())),
            ("replaceGeneration", self.surface.replace_generation.to_string()),
            ("frames", frames(&self.surface)),
            ("usage", json::quoted(&self.usage.rows())),
            ("chunks", count(self.chunks)),
            (
                "types",
                object(
                    self.types
                        .iter()
                        .map(|(name, seen)| (name.as_str(), count(*seen)))
                        .collect::<Vec<_>>()
                        .iter()
                        .map(|(name, row)| (*name, row.as_str())),
                ),
            ),
        ];
        let mut put = |key, value: Option<String>| members.extend(value.map(|value| (key, value)));
        put("lastTime", self.last_time.map(|time| time.to_string()));
        put("lastMark", self.last_mark.map(|seq| seq.to_string()));
        put("headerSeq", self.header.as_ref().map(|(seq, _)| seq.to_string()));
        put("header", self.header.as_ref().map(|(_, head)| head.to_json().to_string()));
        put("todos", self.todos.as_ref().map(ToString::to_string));
        put("route", self.route.as_ref().map(route));
        put("title", self.title.as_deref().map(json::quoted));
        put("turn", self.turn.map(|open| list([open.turn, open.started_at].iter())));
        put("step", self.step.map(|open| list([open.turn, open.step, open.started_at].iter())));
        if self.step.is_some() {
            put("stepChunks", Some(ranges(&self.step_chunks)));
            put("calls", Some(slots(self.calls.slots())));
        }
        let text = object(members.iter().map(|(key, value)| (*key, value.as_str())));
        Checkpoint { next_seq: self.next_seq, state: JsonText::trusted(text) }
    }

    /// The state that [`Fold::checkpoint`] wrote.
    ///
    /// # Errors
    /// [`CheckpointError`] for anything else; checkpoints are derived data and never trusted over the log.
    pub fn from_checkpoint(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        let refuse = |problem: &str| CheckpointError { next_seq: checkpoint.next_seq, problem: problem.to_owned() };
        let state = &checkpoint.state;
        let members = Members::of(state.as_str());
        let version = members.get("v").and_then(json::integer);
        let Some(version) = version.filter(|version| [FIRST_VERSION, STATE_VERSION].contains(version)) else {
            return Err(refuse("its layout is not the one that this build writes"));
        };
        let fold = read_fold(&members, version).ok_or_else(|| refuse("its state is not one that this build writes"))?;
        if fold.next_seq != checkpoint.next_seq || fold.next_seq > MAX_SAFE_INTEGER.unsigned_abs() {
            return Err(refuse("its state holds for another seq"));
        }
        let last = fold.surface.nodes.iter().max();
        if last.is_some_and(|node| *node >= fold.next_seq) {
            return Err(refuse("its surface names an event that is not part of it"));
        }
        Ok(fold)
    }
}

fn list<'a>(numbers: impl Iterator<Item = &'a u64>) -> String {
    let mut out = String::from("[");
    for number in numbers {
        let comma = if out.len() > 1 { "," } else { "" };
        let _ = write!(out, "{comma}{number}");
    }
    out.push(']');
    out
}

fn rows(rows: impl Iterator<Item = String>) -> String {
    format!("[{}]", rows.collect::<Vec<_>>().join(","))
}

fn optional(number: Option<u64>) -> String {
    number.map_or_else(|| "null".to_owned(), |number| number.to_string())
}

fn count(seen: TypeCount) -> String {
    format!("[{},{}]", seen.count, optional(seen.first_required))
}

fn ranges(sources: &Sources) -> String {
    rows(sources.ranges().iter().map(|(start, end)| format!("[{start},{end}]")))
}

fn frames(surface: &SurfaceState) -> String {
    let sorted: BTreeMap<_, _> = surface.frames.iter().collect();
    rows(sorted.into_iter().map(|(seq, frame)| format!("[{seq},\"{:032x}\"]", u128::from_be_bytes(*frame))))
}

fn route(route: &Route) -> String {
    let text = |text: &Option<String>| text.as_deref().map_or_else(|| "null".to_owned(), json::quoted);
    format!("[{},{},{}]", text(&route.provider), text(&route.model), optional(route.context_window))
}

fn slots(slots: &[Slot]) -> String {
    rows(slots.iter().map(|slot| {
        format!("[{},{},{},{}]", json::quoted(&slot.call_id), slot.asked, optional(slot.called_at), slot.answered)
    }))
}

fn unsigned(text: &str) -> Option<u64> {
    json::integer(text).and_then(|number| u64::try_from(number).ok())
}

fn unsigned_or_null(text: &str) -> Option<Option<u64>> {
    if text == "null" { Some(None) } else { unsigned(text).map(Some) }
}

fn text_or_null(text: &str) -> Option<Option<String>> {
    if text == "null" { Some(None) } else { json::string(text).map(|text| Some(text.into_owned())) }
}

fn flag(text: &str) -> Option<bool> {
    match text {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

fn row<const N: usize>(text: &str) -> Option<[&str; N]> {
    json::elements(text)?.collect::<Vec<_>>().try_into().ok()
}

fn read_count(text: &str) -> Option<TypeCount> {
    let [count, first] = row(text)?;
    Some(TypeCount { count: unsigned(count)?, first_required: unsigned_or_null(first)? })
}

fn read_frame(text: &str) -> Option<(u64, ValueDigest)> {
    let [seq, digest] = row(text)?;
    let digest = u128::from_str_radix(&json::string(digest)?, 16).ok()?;
    Some((unsigned(seq)?, digest.to_be_bytes()))
}

fn read_slot(text: &str) -> Option<Slot> {
    let [call_id, asked, called_at, answered] = row(text)?;
    Some(Slot {
        call_id: json::string(call_id)?.into_owned(),
        asked: flag(asked)?,
        called_at: unsigned_or_null(called_at)?,
        answered: flag(answered)?,
    })
}

fn read_ranges(text: &str) -> Option<Sources> {
    let mut sources = Sources::default();
    for range in json::elements(text)? {
        let [start, end] = row(range)?;
        sources.push_range(unsigned(start)?, unsigned(end)?);
    }
    Some(sources)
}

fn read_route(text: &str) -> Option<Route> {
    let [provider, model, window] = row(text)?;
    Some(Route {
        provider: text_or_null(provider)?,
        model: text_or_null(model)?,
        context_window: unsigned_or_null(window)?,
    })
}

/// The members of a state, found in one pass over it.
struct Members<'a>(BTreeMap<Cow<'a, str>, &'a str>);

impl<'a> Members<'a> {
    fn of(state: &'a str) -> Self {
        Self(json::members(state).into_iter().flatten().collect())
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.0.get(key).copied()
    }

    /// Reads a member with `read` if it is there; the outer `None` says that it is there and malformed.
    fn maybe<T>(&self, key: &str, read: impl FnOnce(&'a str) -> Option<T>) -> Option<Option<T>> {
        match self.get(key) {
            None => Some(None),
            Some(value) => read(value).map(Some),
        }
    }
}

fn read_fold(members: &Members<'_>, version: i64) -> Option<Fold> {
    let need = |key| members.get(key);
    let each = |key| need(key).and_then(json::elements);
    // Copies: what is kept must not keep the whole state's text.
    let copy = |key| members.get(key).map(JsonText::trusted);
    let header = match (members.maybe("headerSeq", unsigned)?, copy("header")) {
        (None, None) => None,
        (Some(seq), Some(head)) => Some((seq, RequestHead::of_snapshot(&head)?)),
        _ => return None,
    };
    let turn = members.maybe("turn", |text| {
        let [turn, started_at] = row(text)?;
        Some(OpenTurn { turn: unsigned(turn)?, started_at: unsigned(started_at)? })
    })?;
    let step = members.maybe("step", |text| {
        let [turn, step, started_at] = row(text)?;
        Some(OpenStep { turn: unsigned(turn)?, step: unsigned(step)?, started_at: unsigned(started_at)? })
    })?;
    let slots = members.maybe("calls", |text| json::elements(text)?.map(read_slot).collect::<Option<Vec<_>>>())?;
    Some(Fold {
        next_seq: unsigned(need("nextSeq")?)?,
        last_time: members.maybe("lastTime", json::integer)?,
        surface: SurfaceState {
            nodes: Arc::new(each("nodes")?.map(unsigned).collect::<Option<_>>()?),
            replace_generation: unsigned(need("replaceGeneration")?)?,
            frames: each("frames")?.map(read_frame).collect::<Option<_>>()?,
        },
        header,
        todos: copy("todos"),
        route: members.maybe("route", read_route)?,
        title: members.maybe("title", |text| json::string(text).map(String::from))?,
        turn,
        step,
        step_chunks: members.maybe("stepChunks", read_ranges)?.unwrap_or_default(),
        calls: StepCalls::from_slots(slots.unwrap_or_default()),
        next_turn: unsigned(need("nextTurn")?)?,
        next_step: unsigned(need("nextStep")?)?,
        usage: if version == FIRST_VERSION {
            Usage::of_list(need("usage")?)?
        } else {
            Usage::of_rows(&json::string(need("usage")?)?)?
        },
        chunks: read_count(need("chunks")?)?,
        types: json::members(need("types")?)?
            .map(|(name, seen)| Some((name.as_ref().into(), read_count(seen)?)))
            .collect::<Option<_>>()?,
        last_mark: members.maybe("lastMark", unsigned)?,
    })
}
