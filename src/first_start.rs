//! The first start on an empty database: creates a workspace and its owner and, for `crier`, a brand and a key that is
//! shown once.

use crier_common::config::Config;
use crier_common::process::{self, StartError};
use crier_common::store::{Store, StoreError, brands, keys, users};
use secrecy::{ExposeSecret, SecretString};

use crate::output::try_line;

/// Email address of a new installation's user.
pub const OWNER: &str = "owner@localhost";
const PLAN: &str = "unlimited";

/// Creates what a new installation needs, in one transaction. [`welcome`] creates the key once it can be shown.
pub async fn prepare(store: &Store, config: &Config) -> Result<(), StartError> {
    let mut tx = store.begin().await?;
    if !users::list(&mut tx).await?.is_empty() {
        return Ok(());
    }
    let (workspace, owner) = make_owner(&mut tx, config).await?;
    let brand = brands::NewBrand { name: "My brand", description: None, website: None, timezone: "UTC" };
    brands::create(&mut tx, workspace, owner, None, brand).await?;
    keys::require_first_key(&mut tx, owner).await?;
    tx.commit().await?;
    Ok(())
}

/// Creates only the workspace and the user. Returns `false` if a user already exists.
pub async fn migrate(store: &Store, config: &Config) -> Result<bool, StartError> {
    process::check_plans(store, config).await?;
    let mut tx = store.begin().await?;
    if !users::list(&mut tx).await?.is_empty() {
        return Ok(false);
    }
    make_owner(&mut tx, config).await?;
    tx.commit().await?;
    Ok(true)
}

async fn make_owner(tx: &mut crier_common::store::Tx, config: &Config) -> Result<(i64, i64), StoreError> {
    // A custom plans file may not define `unlimited`; use its first plan then.
    let plan = config.plans.get(PLAN).or_else(|| config.plans.iter().next()).map_or(PLAN, |p| p.name.as_str());
    let workspace = users::create_workspace(tx, "My workspace", plan).await?;
    let owner = users::create(tx, workspace, OWNER, "Owner").await?;
    Ok((workspace, owner))
}

/// Shows the key of a new installation once the API is listening. The key is recorded as shown only after it was
/// printed; if the process ends in between, the next start shows another key.
pub async fn welcome(store: &Store, config: &Config) {
    if let Err(error) = show_key(store, config).await {
        tracing::warn!(
            %error,
            "the first key could not be shown; the next start shows one, or make one: crier key create --user {OWNER}"
        );
    }
}

#[derive(Debug, thiserror::Error)]
enum ShowKeyError {
    #[error("the database: {0}")]
    Store(#[from] StoreError),
    #[error("stdout: {0}")]
    Stdout(#[from] std::io::Error),
}

async fn show_key(store: &Store, config: &Config) -> Result<(), ShowKeyError> {
    let mut tx = store.begin().await?;
    let Some(key) = keys::create_first(&mut tx).await? else { return Ok(()) };
    tx.commit().await?;
    try_line(text(config, &key))?;
    let mut tx = store.begin().await?;
    keys::mark_first_key_shown(&mut tx).await?;
    Ok(tx.commit().await?)
}

/// Returns the text of the first start, the only output that contains the key.
fn text(config: &Config, key: &SecretString) -> String {
    let base = config.absolute("/api/public/v1");
    format!(
        "\nCrier is running.\n\n  API       {base}\n  Docs      {docs}\n  Your key  {key}   (shown this once; keep it)\n\nTry it:\n\n  curl -H 'Authorization: Bearer {key}' {base}/brands\n",
        docs = config.absolute("/docs"),
        key = key.expose_secret(),
    )
}
