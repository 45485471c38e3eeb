//! Publishes the videos of pages. A reel or a story is uploaded first (`video_upload.rs`), and the last call of its
//! upload (`finish`) publishes it. A video for the feed is downloaded by Facebook: to upload one, Facebook requires the
//! token of a user, which Crier does not keep.
//!
//! Facebook processes a video after the call that publishes it, and may reject it then. So a call that succeeds ends
//! with [`CallError::Accepted`], and the state of the video (`video_state.rs`) shows the outcome. It also does so for a
//! reel or a story whose call got no response: a video is published at most once. A video for the feed whose call got no
//! response has no known id. It is searched for by its text. If it is missing, that proves nothing, because Facebook
//! does not document whether it lists a video before it has processed it.
//!
//! Sources: "Video API: Reels Publishing", "Page Stories", "Page Videos" and "Video" of the Graph API, March to July
//! 2026.

use std::collections::HashSet;

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::failure::{Category, Failure};
use crier_http::multipart::Form;
use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::video_state::{FIELDS, VideoNode, VideoState, id_text};
use super::video_upload::uploaded_id;
use super::{Created, Facebook, MAX_RECENT_POSTS};
use crate::call::{Effect, image_part};
use crate::meta::containers::is_id;
use crate::meta::graph::{Access, GraphFailure, INCOMPLETE_VIDEO, List, parse_time};
use crate::meta::inbox::read;
use crate::meta::insights::is_gone;
use crate::text::comparable::is_same;
use crate::window::CallWindow;
use crate::{CallError, ConnectorAccount, OutgoingPost, Published, ReconcileResult, Video, VideoStep, options};

/// The lists of a page's videos.
const VIDEOS: &str = "videos";
const REELS: &str = "video_reels";
const STORIES: &str = "video_stories";
/// The bounds of the pause before the state is read again. Between them, the pause equals the time waited so far.
const MIN_PAUSE: TimeDelta = TimeDelta::seconds(5);
const MAX_PAUSE: TimeDelta = TimeDelta::minutes(1);
/// The time for which a video that Facebook downloads is searched for.
const MAX_DOWNLOAD: TimeDelta = TimeDelta::minutes(30);
/// The maximum difference between the clocks that a search allows for.
const SEARCH_MARGIN: TimeDelta = TimeDelta::hours(1);
/// The number of bytes for whose download the call waits. The deadline of a call with a larger video is not longer.
const AWAITED_BYTES: u64 = 64 << 20;
/// The reference of a video that is not uploaded.
const DOWNLOADED: &str = "downloaded";

/// How a video is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Feed,
    Reel,
    Story,
}

impl Format {
    fn of(post: &OutgoingPost) -> Self {
        match post.options.get("format").and_then(Value::as_str) {
            Some("reel") => Self::Reel,
            Some("story") => Self::Story,
            _ => Self::Feed,
        }
    }

    /// Returns the list to which the video is uploaded. `None` if Facebook downloads it.
    const fn upload_edge(self) -> Option<&'static str> {
        match self {
            Self::Feed => None,
            Self::Reel => Some(REELS),
            Self::Story => Some(STORIES),
        }
    }
}

#[derive(Deserialize)]
struct Finished {
    #[serde(default)]
    success: bool,
    #[serde(default)]
    post_id: Value,
}

/// A video in a list of the page.
#[derive(Deserialize)]
struct ListedVideo {
    id: String,
    description: Option<String>,
    #[serde(default)]
    created_time: String,
    permalink_url: Option<String>,
    #[serde(default)]
    post_id: Value,
}

/// A video whose publication Facebook has accepted.
struct Accepted<'a> {
    video_id: &'a str,
    at: DateTime<Utc>,
}

impl<'a> Accepted<'a> {
    /// Returns the video of the call that is looked up.
    fn of(post: &'a OutgoingPost) -> Option<Self> {
        let video_id = post.marker.get("video_id").and_then(Value::as_str).filter(|id| is_id(id))?;
        Some(Self { video_id, at: post.accepted_at()? })
    }
}

/// Returns the title and the description of a video. A story has none.
fn texts(post: &OutgoingPost) -> Result<Map<String, Value>, CallError> {
    let description = Some(post.text.as_str()).filter(|text| !text.is_empty());
    let texts = [("title", options::text(post, "title")?), ("description", description)];
    let present = texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), Value::from(text?))));
    Ok(present.collect())
}

/// Returns a published video. Its post has metrics and comments. The video is deleted with it.
fn published(page: &str, video_id: &str, post_id: Option<&Value>, permalink: Option<&str>) -> Published {
    let post_id = post_id.and_then(id_text).map(|id| if id.contains('_') { id } else { format!("{page}_{id}") });
    let url = match permalink {
        Some(path) if path.starts_with('/') => format!("https://www.facebook.com{path}"),
        Some(url) => url.to_owned(),
        None => format!("https://www.facebook.com/{video_id}"),
    };
    match post_id {
        Some(id) => Published { other_ids: vec![video_id.to_owned()], ..Published::new(id, Some(url)) },
        None => Published::new(video_id, Some(url)),
    }
}

