//! Hands videos over to Bluesky's video service, which converts them and stores the result on the account's server.
//!
//! The account's server issues a token with which the service stores the blob there, so the audience of the token is
//! that server. Crier sends small videos in one request and others in parts, which may be sent again. Then the service
//! processes the video in a job, whose result is the blob.
//!
//! Without the service, the account's own server stores the video, and Bluesky converts it after the post is published.
//!
//! Sources: lexicons `com.atproto.server.getServiceAuth`, `getSession`, `app.bsky.video.uploadVideo`, `startUpload`,
//! `uploadPart`, `finishUpload`, `abortUpload`, `getUploadStatus`, `getJobStatus`, `defs#jobStatus`,
//! `app.bsky.embed.video`; social-app's `lib/media/video`, which sends `getJobStatus` without a token, and reads the
//! response of `uploadVideo` without the `jobStatus` around it.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use crier_domain::failure::{Category, Failure};
use crier_domain::media::{MediaType, VideoType};
use crier_http::HttpResponse;
use http::StatusCode;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use url::Url;

use super::identity::DidDocument;
use super::xrpc::{Server, XrpcError};
use super::{Bluesky, Uploaded};
use crate::call::{Effect, sanitize_message};
use crate::{CallError, ConnectorAccount, OutgoingPost, Video, VideoStep, VideoUpload};

/// The size from which a video is sent in parts, in bytes.
const MIN_SIZE_IN_PARTS: u64 = 16 << 20;
/// The maximum number of parts that the service may request.
const MAX_PARTS: u64 = 10_000;
/// The maximum length of a job's id.
const MAX_JOB_ID: usize = 256;
/// The maximum that the account's server allows is an hour.
const TOKEN_LIFETIME: TimeDelta = TimeDelta::minutes(30);
const POLL_INTERVAL: TimeDelta = TimeDelta::seconds(10);
/// The pause after the daily limit is reached. The service does not state when its day ends.
const DAILY_LIMIT_PAUSE: TimeDelta = TimeDelta::hours(1);
/// The pause while the account has too many open uploads.
const OPEN_UPLOADS_PAUSE: TimeDelta = TimeDelta::minutes(10);

/// The errors of an upload that cannot be continued.
const UPLOAD_OVER: [&str; 6] =
    ["UploadNotFound", "UploadExpired", "UploadAborted", "UploadFailed", "InvalidPartNumber", "PartSizeMismatch"];

/// The progress of an upload, between the steps.
#[derive(Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
enum Progress {
    Parts(Parts),
    /// The service processes the video.
    Job {
        job: String,
    },
}

/// An upload in parts.
#[derive(Serialize, Deserialize)]
struct Parts {
    job: String,
    /// The audience of the tokens.
    audience: String,
    /// In bytes. The last part may be smaller.
    part_size: u64,
    count: u64,
    /// The number of the next part, starting at 1. After the last part, the upload is finished.
    next: u64,
    /// Whether parts were missing when the upload was finished before.
    is_resent: bool,
}

impl Progress {
    /// Returns the progress that was stored. `None` before the first step.
    fn of(upload: &VideoUpload) -> Option<Self> {
        crate::video::read_progress(upload)
    }

    fn stored(&self) -> VideoUpload {
        crate::video::to_progress(self)
    }
}

impl Bluesky {
    pub(super) async fn take_video_step(
        &self,
        account: &ConnectorAccount,
        post: &OutgoingPost,
        video: &Video,
    ) -> Result<VideoStep, CallError> {
        match Progress::of(&video.upload) {
            None => self.begin_video(account, post, video).await,
            Some(Progress::Parts(parts)) if parts.next <= parts.count => self.send_part(account, video, parts).await,
            Some(Progress::Parts(parts)) => self.finish_parts(account, parts).await,
            Some(Progress::Job { job }) => self.check_job(&job).await,
        }
    }

    fn service(&self) -> Server {
        Server { caller: self.trusted.clone(), base: self.video_service.clone() }
    }

