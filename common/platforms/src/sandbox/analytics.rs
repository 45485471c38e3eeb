//! Metrics of the sandbox: fictitious and deterministic, growing over the first week of a post.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use sha2::{Digest, Sha256};

use super::{Sandbox, unavailable};
use crate::analytics::{AnalyticsConnector, MetricsSetAside, PublishedPost};
use crate::{CallError, ConnectorAccount};

/// The number of hours in which the metrics of a post grow.
const WEEK: i64 = 7 * 24;
/// The initial growth of a post, in hours: the first reading has a fifth of the final metrics.
const HEAD_START: i64 = WEEK / 4;

/// Returns a number below `limit` that depends only on the text.
fn number(text: &str, limit: u64) -> i64 {
    let hash = Sha256::digest(text.as_bytes());
    let first = hash.iter().take(8).fold(0_u64, |all, byte| all << 8 | u64::from(*byte));
    i64::try_from(first % limit).unwrap_or_default()
}

fn metrics_of(external_id: &str, published_at: DateTime<Utc>, now: DateTime<Utc>) -> PostMetrics {
    let hours = (now - published_at).num_hours().clamp(0, WEEK);
    let impressions = (500 + number(external_id, 1_500)) * (hours + HEAD_START) / (WEEK + HEAD_START);
    let share = |percent: i64| Some(impressions * percent / 100);
    PostMetrics {
        impressions: Some(impressions),
        reach: share(80),
        likes: share(10),
        comments: share(2),
        shares: share(1),
        clicks: share(3),
    }
}

#[async_trait]
impl AnalyticsConnector for Sandbox {
    fn posts_per_call(&self) -> usize {
        50
    }

    async fn post_metrics(
        &self,
        _account: &ConnectorAccount,
        posts: &[PublishedPost],
        _set_aside: &mut MetricsSetAside,
    ) -> Result<Vec<Option<PostMetrics>>, CallError> {
        let now = self.clock.now();
        Ok(posts.iter().map(|post| Some(metrics_of(&post.external_id, post.published_at, now))).collect())
    }

    async fn account_metrics(
        &self,
        account: &ConnectorAccount,
        _set_aside: &mut MetricsSetAside,
    ) -> Result<AccountMetrics, CallError> {
        let handle = account.external_id.as_str();
        let posts = self.store.count_posts(handle).await.map_err(unavailable)?;
        let followers = 100 + number(handle, 900) + posts * 3;
        Ok(AccountMetrics { followers: Some(followers), following: Some(number(handle, 100)), posts: Some(posts) })
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    #[test]
    fn metrics_grow_for_a_week() {
        let published: DateTime<Utc> = "2026-03-01T12:00:00Z".parse().unwrap();
        let at = |hours| metrics_of("7", published, published + TimeDelta::hours(hours)).impressions.unwrap();
        assert!(at(1) < at(24) && at(24) < at(168) && at(168) == at(1_000), "{} {}", at(1), at(168));
        assert!((500..2_000).contains(&at(168)));
        let first = metrics_of("7", published, published);
        let all = [first.impressions, first.reach, first.likes, first.comments, first.shares, first.clicks];
        assert!(all.iter().all(|metric| metric.is_some_and(|value| value > 0)), "{first:?}");
    }
}
