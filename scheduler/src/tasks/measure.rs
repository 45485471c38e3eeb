//! Counts for the metrics that describe the record: jobs by state, the oldest one ready, paused kinds, endpoints.

use std::collections::HashMap;
use std::time::Duration;

use crier_common::domain::job::{Kind, State};
use crier_common::store::jobs::operate;
use crier_common::store::{Result, webhooks};
use crier_common::telemetry::metrics::{self, EndpointState, JobState};

use crate::Scheduler;

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    let mut conn = s.store.read().await?;
    let counts = operate::counts(&mut conn).await?;
    let oldest: HashMap<Kind, _> = operate::oldest_ready(&mut conn).await?.into_iter().collect();
    let paused = operate::paused_kinds(&mut conn).await?;
    let (active, inactive, disabled) = webhooks::counts(&mut conn).await?;
    for kind in Kind::ALL {
        let of = |state: State| {
            counts
                .iter()
                .find(|(k, s, _)| k == kind && *s == state)
                .map_or(0, |(_, _, n)| u64::try_from(*n).unwrap_or(0))
        };
        let name = kind.as_str();
        metrics::jobs(name, JobState::Scheduled, of(State::Scheduled));
        metrics::jobs(name, JobState::Ready, of(State::Ready));
        metrics::jobs(name, JobState::Running, of(State::Running));
        metrics::jobs(name, JobState::Dead, of(State::Dead));
        let age = oldest.get(kind).map(|at| (s.store.now() - *at).to_std().unwrap_or_default());
        metrics::jobs_oldest_ready(name, age.unwrap_or_default());
        metrics::jobs_paused(name, paused.contains(kind));
    }
    metrics::webhook_endpoints(EndpointState::Active, u64::try_from(active).unwrap_or(0));
    metrics::webhook_endpoints(EndpointState::Inactive, u64::try_from(inactive).unwrap_or(0));
    metrics::webhook_endpoints(EndpointState::Disabled, u64::try_from(disabled).unwrap_or(0));
    Ok(None)
}
