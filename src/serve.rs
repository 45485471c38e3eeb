//! All three roles in one process.

use std::process::ExitCode;

use crier_config::Config;
use crier_runtime::{self as process, Process, StartError};
use tokio::sync::oneshot;

use crate::first_start;

pub fn run(config: Config) -> ExitCode {
    process::run(config, |process| async move { run_roles(&process).await })
}

/// Runs all roles until one stops, then stops the others.
async fn run_roles(process: &Process) -> Result<(), StartError> {
    first_start::prepare(&process.store, &process.config).await?;
    let (listening_tx, listening_rx) = oneshot::channel();
    // Not sent if the address is in use, because another process may have it.
    let api = crier_api::serve(process, || listening_tx.send(()).unwrap_or_default());
    let welcome = async {
        if listening_rx.await.is_ok() {
            first_start::welcome(&process.store, &process.config).await;
        }
    };
    let ended = tokio::join!(
        stop_after(process, api),
        stop_after(process, crier_worker::serve(process)),
        stop_after(process, crier_scheduler::serve(process)),
        welcome,
    );
    ended.0.and(ended.1).and(ended.2)
}

/// Stops the process when a role ends for any reason, because a partial service would look healthy and lose work.
async fn stop_after(process: &Process, role: impl Future<Output = Result<(), StartError>>) -> Result<(), StartError> {
    let ended = role.await;
    process.stop.cancel();
    ended
}
