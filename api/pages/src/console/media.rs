//! `/brands/{brand}/media`: the images and videos of the brand, and the forms to upload and import them.

use askama::Template;
use crier_domain::media::{Asset, AssetType, MediaJob, MediaJobStatus, MediaType};
use crier_endpoints::error::{ApiError, ErrorCode, Result};
use crier_endpoints::routes::media;
use crier_endpoints::routes::media::from_url::ImportMediaRequest;
use crier_endpoints::runner::call::Written;
use crier_store::media::{self as assets, MediaFilter};
use crier_store::{PageRequest, brands, files, media_jobs};
use http::StatusCode;
use unicode_normalization::UnicodeNormalization;

use super::form::Form;
use super::lists;
use super::paging;
use super::post_rows::image;
use super::route::PageRoute;
use super::shared::{Badge, Choice, FieldErrors, Image, Pages, Time, Tone};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors};
use crate::numbers::{number, size};

/// The maximum number of imports that are shown, newest first.
const MAX_IMPORTS: i64 = 10;
/// The maximum length of the search text, in characters. The rest is ignored, as in the API.
const MAX_SEARCH: usize = 200;

#[derive(Template)]
#[template(path = "console/media.html")]
struct MediaPage {
    shell: Shell,
    /// Errors of the upload form.
    errors: FieldErrors,
    /// Errors of the import form.
    import_errors: FieldErrors,
    tiles: Vec<Tile>,
    pages: Pages,
    search: String,
    types: Vec<Choice>,
    is_filtered: bool,
    /// The submitted values of the upload form.
    alt_text: String,
    asset_types: Vec<Choice>,
    /// The submitted values of the import form.
    url: String,
    import_types: Vec<Choice>,
    import_alt_text: String,
    imports: Vec<ImportRow>,
    /// The storage in use. Empty if there is no limit.
    storage: String,
    max_size: String,
}

struct Tile {
    image: Image,
    facts: String,
}

struct ImportRow {
    source_url: String,
    status: Badge,
    error: Option<String>,
    /// The ID of the imported file. `None` until the import succeeds.
    media: Option<i64>,
    at: Time,
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::get("/brands/{brand}/media", list),
        PageRoute::post("/brands/{brand}/media", upload),
        PageRoute::post("/brands/{brand}/media/import", import),
    ]
}

async fn list(visit: &Visit) -> Result<PageReply> {
    let (errors, import_errors) = (FieldErrors::default(), FieldErrors::default());
    render(visit, StatusCode::OK, errors, import_errors, &Form::default()).await
}

/// `sent`: the submitted fields of the upload form.
async fn render(
    visit: &Visit,
    status: StatusCode,
    errors: FieldErrors,
    import_errors: FieldErrors,
    sent: &Form,
) -> Result<PageReply> {
    let brand = visit.brand()?.0;
    let page = paging::number(visit);
    let search = search(visit);
    let asset_type: Option<AssetType> = visit.query.get("asset_type").and_then(|word| word.parse().ok());
    let filter = MediaFilter { asset_type, search: Some(search.as_str()).filter(|text| !text.is_empty()) };
    let mut conn = visit.app.store.read().await?;
    let found = assets::list(&mut conn, brand.id, &filter, PageRequest { page, per_page: paging::PER_PAGE }).await?;
    let imports = media_jobs::newest(&mut conn, brand.id, MAX_IMPORTS).await?;
    let plan = brands::plan_of(&mut conn, brand.id).await?;
    let used = files::usage(&mut conn, brand.workspace_id).await?;
    drop(conn);
    let limit = plan.and_then(|(_, plan)| visit.app.plans.get(&plan)?.storage_mib);
    let chosen = asset_type.map_or("", AssetType::as_str);
    let shell = visit.shell(Section::Media, "Media");
    let filters = [("search", search.as_str()), ("asset_type", chosen)];
    let view = MediaPage {
        errors,
        import_errors,
        pages: lists::links(&shell.at("media"), &filters, page, found.rows.len(), found.total),
        tiles: found.rows.into_iter().map(|asset| tile(visit, asset)).collect(),
        types: [Choice::new("", "All", chosen.is_empty())].into_iter().chain(kinds(chosen)).collect(),
        is_filtered: !search.is_empty() || asset_type.is_some(),
        alt_text: sent.get("alt_text").to_owned(),
        asset_types: types(sent.text("asset_type").unwrap_or(AssetType::Image.as_str())),
        import_types: types(visit.form.text("asset_type").unwrap_or(AssetType::Image.as_str())),
        url: visit.form.get("url").to_owned(),
        import_alt_text: visit.form.get("alt_text").to_owned(),
        imports: imports.into_iter().map(|job| import_row(visit, job)).collect(),
        storage: limit.map_or_else(String::new, |limit| {
            format!("The workspace uses {} of {} MiB.", number(used.mib()), number(limit))
        }),
        max_size: size(i64::try_from(visit.app.library.limits().max_bytes).unwrap_or(i64::MAX)),
        search,
        shell,
    };
    visit.page_with(status, &view)
}

