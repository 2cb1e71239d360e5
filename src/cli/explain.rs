//! `explain`: what the classes of errors mean, and what to do about each.

use clap::Args;
use serde::Serialize;

use super::failure::Failure;
use super::output::{Output, one_line};

#[derive(Debug, Args)]
pub struct Explain {
    /// The class, as errors and --json name it [default: list all]
    #[arg(value_name = "CLASS")]
    pub class: Option<String>,
}

/// What one class means.
#[derive(Debug, Serialize)]
pub struct Explanation {
    /// Its name.
    pub class: &'static str,
    /// What happened, in a line.
    pub cause: &'static str,
    /// What to do next, in a line.
    pub next: &'static str,
    /// The rest of it.
    pub text: &'static str,
}

const fn of(class: &'static str, cause: &'static str, next: &'static str, text: &'static str) -> Explanation {
    Explanation { class, cause, next, text }
}

/// Every class that an error or a line of output names: those of storage first, then those of damage, of what a full check finds, and
/// of imports.
const ALL: &[Explanation] = &[
    of(
        "not-found",
        "there is no session of that id, or no event of that seq",
        "`sessionlog ls` shows the ids, `sessionlog rm --list` those in the trash",
        "Ids may be shortened to an unambiguous beginning. A session that was removed is in the trash until it is removed for good; `sessionlog rm --restore ID` \
         brings it back. A session appears in the store with its first flushed event, not before. Look whether --store or \
         $SESSIONLOG_STORE names the store that is meant.",
    ),
    of(
        "exists",
        "a session of that id is there already",
        "choose another id: --id for import, --as for fork and salvage",
        "An import of a log that is stored already, identical or shorter, changes nothing; one that goes on where the stored session ends extends it. \
         Anything else of the same id is refused, so that nothing is overwritten. A session that comes back from the trash needs its id free: `sessionlog rm ID` moves \
         the one that has it now away.",
    ),
    of(
        "busy",
        "another process has the session open for writing",
        "read it meanwhile; write, repair or remove it once that process has closed it",
        "One writer at a time: the kernel keeps the lock and releases it when the process ends, however it ends, so a lock is never stale. The message names process and \
         host as the lock's note gives them. `events --follow` shows what the writer appends.",
    ),
    of(
        "lost-ownership",
        "this process is not the session's writer any more",
        "open the session again; what was not durable is still with the caller",
        "Before each append a writer proves that the lock and the journal are still its own. They are not when another writer has taken the session over, when the \
         session was removed, or when its files were replaced or copied over. Nothing was written.",
    ),
    of(
        "damaged",
        "the stored bytes are not what was written",
        "`sessionlog verify ID` names file, offset and class; `sessionlog salvage ID --as NEW` saves what is before",
        "Every byte that counts has a checksum, and files name what they follow. Damage is refused, never skipped: a log with a hole would show the model something \
         that was never said. Other sessions are not affected. `sessionlog explain` lists the classes of damage. If there is a copy of the session, compare the damaged file with it.",
    ),
    of(
        "unsupported",
        "written by a newer version, or with required event types that this one does not know",
        "upgrade sessionlog, or name the type with --assume-known if it means nothing for the history",
        "This is not damage, and nothing was changed. A newer format is never guessed at. An event type that is unknown and not marked ignorable may mean that what the model saw \
         was something else, so messages and show refuse; events, export and verify work.",
    ),
    of(
        "disk-full",
        "no space is left, or a quota or file size limit was reached",
        "free space, for instance with `sessionlog prune --older-than 90d`, then run the command again",
        "Nothing half-written counts: a failed append is cut off again, a failed import leaves no session. `sessionlog seal` makes cold sessions small, `sessionlog prune` \
         and `sessionlog rm --now` remove them. What is in the trash takes space until then.",
    ),
    of(
        "permission-denied",
        "the system does not permit it",
        "look at the owner and mode of the file that is named, and run as its owner",
        "A store belongs to one user: directories have mode 0700, files 0600. A store on a read-only file system can be read.",
    ),
    of(
        "io",
        "the device or file system reported an error, or a sync failed",
        "see the system's log for the device, then run the command again and `sessionlog verify`",
        "What was reported as durable before is. After a failed sync nothing is trusted that was written since the last one; a writer goes on in a new file. If reading fails, copy \
         the store to another device before anything else.",
    ),
    of(
        "invalid",
        "an argument is outside a limit or a rule",
        "change what the message names",
        "Limits are checked before anything is written, so that nothing is accepted that could not be read back.",
    ),
    of(
        "poisoned",
        "nothing can be appended through this handle any more",
        "open the session again; the message says what went wrong first",
        "After some failures it cannot be told what is on disk before the log is read again. Opening it for writing does that.",
    ),
    of(
        "checksum",
        "bytes changed after they were written, or make no sense",
        "`sessionlog salvage ID --as NEW` saves the events before; a copy of the file from elsewhere saves all",
        "A bad device or memory, a program that wrote into the store, or an incomplete copy. A last record that a crash tore is not called damage: that is torn-tail.",
    ),
    of(
        "gap",
        "events are missing between two records or files",
        "look for the missing file in a copy; `sessionlog salvage ID --as NEW` saves what is before",
        "Each file names the one before it, so a file that was removed, emptied or cut is noticed. The message gives the seq that is missing first.",
    ),
    of(
        "overlap",
        "two records claim the same seq",
        "`sessionlog salvage ID --as NEW` saves what is before; compare the rest with a copy",
        "One writer never does this. Files of two copies of a session were mixed, or a backup was restored over a part of it.",
    ),
    of(
        "foreign-version",
        "a file or record of a version that this build does not know",
        "upgrade sessionlog",
        "The checksum is right, so this is what was written. It is read by a newer release.",
    ),
    of(
        "bad-header",
        "a file's or the session's header cannot be read",
        "`sessionlog salvage ID --as NEW --cwd DIR` rebuilds the session's header; a copy of the file is better",
        "The header file holds the session's id, creation time and working directory; the events beside it may be whole. Salvage takes the time of the first event for that of \
         the creation, and the working directory from --cwd.",
    ),
    of(
        "nul-hole",
        "zeros where records should be",
        "`sessionlog salvage ID --as NEW` saves the events before",
        "What a file system leaves where it had assigned space and lost power before it wrote. With a device that keeps what it says it has synced this happens behind the last \
         record only, where it is a torn tail and no damage.",
    ),
    of(
        "identity-mismatch",
        "a file belongs to another session or place than its name says",
        "put the file or directory back under its own name, or `sessionlog salvage ID --as NEW`",
        "Session directories are not renamed and their files not exchanged: a directory's name is made of the session's id. To give a copy another id, export it and \
         import it with --id.",
    ),
    of(
        "wrong-file-type",
        "something else stands where a file or directory of the store should be",
        "look at the path, move what stands there away, and run `sessionlog verify ID`",
        "A directory, link, pipe or socket. Links are not followed inside a store.",
    ),
    of(
        "derived-index",
        "the index of a sealed segment does not match its events, which are intact",
        "`sessionlog verify ID --repair-derived` derives it afresh from the events",
        "An index is derived from the events of its segment and says where each block is. It passed its checksum and is wrong, so whatever wrote it was wrong: please \
         report it. No event is lost. Sealing the session again derives it afresh as well.",
    ),
    of(
        "derived-counts",
        "the counts in a sealed segment are not those of its events, which are intact",
        "`sessionlog verify ID --repair-derived` counts them afresh",
        "Counts by type let a reader pass over blocks that hold nothing it looks for. They passed their checksum and are wrong, so whatever wrote them was wrong: please \
         report it. Until they are rebuilt, `events --type` and `grep` may pass over events; `export` does not.",
    ),
    of(
        "derived-checkpoint",
        "a stored checkpoint does not follow from the events before it, which are intact",
        "`sessionlog verify ID --repair-derived` derives it afresh from the events",
        "A checkpoint is what a replay of all events before it comes to, kept so that resuming need not replay them. It passed its checksum and is wrong, so whatever \
         wrote it was wrong: please report it. Until it is rebuilt, a resumed session may show the model another history than the log's; no event is lost.",
    ),
    of(
        "catalogue",
        "the catalogue says something else of a session than its log",
        "`sessionlog verify --repair-derived` writes its entry afresh",
        "The catalogue lets `ls` answer without opening each session. It is never trusted over a log: an entry counts only while the log is as it was when the entry was \
         made. This one passed that test and says something else. Removing ROOT/catalog has the same effect as rebuilding it.",
    ),
    of(
        "torn-tail",
        "the last record is incomplete: a crash cut it",
        "`sessionlog repair ID` sets the bytes aside and closes an open turn; resuming the session does the same",
        "Nothing of that record was ever reported as durable. Its bytes are kept in the session's directory torn.",
    ),
    of(
        "invalid-event",
        "an event that is stored as it was written breaks a rule of the model",
        "`sessionlog events ID --json` prints the log as it is; `sessionlog salvage ID --as NEW` saves what is before",
        "The bytes are right, the log is not one that a session can have accepted: a replacement of messages that are not there, a source that lies in the future. Another program wrote it.",
    ),
    of(
        "unknown-type",
        "a required event of a type that is not known",
        "upgrade, or name the type with --assume-known TYPE if it means nothing for the history",
        "An application's own type. If it may be ignored, its events should be marked ignorable when they are written.",
    ),
    of(
        "behind",
        "a file of a damaged log behind the place where the log stops",
        "keep the damaged session until it is clear that nothing in it is needed",
        "Salvage reads up to the first damage, because what the model saw later may depend on what is lost. The file itself may be whole; export and the format description serve to look into it.",
    ),
    of(
        "file",
        "a file that was to be imported cannot be read",
        "check its name and permissions; the other files were imported",
        "Of a directory the files are read whose names end as those of session logs do: .jsonl, .jsonl.zstd, .jsonl.zst.",
    ),
    of(
        "zstd",
        "the compressed stream is damaged, cut, or no zstd stream",
        "decompress what is left by hand to look at it, or fetch the file again",
        "Frames without checksums may decode to other bytes than were compressed; what follows a fault is not guessed at. Nothing was imported.",
    ),
    of(
        "too-large",
        "a line, event or file is larger than a stated limit",
        "look at the line; this is no log that a session wrote",
        "The limits keep a hostile file from taking all memory: the message names the limit in bytes.",
    ),
    of(
        "nul-run",
        "a run of zeros in the log: space that was assigned and never written",
        "cut them out of a copy and import that",
        "What a power loss leaves in a log that was written without sync. The events before are whole; those behind may not continue them.",
    ),
    of(
        "utf8",
        "bytes that are not UTF-8",
        "look at the line; mend it in a copy and import that",
        "JSON is UTF-8. A log that was converted or edited in another encoding is not read.",
    ),
    of(
        "cut-line",
        "a record ends before it is complete",
        "drop the line from a copy to import what is before it",
        "The writer was stopped in the middle of a line. It is never taken as an event.",
    ),
    of(
        "json",
        "a line is not JSON",
        "look at the line; mend it in a copy and import that",
        "One JSON object a line. Numbers that are not JSON, such as NaN, are refused too.",
    ),
    of("empty", "there is nothing in the file", "nothing to do", "No line, or blank lines only."),
    of(
        "no-header",
        "the first line is no session header",
        "look at the first line; give the file as its writer wrote it",
        "A log starts with its header. A log that was cut at the start cannot be told from something else.",
    ),
    of(
        "header",
        "the session header is malformed",
        "look at the member that is named; mend it in a copy and import that",
        "The header states id, version and creation time.",
    ),
    of(
        "second-header",
        "two logs in one file",
        "cut the file into one file a log and import those",
        "Files of several sessions were put one behind the other.",
    ),
    of(
        "newer-version",
        "the log was written by a newer release",
        "upgrade sessionlog",
        "The version in the header is greater than those that this build reads.",
    ),
    of(
        "surface",
        "an event may not stand where it stands",
        "look at the event; the log is not one that a session can have accepted",
        "Messages are appended or replace others, name every message that they replace, and refer to earlier events only. A log in which only some events say so is refused.",
    ),
    of(
        "envelope",
        "an event's envelope is malformed",
        "look at the member that is named; mend it in a copy and import that",
        "Type, seq, time and data as they should be, and no other member.",
    ),
    of(
        "retired",
        "a shape that was retired because it changes the meaning of a log",
        "there is no way to read it with full meaning; keep the file",
        "Headers as differences, and headers of fallbacks. What the model saw cannot be told from them.",
    ),
    of(
        "upgrade",
        "an old event cannot be brought to the present shape",
        "look at the event that is named",
        "Logs of format 0 are converted event by event. This one has a shape that no release wrote.",
    ),
    of(
        "row",
        "a packed row is malformed",
        "fetch the file again; a row is never taken in part",
        "A row stands for many streamed deltas; their numbers and lengths must agree.",
    ),
    of(
        "conflict",
        "two different events with one seq",
        "decide which one counts, and import a copy without the other",
        "Two writers appended to one log, or two copies were mixed. Repeated events with the same bytes are taken once.",
    ),
    of(
        "usage",
        "the arguments do not say what to do",
        "`sessionlog VERB --help`, `sessionlog man VERB`",
        "Exit status 2: nothing was done. An id that is the beginning of several lists them.",
    ),
];

