//! `crier`: all roles in one process, and the operator's commands, for either kind of installation.
//!
//! **To add a command:** its variant in `cli.rs`, a file in `commands/`, one arm in [`commands::run`].

use std::process::ExitCode;

mod cli;
mod commands;
mod first_start;
mod output;
mod serve;

fn main() -> ExitCode {
    crier_common::modes::close_new_files();
    let (command, source) = cli::parse();
    // Of an installation it needs nothing, so nothing of one can be wrong for it.
    if let Some(cli::Command::Webhooks(command)) = command {
        return commands::webhooks(command);
    }
    let config = match crier_common::config::Config::load(&source, crier_common::config::Role::Crier) {
        Ok(config) => config,
        Err(error) => return error.exit(),
    };
    match command {
        None | Some(cli::Command::Serve) => serve::run(config),
        Some(command) => commands::run(config, command),
    }
}
