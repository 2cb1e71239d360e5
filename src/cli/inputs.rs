//! Which files an import reads: those named, those below the directories named, and of a log that was migrated the newest file.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Endings of session logs.
const ENDINGS: [&str; 3] = [".jsonl", ".jsonl.zstd", ".jsonl.zst"];

/// One log to read, or why there is none.
#[derive(Debug)]
pub struct Found {
    pub path: PathBuf,
    /// Files of older generations of the same log, which are not read.
    pub shadowed: Vec<PathBuf>,
    /// Why the path, a directory, gives nothing to read.
    pub fault: Option<String>,
}

/// The logs behind the given paths, in order: a file is itself, a directory stands for every log below it, sorted by path.
///
/// Directories are searched to any depth without following links to other directories. A harness that migrates a log leaves
/// `session.jsonl` or `session.v1.jsonl` beside `session.v2.jsonl`: the highest generation is taken, whichever was named.
pub fn find(given: &[PathBuf]) -> Vec<Found> {
    let mut found = Vec::new();
    for path in given {
        let is_directory = path.as_os_str() != "-" && path.is_dir();
        if is_directory { below(path, &mut found) } else { found.push(newest(path)) }
    }
    // Two generations of one log may both have been named.
    let mut seen = HashSet::new();
    found.retain(|log| log.shadowed.is_empty() || seen.insert(log.path.clone()));
    found
}

/// The generation that a file name of the harness states; `None` for any other name.
fn generation(name: &OsStr) -> Option<u64> {
    let name = name.to_str()?;
    let stem = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending))?;
    match stem.strip_prefix("session")? {
        "" => Some(0),
        number => {
            number.strip_prefix(".v").filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
        }
    }
}

/// The log itself, or the newest generation beside it.
fn newest(path: &Path) -> Found {
    let alone = || Found { path: path.to_owned(), shadowed: Vec::new(), fault: None };
    if path.file_name().and_then(generation).is_none() {
        return alone();
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(beside) = entries(parent) else { return alone() };
    let names = beside.into_iter().filter(|entry| entry.path().is_file()).map(|entry| entry.file_name());
    let Some((highest, older)) = split(names) else { return alone() };
    // Spelled like the path that was given.
    let spelled = |name: &OsStr| path.with_file_name(name);
    let chosen = match path.file_name() {
        Some(own) if highest.iter().any(|name| name == own) => path.to_owned(),
        _ => highest.first().map_or_else(|| path.to_owned(), |name| spelled(name)),
    };
    Found { path: chosen, shadowed: older.iter().map(|name| spelled(name)).collect(), fault: None }
}

/// Names of the highest generation, and of all lower ones.
fn split<T: AsRef<OsStr>>(names: impl Iterator<Item = T>) -> Option<(Vec<T>, Vec<T>)> {
    let mut generations: BTreeMap<u64, Vec<T>> = BTreeMap::new();
    for name in names {
        if let Some(number) = generation(name.as_ref()) {
            generations.entry(number).or_default().push(name);
        }
    }
    let (_, highest) = generations.pop_last()?;
    Some((highest, generations.into_values().flatten().collect()))
}

/// A directory's entries, sorted by name.
fn entries(directory: &Path) -> io::Result<Vec<fs::DirEntry>> {
    let mut entries = fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    Ok(entries)
}

fn below(root: &Path, found: &mut Vec<Found>) {
    let before = found.len();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        let inside = match entries(&directory) {
            Ok(inside) => inside,
            Err(error) => {
                let fault = Some(format!("cannot be listed: {error}"));
                found.push(Found { path: directory, shadowed: Vec::new(), fault });
                continue;
            }
        };
        let (mut logs, mut directories) = (Vec::new(), Vec::new());
        for entry in inside {
            // Of the entry itself: a link to a directory is none, so the search ends.
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let name = entry.file_name();
            let is_log = name.to_str().is_some_and(|name| ENDINGS.iter().any(|ending| name.ends_with(ending)));
            if is_directory {
                directories.push(entry.path());
            } else if is_log && entry.path().is_file() {
                logs.push(name);
            }
        }
        let (migrated, plain): (Vec<_>, Vec<_>) = logs.into_iter().partition(|name| generation(name).is_some());
        let (highest, older) = split(migrated.into_iter()).unwrap_or_default();
        let older: Vec<PathBuf> = older.iter().map(|name| directory.join(name)).collect();
        found.extend(highest.iter().map(|name| Found {
            path: directory.join(name),
            shadowed: older.clone(),
            fault: None,
        }));
        found.extend(plain.iter().map(|name| Found { path: directory.join(name), shadowed: Vec::new(), fault: None }));
        pending.extend(directories.into_iter().rev());
    }
    if found.len() == before {
        let fault = Some(format!("holds no session logs: no file below it ends in {}", ENDINGS.join(", ")));
        found.push(Found { path: root.to_owned(), shadowed: Vec::new(), fault });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_state_their_generation() {
        for (name, expected) in [
            ("session.jsonl", Some(0)),
            ("session.v1.jsonl.zstd", Some(1)),
            ("session.v12.jsonl.zst", Some(12)),
            ("session.v.jsonl", None),
            ("session.v+1.jsonl", None),
            ("session.1.jsonl", None),
            ("notes.v1.jsonl", None),
            ("session.v1.txt", None),
        ] {
            assert_eq!(generation(OsStr::new(name)), expected, "{name}");
        }
    }
}
