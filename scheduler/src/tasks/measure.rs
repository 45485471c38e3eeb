//! Counts rows for metrics: jobs by state, the oldest ready one, paused kinds, endpoints, files, uploads, accounts.
//!
//! A scrape returns the last counts. Counting takes time in proportion to the number of jobs (some tenths of a second
//! for a million), so the pause after it is proportional too: at most a hundredth of the time is spent on counting.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use crier_domain::account::AccountStatus;
use crier_domain::job::{JobKind, JobState};
use crier_domain::media::FileState;
use crier_domain::platform::Platform;
use crier_store::jobs::operate::{self, StateCount};
use crier_store::{Conn, Result, account_tokens, analytics, files, inbox_syncs, media_uploads, webhooks};
use crier_telemetry::metrics::{self, CountedState, EndpointState};

use crate::Scheduler;

/// The minimum pause between two counts: the interval of its ticks.
const TICK_INTERVAL: Duration = Duration::from_secs(10);
const SHARE: u32 = 100;

/// Returns how long to wait until the next count, if that is longer than `TICK_INTERVAL`.
pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    let began = Instant::now();
    let mut conn = s.store.read().await?;
    let overview = operate::overview(&mut conn).await?;
    let paused = operate::paused_kinds(&mut conn).await?;
    let files = files::totals(&mut conn).await?;
    let (active, inactive, disabled) = webhooks::counts(&mut conn).await?;
    for kind in JobKind::ALL {
        let of = |state| overview.iter().filter(move |group| group.kind == *kind && group.state == state);
        let jobs = |state| of(state).map(|group| count(group.jobs)).sum();
        let name = kind.as_str();
        metrics::jobs(name, CountedState::Scheduled, jobs(JobState::Scheduled));
        metrics::jobs(name, CountedState::Ready, jobs(JobState::Ready));
        metrics::jobs(name, CountedState::Running, jobs(JobState::Running));
        metrics::jobs(name, CountedState::Dead, jobs(JobState::Dead));
        metrics::jobs_oldest_ready(name, oldest_ready(&overview, *kind).map_or(Duration::ZERO, |at| age(s, at)));
        metrics::jobs_paused(name, paused.contains(kind));
    }
    metrics::webhook_endpoints(EndpointState::Active, count(active));
    metrics::webhook_endpoints(EndpointState::Inactive, count(inactive));
    metrics::webhook_endpoints(EndpointState::Disabled, count(disabled));
    for (state, number) in [
        (FileState::Reserved, files.reserved),
        (FileState::Stored, files.stored),
        (FileState::Deleting, files.deleting),
    ] {
        metrics::media_files(state, count(number));
    }
    metrics::media_bytes(count(files.bytes));
    let (uploads, reserved) = media_uploads::totals(&mut conn).await?;
    metrics::media_uploads(count(uploads), count(reserved));
    measure_accounts(s, &mut conn).await?;
    let pause = began.elapsed() * SHARE;
    Ok((pause > TICK_INTERVAL).then_some(pause))
}

async fn measure_accounts(s: &Scheduler, conn: &mut Conn) -> Result<()> {
    let (synced, due) = (inbox_syncs::oldest(conn, &s.plans).await?, analytics::earliest_due(conn).await?);
    let (counts, ends) = (account_tokens::counts(conn).await?, account_tokens::soonest_expirations(conn).await?);
    for platform in Platform::ALL {
        for status in AccountStatus::ALL {
            let found = counts.iter().find(|(p, s, _)| p == platform && s == status);
            metrics::accounts(platform.as_str(), *status, count(found.map_or(0, |(_, _, accounts)| *accounts)));
        }
        let end = ends.iter().find(|(p, _)| p == platform);
        metrics::account_token_expires(platform.as_str(), end.map(|(_, end)| *end - s.store.now()));
        let synced = synced.iter().filter(|(p, _)| p == platform).map(|(_, at)| *at).min();
        metrics::inbox_sync_age(platform.as_str(), synced.map_or_else(Default::default, |at| s.store.now() - at));
        let due = due.iter().find(|(p, _)| p == platform);
        metrics::analytics_age(platform.as_str(), due.map_or_else(Default::default, |(_, at)| s.store.now() - *at));
    }
    Ok(())
}

fn count(rows: i64) -> u64 {
    u64::try_from(rows).unwrap_or(0)
}

fn age(s: &Scheduler, at: DateTime<Utc>) -> Duration {
    (s.store.now() - at).to_std().unwrap_or_default()
}

/// Returns the due time of the oldest job that a free worker could claim. Jobs that wait for their lane do not count,
/// because more workers would not run them earlier.
fn oldest_ready(overview: &[StateCount], kind: JobKind) -> Option<DateTime<Utc>> {
    let ready = overview.iter().filter(|group| group.kind == kind && group.state == JobState::Ready && !group.waiting);
    ready.map(|group| group.oldest).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_wait_for_their_lane_are_not_ready_for_a_worker() {
        let at = |seconds| DateTime::UNIX_EPOCH + chrono::TimeDelta::seconds(seconds);
        let group = |kind, state, waiting, seconds| StateCount { kind, state, waiting, jobs: 1, oldest: at(seconds) };
        let overview = [
            group(JobKind::Noop, JobState::Ready, true, 1),
            group(JobKind::Noop, JobState::Ready, false, 5),
            group(JobKind::Noop, JobState::Running, false, 2),
            group(JobKind::SendMail, JobState::Ready, true, 3),
        ];
        assert_eq!(oldest_ready(&overview, JobKind::Noop), Some(at(5)));
        assert_eq!(oldest_ready(&overview, JobKind::SendMail), None);
    }
}
