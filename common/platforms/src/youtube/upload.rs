//! Uploads of videos to a resumable session, whose title, description and settings are fixed when it begins.
//!
//! Before a chunk is sent, the connector requests how much of the file the session has. So an upload resumes after any
//! failure, and a file that is complete is not sent again.
//!
//! Sources: developers.google.com/youtube ("Resumable Uploads": chunks of a multiple of 256 KiB; `Content-Range: bytes
//! */SIZE`; 308 with `Range`, or 201 with the video; 404 if the session has ended; "Videos: insert", "Thumbnails: set",
//! "PlaylistItems: list"). That the video exists from the last byte on was observed by other projects.

use std::ops::Range;

use chrono::{DateTime, TimeDelta, Utc};
use crier_base::hexadecimal;
use crier_domain::failure::{Category, Failure};
use crier_http::HttpResponse;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, LOCATION, RANGE};
use http::{Method, StatusCode};
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use url::Url;

use super::rest::List;
use super::{Youtube, is_id, published};
use crate::call::Effect;
use crate::options::{self, YOUTUBE_PRIVACY};
use crate::text::comparable::is_same;
use crate::video::UploadProgress;
use crate::window::{CallWindow, Listed, find};
use crate::{CallError, ConnectorAccount, OutgoingPost, Published, ReconcileResult, Video, VideoStep};

/// The size of a chunk, a multiple of 256 KiB.
const CHUNK: u64 = 8 << 20;
/// The maximum length of the URL of a session.
const MAX_URL: usize = 4_096;
/// The number of the newest videos that are searched.
const MAX_RECENT_VIDEOS: usize = 50;
/// The pause before a file that is complete, but not a video yet, is looked up again.
const PAUSE: TimeDelta = TimeDelta::minutes(1);

/// The progress of an upload.
#[derive(Serialize, Deserialize)]
struct Upload {
    /// The URL of the session. Whoever has it can send the bytes.
    session: String,
    /// A hash of the metadata that the session began with.
    metadata: String,
    /// The number of bytes that the session had after the last chunk.
    #[serde(default)]
    sent: u64,
}

impl UploadProgress for Upload {}

/// What YouTube stores with a video.
struct Metadata<'a> {
    title: &'a str,
    body: Value,
    /// `None` for YouTube's default, which is to notify them.
    notify_subscribers: Option<bool>,
}

impl<'a> Metadata<'a> {
    fn of(post: &'a OutgoingPost) -> Result<Self, CallError> {
        let boolean = |name: &str| post.options.get(name).and_then(Value::as_bool);
        let title =
            options::text(post, "title")?.ok_or_else(|| CallError::invalid("YouTube requires the option title."))?;
        let made_for_kids = boolean("made_for_kids").ok_or_else(|| {
            CallError::invalid("YouTube requires the option made_for_kids, which must be true or false.")
        })?;
        // Without a value, the video would be public.
        let privacy = options::text(post, "privacy")?.unwrap_or(YOUTUBE_PRIVACY[0]);
        let mut snippet = json!({ "title": title, "description": post.text });
        if let Some(category) = options::text(post, "category_id")? {
            snippet["categoryId"] = Value::from(category);
        }
        if let Some(tags) = options::text(post, "tags")? {
            snippet["tags"] = tags.split(',').map(str::trim).filter(|tag| !tag.is_empty()).collect();
        }
        let status = json!({ "privacyStatus": privacy, "selfDeclaredMadeForKids": made_for_kids });
        let body = json!({ "snippet": snippet, "status": status });
        Ok(Self { title, body, notify_subscribers: boolean("notify_subscribers") })
    }

    fn hash(&self) -> String {
        hexadecimal::sha256(format!("{} {:?}", self.body, self.notify_subscribers), 16)
    }
}

/// What a session has.
enum Received {
    /// The number of bytes from the start of the file.
    Bytes(u64),
    /// The whole file, which is this video.
    Video(String),
    /// The session has ended.
    Ended,
}

#[derive(Deserialize)]
struct Created {
    id: String,
}

fn transient(message: &str) -> CallError {
    CallError::Transient(Failure::of(Category::PlatformError, message))
}