    async fn begin_video(
        &self,
        account: &ConnectorAccount,
        post: &OutgoingPost,
        video: &Video,
    ) -> Result<VideoStep, CallError> {
        let server = self.server(&account.secrets);
        let audience = audience(&server, account).await?;
        let token = match service_token(&server, account, &audience).await {
            Ok(token) => token,
            // The server issues no such tokens, so it must store the video itself.
            Err(failed) if failed.is_method_missing() || matches!(failed.error, CallError::Permanent(_)) => {
                return store_blob(&server, account, video).await;
            }
            Err(failed) => return Err(failed.error),
        };
        let failed = match self.begin_at_service(account, post, video, audience, &token).await {
            Ok(step) => return Ok(step),
            Err(failed) => failed,
        };
        let is_usable = self.is_service_usable(&failed.error).await;
        let error = self.service_error(failed);
        if is_usable {
            return Err(error);
        }
        match store_blob(&server, account, video).await {
            // The server accepts less than the service, which may be available later.
            Err(CallError::Permanent(_)) => Err(error),
            stored => stored,
        }
    }

    /// Returns whether a call to the service that failed with this error may succeed later. Otherwise, nothing listens
    /// at its URL, or it does not accept the tokens of the account's server.
    async fn is_service_usable(&self, error: &CallError) -> bool {
        match error {
            CallError::Reauth(_) | CallError::AuthExpired(_) => false,
            CallError::Transient(failure) if failure.category == Category::Network => {
                self.trusted.accepts_connections(&self.video_service).await
            }
            _ => true,
        }
    }

    async fn begin_at_service(
        &self,
        account: &ConnectorAccount,
        post: &OutgoingPost,
        video: &Video,
        audience: String,
        token: &SecretString,
    ) -> Result<VideoStep, XrpcError> {
        let service = self.service();
        let extension = MediaType::from(video.mime_type).extension();
        let name = format!("{}-{}.{extension}", post.target_id, video.id);
        if video.size < MIN_SIZE_IN_PARTS {
            return upload_whole(&service, account, video, &name, token).await;
        }
        let body = json!({
            "sizeBytes": video.size,
            "mimeType": video.mime_type.as_str(),
            "name": name,
            "durationMs": video.properties.duration_ms,
            "width": video.width,
            "height": video.height,
        });
        let request = service.post("app.bsky.video.startUpload").bearer_auth(token.expose_secret()).json(&body);
        match service.call::<Started>(Effect::Repeatable, request).await {
            Ok(started) => match started.parts(video.size, audience) {
                Some(parts) => Ok(VideoStep::Next(Progress::Parts(parts).stored())),
                None => {
                    Err(unusable_response(&service, "returned parts that do not match the size of the video").into())
                }
            },
            // The service accepts no parts.
            Err(failed) if failed.is_method_missing() => upload_whole(&service, account, video, &name, token).await,
            Err(failed) => Err(failed),
        }
    }

    async fn send_part(&self, account: &ConnectorAccount, video: &Video, parts: Parts) -> Result<VideoStep, CallError> {
        let begin = parts.next.saturating_sub(1).saturating_mul(parts.part_size);
        let end = begin.saturating_add(parts.part_size).min(video.size);
        if begin >= end {
            return Ok(VideoStep::Expired);
        }
        let token = service_token(&self.server(&account.secrets), account, &parts.audience).await?;
        let service = self.service();
        // The service derives the length of each part, and requires exactly that.
        let length = end - begin;
        let request = service
            .post("app.bsky.video.uploadPart")
            .query(&[("jobId", parts.job.as_str()), ("partNumber", &parts.next.to_string())])
            .bearer_auth(token.expose_secret())
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(CONTENT_LENGTH, length)
            .body(video.part(begin..end).await?);
        let Err(failed) = service.send_bytes(Effect::Repeatable, request, length).await else {
            let next = parts.next + 1;
            return Ok(VideoStep::Next(Progress::Parts(Parts { next, ..parts }).stored()));
        };
        match failed.name.as_str() {
            // An earlier call to finish the upload arrived.
            "UploadNotReady" | "UploadAlreadyCompleted" => {
                let next = parts.count + 1;
                Ok(VideoStep::Pending(Progress::Parts(Parts { next, ..parts }).stored(), POLL_INTERVAL))
            }
            name if UPLOAD_OVER.contains(&name) => Ok(VideoStep::Expired),
            _ => Err(self.service_error(failed)),
        }
    }

