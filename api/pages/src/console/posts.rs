//! `/brands/{brand}/posts?status=&search=&account=&label=&from=&to=&page=`: the posts of the brand.

use askama::Template;
use crier_domain::post::Post;
use crier_endpoints::error::Result;
use crier_endpoints::routes::posts::list;

use super::lists;
use super::paging::PER_PAGE;
use super::post_labels::suggested_labels;
use super::post_list_filter::ListFilter;
use super::post_rows::rows;
use super::route::PageRoute;
use super::shared::{Choice, Pages, PostRow};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit};

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
    /// Whether a filter other than the status is set.
    is_filtered: bool,
    has_account: bool,
    rows: Vec<PostRow>,
    pages: Pages,
}

pub fn routes() -> Vec<PageRoute> {
    vec![PageRoute::get("/brands/{brand}/posts", show)]
}

async fn show(visit: &Visit) -> Result<PageReply> {
    let mut filter = ListFilter::load(visit).await?;
    let mut listed = visit.call().read(list::endpoint(), filter.request.clone()).await?;
    if listed.rows.is_empty() && listed.total > 0 {
        // The posts of the last page may have been deleted.
        filter.request.pages.page = (listed.total + PER_PAGE - 1) / PER_PAGE;
        listed = visit.call().read(list::endpoint(), filter.request.clone()).await?;
    }
    let suggested = suggested_labels(visit).await?;
    let brand = visit.brand()?.0.id;
    let (page, shown) = (filter.request.pages.page, listed.rows.len());
    let posts = listed.rows.into_iter().map(|post| to_stored(brand, post)).collect();
    let mut conn = visit.app.store.read().await?;
    let rows = rows(visit, &mut conn, posts).await?;
    drop(conn);
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
        is_filtered: filter.is_filtered(),
        has_account: filter.has_account,
        rows,
        pages: lists::links(&path, &pairs, page, shown, listed.total),
        accounts: filter.accounts,
        shell,
    };
    visit.page(&page)
}

/// Returns the post that a row shows.
fn to_stored(brand_id: i64, post: list::Post) -> Post {
    let fields = post.fields;
    Post {
        id: post.id,
        status: fields.status,
        content: fields.content,
        schedule_type: fields.schedule_type,
        scheduled_at: fields.scheduled_at.map(|at| at.0),
        published_at: fields.published_at.map(|at| at.0),
        media: fields.media,
        labels: fields.labels,
        updated_at: post.updated_at.0,
        ..Post::draft(brand_id, post.created_at.0)
    }
}
