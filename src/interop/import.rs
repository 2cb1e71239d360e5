//! Reading a log: header, lines, rows, and what old releases left out.

use std::collections::VecDeque;
use std::io::Read;

use super::early::{self, Line, Opening};
use super::error::{ImportError, ImportErrorKind};
use super::foreign::{Draft, Mapping, SourceFormat};
use super::intake::{Admitted, Intake};
use super::lines::{Lines, MAX_LINE_BYTES};
use super::place::{Place, broken_json};
use super::report::ImportReport;
use super::rows::{self, Row};
use super::source::{MAX_DECODED_BYTES, Source};
use crate::event::chunk::ASSISTANT_CHUNK;
use crate::event::envelope::is_surface_type;
use crate::event::header::{FORMAT_VERSION, is_absolute};
use crate::event::json::{self, JsonText};
use crate::event::limits::is_safe;
use crate::event::run::DeltaKind;
use crate::event::vocabulary::retired_shape;
use crate::event::{Batch, Event, Item, NewEvent, RawEnvelope, SessionHeader, SurfaceOp};
use crate::session::upgrade::{Upgrade, VersionError};

/// How to read a log.
#[derive(Debug, Clone)]
pub struct ImportOptions {
    pub(super) format: Option<SourceFormat>,
    file: Option<String>,
    id: Option<String>,
    max_line_bytes: usize,
    max_decoded_bytes: u64,
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self {
            format: None,
            file: None,
            id: None,
            max_line_bytes: MAX_LINE_BYTES,
            max_decoded_bytes: MAX_DECODED_BYTES,
        }
    }
}

impl ImportOptions {
    /// Reads the log as one of this format; otherwise its first records decide.
    pub fn format(mut self, format: SourceFormat) -> Self {
        self.format = Some(format);
        self
    }

    /// Names the input in errors. Claude Code names a transcript's file after its session, so the name also decides the id there.
    pub fn file(mut self, name: impl Into<String>) -> Self {
        self.file = Some(name.into());
        self
    }

    /// Gives the session another id than the recorded one. Ids that an upgrade makes up still derive from the recorded one, so
    /// the events are the same whatever the session is called.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Longest line that is read, in bytes; [`MAX_LINE_BYTES`] at first.
    pub fn max_line_bytes(mut self, limit: usize) -> Self {
        self.max_line_bytes = limit;
        self
    }

    /// Most text that a compressed log may decode to, in bytes; [`MAX_DECODED_BYTES`] at first.
    pub fn max_decoded_bytes(mut self, limit: u64) -> Self {
        self.max_decoded_bytes = limit;
        self
    }
}

/// Whether the log records `surfaceOp`; the first surface event decides for all (N3).
#[derive(Debug, Clone, Copy)]
enum SurfaceRecord {
    Unknown,
    /// The event at this seq has one.
    Recorded(u64),
    /// The event at this seq has none.
    Absent(u64),
}

/// A log being read, one line at a time.
///
/// Memory: one line, one packed run, what rule checks need to know of the surface, and 1 MiB that tells repeated events from
/// conflicting ones. Nothing depends on the log's length or its compression.
pub struct Import<R> {
    lines: Lines<R>,
    options: ImportOptions,
    header: SessionHeader,
    recorded_id: String,
    intake: Intake,
    upgrade: Upgrade,
    foreign: Option<Foreign>,
    surface: SurfaceRecord,
    report: ImportReport,
    ended: bool,
    failed: Option<ImportError>,
}

/// A log whose records have to be turned into events.
struct Foreign {
    mapping: Box<dyn Mapping>,
    draft: Draft,
    /// Lines that were read to learn what the log is.
    early: VecDeque<Line>,
    /// Why nothing can be read behind those.
    failed: Option<ImportError>,
}

