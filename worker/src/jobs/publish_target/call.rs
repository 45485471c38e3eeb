//! The call itself, and finding out about an earlier one.

use crier_common::domain::failure::{Category, Failure};
use crier_common::platforms::{CallError, Published, Reconciled};
use crier_common::store::jobs::engine as rows;
use crier_common::store::{Result, targets};

use super::ending::How;
use super::{Prepared, PublishTarget};
use crate::engine::Run;

impl PublishTarget {
    /// Finds out about an earlier call, then publishes. `None` where the lease was lost.
    pub(super) async fn carry_out(&self, run: &Run, p: &mut Prepared) -> Result<Option<How>> {
        if p.open {
            if let Some(how) = self.find_out(run, p).await? {
                return Ok(Some(how));
            }
            if let Some(failure) = p.unwanted.take() {
                return Ok(Some(How::failed(failure)));
            }
            if !self.mark(run, p).await? {
                return Ok(None);
            }
        }
        self.publish(run, p).await
    }

    /// Asks the platform what became of the earlier call; `None`: it is not there, and never will be.
    async fn find_out(&self, run: &Run, p: &mut Prepared) -> Result<Option<How>> {
        if !p.connector.can_reconcile() {
            return Ok(Some(How::cannot_tell()));
        }
        let mut asked = run.call(p.connector.reconcile(&p.call, &p.outgoing)).await;
        if let Err(CallError::AuthExpired(failure)) = asked {
            asked = match self.refresh(run, p, failure).await? {
                Ok(()) => run.call(p.connector.reconcile(&p.call, &p.outgoing)).await,
                Err(error) => Err(error),
            };
        }
        Ok(match asked {
            Ok(Reconciled::Found(published)) => Some(How::Published(published)),
            Ok(Reconciled::CannotTell) => Some(How::cannot_tell()),
            Ok(Reconciled::Absent) => {
                let over = p.target.call_started_at.map(|began| self.over(began));
                over.filter(|over| self.store.now() < *over).map(|over| How::Again {
                    at: Some(over),
                    failure: Failure::of(
                        Category::Network,
                        "Waiting until the earlier call to the platform must be over.",
                    ),
                    open: true,
                })
            }
            // The question found no answer: the earlier call is as open as before.
            Err(error) => Some(How::of_question(error)),
        })
    }

    /// Stores that a call begins now, if the job is still ours.
    async fn mark(&self, run: &Run, p: &mut Prepared) -> Result<bool> {
        let mut tx = self.store.begin().await?;
        if !rows::still_held(&mut tx, &run.job).await? {
            return Ok(false);
        }
        targets::mark_call(&mut tx, p.target.id, &p.outgoing.marker).await?;
        p.target.call_started_at = Some(tx.now);
        tx.commit().await?;
        Ok(true)
    }

    /// Publishes; an access token that has run out is renewed once.
    async fn publish(&self, run: &Run, p: &mut Prepared) -> Result<Option<How>> {
        let mut result = self.call(run, p).await;
        if let Err(CallError::AuthExpired(failure)) = result {
            result = match self.refresh(run, p, failure).await? {
                // The time of a second call counts from its own beginning.
                Ok(()) if self.mark(run, p).await? => self.call(run, p).await,
                Ok(()) => return Ok(None),
                Err(error) => Err(error),
            };
        }
        if let Ok(Published { secrets: Some(secrets), .. }) = &result {
            // The post is out, whatever becomes of this: the next call learns the same again.
            if let Err(error) = self.keep(&p.account, secrets, p.account.token_expires_at).await {
                tracing::warn!(account = p.account.id, %error, "what the platform told of the account could not be stored");
            }
        }
        Ok(Some(match result {
            Ok(published) => How::Published(published),
            Err(error) => How::of(error, p.connector.can_reconcile()),
        }))
    }

    /// One publish, which may be several requests, within one deadline from the time that was stored: when that is over,
    /// another run may take "not there" for an answer, so a process that was frozen before it called calls no more.
    async fn call(&self, run: &Run, p: &Prepared) -> std::result::Result<Published, CallError> {
        let now = self.store.now();
        let left = (self.over(p.target.call_started_at.unwrap_or(now)) - now).to_std().unwrap_or_default();
        if left.is_zero() {
            return Err(CallError::network("Crier was held up for too long before it could call the platform."));
        }
        match run.call(tokio::time::timeout(left, p.connector.publish(&p.call, &p.outgoing))).await {
            Ok(result) => result,
            Err(_) => Err(CallError::Unknown(Failure::of(Category::Network, "The platform did not answer in time."))),
        }
    }
}
