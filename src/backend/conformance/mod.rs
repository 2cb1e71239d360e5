//! The laws of [`Backend`], each one a function, and [`run`], which puts a backend through all of them.
//!
//! ```
//! use sessionlog::backend::{conformance, memory::MemoryBackend};
//!
//! # fn block_on<T>(future: impl Future<Output = T>) -> T {
//! #     let mut future = std::pin::pin!(future);
//! #     let mut context = std::task::Context::from_waker(std::task::Waker::noop());
//! #     loop {
//! #         if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) { return value; }
//! #     }
//! # }
//! // In a test, on any executor:
//! # block_on(async {
//! conformance::run(MemoryBackend::new).await;
//! # });
//! ```
//!
//! The suite needs no runtime of its own. A backend that is made asynchronously goes through [`run_with`]. Every law gets an
//! empty backend of its own, and can be called alone while an implementation grows.

mod append;
mod lifecycle;
mod ownership;
mod reading;
pub(crate) mod sample;

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

pub use append::{
    a_refused_append_leaves_no_trace, append_is_compare_and_swap, creation_is_atomic, repair_is_an_append,
    the_head_follows_every_append, two_creations_leave_one_session, two_racing_appends_leave_one_batch,
    what_is_read_is_what_was_appended,
};
pub use lifecycle::{
    delete_then_not_found, fork_copies_exactly_the_prefix, fork_refuses_what_is_not_there, hostile_ids_stay_apart,
    listing_pages_are_complete_and_stable, revision_changes_with_every_change, revisions_differ_between_stores,
    sessions_do_not_touch_each_other, unknown_sessions_are_not_found,
};
pub use ownership::{
    a_stale_epoch_never_appends, creation_gives_ownership, release_then_append_fails, take_over_raises_the_epoch,
};
pub use reading::{
    a_large_event_comes_whole, read_beside_a_writer, read_limits_hold, read_starts_at_any_seq,
    runs_come_apart_at_page_limits, single_events_come_in_the_order_asked, the_header_comes_back_whole,
};

use super::{AppendError, Backend, BackendError, Expected, Head, ReadLimit};
use crate::event::{Batch, Event, Item, SessionHeader, SessionId};

/// How a backend breaks a law.
#[derive(Debug)]
pub struct Violation {
    /// What was expected and what happened instead.
    pub detail: String,
}

/// What a law says about a backend.
pub type Verdict = Result<(), Violation>;

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Violation {}

impl From<BackendError> for Violation {
    fn from(error: BackendError) -> Self {
        Self { detail: format!("unexpected error of kind {}: {error}", error.kind) }
    }
}

impl From<AppendError> for Violation {
    fn from(error: AppendError) -> Self {
        Self { detail: format!("unexpected append error: {error}") }
    }
}

impl From<crate::event::JsonError> for Violation {
    fn from(error: crate::event::JsonError) -> Self {
        Self { detail: error.to_string() }
    }
}

impl From<crate::event::header::HeaderError> for Violation {
    fn from(error: crate::event::header::HeaderError) -> Self {
        Self { detail: error.to_string() }
    }
}

/// Puts backends made by `fresh`, each of which must be empty, through every law.
///
/// # Panics
/// When a law does not hold, naming it and what happened.
pub async fn run<B: Backend>(fresh: impl Fn() -> B) {
    run_with(async || fresh()).await;
}

/// As [`run`], for backends that are made asynchronously.
///
/// # Panics
/// When a law does not hold, naming it and what happened.
pub async fn run_with<B: Backend>(fresh: impl AsyncFn() -> B) {
    macro_rules! each {
        ($($law:ident)*) => {
            $( hold(stringify!($law), $law(&fresh().await).await); )*
        };
    }
    each! {
        append_is_compare_and_swap
        creation_is_atomic
        two_creations_leave_one_session
        a_refused_append_leaves_no_trace
        what_is_read_is_what_was_appended
        the_head_follows_every_append
        two_racing_appends_leave_one_batch
        repair_is_an_append
        creation_gives_ownership
        take_over_raises_the_epoch
        a_stale_epoch_never_appends
        release_then_append_fails
        the_header_comes_back_whole
        read_limits_hold
        read_starts_at_any_seq
        runs_come_apart_at_page_limits
        a_large_event_comes_whole
        single_events_come_in_the_order_asked
        read_beside_a_writer
        unknown_sessions_are_not_found
        revision_changes_with_every_change
        listing_pages_are_complete_and_stable
        hostile_ids_stay_apart
        sessions_do_not_touch_each_other
        fork_copies_exactly_the_prefix
        fork_refuses_what_is_not_there
        delete_then_not_found
    }
    hold("revisions_differ_between_stores", revisions_differ_between_stores(&fresh().await, &fresh().await).await);
}

