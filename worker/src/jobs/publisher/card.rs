//! The link card of a post, on platforms where the client makes it: reading the page, and uploading the image.
//!
//! A card never fails a post, and a page delays it by at most [`MAX_READ`] and [`MAX_UPLOAD`]. If the page cannot be
//! read, the post is published without a card; if the image cannot be read or uploaded, with a card without an image.
//!
//! Nothing is stored, because nothing depends on the same card being made again. If the process dies
//! - *while it reads or uploads*, nothing is published: the platform deletes an image that no post references, and the
//!   next run starts over.
//! - *after the start of the call was stored*, the next run looks up the post by its marker, which does not depend on
//!   the card. If the post does not exist, that run reads the page again. Should the earlier call arrive after all, the
//!   platform rejects the second one, because its marker is taken, even if the card is different.
//! - *after the call*, the lookup finds the post.

use std::time::Duration;

use crier_domain::media::Asset;
use crier_media::images::FittedImage;
use crier_media::rendition::estimate_conversion_bytes;
use crier_platforms::link_card::{CardReader, CardRequest, READ_TIMEOUT};
use crier_platforms::{Image, LinkCard};
use serde_json::Value;
use tokio::time::timeout;

use super::images::rules_of;
use super::{PublishCall, Publisher, Step};
use crate::engine::Run;

/// The maximum time to read a page and its image.
const MAX_READ: Duration = Duration::from_secs(10);
/// The maximum time to upload the image. After an expired token is renewed, the upload has this time again.
const MAX_UPLOAD: Duration = Duration::from_secs(10);

impl Publisher {
    /// Makes the link cards of all posts that have one.
    pub(super) async fn prepare_cards(&self, run: &Run, p: &mut PublishCall) -> Step<()> {
        for part in 0..p.parts.len() {
            p.parts[part].post.card = match p.parts[part].card.clone() {
                Some(request) => self.make_card(run, p, part, &request).await?,
                None => None,
            };
        }
        Ok(())
    }

    async fn make_card(
        &self,
        run: &Run,
        p: &mut PublishCall,
        part: usize,
        request: &CardRequest,
    ) -> Step<Option<LinkCard>> {
        let Some((card, image)) = run.wait_without_slot(self.read_card(p, part, request)).await else {
            return Ok(None);
        };
        let image = match image {
            Some(image) => self.upload_card_image(run, p, &image).await?,
            None => None,
        };
        Ok(Some(LinkCard { image, ..card }))
    }

    /// Returns the card without its image, and the image for the platform. `None` if there is no card.
    async fn read_card(
        &self,
        p: &PublishCall,
        part: usize,
        request: &CardRequest,
    ) -> Option<(LinkCard, Option<Image>)> {
        let cards = self.cards.of_workspace(p.session.account.workspace_id);
        let page = if request.needs_page() { cards.page(&request.url).await } else { None };
        let card = request.card(page.as_ref())?;
        if p.memory.is_some() {
            // A run that holds memory must not wait for more.
            return Some((card, None));
        }
        let image = match request.media_id {
            Some(_) => match &p.parts[part].card_image {
                Some(asset) => self.library_image(p, asset).await,
                None => None,
            },
            None => {
                let url = page.and_then(|page| page.image);
                timeout(MAX_READ - READ_TIMEOUT, self.page_image(p, &cards, url)).await.ok().flatten()
            }
        };
        Some((card, image.map(to_image)))
    }

    /// Returns the image of the page, within the limits of the platform.
    async fn page_image(&self, p: &PublishCall, cards: &CardReader, url: Option<String>) -> Option<FittedImage> {
        let image = cards.image(&url?).await.ok()?;
        let converted = self.library.convert(image.bytes.clone(), &rules_of(p)).await;
        converted.inspect_err(|error| tracing::debug!(%error, "failed to convert the image of a link card")).ok()
    }

    /// Returns the image from the library, within the limits of the platform.
    async fn library_image(&self, p: &PublishCall, asset: &Asset) -> Option<FittedImage> {
        let rules = rules_of(p);
        let _permit = self.library.budget().share(estimate_conversion_bytes(asset, &rules)).await;
        let rendered = self.library.render(&asset.key, asset.mime_type.image()?, &rules).await;
        rendered.inspect_err(|error| tracing::warn!(%error, media = asset.id, "failed to load an image")).ok()
    }

    /// Uploads the image. Returns the platform's reference, or `None` if the upload fails. Refreshes an expired access
    /// token once.
    async fn upload_card_image(&self, run: &Run, p: &mut PublishCall, image: &Image) -> Step<Option<Value>> {
        let uploaded = self.try_upload(run, p, image, MAX_UPLOAD).await?;
        Ok(uploaded.inspect_err(|error| tracing::info!(%error, "failed to upload the image of a link card")).ok())
    }
}

fn to_image(fitted: FittedImage) -> Image {
    Image {
        id: 0,
        bytes: fitted.bytes,
        mime_type: fitted.kind.to_string(),
        filename: format!("card.{}", fitted.kind.extension()),
        alt_text: None,
        width: fitted.width,
        height: fitted.height,
        url: String::new(),
        uploaded: None,
    }
}
