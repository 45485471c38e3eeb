//! `collect_analytics`: collects the due metrics of one account and of its posts. If a job is cancelled or dead,
//! nothing changes: the next job is enqueued at the time in the account's row.

use crier_store::{Conn, Result, Tx, account_tokens, accounts};

use super::{JobDefinition, SubjectDescription};

pub struct CollectAnalytics;

impl JobDefinition for CollectAnalytics {
    async fn lock(tx: &mut Tx, account_id: i64) -> Result<()> {
        account_tokens::lock(tx, account_id).await
    }

    async fn describe(conn: &mut Conn, account_id: i64) -> Result<Option<SubjectDescription>> {
        let Some((status, platform)) = accounts::status(conn, account_id).await? else { return Ok(None) };
        Ok(Some(SubjectDescription::new(format!("metrics of {platform} account {account_id}, {status}"))))
    }

    async fn on_retry(tx: &mut Tx, account_id: i64) -> Result<bool> {
        Ok(accounts::status(tx, account_id).await?.is_some())
    }
}
