//! Rules L1-L6, E2, E4, E5, V2, V3: the live session, its observers and its sink.

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use sessionlog::event::chunk::{AssistantChunk, StreamChunk, TextDelta, ToolCallDelta};
use sessionlog::event::control::{StepEnd, StepStart, TodoWrite, ToolCall, TurnEnd, TurnStart};
use sessionlog::event::message::{ToolResult, UserMessage};
use sessionlog::event::payload::to_json;
use sessionlog::event::{Event, Item, JsonText, NewEvent, Payload, Placement, SessionHeader, SessionId, Vocabulary};
use sessionlog::session::fork::BoundaryError;
use sessionlog::session::{
    AppendError, BufferFull, CountingIds, ForkAt, Observer, Session, SessionError, SessionOptions, Sink, Veto,
};

#[derive(Serialize, Deserialize, Clone)]
struct Measured {
    value: f64,
}
sessionlog::log_event!(Measured, "lab/measured", ignorable, out_of_band);

fn session(options: SessionOptions) -> Session {
    Session::create(SessionHeader::new("s"), options).unwrap()
}

fn plain() -> Session {
    session(SessionOptions::new())
}

fn raw(name: &str, data: &str) -> NewEvent {
    NewEvent::named(name, JsonText::parse(data).unwrap())
}

#[derive(Default)]
struct Recorder {
    seen: Mutex<Vec<String>>,
    conduct: Conduct,
}

#[derive(Default, Clone, Copy, PartialEq)]
enum Conduct {
    #[default]
    Listens,
    Vetoes,
    Panics,
    Fails,
    Appends,
}

impl Recorder {
    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

impl Observer for Recorder {
    fn created(&self, session: &Session) -> Result<(), Veto> {
        self.seen.lock().unwrap().push(format!("created at {}", session.next_seq()));
        if self.conduct == Conduct::Vetoes { Err(Veto::new("no")) } else { Ok(()) }
    }

    fn event(&self, session: &Session, event: &Event) -> Result<(), Box<dyn Error + Send + Sync>> {
        // The event is committed, and readers work from inside a callback.
        assert_eq!(session.event(event.seq()).as_ref(), Some(event));
        assert!(session.next_seq() > event.seq());
        drop((session.messages(), session.items(0, u64::MAX)));
        self.seen.lock().unwrap().push(format!("{} {}", event.seq(), event.event_type()));
        if self.conduct == Conduct::Appends {
            let refused = session.append(TurnStart::new(9));
            assert!(matches!(refused, Err(AppendError::Reentrant { .. })), "{refused:?}");
        }
        assert!(self.conduct != Conduct::Panics, "an observer's panic");
        if self.conduct == Conduct::Fails { Err("an observer's error".into()) } else { Ok(()) }
    }

