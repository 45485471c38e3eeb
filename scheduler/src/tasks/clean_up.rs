//! Deletes finished rows: ended jobs after 7 days (dead ones 30), ended imports and mails after 30, counts of mails and
//! stored responses after a day, deleted posts once they have no running jobs, the record of lane holds after 30, the
//! URLs at which accounts were connected a day after their end, and sessions and sign-in links once they have expired.
//! Everything else that shows a user what happened (targets, deliveries, attempts) stays.
//!
//! It must not block others for long, above all SQLite's single writer: each batch is a transaction, as large as can be
//! deleted in a few milliseconds, and other writers get their turn between two batches. It continues while there is
//! more.
//!
//! Jobs are walked through in the order of their ids ([`dispatch::purge`]). Old ones that are kept, of which there may be
//! many, are looked at once in a walk, which a tick continues where the one before had to stop. Stored responses are
//! walked through once an hour, all of them: no index of their ages is written with each request.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use crier_store::jobs::{dispatch, holds};
use crier_store::{
    Result, Tx, authorizations, idempotency, invitations, mail_counts, mails, media_jobs, posts, sessions,
};

use crate::Scheduler;

const ENDED_JOB_RETENTION: TimeDelta = TimeDelta::days(7);
const DEAD_JOB_RETENTION: TimeDelta = TimeDelta::days(30);
/// As long as the dead job of an import that failed with an internal error: until then the operator may run it again.
const IMPORT_RETENTION: TimeDelta = TimeDelta::days(30);
/// As long as the dead job of a mail that failed: until then the operator may run it again.
const MAIL_RETENTION: TimeDelta = TimeDelta::days(30);
/// Only those of today count; a clock may be a little behind.
const MAIL_COUNT_RETENTION: TimeDelta = TimeDelta::days(1);
/// How long an expired URL still says that it has expired or was used.
const AUTHORIZATION_RETENTION: TimeDelta = TimeDelta::days(1);
/// The pause from the beginning of one walk through the stored responses to that of the next.
const RESPONSE_WALKS: TimeDelta = TimeDelta::hours(1);
/// The first and the maximum batch size.
const FIRST: i64 = 100;
const MAX_BATCH: i64 = 1_000;
/// How long a transaction should take; after a longer one the batch size is halved.
const MAX_TRANSACTION_TIME: Duration = Duration::from_millis(10);
/// The time limit of a tick for each kind of row; if there is more, the next tick follows at once.
const MAX_TICK_TIME: Duration = Duration::from_secs(2);

const ALL: [PurgeKind; 10] = [
    PurgeKind::Jobs,
    PurgeKind::Imports,
    PurgeKind::Mails,
    PurgeKind::MailCounts,
    PurgeKind::Answers,
    PurgeKind::Posts,
    PurgeKind::Holds,
    PurgeKind::Authorizations,
    PurgeKind::Sessions,
    PurgeKind::Invitations,
];

/// Where this process continues its walks.
#[derive(Debug, Default)]
pub struct Walks {
    /// After this job.
    jobs: AtomicI64,
    /// After this position of [`idempotency::purge`]; 0: at the beginning.
    responses: AtomicI64,
    /// When the last walk through the responses began, in seconds since 1970.
    responses_began: AtomicI64,
}

#[derive(Clone, Copy)]
enum PurgeKind {
    Jobs,
    Imports,
    Mails,
    MailCounts,
    Answers,
    Posts,
    Holds,
    Authorizations,
    Sessions,
    Invitations,
}

impl PurgeKind {
    /// Deletes a batch; returns whether there is more.
    async fn purge(self, s: &Scheduler, tx: &mut Tx, limit: i64) -> Result<bool> {
        let now = tx.now;
        let deleted = match self {
            Self::Jobs => return purge_jobs(s, tx, limit).await,
            Self::Imports => media_jobs::purge(tx, now - IMPORT_RETENTION, limit).await,
            Self::Mails => mails::purge(tx, now - MAIL_RETENTION, limit).await,
            Self::MailCounts => mail_counts::purge(tx, (now - MAIL_COUNT_RETENTION).date_naive(), limit).await,
            Self::Answers => return purge_responses(s, tx, limit).await,
            Self::Posts => posts::purge(tx, limit).await,
            Self::Holds => holds::purge(tx, limit).await,
            Self::Authorizations => authorizations::purge(tx, now - AUTHORIZATION_RETENTION, limit).await,
            Self::Sessions => sessions::purge(tx, limit).await,
            Self::Invitations => invitations::purge(tx, limit).await,
        }?;
        Ok(deleted >= limit.unsigned_abs())
    }
}

/// If the transaction is not committed after all, its jobs are deleted by the next walk.
async fn purge_jobs(s: &Scheduler, tx: &mut Tx, limit: i64) -> Result<bool> {
    let before = (tx.now - ENDED_JOB_RETENTION, tx.now - DEAD_JOB_RETENTION);
    let next = dispatch::purge(tx, before, s.walks.jobs.load(Ordering::Relaxed), limit).await?;
    s.walks.jobs.store(next.unwrap_or_default(), Ordering::Relaxed);
    Ok(next.is_some())
}

async fn purge_responses(s: &Scheduler, tx: &mut Tx, limit: i64) -> Result<bool> {
    let Walks { responses, responses_began: began, .. } = &*s.walks;
    let (after, now) = (responses.load(Ordering::Relaxed), tx.now.timestamp());
    if after == 0 {
        // A clock that was ahead must not delay the next walk.
        if (0..RESPONSE_WALKS.num_seconds()).contains(&(now - began.load(Ordering::Relaxed))) {
            return Ok(false);
        }
        began.store(now, Ordering::Relaxed);
    }
    let next = idempotency::purge(tx, after, limit).await?;
    responses.store(next.unwrap_or_default(), Ordering::Relaxed);
    Ok(next.is_some())
}

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    let mut more = false;
    for over in ALL {
        more |= purge_in_batches(s, over).await?;
    }
    Ok(more.then_some(Duration::ZERO))
}

/// Returns whether there is more.
async fn purge_in_batches(s: &Scheduler, over: PurgeKind) -> Result<bool> {
    let (end, mut size) = (Instant::now() + MAX_TICK_TIME, FIRST);
    while Instant::now() < end {
        let mut tx = s.store.begin().await?;
        let began = Instant::now();
        let more = over.purge(s, &mut tx, size).await?;
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
