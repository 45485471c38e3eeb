//! Memory of the process: idle, with a backlog, and while it processes the backlog.

use std::time::Duration;

use crier_domain::job::JobKind;
use crier_store::Store;
use crier_store::jobs::operate;

use super::database::run_maintenance;
use super::environment::BenchEnvironment;
use super::figure::Figure;
use super::roles::{self, BenchRoles};
use super::{Figures, Result, resident};

const NAME: &str = "memory";
/// Long enough for the scheduler to read the current state.
const SCHEDULER_DELAY: Duration = Duration::from_millis(1_500);

/// Measures the memory of the roles. `fill` writes jobs of the kind to a store; `done` waits until all have started.
pub async fn measure_memory(
    environment: &BenchEnvironment,
    kind: JobKind,
    roles: BenchRoles,
    pending: String,
    fill: impl AsyncFnOnce(Store) -> Result,
    done: impl AsyncFnOnce() -> Result,
) -> Figures {
    tokio::time::sleep(SCHEDULER_DELAY).await;
    let mut figures = Vec::new();
    figures.extend(Figure::size(NAME, "idle", resident::now()));
    // Pause the kind, as an operator would. The jobs look as if they were notified an hour ago and not claimed.
    let mut tx = environment.api().begin().await?;
    operate::pause_kind(&mut tx, kind).await?;
    tx.commit().await?;
    fill(environment.api_one_hour_behind()).await?;
    run_maintenance(environment.api().db()).await?;
    tokio::time::sleep(SCHEDULER_DELAY).await;
    figures.extend(Figure::size(NAME, pending, resident::now()));
    resident::reset_peak();
    let mut tx = environment.api().begin().await?;
    operate::resume_kind(&mut tx, kind).await?;
    tx.commit().await?;
    done().await?;
    roles::wait_until_settled(environment.api(), kind).await?;
    figures.extend(Figure::size(NAME, "while they run, peak", resident::peak()));
    roles.stop().await;
    Ok(figures)
}
