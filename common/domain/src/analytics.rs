//! Metrics of posts and accounts, as platforms return them, and the times at which they are read.
//!
//! A metric that a platform does not return is `None`, never 0. A metric may fall.

use chrono::{DateTime, NaiveDate, TimeDelta, TimeZone, Utc};
pub use chrono_tz::Tz;

crier_base::text_enum! {
    /// A metric by its name in the API. The first six are metrics of posts, the others of accounts.
    pub enum Metric {
        Impressions = "impressions",
        Reach = "reach",
        Likes = "likes",
        Comments = "comments",
        Shares = "shares",
        Clicks = "clicks",
        Followers = "followers",
        Following = "following",
        Posts = "posts",
    }
}

crier_base::text_enum! {
    /// A metric by which posts are ranked.
    #[derive(Default)]
    pub enum PostMetric {
        #[default]
        Engagements = "engagements",
        Impressions = "impressions",
        Reach = "reach",
        Likes = "likes",
        Comments = "comments",
        Shares = "shares",
        Clicks = "clicks",
    }
}

/// The metrics of a post on one account, since it was published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct PostMetrics {
    pub impressions: Option<i64>,
    pub reach: Option<i64>,
    pub likes: Option<i64>,
    pub comments: Option<i64>,
    pub shares: Option<i64>,
    pub clicks: Option<i64>,
}

impl PostMetrics {
    /// Returns the sum of the known likes, comments, shares and clicks.
    pub fn engagements(&self) -> Option<i64> {
        [self.likes, self.comments, self.shares, self.clicks].into_iter().fold(None, sum)
    }

    /// Adds to a metric of posts; metrics of accounts are ignored.
    pub fn add(&mut self, metric: Metric, value: i64) {
        let place = match metric {
            Metric::Impressions => &mut self.impressions,
            Metric::Reach => &mut self.reach,
            Metric::Likes => &mut self.likes,
            Metric::Comments => &mut self.comments,
            Metric::Shares => &mut self.shares,
            Metric::Clicks => &mut self.clicks,
            Metric::Followers | Metric::Following | Metric::Posts => return,
        };
        *place = sum(*place, Some(value));
    }

    /// Returns the sums of both. If only one of them has a metric, the sum is its value.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            impressions: sum(self.impressions, other.impressions),
            reach: sum(self.reach, other.reach),
            likes: sum(self.likes, other.likes),
            comments: sum(self.comments, other.comments),
            shares: sum(self.shares, other.shares),
            clicks: sum(self.clicks, other.clicks),
        }
    }
}

fn sum(a: Option<i64>, b: Option<i64>) -> Option<i64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (known, None) | (None, known) => known,
    }
}

/// The metrics of an account at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct AccountMetrics {
    pub followers: Option<i64>,
    pub following: Option<i64>,
    pub posts: Option<i64>,
}

impl AccountMetrics {
    /// Adds to a metric of accounts; metrics of posts are ignored.
    pub fn add(&mut self, metric: Metric, value: i64) {
        let place = match metric {
            Metric::Followers => &mut self.followers,
            Metric::Following => &mut self.following,
            Metric::Posts => &mut self.posts,
            _ => return,
        };
        *place = sum(*place, Some(value));
    }
}

/// The ages at which the metrics of a post are read; after the last one, they are read weekly.
const COLLECTIONS: [TimeDelta; 6] = [
    TimeDelta::hours(1),
    TimeDelta::hours(6),
    TimeDelta::hours(24),
    TimeDelta::days(3),
    TimeDelta::days(7),
    TimeDelta::days(30),
];
const WEEK: TimeDelta = TimeDelta::days(7);

