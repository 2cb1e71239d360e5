//! Who may read and write what the engine makes: modes of everything, from the moment it exists, and of temporary files too; a
//! store that others may write to; a root behind a link.
//!
//! One test alone in its process changes the umask, which is the process's.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use segment_common::{append, create, events, expected, header, id, journals, lines};
use sessionlog::backend::{DamageClass, ErrorKind};
use sessionlog::segment::files::{Access, File, Files, RealFiles, Stat};
use sessionlog::segment::{Engine, EngineOptions, SealOptions};

/// The system's files; looks at the mode of everything the moment it has been made.
#[derive(Debug, Clone, Default)]
struct Watched {
    made: Arc<AtomicU64>,
    temporary: Arc<AtomicU64>,
}

impl Watched {
    fn note(&self, path: &Path, mode: u32) {
        assert_eq!(fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777, mode, "{}", path.display());
        self.made.fetch_add(1, Ordering::Relaxed);
        if path.to_string_lossy().contains("/.tmp-") {
            self.temporary.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Files for Watched {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn File>> {
        let file = RealFiles.open(path, access)?;
        if access == Access::CreateNew {
            self.note(path, 0o600);
        }
        Ok(file)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        RealFiles.create_directory(path)?;
        self.note(path, 0o700);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFiles.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFiles.link(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        RealFiles.remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        RealFiles.remove_directory(path)
    }

    fn read_directory(&self, path: &Path) -> io::Result<Vec<String>> {
        RealFiles.read_directory(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        RealFiles.sync_directory(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        RealFiles.stat(path)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        RealFiles.resolve(path)
    }
}

/// Events of the session that [`make_everything`] makes.
const EVENTS: u64 = 43;

/// Everything that an engine makes: a store, journals, a torn end set aside, segments, a fork, a catalogue.
fn make_everything(root: &Path, files: Watched) {
    let engine =
        EngineOptions::new().files(Arc::new(files)).rotate_at(600).background_sealing(false).open(root).unwrap();
    let mut head = create(&engine, "s", 3);
    while head.next_seq < EVENTS {
        head = append(&engine, "s", &head, head.next_seq + 4);
    }
    engine.release(&id("s"), head.epoch).unwrap();
    let newest = journals(&engine.locate(&id("s"))).pop().unwrap();
    let mut bytes = fs::read(&newest).unwrap();
    bytes.extend_from_slice(&[9; 50]);
    fs::write(&newest, bytes).unwrap();
    let head = engine.take_over(&id("s")).unwrap().head;
    engine.release(&id("s"), head.epoch).unwrap();
    engine.seal(&id("s"), SealOptions::new().level(1)).unwrap();
    engine.fork(&id("s"), 20, &header("fork")).unwrap();
    engine.summaries().unwrap();
}

#[test]
fn a1_everything_is_private_from_the_moment_it_exists_under_any_umask() {
    let home = tempfile::tempdir().unwrap();
    for umask in [0, 0o022, 0o077, 0o177, 0o277, 0o777] {
        let root = home.path().join(format!("store-{umask:o}"));
        let files = Watched::default();
        // SAFETY: changes a number of the process; the other tests here make their own files before or after with set modes.
        let before = unsafe { libc::umask(umask) };
        make_everything(&root, files.clone());
        // SAFETY: as above.
        unsafe { libc::umask(before) };
        let (made, temporary) = (files.made.load(Ordering::Relaxed), files.temporary.load(Ordering::Relaxed));
        assert!(made > 15 && temporary > 8, "{made} {temporary}");
        for path in segment_common::files_below(&root) {
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600, "{}", path.display());
        }
    }
    a_store_that_others_may_write_to_is_warned_about(&home.path().join("open"));
    a_linked_root_is_resolved_once(home.path());
    links_inside_a_store_are_not_followed(home.path());
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

fn a_store_that_others_may_write_to_is_warned_about(root: &Path) {
    make_everything(root, Watched::default());
    for (mode, warned) in [(0o700, false), (0o755, false), (0o720, true), (0o702, true), (0o777, true)] {
        fs::set_permissions(root, fs::Permissions::from_mode(mode)).unwrap();
        let warnings = Warnings::default();
        let engine = tracing::subscriber::with_default(warnings.clone(), || Engine::open(root).unwrap());
        let said = warnings.0.lock().unwrap().join("\n");
        assert_eq!(said.contains("others may write to the store"), warned, "{mode:o}: {said}");
        assert!(!warned || said.contains(&root.display().to_string()) && said.contains(&format!("{mode:o}")), "{said}");
        // Reading needs no more than that.
        assert_eq!(lines(&events(&engine, "s")), lines(&expected(EVENTS)));
        assert_eq!(fs::metadata(root).unwrap().permissions().mode() & 0o777, mode, "the mode is left as it is");
    }
}

fn a_linked_root_is_resolved_once(home: &Path) {
    let (one, other, link) = (home.join("one"), home.join("other"), home.join("link"));
    make_everything(&one, Watched::default());
    make_everything(&other, Watched::default());
    symlink(&one, &link).unwrap();
    let engine = Engine::open(&link).unwrap();
    assert_eq!(engine.root(), one.canonicalize().unwrap());
    let head = engine.take_over(&id("s")).unwrap().head;
    // Somebody turns the link; the engine stays where it is.
    fs::remove_file(&link).unwrap();
    symlink(&other, &link).unwrap();
    let untouched = fs::read(journals(&other.join("sessions/fork")).pop().unwrap()).unwrap();
    let head = append(&engine, "s", &head, head.next_seq + 3);
    engine.release(&id("s"), head.epoch).unwrap();
    assert_eq!(lines(&events(&Engine::open(&one).unwrap(), "s")), lines(&expected(EVENTS + 3)));
    assert_eq!(lines(&events(&Engine::open(&link).unwrap(), "s")), lines(&expected(EVENTS)));
    assert_eq!(fs::read(journals(&other.join("sessions/fork")).pop().unwrap()).unwrap(), untouched);
}

/// A store from elsewhere may hold links. Nothing behind them is read, and above all nothing is removed.
fn links_inside_a_store_are_not_followed(home: &Path) {
    let (root, outside) = (home.join("linked"), home.join("outside"));
    make_everything(&root, Watched::default());
    fs::create_dir_all(outside.join(".tmp-of-somebody")).unwrap();
    fs::write(outside.join(".tmp-of-somebody/precious"), b"x").unwrap();
    fs::write(outside.join(".tmp-file"), b"x").unwrap();
    let untouched = || outside.join(".tmp-of-somebody/precious").exists() && outside.join(".tmp-file").exists();
    // For the place of what repairs cut.
    let torn = root.join("sessions/s/torn");
    fs::remove_dir_all(&torn).unwrap();
    symlink(&outside, &torn).unwrap();
    let engine = Engine::open(&root).unwrap();
    let head = engine.take_over(&id("s")).unwrap().head;
    engine.release(&id("s"), head.epoch).unwrap();
    engine.seal(&id("s"), SealOptions::new()).unwrap();
    assert!(untouched(), "files behind a link were removed");
    // For the sessions.
    let sessions = root.join("sessions");
    fs::rename(&sessions, home.join("moved")).unwrap();
    for target in [&outside, &home.join("moved")] {
        symlink(target, &sessions).unwrap();
        let error = Engine::open(&root).unwrap_err();
        assert_eq!((error.kind, error.damage.unwrap().class), (ErrorKind::Damaged, DamageClass::WrongFileType));
        assert_eq!(error.file.unwrap(), sessions.parent().unwrap().canonicalize().unwrap().join("sessions"));
        assert!(untouched(), "directories behind a link were removed");
        fs::remove_file(&sessions).unwrap();
    }
    fs::rename(home.join("moved"), &sessions).unwrap();
    assert_eq!(lines(&events(&Engine::open(&root).unwrap(), "s")), lines(&expected(EVENTS)));
}
