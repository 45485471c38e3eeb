//! `publish_target`: publishes one post on one account, its target.

use crier_domain::failure::{Category, Failure};
use crier_store::{Conn, Result, Tx, posts, targets};

use super::{JobDefinition, SubjectDescription};
use crate::publishing;

pub struct PublishTarget;

impl JobDefinition for PublishTarget {
    async fn lock(tx: &mut Tx, target_id: i64) -> Result<()> {
        posts::lock_of_target(tx, target_id).await.map(drop)
    }

    async fn describe(conn: &mut Conn, target_id: i64) -> Result<Option<SubjectDescription>> {
        let Some(t) = targets::find(conn, target_id).await? else { return Ok(None) };
        let words =
            format!("target {} of post {} on account {} ({}), {}", t.id, t.post_id, t.account_id, t.platform, t.status);
        Ok(Some(SubjectDescription { words, attempts: targets::attempt_summaries(conn, target_id).await? }))
    }

    async fn on_dead(tx: &mut Tx, target_id: i64, trace: Option<&str>) -> Result<()> {
        let message =
            "Crier could not finish publishing this post within the maximum number of attempts. Publish it again.";
        publishing::fail(tx, target_id, Failure::of(Category::Internal, message), trace).await
    }

    async fn on_cancelled(tx: &mut Tx, target_id: i64) -> Result<()> {
        let message = "The operator canceled the publishing of this post. Publish it again if you still need it.";
        publishing::fail(tx, target_id, Failure::with_code(Category::Internal, "cancelled", message), None).await
    }

    async fn on_retry(tx: &mut Tx, target_id: i64) -> Result<bool> {
        publishing::retry_failed(tx, target_id).await
    }
}
