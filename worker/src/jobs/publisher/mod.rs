//! The steps that publish a post on an account at most once, shared by the kinds that do so: `publish_target` (a post,
//! or the next part of its thread) and `publish_comment`.
//!
//! The kind prepares a [`PublishCall`]: everything that the call needs, with the marker stored. Then:
//!
//! 1. *Reconcile.* If the outcome of an earlier call is unknown (its process died, the connection broke), queries the
//!    platform first. If the post exists, it is published. If it does not exist, and the earlier call's deadline has
//!    passed, calls again. If the platform cannot tell, the outcome is unknown and a user decides.
//! 2. *Stage.* Loads and uploads images and videos that the platform does not have yet (`images.rs`, `videos.rs`),
//!    makes the link card (`card.rs`), and creates other objects that the platform needs before the call (`stage.rs`).
//! 3. *Call.* If the platform accepts the post and publishes it later, the run is postponed, and a later run queries
//!    the platform as after an unknown outcome.
//!
//! A step ends the run early with a [`Stop`].
//!
//! Only the call itself can have an unknown outcome: a run that is aborted before it (at shutdown) is released and uses
//! up no attempt. Each step checks the lease, so a worker that lost it while frozen between two steps makes no call.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::failure::{Category, Failure};
use crier_domain::media::Asset;
use crier_domain::platform::Platform;
use crier_domain::post::TargetStatus;
use crier_media::Library;
use crier_media::budget::MemoryPermit;
use crier_platforms::link_card::{CardReader, CardRequest};
use crier_platforms::{CallError, ConnectorRegistry, Marker, OutgoingPost, Published, UploadQuota};
use crier_store::adoptions::Adopter;
use crier_store::jobs::engine as rows;
use crier_store::{Result, Store, Tx, first_comments, posts, targets};

use super::account_session::{AccountSession, RefreshError};
use super::call_outcome::{CallAction, CallOutcome};
use super::{Deps, RunError, Stop};
use crate::engine::Run;

mod call;
mod card;
mod daily_cap;
pub(super) mod images;
mod stage;
pub(super) mod video_sources;
pub(super) mod videos;

use self::video_sources::VideoSources;
pub(super) use daily_cap::check_daily_cap;

/// Publishing may take several requests (images, lookups), each with the platform's timeout. All of them must end
/// within this many timeouts.
const PUBLISH_CALLS: i32 = 2;
/// How long after a post a platform may report that it does not exist, although it does.
const MAX_PARENT_DELAY: TimeDelta = TimeDelta::minutes(2);

/// Makes the steps.
#[derive(Clone)]
pub(super) struct Publisher {
    pub store: Store,
    pub platforms: Arc<ConnectorRegistry>,
    pub library: Library,
    cards: CardReader,
    /// The maximum duration of all requests of a call, without the transfer of videos
    /// ([`Publisher::call_duration`]).
    pub timeout: TimeDelta,
}

/// A post to publish, and everything that the call needs.
pub(super) struct PublishCall {
    pub subject: Subject,
    pub action: CallAction,
    pub session: AccountSession,
    /// The posts that the call publishes: one, or all parts of a thread if the platform publishes them in one call.
    pub parts: Vec<OutgoingPart>,
    /// The permit for the memory of the images, if they are part of the call, and of the covers of videos.
    pub memory: Option<MemoryPermit>,
    /// The time that the videos add to the deadline of the call.
    pub transfer_time: TimeDelta,
    /// The time of the first step of the video that is being handed over.
    pub videos_began_at: Option<DateTime<Utc>>,
    /// What the uploads of the videos are made from.
    pub video_sources: VideoSources,
    /// Whether this run has continued the upload of a video, so that an interruption uses no attempt.
    pub has_sent_video: bool,
    /// Whether the platform had lost the uploads when this attempt called it. An attempt uploads them again once, and
    /// both calls count as one for the daily cap.
    pub has_uploaded_again: bool,
    /// Whether the outcome of an earlier call is unknown.
    pub has_open_call: bool,
    /// Why the post must not be published any more: the result of the run unless the earlier call succeeded. Without an
    /// earlier call, the run only aborts the uploads of videos.
    pub skip_reason: Option<Failure>,
}

/// A post of a call.
pub(super) struct OutgoingPart {
    pub post: OutgoingPost,
    /// Its images in the media library, and the cover of its first video.
    pub assets: Vec<Asset>,
    pub cover: Option<Asset>,
    /// The link card to make, and its image if that is from the media library.
    pub card: Option<CardRequest>,
    pub card_image: Option<Asset>,
}

