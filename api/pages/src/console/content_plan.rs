//! `/brands/{brand}/plans/{plan}`: a content plan with its items.

use std::collections::HashMap;

use askama::Template;
use crier_domain::post::PostStatus;
use crier_endpoints::error::Result;
use crier_endpoints::routes::content_plans::{self, PlanItem};
use crier_store::{Conn, posts};
use http::StatusCode;

use super::days;
use super::lists;
use super::post_rows::beginning;
use super::route::PageRoute;
use super::shared::{Badge, FieldErrors, Pages, Time, Tone};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit, form_errors};

/// The maximum length of an item's text in the list, in characters.
const MAX_CONTENT_SHOWN: usize = 200;

#[derive(Template)]
#[template(path = "console/content_plan.html")]
struct ContentPlanPage {
    shell: Shell,
    /// Errors of the new item: `title`, `content`, `planned_at`.
    errors: FieldErrors,
    id: i64,
    name: String,
    description: String,
    days: String,
    /// A page of the items, by time.
    items: Vec<ItemRow>,
    pages: Pages,
    /// The submitted values of the new item.
    title: String,
    content: String,
    /// `YYYY-MM-DDTHH:MM`
    planned_at: String,
}

struct ItemRow {
    id: i64,
    title: String,
    /// The beginning of the text.
    content: String,
    at: Option<Time>,
    /// "Planned", or the status of its post.
    status: Badge,
    post: Option<i64>,
}

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::form("/brands/{brand}/plans/{plan}", render),
        PageRoute::post("/brands/{brand}/plans/{plan}/items", add_item),
    ]
}

/// Returns the statuses of the posts of the items, by post ID.
pub async fn post_statuses(
    visit: &Visit,
    conn: &mut Conn,
    items: impl IntoIterator<Item = &PlanItem>,
) -> Result<HashMap<i64, PostStatus>> {
    let ids: Vec<i64> = items.into_iter().filter_map(|item| item.post_id).collect();
    Ok(posts::statuses(conn, visit.brand()?.0.id, &ids).await?.into_iter().collect())
}

pub fn status(item: &PlanItem, posts: &HashMap<i64, PostStatus>) -> Badge {
    let post = item.post_id.and_then(|id| posts.get(&id));
    post.map_or_else(|| Badge::new(Tone::Plain, "Planned"), |status| Badge::post(status.as_str()))
}

async fn render(visit: &Visit, status: StatusCode, errors: FieldErrors) -> Result<PageReply> {
    let plan = visit.call().read(content_plans::show::endpoint(), ()).await?;
    let shell = visit.shell(Section::Plans, plan.name.clone());
    let (items, pages) = lists::paginate(visit, &shell.page("plans", plan.id, ""), plan.items);
    let mut conn = visit.app.store.read().await?;
    let posts = post_statuses(visit, &mut conn, &items).await?;
    drop(conn);
    let view = ContentPlanPage {
        shell,
        errors,
        id: plan.id,
        description: plan.description.unwrap_or_default(),
        days: days::range(plan.starts_on, plan.ends_on),
        items: items.into_iter().map(|item| row(visit, item, &posts)).collect(),
        pages,
        title: visit.form.get("title").to_owned(),
        content: visit.form.get("content").to_owned(),
        planned_at: visit.form.get("planned_at").to_owned(),
        name: plan.name,
    };
    visit.page_with(status, &view)
}

fn row(visit: &Visit, item: PlanItem, posts: &HashMap<i64, PostStatus>) -> ItemRow {
    ItemRow {
        id: item.id,
        status: status(&item, posts),
        content: beginning(item.content.as_deref().unwrap_or_default(), MAX_CONTENT_SHOWN),
        at: item.planned_at.map(|at| visit.time(at.0)),
        post: item.post_id,
        title: item.title,
    }
}

async fn add_item(visit: &Visit) -> Result<PageReply> {
    let request = visit.parse(&visit.form.texts(&["title", "content", "planned_at"]));
    match visit.call().write(content_plans::create_item::endpoint(), request).await {
        Ok(_) => visit.to(&format!("plans/{}", visit.id("plan").unwrap_or_default()), "item-added"),
        Err(error) => render(visit, StatusCode::UNPROCESSABLE_ENTITY, form_errors(error)?).await,
    }
}