    /// Finishes an upload in parts, which may be repeated. The token is new, because the service keeps it to store the
    /// blob.
    async fn finish_parts(&self, account: &ConnectorAccount, parts: Parts) -> Result<VideoStep, CallError> {
        let token = service_token(&self.server(&account.secrets), account, &parts.audience).await?;
        let service = self.service();
        let request = service
            .post("app.bsky.video.finishUpload")
            .bearer_auth(token.expose_secret())
            .json(&json!({ "jobId": parts.job }));
        let failed = match service.call::<Finished>(Effect::Repeatable, request).await {
            // The service may have processed the same video in another job.
            Ok(Finished { completed_job_id: job }) if is_job_id(&job) => {
                return Ok(VideoStep::Next(Progress::Job { job }.stored()));
            }
            Ok(_) => return Err(unusable_response(&service, "returned no job for the video")),
            Err(failed) => failed,
        };
        match failed.name.as_str() {
            "UploadNotReady" => Ok(VideoStep::Pending(Progress::Parts(parts).stored(), POLL_INTERVAL)),
            "MissingParts" if !parts.is_resent => self.find_missing(&token, parts).await,
            "MissingParts" => Ok(VideoStep::Expired),
            name if UPLOAD_OVER.contains(&name) => Ok(VideoStep::Expired),
            _ => Err(self.service_error(failed)),
        }
    }

    /// Continues at the first part that the service does not have. The parts after it are sent again.
    async fn find_missing(&self, token: &SecretString, parts: Parts) -> Result<VideoStep, CallError> {
        let service = self.service();
        let request = service
            .get("app.bsky.video.getUploadStatus")
            .query(&[("jobId", &parts.job)])
            .bearer_auth(token.expose_secret());
        let status: UploadStatus =
            service.call(Effect::Repeatable, request).await.map_err(|failed| self.service_error(failed))?;
        let missing = (1..=parts.count).find(|part| !status.received_parts.contains(part));
        let next = missing.unwrap_or(parts.count + 1);
        Ok(VideoStep::Next(Progress::Parts(Parts { next, is_resent: true, ..parts }).stored()))
    }

    /// Aborts an upload whose parts were not all sent, because an account may have only a few open uploads. An upload
    /// that was finished cannot be aborted.
    pub(super) async fn abort_upload(&self, account: &ConnectorAccount, upload: &VideoUpload) -> Result<(), CallError> {
        let Some(Progress::Parts(parts)) = Progress::of(upload) else { return Ok(()) };
        let token = service_token(&self.server(&account.secrets), account, &parts.audience).await?;
        let service = self.service();
        let request = service
            .post("app.bsky.video.abortUpload")
            .bearer_auth(token.expose_secret())
            .json(&json!({ "jobId": parts.job }));
        service.send(Effect::Repeatable, request).await.map(drop).map_err(|failed| self.service_error(failed))
    }

    async fn check_job(&self, job: &str) -> Result<VideoStep, CallError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Found {
            job_status: JobStatus,
        }
        let service = self.service();
        let request = service.get("app.bsky.video.getJobStatus").query(&[("jobId", job)]);
        let found: Found = match service.call(Effect::Repeatable, request).await {
            Ok(found) => found,
            // The service no longer knows the job.
            Err(failed) if matches!(failed.error, CallError::Permanent(_)) => return Ok(VideoStep::Expired),
            Err(failed) => return Err(self.service_error(failed)),
        };
        let status = found.job_status;
        // The blob of a video that the service already had comes with the error `already_exists`.
        if let Some(blob) = status.blob {
            return Ok(VideoStep::Ready(blob));
        }
        match status.state.as_deref() {
            Some("JOB_STATE_FAILED") => status.failed(),
            Some("JOB_STATE_COMPLETED") => Ok(VideoStep::Expired),
            // The lexicon says that all other states mean that the video is being processed.
            _ => Ok(VideoStep::Pending(Progress::Job { job: job.to_owned() }.stored(), POLL_INTERVAL)),
        }
    }

    /// Classifies an error of the service by its name.
    fn service_error(&self, failed: XrpcError) -> CallError {
        let failure = |category, text: &str| Failure::of(category, text).from_platform(&failed.name);
        let rejected = |text: &str| CallError::Permanent(failure(Category::InvalidContent, text));
        match failed.name.as_str() {
            "UnsupportedContentType" | "InvalidMimeType" => {
                rejected("Bluesky does not accept this type of video. Upload an MP4 file.")
            }
            "VideoTooLarge" | "BlobTooLarge" | "PayloadTooLarge" => {
                rejected("This video is larger than Bluesky accepts. Upload a smaller file.")
            }
            "VideoTooLong" => rejected("This video is longer than Bluesky accepts. Upload a shorter video."),
            "BadAspectRatio" => {
                rejected("Bluesky does not accept the aspect ratio of this video. Upload one with a different shape.")
            }
            "UploadForbidden" | "unconfirmed_email" => CallError::Permanent(failure(
                Category::Account,
                "Bluesky does not allow this account to upload videos. Confirm its email address on Bluesky, or ask \
                 Bluesky for the reason.",
            )),
            name @ "DailyLimitExceeded" => self.trusted.daily_limit("videos", DAILY_LIMIT_PAUSE, name),
            name @ "TooManyOpenUploads" => {
                self.trusted.rate_limited(Some(self.trusted.now() + OPEN_UPLOADS_PAUSE), Some(name))
            }
            "ServiceOverloaded" => {
                CallError::Transient(failure(Category::PlatformError, "Bluesky's video service is overloaded."))
            }
            _ => match failed.error {
                // The token is not that of the account, which must not expire.
                CallError::Reauth(rejection) | CallError::AuthExpired(rejection) => {
                    let message = "Bluesky's video service did not accept the token of this account's server.";
                    let code = rejection.platform_code.unwrap_or_default();
                    CallError::Transient(Failure::of(Category::PlatformError, message).from_platform(code))
                }
                error => error,
            },
        }
    }
}

