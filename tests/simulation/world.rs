//! A store on a simulated disk, the model beside it, and what can be done to both.

#[path = "checks.rs"]
mod checks;
#[path = "damage.rs"]
mod damage;
#[path = "derived.rs"]
mod derived;
#[path = "import.rs"]
mod import;
#[path = "removal.rs"]
mod removal;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sessionlog::backend::{ErrorKind, ReadLimit};
use sessionlog::event::{Event, Item, SessionHeader};
use sessionlog::segment::files::{Fault, Files, SimulatedFiles, TellOnPanic};
use sessionlog::segment::{Engine, EngineOptions, Reader, SealOptions, SegmentBackend};
use sessionlog::session::Session;
use sessionlog::store::{ForkAt, Health, ListOptions, LiveSession, Store, StoreError};

use crate::agent;
use crate::faults::{self, Faults};
use crate::model::{Known, Model, closers, wants_mark};
use crate::store_common::{id, options};

const ROOT: &str = "/home/store";
const IDS: [&str; 4] = ["a", "b", "c", "d"];

type Live = LiveSession<SegmentBackend>;

/// What is known of bytes that were read and checked before: the same bytes read the same again. A session's bytes are told by
/// a digest of its whole directory, so that only what a step, or a loss of power, changed is read anew.
#[derive(Default)]
struct Looked {
    /// The events of a session's bytes.
    events: HashMap<(String, u64), Rc<Vec<Event>>>,
    /// Bytes of a session, and of the catalogue beside them, that `verify` passed.
    verified: HashSet<(String, u64, u64)>,
    /// Bytes of a session, and the opening of it, of which every view agreed.
    viewed: HashSet<(String, u64, u64)>,
}

pub struct World {
    files: SimulatedFiles,
    looked: RefCell<Looked>,
    /// How many sessions were opened so far.
    openings: u64,
    /// Prints the disk's last calls if this program fails, where that is wanted.
    told: Option<TellOnPanic>,
    store: Option<Store<SegmentBackend>>,
    live: BTreeMap<String, Live>,
    followers: BTreeMap<String, (Reader, Vec<Event>)>,
    /// Logs that grow elsewhere, under the names that they have here.
    sources: BTreeMap<String, Session>,
    model: Model,
    /// Logs of sessions that were deleted: a follower may have seen them.
    gone: Vec<Vec<Event>>,
    /// A catalogue as it once was.
    catalogue: Option<Vec<u8>>,
    /// Whether a call may fail at present.
    faulty: bool,
    /// What was done how often, so that nobody takes programs of nothing for a proof.
    done: BTreeMap<&'static str, u64>,
    faults: Faults,
}

fn engine_options(files: &SimulatedFiles) -> EngineOptions {
    EngineOptions::new()
        .files(Arc::new(files.clone()))
        .rotate_at(900)
        .background_sealing(false)
        .seed(files.calls().wrapping_mul(31).wrapping_add(7))
}

fn open(files: &SimulatedFiles) -> Result<Store<SegmentBackend>, StoreError> {
    // Only flushes write: the window never ends by itself within a program.
    options()
        .window(Duration::from_secs(36_000))
        .open(SegmentBackend::with_options(Path::new(ROOT), engine_options(files))?)
}

fn stored(engine: &Engine, session: &str) -> Option<Vec<Item>> {
    let mut items = Vec::new();
    let mut from = Some(0);
    while let Some(seq) = from {
        match engine.read(&id(session), seq, ReadLimit { events: 40, bytes: 3000 }) {
            Ok(page) => {
                items.extend(page.items);
                from = page.next;
            }
            Err(error) if error.kind == ErrorKind::NotFound => return None,
            Err(error) => panic!("reading {session}: {error}"),
        }
    }
    Some(items)
}

/// Names and bytes of everything below `top`.
fn digest(files: &SimulatedFiles, top: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut paths = vec![top.to_owned()];
    while let Some(path) = paths.pop() {
        path.strip_prefix(top).unwrap().hash(&mut hasher);
        match files.read_directory(&path) {
            Ok(names) => paths.extend(names.iter().map(|name| path.join(name))),
            Err(_) => files.contents(&path).hash(&mut hasher),
        }
    }
    hasher.finish()
}

/// What a session that was just opened holds in memory is the end of its log.
fn assert_held(live: &Live, log: &[Event], name: &str) {
    let held = live.events(..);
    let first = held.first().map_or(log.len(), |event| usize::try_from(event.seq()).unwrap());
    assert_eq!(held, log[first..], "{name}: what is held");
}

