//! The publish call, and the reconciliation of an earlier call.

use crier_domain::failure::{Category, Failure};
use crier_platforms::{CallError, Published, ReconcileResult, VideoTransfer, video};
use crier_store::{accounts, adoptions};

use super::super::account_session::disconnected;
use super::super::adopt::{self, Adoption};
use super::super::call_outcome::CallOutcome;
use super::daily_cap::check_daily_cap;
use super::{Ending, PublishCall, Publisher, Step, Stop, SubjectKind, deleted, published, stop};
use crate::engine::Run;

/// What the platform has of an earlier call.
enum Found {
    Post(ReconcileResult),
    /// All parts of a thread.
    Thread(Vec<Published>),
}

impl Publisher {
    /// Queries the platform for the outcome of the earlier call. Stops unless that call did not and will not publish
    /// the post, and the post should still be published.
    pub(super) async fn reconcile(&self, run: &Run, p: &mut PublishCall) -> Step<()> {
        if !p.session.connector.can_reconcile() {
            return Err(stop(CallOutcome::reconcile_unsupported(p.action)));
        }
        let mut reconciled = run.wait_without_slot(self.query(p)).await;
        if let Err(CallError::AuthExpired(failure)) = reconciled {
            self.refresh(run, p, failure).await?;
            reconciled = self.query(p).await;
        }
        match reconciled {
            Ok(Found::Thread(posts)) => return Err(Stop::Ended(Ending::Published(posts))),
            Ok(Found::Post(ReconcileResult::Found(post))) => return Err(published(post)),
            Ok(Found::Post(ReconcileResult::Unsupported)) => {
                return Err(stop(CallOutcome::reconcile_unsupported(p.action)));
            }
            Ok(Found::Post(ReconcileResult::Matches(found))) => {
                if !found.is_empty() {
                    self.await_later_calls(p).await?;
                }
                match self.adopt(run, p, found).await? {
                    Adoption::One(post) => return Err(published(*post)),
                    Adoption::Several => return Err(stop(CallOutcome::ambiguous(p.action))),
                    Adoption::None => {}
                }
            }
            Ok(Found::Post(ReconcileResult::PublishedAmong(found))) => {
                return Err(published(self.adopt_published(run, p, found).await?));
            }
            Ok(Found::Post(ReconcileResult::Absent)) => {}
            Ok(Found::Post(ReconcileResult::Pending(pause))) => return self.wait_for_platform(run, p, pause).await,
            Ok(Found::Post(ReconcileResult::Rejected(error))) => {
                (p.has_open_call, p.subject.call_started_at) = (false, None);
                return Err(self.fail(p, error));
            }
            // The query failed: the outcome of the earlier call stays unknown.
            Err(error) => return Err(self.fail(p, error)),
        }
        if p.post().called_at.is_none() {
            // The earlier call may still be in progress, and its deadline is unknown.
            return Err(stop(CallOutcome::reconcile_unsupported(p.action)));
        }
        let deadline = p.subject.call_started_at.map(|began| began + self.call_duration(p));
        if let Some(deadline) = deadline.filter(|deadline| self.store.now() < *deadline) {
            let message = "Waiting for the earlier call to the platform to end or time out.";
            let failure = Failure::of(Category::Network, message);
            return Err(stop(CallOutcome::Retry { at: Some(deadline), failure, open: true }));
        }
        (p.has_open_call, p.subject.call_started_at) = (false, None);
        match p.skip_reason.take() {
            Some(failure) => Err(stop(CallOutcome::Failed(failure))),
            None => Ok(()),
        }
    }

    /// Stops if the outcome of a later call for the same text is unknown: what the platform has may be the post of that
    /// call. The later call is looked up first, because what was published before it cannot be its post.
    async fn await_later_calls(&self, p: &PublishCall) -> Step<()> {
        if p.subject.kind != SubjectKind::Post {
            return Ok(());
        }
        let (mut conn, account) = (self.store.read().await?, &p.session.account);
        let accounts = adoptions::rows_of(&mut conn, (account.platform, account.external_id.as_str())).await?;
        if !adoptions::has_later_call(&mut conn, &accounts, p.subject.target_id).await? {
            return Ok(());
        }
        let message = "Waiting for the outcome of a newer post with the same text on this account.";
        let failure = Failure::of(Category::PlatformError, message);
        Err(stop(CallOutcome::Retry { at: None, failure, open: true }))
    }

