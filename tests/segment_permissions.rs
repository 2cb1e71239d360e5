//! Where the engine warns and where it refuses to write; links, which lead it nowhere.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use segment_common::{append, create, events, expected, files_below, id};
use sessionlog::backend::{BackendError, DamageClass, ErrorKind};
use sessionlog::segment::{Engine, EngineOptions, SealOptions};

/// A directory for the test; the path has no links in it.
fn home() -> (tempfile::TempDir, PathBuf) {
    let temporary = tempfile::tempdir().unwrap();
    let home = fs::canonicalize(temporary.path()).unwrap();
    (temporary, home)
}

fn refused<T>(result: Result<T, BackendError>) -> String {
    let Err(error) = result else { panic!("writing was not refused") };
    assert_eq!(error.kind, ErrorKind::PermissionDenied, "{error}");
    error.to_string()
}

/// Writing is refused whatever is asked for, reading works, trust is a way on.
fn writes_need_trust(root: &Path, what: &str) {
    let engine = Engine::open(root).unwrap();
    let detail = refused(engine.take_over(&id("s")).map(|_| ()));
    assert!(detail.contains(what) && detail.contains("trust_directory"), "{detail}");
    refused(engine.seal(&id("s"), SealOptions::new()));
    refused(engine.fork(&id("s"), 1, &segment_common::header("child")));
    refused(engine.delete(&id("s")));
    assert_eq!(segment_common::lines(&events(&engine, "s")), segment_common::lines(&expected(3)));
    assert!(engine.verify(&id("s")).error.is_none());
    assert_eq!(engine.summaries().unwrap().len(), 1);
    let trusting = EngineOptions::new().trust_directory(true).open(root).unwrap();
    let head = trusting.take_over(&id("s")).unwrap().head;
    trusting.release(&id("s"), head.epoch).unwrap();
}

fn store_with_a_session(root: &Path) {
    let engine = Engine::open(root).unwrap();
    let head = create(&engine, "s", 3);
    engine.release(&id("s"), head.epoch).unwrap();
}

#[test]
fn a_directory_that_others_can_change_is_not_written() {
    let (_temporary, home) = home();
    let root = home.join("shared");
    store_with_a_session(&root);
    for place in [root.clone(), root.join("sessions")] {
        for open in [0o777, 0o1777, 0o702] {
            fs::set_permissions(&place, Permissions::from_mode(open)).unwrap();
            writes_need_trust(&root, "everybody may write");
        }
        // A group may be the user's own, so this is only warned about.
        fs::set_permissions(&place, Permissions::from_mode(0o770)).unwrap();
        let engine = Engine::open(&root).unwrap();
        let head = engine.take_over(&id("s")).unwrap().head;
        engine.release(&id("s"), head.epoch).unwrap();
        fs::set_permissions(&place, Permissions::from_mode(0o700)).unwrap();
    }
    if fs::metadata(&home).unwrap().uid() != 0 {
        println!("skipped: only the system's own user can give a directory away");
        return;
    }
    chown(&root, Some(4711), None).unwrap();
    writes_need_trust(&root, "another user (uid 4711)");
}

/// Takes warnings down.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct Words(String);

