//! Updates a job's subject in the same transaction when the job dies, is cancelled or is revived, and describes it to
//! the operator. One match arm per kind.

use crate::domain::failure::{Category, Failure};
use crate::domain::feed;
use crate::domain::job::{JobAttempt, JobKind};
use crate::media::import;
use crate::publishing;
use crate::random;
use crate::store::{Conn, Result, Tx, deliveries, feeds, mails, media_jobs, posts, targets};

/// Locks what the job acts on until the end of the transaction. Always lock the subject before the job row; the fixed
/// order prevents deadlocks.
pub async fn lock(tx: &mut Tx, kind: JobKind, subject_id: i64) -> Result<()> {
    match kind {
        JobKind::PublishTarget => drop(posts::lock_of_target(tx, subject_id).await?),
        JobKind::DeliverWebhook => drop(deliveries::lock(tx, subject_id).await?),
        JobKind::SendMail => mails::lock(tx, subject_id).await?,
        JobKind::FetchFeed => drop(feeds::lock(tx, subject_id).await?),
        JobKind::ImportMedia => drop(media_jobs::lock_bare(tx, subject_id).await?),
        JobKind::Noop => {}
    }
    Ok(())
}

/// Fails the subject of a job that is dead.
pub async fn on_dead(tx: &mut Tx, kind: JobKind, subject_id: i64, trace: Option<&str>) -> Result<()> {
    match kind {
        JobKind::PublishTarget => {
            let message = "Crier could not finish publishing this; it was tried as often as is allowed. Publish it again to retry.";
            publishing::fail(tx, subject_id, Failure::of(Category::Internal, message), trace).await
        }
        JobKind::DeliverWebhook => deliveries::fail(tx, subject_id, "internal error; retry this delivery").await,
        JobKind::SendMail => mails::mark_failed(tx, subject_id, "internal error; retry its job to send it").await,
        JobKind::FetchFeed => match feeds::lock(tx, subject_id).await? {
            Some(feed) => {
                let reason = "Crier could not read this feed: internal error. It is tried again later.";
                let next = feed::next_fetch(feed.failures + 1, None, tx.now, random::unit());
                feeds::record_failure(tx, subject_id, reason, false, next).await
            }
            None => Ok(()),
        },
        JobKind::ImportMedia => {
            let message = "Crier could not finish this import; it was tried as often as is allowed. Import it again.";
            import::fail_without_run(tx, subject_id, message, trace).await
        }
        JobKind::Noop => Ok(()),
    }
}

/// Fails the subject of a job that the operator cancelled.
pub async fn on_cancelled(tx: &mut Tx, kind: JobKind, subject_id: i64) -> Result<()> {
    match kind {
        JobKind::PublishTarget => {
            let message = "The operator cancelled the publishing of this. Publish it again if it is still wanted.";
            publishing::fail(tx, subject_id, Failure::with_code(Category::Internal, "cancelled", message), None).await
        }
        JobKind::DeliverWebhook => deliveries::fail(tx, subject_id, "cancelled by the operator").await,
        JobKind::SendMail => mails::mark_failed(tx, subject_id, "cancelled by the operator").await,
        JobKind::ImportMedia => {
            let message = "The operator cancelled this import. Import it again if it is still wanted.";
            import::fail_without_run(tx, subject_id, message, None).await
        }
        // A feed is fetched again at its next time.
        JobKind::FetchFeed | JobKind::Noop => Ok(()),
    }
}

/// Resets the subject of a dead or cancelled job that the operator runs again; `false`: it has nothing left to do.
pub async fn on_retry(tx: &mut Tx, kind: JobKind, subject_id: i64) -> Result<bool> {
    match kind {
        JobKind::PublishTarget => publishing::retry_failed(tx, subject_id).await,
        JobKind::DeliverWebhook => deliveries::replay(tx, subject_id).await,
        JobKind::SendMail => mails::retry_failed(tx, subject_id).await,
        JobKind::FetchFeed => Ok(feeds::find_any(tx, subject_id).await?.is_some()),
        JobKind::ImportMedia => import::retry_failed(tx, subject_id).await,
        JobKind::Noop => Ok(true),
    }
}

/// What a job acts on, for the operator: ids and our own words, never user content.
#[derive(Debug, Clone)]
pub struct SubjectDescription {
    pub words: String,
    pub attempts: Vec<JobAttempt>,
}

/// Describes a job's subject; `None`: it does not exist any more.
pub async fn describe(conn: &mut Conn, kind: JobKind, subject_id: i64) -> Result<Option<SubjectDescription>> {
    match kind {
        JobKind::PublishTarget => {
            let Some(t) = targets::find(conn, subject_id).await? else { return Ok(None) };
            let words = format!(
                "target {} of post {} on account {} ({}), {}",
                t.id, t.post_id, t.account_id, t.platform, t.status
            );
            Ok(Some(SubjectDescription { words, attempts: targets::attempt_summaries(conn, subject_id).await? }))
        }
        JobKind::DeliverWebhook => {
            let Some(d) = deliveries::find_any(conn, subject_id).await? else { return Ok(None) };
            let words = format!(
                "delivery {} of event {} ({}) to endpoint {}, {}",
                d.id, d.event_id, d.event, d.webhook_id, d.status
            );
            Ok(Some(SubjectDescription { words, attempts: deliveries::attempt_summaries(conn, subject_id).await? }))
        }
        JobKind::SendMail => {
            let Some(m) = mails::find(conn, subject_id).await? else { return Ok(None) };
            let words = format!("mail {} on behalf of user {}, {}", m.id, m.user_id, m.status);
            Ok(Some(SubjectDescription { words, attempts: Vec::new() }))
        }
        JobKind::FetchFeed => {
            let Some(f) = feeds::find_any(conn, subject_id).await? else { return Ok(None) };
            let words = format!("feed {} of brand {}, {}", f.id, f.brand_id, f.status);
            Ok(Some(SubjectDescription { words, attempts: Vec::new() }))
        }
        JobKind::ImportMedia => {
            let Some(i) = media_jobs::find_any(conn, subject_id).await? else { return Ok(None) };
            let words = format!("import {} into brand {}, {}", i.id, i.brand_id, i.status);
            Ok(Some(SubjectDescription { words, attempts: Vec::new() }))
        }
        JobKind::Noop => Ok(Some(SubjectDescription { words: "nothing".to_owned(), attempts: Vec::new() })),
    }
}
