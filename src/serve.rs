//! All three roles in one process.

use std::process::ExitCode;

use crier_common::config::Config;
use crier_common::process::{self, Process, StartError};

use tokio::sync::oneshot;

use crate::first_start;

pub fn run(config: Config) -> ExitCode {
    process::run(config, |process| async move { all(&process).await })
}

/// Until one stops; the others follow.
async fn all(process: &Process) -> Result<(), StartError> {
    first_start::prepare(&process.store, &process.config).await?;
    let (listens, listening) = oneshot::channel();
    // It is not sent where the address is taken: another process may be serving.
    let api = crier_api::serve(process, || listens.send(()).unwrap_or_default());
    let welcome = async {
        if listening.await.is_ok() {
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

/// A role that ends, for whatever reason, ends the process: half a service would look alive and lose work.
async fn stop_after(process: &Process, role: impl Future<Output = Result<(), StartError>>) -> Result<(), StartError> {
    let ended = role.await;
    process.stop.cancel();
    ended
}
