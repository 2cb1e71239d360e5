//! Recorded sessions made to measure: a deterministic generator of realistic logs for demonstrations, tests and benchmarks.
//!
//! What comes out looks like what an agent loop records: turns of several steps, about 97 % streamed deltas, assembled messages
//! that equal the concatenated deltas, tool calls with results of up to 60 KB, a 20 KB request header now and then, clocks that
//! sometimes run backwards, letters of several bytes and text that JSON must escape. The same [`Recording`] gives the same
//! events on every machine.
//!
//! ```
//! use sessionlog::sample::Recording;
//!
//! let recording = Recording::new(7).events(1_000);
//! assert_eq!(recording.iter().count(), 1_000);
//! assert!(recording.iter().eq(recording.iter()));
//! ```

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;

use compact_str::CompactString;

use crate::event::chunk::{ASSISTANT_CHUNK, AssistantChunk, Finish, StreamChunk};
use crate::event::content::{ContentBlock, ModelSource, Source, TokenUsage};
use crate::event::control::{
    HeaderSnapshot, RequestContext, RequestHeader, StepEnd, StepStart, TodoStatus, TodoWrite, ToolCall, TurnEnd,
    TurnStart,
};
use crate::event::json;
use crate::event::message::{AssistantMessage, ToolResult, UserMessage};
use crate::event::payload::{Payload, to_json};
use crate::event::run::{DeltaKind, RunHead};
use crate::event::{Batch, Event, JsonText, NewEvent, Placement, SessionHeader};
use crate::interop::{DshWriter, JsonlWriter};

/// Events of a small recording: a morning's work.
pub const SMALL_EVENTS: u64 = 10_868;
/// Events of a medium recording: a long day.
pub const MEDIUM_EVENTS: u64 = 130_874;
/// Events of a large recording: ten of those.
pub const LARGE_EVENTS: u64 = 1_307_848;

/// Fewest events of a recording: one turn with its header.
const FEWEST_EVENTS: u64 = 32;

/// Time of a recording's creation in epoch milliseconds.
const CREATED_AT: i64 = 1_786_000_000_000;

const PROVIDER: &str = "example";
const MODEL: &str = "example-large";

/// A recorded session that does not exist until it is iterated.
#[derive(Debug, Clone)]
pub struct Recording {
    seed: u64,
    events: u64,
    compacting: bool,
}

impl Recording {
    /// A recording of [`SMALL_EVENTS`] events. Different seeds give different sessions.
    pub fn new(seed: u64) -> Self {
        Self { seed, events: SMALL_EVENTS, compacting: false }
    }

    /// Sets the number of events, at least 32.
    pub fn events(mut self, events: u64) -> Self {
        self.events = events.max(FEWEST_EVENTS);
        self
    }

    /// Has the session compact its history every few turns: a summary replaces all but the newest messages.
    pub fn compacting(mut self) -> Self {
        self.compacting = true;
        self
    }

    /// The session's header.
    pub fn header(&self) -> SessionHeader {
        SessionHeader::new(format!("recorded-{}", self.seed)).cwd("/srv/example").created_at(CREATED_AT)
    }

    /// The events, in order. Memory: one turn.
    pub fn iter(&self) -> impl Iterator<Item = Event> + use<> {
        let mut script = Script::new(self);
        std::iter::from_fn(move || {
            if script.ready.is_empty() && script.next_seq < script.end {
                script.turn();
            }
            script.ready.pop_front()
        })
    }

    /// The events as an agent of this cadence would have written them, each batch one flush. Memory: one turn and one batch.
    pub fn batches(&self, cadence: Cadence) -> impl Iterator<Item = Batch> + use<> {
        let mut events = self.iter().peekable();
        std::iter::from_fn(move || {
            let first = events.next()?;
            let started = first.time();
            let mut ends = cadence.ends_with(&first);
            let mut together = vec![first];
            while !ends && let Some(event) = events.next_if(|event| !cadence.is_over(started, event)) {
                ends = cadence.ends_with(&event);
                together.push(event);
            }
            Batch::pack(together)
        })
    }

