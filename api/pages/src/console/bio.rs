//! `/brands/{brand}/bio`, `…/bio/new` and `…/bio/{linkInBio}`: link-in-bio pages. `bio_link.rs` has the forms for their
//! links.

use askama::Template;
use crier_domain::bio_page::{LinkIcon, Theme};
use crier_endpoints::error::{ApiError, Result};
use crier_endpoints::routes::link_in_bio::{self, BioLink, LinkInBioPage};
use crier_endpoints::runner::call::Written;
use crier_store::media::{self, MediaFilter};
use crier_store::{Conn, PageRequest};
use http::StatusCode;
use serde_json::{Map, Value};

use super::post_rows::image;
use super::route::{Access, PageRoute};
use super::shared::{Choice, FieldErrors, Image};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors};

/// The number of images per page of the library.
const LIBRARY_PAGE: i64 = 12;
/// The maximum number of links in the preview.
const PREVIEW_LINKS: usize = 12;

#[derive(Template)]
#[template(path = "console/bio_pages.html")]
struct BioPages {
    shell: Shell,
    pages: Vec<BioRow>,
}

struct BioRow {
    id: i64,
    title: String,
    /// The URL of the public page.
    url: String,
    theme: String,
    links: usize,
    views: i64,
    clicks: i64,
}

#[derive(Template)]
#[template(path = "console/bio_page.html")]
struct BioPage {
    shell: Shell,
    /// Errors of `title`, `slug`, `theme`, `bio`, `avatar`.
    errors: FieldErrors,
    /// `None` for a new page.
    id: Option<i64>,
    title: String,
    slug: String,
    /// The URL before the slug: `https://crier.example/@`.
    base: String,
    themes: Vec<Choice>,
    bio: String,
    /// The selected image, then a page of the library.
    library: Vec<Image>,
    avatar: Option<i64>,
    library_prev: Option<String>,
    library_next: Option<String>,
    /// Empty for a new page.
    url: String,
    views: i64,
    clicks: i64,
    links: Vec<BioLinkRow>,
    preview: BioPreview,
}

struct BioLinkRow {
    id: i64,
    title: String,
    url: String,
    /// The name of the icon.
    icon: Option<&'static str>,
    is_primary: bool,
    clicks: i64,
}

/// The saved page, as visitors see it.
#[derive(Default)]
struct BioPreview {
    theme: &'static str,
    title: String,
    bio: String,
    avatar: Option<Image>,
    /// The title of each link, and whether it is primary.
    links: Vec<(String, bool)>,
    more_links: usize,
}

impl BioPage {
    fn is_avatar(&self, id: &i64) -> bool {
        self.avatar == Some(*id)
    }

    fn action(&self) -> String {
        self.id.map_or_else(|| self.shell.at("bio/new"), |id| self.shell.page("bio", id, ""))
    }

    fn slug_hint(&self) -> String {
        let empty = if self.id.is_some() { "it stays the same" } else { "it is created from the title" };
        format!("The part after {}. Letters a to z, digits and hyphens. If empty, {empty}.", self.base)
    }
}

/// The values of the form.
struct Values {
    title: String,
    slug: String,
    theme: String,
    bio: String,
    avatar: Option<i64>,
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::get("/brands/{brand}/bio", list).access(Access::Publisher),
        PageRoute::get("/brands/{brand}/bio/new", show_new).access(Access::Publisher),
        PageRoute::post("/brands/{brand}/bio/new", create).access(Access::Publisher),
        PageRoute::get("/brands/{brand}/bio/{linkInBio}", show).access(Access::Publisher),
        PageRoute::post("/brands/{brand}/bio/{linkInBio}", update).access(Access::Publisher),
        PageRoute::post("/brands/{brand}/bio/{linkInBio}/delete", delete).access(Access::Publisher),
    ]
}

async fn list(visit: &Visit) -> Result<PageReply> {
    let pages = visit.call().read(link_in_bio::list::endpoint(), ()).await?;
    let row = |page: LinkInBioPage| BioRow {
        id: page.id,
        title: page.title,
        url: page.url,
        theme: capitalized(page.theme.as_str()),
        links: page.links.len(),
        views: page.views,
        clicks: page.links.iter().map(|link| link.clicks).sum(),
    };
    let shell = visit.shell(Section::Bio, "Link in bio");
    visit.page(&BioPages { shell, pages: pages.into_iter().map(row).collect() })
}

pub fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

async fn show_new(visit: &Visit) -> Result<PageReply> {
    // Shows an error before the user fills in the form if the plan does not include these pages.
    visit.call().read(link_in_bio::list::endpoint(), ()).await?;
    let theme = Theme::Light.to_string();
    let values = Values { title: String::new(), slug: String::new(), theme, bio: String::new(), avatar: None };
    render(visit, StatusCode::OK, None, values, FieldErrors::default()).await
}

async fn show(visit: &Visit) -> Result<PageReply> {
    let page = visit.call().read(link_in_bio::show::endpoint(), ()).await?;
    let values = Values {
        title: page.title.clone(),
        slug: page.slug.clone(),
        theme: page.theme.to_string(),
        bio: page.bio.clone().unwrap_or_default(),
        avatar: page.avatar.as_ref().map(|avatar| avatar.id),
    };
    render(visit, StatusCode::OK, Some(page), values, FieldErrors::default()).await
}