/// Returns the search text without what the API would reject.
fn search(visit: &Visit) -> String {
    let typed = visit.query.get("search").unwrap_or_default().trim();
    typed.nfc().filter(|c| *c != '\0').take(MAX_SEARCH).collect()
}

/// Returns the choices of the filter by asset type.
fn kinds(chosen: &str) -> impl Iterator<Item = Choice> {
    types(chosen).into_iter().map(|choice| Choice { label: format!("{}s", choice.label), ..choice })
}

/// Returns the choices of the asset type.
pub fn types(chosen: &str) -> Vec<Choice> {
    let label = |one: AssetType| match one {
        AssetType::Image => "Image",
        AssetType::Icon => "Icon",
        AssetType::Logo => "Logo",
        AssetType::Video => "Video",
    };
    AssetType::ALL.iter().map(|one| Choice::new(one.as_str(), label(*one), one.as_str() == chosen)).collect()
}

/// Returns the path of a file on this host.
pub fn src(visit: &Visit, key: &str) -> String {
    visit.own_path(&visit.app.library.url(key))
}

fn tile(visit: &Visit, asset: Asset) -> Tile {
    let facts = format!("{} × {}, {}", asset.width, asset.height, size(asset.size_bytes));
    let image = image(visit, asset);
    Tile { facts: image.video.as_ref().map_or(facts, |video| video.facts.clone()), image }
}

fn import_row(visit: &Visit, job: MediaJob) -> ImportRow {
    let status = match job.status {
        MediaJobStatus::Pending if job.error.is_some() => Badge::new(Tone::Warn, "Retrying"),
        MediaJobStatus::Pending => Badge::new(Tone::Plain, "Waiting"),
        MediaJobStatus::Processing => Badge::new(Tone::Info, "Importing"),
        MediaJobStatus::Completed => Badge::new(Tone::Good, "Done"),
        MediaJobStatus::Failed => Badge::new(Tone::Bad, "Failed"),
    };
    ImportRow {
        source_url: job.source_url,
        status,
        error: job.error.map(|error| error.message),
        media: job.media_id,
        at: visit.time(job.updated_at),
    }
}

/// Uploads a file. Responds to the script with the ID, and to a form with a redirect.
async fn upload(visit: &Visit) -> Result<PageReply> {
    let mut sent = Form::default();
    let written = visit.call().upload(media::upload::endpoint(), &mut sent).await;
    let error = match written.and_then(Written::into_value) {
        Ok(asset) if visit.is_fetch => return Ok(PageReply::Text(StatusCode::CREATED, asset.id.to_string())),
        Ok(asset) => return visit.to("media", uploaded(asset.mime_type)),
        Err(error) if visit.is_fetch => return Err(error),
        Err(error) => error,
    };
    render(visit, StatusCode::UNPROCESSABLE_ENTITY, upload_errors(error)?, FieldErrors::default(), &sent).await
}

/// Returns the errors that the upload form shows.
pub fn upload_errors(error: ApiError) -> Result<FieldErrors> {
    let is_file = matches!(error.code, ErrorCode::UnsupportedMediaType | ErrorCode::PayloadTooLarge);
    if is_file { Ok(at_field("file", &error)) } else { form_errors(error) }
}

/// Returns the key of the message about a new file ([`super::flash`]).
pub const fn uploaded(mime_type: MediaType) -> &'static str {
    if mime_type.video().is_some() { "video-uploaded" } else { "media-uploaded" }
}

/// Returns the error of a request as an error of the field that caused it.
fn at_field(field: &str, error: &ApiError) -> FieldErrors {
    FieldErrors::new([(field, vec![error.message.to_string()])])
}

async fn import(visit: &Visit) -> Result<PageReply> {
    let mut fields = visit.form.texts(&["url", "alt_text"]);
    if let Some(kind) = visit.form.text("asset_type") {
        fields.insert("asset_type".to_owned(), kind.into());
    }
    let request = visit.parse::<ImportMediaRequest>(&fields);
    let error = match visit.call().write(media::from_url::endpoint(), request).await {
        Ok(_) => return visit.to("media", "media-importing"),
        Err(error) => error,
    };
    let errors = if error.code == ErrorCode::InvalidSourceUrl { at_field("url", &error) } else { form_errors(error)? };
    render(visit, StatusCode::UNPROCESSABLE_ENTITY, FieldErrors::default(), errors, &Form::default()).await
}
