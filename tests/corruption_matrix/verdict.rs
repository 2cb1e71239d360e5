//! What the library says of a session, asked in every way there is. The answers must agree, in class, file and offset.
//!
//! What a way to look never reads it cannot find damaged. Verifying and reading all events read every byte; opening a session
//! (inspecting, resuming, listing) reads no sealed block but those that hold what it shows. Only there may it go on, and then
//! what it shows is what was written.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sessionlog::backend::{BackendError, DamageClass, ErrorKind, ReadLimit};
use sessionlog::event::{Event, Vocabulary};
use sessionlog::segment::{CheckStatus, Engine, SegmentBackend, SessionCheck};
use sessionlog::store::{ListOptions, Store, StoreError, StoreOptions};

use crate::sample::{expected, options};
use crate::segment_common::{id, lines};

/// What all ways to look at a session say together.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// All events are there.
    Identical,
    /// This many are, and the report says what lies behind them.
    Prefix(u64, Torn),
    Refused(Refusal),
}

/// An incomplete record at a log's end.
#[derive(Debug, Clone, PartialEq)]
pub struct Torn {
    pub file: PathBuf,
    pub offset: u64,
    pub bytes: u64,
}

/// A refusal as programs see it.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    pub kind: ErrorKind,
    pub class: Option<DamageClass>,
    pub file: Option<PathBuf>,
    pub offset: Option<u64>,
    pub intact_before: Option<u64>,
}

impl Refusal {
    /// The refusal, which must name class and place.
    pub fn of(error: &BackendError) -> Self {
        assert!(error.file.is_some() || error.kind == ErrorKind::NotFound, "no file is named: {error}");
        let damage = error.damage.as_ref();
        assert_eq!(error.kind == ErrorKind::Damaged, damage.is_some(), "no class: {error}");
        if let Some(damage) = damage {
            // Of what is missing, or is no file, there is no offset.
            let placeless = matches!(
                damage.class,
                DamageClass::Gap
                    | DamageClass::WrongFileType
                    | DamageClass::BadHeader
                    | DamageClass::IdentityMismatch
                    | DamageClass::DerivedCheckpoint
            );
            assert!(damage.offset.is_some() || placeless || error.detail.contains("footer"), "no offset: {error}");
        }
        Self {
            kind: error.kind,
            class: damage.map(|damage| damage.class),
            file: error.file.clone(),
            offset: damage.and_then(|damage| damage.offset),
            intact_before: damage.map(|damage| damage.intact_before),
        }
    }

    fn of_store(error: &StoreError) -> Self {
        let StoreError::Backend(error) = error else { panic!("storage is at fault, and blamed is the model: {error}") };
        Self::of(error)
    }

    /// What a message for people must contain of it.
    pub fn words(&self) -> Vec<String> {
        let class = self.class.map(|class| class.name().to_owned());
        let file = self.file.as_ref().map(|file| file.display().to_string());
        let offset = self.offset.map(|offset| format!("at offset {offset}:"));
        class.into_iter().chain(file).chain(offset).collect()
    }

    /// Whether it is about a checkpoint, which only a full check refuses: for all others one that is damaged is none.
    pub fn is_of_a_checkpoint(&self) -> bool {
        self.class == Some(DamageClass::DerivedCheckpoint)
    }

    /// Whether it is about a sealed block, which only those refuse who want its events.
    pub fn is_of_a_block(&self) -> bool {
        let (Some(file), Some(offset)) = (&self.file, self.offset) else { return false };
        self.class == Some(DamageClass::Checksum) && blocks_end(file).is_some_and(|end| (96..end).contains(&offset))
    }
}

