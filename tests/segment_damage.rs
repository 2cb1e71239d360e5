//! Bytes that are not what was written: cut, flipped, zeroed, moved and replaced files.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use segment_common::{append, batch, copy_tree, create, events, expected, header, id, journals, lines, try_events};
use sessionlog::backend::{AppendError, BackendError, DamageClass, ErrorKind, Expected, ReadLimit};
use sessionlog::segment::{CheckStatus, Engine, EngineOptions};

fn options() -> EngineOptions {
    EngineOptions::new().rotate_at(450).background_sealing(false)
}

/// A store with the session `s` of several journals, and a bystander.
fn sample(root: &Path) -> u64 {
    let engine = options().seed(3).open(root).unwrap();
    let mut head = create(&engine, "s", 3);
    for to in [9, 10, 16, 18, 23, 24, 29, 30, 31] {
        head = append(&engine, "s", &head, to);
    }
    create(&engine, "bystander", 4);
    head.next_seq
}

fn session(root: &Path) -> PathBuf {
    root.join("sessions/s")
}

/// The log as readers and `verify` see it; both must agree.
fn look(root: &Path) -> Result<u64, BackendError> {
    let engine = options().open(root)?;
    let check = engine.verify(&id("s"));
    let opened = engine.open_session(&id("s"));
    match (check.error, opened) {
        (None, Ok(opened)) => {
            assert_eq!(check.events, opened.head.next_seq);
            assert_eq!(check.torn, opened.torn);
            let events = try_events(&engine, "s").unwrap();
            assert_eq!(lines(&events), lines(&expected(check.events)), "bytes are handed out that were never written");
            Ok(check.events)
        }
        (Some(error), Err(opened)) => {
            assert_eq!((error.kind, &error.damage), (opened.kind, &opened.damage));
            // Reading gives exactly what the error says is intact, and then meets the same damage.
            if let (Ok(mut reader), Some(damage)) = (engine.reader(&id("s")), &error.damage) {
                let mut read = Vec::new();
                let end = loop {
                    match reader.next_page(ReadLimit { events: 4, bytes: 1 << 20 }) {
                        Ok(page) if page.items.is_empty() => panic!("read through damage: {error}"),
                        Ok(page) => read.extend(page.items.iter().flat_map(|item| item.events())),
                        Err(error) => break error,
                    }
                };
                assert_eq!(read.len() as u64, damage.intact_before, "{error} / {end}");
                assert_eq!(lines(&read), lines(&expected(damage.intact_before)));
                assert_eq!((end.kind, class(&end)), (error.kind, damage.class), "{error} / {end}");
            }
            Err(error)
        }
        (check, opened) => panic!("verify and open disagree: {check:?} {opened:?}"),
    }
}

fn class(error: &BackendError) -> DamageClass {
    error.damage.as_ref().unwrap_or_else(|| panic!("no damage: {error}")).class
}

fn bystander_is_sound(root: &Path) {
    let engine = options().open(root).unwrap();
    assert_eq!(lines(&events(&engine, "bystander")), lines(&expected(4)));
    assert_eq!(engine.verify(&id("bystander")).status, CheckStatus::Ok);
}

#[test]
fn r1_truncating_the_newest_journal_anywhere_keeps_exactly_the_whole_records() {
    let home = tempfile::tempdir().unwrap();
    let original = home.path().join("original");
    let total = sample(&original);
    let newest = journals(&session(&original)).pop().unwrap();
    let bytes = fs::read(&newest).unwrap();
    let mut seen = Vec::new();
    for length in 0..=bytes.len() {
        let root = home.path().join("copy");
        let _ = fs::remove_dir_all(&root);
        copy_tree(&original, &root);
        let path = session(&root).join(newest.file_name().unwrap());
        fs::write(&path, &bytes[..length]).unwrap();
        let survived = look(&root).unwrap_or_else(|error| panic!("cut at {length}: {error}"));
        seen.push(survived);

        let engine = options().open(&root).unwrap();
        let before = engine.open_session(&id("s")).unwrap().torn;
        let taken = engine.take_over(&id("s")).unwrap();
        assert_eq!(taken.head.next_seq, survived, "cut at {length}");
        assert_eq!(taken.torn.is_some(), before.is_some());
        if let Some(torn) = &taken.torn {
            let kept = fs::read(torn.kept.as_ref().unwrap()).unwrap();
            assert_eq!(kept, bytes[usize::try_from(torn.offset).unwrap()..length], "cut at {length}");
            assert_eq!(torn.bytes, kept.len() as u64);
        }
        let head = append(&engine, "s", &taken.head, survived + 5);
        engine.release(&id("s"), head.epoch).unwrap();
        assert_eq!(look(&root).unwrap(), survived + 5, "cut at {length}");
        assert_eq!(engine.verify(&id("s")).status, CheckStatus::Ok);
    }
    assert_eq!(seen.last(), Some(&total));
    seen.dedup();
    assert!(seen.len() > 2 && seen.is_sorted(), "{seen:?}");
}

