//! Metrics of posts and accounts, by day. Days are in the brand's time zone.
//!
//! The post metrics of a day are the latest metrics of what was published on it, so their sum over days is the sum over
//! posts. A post that was published on two days, on different accounts, counts on both, and once in the totals. A metric
//! that no platform reported is null.

use chrono::{DateTime, Days, NaiveDate, Utc};
use crier_domain::analytics::{Tz, day_start, zone};
use crier_domain::plan::{Feature, MAX_ANALYTICS_DAYS};

use crate::context::Context;
use crate::endpoint::AnyEndpoint;
use crate::error::{ApiError, Result};
use crate::request::Request;

pub mod accounts;
pub mod best_times;
pub mod post;
pub mod posts;
pub mod top_posts;

pub const TAG: &str = "Analytics";
pub const FEATURES: &[Feature] = &[Feature::BasicAnalytics, Feature::Analytics];

/// The default number of days.
const DEFAULT_DAYS: u64 = 30;

/// The days to show, both included.
#[derive(Clone, Debug, Default, Request)]
pub struct RequestedDays {
    /// The first day. Default: 29 days before `end`. If the plan does not show this day, the response starts with the
    /// first day that the plan shows.
    #[field(date())]
    pub start: Option<NaiveDate>,
    /// The last day. Default: today. If it is in the future, the response ends with today.
    #[field(date())]
    pub end: Option<NaiveDate>,
}

/// The posts to include, by their account.
#[derive(Clone, Copy, Debug, Default, Request)]
pub struct RequestedAccount {
    /// Only posts on this account.
    #[field(id(), extension)]
    pub account_id: Option<i64>,
}

/// The posts to include, by their account and the days on which they were published.
#[derive(Clone, Debug, Default, Request)]
pub struct RequestedPosts {
    #[field(flatten)]
    pub days: RequestedDays,
    #[field(flatten)]
    pub account: RequestedAccount,
}

/// The days of a series, both included.
pub struct Window {
    pub start: NaiveDate,
    pub end: NaiveDate,
    pub zone: Tz,
    pub retention_days: u64,
}

impl Window {
    /// Returns the requested days. The start is clamped to the plan's retention, the end to today.
    pub fn of(cx: &Context, days: &RequestedDays) -> Result<Self> {
        let window = Self::of_plan(cx);
        let end = days.end.map_or(window.end, |end| end.min(window.end));
        let start = days.start.unwrap_or_else(|| (end - Days::new(DEFAULT_DAYS - 1)).max(window.start));
        if end < start {
            return Err(ApiError::field("end", format!("Must be the start date, {start}, or later.")));
        }
        Ok(Self { start: start.max(window.start), end: end.max(window.start), ..window })
    }

    /// Returns the newest days that the plan shows, at most the default number.
    pub fn newest(cx: &Context) -> Self {
        let window = Self::of_plan(cx);
        Self { start: (window.end - Days::new(DEFAULT_DAYS - 1)).max(window.start), ..window }
    }

    /// Returns all days that the plan shows.
    pub fn of_plan(cx: &Context) -> Self {
        let zone = zone(Some(cx.zone()));
        let end = cx.now.with_timezone(&zone).date_naive();
        let retention_days = cx.plan.analytics_days.unwrap_or(MAX_ANALYTICS_DAYS);
        Self { start: end - Days::new(retention_days - 1), end, zone, retention_days }
    }

    pub fn days(&self) -> Vec<NaiveDate> {
        self.start.iter_days().take_while(|day| *day <= self.end).collect()
    }

    /// Returns the times at which the day begins and ends.
    pub fn bounds(&self, day: NaiveDate) -> (DateTime<Utc>, DateTime<Utc>) {
        (day_start(day, self.zone), day_start(day + Days::new(1), self.zone))
    }

    pub fn starts_at(&self) -> DateTime<Utc> {
        self.bounds(self.start).0
    }

    pub fn ends_at(&self) -> DateTime<Utc> {
        self.bounds(self.end).1
    }
}

/// The endpoints, in the order of the OpenAPI document.
pub fn endpoints() -> Vec<AnyEndpoint> {
    vec![
        posts::endpoint().erase(),
        accounts::endpoint().erase(),
        post::endpoint().erase(),
        best_times::endpoint().erase(),
        top_posts::endpoint().erase(),
    ]
}
