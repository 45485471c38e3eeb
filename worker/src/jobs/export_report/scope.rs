//! The days of a report as times, and the previous period of the same length.

use chrono::{DateTime, Days, NaiveDate, NaiveDateTime, TimeDelta, Utc};
use crier_domain::analytics::{Tz, day_start, zone};
use crier_domain::brand::Brand;
use crier_domain::report::ReportDelivery;
use crier_domain::report_schedule::local_day;
use crier_store::report_metrics::TimeRange;

/// The brand and the days of an export.
#[derive(Clone, Debug)]
pub struct ExportScope {
    pub brand_id: i64,
    pub zone: Tz,
    pub starts_on: NaiveDate,
    pub ends_on: NaiveDate,
    /// The days of the report that the plan includes and that have begun, oldest first.
    pub days: Vec<NaiveDate>,
    /// The number of days that the plan includes, and the first of them; `None` if there is no limit.
    retention: Option<(u64, NaiveDate)>,
    pub now: DateTime<Utc>,
}

impl ExportScope {
    pub fn new(delivery: &ReportDelivery, brand: &Brand, retention_days: Option<u64>, now: DateTime<Utc>) -> Self {
        let zone = zone(Some(&brand.timezone));
        let today = local_day(now, zone);
        let (starts_on, ends_on) = (delivery.starts_on, delivery.ends_on);
        let retention = retention_days.map(|days| (days, today - Days::new(days.saturating_sub(1).min(100_000))));
        let first = retention.map_or(starts_on, |(_, oldest)| starts_on.max(oldest));
        let last = ends_on.min(today);
        let days = first.iter_days().take_while(|day| *day <= last).collect();
        Self { brand_id: brand.id, zone, starts_on, ends_on, days, retention, now }
    }

    /// Returns the time range of all days; empty if there are none.
    pub fn range(&self) -> TimeRange {
        match (self.days.first(), self.days.last()) {
            (Some(first), Some(last)) => (day_start(*first, self.zone), day_start(*last + Days::new(1), self.zone)),
            _ => (self.now, self.now),
        }
    }

    /// Returns the number of days that the plan includes, if it limits the report.
    pub fn cut_to_days(&self) -> Option<u64> {
        self.retention.filter(|(_, first)| *first > self.starts_on).map(|(days, _)| days)
    }

    /// Returns the time range of the previous period of the same length; `None` if the plan does not include all of it.
    pub fn range_before(&self) -> Option<TimeRange> {
        let first = *self.days.first()?;
        let before = first - Days::new(self.days.len() as u64);
        let is_included = self.retention.is_none_or(|(_, oldest)| oldest <= before);
        is_included.then(|| (day_start(before, self.zone), day_start(first, self.zone)))
    }

    /// Returns the time range of each day.
    pub fn bounds(&self) -> Vec<TimeRange> {
        let bounds = |day: &NaiveDate| (day_start(*day, self.zone), day_start(*day + Days::new(1), self.zone));
        self.days.iter().map(bounds).collect()
    }

    /// Returns a time in the brand's time zone, without fractions of a second.
    pub fn local(&self, at: DateTime<Utc>) -> NaiveDateTime {
        let local = at.with_timezone(&self.zone).naive_local();
        local - TimeDelta::nanoseconds(i64::from(at.timestamp_subsec_nanos()))
    }
}
