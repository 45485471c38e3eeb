//! The videos of a post: selecting them, and handing them over to the platform before the call, step by step.
//!
//! The result of each step is stored before the next one, so that a retry, or another worker, continues where the last
//! one stopped. A step publishes nothing, so its failure never leaves an unknown outcome, and it runs without a slot. If
//! the platform is processing a video, or after [`MAX_STEPS`] or [`MAX_RUN`], the run is postponed, which uses no
//! attempt. Neither does an interruption (a lost connection, a fault of the platform, a rate limit) in a run that has
//! continued the upload: the more parts a video has, the more interruptions there are. This ends when the platform has
//! all videos, at the latest after [`MAX_WAIT`] per video.
//!
//! The alt text and the cover of a video may be part of its upload. If a user has changed them since, the video is handed
//! over again (`video_sources.rs`).
//!
//! A video is never in memory as a whole. Its cover is, within the library's memory budget (`images.rs`).

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::failure::{Category, Failure};
use crier_domain::job::Lane;
use crier_domain::media::Asset;
use crier_domain::platform::MediaRules;
use crier_media::Library;
use crier_media::storage::{ByteRange, ObjectLookup};
use crier_platforms::video::{ByteStream, FileBytes, transfer_time};
use crier_platforms::{CallError, Video, VideoStep, VideoTransfer, VideoUpload};
use crier_store::jobs::lanes;
use crier_store::targets;
use crier_telemetry::metrics;
use futures::{StreamExt, TryStreamExt};
use serde_json::{Map, Value};

use super::super::account_session::unknown_to_transient;
use super::super::call_outcome::{self, CallOutcome};
use super::images::alt_text;
use super::{Ending, OutgoingPart, PublishCall, Publisher, Step, Stop, stop};
use crate::engine::Run;

/// The maximum number of steps in one run.
const MAX_STEPS: usize = 100;
/// The maximum time after which a run takes another step, or makes the call. In a longer run, an access token might
/// expire twice, which counts as rejected credentials.
const MAX_RUN: TimeDelta = TimeDelta::minutes(15);
/// The maximum number of times that a run begins uploads again that the platform no longer knows, or takes a step that
/// changes nothing.
const MAX_REPEATS: usize = 3;
/// The maximum time from the first step of a video to its last one.
const MAX_WAIT: TimeDelta = TimeDelta::hours(24);
/// The pause before the next steps, and the minimum one while the platform is processing.
const MIN_PAUSE: TimeDelta = TimeDelta::seconds(1);
/// The maximum number of bytes of the last part of a video, if that publishes it.
const MAX_STEP_BYTES: u64 = 64 << 20;
/// The maximum time that videos add to the deadline of a call.
const MAX_TRANSFER: Duration = Duration::from_hours(24);
/// The time that videos of unknown size add to the deadline of a call: that of a gigabyte at the minimum rate.
const UNKNOWN_TRANSFER: TimeDelta = TimeDelta::hours(5);
/// The keys in the stored progress that are not ids of assets: the time of the first step, and what the uploads were made
/// from.
const BEGAN_AT: &str = "began_at";
/// The key of what the uploads were made from, by asset id.
const MADE_FROM: &str = "made_from";

/// The progress of the uploads of a target's videos, as it was stored.
#[derive(Default)]
pub(in crate::jobs) struct VideoProgress {
    /// The progress that the connector returned last, by asset id.
    uploads: Map<String, Value>,
    /// The time of the first step of the video that is being handed over.
    pub began_at: Option<DateTime<Utc>>,
    /// Whether that time is too long ago. Then the video is handed over again: a user has retried the post.
    is_stale: bool,
    /// What the uploads were made from, by asset id.
    pub made_from: Map<String, Value>,
}

impl VideoProgress {
    pub fn parse(mut stored: Map<String, Value>, now: DateTime<Utc>) -> Self {
        let began_at: Option<DateTime<Utc>> = stored.remove(BEGAN_AT).and_then(|at| at.as_str()?.parse().ok());
        let is_stale = began_at.is_some_and(|began_at| now - began_at > MAX_WAIT);
        let made_from = match stored.remove(MADE_FROM) {
            Some(Value::Object(made_from)) => made_from,
            _ => Map::new(),
        };
        Self { uploads: stored, began_at: began_at.filter(|_| !is_stale), is_stale, made_from }
    }