    /// The same conversation as if nothing had been streamed: every event but the chunks, numbered anew, without sources.
    pub fn unstreamed(&self) -> impl Iterator<Item = Event> + use<> {
        let spoken = self.iter().filter(|event| event.event_type() != ASSISTANT_CHUNK);
        spoken.zip(0..).map(|(event, seq)| {
            let mut new = NewEvent::named(event.event_type(), event.json());
            new.placement = event.placement().map(|_| Placement::append());
            new.at(seq, event.time())
        })
    }

    /// Writes the recording as DeepSeek Harness stores it, with packed rows.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_dsh<W: Write>(&self, out: W) -> io::Result<W> {
        let mut writer = DshWriter::new(out, &self.header())?;
        self.iter().try_for_each(|event| writer.event(&event))?;
        writer.finish()
    }

    /// Writes the recording as JSON lines, one event each.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_jsonl<W: Write>(&self, out: W) -> io::Result<W> {
        let mut writer = JsonlWriter::new(out, &self.header())?;
        self.iter().try_for_each(|event| writer.event(&event))?;
        writer.finish()
    }
}

/// When an agent writes what it has recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cadence {
    /// So many milliseconds of recorded time after the first event that waits, as live streaming does.
    Window(i64),
    /// When a step or a turn ends.
    Step,
    /// At once: every event alone.
    Event,
}

impl Cadence {
    fn is_over(self, started: i64, next: &Event) -> bool {
        matches!(self, Self::Window(milliseconds) if next.time() - started >= milliseconds)
    }

    fn ends_with(self, event: &Event) -> bool {
        match self {
            Self::Window(_) => false,
            Self::Step => event.is::<StepEnd>() || event.is::<TurnEnd>(),
            Self::Event => true,
        }
    }
}

/// `SplitMix64`: small, fast and the same everywhere.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `low` to `high`, both inclusive.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.next().is_multiple_of(times)
    }

    /// A piece of text: mostly a word, common ones more often as in any language, else what stands between words.
    fn token(&mut self) -> CompactString {
        if self.one_in(4) {
            return self.pick(&TOKENS).into();
        }
        // The rank's logarithm is spread evenly: some word of each power of two.
        let power = self.next() % WORD_POWERS;
        let rank = (1_u64 << power) | (self.next() & ((1 << power) - 1));
        let mut spelling = Chance(rank);
        let mut word = CompactString::const_new(" ");
        for _ in 0..=power / 4 {
            word.push_str(spelling.pick(&ONSETS));
            word.push_str(spelling.pick(&RIMES));
        }
        word
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        let index = usize::try_from(self.next() % words.len().max(1) as u64).unwrap_or(0);
        words.get(index).copied().unwrap_or_default()
    }
}

/// Pieces of text as models stream them.
const TOKENS: [&str; 64] = [
    " the",
    " file",
    " is",
    " a",
    " test",
    " and",
    " to",
    " of",
    " in",
    " function",
    " that",
    " returns",
    " error",
    " value",
    " we",
    " need",
    " read",
    " check",
    " it",
    " fails",
    " because",
    " line",
    ".",
    ",",
    ":",
    "\n",
    "\n\n",
    " `parse",
    "`",
    "()",
    " let",
    " x",
    " =",
    " 42",
    ";",
    " \"",
    "\"",
    "{",
    "}",
    " return",
    " build",
    " passes",
    " now",
    " first",
    " then",
    "ing",
    "ed",
    " config",
    ".toml",
    "/src",
    "/lib",
    ".rs",
    " \\",
    "\t",
    " fn",
    "->",
    " Ok",
    "\u{2014}",
    "\u{4f60}\u{597d}",
    "\u{6587}\u{4ef6}",
    " \u{1f680}",
    "\u{e9}t\u{e9}",
    "\u{2028}",
    "'s",
];

/// Powers of two that the ranks of words span: 4,095 words.
const WORD_POWERS: u64 = 12;

/// What syllables are made of.
const ONSETS: [&str; 16] = ["b", "c", "d", "f", "g", "l", "m", "n", "p", "r", "s", "t", "st", "tr", "v", "ch"];
const RIMES: [&str; 16] = ["a", "e", "i", "o", "u", "an", "en", "in", "er", "or", "ar", "al", "is", "ed", "ut", "ate"];

/// Pieces of a shell command inside a JSON string, where nothing needs an escape.
const COMMAND_TOKENS: [&str; 16] = [
    " ls", " -la", " cargo", " test", " --lib", " src", "/main", ".rs", " &&", " grep", " -rn", " TODO", " |", " head",
    " -n", " 20",
];

