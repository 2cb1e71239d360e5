//! Threads on one timeline: a scheduler that runs one thread at a time and decides, wherever a lock is about to be taken, which
//! one goes on. What it decided can be decided again, so every order that fails a test can be replayed.
//!
//! The threads are real and run the crate's own code over the real primitives of tokio; only their order is prescribed. Orders are
//! tried exhaustively up to a number of preemptions, and at random beyond that. A state in which nobody can go on is reported as
//! a deadlock. What is not explored: the inside of the primitives, and weaker memory orders than the locks give.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![cfg_attr(
    not(feature = "store"),
    allow(dead_code, reason = "the engine's threads need a part, the store's the rest")
)]

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use crate::segment::random::SplitMix;

/// Decisions after which a run is taken for endless.
const MOST_DECISIONS: usize = 200_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Ready,
    /// Until another thread has done something: it holds a lock this one needs, or this one looks for work again and again.
    UntilAnyStep,
    /// Until its waker is used.
    UntilWoken,
    /// Until a signal of this address.
    UntilSignal(usize),
    Done,
}

struct Member {
    name: String,
    status: Status,
    woken: bool,
    /// May end with work left to wait for.
    servant: bool,
}

/// One decision: how many could have gone on, which did (0 is the one that was running, if it could), and whether that was a
/// preemption of one that could have gone on.
#[derive(Debug, Clone, Copy)]
struct Decision {
    options: usize,
    chosen: usize,
    could_stay: bool,
}

enum Choice {
    /// These decisions first, then whoever runs goes on as long as it can.
    Prefix(Vec<usize>),
    /// A preemption in about one of so many decisions.
    Random(SplitMix, u64),
}

struct Timeline {
    members: Vec<Member>,
    running: usize,
    choice: Choice,
    decisions: Vec<Decision>,
    trace: Vec<usize>,
    failure: Option<String>,
    /// What is done when nobody can go on: at most so often in a row without a step.
    idle_rounds: usize,
    idle_asked: bool,
}

struct Stage {
    timeline: Mutex<Timeline>,
    changed: Condvar,
}

thread_local! {
    static PLACE: RefCell<Option<(Arc<Stage>, usize)>> = const { RefCell::new(None) };
}

/// Unwinds a thread whose run has failed elsewhere.
struct Abandoned;

fn place() -> Option<(Arc<Stage>, usize)> {
    if thread::panicking() {
        return None;
    }
    PLACE.with(|place| place.borrow().clone())
}

/// Whether the running thread is on a timeline.
pub(crate) fn is_on() -> bool {
    place().is_some()
}

impl Stage {
    fn timeline(&self) -> MutexGuard<'_, Timeline> {
        self.timeline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides who goes on, and waits until that is thread `me` again.
    fn give_way(&self, me: usize, status: Status) {
        let mut timeline = self.timeline();
        timeline.members[me].status = status;
        // Whoever waits for a lock has done nothing since its last turn; all others have.
        if status != Status::UntilAnyStep {
            timeline.idle_rounds = 0;
            for member in &mut timeline.members {
                if member.status == Status::UntilAnyStep {
                    member.status = Status::Ready;
                }
            }
        }
        timeline.decide(me);
        self.changed.notify_all();
        self.wait_for_turn(timeline, me);
    }

    fn wait_for_turn(&self, mut timeline: MutexGuard<'_, Timeline>, me: usize) {
        while timeline.running != me && timeline.failure.is_none() {
            timeline = self.changed.wait(timeline).unwrap_or_else(PoisonError::into_inner);
        }
        if timeline.failure.is_some() {
            drop(timeline);
            resume_unwind(Box::new(Abandoned));
        }
    }

    fn wake(&self, who: usize) {
        let mut timeline = self.timeline();
        timeline.members[who].woken = true;
        if timeline.members[who].status == Status::UntilWoken {
            timeline.members[who].status = Status::Ready;
        }
    }
}

impl Timeline {
    fn decide(&mut self, me: usize) {
        if self.decisions.len() > MOST_DECISIONS {
            self.failure.get_or_insert_with(|| "the run does not end".to_owned());
            return;
        }
        let ready = |member: &Member| member.status == Status::Ready;
        let could_stay = ready(&self.members[me]);
        let mut options = Vec::new();
        options.extend(could_stay.then_some(me));
        options.extend((0..self.members.len()).filter(|index| *index != me && ready(&self.members[*index])));
        if options.is_empty() {
            self.nobody_can_go_on();
            return;
        }
        let at = self.decisions.len();
        let chosen = match &mut self.choice {
            Choice::Prefix(prefix) => prefix.get(at).copied().unwrap_or(0).min(options.len() - 1),
            Choice::Random(random, stay) => {
                if could_stay && random.next() % *stay != 0 {
                    0
                } else {
                    usize::try_from(random.next() % options.len() as u64).unwrap()
                }
            }
        };
        self.decisions.push(Decision { options: options.len(), chosen, could_stay });
        self.running = options[chosen];
        self.trace.push(self.running);
    }

