//! `collect_analytics`: collects the due figures of one account and of its posts.
//!
//! Posts are asked for in batches, where the platform takes them; what was collected is stored, also if a later call
//! fails. The account's next time is stored with it: when the next of its posts is due, or the next day in the brand's
//! zone. A limit of the platform pauses the account's lane and puts the rest off; nothing is dropped.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::account::AccountStatus;
use crier_domain::analytics::{AccountFigures, Figures, Tz, day_start, next_collection, zone};
use crier_domain::job::{Claimed, Lane, Outcome};
use crier_domain::plan::Plans;
use crier_platforms::analytics::{AnalyticsConnector, PublishedPost, SetAside};
use crier_platforms::{CallError, ConnectorRegistry, Marker, Published};
use crier_store::analytics::{self, Collected, DueTarget};
use crier_store::jobs::lanes;
use crier_store::{Result, Store, Tx, accounts};

use super::account_session::{AccountSession, RefreshError};
use super::{Deps, Job, RunResult};
use crate::engine::Run;

/// How many posts without an id one run asks for, one call each; TikTok takes 30 a minute.
const MAX_LOOKUPS: usize = 20;
/// A post that has no id for so long gets none.
const MAX_UNNAMED: TimeDelta = TimeDelta::days(7);
/// How many posts one run looks at; the rest follows at once.
const MAX_POSTS: i64 = 500;
/// The pause after a passing failure, and after one that is not expected to pass.
const RETRY_PAUSE: TimeDelta = TimeDelta::minutes(15);
const REFUSED_PAUSE: TimeDelta = TimeDelta::hours(6);
/// When an account is looked at again whose platform's figures are switched off.
const SWITCHED_OFF_PAUSE: TimeDelta = TimeDelta::hours(2);
/// The pause after a limit without a time.
const LIMIT_PAUSE: TimeDelta = TimeDelta::hours(1);
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

    /// Collects what is due, as far as the platform answers.
    async fn collect(&self, run: &Run, access: &mut AccountSession, end: &mut CollectEnd) -> Result<()> {
        let mut conn = self.store.read().await?;
        let due = analytics::due_targets(&mut conn, access.account.id, end.now, MAX_POSTS).await?;
        let last = analytics::last_of_account(&mut conn, access.account.id).await?;
        let plan = analytics::plan_of_account(&mut conn, access.account.id).await?;
        end.aside = SetAside::new(analytics::set_aside(&mut conn, access.account.id, end.now).await?);
        drop(conn);
        let days = plan.and_then(|plan| self.plans.get(&plan)?.analytics_days);
        let retention = days.and_then(|days| TimeDelta::try_days(i64::try_from(days).ok()?));
        end.is_more_due = due.len() as i64 == MAX_POSTS;
        if last.is_none_or(|last| last < day_start(end.now.with_timezone(&end.zone).date_naive(), end.zone)) {
            match self.ask_account(run, access, &mut end.aside).await? {
                Ok(figures) => end.account_figures = Some(figures),
                Err(error) => return end.stop(error),
            }
        }
        let batch = access.connector.analytics().map_or(0, AnalyticsConnector::posts_per_call);
        // A post without an id cannot be asked for.
        let (mut named, unnamed): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|due| batch > 0 && due.external_id.is_some());
        match self.find_ids(run, access, unnamed, end).await? {
            Ok(found) => named.extend(found),
            Err(error) => return end.stop(error),
        }
        for chunk in named.chunks(batch.max(1)) {
            let posts: Vec<PublishedPost> = chunk.iter().map(published_post).collect();
            let figures = match self.ask_posts(run, access, &posts, &mut end.aside).await? {
                Ok(figures) => figures,
                Err(error) => return end.stop(error),
            };
            let now = self.store.now();
            end.collected.extend(chunk.iter().zip(figures).map(|(due, figures)| Collected {
                target_id: due.target_id,
                figures,
                next_at: next_collection(due.published_at, now, retention),
            }));
        }
        Ok(())
    }

    /// Asks for the ids of posts that have none; returns those that have one now. The others are looked at again for some
    /// days where the platform may name them later, and else no more.
    async fn find_ids(
        &self,
        run: &Run,
        access: &mut AccountSession,
        unnamed: Vec<DueTarget>,
        end: &mut CollectEnd,
    ) -> Result<CallResult<Vec<DueTarget>>> {
        let is_later = access.connector.analytics().is_some_and(|figures| figures.names_posts_later());
        let mut found = Vec::new();
        for (index, mut due) in unnamed.into_iter().enumerate() {
            let is_young = end.now - due.published_at < MAX_UNNAMED;
            if let Some(marker) = due.marker.as_ref().filter(|_| is_later && is_young) {
                if index >= MAX_LOOKUPS {
                    // Due still, in a minute.
                    continue;
                }
                let named = match self.ask_id(run, access, marker).await? {
                    Ok(named) => named,
                    Err(error) => return Ok(Err(error)),
                };
                if let Some(post) = named {
                    due.external_id = Some(post.external_id.clone());
                    end.named.push((due.target_id, post));
                    found.push(due);
                    continue;
                }
            }
            let next_at = next_collection(due.published_at, end.now, None).filter(|_| is_later && is_young);
            end.collected.push(Collected { target_id: due.target_id, figures: Some(Figures::default()), next_at });
        }
        Ok(Ok(found))
    }

    async fn ask_id(
        &self,
        run: &Run,
        access: &mut AccountSession,
        marker: &Marker,
    ) -> Result<CallResult<Option<Published>>> {
        loop {
            let call = async { figures(access)?.find_id(&access.connector_account, marker).await };
            let asked = self.within_deadline(run, call).await;
            if let Some(answer) = self.renew_if_expired(run, access, asked).await? {
                return Ok(answer);
            }
        }
    }

    async fn ask_account(
        &self,
        run: &Run,
        access: &mut AccountSession,
        aside: &mut SetAside,
    ) -> Result<CallResult<AccountFigures>> {
        loop {
            let call = async { figures(access)?.account_figures(&access.connector_account, aside).await };
            let asked = self.within_deadline(run, call).await;
            if let Some(answer) = self.renew_if_expired(run, access, asked).await? {
                return Ok(answer);
            }
        }
    }

    async fn ask_posts(
        &self,
        run: &Run,
        access: &mut AccountSession,
        posts: &[PublishedPost],
        aside: &mut SetAside,
    ) -> Result<CallResult<Vec<Option<Figures>>>> {
        loop {
            let call = async { figures(access)?.post_figures(&access.connector_account, posts, aside).await };
            let asked = self.within_deadline(run, call).await;
            if let Some(answer) = self.renew_if_expired(run, access, asked).await? {
                return Ok(answer);
            }
        }
    }

    async fn within_deadline<T>(&self, run: &Run, call: impl Future<Output = CallResult<T>> + Send) -> CallResult<T> {
        let deadline = self.timeout.to_std().unwrap_or_default();
        let asked = run.wait_without_slot(tokio::time::timeout(deadline, call)).await;
        asked.unwrap_or_else(|_| Err(CallError::network("The platform did not respond in time.")))
    }

    /// Returns `None` if the credentials had expired and were renewed: then the call is made again.
    async fn renew_if_expired<T>(
        &self,
        run: &Run,
        access: &mut AccountSession,
        asked: CallResult<T>,
    ) -> Result<Option<CallResult<T>>> {
        let Err(CallError::AuthExpired(failure)) = asked else { return Ok(Some(asked)) };
        match access.refresh(run, failure).await {
            Ok(()) => Ok(None),
            Err(RefreshError::Call(error)) => Ok(Some(Err(error))),
            Err(RefreshError::Database(error)) => Err(error),
        }
    }
}

