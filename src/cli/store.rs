//! Opening the store and finding sessions by shortened ids.

use std::path::{Path, PathBuf};

use sessionlog::backend::{Backend, BackendError, ErrorKind, Opened};
use sessionlog::event::limits::MAX_ID_BYTES;
use sessionlog::event::{SessionHeader, SessionId};
use sessionlog::segment::{Engine, EngineOptions, SegmentBackend};

use super::args::Common;
use super::failure::Failure;
use super::output::{complain, one_line};

/// Most candidates that an ambiguous id lists.
const MOST_CANDIDATES: usize = 20;

/// Where the store is: the option or `$SESSIONLOG_STORE`, else the platform's data directory.
pub fn root(common: &Common) -> Result<PathBuf, Failure> {
    match &common.store {
        Some(root) if root.as_os_str().is_empty() => {
            Err(Failure::usage("--store (or $SESSIONLOG_STORE) is empty; name the store's directory"))
        }
        Some(root) => Ok(root.clone()),
        None => match dirs::data_dir() {
            Some(data) => Ok(data.join("sessionlog")),
            None => Err(Failure::usage(
                "no data directory is known on this system; name the store with --store DIR or $SESSIONLOG_STORE",
            )),
        },
    }
}

/// Refuses a place that something else than a directory stands in.
pub fn check_place(root: &Path) -> Result<(), Failure> {
    if root.is_dir() || !root.exists() {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "{} is not a directory, as a store is; --store DIR or $SESSIONLOG_STORE names another place",
        root.display()
    )))
}

/// Says that whoever may write to the store's directory is trusted.
const TRUST: &str = "SESSIONLOG_TRUST_STORE";

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value == "1")
}

/// How the engine works: `SESSIONLOG_MAP=1` has it map sealed segments instead of reading them.
fn engine_options() -> EngineOptions {
    EngineOptions::new().map_segments(is_set("SESSIONLOG_MAP")).trust_directory(is_set(TRUST))
}

/// Opens an existing store.
pub fn open(root: &Path) -> Result<SegmentBackend, Failure> {
    let missing = |what: &str| {
        Failure::missing(format!(
            "{what} {}; `sessionlog import FILE` makes one, --store DIR or $SESSIONLOG_STORE names another place",
            root.display()
        ))
    };
    let exists = |path: &Path| {
        path.try_exists().map_err(|error| {
            Failure::missing(format!(
                "the store {} cannot be reached: {error}; see that each directory of the path may be entered",
                root.display()
            ))
        })
    };
    if !exists(root)? {
        return Err(missing("no store at"));
    }
    // A store that lost its identity still has its sessions; the engine says what is wrong with it.
    if !exists(&root.join("STORE"))? && !exists(&root.join("sessions"))? {
        return Err(missing("there is no store in the directory"));
    }
    Ok(SegmentBackend::from(open_engine(root)?))
}

/// Opens the engine of a store, which need not exist yet, and warns once of a directory that others may write to, unless they are said
/// to be trusted.
pub fn open_engine(root: &Path) -> Result<Engine, Failure> {
    let engine = engine_options().open(root)?;
    if let Some(mode) = engine.open_to_others().filter(|_| !is_set(TRUST)) {
        let who = if mode & 0o002 == 0 { "its group" } else { "everybody" };
        complain(&format!(
            "sessionlog: warning: {who} may write to the store {} (mode {:o}) and could lead what is written there elsewhere; \
             chmod go-w takes that right away, {TRUST}=1 says that they are trusted",
            engine.root().display(),
            mode & 0o7777
        ));
    }
    Ok(engine)
}

/// One entry of a listing.
pub struct Entry {
    /// The id, or the directory's name where the id cannot be told.
    pub name: String,
    /// The header, or what is wrong with it.
    pub header: Result<SessionHeader, BackendError>,
}

impl Entry {
    /// The session's id, as far as it can be told.
    ///
    /// # Errors
    /// What is wrong with the header, when nothing else tells the id.
    pub fn id(self) -> Result<SessionId, BackendError> {
        match self.header {
            Ok(header) => header.session_id().map_err(BackendError::header),
            Err(error) => error.session.clone().ok_or(error),
        }
    }
}

/// All sessions of the store, in its own order.
pub async fn entries(backend: &SegmentBackend) -> Result<Vec<Entry>, Failure> {
    let mut entries = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = backend.list(after.as_deref(), 1000).await?;
        entries.extend(page.entries.into_iter().map(|listed| Entry { name: listed.name, header: listed.header }));
        after = page.next;
        if after.is_none() {
            return Ok(entries);
        }
    }
}

/// The session that `given` names: its id, or an unambiguous beginning of it.
pub async fn find(backend: &SegmentBackend, given: &str) -> Result<Entry, Failure> {
    let exact = id(given)?;
    match backend.engine().reader(&exact) {
        Ok(reader) => return Ok(Entry { name: given.to_owned(), header: Ok(reader.header().clone()) }),
        Err(error) if error.kind == ErrorKind::NotFound => {}
        Err(error) => return Ok(Entry { name: given.to_owned(), header: Err(error.with_session(&exact)) }),
    }
    // An id with control characters cannot be typed; it may be given as it is shown.
    let mut candidates = entries(backend).await?;
    candidates.retain(|entry| entry.name.starts_with(given) || one_line(&entry.name).starts_with(given));
    if let Some(shown) = candidates.iter().position(|entry| one_line(&entry.name) == given) {
        return Ok(candidates.swap_remove(shown));
    }
    let count = candidates.len();
    match candidates.pop() {
        None => Err(Failure::missing(format!("no session {exact}; `sessionlog ls` shows what there is"))),
        Some(only) if count == 1 => Ok(only),
        Some(last) => {
            let mut names: Vec<String> = candidates.iter().chain([&last]).map(|entry| one_line(&entry.name)).collect();
            names.sort();
            names.truncate(MOST_CANDIDATES);
            let more = count.saturating_sub(names.len());
            let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
            Err(Failure::usage(format!(
                "{exact} is the beginning of {count} ids; write more of the one you mean:\n  {}{more}",
                names.join("\n  ")
            )))
        }
    }
}

/// As [`find`], for verbs that read the log: what is wrong with a header they meet themselves.
pub async fn resolve(backend: &SegmentBackend, given: &str) -> Result<SessionId, Failure> {
    Ok(find(backend, given).await?.id()?)
}

/// An id as it was typed.
pub fn id(given: &str) -> Result<SessionId, Failure> {
    if given.is_empty() {
        return Err(Failure::usage("a session id is empty; `sessionlog ls` shows the ids"));
    }
    SessionId::new(given).map_err(|_| {
        Failure::usage(format!(
            "a session id is {} bytes long; the longest has {MAX_ID_BYTES}; `sessionlog ls` shows the ids",
            given.len()
        ))
    })
}

/// Says that an incomplete record at a session's end was left out; a live writer's is its own business.
pub fn note_torn(opened: &Opened, id: &SessionId) {
    if let Some(torn) = opened.torn.as_ref().filter(|_| !opened.live) {
        complain(&format!(
            "sessionlog: session {id}: left out an incomplete record of {} bytes at the end; `sessionlog repair {id}` sets it aside",
            torn.bytes
        ));
    }
}
