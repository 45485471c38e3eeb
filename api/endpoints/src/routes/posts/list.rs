//! `GET /brands/{brand}/posts`

use std::sync::Arc;

use chrono::{DateTime, Utc};
use crier_domain::access::Scope;
use crier_domain::post::{self, MAX_LABEL, PostSort, PostStatus};
use crier_domain::words;
use crier_store::posts::{self, PostFilter};
use crier_store::targets::{self, TargetSummary};
use crier_store::{Conn, Page, PageRequest};
use schemars::JsonSchema;
use serde::Serialize;

use super::request::MAX_CONTENT_CHARS;
use super::thread::failed_part_of;
use super::{PostFields, TAG, TargetError};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::fields::Fields;
use crate::pagination;
use crate::request::{Pages, Parsed, Request};
use crate::response::{Listed, Paged, Reply, Timestamp};
use crate::routes::conversations::list::{MAX_SEARCH_CHARS, trimmed};
use crate::runner::body::MAX_JSON_BYTES;

/// The maximum size of a post's texts, in bytes: the thread, which is sent in one request, and the text and the comment,
/// whose characters have at most four bytes.
const MAX_TEXT_BYTES: usize = MAX_JSON_BYTES + 2 * 4 * MAX_CONTENT_CHARS;
/// The number of posts that fit into a response whatever their size, so that their sizes need not be queried first.
const ALWAYS_FITTING_POSTS: i64 = (pagination::MAX_BYTES / MAX_TEXT_BYTES) as i64;

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
#[request(check = check)]
pub struct ListPosts {
    #[field(flatten)]
    pub pages: Pages,
    /// Only posts with this status.
    #[field(enum_value())]
    pub status: Option<PostStatus>,
    /// Only posts whose text contains these words. Maximum: 200 characters.
    #[field(text(0..=MAX_SEARCH_CHARS), extension)]
    pub search: Option<String>,
    /// Only posts with this label.
    #[field(text(0..=MAX_LABEL), extension)]
    pub label: Option<String>,
    /// Only posts for this account.
    #[field(id(), extension)]
    pub account_id: Option<i64>,
    /// Only posts at this time or later. The time of a post is `scheduled_at`, or else `published_at`, or else
    /// `created_at`.
    #[field(time(), extension)]
    pub from: Option<DateTime<Utc>>,
    /// Only posts before this time.
    #[field(time(), extension)]
    pub to: Option<DateTime<Utc>>,
    /// The order of the posts. Posts without the time by which they are sorted come last.
    #[field(enum_value(), default = PostSort::Newest, extension)]
    pub sort: Option<PostSort>,
}

fn check(request: &ListPosts, fields: &Fields<'_>) {
    if request.from.zip(request.to).is_some_and(|(from, to)| to < from) {
        fields.problem("to", "Must not be earlier than `from`.");
    }
}

pub fn endpoint() -> Endpoint<ListPosts, Paged<Post>> {
    Endpoint::get("/brands/{brand}/posts", "listPosts", Scope::PostsRead)
        .tag(TAG)
        .summary("List a brand's posts, newest first")
        .description(
            "`search` returns posts whose text contains all search words. A search word matches the beginning of a word, \
             ignoring case and accents. In scripts without spaces, it matches any part of the text. Only the first eight \
             search words are used. A page has at most 2 MiB. If its posts are larger, it ends early: `meta.per_page` is \
             the number of posts that fit, and `links.next` continues after them.",
        )
        .checks_then_reads(list)
}

async fn list(cx: &Context, conn: &mut Conn, parsed: Arc<Parsed<ListPosts>>) -> Result<Reply<Listed<Post>>> {
    let request = parsed.valid()?;
    let (page, brand) = (request.pages.request(), cx.brand()?.id);
    let (page, found) = match request.filter() {
        Some(filter) => search(conn, brand, &filter, page).await?,
        None => (page, Page { rows: Vec::new(), total: 0 }),
    };
    let ids: Vec<i64> = found.rows.iter().map(|p| p.id).collect();
    let target_summaries = targets::target_summaries(conn, &ids).await?;
    let rows = found.rows.into_iter().map(|post| {
        let own: Vec<_> = target_summaries.iter().filter(|b| b.post_id == post.id).cloned().collect();
        Post::new(post, &own)
    });
    Ok(Listed { page, rows: rows.collect(), total: found.total }.into())
}

/// Returns a page of the list, and the page that it became because of its size.
async fn search(
    conn: &mut Conn,
    brand_id: i64,
    filter: &PostFilter,
    mut page: PageRequest,
) -> Result<(PageRequest, Page<post::Post>)> {
    let (mut ids, total) = posts::search(conn, brand_id, filter, page).await?;
    // More posts could exceed the memory of one request before they are serialized.
    if page.per_page > ALWAYS_FITTING_POSTS {
        let fit = posts::count_fitting(conn, brand_id, &ids, pagination::MAX_BYTES).await?;
        if fit < ids.len() {
            page = pagination::shorten_page(page, fit);
            ids.truncate(usize::try_from(page.per_page).unwrap_or(fit));
        }
    }
    Ok((page, Page { rows: posts::find_each(conn, brand_id, &ids).await?, total }))
}

impl ListPosts {
    /// Returns `None` if the search has no words, and so finds nothing.
    pub(super) fn filter(&self) -> Option<PostFilter> {
        let words = trimmed(self.search.as_deref()).map(words::search_terms);
        if words.as_ref().is_some_and(Vec::is_empty) {
            return None;
        }
        Some(PostFilter {
            status: self.status,
            account_id: self.account_id,
            label: trimmed(self.label.as_deref()).map(str::to_owned),
            words: words.unwrap_or_default(),
            from: self.from,
            to: self.to,
            sort: self.sort,
        })
    }
}

impl Post {
    fn new(p: post::Post, targets: &[TargetSummary]) -> Self {
        let (id, created_at, updated_at) = (p.id, p.created_at.into(), p.updated_at.into());
        let error = |t: &TargetSummary| Some(TargetError::of(t.error.clone()?, failed_part_of(t, &p)));
        let errors: Vec<Option<TargetError>> = targets.iter().map(error).collect();
        let targets = targets.iter().zip(&errors).map(|(t, error)| (t.account_id, t.status, error.as_ref()));
        Self { id, fields: PostFields::new(p, targets), created_at, updated_at }
    }
}
