//! `crier-bench`: measures this version on this machine.
//!
//! The real roles, store and notifier run in this process; only the workers of `replicas` have processes of their own.
//! Clients and endpoints do as little as possible. Each measurement has a new database, which is deleted at the end,
//! also after Ctrl-C and after an error. Compare figures only with others from the same machine.
//!
//! **To add a subcommand:** add its arguments in `args.rs`, a folder here with a [`Suite`], an arm in [`run`], and a file
//! with its figures in `tests/bench`. The folders describe how to add a measurement.

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::Arc;

use crier_base::permissions;
use crier_config::{Config, LogConfig, ProcessRole};
use crier_domain::job::JobKind;
use crier_domain::platform::Platform;
use crier_runtime::error::print;
use crier_runtime::{StartError, interrupted};
use crier_store::StoreError;
use crier_telemetry::{logs, metrics};
use futures::FutureExt;
use indicatif::ProgressBar;
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

mod analytics;
mod api;
mod args;
mod buffered_notifier;
mod cli;
mod connection;
mod cost;
mod cpu;
mod database;
mod due_posts;
mod environment;
mod export;
mod external_runtime;
mod figure;
mod inbox;
mod jobs;
mod media;
mod memory;
mod pages;
mod posts;
mod recurring;
mod replicas;
mod reports;
mod requests;
mod resident;
mod roles;
mod sample_text;
mod sandbox_accounts;
mod service;
mod webhooks;

use args::{BenchCommand, BenchOptions};
use environment::{BenchEnvironment, EnvironmentConfig};
use figure::Figure;

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// What is wrong, and how to fix it.
    #[error("{0}")]
    Failed(String),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("the database: {0}")]
    Store(#[from] StoreError),
}

pub type Result = std::result::Result<(), BenchError>;

fn fail<T>(why: impl Into<String>) -> std::result::Result<T, BenchError> {
    Err(BenchError::Failed(why.into()))
}

type Figures = std::result::Result<Vec<Figure>, BenchError>;

/// The arguments of a subcommand, which select and run its measurements.
trait Suite: Sized {
    fn options(&self) -> &BenchOptions;

    async fn measure(bench: &Bench<Self>) -> Figures;
}

/// Shared state of all measurements.
struct Bench<A> {
    config: Config,
    args: A,
    environment_config: EnvironmentConfig,
    progress: ProgressBar,
    /// The environment of the current measurement.
    environment: Arc<Mutex<Option<Arc<BenchEnvironment>>>>,
}

fn main() -> ExitCode {
    permissions::set_umask();
    let (command, source) = cli::parse();
    let config = match Config::load(&source, ProcessRole::Crier) {
        Ok(config) => config,
        Err(error) => return error.exit(),
    };
    match run(config, command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(BenchError::Start(error)) => error.exit(),
        Err(error) => {
            print(error);
            ExitCode::FAILURE
        }
    }
}

/// Runs a subcommand, and prints its figures.
fn run(config: Config, command: BenchCommand) -> Result {
    match command {
        BenchCommand::Jobs(args) => run_suite(config, args),
        BenchCommand::Webhooks(args) => run_suite(config, args),
        BenchCommand::Media(args) => run_suite(config, args),
        BenchCommand::Pages(args) => run_suite(config, args),
        BenchCommand::Inbox(args) => run_suite(config, args),
        BenchCommand::Posts(args) => run_suite(config, args),
        BenchCommand::Analytics(args) => run_suite(config, args),
        BenchCommand::Recurring(args) => run_suite(config, args),
        BenchCommand::Reports(args) => run_suite(config, args),
        BenchCommand::Export(args) => run_suite(config, args),
        BenchCommand::Cost(args) => run_suite(config, args),
        BenchCommand::Requests(args) => run_suite(config, args),
        BenchCommand::Replicas(args) => run_suite(config, args),
        BenchCommand::Worker(args) => replicas::worker::run(config, &args),
    }
}

fn run_suite<A: Suite>(config: Config, args: A) -> Result {
    let runtime = prepare(&config)?;
    let environment_config = EnvironmentConfig::of(&config, args.options().dir.clone())?;
    runtime.block_on(async {
        let bench = Bench {
            config,
            args,
            environment_config,
            progress: ProgressBar::new_spinner(),
            environment: Arc::default(),
        };
        let measured = tokio::select! {
            measured = AssertUnwindSafe(A::measure(&bench)).catch_unwind() => measured,
            interrupted = interrupted() => Ok(interrupted.map_err(Into::into).and_then(|()| fail("interrupted"))),
        };
        bench.progress.set_message("clearing up");
        let cleared = bench.clear().await;
        bench.progress.finish_and_clear();
        match (measured.unwrap_or_else(|_| fail("a measurement panicked")), cleared) {
            (Err(error), Err(left)) => fail(format!("{error}; {left}")),
            (Err(error), Ok(())) => Err(error),
            (Ok(figures), cleared) => {
                figure::print(&figures, bench.args.options().json);
                cleared
            }
        }
    })
}

/// Initializes logs and metrics, and returns a runtime like that of a service.
fn prepare(config: &Config) -> std::result::Result<Runtime, BenchError> {
    // Messages of the engine (worker drains, slow statement) would clutter the output.
    logs::init(&LogConfig { filter: "warn,sqlx=error".to_owned(), ..config.log.clone() });
    let kinds: Vec<&str> = JobKind::ALL.iter().map(|kind| kind.as_str()).collect();
    let platforms: Vec<&str> = Platform::ALL.iter().map(|platform| platform.as_str()).collect();
    metrics::init(config.role, &kinds, &platforms);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| io("the runtime", error))
}

fn io(what: &str, error: std::io::Error) -> BenchError {
    BenchError::Failed(format!("{what}: {error}"))
}

impl<A: Suite> Bench<A> {
    /// Runs the selected measurements in order and returns their figures; an empty selection means all.
    async fn each<M>(&self, all: &[M], only: &[M], measure: impl AsyncFn(M) -> Figures) -> Figures
    where
        M: Copy + PartialEq + std::fmt::Display,
    {
        let mut figures = Vec::new();
        for measurement in all.iter().filter(|one| only.is_empty() || only.contains(one)) {
            self.show_progress(measurement);
            figures.extend(measure(*measurement).await?);
        }
        Ok(figures)
    }

    /// Shows the current step; only on a terminal.
    fn show_progress(&self, what: impl std::fmt::Display) {
        self.progress.set_message(what.to_string());
        self.progress.tick();
    }

    /// Creates an empty database with its notifier, and deletes the previous one.
    async fn create_environment(&self) -> std::result::Result<Arc<BenchEnvironment>, BenchError> {
        self.clear().await?;
        let mut current = self.environment.clone().lock_owned().await;
        let config = self.environment_config.clone();
        // In a separate task, because a cancelled one could leave a database that nothing deletes.
        let opened = tokio::spawn(async move {
            let environment = current.insert(Arc::new(BenchEnvironment::prepare(config)?)).clone();
            environment.open().await?;
            Ok(environment)
        });
        opened.await.unwrap_or_else(|_| fail("a database could not be made"))
    }

    async fn clear(&self) -> Result {
        match self.environment.lock().await.take() {
            Some(environment) => environment.close().await,
            None => Ok(()),
        }
    }

    /// Returns the number of jobs that the worker runs concurrently.
    fn slots(&self) -> usize {
        usize::from(self.args.options().slots)
    }
}