    /// Queries the platform once.
    async fn query(&self, p: &PublishCall) -> Result<Found, CallError> {
        let (connector, account) = (&p.session.connector, &p.session.connector_account);
        if p.parts.len() == 1 {
            return connector.reconcile(account, p.post()).await.map(Found::Post);
        }
        let found = connector.reconcile_thread(account, &p.posts()).await?;
        Ok(found.map_or(Found::Post(ReconcileResult::Absent), Found::Thread))
    }

    /// Decides which of the candidates is the post, and stores that.
    async fn adopt(&self, run: &Run, p: &PublishCall, found: Vec<Published>) -> Step<Adoption> {
        let mut tx = self.begin_held(run).await?;
        let adopted = adopt::adopt(&mut tx, &p.session.account, p.subject.adopter(), found).await?;
        tx.commit().await?;
        Ok(adopted)
    }

    /// Like `adopt`, for a post that is published in any case. Its id is empty if it is unknown.
    pub(super) async fn adopt_published(&self, run: &Run, p: &PublishCall, found: Vec<Published>) -> Step<Published> {
        Ok(match self.adopt(run, p, found).await? {
            Adoption::One(published) => *published,
            Adoption::None | Adoption::Several => Published::new("", None),
        })
    }

    /// Stores the marker of a call that starts now. Stops if the call must not be made: the lease was lost, the account
    /// was disconnected, the post was deleted, or the call (if it `counts`) would exceed the daily cap.
    pub(super) async fn store_call_marker(&self, run: &Run, p: &mut PublishCall, counts: bool) -> Step<()> {
        let mut tx = self.begin_call(run, &p.subject).await?;
        // The uploads before the call may have taken minutes.
        if !accounts::is_connected(&mut tx, p.subject.target_id).await? {
            return Err(stop(CallOutcome::Failed(disconnected())));
        }
        if counts && let Some(postponed) = check_daily_cap(&mut tx, &self.platforms, &p.subject, true).await? {
            tx.commit().await?;
            return Err(Stop::Ended(postponed));
        }
        let marker = p.post().marker.clone();
        if !p.subject.mark_call(&mut tx, &marker).await? {
            return Err(stop(CallOutcome::Failed(deleted())));
        }
        run.set_marked();
        Ok(tx.commit().await?)
    }

    /// Publishes the posts of the call. Retries once after refreshing an expired access token, and once per attempt after
    /// repeating uploads that the platform lost.
    pub(super) async fn publish(&self, run: &Run, p: &mut PublishCall) -> Step<Vec<Published>> {
        loop {
            match self.call(run, p).await {
                Ok(published) => {
                    for post in &published {
                        self.store_renewed_secrets(p, post).await;
                    }
                    return Ok(published);
                }
                Err(CallError::AuthExpired(failure)) => self.refresh(run, p, failure).await?,
                Err(CallError::UploadsMissing(_)) if !p.has_uploaded_again => self.upload_again(run, p).await?,
                Err(CallError::Accepted { post, .. }) => {
                    p.set_marker(&post.marker);
                    self.wait_for_platform(run, p, post.pause).await?;
                }
                Err(CallError::Duplicate { existing, failure }) => {
                    return self.resolve_duplicate(run, p, Some(*existing), failure).await;
                }
                Err(CallError::Permanent(failure)) if failure.category == Category::DuplicateContent => {
                    return self.resolve_duplicate(run, p, None, failure).await;
                }
                Err(error) => return Err(self.fail(p, error)),
            }
            // The deadline of the next call counts from its own start. For the daily cap, both calls count as one
            // because the first was rejected.
            self.store_call_marker(run, p, false).await?;
        }
    }

