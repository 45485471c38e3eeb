//! `crier`: all roles in one process, and the operator's commands for embedded and split installations.
//!
//! **To add a command:** add its variant in `cli.rs`, a file in `commands/`, and an arm in `commands::dispatch`.

use std::process::ExitCode;

mod cli;
mod commands;
mod first_start;
mod output;
mod serve;

fn main() -> ExitCode {
    crier_base::permissions::set_umask();
    let (command, source) = cli::parse();
    // Commands that need no installation must not fail on an invalid configuration.
    let command = match command {
        Some(cli::Command::Webhooks(command)) => return commands::webhooks(command),
        Some(cli::Command::Config) => return commands::reference::config(),
        Some(cli::Command::Completions { shell }) => return commands::reference::completions(shell),
        Some(cli::Command::Man { dir }) => return commands::reference::man(&dir),
        command => command,
    };
    let config = match crier_config::Config::load(&source, crier_config::ProcessRole::Crier) {
        Ok(config) => config,
        Err(error) => return error.exit(),
    };
    match command {
        None | Some(cli::Command::Serve) => serve::run(config),
        Some(cli::Command::Doctor(format)) => commands::doctor(&source, config, format),
        Some(command) => commands::run(config, command),
    }
}
