//! `prune`: frees space, oldest first.

use std::collections::{BTreeMap, HashMap, HashSet};

use clap::{ArgGroup, Args};
use serde::Serialize;
use sessionlog::backend::{BackendError, Revision};
use sessionlog::event::SessionId;
use sessionlog::segment::files::Stat;
use sessionlog::segment::{Engine, Trashed};

use super::failure::{Failure, PARTLY_FAILED, Refusals};
use super::output::{Output, bytes, complain, counted, one_line, paragraph};
use super::space::{Bytes, Space, parse_size};
use super::time;

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what may go").required(true).multiple(true).args(["older_than", "max_bytes"])))]
pub struct Prune {
    /// Sessions without an event since then, and what is in the trash since then: an age (90d, 12h) or a date (2026-11-30)
    #[arg(long, value_name = "AGE", value_parser = time::parse_since)]
    pub older_than: Option<i64>,
    /// As much as it takes for the store to be of at most this size, the trash first, then the sessions that rested longest
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub max_bytes: Option<u64>,
    /// Keep sessions and their forks together: they go when all of them may, and are as old as the youngest
    #[arg(long)]
    pub keep_forks: bool,
    /// Do it; without this only what would be done is said
    #[arg(long)]
    pub apply: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Action {
    WouldFree,
    Freed,
    Kept,
    Refused,
}

/// One line of `--json`.
#[derive(Debug, Serialize)]
struct Line {
    id: String,
    action: Action,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_time: Option<i64>,
    /// When it was put into the trash, if it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    trashed_at: Option<i64>,
    bytes: u64,
    freed_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// The last line of `--json`.
#[derive(Debug, Default, Serialize)]
struct Totals {
    summary: Counts,
}

#[derive(Debug, Default, Serialize)]
struct Counts {
    applied: bool,
    sessions: u64,
    from_trash: u64,
    kept: u64,
    refused: u64,
    freed_bytes: u64,
    /// Bytes of the store's sessions and its trash, afterwards.
    bytes_left: u64,
}

/// Why a session stays.
enum Blocked {
    /// It is in use, or needs a look first.
    Held(String),
    /// It is damaged, which is worth an exit status of its own.
    Damaged(String),
}

/// A session of the store.
struct Stored {
    name: String,
    id: Option<SessionId>,
    /// As it was when its activity was read.
    revision: Option<Revision>,
    parent: Option<String>,
    /// The last event's time, or that of its creation where there is no event.
    activity: Option<i64>,
    files: Vec<Stat>,
    blocked: Option<Blocked>,
}

/// Something that may go as a whole.
enum Unit<'a> {
    Trashed(&'a Trashed, Vec<Stat>),
    Family(Vec<&'a Stored>),
}

pub fn run(engine: &Engine, arguments: &Prune, json: bool, out: &mut Output) -> Result<(), Failure> {
    let sessions = sessions(engine)?;
    let trash = engine.trashed()?;
    let mut trashed: Vec<Unit> = Vec::new();
    for entry in &trash {
        trashed.push(Unit::Trashed(entry, engine.trashed_files(entry)?));
    }
    trashed.sort_by_key(Unit::activity);
    let mut families = if arguments.keep_forks {
        families(&sessions)
    } else {
        sessions.iter().map(|session| Unit::Family(vec![session])).collect()
    };
    families.sort_by_key(Unit::activity);
    let units: Vec<Unit> = trashed.into_iter().chain(families).collect();
    let total = Space::of_all(units.iter().flat_map(Unit::files));
    let mut pruning =
        Pruning { engine, apply: arguments.apply, json, out, counts: Counts::default(), refusals: Refusals::default() };
    pruning.counts.applied = arguments.apply;
    let mut space = Space::default();
    let mut left = total;
    for unit in &units {
        let old = arguments.older_than.is_some_and(|cutoff| unit.activity().is_some_and(|time| time < cutoff));
        let wanted = old || arguments.max_bytes.is_some_and(|most| left > most);
        // A listing does not read what is sealed; what goes for good is looked at whole, so that no damage goes unsaid.
        let damage = if wanted && !unit.is_blocked() { damage(engine, unit) } else { HashMap::new() };
        if unit.is_blocked() || !damage.is_empty() {
            pruning.keep(unit, wanted, &damage)?;
        } else if wanted {
            left = left.saturating_sub(pruning.remove(unit, &mut space)?);
        }
    }
    pruning.counts.bytes_left = left;
    let Pruning { counts, mut refusals, out, .. } = pruning;
    let (short, freed) = (arguments.max_bytes.is_some_and(|most| left > most), counts.freed_bytes);
    if json {
        out.json(&Totals { summary: counts })?;
    } else {
        let verb = if arguments.apply { "freed" } else { "would free" };
        let hint = if arguments.apply || counts.sessions + counts.from_trash == 0 { "" } else { "; --apply does it" };
        out.line(&format!(
            "{verb} {}: {} and {} from the trash; {} left{hint}",
            bytes(freed),
            counted(counts.sessions, "session"),
            counts.from_trash,
            bytes(left)
        ))?;
    }
    out.flush()?;
    if short {
        complain(&format!(
            "sessionlog: the store is still larger than asked for, {}: what is left is open for writing, damaged, or was refused; \
             `sessionlog ls` shows it, and `sessionlog rm --now ID` removes a session that is damaged",
            bytes(left)
        ));
        refusals.count(PARTLY_FAILED);
    }
    refusals.end()
}

/// What a full check finds wrong with the sessions of a family, by name.
fn damage<'a>(engine: &Engine, unit: &Unit<'a>) -> HashMap<&'a str, String> {
    let Unit::Family(members) = unit else { return HashMap::new() };
    let checked = members.iter().filter_map(|member| {
        let error = engine.verify(member.id.as_ref()?).error.filter(|error| error.damage.is_some())?;
        Some((member.name.as_str(), format!("it is damaged: {error}")))
    });
    checked.collect()
}

/// What the store holds, with what decides whether it may go.
fn sessions(engine: &Engine) -> Result<Vec<Stored>, Failure> {
    // The revisions come first: a session that goes on after that is not the one that was looked at.
    let mut revisions: HashMap<String, Revision> = HashMap::new();
    let listed = engine.list(None, usize::MAX)?;
    for entry in listed.entries {
        let id = entry.header.ok().and_then(|header| header.session_id().ok());
        if let Some(revision) = id.and_then(|id| engine.revision(&id).ok()) {
            revisions.insert(entry.name, revision);
        }
    }
    let mut sessions = Vec::new();
    for entry in engine.summaries()? {
        let id = SessionId::new(&entry.name).ok();
        let files = id.as_ref().and_then(|id| engine.stored_files(id).ok()).unwrap_or_default();
        let revision = revisions.remove(&entry.name);
        let mut session = Stored { name: entry.name, id, revision, parent: None, activity: None, files, blocked: None };
        match entry.summary {
            Ok(summary) => {
                session.activity = summary.last_time.or(summary.header.created_at);
                session.parent.clone_from(&summary.header.parent_session);
                session.blocked = match (&summary.invalid, session.activity) {
                    (Some(invalid), _) => Some(Blocked::Damaged(format!("it is damaged: {invalid}"))),
                    (None, _) if summary.live => {
                        let holder = session.id.as_ref().and_then(|id| engine.holder(id)).unwrap_or_default();
                        Some(Blocked::Held(format!("it is open for writing by {holder}")))
                    }
                    (None, _) if summary.torn.is_some() => Some(Blocked::Held(format!(
                        "its last record is incomplete; `sessionlog repair {}` sets that aside",
                        session.name
                    ))),
                    (None, None) => Some(Blocked::Held("neither an event nor its header tells its age".to_owned())),
                    (None, Some(_)) => None,
                };
            }
            Err(error) => session.blocked = Some(Blocked::Damaged(format!("it is damaged: {error}"))),
        }
        sessions.push(session);
    }
    Ok(sessions)
}

/// Sessions with those that they were forked from and those that were forked from them.
fn families(sessions: &[Stored]) -> Vec<Unit<'_>> {
    let index: HashMap<&str, usize> =
        sessions.iter().enumerate().map(|(at, session)| (session.name.as_str(), at)).collect();
    let mut neighbours: Vec<Vec<usize>> = vec![Vec::new(); sessions.len()];
    for (child, session) in sessions.iter().enumerate() {
        if let Some(parent) = session.parent.as_deref().and_then(|parent| index.get(parent)).copied() {
            for (one, other) in [(child, parent), (parent, child)] {
                if let Some(neighbours) = neighbours.get_mut(one) {
                    neighbours.push(other);
                }
            }
        }
    }
    let mut seen: HashSet<usize> = HashSet::new();
    let mut found = Vec::new();
    for start in 0..sessions.len() {
        let mut family: BTreeMap<usize, &Stored> = BTreeMap::new();
        let mut pending = vec![start];
        while let Some(member) = pending.pop() {
            if seen.insert(member) {
                family.extend(sessions.get(member).map(|session| (member, session)));
                pending.extend(neighbours.get(member).into_iter().flatten());
            }
        }
        if !family.is_empty() {
            found.push(Unit::Family(family.into_values().collect()));
        }
    }
    found
}

