//! The catalogue: listings cost a look at the files of unchanged sessions, and never depend on what is cached.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proptest::prelude::*;
use segment_common::{append, create, header, id};
use sessionlog::backend::{Expected, Head, ReadLimit};
use sessionlog::event::{Batch, Event, JsonText, NewEvent};
use sessionlog::segment::files::{Access, File, FileKind, Files, Identity, Operation, SimulatedFiles, Stat};
use sessionlog::segment::{Engine, EngineOptions, SealOptions, Summarised};

const CATALOG: &str = "/store/catalog";

fn open(files: &SimulatedFiles) -> Engine {
    open_over(Arc::new(files.clone()))
}

fn open_over(files: Arc<dyn Files>) -> Engine {
    let options = EngineOptions::new().files(files).rotate_at(600).background_sealing(false);
    options.open(Path::new("/store")).unwrap()
}

/// Files whose clock goes in steps, and of which neither files nor directories can be told apart by their inodes: one that was made anew
/// has its predecessor's.
#[derive(Debug)]
struct Coarse {
    files: SimulatedFiles,
    /// Milliseconds that have passed, and of how many a step is.
    clock: AtomicI64,
    step: i64,
    /// What there is, and when that changed last.
    seen: Mutex<HashMap<PathBuf, (Stat, i64)>>,
}

impl Coarse {
    fn over(files: &SimulatedFiles, step: i64) -> Arc<Self> {
        Arc::new(Self { files: files.clone(), clock: AtomicI64::new(1 << 40), step, seen: Mutex::default() })
    }

    /// Dates what has changed.
    fn date(&self) {
        let mut seen = self.seen.lock().unwrap();
        let now = self.clock.load(Ordering::Relaxed).div_euclid(self.step) * self.step;
        let mut found = HashMap::new();
        let mut below = vec![PathBuf::from("/store")];
        while let Some(path) = below.pop() {
            let Ok(stat) = self.files.stat(&path) else { continue };
            let same = seen.get(&path).filter(|(before, _)| *before == stat);
            found.insert(path.clone(), same.copied().unwrap_or((stat, now)));
            if stat.kind == FileKind::Directory {
                below.extend(self.files.read_directory(&path).unwrap().iter().map(|name| path.join(name)));
            }
        }
        *seen = found;
    }

    /// Dates what has changed, and lets time pass.
    fn pass(&self, milliseconds: i64) {
        self.date();
        self.clock.fetch_add(milliseconds, Ordering::Relaxed);
    }
}

impl Files for Coarse {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn File>> {
        self.files.open(path, access)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.files.create_directory(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.files.remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.files.remove_directory(path)
    }

