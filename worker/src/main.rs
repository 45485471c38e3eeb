//! `crier-worker`: claims jobs and runs them.

use std::process::ExitCode;

use crier_common::config::ProcessRole;

fn main() -> ExitCode {
    crier_common::process::main(ProcessRole::Worker, |process| async move { crier_worker::serve(&process).await })
}
