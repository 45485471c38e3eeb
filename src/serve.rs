//! All three roles in one process.

use std::process::ExitCode;

use crier_common::config::Config;
use crier_common::process::{self, Process, StartError};

use crate::first_start;

pub fn run(config: Config) -> ExitCode {
    process::run(config, |process| async move { all(&process).await })
}

/// Until one stops; the others follow.
async fn all(process: &Process) -> Result<(), StartError> {
    let welcome = first_start::prepare(&process.store, &process.config).await?;
    let api = async {
        crier_api::serve(process, || {
            if let Some(key) = &welcome {
                first_start::welcome(&process.config, key);
            }
        })
        .await
    };
    let ended = tokio::join!(
        stop_after(process, api),
        stop_after(process, crier_worker::serve(process)),
        stop_after(process, crier_scheduler::serve(process)),
    );
    ended.0.and(ended.1).and(ended.2)
}

/// A role that ends, for whatever reason, ends the process: half a service would look alive and lose work.
async fn stop_after(process: &Process, role: impl Future<Output = Result<(), StartError>>) -> Result<(), StartError> {
    let ended = role.await;
    process.stop.cancel();
    ended
}
