//! `send_digest`: writes an email to a user about the problems that wait for it, and deletes them.
//!
//! The transaction that ends the job writes the email into the outbox. So a problem is in one email, however many
//! schedulers and workers run. Without a mail server, or for a user who has turned these emails off, the problems are
//! only deleted.

use std::sync::Arc;

use async_trait::async_trait;
use crier_domain::job::{ClaimedJob, Outcome};
use crier_domain::notice::NoticeFrequency;
use crier_mail::Mailer;
use crier_store::{Result, Tx, notices};

use super::{Deps, TransactionJob};
use crate::notices::digest;

/// The maximum number of problems that an email lists.
const MAX_LISTED: usize = 50;

pub struct SendDigest {
    mailer: Option<Arc<Mailer>>,
    public_url: String,
}

impl SendDigest {
    pub fn new(deps: &Deps) -> Self {
        Self { mailer: deps.mailer.clone(), public_url: deps.library.public_url().to_owned() }
    }
}

#[async_trait]
impl TransactionJob for SendDigest {
    async fn write(&self, tx: &mut Tx, job: &ClaimedJob) -> Result<Outcome> {
        let user_id = job.subject_id;
        let Some(recipient) = notices::lock_recipient(tx, user_id).await? else {
            return Ok(Outcome::Cancelled("the user no longer exists".to_owned()));
        };
        // A scheduler may have read that an email is due before the last one was sent. The problems wait for the next.
        if recipient.has_recent_mail(tx.now) {
            return Ok(Outcome::Done);
        }
        let (listed, count) = notices::take(tx, user_id, MAX_LISTED).await?;
        // The transaction of a problem may not see that the user turns the emails off meanwhile.
        let is_wanted = count > 0 && recipient.notice_frequency != NoticeFrequency::Never;
        if let Some(mailer) = self.mailer.as_deref().filter(|_| is_wanted) {
            digest(tx, mailer, user_id, &recipient, (listed.as_slice(), count), &self.public_url).await?;
            notices::mark_mailed(tx, user_id).await?;
        }
        Ok(Outcome::Done)
    }
}