    /// Returns the progress of a video. Empty if the upload must begin again.
    fn of(&self, key: &str, is_uploaded: bool) -> VideoUpload {
        let found = self.uploads.get(key).and_then(Value::as_object).cloned();
        found.filter(|_| is_uploaded || !self.is_stale).unwrap_or_default()
    }
}

/// Returns the progress to store.
pub(super) fn progress(p: &PublishCall) -> Map<String, Value> {
    let made_from = p.video_sources.of_uploads(p.parts.iter().flat_map(|part| &part.post.videos));
    let made_from = (!made_from.is_empty()).then(|| (MADE_FROM.to_owned(), Value::Object(made_from)));
    let videos = p.parts.iter().flat_map(|part| &part.post.videos).filter(|video| !video.upload.is_empty());
    let uploads = videos.map(|video| (video.id.to_string(), Value::Object(video.upload.clone())));
    let began_at = p.videos_began_at.map(|at| (BEGAN_AT.to_owned(), Value::from(at.to_rfc3339())));
    uploads.chain(began_at).chain(made_from).collect()
}

/// What the videos of a target have in common.
pub(in crate::jobs) struct VideoSource<'a> {
    pub library: &'a Library,
    pub rules: &'a MediaRules,
    /// Whether the platform rejects a file whose index comes after its frames.
    pub index_first: bool,
    /// The platform's references, by asset id.
    pub uploads: &'a Map<String, Value>,
    pub progress: &'a VideoProgress,
}

impl VideoSource<'_> {
    /// Returns the videos among the images and videos of a part.
    pub fn videos(&self, assets: &[Asset]) -> Vec<Video> {
        assets.iter().enumerate().filter_map(|(position, asset)| self.video(asset, position)).collect()
    }

    fn video(&self, asset: &Asset, position: usize) -> Option<Video> {
        let (mime_type, properties) = asset.mime_type.video().zip(asset.video.clone())?;
        let key = asset.id.to_string();
        let uploaded = self.uploads.get(&key).cloned();
        let moves_index = self.index_first && !properties.index_first;
        let url = match moves_index {
            true => self.library.index_first_url(&asset.key),
            false => self.library.url(&asset.key),
        };
        let file = StoredVideo {
            library: self.library.clone(),
            key: asset.key.clone(),
            moves_index,
            has_failed: Arc::default(),
        };
        Some(Video {
            id: asset.id,
            position,
            mime_type,
            filename: asset.filename.clone(),
            alt_text: alt_text(asset, self.rules),
            size: asset.size_bytes.unsigned_abs(),
            width: asset.width.unsigned_abs(),
            height: asset.height.unsigned_abs(),
            properties,
            url,
            file: Arc::new(file),
            cover: None,
            cover_at_ms: None,
            upload: self.progress.of(&key, uploaded.is_some()),
            uploaded,
        })
    }
}

/// A video in the storage of the media library.
struct StoredVideo {
    library: Library,
    key: String,
    /// Whether its index is read before its frames, although it is stored after them.
    moves_index: bool,
    has_failed: Arc<AtomicBool>,
}

