//! `collect_analytics`: collects the due metrics of one account and of its posts.
//!
//! Posts are requested in batches if the platform supports that. Collected metrics are stored even if a later call
//! fails. The time of the account's next collection is stored with them: when the next of its posts is due, or the next
//! day in the brand's time zone. If the platform limits the rate, the account's lane is paused and the rest is
//! collected later.
//!
//! Because it runs at least once per day, it also reads the boards of the account, if the platform has boards.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::account::AccountStatus;
use crier_domain::analytics::{AccountMetrics, PostMetrics, Tz, day_start, next_collection, zone};
use crier_domain::failure::Failure;
use crier_domain::job::{ClaimedJob, Outcome};
use crier_domain::plan::Plans;
use crier_platforms::analytics::{AnalyticsConnector, MetricsSetAside, PublishedPost};
use crier_platforms::{CallError, ConnectorRegistry, Marker, Published};
use crier_store::analytics::{self, CollectedMetrics, DueTarget};
use crier_store::{Result, Store, Tx, accounts};

use super::account_session::{AccountSession, RefreshError};
use super::call_outcome::pause_after_read;
use super::{Deps, FinishedRun, Job, RunError, RunResult, settle_each};
use crate::engine::Run;

/// The maximum number of posts without an id that one run looks up, with one call each. TikTok allows 30 calls per
/// minute.
const MAX_LOOKUPS: usize = 20;
/// The maximum age of a post whose id is looked up.
const MAX_LOOKUP_AGE: TimeDelta = TimeDelta::days(7);
/// The maximum age of a post for which the worker checks whether the platform rejected it later. With the times of
/// [`next_collection`], that is four times.
const MAX_REJECTION_AGE: TimeDelta = TimeDelta::days(4);
/// The maximum number of posts per run; the rest follows immediately.
const MAX_POSTS: i64 = 500;
/// The pauses after a temporary and after a permanent failure.
const RETRY_PAUSE: TimeDelta = TimeDelta::minutes(15);
const PERMANENT_PAUSE: TimeDelta = TimeDelta::hours(6);
/// The pause if the metrics of the account's platform are switched off.
const SWITCHED_OFF_PAUSE: TimeDelta = TimeDelta::hours(2);
/// The pause after a rate limit without a time.
const LIMIT_PAUSE: TimeDelta = TimeDelta::hours(1);
/// How long before they are outdated boards are read again. The job runs at about the same time each day, and would
/// otherwise often be a few seconds too early.
const BOARDS_LEAD: TimeDelta = TimeDelta::hours(2);
/// The shortest pause between two jobs of an account.
const MIN_PAUSE: TimeDelta = TimeDelta::minutes(1);

pub struct CollectAnalytics {
    store: Store,
    platforms: Arc<ConnectorRegistry>,
    plans: Arc<Plans>,
    /// The deadline of one call.
    timeout: TimeDelta,
}

impl CollectAnalytics {
    pub fn new(deps: &Deps) -> Self {
        Self {
            store: deps.store.clone(),
            platforms: deps.platforms.clone(),
            plans: deps.plans.clone(),
            timeout: deps.platform_timeout,
        }
    }

