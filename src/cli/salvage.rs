//! `salvage`: what comes before the damage, as a new session.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use sessionlog::backend::{BackendError, ErrorKind, ReadLimit};
use sessionlog::event::header::{FORMAT_VERSION, is_absolute};
use sessionlog::event::{Batch, Item, JsonText, SessionHeader, SessionId};
use sessionlog::segment::{Engine, Reader, Remains, SegmentBackend};
use sessionlog::session::fold::Fold;

use super::failure::Failure;
use super::output::{Output, bytes, counted, one_line};
use super::{store, time};

#[derive(Debug, Args)]
pub struct Salvage {
    /// Session id, or an unambiguous beginning of it
    #[arg(value_name = "ID")]
    pub id: String,
    /// Id of the new session
    #[arg(long = "as", value_name = "NEW")]
    pub new: String,
    /// Working directory of the new session, when the damaged one's header cannot be read any more
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<String>,
}

/// The `--json` document.
#[derive(Debug, Serialize)]
struct Document {
    id: String,
    from: String,
    events: u64,
    header: HeaderOrigin,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_turn: Option<u64>,
    left: Vec<Left>,
}

/// Where the new header's facts come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum HeaderOrigin {
    /// The damaged session's header, which is sound.
    Kept,
    /// The events and the command line.
    Rebuilt,
}

/// Something that was not taken over.
#[derive(Debug, Serialize)]
struct Left {
    file: String,
    class: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    /// Bytes from there to the file's end.
    bytes: u64,
    /// The first event that it holds, or would.
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    detail: String,
}

/// How far the log is good.
struct Survey {
    end: u64,
    first_time: Option<i64>,
    open_turn: Option<u64>,
    /// What stops it, if anything does.
    stop: Option<Stop>,
}

enum Stop {
    Stored(BackendError),
    /// An event that is stored as it was written and that no session accepts.
    Event {
        detail: String,
        file: Option<PathBuf>,
    },
}

pub async fn run(backend: &SegmentBackend, arguments: &Salvage, json: bool, out: &mut Output) -> Result<(), Failure> {
    let engine = backend.engine();
    let new = store::id(&arguments.new)?;
    if let Some(cwd) = arguments.cwd.as_deref().filter(|cwd| !is_absolute(cwd)) {
        return Err(Failure::usage(format!("--cwd {cwd:?} is not absolute; give the whole path")));
    }
    let id = store::resolve(backend, &arguments.id).await?;
    let Remains { mut reader, header, header_damage, check } = engine.remains(&id)?;
    let survey = survey(&mut reader)?;
    let sound = header_damage.is_none() && check.error.is_none() && survey.stop.is_none();
    // Where it cannot be told whether a writer lives, the record may be its own; it is left and named all the same.
    let torn = check.torn.filter(|_| !matches!(engine.holder(&id), Ok(Some(_))));
    if sound && torn.is_none() {
        return Err(Failure::failed(format!(
            "session {id} is not damaged; `sessionlog fork {id} --as {new}` copies a sound one"
        )));
    }
    if survey.end == 0 {
        let why = survey.stop.as_ref().map(|stop| format!(" ({})", stop.text())).unwrap_or_default();
        return Err(Failure::failed(format!(
            "session {id}: no event is intact, so there is nothing to salvage{why}; a copy of the session from elsewhere is what helps"
        )));
    }
    let header_origin = if header.is_some() { HeaderOrigin::Kept } else { HeaderOrigin::Rebuilt };
    let born = born(&new, &id, header, arguments.cwd.as_deref(), &survey);
    let mut left = Vec::new();
    left.extend(header_damage.as_ref().map(|error| of_error(error, None)));
    if let Some(stop) = &survey.stop {
        left.push(stop.left(survey.end));
    } else {
        // What only a full check finds costs no event: they are all taken over.
        left.extend(check.error.as_ref().map(|error| of_error(error, None)));
    }
    if let Some(torn) = torn {
        let file = torn.file.map(|file| file.display().to_string()).unwrap_or_default();
        let detail = "an incomplete record at the end".to_owned();
        let (offset, seq) = (Some(torn.offset), Some(survey.end));
        left.push(Left { file, class: "torn-tail".to_owned(), offset, bytes: torn.bytes, seq, detail });
    }
    behind(&engine.locate(&id), survey.end, &mut left);
    copy(engine, &mut reader, &born, survey.end)?;
    let document = Document {
        id: new.as_str().to_owned(),
        from: id.as_str().to_owned(),
        events: survey.end,
        header: header_origin,
        open_turn: survey.open_turn,
        left,
    };
    print(&document, json, out)
}

/// Reads the log as far as it is good.
fn survey(reader: &mut Reader) -> Result<Survey, Failure> {
    let mut fold = Fold::new();
    let mut first_time = None;
    let mut stop = None;
    'pages: loop {
        let page = match reader.next_page(ReadLimit::default()) {
            Ok(page) => page,
            Err(error) if error.damage.is_some() => {
                stop = Some(Stop::Stored(error));
                break;
            }
            Err(error) => return Err(error.into()),
        };
        if page.items.is_empty() {
            break;
        }
        for item in &page.items {
            let seq = item.first_seq();
            let unfit = match item {
                Item::Event(event) => JsonText::parse(&event.data()).err().map(|error| error.to_string()),
                Item::Run(_) => None,
            };
            let unfit = unfit.or_else(|| fold.apply_item(item).err().map(|invalid| invalid.to_string()));
            if let Some(detail) = unfit {
                stop = Some(Stop::Event { detail: format!("event {seq}: {detail}"), file: reader.file() });
                break 'pages;
            }
            first_time = first_time.or_else(|| item.events().next().map(|event| event.time()));
        }
    }
    let open_turn = fold.open_turn().map(|turn| turn.turn);
    Ok(Survey { end: fold.next_seq(), first_time, open_turn, stop })
}