    /// Lets a servant that looks for work know that time may pass; if that leads nowhere, the threads are stuck.
    fn nobody_can_go_on(&mut self) {
        if self.members.iter().all(|member| member.status == Status::Done) {
            return;
        }
        let servant = self.members.iter().position(|member| member.servant && member.status == Status::UntilAnyStep);
        if let Some(servant) = servant.filter(|_| self.idle_rounds < 4) {
            self.idle_rounds += 1;
            self.idle_asked = true;
            self.members[servant].status = Status::Ready;
            self.running = servant;
            return;
        }
        let stuck = self.members.iter().filter(|member| member.status != Status::Done);
        let stuck: Vec<String> = stuck.map(|member| format!("{} {:?}", member.name, member.status)).collect();
        self.failure.get_or_insert(format!("nobody can go on: {}", stuck.join(", ")));
    }
}

/// A place where another thread may go first.
pub(crate) fn point() {
    if let Some((stage, me)) = place() {
        stage.give_way(me, Status::Ready);
    }
}

/// Lets others go on until one of them has done something. `false` where there is no timeline.
pub(crate) fn step_aside() -> bool {
    let Some((stage, me)) = place() else { return false };
    stage.give_way(me, Status::UntilAnyStep);
    true
}

/// Takes a lock, letting others go first; `None` where there is no timeline.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    let (stage, me) = place()?;
    stage.give_way(me, Status::Ready);
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => stage.give_way(me, Status::UntilAnyStep),
        }
    }
}

pub(crate) fn await_signal(address: usize) {
    if let Some((stage, me)) = place() {
        stage.give_way(me, Status::UntilSignal(address));
    }
}

pub(crate) fn wake_signal(address: usize) {
    if let Some((stage, _)) = place() {
        for member in &mut stage.timeline().members {
            if member.status == Status::UntilSignal(address) {
                member.status = Status::Ready;
            }
        }
    }
}

struct Bell {
    stage: Arc<Stage>,
    who: usize,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.stage.wake(self.who);
    }
}

/// Waits for a future on a thread of a timeline.
pub(crate) fn wait_for<F: Future>(future: F) -> F::Output {
    let (stage, me) = place().expect("on a timeline");
    let waker = Waker::from(Arc::new(Bell { stage: Arc::clone(&stage), who: me }));
    let mut future = pin!(future);
    loop {
        stage.timeline().members[me].woken = false;
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let woken = stage.timeline().members[me].woken;
        stage.give_way(me, if woken { Status::Ready } else { Status::UntilWoken });
    }
}

/// A thread of a scenario.
pub(crate) type Body = Box<dyn FnOnce() + Send>;

/// The threads of one run. The same scenario is made anew for every run.
#[derive(Default)]
pub(crate) struct Scenario {
    bodies: Vec<(String, bool, Body)>,
    after: Option<Body>,
}

impl Scenario {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a thread.
    pub(crate) fn thread(mut self, name: &str, body: impl FnOnce() + Send + 'static) -> Self {
        self.bodies.push((name.to_owned(), false, Box::new(body)));
        self
    }

    /// Adds a thread that serves the others until [`others_are_done`]; it is told by [`nothing_else_to_do`] when nobody can go on.
    pub(crate) fn servant(mut self, name: &str, body: impl FnOnce() + Send + 'static) -> Self {
        self.bodies.push((name.to_owned(), true, Box::new(body)));
        self
    }

    /// What is checked when all threads have ended.
    pub(crate) fn afterwards(mut self, check: impl FnOnce() + Send + 'static) -> Self {
        self.after = Some(Box::new(check));
        self
    }
}

/// Whether all threads but servants have ended.
pub(crate) fn others_are_done() -> bool {
    let (stage, _) = place().expect("on a timeline");
    let timeline = stage.timeline();
    timeline.members.iter().all(|member| member.servant || member.status == Status::Done)
}

/// Whether nobody could go on when this servant was asked; takes the question.
pub(crate) fn nothing_else_to_do() -> bool {
    let (stage, _) = place().expect("on a timeline");
    std::mem::take(&mut stage.timeline().idle_asked)
}

