//! `crier-api`: serves HTTP requests.

use std::process::ExitCode;

use crier_config::ProcessRole;

fn main() -> ExitCode {
    crier_runtime::main(ProcessRole::Api, |process| async move { crier_api::serve(&process, || ()).await })
}