/// What the call publishes, and the progress of its runs as it is stored.
#[derive(Clone)]
pub(super) struct Subject {
    pub kind: SubjectKind,
    pub target_id: i64,
    pub account_id: i64,
    pub platform: Platform,
    /// The number of attempts, including this run.
    pub attempts: i32,
    /// The start of the current call, or of a call that an earlier run left open; `None` if images or videos must be
    /// uploaded or a link card made first.
    pub call_started_at: Option<DateTime<Utc>>,
}

/// What a call publishes. The progress of its runs is stored in the target, or in the comment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SubjectKind {
    /// A post, which counts against the account's daily cap.
    Post,
    /// A later part of a thread.
    Part,
    FirstComment,
}

/// How a run ends that found something to do.
pub(super) enum Ending {
    /// The posts of the call were published.
    Published(Vec<Published>),
    /// Any other outcome.
    Outcome(CallOutcome),
    /// The run continues later without using up an attempt: the account's daily cap is reached, or the platform is
    /// processing the post. The subject was already updated.
    Postponed { until: DateTime<Utc>, why: String },
}

/// The result of a step.
type Step<T> = std::result::Result<T, Stop<Ending>>;

impl Publisher {
    pub fn new(deps: &Deps) -> Self {
        Self {
            store: deps.store.clone(),
            platforms: deps.platforms.clone(),
            library: deps.library.clone(),
            cards: CardReader::new(deps.guard.clone()),
            timeout: deps.platform_timeout * PUBLISH_CALLS,
        }
    }

