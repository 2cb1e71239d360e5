//! Reading verbs beside a live writer: they see what is durable, say whose the open turn is, and are never refused.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod cli_common;

use std::fs;

use cli_common::Home;
use sessionlog::backend::Expected;
use sessionlog::event::{Batch, Event, SessionId};
use sessionlog::sample::Recording;
use sessionlog::segment::EngineOptions;

#[test]
fn every_reading_verb_works_beside_a_live_writer() {
    let home = Home::new();
    let recording = Recording::new(5).events(900);
    let mut header = recording.header();
    "live".clone_into(&mut header.id);
    header.version = sessionlog::event::header::FORMAT_VERSION;
    let id = SessionId::new("live").unwrap();
    let engine = EngineOptions::new().rotate_at(4_000).open(home.store()).unwrap();
    let events: Vec<Event> = recording.iter().collect();
    let mut expected = Expected::ABSENT;
    let mut messages = 0;
    for piece in events.chunks(150) {
        let create = (expected == Expected::ABSENT).then_some(&header);
        let head = engine.append(&id, create, expected, &Batch::pack(piece.iter().cloned()).unwrap()).unwrap();
        expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
        let stored = &events[..usize::try_from(head.next_seq).unwrap()];
        let document = home.run(["messages", "live", "--json"]).ok().document();
        let now = document["messages"].as_array().unwrap().len();
        assert_eq!(now, sessionlog::session::history::fold_messages(stored).unwrap().len());
        assert!(now >= messages);
        messages = now;
        let stats = home.run(["stats", "live", "--json"]).ok().document();
        assert!(stats["events"] == head.next_seq && stats["messages"] == now, "{stats}");
        let last = home.run(["last", "live", "--role", "user", "--json"]).ok().document();
        assert!(last["seq"].as_u64().unwrap() < head.next_seq);
        home.run(["show", "live"]).ok();
        home.run(["view", "live", "-o", "page.html"]).ok();
        let page = fs::read_to_string(home.path("page.html")).unwrap();
        assert_eq!(page.contains("its writer is at work"), stored_ends_in_turn(stored), "{}", head.next_seq);
        assert!(!page.contains("incomplete record"));
        let hits = home.run(["grep", "e", "--json"]).ok().json();
        assert!(hits.iter().all(|hit| hit["id"] == "live" && hit["seq"].as_u64().unwrap() < head.next_seq));
    }
    assert!(messages > 3);
    engine.release(&id, expected.epoch).unwrap();
    home.run(["view", "live", "-o", "page.html"]).ok();
    let page = fs::read_to_string(home.path("page.html")).unwrap();
    assert_eq!(page.contains("a crash left it"), stored_ends_in_turn(&events));
}

fn stored_ends_in_turn(events: &[Event]) -> bool {
    let last = events.iter().rev().find(|event| event.event_type().starts_with("turn/"));
    last.is_some_and(|event| event.event_type() == "turn/start")
}
