//! The step from format 0 to format 1 (semantics N3), event by event and decided by shape.
//!
//! Writers stamped format 0 on logs of both kinds, so an event in a current shape passes untouched, byte for byte. An old one is
//! rewritten in its text: members that the step does not concern keep their exact spelling and their place.

use std::collections::HashMap;

use serde::Serialize;

use crate::event::header::FORMAT_VERSION;
use crate::event::json::{self, JsonText};
use crate::event::placement::SurfaceOp;
use crate::event::{Event, RawEnvelope};

/// A log of this version cannot be brought to [`FORMAT_VERSION`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// Written by a newer release (N2).
    #[error("format {0} was written by a newer version; upgrade sessionlog")]
    Newer(u64),
}

/// An event of format 0 that cannot be brought to format 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("format 0 event cannot be upgraded: member \"{member}\" {problem}")]
pub struct UpgradeError {
    /// The member of the payload.
    pub member: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

/// How many events the step changed, by what changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Upgraded {
    /// `context/message` and `steering/message` that became `user/message`.
    pub renamed: u64,
    /// Flat assistant messages and tool results that got their message wrapper.
    pub wrapped: u64,
    /// Messages without a role that got one.
    pub roles: u64,
    /// Messages without an id that got a stable one.
    pub ids: u64,
    /// Turn ends in an old spelling.
    pub turn_ends: u64,
}

impl Upgraded {
    /// The sum of all counts; one event may count more than once.
    pub fn total(&self) -> u64 {
        self.renamed + self.wrapped + self.roles + self.ids + self.turn_ends
    }

    /// Adds another event's changes.
    pub fn add(&mut self, other: Upgraded) {
        self.renamed += other.renamed;
        self.wrapped += other.wrapped;
        self.roles += other.roles;
        self.ids += other.ids;
        self.turn_ends += other.turn_ends;
    }
}

/// Brings the events of one log, given in order, to the current format.
///
/// Memory: one id for each tool result, and none for a log in the current format.
#[derive(Debug)]
pub struct Upgrade {
    /// `None` when the log is in the current format and nothing may be touched.
    step_0: Option<Step0>,
}

#[derive(Debug)]
struct Step0 {
    session: String,
    /// Message ids of the tool results so far, which a replacement takes over.
    result_ids: HashMap<u64, String>,
}

impl Upgrade {
    /// The steps from `version` to [`FORMAT_VERSION`] for the log of session `id`. Made-up ids derive from `id`.
    ///
    /// # Errors
    /// [`VersionError`] when the log is newer than this release.
    pub fn from_version(version: u64, id: &str) -> Result<Self, VersionError> {
        match version {
            0 => Ok(Self { step_0: Some(Step0 { session: id.to_owned(), result_ids: HashMap::new() }) }),
            FORMAT_VERSION => Ok(Self { step_0: None }),
            newer => Err(VersionError::Newer(newer)),
        }
    }

    /// Whether there is a step to take at all.
    pub fn is_needed(&self) -> bool {
        self.step_0.is_some()
    }

    /// The event at position `seq` in the current format, and what changed. `surfaceOp` stays as it is: whether it may be filled
    /// depends on the whole log.
    ///
    /// # Errors
    /// [`UpgradeError`] when the event has an old shape that lacks what the current one needs.
    pub fn apply(&self, raw: RawEnvelope, seq: u64) -> Result<(RawEnvelope, Upgraded), UpgradeError> {
        match &self.step_0 {
            Some(step) => step.apply(raw, seq),
            None => Ok((raw, Upgraded::default())),
        }
    }

    /// Takes note of an upgraded event that was accepted: a later replacement of a tool result takes over its id.
    pub fn accepted(&mut self, event: &Event) {
        let Some(step) = &mut self.step_0 else { return };
        if event.event_type() == "tool/result" {
            let data = event.data();
            if let Some(id) = json::at_path(&data, &["message", "id"]).and_then(json::string) {
                step.result_ids.insert(event.seq(), id.into_owned());
            }
        }
    }
}

