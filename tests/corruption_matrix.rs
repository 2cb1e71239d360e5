//! Every kind of file of a store, damaged in every way: what is read is identical, or the documented beginning with a report, or
//! a typed refusal that names class, file and offset; and listing, inspecting, resuming, verifying and reading say the same.
#![cfg(feature = "store")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(clippy::cast_possible_truncation, reason = "files are small")]

mod segment_common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use segment_common::{append, copy_tree, create, events, expected, files_below, id, lines, try_events};
use sessionlog::backend::{BackendError, DamageClass, ErrorKind};
use sessionlog::event::{Event, Vocabulary};
use sessionlog::segment::{CheckStatus, Engine, EngineOptions, SealOptions, SegmentBackend};
use sessionlog::store::{ListOptions, Store, StoreOptions};

/// Events of the session `s`: two sealed segments of it, then journals.
const EVENTS: u64 = 64;
const BYSTANDER: u64 = 9;

fn options() -> EngineOptions {
    EngineOptions::new().rotate_at(900).background_sealing(false).seed(11)
}

fn store(root: &Path) -> Result<Store<SegmentBackend>, BackendError> {
    let vocabulary = Vocabulary::core().with_name("app/note").with_name("app/mark");
    Ok(StoreOptions::new().vocabulary(vocabulary).open(SegmentBackend::with_options(root, options())?).unwrap())
}

fn grow(engine: &Engine, name: &str, to: u64) {
    let mut head = engine.take_over(&id(name)).unwrap().head;
    while head.next_seq < to {
        head = append(engine, name, &head, to.min(head.next_seq + 5));
    }
    engine.release(&id(name), head.epoch).unwrap();
}

/// A store with a session of every kind of file, a fork that shares its first segment, and a bystander.
fn sample(root: &Path) {
    let engine = options().open(root).unwrap();
    for (name, count) in [("bystander", BYSTANDER), ("s", 20)] {
        let head = create(&engine, name, 3);
        engine.release(&id(name), head.epoch).unwrap();
        grow(&engine, name, count);
    }
    engine.seal(&id("s"), SealOptions::new().level(1)).unwrap();
    engine.fork(&id("s"), 12, &segment_common::header("fork")).unwrap();
    grow(&engine, "s", EVENTS);
    engine.summaries().unwrap();
}

/// What each of the ways to look at the session says; they must agree.
#[derive(Debug, PartialEq)]
enum Verdict {
    /// All events are there.
    Identical,
    /// This many are, and the report says what lies behind them.
    Prefix(u64),
    Refused(ErrorKind, Option<DamageClass>),
}

fn refused(error: &BackendError) -> Verdict {
    assert!(error.file.is_some() || error.kind == ErrorKind::NotFound, "no file is named: {error}");
    if error.kind == ErrorKind::Damaged {
        let damage = error.damage.as_ref().unwrap_or_else(|| panic!("no class: {error}"));
        // Of what is missing, or is no file, there is no offset.
        let placeless = matches!(
            damage.class,
            DamageClass::Gap | DamageClass::WrongFileType | DamageClass::BadHeader | DamageClass::IdentityMismatch
        );
        assert!(damage.offset.is_some() || placeless || error.detail.contains("footer"), "no offset: {error}");
    }
    Verdict::Refused(error.kind, error.damage.as_ref().map(|damage| damage.class))
}

fn prefix_of(found: &[Event], total: u64) -> Verdict {
    assert_eq!(lines(found), lines(&expected(found.len() as u64)), "bytes that were never written are handed out");
    if found.len() as u64 == total { Verdict::Identical } else { Verdict::Prefix(found.len() as u64) }
}

