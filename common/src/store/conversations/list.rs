//! Lists and searches of conversations, the newest message first.
//!
//! One index has all columns that a filter needs, in the order of the list: a page is a walk along it from the newest
//! entry, a total a walk along all entries of the brand. Words and tags are sets of conversations. A small set is read
//! whole and its conversations are looked up; with only large sets, the walk checks each entry against them. So the time
//! depends neither on how frequent a word is nor on where its conversations are in the list.

use super::super::db::run;
use super::super::jobs::{id_list, list_sql};
use super::super::{Conn, Page, PageRequest, Result};
use super::COLUMNS;
use crate::domain::conversation::{Conversation, ConversationStatus};
use crate::domain::platform::{ConversationType, Platform};
use crate::domain::words::Wanted;

/// A set of at most this many entries is read whole.
const SMALL: i64 = 2_000;

/// What a list shows; `None`: all.
#[derive(Clone, Debug, Default)]
pub struct ConversationFilter {
    pub status: Option<ConversationStatus>,
    pub kind: Option<ConversationType>,
    pub platform: Option<Platform>,
    pub account_id: Option<i64>,
    pub assignee_id: Option<i64>,
    pub unread: Option<bool>,
    pub tag: Option<String>,
    /// All of these words; empty: any.
    pub words: Vec<Wanted>,
}

impl ConversationFilter {
    fn has_sets(&self) -> bool {
        self.tag.is_some() || !self.words.is_empty()
    }
}

/// The simple filters: binds `$2` to `$7`, each NULL for all.
const FILTERS: &str = "
    c.brand_id = $1
    AND c.status = coalesce($2, c.status)
    AND c.type = coalesce($3, c.type)
    AND c.platform = coalesce($4, c.platform)
    AND c.account_id = coalesce($5, c.account_id)
    AND coalesce(c.assignee_id, 0) = coalesce($6, c.assignee_id, 0)
    AND (c.unread_count > 0) = coalesce($7, c.unread_count > 0)";

/// Binds the simple filters, then page and sets.
macro_rules! bound {
    ($query:expr, $brand:expr, $filter:expr, $page:expr, $sets:expr) => {{
        let mut query = $query.bind($brand).bind($filter.status).bind($filter.kind).bind($filter.platform);
        query = query.bind($filter.account_id).bind($filter.assignee_id).bind($filter.unread);
        query = query.bind($page.per_page).bind($page.offset());
        for text in $sets {
            query = query.bind(text);
        }
        query
    }};
}

pub async fn list(
    conn: &mut Conn,
    brand_id: i64,
    filter: &ConversationFilter,
    page: PageRequest,
) -> Result<Page<Conversation>> {
    let found = if filter.has_sets() {
        search(conn, brand_id, filter, page).await?
    } else {
        walk(conn, brand_id, filter, page).await?
    };
    let sql = list_sql!(conn, "SELECT * FROM conversations WHERE id", "AND brand_id = $2");
    let sql = sql.replacen('*', COLUMNS, 1);
    let ids = id_list(&found.rows);
    let mut rows: Vec<Conversation> =
        run!(conn, c => sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(&ids).bind(brand_id).fetch_all(c))?;
    rows.sort_by_key(|row| found.rows.iter().position(|id| *id == row.id));
    Ok(Page { rows, total: found.total })
}

/// Without sets: the page and the total are two walks along the index.
async fn walk(conn: &mut Conn, brand: i64, filter: &ConversationFilter, page: PageRequest) -> Result<Page<i64>> {
    let ids = format!(
        "
        SELECT c.id
        FROM conversations c
        WHERE {FILTERS}
        ORDER BY c.last_message_at DESC, c.id DESC
        LIMIT $8
        OFFSET $9"
    );
    // `$8` and `$9` only have the same binds.
    let total = format!(
        "
        SELECT count(*)
        FROM conversations c
        WHERE {FILTERS}
            AND coalesce($8, 0) + coalesce($9, 0) >= 0"
    );
    let none: [&str; 0] = [];
    let rows = run!(conn, c => bound!(sqlx::query_scalar(sqlx::AssertSqlSafe(ids)), brand, filter, page, none)
        .fetch_all(c))?;
    let total = run!(conn, c => bound!(sqlx::query_scalar(sqlx::AssertSqlSafe(total)), brand, filter, page, none)
        .fetch_one(c))?;
    Ok(Page { rows, total })
}

