//! `verify`: is everything as it was written, and does the log obey the model's rules?

use serde::Serialize;
use sessionlog::backend::{BackendError, ErrorKind, TornTail};
use sessionlog::event::{SessionId, Vocabulary};
use sessionlog::segment::{Rebuilt, SegmentBackend};

use super::args::Verify;
use super::failure::{BUSY_OR_MISSING, Failure, PARTLY_FAILED, WRONG_USAGE, status_of};
use super::output::{Output, complain, counted, one_line, paragraph};
use super::store::{self, Entry};
use super::summary::{Summary, summarise};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Status {
    Ok,
    Torn,
    OpenTurn,
    Damaged,
    Unsupported,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Torn => "torn",
            Status::OpenTurn => "open-turn",
            Status::Damaged => "damaged",
            Status::Unsupported => "unsupported",
        }
    }
}

/// One line of `--json`.
#[derive(Debug, Serialize)]
struct Line {
    id: String,
    status: Status,
    events: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// What was rebuilt, where that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rebuilt: Vec<Part>,
    /// Whether only something derived is wrong.
    #[serde(skip)]
    derived: bool,
}

/// A derived part that was rebuilt.
#[derive(Debug, Serialize)]
struct Part {
    class: &'static str,
    file: String,
}

impl Line {
    fn new(id: &str, status: Status, events: u64) -> Self {
        Self {
            id: id.to_owned(),
            status,
            events,
            class: None,
            file: None,
            offset: None,
            seq: None,
            detail: None,
            rebuilt: Vec::new(),
            derived: false,
        }
    }

    fn of_error(id: &str, error: &BackendError) -> Self {
        let unsupported = error.kind == ErrorKind::Unsupported;
        let status = if unsupported { Status::Unsupported } else { Status::Damaged };
        let intact = error.damage.as_ref().map_or(0, |damage| damage.intact_before);
        let class = error.damage.as_ref().map_or_else(|| error.kind.name(), |damage| damage.class.name());
        Self {
            class: Some(class.to_owned()),
            derived: error.damage.as_ref().is_some_and(|damage| damage.class.is_derived()),
            file: error.file.as_ref().map(|file| file.display().to_string()),
            offset: error.damage.as_ref().and_then(|damage| damage.offset),
            seq: error.damage.as_ref().map(|damage| damage.intact_before),
            detail: Some(Failure::from(error).to_string()),
            ..Self::new(id, status, intact)
        }
    }
}

/// The last line of `--json`.
#[derive(Debug, Default, Serialize)]
struct Totals {
    summary: Counts,
}

#[derive(Debug, Default, Serialize)]
struct Counts {
    sessions: u64,
    ok: u64,
    torn: u64,
    #[serde(rename = "open-turn")]
    open_turn: u64,
    damaged: u64,
    unsupported: u64,
    events: u64,
}

pub async fn run(backend: &SegmentBackend, arguments: &Verify, json: bool, out: &mut Output) -> Result<(), Failure> {
    let mut chosen: Vec<Entry> = Vec::new();
    let mut missing = None;
    if arguments.ids.is_empty() {
        chosen = store::entries(backend).await?;
    }
    for given in &arguments.ids {
        match store::find(backend, given).await {
            Ok(entry) => chosen.push(entry),
            Err(Failure::Message { text, status }) if status != WRONG_USAGE => {
                // The others are still checked.
                complain(&format!("sessionlog: {text}"));
                missing = Some(status);
            }
            Err(failure) => return Err(failure),
        }
    }
    let mut totals = Totals::default();
    let mut unsound = false;
    for entry in chosen {
        let name = entry.name.clone();
        let line = match entry.id() {
            Ok(id) => match check(backend, &id).await {
                Some(line) if line.derived && arguments.repair_derived => match rebuild(backend, &id).await {
                    Ok(rebuilt) => check(backend, &id).await.map(|line| Line { rebuilt, ..line }),
                    Err(error) => {
                        missing = missing.or(Some(status_of(error.kind)).filter(|status| *status == BUSY_OR_MISSING));
                        complain(&format!("sessionlog: {}", paragraph(&Failure::from(error).to_string())));
                        Some(line)
                    }
                },
                line => line,
            },
            Err(error) => Some(Line::of_error(&name, &error)),
        };
        let Some(line) = line else {
            // Deleted since it was listed. One that was asked for by name is missing.
            if !arguments.ids.is_empty() {
                complain(&format!("sessionlog: session {} was deleted meanwhile", one_line(&name)));
                missing = Some(BUSY_OR_MISSING);
            }
            continue;
        };
        let counts = &mut totals.summary;
        counts.sessions += 1;
        counts.events += line.events;
        *match line.status {
            Status::Ok => &mut counts.ok,
            Status::Torn => &mut counts.torn,
            Status::OpenTurn => &mut counts.open_turn,
            Status::Damaged => &mut counts.damaged,
            Status::Unsupported => &mut counts.unsupported,
        } += 1;
        unsound |= matches!(line.status, Status::Torn | Status::Damaged | Status::Unsupported);
        print(&line, json, out)?;
    }
    if json {
        out.json(&totals)?;
    } else {
        let counts = &totals.summary;
        out.line(&format!(
            "{}, {}: {} ok, {} with an open turn, {} torn, {} damaged, {} unsupported",
            counted(counts.sessions, "session"),
            counted(counts.events, "event"),
            counts.ok,
            counts.open_turn,
            counts.torn,
            counts.damaged,
            counts.unsupported
        ))?;
    }
    match missing {
        _ if unsound => Err(Failure::Status(PARTLY_FAILED)),
        Some(status) => Err(Failure::Status(status)),
        None => Ok(()),
    }
}

