//! Renditions: images converted and shrunk as far as the rules of a platform require.
//!
//! Crier uploads the bytes to most platforms. Platforms that download images get a [`FetchLink`]: a URL at which this
//! installation serves the rendition for that platform for a day. The URL is sealed with the installation's key, so any
//! replica serves it without a lookup, and nobody else can create one.

use std::io::Cursor;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use crier_base::secrets::link::{self, LinkError};
use crier_base::secrets::{Cipher, SecretError, SecretLocation};
use crier_domain::catalogue;
use crier_domain::media::{Asset, ImageType, MediaType};
use crier_domain::platform::{MediaRules, Platform};
use crier_http::{Guard, SchemePolicy};
use serde::{Deserialize, Serialize};

use super::budget::MemoryPermit;
use super::images::{self, CheckedImage, FittedImage, ImageRules, Limits, Rejection};
use super::storage::StorageError;
use super::{Library, kind_of};

/// How long a platform may download an image: during a publish, its retries, and the processing at the platform.
const FETCH_LIFETIME: TimeDelta = TimeDelta::hours(24);

/// The maximum number of images that are converted for downloads at the same time. Anyone who has a URL can request it
/// again and again, so others could otherwise wait for any number of conversions.
pub(super) const MAX_FETCHES: usize = 8;
/// How long a download waits until its image can be converted.
const FETCH_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum number of pixels of an image from outside the library.
const MAX_OUTSIDE_PIXELS: u64 = 25_000_000;

const PLACE: SecretLocation<'_> = SecretLocation { table: "media", row: "", column: "fetch_link" };

/// Why there is no rendition.
#[derive(Debug, thiserror::Error)]
pub enum RenditionError {
    #[error("the image no longer exists")]
    Missing,
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Rejected(#[from] Rejection),
    #[error("the image could not be processed")]
    Failed,
}

/// The rendition that a platform may download.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchLink {
    platform: Platform,
    /// The name of the file in the storage.
    key: String,
    /// The memory for the conversion, in bytes.
    memory: u64,
    expires_at: DateTime<Utc>,
}

impl FetchLink {
    /// Opens the last segment of a URL.
    pub fn open(cipher: &Cipher, token: &str, now: DateTime<Utc>) -> Result<Self, LinkError> {
        let found: Self = link::open(cipher, &PLACE, token)?;
        if now < found.expires_at { Ok(found) } else { Err(LinkError::Expired) }
    }
}

impl Library {
    /// Returns the URL at which a platform downloads its rendition of an image.
    pub fn fetch_url(
        &self,
        cipher: &Cipher,
        asset: &Asset,
        platform: Platform,
        now: DateTime<Utc>,
    ) -> Result<String, SecretError> {
        let rules = &catalogue::descriptor(platform).capabilities.media;
        let (key, memory) = (asset.key.clone(), estimate_conversion_bytes(asset, rules));
        let link = FetchLink { platform, key, memory, expires_at: now + FETCH_LIFETIME };
        Ok(format!("{}/media/fetch/{}", self.public_url(), link::seal(cipher, &PLACE, &link)?))
    }

    /// Returns the rendition of a link, and its share of the memory budget.
    pub async fn fetch(&self, link: &FetchLink) -> Result<(FittedImage, MemoryPermit), RenditionError> {
        let kind = kind_of(&link.key).and_then(MediaType::image).ok_or(RenditionError::Missing)?;
        let rules = &catalogue::descriptor(link.platform).capabilities.media;
        let permit = tokio::time::timeout(FETCH_TIMEOUT, self.0.fetches.clone().acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            return Err(StorageError::new("too many images are being converted").into());
        };
        let share = self.budget().share(link.memory).await;
        let (image, (mut share, _permit)) = self.render_holding(&link.key, kind, rules, (share, permit)).await?;
        share.shrink_to(image.bytes.len() as u64);
        Ok((image, share))
    }

    /// Loads an image and converts it for a platform. The caller must hold [`estimate_conversion_bytes`] of the memory
    /// budget.
    pub async fn render(&self, key: &str, kind: ImageType, media: &MediaRules) -> Result<FittedImage, RenditionError> {
        self.render_holding(key, kind, media, ()).await.map(|(image, ())| image)
    }