/// The ids of a set: `$n` and for words `$n+1` are its binds.
fn set_sql(is_tag: bool, bind: usize) -> String {
    if is_tag {
        return format!("SELECT conversation_id FROM conversation_tags WHERE brand_id = $1 AND tag = ${bind}");
    }
    let to = bind + 1;
    format!("SELECT conversation_id FROM conversation_words WHERE brand_id = $1 AND word >= ${bind} AND word < ${to}")
}

async fn search(conn: &mut Conn, brand: i64, filter: &ConversationFilter, page: PageRequest) -> Result<Page<i64>> {
    let mut sets: Vec<Vec<&str>> = filter.tag.iter().map(|tag| vec![tag.as_str()]).collect();
    sets.extend(filter.words.iter().map(|word| vec![word.from.as_str(), word.to.as_str()]));
    // The first small one is read whole.
    let mut small = None;
    for (index, set) in sets.iter().enumerate() {
        let sql = format!("SELECT count(*) FROM ({} LIMIT {}) AS entries", set_sql(set.len() == 1, 2), SMALL + 1);
        let mut query_binds = set.iter();
        let (first, second) = (query_binds.next().copied().unwrap_or_default(), query_binds.next().copied());
        let sql = sqlx::AssertSqlSafe(sql);
        let entries: i64 = run!(conn, c => {
            let mut query = sqlx::query_scalar(sql).bind(brand).bind(first);
            if let Some(second) = second {
                query = query.bind(second);
            }
            query.fetch_one(c)
        })?;
        if entries <= SMALL {
            small = Some(index);
            break;
        }
    }
    let sql = search_sql(&sets, small, conn.is_postgres());
    let binds: Vec<&str> = sets.concat();
    let paged = format!(
        "
        {sql}
        SELECT id, (SELECT count(*) FROM found) AS total
        FROM found
        ORDER BY last_message_at DESC, id DESC
        LIMIT $8
        OFFSET $9"
    );
    let rows: Vec<(i64, i64)> = run!(conn, c => bound!(sqlx::query_as(sqlx::AssertSqlSafe(paged)), brand, filter, page, &binds)
        .fetch_all(c))?;
    if let Some((_, total)) = rows.first() {
        return Ok(Page { total: *total, rows: rows.into_iter().map(|(id, _)| id).collect() });
    }
    // Past the end.
    let total = format!("{sql} SELECT count(*) FROM found WHERE coalesce($8, 0) + coalesce($9, 0) >= 0");
    let total = run!(conn, c => bound!(sqlx::query_scalar(sqlx::AssertSqlSafe(total)), brand, filter, page, &binds)
        .fetch_one(c))?;
    Ok(Page { rows: Vec::new(), total })
}

/// The conversations in all sets, as `found`; the binds of the sets begin at `$10`.
fn search_sql(sets: &[Vec<&str>], small: Option<usize>, is_postgres: bool) -> String {
    let (mut bind, mut first, mut others) = (10, String::new(), String::new());
    for (index, set) in sets.iter().enumerate() {
        let sql = set_sql(set.len() == 1, bind);
        bind += set.len();
        if small == Some(index) {
            first = sql;
        } else {
            // On SQLite `+` keeps the set from driving the query; on Postgres the array does.
            others += &if is_postgres {
                format!("\nAND c.id + 0 IN ({sql} OFFSET 0)")
            } else {
                format!("\nAND +c.id IN ({sql})")
            };
        }
    }
    let from = match small {
        Some(_) => {
            format!("(SELECT DISTINCT conversation_id FROM ({first}) AS entries) AS few CROSS JOIN conversations c")
        }
        None => "conversations c".to_owned(),
    };
    let joined = if small.is_some() { "c.id = few.conversation_id AND" } else { "" };
    format!(
        "
        WITH found AS MATERIALIZED (
            SELECT c.id, c.last_message_at
            FROM {from}
            WHERE {joined} {FILTERS} {others}
        )"
    )
}
