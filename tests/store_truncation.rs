//! A journal cut at every byte: resuming gives exactly the events whose records are whole, then the closers they need; what is
//! appended afterwards follows them.
#![cfg(feature = "store")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;

use sessionlog::backend::ErrorKind;
use sessionlog::event::chunk::AssistantChunk;
use sessionlog::event::content::{ContentBlock, ModelSource};
use sessionlog::event::control::{StepEnd, StepStart, ToolCall, TurnEnd, TurnStart};
use sessionlog::event::message::{AssistantMessage, ToolResult, UserMessage};
use sessionlog::event::{Event, Placement, SessionHeader};
use sessionlog::segment::files::SimulatedFiles;
use sessionlog::segment::{EngineOptions, SegmentBackend};
use sessionlog::session::invariants::first_violation;
use sessionlog::session::{Clock, CountingIds};
use sessionlog::store::{LiveSession, Store, StoreOptions};

/// The same time at every call, so that every run writes the same bytes.
struct Still;

impl Clock for Still {
    fn now(&self) -> i64 {
        1_700_000_000_000
    }
}

fn open(files: &SimulatedFiles) -> Store<SegmentBackend> {
    let options = EngineOptions::new().files(Arc::new(files.clone())).background_sealing(false).seed(5);
    let backend = SegmentBackend::with_options(Path::new("/store"), options).unwrap();
    let options = StoreOptions::new().clock(Arc::new(Still)).ids(Arc::new(CountingIds::new("m-")));
    options.open(backend).unwrap()
}

/// Two turns, the second left open between a tool's call and its result; flushed in several records.
async fn scripted(session: &LiveSession<SegmentBackend>) -> Vec<u64> {
    let mut flushed = Vec::new();
    for turn in 1..=2 {
        session.append(TurnStart::new(turn)).unwrap();
        session.append_surface(UserMessage::text("go"), Placement::append()).unwrap();
        session.append(StepStart::new(turn, 1)).unwrap();
        session.flush().await.unwrap();
        flushed.push(session.next_seq());
        for word in ["one ", "two ", "three ", "four"] {
            session.append(AssistantChunk::text(turn, 1, 0, word)).unwrap();
        }
        session.flush().await.unwrap();
        flushed.push(session.next_seq());
        let content = ["a", "b"].map(|call| ContentBlock::tool_call(format!("{call}{turn}"), "tool", "{}"));
        let message = AssistantMessage::new(turn, 1, content.to_vec(), ModelSource::new("p", "m"));
        session.append_surface(message, Placement::append().from(session.step_chunks())).unwrap();
        let call = session.append(ToolCall::new(turn, 1, format!("a{turn}"), "tool", "{}")).unwrap();
        session.flush().await.unwrap();
        flushed.push(session.next_seq());
        if turn == 2 {
            break;
        }
        let result = ToolResult::text(turn, 1, "a1", "done");
        session.append_surface(result, Placement::append().from([call.seq()])).unwrap();
        let call = session.append(ToolCall::new(turn, 1, "b1", "tool", "{}")).unwrap();
        session
            .append_surface(ToolResult::text(turn, 1, "b1", "done"), Placement::append().from([call.seq()]))
            .unwrap();
        session.append(StepEnd::new(turn, 1)).unwrap();
        session.append(TurnEnd::completed(turn)).unwrap();
    }
    flushed
}

#[tokio::test]
async fn r1_r2_a_journal_cut_at_any_byte_resumes_to_its_whole_records_and_their_closers() {
    let files = SimulatedFiles::new(1);
    let store = open(&files);
    let session = store.create(SessionHeader::new("s")).await.unwrap();
    let flushed = scripted(&session).await;
    let whole: Vec<Event> = session.events(..);
    let journal = store.locate("s").unwrap().join("00000000000000000000.log");
    let length = files.contents(&journal).unwrap().len();

    let mut ends = std::collections::BTreeSet::new();
    for cut in 0..=length {
        // The same store again, byte for byte, and its writer dead.
        let files = SimulatedFiles::new(1);
        {
            let store = open(&files);
            let session = store.create(SessionHeader::new("s")).await.unwrap();
            scripted(&session).await;
        }
        files.crash();
        let mut bytes = files.contents(&journal).unwrap();
        assert_eq!(bytes.len(), length);
        bytes.truncate(cut);
        files.overwrite(&journal, &bytes).unwrap();

        let store = open(&files);
        let resumed = match store.resume("s").await {
            Ok(resumed) => resumed,
            Err(error) => panic!("cut at {cut}: {error}"),
        };
        let closers = resumed.recovery().closed.map_or(0, |closed| closed.next_seq - closed.first_seq);
        // Behind the closers stands the mark of the seed's end, unless there was no event at all.
        let kept = resumed.first_live_seq() - closers;
        assert_eq!(resumed.next_seq(), resumed.first_live_seq() + u64::from(kept > 0), "cut at {cut}");
        ends.insert(kept);
        assert!(kept == 0 || flushed.contains(&kept), "cut at {cut}: {kept} events is where no record ends");
        let events = resumed.events(..);
        assert_eq!(events[..usize::try_from(kept).unwrap()], whole[..usize::try_from(kept).unwrap()], "cut at {cut}");
        assert_eq!(first_violation(&resumed.items(0, u64::MAX)), Ok(None), "cut at {cut}");
        assert!(resumed.open_turn().is_none());
        let next_turn = resumed.next_turn();
        resumed.append(TurnStart::new(next_turn)).unwrap();
        resumed.append(TurnEnd::completed(next_turn)).unwrap();
        let expected = resumed.events(..);
        resumed.close().await.unwrap();
        let again = store.inspect("s").await.unwrap();
        assert_eq!(again.events(..), expected, "cut at {cut}: prefix, closers and what is new");
        assert!(again.recovery().is_clean());
    }
    assert_eq!(ends.len(), flushed.len() + 1, "every record end was met, and none: {ends:?}");
    assert!(matches!(store.resume("t").await, Err(error) if error.kind() == ErrorKind::NotFound));
}
