//! Waits for a database that is not reachable yet: services may start in any order.

use std::time::Duration;

use crier_base::backoff::{self, ExponentialBuilder, Pauses};
use crier_config::Config;
use crier_store::{Store, StoreError};
use crier_telemetry::logs::Repeat;
use tokio_util::sync::CancellationToken;

use super::error::{explain, explain_schema, is_permanent};
use super::{ProcessRole, StartError};

/// The pauses between attempts to reach the database.
const RETRIES: ExponentialBuilder = backoff::exponential(Duration::from_millis(100), Duration::from_secs(1));

/// Waits for a current schema. `crier` migrates the database itself; the separate processes wait for `crier migrate`.
/// Errors that waiting does not resolve, such as a wrong password or a missing database, end it immediately.
pub(super) async fn for_schema(config: &Config, store: &Store, stop: &CancellationToken) -> Result<(), StartError> {
    let (mut pauses, mut repeat) = (Pauses::new(RETRIES), Repeat::default());
    loop {
        let error = match attempt(config, store).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let waits = config.role.is_separate() || error.is_unavailable();
        if !waits || is_permanent(&error) {
            return Err(error.into());
        }
        if repeat.is_due() {
            let cause = match explain_schema(&error) {
                Some(cause) => format!("{cause}; run `crier migrate`"),
                None => explain(&error, &config.database).unwrap_or_else(|| error.to_string()),
            };
            tracing::warn!("waiting for the database: {cause}");
        }
        tokio::select! {
            () = tokio::time::sleep(pauses.next_pause()) => {}
            () = stop.cancelled() => return Err(StartError::Stopped),
        }
    }
}

async fn attempt(config: &Config, store: &Store) -> Result<(), StoreError> {
    store.db().probe().await?;
    match config.role {
        ProcessRole::Crier => store.db().migrate().await,
        _ => store.db().check_schema_version().await,
    }
}
