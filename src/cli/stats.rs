//! `stats`: what a session, or a whole store, amounts to.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use clap::Args;
use serde::Serialize;
use sessionlog::backend::{BackendError, ErrorKind, ReadLimit};
use sessionlog::event::content::TokenUsage;
use sessionlog::event::{ChunkRun, Event, Item, SessionId};
use sessionlog::segment::{Engine, SectionBytes, Sections, SegmentBackend};
use sessionlog::session::fold::Fold;

use super::failure::{Failure, PARTLY_FAILED, status_of};
use super::output::{self, Output, bytes, complain, one_line, paragraph};
use super::{store, time};

/// Most threads that read.
const MOST_THREADS: usize = 8;

#[derive(Debug, Args)]
pub struct Stats {
    /// Session id, or an unambiguous beginning of it [default: the whole store]
    #[arg(value_name = "ID")]
    pub id: Option<String>,
}

/// What is counted; of several sessions the sums.
#[derive(Debug, Default, Serialize)]
struct Counted {
    events: u64,
    turns: u64,
    steps: u64,
    tool_calls: u64,
    /// Messages that the model sees.
    messages: u64,
    /// Replacements on the surface: compactions and edits.
    replacements: u64,
    tokens: Tokens,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_time: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_time: Option<i64>,
    /// From the first event to the last; of several sessions the sum.
    duration_ms: u64,
    /// Time within turns.
    turns_ms: u64,
    longest_turn_ms: u64,
    by_type: BTreeMap<String, TypeBytes>,
    sections: BTreeMap<&'static str, Section>,
    /// As JSON Lines, one event each, in the order of `export`.
    plain_bytes: u64,
    stored_bytes: u64,
    /// Stored bytes for each plain one.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
}

#[derive(Debug, Default, Serialize)]
struct Tokens {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    reasoning: u64,
}

/// Events of a type, and their bytes as JSON Lines.
#[derive(Debug, Default, Serialize)]
struct TypeBytes {
    events: u64,
    bytes: u64,
}

#[derive(Debug, Default, Serialize)]
struct Section {
    stored: u64,
    unpacked: u64,
}

/// The `--json` document of one session.
#[derive(Debug, Serialize)]
struct OfSession<'a> {
    id: &'a str,
    #[serde(flatten)]
    counted: &'a Counted,
}

/// The `--json` document of a store.
#[derive(Debug, Serialize)]
struct OfStore<'a> {
    sessions: u64,
    damaged: u64,
    #[serde(flatten)]
    counted: &'a Counted,
}

pub async fn run(backend: &SegmentBackend, arguments: &Stats, json: bool, out: &mut Output) -> Result<(), Failure> {
    if let Some(given) = &arguments.id {
        let id = store::resolve(backend, given).await?;
        let (mut counted, error) = count(backend.engine(), &id)?;
        counted.settle();
        if json {
            out.json(&OfSession { id: id.as_str(), counted: &counted })?;
        } else {
            out.line(&format!("Session {}", one_line(id.as_str())))?;
            print(&counted, out)?;
        }
        return error.map_or(Ok(()), |error| Err(partly(&error)));
    }
    let mut damaged = 0;
    let mut ids = Vec::new();
    for entry in store::entries(backend).await? {
        match entry.id() {
            Ok(id) => ids.push(id),
            Err(error) => {
                complain(&format!("sessionlog: {}", paragraph(&Failure::from(error).to_string())));
                damaged += 1;
            }
        }
    }
    let (mut counted, sessions, errors) = count_all(backend.engine(), &ids);
    for error in &errors {
        complain(&format!("sessionlog: {}", paragraph(&partly(error).to_string())));
    }
    damaged += errors.len() as u64;
    counted.settle();
    if json {
        out.json(&OfStore { sessions, damaged, counted: &counted })?;
    } else {
        let unsound = if damaged > 0 { format!(", {damaged} of them damaged") } else { String::new() };
        out.line(&format!("{}{unsound}", output::counted(sessions, "session")))?;
        print(&counted, out)?;
    }
    if damaged > 0 { Err(Failure::Status(PARTLY_FAILED)) } else { Ok(()) }
}

fn partly(error: &BackendError) -> Failure {
    let text = format!("{}; what comes before it was counted", Failure::from(error));
    Failure::Message { text, status: status_of(error.kind) }
}