/// How many decisions were made so far.
pub(crate) fn decisions() -> usize {
    let (stage, _) = place().expect("on a timeline");
    stage.timeline().decisions.len()
}

/// Puts a thread that is about to start on the timeline of the one that starts it.
pub(crate) fn adopted(name: &str, body: impl FnOnce() + Send + 'static) -> (Option<Part>, Body) {
    let Some((stage, _)) = place() else { return (None, Box::new(body)) };
    let mut timeline = stage.timeline();
    let me = timeline.members.len();
    timeline.members.push(Member { name: name.to_owned(), status: Status::Ready, woken: false, servant: true });
    drop(timeline);
    let part = Part { stage: Arc::clone(&stage), who: me };
    (Some(part), Box::new(move || take_part(&stage, me, Box::new(body))))
}

/// The part that a thread plays on a timeline.
pub(crate) struct Part {
    stage: Arc<Stage>,
    who: usize,
}

impl Part {
    /// Whether the thread has not ended.
    pub(crate) fn goes_on(&self) -> bool {
        self.stage.timeline().members[self.who].status != Status::Done
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {} of a timeline", self.who)
    }
}

fn take_part(stage: &Arc<Stage>, me: usize, body: Body) {
    PLACE.with(|place| *place.borrow_mut() = Some((Arc::clone(stage), me)));
    let result = catch_unwind(AssertUnwindSafe(|| {
        stage.wait_for_turn(stage.timeline(), me);
        body();
    }));
    PLACE.with(|place| *place.borrow_mut() = None);
    let mut timeline = stage.timeline();
    timeline.members[me].status = Status::Done;
    if let Err(panic) = result
        && !panic.is::<Abandoned>()
    {
        let what = panic.downcast_ref::<String>().cloned();
        let what = what.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let name = timeline.members[me].name.clone();
        timeline.failure.get_or_insert(format!("{name}: {}", what.unwrap_or_default()));
    }
    for member in &mut timeline.members {
        if member.status == Status::UntilAnyStep {
            member.status = Status::Ready;
        }
    }
    if timeline.failure.is_none() {
        timeline.decide(me);
    }
    drop(timeline);
    stage.changed.notify_all();
}

/// Runs a scenario once.
fn run(scenario: Scenario, choice: Choice) -> Result<Vec<Decision>, (String, Vec<Decision>, String)> {
    let mut members = Vec::new();
    let mut bodies = Vec::new();
    for (name, servant, body) in scenario.bodies {
        members.push(Member { name, status: Status::Ready, woken: false, servant });
        bodies.push(body);
    }
    let timeline = Timeline {
        members,
        running: 0,
        choice,
        decisions: Vec::new(),
        trace: Vec::new(),
        failure: None,
        idle_rounds: 0,
        idle_asked: false,
    };
    let stage = Arc::new(Stage { timeline: Mutex::new(timeline), changed: Condvar::new() });
    let threads: Vec<_> = bodies
        .into_iter()
        .enumerate()
        .map(|(me, body)| {
            let stage = Arc::clone(&stage);
            thread::spawn(move || take_part(&stage, me, body))
        })
        .collect();
    for thread in threads {
        thread.join().expect("every panic is caught");
    }
    let mut timeline = stage.timeline();
    while timeline.failure.is_none() && timeline.members.iter().any(|member| member.status != Status::Done) {
        timeline = stage.changed.wait(timeline).unwrap_or_else(PoisonError::into_inner);
    }
    drop(timeline);
    let mut failure = stage.timeline().failure.take();
    if let (None, Some(after)) = (&failure, scenario.after)
        && let Err(panic) = catch_unwind(AssertUnwindSafe(after))
    {
        let what = panic.downcast_ref::<String>().cloned();
        let what = what.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        failure = Some(format!("afterwards: {}", what.unwrap_or_default()));
    }
    let timeline = stage.timeline();
    let decisions = timeline.decisions.clone();
    match failure {
        None => Ok(decisions),
        Some(failure) => {
            let names: Vec<&str> = timeline.trace.iter().map(|who| timeline.members[*who].name.as_str()).collect();
            let mut trace: Vec<(&str, usize)> = Vec::new();
            for name in names {
                match trace.last_mut() {
                    Some((last, count)) if *last == name => *count += 1,
                    _ => trace.push((name, 1)),
                }
            }
            let trace: Vec<String> = trace.iter().map(|(name, count)| format!("{name} x{count}")).collect();
            Err((failure, decisions, trace.join(", ")))
        }
    }
}

