//! The envelope as one JSON line: reading with every rule of section 2 checked, writing in one member order.

use std::fmt::Write as _;
use std::ops::RangeFrom;

use super::json::{self, JsonError, JsonText};
use super::limits::{MAX_EVENT_BYTES, MAX_SAFE_INTEGER, MAX_SESSION_EVENTS, MAX_SOURCES, MAX_TYPE_BYTES, is_safe};
use super::placement::{Placement, Sources, SurfaceOp};
use super::run::{DATA_END, Deltas, RunHead, is_string_body};
use super::{ChunkRun, Event, NewEvent};

/// Type names that no event may carry: the header line's tag and the three packed rows (P3).
pub const RESERVED_TYPES: [&str; 4] = ["session", "text-chunks", "reasoning-chunks", "tool-call-chunks"];

/// The event types that produce messages and carry `surfaceOp`.
pub const SURFACE_TYPES: [&str; 3] = ["user/message", "assistant/message", "tool/result"];

/// An envelope has seven members at most: an eighth is unknown or a repetition, and refused as such when it is reached.
const MEMBERS_LOOKED_AT: usize = 8;

/// Whether `event_type` is one of [`SURFACE_TYPES`].
pub fn is_surface_type(event_type: &str) -> bool {
    SURFACE_TYPES.contains(&event_type)
}

/// The members of an envelope as read, before a log has given or checked its position. Old logs lack `seq`, `time` or
/// `surfaceOp`; [`RawEnvelope::into_event`] demands them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawEnvelope {
    /// Type name.
    pub event_type: String,
    /// Position, if recorded.
    pub seq: Option<u64>,
    /// Epoch milliseconds, if recorded.
    pub time: Option<i64>,
    /// Payload.
    pub data: JsonText,
    /// Whether readers that do not know the type may skip the event.
    pub ignorable: bool,
    /// `surfaceOp`, if recorded.
    pub surface_op: Option<SurfaceOp>,
    /// `sourceEventSeqs`, if recorded; ranges are accepted.
    pub sources: Option<Sources>,
}

