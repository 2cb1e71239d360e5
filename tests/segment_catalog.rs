//! The catalogue: listings cost a look at the files of unchanged sessions, and never depend on what is cached.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod segment_common;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use segment_common::{append, create, header, id};
use sessionlog::backend::{Expected, Head, ReadLimit};
use sessionlog::event::{Batch, Event, JsonText, NewEvent};
use sessionlog::segment::files::{Access, File, Files, Operation, SimulatedFiles, Stat};
use sessionlog::segment::{Engine, EngineOptions, SealOptions, Summarised, Summary};

const CATALOG: &str = "/store/catalog";

fn open(files: &SimulatedFiles) -> Engine {
    let options = EngineOptions::new().files(Arc::new(files.clone())).rotate_at(600).background_sealing(false);
    options.open(Path::new("/store")).unwrap()
}

/// A listing as text, errors included, whatever is live.
fn shown(engine: &Engine) -> Vec<String> {
    let line = |entry: Summarised| match entry.summary {
        Ok(summary) => format!("{}: {:?}", entry.name, Summary { live: false, ..summary }),
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
    shown(&engine);
    let list = engine.locate(&id("b")).join("shared");
    let mut bytes = files.contents(&list).unwrap();
    bytes[9] ^= 1;
    files.overwrite(&list, &bytes).unwrap();
    let told = engine.verify(&id("b")).error.unwrap();
    assert_eq!(shown(&engine)[1], format!("b: {told}"));
    assert_eq!(shown(&open(&files))[1], format!("b: {told}"));
}

#[derive(Debug, Clone)]
enum Step {
    Append(usize, u64),
    Reopen(usize),
    Seal(usize),
    Delete(usize),
    Fork(usize, usize),
    List,
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..4_usize;
    prop_oneof![
        4 => (name.clone(), 1..30_u64).prop_map(|(name, count)| Step::Append(name, count)),
        1 => name.clone().prop_map(Step::Reopen),
        1 => name.clone().prop_map(Step::Seal),
        1 => name.clone().prop_map(Step::Delete),
        1 => (name.clone(), name).prop_map(|(from, to)| Step::Fork(from, to)),
        3 => Just(Step::List),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happened to the sessions, through this engine or another: a listing with the catalogue and one without agree.
    #[test]
    fn with_and_without_the_catalogue_the_answers_are_the_same(steps in prop::collection::vec(step(), 1..25)) {
        const NAMES: [&str; 4] = ["a", "B", "c/d", "e"];
        let files = SimulatedFiles::new(3);
        let (writer, lister) = (open(&files), open(&files));
        let mut heads: [Option<Head>; 4] = [const { None }; 4];
        for step in steps {
            match step {
                Step::Append(name, count) => {
                    heads[name] = Some(match &heads[name] {
                        None => create(&writer, NAMES[name], count),
                        Some(head) => append(&writer, NAMES[name], head, head.next_seq + count),
                    });
                }
                Step::Reopen(name) | Step::Seal(name) => {
                    let Some(head) = &heads[name] else { continue };
                    writer.release(&id(NAMES[name]), head.epoch).unwrap();
                    if matches!(step, Step::Seal(_)) {
                        writer.seal(&id(NAMES[name]), SealOptions::default()).unwrap();
                    }
                    heads[name] = Some(writer.take_over(&id(NAMES[name])).unwrap().head);
                }
                Step::Delete(name) => {
                    let Some(head) = heads[name].take() else { continue };
                    writer.release(&id(NAMES[name]), head.epoch).unwrap();
                    writer.delete(&id(NAMES[name])).unwrap();
                }
                Step::Fork(from, to) => {
                    if let (Some(head), None) = (&heads[from], &heads[to]) {
                        writer.fork(&id(NAMES[from]), head.next_seq / 2, &header(NAMES[to])).unwrap();
                        heads[to] = Some(writer.take_over(&id(NAMES[to])).unwrap().head);
                    }
                }
                Step::List => {
                    let lines = shown(&lister);
                    prop_assert_eq!(&lines, &shown_afresh(&files));
                    prop_assert_eq!(&lines, &shown(&open(&files)));
                }
            }
        }
    }
}
