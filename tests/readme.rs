//! Checks that the tables in `docs/configuration.md` and `docs/jobs.md` match the program, and that `compose.yaml` reads
//! the variables that `docs/install.md` writes to `.env`.

use std::path::Path;

use crier_config::keys;
use crier_domain::job::JobKind;

use crate::support::page;

#[test]
fn the_configuration_table_is_up_to_date() {
    page::assert_sections("docs/configuration.md", "readme", &[("configuration", keys::markdown_table())]);
}

#[test]
fn the_table_of_job_limits_is_up_to_date() {
    let cell = |cap: Option<i64>| cap.map_or_else(|| "–".to_owned(), |cap| cap.to_string());
    let mut table = "| Kind | Per lane | Per workspace |\n|---|---|---|\n".to_owned();
    for kind in JobKind::ALL {
        let limits = kind.limits();
        if limits.lane_cap.is_some() || limits.workspace_cap.is_some() {
            table += &format!("| `{kind}` | {} | {} |\n", cell(limits.lane_cap), cell(limits.workspace_cap));
        }
    }
    page::assert_sections("docs/jobs.md", "readme", &[("limits", table)]);
}

/// Returns the names of the lines `NAME=…` of the file that an example writes to `.env`.
fn env_lines(text: &str) -> Vec<&str> {
    let (_, file) = text.split_once("cat >.env <<END\n").expect("an example with a .env file");
    let lines = file.lines().map(|line| line.trim_start_matches('#').trim());
    lines.take_while(|line| *line != "END").map(|line| line.split('=').next().unwrap_or_default()).collect()
}

#[test]
fn variables_of_the_env_example_reach_the_containers() {
    let read = |name: &str| {
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect("a file of the repository")
    };
    let (compose, guide) = (read("compose.yaml"), read("docs/install.md"));
    let lines = env_lines(&guide);
    assert!(lines.contains(&"CRIER_SANDBOX"), "the guide shows how to try the sandbox: {lines:?}");
    for variable in lines {
        assert!(
            compose.contains(&format!("${{{variable}:")),
            "compose.yaml does not read {variable} of docs/install.md"
        );
    }
}
