//! Every kind of file of a store, damaged in every way: what is read is identical, or the documented beginning with a report, or
//! a typed refusal that names class, file and offset; and listing, inspecting, resuming, verifying and reading say the same.
#![cfg(feature = "store")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(clippy::cast_possible_truncation, reason = "files are small")]

#[cfg(feature = "cli")]
mod commands;
mod sample;
#[path = "../segment_common/mod.rs"]
mod segment_common;
mod verdict;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use sample::SESSIONS;
use segment_common::{copy_tree, files_below};
use sessionlog::backend::{DamageClass, ErrorKind};
use verdict::{Refusal, Verdict, look, resume_agrees, store};

/// Of how many changes one is shown to the commands, too: each costs some processes.
const COMMANDS_EVERY: u64 = 7;

/// A session, the number of events that it had, and what is said of it.
type Judged = (&'static str, u64, Verdict);

/// Files that the session's verdict may not depend on.
fn is_derived(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "catalog" || name == "lock" || name == "checkpoint")
}

/// The session whose file it is.
fn own(target: &Path) -> &'static str {
    if target.starts_with("sessions/fork") { "fork" } else { "s" }
}

/// Whether damage of a file may be told of a session: its own files, those that it shares, and the store's.
fn concerns(target: &Path, name: &str) -> bool {
    let session = target.strip_prefix("sessions").ok().and_then(|path| path.iter().next());
    let shared = target.extension() == Some("seg".as_ref());
    session.is_none_or(|session| session == name || shared && name != "bystander")
}

struct Matrix {
    home: tempfile::TempDir,
    counts: BTreeMap<&'static str, u64>,
    tried: u64,
}

impl Matrix {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let original = home.path().join("original");
        sample::make(&original);
        // A store that has come to lack a kind of file would be damaged in vain.
        for (file, fewest) in [("seg", 3), ("log", 4), ("checkpoint", 1), ("shared", 1), ("catalog", 1), ("STORE", 1)] {
            let found = files_below(&original)
                .iter()
                .filter(|path| path.ends_with(file) || path.extension() == Some(file.as_ref()))
                .count();
            assert!(found >= fewest, "{file}: {found}");
        }
        Self { home, counts: BTreeMap::new(), tried: 0 }
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

    /// Damages a copy of the store, looks at every session in every way, and gives the verdict on the file's own session.
    async fn try_change(&mut self, target: &Path, what: &str, resumed: bool, change: impl FnOnce(&Path)) -> Verdict {
        let root = self.home.path().join("copy");
        let _ = fs::remove_dir_all(&root);
        copy_tree(&self.original(), &root);
        let what = format!("{}: {what}", target.display());
        self.tried += 1;
        if self.tried.is_multiple_of(2) && !target.ends_with("catalog") {
            // The catalogue holds for every session that is not damaged then.
            let _ = sample::options().open(&root).unwrap().summaries().unwrap();
        }
        change(&root.join(target));
        let judged = self.judge(&root, target, &SESSIONS, &what, resumed).await;
        let verdict = judged.map_or_else(Verdict::Refused, |judged| {
            judged.into_iter().find(|(name, ..)| *name == own(target)).unwrap().2
        });
        let depended_on = !is_derived(target) || !matches!(verdict, Verdict::Refused(..));
        assert!(depended_on, "{what}: {verdict:?}, for a file that nothing depends on");
        let count = match verdict {
            Verdict::Identical => "identical",
            Verdict::Prefix(..) => "prefix",
            Verdict::Refused(..) => "refused",
        };
        *self.counts.entry(count).or_default() += 1;
        verdict
    }