fn uploads_missing() -> Failure {
    Failure::of(Category::Media, "Facebook no longer has the upload of the video.")
}

impl Facebook {
    /// Takes the next step of handing over a video.
    pub(super) async fn send_video_step(
        &self,
        account: &ConnectorAccount,
        post: &OutgoingPost,
        video: &Video,
    ) -> Result<VideoStep, CallError> {
        match Format::of(post).upload_edge() {
            Some(edge) => self.upload_video_step(account, video, edge).await,
            None => Ok(VideoStep::Ready(Value::from(DOWNLOADED))),
        }
    }

    /// Returns a video with its state.
    pub(super) async fn video_node(&self, access: &Access<'_>, video_id: &str) -> Result<VideoNode, GraphFailure> {
        let request = access.request(Method::GET, video_id).query(&[("fields", FIELDS)]);
        access.call_with_codes(Effect::Repeatable, request).await
    }

    pub(super) async fn publish_video(
        &self,
        account: &ConnectorAccount,
        post: &OutgoingPost,
        video: &Video,
    ) -> Result<Published, CallError> {
        let format = Format::of(post);
        let Some(edge) = format.upload_edge() else { return self.publish_feed_video(account, post, video).await };
        // A user may have changed the format after the upload.
        let video_id = uploaded_id(video, edge).ok_or_else(|| CallError::UploadsMissing(uploads_missing()))?;
        let mut body = json!({ "upload_phase": "finish", "video_id": video_id, "video_state": "PUBLISHED" });
        if let (Format::Reel, Some(body)) = (format, body.as_object_mut()) {
            body.extend(texts(post)?);
        }
        let access = self.access(account)?;
        let request = access.request(Method::POST, &format!("{}/{edge}", account.external_id)).json(&body);
        match access.call_with_codes::<Finished>(Effect::Publishes, request).await {
            Ok(Finished { success: true, post_id }) => Err(self.accepted_video(post, video_id, &post_id)),
            Ok(Finished { success: false, .. }) => {
                Err(self.client.classify_unknown_effect(Effect::Publishes, "did not report success", None))
            }
            Err(failure) => self.after_rejection(&access, account, post, video_id, failure).await,
        }
    }

    /// Converts the error of the last call of an upload. If Facebook rejected the call, an earlier one may have
    /// published the video.
    async fn after_rejection(
        &self,
        access: &Access<'_>,
        account: &ConnectorAccount,
        post: &OutgoingPost,
        video_id: &str,
        failure: GraphFailure,
    ) -> Result<Published, CallError> {
        let is_rejected = is_gone(&failure)
            || matches!(
                failure.error,
                CallError::Permanent(_) | CallError::Transient(_) | CallError::UploadsMissing(_)
            );
        if !is_rejected {
            return Err(failure.error);
        }
        let node = match self.video_node(access, video_id).await {
            Ok(node) => node,
            Err(lookup) if is_gone(&lookup) => return Err(CallError::UploadsMissing(uploads_missing())),
            Err(lookup) => return Err(lookup.error),
        };
        let is_incomplete = failure.subcode.is_some_and(|subcode| INCOMPLETE_VIDEO.contains(&subcode));
        match node.state(false) {
            VideoState::Published => {
                Ok(published(&account.external_id, video_id, Some(&node.post_id), node.permalink_url.as_deref()))
            }
            VideoState::Processing if post.has_earlier_attempt => {
                Err(self.accepted_video(post, video_id, &node.post_id))
            }
            VideoState::Failed(reason) => Err(CallError::Permanent(reason)),
            VideoState::Expired => Err(CallError::UploadsMissing(uploads_missing())),
            VideoState::Processing | VideoState::Idle if is_incomplete => {
                Err(CallError::UploadsMissing(uploads_missing()))
            }
            VideoState::Processing | VideoState::Idle => Err(failure.error),
        }
    }

    async fn publish_feed_video(
        &self,
        account: &ConnectorAccount,
        post: &OutgoingPost,
        video: &Video,
    ) -> Result<Published, CallError> {
        let mut form = Form::new().text("file_url", video.url.clone()).text("published", "true");
        for (name, text) in texts(post)? {
            form = form.text(name, text.as_str().unwrap_or_default().to_owned());
        }
        if let Some(cover) = video.cover.as_ref().filter(|cover| !cover.bytes.is_empty()) {
            form = form.part("thumb", image_part(cover)?);
        }
        let access = self.access(account)?;
        let request = access.request(Method::POST, &format!("{}/{VIDEOS}", account.external_id)).multipart(form);
        // Facebook may download the video before it responds.
        let response = self.client.send_bytes(Effect::Publishes, request, video.size.min(AWAITED_BYTES)).await?;
        let created = access.read_response::<Created>(Effect::Publishes, &response);
        let Created { id } = created.map_err(|failure| failure.error)?;
        if !is_id(&id) {
            return Err(self.client.classify_unknown_effect(Effect::Publishes, "returned an invalid ID", None));
        }
        Err(self.accepted_video(post, &id, &Value::Null))
    }

