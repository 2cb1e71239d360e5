//! The `sessionlog` command.

mod args;
mod completions;
mod events;
mod explain;
mod export;
mod failure;
mod fork;
mod grep;
mod import;
mod inputs;
mod last;
mod ls;
mod man;
mod markdown;
mod messages;
mod output;
mod page;
mod pattern;
mod progress;
mod prune;
mod repair;
mod replacement;
mod rm;
mod salvage;
mod seal;
mod show;
mod space;
mod stats;
mod store;
mod streamed;
mod summary;
mod text;
mod time;
mod transcript;
mod verify;
mod view;
mod view_page;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Verb};
use failure::Failure;
use output::Output;

/// Runs the command line and returns its exit status.
pub fn main() -> ExitCode {
    // Usage errors, --help and --version are the parser's: it prints them and exits with 2 or 0.
    let cli = Cli::parse();
    let mut out = Output::new();
    let result = run(&cli, &mut out).and_then(|()| Ok(out.finish()?));
    match result {
        Ok(()) | Err(Failure::ClosedPipe) => ExitCode::SUCCESS,
        Err(failure) => {
            // What was printed before the failure stands.
            let _ = out.finish();
            match failure {
                Failure::Message { text, status } => {
                    output::complain(&format!("sessionlog: {}", output::paragraph(&text)));
                    ExitCode::from(status)
                }
                Failure::Status(status) => ExitCode::from(status),
                Failure::ClosedPipe => ExitCode::SUCCESS,
            }
        }
    }
}

fn run(cli: &Cli, out: &mut Output) -> Result<(), Failure> {
    let json = cli.common.json;
    // What needs no store.
    match &cli.verb {
        Verb::Explain(arguments) => return explain::run(arguments, json, out),
        Verb::Completions(arguments) => return completions::run(arguments, json, out),
        Verb::Man(arguments) => return man::run(arguments, json, out),
        _ => {}
    }
    let root = store::root(&cli.common)?;
    store::check_place(&root)?;
    if let Verb::Import(arguments) = &cli.verb {
        return import::run(&root, arguments, json, out);
    }
    let backend = store::open(&root)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| {
        Failure::failed(format!("cannot start: {error}; try again when the system has more to spare"))
    })?;
    let result = runtime.block_on(async {
        match &cli.verb {
            Verb::Import(_) | Verb::Explain(_) | Verb::Completions(_) | Verb::Man(_) => Ok(()),
            Verb::Export(arguments) => export::run(&backend, arguments, out).await,
            Verb::Ls(arguments) => ls::run(&backend, arguments, json, out).await,
            Verb::Show(arguments) => show::run(&backend, arguments, json, out).await,
            Verb::Messages(arguments) => messages::run(&backend, arguments, json, out).await,
            Verb::Events(arguments) => events::run(&backend, arguments, json, out).await,
            Verb::Last(arguments) => last::run(&backend, arguments, json, out).await,
            Verb::Grep(arguments) => grep::run(&backend, arguments, json, out).await,
            Verb::Stats(arguments) => stats::run(&backend, arguments, json, out).await,
            Verb::View(arguments) => view_page::run(&backend, arguments, json, out).await,
            Verb::Verify(arguments) => verify::run(&backend, arguments, json, out).await,
            Verb::Repair(arguments) => repair::run(&backend, arguments, json, out).await,
            Verb::Seal(arguments) => seal::run(&backend, arguments, json, out).await,
            Verb::Fork(arguments) => fork::run(&backend, arguments, json, out).await,
            Verb::Salvage(arguments) => salvage::run(&backend, arguments, json, out).await,
            Verb::Rm(arguments) => rm::run(&backend, arguments, json, out).await,
            Verb::Prune(arguments) => prune::run(backend.engine(), arguments, json, out),
        }
    });
    // Whatever an interrupted verb left running only reads.
    runtime.shutdown_background();
    result
}