/// Counts all sessions on all cores. Those that were deleted meanwhile are left out.
fn count_all(engine: &Engine, ids: &[SessionId]) -> (Counted, u64, Vec<BackendError>) {
    let next = AtomicUsize::new(0);
    let results: Mutex<BTreeMap<usize, (Counted, Option<BackendError>)>> = Mutex::default();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores.clamp(1, MOST_THREADS).min(ids.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(id) = ids.get(index) else { return };
                    let result = match count(engine, id) {
                        Ok(result) => result,
                        Err(error) if error.kind == ErrorKind::NotFound => continue,
                        Err(error) => (Counted::default(), Some(error)),
                    };
                    if let Ok(mut results) = results.lock() {
                        results.insert(index, result);
                    }
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_default();
    let sessions = results.len() as u64;
    let mut sum = Counted::default();
    let mut errors = Vec::new();
    for (counted, error) in results.into_values() {
        sum.add(counted);
        errors.extend(error);
    }
    (sum, sessions, errors)
}

/// Reads a session once, in bounded memory. With damage comes what stands before it.
fn count(engine: &Engine, id: &SessionId) -> Result<(Counted, Option<BackendError>), BackendError> {
    let mut reader = engine.reader(id)?;
    let mut counted = Counted::default();
    let mut fold = Fold::new();
    let mut sound = true;
    let mut turn_from: Option<i64> = None;
    let error = loop {
        let page = match reader.next_page(ReadLimit::default()) {
            Ok(page) => page,
            Err(error) if error.kind == ErrorKind::NotFound => return Err(error),
            Err(error) => break Some(error),
        };
        for item in &page.items {
            // Whether the log obeys the model's rules is no question here; what follows from it is told as far as it does.
            sound = sound && fold.apply_item(item).is_ok();
            counted.item(item);
            if let Item::Event(event) = item {
                match event.event_type() {
                    "turn/start" => turn_from = Some(event.time()),
                    "turn/end" => {
                        if let Some(from) = turn_from.take() {
                            counted.turn(event.time().saturating_sub(from));
                        }
                    }
                    _ => {}
                }
            }
        }
        if page.next.is_none() {
            break None;
        }
    };
    counted.messages = fold.surface().nodes().len() as u64;
    counted.replacements = fold.surface().replace_generation();
    counted.tokens.add(&fold.usage().total());
    counted.duration_ms = span(counted.first_time, counted.last_time);
    counted.add_sections(&engine.sections(id)?);
    Ok((counted, error))
}

fn span(first: Option<i64>, last: Option<i64>) -> u64 {
    let span = first.zip(last).map_or(0, |(first, last)| last.saturating_sub(first));
    // Clocks may run backwards.
    u64::try_from(span).unwrap_or(0)
}

impl Tokens {
    fn add(&mut self, usage: &TokenUsage) {
        for (sum, count) in [
            (&mut self.input, Some(usage.input_tokens)),
            (&mut self.output, Some(usage.output_tokens)),
            (&mut self.cache_read, usage.cache_read_tokens),
            (&mut self.cache_write, usage.cache_write_tokens),
            (&mut self.reasoning, usage.reasoning_tokens),
        ] {
            *sum = sum.saturating_add(count.unwrap_or(0));
        }
    }
}

impl Counted {
    fn item(&mut self, item: &Item) {
        let (first, last) = match item {
            Item::Event(event) => (event.time(), event.time()),
            Item::Run(run) => (run.first_time(), run.last_time()),
        };
        self.first_time.get_or_insert(first);
        self.last_time = Some(last);
        let (name, events, bytes) = match item {
            Item::Event(event) => (event.event_type(), 1, line_bytes(event)),
            Item::Run(run) => ("assistant/chunk", run.len(), run_bytes(run)),
        };
        self.events += events;
        self.plain_bytes += bytes;
        match name {
            "turn/start" => self.turns += 1,
            "step/start" => self.steps += 1,
            "tool/call" => self.tool_calls += 1,
            _ => {}
        }
        let of_type = match self.by_type.get_mut(name) {
            Some(of_type) => of_type,
            None => self.by_type.entry(name.to_owned()).or_default(),
        };
        of_type.events += events;
        of_type.bytes += bytes;
    }

    fn turn(&mut self, milliseconds: i64) {
        let lasted = u64::try_from(milliseconds).unwrap_or(0);
        self.turns_ms = self.turns_ms.saturating_add(lasted);
        self.longest_turn_ms = self.longest_turn_ms.max(lasted);
    }

    fn add_sections(&mut self, sections: &Sections) {
        let Sections { conversation, stream, index, journals, other } = *sections;
        for (name, SectionBytes { stored, unpacked }) in [
            ("conversation", conversation),
            ("stream", stream),
            ("index", index),
            ("journals", journals),
            ("other", other),
        ] {
            self.section(name, stored, unpacked);
        }
    }

    fn section(&mut self, name: &'static str, stored: u64, unpacked: u64) {
        let section = self.sections.entry(name).or_default();
        section.stored += stored;
        section.unpacked += unpacked;
        self.stored_bytes += stored;
    }

    /// Takes in another session's numbers.
    fn add(&mut self, other: Counted) {
        let sum = |this: &mut u64, other: u64| *this = this.saturating_add(other);
        sum(&mut self.events, other.events);
        sum(&mut self.turns, other.turns);
        sum(&mut self.steps, other.steps);
        sum(&mut self.tool_calls, other.tool_calls);
        sum(&mut self.messages, other.messages);
        sum(&mut self.replacements, other.replacements);
        sum(&mut self.tokens.input, other.tokens.input);
        sum(&mut self.tokens.output, other.tokens.output);
        sum(&mut self.tokens.cache_read, other.tokens.cache_read);
        sum(&mut self.tokens.cache_write, other.tokens.cache_write);
        sum(&mut self.tokens.reasoning, other.tokens.reasoning);
        sum(&mut self.duration_ms, other.duration_ms);
        sum(&mut self.turns_ms, other.turns_ms);
        sum(&mut self.plain_bytes, other.plain_bytes);
        self.longest_turn_ms = self.longest_turn_ms.max(other.longest_turn_ms);
        self.first_time = self.first_time.into_iter().chain(other.first_time).min();
        self.last_time = self.last_time.into_iter().chain(other.last_time).max();
        for (name, of_type) in other.by_type {
            let this = self.by_type.entry(name).or_default();
            this.events += of_type.events;
            this.bytes += of_type.bytes;
        }
        for (name, section) in other.sections {
            self.section(name, section.stored, section.unpacked);
        }
    }

    /// Fills in what follows from the sums.
    fn settle(&mut self) {
        #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
        let ratio = self.stored_bytes as f64 / self.plain_bytes as f64;
        self.ratio = (self.plain_bytes > 0).then(|| (ratio * 10_000.0).round() / 10_000.0);
    }
}

/// Bytes of an event's line, its end included.
fn line_bytes(event: &Event) -> u64 {
    event.to_line().len() as u64 + 1
}

/// As [`line_bytes`], for all deltas of a run. They differ in seq, time and text alone.
fn run_bytes(run: &ChunkRun) -> u64 {
    let mut deltas = run.deltas().zip(run.first_seq()..);
    let own = |((time, body), seq): ((i64, &str), u64)| body.len() as u64 + digits(seq) + signed_digits(time);
    let (Some(first), Some(event)) = (deltas.next(), run.event(run.first_seq())) else { return 0 };
    let shared = line_bytes(&event) - own(first);
    deltas.map(own).fold(own(first), u64::saturating_add).saturating_add(shared.saturating_mul(run.len()))
}

fn digits(number: u64) -> u64 {
    u64::from(number.checked_ilog10().unwrap_or(0)) + 1
}

fn signed_digits(number: i64) -> u64 {
    digits(number.unsigned_abs()) + u64::from(number < 0)
}

fn print(counted: &Counted, out: &mut Output) -> Result<(), Failure> {
    let Counted { events, turns, steps, tool_calls, messages, replacements, tokens, .. } = counted;
    let named = [(events, "event"), (turns, "turn"), (steps, "step"), (tool_calls, "tool call")];
    out.line(&format!("  {}", named.map(|(number, thing)| output::counted(*number, thing)).join(", ")))?;
    let (messages, replacements) =
        (output::counted(*messages, "message"), output::counted(*replacements, "replacement"));
    out.line(&format!("  {messages} in sight of the model, {replacements}"))?;
    let Tokens { input, output, cache_read, cache_write, reasoning } = tokens;
    out.line(&format!(
        "  tokens: {input} in, {output} out, {cache_read} read from cache, {cache_write} written to cache, {reasoning} reasoning"
    ))?;
    if let (Some(first), Some(last)) = (counted.first_time, counted.last_time) {
        out.line(&format!("  from {} to {} UTC", time::format(first), time::format(last)))?;
    }
    let (all, within) = (time::span(counted.duration_ms), time::span(counted.turns_ms));
    out.line(&format!("  {all} in all, {within} within turns, the longest {}", time::span(counted.longest_turn_ms)))?;
    let ratio = counted.ratio.map(|ratio| format!(", {:.1} % of that", ratio * 100.0)).unwrap_or_default();
    out.line(&format!(
        "  {} as JSON Lines; stored in {}{ratio}",
        bytes(counted.plain_bytes),
        bytes(counted.stored_bytes)
    ))?;
    out.line("")?;
    out.line(&format!("  {:<24} {:>12} {:>12}", "TYPE", "EVENTS", "PLAIN"))?;
    let mut types: Vec<_> = counted.by_type.iter().collect();
    types.sort_by_key(|(name, of_type)| (std::cmp::Reverse(of_type.bytes), *name));
    for (name, of_type) in types {
        out.line(&format!("  {:<24} {:>12} {:>12}", one_line(name), of_type.events, bytes(of_type.bytes)))?;
    }
    out.line("")?;
    out.line(&format!("  {:<24} {:>12} {:>12}", "SECTION", "STORED", "UNPACKED"))?;
    for (name, section) in &counted.sections {
        out.line(&format!("  {name:<24} {:>12} {:>12}", bytes(section.stored), bytes(section.unpacked)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sessionlog::event::Batch;
    use sessionlog::sample::Recording;

    use super::*;

    #[test]
    fn a_run_counts_as_many_bytes_as_its_events_lines() {
        let batch = Batch::pack(Recording::new(5).events(500).iter()).unwrap();
        let mut runs = 0;
        for item in batch.items() {
            if let Item::Run(run) = item {
                runs += 1;
                assert_eq!(run_bytes(run), run.events().map(|event| line_bytes(&event)).sum::<u64>());
            }
        }
        assert!(runs > 3);
        assert_eq!((digits(0), digits(10), signed_digits(-9)), (1, 2, 2));
    }
}
