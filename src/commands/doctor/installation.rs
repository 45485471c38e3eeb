//! The database and its contents.

use std::sync::Arc;

use crier_config::{Config, Database};
use crier_domain::job::NoopNotifier;
use crier_runtime::error::{explain, explain_schema};
use crier_runtime::{OnMissing, StartError, check_plans, explain_keys, open_store};
use crier_store::{Store, StoreError, secret_keys, server};

use super::{Finding, SEE_ERRORS};

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
            (Finding::failure("database", error.to_string(), SEE_ERRORS), None)
        }
    }
}

async fn open(config: &Config) -> Result<(Store, String), StartError> {
    let (store, _) = open_store(config, Arc::new(NoopNotifier), OnMissing::Fail).await?;
    store.db().probe().await?;
    let version = server::version(&mut store.read().await?).await?;
    Ok((store, version))
}

/// Returns the store for the checks that need the schema, if it is current: without it, each of them would report the same
/// error.
pub async fn schema<'s>(config: &Config, store: &'s Store) -> (Finding, Option<&'s Store>) {
    let Err(error) = store.db().check_schema_version().await else {
        return (Finding::ok("schema", "current"), Some(store));
    };
    let finding = match explain_schema(&error) {
        Some(cause) => Finding::failure(
            "schema",
            format!("the database is not ready ({cause})"),
            "run `crier migrate`, then `crier doctor` again; the checks that need the schema were skipped",
        ),
        None => Finding::failure("schema", text(&error, config), SEE_ERRORS),
    };
    (finding, None)
}

pub async fn secret_key(config: &Config, store: &Store) -> Finding {
    match secret_keys::check(store).await {
        Ok(None) => Finding::ok("secret_key", "decrypts the secrets in the database"),
        Ok(Some(problem)) => {
            let (detail, remedy) = explain_keys(config, problem);
            Finding::failure("secret_key", detail, remedy)
        }
        Err(error) => Finding::failure("secret_key", text(&error, config), SEE_ERRORS),
    }
}

pub async fn plans(config: &Config, store: &Store) -> Finding {
    let place = config.plans_file.as_ref().map_or("built in".to_owned(), |path| path.display().to_string());
    match check_plans(store, config).await {
        Ok(()) => Finding::ok("plans", format!("{} ({place})", config.plans.iter().count())),
        Err(StartError::Invalid(detail)) => Finding::failure("plans", detail, "correct CRIER_PLANS_FILE"),
        Err(error) => Finding::failure("plans", error.explain(&config.database).to_string(), SEE_ERRORS),
    }
}

pub(super) fn text(error: &StoreError, config: &Config) -> String {
    explain(error, &config.database).unwrap_or_else(|| error.to_string())
}
