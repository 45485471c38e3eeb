//! `/brands/{brand}/posts?status=&search=&account=&label=&from=&to=&page=`: the posts of the brand.

use askama::Template;
use crier_domain::plan::Feature;
use crier_domain::post_import::PostExportFormat;
use crier_endpoints::admission::plan;
use crier_endpoints::error::{ApiError, Result};
use crier_endpoints::routes::posts::{export, list};
use http::StatusCode;

use super::lists;
use super::paging::PER_PAGE;
use super::post_labels::suggested_labels;
use super::post_list_filter::ListFilter;
use super::post_rows::{beginning, rows};
use super::route::PageRoute;
use super::shared::{Choice, FieldErrors, Link, Pages, PostRow};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit};

/// The maximum length of the text that names a post, in characters.
const MAX_NAME: usize = 60;
/// The units by which posts are moved.
const UNITS: [&str; 3] = ["minutes", "hours", "days"];

#[derive(Template)]
#[template(path = "console/posts.html")]
struct Posts {
    shell: Shell,
    /// The values are URLs that keep the other filters.
    statuses: Vec<Choice>,
    status: &'static str,
    search: String,
    accounts: Vec<Choice>,
    labels: Vec<Choice>,
    from: String,
    to: String,
    /// Whether the filters are shown: some are set, or there are posts.
    has_filters: bool,
    /// Whether a filter other than the status is set.
    is_filtered: bool,
    has_account: bool,
    /// The downloads of the posts in the list.
    exports: [Link; 2],
    rows: Vec<PostRow>,
    pages: Pages,
    errors: FieldErrors,
    /// The number of posts that were changed, if others were not.
    changed: usize,
    /// The posts that were not changed, with the reasons.
    unchanged: Vec<(Link, String)>,
    bar: Bar,
}

/// The bar with the actions on the selected posts.
struct Bar {
    /// The URL of the form, which keeps the filters and the page.
    action: String,
    /// The posts on the page with their versions ([`super::form::Form::shown`]).
    shown: String,
    has_approvals: bool,
    can_publish: bool,
    can_manage: bool,
    scheduled_at: String,
    amount: String,
    units: Vec<Choice>,
    label: String,
    suggested_labels: Vec<String>,
}

/// The selected posts, and what an action did.
#[derive(Default)]
pub struct Selection {
    pub ids: Vec<i64>,
    /// The errors of the form.
    pub errors: FieldErrors,
    /// The number of posts that were changed.
    pub changed: usize,
    /// The posts that were not changed, with the reasons.
    pub unchanged: Vec<(i64, String)>,
}

pub fn routes() -> Vec<PageRoute> {
    vec![PageRoute::get("/brands/{brand}/posts", read), PageRoute::get("/brands/{brand}/posts/export/{*}", download)]
}

/// Downloads the posts of the list, in the format that the path names.
async fn download(visit: &Visit) -> Result<PageReply> {
    let format = visit.word.as_deref().and_then(|word| word.parse::<PostExportFormat>().ok());
    let list = ListFilter::load(visit).await?.request;
    let request = export::ExportPosts {
        format: Some(format.ok_or_else(|| ApiError::not_found("format"))?),
        bom: None,
        status: list.status,
        search: list.search,
        label: list.label,
        account_id: list.account_id,
        from: list.from,
        to: list.to,
    };
    Ok(PageReply::File(Box::new(visit.call().stream(export::endpoint(), request).await?)))
}

async fn read(visit: &Visit) -> Result<PageReply> {
    show(visit, StatusCode::OK, Selection::default()).await
}

/// Shows the list. The bar contains the submitted values.
pub async fn show(visit: &Visit, status: StatusCode, selection: Selection) -> Result<PageReply> {
    let mut filter = ListFilter::load(visit).await?;
    let mut listed = visit.call().read(list::endpoint(), filter.request.clone()).await?;
    if listed.rows.is_empty() && listed.total > 0 {
        // The posts of the last page may have been deleted.
        filter.request.pages.page = (listed.total + PER_PAGE - 1) / PER_PAGE;
        listed = visit.call().read(list::endpoint(), filter.request.clone()).await?;
    }
    let has_filters = filter.is_filtered() || !filter.status().is_empty() || !listed.rows.is_empty();
    let suggested = if has_filters { suggested_labels(visit).await? } else { Vec::new() };
    let (page, shown) = (filter.request.pages.page, listed.rows.len());
    let mut conn = visit.app.store.read().await?;
    let mut rows = rows(visit, &mut conn, listed.rows).await?;
    drop(conn);
    for row in &mut rows {
        row.is_selected = selection.ids.contains(&row.id);
    }
    let shell = visit.shell(Section::Posts, "Posts");
    let path = shell.at("posts");
    let pairs = filter.pairs();
    let [_, search, _, _, from, to] = pairs.map(|(_, value)| value.to_owned());
    let page = Posts {
        statuses: filter.statuses(&path),
        status: filter.status(),
        search,
        labels: filter.labels(&suggested),
        from,
        to,
        has_filters,
        is_filtered: filter.is_filtered(),
        has_account: filter.has_account,
        exports: [("Export CSV", PostExportFormat::Csv), ("Export JSON", PostExportFormat::Json)]
            .map(|(label, format)| Link::new(label, &filter.address(&shell.at(&format!("posts/export/{format}"))))),
        bar: Bar::new(visit, filter.address(&shell.at("posts/bulk")), &rows, suggested)?,
        errors: selection.errors,
        changed: selection.changed,
        unchanged: selection.unchanged.into_iter().map(|(id, why)| (link(&shell, &rows, id), why)).collect(),
        rows,
        pages: lists::links(&path, &pairs, page, shown, listed.total),
        accounts: filter.accounts,
        shell,
    };
    visit.page_with(status, &page)
}

impl Bar {
    fn new(visit: &Visit, action: String, rows: &[PostRow], suggested_labels: Vec<String>) -> Result<Self> {
        let typed = |name| visit.form.get(name).to_owned();
        let unit = visit.form.get("unit");
        Ok(Self {
            action,
            shown: rows.iter().map(|row| format!("{}:{}", row.id, row.seen)).collect::<Vec<_>>().join(","),
            has_approvals: plan(&visit.app, &visit.authenticated.caller)?.has(Feature::Approvals),
            can_publish: visit.can_publish(),
            can_manage: visit.can_manage(),
            scheduled_at: typed("scheduled_at"),
            amount: typed("amount"),
            units: UNITS.map(|one| Choice::new(one, one, one == unit)).into(),
            label: typed("label"),
            suggested_labels,
        })
    }
}

/// Returns the link to a post, with the beginning of its text if the page shows it.
fn link(shell: &Shell, rows: &[PostRow], id: i64) -> Link {
    let text = rows.iter().find(|row| row.id == id).map(|row| beginning(&row.text, MAX_NAME));
    let name = text.filter(|text| !text.is_empty()).unwrap_or_else(|| format!("Post {id}"));
    Link::new(&name, &shell.post(id, ""))
}