/// Where the blocks of a segment end, if its footer can be read.
fn blocks_end(segment: &Path) -> Option<u64> {
    let bytes = fs::read(segment).ok().filter(|_| segment.extension() == Some("seg".as_ref()))?;
    let trailer = bytes.get(bytes.len().checked_sub(32)?..)?;
    let start = u64::from_le_bytes(trailer.get(..8)?.try_into().ok()?) as usize;
    let stored = u32::from_le_bytes(trailer.get(8..12)?.try_into().ok()?) as usize;
    let text = zstd::decode_all(bytes.get(start..start.checked_add(stored)?)?).ok()?;
    let footer: Value = serde_json::from_slice(&text).ok()?;
    let last = footer["blocks"].as_array()?.last()?;
    let parts = ["conversation", "marks", "text"].map(|part| last[part]["stored"].as_u64().unwrap());
    Some(last["offset"].as_u64()? + parts.iter().sum::<u64>())
}

pub fn store(root: &Path) -> Result<Store<SegmentBackend>, BackendError> {
    let options_of_store = StoreOptions::new().vocabulary(Vocabulary::well_known());
    Ok(options_of_store.open(SegmentBackend::with_options(root, options())?).unwrap())
}

/// All events that are handed out, and the refusal that ends them.
pub fn read(engine: &Engine, name: &str) -> (Vec<Event>, Option<BackendError>) {
    let mut events = Vec::new();
    let mut from = Some(0);
    while let Some(seq) = from {
        match engine.read(&id(name), seq, ReadLimit { events: 7, bytes: 600 }) {
            Ok(page) => {
                events.extend(page.items.iter().flat_map(|item| item.events()));
                from = page.next;
            }
            Err(error) => return (events, Some(error)),
        }
    }
    (events, None)
}

/// Looks at a session in every way that changes nothing, and compares.
pub async fn look(store: &Store<SegmentBackend>, name: &str, total: u64, what: &str) -> Verdict {
    let what = &format!("{what}: {name}");
    let engine = store.backend().engine();
    let check = engine.verify(&id(name));
    let verdict = verified(&check, total, what);
    read_agrees(engine, name, &verdict, check.events, what);
    inspect_agrees(store, name, total, &verdict, what).await;
    listing_agrees(store, name, total, &verdict, what).await;
    verdict
}

fn verified(check: &SessionCheck, total: u64, what: &str) -> Verdict {
    assert_eq!(check.status == CheckStatus::Torn, check.torn.is_some(), "{what}");
    match (&check.error, &check.torn) {
        (Some(error), _) => Verdict::Refused(Refusal::of(error)),
        (None, None) => {
            assert_eq!(check.events, total, "{what}: some are missing, and nothing says so");
            Verdict::Identical
        }
        (None, Some(torn)) => {
            let file = torn.file.clone().unwrap();
            Verdict::Prefix(check.events, Torn { file, offset: torn.offset, bytes: torn.bytes })
        }
    }
}

/// Reading gives what is said to be intact, and then the same refusal.
fn read_agrees(engine: &Engine, name: &str, verdict: &Verdict, intact: u64, what: &str) {
    let (events, error) = read(engine, name);
    assert_eq!(
        lines(&events),
        lines(&expected(events.len() as u64)),
        "{what}: bytes that were never written are handed out"
    );
    match (verdict, error) {
        (Verdict::Refused(refusal), Some(error)) => {
            assert_eq!(&Refusal::of(&error), refusal, "{what}: events: {error}");
            let whole = refusal.intact_before.is_none_or(|intact| intact == events.len() as u64);
            assert!(whole, "{what}: {} events are handed out: {error}", events.len());
        }
        (Verdict::Refused(refusal), None) if refusal.is_of_a_checkpoint() => {
            assert_eq!(events.len() as u64, intact, "{what}: events");
        }
        (Verdict::Identical | Verdict::Prefix(..), None) => assert_eq!(events.len() as u64, intact, "{what}: events"),
        (_, error) => panic!("{what}: verified as {verdict:?}, read up to {} and {error:?}", events.len()),
    }
}

