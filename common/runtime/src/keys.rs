//! Rejects a start with other secret keys than those of the installation: data that was encrypted with the missing keys
//! could not be read, and posts would wait for credentials forever.

use crier_config::{Config, key_file};
use crier_store::Store;
use crier_store::secret_keys::{self, KeyProblem};

use super::StartError;
use super::data_dir::NewKey;

/// Checks the keys, and stores a new one. The schema must be current.
pub async fn check(config: &Config, store: &Store, new_key: Option<NewKey>) -> Result<(), StartError> {
    let rejected = |problem| {
        let (what, remedy) = explain(config, problem);
        StartError::Invalid(format!("{what}; {remedy}"))
    };
    if let Some(problem) = secret_keys::check(store).await? {
        return Err(rejected(problem));
    }
    if let Some(key) = new_key {
        key.save()?;
    }
    secret_keys::record(store).await?;
    // Another process may have recorded another key with the same id meanwhile.
    match secret_keys::check(store).await? {
        Some(problem) => Err(rejected(problem)),
        None => Ok(()),
    }
}

/// Returns what is wrong with the keys, and what to do.
pub fn explain(config: &Config, problem: KeyProblem) -> (String, String) {
    let (KeyProblem::Missing(id) | KeyProblem::Wrong(id)) = problem;
    let (is_set, file) = (config.secret_keys.is_some(), key_file(&config.data_dir));
    let place = if is_set { "CRIER_SECRET_KEY".to_owned() } else { file.display().to_string() };
    let is = match problem {
        _ if !is_set && !file.exists() => "is missing",
        KeyProblem::Missing(_) => "does not have it",
        KeyProblem::Wrong(_) => "has another key with this ID",
    };
    let what = format!(
        "the secrets in the database (credentials, signing secrets, responses of the last 24 hours) are encrypted with \
         the key {id}, and {place} {is}"
    );
    let set = "set CRIER_SECRET_KEY to the key that was used before";
    let remedy = match is_set {
        // The variable overrides the file.
        true if file.exists() => format!("{set}, or unset it to use {}", file.display()),
        true => format!("{set} (several may be listed)"),
        false => format!("restore {place} from a backup, or {set}"),
    };
    (what, remedy)
}
