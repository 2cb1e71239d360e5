//! How this crate takes locks and waits for other threads.
//!
//! Everything that threads of one process do to each other goes through here, so that a test can put those threads on one
//! timeline and try the orders in which they may come ([`turns`]). Outside such a test the functions are those of the standard
//! library.

#[cfg(test)]
pub(crate) mod turns;

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Takes a lock. A panic of an earlier holder does not matter: every change behind these locks is made whole or not begun.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    #[cfg(test)]
    if let Some(guard) = turns::lock(mutex) {
        return guard;
    }
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place between two locks where the order of threads matters as well.
#[cfg(feature = "store")]
pub(crate) fn interlude() {
    #[cfg(test)]
    turns::point();
}

/// Waits for a moment.
pub(crate) fn pause(time: Duration) {
    #[cfg(test)]
    if turns::step_aside() {
        return;
    }
    thread::sleep(time);
}

/// Wakes threads that wait for something behind a lock to change.
#[derive(Debug, Default)]
pub(crate) struct Signal(Condvar);

impl Signal {
    /// Gives the lock back, waits until [`Signal::wake_all`], and takes it again. May come back without reason: callers look again.
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        #[cfg(test)]
        if turns::is_on() {
            drop(guard);
            turns::await_signal(std::ptr::from_ref(self) as usize);
            return lock(mutex);
        }
        let _ = mutex;
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes everyone who waits.
    pub(crate) fn wake_all(&self) {
        #[cfg(test)]
        turns::wake_signal(std::ptr::from_ref(self) as usize);
        self.0.notify_all();
    }
}

/// A thread that somebody waits for.
#[derive(Debug)]
pub(crate) struct Worker {
    thread: thread::JoinHandle<()>,
    #[cfg(test)]
    part: Option<turns::Part>,
}

impl Worker {
    /// Starts a thread.
    ///
    /// # Errors
    /// The system has none left.
    pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        #[cfg(test)]
        let (part, body) = turns::adopted(name, body);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(body)?;
        Ok(Self {
            thread,
            #[cfg(test)]
            part,
        })
    }

    /// Whether this is the running thread.
    pub(crate) fn is_current(&self) -> bool {
        self.thread.thread().id() == thread::current().id()
    }

    /// Waits until the thread has ended; `false` if it ended in a panic.
    pub(crate) fn join(self) -> bool {
        #[cfg(test)]
        while self.part.as_ref().is_some_and(turns::Part::goes_on) && turns::step_aside() {}
        self.thread.join().is_ok()
    }
}
