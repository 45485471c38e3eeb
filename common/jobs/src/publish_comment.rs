//! `publish_comment`: publishes the first comment of a published target.

use crier_domain::failure::{Category, Failure};
use crier_store::{Conn, Result, Tx, first_comments, posts};

use super::{JobDefinition, SubjectDescription};
use crate::comments;

pub struct PublishComment;

impl JobDefinition for PublishComment {
    async fn lock(tx: &mut Tx, target_id: i64) -> Result<()> {
        posts::lock_of_target(tx, target_id).await.map(drop)
    }

    async fn describe(conn: &mut Conn, target_id: i64) -> Result<Option<SubjectDescription>> {
        let Some(c) = first_comments::find(conn, target_id).await? else { return Ok(None) };
        let words = format!("first comment of target {}, {}, attempts: {}", c.target_id, c.status, c.attempts);
        Ok(Some(SubjectDescription::new(words)))
    }

    async fn on_dead(tx: &mut Tx, target_id: i64, trace: Option<&str>) -> Result<()> {
        let message =
            "Crier could not publish this comment within the maximum number of attempts. Add it on the platform.";
        comments::fail(tx, target_id, Failure::of(Category::Internal, message), trace).await
    }

    async fn on_cancelled(tx: &mut Tx, target_id: i64) -> Result<()> {
        let message = "The operator canceled this comment. Add it on the platform if you still need it.";
        comments::fail(tx, target_id, Failure::with_code(Category::Internal, "cancelled", message), None).await
    }

    async fn on_retry(tx: &mut Tx, target_id: i64) -> Result<bool> {
        posts::lock_of_target(tx, target_id).await?;
        first_comments::reset(tx, target_id).await
    }
}
