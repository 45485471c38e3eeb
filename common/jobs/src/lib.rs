//! The kinds of jobs, one file each: the subject that a job acts on, and the changes of the subject when the job is
//! dead, cancelled or retried, in the same transaction.
//!
//! A kind has three parts, which belong to different layers:
//! - its line in the registry, `for_each_job_kind!` in `domain/job/kinds.rs`: its name and limits, for the store;
//! - its definition here, above the store, for the worker, the scheduler and the operator's commands;
//! - its handler in `worker/src/jobs`, which runs it and writes the result. The scheduler does not link the handlers.
//!
//! `CONTRIBUTING.md` has the recipe for a new kind. The compiler reports if one of the three parts is missing. The
//! store's filter of known kinds, the configuration, the metrics and the commands are derived from the registry.

use crier_domain::failure::{Category, Failure};
use crier_domain::for_each_job_kind;
use crier_domain::job::{JobAttempt, JobKind};
use crier_store::{Conn, Result, Tx};

pub mod accounts;
pub mod change;
mod collect_analytics;
pub mod comments;
mod deliver_webhook;
mod export_report;
mod fetch_feed;
mod import_media;
pub mod import_posts;
mod make_occurrences;
mod noop;
mod post_article;
mod publish_comment;
mod publish_target;
pub mod publishing;
mod refresh_token;
pub mod replies;
pub mod reports;
mod send_digest;
mod send_mail;
mod send_reply;
mod sync_inbox;
mod unpublish_target;
pub mod unpublishing;

/// The operations of a kind on the subject of a job outside of a run. The defaults are for a kind without a subject.
trait JobDefinition {
    /// Locks the subject until the end of the transaction. Always lock the subject before the job row; the fixed order
    /// prevents deadlocks.
    async fn lock(_tx: &mut Tx, _subject_id: i64) -> Result<()> {
        Ok(())
    }

    /// Describes the subject; `None` if it no longer exists.
    async fn describe(_conn: &mut Conn, _subject_id: i64) -> Result<Option<SubjectDescription>> {
        Ok(Some(SubjectDescription::new("nothing")))
    }

    /// Fails the subject of a job that is dead.
    async fn on_dead(_tx: &mut Tx, _subject_id: i64, _trace: Option<&str>) -> Result<()> {
        Ok(())
    }

    /// Fails the subject of a job that the operator cancelled.
    async fn on_cancelled(_tx: &mut Tx, _subject_id: i64) -> Result<()> {
        Ok(())
    }

    /// Resets the subject of a dead or cancelled job that the operator retries. Returns `false` if there is nothing
    /// left to do.
    async fn on_retry(_tx: &mut Tx, _subject_id: i64) -> Result<bool> {
        Ok(true)
    }
}

/// A description of a job's subject for the operator. Contains no user content.
#[derive(Debug, Clone)]
pub struct SubjectDescription {
    pub words: String,
    pub attempts: Vec<JobAttempt>,
}

impl SubjectDescription {
    fn new(words: impl Into<String>) -> Self {
        Self { words: words.into(), attempts: Vec::new() }
    }
}

/// Returns the failure of a subject whose job ended without its result, although a call may have had its effect. `was`
/// and `repeat` complete the sentences.
fn unknown_outcome(was: &str, repeat: &str) -> Failure {
    let message =
        format!("It is unknown whether this was {was}. Check the platform, and {repeat} only if it is missing.");
    Failure::of(Category::OutcomeUnknown, message)
}

/// Generates the functions that call the definition of a kind: those of [`JobDefinition`], with the kind.
macro_rules! dispatch_to_definitions {
    ($($kind:ident = $name:ident $limits:tt),+ $(,)?) => {
        /// Calls `JobDefinition::lock`.
        pub async fn lock(tx: &mut Tx, kind: JobKind, subject_id: i64) -> Result<()> {
            match kind { $(JobKind::$kind => $name::$kind::lock(tx, subject_id).await),+ }
        }

        /// Calls `JobDefinition::describe`.
        pub async fn describe(conn: &mut Conn, kind: JobKind, subject_id: i64) -> Result<Option<SubjectDescription>> {
            match kind { $(JobKind::$kind => $name::$kind::describe(conn, subject_id).await),+ }
        }

        /// Calls `JobDefinition::on_dead`.
        pub async fn on_dead(tx: &mut Tx, kind: JobKind, subject_id: i64, trace: Option<&str>) -> Result<()> {
            match kind { $(JobKind::$kind => $name::$kind::on_dead(tx, subject_id, trace).await),+ }
        }

        /// Calls `JobDefinition::on_cancelled`.
        pub async fn on_cancelled(tx: &mut Tx, kind: JobKind, subject_id: i64) -> Result<()> {
            match kind { $(JobKind::$kind => $name::$kind::on_cancelled(tx, subject_id).await),+ }
        }

        /// Calls `JobDefinition::on_retry`.
        pub async fn on_retry(tx: &mut Tx, kind: JobKind, subject_id: i64) -> Result<bool> {
            match kind { $(JobKind::$kind => $name::$kind::on_retry(tx, subject_id).await),+ }
        }
    };
}

for_each_job_kind!(dispatch_to_definitions);

#[cfg(test)]
mod tests;
