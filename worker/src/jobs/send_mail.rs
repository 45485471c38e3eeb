//! `send_mail`: one attempt to send an email of the outbox.
//!
//! Emails are sent at least once: if a worker dies after the server accepted the email and before the job is settled,
//! another worker sends it again. The Message-ID is stored with the email and is the same at every attempt, so that
//! email programs show the email once.
//!
//! A deferred email is attempted eight times over a day, like a webhook. If the server rejects an email permanently,
//! its job is dead immediately. Its row contains the reason, and an operator can run the job again.
//!
//! The email of a report is not sent if its recipient has unsubscribed since it was added to the outbox.

use std::sync::Arc;

use async_trait::async_trait;
use crier_domain::job::{ClaimedJob, Outcome};
use crier_domain::mail::{Mail, MailStatus};
use crier_domain::report::{ReportError, ReportErrorCode};
use crier_domain::report_naming as naming;
use crier_mail::{Attachment, Mailer, SendError, mailbox};
use crier_media::Library;
use crier_store::report_deliveries::{self, Subscription};
use crier_store::{Conn, Result, Store, Tx, brands, files, mails};

use super::{Deps, FinishedRun, Job, RunError, RunResult, settle_each};
use crate::engine::Run;
use crate::report_mail;
use crate::webhooks::schedule;

const NOT_CONFIGURED: &str =
    "mail_not_configured: this worker has no mail server; set CRIER_SMTP_URL, then retry the job";

pub struct SendMail {
    store: Store,
    library: Library,
    mailer: Option<Arc<Mailer>>,
}

impl SendMail {
    pub fn new(deps: &Deps) -> Self {
        Self { store: deps.store.clone(), library: deps.library.clone(), mailer: deps.mailer.clone() }
    }
}

#[async_trait]
impl Job for SendMail {
    type Result = MailRunResult;

    async fn run(&self, run: &Run) -> std::result::Result<MailRunResult, RunError> {
        let mut conn = self.store.read().await?;
        let Some(mail) = mails::find(&mut conn, run.job.subject_id).await? else {
            return Err(RunError::cancelled("the email no longer exists"));
        };
        let attached = match mail.delivery_id.filter(|_| mail.has_file) {
            Some(delivery_id) => Some(attached_file(&mut conn, delivery_id).await?),
            None => None,
        };
        let stop = report_stop(&mut conn, &mail).await?;
        drop(conn);
        if mail.status != MailStatus::Pending {
            return Err(RunError::cancelled(format!("the email is already {}", mail.status)));
        }
        if let Some(error) = stop {
            return Ok(MailRunResult::Stopped(error));
        }
        let Some(mailer) = &self.mailer else { return Ok(MailRunResult::NotConfigured) };
        // Held until the email is sent, because sending needs several copies of the file in memory.
        let _memory = match &attached {
            Some(Some(file)) => {
                let size = file.size_bytes * COPIES;
                let memory = self.library.budget().share_of_workspace(file.workspace_id, size, size);
                Some(run.wait_without_slot(memory).await)
            }
            _ => None,
        };
        let attachment = match attached {
            Some(file) => match self.read(file).await {
                Ok(read) => Some(read),
                Err(result) => return Ok(result),
            },
            None => None,
        };
        Ok(match run.call(mailer.send(&mail, attachment)).await {
            Ok(()) => MailRunResult::Sent,
            Err(SendError::Deferred(why)) => MailRunResult::Deferred(why, crier_base::random::unit()),
            Err(SendError::Rejected(why)) => MailRunResult::Rejected(why),
            Err(SendError::RecipientRejected(why)) => MailRunResult::RecipientRejected(why),
        })
    }

