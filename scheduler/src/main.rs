//! `crier-scheduler`: notifies for due jobs, rescues lost ones.

use std::process::ExitCode;

use crier_common::config::ProcessRole;

fn main() -> ExitCode {
    crier_common::process::main(ProcessRole::Scheduler, |process| async move { crier_scheduler::serve(&process).await })
}
