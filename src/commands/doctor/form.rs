//! The form of the installation: one process, or separate processes, which need other settings.

use crier_config::{Config, ConfigSource, Database, ProcessRole};
use crier_runtime::data_dir;

use super::Finding;

/// Returns the configuration of the processes on this machine, and a finding.
pub fn of(source: &ConfigSource, config: Config) -> (Config, Finding) {
    let database = match config.database {
        Database::Sqlite(_) => "SQLite",
        Database::Postgres(_) if data_dir::is_one_process(&config) => "Postgres",
        Database::Postgres(_) => return separate(source, config),
    };
    (config, Finding::ok("form", format!("one process, `crier`, on {database}")))
}

fn separate(source: &ConfigSource, config: Config) -> (Config, Finding) {
    match Config::load(source, ProcessRole::Api) {
        Ok(config) => {
            let detail = "separate processes, `crier-api`, `crier-worker` and `crier-scheduler`, on Postgres and Redis";
            (config, Finding::ok("form", detail))
        }
        Err(error) => {
            let problems: Vec<String> =
                error.problems.iter().map(|problem| format!("{}: {}", problem.key, problem.message)).collect();
            let remedy = "set the same variables for this command and for all processes";
            (config, Finding::failure("form", problems.join("; "), remedy))
        }
    }
}