/// Why an envelope is refused. Every variant that concerns a position names the seq where one could be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvelopeError {
    /// Not valid JSON, or not an object.
    #[error("{0}")]
    Json(#[from] JsonError),
    /// A member is missing, has the wrong type or an impossible value.
    #[error("{}member \"{member}\" {problem}", at_seq(*seq))]
    Member {
        /// Seq of the event, if it could be read.
        seq: Option<u64>,
        /// The member.
        member: String,
        /// What is wrong with it.
        problem: String,
    },
    /// E3: a member that an envelope does not have.
    #[error("{}unknown envelope member \"{member}\"", at_seq(*seq))]
    UnknownMember {
        /// Seq of the event, if it could be read.
        seq: Option<u64>,
        /// The member.
        member: String,
    },
    /// The type name is empty, too long or reserved.
    #[error("{}event type \"{event_type}\" {problem}", at_seq(*seq))]
    Type {
        /// Seq of the event, if it could be read.
        seq: Option<u64>,
        /// The type name.
        event_type: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A surface type without `surfaceOp`, or surface members on a log-only type.
    #[error("{}\"{event_type}\" {problem}", at_seq(*seq))]
    Surface {
        /// Seq of the event, if it could be read.
        seq: Option<u64>,
        /// The type name.
        event_type: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// The payload is larger than [`MAX_EVENT_BYTES`].
    #[error("{}payload of {bytes} bytes exceeds the limit of {MAX_EVENT_BYTES} bytes", at_seq(*seq))]
    TooLarge {
        /// Seq of the event, if known.
        seq: Option<u64>,
        /// Its size.
        bytes: usize,
    },
}

fn at_seq(seq: Option<u64>) -> String {
    seq.map(|seq| format!("seq {seq}: ")).unwrap_or_default()
}

impl RawEnvelope {
    /// Reads one event line.
    ///
    /// # Errors
    /// [`EnvelopeError`] naming the seq (when it can be read) and the member.
    pub fn parse(line: &str) -> Result<Self, EnvelopeError> {
        let text = JsonText::parse(line)?;
        Self::from_text(&text)
    }

    /// Reads an event from a JSON object at hand.
    ///
    /// # Errors
    /// As [`RawEnvelope::parse`].
    pub fn from_text(text: &JsonText) -> Result<Self, EnvelopeError> {
        let members: Vec<_> = json::members(text.as_str())
            .ok_or_else(|| JsonError { detail: "an event is a JSON object; this is another value".into() })?
            .take(MEMBERS_LOOKED_AT)
            .collect();
        let seq_text = members.iter().find(|(key, _)| key == "seq").map(|(_, value)| *value);
        let seq = seq_text.and_then(seq_number);
        let wrong =
            |member: &str, problem: &str| EnvelopeError::Member { seq, member: member.into(), problem: problem.into() };
        let mut event_type = None;
        let mut time = None;
        let mut data = None;
        let mut ignorable = false;
        let mut surface_op = None;
        let mut sources = None;
        for (index, (key, value)) in members.iter().enumerate() {
            if members.iter().take(index).any(|(earlier, _)| earlier == key) {
                return Err(wrong(key, "occurs twice"));
            }
            match key.as_ref() {
                "type" => event_type = Some(json::string(value).ok_or_else(|| wrong("type", "is not a string"))?),
                "seq" if seq.is_none() => return Err(wrong("seq", "is not an integer from 0 to 2^53-1")),
                "seq" => {}
                "time" => {
                    let safe = json::integer(value).filter(|time| is_safe(*time));
                    time = Some(safe.ok_or_else(|| wrong("time", "is not an integer within +-(2^53-1) milliseconds"))?);
                }
                "data" => data = text.share(value),
                "ignorable" if *value == "true" => ignorable = true,
                "ignorable" => return Err(wrong("ignorable", "may only be true or absent")),
                "surfaceOp" => surface_op = Some(parse_op(value).map_err(|problem| wrong("surfaceOp", problem))?),
                "sourceEventSeqs" => {
                    sources = Some(parse_sources(value).map_err(|problem| wrong("sourceEventSeqs", problem))?);
                }
                _ => return Err(EnvelopeError::UnknownMember { seq, member: key.clone().into_owned() }),
            }
        }
        let event_type = event_type.ok_or_else(|| wrong("type", "is missing"))?.into_owned();
        check_type(&event_type, seq)?;
        let data = data.ok_or_else(|| wrong("data", "is missing"))?;
        check_size(data.len(), seq)?;
        Ok(Self { event_type, seq, time, data, ignorable, surface_op, sources })
    }

    /// The event, with every member that a current envelope must have.
    ///
    /// # Errors
    /// [`EnvelopeError`] when `seq`, `time` or the surface members are missing or misplaced.
    pub fn into_event(self) -> Result<Event, EnvelopeError> {
        let missing =
            |member: &str| EnvelopeError::Member { seq: self.seq, member: member.into(), problem: "is missing".into() };
        let seq = self.seq.ok_or_else(|| missing("seq"))?;
        let time = self.time.ok_or_else(|| missing("time"))?;
        let surface = |problem| EnvelopeError::Surface { seq: Some(seq), event_type: self.event_type.clone(), problem };
        let placement = match (self.surface_op, self.sources) {
            (Some(op), sources) => {
                let placement = match op {
                    SurfaceOp::Append => Placement::append(),
                    SurfaceOp::Replace { start, end } => Placement::replace(start, end),
                };
                Some(match sources {
                    Some(sources) => placement.from_sources(sources),
                    None => placement,
                })
            }
            (None, Some(_)) => return Err(surface("carries sourceEventSeqs without surfaceOp")),
            (None, None) => None,
        };
        let new = NewEvent {
            event_type: self.event_type.as_str().into(),
            data: self.data,
            ignorable: self.ignorable,
            placement,
        };
        check_new(&new, Some(seq))?;
        Ok(new.at(seq, time))
    }
}

/// The envelope rules that hold for any event wherever it comes from (the part of E4 that needs no log).
///
/// # Errors
/// [`EnvelopeError`] naming `seq` where given.
pub fn check_new(new: &NewEvent, seq: Option<u64>) -> Result<(), EnvelopeError> {
    check_size(new.data.len(), seq)?;
    check_placed(&new.event_type, new.placement.as_ref(), seq)
}

/// As [`check_new`], for an event that has its position; also checks that seq and time are safe integers.
///
/// # Errors
/// [`EnvelopeError`] naming the seq.
pub fn check_event(event: &Event) -> Result<(), EnvelopeError> {
    let seq = Some(event.seq());
    check_seq(event.seq())?;
    if event.time().unsigned_abs() > MAX_SAFE_INTEGER.unsigned_abs() {
        return Err(EnvelopeError::Member { seq, member: "time".into(), problem: "is outside +-(2^53-1)".into() });
    }
    if event.as_packed_delta().is_some() {
        return Ok(());
    }
    check_size(event.data().len(), seq)?;
    check_placed(event.event_type(), event.placement(), seq)
}

/// Checks that an event may have this seq.
pub(crate) fn check_seq(seq: u64) -> Result<(), EnvelopeError> {
    if seq < MAX_SESSION_EVENTS {
        return Ok(());
    }
    let problem = "exceeds 2^53-2, the last seq of a session; go on in a new session, forked from this one or empty";
    Err(EnvelopeError::Member { seq: Some(seq), member: "seq".into(), problem: problem.into() })
}

fn check_placed(event_type: &str, placement: Option<&Placement>, seq: Option<u64>) -> Result<(), EnvelopeError> {
    check_type(event_type, seq)?;
    let sources = placement.and_then(Placement::sources).map_or(0, Sources::len);
    if sources > MAX_SOURCES as u64 {
        let problem = format!("names {sources} seqs, more than the limit of {MAX_SOURCES}");
        return Err(EnvelopeError::Member { seq, member: "sourceEventSeqs".into(), problem });
    }
    let placed = placement.is_some();
    let surface = |problem| EnvelopeError::Surface { seq, event_type: event_type.to_owned(), problem };
    match (is_surface_type(event_type), placed) {
        (true, false) => Err(surface("produces a message and must carry surfaceOp")),
        (false, true) => Err(surface("is log-only and may not carry surfaceOp or sourceEventSeqs")),
        _ => Ok(()),
    }
}

fn check_type(event_type: &str, seq: Option<u64>) -> Result<(), EnvelopeError> {
    let problem = if event_type.is_empty() {
        "is empty"
    } else if event_type.len() > MAX_TYPE_BYTES {
        "is longer than 256 bytes"
    } else if RESERVED_TYPES.contains(&event_type) {
        "is reserved"
    } else {
        return Ok(());
    };
    Err(EnvelopeError::Type { seq, event_type: event_type.chars().take(80).collect(), problem })
}

pub(crate) fn check_size(bytes: usize, seq: Option<u64>) -> Result<(), EnvelopeError> {
    if bytes > MAX_EVENT_BYTES { Err(EnvelopeError::TooLarge { seq, bytes }) } else { Ok(()) }
}

fn seq_number(text: &str) -> Option<u64> {
    let number = json::integer(text).filter(|number| *number <= MAX_SAFE_INTEGER)?;
    u64::try_from(number).ok()
}

fn parse_op(text: &str) -> Result<SurfaceOp, &'static str> {
    const PROBLEM: &str = "is neither \"append\" nor {\"op\":\"replace\",\"start\":S,\"end\":E}";
    if json::string(text).is_some_and(|op| op == "append") {
        return Ok(SurfaceOp::Append);
    }
    let members: Vec<_> = json::members(text).ok_or(PROBLEM)?.collect();
    if members.len() != 3 || json::member(text, "op").and_then(json::string).is_none_or(|op| op != "replace") {
        return Err(PROBLEM);
    }
    let number = |key| json::member(text, key).and_then(seq_number).ok_or(PROBLEM);
    Ok(SurfaceOp::Replace { start: number("start")?, end: number("end")? })
}

/// A list of seqs, in which `[start,end]` stands for a range.
fn parse_sources(text: &str) -> Result<Sources, &'static str> {
    const PROBLEM: &str = "is not a list of seqs or [start,end] ranges";
    let mut sources = Sources::default();
    for element in json::elements(text).ok_or(PROBLEM)? {
        if let Some(seq) = seq_number(element) {
            sources.push(seq);
            continue;
        }
        let mut ends = json::elements(element).ok_or(PROBLEM)?;
        match (ends.next().and_then(seq_number), ends.next().and_then(seq_number), ends.next()) {
            (Some(start), Some(end), None) if start <= end => sources.push_range(start, end),
            _ => return Err(PROBLEM),
        }
    }
    Ok(sources)
}