struct StepPlan {
    deltas: u64,
    tool: bool,
}

/// The agent loop that "records" the session.
struct Script {
    chance: Chance,
    ready: VecDeque<Event>,
    next_seq: u64,
    end: u64,
    time: i64,
    turn: u64,
    /// Seqs on the surface and, in parallel, the turn that each belongs to.
    surface: Vec<(u64, u64)>,
    compacting: bool,
}

impl Script {
    fn new(recording: &Recording) -> Self {
        Self {
            chance: Chance(recording.seed),
            ready: VecDeque::new(),
            next_seq: 0,
            end: recording.events,
            time: CREATED_AT,
            turn: 0,
            surface: Vec::new(),
            compacting: recording.compacting,
        }
    }

    fn event(&mut self, new: NewEvent) -> u64 {
        let seq = self.next_seq;
        if new.placement.is_some() {
            self.surface.push((seq, self.turn));
        }
        self.tick();
        self.ready.push_back(new.at(seq, self.time));
        self.next_seq += 1;
        seq
    }

    fn log<P: Payload>(&mut self, payload: &P) -> u64 {
        self.event(NewEvent::named(P::TYPE, text_of(payload)))
    }

    fn place<P: Payload>(&mut self, payload: &P, placement: Placement) -> u64 {
        self.event(NewEvent::named(P::TYPE, text_of(payload)).placed(placement))
    }

    /// Clocks mostly stand still or move a little; now and then they are set back.
    fn tick(&mut self) {
        let step = match self.chance.between(0, 399) {
            0 => -i64::try_from(self.chance.between(1, 40)).unwrap_or(1),
            1..=9 => i64::try_from(self.chance.between(60, 900)).unwrap_or(60),
            10..=119 => i64::try_from(self.chance.between(20, 31)).unwrap_or(24),
            120..=179 => 1,
            _ => 0,
        };
        self.time += step;
    }

    fn id(&mut self, kind: &str) -> String {
        format!("{kind}-{:016x}", self.chance.next())
    }

    /// Text of about `bytes` bytes.
    fn text(&mut self, bytes: u64) -> String {
        let mut text = String::new();
        while (text.len() as u64) < bytes {
            text.push_str(&self.chance.token());
        }
        text
    }

    /// One turn, of a length that leaves either nothing or room for another.
    fn turn(&mut self) {
        self.turn += 1;
        let turn = self.turn;
        let first = turn == 1;
        let compacts = self.compacting && turn.is_multiple_of(4);
        let header = first || turn.is_multiple_of(16);
        // Events of the turn beside those of its steps: turn start and end, the prompt; title, header and route; compaction.
        let mut around = 3 + u64::from(first) + u64::from(header) * 2 + u64::from(compacts) * 4;
        let left = self.end - self.next_seq;
        let mut steps = self.plan(around, left);
        let compacts = compacts && steps.is_some();
        let header = header && (first || steps.is_some());
        let steps = steps.take().unwrap_or_else(|| {
            around = 3 + u64::from(first) * 3;
            vec![StepPlan { deltas: left - around - STEP_EVENTS, tool: false }]
        });
        if compacts {
            self.compact();
        }
        self.log(&TurnStart::new(turn));
        let mut prompt = UserMessage::new(vec![ContentBlock::text(self.text(120))], Source::new("user"));
        prompt.id = self.id("message");
        self.place(&prompt, Placement::append());
        if first {
            let title = JsonText::trusted("{\"title\":\"A recorded session\",\"source\":{\"kind\":\"fallback\"}}");
            self.event(NewEvent::named("session/title", title));
        }
        if header {
            let system = self.text(2_000);
            let snapshot = HeaderSnapshot::new(PROVIDER, MODEL).system(&system).tools(self.tool_schemas());
            self.log(&RequestHeader::new(snapshot, if first { "initial" } else { "change" }));
            self.log(&RequestContext::new(PROVIDER, MODEL, Some(200_000)));
        }
        for (step, plan) in (1..).zip(&steps) {
            self.step(turn, step, plan);
        }
        self.log(&TurnEnd::completed(turn));
    }

