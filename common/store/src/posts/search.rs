//! Lists and searches of a brand's posts. [`super::super::search`] explains how.

use chrono::{DateTime, Utc};
use crier_domain::post::{Post, PostSort, PostStatus};
use crier_domain::words::SearchTerm;

use super::super::db::run;
use super::super::jobs::{id_list, list_sql};
use super::super::search::{Bind, Condition, Membership, Order, Search, SearchedTable};
use super::super::{Conn, Page, PageRequest, Result};
use super::{COLUMNS, FROM};

/// The size of a post's texts.
const TEXT_BYTES: &str = "
    CAST(octet_length(p.content) + octet_length(CAST(p.thread AS text))
        + coalesce(octet_length(CAST(p.first_comment AS text)), 0) AS bigint)";

static POSTS: SearchedTable =
    SearchedTable { name: "posts", condition: "r.deleted_at IS NULL", id_column: "post_id", words: "post_words" };

static NEWEST_FIRST: Order = Order { columns: "", forward: "r.id DESC", backward: "r.id" };

/// Posts without a time are last.
static BY_SCHEDULED_TIME: Order = Order {
    columns: ", r.scheduled_at",
    forward: "r.scheduled_at NULLS LAST, r.id",
    backward: "r.scheduled_at DESC NULLS FIRST, r.id DESC",
};

/// Posts that are not published are last.
static LAST_PUBLISHED_FIRST: Order = Order {
    columns: ", r.published_at",
    forward: "r.published_at DESC NULLS LAST, r.id DESC",
    backward: "r.published_at NULLS FIRST, r.id",
};

const LISTED_AT: &str = "r.listed_at";
/// The same time, by which no index is searched. The index of the times does not have the status, so a search by both reads
/// fewer pages in the index of the status. And Postgres expects few posts in any period, and would read and sort all of
/// them for each part of an export.
const LISTED_AT_OF_EACH: &str = "coalesce(r.listed_at, r.listed_at)";

/// Filters a list; `None` matches everything.
#[derive(Clone, Debug, Default)]
pub struct PostFilter {
    pub status: Option<PostStatus>,
    /// Only posts with a target on this account.
    pub account_id: Option<i64>,
    pub label: Option<String>,
    /// Words that the text must contain, all of them.
    pub words: Vec<SearchTerm>,
    /// The earliest scheduled time, or else time of publication, or else time of creation.
    pub from: Option<DateTime<Utc>>,
    /// The end of these times, exclusive.
    pub to: Option<DateTime<Utc>>,
    /// `None`: newest first.
    pub sort: Option<PostSort>,
}

impl PostFilter {
    /// `listed_at` is [`LISTED_AT`] or [`LISTED_AT_OF_EACH`].
    fn search(&self, brand_id: i64, listed_at: &'static str) -> Search<'_> {
        let condition = |column, operator, value| Condition { column, operator, value };
        let conditions = [
            self.status.map(|status| condition("r.status", "=", Bind::Text(status.as_str()))),
            self.from.map(|at| condition(listed_at, ">=", Bind::Time(at))),
            self.to.map(|at| condition(listed_at, "<", Bind::Time(at))),
        ];
        let label = self.label.as_deref().map(|label| Membership {
            table: "post_labels",
            column: "label",
            value: Bind::Text(label),
            is_of_brand: true,
        });
        // Targets remain when their post is deleted, and an account may be in several brands.
        let account = self.account_id.map(|id| Membership {
            table: "post_targets",
            column: "account_id",
            value: Bind::Number(id),
            is_of_brand: false,
        });
        Search {
            table: &POSTS,
            brand_id,
            conditions: conditions.into_iter().flatten().collect(),
            memberships: label.into_iter().chain(account).collect(),
            words: &self.words,
            order: match self.sort {
                None | Some(PostSort::Newest) => &NEWEST_FIRST,
                Some(PostSort::ScheduledAt) => &BY_SCHEDULED_TIME,
                Some(PostSort::LastPublished) => &LAST_PUBLISHED_FIRST,
            },
        }
    }
}

/// Returns the ids of the posts on a page, and the number of posts in the list.
pub async fn search(conn: &mut Conn, brand_id: i64, filter: &PostFilter, page: PageRequest) -> Result<(Vec<i64>, i64)> {
    let listed_at = if filter.status.is_some() { LISTED_AT_OF_EACH } else { LISTED_AT };
    filter.search(brand_id, listed_at).page(conn, page).await
}

/// Returns a page of the list, and the number of posts in the list.
pub async fn list(conn: &mut Conn, brand_id: i64, filter: &PostFilter, page: PageRequest) -> Result<Page<Post>> {
    let (ids, total) = search(conn, brand_id, filter, page).await?;
    Ok(Page { rows: find_each(conn, brand_id, &ids).await?, total })
}

/// Returns the ids of at most `limit` posts of the list, newest first, that are older than `before`. Each call reads only
/// its part of the list, so an export of all posts takes a time in proportion to their number.
pub async fn ids_before(
    conn: &mut Conn,
    brand_id: i64,
    filter: &PostFilter,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<i64>> {
    let newest_first = PostFilter { sort: None, ..filter.clone() };
    let mut search = newest_first.search(brand_id, LISTED_AT_OF_EACH);
    search.conditions.extend(before.map(|id| Condition { column: "r.id", operator: "<", value: Bind::Number(id) }));
    search.first(conn, limit).await
}

/// Returns how many of the posts, from the first one on, have contents of at most `max_bytes` in total.
pub async fn count_fitting(conn: &mut Conn, brand_id: i64, post_ids: &[i64], max_bytes: usize) -> Result<usize> {
    let sql = list_sql!(conn, "SELECT p.id, {TEXT_BYTES} FROM posts p WHERE p.id", "AND p.brand_id = $2", TEXT_BYTES);
    let list = id_list(post_ids);
    let sizes: Vec<(i64, i64)> = run!(conn, c => sqlx::query_as(sql).bind(&list).bind(brand_id).fetch_all(c))?;
    let size = |id: &i64| sizes.iter().find(|(of, _)| of == id).map_or(0, |(_, size)| *size);
    Ok(count_until(post_ids.iter().map(size), max_bytes))
}

/// Returns how many sizes, from the first one on, are at most `max_bytes` in total.
fn count_until(sizes: impl Iterator<Item = i64>, max_bytes: usize) -> usize {
    let mut left = max_bytes;
    let fits = |size: &i64| match left.checked_sub(usize::try_from(*size).unwrap_or(0)) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    };
    sizes.take_while(fits).count()
}

/// Returns posts in the order of their ids in the list. Leaves out those that do not belong to the brand or are deleted.
///
/// `brand_id + 0` has no effect on the result, but keeps Postgres from an index on the brand. Without statistics, it
/// expects one post in a brand, and would compare every post of the brand with every id.
pub async fn find_each(conn: &mut Conn, brand_id: i64, post_ids: &[i64]) -> Result<Vec<Post>> {
    if post_ids.is_empty() {
        return Ok(Vec::new());
    }
    let sql = list_sql!(
        conn,
        "SELECT {COLUMNS} {FROM} WHERE p.id",
        "AND p.brand_id + 0 = $2 AND p.deleted_at IS NULL",
        COLUMNS,
        FROM
    );
    let list = id_list(post_ids);
    let mut rows: Vec<Post> = run!(conn, c => sqlx::query_as(sql).bind(&list).bind(brand_id).fetch_all(c))?;
    rows.sort_by_key(|row| post_ids.iter().position(|id| *id == row.id));
    Ok(rows)
}
