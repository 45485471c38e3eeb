//! The parts that a call publishes: their texts, media and options, and what they reply to.

use std::borrow::Cow;

use crier_domain::failure::{Category, Failure};
use crier_domain::media::Asset;
use crier_domain::post::{Post, Target};
use crier_platforms::{ReplyKind, ReplyTo, link_card};
use crier_store::{StoreError, Tx, media};
use serde_json::{Map, Value};

use super::super::publisher::images;

/// The options with the cover of a video: an image of the media library, and the time of the picture in the video.
const COVER_OPTION: &str = "cover_media_id";
pub(super) const COVER_AT_OPTION: &str = "cover_at_ms";

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

/// Returns what the next call publishes: the next part, or all parts if the platform publishes them `at_once`.
pub(super) fn next_texts<'a>(post: &'a Post, target: &'a Target, at_once: bool) -> Vec<PartText<'a>> {
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
    rest.take(if at_once { usize::MAX } else { 1 }).collect()
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
