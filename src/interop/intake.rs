//! The log under construction: positions, repeated events, packing.

use std::collections::VecDeque;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::sync::Arc;

use super::calls::CallIds;
use super::error::ImportErrorKind;
use crate::event::envelope::DeltaLine;
use crate::event::limits::{MAX_SAFE_INTEGER, MIN_RUN_EVENTS};
use crate::event::run::RunHead;
use crate::event::{ChunkRun, Event, Item, Placement, SurfaceOp};
use crate::session::validator::Validator;

/// How many events back a repeated one can still be told from a different one. Two writers drift apart by what one of them had
/// not yet flushed; this is far more.
const RECENT_EVENTS: usize = 64 * 1024;

/// What is kept of an event to recognise its repetition.
struct Seen {
    digest: u64,
    line: u64,
}

/// Whether an event is new or one that stood in the log before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admitted {
    New,
    Repeated,
}

/// What the deltas of one head have in common.
struct Common {
    head: Arc<RunHead>,
    spelling: DeltaLine,
    /// The digest as far as the head decides it.
    digest: DefaultHasher,
}

/// Takes in events in order and gives out items.
pub(super) struct Intake {
    validator: Validator,
    recent: VecDeque<Seen>,
    /// Random keys: nobody can prepare two events with one digest.
    keys: RandomState,
    run: Option<ChunkRun>,
    /// What is common to the deltas of one head; most follow one of the same head.
    common: Option<Common>,
    ready: VecDeque<Item>,
    calls: CallIds,
}

impl Intake {
    pub(super) fn new() -> Self {
        Self {
            validator: Validator::new(),
            recent: VecDeque::new(),
            keys: RandomState::new(),
            run: None,
            common: None,
            ready: VecDeque::new(),
            calls: CallIds::default(),
        }
    }

    /// Seq of the next event.
    pub(super) fn next_seq(&self) -> u64 {
        self.validator.next_seq()
    }

    /// What was odd about call ids so far.
    pub(super) fn calls(&self) -> &CallIds {
        &self.calls
    }

    /// Takes in an event that is no packable delta, or one that is.
    pub(super) fn admit(&mut self, event: &Event, line: u64) -> Result<Admitted, ImportErrorKind> {
        if let Some(delta) = ChunkRun::of(event)
            && let Some((time, body)) = delta.deltas().next()
        {
            return self.admit_delta(delta.head(), event.seq(), time, body, line);
        }
        let digest = self.digest(event.event_type(), event.time(), event.ignorable(), event.placement(), &event.data());
        if self.place(event.seq(), digest)? == Admitted::Repeated {
            return Ok(Admitted::Repeated);
        }
        self.validator.check(event).map_err(ImportErrorKind::Invalid)?;
        self.calls.note(event.event_type(), &event.data());
        self.end_run();
        self.ready.push_back(Item::Event(event.clone()));
        self.took(digest, line);
        Ok(Admitted::New)
    }

    /// Takes in a line that is the next delta of the run under construction, spelled as this crate and the harness spell it. `None`
    /// for any other line, which has to be looked at member by member.
    pub(super) fn admit_next_delta(&mut self, text: &str, line: u64) -> Option<Result<Admitted, ImportErrorKind>> {
        let (run, common) = (self.run.as_ref()?, self.common.as_ref()?);
        let (seq, time, body) = common.spelling.recognise(text)?;
        if !run.accepts(&common.head, seq, time, body) {
            return None;
        }
        let head = Arc::clone(&common.head);
        Some(self.admit_delta(&head, seq, time, body, line))
    }

