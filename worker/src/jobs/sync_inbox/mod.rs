//! `sync_inbox`: reads the new messages of one account, a page of one stream after the other.
//!
//! A page is stored with the cursor after it, in one transaction that checks the lease: after a crash at any point,
//! the next run begins at the last page that was stored, and a page that is read again changes nothing, since each
//! message is stored once.
//!
//! A failed look is not a failed job: the account's row in `inbox_syncs` has the error and the time of the next one. A
//! stream that the platform does not let the account read is shown there too, and is no failure.
//! A stream that fails does not hold up the others; a platform that asks for a pause gets it from all jobs of the
//! account.
//!
//! After a complete look it follows what was deleted at the platform ([`deletions`]), and reads the limits of a server
//! that sets its own, once a day.

mod deletions;

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};
use crier_base::backoff;
use crier_domain::account::AccountStatus;
use crier_domain::conversation::FetchedMessage;
use crier_domain::failure::{Category, Failure};
use crier_domain::job::{Claimed, Lane, Outcome};
use crier_domain::platform::Platform;
use crier_jobs::{accounts as connected, replies};
use crier_platforms::inbox::InboxPage;
use crier_platforms::{CallError, ConnectorRegistry};
use crier_store::conversations::receive;
use crier_store::inbox_syncs::{self, InboxSync};
use crier_store::jobs::{self, engine as rows, lanes};
use crier_store::{Result, Store, StoreError, Tx, accounts};
use crier_telemetry::metrics;

use super::account_session::{AccountSession, RefreshError};
use super::{Deps, Job, RunResult};
use crate::engine::Run;

/// How many pages of a stream a run reads; the rest comes in the next run, after those of other accounts.
const MAX_PAGES: usize = 5;
/// The pause if a platform asks for one and names no time.
const LIMIT_PAUSE: TimeDelta = TimeDelta::minutes(5);
/// When an account is looked at again whose platform's inbox is switched off.
const SWITCHED_OFF: TimeDelta = TimeDelta::hours(1);
/// After failures in a row an account is looked at less often, at most so many times.
const MAX_SLOWDOWN: i32 = 30;

pub struct SyncInbox {
    store: Store,
    platforms: Arc<ConnectorRegistry>,
    /// The maximum duration of one fetch, which may be several requests.
    timeout: TimeDelta,
}

/// Why a run reads no further.
enum SyncStop {
    /// Another worker has the job by now, or the account is gone.
    Over(&'static str),
    Call(CallError),
    Database(StoreError),
}

impl From<StoreError> for SyncStop {
    fn from(error: StoreError) -> Self {
        Self::Database(error)
    }
}

impl From<RefreshError> for SyncStop {
    fn from(error: RefreshError) -> Self {
        match error {
            RefreshError::Call(error) => Self::Call(error),
            RefreshError::Database(error) => Self::Database(error),
        }
    }
}

type Step<T> = std::result::Result<T, SyncStop>;

impl SyncInbox {
    pub fn new(deps: &Deps) -> Self {
        Self { store: deps.store.clone(), platforms: deps.platforms.clone(), timeout: deps.platform_timeout * 2 }
    }

    /// Reads all streams into `end`; an error is one that ends the run without a result.
    async fn read(&self, run: &Run, session: &mut AccountSession, sync: &InboxSync, end: &mut SyncEnd) -> Step<()> {
        let connector = session.connector.clone();
        let Some(inbox) = connector.inbox() else {
            // Switched off by the operator, who may switch it on again.
            let has_inbox = !connector.descriptor().capabilities.inbox.is_empty();
            end.interval = has_inbox.then_some(SWITCHED_OFF);
            return Ok(());
        };
        if !inbox.reads(&session.connector_account.external_id) {
            return Ok(());
        }
        end.interval = Some(inbox.interval());
        // A stream that was read to its end begins anew when all of them have been: else two that overlap what they
        // have read would keep each other going.
        let goes_on = |stream: &str| sync.unfinished.is_empty() || sync.unfinished.iter().any(|one| one == stream);
        for stream in inbox.streams().iter().filter(|stream| goes_on(stream)) {
            match self.read_stream(run, session, stream, sync.cursors.get(*stream).cloned(), end).await {
                Ok(false) => {}
                Ok(true) => {
                    end.has_more = true;
                    end.unfinished.push((*stream).to_owned());
                }
                Err(SyncStop::Call(error @ CallError::RateLimited { .. })) => {
                    end.error = Some(error);
                    break;
                }
                Err(SyncStop::Call(error @ (CallError::Reauth(_) | CallError::AuthExpired(_)))) => {
                    end.version = session.account.credentials_version;
                    end.error = Some(error);
                    break;
                }
                Err(SyncStop::Call(error)) => {
                    end.error = Some(error);
                    end.unfinished.push((*stream).to_owned());
                }
                Err(stop) => return Err(stop),
            }
        }
        if end.error.is_none()
            && !end.has_more
            && let Err(stop) = self.follow_deletions(run, session, sync).await
        {
            match stop {
                SyncStop::Call(error) => end.error = Some(error),
                stop => return Err(stop),
            }
        }
        end.version = session.account.credentials_version;
        Ok(())
    }

