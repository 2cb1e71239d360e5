//! Logs to put backends through: valid sessions whose text is as awkward as the rules allow.

use super::Violation;
use crate::event::{Batch, Event, JsonText, NewEvent, Placement};

/// Builds events with consecutive seqs.
pub(crate) struct Script {
    events: Vec<Event>,
    next: u64,
}

impl Script {
    /// A script whose first event has seq `from`.
    pub(crate) fn from(from: u64) -> Self {
        Self { events: Vec::new(), next: from }
    }

    /// Adds an event.
    pub(crate) fn add(
        &mut self,
        event_type: &str,
        data: &str,
        placement: Option<Placement>,
    ) -> Result<&mut Self, Violation> {
        let mut new = NewEvent::named(event_type, JsonText::parse(data)?);
        new.placement = placement;
        // A clock that now and then runs backwards.
        let time = 1_700_000_000_000_i64.wrapping_add_unsigned(self.next * 7 % 50);
        self.events.push(new.at(self.next, time));
        self.next += 1;
        Ok(self)
    }

    /// Adds `count` text deltas of block 0, each with string body `text` and its number.
    pub(crate) fn deltas(&mut self, turn: u64, count: u64, text: &str) -> Result<&mut Self, Violation> {
        for number in 0..count {
            let chunk = format!(r#"{{"type":"text-delta","index":0,"text":"{number} {text}"}}"#);
            self.add("assistant/chunk", &format!(r#"{{"turn":{turn},"step":1,"chunk":{chunk}}}"#), None)?;
        }
        Ok(self)
    }

    /// The script as a batch.
    pub(crate) fn batch(&mut self) -> Result<Batch, Violation> {
        let events = std::mem::take(&mut self.events);
        Batch::pack(events).ok_or_else(|| Violation { detail: "the sample is empty".into() })
    }
}

/// Turn `turn` (from 1) as one batch starting at seq `from`: 17 events, one packed run of 7 among them.
pub(crate) fn turn(from: u64, turn: u64) -> Result<Batch, Violation> {
    let mut script = Script::from(from);
    let (start, user) = (format!(r#"{{"turn":{turn}}}"#), from + 1);
    let step = format!(r#"{{"turn":{turn},"step":1}}"#);
    script.add("turn/start", &start, None)?;
    let message = format!(
        r#"{{"id":"u{turn}","role":"user","content":[{{"type":"text","text":"\u2028 \ud83d\ude00 \u0000 {user}"}}],"source":{{"kind":"user"}}}}"#
    );
    script.add("user/message", &message, Some(Placement::append()))?;
    script.add("step/start", &step, None)?.deltas(turn, 7, "a \\\"quoted\\\" \u{1f680} \u{2028}\\n")?;
    let lone = format!(r#"{{"turn":{turn},"step":1,"chunk":{{"type":"text-delta","index":0,"text":"lone \ud800"}}}}"#);
    script.add("assistant/chunk", &lone, None)?;
    let spelled = r#"{"b":1e5,"a":1.50,"a":30000000000000000000000000000,"n":null,"deep":[[[[{}]]]]}"#;
    script.add("sample/spelling", spelled, None)?;
    script.add("sample/empty", r#"[{},[],"",0,-0.0,true]"#, None)?;
    let answer = format!(
        r#"{{"turn":{turn},"step":1,"message":{{"role":"assistant","content":[{{"type":"text","text":"done"}}],"source":{{"kind":"model","provider":"p","model":"m"}}}},"usage":{{"inputTokens":1,"outputTokens":2}}}}"#
    );
    let chunks = (from + 3)..(from + 11);
    script.add("assistant/message", &answer, Some(Placement::append().from(chunks)))?;
    script.add("step/end", &step, None)?;
    script.add("turn/end", &format!(r#"{{"turn":{turn},"reason":{{"kind":"completed"}}}}"#), None)?;
    script.add("sample/between", "7", None)?;
    script.batch()
}