/// Appends the event's line (without a line break) to `out`. Sources are written one by one, for readers that know no ranges;
/// for an event that was accepted the line takes at most [`MAX_EVENT_BYTES`] and 17 bytes for each of [`MAX_SOURCES`].
pub fn write_line(event: &Event, out: &mut String) {
    write_line_as(event, SourceList::Plain, out);
}

/// How a line spells `sourceEventSeqs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceList {
    /// Every seq as an integer, which every reader takes.
    Plain,
    /// Three consecutive seqs and more as one `[start,end]` pair, which newer readers take.
    Ranges,
}

/// As [`write_line`], with a choice.
pub(crate) fn write_line_as(event: &Event, list: SourceList, out: &mut String) {
    let mut number = itoa::Buffer::new();
    out.push_str("{\"type\":\"");
    json::escape_into(out, event.event_type());
    out.push_str("\",\"seq\":");
    out.push_str(number.format(event.seq()));
    out.push_str(",\"time\":");
    out.push_str(number.format(event.time()));
    out.push_str(",\"data\":");
    match event.as_packed_delta() {
        Some((head, body)) => head.write_data(body, out),
        None => out.push_str(&event.data()),
    }
    if let Some(placement) = event.placement() {
        if let Some(sources) = placement.sources() {
            out.push_str(",\"sourceEventSeqs\":[");
            match list {
                SourceList::Plain => write_seqs(sources.iter(), &mut true, out),
                SourceList::Ranges => write_ranges(sources, out),
            }
            out.push(']');
        }
        match placement.op() {
            SurfaceOp::Append => out.push_str(",\"surfaceOp\":\"append\""),
            SurfaceOp::Replace { start, end } => {
                // Writing to a String cannot fail.
                let _ = write!(out, ",\"surfaceOp\":{{\"op\":\"replace\",\"start\":{start},\"end\":{end}}}");
            }
        }
    }
    if event.ignorable() {
        out.push_str(",\"ignorable\":true");
    }
    out.push('}');
}

