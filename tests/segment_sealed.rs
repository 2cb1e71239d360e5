//! Sealed segments: reading, sealing, merging, resuming.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::case_sensitive_file_extension_comparisons,
    reason = "seqs and names are small and known"
)]

mod segment_common;

use std::fs;
use std::path::{Path, PathBuf};

use segment_common::{append, batch, create, events, expected, files_below, header, id, journals, lines, try_events};
use sessionlog::backend::{DamageClass, ErrorKind, Expected, ReadLimit};
use sessionlog::segment::{CheckStatus, Engine, EngineOptions, Reader, SealOptions};

fn options() -> EngineOptions {
    EngineOptions::new().rotate_at(900).background_sealing(false)
}

fn segments(session: &Path) -> Vec<PathBuf> {
    let mut found = files_below(session);
    found.retain(|path| path.extension().is_some_and(|extension| extension == "seg"));
    found
}

fn session(root: &Path) -> PathBuf {
    root.join("sessions/s")
}

/// Takes the session over and appends up to `to` in pieces.
fn go_on(engine: &Engine, to: u64) {
    let mut head = engine.take_over(&id("s")).unwrap().head;
    while head.next_seq < to {
        head = append(engine, "s", &head, to.min(head.next_seq + 4));
    }
    engine.release(&id("s"), head.epoch).unwrap();
}

fn written(root: &Path, to: u64) -> Engine {
    let engine = options().open(root).unwrap();
    let head = create(&engine, "s", 3);
    engine.release(&id("s"), head.epoch).unwrap();
    go_on(&engine, to);
    engine
}

fn seal(engine: &Engine) {
    let sealed = engine.seal(&id("s"), SealOptions::new()).unwrap();
    assert_eq!(sealed.after, engine.stored_bytes(&id("s")).unwrap());
}

fn assert_holds(engine: &Engine, count: u64) {
    let check = engine.verify(&id("s"));
    assert_eq!((check.status, check.events), (CheckStatus::Ok, count), "{:?}", check.error);
    assert_eq!(engine.open_session(&id("s")).unwrap().head.next_seq, count);
    assert_eq!(lines(&events(engine, "s")), lines(&expected(count)));
    for from in 0..=count {
        let page = engine.read(&id("s"), from, ReadLimit { events: 3, bytes: 1 << 20 }).unwrap();
        let read: Vec<_> = page.items.iter().flat_map(|item| item.events()).collect();
        let to = count.min(from + 3) as usize;
        assert_eq!(lines(&read), lines(&expected(count)[from as usize..to]));
        assert_eq!(page.next, (to < count as usize).then_some(to as u64));
    }
}

#[test]
fn e1_a_sealed_session_reads_as_before_and_is_written_on() {
    let home = tempfile::tempdir().unwrap();
    let engine = written(home.path(), 60);
    assert!(journals(&session(home.path())).len() > 2);
    seal(&engine);
    assert_eq!((journals(&session(home.path())).len(), segments(&session(home.path())).len()), (0, 1));
    assert_holds(&engine, 60);
    let epoch = engine.head(&id("s")).unwrap().epoch;
    go_on(&engine, 80);
    assert_holds(&engine, 80);
    assert_eq!(engine.head(&id("s")).unwrap().epoch, epoch + 1);
    seal(&engine);
    assert_eq!((journals(&session(home.path())).len(), segments(&session(home.path())).len()), (0, 1), "merged");
    assert_holds(&engine, 80);
    assert_holds(&options().open(home.path()).unwrap(), 80);
    let again = engine.seal(&id("s"), SealOptions::new()).unwrap();
    assert_eq!(again.before, again.after);
    engine.delete(&id("s")).unwrap();
    assert_eq!(engine.open_session(&id("s")).unwrap_err().kind, ErrorKind::NotFound);
}