    fn read_directory(&self, path: &Path) -> io::Result<Vec<String>> {
        self.files.read_directory(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.files.sync_directory(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let stat = self.files.stat(path)?;
        self.date();
        let time = self.seen.lock().unwrap().get(path).map_or(0, |(_, time)| *time);
        let changed = (time.div_euclid(1000), time.rem_euclid(1000) * 1_000_000);
        Ok(Stat { identity: Identity { inode: 7, ..stat.identity }, changed, ..stat })
    }

    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.clock.load(Ordering::Relaxed).cast_unsigned())
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.files.resolve(path)
    }
}

/// A listing as text, errors included.
fn shown(engine: &Engine) -> Vec<String> {
    let line = |entry: Summarised| match entry.summary {
        Ok(summary) => format!("{}: {summary:?}", entry.name),
        Err(error) => format!("{}: {error}", entry.name),
    };
    engine.summaries().unwrap().into_iter().map(line).collect()
}

/// The same without any catalogue.
fn shown_afresh(files: &SimulatedFiles) -> Vec<String> {
    let kept = files.contents(Path::new(CATALOG));
    if kept.is_some() {
        files.overwrite(Path::new(CATALOG), b"no catalogue at all").unwrap();
    }
    let lines = shown(&open(files));
    if let Some(kept) = kept {
        files.overwrite(Path::new(CATALOG), &kept).unwrap();
    }
    lines
}

fn titled(seq: u64, title: &str) -> Event {
    let data = format!(r#"{{"title":"{title}"}}"#);
    NewEvent::named("session/title", JsonText::parse(&data).unwrap()).at(seq, -77)
}

#[test]
fn e3_e4_titles_and_activity_come_from_events_and_unchanged_sessions_are_not_read() {
    let files = SimulatedFiles::new(1);
    let engine = open(&files);
    for number in 0..20 {
        let head = create(&engine, &format!("s{number}"), 5);
        let expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
        let batch = Batch::pack([titled(5, &format!("title {number}"))]).unwrap();
        engine.append(&id(&format!("s{number}")), None, expected, &batch).unwrap();
        engine.release(&id(&format!("s{number}")), head.epoch).unwrap();
    }
    let first = shown(&engine);
    assert_eq!(first.len(), 20);
    assert!(first[0].contains("title 0") && first[0].contains("last_time: Some(-77)"), "{}", first[0]);
    for (engine, reads_allowed) in [(engine, 0), (open(&files), 1)] {
        let before = files.calls_of(Operation::ReadAt);
        assert_eq!(shown(&engine), first);
        assert!(files.calls_of(Operation::ReadAt) - before <= reads_allowed, "the catalogue alone is read");
    }
}

#[test]
fn a_damaged_catalogue_changes_no_answer() {
    let files = SimulatedFiles::new(1);
    let engine = open(&files);
    create(&engine, "a", 9);
    // An id too long for its directory's name to tell it.
    create(&engine, &"b".repeat(300), 3);
    let first = shown(&engine);
    assert!(first.iter().all(|line| line.contains("Summary")), "{first:?}");
    let bytes = files.contents(Path::new(CATALOG)).unwrap();
    for index in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[index] ^= 1 << (index % 8);
        files.overwrite(Path::new(CATALOG), &flipped).unwrap();
        assert_eq!(shown(&open(&files)), first, "flip at {index}");
        files.overwrite(Path::new(CATALOG), &bytes[..index]).unwrap();
        assert_eq!(shown(&open(&files)), first, "cut at {index}");
    }
    // Another store's catalogue knows nothing of these files.
    let other = SimulatedFiles::new(2);
    create(&open(&other), "a", 2);
    shown(&open(&other));
    files.overwrite(Path::new(CATALOG), &other.contents(Path::new(CATALOG)).unwrap()).unwrap();
    assert_eq!(shown(&open(&files)), first);
}

#[test]
fn e5_damage_shows_whether_or_not_the_session_was_catalogued() {
    let files = SimulatedFiles::new(1);
    let engine = open(&files);
    let head = create(&engine, "a", 9);
    append(&engine, "a", &head, 20);
    create(&engine, "b", 3);
    shown(&engine);
    let journal = engine.locate(&id("a")).join("00000000000000000000.log");
    let mut bytes = files.contents(&journal).unwrap();
    bytes[100] ^= 1;
    files.overwrite(&journal, &bytes).unwrap();
    let lines = shown(&engine);
    assert!(lines[0].starts_with("a: ") && !lines[0].contains("Summary"), "{}", lines[0]);
    assert!(lines[1].contains("Summary"));
    assert_eq!(shown_afresh(&files), lines);
}

/// Nobody has the session open, so its directory tells that nothing changed; what is done to a file in place, it does not tell.
#[test]
fn e5_damage_in_place_of_a_session_at_rest_shows_at_once_elsewhere_and_here_two_seconds_after_the_last_look_at_its_files()
 {
    let files = SimulatedFiles::new(1);
    let coarse = Coarse::over(&files, 10);
    let (writer, engine) = (open(&files), open_over(coarse.clone()));
    for (name, file) in [("a", "00000000000000000000.log"), ("b", "header"), ("c", "00000000000000000000.seg")] {
        let head = create(&writer, name, 9);
        writer.release(&id(name), head.epoch).unwrap();
        if name == "c" {
            writer.seal(&id(name), SealOptions::default()).unwrap();
        }
        coarse.pass(5000);
        let before = shown(&engine);
        assert!(before.iter().all(|line| line.contains("Summary")), "{before:?}");
        let path = engine.locate(&id(name)).join(file);
        let bytes = files.contents(&path).unwrap();
        for wrong in [
            &bytes[..bytes.len() - 1],
            &[&bytes[..], b"x"].concat(),
            &bytes.iter().map(|byte| !byte).collect::<Vec<_>>(),
        ] {
            files.overwrite(&path, wrong).unwrap();
            let after = shown_afresh(&files);
            assert_ne!(after, before, "{name}");
            assert_eq!(shown(&open_over(coarse.clone())), after, "{name}");
            coarse.pass(2000);
            assert_eq!(shown(&engine), after, "{name}");
            files.overwrite(&path, &bytes).unwrap();
            coarse.pass(5000);
            assert_eq!(shown(&engine), before, "{name}");
        }
    }
}

#[test]
fn a_session_at_rest_that_is_opened_again_is_live_and_grows_in_every_listing() {
    for step in [10, 1000, 2000] {
        let files = SimulatedFiles::new(1);
        let coarse = Coarse::over(&files, step);
        let (writer, lister) = (open(&files), open_over(coarse.clone()));
        let head = create(&writer, "a", 1);
        writer.release(&id("a"), head.epoch).unwrap();
        // One journal without an event takes the place, and the name, of another.
        let head = writer.take_over(&id("a")).unwrap().head;
        writer.release(&id("a"), head.epoch).unwrap();
        // All that follows a listing happens within the step that it is in, whether its answer could be kept or not.
        for wait in [0, 5000, 0, 3001, 1500, 5000] {
            coarse.pass(wait);
            let at_rest = shown(&lister);
            assert!(at_rest[0].contains("live: false"), "{at_rest:?}");
            assert_eq!(shown(&lister), at_rest);
            let head = writer.take_over(&id("a")).unwrap().head;
            let open_again = shown(&lister);
            assert!(open_again[0].contains("live: true"), "{open_again:?}");
            let head = append(&writer, "a", &head, head.next_seq + 1);
            for lister in [&lister, &open_over(coarse.clone())] {
                let grown = shown(lister);
                assert!(grown[0].contains(&format!("events: {}", head.next_seq)), "{grown:?}");
            }
            writer.release(&id("a"), head.epoch).unwrap();
        }
        writer.delete(&id("a")).unwrap();
        assert_eq!(shown(&lister), Vec::<String>::new());
    }
}

/// What is in flight while somebody writes is torn once nobody does.
#[test]
fn r1_a_record_in_flight_is_torn_as_soon_as_its_writer_is_gone() {
    let files = SimulatedFiles::new(1);
    let (writer, lister) = (open(&files), open(&files));
    let head = create(&writer, "a", 9);
    let journal = writer.locate(&id("a")).join("00000000000000000000.log");
    let bytes = files.contents(&journal).unwrap();
    files.overwrite(&journal, &[&bytes[..], b"half a rec"].concat()).unwrap();
    let live = shown(&lister);
    assert!(live[0].contains("live: true") && live[0].contains("torn: None"), "{live:?}");
    // It ends without a word.
    let _ = writer.release(&id("a"), head.epoch);
    drop(writer);
    let torn = shown_afresh(&files);
    assert!(torn[0].contains("live: false") && torn[0].contains("torn: Some"), "{torn:?}");
    assert_eq!(shown(&lister), torn);
    assert_eq!(shown(&open(&files)), torn);
}

/// Something to do the next time that somebody opens a lock.
type Deed = Mutex<Option<Box<dyn FnOnce() + Send>>>;

/// Files of which somebody else does something as soon as a lock has been opened.
struct Interrupted(SimulatedFiles, Deed);

impl std::fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted files")
    }
}

