//! Uploads: Reddit leases a location in its storage, to which the file is sent in a form.
//!
//! Source: github.com/praw-dev/praw 8 (`Subreddit._upload_media`). Reddit does not document these calls.

use crier_domain::failure::{Category, Failure};
use crier_http::multipart::Part;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::call::{Effect, image_part};
use super::super::upload_urls::{Delivery, MAX_FIELDS, is_at, send_form};
use super::super::{CallError, Image};
use super::rest::Session;

const DOMAINS: [&str; 3] = ["amazonaws.com", "reddit.com", "redditmedia.com"];

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

/// A file to upload.
pub(super) struct File<'a> {
    pub(super) name: &'a str,
    pub(super) mime_type: &'a str,
    pub(super) part: Part,
    /// In bytes.
    pub(super) length: u64,
    /// What the file is in error messages, such as "an image".
    pub(super) noun: &'static str,
}

/// An uploaded file.
pub(super) struct StoredFile {
    pub(super) url: String,
    pub(super) asset_id: String,
}

impl Session<'_> {
    /// Uploads an image. The upload is not visible.
    pub(super) async fn upload(&self, image: &Image) -> Result<Value, CallError> {
        let stored = self.store(image_file(image, "an image")?).await?;
        Ok(json!({ "url": stored.url, "asset_id": stored.asset_id }))
    }

    /// Uploads a file to a new location.
    pub(super) async fn store(&self, file: File<'_>) -> Result<StoredFile, CallError> {
        let File { name, mime_type, part, length, noun } = file;
        let form = [("filepath", name), ("mimetype", mime_type)];
        let request = self.request(Method::POST, "/api/media/asset.json").query(&[("raw_json", "1")]).form(&form);
        let Leased { args, asset } = self.call(Effect::Repeatable, request).await?;
        let strange = |what: &str| {
            let message = format!("Reddit returned {what} for {noun}.");
            CallError::Transient(Failure::of(Category::PlatformError, message))
        };
        let place = if args.action.starts_with("//") { format!("https:{}", args.action) } else { args.action };
        if !is_at(&place, &DOMAINS, &self.reddit.api) {
            return Err(strange("an upload URL on another host"));
        }
        let key = args.fields.iter().find(|field| field.name == "key").map(|field| field.value.clone());
        let key = key.filter(|_| args.fields.len() <= MAX_FIELDS).ok_or_else(|| strange("no location"))?;
        let fields = args.fields.into_iter().map(|field| (field.name, field.value));
        match send_form(&self.client, &place, fields, part, length).await? {
            Delivery::Stored => Ok(StoredFile { url: format!("{place}/{key}"), asset_id: asset.asset_id }),
            Delivery::TooLarge | Delivery::Rejected => {
                let message = format!("Reddit does not accept {noun} of this post; it may be too large.");
                Err(CallError::invalid(message))
            }
            // The next attempt leases another location.
            Delivery::Expired | Delivery::Unavailable => {
                let message = "Reddit's storage does not accept files at the moment.";
                Err(CallError::Transient(Failure::of(Category::Media, message)))
            }
        }
    }
}

/// Returns an image as a file to upload.
pub(super) fn image_file<'a>(image: &'a Image, noun: &'static str) -> Result<File<'a>, CallError> {
    Ok(File {
        name: &image.filename,
        mime_type: &image.mime_type,
        part: image_part(image)?,
        length: u64::try_from(image.bytes.len()).unwrap_or(u64::MAX),
        noun,
    })
}