/// Returns the next time at which the metrics of a post are read; `None` if the post would be older than `retention`.
/// Missed times are skipped.
pub fn next_collection(
    published_at: DateTime<Utc>,
    now: DateTime<Utc>,
    retention: Option<TimeDelta>,
) -> Option<DateTime<Utc>> {
    let age = now - published_at;
    let last = COLLECTIONS[COLLECTIONS.len() - 1];
    let next = match COLLECTIONS.into_iter().find(|at| *at > age) {
        Some(next) => next,
        None => last + WEEK * i32::try_from((age - last).num_weeks() + 1).ok()?,
    };
    if retention.is_some_and(|retention| next > retention) { None } else { published_at.checked_add_signed(next) }
}

/// Returns a time zone by its name; UTC if there is no such zone.
pub fn zone(name: Option<&str>) -> Tz {
    name.and_then(|name| name.parse().ok()).unwrap_or(chrono_tz::UTC)
}

/// Returns the time at which a day begins in a time zone. If daylight saving skips midnight, it is the first time that
/// exists.
pub fn day_start(day: NaiveDate, zone: Tz) -> DateTime<Utc> {
    let midnight = day.and_hms_opt(0, 0, 0).unwrap_or_default();
    // No zone has ever skipped more than a day, and none in steps finer than a quarter of an hour.
    (0..96)
        .find_map(|quarter| zone.from_local_datetime(&(midnight + TimeDelta::minutes(15 * quarter))).earliest())
        .map_or_else(|| midnight.and_utc(), |at| at.to_utc())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn a_post_is_read_often_and_then_weekly() {
        let published = at("2026-03-01T12:00:00Z");
        let (mut now, mut times) = (published, Vec::new());
        while let Some(next) = next_collection(published, now, Some(TimeDelta::days(50))) {
            times.push((next - published).num_hours());
            now = next;
        }
        assert_eq!(times, [1, 6, 24, 72, 168, 720, 888, 1_056]);
        // Missed times are skipped.
        assert_eq!(next_collection(published, at("2026-03-03T00:00:00Z"), None), Some(at("2026-03-04T12:00:00Z")));
    }

    #[test]
    fn days_begin_in_their_zone() {
        for (day, zone, start) in [
            ("2026-03-29", chrono_tz::Europe::Berlin, "2026-03-28T23:00:00Z"),
            ("2026-03-30", chrono_tz::Europe::Berlin, "2026-03-29T22:00:00Z"),
            // Midnight is skipped here.
            ("2018-11-04", chrono_tz::America::Sao_Paulo, "2018-11-04T03:00:00Z"),
            ("2026-05-01", chrono_tz::Asia::Kathmandu, "2026-04-30T18:15:00Z"),
        ] {
            assert_eq!(day_start(day.parse().unwrap(), zone), at(start), "{day} {zone}");
        }
    }

    proptest! {
        #[test]
        fn the_next_collection_is_later(hours in 0_i64..100_000, minutes in 0_i64..60) {
            let published = at("2020-01-01T00:00:00Z");
            let now = published + TimeDelta::hours(hours) + TimeDelta::minutes(minutes);
            let next = next_collection(published, now, None).unwrap();
            prop_assert!(next > now && next - now <= TimeDelta::days(23));
        }

        #[test]
        fn days_follow_each_other(offset in 0_u64..36_500, zone in 0..chrono_tz::TZ_VARIANTS.len()) {
            let zone = chrono_tz::TZ_VARIANTS[zone];
            let day: NaiveDate = "1990-01-01".parse().unwrap();
            let day = day + chrono::Days::new(offset);
            prop_assert!(day_start(day, zone) <= day_start(day.succ_opt().unwrap(), zone));
        }

        #[test]
        fn sums_do_not_depend_on_the_order(likes in any::<Option<i32>>(), clicks in any::<Option<i32>>()) {
            let one = PostMetrics { likes: likes.map(i64::from), ..PostMetrics::default() };
            let other = PostMetrics { clicks: clicks.map(i64::from), likes: Some(1), ..PostMetrics::default() };
            prop_assert_eq!(one.plus(&other), other.plus(&one));
            prop_assert_eq!(one.plus(&PostMetrics::default()), one);
        }
    }
}
