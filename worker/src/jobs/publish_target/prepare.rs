//! Prepares the call: checks whether to make it, and stores the state that must be stored before it.
//!
//! Runs that begin together share one transaction under the locks of their posts. A run whose call must not be made ends
//! here with a `Stop`.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::account::{AccountStatus, SocialAccount};
use crier_domain::failure::{Category, Failure};
use crier_domain::job::ClaimedJob;
use crier_domain::media::Asset;
use crier_domain::platform::Descriptor;
use crier_domain::post::{Post, PostStatus, Target};
use crier_platforms::link_card::CardRequest;
use crier_platforms::{Connector, Image, MarkerSeed, OutgoingPost, Published, Video};
use crier_store::jobs::holds;
use crier_store::posts::{self, LockedPost};
use crier_store::targets::{self, RunTarget, StartingCall};
use crier_store::{Batcher, StoreError, Tx, accounts, media, post_media};
use secrecy::SecretString;
use serde_json::{Map, Value};

use super::super::adopt;
use super::super::call_outcome::CallOutcome;
use super::super::publisher::video_sources::VideoSources;
use super::super::publisher::videos::{VideoProgress, VideoSource};
use super::super::publisher::{
    Ending, OutgoingPart, PublishCall, Publisher, Subject, SubjectKind, check_daily_cap, images, videos,
};
use super::parts::{
    COVER_AT_OPTION, PartMedia, PartText, load_media, next_texts, options_of, own_cover, reply_to, unknown_parent,
};
use super::run_result::{PublishRunResult, TargetResult};
use super::{ACTION, Prepared, PublishTarget, Step, Stop};
use crate::engine::Run;
use crate::jobs::RunError;
use crate::jobs::account_session::{AccountSession, disconnected, expired};

/// The maximum number of runs per transaction: on SQLite all other writers wait for it.
const MAX_BATCH: usize = 32;
/// The maximum number of concurrent transactions.
const CONCURRENCY: usize = 2;

/// An account, its credentials and its connector.
type AccountAccess = (SocialAccount, SecretString, Arc<dyn Connector>);

impl PublishTarget {
    /// Decides whether to call the platform, and stores the start of the run.
    pub(super) async fn prepare(&self, run: &Run) -> Step<Prepared> {
        if let Some(prepared) = self.prepares.submit(run.clone()).await.flatten() {
            return prepared;
        }
        let prepared = self.preparation.prepare_batch(std::slice::from_ref(run), true).await.pop().flatten();
        prepared.unwrap_or_else(|| Err(RunError::lease_lost().into()))
    }
}

/// Prepares runs. Runs that begin together share a transaction, which costs the database little more than one run does.
#[derive(Clone)]
pub(super) struct Preparation {
    publisher: Publisher,
    latest_publish: TimeDelta,
}

/// The writes for all runs of a transaction, made in one statement at its end.
#[derive(Default)]
struct Starts {
    /// Posts whose publishing begins.
    posts: Vec<i64>,
    calls: Vec<StartingCall>,
}

/// A run that may make its call.
struct Ready {
    prepared: Prepared,
    /// Whether the call begins now. Otherwise images or videos must be uploaded or a link card made first, or an
    /// earlier call is open.
    is_marked: bool,
}

impl Preparation {
    pub fn new(publisher: Publisher, latest_publish: TimeDelta) -> Self {
        Self { publisher, latest_publish }
    }

    /// Starts a batcher. Its result is `None` for a run that must be prepared in its own transaction.
    pub fn start_batches(&self) -> Batcher<Run, Option<Step<Prepared>>> {
        let preparation = self.clone();
        Batcher::start(self.publisher.store.workers(), CONCURRENCY, move |runs: Vec<Run>| {
            let preparation = preparation.clone();
            async move {
                let mut prepared = Vec::with_capacity(runs.len());
                for runs in runs.chunks(MAX_BATCH) {
                    prepared.extend(preparation.prepare_batch(runs, false).await);
                }
                prepared
            }
        })
    }

    /// Prepares runs in one transaction. With `wait`, it waits for posts that another transaction has locked. Without
    /// it, the result of their runs is `None`, and the result of all runs is `None` if one of them fails.
    async fn prepare_batch(&self, runs: &[Run], wait: bool) -> Vec<Option<Step<Prepared>>> {
        // An aborted run waits for this transaction, and then undoes what it stored.
        let mut entered = Vec::with_capacity(runs.len());
        for run in runs {
            entered.push(run.enter_shared_transaction().await);
        }
        let active: Vec<&Run> =
            runs.iter().zip(&entered).filter(|(_, entered)| entered.is_some()).map(|(r, _)| r).collect();
        let mut prepared = self.prepare_active(&active, wait).await.into_iter();
        entered.iter().map(|entered| entered.as_ref().and_then(|_| prepared.next().flatten())).collect()
    }

