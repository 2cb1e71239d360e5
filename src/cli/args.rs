//! The command line's definitions: verbs, options and their help.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use sessionlog::segment::SealOptions;

/// Keeps, repairs, searches and moves session logs of AI agents.
///
/// Exit status: 0 done and sound; 1 something is damaged, refused or partly failed (the rest was still done); 2 wrong usage;
/// 3 the store or session is busy or missing.
#[derive(Debug, Parser)]
#[command(name = "sessionlog", version, max_term_width = 120, disable_help_subcommand = true)]
pub struct Cli {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub verb: Verb,
}

/// Behind the options that a verb has for itself.
const LAST: usize = 900;

/// Options that every verb takes.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// Directory of the store [default: the platform's data directory + sessionlog]
    #[arg(long, value_name = "DIR", env = "SESSIONLOG_STORE", global = true, display_order = LAST)]
    pub store: Option<PathBuf>,
    /// Print JSON for programs: one document, or one line per entry where a list streams; nothing else on stdout
    #[arg(long, global = true, display_order = LAST)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Read session logs into the store
    ///
    /// Takes DeepSeek Harness logs (.jsonl and .jsonl.zstd, packed or not, formats 0 and 1, with or without seq and time) and this
    /// tool's own JSONL; transcripts of Claude Code, rollouts of OpenAI Codex and sessions of pi, told apart by their first
    /// records: each record is kept in an event of its own, followed by what it means in this model. A file comes in whole or
    /// not at all. An id that is there already is refused, unless the stored log is identical (unchanged) or the file goes on
    /// where it ends (extended).
    Import(super::import::Import),
    /// Write a session to standard output or a file, for other programs or for people
    ///
    /// Of a damaged session no file is written; what went to standard output by then is incomplete, and the exit status 1.
    Export(super::export::Export),
    /// List sessions, newest activity first
    Ls(Ls),
    /// Show a session's transcript for people
    ///
    /// On a terminal it goes through $PAGER, else less; PAGER=cat turns that off.
    Show(Show),
    /// Print the messages that the model sees
    ///
    /// A session with events of unknown types that are not marked ignorable is refused: what they mean for the history cannot be
    /// told. --assume-known TYPE says that they mean nothing for it.
    Messages(Messages),
    /// Print a session's events
    Events(Events),
    /// Print the last answer of the model, for shell hooks
    ///
    /// That is the last text of the model that is still part of the history; after a compaction that took them all, the last one
    /// of the log. The exit status is 1 when there is none.
    Last(super::last::Last),
    /// Find where something was said: in messages, tool input and tool output
    ///
    /// Hits come session by session, each line that holds one once. Where a step was cut short, what the model had streamed until
    /// then is searched too. Damaged sessions are searched up to the damage and make the exit status 1; finding nothing does not.
    Grep(super::grep::Grep),
    /// Write a session as one page for a browser, which needs no network
    ///
    /// Of a damaged session the page shows what comes before the damage and says so; the exit status is 1 then.
    View(super::view_page::ViewPage),
    /// Count events, turns, tool calls, tokens, time and bytes of a session or of the whole store
    Stats(super::stats::Stats),
    /// Check sessions in full: checksums, seqs, payloads, surface
    ///
    /// Prints one line per session and a summary. A session that ends inside a turn is sound (open-turn); torn, damaged and
    /// unsupported ones make the exit status 1.
    Verify(Verify),
    /// Cut a torn tail (its bytes are kept) and close an orphaned turn
    ///
    /// Refused beside a live writer. A session that needs nothing is left as it is.
    Repair(Repair),
    /// Rewrite sessions that nobody has open into as few bytes as it takes
    ///
    /// Without ids all sessions; those that are open for writing are passed over then.
    Seal(Seal),
    /// Make a new session of the beginning of another
    ///
    /// What is sealed is shared between the two and takes no space twice. The source does not change. Beside a live writer the fork
    /// is made of what is durable. A boundary inside a turn is refused, and the nearest ones are named.
    Fork(super::fork::Fork),
    /// Write what comes before the damage of a session to a new one
    ///
    /// The damaged session is not touched. What was left is named: file, offset, class, bytes. A turn that is open where the new
    /// session ends stays open; resuming or repairing it closes the turn, as after a crash.
    Salvage(super::salvage::Salvage),
    /// Move sessions to the store's trash
    ///
    /// They are gone from every listing, their ids are free, and --restore brings them back. Nothing is freed before --now or
    /// prune. Refused beside a live writer.
    Rm(super::rm::Rm),
    /// Free space: remove old sessions for good, and empty the trash
    ///
    /// Says what would go, and does nothing without --apply. A session's age is that of its last event; one in the trash is as old
    /// as its removal. Sessions that are open for writing, torn or damaged are kept, and named; what goes is checked in full before.
    Prune(super::prune::Prune),
    /// Say what a class of errors means and what to do about it
    Explain(super::explain::Explain),
    /// Print a completion script for a shell
    Completions(super::completions::Completions),
    /// Print a manual page, for man -l or for an installation
    Man(super::man::Man),
}

