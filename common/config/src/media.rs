//! Limits of the media library.

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
    "The maximum disk space for files that are being received, in MiB. A workspace can use half of it. A value below \
     twice CRIER_MEDIA_MAX_MIB is raised to that.",
    DefaultValue::Value("512"),
    "512",
);
pub(super) const KEYS: &[Key] = &[MAX_MIB, MAX_MEGAPIXELS, MEMORY_MIB, SPOOL_MIB];

/// The limits of the media library.
#[derive(Clone, Copy, Debug)]
pub struct MediaConfig {
    pub max_bytes: u64,
    pub max_pixels: u64,
    pub memory_bytes: u64,
    pub spool_bytes: u64,
}

impl Default for MediaConfig {
    fn default() -> Self {
        Self { max_bytes: 25 << 20, max_pixels: 100_000_000, memory_bytes: 256 << 20, spool_bytes: 512 << 20 }
    }
}

pub(super) fn read(reader: &mut Reader) -> MediaConfig {
    let number = |min, max| move |text: &str| values::number(text, min, max).map(|n| n as u64);
    let max_bytes = reader.parse(&MAX_MIB, number(1, 1024)) << 20;
    // The largest image must fit into a workspace's half.
    let min_spool = 2 * max_bytes;
    MediaConfig {
        max_bytes,
        max_pixels: reader.parse(&MAX_MEGAPIXELS, number(1, 1_000)) * 1_000_000,
        memory_bytes: reader.parse(&MEMORY_MIB, number(16, 1 << 20)) << 20,
        spool_bytes: (reader.parse(&SPOOL_MIB, number(2, 1 << 20)) << 20).max(min_spool),
    }
}
