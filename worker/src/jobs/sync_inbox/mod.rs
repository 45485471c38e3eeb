//! `sync_inbox`: reads the new messages of one account, one page of a stream after the other.
//!
//! A page is stored with the cursor after it, in a transaction that checks the lease. A long page takes several
//! transactions, of which the last one stores the cursor. After a crash at any point, the next run continues after the
//! last stored page. A page that is read again changes nothing, because each message is stored once.
//!
//! A failed sync is not a failed job: the account's row in `inbox_syncs` contains the error and the time of the next
//! sync. It also contains a stream that the platform does not let the account read, which is not a failure. A stream
//! that fails does not block the others. A rate limit of the platform also pauses the other jobs of the account, for a
//! short time.
//!
//! After a complete sync, it looks for messages that were deleted on the platform ([`deletions`]). Once per day, it reads
//! the limits of a server that has its own.

mod deletions;

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};
use crier_base::backoff;
use crier_domain::account::AccountStatus;
use crier_domain::conversation::FetchedMessage;
use crier_domain::failure::{Category, Failure};
use crier_domain::job::{ClaimedJob, Outcome};
use crier_domain::platform::Platform;
use crier_jobs::{accounts as connected, replies};
use crier_platforms::inbox::InboxPage;
use crier_platforms::{CallError, ConnectorRegistry};
use crier_store::conversations::receive;
use crier_store::inbox_syncs::{self, InboxSync};
use crier_store::jobs::{self, engine as rows};
use crier_store::{Result, Store, StoreError, Tx, accounts};
use crier_telemetry::metrics;

use super::account_session::{AccountSession, RefreshError};
use super::call_outcome::pause_after_read;
use super::{Deps, FinishedRun, Job, RunError, RunResult, settle_each};
use crate::engine::Run;

/// The maximum number of pages per stream and run. The next run, after those of other accounts, reads the rest.
const MAX_PAGES: usize = 5;
/// The maximum number of messages per transaction. On SQLite, it blocks all other writers.
const MESSAGES_PER_BATCH: usize = 1_000;
/// The pause after a rate limit without a time.
const LIMIT_PAUSE: TimeDelta = TimeDelta::minutes(5);
/// The pause if the inbox of the account's platform is switched off.
const SWITCHED_OFF_PAUSE: TimeDelta = TimeDelta::hours(1);
/// The maximum factor by which consecutive failures lengthen the interval.
const MAX_SLOWDOWN: i32 = 30;

pub struct SyncInbox {
    store: Store,
    platforms: Arc<ConnectorRegistry>,
    /// The maximum duration of one fetch, which may be several requests.
    timeout: TimeDelta,
}

/// Why a run reads no further.
enum SyncStop {
    Call(CallError),
    /// There is no result: another worker has the job, the account was deleted, or the database failed.
    Failed(RunError),
}

impl From<RunError> for SyncStop {
    fn from(error: RunError) -> Self {
        Self::Failed(error)
    }
}

impl From<StoreError> for SyncStop {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<RefreshError> for SyncStop {
    fn from(error: RefreshError) -> Self {
        match error {
            RefreshError::Call(error) => Self::Call(error),
            RefreshError::Database(error) => error.into(),
        }
    }
}

type Step<T> = std::result::Result<T, SyncStop>;

impl SyncInbox {
    pub fn new(deps: &Deps) -> Self {
        Self { store: deps.store.clone(), platforms: deps.platforms.clone(), timeout: deps.platform_timeout * 2 }
    }

    /// Reads all streams and records the result in `result`. An error ends the run without a result.
    async fn read(
        &self,
        run: &Run,
        session: &mut AccountSession,
        sync: &InboxSync,
        result: &mut SyncRunResult,
    ) -> Step<()> {
        let connector = session.connector.clone();
        let Some(inbox) = connector.inbox() else {
            // The operator has switched off the inbox, and may switch it on again.
            let has_inbox = !connector.descriptor().capabilities.inbox.is_empty();
            result.interval = has_inbox.then_some(SWITCHED_OFF_PAUSE);
            return Ok(());
        };
        if !inbox.reads(&session.connector_account.external_id) {
            return Ok(());
        }
        result.interval = Some(inbox.interval());
        // A finished stream is read again only when all streams are finished. Otherwise two streams that read their
        // latest messages again could keep each other unfinished.
        let is_due = |stream: &str| sync.unfinished.is_empty() || sync.unfinished.iter().any(|one| one == stream);
        for stream in inbox.streams().iter().filter(|stream| is_due(stream)) {
            match self.read_stream(run, session, stream, sync.cursors.get(*stream).cloned(), result).await {
                Ok(false) => {}
                Ok(true) => {
                    result.has_more = true;
                    result.unfinished.push((*stream).to_owned());
                }
                Err(SyncStop::Call(error @ CallError::RateLimited { .. })) => {
                    result.error = Some(error);
                    break;
                }
                Err(SyncStop::Call(error @ (CallError::Reauth(_) | CallError::AuthExpired(_)))) => {
                    result.version = session.account.credentials_version;
                    result.error = Some(error);
                    break;
                }
                Err(SyncStop::Call(error)) => {
                    result.error = Some(error);
                    result.unfinished.push((*stream).to_owned());
                }
                Err(stop) => return Err(stop),
            }
        }
        if result.error.is_none()
            && !result.has_more
            && let Err(stop) = self.check_deletions(run, session, sync).await
        {
            match stop {
                SyncStop::Call(error) if concerns_account(&error) => result.error = Some(error),
                SyncStop::Call(error) => {
                    tracing::info!(account = sync.account_id, %error, "failed to check for deleted messages");
                }
                stop @ SyncStop::Failed(_) => return Err(stop),
            }
        }
        result.version = session.account.credentials_version;
        Ok(())
    }

