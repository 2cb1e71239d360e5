//! The session handle: creation and appends.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use super::error::{AppendError, SessionError};
use super::invariants;
use super::options::{Observer, SessionOptions};
use super::publication::{self, Lane, Publication};
use super::seed::{Prepared, Seed};
use super::state::State;
use super::validator::{InvalidEvent, Problem};
use crate::event::chunk::{ASSISTANT_CHUNK, Delta};
use crate::event::control::{EndSeed, TurnEnd, TurnStart};
use crate::event::envelope::{check_seq, check_size};
use crate::event::header::FORMAT_VERSION;
use crate::event::limits::{MAX_EVENT_BYTES, MAX_SAFE_INTEGER};
use crate::event::payload::{PayloadError, to_json};
use crate::event::vocabulary::CORE_TYPES;
use crate::event::{
    Event, JsonText, LogPayload, NewEvent, OutOfBandPayload, Payload, Placement, SessionHeader, SessionId,
    SurfacePayload, json,
};
use crate::sync::lock;

/// A session: an append-only log and everything that follows from it.
///
/// A cheap handle (one reference count), `Send + Sync`: any number of threads may append, and each append is atomic and has
/// its place in the one order of the log. Appends never touch I/O.
///
/// Appends of one session wait for each other and for the observers' callbacks; reads wait for neither and may be made from
/// callbacks. Two sessions whose observers append to each other from two threads wait for each other for ever: do not.
#[derive(Clone)]
pub struct Session {
    shared: Arc<Shared>,
}

struct Shared {
    id: SessionId,
    header: SessionHeader,
    options: SessionOptions,
    first_live_seq: u64,
    read_only: bool,
    /// Whether `assistant/chunk` is refused by a closed vocabulary.
    chunks_refused: bool,
    lane: Lane,
    /// Held for moments only, and never while foreign code runs.
    state: Mutex<State>,
}

impl Session {
    /// A new, empty session. The header's creation time is filled from the clock if it has none.
    ///
    /// # Errors
    /// [`SessionError::Header`] for a header that a new session may not have; [`SessionError::Veto`].
    pub fn create(mut header: SessionHeader, options: SessionOptions) -> Result<Self, SessionError> {
        header.check_new()?;
        if header.created_at.is_none() {
            header.created_at = Some(options.clock.now().clamp(0, MAX_SAFE_INTEGER));
        }
        let session = Self::assemble(header, State::new(), options, false)?;
        session.open(false)?;
        Ok(session)
    }

    /// A live session that goes on from a log: resumed, forked or replayed (L3). The log is validated (E4), its required types
    /// must be known (V2), and a `session/end-seed` mark follows it unless it ends in one or is empty. Its events are not
    /// delivered to observers; the mark is.
    ///
    /// Cost: one pass over the seed.
    ///
    /// # Errors
    /// [`SessionError`] saying which of this failed; nothing is left behind.
    pub fn from_seed(
        header: SessionHeader,
        seed: impl Into<Seed>,
        options: SessionOptions,
    ) -> Result<Self, SessionError> {
        Self::from_prepared(header, seed.into().try_into()?, options)
    }

    pub(crate) fn from_prepared(
        header: SessionHeader,
        seed: Prepared,
        options: SessionOptions,
    ) -> Result<Self, SessionError> {
        let state = State::of_seed(seed, &options.vocabulary)?;
        let mark = state.fold.next_seq() > 0 && !state.fold.ends_in_mark();
        let session = Self::assemble(header, state, options, false)?;
        session.open(mark)?;
        Ok(session)
    }

    /// A log to look at: as [`Session::from_seed`], without the mark. Appends are refused and observers hear nothing.
    ///
    /// # Errors
    /// As [`Session::from_seed`].
    pub fn view(header: SessionHeader, seed: impl Into<Seed>, options: SessionOptions) -> Result<Self, SessionError> {
        Self::view_prepared(header, seed.into().try_into()?, options)
    }

