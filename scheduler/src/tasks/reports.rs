//! Exports reports whose schedule is due, and deletes files whose time is over.
//!
//! What is due is in the schedules' rows, claimed under their locks, so any number of schedulers may run. The export
//! and the time of the next one are written together: a schedule that was due while nothing ran fires once.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use crier_common::cron::CronSchedule;
use crier_common::domain::analytics::zone;
use crier_common::domain::plan::Feature;
use crier_common::domain::report_schedule::local_day;
use crier_common::reports;
use crier_common::store::report_deliveries::{self, NewDelivery};
use crier_common::store::report_schedules::{self, DueSchedule};
use crier_common::store::{Result, Tx};

use crate::Scheduler;

const BATCH: i64 = 50;
const BATCHES: usize = 10;
/// How many times of a schedule are looked at, to find the last that was missed.
const MAX_MISSED: usize = 1_000;
/// When a schedule whose expression can no longer be read is looked at again.
const UNREADABLE: TimeDelta = TimeDelta::days(1);

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    let batch = BATCH.unsigned_abs() as usize;
    for _ in 0..BATCHES {
        let mut tx = s.store.begin().await?;
        let due = report_schedules::due(&mut tx, BATCH).await?;
        for one in &due {
            fire(s, &mut tx, one).await?;
        }
        tx.commit().await?;
        if due.len() < batch {
            break;
        }
    }
    for _ in 0..BATCHES {
        let mut tx = s.store.begin().await?;
        let expired = report_deliveries::expire_files(&mut tx, BATCH).await?;
        tx.commit().await?;
        if expired < BATCH.unsigned_abs() {
            break;
        }
    }
    Ok(None)
}

/// Enqueues the export of a schedule that is due, and moves it to its next time. An export is left out while the one
/// before has not ended, and while the plan has no reports.
async fn fire(s: &Scheduler, tx: &mut Tx, due: &DueSchedule) -> Result<()> {
    let schedule = &due.schedule;
    let Some(times) = RunTimes::of(due, tx.now) else {
        tracing::error!(schedule = schedule.id, "the time of a report's schedule cannot be computed; it waits a day");
        return report_schedules::advance(tx, schedule.id, tx.now + UNREADABLE, false).await;
    };
    let is_allowed = s.plans.get(&due.plan).is_some_and(|plan| plan.has(Feature::Reports));
    if is_allowed && !due.is_busy {
        let (starts_on, ends_on) = schedule.frequency.covers(local_day(times.last_due, zone(Some(&due.timezone))));
        let new = NewDelivery {
            report_id: schedule.report_id,
            brand_id: due.brand_id,
            schedule_id: Some(schedule.id),
            format: schedule.format,
            starts_on,
            ends_on,
        };
        reports::enqueue(tx, due.workspace_id, &new, &schedule.recipients, None).await?;
    } else {
        tracing::info!(schedule = schedule.id, busy = due.is_busy, "a report's schedule is passed over this time");
    }
    report_schedules::advance(tx, schedule.id, times.next, is_allowed && !due.is_busy).await
}

/// The times around now at which a schedule runs.
struct RunTimes {
    /// The last that has come.
    last_due: DateTime<Utc>,
    /// The first that has not.
    next: DateTime<Utc>,
}

impl RunTimes {
    /// `None`: the expression cannot be read, or names no further day.
    fn of(due: &DueSchedule, now: DateTime<Utc>) -> Option<Self> {
        let schedule: CronSchedule = due.schedule.expression().parse().ok()?;
        let zone = zone(Some(&due.timezone));
        let next_after = |at: DateTime<Utc>| Some(schedule.next_after(&at.with_timezone(&zone))?.to_utc());
        let mut last_due = due.schedule.next_run_at;
        for _ in 0..MAX_MISSED {
            let next = next_after(last_due)?;
            if next > now {
                return Some(Self { last_due, next });
            }
            last_due = next;
        }
        Some(Self { last_due: now, next: next_after(now)? })
    }
}
