//! `/brands/{brand}/media/{media}`: an image of the library with its details.

use askama::Template;
use crier_domain::media::{Asset, MediaType};
use crier_endpoints::error::{ApiError, Result};
use crier_endpoints::routes::media;
use crier_endpoints::routes::media::update::MediaChange;
use crier_store::media as assets;
use http::StatusCode;

use super::media::{size, src, types};
use super::route::PageRoute;
use super::shared::{Choice, FieldErrors, Time};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors};

#[derive(Template)]
#[template(path = "console/media_item.html")]
struct MediaItem {
    shell: Shell,
    errors: FieldErrors,
    id: i64,
    src: String,
    filename: String,
    alt_text: String,
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
    found.ok_or_else(|| ApiError::not_found("image"))
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
    let kind = match asset.mime_type {
        MediaType::Jpeg => "JPEG",
        MediaType::Png => "PNG",
        MediaType::Gif => "GIF",
        MediaType::Webp => "WebP",
        MediaType::Mp4 => "MP4",
        MediaType::Mov => "MOV",
        MediaType::Webm => "WebM",
    };
    let view = MediaItem {
        shell: visit.shell(Section::Media, asset.filename),
        errors,
        id: asset.id,
        src: src(visit, &asset.key),
        filename: values.filename,
        alt_text: values.alt_text,
        asset_types: types(&values.asset_type),
        width: asset.width,
        height: asset.height,
        facts: vec![
            ("Type", kind.to_owned()),
            ("Size", format!("{} × {}, {}", asset.width, asset.height, size(asset.size_bytes))),
        ],
        created: visit.time(asset.created_at),
        source_url: asset.source_url,
        url: visit.app.library.url(&asset.key),
    };
    visit.page_with(status, &view)
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
    let error = match visit.call().write(media::update::endpoint(), visit.parse::<MediaChange>(&fields)).await {
        Ok(_) => return visit.to(&format!("media/{}", visit.id("media").unwrap_or_default()), "media-saved"),
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
    visit.call().write(media::delete::endpoint(), ()).await?;
    visit.to("media", "media-deleted")
}
