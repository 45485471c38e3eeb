//! `crier config | completions | man`: the reference of the program. These commands need no installation.

use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap_complete::Shell;
use crier_config::keys;
use crier_runtime::StartError;

use crate::cli;
use crate::output::print_line;

pub fn config() -> ExitCode {
    print_line(keys::help());
    ExitCode::SUCCESS
}

pub fn completions(shell: Shell) -> ExitCode {
    // `generate` panics if it cannot write.
    let mut script: Vec<u8> = Vec::new();
    clap_complete::generate(shell, &mut cli::commands(), "crier", &mut script);
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(&script).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            StartError::Io { what: "stdout cannot be written".to_owned(), error }.exit()
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Writes a page for each command: `crier.1`, `crier-jobs-list.1`.
pub fn man(dir: &Path) -> ExitCode {
    match clap_mangen::generate_to(cli::commands(), dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            StartError::Io { what: format!("the directory {} cannot be written", dir.display()), error }.exit()
        }
    }
}
