//! Real processes in each other's way: fresh stores, copies of a process, stolen locks, reused process ids, stopped writers, and
//! limits that the system sets.
#![cfg(all(unix, feature = "store"))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod process_common;
mod segment_common;

use std::fs;
use std::path::Path;
use std::time::Duration;

use process_common::{Child, report, seed_of_child, store_of_child, wait_for_parent};
use segment_common::{append, batch, create, events, expected, header, id, lines};
use sessionlog::backend::{AppendError, ErrorKind, Expected};
use sessionlog::segment::{CheckStatus, Engine, EngineOptions};

fn open(directory: &Path) -> Engine {
    EngineOptions::new().rotate_at(4000).open(directory).unwrap()
}

fn whole(directory: &Path, name: &str, at_least: u64) -> u64 {
    let engine = open(directory);
    let check = engine.verify(&id(name));
    assert!(matches!(check.status, CheckStatus::Ok | CheckStatus::Torn), "{:?}", check.error);
    assert!(check.events >= at_least, "{} of {at_least}", check.events);
    assert_eq!(lines(&events(&engine, name)), lines(&expected(check.events)));
    check.events
}

/// Child: creates a session of its own and one that all want, in a store that may not exist yet.
#[test]
fn child_on_a_fresh_store() {
    let Some(directory) = store_of_child() else { return };
    report("ready");
    wait_for_parent();
    let engine = open(&directory);
    let own = format!("own-{}", seed_of_child());
    let head = create(&engine, &own, 3);
    engine.release(&id(&own), head.epoch).unwrap();
    let won = match engine.append(&id("shared"), Some(&header("shared")), Expected::ABSENT, &batch(0, 5)) {
        Ok(head) => {
            engine.release(&id("shared"), head.epoch).unwrap();
            true
        }
        Err(AppendError::Conflict { .. }) => false,
        Err(error) => panic!("{error}"),
    };
    report(if won { "won" } else { "lost" });
}

#[test]
fn k1_eight_processes_on_twenty_fresh_stores_make_one_store_and_one_winner_each_time() {
    let home = tempfile::tempdir().unwrap();
    for round in 0..20 {
        let directory = home.path().join(format!("round-{round}/deeper/store"));
        fs::create_dir(home.path().join(format!("round-{round}"))).unwrap();
        let place = home.path().join(format!("round-{round}/deeper"));
        fs::create_dir(&place).unwrap();
        let mut children: Vec<Child> =
            (0..8).map(|number| Child::start("child_on_a_fresh_store", &directory, number)).collect();
        children.iter_mut().for_each(|child| assert_eq!(child.report().unwrap(), ["ready"]));
        children.iter_mut().for_each(Child::release);
        let results: Vec<Vec<String>> = children
            .iter_mut()
            .map(|child| child.report().unwrap_or_else(|| panic!("round {round}: {}", child.complaints())))
            .collect();
        assert_eq!(results.iter().filter(|result| **result == ["won"]).count(), 1, "round {round}: {results:?}");
        let engine = open(&directory);
        assert_eq!(engine.list(None, 100).unwrap().entries.len(), 9, "round {round}");
        whole(&directory, "shared", 5);
        for number in 0..8 {
            whole(&directory, &format!("own-{number}"), 3);
        }
    }
}