impl Files for Interrupted {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn File>> {
        if path.ends_with("lock")
            && let Some(deed) = self.1.lock().unwrap().take()
        {
            deed();
        }
        self.0.open(path, access)
    }
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.0.create_directory(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.remove_file(path)
    }
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.0.remove_directory(path)
    }
    fn read_directory(&self, path: &Path) -> io::Result<Vec<String>> {
        self.0.read_directory(path)
    }
    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.0.sync_directory(path)
    }
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.0.stat(path)
    }
    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.0.resolve(path)
    }
}

/// It writes and closes the session while its lock is looked at: what is remembered of it then is what it left.
#[test]
fn a_writer_that_ends_while_a_session_is_looked_at_is_not_missed() {
    let files = SimulatedFiles::new(1);
    let interrupted = Arc::new(Interrupted(files.clone(), Mutex::default()));
    let (writer, lister) = (open(&files), open_over(interrupted.clone()));
    let mut head = create(&writer, "a", 3);
    for _ in 0..2 {
        shown(&lister);
        let (other, last) = (writer.clone(), head.clone());
        *interrupted.1.lock().unwrap() = Some(Box::new(move || {
            let head = append(&other, "a", &last, last.next_seq + 2);
            other.release(&id("a"), head.epoch).unwrap();
        }));
        shown(&lister);
        assert!(interrupted.1.lock().unwrap().is_none(), "the lock was looked at");
        assert_eq!(shown(&lister), shown_afresh(&files));
        assert_eq!(shown(&open(&files)), shown_afresh(&files));
        head = writer.take_over(&id("a")).unwrap().head;
    }
}

