//! `/brands/{brand}/posts?status=&account=&page=`: the posts of the brand.

use askama::Template;
use crier_endpoints::error::Result;
use crier_store::PageRequest;
use crier_store::calendar::{self, PostFilter};

use super::paging::{self, PER_PAGE};
use super::post_filters::PostFilters;
use super::post_rows::rows;
use super::route::PageRoute;
use super::shared::{Choice, Pages, PostRow};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit};

#[derive(Template)]
#[template(path = "console/posts.html")]
struct Posts {
    shell: Shell,
    /// The choices of the filter `status`. The first one is "All", with an empty value.
    statuses: Vec<Choice>,
    /// The choices of the filter `account`, likewise.
    accounts: Vec<Choice>,
    is_filtered: bool,
    has_account: bool,
    rows: Vec<PostRow>,
    pages: Pages,
}

pub fn routes() -> Vec<PageRoute> {
    vec![PageRoute::get("/brands/{brand}/posts", list)]
}

async fn list(visit: &Visit) -> Result<PageReply> {
    let shell = visit.shell(Section::Posts, "Posts");
    let mut conn = visit.app.store.read().await?;
    let filters = PostFilters::load(visit, &mut conn).await?;
    let (status, account_id, page) = (filters.status, filters.account_id, paging::number(visit));
    let filter = PostFilter { brand_id: visit.brand()?.0.id, status, account_id };
    let found = calendar::list(&mut conn, filter, PageRequest { page, per_page: PER_PAGE }).await?;
    let href = |page: i64| filters.href(&shell.at("posts"), &[("page", &page.to_string())]);
    let page = Posts {
        pages: paging::links(page, PER_PAGE, found.rows.len(), found.total, href),
        // An empty page after the last one must not look like a brand without posts.
        is_filtered: filters.is_filtered() || found.rows.is_empty() && found.total > 0,
        rows: rows(visit, &mut conn, found.rows).await?,
        statuses: filters.statuses,
        accounts: filters.accounts,
        has_account: filters.has_account,
        shell,
    };
    visit.page(&page)
}