    /// Collects the due metrics until the platform returns an error.
    async fn collect(&self, run: &Run, session: &mut AccountSession, result: &mut CollectRunResult) -> Result<()> {
        let mut conn = self.store.read().await?;
        let due = analytics::due_targets(&mut conn, session.account.id, result.now, MAX_POSTS).await?;
        let last = analytics::last_of_account(&mut conn, session.account.id).await?;
        let plan = analytics::plan_of_account(&mut conn, session.account.id).await?;
        result.aside = MetricsSetAside::new(analytics::set_aside(&mut conn, session.account.id, result.now).await?);
        drop(conn);
        let days = plan.and_then(|plan| self.plans.get(&plan)?.analytics_days);
        let retention = days.and_then(|days| TimeDelta::try_days(i64::try_from(days).ok()?));
        result.is_more_due = due.len() as i64 == MAX_POSTS;
        if last.is_none_or(|last| last < day_start(result.now.with_timezone(&result.zone).date_naive(), result.zone)) {
            match self.fetch_account_metrics(run, session, &mut result.aside).await? {
                Ok(metrics) => result.account_metrics = Some(metrics),
                Err(error) => return result.stop(error),
            }
        }
        let batch = session.connector.analytics().map_or(0, AnalyticsConnector::posts_per_call);
        // Metrics of a post without an id cannot be requested.
        let (mut named, unnamed): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|due| batch > 0 && due.external_id.is_some());
        match self.find_ids(run, session, unnamed, result).await? {
            Ok(found) => named.extend(found),
            Err(error) => return result.stop(error),
        }
        for chunk in named.chunks(batch.max(1)) {
            let posts: Vec<PublishedPost> = chunk.iter().map(published_post).collect();
            let metrics = match self.fetch_post_metrics(run, session, &posts, &mut result.aside).await? {
                Ok(metrics) => metrics,
                Err(error) => return result.stop(error),
            };
            let now = self.store.now();
            result.collected.extend(chunk.iter().zip(metrics).map(|(due, metrics)| CollectedMetrics {
                target_id: due.target_id,
                metrics,
                next_at: next_collection(due.published_at, now, retention),
            }));
            if let Err(error) = self.find_rejections(run, session, chunk, result).await? {
                return result.stop(error);
            }
        }
        Ok(())
    }

    /// Finds young posts that the platform rejected after it had published them.
    async fn find_rejections(
        &self,
        run: &Run,
        session: &mut AccountSession,
        posts: &[DueTarget],
        result: &mut CollectRunResult,
    ) -> Result<CallResult<()>> {
        let young: Vec<&DueTarget> =
            posts.iter().filter(|due| result.now - due.published_at < MAX_REJECTION_AGE).collect();
        if young.is_empty() {
            return Ok(Ok(()));
        }
        let published: Vec<PublishedPost> = young.iter().map(|due| published_post(due)).collect();
        let found = loop {
            let call = async { analytics_of(session)?.later_rejections(&session.connector_account, &published).await };
            let found = self.within_deadline(run, call).await;
            if let Some(found) = self.renew_if_expired(run, session, found).await? {
                break found;
            }
        };
        let rejections = match found {
            Ok(rejections) => rejections,
            Err(error) => return Ok(Err(error)),
        };
        let rejected = young.iter().zip(rejections).filter_map(|(due, rejection)| Some((due.target_id, rejection?)));
        result.rejected.extend(rejected);
        Ok(Ok(()))
    }

    /// Looks up the ids of posts without one; returns the posts whose id was found. The others are looked up again for
    /// some days if the platform may return their ids later, otherwise never.
    async fn find_ids(
        &self,
        run: &Run,
        session: &mut AccountSession,
        unnamed: Vec<DueTarget>,
        result: &mut CollectRunResult,
    ) -> Result<CallResult<Vec<DueTarget>>> {
        let may_find_later = session.connector.analytics().is_some_and(AnalyticsConnector::assigns_ids_later);
        let mut found = Vec::new();
        for (index, mut due) in unnamed.into_iter().enumerate() {
            let is_young = result.now - due.published_at < MAX_LOOKUP_AGE;
            if let Some(marker) = due.marker.as_ref().filter(|_| may_find_later && is_young) {
                if index >= MAX_LOOKUPS {
                    // Remains due for the next run.
                    continue;
                }
                let named = match self.fetch_id(run, session, marker).await? {
                    Ok(named) => named,
                    Err(error) => return Ok(Err(error)),
                };
                if let Some(post) = named {
                    due.external_id = Some(post.external_id.clone());
                    result.named.push((due.target_id, post));
                    found.push(due);
                    continue;
                }
            }
            let next_at = next_collection(due.published_at, result.now, None).filter(|_| may_find_later && is_young);
            result.collected.push(CollectedMetrics {
                target_id: due.target_id,
                metrics: Some(PostMetrics::default()),
                next_at,
            });
        }
        Ok(Ok(found))
    }

    async fn fetch_id(
        &self,
        run: &Run,
        session: &mut AccountSession,
        marker: &Marker,
    ) -> Result<CallResult<Option<Published>>> {
        loop {
            let call = async { analytics_of(session)?.find_id(&session.connector_account, marker).await };
            let result = self.within_deadline(run, call).await;
            if let Some(result) = self.renew_if_expired(run, session, result).await? {
                return Ok(result);
            }
        }
    }

    async fn fetch_account_metrics(
        &self,
        run: &Run,
        session: &mut AccountSession,
        aside: &mut MetricsSetAside,
    ) -> Result<CallResult<AccountMetrics>> {
        loop {
            let call = async { analytics_of(session)?.account_metrics(&session.connector_account, aside).await };
            let result = self.within_deadline(run, call).await;
            if let Some(result) = self.renew_if_expired(run, session, result).await? {
                return Ok(result);
            }
        }
    }

    async fn fetch_post_metrics(
        &self,
        run: &Run,
        session: &mut AccountSession,
        posts: &[PublishedPost],
        aside: &mut MetricsSetAside,
    ) -> Result<CallResult<Vec<Option<PostMetrics>>>> {
        loop {
            let call = async { analytics_of(session)?.post_metrics(&session.connector_account, posts, aside).await };
            let result = self.within_deadline(run, call).await;
            if let Some(result) = self.renew_if_expired(run, session, result).await? {
                return Ok(result);
            }
        }
    }

    async fn within_deadline<T>(&self, run: &Run, call: impl Future<Output = CallResult<T>> + Send) -> CallResult<T> {
        let deadline = self.timeout.to_std().unwrap_or_default();
        let result = run.wait_without_slot(tokio::time::timeout(deadline, call)).await;
        result.unwrap_or_else(|_| Err(CallError::network("The platform did not respond in time.")))
    }

    /// Returns the result of a call; `None` if the credentials had expired and were renewed, so that the caller repeats
    /// the call.
    async fn renew_if_expired<T>(
        &self,
        run: &Run,
        session: &mut AccountSession,
        result: CallResult<T>,
    ) -> Result<Option<CallResult<T>>> {
        let Err(CallError::AuthExpired(failure)) = result else { return Ok(Some(result)) };
        match session.refresh(run, failure).await {
            Ok(()) => Ok(None),
            Err(RefreshError::Call(error)) => Ok(Some(Err(error))),
            Err(RefreshError::Database(error)) => Err(error),
        }
    }
}

