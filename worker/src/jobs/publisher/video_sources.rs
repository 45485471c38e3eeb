//! What the uploads of videos were made from: their files, their alt texts and their covers.
//!
//! On some platforms, the alt text or the cover is part of the upload. This is stored with the progress of the upload
//! (`videos.rs`). If a user has changed something since, the video is handed over again, on every platform.

use std::collections::{BTreeSet, HashMap};

use crier_domain::media::Asset;
use crier_platforms::{Video, VideoUpload};
use serde_json::{Map, Value, json};

use super::OutgoingPart;

/// What the videos of a call are made from.
#[derive(Default)]
pub(in crate::jobs) struct VideoSources {
    /// By asset id.
    current: HashMap<i64, Value>,
    /// The videos whose uploads were made from something else.
    outdated: BTreeSet<i64>,
    /// The uploads that were forgotten before they were finished. The platform may limit the number of open ones.
    forgotten: Vec<VideoUpload>,
}

impl VideoSources {
    /// Adds the videos of a part. `stored` is what their uploads were made from. A video that is in several parts is handed
    /// over once, for the first one.
    pub fn add(&mut self, stored: &Map<String, Value>, videos: &[Video], assets: &[Asset], cover: Option<&Asset>) {
        for video in videos {
            let Some(asset) = assets.iter().find(|asset| asset.id == video.id) else { continue };
            // A file never changes under its name.
            let cover = cover.filter(|_| video.cover.is_some()).map(|cover| cover.key.as_str());
            let source = json!([asset.key, asset.alt_text, cover, video.cover_at_ms]);
            let source = self.current.entry(video.id).or_insert(source);
            if stored.get(&video.id.to_string()).is_some_and(|stored| *stored != *source) {
                self.outdated.insert(video.id);
            }
        }
    }

    /// Returns what to store for videos that were handed over, or are being handed over.
    pub fn of_uploads<'a>(&self, videos: impl Iterator<Item = &'a Video>) -> Map<String, Value> {
        let sent = videos.filter(|video| video.uploaded.is_some() || !video.upload.is_empty());
        sent.filter_map(|video| Some((video.id.to_string(), self.current.get(&video.id)?.clone()))).collect()
    }

    /// Forgets the uploads that were made from something else. Returns whether there were any.
    pub fn forget_outdated(&mut self, parts: &mut [OutgoingPart]) -> bool {
        let outdated = std::mem::take(&mut self.outdated);
        let videos = parts.iter_mut().flat_map(|part| &mut part.post.videos);
        for video in videos.filter(|video| outdated.contains(&video.id)) {
            let upload = std::mem::take(&mut video.upload);
            // A video may be in several parts.
            if video.uploaded.take().is_none() && !upload.is_empty() && !self.forgotten.contains(&upload) {
                self.forgotten.push(upload);
            }
        }
        !outdated.is_empty()
    }

    /// Returns the forgotten uploads, to abort them.
    pub fn take_forgotten(&mut self) -> Vec<VideoUpload> {
        std::mem::take(&mut self.forgotten)
    }
}
