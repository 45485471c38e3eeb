//! Rejects a start with other secret keys than those of the installation: data that was encrypted with the missing keys
//! could not be read, and posts would wait for credentials forever.

use crier_config::{Config, key_file};
use crier_store::Store;
use crier_store::secret_keys::{self, KeyProblem};

use super::StartError;
use super::data_dir::NewKey;

/// Checks the keys, and stores a new one. The schema must be current.
pub async fn check(config: &Config, store: &Store, new_key: Option<NewKey>) -> Result<(), StartError> {
    if let Some(problem) = secret_keys::check(store).await? {
        return Err(StartError::Invalid(explain(config, problem, new_key.is_some())));
    }
    if let Some(key) = new_key {
        key.save()?;
    }
    secret_keys::record(store).await?;
    // Another process may have recorded another key with the same id meanwhile.
    match secret_keys::check(store).await? {
        Some(problem) => Err(StartError::Invalid(explain(config, problem, false))),
        None => Ok(()),
    }
}

fn explain(config: &Config, problem: KeyProblem, is_file_missing: bool) -> String {
    let (KeyProblem::Missing(id) | KeyProblem::Wrong(id)) = problem;
    let file = key_file(&config.data_dir);
    let (place, is) = match (&config.secret_keys, problem) {
        (Some(_), KeyProblem::Missing(_)) => ("CRIER_SECRET_KEY".to_owned(), "does not have it"),
        (Some(_), KeyProblem::Wrong(_)) => ("CRIER_SECRET_KEY".to_owned(), "has another key with this ID"),
        (None, _) if is_file_missing => (file.display().to_string(), "is missing"),
        (None, KeyProblem::Missing(_)) => (file.display().to_string(), "does not have it"),
        (None, KeyProblem::Wrong(_)) => (file.display().to_string(), "has another key with this ID"),
    };
    let remedy = match config.secret_keys {
        Some(_) => "set it to the key that was used before (several may be listed)".to_owned(),
        None => "restore the file from a backup, or set CRIER_SECRET_KEY to the key that was used before".to_owned(),
    };
    format!(
        "the secrets in the database (credentials, signing secrets, responses of the last 24 hours) are encrypted with \
         the key {id}, and {place} {is}; {remedy}"
    )
}
