//! Sealing in the background: one thread of low priority for all sessions of an engine.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::directory::SessionDirectory;
use super::lock::SessionLock;
use super::random::Random;
use super::seal;
use crate::backend::{BackendError, ErrorKind};
use crate::event::SessionId;
use crate::sync::{Signal, Worker, lock as locked};

/// Why a session's journals were not sealed. They stay in service, and the next rotation or [`Engine::seal`](super::Engine::seal)
/// tries again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealingFailure {
    /// The session.
    pub session: SessionId,
    /// The kind of error; `None` for a panic.
    pub kind: Option<ErrorKind>,
    /// What happened, for people.
    pub detail: String,
}

/// A session whose journals before `upto` are to be sealed.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: SessionId,
    pub(crate) directory: SessionDirectory,
    /// The writer's lock, shared so that no other writer comes before the job is done.
    pub(crate) lock: Arc<SessionLock>,
    pub(crate) random: Arc<Random>,
    /// First seq of the journal that the writer goes on in.
    pub(crate) upto: u64,
}

/// The queue and its thread, which is started with the first job.
#[derive(Debug, Default)]
pub(crate) struct Sealer {
    state: Arc<State>,
    thread: Mutex<Option<(u32, Worker)>>,
}

#[derive(Debug, Default)]
struct State {
    queue: Mutex<Queue>,
    changed: Signal,
    stop: AtomicBool,
    failures: Mutex<BTreeMap<String, SealingFailure>>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Job>,
    running: Option<SessionId>,
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
                Err(error) => tracing::warn!(%error, "no thread for sealing; it waits for the session's release"),
            }
        }
    }

    /// Brings a session's job to its end: waits for one that is running, and does one that is waiting here and now.
    pub(crate) fn finish(&self, id: &SessionId) {
        let mut queue = locked(&self.state.queue);
        let index = queue.waiting.iter().position(|job| job.id == *id);
        let job = index.and_then(|index| queue.waiting.remove(index));
        while queue.running.as_ref() == Some(id) {
            queue = self.state.changed.wait(queue, &self.state.queue);
        }
        drop(queue);
        if let Some(job) = job {
            self.state.run(&job);
        }
    }

    /// The sessions whose last sealing failed.
    pub(crate) fn failures(&self) -> Vec<SealingFailure> {
        locked(&self.state.failures).values().cloned().collect()
    }

    /// A session was sealed by other means, or is gone.
    pub(crate) fn settle(&self, id: &SessionId) {
        locked(&self.state.failures).remove(id.as_str());
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
            queue.running = Some(job.id.clone());
            drop(queue);
            self.run(&job);
            // The lock goes before anyone is told that the job is done.
            drop(job);
            locked(&self.queue).running = None;
            self.changed.wake_all();
        }
    }

    fn run(&self, job: &Job) {
        let go_on =
            || !self.stop.load(Ordering::Relaxed) && matches!(job.lock.is_held(&*job.directory.files), Ok(true));
        if !go_on() {
            return;
        }
        let sealed =
            catch_unwind(AssertUnwindSafe(|| seal::seal_rotated(&job.directory, &job.random, job.upto, &go_on)));
        let failure = match sealed {
            Ok(Ok(())) => None,
            // Whoever stopped it knows.
            Ok(Err(_)) if self.stop.load(Ordering::Relaxed) => return,
            Ok(Err(error)) => Some(failure(&job.id, &error)),
            Err(_) => Some(SealingFailure {
                session: job.id.clone(),
                kind: None,
                detail: "sealing ended in a panic; the journals stay in service".to_owned(),
            }),
        };
        let mut failures = locked(&self.failures);
        match failure {
            None => drop(failures.remove(job.id.as_str())),
            Some(failure) => {
                tracing::warn!(session = %job.id, detail = failure.detail, "a session's journals could not be sealed");
                failures.insert(job.id.as_str().to_owned(), failure);
            }
        }
    }
}

fn failure(id: &SessionId, error: &BackendError) -> SealingFailure {
    SealingFailure { session: id.clone(), kind: Some(error.kind), detail: error.to_string() }
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
