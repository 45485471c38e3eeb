//! `publish_comment`: publishes the first comment of a published target, at most once.
//!
//! 1. *Prepare*, one transaction under the post's lock: checks that the post is still published and that the account
//!    can be used, then stores the marker.
//! 2. *Publish*, by the steps of [`publisher`](super::publisher). A comment is a post that replies to the target's.
//! 3. *Settle*, in the transaction that settles the job: writes the comment, the account, the lane and the event. The
//!    target keeps its status.

use async_trait::async_trait;
use chrono::TimeDelta;
use crier_domain::account::AccountStatus;
use crier_domain::failure::{Category, Failure};
use crier_domain::job::Outcome;
use crier_domain::post::{FirstCommentStatus, Post, PublishedPart, StoredFirstComment, Target, TargetStatus};
use crier_platforms::{MarkerSeed, OutgoingPost, ReplyKind, ReplyTo};
use crier_store::jobs::engine as rows;
use crier_store::posts::{self, LockedPost};
use crier_store::{Result, Tx, accounts, first_comments, targets};

use self::run_result::CommentRunResult;
use super::account_session::{AccountSession, disconnected, expired};
use super::adopt;
use super::call_outcome::{self, CallAction, CallOutcome};
use super::publisher::video_sources::VideoSources;
use super::publisher::{Ending, OutgoingPart, PublishCall, Publisher, Subject, SubjectKind, unpublished};
use super::{Deps, FinishedRun, Job, RunError, Stop, settle_each};
use crate::engine::Run;

mod run_result;

const ACTION: CallAction = CallAction::Comment;
/// The pause before a comment checks again whether its post remains published.
const UNPUBLISH_PAUSE: TimeDelta = TimeDelta::minutes(1);

pub struct PublishComment {
    publisher: Publisher,
}

/// The result of a step.
type Step<T> = std::result::Result<T, Stop<CommentRunResult>>;

/// A comment whose run may make its call.
struct Prepared {
    target: Target,
    call: PublishCall,
}

impl PublishComment {
    pub fn new(deps: &Deps) -> Self {
        Self { publisher: Publisher::new(deps) }
    }

    async fn publish_comment(&self, run: &Run) -> Step<CommentRunResult> {
        let Prepared { target, mut call } = self.prepare(run).await?;
        let ending = self.publisher.run(run, &mut call).await?;
        let version = Some(call.session.account.credentials_version);
        Ok(match ending {
            Ending::Postponed { until, why } => CommentRunResult::Postponed { until, why },
            Ending::Published(mut posts) => {
                self.result(target, call.subject, CallOutcome::Published(posts.remove(0)), version)
            }
            Ending::Outcome(outcome) => self.result(target, call.subject, outcome, version),
        })
    }

    fn result(
        &self,
        target: Target,
        subject: Subject,
        outcome: CallOutcome,
        credentials_version: Option<i64>,
    ) -> CommentRunResult {
        CommentRunResult::new(target, subject, outcome, credentials_version, self.publisher.timeout)
    }

    /// Decides whether to call the platform, and stores the start of the run.
    async fn prepare(&self, run: &Run) -> Step<Prepared> {
        let target_id = run.job.subject_id;
        let mut tx = self.publisher.store.begin().await?;
        let Some(LockedPost { post, is_deleted: false }) = posts::lock_of_target(&mut tx, target_id).await? else {
            return Err(RunError::cancelled("the post was deleted").into());
        };
        if !rows::still_held(&mut tx, &run.job).await? {
            return Err(RunError::lease_lost().into());
        }
        let comment = first_comments::find(&mut tx, target_id).await?;
        let comment = comment.filter(|comment| comment.status == FirstCommentStatus::Pending);
        let mut comment = comment.ok_or_else(|| RunError::cancelled("the comment has ended"))?;
        let target = targets::find(&mut tx, target_id).await?;
        let target = target.ok_or_else(|| RunError::cancelled("the post no longer exists"))?;
        comment.attempts += 1;
        let has_open_call = comment.call_started_at.is_some();
        if target.status == TargetStatus::Unpublishing && !has_open_call {
            // The post may remain published.
            let (until, why) = (tx.now + UNPUBLISH_PAUSE, "the post is being unpublished".to_owned());
            return Err(Stop::Ended(CommentRunResult::Postponed { until, why }));
        }
        // If an earlier call may have made the comment, the platform is queried nevertheless.
        let skip_reason = (target.status != TargetStatus::Published).then(unpublished);
        let session = match self.session(&mut tx, &post, &target, has_open_call).await? {
            Ok(session) => session,
            Err(outcome) => {
                // A run that ends without a call is an attempt as well.
                first_comments::start(&mut tx, target_id, None).await?;
                tx.commit().await?;
                run.set_counted();
                let outcome = if has_open_call { outcome.with_open_call(ACTION) } else { outcome };
                let subject = subject_of(&target, &comment);
                return Err(Stop::Ended(self.result(target, subject, outcome, None)));
            }
        };
        let outgoing = outgoing(&tx, &session, &target, &comment);
        first_comments::start(&mut tx, target_id, Some(&outgoing.marker)).await?;
        tx.commit().await?;
        run.set_counted();
        let call = PublishCall {
            subject: subject_of(&target, &comment),
            action: ACTION,
            session,
            parts: vec![OutgoingPart { post: outgoing, assets: Vec::new(), cover: None, card: None, card_image: None }],
            memory: None,
            transfer_time: TimeDelta::zero(),
            videos_began_at: None,
            video_sources: VideoSources::default(),
            has_sent_video: false,
            has_uploaded_again: false,
            has_open_call,
            skip_reason,
        };
        Ok(Prepared { target, call })
    }