impl Unit<'_> {
    fn activity(&self) -> Option<i64> {
        match self {
            Self::Trashed(trashed, _) => Some(trashed.time),
            Self::Family(members) => members.iter().filter_map(|member| member.activity).max(),
        }
    }

    fn files(&self) -> impl Iterator<Item = &Stat> {
        let (one, many): (&[Stat], &[&Stored]) = match self {
            Self::Trashed(_, files) => (files, &[]),
            Self::Family(members) => (&[], members),
        };
        one.iter().chain(many.iter().flat_map(|member| &member.files))
    }

    fn is_blocked(&self) -> bool {
        matches!(self, Self::Family(members) if members.iter().any(|member| member.blocked.is_some()))
    }
}

/// A run of the verb.
struct Pruning<'a> {
    engine: &'a Engine,
    apply: bool,
    json: bool,
    out: &'a mut Output,
    counts: Counts,
    refusals: Refusals,
}

impl Pruning<'_> {
    /// Names what stays: damaged sessions always, others if they would have gone.
    fn keep(&mut self, unit: &Unit, wanted: bool, damage: &HashMap<&str, String>) -> Result<(), Failure> {
        let Unit::Family(members) = unit else { return Ok(()) };
        for member in members {
            let found = damage.get(member.name.as_str()).map(|reason| Blocked::Damaged(reason.clone()));
            let reason = match member.blocked.as_ref().or(found.as_ref()) {
                Some(Blocked::Damaged(reason)) => {
                    self.refusals.count(PARTLY_FAILED);
                    reason.clone()
                }
                Some(Blocked::Held(reason)) if wanted => reason.clone(),
                None if wanted => "a session of its family stays".to_owned(),
                _ => continue,
            };
            self.counts.kept += 1;
            let bytes = Bytes { all: Space::default().take(&member.files).all, freed: 0 };
            self.print(member, Action::Kept, bytes, Some(reason))?;
        }
        Ok(())
    }

    /// Removes what may go, or says that it would. Gives the bytes that are freed.
    fn remove(&mut self, unit: &Unit, space: &mut Space) -> Result<u64, Failure> {
        let mut freed = 0_u64;
        match unit {
            Unit::Trashed(trashed, files) => {
                let removed = if self.apply { self.engine.discard(trashed) } else { Ok(()) };
                let line = Line {
                    id: trashed.name.clone(),
                    action: self.action(),
                    last_time: None,
                    trashed_at: Some(trashed.time),
                    bytes: 0,
                    freed_bytes: 0,
                    reason: None,
                };
                freed = self.done(line, removed, files, space)?;
            }
            Unit::Family(members) => {
                for member in members {
                    let (Some(id), Some(revision)) = (&member.id, &member.revision) else { continue };
                    let removed = if self.apply { self.engine.delete_unchanged(id, revision) } else { Ok(()) };
                    let line = Line {
                        id: member.name.clone(),
                        action: self.action(),
                        last_time: member.activity,
                        trashed_at: None,
                        bytes: 0,
                        freed_bytes: 0,
                        reason: None,
                    };
                    freed = freed.saturating_add(self.done(line, removed, &member.files, space)?);
                }
            }
        }
        Ok(freed)
    }

    fn action(&self) -> Action {
        if self.apply { Action::Freed } else { Action::WouldFree }
    }

    fn done(
        &mut self,
        mut line: Line,
        removed: Result<(), BackendError>,
        files: &[Stat],
        space: &mut Space,
    ) -> Result<u64, Failure> {
        match removed {
            Ok(()) => {
                let bytes = space.take(files);
                (line.bytes, line.freed_bytes) = (bytes.all, bytes.freed);
                self.counts.freed_bytes = self.counts.freed_bytes.saturating_add(bytes.freed);
                if line.trashed_at.is_some() { self.counts.from_trash += 1 } else { self.counts.sessions += 1 }
            }
            Err(error) => {
                line.action = Action::Refused;
                line.bytes = Space::default().take(files).all;
                line.reason = Some(error.to_string());
                self.counts.refused += 1;
                // Whatever the reason, the rest is still done: a partial failure.
                self.refusals.count(PARTLY_FAILED);
                complain(&format!("sessionlog: {}", paragraph(&Failure::from(error).to_string())));
            }
        }
        let freed = line.freed_bytes;
        self.write(&line)?;
        Ok(freed)
    }

    fn print(&mut self, member: &Stored, action: Action, bytes: Bytes, reason: Option<String>) -> Result<(), Failure> {
        self.write(&Line {
            id: member.name.clone(),
            action,
            last_time: member.activity,
            trashed_at: None,
            bytes: bytes.all,
            freed_bytes: bytes.freed,
            reason,
        })
    }

    fn write(&mut self, line: &Line) -> Result<(), Failure> {
        if self.json {
            self.out.json(line)?;
            return Ok(());
        }
        let verb = match line.action {
            Action::WouldFree => "would free",
            Action::Freed => "freed",
            Action::Kept => "kept",
            Action::Refused => "refused",
        };
        let since = match (line.trashed_at, line.last_time) {
            (Some(time), _) => format!("in the trash since {}", time::format(time)),
            (None, Some(time)) => format!("last active {}", time::format(time)),
            (None, None) => "of unknown age".to_owned(),
        };
        let size = match line.action {
            Action::WouldFree | Action::Freed => format!("{} of {}", bytes(line.freed_bytes), bytes(line.bytes)),
            Action::Kept | Action::Refused => bytes(line.bytes),
        };
        let reason = line.reason.as_deref().map(|reason| format!(": {}", one_line(reason))).unwrap_or_default();
        self.out.line(&format!("{verb:<10}  {}  {since}  {size}{reason}", one_line(&line.id)))?;
        Ok(())
    }
}