#[async_trait]
impl FileBytes for StoredVideo {
    async fn read(&self, range: Range<u64>) -> io::Result<ByteStream> {
        let part = ByteRange::Between(range.clone());
        let found = match self.moves_index {
            true => self.library.get_index_first(&self.key, &part).await,
            false => self.library.storage().get(&self.key, &part).await,
        };
        match found.map_err(io::Error::other)? {
            ObjectLookup::Found(object) if object.range == range => {
                let (key, has_failed) = (self.key.clone(), self.has_failed.clone());
                let body = object.body.inspect_err(move |error| {
                    tracing::warn!(%error, %key, "failed to read a video that is being sent");
                    has_failed.store(true, Ordering::Relaxed);
                });
                Ok(body.map_err(io::Error::other).boxed())
            }
            ObjectLookup::Found(_) | ObjectLookup::OutOfRange { .. } => {
                Err(io::Error::other("the file is shorter than its row says"))
            }
            ObjectLookup::Missing => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }
}

/// Returns whether something must be done with the video before the call.
pub(in crate::jobs) fn needs_preparation(transfer: VideoTransfer, video: &Video) -> bool {
    transfer == VideoTransfer::Uploaded && video.uploaded.is_none() || needs_cover(transfer, video)
}

/// Returns whether the bytes of the cover must be loaded. Platforms that download videos also download their covers.
pub(super) fn needs_cover(transfer: VideoTransfer, video: &Video) -> bool {
    transfer != VideoTransfer::Fetched && video.cover.as_ref().is_some_and(|cover| cover.bytes.is_empty())
}

/// Returns the time that the videos add to the deadline of the call. It depends only on what is stored, because another
/// process must calculate the same time. If a platform publishes a video with its last bytes, the call sends as many bytes
/// as a step.
pub(in crate::jobs) fn time_of_call(transfer: VideoTransfer, parts: &[OutgoingPart]) -> TimeDelta {
    let videos = || parts.iter().flat_map(|part| &part.post.videos);
    let bytes: u64 = match transfer {
        VideoTransfer::Inline => videos().map(|video| video.size).sum(),
        VideoTransfer::Uploaded => videos().map(|video| video.size.min(MAX_STEP_BYTES)).max().unwrap_or_default(),
        VideoTransfer::Fetched => 0,
    };
    TimeDelta::from_std(transfer_time(bytes).min(MAX_TRANSFER)).unwrap_or(UNKNOWN_TRANSFER)
}

/// Returns the deadline of a step. It may be several requests, each with the platform's timeout, and may send the whole
/// video: not every platform accepts parts.
fn step_duration(timeout: TimeDelta, size: u64) -> Duration {
    timeout.to_std().unwrap_or_default() + transfer_time(size).min(MAX_TRANSFER)
}

/// Returns what [`time_of_call`] returns, if an image or a video of the call was deleted.
pub(in crate::jobs) fn time_of_call_without_media(transfer: VideoTransfer) -> TimeDelta {
    match transfer {
        VideoTransfer::Inline => UNKNOWN_TRANSFER,
        VideoTransfer::Uploaded => TimeDelta::from_std(transfer_time(MAX_STEP_BYTES)).unwrap_or(UNKNOWN_TRANSFER),
        VideoTransfer::Fetched => TimeDelta::zero(),
    }
}

impl Publisher {
    /// Hands the videos over to the platform. Stops while the platform is processing one.
    pub(super) async fn send_videos(&self, run: &Run, p: &mut PublishCall) -> Step<()> {
        if p.session.connector.video_transfer() != VideoTransfer::Uploaded {
            return Ok(());
        }
        self.forget_outdated(run, p).await?;
        let began = self.store.now();
        let is_late = |publisher: &Self| publisher.store.now() - began > MAX_RUN;
        let (mut steps, mut repeats) = (0, 0);
        while let Some(video) = next_video(p).cloned() {
            if steps == MAX_STEPS || is_late(self) {
                let failure = Failure::of(Category::PlatformError, "The video is being sent to the platform.");
                return self.postpone_videos(run, p, MIN_PAUSE, failure).await;
            }
            steps += 1;
            if video.upload.is_empty() {
                self.count_upload(run, p).await?;
            }
            match self.next_step(run, p, &video).await? {
                VideoStep::Next(upload) => {
                    repeats += usize::from(upload == video.upload);
                    // A platform with which uploads begin again and again uses attempts.
                    p.has_sent_video |= !video.upload.is_empty() && upload != video.upload;
                    self.set_upload(p, video.id, upload);
                    self.store_uploads(run, p).await?;
                }
                VideoStep::Pending(upload, pause) => {
                    self.set_upload(p, video.id, upload);
                    let name = p.session.connector.descriptor().name;
                    let failure = Failure::of(Category::PlatformError, format!("{name} is processing the video."));
                    return self.postpone_videos(run, p, pause, failure).await;
                }
                VideoStep::Ready(reference) => {
                    same_videos(p, video.id).for_each(|same| same.uploaded = Some(reference.clone()));
                    p.videos_began_at = None;
                    self.store_uploads(run, p).await?;
                }
                VideoStep::Expired => {
                    repeats += 1;
                    p.has_sent_video = false;
                    same_videos(p, video.id).for_each(|same| same.upload.clear());
                    self.store_uploads(run, p).await?;
                }
            }
            if repeats > MAX_REPEATS {
                let message = "The platform lost the upload of a video, or a part of it, several times.";
                let failure = Failure::of(Category::PlatformError, message);
                return Err(self.fail(p, CallError::Transient(failure)));
            }
        }
        if is_late(self) {
            let failure = Failure::of(Category::PlatformError, "The video was sent to the platform.");
            return self.postpone_videos(run, p, MIN_PAUSE, failure).await;
        }
        Ok(())
    }