#[test]
fn a_session_of_one_journal_survives_any_cut_as_well() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("store");
    let engine = Engine::open(&root).unwrap();
    let head = create(&engine, "s", 3);
    let head = append(&engine, "s", &head, 7);
    engine.release(&id("s"), head.epoch).unwrap();
    let path = journals(&session(&root)).pop().unwrap();
    let bytes = fs::read(&path).unwrap();
    for length in (0..bytes.len()).rev() {
        fs::write(&path, &bytes[..length]).unwrap();
        let survived = look(&root).unwrap();
        assert!(matches!(survived, 0 | 3), "{survived}");
    }
    let taken = engine.take_over(&id("s")).unwrap();
    assert_eq!(taken.head.next_seq, 0);
    append(&engine, "s", &taken.head, 2);
    assert_eq!(look(&root).unwrap(), 2);
}

#[test]
fn r4_flipping_any_bit_of_any_file_is_found_or_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("store");
    let total = sample(&root);
    let newest = journals(&session(&root)).pop().unwrap();
    let (mut found, mut torn, mut same) = (0, 0, 0);
    for path in segment_common::files_below(&root) {
        if path.to_string_lossy().contains("bystander") {
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        for index in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[index] ^= 1 << (index % 8);
            fs::write(&path, &flipped).unwrap();
            let context = format!("{} byte {index}", path.display());
            match look(&root) {
                Ok(events) if events == total => {
                    let counts = path.extension().is_some_and(|extension| extension == "log") && path == newest;
                    assert!(!counts, "{context}: nothing was noticed");
                    same += 1;
                }
                // The last append of the newest journal looks as if it had never been finished.
                Ok(_) => {
                    assert_eq!(path, newest, "{context}");
                    torn += 1;
                }
                Err(error) => {
                    assert!(matches!(error.kind, ErrorKind::Damaged | ErrorKind::Unsupported), "{context}: {error}");
                    assert!(error.file.is_some(), "{context}: {error}");
                    let engine = options().open(&root);
                    if let Ok(engine) = engine {
                        assert!(engine.take_over(&id("s")).is_err(), "{context}: taken over");
                        bystander_is_sound(&root);
                    }
                    found += 1;
                }
            }
        }
        fs::write(&path, &bytes).unwrap();
    }
    assert_eq!(look(&root).unwrap(), total);
    println!("{found} refused, {torn} torn, {same} of no consequence");
    assert!(found > 1500 && torn > 20);
}

