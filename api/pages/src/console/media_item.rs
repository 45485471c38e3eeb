//! `/brands/{brand}/media/{media}`: an image or a video of the library with its details.

use askama::Template;
use crier_domain::media::{Asset, AssetType, MediaType};
use crier_endpoints::error::{ApiError, Result};
use crier_endpoints::routes::media;
use crier_endpoints::routes::media::update::MediaChange;
use crier_endpoints::runner::call::Written;
use crier_store::media as assets;
use http::StatusCode;

use super::media::{src, types};
use super::route::PageRoute;
use super::shared::{Choice, FieldErrors, Time};
use super::shell::{Section, Shell};
use super::video::{details, type_label};
use super::visit::{PageReply, Visit, form_errors};
use crate::numbers::size;

#[derive(Template)]
#[template(path = "console/media_item.html")]
struct MediaItem {
    shell: Shell,
    errors: FieldErrors,
    id: i64,
    is_video: bool,
    src: String,
    /// The cover of a video, if it has one.
    cover: Option<String>,
    filename: String,
    alt_text: String,
    /// A video has no choice of its type.
    asset_types: Vec<Choice>,
    width: i32,
    height: i32,
    facts: Vec<(&'static str, String)>,
    created: Time,
    source_url: Option<String>,
    /// The public URL.
    url: String,
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::get("/brands/{brand}/media/{media}", show),
        PageRoute::post("/brands/{brand}/media/{media}", update),
        PageRoute::post("/brands/{brand}/media/{media}/delete", delete),
    ]
}

async fn find(visit: &Visit) -> Result<Asset> {
    let id = visit.id("media").unwrap_or_default();
    let found = assets::find(&mut visit.app.store.read().await?, visit.brand()?.0.id, id).await?;
    found.ok_or_else(|| ApiError::not_found("file"))
}

async fn show(visit: &Visit) -> Result<PageReply> {
    let asset = find(visit).await?;
    let values = Values {
        filename: asset.filename.clone(),
        alt_text: asset.alt_text.clone().unwrap_or_default(),
        asset_type: asset.asset_type.to_string(),
    };
    render(visit, StatusCode::OK, FieldErrors::default(), asset, values)
}

/// The values of the form.
struct Values {
    filename: String,
    alt_text: String,
    asset_type: String,
}

fn render(visit: &Visit, status: StatusCode, errors: FieldErrors, asset: Asset, values: Values) -> Result<PageReply> {
    let size = format!("{} × {}, {}", asset.width, asset.height, size(asset.size_bytes));
    let facts = [("Type", type_label(asset.mime_type).to_owned()), ("Size", size)];
    let view = MediaItem {
        shell: visit.shell(Section::Media, asset.filename),
        errors,
        id: asset.id,
        is_video: asset.mime_type.video().is_some(),
        src: src(visit, &asset.key),
        cover: asset.thumbnail_key.as_deref().map(|key| src(visit, key)),
        filename: values.filename,
        alt_text: values.alt_text,
        asset_types: types(&values.asset_type)
            .into_iter()
            .filter(|one| one.value != AssetType::Video.as_str())
            .collect(),
        width: asset.width,
        height: asset.height,
        facts: facts.into_iter().chain(asset.video.iter().flat_map(details)).collect(),
        created: visit.time(asset.created_at),
        source_url: asset.source_url,
        url: visit.app.library.url(&asset.key),
    };
    visit.page_with(status, &view)
}

/// Returns the key of a message about an image or a video ([`super::flash`]).
const fn note(mime_type: MediaType, of_image: &'static str, of_video: &'static str) -> &'static str {
    if mime_type.video().is_some() { of_video } else { of_image }
}

async fn update(visit: &Visit) -> Result<PageReply> {
    let form = &visit.form;
    let mut fields = form.texts(&["alt_text"]);
    // Fields that the form does not contain keep their values. An empty name is rejected.
    for name in ["filename", "asset_type"] {
        if form.has(name) {
            fields.insert(name.to_owned(), form.get(name).trim().into());
        }
    }
    let saved = visit.call().write(media::update::endpoint(), visit.parse::<MediaChange>(&fields)).await;
    let error = match saved.and_then(Written::into_value) {
        Ok(asset) => {
            let key = note(asset.mime_type, "media-saved", "video-saved");
            return visit.to(&format!("media/{}", asset.id), key);
        }
        Err(error) => error,
    };
    let errors = form_errors(error)?;
    let values = Values {
        filename: form.get("filename").to_owned(),
        alt_text: form.get("alt_text").to_owned(),
        asset_type: form.get("asset_type").to_owned(),
    };
    render(visit, StatusCode::UNPROCESSABLE_ENTITY, errors, find(visit).await?, values)
}

async fn delete(visit: &Visit) -> Result<PageReply> {
    let asset = find(visit).await;
    visit.call().write(media::delete::endpoint(), ()).await?;
    // If the form is sent again, the file no longer exists.
    let key = asset.map_or("media-deleted", |asset| note(asset.mime_type, "media-deleted", "video-deleted"));
    visit.to("media", key)
}