    /// The steps of a turn of at most `left` events; `None` when only a single plain step fits.
    fn plan(&mut self, around: u64, left: u64) -> Option<Vec<StepPlan>> {
        let tools = self.chance.between(0, 4);
        let mut steps: Vec<StepPlan> = Vec::new();
        for step in 0..=tools {
            steps.push(StepPlan { deltas: self.chance.between(150, 900), tool: step < tools });
        }
        let fixed = around + steps.len() as u64 * STEP_EVENTS + tools * TOOL_EVENTS;
        let total = fixed + steps.iter().map(|step| step.deltas).sum::<u64>();
        if total + FEWEST_EVENTS <= left {
            return Some(steps);
        }
        // The last turn: its deltas are what is left, spread over its steps.
        let deltas = left.checked_sub(fixed)?;
        let count = steps.len() as u64;
        if deltas < count * FEWEST_DELTAS {
            return None;
        }
        for (step, index) in steps.iter_mut().zip(0..) {
            step.deltas = deltas / count + u64::from(index < deltas % count);
        }
        Some(steps)
    }

    fn step(&mut self, turn: u64, step: u64, plan: &StepPlan) {
        self.log(&StepStart::new(turn, step));
        let from = self.next_seq;
        let thinking = plan.deltas / 2;
        self.log(&AssistantChunk::block_start(turn, step, 0, "reasoning"));
        let head = RunHead { kind: DeltaKind::Reasoning, turn, step, index: 0, id: None, name: None };
        let reasoning = self.stream(head, thinking);
        let call_id = self.id("call");
        let (block, kind) = if plan.tool {
            self.log(&AssistantChunk::block_start(turn, step, 1, "tool-call"));
            let (id, name) = (Some(call_id.as_str().into()), Some("bash".into()));
            let head = RunHead { kind: DeltaKind::ToolCall, turn, step, index: 1, id, name };
            let arguments = self.stream_arguments(head, plan.deltas - thinking);
            (ContentBlock::tool_call(&call_id, "bash", arguments), "tool-calls")
        } else {
            self.log(&AssistantChunk::block_start(turn, step, 1, "text"));
            let head = RunHead { kind: DeltaKind::Text, turn, step, index: 1, id: None, name: None };
            (ContentBlock::text(self.stream(head, plan.deltas - thinking)), "stop")
        };
        let content = vec![ContentBlock::reasoning(reasoning), block];
        for (index, block) in (0..).zip(&content) {
            self.log(&AssistantChunk::block_end(turn, step, index, block.clone()));
        }
        let usage = TokenUsage::new(self.chance.between(500, 9_000), plan.deltas);
        self.log(&AssistantChunk::usage(turn, step, usage.clone()));
        let reason = JsonText::trusted(format!("{{\"kind\":\"{kind}\"}}"));
        let finish = Finish { reason, replay_state: None, extra: Vec::new() };
        self.log(&AssistantChunk::new(turn, step, StreamChunk::Finish(finish)));
        let arguments = content.iter().find_map(|block| match block {
            ContentBlock::ToolCall(call) => Some(call.arguments.clone()),
            _ => None,
        });
        let mut message = AssistantMessage::new(turn, step, content, ModelSource::new(PROVIDER, MODEL)).usage(usage);
        message.message.id = Some(self.id("message"));
        self.place(&message, Placement::append().from(from..self.next_seq));
        if let Some(arguments) = arguments {
            self.tool(turn, step, &call_id, &arguments);
        }
        self.log(&StepEnd::new(turn, step));
    }

    /// A tool call, its result, and the todo list that the agent keeps.
    fn tool(&mut self, turn: u64, step: u64, call_id: &str, arguments: &str) {
        let call = self.log(&ToolCall::new(turn, step, call_id, "bash", arguments));
        let bytes = if self.chance.one_in(12) { 60_000 } else { self.chance.between(40, 9_000) };
        let mut result = ToolResult::text(turn, step, call_id, self.text(bytes));
        if self.chance.one_in(12) {
            result = result.failed("ExitStatus", "EXIT_1");
        }
        result.message.id = Some(self.id("message"));
        self.place(&result, Placement::append().from([call]));
        let done = if self.chance.one_in(2) { TodoStatus::Completed } else { TodoStatus::InProgress };
        self.log(&TodoWrite::new([(format!("step {step} of turn {turn}"), done)]));
    }