impl Stop {
    fn text(&self) -> String {
        match self {
            Self::Stored(error) => error.to_string(),
            Self::Event { detail, .. } => detail.clone(),
        }
    }

    fn left(&self, end: u64) -> Left {
        match self {
            Self::Stored(error) => of_error(error, Some(end)),
            Self::Event { detail, file } => {
                let file = file.as_ref().map(|file| file.display().to_string()).unwrap_or_default();
                let (class, detail) = ("invalid-event".to_owned(), detail.clone());
                Left { file, class, offset: None, bytes: 0, seq: Some(end), detail }
            }
        }
    }
}

fn of_error(error: &BackendError, seq: Option<u64>) -> Left {
    let offset = error.damage.as_ref().and_then(|damage| damage.offset);
    let length = error.file.as_ref().and_then(|file| fs::symlink_metadata(file).ok());
    let length = length.filter(fs::Metadata::is_file).map_or(0, |stat| stat.len());
    Left {
        file: error.file.as_ref().map(|file| file.display().to_string()).unwrap_or_default(),
        class: error.damage.as_ref().map_or_else(|| error.kind.name(), |damage| damage.class.name()).to_owned(),
        offset,
        bytes: length.saturating_sub(offset.unwrap_or(0)),
        seq,
        detail: error.detail.clone(),
    }
}

/// Files of the log that begin behind the place where it stops.
fn behind(directory: &Path, end: u64, left: &mut Vec<Left>) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<(u64, PathBuf, u64)> = entries
        .filter_map(|entry| {
            let path = entry.path();
            let kind = path.extension()?.to_str()?;
            let seq =
                path.file_stem()?.to_str()?.parse().ok().filter(|seq| *seq >= end && matches!(kind, "log" | "seg"))?;
            let length = entry.metadata().ok().filter(fs::Metadata::is_file)?.len();
            Some((seq, path, length))
        })
        .collect();
    found.sort();
    for (seq, path, bytes) in found {
        let file = path.display().to_string();
        if left.iter().all(|other| other.file != file) {
            let detail = "behind the place where the log stops; not read".to_owned();
            left.push(Left { file, class: "behind".to_owned(), offset: Some(0), bytes, seq: Some(seq), detail });
        }
    }
}

/// The new session's header: the old one's facts, and the damaged session as its parent.
fn born(
    new: &SessionId,
    from: &SessionId,
    header: Option<SessionHeader>,
    cwd: Option<&str>,
    survey: &Survey,
) -> SessionHeader {
    let mut born = header.unwrap_or_else(|| {
        let mut rebuilt = SessionHeader::new(new.as_str());
        rebuilt.created_at = Some(survey.first_time.unwrap_or_else(time::now).max(0));
        rebuilt
    });
    born.version = FORMAT_VERSION;
    new.as_str().clone_into(&mut born.id);
    born.parent_session = Some(from.as_str().to_owned());
    born.seed_length = Some(survey.end);
    if born.cwd.is_none() {
        born.cwd = cwd.map(str::to_owned);
    }
    born
}

/// Writes the new session: all of it or nothing.
fn copy(engine: &Engine, reader: &mut Reader, header: &SessionHeader, end: u64) -> Result<(), BackendError> {
    reader.seek(0);
    engine.create_whole(header, || {
        if reader.position() >= end {
            return Ok(None);
        }
        let page = reader.next_page(ReadLimit::default())?;
        let items: Vec<Item> = page.items.iter().filter_map(|item| item.slice(0, end)).collect();
        if items.is_empty() {
            return Err(BackendError::new(ErrorKind::Io, "the damaged session changed while it was read; try again"));
        }
        Ok(Batch::new(items))
    })?;
    Ok(())
}

fn print(document: &Document, json: bool, out: &mut Output) -> Result<(), Failure> {
    if json {
        out.json(document)?;
        return Ok(());
    }
    let (new, from) = (one_line(&document.id), one_line(&document.from));
    out.line(&format!("salvaged {} of {from} as {new}; {from} is as it was", counted(document.events, "event")))?;
    if document.header == HeaderOrigin::Rebuilt {
        out.line("  the header was rebuilt: created at the first event; the working directory is what --cwd gave")?;
    }
    if document.left.is_empty() {
        out.line("  no event was left")?;
    }
    for left in &document.left {
        let offset = left.offset.map(|offset| format!(" from offset {offset}")).unwrap_or_default();
        let seq = left.seq.map(|seq| format!(", seq {seq} on")).unwrap_or_default();
        out.line(&format!(
            "  left: {}{offset}, {}{seq}: {}: {}",
            one_line(&left.file),
            bytes(left.bytes),
            left.class,
            one_line(&left.detail)
        ))?;
    }
    if let Some(turn) = document.open_turn {
        out.line(&format!("  it ends inside turn {turn}; `sessionlog repair {new}` or resuming it closes the turn"))?;
    }
    Ok(())
}
