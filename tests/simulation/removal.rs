//! The steps that put sessions into the trash, bring them back and remove them for good.

use std::path::Path;

use sessionlog::backend::{BackendError, ErrorKind};
use sessionlog::segment::files::{Files, SimulatedFiles};
use sessionlog::segment::{Engine, Trashed};

use super::{ROOT, World, digest, engine_options};
use crate::model::Removed;
use crate::store_common::id;

impl World {
    /// Puts a session into the trash. Three times of four it is closed first; a live one is refused.
    pub async fn trash(&mut self, name: &str, pick: u64) {
        self.settle();
        if pick & 3 != 0 {
            self.close(name).await;
        }
        let Some(store) = self.store() else { return };
        let result = store.backend().engine().trash(&id(name));
        if self.live.contains_key(name) {
            let kind = result.unwrap_err().kind;
            assert!(kind == ErrorKind::Busy || self.faulty, "{name}: {kind:?}");
            return;
        }
        match result {
            Ok(trashed) => {
                match &trashed.header {
                    Ok(header) => assert_eq!(header.id, name),
                    Err(error) => assert!(self.faulty, "{name}: {error}"),
                }
                let known = self.model.sessions.remove(name).unwrap_or_else(|| panic!("{name} was never made"));
                let bytes = digest(&self.files.copy(0), &trashed.path);
                self.gone.extend(known.logs().cloned());
                self.model.trash.push(Removed { name: name.to_owned(), time: trashed.time, known, bytes });
                self.did("trash");
            }
            Err(error) if error.kind == ErrorKind::NotFound => {
                let known = self.model.sessions.remove(name).unwrap_or_default();
                assert!(known.durable == 0 || known.perhaps_deleted, "{name} is not found");
                self.gone.extend(known.logs().cloned());
            }
            Err(error) => {
                self.fine(&error.into(), &[]);
                if let Some(known) = self.model.sessions.get_mut(name) {
                    self.model.unsettled.insert(name.to_owned(), known.clone());
                    *known = known.back(true);
                }
            }
        }
    }

    /// Brings a session back from the trash, to its place if that is free.
    pub fn restore(&mut self, pick: u64) {
        let Some((engine, removed, trashed)) = self.choose(pick) else { return };
        let result = engine.restore(&trashed);
        let name = removed.name.clone();
        if let Some(live) = self.live.get(&name) {
            // A writer that has written nothing yet holds the name as well as one that has.
            let kind = result.unwrap_err().kind;
            let expected = kind == ErrorKind::Busy || kind == ErrorKind::Exists && live.durable_seq() > 0;
            assert!(expected || self.faulty, "{name}: {kind:?}");
            self.did("refused restore");
            return self.model.trash.push(removed);
        }
        let before = self.model.sessions.get(&name).cloned().unwrap_or_default();
        match result {
            Ok(()) => {
                assert!(before.durable == 0 || before.perhaps_deleted, "{name} is restored over a session");
                let bytes = digest(&self.files.copy(0), &engine.locate(&id(&name)));
                assert_eq!(bytes, removed.bytes, "{name} is not restored as it was");
                self.model.sessions.insert(name, removed.known.back(false));
                self.did("restore");
            }
            Err(error) if error.kind == ErrorKind::Exists => {
                assert!(self.model.sessions.contains_key(&name), "{name}: its place is free");
                self.model.trash.push(removed);
                self.did("refused restore");
            }
            Err(error) => self.unsettle(removed, error, true),
        }
    }

    /// Removes a session in the trash for good.
    pub fn discard(&mut self, pick: u64) {
        let Some((engine, removed, trashed)) = self.choose(pick) else { return };
        match engine.discard(&trashed) {
            Ok(()) => self.did("discard"),
            Err(error) => self.unsettle(removed, error, false),
        }
    }

    /// Takes one of what is in the trash out of the model; the caller says where it went.
    fn choose(&mut self, pick: u64) -> Option<(Engine, Removed, Trashed)> {
        self.settle();
        let store = self.store()?;
        let engine = store.backend().engine().clone();
        let trash = match engine.trashed() {
            Ok(trash) => trash,
            Err(error) => {
                self.fine(&error.into(), &[]);
                return None;
            }
        };
        if self.model.trash.is_empty() {
            return None;
        }
        let index = usize::try_from(pick).unwrap() % self.model.trash.len();
        let Removed { name, time, .. } = &self.model.trash[index];
        let found = trash.into_iter().find(|trashed| trashed.name == *name && trashed.time == *time);
        // Of a directory that cannot be looked at a listing of the trash says nothing.
        assert!(found.is_some() || self.faulty, "{name} is not in the trash");
        found.map(|trashed| (engine, self.model.trash.remove(index), trashed))
    }