#[test]
fn o1_a_live_session_is_not_sealed_by_others() {
    let home = tempfile::tempdir().unwrap();
    let engine = written(home.path(), 20);
    let head = engine.take_over(&id("s")).unwrap().head;
    assert_eq!(engine.seal(&id("s"), SealOptions::new()).unwrap_err().kind, ErrorKind::Busy);
    let other = options().open(home.path()).unwrap();
    assert_eq!(other.seal(&id("s"), SealOptions::new()).unwrap_err().kind, ErrorKind::Busy);
    append(&engine, "s", &head, 22);
}

#[test]
fn o2_a_paused_writer_notices_that_its_session_was_sealed() {
    let home = tempfile::tempdir().unwrap();
    let engine = written(home.path(), 20);
    let head = engine.take_over(&id("s")).unwrap().head;
    let head = append(&engine, "s", &head, 22);
    // Somebody removes the lock, so that another process takes the session.
    fs::remove_file(session(home.path()).join("lock")).unwrap();
    let other = options().open(home.path()).unwrap();
    other.seal(&id("s"), SealOptions::new()).unwrap();
    let late = Expected { epoch: head.epoch, next_seq: head.next_seq };
    assert!(engine.append(&id("s"), None, late, &batch(22, 23)).is_err());
    assert_holds(&other, 22);
}

#[test]
fn a_revision_outlives_sealing_and_changes_with_the_log() {
    let home = tempfile::tempdir().unwrap();
    let engine = written(home.path(), 30);
    seal(&engine);
    let sealed = engine.revision(&id("s")).unwrap();
    assert_eq!(engine.open_session(&id("s")).unwrap().head.revision, sealed);
    go_on(&engine, 31);
    let grown = engine.revision(&id("s")).unwrap();
    assert_ne!(grown, sealed);
    assert_eq!(engine.open_session(&id("s")).unwrap().head.revision, grown);
}

#[test]
fn a_reader_survives_sealing_by_looking_again() {
    let home = tempfile::tempdir().unwrap();
    let engine = written(home.path(), 50);
    for stop in 0..50_u64 {
        let mut reader = Reader::open(session(home.path())).unwrap();
        let mut read = Vec::new();
        let mut sealed = false;
        loop {
            let page = reader.next_page(ReadLimit { events: 1, bytes: 1 }).unwrap();
            if page.items.is_empty() {
                break;
            }
            read.extend(page.items.iter().flat_map(|item| item.events()));
            if read.len() as u64 > stop && !sealed {
                sealed = true;
                if stop % 2 == 0 {
                    seal(&engine);
                } else {
                    go_on(&engine, 50 + stop);
                }
            }
        }
        let count = engine.head(&id("s")).unwrap().next_seq;
        assert_eq!(lines(&read), lines(&expected(count)));
    }
}

#[test]
fn background_sealing_follows_rotation_and_the_session_s_end() {
    let home = tempfile::tempdir().unwrap();
    let engine = EngineOptions::new().rotate_at(900).open(home.path()).unwrap();
    let mut head = create(&engine, "s", 3);
    while head.next_seq < 400 {
        head = append(&engine, "s", &head, head.next_seq + 4);
    }
    assert_eq!(lines(&events(&engine, "s")), lines(&expected(head.next_seq)));
    engine.finish_sealing();
    assert!(
        journals(&session(home.path())).len() <= 2,
        "the one being written, and one too small to be sealed by itself"
    );
    assert!(!segments(&session(home.path())).is_empty());
    assert_holds(&engine, head.next_seq);
    head = append(&engine, "s", &head, head.next_seq + 1);
    engine.release(&id("s"), head.epoch).unwrap();
    engine.finish_sealing();
    assert!(engine.sealing_failures().is_empty());
    assert!(journals(&session(home.path())).len() <= 1);
    assert_holds(&engine, head.next_seq);
    seal(&engine);
    assert_eq!(segments(&session(home.path())).len(), 1);
    assert_holds(&engine, head.next_seq);
}

