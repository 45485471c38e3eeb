//! The heartbeat: renews the leases of the jobs that run here.
//!
//! It has a thread, a runtime and a database connection of its own, so that a worker under full load, or one whose pool is
//! exhausted, still keeps what it holds. It goes on while draining.

use std::time::Duration;

use crier_common::store::jobs::engine as rows;
use crier_common::store::{Result, Store};
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;

/// Three beats fit into a lease, with room for a slow one.
const EVERY: Duration = Duration::from_secs(8);
/// After a beat that failed: several fit between two.
const AGAIN: Duration = Duration::from_secs(1);

/// Beats until `stop`. `open` makes the store on the heartbeat's own thread (a pool belongs to the runtime that made it).
pub fn start<F, Fut>(engine: Engine, open: F, stop: CancellationToken) -> std::io::Result<()>
where
    F: Fn() -> Fut + Send + 'static,
    Fut: Future<Output = Option<Store>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("heartbeat".into()).spawn(move || {
        runtime.block_on(async {
            tokio::select! { () = live(&engine, open) => {}, () = stop.cancelled() => {} }
        });
    })?;
    Ok(())
}

async fn live<F, Fut>(engine: &Engine, open: F)
where
    F: Fn() -> Fut,
    Fut: Future<Output = Option<Store>>,
{
    // Without a heartbeat each job longer than a lease would be run again: no failure ends the trying.
    let store = loop {
        match open().await {
            Some(store) => break store,
            None => tokio::time::sleep(AGAIN).await,
        }
    };
    let mut pause = EVERY;
    loop {
        tokio::time::sleep(pause).await;
        pause = match beat(engine, &store).await {
            Ok(_) => EVERY,
            Err(error) => {
                tracing::warn!(%error, jobs = engine.held().len(), "leases could not be renewed yet");
                AGAIN
            }
        };
    }
}

/// Renews the lease of each job that runs now; gives how many.
pub async fn beat(engine: &Engine, store: &Store) -> Result<u64> {
    let held = engine.held();
    if held.is_empty() {
        return Ok(0);
    }
    let mut tx = store.begin_soft().await?;
    let renewed = rows::heartbeat(&mut tx, &held, engine.worker()).await?;
    tx.commit().await?;
    Ok(renewed)
}
