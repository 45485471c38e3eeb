//! Pictures: one by a prompt, as bytes that begin as a picture does; the media library looks at the rest.

use std::io::Cursor;

use bytes::Bytes;

use super::{AiError, Painter, Result};
use crate::domain::ai::{Quality, Size};
use crate::media::picture::{self, Limits};

/// What a picture may have is the library's to say.
const ANY: Limits = Limits { max_bytes: u64::MAX, max_pixels: u64::MAX };

/// What picture is wished for.
#[derive(Clone, Debug)]
pub struct PictureWish {
    pub prompt: String,
    pub size: Size,
    pub quality: Quality,
}

impl Painter<'_> {
    pub async fn picture(&self, wish: &PictureWish) -> Result<Bytes> {
        // What is left to the model is not said: not every server knows the word for it.
        let size = (wish.size != Size::Auto).then_some(("size", wish.size.as_str()));
        let quality = (wish.quality != Quality::Auto).then_some(("quality", wish.quality.as_str()));
        let options: Vec<_> = size.into_iter().chain(quality).collect();
        let bytes = self.provider.paint(self.model, &wish.prompt, &options).await?;
        picture::probe(Cursor::new(&bytes), &ANY).map_err(|why| AiError::Malformed(why.to_string()))?;
        Ok(bytes)
    }
}