async fn render(
    visit: &Visit,
    status: StatusCode,
    page: Option<LinkInBioPage>,
    values: Values,
    errors: FieldErrors,
) -> Result<PageReply> {
    let mut conn = visit.app.store.read().await?;
    let (library, library_prev, library_next) = library(visit, &mut conn, values.avatar).await?;
    drop(conn);
    let id = page.as_ref().map(|page| page.id);
    let title = page.as_ref().map_or("New page", |page| page.title.as_str());
    let theme = |one: &Theme| Choice::new(one.as_str(), &capitalized(one.as_str()), one.as_str() == values.theme);
    let view = BioPage {
        shell: visit.shell(Section::Bio, title),
        errors,
        id,
        base: format!("{}/@", visit.app.public_url),
        themes: Theme::ALL.iter().map(theme).collect(),
        title: values.title,
        slug: values.slug,
        bio: values.bio,
        library,
        avatar: values.avatar,
        library_prev,
        library_next,
        url: page.as_ref().map(|page| page.url.clone()).unwrap_or_default(),
        views: page.as_ref().map_or(0, |page| page.views),
        clicks: page.iter().flat_map(|page| &page.links).map(|link| link.clicks).sum(),
        preview: page.as_ref().map(|page| preview(visit, page)).unwrap_or_default(),
        links: page.into_iter().flat_map(|page| page.links).map(link_row).collect(),
    };
    visit.page_with(status, &view)
}

/// Returns the selected image with a page of the library, and the URLs of the previous and the next page.
async fn library(
    visit: &Visit,
    conn: &mut Conn,
    chosen: Option<i64>,
) -> Result<(Vec<Image>, Option<String>, Option<String>)> {
    let brand = visit.brand()?.0.id;
    let page = visit.query.get("library").and_then(|text| text.parse().ok()).filter(|page: &i64| *page >= 1);
    let page = page.unwrap_or(1);
    let filter = MediaFilter { asset_type: None, search: None };
    let found = media::list(conn, brand, &filter, PageRequest { page, per_page: LIBRARY_PAGE }).await?;
    let chosen = match chosen {
        Some(id) => media::find(conn, brand, id).await?,
        None => None,
    };
    let chosen_id = chosen.as_ref().map(|asset| asset.id);
    let others = found.rows.into_iter().filter(|asset| Some(asset.id) != chosen_id && asset.video.is_none());
    let images = chosen.into_iter().chain(others).map(|asset| image(visit, asset)).collect();
    let href = |page: i64| format!("?library={page}#f-avatar");
    let last = (found.total + LIBRARY_PAGE - 1) / LIBRARY_PAGE;
    Ok((images, (page > 1).then(|| href((page - 1).min(last.max(1)))), (page < last).then(|| href(page + 1))))
}

fn preview(visit: &Visit, page: &LinkInBioPage) -> BioPreview {
    let avatar = page.avatar.as_ref().map(|avatar| Image {
        id: avatar.id,
        src: avatar.thumbnail_url.as_deref().map(|url| visit.own_path(url)).unwrap_or_default(),
        filename: avatar.filename.clone(),
        alt: avatar.alt_text.clone().unwrap_or_default(),
        video: None,
    });
    BioPreview {
        theme: page.theme.as_str(),
        title: page.title.clone(),
        bio: page.bio.clone().unwrap_or_default(),
        avatar,
        links: page.links.iter().take(PREVIEW_LINKS).map(|link| (link.title.clone(), link.is_primary)).collect(),
        more_links: page.links.len().saturating_sub(PREVIEW_LINKS),
    }
}

fn link_row(link: BioLink) -> BioLinkRow {
    BioLinkRow {
        id: link.id,
        title: link.title,
        url: link.url,
        icon: link.icon.map(LinkIcon::as_str),
        is_primary: link.is_primary,
        clicks: link.clicks,
    }
}

fn fields(visit: &Visit) -> Map<String, Value> {
    let mut fields = visit.form.texts(&["title", "slug", "theme", "bio", "avatar"]);
    if let Ok(id) = visit.form.get("avatar").parse::<i64>() {
        fields.insert("avatar".to_owned(), id.into());
    }
    fields
}

/// Shows the form with the submitted values and their errors.
async fn render_errors(visit: &Visit, error: ApiError) -> Result<PageReply> {
    let errors = form_errors(error)?;
    let page = match visit.id("linkInBio") {
        Some(_) => Some(visit.call().read(link_in_bio::show::endpoint(), ()).await?),
        None => None,
    };
    let form = &visit.form;
    let values = Values {
        title: form.get("title").to_owned(),
        slug: form.get("slug").to_owned(),
        theme: form.get("theme").to_owned(),
        bio: form.get("bio").to_owned(),
        avatar: form.get("avatar").parse().ok(),
    };
    render(visit, StatusCode::UNPROCESSABLE_ENTITY, page, values, errors).await
}

async fn create(visit: &Visit) -> Result<PageReply> {
    let created = visit.call().write(link_in_bio::create::endpoint(), visit.parse(&fields(visit))).await;
    match created.and_then(Written::into_value) {
        Ok(created) => visit.to(&format!("bio/{}", created.id), "bio-made"),
        Err(error) => render_errors(visit, error).await,
    }
}

async fn update(visit: &Visit) -> Result<PageReply> {
    let mut body = fields(visit);
    // Null would keep the title; an empty title is rejected.
    body.insert("title".to_owned(), visit.form.text("title").unwrap_or_default().into());
    match visit.call().write(link_in_bio::update::endpoint(), visit.parse(&body)).await {
        Ok(_) => visit.to(&format!("bio/{}", visit.id("linkInBio").unwrap_or_default()), "bio-saved"),
        Err(error) => render_errors(visit, error).await,
    }
}

async fn delete(visit: &Visit) -> Result<PageReply> {
    visit.call().write(link_in_bio::delete::endpoint(), ()).await?;
    visit.to("bio", "bio-deleted")
}
