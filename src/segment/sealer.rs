//! Sealing in the background: one thread of low priority for all sessions of an engine.
//!
//! Reading, compressing and writing the segment need no lock, because the journals concerned change no more. The lock is taken for
//! the moment in which the segment gets its name: the live writer's own, or, when nobody has the session open, its lock afresh.
//! So neither opening nor closing a session waits for sealing, in this process or another; whoever comes first is served, and a
//! segment that comes too late is thrown away.
//!
//! Before the first session the same thread clears the store of what interrupted writers left, so that no write waits for a look at
//! every name.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use super::builder::Site;
use super::directory::SessionDirectory;
use super::lock::SessionLock;
use super::random::Random;
use super::seal::{self, Extent};
use super::tree;
use crate::backend::{BackendError, ErrorKind, SealingCause, SealingFailure, SealingObserver};
use crate::event::SessionId;
use crate::sync::{Signal, Worker, lock as locked};

/// Most sessions whose failures are kept; beyond it the oldest is forgotten.
const MAX_FAILURES: usize = 1024;

/// A session that has something to be sealed.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: SessionId,
    pub(crate) directory: SessionDirectory,
    pub(crate) random: Arc<Random>,
    pub(crate) extent: Extent,
    /// The live writer's lock, as long as there is one.
    pub(crate) lock: Weak<SessionLock>,
}

/// The queue and its thread, which is started with the first job.
#[derive(Debug, Default)]
pub(crate) struct Sealer {
    state: Arc<State>,
    thread: Mutex<Option<(u32, Worker)>>,
}

#[derive(Default)]
struct State {
    queue: Mutex<Queue>,
    changed: Signal,
    stop: AtomicBool,
    failures: Mutex<BTreeMap<String, SealingFailure>>,
    observers: Mutex<Vec<SealingObserver>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("queue", &self.queue).field("failures", &self.failures).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Queue {
    /// The store that is to be cleared.
    unclean: Option<Site>,
    waiting: VecDeque<Job>,
    running: Option<Running>,
}

/// The job that the thread is at.
#[derive(Debug)]
struct Running {
    id: SessionId,
    /// The process whose thread it is: a forked one has a copy of this and no thread.
    process: u32,
    /// Whether it is giving a segment its name, under the session's lock.
    committing: bool,
    /// Set when somebody else wants the session.
    cancelled: Arc<AtomicBool>,
}

impl Queue {
    fn at(&self, id: &SessionId) -> Option<&Running> {
        self.running.as_ref().filter(|running| running.id == *id && running.process == std::process::id())
    }
}

impl Sealer {
    /// Adds a job; one that is waiting for the same session is replaced.
    pub(crate) fn enqueue(&self, job: Job) {
        let mut queue = locked(&self.state.queue);
        queue.waiting.retain(|other| other.id != job.id);
        queue.waiting.push_back(job);
        drop(queue);
        self.state.changed.wake_all();
        let mut thread = locked(&self.thread);
        // A forked process has the queue and not the thread.
        if thread.as_ref().is_none_or(|(process, _)| *process != std::process::id()) {
            let state = Arc::clone(&self.state);
            let spawned = Worker::spawn("sessionlog-sealing", move || state.work());
            match spawned {
                Ok(handle) => *thread = Some((std::process::id(), handle)),
                Err(error) => tracing::warn!(%error, "no thread for sealing; the journals stay in service"),
            }
        }
    }

    /// Has a store cleared of what writers did not finish with, before the next session that is sealed.
    pub(crate) fn clear(&self, site: &Site) {
        locked(&self.state.queue).unclean = Some(site.clone());
    }

    /// Has a session's jobs give way to somebody who needs its lock. Waits at most for the moment in which a segment gets its name.
    pub(crate) fn give_way(&self, id: &SessionId) {
        let mut queue = locked(&self.state.queue);
        queue.waiting.retain(|job| job.id != *id);
        if let Some(running) = queue.at(id) {
            running.cancelled.store(true, Ordering::Relaxed);
        }
        self.state.wait_for_commit(queue, id);
    }

    /// Waits until no job holds the lock of a session that its writer has just let go.
    pub(crate) fn let_go(&self, id: &SessionId) {
        self.state.wait_for_commit(locked(&self.state.queue), id);
    }

    /// Waits until nothing is left to do.
    pub(crate) fn finish(&self) {
        let here = std::process::id();
        let served = locked(&self.thread).as_ref().is_some_and(|(process, _)| *process == here);
        let mut queue = locked(&self.state.queue);
        while served
            && (!queue.waiting.is_empty() || queue.running.as_ref().is_some_and(|running| running.process == here))
        {
            queue = self.state.changed.wait(queue, &self.state.queue);
        }
    }

    /// The sessions whose last sealing failed, the longest failing first.
    pub(crate) fn failures(&self) -> Vec<SealingFailure> {
        let mut failures: Vec<_> = locked(&self.state.failures).values().cloned().collect();
        failures.sort_by_key(|failure| failure.since);
        failures
    }

    /// Has `observer` told of every attempt.
    pub(crate) fn observe(&self, observer: SealingObserver) {
        locked(&self.state.observers).push(observer);
    }