fn events_of(items: &[Item]) -> Vec<Event> {
    items.iter().flat_map(Item::events).collect()
}

impl World {
    pub fn new(seed: u64, tell: bool) -> Self {
        let files = SimulatedFiles::new(seed);
        let told = tell.then(|| files.tell_on_panic());
        files.create_directory(Path::new("/home")).unwrap();
        files.sync_directory(Path::new("/")).unwrap();
        Self {
            files,
            looked: RefCell::default(),
            openings: 0,
            told,
            store: None,
            live: BTreeMap::new(),
            followers: BTreeMap::new(),
            sources: BTreeMap::new(),
            model: Model::default(),
            gone: Vec::new(),
            catalogue: None,
            faulty: false,
            done: BTreeMap::new(),
            faults: Faults::default(),
        }
    }

    fn did(&mut self, what: &'static str) {
        *self.done.entry(what).or_default() += 1;
    }

    fn store(&mut self) -> Option<Store<SegmentBackend>> {
        if self.store.is_none() {
            match open(&self.files) {
                Ok(store) => self.store = Some(store),
                Err(error) => self.fine(&error, &[]),
            }
        }
        self.store.clone()
    }

    /// An error that may be: one that the disk explains, or one of these.
    fn fine(&self, error: &StoreError, others: &[ErrorKind]) {
        let kind = error.kind();
        let of_the_disk = self.faulty && matches!(kind, ErrorKind::Io | ErrorKind::DiskFull);
        assert!(of_the_disk || others.contains(&kind), "{error} ({kind:?})");
    }

    /// Makes one step, chosen by `word`, and checks the world.
    pub async fn step(&mut self, word: u64) {
        let name = IDS[usize::try_from(word >> 8 & 3).unwrap()];
        let pick = word >> 10;
        match word & 0xff {
            0..=89 => self.append(name, pick).await,
            90..=99 => self.import(name, pick).await,
            100..=137 => self.flush(name).await,
            138..=142 => self.damage(name, pick).await,
            143..=155 => self.close(name).await,
            156..=171 => self.seal(name, pick).await,
            172..=190 => self.fork(name, IDS[usize::try_from(pick & 3).unwrap()], pick >> 2).await,
            191..=196 => self.delete(name).await,
            197..=201 => self.trash(name, pick).await,
            202..=206 => self.restore(pick),
            207..=208 => self.discard(pick),
            209..=212 => self.rebuild(name),
            213..=215 => self.spoil_catalogue(pick),
            216..=219 => self.list().await,
            220..=223 => self.inspect(name).await,
            224..=228 => self.follow(name),
            229..=233 => self.crash(name, pick).await,
            234..=236 => self.die(pick),
            237..=250 => self.fail(pick),
            _ => self.heal(),
        }
        self.check(name).await;
        self.no_lock_without_a_live_session();
        if word.is_multiple_of(5) {
            self.live_sessions_are_as_accepted();
        }
    }

    /// The live session of this name, opened or created if need be.
    async fn open_session(&mut self, name: &str) -> Option<Live> {
        if let Some(live) = self.live.get(name) {
            return Some(live.clone());
        }
        let store = self.store()?;
        match store.resume(name).await {
            Ok(live) => {
                self.resumed(name, &live);
                Some(live)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let known = self.model.sessions.entry(name.to_owned()).or_default();
                assert!(known.durable == 0 || known.perhaps_deleted, "{name} is not found");
                match store.create(SessionHeader::new(name)).await {
                    Ok(live) => {
                        let ghosts = known.logs().cloned().collect();
                        *known = Known { ghosts, ..Known::default() };
                        self.openings += 1;
                        self.live.insert(name.to_owned(), live.clone());
                        Some(live)
                    }
                    Err(error) => {
                        self.fine(&error, &[]);
                        None
                    }
                }
            }
            Err(error) => {
                if let Some(known) = self.model.sessions.get_mut(name) {
                    known.resume_failed(&id(name));
                }
                self.fine(&error, &[]);
                None
            }
        }
    }

    /// The events that another process would find.
    fn on_disk(&self, name: &str) -> Vec<Event> {
        let engine = engine_options(&self.files.copy(0)).open(ROOT).unwrap();
        stored(&engine, name).as_deref().map(events_of).unwrap_or_default()
    }