    /// Streams `deltas` pieces and returns their text.
    fn stream(&mut self, head: RunHead, deltas: u64) -> String {
        let head = Arc::new(head);
        let mut whole = String::new();
        for _ in 0..deltas {
            let token = self.chance.token();
            whole.push_str(&token);
            self.delta(&head, &token);
        }
        whole
    }

    /// Streams the arguments of a shell call, valid JSON as a whole, in at least four pieces.
    fn stream_arguments(&mut self, head: RunHead, deltas: u64) -> String {
        let head = Arc::new(head);
        let mut whole = String::new();
        for number in 0..deltas {
            let token = match number {
                0 => "",
                1 => "{\"command\":",
                2 => " \"",
                _ if number + 1 == deltas => "\"}",
                _ => self.chance.pick(&COMMAND_TOKENS),
            };
            whole.push_str(token);
            self.delta(&head, token);
        }
        whole
    }

    fn delta(&mut self, head: &Arc<RunHead>, text: &str) {
        let mut body = String::new();
        json::escape_into(&mut body, text);
        self.tick();
        self.ready.push_back(Event::delta(self.next_seq, self.time, Arc::clone(head), CompactString::from(body)));
        self.next_seq += 1;
    }

    /// Replaces the surface up to the newest turn's messages by a summary; four events.
    fn compact(&mut self) {
        let old = self.surface.iter().take_while(|(_, turn)| turn + 2 <= self.turn).count();
        let shadowed: Vec<u64> = self.surface.drain(..old).map(|(seq, _)| seq).collect();
        let marker = JsonText::trusted(format!("{{\"messages\":{old}}}"));
        self.event(NewEvent::named("compaction/start", marker.clone()));
        let text = self.text(900);
        let summary = JsonText::trusted(format!("{{\"text\":{}}}", json::quoted(&text)));
        self.event(NewEvent::named("compaction/summary", summary));
        let mut message = UserMessage::new(vec![ContentBlock::text(text)], Source::new("plugin"));
        message.id = self.id("message");
        let placement = match (shadowed.first(), shadowed.last()) {
            (Some(first), Some(last)) => Placement::replace(*first, *last).from(shadowed.iter().copied()),
            _ => Placement::append(),
        };
        let seq = self.place(&message, placement);
        // The summary stands where the replaced messages stood, not at the tail.
        self.surface.pop();
        self.surface.insert(0, (seq, 0));
        self.event(NewEvent::named("compaction/end", marker));
    }

    /// Tool schemas of about 18 KB.
    fn tool_schemas(&mut self) -> JsonText {
        let tools: Vec<String> = (0..12)
            .map(|number| {
                let description = json::quoted(&self.text(1_400));
                format!("{{\"name\":\"tool_{number}\",\"description\":{description},\"parameters\":{{\"type\":\"object\"}}}}")
            })
            .collect();
        JsonText::trusted(format!("[{}]", tools.join(",")))
    }
}

/// Events of a step beside its deltas: start and end, two blocks' starts and ends, usage, finish, the message.
const STEP_EVENTS: u64 = 9;
/// Events that a tool adds to its step.
const TOOL_EVENTS: u64 = 3;
/// Fewest deltas of a step: a tool call's arguments come in four pieces at least.
const FEWEST_DELTAS: u64 = 8;