    async fn prepare_active(&self, runs: &[&Run], wait: bool) -> Vec<Option<Step<Prepared>>> {
        if runs.is_empty() {
            return Vec::new();
        }
        let prepared = async {
            let mut tx = self.publisher.store.begin().await?;
            let steps = self.prepare_all(&mut tx, runs, wait).await?;
            Ok((tx, steps))
        };
        let (tx, steps) = match prepared.await {
            Ok(prepared) => prepared,
            Err(error) if wait => return same_error_for_each(runs, error),
            Err(error) => {
                tracing::debug!(%error, "runs could not be prepared together; preparing each one alone");
                return runs.iter().map(|_| None).collect();
            }
        };
        let ready = || runs.iter().zip(&steps).filter_map(|(run, step)| Some((run, step.as_ref()?.as_ref().ok()?)));
        ready().filter(|(_, ready)| ready.is_marked).for_each(|(run, _)| run.set_marked());
        // Not prepared again one by one: the commit may have succeeded.
        if let Err(error) = tx.commit().await {
            return same_error_for_each(runs, error);
        }
        ready().for_each(|(run, _)| run.set_counted());
        steps.into_iter().map(|step| step.map(|step| step.map(|ready| ready.prepared))).collect()
    }

    async fn prepare_all(
        &self,
        tx: &mut Tx,
        runs: &[&Run],
        wait: bool,
    ) -> Result<Vec<Option<Step<Ready>>>, StoreError> {
        let subjects: Vec<i64> = runs.iter().map(|run| run.job.subject_id).collect();
        let posts = posts::lock_of_targets(tx, &subjects, wait).await?;
        let mut posts: HashMap<i64, LockedPost> = posts.into_iter().map(|locked| (locked.post.id, locked)).collect();
        // Under the posts' locks: read the current targets, and check that this worker still holds the leases.
        let post_ids: Vec<i64> = posts.keys().copied().collect();
        let jobs: Vec<&ClaimedJob> = runs.iter().map(|run| &run.job).collect();
        let targets = targets::find_held(tx, &jobs, &post_ids).await?;
        let pairs: BTreeSet<_> =
            targets.iter().map(|t| (posts[&t.target.post_id].post.brand_id, t.target.account_id)).collect();
        let pairs: Vec<_> = pairs.into_iter().collect();
        let accounts = accounts::of_brands_with_secrets(tx, self.publisher.store.cipher(), &pairs).await?;
        let mut targets: HashMap<_, _> = targets.into_iter().map(|t| ((t.job_id, t.fence), t)).collect();

        // In the order of the accounts, whose daily caps are locked: the fixed order prevents deadlocks.
        let mut order: Vec<usize> = (0..runs.len()).collect();
        let account = |job: &ClaimedJob| targets.get(&(job.id, job.fence)).map(|found| found.target.account_id);
        order.sort_by_key(|index| account(&runs[*index].job));
        let mut steps: Vec<_> = runs.iter().map(|_| None).collect();
        let mut starts = Starts::default();
        for index in order {
            let job = &runs[index].job;
            let Some(found) = targets.remove(&(job.id, job.fence)) else {
                steps[index] = wait.then(|| skip("the post no longer exists"));
                continue;
            };
            let Some(locked) = posts.get_mut(&found.target.post_id) else { continue };
            let account = accounts.get(&(locked.post.brand_id, found.target.account_id)).cloned();
            let step = self.prepare_one(tx, job, locked, found, account, &mut starts).await;
            steps[index] = match step {
                Err(Stop::Failed(RunError::Database(error))) => return Err(error),
                step => Some(step),
            };
        }
        targets::start_calls(tx, &starts.calls, &starts.posts).await?;
        Ok(steps)
    }

