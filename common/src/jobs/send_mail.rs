//! `send_mail`: sends a mail of the outbox.

use super::{JobDefinition, SubjectDescription};
use crate::store::{Conn, Result, Tx, mails};

pub struct SendMail;

impl JobDefinition for SendMail {
    async fn lock(tx: &mut Tx, mail_id: i64) -> Result<()> {
        mails::lock(tx, mail_id).await
    }

    async fn describe(conn: &mut Conn, mail_id: i64) -> Result<Option<SubjectDescription>> {
        let Some(m) = mails::find(conn, mail_id).await? else { return Ok(None) };
        Ok(Some(SubjectDescription::new(format!("mail {} on behalf of user {}, {}", m.id, m.user_id, m.status))))
    }

    async fn on_dead(tx: &mut Tx, mail_id: i64, _trace: Option<&str>) -> Result<()> {
        mails::mark_failed(tx, mail_id, "internal error; retry its job to send it").await
    }

    async fn on_cancelled(tx: &mut Tx, mail_id: i64) -> Result<()> {
        mails::mark_failed(tx, mail_id, "cancelled by the operator").await
    }

    async fn on_retry(tx: &mut Tx, mail_id: i64) -> Result<bool> {
        mails::retry_failed(tx, mail_id).await
    }
}
