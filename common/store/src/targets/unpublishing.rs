//! The deletion of a target's post from its platform. The caller of these functions has locked the row of the post.

use chrono::{DateTime, Utc};
use crier_domain::failure::Failure;
use crier_domain::post::{PublishedPart, TargetStatus};
use sqlx::types::Json;

use super::super::db::execute;
use super::super::{Result, Tx};

/// Marks a published target, before the job that deletes its post. Returns `false` if the target has another status.
pub async fn begin(tx: &mut Tx, target_id: i64) -> Result<bool> {
    const SQL: &str = "
        UPDATE post_targets
        SET status = 'unpublishing', error = NULL, next_attempt_at = NULL, updated_at = $2
        WHERE id = $1 AND status = 'published'";
    let now = tx.now;
    Ok(execute!(tx, SQL, target_id, now)? > 0)
}

/// Stores why the post of a published target cannot be deleted from its platform.
pub async fn reject(tx: &mut Tx, target_id: i64, failure: &Failure) -> Result<()> {
    const SQL: &str = "
        UPDATE post_targets
        SET error = $2, updated_at = $3
        WHERE id = $1 AND status = 'published'";
    let now = tx.now;
    execute!(tx, SQL, target_id, Json(failure), now)?;
    Ok(())
}

/// Stores which parts are deleted, so that the next run continues there.
pub async fn set_parts(tx: &mut Tx, target_id: i64, parts: &[PublishedPart]) -> Result<()> {
    const SQL: &str = "UPDATE post_targets SET published_parts = $2, updated_at = $3 WHERE id = $1";
    let now = tx.now;
    execute!(tx, SQL, target_id, Json(parts), now)?;
    Ok(())
}

/// Stores the state of a target after a run. Returns `false` if the target is not being unpublished.
pub async fn end(
    tx: &mut Tx,
    target_id: i64,
    status: TargetStatus,
    error: Option<&Failure>,
    next_attempt_at: Option<DateTime<Utc>>,
) -> Result<bool> {
    const SQL: &str = "
        UPDATE post_targets
        SET status = $2, error = $3, next_attempt_at = $4, updated_at = $5
        WHERE id = $1 AND status = 'unpublishing'";
    let now = tx.now;
    Ok(execute!(tx, SQL, target_id, status, error.map(Json), next_attempt_at, now)? > 0)
}