    async fn prepare_one(
        &self,
        tx: &mut Tx,
        job: &ClaimedJob,
        LockedPost { post, is_deleted }: &mut LockedPost,
        found: RunTarget,
        account: Option<(SocialAccount, SecretString)>,
        starts: &mut Starts,
    ) -> Step<Ready> {
        let mut target = check_due(job, post, found)?;
        let has_open_call = target.call_started_at.is_some();
        // If an earlier run may have published the post, it is reconciled nevertheless, because its event is missing. If
        // one has begun to hand videos over, their uploads are aborted.
        let aborts = *is_deleted && !has_open_call && post_media::has_video_uploads(tx, target.id).await?;
        if *is_deleted && !has_open_call && !aborts {
            return skip("the post was deleted");
        }
        target.attempts += 1;
        if post.status == PostStatus::Scheduled {
            post.move_to(PostStatus::Publishing).map_err(StoreError::from)?;
            starts.posts.push(post.id);
        }
        let missed = self.check_missed(tx, job, *is_deleted).await?;
        let access = self.check_account(account);
        let whole_thread = access.as_ref().is_ok_and(|(.., connector)| connector.publishes_whole_threads());
        let texts = next_texts(post, &target, whole_thread);
        if texts.is_empty() {
            // A user has removed the parts that were left. One of them may be on the platform, and cannot be looked up
            // without its text.
            let outcome = match has_open_call {
                true => CallOutcome::reconcile_unsupported(ACTION),
                false => CallOutcome::Published(Published::new("", None)),
            };
            return self.end_without_call(tx, target, outcome).await;
        }
        let (media, deleted) = match load_media(tx, post.brand_id, &texts).await? {
            Ok(media) => (media, None),
            Err(deleted) => (texts.iter().map(|_| PartMedia::default()).collect(), Some(deleted)),
        };
        let is_complete = deleted.is_none();
        let skip_reason = missed.or(deleted);
        let skip_reason = skip_reason.or_else(|| unknown_parent(&target));
        let (account, secrets, connector) = match check_call(access, skip_reason.as_ref(), has_open_call, aborts) {
            Ok(access) => access,
            Err(outcome) => return self.end_without_call(tx, target, outcome).await,
        };
        // Everything that may fail comes before the call is marked as started.
        let session = AccountSession::new(&self.publisher.store, account, &secrets, connector, self.publisher.timeout);
        let BuiltParts { parts, videos_began_at, video_sources, has_uploaded_again } =
            self.build_parts(tx, post, &target, &session, texts.into_iter().zip(media).collect()).await?;
        let video_transfer = session.connector.video_transfer();
        let transfer_time = match is_complete {
            true => videos::time_of_call(video_transfer, &parts),
            false => videos::time_of_call_without_media(video_transfer),
        };
        let mut call = PublishCall {
            subject: subject_of(&target),
            action: ACTION,
            session,
            parts,
            memory: None,
            transfer_time,
            videos_began_at,
            video_sources,
            has_sent_video: false,
            has_uploaded_again,
            has_open_call,
            skip_reason,
        };
        let is_marked = self.start(tx, &mut call, starts).await?;
        let started_at = self.publisher.store.now();
        Ok(Ready { prepared: Prepared { target, started_at, call }, is_marked })
    }

    /// Ends a run that makes no call. It is an attempt as well.
    async fn end_without_call(&self, tx: &mut Tx, target: Target, outcome: CallOutcome) -> Step<Ready> {
        targets::start(tx, target.id).await?;
        Err(Stop::Ended(TargetResult::without_call(target, outcome, self.publisher.store.now()).into()))
    }

