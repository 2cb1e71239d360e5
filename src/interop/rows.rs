//! Packed rows (semantics P3): one line for a run of streamed deltas.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::event::ChunkRun;
use crate::event::json;
use crate::event::limits::{MAX_SAFE_INTEGER, is_safe};
use crate::event::run::{DeltaKind, RunHead};

/// The kind of delta behind a row's type tag.
pub(super) fn kind_of(tag: &str) -> Option<DeltaKind> {
    match tag {
        "text-chunks" => Some(DeltaKind::Text),
        "reasoning-chunks" => Some(DeltaKind::Reasoning),
        "tool-call-chunks" => Some(DeltaKind::ToolCall),
        _ => None,
    }
}

/// A row whose every part has been checked.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) head: Arc<RunHead>,
    pub(super) seq: Option<u64>,
    pub(super) time: Option<i64>,
    pub(super) len: u64,
    gaps: &'a str,
    bodies: &'a str,
}

/// Why a line is no row, and the seq where one could be read.
#[derive(Debug)]
pub(super) struct RowFault {
    pub(super) seq: Option<u64>,
    pub(super) detail: String,
}

fn safe(text: &str) -> Option<u64> {
    json::integer(text).filter(|number| (0..=MAX_SAFE_INTEGER).contains(number)).map(i64::unsigned_abs)
}

fn fault(member: &str, problem: &str) -> String {
    format!("member \"{member}\" {problem}")
}

/// The members of an object, none of which may occur twice or be unknown.
fn members<'a, const N: usize>(text: &'a str, keys: [&str; N]) -> Result<[Option<&'a str>; N], String> {
    let mut values = [None; N];
    for (key, value) in json::members(text).ok_or("not an object")? {
        let slot = keys.iter().position(|known| *known == key).and_then(|index| values.get_mut(index));
        let slot = slot.ok_or_else(|| fault(&key, "is unknown"))?;
        if slot.replace(value).is_some() {
            return Err(fault(&key, "occurs twice"));
        }
    }
    Ok(values)
}

impl<'a> Row<'a> {
    /// Takes a compact line apart.
    pub(super) fn parse(kind: DeltaKind, text: &'a str) -> Result<Self, RowFault> {
        let seq = json::member(text, "seq0").and_then(safe);
        Self::parse_members(kind, text).map_err(|detail| RowFault { seq, detail })
    }

    fn parse_members(kind: DeltaKind, text: &'a str) -> Result<Self, String> {
        let [_, seq, time, data] = members(text, ["type", "seq0", "time0", "data"])?;
        let seq = seq.map(|seq| safe(seq).ok_or_else(|| fault("seq0", "is not an integer from 0 to 2^53-1")));
        let time = time.map(|time| {
            let time = json::integer(time).filter(|time| is_safe(*time));
            time.ok_or_else(|| fault("time0", "is not an integer within +-(2^53-1) milliseconds"))
        });
        let data = data.ok_or_else(|| fault("data", "is missing"))?;
        let calls = kind == DeltaKind::ToolCall;
        let list = if calls { "args" } else { "texts" };
        let [turn, step, index, gaps, bodies, id, name] = if calls {
            members(data, ["turn", "step", "index", "dt", list, "id", "name"])?
        } else {
            let [turn, step, index, gaps, bodies] = members(data, ["turn", "step", "index", "dt", list])?;
            [turn, step, index, gaps, bodies, None, None]
        };
        let number = |key: &str, value: Option<&str>| {
            value.and_then(safe).ok_or_else(|| fault(key, "is not an integer from 0 to 2^53-1"))
        };
        let string = |key: &str, value: &'a str| json::string_body(value).ok_or_else(|| fault(key, "is not a string"));
        if calls && id.is_none() {
            return Err(fault("id", "is missing"));
        }
        let head = RunHead {
            kind,
            turn: number("turn", turn)?,
            step: number("step", step)?,
            index: number("index", index)?,
            id: id.map(|id| string("id", id)).transpose()?.map(Into::into),
            name: name.map(|name| string("name", name)).transpose()?.map(Into::into),
        };
        let gaps = gaps.ok_or_else(|| fault("dt", "is missing"))?;
        let bodies = bodies.ok_or_else(|| fault(list, "is missing"))?;
        let mut row =
            Self { head: Arc::new(head), seq: seq.transpose()?, time: time.transpose()?, len: 0, gaps, bodies };
        row.len = row.check(list)?;
        Ok(row)
    }

    /// Checks both lists and returns the number of deltas.
    fn check(&self, list: &str) -> Result<u64, String> {
        let mut deltas: u64 = 0;
        for body in json::elements(self.bodies).ok_or_else(|| fault(list, "is not a list"))? {
            json::string_body(body).ok_or_else(|| fault(list, "holds something else than strings"))?;
            deltas += 1;
        }
        let mut gaps: u64 = 0;
        // A row without a time gets one that is known only later; its sums are checked when it is.
        let mut time = self.time.unwrap_or(0);
        for gap in json::elements(self.gaps).ok_or_else(|| fault("dt", "is not a list"))? {
            let gap = json::integer(gap).filter(|gap| is_safe(*gap));
            let sum = gap.and_then(|gap| time.checked_add(gap)).filter(|sum| is_safe(*sum));
            time = sum.ok_or_else(|| fault("dt", "holds no integer or leads out of the safe range of times"))?;
            gaps += 1;
        }
        if deltas == 0 {
            return Err(fault(list, "is empty"));
        }
        if gaps + 1 != deltas {
            return Err(format!("{deltas} deltas need {} gaps in \"dt\", which has {gaps}", deltas - 1));
        }
        Ok(deltas)
    }

    /// The deltas as (time, string body), the first at `time`. Ends early where a sum leaves the range of `i64`.
    pub(super) fn deltas(&self, time: i64) -> impl Iterator<Item = (i64, &'a str)> {
        let gaps = json::elements(self.gaps).into_iter().flatten().filter_map(json::integer);
        let times = gaps.scan(time, |time, gap| {
            *time = time.checked_add(gap)?;
            Some(*time)
        });
        let bodies = json::elements(self.bodies).into_iter().flatten().filter_map(json::string_body);
        std::iter::once(time).chain(times).zip(bodies)
    }
}

/// Appends the run as a row, without a line break.
pub(super) fn write(run: &ChunkRun, out: &mut String) {
    let head = run.head();
    let (tag, key) = match head.kind {
        DeltaKind::Text => ("text-chunks", "texts"),
        DeltaKind::Reasoning => ("reasoning-chunks", "texts"),
        DeltaKind::ToolCall => ("tool-call-chunks", "args"),
    };
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "{{\"type\":\"{tag}\",\"seq0\":{},\"time0\":{},\"data\":{{\"turn\":{},\"step\":{},\"index\":{},\"dt\":[",
        run.first_seq(),
        run.first_time(),
        head.turn,
        head.step,
        head.index
    );
    let mut number = itoa::Buffer::new();
    let mut last = run.first_time();
    for (index, (time, _)) in run.deltas().skip(1).enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push_str(number.format(time.saturating_sub(last)));
        last = time;
    }
    out.push(']');
    for (key, value) in [(",\"id\":\"", &head.id), (",\"name\":\"", &head.name)] {
        if let Some(value) = value {
            out.push_str(key);
            out.push_str(value);
            out.push('"');
        }
    }
    let _ = write!(out, ",\"{key}\":[");
    for (index, (_, body)) in run.deltas().enumerate() {
        out.push_str(if index > 0 { ",\"" } else { "\"" });
        out.push_str(body);
        out.push('"');
    }
    out.push_str("]}}");
}