    /// A session was sealed by other means, or is gone.
    pub(crate) fn settle(&self, id: &SessionId) {
        self.state.report(id, None);
    }
}

impl Drop for Sealer {
    /// Stops at the next block: what is not sealed stays in its journals.
    fn drop(&mut self) {
        {
            let mut queue = locked(&self.state.queue);
            self.state.stop.store(true, Ordering::Relaxed);
            queue.waiting.clear();
        }
        self.state.changed.wake_all();
        let thread = locked(&self.thread).take();
        if let Some((process, handle)) = thread
            && process == std::process::id()
            // The last handle may be dropped by an observer, on that very thread.
            && !handle.is_current()
            && !handle.join()
        {
            tracing::warn!("the sealing thread ended in a panic");
        }
    }
}

impl State {
    fn work(&self) {
        lower_priority();
        loop {
            let mut queue = locked(&self.queue);
            let job = loop {
                if self.stop.load(Ordering::Relaxed) {
                    return;
                }
                if let Some(job) = queue.waiting.pop_front() {
                    break job;
                }
                queue = self.changed.wait(queue, &self.queue);
            };
            let cancelled = Arc::new(AtomicBool::new(false));
            queue.running = Some(Running {
                id: job.id.clone(),
                process: std::process::id(),
                committing: false,
                cancelled: Arc::clone(&cancelled),
            });
            let unclean = queue.unclean.take();
            drop(queue);
            if let Some(site) = unclean {
                clear(&site);
            }
            self.run(&job, &cancelled);
            drop(job);
            locked(&self.queue).running = None;
            self.changed.wake_all();
        }
    }

    fn wait_for_commit<'a>(&'a self, mut queue: MutexGuard<'a, Queue>, id: &SessionId) {
        while queue.at(id).is_some_and(|running| running.committing) {
            queue = self.changed.wait(queue, &self.queue);
        }
    }

    fn run(&self, job: &Job, cancelled: &AtomicBool) {
        let stopped = || self.stop.load(Ordering::Relaxed) || cancelled.load(Ordering::Relaxed);
        let commit = |work: &mut dyn FnMut(&SessionLock) -> Result<(), BackendError>| self.commit(job, &stopped, work);
        let sealed = catch_unwind(AssertUnwindSafe(|| {
            seal::in_background(&job.directory, &job.random, job.extent, &|| !stopped(), &commit)
        }));
        if let Some(running) = &mut locked(&self.queue).running {
            running.committing = false;
        }
        self.changed.wake_all();
        let failed = |cause, detail: String| SealingFailure { session: job.id.clone(), since: now(), cause, detail };
        match sealed {
            // Whoever stopped it or took the session knows.
            Ok(Err(_)) if stopped() => {}
            Ok(Err(error)) if error.kind == ErrorKind::Busy => {}
            Ok(Err(error)) if error.kind == ErrorKind::NotFound => self.report(&job.id, None),
            Ok(Ok(())) => self.report(&job.id, None),
            Ok(Err(error)) => {
                self.report(&job.id, Some(failed(SealingCause::Error(error.kind), error.to_string())));
            }
            Err(_) => {
                let detail = "sealing ended in a panic; the journals stay in service".to_owned();
                self.report(&job.id, Some(failed(SealingCause::Panic, detail)));
            }
        }
    }

    /// Does the last, short part of a job under the session's lock.
    fn commit(
        &self,
        job: &Job,
        stopped: &dyn Fn() -> bool,
        work: &mut dyn FnMut(&SessionLock) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        {
            let mut queue = locked(&self.queue);
            if stopped() {
                return Err(seal::stopped(&job.directory));
            }
            if let Some(running) = &mut queue.running {
                running.committing = true;
            }
        }
        match job.lock.upgrade() {
            Some(lock) => work(&lock),
            None => work(&SessionLock::take_for_a_moment(&job.directory)?),
        }
    }

    /// Notes how an attempt ended and tells whoever wants to know.
    fn report(&self, id: &SessionId, mut failure: Option<SealingFailure>) {
        {
            let mut failures = locked(&self.failures);
            let earlier = failures.remove(id.as_str());
            if let Some(failure) = &mut failure {
                tracing::warn!(session = %id, cause = %failure.cause, detail = failure.detail, "a session could not be sealed");
                failure.since = earlier.map_or(failure.since, |earlier| earlier.since);
                failures.insert(id.as_str().to_owned(), failure.clone());
                if failures.len() > MAX_FAILURES {
                    let oldest = failures.iter().min_by_key(|(_, failure)| failure.since);
                    let oldest = oldest.map(|(name, _)| name.clone());
                    oldest.map(|name| failures.remove(&name));
                }
            }
        }
        locked(&self.observers).retain(|observer| observer(id, failure.as_ref()));
    }
}

fn clear(site: &Site) {
    let work = || tree::clear_store(&*site.files, &site.sessions, &site.store_lock);
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        tracing::warn!(store = %site.sessions.display(), "clearing the store ended in a panic; what was left there remains");
    }
}

/// Epoch milliseconds.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Lets this thread give way to others where the system has priorities for threads.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    {
        // On Linux no process means the calling thread.
        if rustix::process::setpriority_process(None, 10).is_err() {
            tracing::debug!("the sealing thread keeps its priority");
        }
    }
}
