//! One worker process: `crier-bench worker`, which `crier-bench replicas` starts.
//!
//! It uses the environment that its parent process created. The parent passes the database and Redis as configuration
//! keys, and the rest in the variables below. Without these the worker does not run, so that nobody starts it on an
//! installation by mistake.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use crier_config::{Config, Database};
use crier_domain::job::JobKind;
use crier_runtime::descriptors;
use crier_worker::jobs::Registry;
use tokio_util::sync::CancellationToken;

use super::super::environment::SharedEnvironment;
use super::super::roles::{self, BenchRoles};
use super::super::{BenchError, Result, fail, io, prepare};

/// The prefix of the keys in Redis.
pub const PREFIX: &str = "BENCH_WORKER_PREFIX";
/// The directory of the media library.
pub const FILES: &str = "BENCH_WORKER_FILES";
/// The line that the worker prints when it is ready to start.
pub const READY: &str = "ready";

#[derive(Args, Debug, Clone)]
pub struct BenchWorker {
    /// The kind of jobs to run.
    #[arg(long)]
    pub kind: JobKind,
    /// The number of jobs to run concurrently.
    #[arg(long)]
    pub slots: u16,
}

/// Runs until stdin is closed.
pub fn run(config: Config, args: &BenchWorker) -> Result {
    let environment = shared_environment(&config)?;
    let runtime = prepare(&config)?;
    descriptors::raise();
    runtime.block_on(work(&config, &environment, args))
}

async fn work(config: &Config, environment: &SharedEnvironment, args: &BenchWorker) -> Result {
    let stop = CancellationToken::new();
    let (store, notifier, library) = environment.open(stop.clone()).await?;
    let registry = Registry::of([(args.kind, roles::job_on(config, &store, &library, args.kind)?)]);
    print_line(READY)?;
    if read_line().await {
        let roles = BenchRoles::worker_on(&store, notifier, registry, args.slots.into())?;
        while read_line().await {}
        roles.stop().await;
    }
    stop.cancel();
    store.db().close().await;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the parent process sets these; they are no configuration")]
fn shared_environment(config: &Config) -> std::result::Result<SharedEnvironment, BenchError> {
    match (&config.database, &config.redis_url, std::env::var(PREFIX), std::env::var_os(FILES)) {
        (Database::Postgres(database), Some(redis), Ok(prefix), Some(files)) => Ok(SharedEnvironment {
            database: database.clone(),
            redis: redis.clone(),
            prefix,
            files: PathBuf::from(files),
        }),
        _ => fail("only `crier-bench replicas` can start this worker"),
    }
}

fn print_line(line: &str) -> Result {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).map_err(|error| io("the output", error))
}

/// Waits for a line from the parent process. Returns false if the parent has closed stdin or has ended.
async fn read_line() -> bool {
    let read = || std::io::stdin().read_line(&mut String::new());
    matches!(tokio::task::spawn_blocking(read).await, Ok(Ok(length)) if length > 0)
}