    fn disposed(&self, _: &SessionId) {
        self.seen.lock().unwrap().push("disposed".into());
    }
}

#[test]
fn l2_observers_see_committed_events_and_their_failures_reach_no_one() {
    let recorders = [
        Arc::new(Recorder { conduct: Conduct::Panics, ..Recorder::default() }),
        Arc::new(Recorder { conduct: Conduct::Fails, ..Recorder::default() }),
        Arc::new(Recorder { conduct: Conduct::Appends, ..Recorder::default() }),
    ];
    let options = recorders.iter().fold(SessionOptions::new(), |options, one| options.observer(one.clone()));
    let session = session(options);
    session.append(TurnStart::new(1)).unwrap();
    session.append(AssistantChunk::text(1, 1, 0, "x")).unwrap();
    session.dispose();
    session.dispose();
    assert!(matches!(session.append(TurnStart::new(2)), Err(AppendError::Disposed { .. })));
    for recorder in recorders {
        assert_eq!(recorder.seen(), ["created at 0", "0 turn/start", "1 assistant/chunk", "disposed"]);
    }
    assert_eq!(session.next_seq(), 2);
}

#[test]
fn l2_a_veto_leaves_nothing_and_disposes_of_what_saw_created() {
    struct Keep(Mutex<Option<Session>>);
    impl Observer for Keep {
        fn created(&self, session: &Session) -> Result<(), Veto> {
            *self.0.lock().unwrap() = Some(session.clone());
            Ok(())
        }
        fn event(&self, _: &Session, _: &Event) -> Result<(), Box<dyn Error + Send + Sync>> {
            Ok(())
        }
    }
    let first = Arc::new(Recorder::default());
    let second = Arc::new(Recorder { conduct: Conduct::Vetoes, ..Recorder::default() });
    let third = Arc::new(Recorder::default());
    let keep = Arc::new(Keep(Mutex::new(None)));
    let sink = Arc::new(Queue::default());
    let options = SessionOptions::new().observer(keep.clone()).observer(first.clone()).observer(second.clone());
    let options = options.observer(third.clone()).sink(sink.clone());
    let items = vec![Item::Event(raw("turn/start", "{}").at(0, 0))];
    let refused = Session::from_seed(SessionHeader::new("s"), items, options);
    assert!(matches!(refused, Err(SessionError::Veto(veto)) if veto.reason == "no"));
    assert_eq!((first.seen(), second.seen()), (vec!["created at 1".into(), "disposed".into()], first.seen()));
    assert_eq!(third.seen(), Vec::<String>::new());
    let kept = keep.0.lock().unwrap().take().unwrap();
    assert!(matches!(kept.append(TurnStart::new(1)), Err(AppendError::Disposed { .. })));
    assert_eq!((kept.next_seq(), sink.accepted.load(Ordering::SeqCst)), (1, 0));
}

#[test]
fn l2_disposing_from_inside_a_callback_works_and_is_told_afterwards() {
    struct Closer(AtomicBool);
    impl Observer for Closer {
        fn event(&self, session: &Session, _: &Event) -> Result<(), Box<dyn Error + Send + Sync>> {
            session.dispose();
            assert!(!self.0.load(Ordering::SeqCst));
            Ok(())
        }
        fn disposed(&self, _: &SessionId) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let closer = Arc::new(Closer(AtomicBool::new(false)));
    let session = session(SessionOptions::new().observer(closer.clone()));
    session.append(TurnStart::new(1)).unwrap();
    assert!(closer.0.load(Ordering::SeqCst));
    assert!(session.is_closed());
}

#[test]
fn l3_seed_events_are_not_delivered_and_the_mark_is() {
    let recorder = Arc::new(Recorder::default());
    let seed = plain();
    seed.append(TurnStart::new(1)).unwrap();
    let options = SessionOptions::new().observer(recorder.clone());
    let session = Session::from_seed(SessionHeader::new("s"), seed.items(0, 9), options.clone()).unwrap();
    assert_eq!(recorder.seen(), ["created at 1", "1 session/end-seed"]);
    assert_eq!((session.first_live_seq(), session.next_seq()), (1, 2));
    let view = Session::view(SessionHeader::new("s"), seed.items(0, 9), options).unwrap();
    assert!(matches!(view.append(TurnStart::new(2)), Err(AppendError::ReadOnly { .. })));
    assert_eq!((view.next_seq(), recorder.seen().len()), (1, 2));
    let empty = Session::from_seed(SessionHeader::new("s"), Vec::<Item>::new(), SessionOptions::new()).unwrap();
    assert_eq!(empty.next_seq(), 0);
}

#[test]
fn l1_threads_append_in_one_order_and_everyone_sees_that_order() {
    struct Order(Mutex<Vec<u64>>);
    impl Observer for Order {
        fn event(&self, _: &Session, event: &Event) -> Result<(), Box<dyn Error + Send + Sync>> {
            self.0.lock().unwrap().push(event.seq());
            Ok(())
        }
    }
    let order = Arc::new(Order(Mutex::new(Vec::new())));
    let sink = Arc::new(Queue { limit: usize::MAX, ..Queue::default() });
    let session = session(SessionOptions::new().observer(order.clone()).sink(sink.clone()));
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let session = session.clone();
            scope.spawn(move || {
                for number in 0..300 {
                    let event = match number % 3 {
                        0 => session.append(Measured { value: 0.5 }),
                        _ => session.append(AssistantChunk::text(1, thread, 0, format!("{number}"))),
                    };
                    let event = event.unwrap();
                    assert_eq!(session.event(event.seq()), Some(event));
                }
            });
        }
    });
    assert_eq!(*order.0.lock().unwrap(), (0..1200).collect::<Vec<_>>());
    assert_eq!(session.events(..).iter().map(Event::seq).collect::<Vec<_>>(), (0..1200).collect::<Vec<_>>());
    assert_eq!(sink.accepted.load(Ordering::SeqCst), 1200);
}

