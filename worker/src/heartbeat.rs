//! The heartbeat: renews the leases of the jobs that run here.
//!
//! It has a thread, a runtime and a database connection of its own, so that a worker under full load, or one whose pool is
//! exhausted, still keeps what it holds. It goes on while draining.

use std::time::Duration;

use crier_common::store::Store;
use crier_common::store::jobs::engine as rows;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;

/// Three beats fit into a lease, with room for a slow one.
const EVERY: Duration = Duration::from_secs(8);

/// Beats until `stop`. `open` makes the store on the heartbeat's own thread (a pool belongs to the runtime that made it).
pub fn start(
    engine: Engine,
    open: impl Future<Output = Option<Store>> + Send + 'static,
    stop: CancellationToken,
) -> std::io::Result<()> {
    std::thread::Builder::new().name("heartbeat".into()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        match runtime {
            Ok(runtime) => runtime.block_on(async {
                if let Some(store) = open.await {
                    tokio::select! { () = beat(&engine, &store) => {}, () = stop.cancelled() => {} }
                    store.db().close().await;
                }
            }),
            Err(error) => tracing::error!(%error, "no heartbeat: jobs longer than a lease will be run again"),
        }
    })?;
    Ok(())
}

async fn beat(engine: &Engine, store: &Store) {
    loop {
        tokio::time::sleep(EVERY).await;
        let held = engine.held();
        if held.is_empty() {
            continue;
        }
        let renewed = async {
            let mut tx = store.begin().await?;
            let renewed = rows::heartbeat(&mut tx, &held, engine.worker()).await?;
            tx.commit().await?;
            Ok::<_, crier_common::store::StoreError>(renewed)
        };
        if let Err(error) = renewed.await {
            tracing::warn!(%error, jobs = held.len(), "leases could not be renewed yet");
        }
    }
}
