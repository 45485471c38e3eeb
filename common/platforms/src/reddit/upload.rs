//! Image uploads: Reddit leases a location in its storage, to which the image is sent in a form.
//!
//! Source: github.com/praw-dev/praw 8 (`Subreddit._upload_media`). Reddit does not document these calls.

use crier_domain::failure::{Category, Failure};
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::super::call::{Effect, image_part};
use super::super::{CallError, Image};
use super::Reddit;
use super::rest::Session;

/// The maximum number of fields of the storage's form.
const MAX_FIELDS: usize = 50;

#[derive(Deserialize)]
struct Leased {
    args: Lease,
    asset: Asset,
}

#[derive(Deserialize)]
struct Lease {
    action: String,
    fields: Vec<Field>,
}

#[derive(Deserialize)]
struct Field {
    name: String,
    value: String,
}

#[derive(Deserialize)]
struct Asset {
    asset_id: String,
}

/// An uploaded image, as stored until the post is submitted.
#[derive(Deserialize)]
pub(super) struct Uploaded {
    /// For a post with one image.
    pub(super) url: String,
    /// For a gallery.
    pub(super) asset_id: String,
}

impl Uploaded {
    pub(super) fn of(image: &Image) -> Result<Self, CallError> {
        let unreadable = |_| {
            let message = "The upload of an image cannot be read. Crier uploads it again.";
            CallError::UploadsMissing(Failure::of(Category::Media, message))
        };
        serde_json::from_value(image.name()?.clone()).map_err(unreadable)
    }
}

impl Session<'_> {
    /// Uploads an image. The upload is not visible.
    pub(super) async fn upload(&self, image: &Image) -> Result<Value, CallError> {
        let file = image_part(image)?;
        let form = [("filepath", image.filename.as_str()), ("mimetype", image.mime_type.as_str())];
        let request = self.request(Method::POST, "/api/media/asset.json").query(&[("raw_json", "1")]).form(&form);
        let Leased { args, asset } = self.call(Effect::Repeatable, request).await?;
        let strange = |what: &str| {
            let message = format!("Reddit returned {what} for the image.");
            CallError::Transient(Failure::of(Category::PlatformError, message))
        };
        let place = if args.action.starts_with("//") { format!("https:{}", args.action) } else { args.action };
        if !self.reddit.is_storage(&place) {
            return Err(strange("an upload URL that is not its own"));
        }
        let key = args.fields.iter().find(|field| field.name == "key").map(|field| field.value.clone());
        let key = key.filter(|_| args.fields.len() <= MAX_FIELDS).ok_or_else(|| strange("no place"))?;
        let fields = args.fields.into_iter();
        let form = fields.fold(crier_http::multipart::Form::new(), |form, field| form.text(field.name, field.value));
        // Sends no token, because the form has its own signature.
        let request = self.client.request(Method::POST, &place).multipart(form.part("file", file));
        let response = self.client.send(Effect::Repeatable, request).await?;
        match response.status {
            status if status.is_success() => Ok(json!({ "url": format!("{place}/{key}"), "asset_id": asset.asset_id })),
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => {
                let message = "Reddit does not accept an image of this post; it may be too large.";
                Err(CallError::Permanent(Failure::of(Category::InvalidContent, message)))
            }
            // The lease expired meanwhile, or the storage is busy.
            _ => {
                Err(CallError::Transient(Failure::of(Category::Media, "Reddit's storage accepts no images right now.")))
            }
        }
    }
}

impl Reddit {
    /// Returns whether a URL from a response belongs to Reddit's storage.
    fn is_storage(&self, address: &str) -> bool {
        let Ok(url) = Url::parse(address) else { return false };
        let host = url.host_str().unwrap_or_default();
        let is_known = [".amazonaws.com", ".reddit.com", ".redditmedia.com"].iter().any(|end| host.ends_with(end));
        let is_configured = Url::parse(&self.api).is_ok_and(|api| api.origin() == url.origin());
        (url.scheme() == "https" && is_known) || is_configured
    }
}
