//! `rm`: sessions go to the trash, come back from it, or go for good.

use clap::Args;
use serde::Serialize;
use sessionlog::backend::BackendError;
use sessionlog::event::SessionId;
use sessionlog::segment::{Engine, SegmentBackend, Trashed};

use super::failure::{Failure, Refusals};
use super::output::{Output, bytes, one_line};
use super::space::{Bytes, Space};
use super::{store, time};

#[derive(Debug, Args)]
pub struct Rm {
    /// Session ids, or unambiguous beginnings of them
    #[arg(value_name = "ID", required_unless_present = "list", conflicts_with = "list")]
    pub ids: Vec<String>,
    /// Remove for good, and free the space: a stored session, else one in the trash
    #[arg(long)]
    pub now: bool,
    /// Bring sessions back from the trash
    #[arg(long, conflicts_with = "now")]
    pub restore: bool,
    /// With --restore or --now, of several sessions of one id in the trash the one that was put there at this time, as --list
    /// shows it, or an unambiguous beginning of that
    #[arg(long, value_name = "TIME")]
    pub time: Option<String>,
    /// List what is in the trash
    #[arg(long, conflicts_with_all = ["now", "restore", "time"])]
    pub list: bool,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Trashed,
    Freed,
    Restored,
}

/// One line of `--json`.
#[derive(Debug, Serialize)]
struct Line<'a> {
    id: &'a str,
    status: Status,
    /// When it was put into the trash.
    #[serde(skip_serializing_if = "Option::is_none")]
    trashed_at: Option<i64>,
    bytes: u64,
    freed_bytes: u64,
}

/// One line of `--list --json`.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    id: &'a str,
    trashed_at: i64,
    /// The time as `--time` takes it.
    time: String,
    bytes: u64,
    /// What `--now` would free.
    freeable_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub async fn run(backend: &SegmentBackend, arguments: &Rm, json: bool, out: &mut Output) -> Result<(), Failure> {
    let engine = backend.engine();
    if arguments.list {
        return list(engine, json, out);
    }
    if arguments.time.is_some() && !arguments.restore && !arguments.now {
        return Err(Failure::usage("--time chooses among sessions in the trash; give --restore or --now with it"));
    }
    let trash = if arguments.restore || arguments.now { engine.trashed()? } else { Vec::new() };
    let mut refusals = Refusals::default();
    // All names are understood before anything is done, so that one removal does not change what a later name means.
    let mut chosen: Vec<(String, Target)> = Vec::new();
    for given in &arguments.ids {
        let target = if arguments.restore || arguments.time.is_some() {
            in_trash(&trash, given, arguments.time.as_deref()).map(Target::Trashed)
        } else {
            match store::resolve(backend, given).await {
                Ok(id) => Ok(Target::Stored(id)),
                Err(failure @ Failure::Message { .. }) if arguments.now && failure.is_missing() => {
                    in_trash(&trash, given, None)
                        .map(Target::Trashed)
                        .map_err(|other| if other.is_missing() { failure } else { other })
                }
                Err(failure) => Err(failure),
            }
        };
        match target {
            Ok(target) if chosen.iter().any(|(_, other)| other.is(&target)) => {}
            Ok(target) => chosen.push((target.name(), target)),
            Err(failure) => refusals.add(failure)?,
        }
    }
    for (id, target) in &chosen {
        match act(engine, target, arguments) {
            Ok((status, bytes, trashed_at)) => {
                let line = Line { id, status, trashed_at, bytes: bytes.all, freed_bytes: bytes.freed };
                print(&line, json, out)?;
            }
            Err(error) => refusals.add(error.into())?,
        }
    }
    refusals.end()
}

/// What a name stands for.
enum Target<'a> {
    Stored(SessionId),
    Trashed(&'a Trashed),
}

impl Target<'_> {
    fn name(&self) -> String {
        match self {
            Self::Stored(id) => id.as_str().to_owned(),
            Self::Trashed(trashed) => trashed.name.clone(),
        }
    }

    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Stored(one), Self::Stored(other)) => one == other,
            (Self::Trashed(one), Self::Trashed(other)) => one.path == other.path,
            _ => false,
        }
    }
}

