//! Section 8 and the folds, on every prefix of random sessions.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sessionlog::event::chunk::{AssistantChunk, StreamChunk};
use sessionlog::event::content::{ContentBlock, TokenUsage};
use sessionlog::event::control::{RequestContext, RequestHeader, TodoWrite, ToolCall};
use sessionlog::event::message::{AssistantMessage, ToolResult};
use sessionlog::event::{Batch, Event, Item, Placement, SessionHeader, SessionId, SurfaceOp};
use sessionlog::session::fold::Fold;
use sessionlog::session::history::fold_messages;
use sessionlog::session::request::fold_request_header;
use sessionlog::session::surface::fold_surface;
use sessionlog::session::{Seed, Session, SessionOptions, Validator, invariants, repair};

use super::program;

fn id() -> SessionId {
    SessionId::new("s").unwrap()
}

fn pack(events: &[Event]) -> Vec<Item> {
    Batch::pack(events.iter().cloned()).map(Batch::into_items).unwrap_or_default()
}

fn fold(events: &[Event]) -> Fold {
    Fold::of(&pack(events)).unwrap()
}

/// A tool call without a result: its id, and the seq of its `tool/call` if it was started.
type Unanswered = (String, Option<u64>);

/// Which closers the log needs, worked out from typed payloads alone: the calls, and whether a step is open.
fn naive_closers(events: &[Event]) -> Option<(Vec<Unanswered>, bool)> {
    let open_from = |start: &str, end: &str| {
        let last = |name: &str| events.iter().rposition(|event| event.event_type() == name);
        last(start).filter(|start| last(end).is_none_or(|end| end < *start))
    };
    open_from("turn/start", "turn/end")?;
    let Some(step) = open_from("step/start", "step/end") else { return Some((Vec::new(), false)) };
    let mut calls: Vec<Unanswered> = Vec::new();
    for event in &events[step..] {
        if let Some(message) = event.payload::<AssistantMessage>().unwrap() {
            for block in message.message.content {
                if let ContentBlock::ToolCall(call) = block {
                    calls.push((call.id, None));
                }
            }
        }
        if let Some(call) = event.payload::<ToolCall>().unwrap() {
            match calls.iter_mut().find(|(id, _)| *id == call.call_id) {
                Some((_, called_at)) => *called_at = Some(event.seq()),
                None => calls.push((call.call_id, Some(event.seq()))),
            }
        }
        if let Some(result) = event.payload::<ToolResult>().unwrap() {
            calls.retain(|(id, _)| *id != result.message.source.call_id);
        }
    }
    Some((calls, true))
}