/// Deleted and made anew within one step of the clock, in a directory with the same inode.
#[test]
fn a_session_in_the_place_of_another_of_its_name_is_not_taken_for_it() {
    let files = SimulatedFiles::new(1);
    let coarse = Coarse::over(&files, 2000);
    let (writer, lister) = (open(&files), open_over(coarse.clone()));
    for (events, wait) in (1..9).zip([0, 0, 5000, 0, 0, 1000, 5000, 5000]) {
        let head = create(&writer, "a", events);
        writer.release(&id("a"), head.epoch).unwrap();
        assert!(shown(&lister)[0].contains(&format!("events: {events},")));
        coarse.pass(wait);
        assert!(shown(&lister)[0].contains(&format!("events: {events},")));
        writer.delete(&id("a")).unwrap();
    }
}

#[test]
fn many_sessions_are_listed_in_order_and_each_as_it_is() {
    // More than one thread takes at a time.
    const SESSIONS: usize = 300;
    let files = SimulatedFiles::new(1);
    let writer = open(&files);
    let name = |number: usize| format!("s{number:03}");
    for number in 0..SESSIONS {
        let head = create(&writer, &name(number), (number % 5) as u64 + 1);
        writer.release(&id(&name(number)), head.epoch).unwrap();
    }
    let lister = open(&files);
    let first = shown(&lister);
    let events = |lines: &[String]| -> Vec<String> {
        lines.iter().map(|line| line.split_once("events: ").unwrap().1.split_once(',').unwrap().0.to_owned()).collect()
    };
    assert_eq!((first.is_sorted(), first.len()), (true, SESSIONS), "{:?}", &first[..2]);
    assert_eq!(events(&first), (0..SESSIONS).map(|number| (number % 5 + 1).to_string()).collect::<Vec<_>>());
    let other = open(&files);
    let reads = files.calls_of(Operation::ReadAt);
    assert_eq!(shown(&lister), first);
    assert_eq!(shown(&other), first);
    assert!(files.calls_of(Operation::ReadAt) - reads <= 1, "the catalogue alone is read");

    // What few sessions changed is not worth a new catalogue, what more of them did is.
    let catalog = files.contents(Path::new(CATALOG));
    for (changed, rewritten) in [(2, false), (5, true)] {
        for number in 0..changed {
            let head = writer.take_over(&id(&name(number * 50))).unwrap().head;
            let head = append(&writer, &name(number * 50), &head, head.next_seq + 10);
            writer.release(&id(&name(number * 50)), head.epoch).unwrap();
        }
        let lister = open(&files);
        let lines = shown(&lister);
        assert_eq!(files.contents(Path::new(CATALOG)) != catalog, rewritten);
        assert_eq!(lines, shown_afresh(&files));
    }
    for number in (0..SESSIONS).step_by(2) {
        writer.delete(&id(&name(number))).unwrap();
    }
    assert_eq!(shown(&lister), shown_afresh(&files));
    assert_eq!(shown(&lister).len(), SESSIONS / 2);
}

/// Each knows what the other does not, and the last to write wins.
#[test]
fn two_processes_that_write_the_catalogue_in_turn_spoil_nothing() {
    let files = SimulatedFiles::new(1);
    let (writer, one, other) = (open(&files), open(&files), open(&files));
    for number in 0..12 {
        let name = format!("s{number}");
        let head = create(&writer, &name, number + 1);
        writer.release(&id(&name), head.epoch).unwrap();
        let lister = if number % 2 == 0 { &one } else { &other };
        assert_eq!(shown(lister).len() as u64, number + 1);
        assert_eq!(shown(lister), shown(&open(&files)));
    }
    assert_eq!(shown(&one), shown(&other));
    assert_eq!(shown(&one), shown_afresh(&files));
}

/// Files whose change times stand still, as they do where a device loses what nobody wrote to.
#[derive(Debug)]
struct Rotting(SimulatedFiles);

