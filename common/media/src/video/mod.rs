//! Reads the headers of videos. A placeholder with the final signatures.

use std::io::{BufRead, Seek};

use crier_domain::media::{VideoProperties, VideoType};

use super::images::Refusal;

/// What the headers of a video say.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbedVideo {
    pub kind: VideoType,
    pub width: u32,
    pub height: u32,
    pub properties: VideoProperties,
}

pub fn probe(_source: &mut (impl BufRead + Seek + ?Sized), _size: u64) -> Result<ProbedVideo, Refusal> {
    Err(Refusal::Unsupported("Videos are not supported yet.".to_owned()))
}

pub fn sniff(_first_bytes: &[u8]) -> Option<VideoType> {
    None
}
