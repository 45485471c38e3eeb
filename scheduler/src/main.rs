//! `crier-scheduler`: runs the recurring tasks.

use std::process::ExitCode;

use crier_config::ProcessRole;

fn main() -> ExitCode {
    crier_runtime::main(ProcessRole::Scheduler, |process| async move { crier_scheduler::serve(&process).await })
}