type CallResult<T> = std::result::Result<T, CallError>;

fn figures(access: &AccountSession) -> CallResult<&dyn AnalyticsConnector> {
    access.connector.analytics().ok_or_else(|| CallError::network("The platform provides no metrics."))
}

fn published_post(due: &DueTarget) -> PublishedPost {
    PublishedPost { external_id: due.external_id.clone().unwrap_or_default(), published_at: due.published_at }
}

#[async_trait]
impl Job for CollectAnalytics {
    async fn run(&self, run: &Run) -> Result<Box<dyn RunResult>> {
        let mut conn = self.store.read().await?;
        let found = accounts::with_secrets(&mut conn, self.store.cipher(), run.job.subject_id).await?;
        let Some((account, secrets)) = found else {
            return Ok(Box::new(Outcome::Cancelled("the account no longer exists".to_owned())));
        };
        let Some(connector) = self.platforms.get(account.platform) else {
            return Ok(Box::new(Outcome::Cancelled("the platform is not configured".to_owned())));
        };
        let name = analytics::zone_of_account(&mut conn, account.id).await?;
        drop(conn);
        let mut access = AccountSession::new(&self.store, account, &secrets, connector, self.timeout * 2)?;
        let mut end = CollectEnd {
            account_id: access.account.id,
            version: access.account.credentials_version,
            zone: zone(name.as_deref()),
            now: self.store.now(),
            collected: Vec::new(),
            named: Vec::new(),
            account_figures: None,
            aside: SetAside::default(),
            is_more_due: false,
            is_off: access.connector.analytics().is_none(),
            error: None,
        };
        if access.account.status == AccountStatus::Active && !end.is_off {
            self.collect(run, &mut access, &mut end).await?;
            end.version = access.account.credentials_version;
        }
        Ok(Box::new(end))
    }
}