    /// Checks a session that was resumed, and takes down what is known of it now.
    fn resumed(&mut self, name: &str, live: &Live) {
        let stored_count = usize::try_from(live.recovery().events).unwrap();
        let on_disk = self.on_disk(name);
        let known = self.model.sessions.get_mut(name).unwrap_or_else(|| panic!("{name} was never made"));
        let log = known.log_behind(&on_disk, stored_count);
        let mut log = log.unwrap_or_else(|| panic!("{name} is resumed with a log that it never had"));
        assert!(stored_count >= known.durable || known.perhaps_deleted || known.durable == 0);
        log.extend(closers(&log, &id(name)));
        let durable = log.len();
        let mark = wants_mark(&log);
        let next = usize::try_from(live.next_seq()).unwrap();
        assert_eq!(next, durable + usize::from(mark), "{name}: closers and mark are exactly those of the rules");
        log.extend(live.events(durable as u64..));
        assert_eq!(live.events(stored_count as u64..), log[stored_count..], "{name}: the closers");
        assert_held(live, &log, name);
        assert!(live.open_turn().is_none());
        *known = Known { accepted: log, durable, ..Known::default() };
        self.did("resume");
        self.openings += 1;
        self.live.insert(name.to_owned(), live.clone());
    }

    async fn append(&mut self, name: &str, pick: u64) {
        let Some(live) = self.open_session(name).await else { return };
        for number in 0..=pick & 3 {
            agent::act(&live, (pick >> 2).wrapping_mul(2 * number + 1) % 1400);
        }
        self.note(name, &live);
        self.did("append");
    }

    fn note(&mut self, name: &str, live: &Live) {
        let known = self.model.sessions.get_mut(name).unwrap();
        let from = known.accepted.len() as u64;
        known.accepted.extend(live.events(from..));
    }

    async fn flush(&mut self, name: &str) {
        let Some(live) = self.live.get(name).cloned() else { return };
        let result = live.flush().await;
        let known = self.model.sessions.get_mut(name).unwrap();
        match result {
            Ok(()) => {
                known.durable = known.accepted.len();
                if known.durable > 0 {
                    (known.ghosts, known.perhaps_deleted) = (Vec::new(), false);
                }
                assert_eq!(live.durable_seq(), live.next_seq());
                assert_eq!(live.health(), Health::Ok, "{name}: health after a flush");
                self.did("flush");
            }
            Err(error) => {
                let Health::Degraded { cause, events, .. } = live.health() else {
                    panic!("{name}: {error} shows in health")
                };
                assert_eq!(cause, error.kind());
                assert_eq!(events, live.next_seq() - live.durable_seq());
                assert!(live.durable_seq() <= known.accepted.len() as u64);
                let store = self.store.as_ref().unwrap();
                assert!(!store.health().is_ok(), "{name}: the store's health");
                self.did("failed flush");
                self.fine(&error.into(), &[]);
            }
        }
    }

    async fn close(&mut self, name: &str) {
        self.flush(name).await;
        let Some(live) = self.live.get(name).cloned() else { return };
        match live.close().await {
            Ok(()) => {
                let known = self.model.sessions.get_mut(name).unwrap();
                known.durable = known.accepted.len();
                self.live.remove(name);
            }
            Err(error) => {
                // No append is accepted any more; closing is tried again on a disk that works.
                self.fine(&error.into(), &[]);
                self.heal();
                live.close().await.unwrap_or_else(|error| panic!("{name}: closing again on a sound disk: {error}"));
                let known = self.model.sessions.get_mut(name).unwrap();
                known.durable = known.accepted.len();
                self.live.remove(name);
            }
        }
    }

    async fn seal(&mut self, name: &str, pick: u64) {
        if !self.model.sessions.contains_key(name) || self.store().is_none() {
            return;
        }
        self.close(name).await;
        let Some(store) = self.store() else { return };
        let level = i32::try_from(pick % 4).unwrap() + 1;
        match store.backend().engine().seal(&id(name), SealOptions::new().level(level)) {
            Ok(_) => self.did("seal"),
            Err(error) if error.kind == ErrorKind::NotFound => {}
            Err(error) => self.fine(&error.into(), &[]),
        }
    }

