//! One worker process: `crier-bench worker`, which `crier-bench replicas` starts.
//!
//! It works in the place of the process that started it, which sets its environment: database and Redis as the
//! configuration reads them, and the variables below. Without these it refuses to run, so that it is not started on an
//! installation by mistake.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;
use crier_config::{Config, Database};
use crier_domain::job::JobKind;
use crier_runtime::descriptors;
use crier_worker::jobs::Registry;
use tokio_util::sync::CancellationToken;

use super::super::place::SharedPlace;
use super::super::roles::{self, BenchRoles};
use super::super::{BenchError, Result, io, prepare, refused};

/// The prefix of the keys in Redis.
pub const PREFIX: &str = "BENCH_WORKER_PREFIX";
/// The directory of the media library.
pub const FILES: &str = "BENCH_WORKER_FILES";
/// The line that says that it waits for the start.
pub const READY: &str = "ready";

#[derive(Args, Debug, Clone)]
pub struct BenchWorker {
    /// The kind of jobs that it runs.
    #[arg(long)]
    pub kind: JobKind,
    /// How many of them it runs at once.
    #[arg(long)]
    pub slots: u16,
}

/// Runs until its input is closed.
pub fn run(config: Config, args: &BenchWorker) -> Result {
    let place = place(&config)?;
    let runtime = prepare(&config)?;
    descriptors::raise();
    runtime.block_on(work(&config, &place, args))
}

async fn work(config: &Config, place: &SharedPlace, args: &BenchWorker) -> Result {
    let stop = CancellationToken::new();
    let (store, notifier, library) = place.open(stop.clone()).await?;
    let registry = Registry::of([(args.kind, roles::job_on(config, &store, &library, args.kind)?)]);
    say(READY)?;
    if next_line().await {
        let roles = BenchRoles::worker_on(&store, notifier, registry, args.slots.into())?;
        while next_line().await {}
        roles.stop().await;
    }
    stop.cancel();
    store.db().close().await;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "no configuration of a service: the parent process sets them")]
fn place(config: &Config) -> std::result::Result<SharedPlace, BenchError> {
    match (&config.database, &config.redis_url, std::env::var(PREFIX), std::env::var_os(FILES)) {
        (Database::Postgres(database), Some(redis), Ok(prefix), Some(files)) => {
            Ok(SharedPlace { database: database.clone(), redis: redis.clone(), prefix, files: PathBuf::from(files) })
        }
        _ => refused("only `crier-bench replicas` can start this worker"),
    }
}

fn say(line: &str) -> Result {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).map_err(|error| io("the output", error))
}

/// Waits for a line of the parent process; `false`: the parent has closed the input, or has ended.
async fn next_line() -> bool {
    let read = || std::io::stdin().read_line(&mut String::new());
    matches!(tokio::task::spawn_blocking(read).await, Ok(Ok(length)) if length > 0)
}