    /// Does what [`Library::render`] does. `held` is held until the work ends, even if the caller no longer waits for it.
    async fn render_holding<T: Send + 'static>(
        &self,
        key: &str,
        kind: ImageType,
        media: &MediaRules,
        held: T,
    ) -> Result<(FittedImage, T), RenditionError> {
        let bytes = self.storage().read(key).await?.ok_or(RenditionError::Missing)?;
        let media = media.clone();
        let work = move || images::fit_to_rules(bytes, kind, &image_rules(&media)).map(|image| (image, held));
        Ok(self.budget().run(work).await.ok_or(RenditionError::Failed)??)
    }

    /// Checks an image from outside the library, and converts it for a platform.
    pub async fn convert(&self, bytes: Bytes, media: &MediaRules) -> Result<FittedImage, RenditionError> {
        let media = media.clone();
        let fit = move |checked: CheckedImage| images::fit_to_rules(checked.bytes, checked.kind, &image_rules(&media));
        self.examine_outside(bytes, fit).await
    }

    /// Checks an image from outside the library, and returns its thumbnail.
    pub async fn thumbnail_of(&self, bytes: Bytes) -> Result<(ImageType, Bytes), RenditionError> {
        self.examine_outside(bytes, |checked| Ok((checked.thumbnail_kind, checked.thumbnail))).await
    }

    async fn examine_outside<T: Send + 'static>(
        &self,
        bytes: Bytes,
        then: impl FnOnce(CheckedImage) -> Result<T, Rejection> + Send + 'static,
    ) -> Result<T, RenditionError> {
        let limits = Limits { max_pixels: self.limits().max_pixels.min(MAX_OUTSIDE_PIXELS), ..*self.limits() };
        let probed = images::probe(Cursor::new(&bytes), &limits)?;
        let pixels = u64::from(probed.width) * u64::from(probed.height);
        let share = self.budget().share(bytes.len() as u64 * 2 + probed.memory.max(pixels * 16)).await;
        let work = move || {
            // Held until the work ends, even if the caller no longer waits for it.
            let _share = share;
            images::examine(bytes, &limits).and_then(then)
        };
        Ok(self.budget().run(work).await.ok_or(RenditionError::Failed)??)
    }

    /// Returns whether platforms can download from this installation: whether its URL is https and has no private
    /// address. A name is not looked up, because it may resolve to another address from outside.
    pub fn is_public(&self) -> bool {
        Guard::new(Vec::new()).check_url(self.public_url(), SchemePolicy::HttpsOnly).is_ok()
    }
}

fn image_rules(media: &MediaRules) -> ImageRules<'_> {
    ImageRules {
        mime_types: media.mime_types,
        max_bytes: media.max_bytes,
        max_sides: media.max_sides,
        max_pixels: media.max_pixels,
        gif: media.gif,
    }
}

/// Returns the maximum number of bytes of an image of this type.
fn max_bytes(asset: &Asset, rules: &MediaRules) -> Option<u64> {
    match asset.mime_type {
        MediaType::Gif => rules.gif.max_bytes.or(rules.max_bytes),
        _ => rules.max_bytes,
    }
}

/// Returns whether the platform certainly accepts the image unchanged. The number of frames of a GIF is not known here.
fn fits(asset: &Asset, rules: &MediaRules) -> bool {
    let pixels = u64::from(asset.width.unsigned_abs()) * u64::from(asset.height.unsigned_abs());
    let gif = rules.gif;
    let needs_frames = gif.max_frames.is_some() || gif.max_total_pixels.is_some() || gif.only_animated;
    let fits_gif = !needs_frames && gif.max_pixels.is_none_or(|max| pixels <= max);
    rules.mime_types.contains(&asset.mime_type.as_str())
        && (asset.mime_type != MediaType::Gif || fits_gif)
        && rules.max_pixels.is_none_or(|max| pixels <= max)
        && max_bytes(asset, rules).is_none_or(|max| asset.size_bytes.unsigned_abs() <= max)
        && rules.max_sides.is_none_or(|max| asset.width.unsigned_abs() + asset.height.unsigned_abs() <= max)
}

/// Returns the approximate size of a converted image, in bytes.
pub fn estimate_output_bytes(asset: &Asset, rules: &MediaRules) -> u64 {
    let size = asset.size_bytes.unsigned_abs();
    if fits(asset, rules) { size } else { max_bytes(asset, rules).unwrap_or(size) }
}

/// Returns the memory for a conversion, in bytes: that of the file and, if it must be changed, twice that of its
/// pixels.
pub fn estimate_conversion_bytes(asset: &Asset, rules: &MediaRules) -> u64 {
    let size = asset.size_bytes.unsigned_abs();
    if fits(asset, rules) {
        return size;
    }
    let pixel = match asset.mime_type.image() {
        None => return 0,
        Some(ImageType::Jpeg) => 3,
        Some(ImageType::Gif | ImageType::Webp) => 4,
        Some(ImageType::Png) => 8,
    };
    size + u64::from(asset.width.unsigned_abs()) * u64::from(asset.height.unsigned_abs()) * pixel * 2
}

#[cfg(test)]
mod tests {
    use crier_config::{MediaConfig, StorageConfig};
    use futures::future;

    use super::*;
    use crate::Storage;

    #[tokio::test]
    async fn downloads_hold_the_memory_of_a_few_conversions() {
        let dir = tempfile::tempdir().unwrap();
        let storage = Storage::open(&StorageConfig::Directory(dir.path().to_owned())).unwrap();
        let config = MediaConfig::default();
        let library = Library::new(storage, &config, "https://crier.example");
        let key = format!("{}.png", "a".repeat(40));
        let link = FetchLink { platform: Platform::Instagram, key, memory: 1 << 20, expires_at: DateTime::UNIX_EPOCH };
        let mut fetches: Vec<_> = (0..3 * MAX_FETCHES).map(|_| Box::pin(library.fetch(&link))).collect();
        for fetch in &mut fetches {
            assert!(future::poll_immediate(fetch).await.is_none());
        }
        let rest = library.budget().share(config.memory_bytes - MAX_FETCHES as u64 * link.memory);
        drop(tokio::time::timeout(Duration::from_millis(1), rest).await.expect("the others hold no memory"));
        let all = future::join_all(fetches).await;
        assert!(all.iter().all(|found| matches!(found, Err(RenditionError::Missing))), "the others follow");
    }
}