    /// Reads the limits of the account's server, once a day. If that fails, the next look tries again; it is no failure of
    /// this one.
    async fn read_limits(&self, run: &Run, session: &AccountSession) -> Step<()> {
        let (account, now) = (&session.account, self.store.now());
        let is_read = account.limits.as_ref().is_some_and(|limits| !limits.is_outdated(now));
        if is_read || !account.platform.has_server_limits() {
            return Ok(());
        }
        let timeout = self.timeout.to_std().unwrap_or_default();
        let read = tokio::time::timeout(timeout, session.connector.limits(&session.connector_account));
        match run.wait_without_slot(read).await {
            Ok(Ok(Some(limits))) => {
                let mut tx = self.store.begin().await?;
                accounts::set_limits(&mut tx, account, &limits).await?;
                tx.commit().await?;
            }
            Ok(Ok(None)) => {}
            Ok(Err(error)) => tracing::info!(account = account.id, %error, "failed to read the server's limits"),
            Err(_) => tracing::info!(account = account.id, "timed out reading the server's limits"),
        }
        Ok(())
    }

    /// Reads and stores pages of a stream; returns whether there are more.
    async fn read_stream(
        &self,
        run: &Run,
        session: &mut AccountSession,
        stream: &str,
        mut cursor: Option<serde_json::Value>,
        end: &mut SyncEnd,
    ) -> Step<bool> {
        for _ in 0..MAX_PAGES {
            let page = self.fetch(run, session, stream, cursor.as_ref()).await?;
            let has_more = page.has_more;
            if page.unavailable.is_some() {
                end.unavailable.clone_from(&page.unavailable);
            }
            if !page.messages.is_empty() || cursor.as_ref() != Some(&page.cursor) {
                cursor = Some(page.cursor.clone());
                self.store_page(run, session, stream, page).await?;
            }
            if !has_more {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Fetches a page; once more after an expired access token was renewed.
    async fn fetch(
        &self,
        run: &Run,
        session: &mut AccountSession,
        stream: &str,
        cursor: Option<&serde_json::Value>,
    ) -> Step<InboxPage> {
        loop {
            let connector = session.connector.clone();
            let Some(inbox) = connector.inbox() else { return Ok(InboxPage::default()) };
            let timeout = self.timeout.to_std().unwrap_or_default();
            let fetched = tokio::time::timeout(timeout, inbox.fetch(&session.connector_account, stream, cursor));
            let fetched = run.wait_without_slot(fetched).await;
            match fetched.unwrap_or_else(|_| Err(CallError::network("The platform did not respond in time."))) {
                Ok(page) => return Ok(page),
                Err(CallError::AuthExpired(failure)) => session.refresh(run, failure).await?,
                Err(error) => return Err(SyncStop::Call(error)),
            }
        }
    }

    /// Stores a page with the cursor after it, and the events of what is new.
    async fn store_page(&self, run: &Run, session: &AccountSession, stream: &str, page: InboxPage) -> Step<()> {
        let account = &session.account;
        let mut tx = self.store.begin().await?;
        let Some(sync) = inbox_syncs::lock(&mut tx, account.id).await? else {
            return Err(SyncStop::Over("the account no longer exists"));
        };
        if !rows::still_held(&mut tx, &run.job).await? {
            return Err(SyncStop::Over("the lease was lost"));
        }
        let now = tx.now;
        // A platform's clock may be ahead.
        let clamp = |message: FetchedMessage| FetchedMessage { sent_at: message.sent_at.min(now), ..message };
        let messages: Vec<_> = page.messages.into_iter().map(clamp).collect();
        for message in receive::receive(&mut tx, account, &messages).await? {
            replies::received(&mut tx, account.platform, &message, run.job.trace.as_deref()).await?;
        }
        let mut cursors = sync.cursors;
        cursors.insert(stream.to_owned(), page.cursor);
        inbox_syncs::set_cursors(&mut tx, account.id, &cursors).await?;
        Ok(tx.commit().await?)
    }
}

#[async_trait]
impl Job for SyncInbox {
    async fn run(&self, run: &Run) -> Result<Box<dyn RunResult>> {
        let id = run.job.subject_id;
        let mut conn = self.store.read().await?;
        let sync = inbox_syncs::find(&mut conn, id).await?;
        let account = accounts::with_secrets(&mut conn, self.store.cipher(), id).await?;
        drop(conn);
        let (Some(sync), Some((account, secrets))) = (sync, account) else {
            return Ok(Box::new(Outcome::Cancelled("the account no longer exists".to_owned())));
        };
        if account.status == AccountStatus::Expired {
            return Ok(Box::new(Outcome::Cancelled("the account has expired".to_owned())));
        }
        let mut end = SyncEnd {
            account_id: id,
            platform: account.platform,
            version: account.credentials_version,
            requests: sync.requests,
            interval: None,
            has_more: false,
            unfinished: Vec::new(),
            error: None,
            unavailable: None,
            jitter: crier_base::random::unit(),
        };
        let Some(connector) = self.platforms.get(account.platform) else { return Ok(Box::new(end)) };
        let mut session = AccountSession::new(&self.store, account, &secrets, connector, self.timeout)?;
        let mut read = self.read(run, &mut session, &sync, &mut end).await;
        if read.is_ok() && end.error.is_none() && !end.has_more {
            read = self.read_limits(run, &session).await;
        }
        match read {
            Ok(()) => Ok(Box::new(end)),
            Err(SyncStop::Over(why)) => Ok(Box::new(Outcome::Cancelled(why.to_owned()))),
            Err(SyncStop::Call(error)) => Ok(Box::new(SyncEnd { error: Some(error), ..end })),
            Err(SyncStop::Database(error)) => Err(error),
        }
    }
}

/// The result of a look; the messages are stored already.
struct SyncEnd {
    account_id: i64,
    platform: Platform,
    /// The version of the credentials that the last call used.
    version: i64,
    /// How often a look had been asked for when this one began.
    requests: i64,
    /// `None`: the platform has no inbox for the account.
    interval: Option<TimeDelta>,
    has_more: bool,
    /// The streams that have more, or failed.
    unfinished: Vec<String>,
    error: Option<CallError>,
    /// Why the platform does not let the account read a stream: shown, and not a failure of the look.
    unavailable: Option<Failure>,
    /// In `[0, 1)`.
    jitter: f64,
}

#[async_trait]
impl RunResult for SyncEnd {
    async fn write(&self, tx: &mut Tx, job: &Claimed) -> Result<Outcome> {
        // The account's row before that of the sync, as when an account is connected.
        if let Some(CallError::Reauth(failure) | CallError::AuthExpired(failure)) = &self.error {
            connected::expire(tx, self.account_id, self.version, &failure.message, job.trace.as_deref()).await?;
        }
        let Some(sync) = inbox_syncs::lock(tx, self.account_id).await? else {
            return Ok(Outcome::Cancelled("the account no longer exists".to_owned()));
        };
        let (now, failure) = (tx.now, self.error.as_ref().map(CallError::failure));
        let mut next = self.next(sync.failures, now);
        if let Some(CallError::RateLimited { until, .. }) = &self.error {
            let until = until.unwrap_or(now + LIMIT_PAUSE);
            next = next.map(|next| next.max(until));
            lanes::pause_lane(tx, &Lane::Account(self.account_id).to_string(), until).await?;
        } else if self.interval.is_some() && (self.has_more || sync.requests != self.requests) {
            jobs::refund_attempt(tx, job).await?;
            // A look that was asked for meanwhile reads all streams.
            let goes_on: &[String] = if sync.requests == self.requests { &self.unfinished } else { &[] };
            if goes_on != sync.unfinished {
                inbox_syncs::set_unfinished(tx, self.account_id, goes_on).await?;
            }
            return Ok(Outcome::RetryAt(now, "there are more messages to read".to_owned()));
        }
        match failure {
            Some(failure) => inbox_syncs::fail(tx, self.account_id, failure, next).await?,
            None => inbox_syncs::end(tx, self.account_id, self.unavailable.as_ref(), next).await?,
        }
        Ok(Outcome::Done)
    }

    fn reduced(&self) -> Option<Arc<dyn RunResult>> {
        let failure = Failure::of(Category::PlatformError, "The platform's error message could not be stored.");
        let error = self.error.as_ref().map(|_| CallError::Transient(failure.clone()));
        let unavailable = self.unavailable.as_ref().map(|_| failure);
        Some(Arc::new(Self { error, unavailable, unfinished: self.unfinished.clone(), ..*self }))
    }

    fn order(&self) -> i64 {
        self.account_id
    }

    fn observe(&self, _outcome: &Outcome) {
        let Some(error) = &self.error else { return };
        if matches!(error, CallError::RateLimited { .. }) {
            metrics::platform_rate_limited(self.platform.as_str());
        }
        tracing::info!(account = self.account_id, platform = %self.platform, %error, "failed to read an inbox completely");
    }
}

impl SyncEnd {
    /// Returns when the account is looked at next, after this many failures in a row before this look.
    fn next(&self, failures: i32, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let failures = if self.error.is_some() { failures.saturating_add(1).clamp(1, MAX_SLOWDOWN) } else { 1 };
        let pause = self.interval? * failures;
        Some((now + backoff::jitter(pause, 0.1, self.jitter)).trunc_subsecs(6))
    }
}