#[track_caller]
fn hold(law: &str, verdict: Verdict) {
    if let Err(violation) = verdict {
        panic!("the backend breaks the law `{law}`: {violation}");
    }
}

/// A violation unless `condition` holds.
fn require(condition: bool, detail: impl FnOnce() -> String) -> Verdict {
    if condition { Ok(()) } else { Err(Violation { detail: detail() }) }
}

/// A session of one id with a header to create it with.
fn session(id: &str) -> Result<(SessionId, SessionHeader), Violation> {
    let header = SessionHeader::new(id).created_at(1_700_000_000_000);
    Ok((header.session_id()?, header))
}

/// Creates a session with `batch` and stays its writer.
async fn create(backend: &impl Backend, id: &str, batch: &Batch) -> Result<(SessionId, Head), Violation> {
    let (id, header) = session(id)?;
    let head = backend.append(&id, Some(&header), Expected::ABSENT, batch).await?;
    Ok((id, head))
}

/// Where a writer with `head` appends next.
fn after(head: &Head) -> Expected {
    Expected { epoch: head.epoch, next_seq: head.next_seq }
}

/// The whole log, read page by page.
async fn whole_log(backend: &impl Backend, id: &SessionId) -> Result<Vec<Event>, Violation> {
    log_in_pages(backend, id, 0, ReadLimit::default()).await
}

/// The log from `from` on, read in pages of `limit`, each of which is checked for contiguity and progress.
async fn log_in_pages(
    backend: &impl Backend,
    id: &SessionId,
    from: u64,
    limit: ReadLimit,
) -> Result<Vec<Event>, Violation> {
    let mut events = Vec::new();
    let mut at = Some(from);
    while let Some(seq) = at {
        let page = backend.read(id, seq, limit).await?;
        let read: Vec<Event> = page.items.iter().flat_map(Item::events).collect();
        for (event, expected) in read.iter().zip(seq..) {
            require(event.seq() == expected, || {
                format!("read from {seq}: event {} where {expected} is due", event.seq())
            })?;
        }
        let end = seq + read.len() as u64;
        require(page.next.is_none_or(|next| next == end && next > seq), || {
            format!("a page from {seq} to {end} names {:?} to read on from", page.next)
        })?;
        events.extend(read);
        at = page.next;
    }
    Ok(events)
}

/// Requires that the stored log is exactly `expected`, byte by byte.
async fn require_log(backend: &impl Backend, id: &SessionId, expected: &[&Batch]) -> Verdict {
    let expected: Vec<Event> = expected.iter().flat_map(|batch| batch.events()).collect();
    require_events(&whole_log(backend, id).await?, &expected)
}

/// Requires that `found` is `expected`, byte by byte.
fn require_events(found: &[Event], expected: &[Event]) -> Verdict {
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let (found, expected) = (found.to_line(), expected.to_line());
        require(found == expected, || format!("event {index} came back as {found}, not as {expected}"))?;
    }
    require(found.len() == expected.len(), || format!("{} events came back, not {}", found.len(), expected.len()))
}

/// Requires an error of one of `kinds`.
fn require_kind<T: fmt::Debug>(what: &str, result: Result<T, BackendError>, kinds: &[super::ErrorKind]) -> Verdict {
    match result {
        Err(error) if kinds.contains(&error.kind) => Ok(()),
        Err(error) => {
            Err(Violation { detail: format!("{what}: error of kind {}, not {kinds:?}: {error}", error.kind) })
        }
        Ok(value) => Err(Violation { detail: format!("{what}: succeeded with {value:?}, expected {kinds:?}") }),
    }
}

/// Runs two futures side by side.
async fn both<A, B>(first: impl Future<Output = A>, second: impl Future<Output = B>) -> (A, B) {
    let mut first = pin!(first);
    let mut second = pin!(second);
    let (mut first_done, mut second_done) = (None, None);
    poll_fn(move |context| {
        if first_done.is_none()
            && let Poll::Ready(value) = first.as_mut().poll(context)
        {
            first_done = Some(value);
        }
        if second_done.is_none()
            && let Poll::Ready(value) = second.as_mut().poll(context)
        {
            second_done = Some(value);
        }
        match (first_done.take(), second_done.take()) {
            (Some(first), Some(second)) => Poll::Ready((first, second)),
            (first, second) => {
                (first_done, second_done) = (first, second);
                Poll::Pending
            }
        }
    })
    .await
}
