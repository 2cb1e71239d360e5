//! `man`: manual pages, made of the same definitions as the help.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory};
use clap_mangen::Man as Page;
use clap_mangen::roff::{Roff, roman};

use super::args::Cli;
use super::failure::Failure;
use super::output::Output;

#[derive(Debug, Args)]
pub struct Man {
    /// The verb whose page to print [default: the page of the whole command]
    #[arg(value_name = "VERB")]
    pub verb: Option<String>,
    /// Write the page of the command and those of all verbs to this directory instead
    #[arg(long, value_name = "DIR", conflicts_with = "verb")]
    pub output: Option<PathBuf>,
}

/// The `--json` document: a page, or the files that were written.
#[derive(serde::Serialize)]
struct Document {
    #[serde(skip_serializing_if = "Option::is_none")]
    page: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    files: Vec<String>,
}

pub fn run(arguments: &Man, json: bool, out: &mut Output) -> Result<(), Failure> {
    let mut command = Cli::command();
    command.build();
    let verbs: Vec<Command> = command.get_subcommands().filter(|verb| verb.get_name() != "help").cloned().collect();
    if let Some(directory) = &arguments.output {
        let pages = std::iter::once(&command).chain(&verbs);
        let files = pages.map(|page| write(directory, page)).collect::<Result<Vec<_>, _>>()?;
        if json {
            out.json(&Document { page: None, files })?;
        } else {
            files.iter().try_for_each(|file| out.line(file))?;
        }
        return Ok(());
    }
    let chosen = match &arguments.verb {
        None => &command,
        Some(name) => verbs.iter().find(|verb| verb.get_name() == name).ok_or_else(|| {
            let names: Vec<&str> = verbs.iter().map(Command::get_name).collect();
            Failure::usage(format!("there is no verb {name:?}; the verbs are {}", names.join(", ")))
        })?,
    };
    let page = render(chosen)?;
    if json {
        out.json(&Document { page: Some(page), files: Vec::new() })?;
    } else {
        out.line(page.trim_end())?;
    }
    Ok(())
}

/// The name of a verb's page, or that of the whole command.
fn name(command: &Command) -> String {
    match command.get_name() {
        "sessionlog" => "sessionlog".to_owned(),
        verb => format!("sessionlog-{verb}"),
    }
}

fn render(command: &Command) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("the page cannot be made: {error}"));
    let version = env!("CARGO_PKG_VERSION");
    let mut text = Vec::new();
    let page = Page::new(command.clone().version(version))
        .title(name(command))
        .source(format!("sessionlog {version}"))
        .manual("sessionlog");
    page.render(&mut text).map_err(failed)?;
    let mut more = Roff::new();
    if command.get_name() == "sessionlog" {
        more.control("SH", ["FILES"]);
        more.text([roman("The store is the directory that --store names, else $SESSIONLOG_STORE, else sessionlog in the platform's data directory.")]);
    } else {
        more.control("SH", ["EXIT STATUS"]);
        more.text([roman(
            "0 done and sound; 1 something is damaged, refused or partly failed (the rest was still done); 2 wrong usage; 3 the store or session is busy or missing.",
        )]);
        more.control("SH", ["SEE ALSO"]);
        more.text([roman("sessionlog(1); sessionlog explain lists the classes of errors.")]);
    }
    more.to_writer(&mut text).map_err(failed)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn write(directory: &Path, command: &Command) -> Result<String, Failure> {
    let path = directory.join(format!("{}.1", name(command)));
    let text = render(command)?;
    fs::create_dir_all(directory).and_then(|()| fs::write(&path, text)).map_err(|error| {
        Failure::failed(format!("cannot write {}: {error}; choose another --output", path.display()))
    })?;
    Ok(path.display().to_string())
}