type CallResult<T> = std::result::Result<T, CallError>;

fn analytics_of(session: &AccountSession) -> CallResult<&dyn AnalyticsConnector> {
    session.connector.analytics().ok_or_else(|| CallError::network("The platform provides no metrics."))
}

fn published_post(due: &DueTarget) -> PublishedPost {
    PublishedPost { external_id: due.external_id.clone().unwrap_or_default(), published_at: due.published_at }
}

#[async_trait]
impl Job for CollectAnalytics {
    type Result = CollectRunResult;

    async fn run(&self, run: &Run) -> std::result::Result<CollectRunResult, RunError> {
        let mut conn = self.store.read().await?;
        let found = accounts::with_secrets(&mut conn, self.store.cipher(), run.job.subject_id).await?;
        let Some((account, secrets)) = found else {
            return Err(RunError::cancelled("the account no longer exists"));
        };
        let Some(connector) = self.platforms.get(account.platform) else {
            return Err(RunError::cancelled("the platform is not configured"));
        };
        let name = analytics::zone_of_account(&mut conn, account.id).await?;
        drop(conn);
        let mut session = AccountSession::new(&self.store, account, &secrets, connector, self.timeout * 2);
        let mut result = CollectRunResult {
            account_id: session.account.id,
            version: session.account.credentials_version,
            zone: zone(name.as_deref()),
            now: self.store.now(),
            collected: Vec::new(),
            named: Vec::new(),
            rejected: Vec::new(),
            account_metrics: None,
            aside: MetricsSetAside::default(),
            is_more_due: false,
            is_off: session.connector.analytics().is_none(),
            error: None,
        };
        if session.account.status == AccountStatus::Active && !result.is_off {
            self.collect(run, &mut session, &mut result).await?;
            if result.error.is_none() && session.account.platform.has_boards() {
                session.update_limits(run, self.store.now() + BOARDS_LEAD).await?;
            }
            result.version = session.account.credentials_version;
        }
        Ok(result)
    }

