//! Logs that other tools wrote, told as sessions of this model.
//!
//! Every record of the source becomes one log-only event `TOOL/record`, marked `ignorable`, whose payload is the record itself:
//! nothing is lost, and `events ID --type '*/record'` gives the source back. What has an equivalent follows it as core events:
//! turns, steps, messages, tool calls and results, todos, titles, token counts. The messages name the record among their sources.
//!
//! The mapping reads forwards only and depends on nothing but the records before, so the same file gives the same events, and a
//! file that grew gives the same events and then more. For that reason the last turn of a source that does not record the ends of
//! turns stays open.
//!
//! **Branches.** Where a record goes on from an earlier message than the last one, its message replaces on the surface what
//! was said since; where it goes back to a branch that was left, that branch's messages are logged again behind it. So the model
//! sees the branch that was active at each moment, and the log holds all of them. Results and parts of one answer that were
//! written side by side are no branches. A record whose parent was never written goes on from the record before it, and a
//! `TOOL/gap` event says so.
//!
//! **Damage.** A line that cannot be read becomes a `TOOL/unreadable` event and is counted; a last line without an end is
//! left out, since its writer may be at work.

mod claude_code;
mod codex;
mod content;
mod draft;
mod pi;
mod time;

use serde::Serialize;

use crate::event::{JsonText, SessionHeader, json};

pub(super) use draft::Draft;

/// Who wrote a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SourceFormat {
    /// This crate, or `DeepSeek` Harness: a session header and events, rows or not, old or new.
    #[default]
    Sessionlog,
    /// Claude Code: records with `uuid` and `parentUuid`.
    ClaudeCode,
    /// `OpenAI` Codex: a rollout of `session_meta`, `response_item`, `event_msg` and `compacted` records.
    Codex,
    /// pi: a `session` header and entries with `id` and `parentId`.
    Pi,
}

/// How the records of one tool become events.
pub(super) trait Mapping {
    /// The part of event types in front of the slash.
    fn prefix(&self) -> &'static str;

    /// Learns what the header needs from a record near the start of the log; true once nothing is missing. Called for the first
    /// records, in order, before any of them is mapped.
    fn introduce(&mut self, record: &str) -> bool;

    /// The header, from what was learnt; `file` is the name of the log without its directories and ending. The error says what
    /// is missing.
    fn header(&self, file: Option<&str>) -> Result<SessionHeader, &'static str>;

    /// When the record was written, in epoch milliseconds.
    fn time(&self, record: &str) -> Option<i64> {
        json::member(record, "timestamp").and_then(time::of)
    }

    /// Adds the events that stand behind the record, which is logged already.
    fn record(&mut self, record: &JsonText, draft: &mut Draft);
}

/// The mapping of a format; `None` for the one that needs none.
pub(super) fn mapping(format: SourceFormat) -> Option<Box<dyn Mapping>> {
    match format {
        SourceFormat::Sessionlog => None,
        SourceFormat::ClaudeCode => Some(Box::<claude_code::ClaudeCode>::default()),
        SourceFormat::Codex => Some(Box::<codex::Codex>::default()),
        SourceFormat::Pi => Some(Box::<pi::Pi>::default()),
    }
}

/// The format that a record near the start of a log gives away; `None` when it could be of several.
pub(super) fn detect(record: &str) -> Option<SourceFormat> {
    let text = |key| json::member(record, key).and_then(json::string);
    let tag = text("type");
    if tag.as_deref() == Some("session") {
        // Only pi's header states its time as a date.
        let pi = text("timestamp").is_some() && json::member(record, "createdAt").is_none();
        return Some(if pi { SourceFormat::Pi } else { SourceFormat::Sessionlog });
    }
    if claude_code::recognises(record, tag.as_deref()) {
        return Some(SourceFormat::ClaudeCode);
    }
    codex::recognises(record, tag.as_deref()).then_some(SourceFormat::Codex)
}

/// A string member, decoded and not empty.
fn text_of(object: &str, key: &str) -> Option<String> {
    json::member(object, key).and_then(json::string).filter(|text| !text.is_empty()).map(std::borrow::Cow::into_owned)
}

/// Whether member `key` is `true`.
fn is_true(object: &str, key: &str) -> bool {
    json::member(object, key) == Some("true")
}

/// A count, 0 where there is none.
fn count_of(object: &str, key: &str) -> u64 {
    json::member(object, key).and_then(json::integer).and_then(|count| u64::try_from(count).ok()).unwrap_or(0)
}
