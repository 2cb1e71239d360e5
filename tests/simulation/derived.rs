//! The steps that damage and derive afresh what follows from the logs.

use std::path::Path;
use std::sync::Arc;

use sessionlog::backend::ErrorKind;
use sessionlog::segment::files::{Files, SimulatedFiles};
use sessionlog::segment::{CheckStatus, Engine, Summary};

use super::{ROOT, World, engine_options, events_of, stored};
use crate::store_common::id;

fn summaries(files: &SimulatedFiles) -> Vec<(String, Option<Arc<Summary>>)> {
    let engine = engine_options(files).open(ROOT).unwrap();
    engine.summaries().unwrap().into_iter().map(|entry| (entry.name, entry.summary.ok())).collect()
}

impl World {
    /// Removes the catalogue, flips one of its bits, or puts an older one in its place.
    pub fn spoil_catalogue(&mut self, pick: u64) {
        let path = Path::new(ROOT).join("catalog");
        let Some(mut bytes) = self.files.contents(&path) else { return };
        match pick % 4 {
            0 => {
                let _ = self.files.remove_file(&path);
            }
            1 if !bytes.is_empty() => {
                let at = usize::try_from(pick >> 5).unwrap() % bytes.len();
                bytes[at] ^= 1 << (pick >> 2 & 7);
                self.files.overwrite(&path, &bytes).unwrap();
            }
            _ => {
                if let Some(older) = self.catalogue.replace(bytes) {
                    self.files.overwrite(&path, &older).unwrap();
                }
            }
        }
        self.did("spoil catalogue");
        self.check_catalogue();
    }

    /// A listing says the same with the catalogue that is there, with the one it makes, and with none.
    pub fn check_catalogue(&self) {
        let with = self.files.copy(0);
        let without = self.files.copy(0);
        let _ = without.remove_file(&Path::new(ROOT).join("catalog"));
        let expected = summaries(&without);
        assert_eq!(summaries(&with), expected, "from the catalogue");
        assert_eq!(summaries(&with), expected, "from the catalogue that was made");
        assert_eq!(summaries(&without), expected, "from the catalogue that was made anew");
        let engine = engine_options(&without).open(ROOT).unwrap();
        for (name, summary) in expected {
            let events = events_of(&stored(&engine, &name).unwrap());
            assert_eq!(summary.unwrap().events, events.len() as u64, "{name} is listed");
        }
    }

    /// Checks a session and derives afresh what its check finds wrong: nothing, as nothing but the catalogue was damaged.
    pub fn rebuild(&mut self, name: &str) {
        let Some(store) = self.store() else { return };
        let engine = store.backend().engine();
        let live = self.live.contains_key(name);
        if !self.faulty && self.model.sessions.contains_key(name) {
            check_remains(engine, name);
        }
        match engine.rebuild_derived(&id(name)) {
            Ok(rebuilt) => {
                assert!(!live, "{name} is rebuilt beside its writer");
                assert_eq!(rebuilt, [], "{name}: nothing was wrong");
                self.did("rebuild");
            }
            Err(error) if live => {
                // Before anything of the session is written there is nothing to be busy with.
                let allowed = matches!(error.kind, ErrorKind::Busy | ErrorKind::NotFound);
                assert!(allowed || self.faulty, "{name}: {error}");
            }
            Err(error) => self.fine(&error.into(), &[ErrorKind::NotFound]),
        }
    }
}

/// What would be saved of a session that is sound is the session.
fn check_remains(engine: &Engine, name: &str) {
    let Some(items) = stored(engine, name) else { return };
    let remains = engine.remains(&id(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(remains.header.map(|header| header.id).as_deref(), Some(name));
    assert!(remains.header_damage.is_none(), "{name}: {:?}", remains.header_damage);
    assert!(matches!(remains.check.status, CheckStatus::Ok | CheckStatus::Torn), "{name}: {:?}", remains.check);
    assert_eq!(remains.check.events, events_of(&items).len() as u64, "{name}");
}
