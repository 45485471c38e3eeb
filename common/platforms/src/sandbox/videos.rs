//! The images and videos of the sandbox. It receives a video in three steps, as platforms do: an upload begins, the
//! sandbox processes the video, and the post can refer to it. With `[slow-video]` in the text of the post, processing
//! takes a second.
//!
//! The page plays the file of the media library, so the sandbox copies no bytes. It only checks that the file exists.

use chrono::TimeDelta;
use crier_domain::sandbox::SandboxMedia;
use serde_json::Value;

use super::super::{CallError, ConnectorAccount, Medium, OutgoingPost, Video, VideoStep, VideoUpload};
use super::{Sandbox, token_rejected};

/// The keyword for a video that takes time to process.
const SLOW_VIDEO: &str = "[slow-video]";
const PROCESSING: TimeDelta = TimeDelta::seconds(1);
/// The field of the progress.
const STATE: &str = "state";
const RECEIVED: &str = "received";
const PROCESSED: &str = "processed";

impl Sandbox {
    /// Returns the images and videos with their paths, because the page shows none of other hosts.
    pub(super) fn media_of(&self, post: &OutgoingPost) -> Result<Vec<SandboxMedia>, CallError> {
        let medium = |medium: Medium<'_>| -> Result<SandboxMedia, CallError> {
            Ok(match medium {
                Medium::Image(image) => {
                    SandboxMedia::image(self.path(&image.url), image.alt_text.as_deref().unwrap_or_default())
                }
                Medium::Video(video) => {
                    let path = video.reference()?.as_str().unwrap_or_default();
                    let poster = video.cover.as_ref().map(|cover| self.path(&cover.url).to_owned());
                    SandboxMedia::video(path, video.alt_text.as_deref().unwrap_or_default(), poster)
                }
            })
        };
        post.media().into_iter().map(medium).collect()
    }

    fn path<'a>(&self, url: &'a str) -> &'a str {
        url.strip_prefix(&self.public_url).unwrap_or(url)
    }

    /// Takes the next step of receiving a video.
    pub(super) async fn receive_video(
        &self,
        account: &ConnectorAccount,
        post: &OutgoingPost,
        video: &Video,
    ) -> Result<VideoStep, CallError> {
        match video.upload.get(STATE).and_then(Value::as_str) {
            None if self.is_expired(account).await? => Err(token_rejected()),
            None => {
                video.part(0..video.size.min(1)).await?;
                Ok(VideoStep::Next(upload(RECEIVED)))
            }
            Some(RECEIVED) if post.text.contains(SLOW_VIDEO) => Ok(VideoStep::Pending(upload(PROCESSED), PROCESSING)),
            Some(RECEIVED) => Ok(VideoStep::Next(upload(PROCESSED))),
            Some(_) => Ok(VideoStep::Ready(Value::from(self.path(&video.url)))),
        }
    }
}

fn upload(state: &str) -> VideoUpload {
    VideoUpload::from_iter([(STATE.to_owned(), Value::from(state))])
}
