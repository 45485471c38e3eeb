//! What the process holds: idle, with many jobs pending, and while it runs them.

use std::time::Duration;

use crier_common::domain::job::{Kind, State};
use crier_common::store::bench::{fill, tidy};
use crier_common::store::jobs::operate;

use super::crew::{self, Crew};
use super::figure::Figure;
use super::starts::Starts;
use super::{Bench, Figures, resident};

const NAME: &str = "memory";
const JOBS: usize = 100_000;
/// Until the scheduler has seen what there is.
const LOOK: Duration = Duration::from_millis(1_500);

pub async fn run(bench: &Bench) -> Figures {
    let place = bench.fresh().await?;
    let count = bench.jobs(JOBS);
    let starts = Starts::of(0, count, place.api().now());
    let crew = Crew::start(bench, &place, Kind::Noop, usize::from(bench.args.slots), &starts)?;
    tokio::time::sleep(LOOK).await;
    let mut figures = Vec::new();
    figures.extend(Figure::size(NAME, "idle", resident::now()));
    // As an operator would hold them back. Their bell was rung an hour ago, and nobody heard.
    let mut tx = place.api_of_the_past().begin().await?;
    operate::pause_kind(&mut tx, Kind::Noop).await?;
    let due = tx.now;
    fill(&mut tx, Kind::Noop, State::Ready, 0..i64::try_from(count).unwrap_or(i64::MAX), due).await?;
    tx.commit().await?;
    tidy(place.api().db()).await?;
    tokio::time::sleep(LOOK).await;
    figures.extend(Figure::size(NAME, format!("{count} jobs pending"), resident::now()));
    resident::forget_peak();
    let mut tx = place.api().begin().await?;
    operate::resume_kind(&mut tx, Kind::Noop).await?;
    tx.commit().await?;
    starts.wait(count).await?;
    crew::settled(place.api()).await?;
    figures.extend(Figure::size(NAME, "while they run, peak", resident::peak()));
    crew.stop().await;
    Ok(figures)
}
