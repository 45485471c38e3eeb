//! `crier-api`: serves HTTP requests.

use std::process::ExitCode;

use crier_common::config::ProcessRole;

fn main() -> ExitCode {
    crier_common::process::main(ProcessRole::Api, |process| async move { crier_api::serve(&process, || ()).await })
}
