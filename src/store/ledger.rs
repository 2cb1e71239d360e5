//! The account of one live session: what was accepted, what is durable, who waits for it. Synchronous; shared by the session
//! (which fills it through [`Sink`]), the writer task (which empties it) and everyone who flushes or asks for health.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::error::FlushError;
use super::health::Health;
use crate::backend::{BackendError, ErrorKind, SealingFailure};
use crate::event::SessionId;
use crate::session::{BufferFull, Clock, Sink};
use crate::sync;

/// Account of one live session. The lock inside is a leaf: nothing is called while it is held.
pub(crate) struct Ledger {
    id: SessionId,
    window: Duration,
    limit: usize,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Wakes the writer task.
    work: Notify,
    /// Changes whenever a wait may be over.
    progress: watch::Sender<()>,
    health: watch::Sender<Health>,
}

#[derive(Default)]
struct State {
    /// Seq behind the last accepted event, and all bytes ever accepted.
    accepted: Mark,
    /// Seq behind the last durable event, and all bytes of events before it.
    durable: Mark,
    /// When the running window ends; none runs while nothing new waits.
    window_end: Option<Instant>,
    /// Flushes asked for and flushes answered.
    requested: u64,
    answered: u64,
    failure: Option<Failure>,
    /// Why what is stored of the session could not be sealed. Says nothing about durability.
    unsealed: Option<SealingFailure>,
    /// Whether a writer task serves this session.
    attended: bool,
    phase: Phase,
}

/// A position in the log together with the bytes accepted up to there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Mark {
    seq: u64,
    bytes: usize,
}

struct Failure {
    since: i64,
    cause: Arc<BackendError>,
    /// No attempt can succeed any more.
    last: bool,
}

/// How far a session's life as a live one has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Phase {
    /// In use.
    #[default]
    Open,
    /// To be given back as soon as everything is durable.
    Closing,
    /// As `Closing`, and nobody is left who could try again: give up after a failure.
    Orphaned,
    /// Given back.
    Closed,
}

/// A stretch of the log about to be written.
#[derive(Clone, Copy)]
pub(crate) struct Cut {
    /// Seq behind its last event.
    pub(crate) to: u64,
    bytes: usize,
    /// Flushes whose events it covers.
    pub(crate) covers: u64,
}

/// What the writer task does next.
pub(crate) enum Duty {
    /// Somebody flushes, or the session is to be given back.
    DrainNow,
    /// The window ends then.
    WriteAt(Instant),
    /// Nothing to do.
    Rest,
    /// Everything is durable (or can never be) and nobody needs the session any more.
    GiveBack,
}

/// A flush that was asked for.
#[derive(Clone, Copy)]
pub(crate) struct Ticket {
    number: u64,
    target: u64,
}