    /// Returns the error for a video that Facebook has accepted.
    fn accepted_video(&self, post: &OutgoingPost, video_id: &str, post_id: &Value) -> CallError {
        let mut marker = post.accepted_marker(self.client.now());
        marker.insert("video_id".to_owned(), Value::from(video_id));
        match id_text(post_id) {
            Some(id) => marker.insert("post_id".to_owned(), Value::from(id)),
            None => marker.remove("post_id"),
        };
        self.client.accepted(marker, MIN_PAUSE)
    }

    /// Looks up the video of an earlier call.
    pub(super) async fn reconcile_video(
        &self,
        account: &ConnectorAccount,
        post: &OutgoingPost,
        video: &Video,
    ) -> Result<ReconcileResult, CallError> {
        let access = self.access(account)?;
        let accepted = Accepted::of(post);
        let uploaded = Format::of(post).upload_edge().and_then(|edge| uploaded_id(video, edge));
        let Some(video_id) = accepted.as_ref().map(|accepted| accepted.video_id).or(uploaded) else {
            return match Format::of(post) {
                Format::Feed => self.search_feed(&access, account, post).await,
                Format::Reel | Format::Story => Ok(ReconcileResult::Unsupported),
            };
        };
        let node = match self.video_node(&access, video_id).await {
            Ok(node) => node,
            // Someone may have deleted it.
            Err(failure) if is_gone(&failure) => return Ok(ReconcileResult::Unsupported),
            Err(failure) => return Err(failure.error),
        };
        let began = accepted.as_ref().map(|accepted| accepted.at).or(post.called_at);
        let waited = began.map_or(MAX_PAUSE, |began| self.client.now() - began);
        let pending = ReconcileResult::Pending(waited.clamp(MIN_PAUSE, MAX_PAUSE));
        Ok(match node.state(accepted.is_some()) {
            VideoState::Published => {
                // A story's id is in the response to its call.
                let is_missing = node.post_id.is_null() && accepted.is_some();
                let post_id = if is_missing { post.marker.get("post_id") } else { Some(&node.post_id) };
                let permalink = node.permalink_url.as_deref();
                ReconcileResult::Found(published(&account.external_id, video_id, post_id, permalink))
            }
            VideoState::Failed(reason) => ReconcileResult::Rejected(CallError::Permanent(reason)),
            VideoState::Expired if accepted.is_some() => {
                let message = "Facebook deleted the video before it was published. Publish the post again.";
                let failure = Failure::of(Category::PlatformError, message);
                ReconcileResult::Rejected(CallError::Permanent(failure))
            }
            VideoState::Processing => pending,
            VideoState::Idle if accepted.is_some() => pending,
            // The call did not arrive.
            VideoState::Idle | VideoState::Expired => ReconcileResult::Absent,
        })
    }

    /// Searches the newest videos of the page. Facebook shows a new video as a reel, so it may be in either list.
    async fn search_feed(
        &self,
        access: &Access<'_>,
        account: &ConnectorAccount,
        post: &OutgoingPost,
    ) -> Result<ReconcileResult, CallError> {
        let since = post.called_at.map(|called_at| ("since", (called_at - SEARCH_MARGIN).timestamp().to_string()));
        let limit = MAX_RECENT_POSTS.to_string();
        let query = [("fields", "id,description,created_time,permalink_url,post_id"), ("limit", limit.as_str())];
        let mut lists: Vec<Vec<ListedVideo>> = Vec::new();
        for edge in [VIDEOS, REELS] {
            let path = format!("{}/{edge}", account.external_id);
            let request = access.request(Method::GET, &path).query(&query).query(&since.iter().collect::<Vec<_>>());
            let newest: List<Value> = access.call(Effect::Repeatable, request).await?;
            lists.push(read(&newest.data));
        }
        let window = CallWindow::of(post.called_at);
        let is_covered = lists.iter().all(|list| {
            let times: Vec<_> = list.iter().map(|one| parse_time(&one.created_time)).collect();
            window.is_covered(&times, MAX_RECENT_POSTS)
        });
        let mut seen = HashSet::new();
        let is_match = |one: &&ListedVideo| {
            let is_same = is_same(one.description.as_deref().unwrap_or_default(), &post.text);
            is_same && window.contains(parse_time(&one.created_time))
        };
        let matches = lists.iter().flatten().filter(is_match).filter(|one| seen.insert(one.id.as_str()));
        let found = matches
            .map(|one| published(&account.external_id, &one.id, Some(&one.post_id), one.permalink_url.as_deref()));
        Ok(match window.result(found.collect(), is_covered) {
            ReconcileResult::Absent if self.may_appear(post) => ReconcileResult::Pending(MAX_PAUSE),
            ReconcileResult::Absent => ReconcileResult::Unsupported,
            result => result,
        })
    }

    fn may_appear(&self, post: &OutgoingPost) -> bool {
        post.called_at.is_some_and(|called_at| self.client.now() - called_at < MAX_DOWNLOAD)
    }
}