/// Damage must be told as such, with what comes before it intact; everything else must read as it was written.
fn typed_or_whole(engine: &Engine, count: u64, what: &str) -> Option<DamageClass> {
    match try_events(engine, "s") {
        Ok(found) => assert_eq!(lines(&found), lines(&expected(count)), "{what}"),
        Err(error) => assert!(matches!(error.kind, ErrorKind::Damaged | ErrorKind::Unsupported), "{what}: {error}"),
    }
    let check = engine.verify(&id("s"));
    let error = check.error?;
    let damage = error.damage.clone().unwrap_or_else(|| panic!("{what}: {error}"));
    assert!(error.file.is_some(), "{what}");
    let mut reader = Reader::open(engine.locate(&id("s"))).unwrap();
    let mut read = 0;
    while let Ok(page) = reader.next_page(ReadLimit { events: 1, bytes: 1 }) {
        if page.items.is_empty() {
            break;
        }
        read = reader.position();
    }
    assert!(read >= damage.intact_before, "{what}: {read} events were read, {damage:?}");
    Some(damage.class)
}

#[test]
fn r3_every_flipped_byte_and_every_cut_of_a_segment_is_told() {
    let home = tempfile::tempdir().unwrap();
    let engine = written(home.path(), 40);
    create(&engine, "bystander", 5);
    seal(&engine);
    go_on(&engine, 44);
    let path = segments(&session(home.path())).pop().unwrap();
    let bytes = fs::read(&path).unwrap();
    for at in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 1 << (at % 8);
        fs::write(&path, &bad).unwrap();
        assert!(typed_or_whole(&engine, 44, &format!("byte {at}")).is_some(), "byte {at} is not missed");
    }
    for length in (0..bytes.len()).step_by(7).chain([bytes.len() - 1]) {
        fs::write(&path, &bytes[..length]).unwrap();
        assert!(typed_or_whole(&engine, 44, &format!("cut at {length}")).is_some());
        assert!(engine.take_over(&id("s")).is_err());
    }
    fs::write(&path, &bytes).unwrap();
    assert_holds(&engine, 44);
    assert_eq!(engine.verify(&id("bystander")).status, CheckStatus::Ok);
}

/// What is done to the segment of this index, and how that is told.
type Case<'a> = (&'a str, &'a [DamageClass], usize, Option<Vec<u8>>);

