//! `completions`: a shell's completion script.

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

use super::args::Cli;
use super::failure::Failure;
use super::output::Output;

#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

/// The `--json` document.
#[derive(serde::Serialize)]
struct Document {
    shell: String,
    script: String,
}

pub fn run(arguments: &Completions, json: bool, out: &mut Output) -> Result<(), Failure> {
    // Into memory first: the generator does not survive a closed pipe.
    let mut script = Vec::new();
    generate(arguments.shell, &mut Cli::command(), "sessionlog", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    if json {
        out.json(&Document { shell: arguments.shell.to_string(), script })?;
    } else {
        out.line(script.trim_end())?;
    }
    Ok(())
}
