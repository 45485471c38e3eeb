//! `fetch_feed`: fetches a feed once. If a job is cancelled, nothing changes: the feed is fetched again at its next
//! fetch time.

use crier_base::random;
use crier_domain::feed;
use crier_store::{Conn, Result, Tx, feeds};

use super::{JobDefinition, SubjectDescription};

pub struct FetchFeed;

impl JobDefinition for FetchFeed {
    async fn lock(tx: &mut Tx, feed_id: i64) -> Result<()> {
        feeds::lock(tx, feed_id).await.map(drop)
    }

    async fn describe(conn: &mut Conn, feed_id: i64) -> Result<Option<SubjectDescription>> {
        let Some(f) = feeds::find_any(conn, feed_id).await? else { return Ok(None) };
        Ok(Some(SubjectDescription::new(format!("feed {} of brand {}, {}", f.id, f.brand_id, f.status))))
    }

    async fn on_dead(tx: &mut Tx, feed_id: i64, _trace: Option<&str>) -> Result<()> {
        let Some(feed) = feeds::lock(tx, feed_id).await? else { return Ok(()) };
        let reason = "Crier could not read this feed: internal error. Crier retries later.";
        let next = feed::next_fetch(feed.failures + 1, None, tx.now, random::unit());
        feeds::record_failure(tx, feed_id, reason, false, next).await
    }

    async fn on_retry(tx: &mut Tx, feed_id: i64) -> Result<bool> {
        Ok(feeds::find_any(tx, feed_id).await?.is_some())
    }
}