#[test]
fn r4_missing_foreign_and_misplaced_segments_are_classified() {
    let home = tempfile::tempdir().unwrap();
    let engine = EngineOptions::new().rotate_at(900).open(home.path()).unwrap();
    let mut head = create(&engine, "s", 3);
    // Sealed while its writer goes on, each says that another file follows.
    while segments(&session(home.path())).len() < 3 {
        head = append(&engine, "s", &head, head.next_seq + 1);
        engine.finish_sealing();
    }
    // A writer that ends without closing the session leaves the rest in its journal.
    drop(engine);
    let engine = options().open(home.path()).unwrap();
    let count = head.next_seq;
    assert_holds(&engine, count);
    let all = segments(&session(home.path()));
    assert!(all.len() >= 3, "{all:?}");
    let other = EngineOptions::new().open(home.path()).unwrap();
    let stranger = create(&other, "other", 50);
    other.release(&id("other"), stranger.epoch).unwrap();
    other.seal(&id("other"), SealOptions::new()).unwrap();
    let foreign = fs::read(segments(&other.locate(&id("other"))).pop().unwrap()).unwrap();
    let first = fs::read(&all[0]).unwrap();
    let second = fs::read(&all[1]).unwrap();
    let mut cases: Vec<Case> = vec![
        ("the first is missing", &[DamageClass::Gap], 0, None),
        ("one between is missing", &[DamageClass::Gap], 1, None),
        ("the last is missing", &[DamageClass::Gap, DamageClass::IdentityMismatch], all.len() - 1, None),
        ("another session's", &[DamageClass::IdentityMismatch], 0, Some(foreign)),
        ("one in another's place", &[DamageClass::IdentityMismatch], 0, Some(second)),
        ("zeros", &[DamageClass::NulHole], 1, Some(vec![0; 500])),
        ("something else", &[DamageClass::BadHeader], 1, Some(vec![7; 500])),
        ("a cut header", &[DamageClass::Gap], 1, Some(first[..50].to_vec())),
    ];
    let mut newer = first[..96].to_vec();
    newer[8] = 3;
    newer.truncate(92);
    newer.extend_from_slice(&crc32fast::hash(&newer).to_le_bytes());
    cases.push(("a later version", &[DamageClass::ForeignVersion], 0, Some(newer)));
    for (what, classes, index, bytes) in cases {
        let original = fs::read(&all[index]).unwrap();
        match bytes {
            Some(bytes) => fs::write(&all[index], bytes).unwrap(),
            None => fs::remove_file(&all[index]).unwrap(),
        }
        let class = typed_or_whole(&engine, count, what);
        assert!(class.is_some_and(|class| classes.contains(&class)), "{what}: {class:?}");
        assert!(engine.take_over(&id("s")).is_err(), "{what}");
        assert!(engine.seal(&id("s"), SealOptions::new()).is_err(), "{what}");
        fs::write(&all[index], original).unwrap();
    }
    let journal = journals(&session(home.path())).pop().unwrap();
    let bytes = fs::read(&journal).unwrap();
    fs::remove_file(&journal).unwrap();
    assert_eq!(typed_or_whole(&engine, count, "no journal"), Some(DamageClass::Gap));
    fs::write(&journal, bytes).unwrap();
    assert_holds(&engine, count);
}

#[test]
fn leftovers_of_a_stopped_sealing_count_no_more_and_the_next_writer_removes_them() {
    let home = tempfile::tempdir().unwrap();
    let engine = written(home.path(), 40);
    let old: Vec<(PathBuf, Vec<u8>)> =
        journals(&session(home.path())).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    seal(&engine);
    let small = segments(&session(home.path())).pop().unwrap();
    go_on(&engine, 50);
    let grown = fs::read(&small).unwrap();
    let tail = journals(&session(home.path())).pop().unwrap();
    let tail = (tail.clone(), fs::read(tail).unwrap());
    for keep in 0..1_u32 << old.len().min(4) {
        for (index, (path, bytes)) in old.iter().enumerate() {
            if keep >> (index % 4) & 1 == 1 {
                fs::write(path, bytes).unwrap();
            }
        }
        assert_holds(&engine, 50);
    }
    seal(&engine);
    assert_holds(&engine, 50);
    assert!(journals(&session(home.path())).is_empty());
    // The merged segment and one of those it was made of, under a later name.
    fs::write(&tail.0, &tail.1).unwrap();
    assert_holds(&engine, 50);
    assert_ne!(fs::read(&small).unwrap(), grown);
    go_on(&engine, 55);
    assert!(!tail.0.exists());
    assert_holds(&engine, 55);
}

#[test]
fn a_session_without_events_has_nothing_to_seal() {
    let home = tempfile::tempdir().unwrap();
    let engine = options().open(home.path()).unwrap();
    engine.create_whole::<sessionlog::backend::BackendError>(&header("s"), || Ok(None)).unwrap();
    let sealed = engine.seal(&id("s"), SealOptions::new()).unwrap();
    assert_eq!(sealed.before, sealed.after);
    go_on(&engine, 5);
    seal(&engine);
    // Resumed without an append: the journal without records stays, and holds the epoch.
    let head = engine.take_over(&id("s")).unwrap().head;
    engine.release(&id("s"), head.epoch).unwrap();
    seal(&engine);
    assert_eq!(engine.head(&id("s")).unwrap().epoch, head.epoch);
    assert_holds(&engine, 5);
}

