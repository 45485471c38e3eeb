//! `send_mail`: sends an email of the outbox.

use crier_domain::mail::MailStatus;
use crier_domain::report::{ReportError, ReportErrorCode};
use crier_store::{Conn, Result, Tx, mails, report_deliveries};

use super::{JobDefinition, SubjectDescription};

pub struct SendMail;

impl JobDefinition for SendMail {
    async fn lock(tx: &mut Tx, mail_id: i64) -> Result<()> {
        mails::lock(tx, mail_id).await
    }

    async fn describe(conn: &mut Conn, mail_id: i64) -> Result<Option<SubjectDescription>> {
        let Some(m) = mails::find(conn, mail_id).await? else { return Ok(None) };
        Ok(Some(SubjectDescription::new(format!("email {} on behalf of user {}, {}", m.id, m.user_id, m.status))))
    }

    async fn on_dead(tx: &mut Tx, mail_id: i64, _trace: Option<&str>) -> Result<()> {
        mails::mark_failed(tx, mail_id, "internal error; retry its job to send it").await?;
        record_for_report(tx, mail_id, "The email could not be sent.").await
    }

    async fn on_cancelled(tx: &mut Tx, mail_id: i64) -> Result<()> {
        mails::mark_failed(tx, mail_id, "canceled by the operator").await?;
        record_for_report(tx, mail_id, "The operator canceled the email.").await
    }

    async fn on_retry(tx: &mut Tx, mail_id: i64) -> Result<bool> {
        let retried = mails::retry_failed(tx, mail_id).await?;
        if retried {
            report_deliveries::record_mail(tx, mail_id, MailStatus::Pending, None).await?;
        }
        Ok(retried)
    }
}

/// Records the failure of a report's email in its delivery.
async fn record_for_report(tx: &mut Tx, mail_id: i64, message: &str) -> Result<()> {
    let error = ReportError::new(ReportErrorCode::InternalError, message);
    report_deliveries::record_mail(tx, mail_id, MailStatus::Failed, Some(&error)).await
}