    /// Returns the posts of an earlier call, because of which the platform rejected this one as a duplicate. The
    /// platform may not have shown them when it was queried before. Stops if they are not found, or if no earlier call
    /// had an unknown outcome: then they are other posts with the same text.
    async fn resolve_duplicate(
        &self,
        run: &Run,
        p: &PublishCall,
        existing: Option<Published>,
        failure: Failure,
    ) -> Step<Vec<Published>> {
        if !adopt::may_exist(&p.post().marker) {
            return Err(self.fail(p, CallError::Permanent(failure)));
        }
        let found = match existing {
            Some(existing) => vec![existing],
            None => match run.wait_without_slot(self.query(p)).await {
                Ok(Found::Thread(posts)) => return Ok(posts),
                Ok(Found::Post(ReconcileResult::Found(post))) => return Ok(vec![post]),
                Ok(Found::Post(ReconcileResult::Matches(found))) => found,
                Ok(Found::Post(_)) | Err(_) => Vec::new(),
            },
        };
        match self.adopt(run, p, found).await? {
            Adoption::One(post) => Ok(vec![*post]),
            Adoption::Several => Err(stop(CallOutcome::ambiguous(p.action))),
            Adoption::None => Err(stop(CallOutcome::unknown(p.action, &failure, false))),
        }
    }

    /// Publishes once, possibly with several requests, within one deadline from the stored start time. After the
    /// deadline, another run may rely on the platform's response that there is no such post, so a process that was
    /// frozen before the call must not call any more.
    async fn call(&self, run: &Run, p: &PublishCall) -> Result<Vec<Published>, CallError> {
        let now = self.store.now();
        let deadline = p.subject.call_started_at.unwrap_or(now) + self.call_duration(p);
        let remaining = (deadline - now).to_std().unwrap_or_default();
        if remaining.is_zero() {
            return Err(CallError::network("Crier was delayed for too long before it could call the platform."));
        }
        let was_incomplete = is_incomplete(p);
        run.set_in_doubt(true);
        let call = tokio::time::timeout(remaining, self.publish_once(p));
        let call = async {
            if p.session.connector.waits_externally(p.post()) {
                run.call_and_wait(call).await
            } else {
                run.call(call).await
            }
        };
        let result = call.await.unwrap_or_else(|_| {
            Err(CallError::Unknown(Failure::of(Category::Network, "The platform did not respond in time.")))
        });
        let result = match result {
            Err(CallError::Unknown(_)) if !was_incomplete && is_incomplete(p) => Err(video::unreadable()),
            result => result,
        };
        run.set_in_doubt(matches!(result, Ok(_) | Err(CallError::Unknown(_) | CallError::Accepted { .. })));
        result
    }

    async fn publish_once(&self, p: &PublishCall) -> Result<Vec<Published>, CallError> {
        let (connector, account) = (&p.session.connector, &p.session.connector_account);
        if p.parts.len() == 1 {
            return Ok(vec![connector.publish(account, p.post()).await?]);
        }
        connector.publish_thread(account, &p.posts()).await
    }

    /// Stores the account data that the platform returned with the post. If this fails, the post is published
    /// nevertheless, and the next call returns the same data again.
    async fn store_renewed_secrets(&self, p: &mut PublishCall, published: &Published) {
        let Some(secrets) = published.secrets.clone() else { return };
        let (account, times) = (p.session.account.id, p.session.account.token_expires_at.into());
        if let Err(error) = p.session.store_secrets(secrets, times).await {
            tracing::warn!(account, %error, "failed to store the platform's account data");
        }
    }
}

/// Returns whether the storage has failed while a video was sent as a part of the publishing request. Then the platform
/// has not received the whole request, so it has published nothing.
fn is_incomplete(p: &PublishCall) -> bool {
    let mut videos = p.parts.iter().flat_map(|part| &part.post.videos);
    p.session.connector.video_transfer() == VideoTransfer::Inline && videos.any(|video| video.file.has_failed())
}