/// Child: owns the session and appends an event whenever it is asked to.
#[test]
fn child_that_writes_on() {
    let Some(directory) = store_of_child() else { return };
    let engine = open(&directory);
    let mut head = match engine.take_over(&id("s")) {
        Ok(taken) => taken.head,
        Err(error) if error.kind == ErrorKind::NotFound => create(&engine, "s", 2),
        Err(error) => panic!("{error}"),
    };
    report(&format!("owns {}", head.next_seq));
    loop {
        let next = head.next_seq + 1;
        let expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
        match engine.append(&id("s"), None, expected, &batch(head.next_seq, next)) {
            Ok(new) => head = new,
            Err(error) => {
                report(&format!("refused {}", error.into_backend(&id("s")).kind));
                return;
            }
        }
        report(&format!("wrote {}", head.next_seq));
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn number(words: &[String]) -> u64 {
    words[1].parse().unwrap()
}

#[test]
fn k2_a_stopped_writer_keeps_the_session_and_goes_on_when_it_is_continued() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("store");
    let mut child = Child::start("child_that_writes_on", &directory, 0);
    (0..4).for_each(|_| drop(child.report().unwrap()));
    child.signal(libc::SIGSTOP);
    let engine = open(&directory);
    let error = engine.take_over(&id("s")).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Busy, "{error}");
    assert_eq!(error.holder.and_then(|holder| holder.pid), Some(child.id()), "the stopped process is named");
    assert_eq!(engine.delete(&id("s")).unwrap_err().kind, ErrorKind::Busy);
    assert_eq!(engine.seal(&id("s"), sessionlog::segment::SealOptions::new()).unwrap_err().kind, ErrorKind::Busy);
    child.signal(libc::SIGCONT);
    let mut last = 0;
    for _ in 0..8 {
        last = number(&child.report().unwrap());
    }
    child.kill();
    whole(&directory, "s", last);
}

#[test]
fn k2_a_stopped_writer_whose_lock_was_stolen_never_writes_again() {
    for replace in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("store");
        let mut first = Child::start("child_that_writes_on", &directory, 0);
        (0..4).for_each(|_| drop(first.report().unwrap()));
        first.signal(libc::SIGSTOP);
        let lock = directory.join("sessions/s/lock");
        fs::remove_file(&lock).unwrap();
        if replace {
            fs::write(&lock, b"").unwrap();
        }
        // Nothing keeps a second writer out now.
        let engine = open(&directory);
        let mut head = engine.take_over(&id("s")).unwrap().head;
        for _ in 0..5 {
            head = append(&engine, "s", &head, head.next_seq + 2);
        }
        first.signal(libc::SIGCONT);
        let mut words = first.report();
        while words.as_ref().is_some_and(|words| words[0] == "wrote") {
            assert!(number(words.as_ref().unwrap()) <= head.next_seq, "written after the session was lost");
            words = first.report();
        }
        assert_eq!(words.unwrap(), ["refused", "lost-ownership"]);
        head = append(&engine, "s", &head, head.next_seq + 2);
        engine.release(&id("s"), head.epoch).unwrap();
        assert_eq!(whole(&directory, "s", head.next_seq), head.next_seq);
    }
}

#[test]
fn k4_a_lock_that_names_a_living_process_binds_nobody_if_the_kernel_does_not() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("store");
    let mut dead = Child::start("child_that_writes_on", &directory, 0);
    let owned = number(&dead.report().unwrap());
    dead.kill();
    // The dead writer's number is now that of a process that has nothing to do with the store: this one.
    let lock = directory.join("sessions/s/lock");
    fs::write(&lock, format!("pid {}\nhost here\nsince 1\n", std::process::id())).unwrap();
    let engine = open(&directory);
    assert!(engine.holder(&id("s")).unwrap().is_none());
    let taken = engine.take_over(&id("s")).unwrap();
    assert!(taken.head.next_seq >= owned);
    for nonsense in [&b""[..], b"pid 99999999999999999999\n", &[0xff; 9000]] {
        fs::write(&lock, nonsense).unwrap();
        let error = open(&directory).take_over(&id("s")).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Busy, "{error}");
    }
}

/// Child: may not make a file larger than some kilobytes.
#[test]
fn child_under_a_file_size_limit() {
    let Some(directory) = store_of_child() else { return };
    let limit = libc::rlimit { rlim_cur: 6000, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: both calls take what they are given; without the signal a write beyond the limit is an error.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
    }
    let engine = EngineOptions::new().background_sealing(false).open(&directory).unwrap();
    let mut head = create(&engine, "s", 2);
    loop {
        let expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
        match engine.append(&id("s"), None, expected, &batch(head.next_seq, head.next_seq + 9)) {
            Ok(new) => head = new,
            Err(error) => {
                report(&format!("full {} {}", head.next_seq, error.into_backend(&id("s")).kind));
                break;
            }
        }
    }
    // The same batch once the limit is gone.
    let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, ..limit };
    // SAFETY: as above.
    unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
    let head = append(&engine, "s", &head, head.next_seq + 9);
    report(&format!("wrote {}", head.next_seq));
}

