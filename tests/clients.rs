//! Runs `scripts/clients`, which tests the files in `docs/examples/clients` with a real Crier, and checks that
//! `docs/clients.md` has the versions that the script tests.

use std::process::{Command, Stdio};

use crate::support::page;
use crate::support::process::program;

const SCRIPT: &str = "scripts/clients";

#[test]
fn the_clients_work_with_a_real_crier() {
    let mut script = Command::new(page::path(SCRIPT));
    let output = script.arg("--crier").arg(program("crier")).stdin(Stdio::null()).output().expect("the script starts");
    let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}{errors}");
}

#[test]
fn the_page_has_the_versions_that_are_tested() {
    let (script, text) = (page::read(SCRIPT), page::read("docs/clients.md"));
    for (variable, package) in [
        ("openapi_ts", "@hey-api/openapi-ts@"),
        ("typescript", "typescript@"),
        ("openapi_python_client", "openapi-python-client=="),
    ] {
        let version = script
            .split_whitespace()
            .find_map(|word| word.strip_prefix(variable)?.strip_prefix('='))
            .unwrap_or_else(|| panic!("{SCRIPT} has no version of {variable}"));
        let versions: Vec<&str> =
            text.split(package).skip(1).filter_map(|rest| rest.split_whitespace().next()).collect();
        assert!(!versions.is_empty(), "docs/clients.md does not install {package}");
        assert!(versions.iter().all(|found| *found == version), "{package}{version} is tested, not {versions:?}");
    }
}
