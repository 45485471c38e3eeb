//! Maps the metrics of platforms to Crier's metrics. Platforms rename metrics, so the names are data: this table, or
//! `CRIER_<PLATFORM>_METRICS` instead.
//!
//! A name with a slash is a field of the platform's response (a JSON pointer). Any other name is a metric that is
//! requested by name. If several names map to one of Crier's metrics, their values are added up. All values are counts.
//!
//! **To add a metric:** add a line to [`METRICS`], with its period of validity if that is known. Then update the table
//! in `docs/analytics.md` (`CRIER_TEST_UPDATE=1 cargo test --test it analytics_guide`).
//!
//! Sources: the documents that the connectors name; for metrics that Meta removed, its Business SDK v25.0.2 and its
//! changelogs of June 2026. Checked in November 2026.

use chrono::NaiveDate;
use crier_base::clock::Clock;
use crier_config::PlatformsConfig;
use crier_domain::analytics::Metric::{
    self, Clicks, Comments, Followers, Following, Impressions, Likes, Posts, Reach, Shares,
};
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use crier_domain::platform::Platform::{
    self, Bluesky, Facebook, Instagram, Linkedin, Mastodon, Pinterest, Reddit, Telegram, Threads, Tiktok, Tumblr,
    Twitter, Youtube,
};

/// The maximum of a plausible count. No platform has more, and sums of many counts must fit in 64 bits.
const MAX_COUNT: i64 = 1_000_000_000_000;

/// A metric of a platform.
#[derive(Clone, Copy, Debug)]
pub struct PlatformMetric {
    pub platform: Platform,
    pub metric: Metric,
    pub name: &'static str,
    /// The first and the last day on which the platform returns it (`2026-06-15`).
    pub from: Option<&'static str>,
    pub until: Option<&'static str>,
}

const fn metric(platform: Platform, metric: Metric, name: &'static str) -> PlatformMetric {
    PlatformMetric { platform, metric, name, from: None, until: None }
}

const fn from(day: &'static str, metric: PlatformMetric) -> PlatformMetric {
    PlatformMetric { from: Some(day), ..metric }
}

const fn until(day: &'static str, metric: PlatformMetric) -> PlatformMetric {
    PlatformMetric { until: Some(day), ..metric }
}