impl<R: Read> Import<R> {
    /// Reads the header and the first event, if there is one: a log may be a header alone, of a session that was never used.
    ///
    /// # Errors
    /// [`ImportError`] when there is no header that this release can read, or the first event is at fault. A newer
    /// version is reported before anything else about the header is looked at (N2).
    pub fn open(input: R, options: ImportOptions) -> Result<Self, ImportError> {
        let place = Place { file: options.file.as_ref(), session: None, line: 0, intact: 0 };
        let source = Source::open(input, options.max_decoded_bytes).map_err(|fault| place.source_fault(fault, 0))?;
        let mut lines = Lines::new(source, options.max_line_bytes);
        let opening = Opening::read(&mut lines, &options, place)?;
        let mut report = ImportReport { source_format: opening.format, ..ImportReport::default() };
        note_lines(&mut report, &lines);
        let mut import = match opening.mapping {
            Some(mapping) => {
                let file = options.file.as_deref().map(early::stem);
                let mut header = mapping
                    .header(file)
                    .map_err(|found| place.refuse(ImportErrorKind::NoHeader { found: found.to_owned() }, 0, None))?;
                let recorded_id = header.id.clone();
                let draft = Draft::new(mapping.prefix(), &recorded_id, header.created_at.unwrap_or(0));
                rename(&mut header, &options).map_err(|kind| place.refuse(kind, 0, None))?;
                report.relative_cwd = header.cwd.as_deref().is_some_and(|cwd| !is_absolute(cwd));
                report.source_version = FORMAT_VERSION;
                let foreign = Foreign { mapping, draft, early: opening.lines, failed: opening.failed };
                let upgrade = Upgrade::from_version(FORMAT_VERSION, &recorded_id).map_err(|error| match error {
                    VersionError::Newer(found) => place.refuse(ImportErrorKind::NewerVersion { found }, 0, None),
                })?;
                Self {
                    lines,
                    options,
                    header,
                    recorded_id,
                    intake: Intake::new(),
                    upgrade,
                    foreign: Some(foreign),
                    surface: SurfaceRecord::Unknown,
                    report,
                    ended: false,
                    failed: None,
                }
            }
            None => Self::open_session(lines, options, opening.lines, report)?,
        };
        import.advance();
        while import.intake.next_seq() == 0 && !import.ended {
            import.advance();
        }
        match import.failed.take() {
            Some(error) if import.intake.next_seq() == 0 => return Err(error),
            // Events before a fault are given out first.
            failed => import.failed = failed,
        }
        if import.header.created_at.is_none() {
            import.created_at(None);
        }
        Ok(import)
    }

    /// Opens a log of this crate or of the harness, whose first line is its header.
    fn open_session(
        lines: Lines<R>,
        options: ImportOptions,
        mut early: VecDeque<Line>,
        mut report: ImportReport,
    ) -> Result<Self, ImportError> {
        let place = Place { file: options.file.as_ref(), session: None, line: 0, intact: 0 };
        let first = early.pop_front().ok_or_else(|| place.refuse(ImportErrorKind::Empty, 0, None))?;
        let place = Place { line: first.number, ..place };
        report.unterminated_last_line = !first.terminated;
        let text = match first.content {
            Ok(text) => text,
            Err(unreadable) => return Err(place.refuse(unreadable.kind, unreadable.offset, None)),
        };
        check_header_line(&text, place, first.start)?;
        let recorded_id = json::member(text.as_str(), "id").and_then(json::string).unwrap_or_default().into_owned();
        let place = Place { session: Some(&recorded_id), ..place };
        let refuse = |kind| place.refuse(kind, first.start, None);
        let unreadable =
            |error: crate::event::header::HeaderError| refuse(ImportErrorKind::Header { detail: error.to_string() });
        let version = SessionHeader::version_of(&text).map_err(unreadable)?;
        let upgrade = Upgrade::from_version(version, &recorded_id).map_err(|error| match error {
            VersionError::Newer(found) => refuse(ImportErrorKind::NewerVersion { found }),
        })?;
        let mut header = SessionHeader::parse(&text).map_err(unreadable)?;
        report.source_version = version;
        report.filled_version = json::member(text.as_str(), "version").is_none();
        report.filled_delegation_depth = version == 0 && header.delegation_depth.is_none();
        report.relative_cwd = header.cwd.as_deref().is_some_and(|cwd| !is_absolute(cwd));
        if report.filled_delegation_depth {
            header.delegation_depth = Some(0);
        }
        header.version = FORMAT_VERSION;
        rename(&mut header, &options).map_err(refuse)?;
        Ok(Self {
            lines,
            options,
            header,
            recorded_id,
            intake: Intake::new(),
            upgrade,
            foreign: None,
            surface: SurfaceRecord::Unknown,
            report,
            ended: false,
            failed: None,
        })
    }

    /// The header as it will be stored: in the current version, with what was missing filled in.
    pub fn header(&self) -> &SessionHeader {
        &self.header
    }

    /// What was filled, upgraded and passed over so far.
    pub fn report(&self) -> &ImportReport {
        &self.report
    }