impl Step0 {
    fn apply(&self, mut raw: RawEnvelope, seq: u64) -> Result<(RawEnvelope, Upgraded), UpgradeError> {
        let mut done = Upgraded::default();
        if matches!(raw.event_type.as_str(), "context/message" | "steering/message") {
            "user/message".clone_into(&mut raw.event_type);
            done.renamed = 1;
        }
        let text = raw.data.as_str();
        let changed = match raw.event_type.as_str() {
            "user/message" => with_identity(text, "user", &self.id(seq), &mut done)?,
            "assistant/message" => match json::member(text, "message") {
                Some(_) => message_identity(text, "assistant", &self.id(seq), &mut done)?,
                None => self.wrap_assistant(text, seq, &mut done)?,
            },
            "tool/result" => {
                let id = self.result_id(&raw, seq);
                match json::member(text, "message") {
                    Some(_) => message_identity(text, "user", &id, &mut done)?,
                    None => wrap_result(text, &id, &mut done)?,
                }
            }
            "turn/end" => upgrade_turn_end(text, &mut done)?,
            _ => None,
        };
        if let Some(text) = changed {
            raw.data = JsonText::trusted(text);
        }
        Ok((raw, done))
    }

    /// The id that a message without one gets: the same whenever the log is read.
    fn id(&self, seq: u64) -> String {
        format!("{}#{seq}", self.session)
    }

    fn result_id(&self, raw: &RawEnvelope, seq: u64) -> String {
        match raw.surface_op {
            Some(SurfaceOp::Replace { start, end }) if start == end => self.result_ids.get(&start).cloned(),
            _ => None,
        }
        .unwrap_or_else(|| self.id(seq))
    }

    /// `{turn,step,content,provenance,..}` becomes `{turn,step,message{role,content,source,id},..}`.
    fn wrap_assistant(&self, text: &str, seq: u64, done: &mut Upgraded) -> Result<Option<String>, UpgradeError> {
        let parts = Parts::of(text)?;
        let Some(content) = parts.value("content") else { return Ok(None) };
        let provenance = parts
            .value("provenance")
            .ok_or_else(|| problem("provenance", "is missing, so nothing says which model wrote the message"))?;
        let source = if json::member(provenance, "kind").is_some() {
            provenance.to_owned()
        } else {
            prepended(provenance, "\"kind\":\"model\"").ok_or_else(|| problem("provenance", "is not an object"))?
        };
        let id = json::quoted(&self.id(seq));
        let message =
            format!("\"message\":{{\"role\":\"assistant\",\"content\":{content},\"source\":{source},\"id\":{id}}}");
        (done.wrapped, done.ids) = (1, 1);
        Ok(Some(parts.replaced(&["content", "provenance"], &message)))
    }
}

/// `{turn,step,callId,content,isError,..}` becomes `{turn,step,message{source,content[tool-result],role,id},..}`.
fn wrap_result(text: &str, id: &str, done: &mut Upgraded) -> Result<Option<String>, UpgradeError> {
    let parts = Parts::of(text)?;
    let Some(call) = parts.value("callId") else { return Ok(None) };
    let content = parts.value("content").ok_or_else(|| problem("content", "is missing"))?;
    let is_error = parts.value("isError").map(|value| format!(",\"isError\":{value}")).unwrap_or_default();
    let id = json::quoted(id);
    let message = format!(
        "\"message\":{{\"source\":{{\"kind\":\"tool\",\"callId\":{call}}},\"content\":[{{\"type\":\"tool-result\",\
         \"toolCallId\":{call},\"content\":{content}{is_error}}}],\"role\":\"user\",\"id\":{id}}}"
    );
    (done.wrapped, done.ids) = (1, 1);
    Ok(Some(parts.replaced(&["callId", "content", "isError"], &message)))
}

