//! `sync_inbox`: reads the new messages of one account. If a job is cancelled or dead, nothing changes: the next job is
//! enqueued at the time in the account's row.

use crier_store::{Conn, Result, Tx, accounts, inbox_syncs};

use super::{JobDefinition, SubjectDescription};

pub struct SyncInbox;

impl JobDefinition for SyncInbox {
    async fn lock(tx: &mut Tx, account_id: i64) -> Result<()> {
        inbox_syncs::lock(tx, account_id).await.map(drop)
    }

    async fn describe(conn: &mut Conn, account_id: i64) -> Result<Option<SubjectDescription>> {
        let Some((status, platform)) = accounts::status(conn, account_id).await? else { return Ok(None) };
        let sync = inbox_syncs::find(conn, account_id).await?;
        let synced = sync.and_then(|sync| sync.synced_at).map_or_else(|| "never".to_owned(), |at| at.to_rfc3339());
        let words = format!("inbox of {platform} account {account_id}, {status}, last synced: {synced}");
        Ok(Some(SubjectDescription::new(words)))
    }

    async fn on_retry(tx: &mut Tx, account_id: i64) -> Result<bool> {
        Ok(inbox_syncs::find(tx, account_id).await?.is_some())
    }
}