fn check_closers(events: &[Event]) {
    let closers = repair::closers(&fold(events), &id());
    assert_eq!(closers, repair::closers(&fold(events), &id()), "R2: deterministic");
    let Some((calls, step_open)) = naive_closers(events) else {
        assert_eq!(closers, [], "no turn is open");
        return;
    };
    let mut rest = closers.as_slice();
    for (call_id, called_at) in calls {
        let (first, tail) = rest.split_first().unwrap();
        rest = tail;
        let result: ToolResult = first.payload().unwrap().unwrap();
        assert_eq!(result.message.source.call_id, call_id);
        let code = if called_at.is_some() { "TOOL_OUTCOME_UNKNOWN" } else { "TOOL_NOT_STARTED" };
        assert_eq!(result.error.unwrap().code, code);
        assert_eq!(first.placement().unwrap().op(), SurfaceOp::Append);
        let cited = first.placement().unwrap().sources().map(|sources| sources.iter().collect::<Vec<_>>());
        assert_eq!(cited, called_at.map(|seq| vec![seq]));
        let ContentBlock::ToolResult(block) = &result.message.content[0] else { panic!("one tool-result block") };
        assert_eq!((block.is_error, &block.tool_call_id), (Some(true), &call_id));
    }
    let types: Vec<&str> = rest.iter().map(Event::event_type).collect();
    assert_eq!(types, if step_open { vec!["step/end", "turn/end"] } else { vec!["turn/end"] });
    assert!(closers.last().unwrap().data().ends_with(r#""reason":{"kind":"interrupted"}}"#));

    let mut log = events.to_vec();
    for closer in closers.iter().cloned() {
        // R2: a crash between two closers leaves exactly the missing ones to be written.
        assert_eq!(repair::closers(&fold(&log), &id()), closers[log.len() - events.len()..]);
        assert_eq!((closer.seq(), closer.time()), (log.len() as u64, events.last().unwrap().time()));
        log.push(closer);
    }
    assert_eq!(repair::closers(&fold(&log), &id()), [], "R2: idempotent");
    let mut validator = Validator::new();
    log.iter().for_each(|event| validator.check(event).unwrap());
    assert_eq!(invariants::first_violation(&pack(&log)).unwrap(), None);
}

/// The D5 folds, worked out naively.
fn check_folds(events: &[Event]) {
    let fold = fold(events);
    let all = |f: &dyn Fn(&Event) -> Option<String>| events.iter().filter_map(f).next_back();
    let todos = all(&|event| Some(format!("{:?}", event.payload::<TodoWrite>().unwrap()?.todos)));
    assert_eq!(format!("{:?}", fold.todos()), todos.unwrap_or_else(|| "[]".into()));
    let window = events.iter().filter_map(|event| event.payload::<RequestContext>().unwrap()).next_back();
    assert_eq!(fold.route().and_then(|route| route.context_window), window.and_then(|window| window.context_window));
    let system = events.iter().filter_map(|event| event.payload::<RequestHeader>().unwrap()).next_back();
    let system = system.and_then(|header| header.header.system).filter(|system| system.as_str() != "\"\"");
    assert_eq!(fold.request_header().and_then(|head| head.system()), system.as_ref());
    assert_eq!(fold_request_header(events).as_ref(), fold.request_header());
    let mut usage: BTreeMap<(u64, u64), (Option<TokenUsage>, Option<TokenUsage>)> = BTreeMap::new();
    for event in events {
        if let Some(chunk) = event.payload::<AssistantChunk>().unwrap()
            && let StreamChunk::Usage(counts) = chunk.chunk
        {
            usage.entry((chunk.turn, chunk.step)).or_default().0 = Some(counts.usage);
        }
        if let Some(message) = event.payload::<AssistantMessage>().unwrap()
            && let Some(counts) = message.usage
        {
            usage.entry((message.turn, message.step)).or_default().1 = Some(counts);
        }
    }
    let mut total = TokenUsage::new(0, 0);
    usage
        .values()
        .filter_map(|(chunk, message)| chunk.as_ref().or(message.as_ref()))
        .for_each(|counts| total.add(counts));
    assert_eq!(fold.usage().total(), total);
    assert_eq!(fold.usage().steps().count(), usage.len());
    for (name, seen) in fold.counts() {
        let of_type = events.iter().filter(|event| event.event_type() == name);
        assert_eq!(of_type.count() as u64, seen.count, "{name}");
    }
    let step_start = events.iter().rposition(|event| event.event_type() == "step/start");
    let chunks = step_start.filter(|_| fold.open_step().is_some()).map_or_else(Vec::new, |start| {
        let chunks = events[start..].iter().filter(|event| event.event_type() == "assistant/chunk");
        chunks.map(Event::seq).collect()
    });
    assert_eq!(fold.step_chunks().iter().collect::<Vec<_>>(), chunks);
}

fn surface_events(events: &[Event], nodes: &[u64]) -> Vec<Event> {
    nodes.iter().map(|node| events[*node as usize].clone()).collect()
}

/// A fold, and a session, that go on from a checkpoint are those of the whole log.
fn check_checkpoint(events: &[Event], cut: usize, whole: &Session) {
    let before = fold(&events[..cut]);
    let checkpoint = before.checkpoint();
    let mut again = Fold::from_checkpoint(&checkpoint).unwrap();
    assert_eq!(again.checkpoint(), checkpoint);
    events[cut..].iter().for_each(|event| again.apply(event).unwrap());
    assert_eq!(again.checkpoint(), fold(events).checkpoint());
    let aside = surface_events(events, before.surface().nodes());
    let seed = Seed { checkpoint: Some((checkpoint, aside)), items: pack(&events[cut..]) };
    let view = Session::view(SessionHeader::new("s"), seed, SessionOptions::new()).unwrap();
    assert_eq!(view.request(), whole.request());
    assert_eq!((view.surface(), view.next_seq()), (whole.surface(), whole.next_seq()));
    assert_eq!(view.checkpoint(), whole.checkpoint());
    assert_eq!(view.events(..), events[cut..]);
    assert_eq!(repair::closers(&view.fold(), view.id()), repair::closers(&whole.fold(), whole.id()));
    for node in whole.surface().nodes() {
        assert_eq!(view.event(*node), whole.event(*node));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn r2_every_prefix_closes_once_and_for_all(program in proptest::collection::vec(any::<u8>(), 1..60)) {
        let events = program::run(&program).events(..);
        for cut in 0..=events.len() {
            check_closers(&events[..cut]);
        }
    }

    #[test]
    fn d5_folds_of_every_prefix_are_what_the_payloads_say(program in proptest::collection::vec(any::<u8>(), 1..60)) {
        let events = program::run(&program).events(..);
        for cut in 0..=events.len() {
            check_folds(&events[..cut]);
        }
    }

    #[test]
    fn d4_live_session_pure_folds_and_checkpoints_agree_everywhere(
        program in proptest::collection::vec(any::<u8>(), 1..60),
    ) {
        let session = program::run(&program);
        let events = session.events(..);
        prop_assert_eq!(&fold_surface(&events).unwrap().surface, &session.surface());
        prop_assert_eq!(&*fold_messages(&events).unwrap(), &*session.messages());
        prop_assert_eq!(session.items(0, u64::MAX), pack(&events));
        prop_assert_eq!(fold(&events).checkpoint(), session.checkpoint());
        for cut in 0..=events.len() {
            check_checkpoint(&events, cut, &session);
        }
    }

    #[test]
    fn l3_a_session_from_its_own_log_is_that_session_and_a_mark(
        program in proptest::collection::vec(any::<u8>(), 1..60),
    ) {
        let session = program::run(&program);
        let length = session.next_seq();
        let again = Session::from_seed(SessionHeader::new("s"), session.items(0, length), SessionOptions::new()).unwrap();
        prop_assert_eq!(again.events(..length), session.events(..));
        prop_assert_eq!(again.first_live_seq(), length);
        prop_assert_eq!(again.request(), session.request());
        let marks = again.events(length..);
        prop_assert_eq!(marks.len(), usize::from(length > 0));
        for mark in marks {
            prop_assert_eq!(format!("{} {}", mark.event_type(), mark.data()), "session/end-seed {}");
        }
        let third = Session::from_seed(SessionHeader::new("s"), again.items(0, u64::MAX), SessionOptions::new()).unwrap();
        prop_assert_eq!(third.events(..), again.events(..));
    }
}

#[test]
fn r2_no_closer_for_a_result_that_is_in_the_log_even_when_ids_repeat_or_are_empty() {
    let session = Session::create(SessionHeader::new("s"), SessionOptions::new()).unwrap();
    let raw = |name: &str, data: &str, placement: Option<Placement>| {
        let mut new = sessionlog::event::NewEvent::named(name, sessionlog::event::JsonText::parse(data).unwrap());
        new.placement = placement;
        session.append_event(new).unwrap()
    };
    raw("turn/start", "{}", None);
    raw("step/start", r#"{"turn":1,"step":1}"#, None);
    let blocks =
        r#"{"message":{"content":[{"type":"tool-call","id":""},{"type":"tool-call","id":""},{"type":"tool-call"}]}}"#;
    raw("assistant/message", blocks, Some(Placement::append()));
    raw("tool/call", r#"{"callId":""}"#, None);
    let result =
        r#"{"message":{"source":{"callId":""},"content":[{"type":"tool-result","toolCallId":"","content":[]}]}}"#;
    let first = raw("tool/result", result, Some(Placement::append()));
    // Cutting an old result short is no second answer.
    raw("tool/result", result, Some(Placement::replace(first.seq(), first.seq()).from([first.seq()])));
    let closers = repair::closers(&session.fold(), session.id());
    let types: Vec<&str> = closers.iter().map(Event::event_type).collect();
    assert_eq!(types, ["tool/result", "step/end", "turn/end"]);
    assert!(closers[0].data().contains("TOOL_NOT_STARTED"));
    assert_eq!(closers[2].data(), r#"{"turn":1,"reason":{"kind":"interrupted"}}"#);
}
