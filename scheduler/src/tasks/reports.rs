//! Enqueues the export of reports whose schedule is due, and deletes expired files.
//!
//! The due times are in the schedules' rows, which are claimed under their locks, so any number of schedulers may run.
//! The export and the time of the next one are written together. A schedule that was due several times while no
//! scheduler ran causes one export.

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

use super::in_batches;
use crate::Scheduler;

const BATCH: i64 = 50;
const BATCHES: usize = 10;
/// The maximum number of times of a schedule that are computed to find the last missed one.
const MAX_MISSED: usize = 1_000;
/// The pause after a schedule could not be read.
const UNREADABLE_PAUSE: TimeDelta = TimeDelta::days(1);

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    in_batches!(s, tx => {
        let due = report_schedules::due(&mut tx, BATCH).await?;
        for row in &due {
            fire(s, &mut tx, row).await?;
        }
        due.len()
    });
    in_batches!(s, tx => report_deliveries::expire_files(&mut tx, BATCH).await?);
    Ok(None)
}

/// Enqueues the export of a schedule that is due, and moves the schedule to its next time. Skips the export if the
/// previous one has not ended, or if the plan does not include reports.
async fn fire(s: &Scheduler, tx: &mut Tx, row: &DueRow) -> Result<()> {
    let read = row.schedule.as_ref().map_err(ToString::to_string);
    let (due, times) = match read.and_then(|due| Ok((due, RunTimes::of(due, tx.now)?))) {
        Ok(read) => read,
        Err(reason) => {
            tracing::error!(schedule = row.id, reason, "failed to read a report schedule; retrying in a day");
            return report_schedules::advance(tx, row.id, tx.now + UNREADABLE_PAUSE, false).await;
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
            has_bom: schedule.has_bom,
            starts_on,
            ends_on,
        };
        reports::enqueue(tx, due.workspace_id, &new, &schedule.recipients, None).await?;
    } else {
        tracing::info!(schedule = schedule.id, busy = due.is_busy, "skipped a run of a report schedule");
    }
    report_schedules::advance(tx, schedule.id, times.next, is_allowed && !due.is_busy).await
}

/// The run times of a schedule before and after the current time.
struct RunTimes {
    /// The last run time that is not in the future.
    last_due: DateTime<Utc>,
    /// The first run time in the future.
    next: DateTime<Utc>,
}

impl RunTimes {
    /// Returns a message if the expression is invalid or has no further time.
    fn of(due: &DueSchedule, now: DateTime<Utc>) -> std::result::Result<Self, String> {
        let expression = due.schedule.expression();
        let schedule: CronSchedule = expression.parse().map_err(|error| format!("{expression}: {error}"))?;
        let zone = zone(Some(&due.timezone));
        let next_after = |at: DateTime<Utc>| {
            let next = schedule.next_after(&at.with_timezone(&zone)).map(|next| next.to_utc());
            next.ok_or_else(|| format!("{expression} has no further run time"))
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