/// Writes another version into a file whose checksum over the first `length` bytes stands behind them.
fn reversion(path: &Path, version: u8, length: usize) -> Vec<u8> {
    let original = fs::read(path).unwrap();
    let mut bytes = original.clone();
    bytes[8] = version;
    let checksum = crc32fast::hash(&bytes[..length]);
    bytes[length..length + 4].copy_from_slice(&checksum.to_le_bytes());
    fs::write(path, bytes).unwrap();
    original
}

#[test]
fn n2_foreign_versions_are_refused_with_the_way_out_and_touched_by_nobody() {
    let home = tempfile::tempdir().unwrap();
    let engine = written(home.path(), 40);
    seal(&engine);
    go_on(&engine, 44);
    let segment = segments(&session(home.path())).pop().unwrap();
    let journal = journals(&session(home.path())).pop().unwrap();
    let store = home.path().join("STORE");
    let cases = [
        (&store, 0, 32, &["older", "export", "import"][..]),
        (&store, 9, 32, &["newer", "upgrade"]),
        (&segment, 1, 92, &["older", "export", "import"]),
        (&segment, 9, 92, &["newer", "upgrade"]),
        (&journal, 9, 92, &["newer", "upgrade"]),
    ];
    for (path, version, length, words) in cases {
        let original = reversion(path, version, length);
        let planted = fs::read(path).unwrap();
        let what = format!("version {version} of {}", path.display());
        let error = match options().open(home.path()) {
            Err(error) => error,
            Ok(engine) => {
                let error = engine.open_session(&id("s")).unwrap_err();
                assert_eq!(engine.verify(&id("s")).status, CheckStatus::Unsupported, "{what}");
                for refused in [
                    engine.take_over(&id("s")).map(drop),
                    engine.seal(&id("s"), SealOptions::new()).map(drop),
                    engine.rebuild_derived(&id("s")).map(drop),
                    try_events(&engine, "s").map(drop),
                ] {
                    assert_eq!(refused.unwrap_err().kind, ErrorKind::Unsupported, "{what}");
                }
                error
            }
        };
        assert_eq!(error.kind, ErrorKind::Unsupported, "{what}: {error}");
        assert_eq!(error.damage.as_ref().unwrap().class, DamageClass::ForeignVersion, "{what}");
        assert_eq!(error.file.as_ref(), Some(path), "{what}");
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{what}: {error}");
        assert!(fs::read(path).unwrap() == planted, "{what}");
        fs::write(path, original).unwrap();
    }
    assert_holds(&options().open(home.path()).unwrap(), 44);
}

#[test]
fn a_reader_goes_on_when_what_it_reads_is_joined_with_what_follows_under_the_same_name() {
    let home = tempfile::tempdir().unwrap();
    let engine = EngineOptions::new().background_sealing(false).open(home.path()).unwrap();
    let head = create(&engine, "s", 20);
    engine.release(&id("s"), head.epoch).unwrap();
    engine.seal(&id("s"), SealOptions::new()).unwrap();
    let mut reader = engine.reader(&id("s")).unwrap();
    let mut read = Vec::new();
    for next in [40, 60] {
        let head = engine.take_over(&id("s")).unwrap().head;
        let head = append(&engine, "s", &head, next);
        let page = reader.next_page(ReadLimit { events: 15, bytes: usize::MAX }).unwrap();
        read.extend(page.items.iter().flat_map(|item| item.events()));
        engine.release(&id("s"), head.epoch).unwrap();
        engine.seal(&id("s"), SealOptions::new()).unwrap();
    }
    while let Some(page) = Some(reader.next_page(ReadLimit::default()).unwrap()).filter(|page| !page.items.is_empty()) {
        read.extend(page.items.iter().flat_map(|item| item.events()));
    }
    assert_eq!(lines(&read), lines(&expected(60)));
}