#[test]
fn c1_a_file_size_limit_is_a_full_disk_and_what_follows_loses_nothing() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("store");
    let mut child = Child::start("child_under_a_file_size_limit", &directory, 0);
    let full = child.report().unwrap_or_else(|| panic!("{}", child.complaints()));
    assert_eq!((full[0].as_str(), full[2].as_str()), ("full", "disk-full"));
    let wrote = child.report().unwrap_or_else(|| panic!("{}", child.complaints()));
    assert_eq!(number(&wrote), number(&full) + 9);
    child.wait();
    assert_eq!(whole(&directory, "s", number(&wrote)), number(&wrote));
}

/// Child, alone with a small file system mounted over the store's directory.
#[test]
fn child_on_a_small_file_system() {
    let Some(directory) = store_of_child() else { return };
    if std::env::var_os(SMALL).is_none() {
        return;
    }
    let engine = EngineOptions::new().rotate_at(20_000).background_sealing(false).open(&directory).unwrap();
    let mut head = create(&engine, "s", 2);
    let mut grow = |to: Option<u64>| loop {
        if to.is_some_and(|to| head.next_seq >= to) {
            return head.next_seq;
        }
        let expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
        match engine.append(&id("s"), None, expected, &batch(head.next_seq, head.next_seq + 40)) {
            Ok(new) => head = new,
            Err(error) => {
                let error = error.into_backend(&id("s"));
                assert_eq!(error.kind, ErrorKind::DiskFull, "{error}");
                return head.next_seq;
            }
        }
    };
    let ballast = directory.join("ballast");
    fs::write(&ballast, vec![7; 150_000]).unwrap();
    let full = grow(None);
    assert!(full > 100, "{full}");
    assert_eq!(engine.seal(&id("s"), sessionlog::segment::SealOptions::new()).unwrap_err().kind, ErrorKind::Busy);
    fs::remove_file(&ballast).unwrap();
    let more = grow(Some(full + 80));
    assert!(more >= full + 80);
    let full = grow(None);
    assert_eq!(lines(&events(&engine, "s")), lines(&expected(full)));
    // Sealing needs room for the segment before it gives any back; without it the journals stay in service.
    engine.release(&id("s"), head.epoch).unwrap();
    let sealed = engine.seal(&id("s"), sessionlog::segment::SealOptions::new().level(1));
    assert!(sealed.as_ref().err().is_none_or(|error| error.kind == ErrorKind::DiskFull), "{sealed:?}");
    whole(&directory, "s", full);
    println!("full at {full} events; sealed: {}", sealed.is_ok());
}

const SMALL: &str = "SESSIONLOG_TEST_SMALL_FILE_SYSTEM";

#[test]
fn c1_a_small_file_system_that_fills_up_loses_nothing_and_goes_on_when_there_is_room() {
    let home = tempfile::tempdir().unwrap();
    let place = home.path().join("mount");
    fs::create_dir(&place).unwrap();
    // A mount of its own that ends with the process; needs no privileges where user namespaces are allowed.
    let script = "mount -t tmpfs -o size=400k tmpfs \"$1\" || exit 77; shift; exec \"$@\"";
    let run = std::process::Command::new("unshare")
        .args(["-rm", "sh", "-c", script, "sh"])
        .arg(&place)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "child_on_a_small_file_system", "--nocapture"])
        .env("SESSIONLOG_TEST_CHILD_STORE", place.join("store"))
        .env(SMALL, "1")
        .output();
    let Ok(output) = run else { return println!("skipped: there is no unshare here") };
    let said = String::from_utf8_lossy(&output.stderr);
    // `unshare` itself fails with 1, a refused mount with 77.
    if output.status.code() == Some(77) || said.contains("unshare:") {
        return println!("skipped: nothing may be mounted here: {said}");
    }
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && out.contains("full at"), "{out}{said}");
}
