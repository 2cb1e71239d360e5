//! Where a session may be forked (rule L5): at an existing seq that lies outside every turn.

use crate::event::control::{TURN_END, TURN_START};
use crate::event::{ChunkRun, Event, Item};

/// Where the child's copy of the log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ForkAt {
    /// Behind the last event, which must not lie inside an open turn.
    #[default]
    End,
    /// Behind the last event that lies outside every turn.
    LastTurn,
    /// Behind the event of this seq.
    Seq(u64),
}

impl From<u64> for ForkAt {
    fn from(seq: u64) -> Self {
        Self::Seq(seq)
    }
}

/// Why a log cannot be forked there. Boundaries are never moved silently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BoundaryError {
    /// No event has the boundary's seq.
    #[error("fork boundary {boundary} is not an event of the log, which ends before seq {next_seq}")]
    NoSuchSeq {
        /// The boundary asked for.
        boundary: u64,
        /// Number of events in the log.
        next_seq: u64,
    },
    /// The boundary lies inside a turn.
    #[error(
        "fork boundary {boundary} lies inside the turn that opened at seq {opened_at}; fork at {} or at a turn's end",
        before(*last_closed)
    )]
    InsideTurn {
        /// The boundary.
        boundary: u64,
        /// Seq of the turn's start.
        opened_at: u64,
        /// The last seq before that turn, if there is one.
        last_closed: Option<u64>,
    },
}

fn before(last_closed: Option<u64>) -> String {
    last_closed.map_or_else(|| "no earlier seq".to_owned(), |seq| format!("seq {seq}"))
}

/// Finds the boundary while a log streams by, in O(1) memory. Feed it the log from seq 0 on; it may stop early.
#[derive(Debug, Clone, Copy)]
pub struct BoundaryScan {
    at: ForkAt,
    next_seq: u64,
    opened_at: Option<u64>,
    last_closed: Option<u64>,
}

impl BoundaryScan {
    /// Starts a scan.
    pub fn new(at: ForkAt) -> Self {
        Self { at, next_seq: 0, opened_at: None, last_closed: None }
    }

    /// Starts a scan behind a prefix whose fold is at hand.
    pub fn from_fold(at: ForkAt, fold: &super::fold::Fold) -> Self {
        let next_seq = fold.next_seq();
        let opened_at = fold.open_turn().map(|open| open.started_at);
        let last_closed = opened_at.unwrap_or(next_seq).checked_sub(1);
        Self { at, next_seq, opened_at, last_closed }
    }

    /// Takes the next item; `false` once the boundary is passed and no more items are needed.
    pub fn push(&mut self, item: &Item) -> bool {
        match item {
            Item::Event(event) => self.push_event(event),
            Item::Run(run) => self.push_run(run),
        }
    }

    /// A run never holds a turn's start or end.
    pub(crate) fn push_run(&mut self, run: &ChunkRun) -> bool {
        let end = match self.at {
            ForkAt::Seq(boundary) => run.next_seq().min(boundary.saturating_add(1)),
            ForkAt::End | ForkAt::LastTurn => run.next_seq(),
        };
        self.next_seq = self.next_seq.max(end);
        if self.opened_at.is_none() {
            self.last_closed = self.next_seq.checked_sub(1);
        }
        self.wants_more()
    }

    pub(crate) fn push_event(&mut self, event: &Event) -> bool {
        if !self.wants_more() {
            return false;
        }
        self.next_seq = event.seq() + 1;
        match event.event_type() {
            TURN_START => self.opened_at = Some(event.seq()),
            TURN_END => self.opened_at = None,
            _ => {}
        }
        if self.opened_at.is_none() {
            self.last_closed = Some(event.seq());
        }
        self.wants_more()
    }

    /// Seq that the next item must begin at.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    fn wants_more(&self) -> bool {
        !matches!(self.at, ForkAt::Seq(boundary) if self.next_seq > boundary)
    }

    /// The boundary: the seq of the last event that the child takes over; `None` for an empty child.
    ///
    /// # Errors
    /// [`BoundaryError`] when there is no such event, or when it lies inside a turn.
    pub fn finish(&self) -> Result<Option<u64>, BoundaryError> {
        let boundary = match self.at {
            ForkAt::LastTurn => return Ok(self.last_closed),
            ForkAt::End => match self.next_seq.checked_sub(1) {
                Some(last) => last,
                None => return Ok(None),
            },
            ForkAt::Seq(boundary) if self.next_seq == boundary.saturating_add(1) => boundary,
            ForkAt::Seq(boundary) => return Err(BoundaryError::NoSuchSeq { boundary, next_seq: self.next_seq }),
        };
        match self.opened_at {
            Some(opened_at) => Err(BoundaryError::InsideTurn { boundary, opened_at, last_closed: self.last_closed }),
            None => Ok(Some(boundary)),
        }
    }
}

/// The boundary of a whole log; see [`BoundaryScan`].
///
/// # Errors
/// As [`BoundaryScan::finish`].
pub fn check_boundary<'a>(items: impl IntoIterator<Item = &'a Item>, at: ForkAt) -> Result<Option<u64>, BoundaryError> {
    let mut scan = BoundaryScan::new(at);
    for item in items {
        if !scan.push(item) {
            break;
        }
    }
    scan.finish()
}
