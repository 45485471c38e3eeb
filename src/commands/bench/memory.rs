//! Memory of the process: idle, with a backlog, and while it processes the backlog.

use std::time::Duration;

use crier_common::domain::job::Kind;
use crier_common::store::Store;
use crier_common::store::bench::tidy;
use crier_common::store::jobs::operate;

use super::crew::{self, Crew};
use super::figure::Figure;
use super::place::Place;
use super::{Figures, Result, resident};

const NAME: &str = "memory";
/// Long enough for the scheduler to read the current state.
const LOOK: Duration = Duration::from_millis(1_500);

/// Measures the crew. `fill` writes jobs of its kind to the given store; `done` waits until all of them have started.
pub async fn of(
    place: &Place,
    kind: Kind,
    crew: Crew,
    pending: String,
    fill: impl AsyncFnOnce(Store) -> Result,
    done: impl AsyncFnOnce() -> Result,
) -> Figures {
    tokio::time::sleep(LOOK).await;
    let mut figures = Vec::new();
    figures.extend(Figure::size(NAME, "idle", resident::now()));
    // Pause the kind as an operator would. The jobs look like ones that were notified an hour ago and not claimed.
    let mut tx = place.api().begin().await?;
    operate::pause_kind(&mut tx, kind).await?;
    tx.commit().await?;
    fill(place.api_of_the_past()).await?;
    tidy(place.api().db()).await?;
    tokio::time::sleep(LOOK).await;
    figures.extend(Figure::size(NAME, pending, resident::now()));
    resident::forget_peak();
    let mut tx = place.api().begin().await?;
    operate::resume_kind(&mut tx, kind).await?;
    tx.commit().await?;
    done().await?;
    crew::settled(place.api()).await?;
    figures.extend(Figure::size(NAME, "while they run, peak", resident::peak()));
    crew.stop().await;
    Ok(figures)
}