    /// Returns the posts of the call with their images and videos, with the target's marker if it has one, otherwise
    /// with a new one.
    async fn build_parts(
        &self,
        tx: &mut Tx,
        post: &Post,
        target: &Target,
        session: &AccountSession,
        texts: Vec<(PartText<'_>, PartMedia)>,
    ) -> Step<BuiltParts> {
        let has_media = texts.iter().any(|(_, media)| !media.assets.is_empty());
        let uploads = if has_media { post_media::uploads(tx, target.id).await? } else { Map::new() };
        let progress = match texts.iter().any(|(_, media)| media.has_video()) {
            true => {
                let stored = post_media::video_uploads(tx, self.publisher.store.cipher(), target.id).await?;
                VideoProgress::parse(stored, tx.now)
            }
            false => VideoProgress::default(),
        };
        let mut marker = target.marker.clone().unwrap_or_else(|| {
            let (random, reply) = (crier_base::random::u64(), reply_to(target).map(|reply| reply.kind));
            let seed = MarkerSeed { target_id: target.id, at: tx.now, random, reply, parts: texts.len() };
            session.connector.marker(seed)
        });
        // Without the marker, the earlier call had another text.
        if target.marker.is_some() {
            adopt::mark_may_exist(&mut marker, target.call_started_at, target.error.as_ref());
        }
        let descriptor = session.descriptor();
        let (mut parts, mut video_sources) = (Vec::with_capacity(texts.len()), VideoSources::default());
        for (text, PartMedia { assets, cover }) in texts {
            let options = options_of(target, text.position);
            let card = CardRequest::of(session.account.platform, &text.content, !assets.is_empty(), &options);
            let card_media: Vec<i64> = card.iter().filter_map(|card| card.media_id).collect();
            let card_image = media::find_many(tx, post.brand_id, &card_media).await?.pop();
            let cover = cover.or_else(|| own_cover(&descriptor, &assets).filter(|_| text.position == 0));
            let mut videos = self.videos(&assets, &descriptor, &uploads, &progress);
            if let Some(first) = videos.first_mut().filter(|_| text.position == 0) {
                first.cover = self.images(cover.as_slice(), &descriptor, &Map::new())?.pop();
                first.cover_at_ms = options.get(COVER_AT_OPTION).and_then(Value::as_u64);
            }
            video_sources.add(&progress.made_from, &videos, &assets, cover.as_ref());
            let assets: Vec<Asset> = assets.into_iter().filter(|asset| asset.mime_type.image().is_some()).collect();
            let post = OutgoingPost {
                target_id: target.id,
                reply_to: reply_to(target),
                text: text.content.into_owned(),
                images: self.images(&assets, &descriptor, &uploads)?,
                videos,
                card: None,
                options,
                marker: marker.clone(),
                attempt: u32::try_from(target.attempts).unwrap_or(1),
                has_earlier_attempt: target.marker.is_some(),
                called_at: adopt::call_time(&marker, target.call_started_at, tx.now),
            };
            parts.push(OutgoingPart { post, assets, cover, card, card_image });
        }
        let has_uploaded_again = images::has_uploaded_again(&uploads, target.attempts);
        // The uploads of an open call are needed until its outcome is known.
        let forgets = target.call_started_at.is_none() && video_sources.forget_outdated(&mut parts);
        let videos_began_at = progress.began_at.filter(|_| !forgets);
        Ok(BuiltParts { parts, videos_began_at, video_sources, has_uploaded_again })
    }
}

/// The posts of a call.
struct BuiltParts {
    parts: Vec<OutgoingPart>,
    /// The time of the first step of the video that is being handed over.
    videos_began_at: Option<DateTime<Utc>>,
    video_sources: VideoSources,
    /// Whether an earlier run of this attempt has uploaded everything again.
    has_uploaded_again: bool,
}

fn subject_of(target: &Target) -> Subject {
    Subject {
        kind: match target.published_parts.len() {
            0 => SubjectKind::Post,
            _ => SubjectKind::Part,
        },
        target_id: target.id,
        account_id: target.account_id,
        platform: target.platform,
        attempts: target.attempts,
        call_started_at: target.call_started_at,
    }
}

/// Returns the same error for each run.
fn same_error_for_each(runs: &[&Run], error: StoreError) -> Vec<Option<Step<Prepared>>> {
    let copy = error.to_string();
    let others = runs.iter().skip(1).map(|_| StoreError::Decode(copy.clone()));
    std::iter::once(error).chain(others).map(|error| Some(Err(Stop::from(error)))).collect()
}

/// Stops a run whose target must not be published now.
fn skip<T>(why: &'static str) -> Step<T> {
    Err(Stop::Ended(PublishRunResult::Skipped(why)))
}

/// Returns the target if it must be published now.
fn check_due(job: &ClaimedJob, post: &Post, found: RunTarget) -> Step<Target> {
    if !found.held {
        return Err(RunError::lease_lost().into());
    }
    let target = found.target;
    if target.status.is_terminal() || !is_due(post, job) {
        return skip("the post is not due to be published now");
    }
    Ok(target)
}

/// Returns whether this job should publish the post. A post that was rescheduled to a later time after the job was
/// claimed waits for that time.
fn is_due(post: &Post, job: &ClaimedJob) -> bool {
    match post.status {
        PostStatus::Publishing => true,
        PostStatus::Scheduled => post.scheduled_at.is_none_or(|at| at <= job.run_at),
        _ => false,
    }
}

impl Preparation {
    /// Returns why the post must not be published any more.
    async fn check_missed(&self, tx: &mut Tx, job: &ClaimedJob, deleted: bool) -> Step<Option<Failure>> {
        if deleted {
            return Ok(Some(super::deleted()));
        }
        if tx.now - job.run_at <= self.latest_publish || holds::lateness(tx, job).await? <= self.latest_publish {
            return Ok(None);
        }
        Ok(Some(Failure::of(
            Category::Missed,
            "The scheduled time passed while the service was not running, too long ago to publish the post now. \
             Publish it again if it is still relevant.",
        )))
    }

