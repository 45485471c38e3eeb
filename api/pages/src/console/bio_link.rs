//! `/brands/{brand}/bio/{linkInBio}/links`: the links of a link-in-bio page.
//!
//! The API replaces all links of a page together. A link for which only the ID is sent does not change.

use askama::Template;
use crier_domain::bio_page::LinkIcon;
use crier_endpoints::error::{ApiError, ErrorCode, Result};
use crier_endpoints::fields::PatchField;
use crier_endpoints::routes::link_in_bio::update::{BioLinkEntry, LinkInBioPageChange};
use crier_endpoints::routes::link_in_bio::{self, BioLink, LinkInBioPage};
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::bio::capitalized;
use super::route::{Access, PageRoute};
use super::shared::{Choice, FieldErrors};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors};

#[derive(Template)]
#[template(path = "console/bio_link.html")]
struct BioLinkForm {
    shell: Shell,
    /// Errors of `title`, `url`, `icon`, `is_primary`: the paths of the API without `links.N.`.
    errors: FieldErrors,
    page: i64,
    page_title: String,
    /// `None` for a new link.
    id: Option<i64>,
    title: String,
    url: String,
    /// The first choice is "None", with an empty value.
    icons: Vec<Choice>,
    is_primary: bool,
    clicks: i64,
}

impl BioLinkForm {
    /// Returns the path of the link, or of an action on it.
    fn action(&self, action: &str) -> String {
        let list = format!("bio/{}/links", self.page);
        self.id.map_or_else(|| self.shell.page(&list, "new", ""), |id| self.shell.page(&list, id, action))
    }
}

/// The values of the form.
#[derive(Default)]
struct Values {
    title: String,
    url: String,
    icon: String,
    is_primary: bool,
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::post("/brands/{brand}/bio/{linkInBio}/links", reorder).access(Access::Publisher),
        PageRoute::get("/brands/{brand}/bio/{linkInBio}/links/new", show_new).access(Access::Publisher),
        PageRoute::post("/brands/{brand}/bio/{linkInBio}/links/new", create).access(Access::Publisher),
        PageRoute::get("/brands/{brand}/bio/{linkInBio}/links/{link}", show).access(Access::Publisher),
        PageRoute::post("/brands/{brand}/bio/{linkInBio}/links/{link}", update).access(Access::Publisher),
        PageRoute::post("/brands/{brand}/bio/{linkInBio}/links/{link}/delete", remove).access(Access::Publisher),
    ]
}

async fn load(visit: &Visit) -> Result<LinkInBioPage> {
    visit.call().read(link_in_bio::show::endpoint(), ()).await
}

/// Returns the link in the path. `None` if the path has none, for a new link.
fn find<'p>(visit: &Visit, page: &'p LinkInBioPage) -> Result<Option<&'p BioLink>> {
    let Some(id) = visit.id("link") else { return Ok(None) };
    page.links.iter().find(|link| link.id == id).map(Some).ok_or_else(|| ApiError::not_found("link on this page"))
}

async fn replace(visit: &Visit, links: Vec<Value>) -> Result<()> {
    let change = Map::from_iter([("links".to_owned(), Value::from(links))]);
    visit.call().write(link_in_bio::update::endpoint(), visit.parse(&change)).await.map(drop)
}

/// Keeps only these links, in this order.
async fn keep(visit: &Visit, ids: Vec<i64>) -> Result<()> {
    let links = ids.into_iter().map(|id| BioLinkEntry { id: Some(id), ..Default::default() }).collect();
    let change = LinkInBioPageChange { links: PatchField::Value(links), ..Default::default() };
    visit.call().write(link_in_bio::update::endpoint(), change).await.map(drop)
}

/// Redirects to the page of the links.
fn back(visit: &Visit, note: &'static str) -> Result<PageReply> {
    visit.to(&format!("bio/{}", visit.id("linkInBio").unwrap_or_default()), note)
}

async fn show_new(visit: &Visit) -> Result<PageReply> {
    render(visit, StatusCode::OK, &load(visit).await?, Values::default(), FieldErrors::default())
}

async fn show(visit: &Visit) -> Result<PageReply> {
    let page = load(visit).await?;
    let values = find(visit, &page)?.map(|link| Values {
        title: link.title.clone(),
        url: link.url.clone(),
        icon: link.icon.map_or("", LinkIcon::as_str).to_owned(),
        is_primary: link.is_primary,
    });
    render(visit, StatusCode::OK, &page, values.unwrap_or_default(), FieldErrors::default())
}

