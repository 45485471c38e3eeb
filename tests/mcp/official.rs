//! Runs `scripts/mcp --quick`: the official Python client, and requests of curl, against a real Crier.

use std::process::{Command, Stdio};

use crate::support::page;
use crate::support::process::program;

#[test]
fn the_official_client_works_with_a_real_crier() {
    let mut script = Command::new(page::path("scripts/mcp"));
    script.arg("--quick").env("CRIER_BIN", program("crier")).stdin(Stdio::null());
    let output = script.output().expect("the script starts");
    let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}{errors}");
}
