//! The call itself, and the reconciliation of an earlier one.

use crier_common::domain::failure::{Category, Failure};
use crier_common::platforms::{CallError, Published, Reconciled};
use crier_common::store::jobs::engine as rows;
use crier_common::store::{Result, targets};

use super::ending::PublishOutcome;
use super::{CallResult, Prepared, PublishTarget, lease_lost};
use crate::engine::Run;
use crate::jobs::RunResult;

/// The result of a publish, or the result of a run that must not publish.
type PublishResult = std::result::Result<std::result::Result<Published, CallError>, Box<dyn RunResult>>;

impl PublishTarget {
    /// Reconciles an earlier call, uploads the pictures, then publishes.
    pub(super) async fn execute_call(&self, run: &Run, p: &mut Prepared) -> Result<CallResult> {
        if p.has_open_call {
            if let Some(how) = self.reconcile_call(run, p).await? {
                return Ok(Ok(how));
            }
            if let Some(failure) = p.skip_reason.take() {
                return Ok(Ok(PublishOutcome::failed(failure)));
            }
        }
        if p.has_open_call || p.target.call_started_at.is_none() {
            if let Some(end) = self.prepare_images(run, p).await? {
                return Ok(end);
            }
            if let Some(ending) = self.store_call_marker(run, p, true).await? {
                return Ok(Err(ending));
            }
        }
        let mut answered = self.publish(run, p).await?;
        if let Ok(Err(CallError::UploadsMissing(_))) = answered {
            if let Some(end) = self.upload_images_again(run, p).await? {
                return Ok(end);
            }
            // As after a refresh: the first call was rejected, so both count as one.
            if let Some(ending) = self.store_call_marker(run, p, false).await? {
                return Ok(Err(ending));
            }
            answered = self.publish(run, p).await?;
        }
        Ok(answered.map(|result| match result {
            Ok(published) => PublishOutcome::Published(published),
            Err(error) => PublishOutcome::of(error, p.connector.can_reconcile()),
        }))
    }

    /// Asks the platform for the outcome of the earlier call; `None`: the post is not there, and never will be.
    async fn reconcile_call(&self, run: &Run, p: &mut Prepared) -> Result<Option<PublishOutcome>> {
        if !p.connector.can_reconcile() {
            return Ok(Some(PublishOutcome::reconcile_unsupported()));
        }
        let mut asked = run.wait_without_slot(p.connector.reconcile(&p.call, &p.outgoing)).await;
        if let Err(CallError::AuthExpired(failure)) = asked {
            asked = match self.refresh(run, p, failure).await? {
                Ok(()) => p.connector.reconcile(&p.call, &p.outgoing).await,
                Err(error) => Err(error),
            };
        }
        Ok(match asked {
            Ok(Reconciled::Found(published)) => Some(PublishOutcome::Published(published)),
            Ok(Reconciled::Unsupported) => Some(PublishOutcome::reconcile_unsupported()),
            Ok(Reconciled::Absent) => {
                let over = p.target.call_started_at.map(|began| self.call_deadline(began));
                over.filter(|over| self.store.now() < *over).map(|over| PublishOutcome::Retry {
                    at: Some(over),
                    failure: Failure::of(
                        Category::Network,
                        "Waiting until the earlier call to the platform must be over.",
                    ),
                    open: true,
                })
            }
            // The query failed: the earlier call is as open as before.
            Err(error) => Some(PublishOutcome::from_reconcile_error(error)),
        })
    }

    /// Stores the marker of a call that starts now. Returns the result of the run if the call must not be made: the
    /// lease was lost, or the call (if it `counts`) would exceed the daily cap.
    async fn store_call_marker(&self, run: &Run, p: &mut Prepared, counts: bool) -> Result<Option<Box<dyn RunResult>>> {
        let _turn = run.acquire_turn().await;
        let mut tx = self.store.begin().await?;
        if !rows::still_held(&mut tx, &run.job).await? {
            return Ok(Some(lease_lost()));
        }
        let held_back = if counts { self.postpone_if_over_cap(&mut tx, &p.target, true).await? } else { None };
        if held_back.is_none() {
            targets::mark_call(&mut tx, p.target.id, &p.outgoing.marker).await?;
            p.target.call_started_at = Some(tx.now);
            run.set_marked();
        }
        tx.commit().await?;
        Ok(held_back)
    }

    /// Publishes; refreshes an expired access token once.
    async fn publish(&self, run: &Run, p: &mut Prepared) -> Result<PublishResult> {
        let mut result = self.call(run, p).await;
        if let Err(CallError::AuthExpired(failure)) = result {
            result = match self.refresh(run, p, failure).await? {
                // The deadline of the second call counts from its own start. On the daily cap both count as one: the
                // first was rejected.
                Ok(()) => match self.store_call_marker(run, p, false).await? {
                    Some(ending) => return Ok(Err(ending)),
                    None => self.call(run, p).await,
                },
                Err(error) => Err(error),
            };
        }
        if let Ok(Published { secrets: Some(secrets), .. }) = &result {
            // The post is published, even if this fails; the next call returns the same data again.
            match self.store_secrets(&p.account, secrets, p.account.token_expires_at).await {
                Ok(Some(renewed)) => p.account = renewed,
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(account = p.account.id, %error, "the platform's account data could not be stored");
                }
            }
        }
        Ok(Ok(result))
    }

    /// Publishes once, possibly with several requests, within one deadline from the stored start time: after it,
    /// another run may trust the answer "not there", so a process that was frozen before the call must not call any
    /// more.
    async fn call(&self, run: &Run, p: &Prepared) -> std::result::Result<Published, CallError> {
        let now = self.store.now();
        let left = (self.call_deadline(p.target.call_started_at.unwrap_or(now)) - now).to_std().unwrap_or_default();
        if left.is_zero() {
            return Err(CallError::network("Crier was held up for too long before it could call the platform."));
        }
        run.set_in_doubt(true);
        let called = tokio::time::timeout(left, p.connector.publish(&p.call, &p.outgoing));
        let called = async {
            if p.connector.waits_externally(&p.outgoing) {
                run.call_and_wait(called).await
            } else {
                run.call(called).await
            }
        };
        let result = called.await.unwrap_or_else(|_| {
            Err(CallError::Unknown(Failure::of(Category::Network, "The platform did not answer in time.")))
        });
        run.set_in_doubt(matches!(result, Ok(_) | Err(CallError::Unknown(_))));
        result
    }
}
