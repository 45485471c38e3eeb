//! `fetch_feed`: fetches a feed once and stores the result.
//!
//! A failed fetch is not a failed job: the feed's row contains the error and the time of the next fetch, and the
//! scheduler enqueues it then. If the feed's URL was changed meanwhile, the result is discarded and the fetch repeated.
//!
//! If the feed publishes, `publishing` decides which of the new articles become posts. `post_article` creates them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use crier_domain::feed::{Feed, FeedType, next_fetch};
use crier_domain::job::{ClaimedJob, Outcome};
use crier_domain::untrusted;
use crier_store::articles::Changes;
use crier_store::{Result, Store, Tx, articles, feeds, jobs};
use crier_telemetry::metrics::{self, FetchOutcome};

use super::{Deps, FinishedRun, Job, RunError, RunResult, settle_each};
use crate::engine::Run;
use crate::feeds::{Format, diff};

mod fetch;
mod publishing;

use publishing::Filtered;

pub use fetch::{Conditions, Document, FetchError, FetchResult, Fetcher};

/// The maximum length of a stored error, in characters.
const MAX_ERROR_LENGTH: usize = 500;
const FEED_DELETED: &str = "the feed no longer exists";

pub struct FetchFeed {
    store: Store,
    fetcher: Arc<Fetcher>,
}

impl FetchFeed {
    pub fn new(deps: &Deps) -> Self {
        Self { store: deps.store.clone(), fetcher: deps.feeds.clone() }
    }
}

impl FetchFeed {
    /// Applies the filters of a feed that publishes to its new articles.
    async fn filter(&self, feed: &Feed, result: &std::result::Result<FetchResult, FetchError>) -> Result<Filtered> {
        let (Ok(FetchResult::Feed(document)), Some(settings)) = (result, feed.active_auto_post()) else {
            return Ok(Filtered::default());
        };
        let known = articles::known(&mut self.store.read().await?, feed.id).await?;
        let (changes, _) = diff::compare(&known, document.parsed.articles.clone(), self.store.now());
        if changes.insert.is_empty() {
            return Ok(Filtered::default());
        }
        let settings = settings.clone();
        let filtered = tokio::task::spawn_blocking(move || Filtered::new(settings, &changes.insert)).await;
        // After a panic, the filters are applied in the transaction.
        Ok(filtered.unwrap_or_default())
    }
}

#[async_trait]
impl Job for FetchFeed {
    type Result = FetchRunResult;

    async fn run(&self, run: &Run) -> std::result::Result<FetchRunResult, RunError> {
        let found = feeds::find_any(&mut self.store.read().await?, run.job.subject_id).await?;
        let feed = found.ok_or_else(|| RunError::cancelled(FEED_DELETED))?;
        let result = run.wait_without_slot(self.fetcher.fetch(&feed, self.store.now())).await;
        let filtered = self.filter(&feed, &result).await?;
        let (jitter, recorded_outcome) = (crier_base::random::unit(), AtomicUsize::new(usize::MAX));
        Ok(FetchRunResult { feed_id: feed.id, version: feed.version, result, filtered, jitter, recorded_outcome })
    }

    async fn settle(&self, tx: &mut Tx, runs: &[FinishedRun<'_, FetchRunResult>]) -> Result<Vec<Outcome>> {
        settle_each(tx, runs, |tx, job, result| Box::pin(result.write(tx, job))).await
    }
}

/// The result of a fetch.
pub struct FetchRunResult {
    feed_id: i64,
    version: i64,
    result: std::result::Result<FetchResult, FetchError>,
    filtered: Filtered,
    jitter: f64,
    /// The outcome of the last write, for the metric: an index in [`FetchOutcome::ALL`].
    recorded_outcome: AtomicUsize,
}

impl RunResult for FetchRunResult {
    fn order(&self) -> i64 {
        self.feed_id
    }

    fn reduced(&self) -> Option<Self> {
        let retry_after = self.result.as_ref().err().and_then(|failure| failure.retry_after);
        let why = "The feed, or the server's response, contains data that cannot be stored.".to_owned();
        Some(Self {
            feed_id: self.feed_id,
            version: self.version,
            result: Err(FetchError { why, has_no_feed: false, retry_after }),
            filtered: Filtered::default(),
            jitter: self.jitter,
            recorded_outcome: AtomicUsize::new(usize::MAX),
        })
    }

