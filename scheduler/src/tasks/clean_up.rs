//! Deletes finished rows: ended jobs after 7 days (dead jobs after 30), ended imports (those of posts with their files)
//! and emails after 30 days, ended deliveries of webhooks with their attempts after 90 days, events of that age that have
//! no deliveries left, counts of emails and stored responses after a day, deleted posts that have no running jobs, the
//! record of lane holds after 30 days, past occurrences of recurring posts after 30 days, the URLs for connecting
//! accounts a day after they end, and expired sessions, sign-in links, invitations and access of connected applications.
//! All other rows that show users what happened (targets and their attempts) are kept.
//!
//! It must not block other transactions for long, especially SQLite's single writer: each batch is a transaction that
//! takes a few milliseconds, and other writers run between batches. It continues while there are more rows.
//!
//! Deliveries and events are scanned in the order of their ids ([`deliveries::purge`]) up to the young ones. A scan
//! reads old rows that are kept, of which there may be many, only once: a tick continues the scan where the previous
//! tick stopped.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use crier_domain::job::JobState;
use crier_store::jobs::{dispatch, holds};
use crier_store::{
    Result, Tx, authorizations, deliveries, events, idempotency, invitations, mail_counts, mails, media_jobs, oauth,
    post_imports, posts, recurring_occurrences, sessions,
};

use crate::Scheduler;

const ENDED_JOB_RETENTION: TimeDelta = TimeDelta::days(7);
const DEAD_JOB_RETENTION: TimeDelta = TimeDelta::days(30);
/// The same as for dead jobs, so that the operator can retry an import that failed with an internal error.
const IMPORT_RETENTION: TimeDelta = TimeDelta::days(30);
/// The same as for dead jobs, so that the operator can retry a failed email.
const MAIL_RETENTION: TimeDelta = TimeDelta::days(30);
/// The time since the last change of a delivery. Recovery reaches back 14 days.
const DELIVERY_RETENTION: TimeDelta = TimeDelta::days(90);
/// Only the counts of the current day are used. The margin is for clocks that are behind.
const MAIL_COUNT_RETENTION: TimeDelta = TimeDelta::days(1);
/// The time for which a URL that has expired or was used reports that.
const AUTHORIZATION_RETENTION: TimeDelta = TimeDelta::days(1);
/// Longer than a change of a rule or of the time zone moves an occurrence. The posts remain.
const OCCURRENCE_RETENTION: TimeDelta = TimeDelta::days(30);
/// The first and the maximum batch size, in rows.
const FIRST_BATCH: i64 = 100;
const MAX_BATCH: i64 = 1_000;
/// The number of imports of posts in a transaction. Each has up to 10 MiB, 1,000 errors and many URLs.
const POST_IMPORTS_PER_BATCH: i64 = 1;
/// The maximum intended duration of a transaction. After a longer one the batch size is halved.
const MAX_TRANSACTION_TIME: Duration = Duration::from_millis(10);
/// The time limit of a tick for each kind of row. If there are more rows, the next tick follows immediately.
const MAX_TICK_TIME: Duration = Duration::from_secs(2);

const ALL: [PurgeKind; 17] = [
    PurgeKind::Jobs(JobState::Done),
    PurgeKind::Jobs(JobState::Cancelled),
    PurgeKind::Jobs(JobState::Dead),
    PurgeKind::Imports,
    PurgeKind::PostImports,
    PurgeKind::Mails,
    PurgeKind::Deliveries,
    // After the deliveries, so that an event is deleted in the same tick as its last delivery.
    PurgeKind::Events,
    PurgeKind::MailCounts,
    PurgeKind::Responses,
    PurgeKind::Posts,
    PurgeKind::Holds,
    PurgeKind::Authorizations,
    PurgeKind::Sessions,
    PurgeKind::Invitations,
    PurgeKind::ConnectedApplications,
    PurgeKind::Occurrences,
];

/// The positions at which this process continues its scans.
#[derive(Debug, Default)]
pub struct PurgeCursors {
    /// The id of the last scanned delivery.
    deliveries: AtomicI64,
    /// The id of the last scanned event.
    events: AtomicI64,
}

#[derive(Clone, Copy)]
enum PurgeKind {
    /// The jobs in a final state.
    Jobs(JobState),
    Imports,
    PostImports,
    Mails,
    Deliveries,
    Events,
    MailCounts,
    Responses,
    Posts,
    Holds,
    Authorizations,
    Sessions,
    Invitations,
    /// Registrations, codes, grants and tokens.
    ConnectedApplications,
    /// The occurrences of recurring posts.
    Occurrences,
}