    pub(crate) fn view_prepared(
        header: SessionHeader,
        seed: Prepared,
        options: SessionOptions,
    ) -> Result<Self, SessionError> {
        let state = State::of_seed(seed, &options.vocabulary)?;
        Self::assemble(header, state, options, true)
    }

    fn assemble(
        header: SessionHeader,
        state: State,
        options: SessionOptions,
        read_only: bool,
    ) -> Result<Self, SessionError> {
        header.check_stored()?;
        let id = header.session_id()?;
        if header.version > FORMAT_VERSION {
            return Err(SessionError::NewerVersion { session: id, version: header.version });
        }
        let chunks_refused = options.closed_vocabulary && !options.vocabulary.knows(ASSISTANT_CHUNK);
        let first_live_seq = state.fold.next_seq();
        let (lane, state) = (Lane::default(), Mutex::new(state));
        let shared = Shared { id, header, options, first_live_seq, read_only, chunks_refused, lane, state };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Greets observers and appends the seed's mark in one turn on the lane, so that nothing can come between.
    fn open(&self, mark: bool) -> Result<(), SessionError> {
        let Some(mut publication) = Publication::begin(self) else { return Ok(()) };
        let opened = publication.greet(self.observers()).map_err(SessionError::from).and_then(|()| {
            if !mark {
                return Ok(());
            }
            let data = to_json(&EndSeed::default()).map_err(|error| SessionError::Mark(error.into()))?;
            let mark = NewEvent::named(EndSeed::TYPE, data);
            self.publish(&mut publication, vec![mark]).map(|_| ()).map_err(SessionError::Mark)
        });
        if opened.is_err() {
            // Before the lane is left, so that no other thread's append can come first; leaving it tells the observers.
            self.dispose();
        }
        opened
    }

    /// Appends a log-only event. Returns once the event is in the log and observers have seen it; durable only after a flush of
    /// the store.
    ///
    /// Cost: for a streamed delta well under a microsecond and no allocation in the steady state; else one pass over the
    /// payload.
    ///
    /// # Errors
    /// [`AppendError`]; then nothing has changed.
    pub fn append<P: LogPayload>(&self, payload: P) -> Result<Event, AppendError> {
        self.append_typed(payload, None)
    }

    /// Appends an event that produces a message, at its place on the surface. As [`Session::append`] otherwise.
    ///
    /// # Errors
    /// [`AppendError`]; then nothing has changed.
    pub fn append_surface<P: SurfacePayload>(&self, payload: P, placement: Placement) -> Result<Event, AppendError> {
        self.append_typed(payload, Some(placement))
    }

    /// Appends an event by name with a ready JSON payload, taken as it is.
    ///
    /// # Errors
    /// [`AppendError`]; then nothing has changed.
    pub fn append_event(&self, new: NewEvent) -> Result<Event, AppendError> {
        let mut publication = self.begin()?;
        self.publish_one(&mut publication, new)
    }

    /// Appends a log-only event outside the agent loop (L6): inside the open turn if there is one, else inside a turn of no
    /// steps of its own, appended with it as one. Returns the event itself. The caller flushes.
    ///
    /// # Errors
    /// [`AppendError`]; then nothing has changed.
    pub fn append_out_of_band<P: OutOfBandPayload>(&self, payload: P) -> Result<Event, AppendError> {
        let new = self.prepare(payload, None)?;
        let mut publication = self.begin()?;
        let (open, turn) = {
            let state = self.state();
            (state.fold.open_turn().is_some(), state.fold.next_turn())
        };
        if open {
            return self.publish_one(&mut publication, new);
        }
        let event_type = new.event_type.clone();
        let start = NewEvent::named(TurnStart::TYPE, to_json(&TurnStart::new(turn))?);
        let end = NewEvent::named(TurnEnd::TYPE, to_json(&TurnEnd::completed(turn))?);
        let events = self.publish(&mut publication, vec![start, new, end])?;
        let own = events.into_iter().nth(1);
        own.ok_or_else(|| PayloadError::Custom(format!("\"{event_type}\" was not appended")).into())
    }

    fn append_typed<P: Payload>(&self, payload: P, placement: Option<Placement>) -> Result<Event, AppendError> {
        if let Some(delta) = payload.as_delta() {
            return self.append_delta(&delta);
        }
        let new = self.prepare(payload, placement)?;
        let mut publication = self.begin()?;
        self.publish_one(&mut publication, new)
    }

    /// A typed payload as an event to be (E2), outside every lock.
    fn prepare<P: Payload>(&self, mut payload: P, placement: Option<Placement>) -> Result<NewEvent, AppendError> {
        payload.fill_ids(&mut || self.shared.options.ids.next_id());
        let data = to_json(&payload)?;
        if CORE_TYPES.contains(&P::TYPE) {
            check_core_numbers(&data)?;
        }
        Ok(NewEvent { event_type: P::TYPE.into(), data, ignorable: P::IGNORABLE, placement })
    }

    /// The hot path: a delta goes from its decoded text into the growing run, never through JSON.
    fn append_delta(&self, delta: &Delta<'_>) -> Result<Event, AppendError> {
        for (name, number) in [("turn", delta.turn), ("step", delta.step), ("index", delta.index)] {
            check_number(name, number)?;
        }
        let mut publication = self.begin()?;
        if self.shared.chunks_refused {
            return Err(AppendError::UnknownType { event_type: ASSISTANT_CHUNK.to_owned() });
        }
        let options = &self.shared.options;
        let time = self.now();
        let (head, body) = publication.scratch.prepare(delta);
        if body.len() > MAX_EVENT_BYTES / 2 || options.check_invariants {
            let event = Event::delta(self.next_seq(), time, Arc::clone(&head), body.into());
            let size = check_size(event.data().len(), Some(event.seq()));
            size.map_err(|error| InvalidEvent::new(&event, Problem::Envelope(error)))?;
            if options.check_invariants {
                invariants::check(&self.state().fold, &event)?;
            }
        }
        let body: compact_str::CompactString = body.into();
        // What `Event::weight` gives for a packed delta.
        let bytes = body.len() + 16;
        if let Some(sink) = &options.sink {
            sink.admit(bytes)?;
        }
        let seq = {
            let mut state = self.state();
            if let Err(error) = check_seq(state.fold.next_seq()) {
                let event = Event::delta(state.fold.next_seq(), time, head, body);
                return Err(InvalidEvent::new(&event, Problem::Envelope(error)).into());
            }
            state.commit_delta(&head, time, &body)
        };
        let event = Event::delta(seq, time, head, body);
        if let Some(sink) = &options.sink {
            sink.accepted(seq + 1, bytes);
        }
        publication.notify(&options.observers, &event);
        Ok(event)
    }

    fn publish_one(&self, publication: &mut Publication<'_>, new: NewEvent) -> Result<Event, AppendError> {
        let event_type = new.event_type.clone();
        let event = self.publish(publication, vec![new])?.pop();
        event.ok_or_else(|| PayloadError::Custom(format!("\"{event_type}\" was not appended")).into())
    }

    /// Validates, accepts and delivers events as one. Only a single event may change the surface.
    fn publish(&self, publication: &mut Publication<'_>, new: Vec<NewEvent>) -> Result<Vec<Event>, AppendError> {
        let options = &self.shared.options;
        if options.closed_vocabulary
            && let Some(unknown) = new.iter().find(|new| !options.vocabulary.knows(&new.event_type))
        {
            return Err(AppendError::UnknownType { event_type: unknown.event_type.to_string() });
        }
        let time = self.now();
        // The lane is ours: between the two times the state is locked, nothing changes it.
        let mut accepted = Vec::with_capacity(new.len());
        {
            let state = self.state();
            for (new, seq) in new.into_iter().zip(state.fold.next_seq()..) {
                let event = new.at(seq, time);
                let checked = state.fold.check(&event, seq)?;
                accepted.push((event, checked));
            }
            if options.check_invariants {
                check_invariants(&state, &accepted.iter().map(|(event, _)| event).collect::<Vec<_>>())?;
            }
        }
        let bytes = accepted.iter().map(|(event, _)| event.weight()).sum();
        if let Some(sink) = &options.sink {
            sink.admit(bytes)?;
        }
        let next_seq = {
            let mut state = self.state();
            accepted.iter().for_each(|(event, checked)| state.commit(event, *checked));
            state.fold.next_seq()
        };
        if let Some(sink) = &options.sink {
            sink.accepted(next_seq, bytes);
        }
        let events: Vec<Event> = accepted.into_iter().map(|(event, _)| event).collect();
        events.iter().for_each(|event| publication.notify(&options.observers, event));
        Ok(events)
    }

    /// Takes the lane for an append.
    fn begin(&self) -> Result<Publication<'_>, AppendError> {
        let session = || self.shared.id.clone();
        if self.shared.read_only {
            return Err(AppendError::ReadOnly { session: session() });
        }
        let publication = Publication::begin(self).ok_or_else(|| AppendError::Reentrant { session: session() })?;
        if self.shared.lane.is_closed() {
            return Err(AppendError::Disposed { session: session() });
        }
        Ok(publication)
    }

