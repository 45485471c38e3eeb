//! The operator's commands. Each works while the service runs, also on SQLite. It opens the same database, and the
//! scheduler notifies the workers of jobs that the command makes ready.

use std::process::ExitCode;
use std::sync::Arc;

use crier_config::{Config, ConfigSource, Database};
use crier_domain::brand::User;
use crier_domain::job::NoopNotifier;
use crier_runtime::error::{explain_schema, print};
use crier_runtime::{OnMissing, StartError, check_keys, data_dir, open_store};
use crier_store::{Store, StoreError, Tx, users};
use crier_telemetry::logs;

use crate::cli::{Command, Format, WebhooksCommand, WorkspaceCommand};

mod account;
mod app;
mod backup;
mod brand;
mod delete;
mod doctor;
mod jobs;
mod key;
mod login;
mod member;
mod migrate;
mod plan;
mod post;
pub mod reference;
mod storage;
mod user;
mod webhooks;

/// Shared state of the commands.
pub struct Context {
    pub config: Config,
    pub store: Store,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// What is wrong, and how to fix it.
    #[error("{0}")]
    Failed(String),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("{0}")]
    Store(#[from] StoreError),
}

pub type Result = std::result::Result<(), CommandError>;

/// Where to find the ID of a brand, for errors.
const BRAND_HINT: &str = "see `crier brand list`";

pub fn fail<T>(why: impl Into<String>) -> std::result::Result<T, CommandError> {
    Err(CommandError::Failed(why.into()))
}

fn no_user(email: &str) -> CommandError {
    CommandError::Failed(format!("there is no user {email}; see `crier user list`"))
}

async fn find_user(tx: &mut Tx, email: &str) -> std::result::Result<User, CommandError> {
    users::find_by_email(tx, email).await?.ok_or_else(|| no_user(email))
}

pub fn run(mut config: Config, command: Command) -> ExitCode {
    data_dir::use_running_addresses(&mut config);
    if let Command::Restore { file } = command {
        return backup::restore(config, &file);
    }
    in_runtime(config, |config| run_in(config, command))
}

/// Runs a command to its end; prints its error.
fn in_runtime<F, Fut>(config: Config, work: F) -> ExitCode
where
    F: FnOnce(Config) -> Fut,
    Fut: Future<Output = Result>,
{
    logs::init(&config.log);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return StartError::Io { what: "the runtime".into(), error }.exit(),
    };
    let database = config.database.clone();
    exit(runtime.block_on(work(config)).map_err(|error| match error {
        CommandError::Store(error) => CommandError::Start(StartError::Store(error).explain(&database)),
        CommandError::Start(error) => CommandError::Start(error.explain(&database)),
        other => other,
    }))
}

/// Opens the installation and runs the command in it.
async fn run_in(config: Config, command: Command) -> Result {
    let migrates = matches!(command, Command::Migrate);
    let on_missing = if migrates { OnMissing::Create } else { OnMissing::Fail };
    let (store, new_key) = open_store(&config, Arc::new(NoopNotifier), on_missing).await?;
    store.db().probe().await?;
    if migrates {
        match store.db().migrate().await {
            // Separate processes run on the schema of a newer version, so this is no error during a rollback.
            Err(error) if error.is_newer_schema() && matches!(config.database, Database::Postgres(_)) => {}
            migrated => migrated?,
        }
    } else if let Err(error) = store.db().check_schema_version().await {
        return match explain_schema(&error) {
            Some(cause) => fail(format!("the database is not ready ({cause}); run `crier migrate` first")),
            None => Err(error.into()),
        };
    }
    store.check_clock().await?;
    check_keys(&config, &store, new_key).await?;
    let cx = Context { config, store };
    let done = dispatch(&cx, command).await;
    cx.store.db().close().await;
    done
}

pub fn doctor(source: &ConfigSource, mut config: Config, format: Format) -> ExitCode {
    data_dir::use_running_addresses(&mut config);
    doctor::run(source, config, format)
}

pub fn webhooks(command: WebhooksCommand) -> ExitCode {
    let WebhooksCommand::Listen(args) = command;
    exit(webhooks::listen(args))
}

fn exit(done: Result) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(CommandError::Start(error)) => error.exit(),
        Err(error) => {
            print(error);
            ExitCode::FAILURE
        }
    }
}

async fn dispatch(cx: &Context, command: Command) -> Result {
    match command {
        // These run without an open installation: see `main` and [`run`].
        Command::Serve
        | Command::Webhooks(_)
        | Command::Doctor(_)
        | Command::Restore { .. }
        | Command::Config
        | Command::Completions { .. }
        | Command::Man { .. } => Ok(()),
        Command::Migrate => migrate::run(cx).await,
        Command::Backup { file } => backup::backup(cx, &file).await,
        Command::Resume(args) => backup::resume(cx, args).await,
        Command::Storage(command) => storage::run(cx, command).await,
        Command::User(command) => user::run(cx, command).await,
        Command::Brand(command) => brand::run(cx, command).await,
        Command::Workspace(WorkspaceCommand::Delete { id, options }) => delete::workspace(cx, id, options).await,
        Command::Member(command) => member::run(cx, command).await,
        Command::Login { user } => login::run(cx, &user).await,
        Command::Key(command) => key::run(cx, command).await,
        Command::Account(command) => account::run(cx, command).await,
        Command::App(command) => app::run(cx, command).await,
        Command::Plan(command) => plan::run(cx, command).await,
        Command::Post(command) => post::run(cx, command).await,
        Command::Jobs(command) => jobs::run(cx, command).await,
    }
}
