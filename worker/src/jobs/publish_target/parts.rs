//! The parts that a call publishes: their texts, media and options, and what they reply to.

use std::borrow::Cow;

use crier_domain::failure::{Category, Failure};
use crier_domain::media::{Asset, MediaType};
use crier_domain::platform::Descriptor;
use crier_domain::post::{Post, Target};
use crier_platforms::{ReplyKind, ReplyTo, link_card};
use crier_store::{StoreError, Tx, media};
use serde_json::{Map, Value};

use super::super::publisher::images;

/// The options with the cover of a video: an image of the media library, and the time of a frame in the video.
const COVER_OPTION: &str = "cover_media_id";
pub(super) const COVER_AT_OPTION: &str = "cover_at_ms";

/// The bounds of a video's own cover, a thumbnail: its width and height in pixels, and its size in bytes.
const THUMBNAIL_SIDE: i32 = 400;
const THUMBNAIL_BYTES: i64 = 1 << 20;

/// The text and the media of a part of a thread, or of the whole post if it has no thread.
pub(super) struct PartText<'a> {
    /// 0 for the post itself.
    pub position: usize,
    pub content: Cow<'a, str>,
    media: &'a [i64],
    /// The cover of its first video.
    cover: Option<i64>,
}

/// The images and videos of a part, and the cover of its first video.
#[derive(Default)]
pub(super) struct PartMedia {
    pub assets: Vec<Asset>,
    pub cover: Option<Asset>,
}

impl PartMedia {
    pub fn has_video(&self) -> bool {
        self.assets.iter().any(|asset| asset.video.is_some())
    }
}

/// Returns what the next call publishes: the next part, or all parts if the platform publishes the `whole_thread`.
pub(super) fn next_texts<'a>(post: &'a Post, target: &'a Target, whole_thread: bool) -> Vec<PartText<'a>> {
    let media = target.media.as_deref().unwrap_or(&post.media);
    // A cover that a user chose belongs to the post itself.
    let cover = target.options.get(COVER_OPTION).and_then(Value::as_i64);
    let own = PartText { position: 0, content: target.text(post).into(), media, cover };
    let following = target.thread(post).iter().zip(1..);
    let following = following.map(|(part, position)| {
        let content = Cow::Borrowed(part.content.as_str());
        PartText { position, content, media: &part.media, cover: None }
    });
    let rest = std::iter::once(own).chain(following).skip(target.published_parts.len());
    rest.take(if whole_thread { usize::MAX } else { 1 }).collect()
}

/// Returns the images, videos and covers of each part. Fails if one was deleted.
pub(super) async fn load_media(
    tx: &mut Tx,
    brand_id: i64,
    texts: &[PartText<'_>],
) -> Result<Result<Vec<PartMedia>, Failure>, StoreError> {
    let ids: Vec<i64> = texts.iter().flat_map(|text| text.media.iter().copied().chain(text.cover)).collect();
    let found = media::find_many(tx, brand_id, &ids).await?;
    Ok(texts.iter().map(|text| text.select_media(&found)).collect())
}

impl PartText<'_> {
    fn select_media(&self, found: &[Asset]) -> Result<PartMedia, Failure> {
        let media = PartMedia { assets: images::in_order(found, self.media)?, cover: None };
        // Without a video, the cover is not used.
        let cover = self.cover.filter(|_| media.has_video());
        let cover = images::in_order(found, cover.as_slice())?.pop();
        Ok(PartMedia { cover, ..media })
    }
}

/// Returns the thumbnail of the first video, if the platform requires a cover. The check of a post relies on it.
pub(super) fn own_cover(descriptor: &Descriptor, assets: &[Asset]) -> Option<Asset> {
    descriptor.capabilities.video.filter(|rules| rules.requires_cover)?;
    let video = assets.iter().find(|asset| asset.video.is_some())?;
    let key = video.thumbnail_key.clone()?;
    let (width, height, size_bytes) = (THUMBNAIL_SIDE, THUMBNAIL_SIDE, THUMBNAIL_BYTES);
    let mime_type = MediaType::of_name(&key)?;
    Some(Asset { key, mime_type, width, height, size_bytes, thumbnail_key: None, video: None, ..video.clone() })
}

/// Returns what the next part replies to. `None` for the post itself.
pub(super) fn reply_to(target: &Target) -> Option<ReplyTo> {
    let (root, parent) = (target.published_parts.first()?.clone(), target.published_parts.last()?.clone());
    Some(ReplyTo { kind: ReplyKind::ThreadPart, root, parent })
}

/// Returns why no part can follow the last one.
pub(super) fn unknown_parent(target: &Target) -> Option<Failure> {
    let last = target.published_parts.last()?;
    last.external_id.is_empty().then(|| {
        let message = format!(
            "Part {} was published, but the platform did not return its ID, so the next part cannot follow it.",
            target.published_parts.len()
        );
        Failure::with_code(Category::PlatformError, "part_id_unknown", message)
    })
}

/// Returns the options of a part. A link card that a user described belongs to the post itself.
pub(super) fn options_of(target: &Target, position: usize) -> Map<String, Value> {
    let mut options = target.options.clone();
    if position > 0 && options.get(link_card::OPTION).is_some_and(Value::is_object) {
        options.remove(link_card::OPTION);
    }
    options
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use crier_domain::catalogue::descriptor;
    use crier_domain::media::{AssetType, VideoProperties};
    use crier_domain::platform::Platform;

    use super::*;

    fn video(thumbnail: Option<&str>) -> Asset {
        Asset {
            id: 9,
            brand_id: 1,
            asset_type: AssetType::Video,
            filename: "loaf.mp4".to_owned(),
            alt_text: None,
            source_url: None,
            key: "loaf.mp4".to_owned(),
            thumbnail_key: thumbnail.map(str::to_owned),
            mime_type: MediaType::Mp4,
            size_bytes: 1 << 30,
            width: 1_080,
            height: 1_920,
            video: Some(VideoProperties {
                duration_ms: 5_000,
                rotation: 0,
                frame_rate: None,
                video_codec: "h264".to_owned(),
                audio_codec: None,
                index_first: true,
            }),
            created_at: DateTime::UNIX_EPOCH,
            updated_at: DateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn the_thumbnail_is_the_cover_where_one_is_required() {
        let assets = [video(Some("loaf-thumb.jpg"))];
        let cover = own_cover(descriptor(Platform::Reddit), &assets).unwrap();
        assert_eq!(
            (cover.key.as_str(), cover.mime_type, cover.video.is_none()),
            ("loaf-thumb.jpg", MediaType::Jpeg, true)
        );
        assert!(cover.size_bytes <= THUMBNAIL_BYTES, "its memory is not that of the video");
        assert!(own_cover(descriptor(Platform::Linkedin), &assets).is_none());
        assert!(own_cover(descriptor(Platform::Reddit), &[video(None)]).is_none());
        assert!(own_cover(descriptor(Platform::Reddit), &[]).is_none());
    }
}