fn render(
    visit: &Visit,
    status: StatusCode,
    page: &LinkInBioPage,
    values: Values,
    errors: FieldErrors,
) -> Result<PageReply> {
    let link = find(visit, page)?;
    let icon = |one: &LinkIcon| Choice::new(one.as_str(), &capitalized(one.as_str()), one.as_str() == values.icon);
    let none = Choice::new("", "None", values.icon.is_empty());
    let view = BioLinkForm {
        shell: visit.shell(Section::Bio, if link.is_some() { "Link" } else { "New link" }),
        errors,
        page: page.id,
        page_title: page.title.clone(),
        id: link.map(|link| link.id),
        icons: [none].into_iter().chain(LinkIcon::ALL.iter().map(icon)).collect(),
        title: values.title,
        url: values.url,
        is_primary: values.is_primary,
        clicks: link.map_or(0, |link| link.clicks),
    };
    visit.page_with(status, &view)
}

/// Shows the form with the submitted values and the errors of its link.
fn render_errors(visit: &Visit, page: &LinkInBioPage, error: ApiError) -> Result<PageReply> {
    let form = &visit.form;
    let values = Values {
        title: form.get("title").to_owned(),
        url: form.get("url").to_owned(),
        icon: form.get("icon").to_owned(),
        is_primary: form.has("is_primary"),
    };
    render(visit, StatusCode::UNPROCESSABLE_ENTITY, page, values, form_errors(of_link(error))?)
}

/// Removes the position in the list from the paths of the errors.
fn of_link(error: ApiError) -> ApiError {
    let field = |path: &str| Some(path.strip_prefix("links.")?.split_once('.')?.1.to_owned());
    let fields = error.fields.into_iter().map(|(path, problems)| (field(&path).unwrap_or(path), problems)).collect();
    ApiError { fields, ..error }
}

/// Returns the link in the form. An empty title or URL is rejected; null would keep that of an existing link.
fn entry(visit: &Visit) -> Value {
    let form = &visit.form;
    let text = |name: &str| form.text(name).unwrap_or_default().to_owned();
    let mut entry = json!({ "title": text("title"), "url": text("url"), "icon": form.text("icon") });
    entry["is_primary"] = form.has("is_primary").into();
    if let Some(id) = visit.id("link") {
        entry["id"] = id.into();
    }
    entry
}

/// Returns a link that does not change, except that it is not primary if the link in the form becomes primary.
fn unchanged(visit: &Visit, link: &BioLink) -> Value {
    if visit.form.has("is_primary") { json!({ "id": link.id, "is_primary": false }) } else { json!({ "id": link.id }) }
}

async fn create(visit: &Visit) -> Result<PageReply> {
    let page = load(visit).await?;
    let links = page.links.iter().map(|link| unchanged(visit, link)).chain([entry(visit)]).collect();
    match replace(visit, links).await {
        Ok(()) => back(visit, "link-added"),
        Err(error) => render_errors(visit, &page, error),
    }
}

async fn update(visit: &Visit) -> Result<PageReply> {
    let page = load(visit).await?;
    let changed = find(visit, &page)?.map(|link| link.id);
    let one = |link: &BioLink| if Some(link.id) == changed { entry(visit) } else { unchanged(visit, link) };
    match replace(visit, page.links.iter().map(one).collect()).await {
        Ok(()) => back(visit, "link-saved"),
        Err(error) => render_errors(visit, &page, error),
    }
}

/// A link that does not exist is no error, because the form may have been sent twice.
async fn remove(visit: &Visit) -> Result<PageReply> {
    let page = load(visit).await?;
    let left: Vec<i64> = page.links.iter().map(|link| link.id).filter(|id| Some(*id) != visit.id("link")).collect();
    if left.len() < page.links.len() {
        keep(visit, left).await?;
    }
    back(visit, "link-removed")
}

/// Moves a link by one position: `up:ID` or `down:ID`.
async fn reorder(visit: &Visit) -> Result<PageReply> {
    let page = load(visit).await?;
    let mut ids: Vec<i64> = page.links.iter().map(|link| link.id).collect();
    let (direction, id) = visit.form.get("_action").split_once(':').unwrap_or_default();
    let position = id.parse().ok().and_then(|id: i64| ids.iter().position(|one| *one == id));
    let position = position.ok_or_else(|| ApiError::not_found("link on this page"))?;
    let other = match direction {
        "up" => position.checked_sub(1),
        "down" => Some(position + 1).filter(|next| *next < ids.len()),
        _ => None,
    };
    // The first link cannot move up, and the last link cannot move down.
    let Some(other) = other else { return back(visit, "") };
    ids.swap(position, other);
    match keep(visit, ids).await {
        Ok(()) => back(visit, "link-moved"),
        // Another link was moved from the same page. The order that it showed is no longer the current one.
        Err(error) if error.code == ErrorCode::IdempotencyKeyReused => back(visit, ""),
        Err(error) => Err(error),
    }
}
