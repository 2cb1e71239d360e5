//! The one validator (E4): what append, seed, import, load and verification accept, and nothing else.

use super::difference::{self, ValueDigest};
use super::surface::{Change, SurfaceState};
use crate::event::envelope::{self, EnvelopeError};
use crate::event::message::TOOL_RESULT;
use crate::event::vocabulary::retired_shape;
use crate::event::{Event, json};

/// Why an event cannot stand at its place in the log. Nothing was changed by the refused event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event {seq} (\"{event_type}\"): {problem}")]
pub struct InvalidEvent {
    /// Seq of the refused event.
    pub seq: u64,
    /// Its type name.
    pub event_type: String,
    /// The rule that it breaks.
    pub problem: Problem,
}

/// The rule that a refused event breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The envelope is not one that an event may have.
    #[error("{0}")]
    Envelope(#[from] EnvelopeError),
    /// Seqs are contiguous; this one leaves some out.
    #[error("sequence gap: expected seq {expected}")]
    Gap {
        /// The seq that was due.
        expected: u64,
    },
    /// Seqs are contiguous; this one was given before.
    #[error("sequence overlap: expected seq {expected}")]
    Overlap {
        /// The seq that was due.
        expected: u64,
    },
    /// A retired core shape.
    #[error("{0}")]
    Retired(&'static str),
    /// S1: an end of the replaced range is not on the surface.
    #[error("replaces from {start} through {end}, but {missing} is not on the surface")]
    NotOnSurface {
        /// First node of the range.
        start: u64,
        /// Last node of the range.
        end: u64,
        /// The end that is missing.
        missing: u64,
    },
    /// S1: the range runs backwards.
    #[error("replaces from {start} through {end}, but {start} stands after {end} on the surface")]
    Inverted {
        /// First node of the range.
        start: u64,
        /// Last node of the range.
        end: u64,
    },
    /// S2: a replaced node is not among the sources.
    #[error("replaces node {node}, which sourceEventSeqs does not name")]
    NotASource {
        /// The node.
        node: u64,
    },
    /// S2: a source is named twice.
    #[error("sourceEventSeqs names {source_seq} twice")]
    SourceTwice {
        /// The source.
        source_seq: u64,
    },
    /// S2: a source is not earlier than the event.
    #[error("sourceEventSeqs names {source_seq}, which is not earlier than the event")]
    SourceNotEarlier {
        /// The source.
        source_seq: u64,
    },
    /// S2: an empty list of sources on a type that may not carry one.
    #[error("sourceEventSeqs is empty, which only an assistant/message may say")]
    SourcesEmpty,
    /// The message of a `tool/result` does not have its shape.
    #[error("{0}")]
    ToolResultShape(&'static str),
    /// S3: a `tool/result` may replace exactly one current `tool/result`.
    #[error("a tool/result may only replace exactly one tool/result that is on the surface")]
    ToolResultTarget,
    /// S3: a `tool/result` replacement changes more than the result's content.
    #[error("a tool/result replacement may change nothing but the content of the result block of event {replaced}")]
    ToolResultRewrite {
        /// The replaced event.
        replaced: u64,
    },
}

impl InvalidEvent {
    pub(crate) fn new(event: &Event, problem: Problem) -> Self {
        Self { seq: event.seq(), event_type: event.event_type().to_owned(), problem }
    }
}

/// Validates a log event by event, keeping only what the rules need: the next seq and the surface.
///
/// Memory follows the surface, never the log.
#[derive(Debug, Clone, Default)]
pub struct Validator {
    next_seq: u64,
    surface: SurfaceState,
}

impl Validator {
    /// Starts at an empty log.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks the next event and, if it is accepted, counts it in. Cost: one pass over its payload for surface types, O(1)
    /// else; O(surface) for a replacement.
    ///
    /// # Errors
    /// [`InvalidEvent`]; the validator is unchanged then and can be given another event.
    pub fn check(&mut self, event: &Event) -> Result<(), InvalidEvent> {
        let change = check(event, self.next_seq, &self.surface)?;
        if let Some(change) = change {
            self.surface.apply(event.seq(), change);
        }
        self.next_seq += 1;
        Ok(())
    }

    /// Seq that the next event must have.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }
}

pub(crate) fn check_seq(found: u64, expected: u64) -> Result<(), Problem> {
    match found.cmp(&expected) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(Problem::Gap { expected }),
        std::cmp::Ordering::Less => Err(Problem::Overlap { expected }),
    }
}

/// Checks `event` as the one at `expected_seq` over `surface`; returns what it does to the surface.
pub(crate) fn check(event: &Event, expected_seq: u64, surface: &SurfaceState) -> Result<Option<Change>, InvalidEvent> {
    find_problem(event, expected_seq, surface).map_err(|problem| InvalidEvent::new(event, problem))
}

fn find_problem(event: &Event, expected_seq: u64, surface: &SurfaceState) -> Result<Option<Change>, Problem> {
    check_seq(event.seq(), expected_seq)?;
    envelope::check_event(event)?;
    if event.as_packed_delta().is_some() {
        return Ok(None);
    }
    if let Some(reason) = retired_shape(event.event_type(), &event.data()) {
        return Err(Problem::Retired(reason));
    }
    let Some(placement) = event.placement() else { return Ok(None) };
    let frame = if event.event_type() == TOOL_RESULT { Some(tool_result_frame(&event.data())?) } else { None };
    surface.check(event, placement, frame).map(Some)
}

/// Checks the shape of a `tool/result` and returns the digest of everything but the result block's content (S3).
pub(crate) fn tool_result_frame(data: &str) -> Result<ValueDigest, Problem> {
    let wrong = |problem| Err(Problem::ToolResultShape(problem));
    let Some(message) = json::member(data, "message") else {
        return wrong("a tool/result holds its message in member \"message\"");
    };
    let mut content = json::member(message, "content").and_then(json::elements).into_iter().flatten();
    let (Some(block), None) = (content.next(), content.next()) else {
        return wrong("the content of a tool/result is exactly one tool-result block");
    };
    if json::member(block, "type").and_then(json::string).is_none_or(|kind| kind != "tool-result") {
        return wrong("the content of a tool/result is exactly one tool-result block");
    }
    let named = json::member(block, "toolCallId").filter(|id| json::string(id).is_some());
    let source = json::at_path(message, &["source", "callId"]).filter(|id| json::string(id).is_some());
    let (Some(named), Some(source)) = (named, source) else {
        return wrong("a tool/result names its call in source.callId and in its block's toolCallId");
    };
    if !difference::same(named, source) {
        return wrong("the toolCallId of a tool/result's block must equal source.callId");
    }
    Ok(difference::digest_all(&[
        difference::digest_without(data, "message"),
        difference::digest_without(message, "content"),
        difference::digest_without(block, "content"),
    ]))
}