/// An inspection is refused alike, or shows what was written.
async fn inspect_agrees(store: &Store<SegmentBackend>, name: &str, total: u64, verdict: &Verdict, what: &str) {
    let inspected = match store.inspect(name).await {
        Ok(inspected) => inspected,
        Err(error) => return same_refusal(verdict, &Refusal::of_store(&error), &format!("{what}: inspect: {error}")),
    };
    let all = expected(total);
    let shown = inspected.events(..inspected.durable_seq());
    assert!(shown.iter().all(|event| *event == all[event.seq() as usize]), "{what}: inspect shows other events");
    let torn = inspected.recovery().torn.as_ref();
    let torn = torn.map(|torn| Torn { file: torn.file.clone().unwrap(), offset: torn.offset, bytes: torn.bytes });
    succeeded(verdict, inspected.durable_seq(), torn, total, &format!("{what}: inspect"));
}

/// A listing shows the session, sound or with what is wrong.
async fn listing_agrees(store: &Store<SegmentBackend>, name: &str, total: u64, verdict: &Verdict, what: &str) {
    // The store's own reads headers and no more.
    let listing = store.list(ListOptions::new()).await.unwrap();
    let listed = listing.sessions.iter().any(|header| header.id == name);
    assert!(listed || matches!(verdict, Verdict::Refused(..)), "{what}: not listed and {verdict:?}");
    let entry = store.backend().engine().summaries().unwrap().into_iter().find(|entry| entry.name == name);
    match entry.map(|entry| entry.summary) {
        Some(Ok(summary)) => {
            let torn = summary.torn.clone();
            let torn = torn.map(|torn| Torn { file: torn.file.unwrap(), offset: torn.offset, bytes: torn.bytes });
            succeeded(verdict, summary.events, torn, total, &format!("{what}: listing"));
        }
        Some(Err(error)) => same_refusal(verdict, &Refusal::of(&error), &format!("{what}: listing: {error}")),
        None => {
            let gone = matches!(verdict, Verdict::Refused(refusal) if refusal.kind == ErrorKind::NotFound);
            assert!(gone, "{what}: not in the listing, and {verdict:?}");
        }
    }
}

/// Takes a session over, which is refused alike; or where it is not, has the same events.
pub async fn resume_agrees(store: &Store<SegmentBackend>, name: &str, total: u64, verdict: &Verdict, what: &str) {
    let what = &format!("{what}: resume {name}");
    match store.resume(name).await {
        Ok(live) => {
            let torn = live.recovery().torn.as_ref().map(|torn| Torn {
                file: torn.file.clone().unwrap(),
                offset: torn.offset,
                bytes: torn.bytes,
            });
            succeeded(verdict, live.recovery().events, torn, total, what);
            live.close().await.unwrap();
            if let Verdict::Refused(refusal) = verdict {
                let check = store.backend().engine().verify(&id(name));
                assert_eq!(Refusal::of(&check.error.expect(what)), *refusal, "{what} made the damage disappear");
            }
        }
        Err(error) => {
            let refusal = Refusal::of_store(&error);
            let of_lock = refusal.file.as_ref().is_some_and(|file| file.ends_with("lock"));
            // Without its lock a session can be read and not written.
            if !of_lock {
                same_refusal(verdict, &refusal, &format!("{what}: {error}"));
            }
        }
    }
}

fn same_refusal(verdict: &Verdict, refusal: &Refusal, what: &str) {
    assert_eq!(verdict, &Verdict::Refused(refusal.clone()), "{what}");
}

fn succeeded(verdict: &Verdict, events: u64, torn: Option<Torn>, total: u64, what: &str) {
    match verdict {
        Verdict::Identical => assert_eq!((events, torn), (total, None), "{what}"),
        Verdict::Prefix(count, report) => assert_eq!((events, torn.as_ref()), (*count, Some(report)), "{what}"),
        Verdict::Refused(refusal) => {
            assert!(
                refusal.is_of_a_block() || refusal.is_of_a_checkpoint(),
                "{what}: not refused, elsewhere {refusal:?}"
            );
            assert_eq!(events, total, "{what}");
        }
    }
}