/// The message `text` with the members that it lacks put behind the others.
fn with_identity(text: &str, role: &str, id: &str, done: &mut Upgraded) -> Result<Option<String>, UpgradeError> {
    let mut added = String::new();
    if json::member(text, "role").is_none() {
        added.push_str(",\"role\":");
        added.push_str(&json::quoted(role));
        done.roles = 1;
    }
    if json::member(text, "id").is_none() {
        added.push_str(",\"id\":");
        added.push_str(&json::quoted(id));
        done.ids = 1;
    }
    if added.is_empty() {
        return Ok(None);
    }
    appended(text, &added).map(Some).ok_or_else(|| problem("content", "is missing: the payload is no message object"))
}

/// As [`with_identity`], for the message inside a payload.
fn message_identity(text: &str, role: &str, id: &str, done: &mut Upgraded) -> Result<Option<String>, UpgradeError> {
    let parts = Parts::of(text)?;
    let message = parts.value("message").ok_or_else(|| problem("message", "is missing"))?;
    if !message.starts_with('{') {
        return Err(problem("message", "is not an object"));
    }
    let Some(message) = with_identity(message, role, id, done)? else { return Ok(None) };
    Ok(Some(parts.replaced(&["message"], &format!("\"message\":{message}"))))
}

/// The old spellings of why a turn ended.
fn upgrade_turn_end(text: &str, done: &mut Upgraded) -> Result<Option<String>, UpgradeError> {
    let Some(reason) = json::member(text, "reason") else { return Ok(None) };
    let kind = json::member(reason, "kind").and_then(json::string);
    let cause = json::member(reason, "reason");
    let changed = match kind.as_deref() {
        Some("disposed") => {
            let kind = "\"kind\":\"aborted\",\"reason\":{\"kind\":\"disposed\"}";
            Parts::of(reason)?.replaced(&["kind", "reason"], kind)
        }
        Some("aborted") => match cause {
            None => appended(reason, ",\"reason\":{\"kind\":\"legacy\"}").unwrap_or_default(),
            Some(words) if words.starts_with('"') => {
                let cause = format!("\"reason\":{{\"kind\":\"legacy\",\"reason\":{words}}}");
                Parts::of(reason)?.replaced(&["reason"], &cause)
            }
            Some(_) => return Ok(None),
        },
        Some("rejected") => Parts::of(reason)?.replaced(&["kind"], "\"kind\":\"blocked\""),
        Some("error") if json::member(reason, "error").is_none() => upgrade_failure(reason)?,
        _ => return Ok(None),
    };
    done.turn_ends = 1;
    Ok(Some(Parts::of(text)?.replaced(&["reason"], &format!("\"reason\":{changed}"))))
}

/// `error{step,message,code?}` and `error{step,failure}` become `error{step,error{message,code,..}}`.
fn upgrade_failure(reason: &str) -> Result<String, UpgradeError> {
    const NO_CODE: &str = ",\"code\":\"UNKNOWN\"";
    let parts = Parts::of(reason)?;
    if let Some(failure) = parts.value("failure") {
        let failure = if json::member(failure, "code").is_some() {
            failure.to_owned()
        } else {
            appended(failure, NO_CODE).ok_or_else(|| problem("failure", "is not an object"))?
        };
        return Ok(parts.replaced(&["failure"], &format!("\"error\":{failure}")));
    }
    let message = parts.value("message").ok_or_else(|| problem("reason", "is an error without a message"))?;
    let code = parts.value("code").map_or_else(|| NO_CODE.to_owned(), |code| format!(",\"code\":{code}"));
    let error = format!("\"error\":{{\"message\":{message}{code}}}");
    Ok(parts.replaced(&["message", "code"], &error))
}

fn problem(member: &str, problem: &'static str) -> UpgradeError {
    UpgradeError { member: member.to_owned(), problem }
}