impl tracing::field::Visit for Words {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut words = Words(String::new());
        event.record(&mut words);
        self.0.lock().unwrap().push(words.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_store_that_others_may_write_to_is_warned_about() {
    let (_temporary, home) = home();
    let root = home.join("open");
    store_with_a_session(&root);
    for (mode, warned) in [(0o700, false), (0o755, false), (0o720, true), (0o702, true), (0o777, true)] {
        fs::set_permissions(&root, Permissions::from_mode(mode)).unwrap();
        let warnings = Warnings::default();
        let engine = tracing::subscriber::with_default(warnings.clone(), || Engine::open(&root).unwrap());
        let said = warnings.0.lock().unwrap().join("\n");
        assert_eq!(said.contains("others may write to the store"), warned, "{mode:o}: {said}");
        assert!(!warned || said.contains(&root.display().to_string()) && said.contains(&format!("{mode:o}")), "{said}");
        assert_eq!(engine.open_to_others().map(|mode| mode & 0o777), warned.then_some(mode));
        // Reading needs no more than that.
        assert_eq!(segment_common::lines(&events(&engine, "s")), segment_common::lines(&expected(3)));
        assert_eq!(fs::metadata(&root).unwrap().permissions().mode() & 0o777, mode, "the mode is left as it is");
    }
}

#[test]
fn a_link_to_the_root_is_resolved_once_and_a_replaced_root_is_noticed() {
    let (_temporary, home) = home();
    // A link to the root is resolved when the store is opened, and never again.
    let (first, second, link) = (home.join("first"), home.join("second"), home.join("link"));
    fs::create_dir(&first).unwrap();
    fs::create_dir(&second).unwrap();
    for directory in [&first, &second] {
        fs::set_permissions(directory, Permissions::from_mode(0o700)).unwrap();
    }
    for (name, root) in [("there", link.clone()), ("to be made", link.join("deep/store"))] {
        let _ = fs::remove_file(&link);
        symlink(&first, &link).unwrap();
        let engine = Engine::open(&root).unwrap();
        fs::remove_file(&link).unwrap();
        symlink(&second, &link).unwrap();
        let head = create(&engine, "s", 3);
        assert!(engine.root().starts_with(fs::canonicalize(&first).unwrap()), "{name}");
        assert_eq!(fs::read_dir(&second).unwrap().count(), 0, "{name}");
        let head = append(&engine, "s", &head, 6);
        engine.release(&id("s"), head.epoch).unwrap();
        assert_eq!(events(&engine, "s").len(), 6);
    }
    // The directory itself is replaced while the store is open.
    let root = home.join("replaced");
    store_with_a_session(&root);
    let engine = Engine::open(&root).unwrap();
    let head = engine.take_over(&id("s")).unwrap().head;
    engine.release(&id("s"), head.epoch).unwrap();
    fs::rename(&root, home.join("moved")).unwrap();
    symlink(&second, &root).unwrap();
    for error in [
        engine.take_over(&id("s")).map(|_| ()).unwrap_err(),
        engine.fork(&id("s"), 1, &segment_common::header("c")).map(|_| ()).unwrap_err(),
    ] {
        assert!(matches!(error.kind, ErrorKind::LostOwnership | ErrorKind::NotFound), "{error}");
    }
    let new = engine.append(
        &id("n"),
        Some(&segment_common::header("n")),
        sessionlog::backend::Expected::ABSENT,
        &segment_common::batch(0, 2),
    );
    assert!(new.unwrap_err().to_string().contains("moved or replaced"));
    assert_eq!(fs::read_dir(&second).unwrap().count(), 0);
}

#[test]
fn links_inside_the_store_are_not_followed() {
    let (_temporary, home) = home();
    let elsewhere = home.join("elsewhere");
    store_with_a_session(&elsewhere);
    // What would be cleared as remains of dead writers, if it were the store's own.
    for place in [elsewhere.clone(), elsewhere.join("sessions")] {
        fs::create_dir(place.join(".tmp-of-somebody")).unwrap();
        fs::write(place.join(".tmp-of-somebody/precious"), b"x").unwrap();
        fs::write(place.join(".tmp-file"), b"x").unwrap();
    }
    let untouched =
        || files_below(&elsewhere).into_iter().map(|path| (fs::read(&path).unwrap(), path)).collect::<Vec<_>>();
    let before = untouched();
    // The directory of all sessions.
    let root = home.join("linked");
    fs::create_dir(&root).unwrap();
    fs::set_permissions(&root, Permissions::from_mode(0o700)).unwrap();
    symlink(elsewhere.join("sessions"), root.join("sessions")).unwrap();
    let error = Engine::open(&root).map(|_| ()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Damaged, "{error}");
    assert_eq!(error.damage.as_ref().unwrap().class, DamageClass::WrongFileType);
    assert_eq!(error.file.as_deref(), Some(root.join("sessions").as_path()));
    fs::remove_file(root.join("sessions")).unwrap();
    let engine = Engine::open(&root).unwrap();
    symlink(elsewhere.join("sessions"), root.join("sessions")).unwrap();
    let new = engine.append(
        &id("n"),
        Some(&segment_common::header("n")),
        sessionlog::backend::Expected::ABSENT,
        &segment_common::batch(0, 2),
    );
    assert!(new.is_err());
    fs::remove_file(root.join("sessions")).unwrap();
    // A session's directory, and each of its files.
    store_with_a_session(&root);
    let engine = Engine::open(&root).unwrap();
    symlink(elsewhere.join("sessions/s"), root.join("sessions/t")).unwrap();
    for result in
        [engine.take_over(&id("t")).map(|_| ()), engine.delete(&id("t")), engine.open_session(&id("t")).map(|_| ())]
    {
        assert_eq!(result.unwrap_err().kind, ErrorKind::Damaged);
    }
    for name in ["header", "lock", "00000000000000000000.log"] {
        let file = root.join("sessions/s").join(name);
        let own = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        symlink(elsewhere.join("sessions/s").join(name), &file).unwrap();
        assert!(engine.take_over(&id("s")).is_err(), "{name}");
        fs::remove_file(&file).unwrap();
        fs::write(&file, own).unwrap();
    }
    symlink(&elsewhere, root.join("sessions/s/torn")).unwrap();
    // Without a torn end there is nothing to put there, and nothing there is cleared.
    let head = engine.take_over(&id("s")).unwrap().head;
    engine.release(&id("s"), head.epoch).unwrap();
    engine.seal(&id("s"), SealOptions::new()).unwrap();
    assert_eq!(untouched(), before);
    let head = engine.take_over(&id("s")).unwrap().head;
    let head = append(&engine, "s", &head, 6);
    engine.release(&id("s"), head.epoch).unwrap();
    let own = fs::read_dir(root.join("sessions/s")).unwrap().map(|entry| entry.unwrap().path());
    let journal = own.filter(|path| path.extension().is_some_and(|extension| extension == "log")).max().unwrap();
    let bytes = fs::read(&journal).unwrap();
    fs::write(&journal, &bytes[..bytes.len() - 5]).unwrap();
    assert!(engine.take_over(&id("s")).is_err());
    fs::write(&journal, &bytes).unwrap();
    // The catalogue is made anew in the place of a link.
    let _ = fs::remove_file(root.join("catalog"));
    symlink(elsewhere.join("STORE"), root.join("catalog")).unwrap();
    Engine::open(&root).unwrap().summaries().unwrap();
    // Deleting a session removes the link in it and not what it leads to.
    engine.delete(&id("s")).unwrap();
    assert!(home.join("elsewhere").exists());
    assert_eq!(untouched(), before);
}
