//! Events: the envelope, payloads, JSON rules and packing that every layer speaks.
//!
//! An [`Event`] is an immutable, cheaply cloned handle. Its payload is the exact compact JSON text that was accepted
//! ([`JsonText`]); typed payloads ([`payload`], [`message`], [`chunk`], ..) are views that are read on demand.

pub mod batch;
pub mod chunk;
pub mod content;
pub mod control;
pub mod envelope;
pub mod header;
pub mod json;
pub mod limits;
pub mod message;
mod object;
pub mod payload;
pub mod placement;
pub mod run;
mod strict;
pub mod vocabulary;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use compact_str::CompactString;

pub use batch::{Batch, Item};
pub use envelope::{EnvelopeError, RawEnvelope};
pub use header::{SessionHeader, SessionId};
pub use json::{JsonError, JsonText};
pub use payload::{LogPayload, OutOfBandPayload, Payload, SurfacePayload};
pub use placement::{Placement, Sources, SurfaceOp};
pub use run::ChunkRun;
pub use vocabulary::Vocabulary;

use run::RunHead;

/// One accepted event of a session (semantics E1-E5): `type`, `seq`, `time`, `data` and the optional envelope members.
///
/// A handle: cloning costs one reference count, and nothing can change the event behind it.
#[derive(Clone)]
pub struct Event(Repr);

#[derive(Clone)]
enum Repr {
    /// A streamed delta of a packed run; its JSON text is made when asked for.
    Delta {
        seq: u64,
        time: i64,
        head: Arc<RunHead>,
        body: CompactString,
    },
    Whole(Arc<Whole>),
}

struct Whole {
    event_type: CompactString,
    seq: u64,
    time: i64,
    data: JsonText,
    ignorable: bool,
    placement: Option<Placement>,
}

/// The envelope members of an event about to be appended; `seq` and `time` are assigned by the log.
#[derive(Debug, Clone)]
pub struct NewEvent {
    /// Type name, by convention `owner/name`.
    pub event_type: CompactString,
    /// Payload.
    pub data: JsonText,
    /// Whether a reader that does not know the type may skip the event.
    pub ignorable: bool,
    /// Surface members; present exactly on surface types.
    pub placement: Option<Placement>,
}

impl NewEvent {
    /// A log-only event by name with a ready JSON payload.
    pub fn named(event_type: &str, data: JsonText) -> Self {
        Self { event_type: event_type.into(), data, ignorable: false, placement: None }
    }

    /// Marks the event as one that readers which do not know its type may skip.
    pub fn ignorable(mut self) -> Self {
        self.ignorable = true;
        self
    }

    /// Gives the event its place on the surface.
    pub fn placed(mut self, placement: Placement) -> Self {
        self.placement = Some(placement);
        self
    }

    /// The event at its position in the log.
    pub fn at(self, seq: u64, time: i64) -> Event {
        Event::new(seq, time, self)
    }
}

impl Event {
    /// Puts together an event from its members without judging them; [`envelope`] and the session validate.
    pub fn new(seq: u64, time: i64, new: NewEvent) -> Self {
        let NewEvent { event_type, data, ignorable, placement } = new;
        Self(Repr::Whole(Arc::new(Whole { event_type, seq, time, data, ignorable, placement })))
    }

    pub(crate) fn delta(seq: u64, time: i64, head: Arc<RunHead>, body: CompactString) -> Self {
        Self(Repr::Delta { seq, time, head, body })
    }

    /// The run head and raw string body when this handle came out of a packed run.
    pub(crate) fn as_packed_delta(&self) -> Option<(&Arc<RunHead>, &str)> {
        match &self.0 {
            Repr::Delta { head, body, .. } => Some((head, body)),
            Repr::Whole(_) => None,
        }
    }

    /// Type name, such as `user/message`.
    pub fn event_type(&self) -> &str {
        match &self.0 {
            Repr::Delta { .. } => chunk::ASSISTANT_CHUNK,
            Repr::Whole(whole) => &whole.event_type,
        }
    }

    /// Position in the log, from 0.
    pub fn seq(&self) -> u64 {
        match &self.0 {
            Repr::Delta { seq, .. } => *seq,
            Repr::Whole(whole) => whole.seq,
        }
    }

    /// Epoch milliseconds at which the event was accepted. May run backwards from one event to the next, as clocks do.
    pub fn time(&self) -> i64 {
        match &self.0 {
            Repr::Delta { time, .. } => *time,
            Repr::Whole(whole) => whole.time,
        }
    }

    /// The payload's exact JSON text. Built on the fly (one short allocation) for streamed deltas, shared for all others.
    pub fn data(&self) -> Cow<'_, str> {
        match &self.0 {
            Repr::Delta { head, body, .. } => Cow::Owned(head.data(body)),
            Repr::Whole(whole) => Cow::Borrowed(whole.data.as_str()),
        }
    }

    /// The payload as a shared handle.
    pub fn json(&self) -> JsonText {
        match &self.0 {
            Repr::Delta { head, body, .. } => JsonText::trusted(head.data(body)),
            Repr::Whole(whole) => whole.data.clone(),
        }
    }

    /// Whether a reader that does not know the type may skip the event.
    pub fn ignorable(&self) -> bool {
        matches!(&self.0, Repr::Whole(whole) if whole.ignorable)
    }

    /// How the event entered the surface; `None` for log-only events.
    pub fn placement(&self) -> Option<&Placement> {
        match &self.0 {
            Repr::Delta { .. } => None,
            Repr::Whole(whole) => whole.placement.as_ref(),
        }
    }

    /// Whether the event is of payload type `P`.
    pub fn is<P: Payload>(&self) -> bool {
        self.event_type() == P::TYPE
    }

    /// The payload as `P`, or `None` if the event is of another type. A streamed delta becomes a chunk without passing through
    /// JSON.
    ///
    /// # Errors
    /// [`JsonError`] when the event has the type's name but not its shape.
    pub fn payload<P: Payload>(&self) -> Result<Option<P>, JsonError> {
        if !self.is::<P>() {
            return Ok(None);
        }
        if let Repr::Delta { head, body, .. } = &self.0
            && let Some(payload) = head.with_delta(body, P::of_delta)
        {
            return Ok(Some(payload));
        }
        self.json().read().map(Some)
    }

    /// The event as one line of JSON without a line break, members in the order
    /// `type, seq, time, data, sourceEventSeqs, surfaceOp, ignorable`.
    pub fn to_line(&self) -> String {
        let mut line = String::new();
        envelope::write_line(self, &mut line);
        line
    }

    /// Bytes that the event's payload and type hold in memory, for queue bounds and page limits.
    pub fn weight(&self) -> usize {
        match &self.0 {
            Repr::Delta { body, .. } => body.len() + 16,
            Repr::Whole(whole) => {
                let sources = whole.placement.as_ref().map_or(0, placement::Placement::weight);
                whole.data.len() + whole.event_type.len() + sources + 48
            }
        }
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.seq() == other.seq()
            && self.time() == other.time()
            && self.event_type() == other.event_type()
            && self.ignorable() == other.ignorable()
            && self.placement() == other.placement()
            && self.data() == other.data()
    }
}

impl Eq for Event {}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_line())
    }
}