/// Returns the audience of the tokens: the account's server. The session may be at another host, which serves the
/// accounts of many servers.
async fn audience(server: &Server, account: &ConnectorAccount) -> Result<String, CallError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct OpenSession {
        #[serde(default)]
        did_doc: Value,
    }
    let access = account.secrets.require("access_jwt")?;
    let request = server.get("com.atproto.server.getSession").bearer_auth(access.expose_secret());
    let document = match server.call::<OpenSession>(Effect::Repeatable, request).await {
        Ok(session) => serde_json::from_value::<DidDocument>(session.did_doc).ok(),
        Err(failed) if failed.is_method_missing() || matches!(failed.error, CallError::Permanent(_)) => None,
        Err(failed) => return Err(failed.error),
    };
    let host_of = |url: &str| Url::parse(url).ok()?.host_str().map(str::to_owned);
    let named = document.as_ref().and_then(DidDocument::server).and_then(host_of);
    Ok(format!("did:web:{}", named.or_else(|| host_of(&server.base)).unwrap_or_default()))
}

/// Gets a token with which the service stores a blob on the account's server.
async fn service_token(server: &Server, account: &ConnectorAccount, audience: &str) -> Result<SecretString, XrpcError> {
    #[derive(Deserialize)]
    struct Issued {
        token: SecretString,
    }
    let access = account.secrets.require("access_jwt")?;
    let expires_at = (server.caller.now() + TOKEN_LIFETIME).timestamp().to_string();
    let query = [("aud", audience), ("lxm", "com.atproto.repo.uploadBlob"), ("exp", expires_at.as_str())];
    let request = server.get("com.atproto.server.getServiceAuth").query(&query).bearer_auth(access.expose_secret());
    Ok(server.call::<Issued>(Effect::Repeatable, request).await?.token)
}

/// Sends a video to the service in one request.
async fn upload_whole(
    service: &Server,
    account: &ConnectorAccount,
    video: &Video,
    name: &str,
    token: &SecretString,
) -> Result<VideoStep, XrpcError> {
    let request = service
        .post("app.bsky.video.uploadVideo")
        .query(&[("did", account.external_id.as_str()), ("name", name)])
        .bearer_auth(token.expose_secret())
        .header(CONTENT_TYPE, video.mime_type.as_str())
        .header(CONTENT_LENGTH, video.size)
        .body(video.part(0..video.size).await?);
    let response = service.caller.send_bytes(Effect::Repeatable, request, video.size).await?;
    // A conflict: the service already has the video, and returns its job.
    if (response.status.is_success() || response.status == StatusCode::CONFLICT)
        && let Some(status) = read_job(&response)
    {
        return Ok(match status.blob {
            Some(blob) => VideoStep::Ready(blob),
            None => VideoStep::Next(Progress::Job { job: status.job_id.unwrap_or_default() }.stored()),
        });
    }
    let error = service.error_of(Effect::Repeatable, &response);
    Err(error.unwrap_or_else(|| unusable_response(service, "returned no job for the video").into()))
}