struct Queue {
    limit: usize,
    waiting: AtomicUsize,
    accepted: AtomicUsize,
}

impl Default for Queue {
    fn default() -> Self {
        Self { limit: 150, waiting: AtomicUsize::new(0), accepted: AtomicUsize::new(0) }
    }
}

impl Sink for Queue {
    fn admit(&self, bytes: usize) -> Result<(), BufferFull> {
        let waiting_bytes = self.waiting.load(Ordering::SeqCst);
        if waiting_bytes.saturating_add(bytes) > self.limit {
            return Err(BufferFull { waiting_bytes, limit: self.limit });
        }
        Ok(())
    }

    fn accepted(&self, next_seq: u64, bytes: usize) {
        self.waiting.fetch_add(bytes, Ordering::SeqCst);
        assert!(next_seq as usize > self.accepted.swap(next_seq as usize, Ordering::SeqCst));
    }
}

#[test]
fn s4_a_full_queue_accepts_nothing_and_an_invalid_event_never_reaches_it() {
    let sink = Arc::new(Queue::default());
    let session = session(SessionOptions::new().sink(sink.clone()));
    let invalid = session.append_surface(UserMessage::text("x"), Placement::replace(0, 0));
    assert!(matches!(invalid, Err(AppendError::Invalid(_))));
    assert_eq!((sink.waiting.load(Ordering::SeqCst), session.next_seq()), (0, 0));
    let first = session.append(TurnStart::new(1)).unwrap();
    assert_eq!(sink.waiting.load(Ordering::SeqCst), first.weight());
    let delta = session.append(AssistantChunk::text(1, 1, 0, "some text")).unwrap();
    assert_eq!(sink.waiting.load(Ordering::SeqCst), first.weight() + delta.weight());
    let before = (session.surface(), session.messages(), session.next_seq(), session.checkpoint());
    let full = session.append_surface(UserMessage::text("x".repeat(99)), Placement::append());
    assert!(matches!(full, Err(AppendError::BufferFull(BufferFull { limit: 150, .. }))));
    let full = session.append(AssistantChunk::text(1, 1, 0, "x".repeat(150)));
    assert!(matches!(full, Err(AppendError::BufferFull(_))));
    assert_eq!(before, (session.surface(), session.messages(), session.next_seq(), session.checkpoint()));
}

#[test]
fn e2_what_json_would_change_is_refused_and_leaves_nothing() {
    let session = plain();
    for value in [f64::NAN, f64::INFINITY, -0.0] {
        assert!(matches!(session.append(Measured { value }), Err(AppendError::Payload(_))));
    }
    let big = 1 << 53;
    for chunk in [
        AssistantChunk::text(big, 1, 0, "a"),
        AssistantChunk::text(1, big, 0, "a"),
        AssistantChunk::reasoning(1, 1, u64::MAX, "a"),
    ] {
        assert!(matches!(session.append(chunk), Err(AppendError::Payload(_))));
    }
    assert!(matches!(session.append(TurnStart::new(big)), Err(AppendError::Payload(_))));
    assert!(matches!(session.append(StepStart::new(1, u64::MAX)), Err(AppendError::Payload(_))));
    assert_eq!(session.next_seq(), 0);
    let raw_text = "{\"z\":-0.0,\"a\":1e400,\"a\":[\"\\ud800\"]}";
    let event = session.append_event(raw("app/raw", raw_text)).unwrap();
    assert_eq!(event.data(), raw_text);
}

