//! Schedules of reports: the times at which a report is exported and emailed, and the days that it covers.
//!
//! The frequencies and their local times are those of recurring posts ([`super::recurrence`]).

use chrono::{DateTime, Datelike, Days, NaiveDate, Utc};
use chrono_tz::Tz;
use crier_base::cron::CronSchedule;

use super::recurrence::{Frequency, parse_time};
use super::report::ReportFormat;

/// The number of days that a report covers if no period is specified.
pub const DEFAULT_DAYS: u64 = 30;

impl Frequency {
    /// Returns the first and the last day that an export covers if it was due on the day `due`.
    pub fn covers(self, due: NaiveDate) -> (NaiveDate, NaiveDate) {
        let first_of_month = due.with_day(1).unwrap_or(due);
        let monday = due - Days::new(u64::from(due.weekday().num_days_from_monday()));
        let yesterday = due - Days::new(1);
        match self {
            Self::Daily => (yesterday, yesterday),
            Self::Weekly => (monday - Days::new(7), monday - Days::new(1)),
            Self::Monthly => {
                let last = first_of_month - Days::new(1);
                (last.with_day(1).unwrap_or(last), last)
            }
            Self::Cron => last_days(due),
        }
    }
}

/// Returns the default period of a report: the last 30 days, including today.
pub fn last_days(today: NaiveDate) -> (NaiveDate, NaiveDate) {
    (today - Days::new(DEFAULT_DAYS - 1), today)
}

#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct ReportSchedule {
    pub id: i64,
    pub report_id: i64,
    pub frequency: Frequency,
    pub cron: Option<String>,
    /// `HH:MM`; `None` for cron.
    pub time: Option<String>,
    pub format: ReportFormat,
    /// Whether a CSV file begins with a byte order mark.
    pub has_bom: bool,
    #[cfg_attr(feature = "sqlx", sqlx(json))]
    pub recipients: Vec<String>,
    pub next_run_at: DateTime<Utc>,
    pub last_run_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl ReportSchedule {
    /// Returns the cron expression of the schedule.
    pub fn expression(&self) -> String {
        let time = self.time.as_deref().and_then(parse_time).unwrap_or_default();
        self.frequency.expression(time, self.cron.as_deref().unwrap_or_default())
    }

    /// Returns the first time after `at`, in the time zone of the brand. `None` if there is none.
    pub fn next_after(&self, at: DateTime<Utc>, zone: Tz) -> Option<DateTime<Utc>> {
        let schedule: CronSchedule = self.expression().parse().ok()?;
        schedule.next_after(&at.with_timezone(&zone)).map(|next| next.to_utc())
    }
}

/// Returns the day of a time in a time zone.
pub fn local_day(at: DateTime<Utc>, zone: Tz) -> NaiveDate {
    at.with_timezone(&zone).date_naive()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn day(text: &str) -> NaiveDate {
        text.parse().unwrap()
    }

    #[test]
    fn each_frequency_covers_the_period_before() {
        for (frequency, due, start, end) in [
            (Frequency::Daily, "2026-03-01", "2026-02-28", "2026-02-28"),
            (Frequency::Daily, "2028-03-01", "2028-02-29", "2028-02-29"),
            (Frequency::Weekly, "2026-11-23", "2026-11-16", "2026-11-22"),
            // A late run on a Wednesday.
            (Frequency::Weekly, "2026-11-25", "2026-11-16", "2026-11-22"),
            (Frequency::Monthly, "2026-03-01", "2026-02-01", "2026-02-28"),
            (Frequency::Monthly, "2028-03-31", "2028-02-01", "2028-02-29"),
            (Frequency::Monthly, "2027-01-01", "2026-12-01", "2026-12-31"),
            (Frequency::Cron, "2026-11-23", "2026-10-25", "2026-11-23"),
        ] {
            assert_eq!(frequency.covers(day(due)), (day(start), day(end)), "{frequency} {due}");
        }
    }

    proptest! {
        #[test]
        fn the_period_ends_before_the_due_day(offset in 0_u64..40_000) {
            let due = day("1990-01-01") + Days::new(offset);
            for frequency in Frequency::ALL {
                let (start, end) = frequency.covers(due);
                prop_assert!(start <= end);
                prop_assert!(end < due || *frequency == Frequency::Cron && end == due);
                prop_assert!((due - start).num_days() <= 61);
            }
        }
    }
}