    fn unsettle(&mut self, removed: Removed, error: BackendError, moving: bool) {
        self.fine(&error.into(), &[]);
        let place = self.model.sessions.get(&removed.name);
        if moving && place.is_some_and(|known| known.durable > 0 && !known.perhaps_deleted) {
            // Nothing replaces a session that is there, whatever failed before that was seen.
            return self.model.trash.push(removed);
        }
        let Removed { name, known, .. } = removed;
        if moving {
            let before = self.model.sessions.remove(&name).unwrap_or_default();
            let mut back = known.back(true);
            back.ghosts.extend(before.logs().cloned());
            self.model.sessions.insert(name.clone(), back);
        }
        self.model.unsettled.insert(name, known);
    }

    /// Finds out where a failure left the sessions it left unsettled: on a sound disk, and made durable as it is.
    pub fn settle(&mut self) {
        if self.model.unsettled.is_empty() {
            return;
        }
        self.heal();
        let sessions = Path::new(ROOT).join("sessions");
        if self.files.stat(&sessions).is_ok() {
            self.files.sync_directory(&sessions).unwrap();
        }
        let copy = self.files.copy(0);
        let engine = engine_options(&copy).open(ROOT).unwrap();
        let trash = engine.trashed().unwrap();
        for (name, known) in std::mem::take(&mut self.model.unsettled) {
            let is_known = |time| self.model.trash.iter().any(|removed| removed.name == name && removed.time == time);
            let found: Vec<&Trashed> =
                trash.iter().filter(|trashed| trashed.name == name && !is_known(trashed.time)).collect();
            assert!(found.len() <= 1, "{name} is in the trash more than once: {found:?}");
            let there = copy.stat(&engine.locate(&id(&name))).is_ok();
            if let Some(trashed) = found.first() {
                let bytes = digest(&copy, &trashed.path);
                self.gone.extend(known.logs().cloned());
                self.model.trash.push(Removed { name: name.clone(), time: trashed.time, known, bytes });
            }
            if let Some(session) = self.model.sessions.get_mut(&name).filter(|session| session.moving) {
                assert!(!there || found.is_empty(), "{name} is in two places");
                assert!(there || !found.is_empty() || session.durable == 0, "{name} is in neither place");
                if there {
                    *session = session.back(false);
                } else {
                    self.model.sessions.remove(&name);
                }
            }
        }
    }

    /// A loss of power takes what nobody synced, as the text of a lock: of the logs nothing, as those who bring them back will see.
    pub fn trash_after_crash(&mut self) {
        let copy = self.files.copy(0);
        let Ok(engine) = engine_options(&copy).open(ROOT) else { return };
        for trashed in engine.trashed().unwrap() {
            let same = |removed: &&mut Removed| removed.name == trashed.name && removed.time == trashed.time;
            if let Some(removed) = self.model.trash.iter_mut().find(same) {
                removed.bytes = digest(&copy, &trashed.path);
            }
        }
    }

    /// What is in the trash is whole, as it went there.
    pub fn check_trash(&self, engine: &Engine, files: &SimulatedFiles, what: &str) {
        let trash = engine.trashed().unwrap();
        for trashed in &trash {
            let Trashed { name, time, header, path, .. } = trashed;
            let known = self.model.trash.iter().find(|removed| removed.name == *name && removed.time == *time);
            assert!(known.is_some() || self.model.unsettled.contains_key(name), "{what}: {name} is in the trash");
            assert_eq!(header.as_ref().map(|header| header.id.as_str()).ok(), Some(name.as_str()), "{what}");
            if let Some(removed) = known.filter(|_| what == "now") {
                assert_eq!(digest(files, path), removed.bytes, "{name} changed in the trash");
            }
        }
        for Removed { name, time, .. } in &self.model.trash {
            let found = trash.iter().any(|trashed| trashed.name == *name && trashed.time == *time);
            assert!(found, "{what}: {name} is lost from the trash");
        }
        for (name, known) in &self.model.sessions {
            let somewhere =
                || files.stat(&engine.locate(&id(name))).is_ok() || trash.iter().any(|trashed| trashed.name == *name);
            assert!(!known.moving || known.durable == 0 || somewhere(), "{what}: {name} is lost on its way");
        }
    }
}
