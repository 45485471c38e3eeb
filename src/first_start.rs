//! The first start on an empty database: creates a workspace with its owner. `crier` also creates a brand, and a key that
//! is shown once.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;

use chrono::TimeDelta;
use crier_config::Config;
use crier_runtime::{self as process, StartError};
use crier_store::operators::{self, OperatorChange};
use crier_store::{Store, StoreError, brands, keys, sessions, users};
use crier_telemetry::logs;
use secrecy::{ExposeSecret, SecretString};

use crate::output::{command_line, print_line, try_print_line};

/// The email address of the first user.
pub const OWNER: &str = "owner@localhost";
const PLAN: &str = "unlimited";
/// How long the sign-in link of the first start is valid.
const FIRST_LINK_LIFETIME: TimeDelta = TimeDelta::days(1);

/// Creates the records of a new installation, in one transaction. [`welcome`] creates the key when it can be shown.
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

/// Creates only the workspace and the user. Returns false if a user already exists.
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

async fn make_owner(tx: &mut crier_store::Tx, config: &Config) -> Result<(i64, i64), StoreError> {
    // If a custom plans file does not define `unlimited`, use its first plan.
    let plan = config.plans.get(PLAN).or_else(|| config.plans.iter().next()).map_or(PLAN, |p| p.name.as_str());
    let workspace = users::create_workspace(tx, "My workspace", plan).await?;
    let owner = users::create(tx, workspace, OWNER, "Owner").await?;
    if let Some(user) = users::find_by_email(tx, OWNER).await? {
        operators::change(tx, &user, OperatorChange::Added).await?;
    }
    Ok((workspace, owner))
}

/// Prints the URLs after the API has started to listen, and on the first start also the key. The key is recorded as shown
/// only after it was printed. If the process ends in between, the next start shows another key.
pub async fn welcome(store: &Store, config: &Config) {
    match show_key(store, config).await {
        Ok(true) => {}
        Ok(false) => Banner::of(config).show(),
        Err(error) => tracing::warn!(
            %error,
            "failed to show the first key; the next start shows one, or create one: crier key create --user {OWNER}"
        ),
    }
    if config.http.addr.ip().is_unspecified() && !config.has_public_url {
        tracing::warn!(
            "CRIER_PUBLIC_URL is not set, so links in responses begin with {}, which other machines cannot reach",
            config.absolute("")
        );
    }
}

#[derive(Debug, thiserror::Error)]
enum ShowKeyError {
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("stdout: {0}")]
    Stdout(#[from] std::io::Error),
}

/// Prints the key of a new installation. Returns false if it was shown before.
async fn show_key(store: &Store, config: &Config) -> Result<bool, ShowKeyError> {
    let mut tx = store.begin().await?;
    let Some((user_id, key)) = keys::create_first(&mut tx).await? else { return Ok(false) };
    let link = sessions::create_link(&mut tx, user_id, FIRST_LINK_LIFETIME).await?;
    tx.commit().await?;
    let link = config.absolute(&format!("/sign-in/{}", link.expose_secret())).into();
    Banner::of(config).show_with_key(&FirstAccess { key, link })?;
    let mut tx = store.begin().await?;
    keys::mark_first_key_shown(&mut tx).await?;
    tx.commit().await?;
    Ok(true)
}

/// The credentials that the first start shows once.
struct FirstAccess {
    key: SecretString,
    /// Signs the owner in to the console.
    link: SecretString,
}

/// The URLs of a running installation, and the commands for access to it.
#[derive(serde::Serialize)]
struct Banner {
    console: String,
    api: String,
    docs: String,
    /// `None` if the sandbox is disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox: Option<String>,
    /// The command that prints a sign-in link.
    #[serde(skip)]
    sign_in: String,
    /// The command that creates a key.
    #[serde(skip)]
    new_key: String,
    #[serde(skip)]
    is_json: bool,
}

impl Banner {
    fn of(config: &Config) -> Self {
        Self {
            console: config.absolute("/"),
            api: config.absolute("/api/public/v1"),
            docs: config.absolute("/docs"),
            sandbox: config.sandbox.then(|| config.absolute("/sandbox/demo")),
            sign_in: command_line(config, &format!("login --user {OWNER}")),
            new_key: command_line(config, &format!("key create --user {OWNER}")),
            is_json: logs::is_json(&config.log),
        }
    }

    fn urls(&self) -> String {
        let sandbox = self.sandbox.as_ref().map(|url| format!("  Sandbox   {url}\n")).unwrap_or_default();
        format!("  Console   {}\n  API       {}\n  Docs      {}\n{sandbox}", self.console, self.api, self.docs)
    }

    /// Shows the URLs without credentials, on later starts. With a JSON log they are an event of the log.
    fn show(&self) {
        if self.is_json {
            let Self { console, api, docs, sandbox, .. } = self;
            tracing::info!(console, api, docs, sandbox, "Crier is running");
            return;
        }
        print_line(format_args!(
            "\nCrier is running.\n\n{}  Sign in   {}\n  New key   {}\n",
            self.urls(),
            self.sign_in,
            self.new_key
        ));
    }

    /// The only output that contains the key and the link. It goes to stdout, not to the log. If stdout is the same file as
    /// a JSON log, it is a JSON object.
    fn show_with_key(&self, access: &FirstAccess) -> std::io::Result<()> {
        let (key, link) = (access.key.expose_secret(), access.link.expose_secret());
        if self.is_json && is_stdout_stderr() {
            let mut object = serde_json::json!(self);
            object["message"] = "Crier is running; the key and the link are shown only once".into();
            object["key"] = key.into();
            object["sign_in"] = link.into();
            return try_print_line(object);
        }
        try_print_line(format_args!(
            "\nCrier is running. Open this link in a browser to sign in. It works once and expires after a day:\n\n  {link}\n\n\
             {}  Your key  {key}   (shown only once; save it)\n\nTry it:\n\n  curl -H 'Authorization: Bearer {key}' {}/brands\n",
            self.urls(),
            self.api
        ))
    }
}

fn is_stdout_stderr() -> bool {
    let same = || -> std::io::Result<bool> { Ok(file_of(std::io::stdout())? == file_of(std::io::stderr())?) };
    same().unwrap_or(false)
}

/// Returns the device and the inode of a stream.
fn file_of(stream: impl AsFd) -> std::io::Result<(u64, u64)> {
    let metadata = File::from(stream.as_fd().try_clone_to_owned()?).metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}