#[derive(Debug, Args)]
pub struct Ls {
    /// Only sessions of this working directory; damaged ones are always shown
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<String>,
    /// Only sessions active since then: a date (2026-11-30), a date and time (2026-11-30T14:00:00Z), or an age (90s, 15m, 12h, 7d)
    #[arg(long, value_name = "WHEN", value_parser = super::time::parse_since)]
    pub since: Option<i64>,
    /// At most this many sessions
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Show forks under the sessions that they were made of
    #[arg(long)]
    pub tree: bool,
}

#[derive(Debug, Args)]
pub struct Show {
    /// Session id, or an unambiguous beginning of it
    #[arg(value_name = "ID")]
    pub id: String,
    /// Show every message event of the log, what compaction replaced included
    #[arg(long)]
    pub raw: bool,
    /// Wrap at this many columns [default: the terminal's width, at most 120; 100 elsewhere]
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(20..))]
    pub width: Option<u16>,
    #[command(flatten)]
    pub known: Known,
}

/// Types to treat as known beside the published ones.
#[derive(Debug, Clone, Args)]
pub struct Known {
    /// Treat event types as known although their meaning is not; give them after the ID
    #[arg(long, value_name = "TYPE", num_args = 1..)]
    pub assume_known: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Messages {
    /// Session id, or an unambiguous beginning of it
    #[arg(value_name = "ID")]
    pub id: String,
    /// The messages as they were after event SEQ
    #[arg(long, value_name = "SEQ")]
    pub at: Option<u64>,
    /// Add the request header in force: the whole request as a function of the log
    #[arg(long)]
    pub request: bool,
    #[command(flatten)]
    pub known: Known,
}

#[derive(Debug, Args)]
pub struct Events {
    /// Session id, or an unambiguous beginning of it
    #[arg(value_name = "ID")]
    pub id: String,
    /// First seq
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    pub from: u64,
    /// Last seq, inclusive
    #[arg(long, value_name = "SEQ")]
    pub to: Option<u64>,
    /// Only events whose type matches, with * and ? as wildcards: tool/*
    #[arg(long = "type", value_name = "GLOB")]
    pub event_type: Option<String>,
    /// At most this many events
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Go on printing what a writer appends, until interrupted or the session is gone
    #[arg(long)]
    pub follow: bool,
}

#[derive(Debug, Args)]
pub struct Verify {
    /// Sessions to check [default: all]
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
    /// Rebuild indexes, counts, checkpoints and catalogue entries that do not follow from the records; no record changes
    #[arg(long)]
    pub repair_derived: bool,
}

#[derive(Debug, Args)]
pub struct Seal {
    /// Session ids, or unambiguous beginnings of them [default: all]
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
    /// zstd level; what was sealed at a lower one is sealed again
    ///
    /// 9 takes a sixth of the default's time and leaves a tenth more, 19 takes a third more time and saves another hundredth. Reading
    /// everything, resuming and the last events take as long at each; above 3, the background's level, an event in the middle of a
    /// long log takes twice as long to reach.
    #[arg(long, value_name = "N", default_value_t = SealOptions::LEVEL, value_parser = clap::value_parser!(i32).range(1..=19))]
    pub level: i32,
}

#[derive(Debug, Args)]
pub struct Repair {
    /// Session id, or an unambiguous beginning of it
    #[arg(value_name = "ID")]
    pub id: String,
    /// Say what would be done and change nothing
    #[arg(long)]
    pub dry_run: bool,
}