    /// Looks at every session of a damaged store in every way; an error is that of the store as a whole.
    async fn judge(
        &self,
        root: &Path,
        target: &Path,
        sessions: &[(&'static str, u64)],
        what: &str,
        resumed: bool,
    ) -> Result<Vec<Judged>, Refusal> {
        let shown_to_commands = cfg!(feature = "cli") && self.tried.is_multiple_of(COMMANDS_EVERY);
        let store = match store(root) {
            Ok(store) => store,
            Err(error) => {
                let refusal = Refusal::of(&error);
                assert!(!target.starts_with("sessions"), "{what}: one session costs the store: {error}");
                #[cfg(feature = "cli")]
                if shown_to_commands {
                    commands::refuse(root, &refusal, what);
                }
                return Err(refusal);
            }
        };
        let mut judged = Vec::new();
        for (name, total) in sessions {
            let verdict = look(&store, name, *total, what).await;
            assert!(verdict == Verdict::Identical || concerns(target, name), "{what}: {name}: {verdict:?}");
            judged.push((*name, *total, verdict));
        }
        #[cfg(feature = "cli")]
        if shown_to_commands {
            commands::agree(root, &judged, what);
        }
        if resumed {
            // What was inspected is used again, or not.
            let other = self::store(root).unwrap();
            let resuming = if self.tried.is_multiple_of(3) { &store } else { &other };
            for (name, total, verdict) in judged.iter().filter(|(name, ..)| concerns(target, name)) {
                resume_agrees(resuming, name, *total, verdict, what).await;
            }
        }
        Ok(judged)
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
        // One bit of some bytes, another one each time.
        let step = if dense { 1 } else { (length / 16).max(1) };
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

/// What is done to a session's directory: how it is called, the sessions there are then, those that are refused with the class, and how.
type Change<'a> = (&'a str, &'a [(&'static str, u64)], &'a [(&'a str, Option<DamageClass>)], &'a dyn Fn(&Path));

#[tokio::test]
async fn r4_directories_missing_swapped_foreign_renamed_and_replaced_by_other_things_are_told() {
    let mut matrix = Matrix::new();
    let elsewhere = matrix.home.path().join("elsewhere");
    copy_tree(&matrix.original().join("sessions/fork"), &elsewhere);
    let target = Path::new("sessions/s");
    let with_t = [SESSIONS[0], SESSIONS[1], SESSIONS[2], ("t", 0)];
    let mismatch = Some(DamageClass::IdentityMismatch);
    let wrong = Some(DamageClass::WrongFileType);
    let remove = |path: &Path| fs::remove_dir_all(path).unwrap();
    let changes: [Change<'_>; 7] = [
        ("missing", &SESSIONS, &[("s", None)], &|path| remove(path)),
        ("renamed", &with_t, &[("s", None), ("t", mismatch)], &|path| {
            fs::rename(path, path.with_file_name("t")).unwrap();
        }),
        ("doubled", &with_t, &[("t", mismatch)], &|path| copy_tree(path, &path.with_file_name("t"))),
        ("swapped", &SESSIONS, &[("s", mismatch), ("fork", mismatch)], &|path| {
            let (fork, between) = (path.with_file_name("fork"), path.with_file_name("t"));
            fs::rename(path, &between).unwrap();
            fs::rename(&fork, path).unwrap();
            fs::rename(&between, fork).unwrap();
        }),
        ("a file", &SESSIONS, &[("s", wrong)], &|path| {
            remove(path);
            fs::write(path, b"plain").unwrap();
        }),
        ("a FIFO", &SESSIONS, &[("s", wrong)], &|path| {
            remove(path);
            fifo(path);
        }),
        ("a link out of the store", &SESSIONS, &[("s", wrong)], &|path| {
            remove(path);
            symlink(&elsewhere, path).unwrap();
        }),
    ];
    for (what, sessions, refused, change) in changes {
        let root = matrix.home.path().join("copy");
        for warm in [false, true] {
            let _ = fs::remove_dir_all(&root);
            copy_tree(&matrix.original(), &root);
            if warm {
                let _ = sample::options().open(&root).unwrap().summaries().unwrap();
            }
            change(&root.join(target));
            // All commands are asked each time.
            matrix.tried = COMMANDS_EVERY;
            let judged = matrix.judge(&root, Path::new("sessions"), sessions, what, true).await.unwrap();
            for (name, _, verdict) in judged {
                let expected = refused.iter().find(|(other, _)| *other == name).map(|(_, class)| *class);
                let found = match &verdict {
                    Verdict::Refused(refusal) => Some(refusal.class),
                    _ => None,
                };
                assert_eq!(found, expected, "{what}: {name}: {verdict:?}");
            }
        }
    }
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
        #[cfg(feature = "cli")]
        let _ = fs::copy(commands::PROGRAM, home.path().join(commands::NAME)).unwrap();
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
            let refused = matches!(&verdict, Verdict::Refused(refusal) if refusal.kind == ErrorKind::PermissionDenied);
            assert!(refused, "{}: {verdict:?}", target.display());
        }
    }
}

fn fifo(path: &Path) {
    let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the path is a valid C string for the duration of the call.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
}