#[test]
fn each_kind_of_damage_has_its_class_and_place() {
    let home = tempfile::tempdir().unwrap();
    let original = home.path().join("original");
    sample(&original);
    let names: Vec<PathBuf> =
        journals(&session(&original)).iter().map(|path| PathBuf::from(path.file_name().unwrap())).collect();
    assert!(names.len() >= 4, "{names:?}");
    let last = names.last().unwrap();
    let case = |what: &str, expected: &[DamageClass], change: &dyn Fn(&Path)| {
        let root = home.path().join("copy");
        let _ = fs::remove_dir_all(&root);
        copy_tree(&original, &root);
        change(&session(&root));
        let error = look(&root).expect_err(what);
        assert!(expected.contains(&class(&error)), "{what}: {error}");
        assert!(error.session.is_some() && error.file.is_some(), "{what}: {error}");
        let engine = options().open(&root).unwrap();
        assert!(engine.take_over(&id("s")).is_err(), "{what}");
        bystander_is_sound(&root);
    };
    let zero = |path: PathBuf, range: std::ops::Range<usize>| {
        let mut bytes = fs::read(&path).unwrap();
        bytes[range].fill(0);
        fs::write(path, bytes).unwrap();
    };
    case("zeros before later records", &[DamageClass::NulHole], &|s| zero(s.join(&names[0]), 96..140));
    case("zeros for a header", &[DamageClass::NulHole], &|s| zero(s.join(&names[1]), 0..96));
    case("a first journal removed", &[DamageClass::Gap], &|s| fs::remove_file(s.join(&names[0])).unwrap());
    case("a middle journal removed", &[DamageClass::Gap], &|s| fs::remove_file(s.join(&names[1])).unwrap());
    case("the newest journal removed", &[DamageClass::Gap], &|s| fs::remove_file(s.join(last)).unwrap());
    case("all journals removed", &[DamageClass::Gap], &|s| {
        for name in &names {
            fs::remove_file(s.join(name)).unwrap();
        }
    });
    case("an older journal cut", &[DamageClass::Gap], &|s| {
        let bytes = fs::read(s.join(&names[1])).unwrap();
        fs::write(s.join(&names[1]), &bytes[..bytes.len() * 2 / 3]).unwrap();
    });
    case("an older journal cut in its header", &[DamageClass::Gap], &|s| {
        fs::write(s.join(&names[1]), b"slogJ").unwrap();
    });
    case("an older journal emptied", &[DamageClass::Gap], &|s| fs::write(s.join(&names[0]), b"").unwrap());
    case("two journals swapped", &[DamageClass::IdentityMismatch], &|s| {
        fs::rename(s.join(&names[1]), s.join("x")).unwrap();
        fs::rename(s.join(&names[2]), s.join(&names[1])).unwrap();
        fs::rename(s.join("x"), s.join(&names[2])).unwrap();
    });
    case("a journal copied to a later name", &[DamageClass::IdentityMismatch], &|s| {
        fs::copy(s.join(last), s.join("00000000000000000099.log")).unwrap();
    });
    case("a journal of another session", &[DamageClass::IdentityMismatch], &|s| {
        let other = s.with_file_name("bystander").join(&names[0]);
        fs::copy(other, s.join(&names[0])).unwrap();
    });
    case("a header of another session", &[DamageClass::IdentityMismatch], &|s| {
        fs::copy(s.with_file_name("bystander").join("header"), s.join("header")).unwrap();
    });
    case("no header", &[DamageClass::BadHeader], &|s| fs::remove_file(s.join("header")).unwrap());
    case("an empty header", &[DamageClass::BadHeader], &|s| fs::write(s.join("header"), b"").unwrap());
    case("a foreign file for a journal", &[DamageClass::BadHeader], &|s| fs::write(s.join(last), [b'x'; 500]).unwrap());
    case("a directory for a journal", &[DamageClass::WrongFileType], &|s| {
        fs::remove_file(s.join(last)).unwrap();
        fs::create_dir(s.join(last)).unwrap();
    });
    case("a link for a journal", &[DamageClass::WrongFileType], &|s| {
        fs::rename(s.join(last), s.join("elsewhere")).unwrap();
        symlink("elsewhere", s.join(last)).unwrap();
    });
    case("a fifo for the header", &[DamageClass::WrongFileType], &|s| {
        fs::remove_file(s.join("header")).unwrap();
        fifo(&s.join("header"));
    });
    case("a fifo for a journal", &[DamageClass::WrongFileType], &|s| {
        fs::remove_file(s.join(&names[0])).unwrap();
        fifo(&s.join(&names[0]));
    });
    case("a record repeated", &[DamageClass::Checksum], &|s| {
        let mut bytes = fs::read(s.join(&names[0])).unwrap();
        let tail = bytes[96..].to_vec();
        bytes.splice(96..96, tail[..10].to_vec());
        fs::write(s.join(&names[0]), bytes).unwrap();
    });
    case("a foreign file for a sealed segment", &[DamageClass::BadHeader], &|s| {
        fs::write(s.join("00000000000000000000.seg"), b"later").unwrap();
    });
}

fn fifo(path: &Path) {
    let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the path is a valid C string for the duration of the call.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
}

#[test]
fn r1_what_a_crash_leaves_behind_the_last_record_is_torn_and_not_damage() {
    let home = tempfile::tempdir().unwrap();
    let original = home.path().join("original");
    let total = sample(&original);
    let newest = journals(&session(&original)).pop().unwrap();
    let bytes = fs::read(&newest).unwrap();
    let mut remains: Vec<Vec<u8>> = vec![vec![0; 1], vec![0; 15], vec![0; 5000], vec![0; 600_000], vec![0xff; 300]];
    // A record of another journal, and bytes of this one out of place.
    remains.push(fs::read(&journals(&session(&original))[0]).unwrap());
    remains.push(bytes.clone());
    for remain in remains {
        let root = home.path().join("copy");
        let _ = fs::remove_dir_all(&root);
        copy_tree(&original, &root);
        let path = session(&root).join(newest.file_name().unwrap());
        fs::write(&path, [bytes.as_slice(), &remain].concat()).unwrap();
        assert_eq!(look(&root).unwrap(), total);
        let engine = options().open(&root).unwrap();
        let taken = engine.take_over(&id("s")).unwrap();
        assert_eq!(taken.torn.unwrap().bytes, remain.len() as u64);
        append(&engine, "s", &taken.head, total + 1);
        assert_eq!(look(&root).unwrap(), total + 1);
    }
}