fn report(name: &str, how: &str, failure: &str, trace: &str) -> ! {
    panic!("{name}: {failure}\n{how}\nturns: {trace}");
}

/// Tries every order of the scenario with at most `preemptions` preemptions, up to `most` runs. Returns the number of runs and
/// whether that were all.
pub(crate) fn explore(name: &str, preemptions: usize, most: usize, scenario: impl Fn() -> Scenario) -> (usize, bool) {
    let mut prefix: Vec<usize> = Vec::new();
    for runs in 1.. {
        let decisions = match run(scenario(), Choice::Prefix(prefix.clone())) {
            Ok(decisions) => decisions,
            Err((failure, decisions, trace)) => {
                let chosen: Vec<usize> = decisions.iter().map(|decision| decision.chosen).collect();
                report(name, &format!("run {runs}, decisions {chosen:?}"), &failure, &trace)
            }
        };
        let Some(next) = next_prefix(&decisions, preemptions) else { return (runs, true) };
        if runs >= most {
            return (runs, false);
        }
        prefix = next;
    }
    unreachable!("the loop ends by returning")
}

/// The next order in depth-first sequence.
fn next_prefix(decisions: &[Decision], preemptions: usize) -> Option<Vec<usize>> {
    let is_preemption = |decision: &Decision, chosen: usize| decision.could_stay && chosen > 0;
    for last in (0..decisions.len()).rev() {
        let decision = &decisions[last];
        let chosen = decision.chosen + 1;
        let before = decisions[..last].iter().filter(|decision| is_preemption(decision, decision.chosen)).count();
        if chosen < decision.options && before + usize::from(is_preemption(decision, chosen)) <= preemptions {
            let mut prefix: Vec<usize> = decisions[..last].iter().map(|decision| decision.chosen).collect();
            prefix.push(chosen);
            return Some(prefix);
        }
    }
    None
}

/// Tries `runs` random orders, from seed `first` on.
pub(crate) fn shuffle(name: &str, first: u64, runs: u64, scenario: impl Fn() -> Scenario) {
    for seed in first..first + runs {
        let choice = Choice::Random(SplitMix::new(seed), 1 + seed % 7);
        if let Err((failure, _, trace)) = run(scenario(), choice) {
            report(name, &format!("seed {seed}"), &failure, &trace);
        }
    }
}

/// How many runs a test makes: `SESSIONLOG_INTERLEAVINGS` multiplies the default.
pub(crate) fn effort(runs: usize) -> usize {
    let factor = std::env::var("SESSIONLOG_INTERLEAVINGS").ok().and_then(|text| text.parse().ok());
    runs.saturating_mul(factor.unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{Signal, lock as take};

    fn unsafely_counting() -> Scenario {
        let counter = Arc::new(Mutex::new(0));
        let add = |counter: &Arc<Mutex<u32>>| {
            let counter = Arc::clone(counter);
            move || {
                let before = *take(&counter);
                *take(&counter) = before + 1;
            }
        };
        let (first, second) = (add(&counter), add(&counter));
        Scenario::new().thread("a", first).thread("b", second).afterwards(move || assert_eq!(*take(&counter), 2))
    }

    #[test]
    #[should_panic(expected = "afterwards")]
    fn an_update_that_is_lost_in_one_order_is_found() {
        explore("counting", 1, 1000, unsafely_counting);
    }

    #[test]
    #[should_panic(expected = "nobody can go on")]
    fn a_deadlock_is_found() {
        let scenario = || {
            let locks = Arc::new((Mutex::new(()), Mutex::new(())));
            let again = Arc::clone(&locks);
            Scenario::new()
                .thread("a", move || drop((take(&locks.0), take(&locks.1))))
                .thread("b", move || drop((take(&again.1), take(&again.0))))
        };
        shuffle("locks", 0, 1000, scenario);
    }

    #[test]
    fn a_signal_reaches_its_waiter_in_every_order() {
        let scenario = || {
            let shared = Arc::new((Mutex::new(false), Signal::default()));
            let again = Arc::clone(&shared);
            Scenario::new()
                .thread("waiter", move || {
                    let mut ready = take(&shared.0);
                    while !*ready {
                        ready = shared.1.wait(ready, &shared.0);
                    }
                })
                .thread("waker", move || {
                    *take(&again.0) = true;
                    again.1.wake_all();
                })
        };
        let (runs, all) = explore("signal", 3, 10_000, scenario);
        assert!(all && runs > 2, "{runs}");
    }
}
