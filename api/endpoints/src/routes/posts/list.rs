//! `GET /brands/{brand}/posts`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::post::{self, PostStatus};
use crier_store::{Conn, posts, targets};
use schemars::JsonSchema;
use serde::Serialize;

use super::{PostFields, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::pagination;
use crate::request::{Pages, Parsed, Request};
use crate::response::{Listed, Paged, Reply, Timestamp};

/// The number of posts that fit into a response whatever their size, so that their sizes need not be queried first.
const ALWAYS_FITTING_POSTS: i64 = 30;

/// A post in a list.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Post {
    pub id: i64,
    #[serde(flatten)]
    pub fields: PostFields,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The posts to list.
#[derive(Clone, Debug, Default, Request)]
pub struct ListPosts {
    #[field(flatten)]
    pub pages: Pages,
    /// Only posts with this status.
    #[field(enum_value())]
    pub status: Option<PostStatus>,
}

pub fn endpoint() -> Endpoint<ListPosts, Paged<Post>> {
    Endpoint::get("/brands/{brand}/posts", "listPosts", Scope::PostsRead)
        .tag(TAG)
        .summary("List a brand's posts, newest first")
        .description(
            "A page has at most 8 MiB. If its posts are larger, it ends early: `meta.per_page` is the number of posts \
             that fit, and `links.next` continues after them.",
        )
        .checks_then_reads(list)
}

async fn list(cx: &Context, conn: &mut Conn, parsed: Arc<Parsed<ListPosts>>) -> Result<Reply<Listed<Post>>> {
    let &ListPosts { pages, status } = parsed.valid()?;
    let mut page = pages.request();
    let brand = cx.brand()?.id;
    // More posts could exceed the memory of one request before they are serialized.
    if page.per_page > ALWAYS_FITTING_POSTS {
        let fit = posts::count_fitting(conn, brand, status, page, pagination::MAX_BYTES).await?;
        page = pagination::shorten_page(page, fit);
    }
    let found = posts::list(conn, brand, status, page).await?;
    let ids: Vec<i64> = found.rows.iter().map(|p| p.id).collect();
    let target_summaries = targets::target_summaries(conn, &ids).await?;
    let rows = found.rows.into_iter().map(|post| {
        let own: Vec<_> = target_summaries.iter().filter(|b| b.post_id == post.id).cloned().collect();
        Post::new(post, &own)
    });
    Ok(Listed { page, rows: rows.collect(), total: found.total }.into())
}

impl Post {
    fn new(p: post::Post, targets: &[targets::TargetSummary]) -> Self {
        let (id, created_at, updated_at) = (p.id, p.created_at.into(), p.updated_at.into());
        let targets = targets.iter().map(|t| (t.account_id, t.status, t.error.as_ref()));
        Self { id, fields: PostFields::new(p, targets), created_at, updated_at }
    }
}