/// The payload's text. Nothing here holds a number or key that JSON lacks, so nothing is ever refused.
fn text_of<P: Payload>(payload: &P) -> JsonText {
    to_json(payload).unwrap_or_else(|_| JsonText::trusted("null"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::event::batch::Batch;
    use crate::event::content::ToolResultBlock;
    use crate::event::{Item, SurfaceOp};

    #[test]
    fn a_recording_has_exactly_the_events_asked_for_and_is_mostly_deltas() {
        for events in (32..140).chain([1_000, 3_333, SMALL_EVENTS, 40_000]) {
            let recording = Recording::new(events).events(events);
            let mut count = 0;
            let mut deltas = 0;
            for (event, seq) in recording.iter().zip(0..) {
                assert_eq!(event.seq(), seq);
                count += 1;
                deltas += u64::from(event.as_packed_delta().is_some());
            }
            assert_eq!(count, events);
            assert!(events < SMALL_EVENTS || deltas * 100 > events * 95, "{deltas} of {events}");
        }
    }

    #[test]
    fn assembled_messages_equal_the_streamed_deltas_and_the_surface_is_sound() {
        let mut surface: Vec<u64> = Vec::new();
        let mut streamed: BTreeMap<u64, String> = BTreeMap::new();
        let (mut replaced, mut backwards, mut largest, mut messages) = (0, 0, 0, 0);
        let mut last = i64::MIN;
        for event in Recording::new(3).events(60_000).compacting().iter() {
            backwards += u64::from(event.time() < last);
            last = event.time();
            largest = largest.max(event.data().len());
            if let Some((head, body)) = event.as_packed_delta() {
                streamed.entry(head.index).or_default().push_str(&json::decode_body(body));
            }
            if let Some(message) = event.payload::<AssistantMessage>().unwrap() {
                messages += 1;
                for (block, text) in message.message.content.iter().zip(std::mem::take(&mut streamed).into_values()) {
                    match block {
                        ContentBlock::Text(block) => assert_eq!(block.text, text),
                        ContentBlock::Reasoning(block) => assert_eq!(block.text, text),
                        ContentBlock::ToolCall(block) => {
                            assert_eq!(block.arguments, text);
                            serde_json::from_str::<serde_json::Value>(&text).unwrap();
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
            if let Some(result) = event.payload::<ToolResult>().unwrap() {
                let [ContentBlock::ToolResult(ToolResultBlock { tool_call_id, .. })] = &result.message.content[..]
                else {
                    panic!("one result block");
                };
                assert_eq!(*tool_call_id, result.message.source.call_id);
            }
            match event.placement().map(Placement::op) {
                None => {}
                Some(SurfaceOp::Append) => surface.push(event.seq()),
                Some(SurfaceOp::Replace { start, end }) => {
                    let from = surface.iter().position(|seq| *seq == start).unwrap();
                    let to = surface.iter().position(|seq| *seq == end).unwrap();
                    let shadowed: Vec<u64> = surface.splice(from..=to, [event.seq()]).collect();
                    let sources = event.placement().unwrap().sources().unwrap();
                    assert!(shadowed.iter().all(|seq| sources.contains(*seq)));
                    replaced += 1;
                }
            }
        }
        assert!(
            replaced > 2 && backwards > 20 && largest > 60_000 && messages > 60,
            "{replaced} {backwards} {largest}"
        );
    }

    #[test]
    fn every_cadence_gives_the_same_events_in_batches_of_its_own() {
        let recording = Recording::new(5).events(6_000);
        let mut flushes = Vec::new();
        for cadence in [Cadence::Event, Cadence::Window(200), Cadence::Step] {
            let batches: Vec<Batch> = recording.batches(cadence).collect();
            assert!(batches.iter().flat_map(Batch::events).eq(recording.iter()), "{cadence:?}");
            flushes.push(batches.len());
        }
        assert!(flushes[0] == 6_000 && flushes[1] > 2 * flushes[2] && flushes[2] > 8, "{flushes:?}");
        for batch in recording.batches(Cadence::Window(200)) {
            let first = batch.events().next().unwrap().time();
            assert!(batch.events().all(|event| event.time() - first < 200));
        }
    }

    #[test]
    fn an_unstreamed_recording_has_the_conversation_alone() {
        let recording = Recording::new(5).events(6_000);
        let spoken: Vec<Event> = recording.unstreamed().collect();
        assert!(spoken.iter().zip(0..).all(|(event, seq)| event.seq() == seq && !event.is::<AssistantChunk>()));
        let placed =
            |events: &mut dyn Iterator<Item = Event>| events.filter(|event| event.placement().is_some()).count();
        assert_eq!(placed(&mut spoken.into_iter()), placed(&mut recording.iter()));
    }

    #[test]
    fn p1_nearly_all_deltas_of_a_recording_pack() {
        let batch = Batch::pack(Recording::new(1).iter()).unwrap();
        let packed: u64 = batch
            .items()
            .iter()
            .map(|item| match item {
                Item::Run(run) => run.len(),
                Item::Event(_) => 0,
            })
            .sum();
        assert!(packed * 100 > SMALL_EVENTS * 95);
        assert!(batch.events().eq(Recording::new(1).iter()));
    }
}