/// What was collected, and why not more.
struct CollectEnd {
    account_id: i64,
    /// The version of the credentials that the last call used.
    version: i64,
    zone: Tz,
    now: DateTime<Utc>,
    collected: Vec<Collected>,
    /// Posts that have an id now.
    named: Vec<(i64, Published)>,
    account_figures: Option<AccountFigures>,
    /// Metrics that the platform refuses for this account.
    aside: SetAside,
    is_more_due: bool,
    /// The operator has switched the platform's figures off, and may switch them on again.
    is_off: bool,
    error: Option<CallError>,
}

impl CollectEnd {
    fn stop(&mut self, error: CallError) -> Result<()> {
        self.error = Some(error);
        Ok(())
    }

    /// Returns when the account is looked at again at the earliest.
    fn earliest(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        match &self.error {
            None if self.is_off => now + SWITCHED_OFF_PAUSE,
            None if self.is_more_due => now,
            None => now + MIN_PAUSE,
            Some(CallError::RateLimited { until, .. }) => until.unwrap_or(now + LIMIT_PAUSE).max(now),
            Some(CallError::Reauth(_) | CallError::AuthExpired(_) | CallError::Permanent(_)) => now + REFUSED_PAUSE,
            Some(_) => now + RETRY_PAUSE,
        }
    }
}

#[async_trait]
impl RunResult for CollectEnd {
    async fn write(&self, tx: &mut Tx, job: &Claimed) -> Result<Outcome> {
        let now = tx.now;
        for (target, post) in &self.named {
            analytics::record_id(tx, *target, &post.external_id, post.url.as_deref()).await?;
        }
        analytics::record_posts(tx, &self.collected).await?;
        if let Some(figures) = &self.account_figures {
            analytics::record_account(tx, self.account_id, figures).await?;
        }
        let aside: Vec<String> = self.aside.added().map(str::to_owned).collect();
        analytics::record_set_aside(tx, self.account_id, &aside).await?;
        match &self.error {
            Some(CallError::Reauth(failure) | CallError::AuthExpired(failure)) => {
                crier_jobs::accounts::expire(tx, self.account_id, self.version, &failure.message, job.trace.as_deref())
                    .await?;
            }
            Some(CallError::RateLimited { until: Some(until), .. }) => {
                lanes::pause_lane(tx, &Lane::Account(self.account_id).to_string(), *until).await?;
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

    fn order(&self) -> i64 {
        self.account_id
    }
}
