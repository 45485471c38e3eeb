//! `refresh_token`: renews the tokens of one account, or warns the owners that the access ends or has ended. If a job
//! is cancelled or dead, nothing changes: the next job is enqueued at the time in the account's row.

use crier_store::{Conn, Result, Tx, account_tokens, accounts};

use super::{JobDefinition, SubjectDescription};

pub struct RefreshToken;

impl JobDefinition for RefreshToken {
    async fn lock(tx: &mut Tx, account_id: i64) -> Result<()> {
        account_tokens::lock(tx, account_id).await
    }

    async fn describe(conn: &mut Conn, account_id: i64) -> Result<Option<SubjectDescription>> {
        let Some((status, platform)) = accounts::status(conn, account_id).await? else { return Ok(None) };
        let tokens = account_tokens::find(conn, account_id).await?;
        let end = tokens.and_then(|tokens| tokens.token_expires_at);
        let end = end.map_or_else(|| "never".to_owned(), |at| at.to_rfc3339());
        let words = format!("{platform} account {account_id}, {status}, whose token expires: {end}");
        Ok(Some(SubjectDescription::new(words)))
    }

    async fn on_retry(tx: &mut Tx, account_id: i64) -> Result<bool> {
        Ok(accounts::status(tx, account_id).await?.is_some())
    }
}