pub const METRICS: &[PlatformMetric] = &[
    metric(Bluesky, Likes, "/likeCount"),
    metric(Bluesky, Comments, "/replyCount"),
    metric(Bluesky, Shares, "/repostCount"),
    metric(Bluesky, Shares, "/quoteCount"),
    metric(Bluesky, Followers, "/followersCount"),
    metric(Bluesky, Following, "/followsCount"),
    metric(Bluesky, Posts, "/postsCount"),
    until("2026-06-14", metric(Facebook, Impressions, "post_impressions")),
    from("2026-06-15", metric(Facebook, Impressions, "post_media_view")),
    until("2026-06-14", metric(Facebook, Reach, "post_impressions_unique")),
    from("2026-06-15", metric(Facebook, Reach, "post_total_media_view_unique")),
    metric(Facebook, Likes, "/reactions/summary/total_count"),
    metric(Facebook, Comments, "/comments/summary/total_count"),
    metric(Facebook, Shares, "/shares/count"),
    metric(Facebook, Clicks, "post_clicks"),
    metric(Facebook, Followers, "/followers_count"),
    metric(Instagram, Impressions, "views"),
    metric(Instagram, Reach, "reach"),
    metric(Instagram, Likes, "likes"),
    metric(Instagram, Comments, "comments"),
    metric(Instagram, Shares, "shares"),
    metric(Instagram, Followers, "/followers_count"),
    metric(Instagram, Following, "/follows_count"),
    metric(Instagram, Posts, "/media_count"),
    metric(Linkedin, Impressions, "/impressionCount"),
    metric(Linkedin, Reach, "/uniqueImpressionsCount"),
    metric(Linkedin, Likes, "/likeCount"),
    metric(Linkedin, Comments, "/commentCount"),
    metric(Linkedin, Shares, "/shareCount"),
    metric(Linkedin, Clicks, "/clickCount"),
    metric(Linkedin, Followers, "/firstDegreeSize"),
    metric(Mastodon, Likes, "/favourites_count"),
    metric(Mastodon, Comments, "/replies_count"),
    metric(Mastodon, Shares, "/reblogs_count"),
    metric(Mastodon, Followers, "/followers_count"),
    metric(Mastodon, Following, "/following_count"),
    metric(Mastodon, Posts, "/statuses_count"),
    metric(Pinterest, Impressions, "/pin_metrics/lifetime_metrics/impression"),
    metric(Pinterest, Likes, "/pin_metrics/lifetime_metrics/reaction"),
    metric(Pinterest, Comments, "/pin_metrics/lifetime_metrics/comment"),
    metric(Pinterest, Clicks, "/pin_metrics/lifetime_metrics/pin_click"),
    metric(Pinterest, Followers, "/follower_count"),
    metric(Pinterest, Following, "/following_count"),
    metric(Pinterest, Posts, "/pin_count"),
    metric(Reddit, Likes, "/score"),
    metric(Reddit, Comments, "/num_comments"),
    metric(Reddit, Followers, "/subreddit/subscribers"),
    metric(Telegram, Followers, "getChatMemberCount"),
    metric(Threads, Impressions, "views"),
    metric(Threads, Likes, "likes"),
    metric(Threads, Comments, "replies"),
    metric(Threads, Shares, "reposts"),
    metric(Threads, Shares, "quotes"),
    metric(Threads, Shares, "shares"),
    metric(Threads, Followers, "followers_count"),
    metric(Tiktok, Impressions, "view_count"),
    metric(Tiktok, Likes, "like_count"),
    metric(Tiktok, Comments, "comment_count"),
    metric(Tiktok, Shares, "share_count"),
    metric(Tiktok, Followers, "follower_count"),
    metric(Tiktok, Following, "following_count"),
    metric(Tiktok, Posts, "video_count"),
    metric(Tumblr, Followers, "/total_users"),
    metric(Twitter, Impressions, "/public_metrics/impression_count"),
    metric(Twitter, Likes, "/public_metrics/like_count"),
    metric(Twitter, Comments, "/public_metrics/reply_count"),
    metric(Twitter, Shares, "/public_metrics/retweet_count"),
    metric(Twitter, Shares, "/public_metrics/quote_count"),
    metric(Twitter, Clicks, "/non_public_metrics/url_link_clicks"),
    metric(Twitter, Followers, "/public_metrics/followers_count"),
    metric(Twitter, Following, "/public_metrics/following_count"),
    metric(Twitter, Posts, "/public_metrics/tweet_count"),
    metric(Youtube, Impressions, "/statistics/viewCount"),
    metric(Youtube, Likes, "/statistics/likeCount"),
    metric(Youtube, Comments, "/statistics/commentCount"),
    metric(Youtube, Followers, "/statistics/subscriberCount"),
    metric(Youtube, Posts, "/statistics/videoCount"),
];

/// The metrics of one platform, as configured.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    clock: Clock,
    metrics: Vec<(Metric, String, Option<NaiveDate>, Option<NaiveDate>)>,
}

impl Metrics {
    pub(super) fn new(platform: Platform, config: &PlatformsConfig, clock: &Clock) -> Self {
        let configured = &config.of(platform).metrics;
        let day = |text: Option<&str>| text.and_then(|text| text.parse().ok());
        let mut metrics: Vec<_> = METRICS
            .iter()
            .filter(|one| one.platform == platform && !configured.iter().any(|(metric, _)| *metric == one.metric))
            .map(|one| (one.metric, one.name.to_owned(), day(one.from), day(one.until)))
            .collect();
        for (metric, names) in configured {
            metrics.extend(names.iter().map(|name| (*metric, name.clone(), None, None)));
        }
        Self { clock: clock.clone(), metrics }
    }

    /// Returns the metrics that the platform returns today.
    fn valid(&self) -> impl Iterator<Item = (Metric, &str)> {
        let today = self.clock.now().date_naive();
        let is_valid = move |from: Option<NaiveDate>, until: Option<NaiveDate>| {
            from.is_none_or(|from| from <= today) && until.is_none_or(|until| today <= until)
        };
        self.metrics
            .iter()
            .filter(move |(_, _, from, until)| is_valid(*from, *until))
            .map(|(metric, name, _, _)| (*metric, name.as_str()))
    }

    /// Returns the metrics of posts that are requested by name.
    pub(super) fn of_posts(&self) -> Vec<&str> {
        self.names(false).filter(|name| !name.starts_with('/')).collect()
    }

