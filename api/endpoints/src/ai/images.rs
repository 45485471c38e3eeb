//! Generates an image from a prompt. Only the start of the file is checked here; the media library checks the rest.

use std::io::Cursor;

use bytes::Bytes;
use crier_domain::ai::{Quality, Size};
use crier_media::images::{self, Limits};

use super::{AiError, ImageModel, Result};

/// No limits: the media library enforces them.
const NO_LIMITS: Limits = Limits { max_bytes: u64::MAX, max_pixels: u64::MAX };

/// A request for an image.
#[derive(Clone, Debug)]
pub struct ImageRequest {
    pub prompt: String,
    pub size: Size,
    pub quality: Quality,
}

impl ImageModel<'_> {
    pub async fn generate_image(&self, request: &ImageRequest) -> Result<Bytes> {
        // `auto` is omitted, because not every server knows the value.
        let size = (request.size != Size::Auto).then_some(("size", request.size.as_str()));
        let quality = (request.quality != Quality::Auto).then_some(("quality", request.quality.as_str()));
        let options: Vec<_> = size.into_iter().chain(quality).collect();
        let bytes = self.provider.generate_image(self.model, &request.prompt, &options).await?;
        images::probe(Cursor::new(&bytes), &NO_LIMITS).map_err(|why| AiError::Malformed(why.to_string()))?;
        Ok(bytes)
    }
}
