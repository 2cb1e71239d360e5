//! The `sessionlog` command: keeps, repairs, searches and moves session logs of AI agents.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