/// The explanation of a class.
pub fn find(class: &str) -> Option<&'static Explanation> {
    ALL.iter().find(|explanation| explanation.class == class)
}

pub fn run(arguments: &Explain, json: bool, out: &mut Output) -> Result<(), Failure> {
    let Some(class) = &arguments.class else {
        for explanation in ALL {
            if json {
                out.json(explanation)?;
            } else {
                out.line(&format!("{:<18} {}", explanation.class, explanation.cause))?;
            }
        }
        return Ok(());
    };
    let Some(explanation) = find(class) else {
        let class = one_line(class);
        return Err(Failure::usage(format!("there is no class {class}; `sessionlog explain` lists them")));
    };
    if json {
        out.json(explanation)?;
        return Ok(());
    }
    out.line(&format!("{}: {}", explanation.class, explanation.cause))?;
    out.line(&format!("next: {}", explanation.next))?;
    out.line("")?;
    for line in textwrap::wrap(explanation.text, 100) {
        out.line(&line)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use sessionlog::backend::{DamageClass, ErrorKind};

    use super::*;

    #[test]
    fn every_kind_of_error_and_class_of_damage_is_explained_once() {
        let kinds = ErrorKind::ALL.iter().map(|kind| kind.name());
        for class in kinds.chain(DamageClass::ALL.iter().map(|class| class.name())) {
            assert!(find(class).is_some(), "{class}");
        }
        let names: HashSet<&str> = ALL.iter().map(|explanation| explanation.class).collect();
        assert_eq!(names.len(), ALL.len());
        for Explanation { class, cause, next, text } in ALL {
            assert!(!cause.ends_with('.') && cause.len() < 100 && next.len() < 130, "{class}");
            assert!(text.ends_with('.') && !text.contains("  "), "{class}");
        }
    }

    /// The classes of imports are read from where they are named.
    #[test]
    fn every_class_of_import_is_explained() {
        let source = include_str!("../interop/error.rs");
        let classes =
            source.split("pub fn class(&self)").nth(2).and_then(|rest| rest.split("\n    }\n").next()).unwrap();
        let named: Vec<&str> = classes.split('"').skip(1).step_by(2).collect();
        assert!(named.len() > 15 && named.contains(&"conflict"), "{named:?}");
        named.iter().for_each(|class| assert!(find(class).is_some(), "{class}"));
    }
}
