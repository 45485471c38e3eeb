//! `make_occurrences`: makes the posts of a recurring post. If a job is cancelled, nothing changes: the rule is due again
//! later.

use crier_domain::recurring_post::RETRY_PAUSE;
use crier_store::{Conn, Result, Tx, recurring_posts};

use super::{JobDefinition, SubjectDescription};

pub struct MakeOccurrences;

impl JobDefinition for MakeOccurrences {
    async fn lock(tx: &mut Tx, recurring_id: i64) -> Result<()> {
        recurring_posts::lock(tx, recurring_id).await.map(drop)
    }

    async fn describe(conn: &mut Conn, recurring_id: i64) -> Result<Option<SubjectDescription>> {
        let Some(rule) = recurring_posts::find_any(conn, recurring_id).await? else { return Ok(None) };
        let state = if rule.is_running() { "active" } else { "not active" };
        Ok(Some(SubjectDescription::new(format!("recurring post {} of brand {}, {state}", rule.id, rule.brand_id))))
    }

    async fn on_dead(tx: &mut Tx, recurring_id: i64, _trace: Option<&str>) -> Result<()> {
        if recurring_posts::lock(tx, recurring_id).await?.is_none() {
            return Ok(());
        }
        let problem = "Crier could not create the next posts: internal error. Crier retries later.";
        let due = Some(tx.now + RETRY_PAUSE);
        recurring_posts::end_run(tx, recurring_id, due, Some(problem)).await
    }

    async fn on_retry(tx: &mut Tx, recurring_id: i64) -> Result<bool> {
        Ok(recurring_posts::find_any(tx, recurring_id).await?.is_some())
    }
}
