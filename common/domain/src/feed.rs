//! Feeds and their articles.
//!
//! ```text
//!            a successful fetch
//! pending ───────────────────> active
//!    │                         │    ▲
//!    │ a failed fetch          │    │ a successful fetch
//!    └──────────> failing <────┘────┘
//! ```
//! Changing the URL makes a feed `pending` again. `version` counts those changes: the result of a fetch for an older
//! version is discarded.

use std::time::Duration;

use chrono::{DateTime, Utc};
use crier_base::backoff;

use crate::auto_post::AutoPost;

crier_base::text_enum! {
    pub enum FeedType {
        /// Any version of RSS, including RDF.
        Rss = "rss",
        Atom = "atom",
        /// A WordPress site or its feed.
        Wordpress = "wordpress",
        Json = "json",
    }
}

crier_base::text_enum! {
    pub enum FeedStatus { Pending = "pending", Active = "active", Failing = "failing" }
}

/// Maximum length of a name, in characters.
pub const MAX_FEED_NAME: usize = 120;
/// Maximum number of feeds of a brand: each is fetched every 15 minutes.
pub const MAX_FEEDS: usize = 100;
/// Maximum number of articles of a feed; older ones are deleted.
pub const MAX_ARTICLES: usize = 200;
/// Interval between fetches of a feed that does not fail.
pub const FETCH_INTERVAL: Duration = Duration::from_mins(15);
/// Maximum interval between fetches of a failing feed.
const MAX_FETCH_INTERVAL: Duration = Duration::from_hours(24);
/// The consecutive failure of which the members are notified, after about 45 minutes. Most feeds that fail once recover.
pub const NOTICED_FAILURE: i32 = 3;
/// Earlier dates of articles are placeholders of programs that have no date.
pub const MIN_ARTICLE_DATE: DateTime<Utc> = DateTime::from_timestamp_nanos(86_400_000_000_000);

#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct Feed {
    pub id: i64,
    pub brand_id: i64,
    pub name: String,
    /// Whether a user set the name. Otherwise it is the feed's own title.
    pub named: bool,
    /// As entered by the user.
    pub url: String,
    #[cfg_attr(feature = "sqlx", sqlx(rename = "type"))]
    pub kind: FeedType,
    pub status: FeedStatus,
    pub version: i64,
    /// The feed's URL: `url` itself, or the one that the page there links to.
    pub found_url: Option<String>,
    /// The URL that `etag` and `last_modified` belong to.
    pub validator_url: Option<String>,
    pub etag: Option<String>,
    pub last_modified: Option<String>,
    /// Failed fetches since the last successful one.
    pub failures: i32,
    pub last_error: Option<String>,
    /// The time of the last fetch, successful or not.
    pub last_fetched_at: Option<DateTime<Utc>>,
    pub next_fetch_at: DateTime<Utc>,
    pub articles_count: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    /// The member in whose name the feed publishes. They may have left the brand.
    pub auto_post_user_id: Option<i64>,
    /// The time since which new articles are posted. `None` until the next successful fetch shows what the feed lists.
    pub auto_post_since: Option<DateTime<Utc>>,
    /// Why the last articles were not posted.
    pub auto_post_problem: Option<String>,
    #[cfg_attr(feature = "sqlx", sqlx(json(nullable)))]
    pub auto_post: Option<AutoPost>,
}

impl Feed {
    /// Returns the settings by which the feed publishes, if it does.
    pub fn active_auto_post(&self) -> Option<&AutoPost> {
        self.auto_post.as_ref().filter(|settings| settings.is_active)
    }

    /// Returns the URL to fetch.
    pub fn address(&self) -> &str {
        self.found_url.as_deref().unwrap_or(&self.url)
    }
}

/// Returns the host of a URL, used as the job's lane; the whole text if it has none.
pub fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    if authority.is_empty() { url } else { authority }
}

/// A stored article.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct Article {
    pub id: i64,
    pub feed_id: i64,
    pub guid: String,
    pub title: Option<String>,
    pub url: Option<String>,
    /// Sanitized HTML.
    pub summary: Option<String>,
    pub author: Option<String>,
    pub image_url: Option<String>,
    pub published_at: DateTime<Utc>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// An article parsed from a feed.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct FoundArticle {
    /// The feed's own id for the article, or else its link, or else a hash of its content.
    pub guid: String,
    pub title: Option<String>,
    pub url: Option<String>,
    pub summary: Option<String>,
    pub author: Option<String>,
    pub image_url: Option<String>,
    pub published_at: Option<DateTime<Utc>>,
}

/// The fields of a stored article that show whether it changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct KnownArticle {
    pub id: i64,
    pub guid: String,
    pub url: Option<String>,
    pub published_at: DateTime<Utc>,
    /// A hash of all parsed fields.
    pub digest: String,
}

/// Returns the time of the next fetch after `failures` consecutive failures: after 15 minutes, doubled with each
/// failure after the first, up to a day. `random`, in `[0, 1)`, adds jitter of ± 10 %, so that feeds that were added
/// together are not fetched together. A later `retry_after` of the server is respected, up to a day.
pub fn next_fetch(failures: i32, retry_after: Option<DateTime<Utc>>, now: DateTime<Utc>, random: f64) -> DateTime<Utc> {
    let wait = backoff::pause_after(failures, backoff::exponential(FETCH_INTERVAL, MAX_FETCH_INTERVAL));
    let at = now + backoff::jitter(wait, 0.1, random);
    retry_after.map_or(at, |retry_after| at.max(retry_after.min(now + MAX_FETCH_INTERVAL)))
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    #[test]
    fn a_failing_feed_is_polled_with_backoff() {
        let now = DateTime::from_timestamp(1_781_000_000, 0).unwrap_or_default();
        let minutes = |failures, random| (next_fetch(failures, None, now, random) - now).num_minutes();
        let all: Vec<i64> = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 50, i32::MAX].iter().map(|n| minutes(*n, 0.5)).collect();
        assert_eq!(all, [15, 15, 30, 60, 120, 240, 480, 960, 1440, 1440, 1440, 1440]);
        assert_eq!((minutes(0, 0.0), minutes(0, 1.0)), (13, 16));
        let after = |minutes| (next_fetch(1, Some(now + TimeDelta::minutes(minutes)), now, 0.5) - now).num_minutes();
        assert_eq!([after(1), after(60), after(100_000)], [15, 60, 1440]);
    }

    #[test]
    fn the_host_of_a_url_is_extracted() {
        for (url, host) in [
            ("https://example.com/feed", "example.com"),
            ("http://a.b:81?x=/y", "a.b:81"),
            ("https://[::1]:3/x", "[::1]:3"),
            ("nonsense", "nonsense"),
        ] {
            assert_eq!(host_of(url), host);
        }
    }
}