    /// The next event or packed run; `None` at the end.
    ///
    /// # Errors
    /// [`ImportError`] at the first fault, once every event before it has been given out; `None` from then on.
    pub fn next_item(&mut self) -> Result<Option<Item>, ImportError> {
        loop {
            if let Some(item) = self.intake.pop() {
                return Ok(Some(item));
            }
            if self.ended {
                return self.failed.take().map_or(Ok(None), Err);
            }
            self.advance();
        }
    }

    /// The next stretch of items, of about `weight` bytes in memory; `None` at the end.
    ///
    /// # Errors
    /// As [`Import::next_item`].
    pub fn next_batch(&mut self, weight: usize) -> Result<Option<Batch>, ImportError> {
        let mut items = Vec::new();
        let mut held: usize = 0;
        while items.is_empty() || held < weight {
            match self.next_item() {
                Ok(Some(item)) => {
                    held = held.saturating_add(item.weight());
                    items.push(item);
                }
                Ok(None) => break,
                Err(error) if items.is_empty() => return Err(error),
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
            }
        }
        Ok(Batch::new(items))
    }

    /// The events one by one, unpacked.
    pub fn events(&mut self) -> impl Iterator<Item = Result<Event, ImportError>> + '_ {
        let mut unpacked: VecDeque<Event> = VecDeque::new();
        std::iter::from_fn(move || {
            while unpacked.is_empty() {
                match self.next_item() {
                    Ok(Some(item)) => unpacked.extend(item.events()),
                    Ok(None) => return None,
                    Err(error) => return Some(Err(error)),
                }
            }
            unpacked.pop_front().map(Ok)
        })
    }

    /// Reads one line; remembers the end or the fault.
    fn advance(&mut self) {
        let step = self.read_line();
        self.report.events = self.intake.next_seq();
        self.report.empty_call_ids = self.intake.calls().empty;
        self.report.repeated_call_ids = self.intake.calls().repeated;
        note_lines(&mut self.report, &self.lines);
        if !matches!(step, Ok(true)) {
            self.intake.end_run();
            self.ended = true;
            self.failed = step.err();
        }
    }

    fn place(&self) -> Place<'_> {
        Place {
            file: self.options.file.as_ref(),
            session: Some(&self.recorded_id),
            line: self.lines.number(),
            intact: self.intake.next_seq(),
        }
    }

    /// A fault of the current line.
    fn refuse(&self, kind: ImportErrorKind, seq: Option<u64>) -> ImportError {
        self.place().refuse(kind, self.lines.start(), Some(seq.unwrap_or(self.intake.next_seq())))
    }

    /// Takes in one record of another tool; false at the end.
    fn read_foreign(&mut self, foreign: &mut Foreign) -> Result<bool, ImportError> {
        if foreign.early.is_empty() {
            if let Some(error) = foreign.failed.take() {
                return Err(error);
            }
            let (file, session) = (self.options.file.as_ref(), Some(&self.recorded_id));
            let place = Place { file, session, line: 0, intact: self.intake.next_seq() };
            foreign.early.extend(Line::read(&mut self.lines, place)?);
        }
        let Some(line) = foreign.early.pop_front() else { return Ok(false) };
        self.report.unterminated_last_line = !line.terminated;
        if line.is_cut() {
            self.report.cut_last_line = true;
            return Ok(true);
        }
        match &line.content {
            Ok(record) => {
                foreign.draft.record(record, foreign.mapping.time(record.as_str()));
                foreign.mapping.record(record, &mut foreign.draft);
            }
            Err(unreadable) => {
                self.report.unreadable_lines += 1;
                foreign.draft.note("unreadable", unreadable.describe(line.number));
            }
        }
        for event in foreign.draft.take() {
            self.intake.admit(&event, line.number).map_err(|kind| {
                let place = Place { line: line.number, ..self.place() };
                place.refuse(kind, line.start, Some(event.seq()))
            })?;
        }
        let counts = foreign.draft.counts();
        self.report.branches = counts.branches;
        self.report.compactions = counts.compactions;
        self.report.bridged_gaps = counts.bridged;
        self.report.unrestored_messages = counts.unrestored;
        Ok(true)
    }

    /// Takes in one line; false at the end.
    fn read_line(&mut self) -> Result<bool, ImportError> {
        if let Some(mut foreign) = self.foreign.take() {
            let read = self.read_foreign(&mut foreign);
            self.foreign = Some(foreign);
            return read;
        }
        let text = match self.lines.next() {
            Ok(Some((number, line))) => {
                // Nearly all lines of a streamed log. An old format's are looked at for what has to be upgraded.
                let next = if self.upgrade.is_needed() { None } else { self.intake.admit_next_delta(line, number) };
                if let Some(admitted) = next {
                    admitted.map_err(|kind| self.refuse(kind, None))?;
                    self.report.unterminated_last_line = !self.lines.terminated();
                    return Ok(true);
                }
                JsonText::parse(line)
            }
            Ok(None) => return Ok(false),
            Err(fault) => return Err(self.place().line_fault(fault, &self.lines, Some(self.intake.next_seq()))),
        };
        let text = text.map_err(|_| {
            let kind = broken_json(self.lines.readable());
            let seq = sniffed_seq(self.lines.readable());
            self.refuse(kind, seq)
        })?;
        self.report.unterminated_last_line = !self.lines.terminated();
        let tag = type_of(text.as_str());
        if tag.as_deref() == Some("session") {
            let id = json::member(text.as_str(), "id").and_then(json::string).unwrap_or_default().into_owned();
            return Err(self.refuse(ImportErrorKind::SecondHeader { id }, None));
        }
        match tag.as_deref().and_then(rows::kind_of) {
            Some(kind) => self.read_row(kind, &text)?,
            None => self.read_event(&text)?,
        }
        Ok(true)
    }

    /// The time that stands in for one that is missing; the first event's decides where the header has none either (N3).
    fn created_at(&mut self, first_time: Option<i64>) -> i64 {
        if let Some(time) = self.header.created_at {
            return time;
        }
        let time = first_time.unwrap_or(0).max(0);
        self.header.created_at = Some(time);
        self.report.filled_created_at = true;
        time
    }

    fn read_event(&mut self, text: &JsonText) -> Result<(), ImportError> {
        let expected = self.intake.next_seq();
        let mut raw = RawEnvelope::from_text(text).map_err(|error| {
            let seq = json::member(text.as_str(), "seq").and_then(json::integer).map(i64::unsigned_abs);
            self.refuse(ImportErrorKind::Envelope(error), seq)
        })?;
        let (had_seq, had_time) = (raw.seq.is_some(), raw.time.is_some());
        let seq = raw.seq.unwrap_or(expected);
        if seq > expected {
            return Err(self.refuse(ImportErrorKind::Gap { expected, found: seq }, Some(seq)));
        }
        let created_at = self.created_at(raw.time);
        raw.seq = Some(seq);
        raw.time.get_or_insert(created_at);
        if let Some(detail) = retired_shape(&raw.event_type, raw.data.as_str()) {
            return Err(self.refuse(ImportErrorKind::Retired { detail }, Some(seq)));
        }
        let (mut raw, upgraded) =
            self.upgrade.apply(raw, seq).map_err(|error| self.refuse(ImportErrorKind::Upgrade(error), Some(seq)))?;
        let filled_op = self.fill_surface_op(&mut raw, seq)?;
        let event = raw.into_event().map_err(|error| self.refuse(ImportErrorKind::Envelope(error), Some(seq)))?;
        let admitted = self.intake.admit(&event, self.lines.number()).map_err(|kind| self.refuse(kind, Some(seq)))?;
        if admitted == Admitted::Repeated {
            self.report.overlaps_dropped += 1;
            return Ok(());
        }
        self.upgrade.accepted(&event);
        self.report.upgraded.add(upgraded);
        self.report.filled_seq += u64::from(!had_seq);
        self.report.filled_time += u64::from(!had_time);
        self.report.filled_surface_op += u64::from(filled_op);
        Ok(())
    }

    /// In a format 0 log that never records `surfaceOp`, puts surface events at the tail. The first one decides what the log
    /// does, so that no second look at it is needed.
    fn fill_surface_op(&mut self, raw: &mut RawEnvelope, seq: u64) -> Result<bool, ImportError> {
        if !self.upgrade.is_needed() || !is_surface_type(&raw.event_type) {
            return Ok(false);
        }
        match (self.surface, raw.surface_op) {
            (SurfaceRecord::Unknown, Some(_)) => self.surface = SurfaceRecord::Recorded(seq),
            (SurfaceRecord::Unknown, None) => self.surface = SurfaceRecord::Absent(seq),
            (SurfaceRecord::Recorded(earlier), None) => {
                return Err(self.refuse(ImportErrorKind::MixedSurface { earlier, recorded: false }, Some(seq)));
            }
            (SurfaceRecord::Absent(earlier), Some(_)) => {
                return Err(self.refuse(ImportErrorKind::MixedSurface { earlier, recorded: true }, Some(seq)));
            }
            _ => {}
        }
        if raw.surface_op.is_some() {
            return Ok(false);
        }
        raw.surface_op = Some(SurfaceOp::Append);
        Ok(true)
    }

    fn read_row(&mut self, kind: DeltaKind, text: &JsonText) -> Result<(), ImportError> {
        let row = Row::parse(kind, text.as_str())
            .map_err(|fault| self.refuse(ImportErrorKind::Row { detail: fault.detail }, fault.seq))?;
        let expected = self.intake.next_seq();
        let first = row.seq.unwrap_or(expected);
        if first > expected {
            return Err(self.refuse(ImportErrorKind::Gap { expected, found: first }, Some(first)));
        }
        let created_at = self.created_at(row.time);
        let line = self.lines.number();
        let plain_head =
            [&row.head.id, &row.head.name].into_iter().flatten().all(|body| !json::has_lone_surrogate(body));
        let mut taken = 0;
        for ((time, body), seq) in row.deltas(row.time.unwrap_or(created_at)).zip(first..) {
            if !is_safe(time) {
                break;
            }
            let admitted = if plain_head && !json::has_lone_surrogate(body) {
                self.intake.admit_delta(&row.head, seq, time, body, line)
            } else {
                let data = JsonText::trusted(row.head.data(body));
                self.intake.admit(&NewEvent::named(ASSISTANT_CHUNK, data).at(seq, time), line)
            };
            match admitted.map_err(|kind| self.refuse(kind, Some(seq)))? {
                Admitted::Repeated => self.report.overlaps_dropped += 1,
                Admitted::New => {
                    self.report.filled_seq += u64::from(row.seq.is_none());
                    self.report.filled_time += u64::from(row.time.is_none());
                }
            }
            taken += 1;
        }
        if taken < row.len {
            let detail = "member \"dt\" leads out of the safe range of times".to_owned();
            return Err(self.refuse(ImportErrorKind::Row { detail }, Some(first.saturating_add(taken))));
        }
        self.report.rows += 1;
        Ok(())
    }
}