    /// Reads and stores pages of a stream. Returns whether there are more pages.
    async fn read_stream(
        &self,
        run: &Run,
        session: &mut AccountSession,
        stream: &str,
        mut cursor: Option<serde_json::Value>,
        result: &mut SyncRunResult,
    ) -> Step<bool> {
        for _ in 0..MAX_PAGES {
            let page = self.fetch(run, session, stream, cursor.as_ref()).await?;
            let has_more = page.has_more;
            if page.unavailable.is_some() {
                result.unavailable.clone_from(&page.unavailable);
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

    /// Fetches a page. Retries once after refreshing an expired access token.
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

    /// Stores a page with the cursor after it, and the events of new messages.
    async fn store_page(&self, run: &Run, session: &AccountSession, stream: &str, page: InboxPage) -> Step<()> {
        let InboxPage { mut messages, cursor, .. } = page;
        while messages.len() > MESSAGES_PER_BATCH {
            let rest = messages.split_off(MESSAGES_PER_BATCH);
            self.store_messages(run, session, messages, None).await?;
            messages = rest;
        }
        self.store_messages(run, session, messages, Some((stream, cursor))).await
    }

    /// Stores messages and the events of new ones, and the cursor of a stream.
    async fn store_messages(
        &self,
        run: &Run,
        session: &AccountSession,
        messages: Vec<FetchedMessage>,
        cursor: Option<(&str, serde_json::Value)>,
    ) -> Step<()> {
        let account = &session.account;
        let mut tx = self.store.begin().await?;
        let Some(sync) = inbox_syncs::lock(&mut tx, account.id).await? else {
            return Err(RunError::cancelled("the account no longer exists").into());
        };
        if !rows::still_held(&mut tx, &run.job).await? {
            return Err(RunError::lease_lost().into());
        }
        let now = tx.now;
        // A platform's clock may be ahead.
        let clamp = |message: FetchedMessage| FetchedMessage { sent_at: message.sent_at.min(now), ..message };
        let messages: Vec<_> = messages.into_iter().map(clamp).collect();
        for message in receive::receive(&mut tx, account, &messages).await? {
            replies::received(&mut tx, account.platform, &message, run.job.trace.as_deref()).await?;
        }
        if let Some((stream, cursor)) = cursor {
            let mut cursors = sync.cursors;
            cursors.insert(stream.to_owned(), cursor);
            inbox_syncs::set_cursors(&mut tx, account.id, &cursors).await?;
        }
        Ok(tx.commit().await?)
    }
}

/// Returns whether all calls for the account would fail like this one.
const fn concerns_account(error: &CallError) -> bool {
    matches!(error, CallError::RateLimited { .. } | CallError::Reauth(_) | CallError::AuthExpired(_))
}

#[async_trait]
impl Job for SyncInbox {
    type Result = SyncRunResult;

    async fn run(&self, run: &Run) -> std::result::Result<SyncRunResult, RunError> {
        let id = run.job.subject_id;
        let mut conn = self.store.read().await?;
        let sync = inbox_syncs::find(&mut conn, id).await?;
        let account = accounts::with_secrets(&mut conn, self.store.cipher(), id).await?;
        drop(conn);
        let (Some(sync), Some((account, secrets))) = (sync, account) else {
            return Err(RunError::cancelled("the account no longer exists"));
        };
        if account.status == AccountStatus::Expired {
            return Err(RunError::cancelled("the account has expired"));
        }
        let mut result = SyncRunResult {
            account_id: id,
            platform: account.platform,
            version: account.credentials_version,
            requested_at: sync.requested_at.filter(|at| *at <= self.store.now()),
            interval: None,
            has_more: false,
            unfinished: Vec::new(),
            error: None,
            unavailable: None,
            jitter: crier_base::random::unit(),
        };
        let Some(connector) = self.platforms.get(account.platform) else { return Ok(result) };
        let mut session = AccountSession::new(&self.store, account, &secrets, connector, self.timeout);
        let read = self.read(run, &mut session, &sync, &mut result).await;
        match read {
            Ok(()) => {
                let may_read = result.may_call_again() && !result.has_more;
                if may_read && session.account.platform.has_server_limits() {
                    session.update_limits(run, self.store.now()).await?;
                }
                Ok(result)
            }
            Err(SyncStop::Call(error)) => Ok(SyncRunResult { error: Some(error), ..result }),
            Err(SyncStop::Failed(error)) => Err(error),
        }
    }

    async fn settle(&self, tx: &mut Tx, runs: &[FinishedRun<'_, SyncRunResult>]) -> Result<Vec<Outcome>> {
        settle_each(tx, runs, |tx, job, result| Box::pin(result.write(tx, job))).await
    }
}

/// The result of a sync. The messages are already stored.
pub struct SyncRunResult {
    account_id: i64,
    platform: Platform,
    /// The version of the credentials that the last call used.
    version: i64,
    /// The time of the last request that this sync fulfills. `None` if the requested sync still waited when it began.
    requested_at: Option<DateTime<Utc>>,
    /// The interval between syncs; `None` if the platform has no inbox for the account.
    interval: Option<TimeDelta>,
    has_more: bool,
    /// The streams that have more, or failed.
    unfinished: Vec<String>,
    error: Option<CallError>,
    /// Why the platform does not let the account read a stream. Shown to users, but not a failure of the sync.
    unavailable: Option<Failure>,
    /// In `[0, 1)`.
    jitter: f64,
}

impl RunResult for SyncRunResult {
    fn reduced(&self) -> Option<Self> {
        let failure = Failure::of(Category::PlatformError, "The platform's error message could not be stored.");
        let error = self.error.as_ref().map(|_| CallError::Transient(failure.clone()));
        let unavailable = self.unavailable.as_ref().map(|_| failure);
        Some(Self { error, unavailable, unfinished: self.unfinished.clone(), ..*self })
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

impl SyncRunResult {
    /// Returns whether the run may make other calls. A stream that cannot be read does not forbid them: some servers
    /// have limits but no notifications.
    fn may_call_again(&self) -> bool {
        !self.error.as_ref().is_some_and(concerns_account)
    }

    async fn write(&self, tx: &mut Tx, job: &ClaimedJob) -> Result<Outcome> {
        // Locks the account's row before the sync's, as when an account is connected.
        if let Some(CallError::Reauth(failure) | CallError::AuthExpired(failure)) = &self.error {
            connected::expire(tx, self.account_id, self.version, &failure.message, job.trace.as_deref()).await?;
        }
        let Some(sync) = inbox_syncs::lock(tx, self.account_id).await? else {
            return Ok(Outcome::Cancelled("the account no longer exists".to_owned()));
        };
        let (now, failure) = (tx.now, self.error.as_ref().map(CallError::failure));
        let requested = sync.requested_at.filter(|_| sync.requested_at != self.requested_at);
        let is_due = requested.is_some_and(|at| at <= now);
        let mut next = self.next(sync.failures, now).map(|next| requested.map_or(next, |at| next.min(at)));
        if let Some(CallError::RateLimited { until, failure }) = &self.error {
            let until = until.unwrap_or(now + LIMIT_PAUSE);
            next = next.map(|next| next.max(until));
            pause_after_read(tx, self.account_id, until, failure).await?;
        } else if self.interval.is_some() && (self.has_more || is_due) {
            jobs::refund_attempt(tx, job).await?;
            // A sync that was requested meanwhile reads all streams.
            let unfinished: &[String] = if requested.is_none() { &self.unfinished } else { &[] };
            if unfinished != sync.unfinished {
                inbox_syncs::set_unfinished(tx, self.account_id, unfinished).await?;
            }
            let why = if self.has_more { "there are more messages to read" } else { "another sync was requested" };
            return Ok(Outcome::RetryAt(now, why.to_owned()));
        }
        match failure {
            Some(failure) => inbox_syncs::fail(tx, self.account_id, failure, next).await?,
            None => inbox_syncs::end(tx, self.account_id, self.unavailable.as_ref(), next).await?,
        }
        Ok(Outcome::Done)
    }

    /// Returns the time of the next sync. `failures` is the number of consecutive failures before this sync.
    fn next(&self, failures: i32, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let failures = if self.error.is_some() { failures.saturating_add(1).clamp(1, MAX_SLOWDOWN) } else { 1 };
        let pause = self.interval? * failures;
        Some((now + backoff::jitter(pause, 0.1, self.jitter)).trunc_subsecs(6))
    }
}