#[test]
fn hostile_entries_cost_one_line_of_a_listing_each_and_are_never_removed() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("store");
    sample(&root);
    let sessions = root.join("sessions");
    fs::write(sessions.join("file"), b"").unwrap();
    fs::create_dir(sessions.join("empty")).unwrap();
    fs::create_dir(sessions.join("Upper")).unwrap();
    symlink("s", sessions.join("link")).unwrap();
    fifo(&sessions.join("fifo"));
    copy_tree(&sessions.join("s"), &sessions.join("copy"));
    fs::create_dir(sessions.join("%zz")).unwrap();
    let engine = options().open(&root).unwrap();
    let listing = engine.list(None, 100).unwrap();
    let mut shown: Vec<(String, Option<DamageClass>)> =
        listing.entries.iter().map(|entry| (entry.name.clone(), entry.header.as_ref().err().map(class))).collect();
    shown.sort_by(|a, b| a.0.cmp(&b.0));
    let wrong = Some(DamageClass::WrongFileType);
    let bad = Some(DamageClass::BadHeader);
    let wanted = [
        ("%zz", bad),
        ("Upper", bad),
        ("bystander", None),
        ("copy", Some(DamageClass::IdentityMismatch)),
        ("empty", bad),
        ("fifo", wrong),
        ("file", wrong),
        ("link", wrong),
        ("s", None),
    ];
    assert_eq!(shown, wanted.map(|(name, class)| (name.to_owned(), class)));
    for name in ["file", "empty", "link", "fifo", "copy"] {
        let result = engine.append(&id(name), Some(&header(name)), Expected::ABSENT, &batch(0, 1));
        assert!(matches!(result, Err(AppendError::Failed(error)) if error.kind == ErrorKind::Damaged), "{name}");
        assert!(engine.take_over(&id(name)).is_err(), "{name}");
        assert!(engine.open_session(&id(name)).is_err(), "{name}");
        assert!(fs::symlink_metadata(sessions.join(name)).is_ok(), "{name} was removed");
    }
    assert_eq!(engine.delete(&id("copy")).unwrap_err().kind, ErrorKind::Damaged);
    assert_eq!(engine.delete(&id("link")).unwrap_err().kind, ErrorKind::Damaged);
    assert_eq!(engine.list(None, 100).unwrap().entries.len(), 9);
}

#[test]
fn hostile_ids_stay_inside_the_store_and_come_back() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("store");
    let engine = Engine::open(&root).unwrap();
    let long = "l".repeat(1024);
    let ids = ["../../x", "a\0b", "CON", "con", "Con", "/etc/passwd", ".", "..", "a ", "a.", &long, "\u{202e}x", "%41"];
    for name in ids {
        let head = create(&engine, name, 3);
        append(&engine, name, &head, 5);
        assert_eq!(lines(&events(&engine, name)), lines(&expected(5)));
    }
    let mut listed: Vec<String> = engine.list(None, 100).unwrap().entries.into_iter().map(|entry| entry.name).collect();
    let mut wanted: Vec<String> = ids.map(str::to_owned).to_vec();
    listed.sort();
    wanted.sort();
    assert_eq!(listed, wanted);
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    for name in ids {
        let head = engine.head(&id(name)).unwrap();
        engine.release(&id(name), head.epoch).unwrap();
        engine.delete(&id(name)).unwrap();
    }
    assert_eq!(fs::read_dir(root.join("sessions")).unwrap().count(), 0);
}

#[test]
fn n2_a_session_or_store_of_a_newer_version_is_unsupported_and_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("store");
    sample(&root);
    let path = root.join("STORE");
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] = 2;
    let checked = bytes.len() - 4;
    let checksum = crc32fast::hash(&bytes[..checked]);
    bytes[checked..].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    assert_eq!(options().open(&root).unwrap_err().kind, ErrorKind::Unsupported);
    fs::remove_file(&path).unwrap();

    let path = session(&root).join("header");
    let mut bytes = fs::read(&path).unwrap();
    let text = String::from_utf8(bytes.split_off(20)).unwrap().replace("\"version\":1", "\"version\":2");
    let mut file = bytes[..16].to_vec();
    file.extend_from_slice(&{
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes[..16]);
        hasher.update(text.as_bytes());
        hasher.finalize().to_le_bytes()
    });
    file.extend_from_slice(text.as_bytes());
    fs::write(&path, file).unwrap();
    let engine = options().open(&root).unwrap();
    let error = engine.open_session(&id("s")).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(error.to_string().contains("newer version") && error.file.is_some(), "{error}");
    assert_eq!(engine.take_over(&id("s")).unwrap_err().kind, ErrorKind::Unsupported);
    assert_eq!(engine.verify(&id("s")).status, CheckStatus::Unsupported);
    bystander_is_sound(&root);
}
