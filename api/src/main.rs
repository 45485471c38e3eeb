//! `crier-api`: serves HTTP requests.

use std::process::ExitCode;

use crier_common::config::Role;

fn main() -> ExitCode {
    crier_common::process::main(Role::Api, |process| async move { crier_api::serve(&process, || ()).await })
}
