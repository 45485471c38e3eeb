//! Uploads of GIFs. X takes them only in segments, as it takes videos, and processes them. A post can have a GIF only
//! when X has processed it.
//!
//! Sources: `openapi.json` 2.167 of August 2026 (`MediaCategoryOneShot` of `/2/media/upload` has no GIFs;
//! `/2/media/upload/initialize`: `tweet_gif`).

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use crier_domain::failure::{Category, Failure};
use crier_http::RequestBuilder;
use secrecy::ExposeSecret;
use serde_json::json;

use super::Twitter;
use super::video::SEGMENT;
use crate::call::{Effect, image_part};
use crate::{CallError, ConnectorAccount, Image, OutgoingPost, StageResult};

/// The maximum time for which X may process a GIF. It takes seconds.
const MAX_WORK: TimeDelta = TimeDelta::minutes(30);
/// The field of the marker: the upload that X is processing, and since when.
const PROCESSING: &str = "processing";

/// Returns whether X takes an image only in segments.
pub(super) fn is_gif(image: &Image) -> bool {
    image.mime_type == "image/gif"
}

impl Twitter {
    /// Uploads a GIF and returns its id.
    pub(super) async fn upload_gif(&self, token: &str, image: &Image) -> Result<String, CallError> {
        let size = image.bytes.len() as u64;
        let id = self.initialize(token, &image.mime_type, "tweet_gif", size).await?;
        let (mut rest, mut index) = (image.bytes.clone(), 0);
        while !rest.is_empty() {
            let segment = rest.split_to(rest.len().min(SEGMENT as usize));
            let file = image_part(&Image { bytes: segment, ..image.clone() })?;
            self.send_empty(self.append_request(token, &id, index, file)).await?;
            index += 1;
        }
        self.send_empty(self.finalize_request(token, &id)).await?;
        Ok(id)
    }

    /// Sends a request whose response needs not be read.
    async fn send_empty(&self, request: RequestBuilder) -> Result<(), CallError> {
        let response = self.client.send(Effect::Repeatable, request).await?;
        match response.status.is_success() {
            true => Ok(()),
            false => Err(self.classify(Effect::Repeatable, &response)),
        }
    }

    /// Checks whether X has processed the GIF of a post.
    pub(super) async fn check_gif(
        &self,
        account: &ConnectorAccount,
        post: &OutgoingPost,
    ) -> Result<StageResult, CallError> {
        let uploaded = post.images.iter().filter(|image| is_gif(image)).find_map(|image| image.uploaded.as_ref());
        let Some(id) = uploaded.and_then(|uploaded| uploaded.name.as_str()) else { return Ok(StageResult::Ready) };
        let token = account.secrets.require("access_token")?;
        let media = match self.media(token.expose_secret(), id).await {
            Ok(media) => media,
            // X no longer has the upload, or got the image as a JPEG, which it does not process. The post shows that.
            Err(CallError::Permanent(_)) => return Ok(StageResult::Ready),
            Err(error) => return Err(error),
        };
        if media.has_failed() {
            let message = "X could not process the GIF and gave no reason.";
            return Err(CallError::Permanent(Failure::of(Category::InvalidContent, message).from_platform("failed")));
        }
        match media.pause() {
            Some(pause) => self.await_gif(post, id, pause),
            None => Ok(StageResult::Ready),
        }
    }

    /// Waits until X has processed an upload, but not for ever. The marker has the time of the first check.
    fn await_gif(&self, post: &OutgoingPost, id: &str, pause: TimeDelta) -> Result<StageResult, CallError> {
        let now = self.client.now();
        let known = post.marker.get(PROCESSING).filter(|known| known["id"] == id);
        let since: Option<DateTime<Utc>> = known.and_then(|known| known["since"].as_str()?.parse().ok());
        match since {
            Some(since) if now - since > MAX_WORK => {
                let message = "X has been processing the GIF for too long.";
                Err(CallError::UploadsMissing(Failure::of(Category::Media, message)))
            }
            Some(_) => Ok(StageResult::Pending(pause)),
            None => {
                let mut marker = post.marker.clone();
                let since = now.to_rfc3339_opts(SecondsFormat::Millis, true);
                marker.insert(PROCESSING.to_owned(), json!({ "id": id, "since": since }));
                Ok(StageResult::Created(marker))
            }
        }
    }
}
