//! `send_mail`: one attempt to send a mail of the outbox.
//!
//! Mails are sent at least once: if a worker dies after the server accepted the mail and before the job is settled,
//! another worker sends it again. The Message-ID is stored with the mail and the same at every attempt, so that mail
//! programs show it once.
//!
//! A deferred mail is attempted eight times over a day, like a webhook; one that the server rejects permanently is dead
//! at once. Its row contains the reason, and an operator can run the job again.

use std::sync::Arc;

use async_trait::async_trait;
use crier_common::domain::job::{Claimed, Outcome};
use crier_common::domain::mail::MailStatus;
use crier_common::mail::{Mailer, SendError};
use crier_common::store::{Result, Store, Tx, mails};
use crier_common::webhooks::schedule;

use super::{Deps, Job, RunResult};
use crate::engine::Run;

const NOT_CONFIGURED: &str =
    "mail_not_configured: this worker has no mail server; set CRIER_SMTP_URL, then retry the job";

pub struct SendMail {
    store: Store,
    mailer: Option<Arc<Mailer>>,
}

impl SendMail {
    pub fn new(deps: &Deps) -> Self {
        Self { store: deps.store.clone(), mailer: deps.mailer.clone() }
    }
}

#[async_trait]
impl Job for SendMail {
    async fn run(&self, run: &Run) -> Result<Box<dyn RunResult>> {
        let mut conn = self.store.read().await?;
        let Some(mail) = mails::find(&mut conn, run.job.subject_id).await? else {
            return Ok(Box::new(Outcome::Cancelled("the mail is gone".into())));
        };
        drop(conn);
        if mail.status != MailStatus::Pending {
            return Ok(Box::new(Outcome::Cancelled(format!("the mail is {} already", mail.status))));
        }
        let Some(mailer) = &self.mailer else { return Ok(Box::new(MailEnd::NotConfigured)) };
        Ok(Box::new(match run.call(mailer.send(&mail)).await {
            Ok(()) => MailEnd::Sent,
            Err(SendError::Deferred(why)) => MailEnd::Deferred(why, crier_common::random::unit()),
            Err(SendError::Refused(why)) => MailEnd::Refused(why),
        }))
    }
}

/// The reason that is stored if the mail server's own text cannot be stored.
const UNSTORABLE: &str = "the mail server did not take it, in words that cannot be stored";

/// The result of an attempt.
enum MailEnd {
    Sent,
    /// With the jitter of the backoff.
    Deferred(String, f64),
    Refused(String),
    NotConfigured,
}

#[async_trait]
impl RunResult for MailEnd {
    async fn write(&self, tx: &mut Tx, job: &Claimed) -> Result<Outcome> {
        let id = job.subject_id;
        match self {
            Self::Sent => {
                mails::mark_sent(tx, id).await?;
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
                    None => fail_mail(tx, id, why).await,
                }
            }
            Self::Refused(why) => fail_mail(tx, id, why).await,
            Self::NotConfigured => {
                mails::mark_failed(tx, id, NOT_CONFIGURED).await?;
                Ok(Outcome::Cancelled(NOT_CONFIGURED.to_owned()))
            }
        }
    }

    fn reduced(&self) -> Option<Arc<dyn RunResult>> {
        Some(Arc::new(match self {
            Self::Sent => Self::Sent,
            Self::Deferred(_, jitter) => Self::Deferred(UNSTORABLE.to_owned(), *jitter),
            Self::Refused(_) => Self::Refused(UNSTORABLE.to_owned()),
            Self::NotConfigured => Self::NotConfigured,
        }))
    }
}

/// Marks the mail as failed, without further attempts.
async fn fail_mail(tx: &mut Tx, mail_id: i64, why: &str) -> Result<Outcome> {
    mails::mark_failed(tx, mail_id, why).await?;
    Ok(Outcome::Abort(why.to_owned()))
}
