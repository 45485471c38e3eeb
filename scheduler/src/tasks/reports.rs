//! Exports reports whose schedule is due, and deletes files whose time is over.
//!
//! What is due is in the schedules' rows, claimed under their locks, so any number of schedulers may run. The export
//! and the time of the next one are written together: a schedule that was due while nothing ran fires once.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use crier_base::cron::CronSchedule;
use crier_domain::analytics::zone;
use crier_domain::plan::Feature;
use crier_domain::report_schedule::local_day;
use crier_jobs::reports;
use crier_store::report_deliveries::{self, NewDelivery};
use crier_store::report_schedules::{self, DueRow, DueSchedule};
use crier_store::{Result, Tx};

use crate::Scheduler;

const BATCH: i64 = 50;
const BATCHES: usize = 10;
/// How many times of a schedule are looked at, to find the last that was missed.
const MAX_MISSED: usize = 1_000;
/// When a schedule that cannot be read is looked at again.
const UNREADABLE: TimeDelta = TimeDelta::days(1);

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    let batch = BATCH.unsigned_abs() as usize;
    for _ in 0..BATCHES {
        let mut tx = s.store.begin().await?;
        let due = report_schedules::due(&mut tx, BATCH).await?;
        for row in &due {
            fire(s, &mut tx, row).await?;
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
async fn fire(s: &Scheduler, tx: &mut Tx, row: &DueRow) -> Result<()> {
    let read = row.schedule.as_ref().map_err(ToString::to_string);
    let (due, times) = match read.and_then(|due| Ok((due, RunTimes::of(due, tx.now)?))) {
        Ok(read) => read,
        Err(reason) => {
            tracing::error!(schedule = row.id, reason, "failed to read a report schedule; retrying in a day");
            return report_schedules::advance(tx, row.id, tx.now + UNREADABLE, false).await;
        }
    };
    let schedule = &due.schedule;
    let is_allowed = s.plans.include(&due.plan, Feature::Reports);
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
        tracing::info!(schedule = schedule.id, busy = due.is_busy, "skipped a run of a report schedule");
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
    /// Returns an error in words if the expression cannot be read or names no further day.
    fn of(due: &DueSchedule, now: DateTime<Utc>) -> std::result::Result<Self, String> {
        let expression = due.schedule.expression();
        let schedule: CronSchedule = expression.parse().map_err(|error| format!("{expression}: {error}"))?;
        let zone = zone(Some(&due.timezone));
        let next_after = |at: DateTime<Utc>| {
            let next = schedule.next_after(&at.with_timezone(&zone)).map(|next| next.to_utc());
            next.ok_or_else(|| format!("{expression} has no further time"))
        };
        let mut last_due = due.schedule.next_run_at;
        for _ in 0..MAX_MISSED {
            let next = next_after(last_due)?;
            if next > now {
                return Ok(Self { last_due, next });
            }
            last_due = next;
        }
        Ok(Self { last_due: now, next: next_after(now)? })
    }
}
