//! `crier-worker`: claims jobs and runs them.

use std::process::ExitCode;

use crier_config::ProcessRole;

fn main() -> ExitCode {
    crier_runtime::main(ProcessRole::Worker, |process| async move { crier_worker::serve(&process).await })
}