impl PurgeKind {
    /// Deletes a batch. Returns whether there are more rows.
    async fn purge(self, s: &Scheduler, tx: &mut Tx, limit: i64) -> Result<bool> {
        let now = tx.now;
        let deleted = match self {
            Self::Jobs(JobState::Dead) => dispatch::purge(tx, JobState::Dead, now - DEAD_JOB_RETENTION, limit).await,
            Self::Jobs(state) => dispatch::purge(tx, state, now - ENDED_JOB_RETENTION, limit).await,
            Self::Imports => media_jobs::purge(tx, now - IMPORT_RETENTION, limit).await,
            Self::PostImports => {
                return Ok(post_imports::purge(tx, now - IMPORT_RETENTION, POST_IMPORTS_PER_BATCH).await? > 0);
            }
            Self::Mails => mails::purge(tx, now - MAIL_RETENTION, limit).await,
            Self::Deliveries => return purge_deliveries(s, tx, limit).await,
            Self::Events => return purge_events(s, tx, limit).await,
            Self::MailCounts => mail_counts::purge(tx, (now - MAIL_COUNT_RETENTION).date_naive(), limit).await,
            Self::Responses => idempotency::purge(tx, limit).await,
            Self::Posts => posts::purge(tx, limit).await,
            Self::Holds => holds::purge(tx, limit).await,
            Self::Authorizations => authorizations::purge(tx, now - AUTHORIZATION_RETENTION, limit).await,
            Self::Sessions => sessions::purge(tx, limit).await,
            Self::Invitations => invitations::purge(tx, limit).await,
            Self::ConnectedApplications => oauth::purge(tx, limit).await,
            Self::Occurrences => recurring_occurrences::purge(tx, now - OCCURRENCE_RETENTION, limit).await,
        }?;
        Ok(deleted >= limit.unsigned_abs())
    }
}

/// If the transaction is not committed, the next scan deletes its deliveries.
async fn purge_deliveries(s: &Scheduler, tx: &mut Tx, limit: i64) -> Result<bool> {
    let (cursor, before) = (&s.purge_cursors.deliveries, tx.now - DELIVERY_RETENTION);
    let next = deliveries::purge(tx, before, cursor.load(Ordering::Relaxed), limit).await?;
    Ok(advance(cursor, next))
}

async fn purge_events(s: &Scheduler, tx: &mut Tx, limit: i64) -> Result<bool> {
    let (cursor, before) = (&s.purge_cursors.events, tx.now - DELIVERY_RETENTION);
    let next = events::purge(tx, before, cursor.load(Ordering::Relaxed), limit).await?;
    Ok(advance(cursor, next))
}

/// Stores where the next batch begins; `None` is the end of the scan. Returns whether there is a next batch.
fn advance(cursor: &AtomicI64, next: Option<i64>) -> bool {
    cursor.store(next.unwrap_or_default(), Ordering::Relaxed);
    next.is_some()
}

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    let (mut more, mut failed) = (false, Ok(()));
    for kind in ALL {
        // There may be two seconds of work of each kind.
        if s.stop.is_cancelled() {
            return Ok(None);
        }
        match purge_in_batches(s, kind).await {
            Ok(rest) => more |= rest,
            // The rows of the other kinds must not remain because of this one, for example because its statement times out.
            Err(error) => failed = Err(error),
        }
    }
    failed?;
    Ok(more.then_some(Duration::ZERO))
}

/// Returns whether there are more rows.
async fn purge_in_batches(s: &Scheduler, kind: PurgeKind) -> Result<bool> {
    let (end, mut size) = (Instant::now() + MAX_TICK_TIME, FIRST_BATCH);
    while Instant::now() < end && !s.stop.is_cancelled() {
        let mut tx = s.store.begin().await?;
        let began = Instant::now();
        let more = kind.purge(s, &mut tx, size).await?;
        tx.commit().await?;
        let took = began.elapsed();
        if !more {
            return Ok(false);
        }
        size = next_size(size, took);
        tokio::time::sleep(took.min(MAX_TRANSACTION_TIME)).await;
    }
    Ok(true)
}

fn next_size(size: i64, took: Duration) -> i64 {
    let next = if took > MAX_TRANSACTION_TIME {
        size / 2
    } else if took < MAX_TRANSACTION_TIME / 3 {
        size * 2
    } else {
        size
    };
    next.clamp(1, MAX_BATCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_size_adapts_to_the_duration() {
        assert_eq!(next_size(100, MAX_TRANSACTION_TIME / 10), 200);
        assert_eq!(next_size(800, MAX_TRANSACTION_TIME / 10), MAX_BATCH);
        assert_eq!(next_size(100, MAX_TRANSACTION_TIME / 2), 100);
        assert_eq!(next_size(100, MAX_TRANSACTION_TIME * 2), 50);
        assert_eq!(next_size(1, MAX_TRANSACTION_TIME * 2), 1);
    }
}