    /// Returns the metrics of accounts that are requested by name.
    pub(super) fn of_accounts(&self) -> Vec<&str> {
        self.names(true).filter(|name| !name.starts_with('/')).collect()
    }

    /// Returns the metrics of posts that are fields of the platform's response.
    pub(super) fn fields_of_posts(&self) -> Vec<&str> {
        self.names(false).filter(|name| name.starts_with('/')).collect()
    }

    /// Returns the metrics of accounts that are fields of the platform's response.
    pub(super) fn fields_of_accounts(&self) -> Vec<&str> {
        self.names(true).filter(|name| name.starts_with('/')).collect()
    }

    fn names(&self, of_account: bool) -> impl Iterator<Item = &str> {
        let is_wanted = move |metric| matches!(metric, Followers | Following | Posts) == of_account;
        self.valid().filter(move |(metric, _)| is_wanted(*metric)).map(|(_, name)| name)
    }

    /// Returns a post's metrics. `value` returns the value of a metric, if the platform returned one. Implausible
    /// values are ignored.
    pub(super) fn post(&self, value: impl Fn(&str) -> Option<i64>) -> PostMetrics {
        let mut metrics = PostMetrics::default();
        for (metric, name) in self.valid() {
            if let Some(value) = value(name).filter(is_count) {
                metrics.add(metric, value);
            }
        }
        metrics
    }

    /// Returns an account's metrics. `value` returns the value of a metric, if the platform returned one. Implausible
    /// values are ignored.
    pub(super) fn account(&self, value: impl Fn(&str) -> Option<i64>) -> AccountMetrics {
        let mut metrics = AccountMetrics::default();
        for (metric, name) in self.valid() {
            if let Some(value) = value(name).filter(is_count) {
                metrics.add(metric, value);
            }
        }
        metrics
    }
}

fn is_count(value: &i64) -> bool {
    (0..=MAX_COUNT).contains(value)
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Utc};

    use super::*;

    fn at(text: &str) -> Clock {
        Clock::manual(text.parse::<DateTime<Utc>>().unwrap())
    }

    #[test]
    fn days_can_be_read() {
        for metric in METRICS {
            for day in [metric.from, metric.until].into_iter().flatten() {
                assert!(day.parse::<NaiveDate>().is_ok(), "{metric:?}");
            }
        }
    }

    #[test]
    fn a_metric_is_requested_while_it_is_valid() {
        let config = PlatformsConfig::default();
        let names = |day| Metrics::new(Facebook, &config, &at(day)).of_posts().join(" ");
        assert_eq!(names("2026-06-14T23:59:59Z"), "post_impressions post_impressions_unique post_clicks");
        assert_eq!(names("2026-06-15T00:00:00Z"), "post_media_view post_total_media_view_unique post_clicks");
    }

    #[test]
    fn names_are_added_up_and_can_be_replaced() {
        let mut config = PlatformsConfig::default();
        let value = |name: &str| Some(i64::try_from(name.len()).unwrap());
        let threads = |config: &PlatformsConfig| Metrics::new(Threads, config, &at("2026-11-01T00:00:00Z"));
        let shares = 7 + 6 + 6;
        assert_eq!(threads(&config).post(value).shares, Some(shares));
        config.platforms.entry(Threads).or_default().metrics =
            vec![(Shares, vec!["a".to_owned(), "bc".to_owned()]), (Likes, Vec::new())];
        let metrics = threads(&config).post(value);
        assert_eq!((metrics.shares, metrics.likes, metrics.comments), (Some(3), None, Some(7)));
        assert_eq!(threads(&config).account(value).followers, Some(15));
    }

    #[test]
    fn implausible_counts_are_ignored() {
        let metrics = Metrics::new(Bluesky, &PlatformsConfig::default(), &at("2026-11-01T00:00:00Z"));
        for (value, expected) in
            [(0, Some(0)), (MAX_COUNT, Some(MAX_COUNT)), (-1, None), (MAX_COUNT + 1, None), (i64::MAX, None)]
        {
            assert_eq!(metrics.post(|_| Some(value)).likes, expected, "{value}");
            assert_eq!(metrics.account(|_| Some(value)).followers, expected, "{value}");
        }
        // If one of two names has an implausible value, only the other counts.
        let shares = metrics.post(|name| Some(if name == "/quoteCount" { i64::MIN } else { 3 })).shares;
        assert_eq!(shares, Some(3));
    }
}
