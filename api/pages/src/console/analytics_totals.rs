//! The totals of the analytics page, and their changes against the period before.

use chrono::{Days, NaiveDate};
use crier_endpoints::error::Result;
use crier_endpoints::routes::analytics::posts::{PostSeries, PostTotals};
use crier_endpoints::routes::analytics::{self, RequestedDays};

use super::analytics_filter::Filter;
use super::charts::metric;
use super::days;
use super::post_metrics::labeled;
use super::visit::Visit;
use crate::numbers::number;

pub struct Total {
    pub label: &'static str,
    pub value: String,
    /// "+120 (+12.5%)". `None` if there is nothing to compare.
    pub change: Option<String>,
}

/// The totals of the period before, which has the same number of days.
pub struct Comparison {
    /// A sentence with the days of that period, or why there is no comparison.
    pub text: String,
    /// `None` if there is no comparison.
    pub totals: Option<PostTotals>,
}

impl Comparison {
    /// Reads the totals of the period before. `earliest` is the first day that the plan permits.
    pub async fn read(visit: &Visit, filter: &Filter, posts: &PostSeries, earliest: NaiveDate) -> Result<Self> {
        let (start, end) = period_before(posts.start, posts.end);
        let range = days::range(Some(start), Some(end));
        if start < earliest {
            let text = format!("No comparison: your plan does not cover all of the previous period ({range}).");
            return Ok(Self { text, totals: None });
        }
        let request = filter.posts(RequestedDays { start: Some(start), end: Some(end) });
        let totals = visit.call().read(analytics::posts::endpoint(), request).await?.totals;
        if totals.posts == 0 {
            let text = format!("No comparison: no posts were published in the previous period ({range}).");
            return Ok(Self { text, totals: None });
        }
        Ok(Self { text: format!("Changes are relative to the previous period ({range})."), totals: Some(totals) })
    }
}

/// Returns the days before a period, as many as it has.
fn period_before(start: NaiveDate, end: NaiveDate) -> (NaiveDate, NaiveDate) {
    let count = u64::try_from((end - start).num_days() + 1).unwrap_or_default();
    (start - Days::new(count), start - Days::new(1))
}

pub fn totals(all: &PostTotals, before: Option<&PostTotals>) -> Vec<Total> {
    let values = |totals: &PostTotals| {
        [("Posts", Some(totals.posts))].into_iter().chain(labeled(&totals.metrics)).collect::<Vec<_>>()
    };
    let earlier = before.map(values);
    let total = |(index, (label, value)): (usize, (&'static str, Option<i64>))| {
        let earlier = earlier.as_ref().map(|all| all.get(index).and_then(|(_, value)| *value));
        Total { label, value: metric(value), change: value.zip(earlier).map(|(value, before)| change(value, before)) }
    };
    values(all).into_iter().enumerate().map(total).collect()
}

/// Returns the change of a metric, absolute and in percent.
fn change(value: i64, before: Option<i64>) -> String {
    let Some(before) = before else { return "no comparison".to_owned() };
    let difference = value.saturating_sub(before);
    let sign = match difference {
        0 => return "no change".to_owned(),
        1.. => "+",
        _ => "−",
    };
    let size = difference.unsigned_abs();
    if before <= 0 {
        return format!("{sign}{} (from {})", number(size), number(before));
    }
    let percent = size as f64 / before as f64 * 100.0;
    let percent = if percent < 10.0 { format!("{percent:.1}") } else { number(percent.round() as u64) };
    format!("{sign}{} ({sign}{percent}%)", number(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_absolute_and_in_percent() {
        for (value, before, text) in [
            (17_000, Some(5_000), "+12,000 (+240%)"),
            (5_000, Some(17_000), "−12,000 (−71%)"),
            (1_001, Some(1_000), "+1 (+0.1%)"),
            (0, Some(4), "−4 (−100%)"),
            (5, Some(0), "+5 (from 0)"),
            (5, Some(5), "no change"),
            (0, Some(0), "no change"),
            (5, None, "no comparison"),
        ] {
            assert_eq!(change(value, before), text);
        }
        assert!(!change(i64::MAX, Some(1)).is_empty());
    }

    #[test]
    fn the_period_before_has_as_many_days() {
        let day = |text: &str| text.parse::<NaiveDate>().unwrap_or_default();
        for (start, end, before) in [
            ("2026-11-24", "2026-11-24", ("2026-11-23", "2026-11-23")),
            ("2026-03-01", "2026-03-30", ("2026-01-30", "2026-02-28")),
        ] {
            assert_eq!(period_before(day(start), day(end)), (day(before.0), day(before.1)));
        }
    }
}