    /// Takes the next step of a video. Refreshes an expired access token once.
    async fn next_step(&self, run: &Run, p: &mut PublishCall, video: &Video) -> Step<VideoStep> {
        let mut step = self.step_once(run, p, video).await;
        if let Err(CallError::AuthExpired(failure)) = step {
            self.refresh(run, p, failure).await?;
            step = self.step_once(run, p, video).await;
        }
        match step {
            Ok(step) => Ok(step),
            Err(error) => {
                if matches!(error, CallError::Permanent(_)) {
                    self.forget_unfinished(run, p).await?;
                }
                match unknown_to_transient(error) {
                    CallError::Transient(failure) if p.has_sent_video => {
                        let pause = call_outcome::pause(1, crier_base::random::unit());
                        self.postpone_videos(run, p, pause, failure).await
                    }
                    CallError::RateLimited { until, failure } if p.has_sent_video => {
                        self.wait_for_limit(run, p, until, failure).await
                    }
                    error => Err(self.fail(p, error)),
                }
            }
        }
    }

    /// Postpones the run until the time that the platform requests, and pauses the account's lane until then, unless only
    /// this post is limited. If that time is too late for this upload, the run counts as an attempt, and the next one
    /// begins the upload again. Always stops.
    async fn wait_for_limit<T>(
        &self,
        run: &Run,
        p: &mut PublishCall,
        until: Option<DateTime<Utc>>,
        failure: Failure,
    ) -> Step<T> {
        let now = self.store.now();
        let pause = until.map_or_else(|| call_outcome::pause(1, crier_base::random::unit()), |until| until - now);
        if p.videos_began_at.is_some_and(|began_at| now + pause - began_at > MAX_WAIT) {
            return Err(self.fail(p, CallError::RateLimited { until, failure }));
        }
        if let Some(until) = until.filter(|_| !failure.is_daily_limit()) {
            let mut tx = self.store.begin().await?;
            lanes::pause_lane(&mut tx, &Lane::Account(p.subject.account_id).to_string(), until).await?;
            tx.commit().await?;
        }
        metrics::platform_rate_limited(p.subject.platform.as_str());
        self.postpone_videos(run, p, pause, failure).await
    }

    /// Forgets the uploads that were made from another file, alt text or cover, so that these videos are handed over
    /// again. Those of an open call are needed until its outcome is known. Then aborts the unfinished ones, also those
    /// that were forgotten when the run was prepared.
    async fn forget_outdated(&self, run: &Run, p: &mut PublishCall) -> Step<()> {
        let is_outdated = p.video_sources.forget_outdated(&mut p.parts);
        let forgotten = p.video_sources.take_forgotten();
        if is_outdated {
            p.videos_began_at = None;
        }
        if is_outdated || !forgotten.is_empty() {
            self.store_uploads(run, p).await?;
        }
        for upload in &forgotten {
            self.abort_upload(run, p, upload).await;
        }
        Ok(())
    }

