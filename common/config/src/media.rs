//! Limits of the media library, and the program that it runs.

use std::path::PathBuf;

use super::key::{DefaultValue, Key};
use super::reader::Reader;
use super::values;

const MAX_MIB: Key =
    Key::new("MEDIA_MAX_MIB", "The maximum file size of an image, in MiB.", DefaultValue::Value("25"), "25");
const MAX_MEGAPIXELS: Key = Key::new(
    "MEDIA_MAX_MEGAPIXELS",
    "The maximum number of pixels in an image, in millions.",
    DefaultValue::Value("100"),
    "100",
);
const MEMORY_MIB: Key = Key::new(
    "MEDIA_MEMORY_MIB",
    "The maximum memory for processing images, in MiB. An image that needs more is processed on its own.",
    DefaultValue::Value("256"),
    "256",
);
const SPOOL_MIB: Key = Key::new(
    "MEDIA_SPOOL_MIB",
    "The maximum disk space for images that are being received, in MiB. A workspace can use half of it. A value below \
     twice CRIER_MEDIA_MAX_MIB is raised to that.",
    DefaultValue::Value("512"),
    "512",
);
const VIDEO_MAX_MIB: Key =
    Key::new("MEDIA_VIDEO_MAX_MIB", "The maximum file size of a video, in MiB.", DefaultValue::Value("1024"), "1024");
const VIDEO_SPOOL_MIB: Key = Key::new(
    "MEDIA_VIDEO_SPOOL_MIB",
    "The maximum disk space for videos that are being received, in MiB. A workspace can use half of it. A value below \
     twice CRIER_MEDIA_VIDEO_MAX_MIB is raised to that.",
    DefaultValue::Value("4096"),
    "4096",
);
const FFMPEG: Key = Key::new(
    "MEDIA_FFMPEG",
    "The path of ffmpeg, which takes the cover images of videos. A name without a directory is searched for in PATH. \
     If it is not installed, or with `false`, videos have no cover images.",
    DefaultValue::Value("ffmpeg"),
    "/usr/bin/ffmpeg",
);
pub(super) const KEYS: &[Key] =
    &[MAX_MIB, MAX_MEGAPIXELS, MEMORY_MIB, SPOOL_MIB, VIDEO_MAX_MIB, VIDEO_SPOOL_MIB, FFMPEG];

/// The limits of the media library.
#[derive(Clone, Debug)]
pub struct MediaConfig {
    /// Of an image.
    pub max_bytes: u64,
    pub max_pixels: u64,
    pub memory_bytes: u64,
    pub spool_bytes: u64,
    pub max_video_bytes: u64,
    pub video_spool_bytes: u64,
    /// A path, or a name that is searched for in `PATH`. `None`: videos have no cover images.
    pub ffmpeg: Option<PathBuf>,
}

impl Default for MediaConfig {
    /// Returns the default limits. Runs no program, so that tests do not depend on what is installed.
    fn default() -> Self {
        Self {
            max_bytes: 25 << 20,
            max_pixels: 100_000_000,
            memory_bytes: 256 << 20,
            spool_bytes: 512 << 20,
            max_video_bytes: 1 << 30,
            video_spool_bytes: 4 << 30,
            ffmpeg: None,
        }
    }
}

pub(super) fn read(reader: &mut Reader) -> MediaConfig {
    let number = |min, max| move |text: &str| values::number(text, min, max).map(|n| n as u64);
    let max_bytes = reader.parse(&MAX_MIB, number(1, 1024)) << 20;
    let max_video_bytes = reader.parse(&VIDEO_MAX_MIB, number(1, 1 << 20)) << 20;
    // The largest file must fit into a workspace's half.
    let (min_spool, min_video_spool) = (2 * max_bytes, 2 * max_video_bytes);
    MediaConfig {
        max_bytes,
        max_pixels: reader.parse(&MAX_MEGAPIXELS, number(1, 1_000)) * 1_000_000,
        memory_bytes: reader.parse(&MEMORY_MIB, number(16, 1 << 20)) << 20,
        spool_bytes: (reader.parse(&SPOOL_MIB, number(2, 1 << 20)) << 20).max(min_spool),
        max_video_bytes,
        video_spool_bytes: (reader.parse(&VIDEO_SPOOL_MIB, number(2, 1 << 21)) << 20).max(min_video_spool),
        ffmpeg: reader.parse(&FFMPEG, program),
    }
}

/// Parses the path of a program, or a word for none.
fn program(text: &str) -> Result<Option<PathBuf>, String> {
    match values::boolean(text) {
        Ok(false) => Ok(None),
        Ok(true) => Err("is neither a path nor false".to_owned()),
        Err(_) => values::path(text).map(Some),
    }
}