fn session_ended() -> CallError {
    let message = "The upload of the video to YouTube has expired. Crier uploads the video again.";
    CallError::UploadsMissing(Failure::of(Category::PlatformError, message))
}

/// Returns the step after which only the last chunk is missing.
fn ready() -> VideoStep {
    VideoStep::Ready(Value::Bool(true))
}

/// Parses `bytes=0-N`, and returns the number of bytes.
fn received_bytes(range: &str, size: u64) -> Option<u64> {
    let last: u64 = range.trim().strip_prefix("bytes=0-")?.parse().ok()?;
    last.checked_add(1).filter(|received| *received <= size)
}

impl Youtube {
    /// Takes the next step of an upload.
    pub(super) async fn send_video_step(
        &self,
        account: &ConnectorAccount,
        post: &OutgoingPost,
        video: &Video,
    ) -> Result<VideoStep, CallError> {
        let token = account.secrets.require("access_token")?;
        let token = token.expose_secret();
        let metadata = Metadata::of(post)?;
        let Some(mut upload) = Upload::of(video) else { return self.begin(token, &metadata, video).await };
        if upload.metadata != metadata.hash() {
            // The post was changed since the session began.
            return Ok(VideoStep::Expired);
        }
        let start = match self.received(token, &upload, video.size).await? {
            Received::Bytes(start) => start,
            // The publishing request finds the video.
            Received::Video(_) => return Ok(ready()),
            Received::Ended => return Ok(VideoStep::Expired),
        };
        if start < upload.sent {
            // The session has lost bytes, which might repeat forever.
            return Ok(VideoStep::Expired);
        }
        if video.size.saturating_sub(start) <= CHUNK {
            return Ok(ready());
        }
        let range = start..start.saturating_add(CHUNK);
        let response = self.put(Effect::Repeatable, token, &upload, video, range).await?;
        match self.read_received(Effect::Repeatable, &response, video.size)? {
            Received::Bytes(received) if received > start => {
                upload.sent = received;
                Ok(VideoStep::Next(upload.progress()))
            }
            Received::Bytes(_) => Err(transient("YouTube did not store a part of the video.")),
            Received::Video(_) => Ok(ready()),
            Received::Ended => Ok(VideoStep::Expired),
        }
    }

    async fn begin(&self, token: &str, metadata: &Metadata<'_>, video: &Video) -> Result<VideoStep, CallError> {
        let mut query = vec![("uploadType", "resumable"), ("part", "snippet,status")];
        let notify = metadata.notify_subscribers.map(|notify| if notify { "true" } else { "false" });
        query.extend(notify.map(|notify| ("notifySubscribers", notify)));
        let request = self
            .request(Method::POST, "/upload/youtube/v3/videos", token)
            .query(&query)
            .header("X-Upload-Content-Length", video.size)
            .header("X-Upload-Content-Type", video.mime_type.as_str())
            .json(&metadata.body);
        let response = self.client.send(Effect::Repeatable, request).await?;
        if !response.status.is_success() {
            return Err(self.classify(Effect::Repeatable, &response));
        }
        let session = response.headers.get(LOCATION).and_then(|url| url.to_str().ok()).unwrap_or_default();
        if session.len() > MAX_URL || !self.is_google(session) {
            return Err(transient("YouTube returned an upload URL that does not belong to Google."));
        }
        let upload = Upload { session: session.to_owned(), metadata: metadata.hash(), sent: 0 };
        Ok(VideoStep::Next(upload.progress()))
    }

    /// Returns whether a URL belongs to Google's APIs, so that it may receive a token.
    fn is_google(&self, address: &str) -> bool {
        let Ok(url) = Url::parse(address) else { return false };
        let host = url.host_str().unwrap_or_default();
        let is_own = url.scheme() == "https" && (host == "googleapis.com" || host.ends_with(".googleapis.com"));
        let is_configured = Url::parse(&self.hosts.api).is_ok_and(|api| api.origin() == url.origin());
        is_own || is_configured
    }