    fn observe(&self, outcome: &Outcome) {
        let recorded =
            FetchOutcome::ALL.get(self.recorded_outcome.load(Ordering::Relaxed)).filter(|_| *outcome == Outcome::Done);
        if let Some(recorded) = recorded {
            metrics::feed_fetched(*recorded);
            if let Err(failure) = &self.result {
                tracing::info!(feed = self.feed_id, why = failure.why, "failed to read a feed");
            }
        }
    }
}

impl FetchRunResult {
    async fn write(&self, tx: &mut Tx, job: &ClaimedJob) -> Result<Outcome> {
        let Some(feed) = feeds::lock(tx, self.feed_id).await? else {
            return Ok(Outcome::Cancelled(FEED_DELETED.to_owned()));
        };
        if feed.version != self.version {
            // Its URL was changed meanwhile: fetch the new URL immediately.
            jobs::refund_attempt(tx, job).await?;
            return Ok(Outcome::RetryAt(tx.now, "its URL was changed during the run".to_owned()));
        }
        let outcome = match &self.result {
            Ok(found) => self.record_success(tx, &feed, found, job).await?,
            Err(failure) => {
                let next = next_fetch(feed.failures + 1, failure.retry_after, tx.now, self.jitter);
                let lost = failure.has_no_feed && feed.address() != feed.url;
                // The error may contain a redirect URL of any length.
                let why = untrusted::line(&failure.why, MAX_ERROR_LENGTH);
                feeds::record_failure(tx, feed.id, &why, lost, next).await?;
                FetchOutcome::Failed
            }
        };
        let index = FetchOutcome::ALL.iter().position(|one| *one == outcome);
        self.recorded_outcome.store(index.unwrap_or(usize::MAX), Ordering::Relaxed);
        Ok(Outcome::Done)
    }

    async fn record_success(
        &self,
        tx: &mut Tx,
        feed: &Feed,
        found: &FetchResult,
        job: &ClaimedJob,
    ) -> Result<FetchOutcome> {
        let next_fetch_at = next_fetch(0, None, tx.now, self.jitter);
        let document = match found {
            FetchResult::Feed(document) => document,
            FetchResult::Unchanged(Conditions { etag, last_modified }) => {
                feeds::record_success(tx, feed.id, &feeds::FetchUpdate { changed: None, next_fetch_at }).await?;
                feeds::replace_conditions(tx, feed.id, etag.as_deref(), last_modified.as_deref()).await?;
                publishing::publish(tx, feed, &[], &Changes::default(), &self.filtered, job.trace.as_deref()).await?;
                return Ok(FetchOutcome::Unchanged);
            }
        };
        let known = articles::known(tx, feed.id).await?;
        let (changes, count) = diff::compare(&known, document.parsed.articles.clone(), tx.now);
        articles::write(tx, feed.id, &changes).await?;
        publishing::publish(tx, feed, &known, &changes, &self.filtered, job.trace.as_deref()).await?;
        let changed = feeds::FeedUpdate {
            title: document.parsed.title.clone(),
            kind: kind_of(feed.kind, document.parsed.format),
            found_url: Some(document.found_url.clone()),
            validator_url: document.validator_url.clone(),
            etag: document.conditions.etag.clone(),
            last_modified: document.conditions.last_modified.clone(),
            articles_count: i64::try_from(count).unwrap_or(0),
        };
        feeds::record_success(tx, feed.id, &feeds::FetchUpdate { changed: Some(changed), next_fetch_at }).await?;
        let is_new = !changes.insert.is_empty() || !changes.update.is_empty();
        Ok(if is_new { FetchOutcome::New } else { FetchOutcome::Unchanged })
    }
}

/// Returns the type of a feed from the format of its document. WordPress serves RSS and Atom.
fn kind_of(current: FeedType, format: Format) -> FeedType {
    match format {
        Format::Json => FeedType::Json,
        _ if current == FeedType::Wordpress => FeedType::Wordpress,
        Format::Rss => FeedType::Rss,
        Format::Atom => FeedType::Atom,
    }
}