    async fn step_once(&self, run: &Run, p: &PublishCall, video: &Video) -> Result<VideoStep, CallError> {
        let deadline = step_duration(self.timeout, video.size);
        let post = p.parts.iter().map(|part| &part.post).find(|post| post.videos.iter().any(|v| v.id == video.id));
        let step =
            p.session.connector.send_video(&p.session.connector_account, post.unwrap_or_else(|| p.post()), video);
        match run.wait_without_slot(tokio::time::timeout(deadline, step)).await {
            Ok(result) => result,
            Err(_) => Err(CallError::network("The platform did not accept a video in time.")),
        }
    }

    fn set_upload(&self, p: &mut PublishCall, video_id: i64, upload: VideoUpload) {
        same_videos(p, video_id).for_each(|same| same.upload.clone_from(&upload));
        p.videos_began_at.get_or_insert(self.store.now());
    }

    /// Forgets the progress of the videos that were not handed over, so that they are handed over from the beginning if
    /// a user retries the post. Then aborts their uploads: after the progress was stored, no other worker continues one.
    pub(super) async fn forget_unfinished(&self, run: &Run, p: &mut PublishCall) -> Step<()> {
        let videos = p.parts.iter_mut().flat_map(|part| &mut part.post.videos);
        let unfinished = videos.filter(|video| video.uploaded.is_none() && !video.upload.is_empty());
        let uploads: BTreeMap<i64, VideoUpload> =
            unfinished.map(|video| (video.id, std::mem::take(&mut video.upload))).collect();
        // Those of videos that were changed since, if the run was prepared and sends none.
        let forgotten = p.video_sources.take_forgotten();
        p.videos_began_at = None;
        self.store_uploads(run, p).await?;
        for upload in uploads.values().chain(&forgotten) {
            self.abort_upload(run, p, upload).await;
        }
        Ok(())
    }

    /// Aborts an upload. If that fails, it stays open until it expires.
    async fn abort_upload(&self, run: &Run, p: &PublishCall, upload: &VideoUpload) {
        let deadline = self.timeout.to_std().unwrap_or_default();
        let abort = p.session.connector.abort_video(&p.session.connector_account, upload);
        let platform = p.subject.platform.as_str();
        match run.wait_without_slot(tokio::time::timeout(deadline, abort)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::info!(platform, %error, "failed to abort the upload of a video"),
            Err(_) => tracing::info!(platform, "the platform did not abort the upload of a video in time"),
        }
    }

    /// Stores the progress, and postpones the run. Always returns a [`Stop`].
    async fn postpone_videos<T>(&self, run: &Run, p: &mut PublishCall, pause: TimeDelta, failure: Failure) -> Step<T> {
        let pause = pause.max(MIN_PAUSE);
        let until = self.store.now() + pause;
        if p.videos_began_at.is_some_and(|began_at| until - began_at > MAX_WAIT) {
            self.forget_unfinished(run, p).await?;
            let name = p.session.connector.descriptor().name;
            let message =
                format!("{name} has not received and processed the video within a day. Publish the post again.");
            return Err(stop(CallOutcome::Failed(Failure::of(Category::PlatformError, message))));
        }
        let mut tx = self.begin_held(run).await?;
        self.write_uploads(&mut tx, p).await?;
        let until = tx.now + pause;
        targets::postpone(&mut tx, p.subject.target_id, p.subject.attempts - 1, &failure, until).await?;
        tx.commit().await?;
        Err(Stop::Ended(Ending::Postponed { until, why: failure.message }))
    }
}

/// Returns the first video that was not handed over.
fn next_video(p: &PublishCall) -> Option<&Video> {
    p.parts.iter().flat_map(|part| &part.post.videos).find(|video| video.uploaded.is_none())
}

/// Returns the video in each part that contains it: it is handed over once.
fn same_videos(p: &mut PublishCall, video_id: i64) -> impl Iterator<Item = &mut Video> {
    p.parts.iter_mut().flat_map(|part| &mut part.post.videos).filter(move |video| video.id == video_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_may_send_a_whole_video_at_the_slowest_rate() {
        let timeout = TimeDelta::seconds(60);
        for (size, seconds) in [(0, 60), (64 * 1024, 61), (1 << 30, 60 + (1 << 14)), (u64::MAX, 60 + 86_400)] {
            assert_eq!(step_duration(timeout, size), Duration::from_secs(seconds), "{size}");
        }
    }
}
