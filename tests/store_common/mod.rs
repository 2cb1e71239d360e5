//! What the store's tests share.
#![allow(dead_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use sessionlog::backend::Backend;
use sessionlog::event::content::{ContentBlock, ModelSource};
use sessionlog::event::control::{StepEnd, StepStart, ToolCall, TurnEnd, TurnStart};
use sessionlog::event::message::{AssistantMessage, ToolResult, UserMessage};
use sessionlog::event::{Event, Placement, SessionId, Vocabulary};
use sessionlog::session::{Clock, CountingIds, Session};
use sessionlog::store::{Store, StoreOptions};

/// A clock that counts milliseconds by itself.
pub struct Ticking(AtomicI64);

impl Clock for Ticking {
    fn now(&self) -> i64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

pub fn options() -> StoreOptions {
    StoreOptions::new()
        .clock(Arc::new(Ticking(AtomicI64::new(1_700_000_000_000))))
        .ids(Arc::new(CountingIds::new("m")))
        .vocabulary(Vocabulary::well_known().with_name("app/note"))
        .check_invariants(true)
}

pub fn id(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

/// Turn `turn`, whole: 5 events.
pub fn turn(session: &Session, turn: u64) {
    session.append(TurnStart::new(turn)).unwrap();
    session.append_surface(UserMessage::text(format!("question {turn}")), Placement::append()).unwrap();
    session.append(StepStart::new(turn, 1)).unwrap();
    session.append(StepEnd::new(turn, 1)).unwrap();
    session.append(TurnEnd::completed(turn)).unwrap();
}

/// Turn `turn` up to where two tools were asked for and one of them was started: 5 events.
pub fn open_turn(session: &Session, turn: u64) {
    session.append(TurnStart::new(turn)).unwrap();
    session.append_surface(UserMessage::text("do two things"), Placement::append()).unwrap();
    session.append(StepStart::new(turn, 1)).unwrap();
    let content = vec![ContentBlock::tool_call("a", "bash", "{}"), ContentBlock::tool_call("b", "bash", "{}")];
    let message = AssistantMessage::new(turn, 1, content, ModelSource::new("p", "m"));
    session.append_surface(message, Placement::append()).unwrap();
    session.append(ToolCall::new(turn, 1, "b", "bash", "{}")).unwrap();
}

/// Ends what [`open_turn`] began: 5 events.
pub fn end_turn(session: &Session, turn: u64) {
    session.append(ToolCall::new(turn, 1, "a", "bash", "{}")).unwrap();
    for call in ["a", "b"] {
        session.append_surface(ToolResult::text(turn, 1, call, "done"), Placement::append()).unwrap();
    }
    session.append(StepEnd::new(turn, 1)).unwrap();
    session.append(TurnEnd::completed(turn)).unwrap();
}

pub fn lines(events: &[Event]) -> Vec<String> {
    events.iter().map(Event::to_line).collect()
}

/// What is stored of a session.
pub async fn stored<B: Backend>(store: &Store<B>, session: &str) -> Vec<String> {
    let mut pages = store.events(session, ..).limit_events(7);
    let mut events = Vec::new();
    while let Some(event) = pages.next().await.unwrap() {
        events.push(event.to_line());
    }
    events
}
