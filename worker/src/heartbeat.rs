//! The heartbeat: renews the leases of this worker's running jobs.
//!
//! It has its own thread, runtime and database connection, so that a worker under full load, or with an exhausted pool,
//! keeps its leases. It continues while the worker drains.

use std::time::Duration;

use crier_base::backoff::{self, ExponentialBuilder, Pauses};
use crier_store::jobs::engine as rows;
use crier_store::{Db, Result, Store};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;

/// Three heartbeats fit into a lease, with room for a slow one.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(8);
/// How long a heartbeat may take on Postgres. The next one uses another connection, and is still in time for the lease.
const POSTGRES_TIMEOUT: Duration = Duration::from_secs(8);
/// How long a heartbeat may take on SQLite, whose writers take turns: as long as the lease permits, because a heartbeat
/// that began again would wait behind the writers that have come since.
const SQLITE_TIMEOUT: Duration = Duration::from_secs(21);
/// The pauses after failed heartbeats: several retries fit between two heartbeats.
const RETRIES: ExponentialBuilder = backoff::exponential(Duration::from_millis(250), Duration::from_secs(1));

/// Runs the heartbeat until `stop`. `open` opens the store on the heartbeat's own thread, because a pool belongs to the
/// runtime that created it.
pub fn start<F, Fut>(engine: Engine, open: F, stop: CancellationToken) -> std::io::Result<()>
where
    F: Fn() -> Fut + Send + 'static,
    Fut: Future<Output = Option<Store>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("heartbeat".into()).spawn(move || {
        runtime.block_on(async {
            tokio::select! { () = run_heartbeat(&engine, open) => {}, () = stop.cancelled() => {} }
        });
    })?;
    Ok(())
}

async fn run_heartbeat<F, Fut>(engine: &Engine, open: F)
where
    F: Fn() -> Fut,
    Fut: Future<Output = Option<Store>>,
{
    let mut retries = Pauses::new(RETRIES);
    // Retries without limit: without a heartbeat, a job that takes longer than a lease would run again.
    let store = loop {
        match open().await {
            Some(store) => break store,
            None => tokio::time::sleep(retries.next_pause()).await,
        }
    };
    let mut pause = HEARTBEAT_INTERVAL;
    loop {
        tokio::time::sleep(pause).await;
        pause = match timeout(timeout_on(store.db()), renew_leases(engine, &store)).await {
            Ok(Ok(_)) => {
                retries.reset();
                HEARTBEAT_INTERVAL
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, jobs = engine.held().len(), "failed to renew leases; retrying");
                retries.next_pause()
            }
            Err(_) => {
                tracing::warn!(
                    jobs = engine.held().len(),
                    "the database did not respond to a renewal of leases; retrying"
                );
                retries.next_pause()
            }
        };
    }
}

fn timeout_on(db: &Db) -> Duration {
    match db {
        Db::Pg(_) => POSTGRES_TIMEOUT,
        Db::Sqlite { .. } => SQLITE_TIMEOUT,
    }
}

/// Renews the lease of each running job. Returns the number of renewed leases.
pub async fn renew_leases(engine: &Engine, store: &Store) -> Result<u64> {
    let held = engine.held();
    if held.is_empty() {
        return Ok(0);
    }
    let mut tx = store.begin_async_commit().await?;
    let renewed = rows::heartbeat(&mut tx, &held, engine.worker()).await?;
    tx.commit().await?;
    Ok(renewed)
}

#[cfg(test)]
mod tests {
    use crier_domain::job::LEASE;

    use super::*;

    #[test]
    fn a_slow_heartbeat_ends_before_the_lease() {
        let lease = LEASE.to_std().unwrap();
        assert!(HEARTBEAT_INTERVAL + POSTGRES_TIMEOUT * 2 < lease, "the second one is in time");
        assert!(HEARTBEAT_INTERVAL + SQLITE_TIMEOUT < lease);
        // Longer than the store waits for the turn of a writer.
        assert!(SQLITE_TIMEOUT > Duration::from_secs(20));
    }
}