/// Appends seqs with commas between them and before all but the first of the list.
fn write_seqs(seqs: impl Iterator<Item = u64>, first: &mut bool, out: &mut String) {
    let mut number = itoa::Buffer::new();
    for seq in seqs {
        if !std::mem::take(first) {
            out.push(',');
        }
        out.push_str(number.format(seq));
    }
}

fn write_ranges(sources: &Sources, out: &mut String) {
    let mut first = true;
    for &(start, end) in sources.ranges() {
        if end - start < 2 {
            write_seqs(start..=end, &mut first, out);
            continue;
        }
        out.push_str(if std::mem::take(&mut first) { "[" } else { ",[" });
        write_seqs([start, end].into_iter(), &mut true, out);
        out.push(']');
    }
}

/// How the line of a packable delta begins.
const DELTA_START: &str = "{\"type\":\"assistant/chunk\",\"seq\":";

/// How lines of deltas are spelled that have one head in common.
#[derive(Debug)]
pub(crate) struct DeltaLine {
    /// What stands between a delta's time and its text.
    middle: String,
}

impl DeltaLine {
    pub(crate) fn of(head: &RunHead) -> Self {
        let mut middle = ",\"data\":".to_owned();
        head.write_data("", &mut middle);
        middle.truncate(middle.len() - DATA_END.len());
        Self { middle }
    }