/// Looks at a session in every way and compares.
async fn look(root: &Path, name: &str, total: u64, what: &str) -> Verdict {
    let store = match store(root) {
        Ok(store) => store,
        Err(error) => return refused(&error),
    };
    let engine = store.backend().engine();
    let check = engine.verify(&id(name));
    let verdict = if let Some(error) = &check.error {
        refused(error)
    } else {
        let events = try_events(engine, name).unwrap_or_else(|error| panic!("{what}: verified, not read: {error}"));
        assert_eq!(events.len() as u64, check.events, "{what}");
        assert_eq!(check.status == CheckStatus::Torn, check.torn.is_some(), "{what}");
        prefix_of(&events, total)
    };
    // Reading gives what is said to be intact, and then the same refusal.
    if let Verdict::Refused(kind, class) = verdict {
        let error = try_events(engine, name).expect_err(what);
        assert_eq!((error.kind, error.damage.as_ref().map(|damage| damage.class)), (kind, class), "{what}: events");
    }
    // An inspection reads what the model sees. It may do without blocks that are damaged; it never shows anything else.
    match store.inspect(name).await {
        Ok(inspected) => {
            let shown = inspected.events(..inspected.durable_seq());
            let all = expected(total);
            assert!(
                shown.iter().all(|event| *event == all[event.seq() as usize]),
                "{what}: inspect shows other events"
            );
            if let Verdict::Prefix(count) = verdict {
                assert_eq!(inspected.durable_seq(), count, "{what}: inspect");
                assert!(
                    inspected.recovery().torn.is_some() || check.torn.is_none(),
                    "{what}: inspect reports no torn end"
                );
            }
        }
        Err(error) => {
            let Verdict::Refused(kind, _) = verdict else { panic!("{what}: only inspect refuses: {error}") };
            assert_eq!(error.kind(), kind, "{what}: inspect: {error}");
        }
    }
    // A listing shows every session, sound or with what is wrong. It reads headers; the catalogue reads further.
    let listing = store.list(ListOptions::new()).await.unwrap();
    let listed = listing.sessions.iter().any(|header| header.id == name);
    if !listed {
        assert!(matches!(verdict, Verdict::Refused(..)), "{what}: not listed and {verdict:?}");
    }
    let summary = engine.summaries().unwrap().into_iter().find(|entry| entry.name == name);
    match (summary.map(|entry| entry.summary), &verdict) {
        (Some(Ok(summary)), Verdict::Identical) => assert_eq!(summary.events, total, "{what}: listing"),
        (Some(Ok(summary)), Verdict::Prefix(count)) => assert_eq!(summary.events, *count, "{what}: listing"),
        (Some(Err(error)), Verdict::Refused(kind, _)) => assert_eq!(error.kind, *kind, "{what}: listing: {error}"),
        (Some(Ok(_)) | None, Verdict::Refused(..)) => {}
        (summary, verdict) => panic!("{what}: listed as {summary:?}, verified as {verdict:?}"),
    }
    verdict
}

/// Takes the session over, which must refuse exactly where verifying does (or for blocks that a writer need not read, succeed and
/// change nothing).
fn resume(root: &Path, name: &str, verdict: &Verdict, what: &str) {
    let Ok(engine) = options().open(root) else { return };
    match engine.take_over(&id(name)) {
        Ok(taken) => {
            let count = match verdict {
                Verdict::Identical => None,
                Verdict::Prefix(count) => Some(*count),
                Verdict::Refused(..) => {
                    // A block inside a sealed segment is read by those who want its events.
                    assert!(engine.verify(&id(name)).error.is_some(), "{what}: taking over made the damage disappear");
                    None
                }
            };
            assert!(count.is_none_or(|count| count == taken.head.next_seq), "{what}: resumed at another seq");
            engine.release(&id(name), taken.head.epoch).unwrap();
        }
        Err(error) => {
            // Without its lock a session can be read and not written.
            let lock = error.file.as_ref().is_some_and(|file| file.ends_with("lock"));
            let expected = if lock { ErrorKind::Damaged } else { refusal(verdict).expect(what) };
            assert_eq!(error.kind, expected, "{what}: {error}");
            let _ = refused(&error);
        }
    }
}

fn refusal(verdict: &Verdict) -> Option<ErrorKind> {
    if let Verdict::Refused(kind, _) = verdict { Some(*kind) } else { None }
}

fn bystander_is_sound(root: &Path, what: &str) {
    let Ok(engine) = options().open(root) else { return };
    assert_eq!(lines(&events(&engine, "bystander")), lines(&expected(BYSTANDER)), "{what}: the bystander");
    assert_eq!(engine.verify(&id("bystander")).status, CheckStatus::Ok, "{what}: the bystander");
}

/// Files that the session's verdict may not depend on.
fn is_derived(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "catalog" || name == "lock")
}

struct Matrix {
    home: tempfile::TempDir,
    counts: BTreeMap<&'static str, u64>,
}

