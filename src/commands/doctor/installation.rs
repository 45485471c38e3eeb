//! The database and its contents.

use std::sync::Arc;

use crier_config::{Config, Database};
use crier_domain::job::NoopNotifier;
use crier_runtime::error::{explain, explain_schema};
use crier_runtime::{OnMissing, StartError, check_plans, open_store};
use crier_store::{Store, StoreError, secret_keys, server};

use super::Finding;

pub async fn database(config: &Config) -> (Finding, Option<Store>) {
    match open(config).await {
        Ok((store, version)) => {
            let place = match &config.database {
                Database::Sqlite(path) => path.display().to_string(),
                Database::Postgres(_) => "CRIER_DATABASE_URL".to_owned(),
            };
            (Finding::ok("database", format!("{version} ({place})")), Some(store))
        }
        Err(error) => {
            let error = error.explain(&config.database);
            (Finding::failure("database", error.to_string(), "see docs/operations.md, \"Errors at the start\""), None)
        }
    }
}

async fn open(config: &Config) -> Result<(Store, String), StartError> {
    let (store, _) = open_store(config, Arc::new(NoopNotifier), OnMissing::Refuse).await?;
    store.db().probe().await?;
    let version = server::version(&mut store.read().await?).await?;
    Ok((store, version))
}

pub async fn schema(store: &Store) -> Finding {
    match store.db().check_schema_version().await {
        Ok(()) => Finding::ok("schema", "current"),
        Err(error) => {
            let detail = explain_schema(&error).unwrap_or_else(|| error.to_string());
            Finding::failure("schema", detail, "run `crier migrate`")
        }
    }
}

pub async fn secret_key(config: &Config, store: &Store) -> Finding {
    match secret_keys::check(store).await {
        Ok(None) => Finding::ok("secret_key", "decrypts the secrets in the database"),
        Ok(Some(problem)) => {
            let (secret_keys::KeyProblem::Missing(id) | secret_keys::KeyProblem::Wrong(id)) = problem;
            let detail = format!("does not decrypt the secrets in the database, which require key {id}");
            let file = crier_config::key_file(&config.data_dir);
            let remedy =
                format!("restore {} from a backup, or set CRIER_SECRET_KEY to the previous key", file.display());
            Finding::failure("secret_key", detail, remedy)
        }
        Err(error) => Finding::failure("secret_key", text(&error, config), "run `crier migrate`"),
    }
}

pub async fn plans(config: &Config, store: &Store) -> Finding {
    let place = config.plans_file.as_ref().map_or("built in".to_owned(), |path| path.display().to_string());
    match check_plans(store, config).await {
        Ok(()) => Finding::ok("plans", format!("{} ({place})", config.plans.iter().count())),
        Err(StartError::Invalid(detail)) => Finding::failure("plans", detail, "correct CRIER_PLANS_FILE"),
        Err(error) => Finding::failure("plans", error.explain(&config.database).to_string(), "run `crier migrate`"),
    }
}

pub(super) fn text(error: &StoreError, config: &Config) -> String {
    explain(error, &config.database).unwrap_or_else(|| error.to_string())
}