/// Gives the session the id that the caller wants.
fn rename(header: &mut SessionHeader, options: &ImportOptions) -> Result<(), ImportErrorKind> {
    if let Some(id) = &options.id {
        header.id.clone_from(id);
    }
    header.check_stored().map_err(|error| ImportErrorKind::Header { detail: error.to_string() })
}

/// Makes sure that a log's first line is a header line.
fn check_header_line(text: &JsonText, place: Place<'_>, start: u64) -> Result<(), ImportError> {
    let tag = type_of(text.as_str());
    if tag.as_deref() == Some("session") {
        return Ok(());
    }
    let seq = ["seq", "seq0"].iter().find_map(|key| json::member(text.as_str(), key)).and_then(json::integer);
    let seq = seq.and_then(|seq| u64::try_from(seq).ok());
    let found = match (tag, seq) {
        (Some(tag), Some(seq)) => format!("the first line is event {seq} of type {tag:?}"),
        (Some(tag), None) => format!("the first line is of type {tag:?}"),
        (None, _) => "the first line is some other JSON".to_owned(),
    };
    Err(place.refuse(ImportErrorKind::NoHeader { found }, start, seq))
}

fn note_lines<R: Read>(report: &mut ImportReport, lines: &Lines<R>) {
    report.lines = lines.number();
    report.blank_lines = lines.blank;
    report.crlf_lines = lines.crlf;
    report.byte_order_mark = lines.byte_order_mark;
    report.bytes_in = lines.bytes_in();
    report.bytes_decoded = lines.bytes_decoded();
}

/// The value of `type`, which nearly always comes first.
fn type_of(text: &str) -> Option<std::borrow::Cow<'_, str>> {
    match json::members(text)?.next()? {
        (key, value) if key == "type" => json::string(value),
        _ => json::member(text, "type").and_then(json::string),
    }
}

/// The seq that a broken line states, as far as it can be made out: it usually stands before the payload.
fn sniffed_seq(line: &str) -> Option<u64> {
    let envelope = line.split_once("\"data\":").map_or(line, |(before, _)| before);
    ["\"seq\":", "\"seq0\":"].iter().find_map(|key| {
        let (_, rest) = envelope.split_once(key)?;
        let end = rest.find(|letter: char| !letter.is_ascii_digit())?;
        rest.get(..end)?.parse().ok()
    })
}