impl Files for Rotting {
    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn File>> {
        self.0.open(path, access)
    }
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.0.create_directory(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.remove_file(path)
    }
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.0.remove_directory(path)
    }
    fn read_directory(&self, path: &Path) -> io::Result<Vec<String>> {
        self.0.read_directory(path)
    }
    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.0.sync_directory(path)
    }
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        Ok(Stat { changed: (0, 0), ..self.0.stat(path)? })
    }
    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.0.resolve(path)
    }
}

#[test]
fn r4_what_rots_without_a_write_is_told_by_whoever_reads_it_and_by_no_listing_that_does_not() {
    let files = SimulatedFiles::new(1);
    let rotting = || EngineOptions::new().files(Arc::new(Rotting(files.clone()))).open(Path::new("/store")).unwrap();
    let engine = rotting();
    let head = create(&engine, "a", 9);
    engine.release(&id("a"), head.epoch).unwrap();
    shown(&engine);
    let journal = engine.locate(&id("a")).join("00000000000000000000.log");
    let mut bytes = files.contents(&journal).unwrap();
    bytes[20] ^= 1;
    files.overwrite(&journal, &bytes).unwrap();
    let engine = rotting();
    assert!(shown(&engine)[0].contains("events: 9"), "the entry holds: {:?}", shown(&engine));
    let told = engine.verify(&id("a")).error.unwrap();
    assert_eq!(told.file.as_deref(), Some(&*journal));
    assert_eq!(engine.open_session(&id("a")).unwrap_err().to_string(), told.to_string());
    assert_eq!(engine.read(&id("a"), 0, ReadLimit::default()).unwrap_err().to_string(), told.to_string());
    assert_eq!(engine.take_over(&id("a")).unwrap_err().to_string(), told.to_string());
    // Without the entry, or once anything touches the file, the listing says the same.
    files.overwrite(Path::new(CATALOG), b"no catalogue at all").unwrap();
    assert_eq!(shown(&rotting())[0], format!("a: {told}"));
}

#[test]
fn a_listing_looks_again_when_any_file_changes_that_a_fork_depends_on() {
    let files = SimulatedFiles::new(1);
    let engine = open(&files);
    let head = create(&engine, "a", 30);
    engine.release(&id("a"), head.epoch).unwrap();
    engine.seal(&id("a"), SealOptions::default()).unwrap();
    engine.fork(&id("a"), 12, &header("b")).unwrap();
    let coarse = Coarse::over(&files, 10);
    let lister = open_over(coarse.clone());
    coarse.pass(5000);
    shown(&lister);
    let list = engine.locate(&id("b")).join("shared");
    let mut bytes = files.contents(&list).unwrap();
    bytes[9] ^= 1;
    files.overwrite(&list, &bytes).unwrap();
    let told = engine.verify(&id("b")).error.unwrap();
    assert_eq!(shown(&open_over(coarse.clone()))[1], format!("b: {told}"));
    coarse.pass(2000);
    assert_eq!(shown(&lister)[1], format!("b: {told}"));
}

#[derive(Debug, Clone)]
enum Step {
    Append(usize, u64),
    Reopen(usize),
    Close(usize),
    Seal(usize),
    Delete(usize),
    /// Into the trash, and back.
    Restore(usize),
    Fork(usize, usize),
    /// Damage to a file in place, undone later on.
    Damage(usize, u64),
    Pass(i64),
    List,
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..4_usize;
    prop_oneof![
        4 => (name.clone(), 1..30_u64).prop_map(|(name, count)| Step::Append(name, count)),
        1 => name.clone().prop_map(Step::Reopen),
        1 => name.clone().prop_map(Step::Close),
        1 => name.clone().prop_map(Step::Seal),
        1 => name.clone().prop_map(Step::Delete),
        1 => name.clone().prop_map(Step::Restore),
        1 => (name.clone(), name.clone()).prop_map(|(from, to)| Step::Fork(from, to)),
        1 => (name, any::<u64>()).prop_map(|(name, pick)| Step::Damage(name, pick)),
        3 => prop_oneof![Just(1), Just(900), Just(1100), Just(2500), Just(6000)].prop_map(Step::Pass),
        4 => Just(Step::List),
    ]
}

const NAMES: [&str; 4] = ["a", "B", "c/d", "e"];