    async fn fork(&mut self, name: &str, child: &str, pick: u64) {
        if child == name || !self.model.sessions.contains_key(name) {
            return;
        }
        if pick >> 3 & 7 != 0 {
            // Most forks are of a name that is free.
            self.close(child).await;
            self.delete(child).await;
        }
        let Some(store) = self.store() else { return };
        let known = self.model.sessions[name].clone();
        let at = match pick % 6 {
            0..=3 => ForkAt::LastTurn,
            4 => ForkAt::End,
            _ => ForkAt::Seq(pick / 6 % (known.accepted.len() as u64 + 2)),
        };
        let result = match self.live.get(name) {
            Some(live) => store.fork(live, at, child).await,
            None => store.fork(name, at, child).await,
        };
        if let (Ok(_), Some(live)) = (&result, self.live.get(name)) {
            // The source is flushed first.
            assert_eq!(live.durable_seq(), live.next_seq());
            self.model.sessions.get_mut(name).unwrap().durable = known.accepted.len();
        }
        match result {
            Ok(born) => {
                let seed = usize::try_from(born.header().seed_length.unwrap()).unwrap();
                let before = self.model.sessions.get(child);
                assert!(
                    before.is_none_or(|before| before.durable == 0 || before.perhaps_deleted),
                    "{child} is forked over a session"
                );
                let log = self.model.sessions[name].log_behind(&self.on_disk(child), seed);
                let mut log = log.unwrap_or_else(|| panic!("{child} is forked from what {name} never was"));
                assert!(closers(&log, &id(name)).is_empty(), "{child} is forked inside a turn");
                let mark = wants_mark(&log);
                assert_eq!(born.next_seq(), log.len() as u64 + u64::from(mark));
                let durable = log.len();
                log.extend(born.events(durable as u64..));
                assert_held(&born, &log, child);
                assert_eq!(born.header().parent_session.as_deref(), Some(name));
                self.model.sessions.insert(child.to_owned(), Known { accepted: log, durable, ..Known::default() });
                self.openings += 1;
                self.live.insert(child.to_owned(), born);
                self.did("fork");
            }
            Err(error) => {
                self.fine(&error, &[ErrorKind::Invalid, ErrorKind::NotFound, ErrorKind::Exists]);
                if self.faulty {
                    // Told that it failed; the disk may show it until somebody makes something of that name.
                    let child = self.model.sessions.entry(child.to_owned()).or_default();
                    if child.durable == 0 || child.perhaps_deleted {
                        child.ghosts.extend(known.logs().cloned());
                    }
                }
            }
        }
    }