    /// Returns the access to an account of the brand, or why it cannot be called.
    fn check_account(&self, found: Option<(SocialAccount, SecretString)>) -> Result<AccountAccess, Failure> {
        let (account, secrets) = found.ok_or_else(disconnected)?;
        if account.status == AccountStatus::Expired {
            return Err(expired(
                "The account's access has expired. Refresh or reconnect it, then publish the post again.",
            ));
        }
        match self.publisher.platforms.get(account.platform) {
            Some(connector) => Ok((account, secrets, connector)),
            None => Err(Failure::with_code(
                Category::Account,
                "platform_not_configured",
                format!("{} is not configured on this installation.", account.platform),
            )),
        }
    }

    /// Returns the images without their bytes.
    fn images(
        &self,
        assets: &[Asset],
        descriptor: &Descriptor,
        uploads: &Map<String, Value>,
    ) -> Result<Vec<Image>, StoreError> {
        let rules = &descriptor.capabilities.media;
        let url = |asset: &Asset| match rules.downloaded {
            true => self.publisher.library.fetch_url(
                self.publisher.store.cipher(),
                asset,
                descriptor.platform,
                self.publisher.store.now(),
            ),
            false => Ok(self.publisher.library.url(&asset.key)),
        };
        assets.iter().map(|asset| Ok(images::image(asset, url(asset)?, uploads, rules))).collect()
    }

    /// Returns the videos without their covers.
    fn videos(
        &self,
        assets: &[Asset],
        descriptor: &Descriptor,
        uploads: &Map<String, Value>,
        progress: &VideoProgress,
    ) -> Vec<Video> {
        let (library, rules) = (&self.publisher.library, &descriptor.capabilities.media);
        let index_first = descriptor.capabilities.video.is_some_and(|rules| rules.index_first);
        VideoSource { library, rules, index_first, uploads, progress }.videos(assets)
    }

    /// Stops if the daily cap of the account is reached. Counts a call that `begins` now. An open call is looked up in
    /// any case.
    async fn check_cap(&self, tx: &mut Tx, subject: &Subject, begins: bool) -> Step<()> {
        if subject.call_started_at.is_some() {
            return Ok(());
        }
        match check_daily_cap(tx, &self.publisher.platforms, subject, begins).await? {
            Some(Ending::Postponed { until, why }) => Err(Stop::Ended(PublishRunResult::Postponed { until, why })),
            _ => Ok(()),
        }
    }

    /// Stores the start of the run, and the start of the call if the call begins now. Returns whether it does. It does
    /// not if images or videos must be uploaded or a page must be read first. Stops if the daily cap is reached.
    async fn start(&self, tx: &mut Tx, call: &mut PublishCall, starts: &mut Starts) -> Step<bool> {
        let connector = &call.session.connector;
        let (transfer, video_transfer) = (connector.image_transfer(), connector.video_transfer());
        let is_ready = |part: &OutgoingPart| {
            part.card.is_none()
                && !connector.has_stages(&part.post)
                && !part.post.images.iter().any(|image| images::needs_bytes(transfer, image))
                && !part.post.videos.iter().any(|video| videos::needs_preparation(video_transfer, video))
        };
        let is_wanted = call.skip_reason.is_none();
        let begins = is_wanted && call.parts.iter().all(is_ready);
        // A call that repeats a rejected one was counted before. A limit that accounts share counts uploads.
        let has_quota = connector.upload_quota(&call.session.connector_account).is_some();
        if is_wanted && !call.has_uploaded_again && !has_quota {
            self.check_cap(tx, &call.subject, begins).await?;
        }
        let (subject, marker) = (&mut call.subject, &call.parts[0].post.marker);
        if !begins || subject.call_started_at.is_some() {
            targets::start_marked(tx, subject.target_id, marker).await?;
            return Ok(false);
        }
        starts.calls.push(StartingCall { target_id: subject.target_id, marker: marker.clone() });
        subject.call_started_at = Some(tx.now);
        Ok(true)
    }
}

/// Returns the access to the account if the platform must be called, otherwise the outcome of the run. If an earlier
/// call is open, the platform is queried even if the post must not be published, because that call may have published
/// it. A run that only `aborts` uploads calls the platform as well.
fn check_call(
    access: Result<AccountAccess, Failure>,
    skip_reason: Option<&Failure>,
    has_open_call: bool,
    aborts: bool,
) -> Result<AccountAccess, CallOutcome> {
    match (access, skip_reason) {
        (Ok(access), None) => Ok(access),
        (Ok(access), Some(_)) if has_open_call || aborts => Ok(access),
        (Err(failure), _) if has_open_call => Err(CallOutcome::unknown_without_account(&failure)),
        (_, Some(failure)) => Err(CallOutcome::Failed(failure.clone())),
        (Err(failure), None) => Err(CallOutcome::Failed(failure)),
    }
}