/// One writer, which may have any session open, and listings over a clock that goes in steps.
#[derive(Debug)]
struct Shared {
    files: SimulatedFiles,
    coarse: Arc<Coarse>,
    writer: Engine,
    lister: Engine,
    /// Of each session there is, and whether the writer has it open.
    heads: [Option<(Head, bool)>; 4],
}

impl Shared {
    fn new(step: i64) -> Self {
        let files = SimulatedFiles::new(3);
        let coarse = Coarse::over(&files, step);
        let (writer, lister) = (open(&files), open_over(coarse.clone()));
        Self { files, coarse, writer, lister, heads: [const { None }; 4] }
    }

    fn close(&mut self, name: usize) -> bool {
        let Some((head, is_open)) = &mut self.heads[name] else { return false };
        if std::mem::take(is_open) {
            self.writer.release(&id(NAMES[name]), head.epoch).unwrap();
        }
        true
    }

    fn open(&mut self, name: usize) {
        if self.close(name) {
            self.heads[name] = Some((self.writer.take_over(&id(NAMES[name])).unwrap().head, true));
        }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Append(name, count) => {
                if matches!(self.heads[name], Some((_, false))) {
                    self.open(name);
                }
                let head = match &self.heads[name] {
                    None => create(&self.writer, NAMES[name], count),
                    Some((head, _)) => append(&self.writer, NAMES[name], head, head.next_seq + count),
                };
                self.heads[name] = Some((head, true));
            }
            Step::Reopen(name) => self.open(name),
            Step::Close(name) => {
                self.close(name);
            }
            Step::Seal(name) => {
                if self.close(name) {
                    self.writer.seal(&id(NAMES[name]), SealOptions::default()).unwrap();
                }
            }
            Step::Delete(name) => {
                if self.close(name) {
                    self.writer.delete(&id(NAMES[name])).unwrap();
                    self.heads[name] = None;
                }
            }
            Step::Restore(name) => {
                if self.close(name) {
                    let trashed = self.writer.trash(&id(NAMES[name])).unwrap();
                    self.listed();
                    self.writer.restore(&trashed).unwrap();
                }
            }
            Step::Fork(from, to) => {
                if let (Some((head, _)), None) = (&self.heads[from], &self.heads[to]) {
                    self.writer.fork(&id(NAMES[from]), head.next_seq / 2, &header(NAMES[to])).unwrap();
                    self.heads[to] = Some((self.writer.take_over(&id(NAMES[to])).unwrap().head, true));
                }
            }
            Step::Damage(name, pick) => self.damage(name, pick),
            Step::Pass(milliseconds) => self.coarse.pass(milliseconds),
            Step::List => self.listed(),
        }
        self.coarse.date();
    }

    fn damage(&mut self, name: usize, pick: u64) {
        if !self.close(name) {
            return;
        }
        let directory = self.writer.locate(&id(NAMES[name]));
        let mut names = self.files.read_directory(&directory).unwrap();
        names.retain(|name| name != "lock" && name != "torn");
        let path = directory.join(&names[usize::from(pick.to_le_bytes()[0]) % names.len()]);
        let bytes = self.files.contents(&path).unwrap();
        let mut wrong = bytes.clone();
        match wrong.len() {
            0 => wrong.push(1),
            length => wrong[usize::try_from(pick >> 8).unwrap() % length] ^= 1 << (pick % 8),
        }
        self.files.overwrite(&path, &wrong).unwrap();
        let truth = shown_afresh(&self.files);
        assert_eq!(shown(&open_over(self.coarse.clone())), truth, "another process");
        self.coarse.pass(2000);
        self.listed();
        self.files.overwrite(&path, &bytes).unwrap();
        self.coarse.pass(2000);
        self.listed();
    }

    /// A listing says what there is, whoever makes it and whatever it knows.
    fn listed(&self) {
        let truth = shown_afresh(&self.files);
        assert_eq!(shown(&self.lister), truth, "from memory");
        assert_eq!(shown(&open_over(self.coarse.clone())), truth, "from the catalogue");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happened to the sessions, through another engine or past it, and however coarse the clock is that dates it.
    #[test]
    fn with_and_without_the_catalogue_the_answers_are_the_same(
        step in prop_oneof![Just(10_i64), Just(1000), Just(2000)],
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut shared = Shared::new(step);
        steps.iter().for_each(|step| shared.run(step));
        shared.listed();
    }
}