fn act(engine: &Engine, target: &Target, arguments: &Rm) -> Result<(Status, Bytes, Option<i64>), BackendError> {
    match target {
        Target::Stored(id) => {
            let bytes = Space::default().take(&engine.stored_files(id)?);
            if arguments.now {
                engine.delete(id)?;
                return Ok((Status::Freed, bytes, None));
            }
            let trashed = engine.trash(id)?;
            Ok((Status::Trashed, Bytes { freed: 0, ..bytes }, Some(trashed.time)))
        }
        Target::Trashed(trashed) => {
            let bytes = Space::default().take(&engine.trashed_files(trashed)?);
            if arguments.restore {
                engine.restore(trashed)?;
                return Ok((Status::Restored, Bytes { freed: 0, ..bytes }, Some(trashed.time)));
            }
            engine.discard(trashed)?;
            Ok((Status::Freed, bytes, Some(trashed.time)))
        }
    }
}

/// The session in the trash that `given` names, by its id or an unambiguous beginning of it, and by its time.
fn in_trash<'a>(trash: &'a [Trashed], given: &str, time: Option<&str>) -> Result<&'a Trashed, Failure> {
    store::id(given)?;
    let shown = |trashed: &Trashed| one_line(&trashed.name);
    let exact: Vec<&Trashed> =
        trash.iter().filter(|trashed| trashed.name == given || shown(trashed) == given).collect();
    let begins = |trashed: &&Trashed| trashed.name.starts_with(given) || shown(trashed).starts_with(given);
    let named = if exact.is_empty() { trash.iter().filter(begins).collect() } else { exact };
    let mut ids: Vec<String> = named.iter().map(|trashed| shown(trashed)).collect();
    ids.dedup();
    if ids.len() > 1 {
        let list = ids.join("\n  ");
        let given = one_line(given);
        return Err(Failure::usage(format!(
            "{given} is the beginning of {} ids in the trash; write more of the one you mean:\n  {list}",
            ids.len()
        )));
    }
    let at = |trashed: &&Trashed| time.is_none_or(|time| time::format_exact(trashed.time).starts_with(time));
    let matching: Vec<&Trashed> = named.iter().copied().filter(at).collect();
    let times = |of: &[&Trashed]| {
        let times: Vec<String> = of.iter().map(|trashed| time::format_exact(trashed.time)).collect();
        times.join("\n  ")
    };
    match (matching.as_slice(), named.as_slice()) {
        ([only], _) => Ok(only),
        (_, []) => Err(Failure::missing(format!(
            "no session {} is in the trash; `sessionlog rm --list` shows what is",
            one_line(given)
        ))),
        ([], named) => Err(Failure::missing(format!(
            "no session {} was put into the trash at that time; give one of these with --time:\n  {}",
            one_line(given),
            times(named)
        ))),
        (several, _) => Err(Failure::usage(format!(
            "{} sessions of the id {} are in the trash; choose one with --time:\n  {}",
            several.len(),
            one_line(given),
            times(several)
        ))),
    }
}

fn print(line: &Line, json: bool, out: &mut Output) -> Result<(), Failure> {
    if json {
        out.json(line)?;
        return Ok(());
    }
    let (id, all, freed) = (one_line(line.id), bytes(line.bytes), bytes(line.freed_bytes));
    out.line(&match line.status {
        Status::Trashed => format!("moved {id} to the trash ({all}); `sessionlog rm --restore {id}` brings it back"),
        Status::Restored => format!("restored {id} ({all})"),
        Status::Freed if line.freed_bytes < line.bytes => {
            format!("removed {id}: {freed} of {all} freed, the rest is shared with forks")
        }
        Status::Freed => format!("removed {id}: {freed} freed"),
    })?;
    Ok(())
}

fn list(engine: &Engine, json: bool, out: &mut Output) -> Result<(), Failure> {
    let trash = engine.trashed()?;
    if trash.is_empty() && !json {
        out.line("the trash is empty")?;
    }
    let widest = trash.iter().map(|trashed| one_line(&trashed.name).chars().count()).max().unwrap_or(0).clamp(2, 40);
    for trashed in &trash {
        let files = match engine.trashed_files(trashed) {
            // Gone since it was listed.
            Err(error) if error.kind == sessionlog::backend::ErrorKind::NotFound => continue,
            files => files?,
        };
        let size = Space::default().take(&files);
        let time = time::format_exact(trashed.time);
        let error = trashed.header.as_ref().err().map(ToString::to_string);
        if json {
            let (id, trashed_at) = (trashed.name.as_str(), trashed.time);
            out.json(&Listed { id, trashed_at, time, bytes: size.all, freeable_bytes: size.freed, error })?;
            continue;
        }
        let note = error.map(|error| format!("  ! {}", one_line(&error))).unwrap_or_default();
        out.line(&format!("{:<widest$}  {time}  {:>10}{note}", one_line(&trashed.name), bytes(size.all)))?;
    }
    Ok(())
}