    /// Takes in a streamed delta; `body` holds no lone surrogate.
    pub(super) fn admit_delta(
        &mut self,
        head: &Arc<RunHead>,
        seq: u64,
        time: i64,
        body: &str,
        line: u64,
    ) -> Result<Admitted, ImportErrorKind> {
        let digest = self.delta_digest(head, time, body);
        if self.place(seq, digest)? == Admitted::Repeated {
            return Ok(Admitted::Repeated);
        }
        let event = Event::delta(seq, time, Arc::clone(head), body.into());
        self.validator.check(&event).map_err(ImportErrorKind::Invalid)?;
        match &mut self.run {
            Some(run) if run.accepts(head, seq, time, body) => run.push_unchecked(time, body),
            _ => {
                self.end_run();
                self.run = Some(ChunkRun::start(Arc::clone(head), seq, time, body));
            }
        }
        self.took(digest, line);
        Ok(Admitted::New)
    }

    /// The next item that is complete.
    pub(super) fn pop(&mut self) -> Option<Item> {
        self.ready.pop_front()
    }

    /// Ends the run under construction; what it holds becomes items.
    pub(super) fn end_run(&mut self) {
        let Some(mut run) = self.run.take() else { return };
        if run.len() >= MIN_RUN_EVENTS as u64 {
            run.close();
            self.ready.push_back(Item::Run(run));
        } else {
            self.ready.extend(run.events().map(Item::Event));
        }
    }

    /// Compares `seq` with the position that comes next.
    fn place(&self, seq: u64, digest: u64) -> Result<Admitted, ImportErrorKind> {
        let expected = self.next_seq();
        if seq == expected {
            if seq >= MAX_SAFE_INTEGER.unsigned_abs() {
                return Err(ImportErrorKind::TooLarge { what: "the log's length", limit: seq });
            }
            return Ok(Admitted::New);
        }
        if seq > expected {
            return Err(ImportErrorKind::Gap { expected, found: seq });
        }
        let back = usize::try_from(expected - seq).ok();
        let seen = back.and_then(|back| self.recent.len().checked_sub(back)).and_then(|index| self.recent.get(index));
        match seen {
            None => Err(ImportErrorKind::Overlap { expected, found: seq }),
            Some(seen) if seen.digest == digest => Ok(Admitted::Repeated),
            Some(seen) => Err(ImportErrorKind::Conflict { first_line: seen.line }),
        }
    }

    fn took(&mut self, digest: u64, line: u64) {
        if self.recent.len() == RECENT_EVENTS {
            self.recent.pop_front();
        }
        self.recent.push_back(Seen { digest, line });
    }

    /// The digest of a packable delta, which no other event equals.
    fn delta_digest(&mut self, head: &Arc<RunHead>, time: i64, body: &str) -> u64 {
        let known = self.common.take().filter(|common| Arc::ptr_eq(&common.head, head) || common.head == *head);
        let common = self.common.insert(known.unwrap_or_else(|| {
            let mut digest = self.keys.build_hasher();
            // No type name is as long as that, so no other event is hashed alike.
            digest.write_usize(usize::MAX);
            head.hash(&mut digest);
            Common { head: Arc::clone(head), spelling: DeltaLine::of(head), digest }
        }));
        let mut hasher = common.digest.clone();
        hasher.write_i64(time);
        hasher.write(body.as_bytes());
        hasher.finish()
    }

    fn digest(&self, event_type: &str, time: i64, ignorable: bool, placement: Option<&Placement>, data: &str) -> u64 {
        let mut hasher = self.keys.build_hasher();
        hasher.write_usize(event_type.len());
        hasher.write(event_type.as_bytes());
        hasher.write_i64(time);
        hasher.write_u8(u8::from(ignorable));
        match placement.map(Placement::op) {
            None => hasher.write_u8(0),
            Some(SurfaceOp::Append) => hasher.write_u8(1),
            Some(SurfaceOp::Replace { start, end }) => {
                hasher.write_u8(2);
                hasher.write_u64(start);
                hasher.write_u64(end);
            }
        }
        if let Some(sources) = placement.and_then(Placement::sources) {
            hasher.write_usize(sources.ranges().len());
            for (start, end) in sources.ranges() {
                hasher.write_u64(*start);
                hasher.write_u64(*end);
            }
        } else {
            hasher.write_usize(usize::MAX);
        }
        hasher.write(data.as_bytes());
        hasher.finish()
    }
}
