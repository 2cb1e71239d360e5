//! The store that is damaged: a session of every kind of file, a fork that shares the first of them, and a bystander.

use std::path::Path;

use sessionlog::backend::{Expected, Head};
use sessionlog::event::{Batch, Event, JsonText, NewEvent, Placement, SessionHeader};
use sessionlog::segment::{Engine, EngineOptions, SealOptions};

use crate::segment_common::id;

/// The sessions, in the order of a listing by name, with the number of their events: `s` has two sealed segments, then journals;
/// `fork` shares the first of these and has a checkpoint in a file of its own.
pub const SESSIONS: [(&str, u64); 3] = [("bystander", 9), ("fork", 27), ("s", 92)];

/// Events of a turn, of which all but the third say something on the surface.
const TURN: u64 = 13;

pub fn options() -> EngineOptions {
    EngineOptions::new().rotate_at(900).background_sealing(false).seed(11)
}

/// The event at this seq: turns of a question, a streamed answer, and the answer whole.
fn event(seq: u64) -> Event {
    let turn = seq / TURN + 1;
    let text = |chunk: u64| format!("{} {turn} ", ["the", "answer", "takes", "many", "words"][chunk as usize % 5]);
    let (event_type, data, placement) = match seq % TURN {
        0 => ("turn/start", format!(r#"{{"turn":{turn}}}"#), None),
        1 => {
            let data = format!(
                r#"{{"id":"u{seq}","role":"user","content":[{{"type":"text","text":"question {turn}"}}],"source":{{"kind":"user"}}}}"#
            );
            // The third question stands for everything said before.
            let all = Placement::replace(1, 21).from([1, 8, 14, 21]);
            ("user/message", data, Some(if turn == 3 { all } else { Placement::append() }))
        }
        2 => ("step/start", format!(r#"{{"turn":{turn},"step":1}}"#), None),
        chunk @ 3..=7 => {
            let delta = format!(r#"{{"type":"text-delta","index":0,"text":"{}"}}"#, text(chunk));
            ("assistant/chunk", format!(r#"{{"turn":{turn},"step":1,"chunk":{delta}}}"#), None)
        }
        8 => {
            let whole: String = (3..=7).map(text).collect();
            let message = format!(
                r#"{{"id":"a{seq}","role":"assistant","content":[{{"type":"text","text":"{whole}"}}],"source":{{"kind":"model","provider":"p","model":"m"}}}}"#
            );
            (
                "assistant/message",
                format!(r#"{{"turn":{turn},"step":1,"message":{message}}}"#),
                Some(Placement::append()),
            )
        }
        9 => ("step/end", format!(r#"{{"turn":{turn},"step":1}}"#), None),
        10 => ("turn/end", format!(r#"{{"turn":{turn},"reason":{{"kind":"completed"}}}}"#), None),
        11 => ("session/title", format!(r#"{{"title":"turn {turn}"}}"#), None),
        _ => ("feedback/record", format!(r#"{{"n":{seq},"text":"{}"}}"#, "x".repeat(seq as usize * 37 % 200)), None),
    };
    let mut new = NewEvent::named(event_type, JsonText::parse(&data).unwrap());
    if let Some(placement) = placement {
        new = new.placed(placement);
    }
    new.at(seq, 1_700_000_000_000 + seq.cast_signed())
}

pub fn expected(count: u64) -> Vec<Event> {
    (0..count).map(event).collect()
}

fn batch(from: u64, to: u64) -> Batch {
    Batch::pack((from..to).map(event)).unwrap()
}

fn append(engine: &Engine, name: &str, head: &Head, to: u64) -> Head {
    let expected = Expected { epoch: head.epoch, next_seq: head.next_seq };
    engine.append(&id(name), None, expected, &batch(head.next_seq, to)).unwrap()
}

fn grow(engine: &Engine, name: &str, to: u64) {
    let mut head = engine.take_over(&id(name)).unwrap().head;
    while head.next_seq < to {
        head = append(engine, name, &head, to.min(head.next_seq + 5));
    }
    engine.release(&id(name), head.epoch).unwrap();
}

fn header(name: &str) -> SessionHeader {
    SessionHeader::new(name).cwd("/srv").created_at(1_700_000_000_000)
}

pub fn make(root: &Path) {
    let engine = options().open(root).unwrap();
    for (name, count) in [("bystander", SESSIONS[0].1), ("s", 3)] {
        let head = engine.append(&id(name), Some(&header(name)), Expected::ABSENT, &batch(0, 3)).unwrap();
        engine.release(&id(name), head.epoch).unwrap();
        grow(&engine, name, count);
    }
    grow(&engine, "s", 50);
    engine.seal(&id("s"), SealOptions::new().level(1)).unwrap();
    drop(engine);
    // In the background what is sealed and larger is left alone, and a fork gets its checkpoint.
    let sealing = options().background_sealing(true).open(root).unwrap();
    grow(&sealing, "s", 70);
    sealing.finish_sealing();
    let mut child = header("fork");
    child.parent_session = Some("s".to_owned());
    sealing.fork(&id("s"), SESSIONS[1].1 - 1, &child).unwrap();
    sealing.finish_sealing();
    drop(sealing);
    let engine = options().open(root).unwrap();
    grow(&engine, "s", SESSIONS[2].1);
    // What changed a moment ago is not kept in the catalogue yet.
    std::thread::sleep(std::time::Duration::from_millis(150));
    engine.summaries().unwrap();
}
