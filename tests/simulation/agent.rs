//! One more event of an agent's session, chosen by a number.

use sessionlog::event::chunk::AssistantChunk;
use sessionlog::event::content::{ContentBlock, ModelSource, TokenUsage};
use sessionlog::event::control::{
    HeaderSnapshot, RequestContext, RequestHeader, StepEnd, StepStart, TodoStatus, TodoWrite, ToolCall, TurnEnd,
    TurnStart,
};
use sessionlog::event::message::{AssistantMessage, ToolResult, UserMessage};
use sessionlog::event::{JsonText, NewEvent, Placement};
use sessionlog::session::Session;

/// Appends what a well-behaved agent loop could append at this point of its session.
pub fn act(session: &Session, choice: u64) {
    let (op, pick) = (choice % 14, choice / 14);
    let turn = session.open_turn().map(|open| open.turn);
    let step = session.open_step().map(|open| open.step);
    match (turn, step, op) {
        (None, _, 0..=9) => drop(session.append(TurnStart::new(session.next_turn())).unwrap()),
        (Some(turn), None, 0..=4) => {
            let step = session.fold().next_step();
            session.append(StepStart::new(turn, step)).unwrap();
        }
        (Some(turn), None, 5 | 6) => drop(session.append(TurnEnd::completed(turn)).unwrap()),
        (Some(turn), Some(step), 0..=3) => stream(session, turn, step, pick),
        (Some(turn), Some(step), 4 | 5) => ask(session, turn, step, pick),
        (Some(turn), Some(step), 6 | 7) => {
            let pending = session.pending_calls();
            let Some(call) = pending.get(usize::try_from(pick).unwrap() % pending.len().max(1)) else {
                return drop(
                    session
                        .append(ToolCall::new(turn, step, format!("loose-{}", session.next_seq()), "t", "{}"))
                        .unwrap(),
                );
            };
            match call.called_at {
                None => drop(session.append(ToolCall::new(turn, step, &call.call_id, "bash", "{}")).unwrap()),
                Some(seq) => {
                    let output = "out ".repeat(usize::try_from(pick % 90).unwrap());
                    let result = ToolResult::text(turn, step, &call.call_id, output);
                    session.append_surface(result, Placement::append().from([seq])).unwrap();
                }
            }
        }
        (Some(turn), Some(step), 8 | 9) if session.pending_calls().is_empty() => {
            session.append(StepEnd::new(turn, step)).unwrap();
        }
        (Some(_), _, 10) => {
            let header = HeaderSnapshot::new("p", "m").system(["", "be brief"][usize::from(pick % 2 == 1)]);
            session.append(RequestHeader::new(header, "change")).unwrap();
            session.append(RequestContext::new("p", "m", Some(pick))).unwrap();
        }
        (Some(_), _, 11) => {
            session.append(TodoWrite::new([(format!("do {pick}"), TodoStatus::Pending)])).unwrap();
        }
        (_, _, 12) => compact(session, pick),
        (_, _, 13) => {
            let title = JsonText::parse(&format!("{{\"title\":\"t{pick}\"}}")).unwrap();
            session.append_event(NewEvent::named("session/title", title)).unwrap();
        }
        _ => drop(session.append_surface(UserMessage::text("hello"), Placement::append()).unwrap()),
    }
}

fn stream(session: &Session, turn: u64, step: u64, pick: u64) {
    for number in 0..=pick % 7 {
        let text = ["a", "", "\n\"x\\", "a long piece of streamed text that is not inlined", "\u{1f600}"];
        let text = text[usize::try_from((pick + number) % 5).unwrap()];
        let chunk = match pick % 3 {
            0 => AssistantChunk::text(turn, step, 0, text),
            1 => AssistantChunk::reasoning(turn, step, 1, text),
            _ => AssistantChunk::tool_call(turn, step, 2, "c\"1", text),
        };
        session.append(chunk).unwrap();
    }
    if pick.is_multiple_of(5) {
        session.append(AssistantChunk::usage(turn, step, TokenUsage::new(pick, 3))).unwrap();
    }
}

fn ask(session: &Session, turn: u64, step: u64, pick: u64) {
    let mut content = vec![ContentBlock::text(format!("t{pick}")); usize::from(pick.is_multiple_of(2))];
    for number in 0..pick % 3 {
        content.push(ContentBlock::tool_call(format!("call-{}-{number}", session.next_seq()), "bash", "{}"));
    }
    let message = AssistantMessage::new(turn, step, content, ModelSource::new("p", "m"));
    let message = if pick.is_multiple_of(4) { message.usage(TokenUsage::new(1, pick)) } else { message };
    session.append_surface(message, Placement::append().from(session.step_chunks())).unwrap();
}

fn compact(session: &Session, pick: u64) {
    let surface = session.surface();
    let nodes = surface.nodes();
    if nodes.is_empty() {
        return;
    }
    let first = usize::try_from(pick).unwrap() % nodes.len();
    let last = (first + usize::try_from(pick % 3).unwrap()).min(nodes.len() - 1);
    let placement = Placement::replace(nodes[first], nodes[last]).from(nodes[first..=last].to_vec());
    session.append_surface(UserMessage::text(format!("summary {pick}")), placement).unwrap();
}