impl Matrix {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        sample(&home.path().join("original"));
        Self { home, counts: BTreeMap::new() }
    }

    fn original(&self) -> PathBuf {
        self.home.path().join("original")
    }

    /// Files of the store that belong to `s`, the fork or the store itself, relative to the root.
    fn targets(&self) -> Vec<PathBuf> {
        let original = self.original();
        let below = files_below(&original).into_iter().map(|path| path.strip_prefix(&original).unwrap().to_owned());
        below.filter(|path| !path.to_string_lossy().contains("bystander")).collect()
    }

    /// Damages a copy of the store and looks at it.
    async fn try_change(&mut self, target: &Path, what: &str, resumed: bool, change: impl FnOnce(&Path)) -> Verdict {
        let root = self.home.path().join("copy");
        let _ = fs::remove_dir_all(&root);
        copy_tree(&self.original(), &root);
        let what = format!("{}: {what}", target.display());
        change(&root.join(target));
        let (name, total) = if target.starts_with("sessions/fork") { ("fork", 13) } else { ("s", EVENTS) };
        let verdict = look(&root, name, total, &what).await;
        let depended_on = !is_derived(target) || !matches!(verdict, Verdict::Refused(..));
        assert!(depended_on, "{what}: {verdict:?}, for a file that nothing depends on");
        if resumed {
            resume(&root, name, &verdict, &what);
        }
        bystander_is_sound(&root, &what);
        let count = match verdict {
            Verdict::Identical => "identical",
            Verdict::Prefix(_) => "prefix",
            Verdict::Refused(..) => "refused",
        };
        *self.counts.entry(count).or_default() += 1;
        verdict
    }

    /// As [`Matrix::try_change`], with other bytes.
    async fn try_bytes(
        &mut self,
        target: &Path,
        what: &str,
        resumed: bool,
        change: impl FnOnce(&mut Vec<u8>),
    ) -> Verdict {
        self.try_change(target, what, resumed, |path| {
            let mut bytes = fs::read(path).unwrap();
            change(&mut bytes);
            fs::write(path, bytes).unwrap();
        })
        .await
    }
}

#[tokio::test]
async fn r4_flipped_bits_and_truncations_of_every_file_are_told_or_change_nothing() {
    let dense = std::env::var_os("SESSIONLOG_MATRIX_DENSE").is_some();
    let mut matrix = Matrix::new();
    for target in matrix.targets() {
        let length = fs::read(matrix.original().join(&target)).unwrap().len();
        // Every bit of small files; of larger ones, one bit of some bytes, another one each time.
        let step = if dense { 1 } else { (length / 24).max(1) };
        for at in (0..length).step_by(step) {
            let bit = 1_u8 << ((at / step) % 8);
            let what = format!("bit {bit:#x} of byte {at} flipped");
            let _ = matrix.try_bytes(&target, &what, at % 3 == 0, |bytes| bytes[at] ^= bit).await;
        }
        for at in (0..length).step_by(step) {
            let what = format!("cut at {at} of {length}");
            let _ = matrix.try_bytes(&target, &what, at % 5 == 0, |bytes| bytes.truncate(at)).await;
        }
    }
    println!("{:?}", matrix.counts);
    assert!(matrix.counts["refused"] > 200 && matrix.counts["prefix"] > 10, "{:?}", matrix.counts);
}

#[tokio::test]
async fn r4_runs_of_zeros_and_repeated_stretches_of_every_file_are_told_or_change_nothing() {
    let mut matrix = Matrix::new();
    for target in matrix.targets() {
        let length = fs::read(matrix.original().join(&target)).unwrap().len();
        for run in [1, 16, 64, 512, 4096, 65_536] {
            for (place, at) in [("start", 0), ("middle", length / 2), ("end", length.saturating_sub(run))] {
                let what = format!("{run} zeros at the {place}");
                let _ = matrix
                    .try_bytes(&target, &what, run == 64, |bytes| {
                        let end = length.min(at + run);
                        bytes[at..end].fill(0);
                    })
                    .await;
            }
            let _ = matrix
                .try_bytes(&target, &format!("{run} zeros behind the end"), true, |bytes| {
                    bytes.extend(std::iter::repeat_n(0, run));
                })
                .await;
        }
        for part in [3, 2, 1] {
            let _ = matrix
                .try_bytes(&target, &format!("its last {part}th repeated"), true, |bytes| {
                    let again = bytes[length - length / part..].to_vec();
                    bytes.extend(again);
                })
                .await;
            let _ = matrix
                .try_bytes(&target, &format!("its first {part}th repeated before it"), false, |bytes| {
                    let again = bytes[..length / part].to_vec();
                    bytes.splice(0..0, again);
                })
                .await;
        }
    }
    println!("{:?}", matrix.counts);
}

