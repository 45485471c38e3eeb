//! The record of a post: its text with facets, and its images, its video or its link card.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::facets::{self, FacetFeature};
use super::xrpc::Server;
use super::{Bluesky, COLLECTION, resolve};
use crate::{CallError, Image, LinkCard, OutgoingPost, Video};

/// The maximum number of handles resolved per call, also for a thread: each one is a request. Further mentions stay
/// plain text.
const MAX_MENTIONS: usize = 10;

/// The DIDs of the handles that a call mentions. `None` if a handle cannot be resolved.
pub(super) type Mentions = HashMap<String, Option<String>>;

impl Bluesky {
    /// Builds the record of a post. The same post with the same marker and the same link card yields the same record.
    pub(super) async fn record(
        &self,
        server: &Server,
        post: &OutgoingPost,
        at: &str,
        mentions: &mut Mentions,
    ) -> Result<Value, CallError> {
        let images: Vec<Value> = post.images.iter().map(embed).collect::<Result<_, _>>()?;
        let mut record = self.text_record(server, &post.text, at, mentions).await;
        if let Some(video) = post.video() {
            record["embed"] = embed_video(video)?;
        } else if !images.is_empty() {
            record["embed"] = json!({ "$type": "app.bsky.embed.images", "images": images });
        } else if let Some(card) = &post.card {
            record["embed"] = json!({ "$type": "app.bsky.embed.external", "external": external(card) });
        }
        Ok(record)
    }

    /// Builds the record of a text. The same text at the same time yields the same record.
    pub(super) async fn text_record(&self, server: &Server, text: &str, at: &str, mentions: &mut Mentions) -> Value {
        let mut record = json!({ "$type": COLLECTION, "text": text, "createdAt": at });
        let facets = self.facets(server, text, mentions).await;
        if !facets.is_empty() {
            record["facets"] = Value::from(facets);
        }
        record
    }

    /// Returns the facets of a text. Resolves the handles that are not in `mentions`, and adds them.
    pub(super) async fn facets(&self, server: &Server, text: &str, mentions: &mut Mentions) -> Vec<Value> {
        let mut facets = Vec::new();
        for found in facets::find(text) {
            if let FacetFeature::Mention(handle) = &found.feature {
                if mentions.len() < MAX_MENTIONS && !mentions.contains_key(handle) {
                    mentions.insert(handle.clone(), resolve(server, handle).await);
                }
                if let Some(Some(did)) = mentions.get(handle) {
                    facets.push(found.mention(did));
                }
            }
            facets.extend(found.facet());
        }
        facets
    }
}

fn embed(image: &Image) -> Result<Value, CallError> {
    let mut embedded = json!({ "image": image.name()?, "alt": image.alt_text.as_deref().unwrap_or_default() });
    // The lexicon requires at least 1 by 1.
    if image.width > 0 && image.height > 0 {
        embedded["aspectRatio"] = json!({ "width": image.width, "height": image.height });
    }
    Ok(embedded)
}

/// Embeds a video, whose blob must be exactly what the server returned.
fn embed_video(video: &Video) -> Result<Value, CallError> {
    let mut embedded = json!({ "$type": "app.bsky.embed.video", "video": video.reference()? });
    if let Some(alt) = video.alt_text.as_deref().filter(|alt| !alt.is_empty()) {
        embedded["alt"] = Value::from(alt);
    }
    if video.width > 0 && video.height > 0 {
        embedded["aspectRatio"] = json!({ "width": video.width, "height": video.height });
    }
    Ok(embedded)
}

/// Returns a link card in the lexicon's format.
fn external(card: &LinkCard) -> Value {
    let mut external = json!({ "uri": card.url, "title": card.title, "description": card.description });
    if let Some(blob) = &card.image {
        external["thumb"] = blob.clone();
    }
    external
}

/// Returns whether the record references uploads.
pub(super) fn has_uploads(post: &OutgoingPost) -> bool {
    !post.images.is_empty() || !post.videos.is_empty() || post.card.as_ref().is_some_and(|card| card.image.is_some())
}