/// Stores a video on the account's server.
async fn store_blob(server: &Server, account: &ConnectorAccount, video: &Video) -> Result<VideoStep, CallError> {
    let rejected = |message: &str| Failure::of(Category::InvalidContent, message);
    // A record accepts no other type, and only the service converts videos.
    if video.mime_type != VideoType::Mp4 {
        let message = "The server of this Bluesky account accepts only MP4 videos. Upload an MP4 file.";
        return Err(CallError::Permanent(rejected(message)));
    }
    let access = account.secrets.require("access_jwt")?;
    let request = server
        .post("com.atproto.repo.uploadBlob")
        .bearer_auth(access.expose_secret())
        .header(CONTENT_TYPE, video.mime_type.as_str())
        .header(CONTENT_LENGTH, video.size)
        .body(video.part(0..video.size).await?);
    match server.send_bytes(Effect::Repeatable, request, video.size).await {
        Ok(response) => {
            let stored: Uploaded = server.caller.read(Effect::Repeatable, &response)?;
            Ok(VideoStep::Ready(stored.blob))
        }
        Err(failed) => Err(match failed.error {
            CallError::Permanent(failure) if failure.category == Category::InvalidContent => {
                let message =
                    "The server of this Bluesky account does not accept a video of this size. Upload a smaller file.";
                CallError::Permanent(Failure { platform_code: failure.platform_code, ..rejected(message) })
            }
            error => error,
        }),
    }
}

fn unusable_response(server: &Server, what: &str) -> CallError {
    server.caller.classify_unknown_effect(Effect::Repeatable, what, None)
}

/// Returns the job in the response of `uploadVideo`. The service returns it without the object that the lexicon has
/// around it.
fn read_job(response: &HttpResponse) -> Option<JobStatus> {
    let body: Value = serde_json::from_slice(&response.body).ok()?;
    let status = body.get("jobStatus").unwrap_or(&body).clone();
    let status: JobStatus = serde_json::from_value(status).ok()?;
    (status.blob.is_some() || status.job_id.as_deref().is_some_and(is_job_id)).then_some(status)
}

fn is_job_id(id: &str) -> bool {
    (1..=MAX_JOB_ID).contains(&id.len())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Started {
    job_id: String,
    part_size_bytes: u64,
    part_count: u64,
}

impl Started {
    /// Returns the parts of a video. `None` if they do not fit it.
    fn parts(self, size: u64, audience: String) -> Option<Parts> {
        let fits = self.part_size_bytes > 0
            && (1..=MAX_PARTS).contains(&self.part_count)
            && size.div_ceil(self.part_size_bytes) == self.part_count;
        let Self { job_id: job, part_size_bytes: part_size, part_count: count } = self;
        (fits && is_job_id(&job)).then_some(Parts { job, audience, part_size, count, next: 1, is_resent: false })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Finished {
    completed_job_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UploadStatus {
    #[serde(default)]
    received_parts: BTreeSet<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JobStatus {
    job_id: Option<String>,
    state: Option<String>,
    blob: Option<Value>,
    failure_code: Option<String>,
    error: Option<String>,
    message: Option<String>,
}

impl JobStatus {
    /// Returns the step after a failed job.
    fn failed(self) -> Result<VideoStep, CallError> {
        let text = match self.failure_code.as_deref() {
            Some("validation_failure") => "Bluesky does not accept this video",
            Some("encoding_failure") => "Bluesky could not convert this video",
            Some("pds_upload_unsupported_blob_size") => {
                "The server of this Bluesky account does not accept a video of this size"
            }
            // A fault of the service or of the account's server.
            _ => return Ok(VideoStep::Expired),
        };
        let reason = self.message.or(self.error).and_then(|reason| sanitize_message(&reason, &[]));
        let message = reason.map_or_else(|| format!("{text}."), |reason| format!("{text}: {reason}"));
        let code = self.failure_code.unwrap_or_default();
        Err(CallError::Permanent(Failure::of(Category::InvalidContent, message).from_platform(code)))
    }
}