    /// Makes all steps. Returns how the run ends.
    pub async fn run(&self, run: &Run, p: &mut PublishCall) -> std::result::Result<Ending, RunError> {
        match self.steps(run, p).await {
            Ok(published) => Ok(Ending::Published(published)),
            Err(Stop::Ended(ending)) => Ok(ending),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    async fn steps(&self, run: &Run, p: &mut PublishCall) -> Step<Vec<Published>> {
        if p.has_open_call {
            self.reconcile(run, p).await?;
        }
        if let Some(reason) = p.skip_reason.take() {
            self.forget_unfinished(run, p).await?;
            return Err(stop(CallOutcome::Failed(reason)));
        }
        if p.subject.call_started_at.is_none() {
            self.prepare_images(run, p).await?;
            self.send_videos(run, p).await?;
            self.prepare_cards(run, p).await?;
            self.stage(run, p).await?;
            let counts = !p.has_uploaded_again && p.upload_quota().is_none();
            self.store_call_marker(run, p, counts).await?;
        }
        self.publish(run, p).await
    }

    /// Returns the stop for a platform's error.
    fn fail(&self, p: &PublishCall, error: CallError) -> Stop<Ending> {
        let error = match error {
            CallError::ParentMissing(failure) if self.may_appear(p) => CallError::Transient(failure),
            CallError::ParentMissing(failure) => CallError::Permanent(failure),
            error => error,
        };
        let can_reconcile = p.session.connector.can_reconcile();
        stop(CallOutcome::of(p.action, error, p.has_open_call, can_reconcile))
    }

    /// Returns whether the platform may still show the post that this one replies to.
    fn may_appear(&self, p: &PublishCall) -> bool {
        let parent = p.post().reply_to.as_ref().map(|reply| reply.parent.published_at);
        parent.is_some_and(|published_at| self.store.now() - published_at < MAX_PARENT_DELAY)
    }

    /// Renews the account's tokens; `rejection` is the platform's error for the old ones.
    async fn refresh(&self, run: &Run, p: &mut PublishCall, rejection: Failure) -> Step<()> {
        p.session.refresh(run, rejection).await.map_err(|error| match error {
            RefreshError::Database(error) => Stop::from(error),
            RefreshError::Call(error) => self.fail(p, error),
        })
    }

    /// Begins the transaction that stores the marker of a call. Stops if the lease was lost, or if the post of a comment
    /// was unpublished meanwhile.
    async fn begin_call(&self, run: &Run, subject: &Subject) -> Step<Tx> {
        if subject.kind != SubjectKind::FirstComment {
            return self.begin_held(run).await;
        }
        let mut tx = self.store.begin().await?;
        // Always lock the post before the job.
        posts::lock_of_target(&mut tx, subject.target_id).await?;
        if !rows::still_held(&mut tx, &run.job).await? {
            return Err(RunError::lease_lost().into());
        }
        let target = targets::find(&mut tx, subject.target_id).await?;
        match target.is_some_and(|target| target.status == TargetStatus::Published) {
            true => Ok(tx),
            false => Err(stop(CallOutcome::Failed(unpublished()))),
        }
    }

    /// Begins a transaction. Stops if the lease was lost.
    async fn begin_held(&self, run: &Run) -> Step<Tx> {
        let mut tx = self.store.begin().await?;
        if rows::still_held(&mut tx, &run.job).await? { Ok(tx) } else { Err(RunError::lease_lost().into()) }
    }

    /// Returns the maximum duration of a call, whatever its outcome. A post that does not exist after that will not be
    /// published.
    pub fn call_duration(&self, p: &PublishCall) -> TimeDelta {
        self.timeout + p.transfer_time
    }
}

/// Returns the failure of a comment whose post was unpublished.
pub(super) fn unpublished() -> Failure {
    let message = "The post was unpublished before its first comment was published.";
    Failure::with_code(Category::Missed, "post_unpublished", message)
}

/// Returns the failure of a target whose post was deleted.
pub(super) fn deleted() -> Failure {
    Failure::with_code(Category::Missed, "post_deleted", "The post was deleted before it was published here.")
}

/// Returns the stop of a run with this outcome.
fn stop(outcome: CallOutcome) -> Stop<Ending> {
    Stop::Ended(Ending::Outcome(outcome))
}

/// Returns the stop of a run that found its only post on the platform.
fn published(post: Published) -> Stop<Ending> {
    Stop::Ended(Ending::Published(vec![post]))
}

impl PublishCall {
    /// Returns the first post of the call. All posts have its marker.
    pub fn post(&self) -> &OutgoingPost {
        &self.parts[0].post
    }

    /// Returns the daily limit of uploads that the account shares with others, which then replaces its own.
    fn upload_quota(&self) -> Option<UploadQuota> {
        self.session.connector.upload_quota(&self.session.connector_account)
    }

    fn posts(&self) -> Vec<OutgoingPost> {
        self.parts.iter().map(|part| part.post.clone()).collect()
    }

    fn set_marker(&mut self, marker: &Marker) {
        self.parts.iter_mut().for_each(|part| part.post.marker.clone_from(marker));
    }
}

impl Subject {
    /// Returns the owner of a post's id that is found by text and time.
    fn adopter(&self) -> Adopter {
        match self.kind {
            SubjectKind::Post => Adopter::Target(self.target_id),
            SubjectKind::Part => Adopter::Part(self.target_id),
            SubjectKind::FirstComment => Adopter::FirstComment(self.target_id),
        }
    }

    /// Stores that the call begins. Returns false if it must not, because the post was deleted.
    async fn mark_call(&mut self, tx: &mut Tx, marker: &Marker) -> Result<bool> {
        let is_marked = match self.kind {
            SubjectKind::FirstComment => {
                first_comments::mark_call(tx, self.target_id, marker).await?;
                true
            }
            SubjectKind::Post | SubjectKind::Part => targets::mark_call(tx, self.target_id, marker).await?,
        };
        if is_marked {
            self.call_started_at = Some(tx.now);
        }
        Ok(is_marked)
    }

    /// Clears the time of a call that the platform has rejected.
    async fn clear_call(&mut self, tx: &mut Tx) -> Result<()> {
        match self.kind {
            SubjectKind::FirstComment => first_comments::clear_call(tx, self.target_id).await?,
            SubjectKind::Post | SubjectKind::Part => targets::clear_call(tx, self.target_id).await?,
        }
        self.call_started_at = None;
        Ok(())
    }

    async fn set_marker(&self, tx: &mut Tx, marker: &Marker) -> Result<()> {
        match self.kind {
            SubjectKind::FirstComment => first_comments::set_marker(tx, self.target_id, marker).await,
            SubjectKind::Post | SubjectKind::Part => targets::set_marker(tx, self.target_id, marker).await,
        }
    }

    /// Stores that the subject waits for the platform.
    async fn await_platform(
        &self,
        tx: &mut Tx,
        marker: &Marker,
        failure: &Failure,
        until: DateTime<Utc>,
    ) -> Result<()> {
        let (id, attempts) = (self.target_id, self.attempts - 1);
        match self.kind {
            SubjectKind::FirstComment => first_comments::await_platform(tx, id, attempts, marker, failure, until).await,
            SubjectKind::Post | SubjectKind::Part => {
                targets::await_platform(tx, id, attempts, marker, failure, until).await
            }
        }
    }
}