    /// Asks a session what it has.
    async fn received(&self, token: &str, upload: &Upload, size: u64) -> Result<Received, CallError> {
        let request = self
            .client
            .request(Method::PUT, &upload.session)
            .bearer_auth(token)
            .header(CONTENT_LENGTH, 0_u64)
            .header(CONTENT_RANGE, format!("bytes */{size}"));
        let response = self.client.send(Effect::Repeatable, request).await?;
        self.read_received(Effect::Repeatable, &response, size)
    }

    fn read_received(&self, effect: Effect, response: &HttpResponse, size: u64) -> Result<Received, CallError> {
        let unreadable = || self.client.classify_unknown_effect(effect, "sent an unreadable response", None);
        match response.status {
            StatusCode::PERMANENT_REDIRECT => {
                // Without a range, the session has nothing yet.
                let Some(range) = response.headers.get(RANGE) else { return Ok(Received::Bytes(0)) };
                let received = range.to_str().ok().and_then(|range| received_bytes(range, size));
                received.map(Received::Bytes).ok_or_else(unreadable)
            }
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(Received::Ended),
            status if status.is_success() => {
                let created: Created = self.client.read(effect, response)?;
                if is_id(&created.id) { Ok(Received::Video(created.id)) } else { Err(unreadable()) }
            }
            _ => Err(self.classify(effect, response)),
        }
    }

    /// Sends a part of the file to a session.
    async fn put(
        &self,
        effect: Effect,
        token: &str,
        upload: &Upload,
        video: &Video,
        range: Range<u64>,
    ) -> Result<HttpResponse, CallError> {
        let length = range.end.saturating_sub(range.start);
        let content_range = format!("bytes {}-{}/{}", range.start, range.end.saturating_sub(1), video.size);
        let body = video.part(range).await?;
        let request = self
            .client
            .request(Method::PUT, &upload.session)
            .bearer_auth(token)
            .header(CONTENT_TYPE, video.mime_type.as_str())
            .header(CONTENT_LENGTH, length)
            .header(CONTENT_RANGE, content_range)
            .body(body);
        self.client.send_bytes(effect, request, length).await
    }

    /// Sends the last chunk, with which the video exists, and sets the cover.
    pub(super) async fn publish_video(
        &self,
        account: &ConnectorAccount,
        post: &OutgoingPost,
    ) -> Result<Published, CallError> {
        let video = post.video().ok_or_else(|| CallError::invalid("YouTube requires a video."))?;
        let (token, metadata) = (account.secrets.require("access_token")?, Metadata::of(post)?);
        let token = token.expose_secret();
        let upload = Upload::of(video).ok_or_else(session_ended)?;
        let start = match self.received(token, &upload, video.size).await? {
            // An earlier call sent the last chunk.
            Received::Video(id) => return Ok(self.with_cover(token, video, &id).await),
            Received::Ended => return Err(session_ended()),
            Received::Bytes(start) if start == video.size => return Err(self.accepted(post)),
            Received::Bytes(start) => start,
        };
        let is_changed = upload.metadata != metadata.hash();
        if is_changed || video.size.saturating_sub(start) > CHUNK {
            return Err(session_ended());
        }
        let response = self.put(Effect::Publishes, token, &upload, video, start..video.size).await?;
        match self.read_received(Effect::Publishes, &response, video.size)? {
            Received::Video(id) => Ok(self.with_cover(token, video, &id).await),
            Received::Bytes(received) if received == video.size => Err(self.accepted(post)),
            Received::Bytes(_) => Err(transient("YouTube did not store the last part of the video.")),
            // The session existed just before, so it may have ended because it has the whole file.
            Received::Ended => {
                Err(self.client.classify_unknown_effect(Effect::Publishes, "ended the upload", Some("404")))
            }
        }
    }

    fn accepted(&self, post: &OutgoingPost) -> CallError {
        self.client.accepted(post.marker.clone(), PAUSE)
    }

    /// Sets the cover of a video. The video exists, so a failure does not fail the post. YouTube may reject a cover
    /// while it processes the video, and of a channel whose owner has not confirmed a phone number.
    async fn with_cover(&self, token: &str, video: &Video, id: &str) -> Published {
        if let Err(error) = self.set_cover(token, video, id).await {
            tracing::warn!(%error, media = video.id, "failed to set the cover of a video");
        }
        published(id)
    }