    async fn delete(&mut self, name: &str) {
        let Some(store) = self.store() else { return };
        let result = store.delete(name).await;
        if self.live.contains_key(name) {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Busy);
            return;
        }
        match result {
            Ok(()) => {
                let known = self.model.sessions.remove(name).unwrap_or_default();
                self.gone.extend(known.logs().cloned());
                self.did("delete");
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let known = self.model.sessions.remove(name).unwrap_or_default();
                assert!(known.durable == 0 || known.perhaps_deleted, "{name} is not found");
            }
            Err(error) => {
                self.fine(&error, &[]);
                if let Some(known) = self.model.sessions.get_mut(name) {
                    (known.perhaps_deleted, known.moving) = (true, false);
                }
            }
        }
    }

    async fn list(&mut self) {
        let Some(store) = self.store() else { return };
        let listing = match store.list(ListOptions::new()).await {
            Ok(listing) => listing,
            Err(error) => return self.fine(&error, &[]),
        };
        assert!(listing.errors.is_empty() || self.faulty, "{:?}", listing.errors);
        let listed: Vec<&str> = listing.sessions.iter().map(|header| header.id.as_str()).collect();
        assert!(listed.iter().all(|name| self.model.sessions.contains_key(*name)), "{listed:?}");
        let errors: Vec<&str> = listing.errors.iter().map(|error| error.name.as_str()).collect();
        for (name, known) in &self.model.sessions {
            let there = listed.contains(&name.as_str()) || errors.contains(&name.as_str());
            assert!(there || known.durable == 0 || known.perhaps_deleted, "{name} is not listed");
        }
        if !self.faulty {
            self.check_catalogue();
        }
        // The catalogue, read or made, agrees with the logs.
        let Ok(summaries) = store.backend().engine().summaries() else { return };
        for entry in summaries {
            let (Ok(summary), Some(known)) = (entry.summary, self.model.sessions.get(&entry.name)) else {
                assert!(self.faulty, "{}", entry.name);
                continue;
            };
            assert!(summary.events >= known.durable as u64 || known.perhaps_deleted || known.durable == 0);
        }
    }

    async fn inspect(&mut self, name: &str) {
        let Some(store) = self.store() else { return };
        let found = match store.inspect(name).await {
            Ok(found) => found,
            Err(error) => return self.fine(&error, &[ErrorKind::NotFound]),
        };
        // A lock that cannot be asked is taken for free.
        let live = self.live.get(name).is_some_and(|live| live.durable_seq() > 0);
        assert!(found.is_live() == live || self.faulty, "{name}: live: {live}");
        assert!(found.is_live() || found.open_turn().is_none(), "{name}: an orphaned turn is closed in the view");
    }

    fn follow(&mut self, name: &str) {
        if !self.followers.contains_key(name) {
            let Some(store) = self.store() else { return };
            match store.backend().engine().reader(&id(name)) {
                Ok(reader) => drop(self.followers.insert(name.to_owned(), (reader, Vec::new()))),
                Err(error) => return self.fine(&error.into(), &[ErrorKind::NotFound]),
            }
        }
        let (reader, seen) = self.followers.get_mut(name).unwrap();
        *self.done.entry("follow").or_default() += 1;
        loop {
            match reader.next_page(ReadLimit { events: 9, bytes: 900 }) {
                Ok(page) if page.items.is_empty() => break,
                Ok(page) => seen.extend(events_of(&page.items)),
                Err(error) => {
                    // Its session may have been deleted, and made again.
                    let error = error.into();
                    self.followers.remove(name);
                    let gone = [ErrorKind::NotFound, ErrorKind::Damaged];
                    return self.fine(&error, &gone);
                }
            }
        }
        let Some(known) = self.model.sessions.get(name) else { return drop(self.followers.remove(name)) };
        let same = seen.len() <= known.accepted.len() && seen[..] == known.accepted[..seen.len()];
        if !same {
            let mut before = known.logs().chain(&self.gone);
            assert!(before.any(|ghost| ghost.starts_with(seen)), "{name}: a follower saw what never was");
        }
    }

    fn forget_processes(&mut self) {
        self.live.clear();
        self.followers.clear();
        self.store = None;
        self.faulty = false;
    }

    /// The power goes. What the old process's tasks still do, they do to the old disk.
    async fn crash(&mut self, name: &str, pick: u64) {
        if pick & 1 == 1 {
            // It goes while something is written.
            self.plan(faults::power_off(pick >> 1));
            self.append(name, pick >> 4).await;
            self.flush(name).await;
        }
        self.die(pick);
        self.files.crash();
        self.trash_after_crash();
        self.did("crash");
    }

    /// The process dies, the machine lives on.
    fn die(&mut self, pick: u64) {
        self.files = self.files.copy(pick);
        self.told = self.told.is_some().then(|| self.files.tell_on_panic());
        self.forget_processes();
    }

    fn fail(&mut self, pick: u64) {
        self.plan(faults::chosen(pick));
    }

    fn plan(&mut self, fault: Fault) {
        self.faults.plan(fault);
        self.files.fail(fault);
        self.faulty = true;
    }

    fn heal(&mut self) {
        self.files.heal();
        self.faulty = false;
    }

    /// The end of every program: a sound disk, everything closed, everything there, nothing locked.
    pub async fn end(mut self) -> (BTreeMap<&'static str, u64>, Faults) {
        // Here everything is read again, whatever was read before.
        self.looked.take();
        self.heal();
        for name in IDS {
            self.close(name).await;
        }
        if let Some(store) = self.store.take() {
            store.close().await.unwrap();
        }
        // What is in the trash is brought back, where it has a place, to be read with the others.
        self.settle();
        while !self.model.trash.is_empty() {
            let name = self.model.trash[0].name.clone();
            self.close(&name).await;
            self.delete(&name).await;
            self.restore(0);
            self.check(&name).await;
        }
        if let Some(store) = self.store.take() {
            store.close().await.unwrap();
        }
        assert!(self.files.locked().is_empty(), "locked behind the end: {:?}", self.files.locked());
        let store = open(&self.files).unwrap();
        for name in IDS {
            match store.resume(name).await {
                Ok(live) => {
                    self.resumed(name, &live);
                    self.close(name).await;
                    store.backend().engine().seal(&id(name), SealOptions::new().level(1)).unwrap();
                    let names = self.files.read_directory(&Path::new(ROOT).join("sessions").join(name)).unwrap();
                    assert!(!names.iter().any(|name| name.starts_with(".tmp-")), "{names:?}");
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NotFound, "{name}: {error}");
                    if let Some(known) = self.model.sessions.get(name) {
                        assert!(known.durable == 0 || known.perhaps_deleted, "{name} is lost");
                    }
                }
            }
            self.check(name).await;
        }
        drop(self.told);
        self.faults.take_down(&self.files);
        (self.done, self.faults)
    }
}