impl Ledger {
    /// The account of a session of which the events before `durable` are stored.
    pub(crate) fn new(id: SessionId, durable: u64, window: Duration, limit: usize, clock: Arc<dyn Clock>) -> Self {
        let mark = Mark { seq: durable, bytes: 0 };
        Self {
            id,
            window,
            limit,
            clock,
            state: Mutex::new(State { accepted: mark, durable: mark, ..State::default() }),
            work: Notify::new(),
            progress: watch::Sender::new(()),
            health: watch::Sender::new(Health::Ok),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        sync::lock(&self.state)
    }

    /// Wakes the writer task.
    fn wake(&self) {
        sync::interlude();
        self.work.notify_one();
    }

    fn progressed(&self, state: &State) {
        let health = state.health();
        self.health.send_if_modified(|shown| {
            let changed = *shown != health;
            *shown = health;
            changed
        });
        self.progress.send_replace(());
    }

    fn error(&self, state: &State) -> FlushError {
        let cause = if let Some(failure) = &state.failure {
            Arc::clone(&failure.cause)
        } else {
            let detail = "the session was closed before its last events were written";
            Arc::new(BackendError::new(ErrorKind::Poisoned, detail).with_session(&self.id))
        };
        FlushError { session: self.id.clone(), events: state.waiting_events(), bytes: state.waiting_bytes(), cause }
    }

    /// Takes account of events that came into the log without [`Sink::accepted`] being asked.
    pub(crate) fn catch_up(&self, next_seq: u64) {
        if next_seq > self.lock().accepted.seq {
            self.accepted(next_seq, 0);
        }
    }

    /// Asks for a flush; `None` when there is nothing to write.
    pub(crate) fn request(&self) -> Option<Ticket> {
        let mut state = self.lock();
        if state.waiting_events() == 0 {
            return None;
        }
        state.requested += 1;
        let ticket = Ticket { number: state.requested, target: state.accepted.seq };
        drop(state);
        self.wake();
        Some(ticket)
    }

    /// The answer to a flush, once there is one.
    pub(crate) fn answer(&self, ticket: Ticket) -> Option<Result<(), FlushError>> {
        let state = self.lock();
        // A flush is done when its drain is. After a failure, what a later attempt made durable still counts.
        if state.answered < ticket.number && state.phase != Phase::Closed {
            return None;
        }
        Some(if state.durable.seq >= ticket.target { Ok(()) } else { Err(self.error(&state)) })
    }

    /// What the writer does next.
    pub(crate) fn duty(&self) -> Duty {
        let state = self.lock();
        let lost = state.failure.as_ref().is_some_and(|failure| failure.last);
        let failed = state.failure.is_some();
        if state.phase >= Phase::Closing && (state.waiting_events() == 0 || lost) {
            Duty::GiveBack
        } else if state.requested > state.answered {
            Duty::DrainNow
        } else if state.phase == Phase::Orphaned && failed {
            Duty::GiveBack
        } else if state.phase >= Phase::Closing && !failed {
            Duty::DrainNow
        } else {
            match state.window_end {
                Some(end) if !lost => Duty::WriteAt(end),
                _ => Duty::Rest,
            }
        }
    }

    /// Waits until there may be another duty.
    pub(crate) async fn wait_for_work(&self) {
        sync::interlude();
        self.work.notified().await;
    }

    /// Takes everything accepted so far as the next batch and ends its window; `None` if all of it is durable.
    pub(crate) fn cut(&self) -> Option<Cut> {
        let mut state = self.lock();
        state.window_end = None;
        let cut = Cut { to: state.accepted.seq, bytes: state.accepted.bytes, covers: state.requested };
        (state.waiting_events() > 0).then_some(cut)
    }

    /// A cut, or the part of it before `next_seq`, is durable.
    pub(crate) fn written(&self, cut: &Cut, next_seq: u64) {
        let mut state = self.lock();
        // Of a part the bytes are not known; counting none keeps the bound on the safe side.
        let bytes = if next_seq >= cut.to { cut.bytes } else { state.durable.bytes };
        state.durable = Mark { seq: next_seq.max(state.durable.seq), bytes };
        if state.failure.take().is_some() {
            tracing::info!(session = %self.id, next_seq, "the log is durable again");
        }
        self.progressed(&state);
    }

    /// An attempt failed; everything that waited still does.
    pub(crate) fn failed(&self, cause: BackendError, last: bool) {
        let now = self.clock.now();
        let mut state = self.lock();
        let (events, bytes) = (state.waiting_events(), state.waiting_bytes());
        let earlier = state.failure.take();
        if earlier.as_ref().is_none_or(|earlier| earlier.cause.kind != cause.kind) {
            tracing::error!(session = %self.id, kind = %cause.kind, events, bytes, last, "events are not durable: {cause}");
        }
        let since = earlier.map_or(now, |earlier| earlier.since);
        state.failure = Some(Failure { since, cause: Arc::new(cause), last });
        self.progressed(&state);
    }

    /// The failure that no attempt can mend, if there was one.
    pub(crate) fn lost(&self) -> bool {
        self.lock().failure.as_ref().is_some_and(|failure| failure.last)
    }

    /// Answers the flushes up to number `covers`; with `None` all of them, unless events came in that are not durable and
    /// nothing failed. Returns whether any flush is left to answer.
    pub(crate) fn answer_up_to(&self, covers: Option<u64>) -> bool {
        let mut state = self.lock();
        let quiet = state.waiting_events() == 0 || state.failure.is_some();
        let up_to = covers.or(quiet.then_some(state.requested)).unwrap_or(0);
        state.answered = state.answered.max(up_to);
        self.progressed(&state);
        state.answered < state.requested
    }

    /// Whether everything accepted is durable.
    pub(crate) fn drained(&self) -> bool {
        self.lock().waiting_events() == 0
    }

    /// Events that are not durable.
    pub(crate) fn waiting_events(&self) -> u64 {
        self.lock().waiting_events()
    }

    /// Seq behind the last durable event.
    pub(crate) fn durable(&self) -> u64 {
        self.lock().durable.seq
    }

    /// Moves on to a later phase. What waits gets one more attempt first, also after a failure.
    pub(crate) fn advance(&self, phase: Phase) {
        let mut state = self.lock();
        if phase > state.phase {
            state.phase = phase;
            state.requested += 1;
        }
        self.progressed(&state);
        drop(state);
        self.wake();
    }

    /// How far the session's life has come.
    pub(crate) fn phase(&self) -> Phase {
        self.lock().phase
    }

    /// The error of a wait that could not be waited for.
    pub(crate) fn refused(&self, cause: BackendError) -> FlushError {
        FlushError { cause: Arc::new(cause), ..self.error(&self.lock()) }
    }

    /// Whether a writer task serves the session.
    pub(crate) fn is_attended(&self) -> bool {
        self.lock().attended
    }

    /// Claims the writer's seat; `false` if it is taken.
    pub(crate) fn attend(&self) -> bool {
        !std::mem::replace(&mut self.lock().attended, true)
    }

    /// Gives the writer's seat back.
    pub(crate) fn leave(&self) {
        let mut state = self.lock();
        state.attended = false;
        self.progressed(&state);
    }

    /// The backend's last attempt at sealing the session failed, or succeeded.
    pub(crate) fn sealing(&self, failure: Option<SealingFailure>) {
        let mut state = self.lock();
        state.unsealed = failure;
        self.progressed(&state);
    }

    /// What persistence is like, with the numbers of this moment.
    pub(crate) fn health(&self) -> Health {
        self.lock().health()
    }

    /// The same without what sealing is like.
    pub(crate) fn durability(&self) -> Health {
        self.lock().durability()
    }

    /// A channel that shows health whenever an attempt changes it.
    pub(crate) fn watch(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    /// A channel that changes whenever a wait may be over.
    pub(crate) fn progress(&self) -> watch::Receiver<()> {
        self.progress.subscribe()
    }
}

impl State {
    fn health(&self) -> Health {
        self.durability().with_sealing(self.unsealed.iter().cloned().collect())
    }

    fn durability(&self) -> Health {
        match &self.failure {
            None => Health::Ok,
            Some(failure) => Health::Degraded {
                since: failure.since,
                cause: failure.cause.kind,
                detail: failure.cause.to_string(),
                events: self.waiting_events(),
                bytes: self.waiting_bytes(),
            },
        }
    }

    fn waiting_events(&self) -> u64 {
        self.accepted.seq.saturating_sub(self.durable.seq)
    }

    fn waiting_bytes(&self) -> usize {
        self.accepted.bytes.wrapping_sub(self.durable.bytes)
    }
}

impl Sink for Ledger {
    fn admit(&self, bytes: usize) -> Result<(), BufferFull> {
        let state = self.lock();
        let waiting_bytes = state.waiting_bytes();
        // One event always fits an empty queue, or a large one could never be appended.
        if waiting_bytes > 0 && waiting_bytes.saturating_add(bytes) > self.limit {
            return Err(BufferFull { waiting_bytes, limit: self.limit });
        }
        Ok(())
    }

    fn accepted(&self, next_seq: u64, bytes: usize) {
        let mut state = self.lock();
        state.accepted = Mark { seq: next_seq, bytes: state.accepted.bytes.wrapping_add(bytes) };
        if state.window_end.is_none() {
            state.window_end = Some(Instant::now() + self.window);
            drop(state);
            self.wake();
        }
    }
}