    /// Refuses further appends and tells observers, once. From inside a callback this takes effect at once for appends, and
    /// observers are told when the callback is over. Reads go on working.
    pub fn dispose(&self) {
        publication::dispose(self);
    }

    fn now(&self) -> i64 {
        self.shared.options.clock.now().clamp(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER)
    }

    /// The session's id.
    pub fn id(&self) -> &SessionId {
        &self.shared.id
    }

    /// The session's header.
    pub fn header(&self) -> &SessionHeader {
        &self.shared.header
    }

    /// The first seq that does not come from the seed: the seed's length, 0 for a new session.
    pub fn first_live_seq(&self) -> u64 {
        self.shared.first_live_seq
    }

    /// Whether appends are refused: the session is a view, or was disposed of.
    pub fn is_closed(&self) -> bool {
        self.shared.read_only || self.shared.lane.is_closed()
    }

    pub(crate) fn lane(&self) -> &Lane {
        &self.shared.lane
    }

    pub(crate) fn observers(&self) -> &[Arc<dyn Observer>] {
        &self.shared.options.observers
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.shared.state)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.shared.id)
            .field("next_seq", &self.next_seq())
            .finish_non_exhaustive()
    }
}

/// Events that are appended as one must keep the invariants one after the other.
fn check_invariants(state: &State, events: &[&Event]) -> Result<(), AppendError> {
    let [first, rest @ ..] = events else { return Ok(()) };
    invariants::check(&state.fold, first)?;
    if rest.is_empty() {
        return Ok(());
    }
    let mut fold = state.fold.clone();
    fold.apply(first)?;
    for event in rest {
        invariants::check(&fold, event)?;
        fold.apply(event)?;
    }
    Ok(())
}

fn check_number(name: &str, number: u64) -> Result<(), AppendError> {
    if number <= MAX_SAFE_INTEGER.unsigned_abs() {
        return Ok(());
    }
    Err(PayloadError::NotLossless { what: format!("member \"{name}\" is {number}, above 2^53-1") }.into())
}

/// Turn and step numbers of core payloads are read by every reader and must be safe integers.
fn check_core_numbers(data: &JsonText) -> Result<(), AppendError> {
    for name in ["turn", "step"] {
        let number = json::member(data.as_str(), name).and_then(|number| number.parse::<u64>().ok());
        number.map_or(Ok(()), |number| check_number(name, number))?;
    }
    Ok(())
}
