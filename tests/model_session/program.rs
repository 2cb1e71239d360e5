//! Random agent sessions: bytes are turned into a log that a well-behaved agent loop could have written.

use sessionlog::event::chunk::AssistantChunk;
use sessionlog::event::content::{ContentBlock, ModelSource, TokenUsage};
use sessionlog::event::control::{
    HeaderSnapshot, RequestContext, RequestHeader, StepEnd, StepStart, TodoStatus, TodoWrite, ToolCall, TurnEnd,
    TurnStart,
};
use sessionlog::event::message::{AssistantMessage, ToolResult, UserMessage};
use sessionlog::event::{JsonText, NewEvent, Placement, SessionHeader};
use sessionlog::session::{Clock, CountingIds, Session, SessionOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// A clock that jumps about, backwards too.
pub struct JumpyClock(AtomicI64);

impl Clock for JumpyClock {
    fn now(&self) -> i64 {
        let tick = self.0.fetch_add(1, Ordering::Relaxed);
        1_700_000_000_000 + tick * 7 - (tick % 5) * 40
    }
}

pub fn options() -> SessionOptions {
    SessionOptions::new()
        .clock(Arc::new(JumpyClock(AtomicI64::new(0))))
        .ids(Arc::new(CountingIds::new("m")))
        .check_invariants(true)
}

/// Runs `program` in a new session that checks the invariants; every choice is taken from the next byte.
pub fn run(program: &[u8]) -> Session {
    let session = Session::create(SessionHeader::new("s"), options()).unwrap();
    let mut calls: Vec<(String, bool)> = Vec::new();
    let mut made = 0;
    for &byte in program {
        let (op, choice, pick) = (byte % 16, u64::from(byte / 16), usize::from(byte / 16));
        let turn = session.open_turn().map_or(0, |open| open.turn);
        let step = session.open_step().map(|open| open.step);
        let surface = session.surface();
        match (session.open_turn().is_some(), step, op) {
            (false, _, 0..=9) => drop(session.append(TurnStart::new(session.next_turn())).unwrap()),
            (true, None, 0..=3) => {
                let step = session.fold().next_step();
                session.append(StepStart::new(turn, step)).unwrap();
                calls.clear();
            }
            (true, None, 4) => drop(session.append(TurnEnd::completed(turn)).unwrap()),
            (true, Some(step), 0..=3) => {
                let text = ["a", "", "\n\"x\\", "a long piece of streamed text that is not inlined", "\u{1f600}"];
                let text = text[pick % 5];
                let chunk = match choice % 3 {
                    0 => AssistantChunk::text(turn, step, choice / 6, text),
                    1 => AssistantChunk::reasoning(turn, step, 0, text),
                    _ => AssistantChunk::tool_call(turn, step, 1, "c\"1", text),
                };
                session.append(chunk).unwrap();
            }
            (true, Some(step), 4) => {
                session.append(AssistantChunk::usage(turn, step, TokenUsage::new(choice, byte.into()))).unwrap();
            }
            (true, Some(step), 5 | 6) => {
                let mut content = vec![ContentBlock::text(format!("t{choice}")); pick % 2];
                for _ in 0..choice % 3 {
                    made += 1;
                    let id = format!("call-{made}");
                    content.push(ContentBlock::tool_call(&id, "bash", "{}"));
                    calls.push((id, false));
                }
                let message = AssistantMessage::new(turn, step, content, ModelSource::new("p", "m"));
                let message = if choice % 4 == 0 { message.usage(TokenUsage::new(1, choice)) } else { message };
                session.append_surface(message, Placement::append().from(session.step_chunks())).unwrap();
            }
            (true, Some(step), 7) => {
                // Now and then a tool is called that no message asked for.
                let open = calls.iter_mut().find(|(_, called)| !called);
                let id = match open {
                    Some((id, called)) => {
                        *called = true;
                        id.clone()
                    }
                    None => format!("loose-{choice}-{}", session.next_seq()),
                };
                session.append(ToolCall::new(turn, step, id, "bash", "{}")).unwrap();
            }
            (true, Some(step), 8 | 9) => {
                let pending = session.pending_calls();
                if let Some(call) = pending.iter().find(|call| call.called_at.is_some()) {
                    let result = ToolResult::text(turn, step, &call.call_id, "out");
                    session.append_surface(result, Placement::append().from(call.called_at)).unwrap();
                }
            }
            (true, Some(step), 10) if session.pending_calls().is_empty() => {
                session.append(StepEnd::new(turn, step)).unwrap();
            }
            (true, _, 11) => {
                let header = HeaderSnapshot::new("p", "m").system(["", "be brief"][pick % 2]);
                session.append(RequestHeader::new(header, "change")).unwrap();
                session.append(RequestContext::new("p", "m", Some(choice))).unwrap();
            }
            (true, _, 12) => {
                session.append(TodoWrite::new([(format!("do {choice}"), TodoStatus::Pending)])).unwrap();
            }
            (_, _, 13) => {
                let title = JsonText::parse(&format!("{{\"title\":\"t{choice}\"}}")).unwrap();
                session.append_event(NewEvent::named("session/title", title)).unwrap();
            }
            (_, _, 14) if !surface.nodes().is_empty() => {
                let nodes = surface.nodes();
                let first = pick % nodes.len();
                let last = (first + pick % 3).min(nodes.len() - 1);
                let placement = Placement::replace(nodes[first], nodes[last]).from(nodes[first..=last].to_vec());
                session.append_surface(UserMessage::text(format!("summary {choice}")), placement).unwrap();
            }
            _ => drop(session.append_surface(UserMessage::text("hello"), Placement::append()).unwrap()),
        }
    }
    session
}
