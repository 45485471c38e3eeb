//! The first start on an empty database: a workspace, its owner, a brand, and (for `crier`) a key, shown once.

use crier_common::config::Config;
use crier_common::domain::access::{KeyMode, Scopes};
use crier_common::process::{self, StartError};
use crier_common::store::{Store, StoreError, brands, keys, users};
use secrecy::{ExposeSecret, SecretString};

use crate::output::line;

/// The user of a new installation.
pub const OWNER: &str = "owner@localhost";
const PLAN: &str = "unlimited";

/// Makes what a new installation needs, in one transaction; `Some` with the key the first time.
pub async fn prepare(store: &Store, config: &Config) -> Result<Option<SecretString>, StartError> {
    let mut tx = store.begin().await?;
    if !users::list(&mut tx).await?.is_empty() {
        return Ok(None);
    }
    let (workspace, owner) = make_owner(&mut tx, config).await?;
    let brand = brands::NewBrand { name: "My brand", description: None, website: None, timezone: "UTC" };
    brands::create(&mut tx, workspace, owner, None, brand).await?;
    let key = keys::create(&mut tx, owner, KeyMode::Live, &Scopes::all()).await?;
    tx.commit().await?;
    Ok(Some(key))
}

/// The workspace and the user alone; `false` where there is a user already.
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
    // A plans file of the operator's own need not have ours.
    let plan = config.plans.get(PLAN).or_else(|| config.plans.iter().next()).map_or(PLAN, |p| p.name.as_str());
    let workspace = users::create_workspace(tx, "My workspace", plan).await?;
    let owner = users::create(tx, workspace, OWNER, "Owner").await?;
    Ok((workspace, owner))
}

/// What the first start prints: the only time that the key is seen.
pub fn welcome(config: &Config, key: &SecretString) {
    let base = config.absolute("/api/public/v1");
    line(format_args!(
        "\nCrier is running.\n\n  API       {base}\n  Docs      {docs}\n  Your key  {key}   (shown this once; keep it)\n\nTry it:\n\n  curl -H 'Authorization: Bearer {key}' {base}/brands\n",
        docs = config.absolute("/docs"),
        key = key.expose_secret(),
    ));
}