    /// Takes a line apart into seq, time and string body if it is exactly what [`write_line`] writes for a delta of this head.
    pub(crate) fn recognise<'a>(&self, line: &'a str) -> Option<(u64, i64, &'a str)> {
        let (seq, rest) = line.strip_prefix(DELTA_START)?.split_once(",\"time\":")?;
        let seq = seq_number(seq)?;
        let (time, rest) = rest.split_at_checked(rest.bytes().position(|byte| byte == b',')?)?;
        let time = json::integer(time).filter(|time| is_safe(*time))?;
        let body = rest.strip_prefix(self.middle.as_str())?.strip_suffix('}')?.strip_suffix(DATA_END)?;
        is_string_body(body).then_some((seq, time, body))
    }
}

/// The lines of a run's deltas, written without making events of them.
pub(crate) struct RunLines<'a> {
    deltas: std::iter::Zip<Deltas<'a>, RangeFrom<u64>>,
    spelling: DeltaLine,
}

impl<'a> RunLines<'a> {
    pub(crate) fn of(run: &'a ChunkRun) -> Self {
        Self { deltas: run.deltas().zip(run.first_seq()..), spelling: DeltaLine::of(run.head()) }
    }

    /// Appends the next line with its line break to `out`; `false` at the end.
    pub(crate) fn next_into(&mut self, out: &mut String) -> bool {
        let Some(((time, body), seq)) = self.deltas.next() else { return false };
        let mut number = itoa::Buffer::new();
        out.push_str(DELTA_START);
        out.push_str(number.format(seq));
        out.push_str(",\"time\":");
        out.push_str(number.format(time));
        out.push_str(&self.spelling.middle);
        out.push_str(body);
        out.push_str(DATA_END);
        out.push_str("}\n");
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Result<String, EnvelopeError> {
        RawEnvelope::parse(text).and_then(RawEnvelope::into_event).map(|event| event.to_line())
    }

    #[test]
    fn a_runs_lines_are_those_of_its_events() {
        let recording = crate::sample::Recording::new(11).events(3_000);
        let batch = crate::event::Batch::pack(recording.iter()).unwrap();
        let mut runs = 0;
        for item in batch.items() {
            let crate::event::Item::Run(run) = item else { continue };
            let (mut lines, mut expected) = (String::new(), String::new());
            let mut made = RunLines::of(run);
            while made.next_into(&mut lines) {}
            run.events().for_each(|event| expected.push_str(&(event.to_line() + "\n")));
            assert_eq!(lines, expected);
            let spelling = DeltaLine::of(run.head());
            for (line, event) in lines.lines().zip(run.events()) {
                let (_, body) = event.as_packed_delta().unwrap();
                assert_eq!(spelling.recognise(line), Some((event.seq(), event.time(), body)));
            }
            runs += 1;
        }
        assert!(runs > 8);
    }

    #[test]
    fn only_a_line_in_its_one_spelling_is_recognised_as_a_delta() {
        let plain = concat!(
            r#"{"type":"assistant/chunk","seq":7,"time":-5,"data":{"turn":1,"step":2,"#,
            r#""chunk":{"type":"text-delta","index":0,"text":"a\u00e9\""}}}"#
        );
        let event = RawEnvelope::parse(plain).and_then(RawEnvelope::into_event).unwrap();
        let (head, _) = RunHead::recognise(&event.data()).unwrap();
        let spelling = DeltaLine::of(&head);
        assert_eq!(spelling.recognise(plain), Some((7, -5, r#"a\u00e9\""#)));
        for (from, to) in [
            ("\"seq\":7", "\"seq\":07"),
            ("\"seq\":7", "\"seq\":-7"),
            ("\"seq\":7", "\"seq\":9007199254740992"),
            ("\"seq\":7", "\"seq\": 7"),
            ("\"seq\":7,", "\"seq\":7,\"seq\":7,"),
            ("\"time\":-5", "\"time\":-0"),
            ("\"time\":-5", "\"time\":9007199254740992"),
            ("\"turn\":1", "\"turn\":2"),
            ("\"step\":2", "\"step\":2,\"step\":2"),
            ("\\u00e9", "\\u00g9"),
            ("\\u00e9", "\\ud83d"),
            ("\\u00e9", "\\x"),
            ("\\u00e9", "\t"),
            ("\\u00e9", "\""),
            ("\\\"", "\\"),
            ("}}}", "}},\"ignorable\":true}"),
            ("}}}", "}}} "),
            ("}}}", "}}"),
        ] {
            let other = plain.replace(from, to);
            assert_ne!(other, plain, "{from}");
            assert_eq!(spelling.recognise(&other), None, "{other}");
        }
    }

    #[test]
    fn e1_an_envelope_comes_back_byte_for_byte() {
        for text in [
            r#"{"type":"app/x","seq":0,"time":-5,"data":{"b":1e5,"a":30000000000000000000000000000,"a":"\ud800"}}"#,
            r#"{"type":"app/x","seq":7,"time":9007199254740991,"data":null,"ignorable":true}"#,
            r#"{"type":"user/message","seq":9,"time":1,"data":{},"sourceEventSeqs":[3,4,8,1],"surfaceOp":"append"}"#,
            r#"{"type":"user/message","seq":9,"time":1,"data":{},"surfaceOp":{"op":"replace","start":1,"end":2}}"#,
        ] {
            assert_eq!(line(text).unwrap(), text);
        }
        let ranged =
            r#"{"type":"user/message","seq":9,"time":1,"data":1,"sourceEventSeqs":[0,[3,5]],"surfaceOp":"append"}"#;
        assert!(line(ranged).unwrap().contains("[0,3,4,5]"));
    }

    #[test]
    fn e3_and_the_envelope_table_refuse_naming_seq_and_member() {
        let cases = [
            (r#"{"type":"a","seq":3,"time":1,"data":1,"extra":2}"#, "seq 3: unknown envelope member \"extra\""),
            (r#"{"type":"a","seq":3,"data":1}"#, "seq 3: member \"time\" is missing"),
            (r#"{"type":"a","seq":3,"time":1}"#, "seq 3: member \"data\" is missing"),
            (r#"{"type":"","seq":3,"time":1,"data":1}"#, "seq 3: event type \"\" is empty"),
            (r#"{"type":"session","seq":3,"time":1,"data":1}"#, "is reserved"),
            (r#"{"type":"text-chunks","seq":3,"time":1,"data":1}"#, "is reserved"),
            (r#"{"type":"a","seq":-1,"time":1,"data":1}"#, "member \"seq\""),
            (r#"{"type":"a","seq":9007199254740992,"time":1,"data":1}"#, "member \"seq\""),
            (r#"{"type":"a","seq":1,"time":9007199254740992,"data":1}"#, "member \"time\""),
            (r#"{"type":"a","seq":1,"time":1.5,"data":1}"#, "member \"time\""),
            (r#"{"type":"a","seq":1,"time":1,"data":1,"ignorable":false}"#, "member \"ignorable\""),
            (r#"{"type":"a","seq":1,"seq":1,"time":1,"data":1}"#, "occurs twice"),
            (r#"{"type":"a","seq":1,"time":1,"data":1,"surfaceOp":"append"}"#, "log-only"),
            (r#"{"type":"user/message","seq":1,"time":1,"data":1}"#, "must carry surfaceOp"),
            (r#"{"type":"user/message","seq":1,"time":1,"data":1,"surfaceOp":"prepend"}"#, "surfaceOp"),
            (
                r#"{"type":"user/message","seq":1,"time":1,"data":1,"sourceEventSeqs":[1.0],"surfaceOp":"append"}"#,
                "list of seqs",
            ),
            ("[1]", "JSON object"),
            ("{\"type\":", "not valid JSON"),
        ];
        for (text, expected) in cases {
            let error = line(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
