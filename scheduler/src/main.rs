//! `crier-scheduler`: notifies for due jobs, rescues lost ones.

use std::process::ExitCode;

use crier_common::config::Role;

fn main() -> ExitCode {
    crier_common::process::main(Role::Scheduler, |process| async move { crier_scheduler::serve(&process).await })
}
