//! What must hold after every step.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use sessionlog::event::{Event, Item, Vocabulary};
use sessionlog::segment::files::{Files, SimulatedFiles};
use sessionlog::segment::{CheckStatus, Engine, SegmentBackend};
use sessionlog::session::{Session, SessionOptions};
use sessionlog::store::Health;

use super::{ROOT, World, assert_held, digest, engine_options, events_of, stored};
use crate::store_common::{id, options};

/// Everything that a model of a session can be asked.
fn assert_same_view(one: &Session, other: &Session, what: &str) {
    assert_eq!(one.checkpoint(), other.checkpoint(), "{what}");
    assert_eq!(one.surface().nodes(), other.surface().nodes(), "{what}");
    assert_eq!(one.messages(), other.messages(), "{what}");
    assert_eq!(one.request_header(), other.request_header(), "{what}");
    assert_eq!(one.todos(), other.todos(), "{what}");
    assert_eq!(one.usage(), other.usage(), "{what}");
    assert_eq!(one.pending_calls(), other.pending_calls(), "{what}");
}

fn view_options() -> SessionOptions {
    SessionOptions::new().vocabulary(Vocabulary::well_known().with_name("app/note"))
}

/// What is seen from the checkpoint is what a replay of every event gives.
pub async fn assert_stored_views_agree(name: &str, items: Vec<Item>, engine: &Engine) -> Session {
    let store = options().open(SegmentBackend::from(engine.clone())).unwrap();
    let inspected = store.inspect(name).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut whole = items;
    whole.extend(inspected.items(inspected.durable_seq(), u64::MAX));
    let replayed = Session::view(inspected.header().clone(), whole, view_options()).unwrap();
    assert_same_view(&inspected, &replayed, name);
    replayed
}

fn nothing_outside_the_root(files: &SimulatedFiles) {
    assert_eq!(files.read_directory(Path::new("/")).unwrap(), ["home"], "nothing outside the root");
    let beside = files.read_directory(Path::new("/home")).unwrap();
    assert!(beside.iter().all(|name| name == "store"), "nothing outside the root: {beside:?}");
}

impl World {
    /// What another process would find now, and what it would find if the power went now.
    pub async fn check(&self, touched: &str) {
        let calls = self.files.calls();
        let now = self.files.copy(calls);
        let after = self.files.copy(calls + 1);
        after.crash();
        for (files, what) in [(&now, "now"), (&after, "after a crash")] {
            let engine = engine_options(files).open(ROOT).unwrap_or_else(|error| panic!("{what}: {error}"));
            let catalogue = digest(files, &Path::new(ROOT).join("catalog"));
            for (name, known) in &self.model.sessions {
                let bytes = digest(files, &engine.locate(&id(name)));
                let events = self.events(&engine, name, bytes);
                known
                    .check(events.as_deref().map(Vec::as_slice))
                    .unwrap_or_else(|error| panic!("{name}, {what}: {error}"));
                let Some(events) = events.filter(|_| name == touched) else { continue };
                if self.looked.borrow_mut().verified.insert((name.clone(), bytes, catalogue)) {
                    let check = engine.verify(&id(name));
                    assert!(
                        matches!(check.status, CheckStatus::Ok | CheckStatus::Torn),
                        "{name}, {what}: {:?}",
                        check.error
                    );
                    assert_eq!(check.events as usize, events.len(), "{name}, {what}");
                }
                let view = (name.clone(), bytes, self.openings);
                if what == "now" && self.looked.borrow_mut().viewed.insert(view) {
                    self.assert_views_agree(name, stored(&engine, name).unwrap(), &engine).await;
                }
            }
            self.check_trash(&engine, files, what);
            let listing = engine.list(None, 100).unwrap();
            for entry in listing.entries {
                assert!(entry.header.is_ok(), "{what}: {:?}", entry.header);
                assert!(self.model.sessions.contains_key(&entry.name), "{what}: {} should not be there", entry.name);
            }
        }
        nothing_outside_the_root(&now);
        nothing_outside_the_root(&after);
    }

    /// The events of a session of which the whole directory has this digest.
    fn events(&self, engine: &Engine, name: &str, bytes: u64) -> Option<Rc<Vec<Event>>> {
        let key = (name.to_owned(), bytes);
        if let Some(events) = self.looked.borrow().events.get(&key) {
            return Some(Rc::clone(events));
        }
        let events = Rc::new(events_of(&stored(engine, name)?));
        self.looked.borrow_mut().events.insert(key, Rc::clone(&events));
        Some(events)
    }

    /// From the checkpoint, replayed, and in memory.
    async fn assert_views_agree(&self, name: &str, items: Vec<Item>, engine: &Engine) {
        let stored: usize = items.iter().map(|item| usize::try_from(item.next_seq() - item.first_seq()).unwrap()).sum();
        let replayed = assert_stored_views_agree(name, items, engine).await;
        let known = &self.model.sessions[name];
        if let Some(live) = self.live.get(name).filter(|live| live.next_seq() == stored as u64)
            && live.open_turn().is_none()
            && stored == known.accepted.len()
        {
            assert_same_view(live, &replayed, name);
        }
    }

    /// Whoever holds a lock has the session open, or failed to make it and has not been able to take that back.
    pub fn no_lock_without_a_live_session(&self) {
        let directory = |name: &str| Path::new(ROOT).join("sessions").join(name);
        let allowed: Vec<PathBuf> = self.live.keys().map(|name| directory(name).join("lock")).collect();
        let locked = self.files.locked();
        let unclosed: Vec<_> = locked.iter().filter(|path| !allowed.contains(path)).collect();
        assert!(unclosed.is_empty() || self.faulty, "{unclosed:?} locked, live are {:?}", self.live.keys());
    }

    /// What is in memory alone is compared too: a live session is what was accepted, flushed or not, and says truly how it stands.
    pub fn live_sessions_are_as_accepted(&self) {
        for (name, live) in &self.live {
            let known = &self.model.sessions[name];
            assert_eq!(live.next_seq(), known.accepted.len() as u64, "{name}: seqs are contiguous");
            assert!(live.durable_seq() >= known.durable as u64, "{name}: what was durable stays so");
            assert_held(live, &known.accepted, name);
            let view = Session::view(live.header().clone(), known.accepted.clone(), view_options()).unwrap();
            assert_same_view(live, &view, name);
            assert_eq!(live.open_turn(), view.open_turn(), "{name}");
            assert_eq!(live.open_step(), view.open_step(), "{name}");
            if let Health::Degraded { events, .. } = live.health() {
                assert_eq!(events, live.next_seq() - live.durable_seq(), "{name}: health tells what waits");
                assert!(self.store.as_ref().is_some_and(|store| !store.health().is_ok()), "{name}: the store's health");
            }
        }
    }
}