/// `object` with `members` (which start with a comma) behind its own.
fn appended(object: &str, members: &str) -> Option<String> {
    let inner = object.strip_prefix('{')?.strip_suffix('}')?;
    let members = if inner.is_empty() { members.strip_prefix(',')? } else { members };
    Some(format!("{{{inner}{members}}}"))
}

/// `object` with `members` in front of its own.
fn prepended(object: &str, members: &str) -> Option<String> {
    let inner = object.strip_prefix('{')?.strip_suffix('}')?;
    let comma = if inner.is_empty() { "" } else { "," };
    Some(format!("{{{members}{comma}{inner}}}"))
}

/// One member of an object: its decoded key, its whole text (key, colon and value) and its value.
struct Part<'a> {
    key: String,
    whole: &'a str,
    value: &'a str,
}

/// The members of an object whose keys are all different.
struct Parts<'a>(Vec<Part<'a>>);

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Result<Self, UpgradeError> {
        let members = json::members(text).ok_or_else(|| problem("data", "is not an object"))?;
        let mut parts: Vec<Part<'a>> = Vec::new();
        let mut start = 1;
        for (key, value) in members {
            if parts.iter().any(|part| part.key == key) {
                return Err(problem(&key, "occurs twice"));
            }
            // `value` is a slice of `text`, and members follow each other with one comma between.
            let end = (value.as_ptr() as usize - text.as_ptr() as usize) + value.len();
            let whole = text.get(start..end).unwrap_or_default();
            parts.push(Part { key: key.into_owned(), whole, value });
            start = end + 1;
        }
        Ok(Self(parts))
    }

    fn value(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find(|part| part.key == key).map(|part| part.value)
    }

    /// The object with the members `keys` taken out and `replacement` where the first of them stood.
    fn replaced(&self, keys: &[&str], replacement: &str) -> String {
        let mut pieces: Vec<&str> = Vec::new();
        let mut placed = false;
        for part in &self.0 {
            if !keys.contains(&part.key.as_str()) {
                pieces.push(part.whole);
            } else if !placed {
                pieces.push(replacement);
                placed = true;
            }
        }
        format!("{{{}}}", pieces.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{NewEvent, Placement};

    fn raw(event_type: &str, data: &str, surface_op: Option<SurfaceOp>) -> RawEnvelope {
        let data = JsonText::parse(data).unwrap();
        let event_type = event_type.to_owned();
        RawEnvelope { event_type, seq: None, time: None, data, ignorable: false, surface_op, sources: None }
    }

    fn upgrade(event_type: &str, data: &str) -> (String, String, Upgraded) {
        let upgrade = Upgrade::from_version(0, "s").unwrap();
        let (raw, done) = upgrade.apply(raw(event_type, data, None), 7).unwrap();
        (raw.event_type, raw.data.as_str().to_owned(), done)
    }

    #[test]
    fn n3_old_message_types_become_user_messages() {
        for old in ["context/message", "steering/message", "user/message"] {
            let (event_type, data, done) = upgrade(
                old,
                r#"{"turn":1,"content":[ {"n":1.50} ],"source":{"kind":"x"},"meta":{"b":1,"a":"\u0041"}}"#,
            );
            assert_eq!(event_type, "user/message");
            let rest = r#"{"turn":1,"content":[{"n":1.50}],"source":{"kind":"x"},"meta":{"b":1,"a":"\u0041"}"#;
            assert_eq!(data, format!(r#"{rest},"role":"user","id":"s#7"}}"#));
            assert_eq!((done.renamed, done.roles, done.ids), (u64::from(old != "user/message"), 1, 1));
        }
        let (_, data, done) = upgrade("user/message", r#"{"id":"","content":[],"source":{"kind":"user"}}"#);
        assert_eq!(data, r#"{"id":"","content":[],"source":{"kind":"user"},"role":"user"}"#);
        assert_eq!(done, Upgraded { roles: 1, ..Upgraded::default() });
        assert_eq!(upgrade("user/message", "{}").1, r#"{"role":"user","id":"s#7"}"#);
    }

    #[test]
    fn n3_flat_assistant_messages_get_their_wrapper() {
        let (_, data, done) = upgrade(
            "assistant/message",
            r#"{"turn":1,"x":1e5,"step":2,"content":[],"provenance":{"provider":"p","model":"m"},"usage":{"inputTokens":1}}"#,
        );
        let message =
            r#"{"role":"assistant","content":[],"source":{"kind":"model","provider":"p","model":"m"},"id":"s#7"}"#;
        assert_eq!(data, format!(r#"{{"turn":1,"x":1e5,"step":2,"message":{message},"usage":{{"inputTokens":1}}}}"#));
        assert_eq!((done.wrapped, done.ids, done.total()), (1, 1, 2));
        let upgrade = Upgrade::from_version(0, "s").unwrap();
        let error = upgrade.apply(raw("assistant/message", r#"{"turn":1,"content":[]}"#, None), 7).unwrap_err();
        assert_eq!(error.member, "provenance");
    }

    #[test]
    fn n3_flat_tool_results_get_their_wrapper_and_a_replaced_one_keeps_its_originals_id() {
        let flat = r#"{"turn":1,"step":2,"callId":"c\u0031","content":[1],"isError":false,"error":{"name":"n","code":"c"},"meta":7}"#;
        let wrapped = |id: &str| {
            format!(
                r#"{{"turn":1,"step":2,"message":{{"source":{{"kind":"tool","callId":"c\u0031"}},"content":[{{"type":"tool-result","toolCallId":"c\u0031","content":[1],"isError":false}}],"role":"user","id":"{id}"}},"error":{{"name":"n","code":"c"}},"meta":7}}"#
            )
        };
        assert_eq!(upgrade("tool/result", flat).1, wrapped("s#7"));

        let mut upgrade = Upgrade::from_version(0, "s").unwrap();
        let result = |data: &str, placement: Placement, seq| {
            NewEvent::named("tool/result", JsonText::parse(data).unwrap()).placed(placement).at(seq, 0)
        };
        upgrade.accepted(&result(r#"{"message":{"id":"own"}}"#, Placement::append(), 3));
        let replacing = |seq| Some(SurfaceOp::Replace { start: seq, end: seq });
        let (first, _) = upgrade.apply(raw("tool/result", flat, replacing(3)), 8).unwrap();
        assert_eq!(first.data.as_str(), wrapped("own"));
        upgrade.accepted(&result(first.data.as_str(), Placement::replace(3, 3).from([3]), 8));
        let (second, _) = upgrade.apply(raw("tool/result", flat, replacing(8)), 9).unwrap();
        assert_eq!(second.data.as_str(), wrapped("own"), "a chain of replacements keeps the first one's id");
        let (other, _) = upgrade.apply(raw("tool/result", flat, replacing(4)), 9).unwrap();
        assert_eq!(other.data.as_str(), wrapped("s#9"));
    }

    #[test]
    fn n3_old_turn_ends_are_respelled_and_their_facts_kept() {
        for (old, new) in [
            (r#"{"kind":"disposed","x":1}"#, r#"{"kind":"aborted","reason":{"kind":"disposed"},"x":1}"#),
            (r#"{"kind":"aborted"}"#, r#"{"kind":"aborted","reason":{"kind":"legacy"}}"#),
            (r#"{"kind":"aborted","reason":"why"}"#, r#"{"kind":"aborted","reason":{"kind":"legacy","reason":"why"}}"#),
            (r#"{"kind":"rejected","reason":"no"}"#, r#"{"kind":"blocked","reason":"no"}"#),
            (
                r#"{"kind":"error","step":3,"message":"m","code":"C"}"#,
                r#"{"kind":"error","step":3,"error":{"message":"m","code":"C"}}"#,
            ),
            (
                r#"{"kind":"error","step":3,"message":"m"}"#,
                r#"{"kind":"error","step":3,"error":{"message":"m","code":"UNKNOWN"}}"#,
            ),
            (
                r#"{"kind":"error","step":3,"failure":{"message":"m","code":"C","status":500}}"#,
                r#"{"kind":"error","step":3,"error":{"message":"m","code":"C","status":500}}"#,
            ),
            (
                r#"{"kind":"error","step":3,"failure":{"message":"m"}}"#,
                r#"{"kind":"error","step":3,"error":{"message":"m","code":"UNKNOWN"}}"#,
            ),
        ] {
            let (_, data, done) = upgrade("turn/end", &format!(r#"{{"turn":1,"reason":{old},"note":"\u00e9"}}"#));
            assert_eq!(data, format!(r#"{{"turn":1,"reason":{new},"note":"\u00e9"}}"#));
            assert_eq!(done.turn_ends, 1);
        }
    }

    #[test]
    fn n3_current_shapes_and_other_types_pass_byte_for_byte() {
        for (event_type, data) in [
            ("turn/start", r#"{"turn":1,"trigger":{"kind":"message"}}"#),
            ("turn/end", r#"{"turn":1,"reason":{"kind":"aborted","reason":{"kind":"user"}}}"#),
            ("turn/end", r#"{"turn":1,"reason":{"kind":"error","error":{"message":"m","code":"c"}}}"#),
            ("turn/end", r#"{"turn":1,"reason":{"kind":"completed"}}"#),
            ("turn/end", r#"{"error":"model exploded"}"#),
            ("turn/end", "[7]"),
            ("prompt/blocked", r#"{"content":[],"source":{"kind":"user"},"reason":"r"}"#),
            ("user/message", r#"{"r\u006fle":"user","content":[],"id":"a","id":"b"}"#),
            ("assistant/message", r#"{"turn":1,"step":1,"message":{"id":"a","role":"assistant","content":[]}}"#),
            ("tool/result", r#"{"message":{"role":"user","id":"x"},"content":[]}"#),
            ("app/x", r#"{"content":[]}"#),
        ] {
            let (same_type, same_data, done) = upgrade(event_type, data);
            assert_eq!((same_type.as_str(), same_data.as_str(), done.total()), (event_type, data, 0));
        }
        let current = Upgrade::from_version(1, "s").unwrap();
        let (raw, done) = current.apply(raw("context/message", "{}", None), 7).unwrap();
        assert_eq!((raw.event_type.as_str(), done.total(), current.is_needed()), ("context/message", 0, false));
        assert_eq!(Upgrade::from_version(2, "s").unwrap_err(), VersionError::Newer(2));
    }

    #[test]
    fn n3_a_wrapped_message_without_an_id_gets_one() {
        let (_, data, done) = upgrade("assistant/message", r#"{"step":1,"message":{"role":"assistant"},"usage":{}}"#);
        assert_eq!(data, r#"{"step":1,"message":{"role":"assistant","id":"s#7"},"usage":{}}"#);
        assert_eq!((done.ids, done.wrapped), (1, 0));
    }

    #[test]
    fn n3_an_old_shape_that_contradicts_itself_is_refused_by_member() {
        let upgrade = Upgrade::from_version(0, "s").unwrap();
        for (event_type, data, member) in [
            ("tool/result", r#"{"callId":"a","callId":"b","content":[]}"#, "callId"),
            ("tool/result", r#"{"callId":"a"}"#, "content"),
            ("assistant/message", r#"{"content":[],"provenance":"p"}"#, "provenance"),
            ("assistant/message", r#"{"message":7}"#, "message"),
            ("context/message", "7", "content"),
            ("turn/end", r#"{"reason":{"kind":"error","step":1}}"#, "reason"),
            ("turn/end", r#"{"reason":{"kind":"error","failure":1}}"#, "failure"),
        ] {
            assert_eq!(upgrade.apply(raw(event_type, data, None), 7).unwrap_err().member, member, "{data}");
        }
    }
}