/// Checks a session in full; `None` when there is none.
async fn check(backend: &SegmentBackend, id: &SessionId) -> Option<Line> {
    let engine = backend.engine().clone();
    let session = id.clone();
    let checked = tokio::task::spawn_blocking(move || engine.verify(&session)).await;
    let check = match checked {
        Ok(check) => check,
        Err(error) => {
            let error = BackendError::new(ErrorKind::Io, format!("the check broke off: {error}")).with_session(id);
            return Some(Line::of_error(id.as_str(), &error));
        }
    };
    let summary = match check.error {
        None => summarise(backend, id).await,
        Some(error) => Err(error),
    };
    match summary {
        Ok(summary) => Some(judge(id, check.torn.as_ref(), &summary)),
        Err(error) if error.kind == ErrorKind::NotFound => None,
        Err(error) => Some(Line::of_error(id.as_str(), &error)),
    }
}

/// Rebuilds what is derived wrongly.
async fn rebuild(backend: &SegmentBackend, id: &SessionId) -> Result<Vec<Part>, BackendError> {
    let engine = backend.engine().clone();
    let session = id.clone();
    let rebuilt = tokio::task::spawn_blocking(move || engine.rebuild_derived(&session)).await;
    let rebuilt = rebuilt.unwrap_or_else(|error| {
        Err(BackendError::new(ErrorKind::Io, format!("rebuilding broke off: {error}")).with_session(id))
    })?;
    let part = |part: Rebuilt| Part { class: part.class.name(), file: part.file.display().to_string() };
    Ok(rebuilt.into_iter().map(part).collect())
}

/// What a session whose records are sound may still lack.
fn judge(id: &SessionId, torn: Option<&TornTail>, summary: &Summary) -> Line {
    let place = summary.opened.torn.as_ref().and_then(|torn| torn.file.as_ref()).map(|file| file.display().to_string());
    let mut line = Line::new(id.as_str(), Status::Ok, summary.fold.next_seq());
    if let Some(invalid) = &summary.invalid {
        line.status = Status::Damaged;
        line.class = Some("invalid-event".to_owned());
        line.seq = Some(invalid.seq);
        line.detail =
            Some(format!("session {id}: {invalid}; `sessionlog salvage {id} --as NEW` saves what comes before it"));
        return line;
    }
    if let Some(torn) = torn.filter(|_| !summary.opened.live) {
        line.status = Status::Torn;
        line.class = Some("torn-tail".to_owned());
        line.file = place;
        line.offset = Some(torn.offset);
        line.seq = Some(summary.fold.next_seq());
        line.detail = Some(format!(
            "session {id}: the last record is incomplete ({} bytes from offset {}); `sessionlog repair {id}` sets them aside",
            torn.bytes, torn.offset
        ));
        return line;
    }
    if let Err(unknown) = summary.fold.check_vocabulary(&Vocabulary::well_known()) {
        line.status = Status::Unsupported;
        line.class = Some("unknown-type".to_owned());
        line.seq = Some(unknown.seq);
        line.detail = Some(format!("session {id}: {unknown}"));
    } else if summary.fold.open_turn().is_some() {
        line.status = Status::OpenTurn;
    }
    line
}

fn print(line: &Line, json: bool, out: &mut Output) -> Result<(), Failure> {
    if json {
        out.json(line)?;
        return Ok(());
    }
    let (status, id) = (line.status.name(), one_line(&line.id));
    for Part { class, file } in &line.rebuilt {
        out.line(&format!("{:<11}  {id}  {class} in {}", "rebuilt", one_line(file)))?;
    }
    match &line.detail {
        Some(detail) => out.line(&format!("{status:<11}  {id}  {}", one_line(detail)))?,
        None => out.line(&format!("{status:<11}  {id}  {}", counted(line.events, "event")))?,
    }
    Ok(())
}
