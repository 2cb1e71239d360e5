//! A session is resumed after a crash, and the resume itself is interrupted, at every call, again and again: one set of closers,
//! exactly the one that the rules give for what was recorded, and nothing recorded lost.
#![cfg(feature = "store")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(clippy::case_sensitive_file_extension_comparisons, reason = "names are known")]

mod store_common;

use std::path::Path;
use std::sync::Arc;

use sessionlog::backend::ErrorKind;
use sessionlog::event::{Event, Item, SessionHeader};
use sessionlog::segment::files::{Fault, FaultKind, Files, SimulatedFiles};
use sessionlog::segment::{CheckStatus, EngineOptions, SealOptions, SegmentBackend};
use sessionlog::session::repair;
use sessionlog::store::Store;
use store_common::{id, lines, open_turn, options, turn};

fn open(files: &SimulatedFiles) -> Result<Store<SegmentBackend>, Box<dyn std::error::Error>> {
    let engine = EngineOptions::new()
        .files(Arc::new(files.clone()))
        .rotate_at(900)
        .background_sealing(false)
        .seed(files.calls().wrapping_mul(31).wrapping_add(7));
    Ok(options().open(SegmentBackend::with_options(Path::new("/store"), engine)?)?)
}

/// A session whose process died in a turn with a tool that ran and one that did not, with bytes of a half-written record behind.
async fn orphaned(sealed: bool) -> (SimulatedFiles, Vec<Event>) {
    let files = SimulatedFiles::new(1);
    let store = open(&files).unwrap();
    let live = store.create(SessionHeader::new("s")).await.unwrap();
    for number in 1..=3 {
        turn(&live, number);
        live.flush().await.unwrap();
    }
    if sealed {
        live.close().await.unwrap();
        store.backend().engine().seal(&id("s"), SealOptions::new().level(1)).unwrap();
    }
    let live = if sealed { store.resume("s").await.unwrap() } else { live };
    open_turn(&live, 4);
    live.flush().await.unwrap();
    // The machine that goes on is another; this one is left as it is.
    let next = files.copy(2);
    let session = Path::new("/store/sessions/s");
    let names = next.read_directory(session).unwrap();
    let newest = session.join(names.iter().filter(|name| name.ends_with(".log")).max().unwrap());
    let mut bytes = next.contents(&newest).unwrap();
    bytes.extend_from_slice(&[7; 60]);
    next.overwrite(&newest, &bytes).unwrap();
    (next.clone(), stored(&next).await)
}

async fn stored(files: &SimulatedFiles) -> Vec<Event> {
    let store = open(files).unwrap();
    let mut pages = store.events("s", ..);
    let mut events = Vec::new();
    while let Some(event) = pages.next().await.unwrap() {
        events.push(event);
    }
    events
}

/// What must be stored once the session has been resumed and closed: what was recorded, its closers, and the mark.
fn mended(recorded: &[Event]) -> Vec<String> {
    let items: Vec<Item> = recorded.iter().cloned().map(Item::Event).collect();
    let closers = repair::close_log(&items, &id("s")).unwrap().unwrap();
    let mut lines = lines(recorded);
    lines.extend(closers.events().map(|event| event.to_line()));
    lines
}

async fn resume_and_close(files: &SimulatedFiles) -> Result<(), Box<dyn std::error::Error>> {
    let store = open(files)?;
    let live = store.resume("s").await?;
    live.close().await?;
    store.close().await?;
    Ok(())
}

async fn assert_mended_once(files: &SimulatedFiles, mended: &[String], what: &str) {
    resume_and_close(files).await.unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = lines(&stored(files).await);
    assert_eq!(found[..mended.len()], *mended, "{what}");
    assert_eq!(found.len(), mended.len() + 1, "{what}: {:?}", &found[mended.len()..]);
    assert!(found[mended.len()].contains("session/end-seed"), "{what}");
    resume_and_close(files).await.unwrap();
    assert_eq!(lines(&stored(files).await), found, "{what}: resuming again changed the log");
    let check = open(files).unwrap().backend().engine().verify(&id("s"));
    assert_eq!(check.status, CheckStatus::Ok, "{what}: {:?}", check.error);
    let torn = files.read_directory(Path::new("/store/sessions/s/torn")).unwrap_or_default();
    assert!(torn.iter().all(|name| !name.starts_with(".tmp-")), "{what}: {torn:?}");
    let kept = torn.iter().map(|name| files.contents(&Path::new("/store/sessions/s/torn").join(name)).unwrap());
    assert!(kept.into_iter().any(|bytes| bytes == [7; 60]), "{what}: the torn bytes are not kept: {torn:?}");
}

fn lose_power_at(files: &SimulatedFiles, call: u64) {
    files.fail(Fault { call, operation: None, lasting: true, kind: FaultKind::PowerOff });
}

#[tokio::test]
async fn r2_r3_a_resume_interrupted_at_any_call_and_then_again_closes_the_turn_once() {
    let mut crashes = 0;
    for sealed in [false, true] {
        let (base, recorded) = orphaned(sealed).await;
        let mended = mended(&recorded);
        for call in 1_u64.. {
            let files = base.copy(call);
            let _told = files.tell_on_panic();
            lose_power_at(&files, call);
            let first = resume_and_close(&files).await;
            files.crash();
            // Interrupted while it recovers from that, and while it recovers from this.
            for again in 0..3 {
                lose_power_at(&files, 1 + (call * 37 + again * 29) % 110);
                let _ = resume_and_close(&files).await;
                files.crash();
                let found = lines(&stored(&files).await);
                let both = recorded.len().min(found.len());
                assert_eq!(found[..both], lines(&recorded)[..both], "call {call}, again {again}");
                assert!(found.len() >= recorded.len(), "call {call}, again {again}: recorded events are lost");
                crashes += 1;
            }
            assert_mended_once(&files, &mended, &format!("sealed: {sealed}, call {call}: {first:?}")).await;
            if first.is_ok() {
                break;
            }
        }
    }
    assert!(crashes > 300, "{crashes}");
}

#[tokio::test]
async fn r2_c1_a_resume_in_which_any_call_fails_loses_nothing_and_closes_nothing_twice() {
    let kinds = [
        FaultKind::Errno(libc::EIO),
        FaultKind::Late(libc::EIO),
        FaultKind::Errno(libc::ENOSPC),
        FaultKind::Errno(libc::EINTR),
        FaultKind::ShortWrite,
        FaultKind::ShortRead,
    ];
    let mut failures = 0;
    let (base, recorded) = orphaned(true).await;
    let mended = mended(&recorded);
    for (number, kind) in (0_u64..).zip(kinds) {
        for call in (1_u64..).filter(|call| (call + number) % 3 == 0) {
            let files = base.copy(call);
            let _told = files.tell_on_panic();
            let before = files.calls();
            files.fail(Fault { call, operation: None, lasting: false, kind });
            let result = resume_and_close(&files).await;
            let used = files.calls() - before;
            files.heal();
            let what = format!("{kind:?} at call {call}: {result:?}");
            if let Err(error) = &result
                && let Some(error) = error.downcast_ref::<sessionlog::store::StoreError>()
            {
                failures += 1;
                assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::DiskFull), "{what}");
            }
            // The process that met the failure is gone, and the machine with it.
            files.crash();
            assert_mended_once(&files, &mended, &what).await;
            if used < call {
                break;
            }
        }
    }
    assert!(failures > 60, "{failures}");
}
