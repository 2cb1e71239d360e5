//! Single rules that read best as examples.

use serde::{Deserialize, Serialize};
use sessionlog::event::content::{ContentBlock, ModelSource};
use sessionlog::event::control::TurnStart;
use sessionlog::event::header::FORMAT_VERSION;
use sessionlog::event::message::{AssistantMessage, ToolResult, UserMessage};
use sessionlog::event::{Payload, Placement, SessionHeader};
use sessionlog::session::surface::fold_surface;
use sessionlog::session::{AppendError, Session, SessionOptions};

fn session() -> Session {
    Session::create(SessionHeader::new("s-1"), SessionOptions::new()).unwrap()
}

fn said(session: &Session, text: &str) -> u64 {
    session.append_surface(UserMessage::text(text), Placement::append()).unwrap().seq()
}

fn answer(content: Vec<ContentBlock>) -> AssistantMessage {
    AssistantMessage::new(1, 1, content, ModelSource::new("p", "m"))
}

#[derive(Serialize, Deserialize)]
struct Deployed {
    target: String,
}
sessionlog::log_event!(Deployed, "deploy/done", ignorable);

#[test]
fn v1_a_payload_type_carries_its_events_name() {
    assert_eq!((TurnStart::TYPE, UserMessage::TYPE, ToolResult::TYPE), ("turn/start", "user/message", "tool/result"));
    let event = session().append(Deployed { target: "prod".into() }).unwrap();
    assert_eq!((event.event_type(), event.ignorable()), ("deploy/done", true));
    assert_eq!(event.payload::<Deployed>().unwrap().unwrap().target, "prod");
    assert!(event.payload::<TurnStart>().unwrap().is_none());
}

#[test]
fn n1_new_event_types_do_not_raise_the_version() {
    let session = session();
    session.append(Deployed { target: "prod".into() }).unwrap();
    assert_eq!((session.header().version, FORMAT_VERSION), (FORMAT_VERSION, 1));
}

#[test]
fn s2_sources_are_unique_earlier_and_name_every_shadowed_node() {
    let session = session();
    let (first, second) = (said(&session, "a"), said(&session, "b"));
    let before = session.events(..);
    let replace = || Placement::replace(first, second);
    for placement in [
        replace(),
        replace().from([first]),
        replace().from([second]),
        replace().from([first, second, first]),
        replace().from([first, second, 2]),
        replace().from([first, second, 70]),
        Placement::append().from([]),
    ] {
        let refused = session.append_surface(UserMessage::text("c"), placement.clone());
        assert!(matches!(refused, Err(AppendError::Invalid(_))), "{placement:?}");
    }
    assert_eq!(session.events(..), before, "S4: a refused event leaves no trace");
    assert_eq!(session.surface().nodes(), [first, second]);
    // An empty list is a statement that only an assistant message may make: its stream is known to be empty.
    session.append_surface(answer(Vec::new()), Placement::append().from([])).unwrap();
    session.append_surface(UserMessage::text("c"), replace().from([first, second])).unwrap();
    assert_eq!(session.surface().nodes(), [3, 2]);
}

#[test]
fn s5_the_fold_tells_each_replacement_and_what_it_shadowed() {
    let session = session();
    for text in ["a", "b", "c", "d"] {
        said(&session, text);
    }
    session.append_surface(UserMessage::text("b and c"), Placement::replace(1, 2).from([1, 2])).unwrap();
    session.append_surface(UserMessage::text("all"), Placement::replace(0, 3).from([0, 4, 3])).unwrap();
    let fold = fold_surface(&session.events(..)).unwrap();
    let told: Vec<_> = fold.replacements.iter().map(|one| (one.seq, one.shadowed.clone())).collect();
    assert_eq!(told, [(4, vec![1, 2]), (5, vec![0, 4, 3])]);
    assert_eq!((fold.surface.nodes(), fold.surface.replace_generation()), (&[5][..], 2));
    assert_eq!(fold.surface, session.surface());
}