#[tokio::test]
async fn r4_files_missing_swapped_foreign_renamed_and_replaced_by_other_things_are_told() {
    let mut matrix = Matrix::new();
    let secret = matrix.home.path().join("secret");
    fs::write(&secret, b"outside").unwrap();
    let targets = matrix.targets();
    for target in &targets {
        let counts_not = is_derived(target);
        let is_log = target.extension().is_some_and(|extension| extension == "log" || extension == "seg");
        let newest = target.ends_with("s") || {
            let siblings = targets
                .iter()
                .filter(|other| other.parent() == target.parent() && other.extension() == Some("log".as_ref()));
            siblings.max() == Some(target)
        };
        let verdict = matrix.try_change(target, "missing", true, |path| fs::remove_file(path).unwrap()).await;
        assert!(!is_log || verdict != Verdict::Identical, "{}: missed nothing", target.display());
        let _ = matrix.try_change(target, "emptied", true, |path| fs::write(path, b"").unwrap()).await;
        let verdict = matrix.try_change(target, "foreign", true, |path| fs::write(path, [b'x'; 700]).unwrap()).await;
        assert!(counts_not || verdict != Verdict::Identical, "{}: taken for its own", target.display());
        let verdict = matrix
            .try_change(target, "a directory", true, |path| {
                fs::remove_file(path).unwrap();
                fs::create_dir(path).unwrap();
            })
            .await;
        assert!(counts_not || matches!(verdict, Verdict::Refused(..)), "{}: {verdict:?}", target.display());
        let verdict = matrix
            .try_change(target, "a FIFO", true, |path| {
                fs::remove_file(path).unwrap();
                fifo(path);
            })
            .await;
        assert!(counts_not || matches!(verdict, Verdict::Refused(..)), "{}: {verdict:?}", target.display());
        let outside = secret.clone();
        let verdict = matrix
            .try_change(target, "a link out of the store", true, |path| {
                let bytes = fs::read(path).unwrap();
                fs::write(&outside, bytes).unwrap();
                fs::remove_file(path).unwrap();
                symlink(&outside, path).unwrap();
            })
            .await;
        let original = fs::read(matrix.original().join(target)).unwrap();
        assert_eq!(fs::read(&secret).unwrap(), original, "{}: written through a link", target.display());
        assert!(counts_not || matches!(verdict, Verdict::Refused(..)), "{}: {verdict:?}", target.display());
        if is_log {
            let verdict = matrix
                .try_change(target, "renamed", true, |path| {
                    let extension = path.extension().unwrap();
                    fs::rename(path, path.with_file_name("00000000000000000007").with_extension(extension)).unwrap();
                })
                .await;
            assert!(verdict != Verdict::Identical || newest, "{}: {verdict:?}", target.display());
            for other in targets.iter().filter(|other| other.extension() == target.extension() && *other != target) {
                let foreign = matrix.original().join(other);
                let what = format!("replaced by {}", other.display());
                let verdict =
                    matrix.try_change(target, &what, true, |path| assert!(fs::copy(foreign, path).is_ok())).await;
                // A fork's first segment is its source's: they share the file.
                let shared = fs::read(matrix.original().join(other)).unwrap() == original;
                assert!(shared || matches!(verdict, Verdict::Refused(..)), "{}: {what}: {verdict:?}", target.display());
            }
            let verdict = matrix
                .try_change(target, "doubled under a later name", true, |path| {
                    let extension = path.extension().unwrap();
                    let later = path.with_file_name("00000000000000000999").with_extension(extension);
                    assert!(fs::copy(path, later).is_ok());
                })
                .await;
            assert!(matches!(verdict, Verdict::Refused(..)), "{}: doubled: {verdict:?}", target.display());
        }
    }
    println!("{:?}", matrix.counts);
}

/// A user whom permissions bind.
const NOBODY: u32 = 65_534;

#[tokio::test]
async fn without_permission_everything_says_so_and_other_sessions_go_on() {
    // SAFETY: the call has no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        // Permissions do not bind the superuser: the same as somebody else.
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let program = home.path().join("program");
        let _ = fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let run = std::process::Command::new(program)
            .args(["--exact", "without_permission_everything_says_so_and_other_sessions_go_on", "--nocapture"])
            .env("TMPDIR", home.path())
            .current_dir(home.path())
            .uid(NOBODY)
            .gid(NOBODY)
            .output();
        match run {
            Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout)),
            Err(error) => println!("skipped: cannot become somebody else: {error}"),
        }
        return;
    }
    let mut matrix = Matrix::new();
    for target in matrix.targets() {
        let verdict = matrix
            .try_change(&target, "no permission", false, |path| {
                fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
            })
            .await;
        if !is_derived(&target) {
            assert_eq!(verdict, Verdict::Refused(ErrorKind::PermissionDenied, None), "{}", target.display());
        }
    }
}

fn fifo(path: &Path) {
    let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the path is a valid C string for the duration of the call.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
}