    async fn settle(&self, tx: &mut Tx, runs: &[FinishedRun<'_, MailRunResult>]) -> Result<Vec<Outcome>> {
        settle_each(tx, runs, |tx, job, result| Box::pin(result.write(tx, job))).await
    }
}

impl SendMail {
    /// Reads the attached file; an error is the result of the run.
    async fn read(&self, file: Option<AttachedFile>) -> std::result::Result<Attachment, MailRunResult> {
        let deleted = || MailRunResult::Rejected("the report file no longer exists".to_owned());
        let file = file.ok_or_else(deleted)?;
        let read = self.library.storage().read(&file.key).await;
        let read = read.map_err(|error| {
            tracing::warn!(%error, "failed to read a report file");
            MailRunResult::Deferred("the storage is unreachable".to_owned(), crier_base::random::unit())
        })?;
        let bytes = read.ok_or_else(deleted)?;
        Ok(Attachment { name: file.name, media_type: file.media_type, bytes })
    }
}

/// The number of copies of a file in memory while its email is sent: as bytes, in base64, and in the message.
const COPIES: u64 = 5;

/// The report file that is attached to an email.
struct AttachedFile {
    workspace_id: i64,
    name: String,
    key: String,
    media_type: &'static str,
    size_bytes: u64,
}

/// Returns why the email of a report must not be sent anymore.
async fn report_stop(conn: &mut Conn, mail: &Mail) -> Result<Option<ReportError>> {
    let Some(delivery_id) = mail.delivery_id else { return Ok(None) };
    let Some(delivery) = report_deliveries::find_any(conn, delivery_id).await? else { return Ok(None) };
    let Some(brand) = brands::find(conn, delivery.brand_id).await? else { return Ok(None) };
    let mailbox = mailbox(&mail.recipient);
    let to = Subscription { workspace_id: brand.workspace_id, address: &mail.recipient, mailbox: &mailbox };
    Ok(report_deliveries::mail_stop(conn, &to).await?.map(|stop| report_mail::stopped(&stop)))
}

/// Finds the file of a report delivery; `None` if it was deleted.
async fn attached_file(conn: &mut Conn, delivery_id: i64) -> Result<Option<AttachedFile>> {
    let Some(delivery) = report_deliveries::find_any(conn, delivery_id).await? else { return Ok(None) };
    let Some(names) = report_deliveries::names_of(conn, &delivery).await? else { return Ok(None) };
    let Some(brand) = brands::find(conn, delivery.brand_id).await? else { return Ok(None) };
    let Some(file_id) = delivery.file_id else { return Ok(None) };
    let Some(key) = files::key_of(conn, file_id).await? else { return Ok(None) };
    Ok(Some(AttachedFile {
        workspace_id: brand.workspace_id,
        name: naming::file_name(&names.report, &names.brand, &delivery),
        key,
        media_type: delivery.format.media_type(),
        size_bytes: delivery.size_bytes.map_or(0, i64::unsigned_abs),
    }))
}

/// The reason that is stored if the mail server's own text cannot be stored.
const UNSTORABLE: &str = "the mail server rejected the email with a message that cannot be stored";

/// The result of an attempt.
pub enum MailRunResult {
    Sent,
    /// The reason, and the jitter of the backoff.
    Deferred(String, f64),
    Rejected(String),
    RecipientRejected(String),
    NotConfigured,
    /// The recipient unsubscribed, or the mail server rejected another email to the address.
    Stopped(ReportError),
}

impl RunResult for MailRunResult {
    fn reduced(&self) -> Option<Self> {
        Some(match self {
            Self::Sent => Self::Sent,
            Self::Deferred(_, jitter) => Self::Deferred(UNSTORABLE.to_owned(), *jitter),
            Self::Rejected(_) => Self::Rejected(UNSTORABLE.to_owned()),
            Self::RecipientRejected(_) => Self::RecipientRejected(UNSTORABLE.to_owned()),
            Self::NotConfigured => Self::NotConfigured,
            Self::Stopped(error) => Self::Stopped(ReportError::new(error.code, UNSTORABLE)),
        })
    }
}

impl MailRunResult {
    async fn write(&self, tx: &mut Tx, job: &ClaimedJob) -> Result<Outcome> {
        let id = job.subject_id;
        match self {
            Self::Sent => {
                mails::mark_sent(tx, id).await?;
                report_deliveries::record_mail(tx, id, MailStatus::Sent, None).await?;
                Ok(Outcome::Done)
            }
            Self::Deferred(why, jitter) => {
                let count = |number: i32| u32::try_from(number).unwrap_or(0);
                let (made, allowed) = (count(job.attempt), count(job.max_attempts));
                match schedule::next_attempt(made, allowed, None, tx.now, *jitter) {
                    Some(at) => {
                        mails::mark_deferred(tx, id, why).await?;
                        Ok(Outcome::RetryAt(at, why.clone()))
                    }
                    None => fail_mail(tx, id, ReportErrorCode::InternalError, why).await,
                }
            }
            Self::Rejected(why) => fail_mail(tx, id, ReportErrorCode::InternalError, why).await,
            Self::RecipientRejected(why) => {
                report_deliveries::stop_rejected(tx, id, why).await?;
                fail_mail(tx, id, ReportErrorCode::MailRefused, why).await
            }
            Self::NotConfigured => {
                fail_mail(tx, id, ReportErrorCode::MailNotConfigured, NOT_CONFIGURED).await?;
                Ok(Outcome::Cancelled(NOT_CONFIGURED.to_owned()))
            }
            Self::Stopped(error) => {
                mails::mark_failed(tx, id, &error.message).await?;
                report_deliveries::record_mail(tx, id, MailStatus::Failed, Some(error)).await?;
                Ok(Outcome::Cancelled(error.message.clone()))
            }
        }
    }
}

/// Marks the email as failed, without further attempts, and records the code in its report delivery.
async fn fail_mail(tx: &mut Tx, mail_id: i64, code: ReportErrorCode, why: &str) -> Result<Outcome> {
    mails::mark_failed(tx, mail_id, why).await?;
    let error = ReportError::new(code, why);
    report_deliveries::record_mail(tx, mail_id, MailStatus::Failed, Some(&error)).await?;
    Ok(Outcome::Abort(why.to_owned()))
}