    async fn set_cover(&self, token: &str, video: &Video, id: &str) -> Result<(), CallError> {
        let Some(cover) = video.cover.as_ref().filter(|cover| !cover.bytes.is_empty()) else { return Ok(()) };
        let length = u64::try_from(cover.bytes.len()).unwrap_or(u64::MAX);
        let request = self
            .request(Method::POST, "/upload/youtube/v3/thumbnails/set", token)
            .query(&[("uploadType", "media"), ("videoId", id)])
            .header(CONTENT_TYPE, &cover.mime_type)
            .body(cover.bytes.clone());
        let response = self.client.send_bytes(Effect::Repeatable, request, length).await?;
        match response.status.is_success() {
            true => Ok(()),
            false => Err(self.classify(Effect::Repeatable, &response)),
        }
    }

    /// Looks up the video of an earlier call.
    pub(super) async fn reconcile_video(
        &self,
        account: &ConnectorAccount,
        post: &OutgoingPost,
    ) -> Result<ReconcileResult, CallError> {
        let token = account.secrets.require("access_token")?;
        let token = token.expose_secret();
        let stored = post.video().and_then(|video| Some((video, Upload::of(video)?)));
        if let Some((video, upload)) = stored {
            match self.received(token, &upload, video.size).await? {
                Received::Video(id) => return Ok(ReconcileResult::Found(published(&id))),
                Received::Bytes(received) if received == video.size => return Ok(ReconcileResult::Pending(PAUSE)),
                Received::Bytes(_) => return Ok(ReconcileResult::Absent),
                Received::Ended => {}
            }
        }
        self.find_video(account, token, post).await
    }

    /// Searches the channel's newest videos for one with the title and the description of the post. A video that is not
    /// found may not be listed yet.
    async fn find_video(
        &self,
        account: &ConnectorAccount,
        token: &str,
        post: &OutgoingPost,
    ) -> Result<ReconcileResult, CallError> {
        let Some(playlist) = account.secrets.get("uploads") else { return Ok(ReconcileResult::Unsupported) };
        let title = Metadata::of(post)?.title;
        let max_results = MAX_RECENT_VIDEOS.to_string();
        let query =
            [("part", "snippet"), ("playlistId", playlist.expose_secret()), ("maxResults", max_results.as_str())];
        let request = self.request(Method::GET, "/youtube/v3/playlistItems", token).query(&query);
        let newest: List = self.call(Effect::Repeatable, request).await?;
        let listed = newest.read::<PlaylistItem>().into_iter().map(|item| Listed {
            is_same: is_same(&item.snippet.title, title) && is_same(&item.snippet.description, &post.text),
            at: item.snippet.published_at,
            published: published(&item.snippet.resource_id.video_id),
        });
        Ok(match find(CallWindow::of(post.called_at), listed.collect(), MAX_RECENT_VIDEOS) {
            ReconcileResult::Absent => ReconcileResult::Unsupported,
            found => found,
        })
    }
}

#[derive(Deserialize)]
struct PlaylistItem {
    snippet: PlaylistSnippet,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlaylistSnippet {
    #[serde(default)]
    title: String,
    #[serde(default)]
    description: String,
    /// When the video was added to the list of uploads.
    published_at: Option<DateTime<Utc>>,
    resource_id: Resource,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    video_id: String,
}

#[cfg(test)]
mod tests {
    use super::received_bytes;

    #[test]
    fn a_range_begins_at_the_start_of_the_file_and_ends_in_it() {
        assert_eq!(received_bytes("bytes=0-0", 10), Some(1));
        assert_eq!(received_bytes("bytes=0-9", 10), Some(10));
        for wrong in ["bytes=0-10", "bytes=1-9", "bytes=0-", "0-9", "bytes=0--1", "bytes=0-18446744073709551615", ""] {
            assert_eq!(received_bytes(wrong, 10), None, "{wrong}");
        }
    }
}