    /// Returns the access to the target's account, or why no comment can be made.
    async fn session(
        &self,
        tx: &mut Tx,
        post: &Post,
        target: &Target,
        has_open_call: bool,
    ) -> Result<std::result::Result<AccountSession, CallOutcome>> {
        if target.status != TargetStatus::Published && !has_open_call {
            return Ok(Err(CallOutcome::Failed(unpublished())));
        }
        if target.external_id.as_deref().is_none_or(str::is_empty) {
            // Some platforms report the id of a post later.
            let message = "The platform has not reported the post's ID, so the post cannot be commented on.";
            let failure = Failure::with_code(Category::PlatformError, "post_id_unknown", message);
            return Ok(Err(CallOutcome::Retry { at: None, failure, open: false }));
        }
        let pair = (post.brand_id, target.account_id);
        let mut found = accounts::of_brands_with_secrets(tx, self.publisher.store.cipher(), &[pair]).await?;
        let Some((account, secrets)) = found.remove(&pair) else {
            return Ok(Err(CallOutcome::Failed(disconnected())));
        };
        if account.status == AccountStatus::Expired {
            let message = "The account's access has expired. Refresh or reconnect it, then add the comment there.";
            return Ok(Err(CallOutcome::Failed(expired(message))));
        }
        let connector = self.publisher.platforms.get(account.platform);
        Ok(match connector {
            Some(connector) => {
                let store = &self.publisher.store;
                Ok(AccountSession::new(store, account, &secrets, connector, self.publisher.timeout))
            }
            None => {
                let failure = Failure::of(Category::Internal, "This worker cannot publish on the platform.");
                Err(CallOutcome::Retry { at: None, failure, open: false })
            }
        })
    }
}

fn subject_of(target: &Target, comment: &StoredFirstComment) -> Subject {
    Subject {
        kind: SubjectKind::FirstComment,
        target_id: target.id,
        account_id: target.account_id,
        platform: target.platform,
        attempts: comment.attempts,
        call_started_at: comment.call_started_at,
    }
}

/// Returns the comment as a post that replies to the target's, with its marker if it has one, otherwise with a new one.
fn outgoing(tx: &Tx, session: &AccountSession, target: &Target, comment: &StoredFirstComment) -> OutgoingPost {
    let post = target.published_parts.first().cloned().unwrap_or_else(|| PublishedPart {
        external_id: target.external_id.clone().unwrap_or_default(),
        url: target.url.clone(),
        published_at: target.published_at.unwrap_or(tx.now),
        other_ids: Vec::new(),
        is_unpublished: false,
    });
    // The id may have been assigned after the post was stored.
    let post = PublishedPart { external_id: target.external_id.clone().unwrap_or(post.external_id), ..post };
    let mut marker = comment.marker.clone().unwrap_or_else(|| {
        let (random, reply) = (crier_base::random::u64(), Some(ReplyKind::Comment));
        session.connector.marker(MarkerSeed { target_id: target.id, at: tx.now, random, reply, parts: 1 })
    });
    adopt::mark_may_exist(&mut marker, comment.call_started_at, comment.error.as_ref());
    OutgoingPost {
        target_id: target.id,
        reply_to: Some(ReplyTo { kind: ReplyKind::Comment, root: post.clone(), parent: post }),
        text: comment.content.clone(),
        images: Vec::new(),
        videos: Vec::new(),
        card: None,
        options: target.options.clone(),
        called_at: adopt::call_time(&marker, comment.call_started_at, tx.now),
        marker,
        attempt: u32::try_from(comment.attempts).unwrap_or(1),
        has_earlier_attempt: comment.marker.is_some(),
    }
}

#[async_trait]
impl Job for PublishComment {
    type Result = CommentRunResult;

    /// A result locks a post, and then its account. Several results would lock them in different orders.
    const SETTLES_TOGETHER: usize = 1;

    async fn run(&self, run: &Run) -> std::result::Result<CommentRunResult, RunError> {
        match self.publish_comment(run).await {
            Ok(result) | Err(Stop::Ended(result)) => Ok(result),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    async fn settle(&self, tx: &mut Tx, runs: &[FinishedRun<'_, CommentRunResult>]) -> Result<Vec<Outcome>> {
        settle_each(tx, runs, |tx, job, result| Box::pin(result.write(tx, job))).await
    }

    async fn undo_aborted(&self, tx: &mut Tx, run: &Run) -> Result<()> {
        self.undo_failed(tx, run).await?;
        if run.is_counted() { first_comments::refund_attempt(tx, run.job.subject_id).await } else { Ok(()) }
    }

    async fn undo_failed(&self, tx: &mut Tx, run: &Run) -> Result<()> {
        let id = run.job.subject_id;
        if !run.has_unused_marker() || posts::lock_of_target(tx, id).await?.is_none() {
            return Ok(());
        }
        first_comments::clear_call(tx, id).await
    }

    fn backoff(&self, attempt: i32) -> TimeDelta {
        call_outcome::pause(attempt, crier_base::random::unit())
    }
}