    async fn settle(&self, tx: &mut Tx, runs: &[FinishedRun<'_, CollectRunResult>]) -> Result<Vec<Outcome>> {
        settle_each(tx, runs, |tx, job, result| Box::pin(result.write(tx, job))).await
    }
}

/// The collected metrics, and the error that stopped the collection, if any.
pub struct CollectRunResult {
    account_id: i64,
    /// The version of the credentials that the last call used.
    version: i64,
    zone: Tz,
    now: DateTime<Utc>,
    collected: Vec<CollectedMetrics>,
    /// Posts whose id was found.
    named: Vec<(i64, Published)>,
    /// Targets that the platform rejected after it had published them.
    rejected: Vec<(i64, Failure)>,
    account_metrics: Option<AccountMetrics>,
    /// Metrics that the platform does not return for this account.
    aside: MetricsSetAside,
    is_more_due: bool,
    /// Whether the operator has switched off the platform's metrics, which may be switched on again.
    is_off: bool,
    error: Option<CallError>,
}

impl CollectRunResult {
    async fn write(&self, tx: &mut Tx, job: &ClaimedJob) -> Result<Outcome> {
        let now = tx.now;
        for (target, post) in &self.named {
            analytics::record_id(tx, *target, &post.external_id, post.url.as_deref()).await?;
        }
        analytics::record_posts(tx, &self.collected).await?;
        for (target, failure) in &self.rejected {
            crier_jobs::publishing::reject_later(tx, *target, failure, job.trace.as_deref()).await?;
        }
        if let Some(metrics) = &self.account_metrics {
            analytics::record_account(tx, self.account_id, metrics).await?;
        }
        let aside: Vec<String> = self.aside.added().map(str::to_owned).collect();
        analytics::record_unavailable_metrics(tx, self.account_id, &aside).await?;
        match &self.error {
            Some(CallError::Reauth(failure) | CallError::AuthExpired(failure)) => {
                crier_jobs::accounts::expire(tx, self.account_id, self.version, &failure.message, job.trace.as_deref())
                    .await?;
            }
            Some(CallError::RateLimited { until: Some(until), failure }) => {
                pause_after_read(tx, self.account_id, *until, failure).await?;
            }
            Some(error) => tracing::info!(account = self.account_id, %error, "failed to collect metrics"),
            None => {}
        }
        let tomorrow = now.with_timezone(&self.zone).date_naive().succ_opt().unwrap_or_default();
        // Spread over the first hour of the day.
        let spread = TimeDelta::seconds(self.account_id.rem_euclid(3_600));
        let latest = day_start(tomorrow, self.zone) + spread;
        analytics::set_next(tx, self.account_id, self.earliest(now), latest).await?;
        Ok(Outcome::Done)
    }

    fn stop(&mut self, error: CallError) -> Result<()> {
        self.error = Some(error);
        Ok(())
    }

    /// Returns the earliest time of the account's next collection.
    fn earliest(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        match &self.error {
            None if self.is_off => now + SWITCHED_OFF_PAUSE,
            None if self.is_more_due => now,
            None => now + MIN_PAUSE,
            Some(CallError::RateLimited { until, .. }) => until.unwrap_or(now + LIMIT_PAUSE).max(now + MIN_PAUSE),
            Some(CallError::Reauth(_) | CallError::AuthExpired(_) | CallError::Permanent(_)) => now + PERMANENT_PAUSE,
            Some(_) => now + RETRY_PAUSE,
        }
    }
}

impl RunResult for CollectRunResult {
    fn order(&self) -> i64 {
        self.account_id
    }
}
