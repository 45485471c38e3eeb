//! The videos of the fake platform, which it receives in parts. It records every part and does not deduplicate, so that
//! tests can detect a part that was sent twice.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use crier_platforms::{CallError, Medium, OutgoingPost, UploadQuota, Video, VideoStep, VideoTransfer, VideoUpload};
use futures::TryStreamExt;
use serde_json::{Value, json};

use super::Gate;

/// The maximum number of bytes of a part.
pub const PART: u64 = 64 * 1024;

/// The behavior of one step. Later steps are `Take`.
pub enum VideoAct {
    /// Takes the step: an upload begins, its next part arrives, or it is complete.
    Take,
    /// Returns this and takes no step.
    Return(VideoStep),
    Reject(CallError),
    /// Takes the step, and returns it after the gate.
    TakeAndWait(Arc<Gate>),
    /// Takes the step, reaches the gate, and never responds.
    TakeAndHang(Arc<Gate>),
    /// Reaches the gate, takes no step, and never responds.
    Hang(Arc<Gate>),
}

/// A part that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The asset's id.
    pub video: i64,
    pub session: u64,
    pub range: Range<u64>,
    pub bytes: Vec<u8>,
}

pub struct FakeVideos {
    transfer: Mutex<VideoTransfer>,
    quota: Mutex<Option<UploadQuota>>,
    script: Mutex<VecDeque<VideoAct>>,
    sessions: Mutex<u64>,
    parts: Mutex<Vec<Part>>,
    /// The progress that each step received, with the asset's id.
    steps: Mutex<Vec<(i64, VideoUpload)>>,
    /// The progress of the aborted uploads.
    aborted: Mutex<Vec<VideoUpload>>,
    /// The posts of each publish call.
    published: Mutex<Vec<Vec<OutgoingPost>>>,
}

impl Default for FakeVideos {
    fn default() -> Self {
        Self {
            transfer: Mutex::new(VideoTransfer::Fetched),
            quota: Mutex::default(),
            script: Mutex::default(),
            sessions: Mutex::default(),
            parts: Mutex::default(),
            steps: Mutex::default(),
            aborted: Mutex::default(),
            published: Mutex::default(),
        }
    }
}

impl FakeVideos {
    /// Sets how videos are transferred. Default: the platform fetches them by URL.
    pub fn set_transfer(&self, transfer: VideoTransfer) {
        *self.transfer.lock().expect("no panic") = transfer;
    }

    pub fn transfer(&self) -> VideoTransfer {
        *self.transfer.lock().expect("no panic")
    }

    /// Sets the daily limit of uploads that all accounts share.
    pub fn set_quota(&self, quota: UploadQuota) {
        *self.quota.lock().expect("no panic") = Some(quota);
    }

    pub fn quota(&self) -> Option<UploadQuota> {
        self.quota.lock().expect("no panic").clone()
    }

    /// Scripts the next steps.
    pub fn script(&self, script: impl IntoIterator<Item = VideoAct>) {
        self.script.lock().expect("no panic").extend(script);
    }

    /// Clears the script.
    pub fn clear_script(&self) {
        self.script.lock().expect("no panic").clear();
    }

    /// Returns the parts that arrived, in order.
    pub fn parts(&self) -> Vec<Part> {
        self.parts.lock().expect("no panic").clone()
    }

    /// Returns the bytes that arrived of a video in a session.
    pub fn received(&self, video: i64, session: u64) -> Vec<u8> {
        let parts = self.parts().into_iter().filter(|part| part.video == video && part.session == session);
        parts.flat_map(|part| part.bytes).collect()
    }

    /// Returns the progress that each step received, with the asset's id.
    pub fn steps(&self) -> Vec<(i64, VideoUpload)> {
        self.steps.lock().expect("no panic").clone()
    }

    /// Returns the progress of the aborted uploads.
    pub fn aborted(&self) -> Vec<VideoUpload> {
        self.aborted.lock().expect("no panic").clone()
    }

    pub(super) fn abort(&self, upload: &VideoUpload) {
        self.aborted.lock().expect("no panic").push(upload.clone());
    }

    /// Returns the ids of the images and videos of each publish call, in their order.
    pub fn published_ids(&self) -> Vec<Vec<i64>> {
        let id = |medium: Medium<'_>| match medium {
            Medium::Image(image) => image.id,
            Medium::Video(video) => video.id,
        };
        let calls = self.published.lock().expect("no panic");
        let ids_of = |posts: &Vec<OutgoingPost>| posts.iter().flat_map(|post| post.media()).map(id).collect();
        calls.iter().map(ids_of).collect()
    }

    /// Returns the videos of each publish call.
    pub fn published(&self) -> Vec<Vec<Video>> {
        let calls = self.published.lock().expect("no panic");
        calls.iter().map(|posts| posts.iter().flat_map(|post| post.videos.clone()).collect()).collect()
    }

    pub(super) fn record_publish(&self, posts: &[OutgoingPost]) {
        self.published.lock().expect("no panic").push(posts.to_vec());
    }

    pub(super) async fn step(&self, video: &Video) -> Result<VideoStep, CallError> {
        self.steps.lock().expect("no panic").push((video.id, video.upload.clone()));
        let act = self.script.lock().expect("no panic").pop_front();
        match act.unwrap_or(VideoAct::Take) {
            VideoAct::Take => self.take(video).await,
            VideoAct::Return(step) => Ok(step),
            VideoAct::Reject(error) => Err(error),
            VideoAct::TakeAndWait(gate) => {
                let step = self.take(video).await;
                gate.enter().await;
                step
            }
            VideoAct::TakeAndHang(gate) => {
                self.take(video).await?;
                gate.hang().await
            }
            VideoAct::Hang(gate) => gate.hang().await,
        }
    }

    async fn take(&self, video: &Video) -> Result<VideoStep, CallError> {
        let number = |name: &str| video.upload.get(name).and_then(Value::as_u64);
        let Some(session) = number("session") else {
            let mut sessions = self.sessions.lock().expect("no panic");
            *sessions += 1;
            return Ok(VideoStep::Next(upload(*sessions, 0)));
        };
        let sent = number("sent").unwrap_or_default();
        if sent == video.size {
            return Ok(VideoStep::Ready(json!(format!("video-{session}"))));
        }
        let range = sent..video.size.min(sent + PART);
        // As a connector does it, whose errors say whether the file exists.
        video.part(range.clone()).await?;
        let chunks: Vec<bytes::Bytes> =
            video.file.read(range.clone()).await.expect("a range").try_collect().await.expect("the bytes");
        let (end, bytes) = (range.end, chunks.iter().flat_map(|chunk| chunk.to_vec()).collect());
        self.parts.lock().expect("no panic").push(Part { video: video.id, session, range, bytes });
        Ok(VideoStep::Next(upload(session, end)))
    }
}

/// Returns the progress of an upload.
pub fn upload(session: u64, sent: u64) -> VideoUpload {
    VideoUpload::from_iter([("session".to_owned(), json!(session)), ("sent".to_owned(), json!(sent))])
}