#[test]
fn e1_a_delta_from_the_short_way_is_the_delta_from_json() {
    let session = plain();
    let long = "a".repeat(70);
    for text in ["", "a", "\u{0}\u{1f}\"\\/\u{7f}\u{2028}\u{e9}\u{1f600}\n", &long] {
        for (id, name) in [("c", None), ("\"\n\\", Some("n\"")), ("", Some(""))] {
            let delta = ToolCallDelta {
                index: 3,
                id: id.into(),
                name: name.map(String::from),
                arguments_delta: text.into(),
                extra: Vec::new(),
            };
            let chunks = [
                AssistantChunk::text(1, 2, 3, text),
                AssistantChunk::reasoning(1, 2, 3, text),
                AssistantChunk::new(1, 2, StreamChunk::ToolCallDelta(delta)),
            ];
            for chunk in chunks {
                let expected = to_json(&chunk).unwrap();
                let event = session.append(chunk.clone()).unwrap();
                assert_eq!(event.json(), expected);
                assert_eq!(session.event(event.seq()).unwrap().json(), expected);
                assert_eq!(event.payload::<AssistantChunk>().unwrap().unwrap(), chunk);
            }
        }
    }
    let extra = vec![("x".to_owned(), JsonText::parse("1e0").unwrap())];
    let chunk = StreamChunk::TextDelta(TextDelta { index: 0, text: "a".into(), extra });
    let event = session.append(AssistantChunk::new(1, 1, chunk)).unwrap();
    assert!(event.data().ends_with(r#""text":"a","x":1e0}}"#));
}

#[test]
fn p1_the_live_log_stores_runs_packed() {
    let session = plain();
    for number in 0..1000 {
        session.append(AssistantChunk::text(1, 1, 0, format!("t{number}"))).unwrap();
    }
    let items = session.items(0, u64::MAX);
    assert!(matches!(items.as_slice(), [Item::Run(run)] if run.len() == 1000));
    let text: usize = (0..1000).map(|number| format!("t{number}").len()).sum();
    assert!(items[0].weight() <= text + 12 * 1000);
    assert!(matches!(session.items(7, 9).as_slice(), [Item::Event(_), Item::Event(_)]));
    assert!(matches!(session.items(7, 10).as_slice(), [Item::Run(run)] if run.len() == 3));
}

#[test]
fn e4_what_cannot_be_read_is_never_accepted() {
    let session = plain();
    for new in [
        raw("", "1"),
        raw("session", "{}"),
        raw("text-chunks", "{}"),
        raw(&"x".repeat(257), "{}"),
        raw("user/message", "{}"),
        raw("app/x", "{}").placed(Placement::append()),
        raw("request/header-delta", "{}"),
        raw("request/header", r#"{"reason":"fallback"}"#),
        raw("tool/result", "{}").placed(Placement::append()),
        raw(
            "tool/result",
            r#"{"message":{"source":{"callId":"a"},"content":[{"type":"tool-result","toolCallId":"b"}]}}"#,
        )
        .placed(Placement::append()),
    ] {
        let refused = session.append_event(new.clone());
        assert!(matches!(refused, Err(AppendError::Invalid(_))), "{new:?}: {refused:?}");
        let items = vec![Item::Event(new.at(0, 0))];
        let refused = Session::view(SessionHeader::new("s"), items, SessionOptions::new());
        assert!(matches!(refused, Err(SessionError::Seed(_) | SessionError::Unsupported(_))), "{refused:?}");
    }
    assert_eq!(session.next_seq(), 0);
    let gap = vec![Item::Event(raw("turn/start", "{}").at(1, 0))];
    let refused = Session::view(SessionHeader::new("s"), gap, SessionOptions::new()).unwrap_err();
    assert_eq!(refused.to_string(), "seed: event 1 (\"turn/start\"): sequence gap: expected seq 0");
}

#[test]
fn v2_unknown_required_types_are_unsupported_and_not_damage() {
    let items = |new: NewEvent, and: NewEvent| vec![Item::Event(new.at(0, 0)), Item::Event(and.at(1, 0))];
    let odd = || raw("tool/result", "{}").placed(Placement::append());
    let view = |items, vocabulary| {
        Session::view(SessionHeader::new("s"), items, SessionOptions::new().vocabulary(vocabulary)).map(|_| ())
    };
    let unknown = view(items(raw("app/x", "{}"), odd()), Vocabulary::well_known()).unwrap_err();
    assert!(matches!(&unknown, SessionError::Unsupported(found) if found.seq == 0 && found.event_type == "app/x"));
    let known = Vocabulary::core().with_name("app/x");
    assert!(matches!(view(items(raw("app/x", "{}"), odd()), known.clone()), Err(SessionError::Seed(_))));
    view(items(raw("app/x", "{}"), raw("turn/start", "{}")), known).unwrap();
    view(items(raw("app/x", "{}").ignorable(), raw("turn/start", "{}")), Vocabulary::core()).unwrap();
}

#[test]
fn v3_appends_of_unknown_types_are_accepted_unless_the_vocabulary_is_closed() {
    plain().append(Measured { value: 1.5 }).unwrap();
    let closed = |vocabulary| session(SessionOptions::new().vocabulary(vocabulary).closed_vocabulary(true));
    let refused = closed(Vocabulary::well_known()).append(Measured { value: 1.5 });
    assert!(matches!(refused, Err(AppendError::UnknownType { event_type }) if event_type == Measured::TYPE));
    closed(Vocabulary::core().with::<Measured>()).append(Measured { value: 1.5 }).unwrap();
}

#[test]
fn l4_headers_are_checked_and_filled_once() {
    let refused = Session::create(SessionHeader::new("s").cwd("not/absolute"), SessionOptions::new());
    assert!(matches!(refused, Err(SessionError::Header(_))));
    assert!(plain().header().created_at.is_some());
    let mut newer = SessionHeader::new("s");
    newer.version = 2;
    let refused = Session::view(newer, Vec::<Item>::new(), SessionOptions::new()).unwrap_err();
    assert!(matches!(refused, SessionError::NewerVersion { version: 2, .. }));
}

#[test]
fn l6_out_of_band_events_join_the_open_turn_or_bring_their_own() {
    let session = session(SessionOptions::new().check_invariants(true));
    let event = session.append_out_of_band(Measured { value: 1.0 }).unwrap();
    assert_eq!((event.seq(), event.event_type(), event.ignorable()), (1, Measured::TYPE, true));
    session.append(TurnStart::new(2)).unwrap();
    session.append_out_of_band(Measured { value: 2.0 }).unwrap();
    session.append(TurnEnd::completed(2)).unwrap();
    session.append_out_of_band(Measured { value: 3.0 }).unwrap();
    let types: Vec<String> =
        session.events(..).iter().map(|event| format!("{} {}", event.event_type(), event.data())).collect();
    let completed = |turn| format!("turn/end {{\"turn\":{turn},\"reason\":{{\"kind\":\"completed\"}}}}");
    assert_eq!(
        types,
        [
            "turn/start {\"turn\":1}".to_owned(),
            "lab/measured {\"value\":1.0}".to_owned(),
            completed(1),
            "turn/start {\"turn\":2}".to_owned(),
            "lab/measured {\"value\":2.0}".to_owned(),
            completed(2),
            "turn/start {\"turn\":3}".to_owned(),
            "lab/measured {\"value\":3.0}".to_owned(),
            completed(3),
        ]
    );
    let full = Arc::new(Queue { limit: 100, ..Queue::default() });
    let small = self::session(SessionOptions::new().sink(full));
    assert!(matches!(small.append_out_of_band(Measured { value: 1.0 }), Err(AppendError::BufferFull(_))));
    assert_eq!(small.next_seq(), 0);
}

#[test]
fn l5_boundaries_are_existing_seqs_outside_turns_and_never_moved() {
    let session = plain();
    assert_eq!(session.fork_boundary(ForkAt::End), Some(Ok(None)));
    assert_eq!(session.fork_boundary(ForkAt::LastTurn), Some(Ok(None)));
    session.append_surface(UserMessage::text("x"), Placement::append()).unwrap();
    session.append(TurnStart::new(1)).unwrap();
    for _ in 0..5 {
        session.append(AssistantChunk::text(1, 1, 0, "x")).unwrap();
    }
    session.append(TurnEnd::completed(1)).unwrap();
    session.append(TurnStart::new(2)).unwrap();
    let at = |seq: u64| session.fork_boundary(seq.into()).unwrap();
    assert_eq!((at(0), at(7)), (Ok(Some(0)), Ok(Some(7))));
    for seq in 1..7 {
        let inside = BoundaryError::InsideTurn { boundary: seq, opened_at: 1, last_closed: Some(0) };
        assert_eq!(at(seq), Err(inside));
    }
    assert_eq!(at(9), Err(BoundaryError::NoSuchSeq { boundary: 9, next_seq: 9 }));
    assert_eq!(at(u64::MAX), Err(BoundaryError::NoSuchSeq { boundary: u64::MAX, next_seq: 9 }));
    let end = BoundaryError::InsideTurn { boundary: 8, opened_at: 8, last_closed: Some(7) };
    assert_eq!(session.fork_boundary(ForkAt::End), Some(Err(end)));
    assert_eq!(session.fork_boundary(ForkAt::LastTurn), Some(Ok(Some(7))));
    let seed = sessionlog::session::Seed {
        checkpoint: Some({
            let fold = sessionlog::session::Fold::of(&session.items(0, 3)).unwrap();
            (fold.checkpoint(), session.events(0..1))
        }),
        items: session.items(3, 99),
    };
    let view = Session::view(SessionHeader::new("s"), seed, SessionOptions::new()).unwrap();
    assert_eq!(view.first_held_seq(), 3);
    assert_eq!(view.fork_boundary(ForkAt::Seq(2)), None);
    for at in [ForkAt::Seq(4), ForkAt::Seq(7), ForkAt::Seq(8), ForkAt::Seq(9), ForkAt::End, ForkAt::LastTurn] {
        assert_eq!(view.fork_boundary(at), session.fork_boundary(at), "{at:?}");
    }
}

#[test]
fn section_7_the_strict_mode_names_the_rule_that_is_broken() {
    let session = session(SessionOptions::new().check_invariants(true).ids(Arc::new(CountingIds::new("m"))));
    let broken = |result: Result<Event, AppendError>, words: &str| {
        let Err(AppendError::Invariant(violation)) = result else { panic!("{words}: {result:?}") };
        assert!(violation.to_string().contains(words), "{violation}");
    };
    broken(session.append(TurnStart::new(2)), "expected 1, found 2");
    broken(session.append(TurnEnd::completed(1)), "no turn is open");
    broken(session.append(StepStart::new(1, 1)), "no turn is open");
    broken(session.append(TodoWrite::new([])), "no turn is open");
    session.append(TurnStart::new(1)).unwrap();
    broken(session.append(TurnStart::new(2)), "inside turn 1");
    broken(session.append(StepStart::new(1, 2)), "must name step 1");
    broken(session.append(StepStart::new(2, 1)), "must name turn 1");
    broken(session.append(AssistantChunk::text(1, 1, 0, "x")), "no step is open");
    session.append(StepStart::new(1, 1)).unwrap();
    broken(session.append(StepStart::new(1, 2)), "inside step 1");
    broken(session.append(AssistantChunk::text(1, 2, 0, "x")), "must name step 1");
    broken(session.append(StepEnd::new(1, 2)), "must name step 1");
    broken(session.append(TurnEnd::completed(1)), "step 1 is still open");
    broken(session.append(ToolCall::new(2, 1, "c", "n", "{}")), "must name turn 1");
    let answer = |id: &str| session.append_surface(ToolResult::text(1, 1, id, "x"), Placement::append());
    broken(answer("c"), "no open call \"c\"");
    session.append(ToolCall::new(1, 1, "c", "n", "{}")).unwrap();
    answer("c").unwrap();
    broken(answer("c"), "no open call \"c\"");
    session.append(StepEnd::new(1, 1)).unwrap();
    broken(session.append(StepEnd::new(1, 1)), "no step is open");
    session.append(TurnEnd::completed(1)).unwrap();
    session.append_surface(UserMessage::text("between turns"), Placement::append()).unwrap();
    session.append(Measured { value: 1.0 }).unwrap();
    session.append_event(raw("session/end-seed", "{}")).unwrap();
}

#[test]
fn e5_events_are_shared_and_ids_are_filled_once() {
    let session = session(SessionOptions::new().ids(Arc::new(CountingIds::new("m"))));
    session.append_surface(UserMessage::text("a"), Placement::append()).unwrap();
    let mut named = UserMessage::text("b");
    named.id = "mine".into();
    session.append_surface(named, Placement::append()).unwrap();
    let messages = session.messages();
    let ids: Vec<_> = messages.iter().map(|message| message.id().unwrap().into_owned()).collect();
    assert_eq!(ids, ["m-1", "mine"]);
    assert_eq!((messages[0].text().as_str(), messages[0].role().as_deref()), ("a", Some("user")));
    let event = session.event(0).unwrap();
    assert_eq!(event.json().as_str().as_ptr(), messages[0].json().as_str().as_ptr());
}
