//! Lists and searches of conversations, the newest message first.
//!
//! One index has all columns that a filter needs, in the order of the list: a page is a walk along it from the newest
//! entry, a total a walk along all entries of the brand. Words and tags are sets of conversations. A small set is
//! read whole and its conversations are looked up; with only large sets, the walk checks each entry against them. So
//! the time depends neither on how frequent a word is nor on where its conversations are in the list.

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
    fn has_no_column(&self) -> bool {
        let Self { status, kind, platform, account_id, assignee_id, unread, tag: _, words: _ } = self;
        status.is_none()
            && kind.is_none()
            && platform.is_none()
            && account_id.is_none()
            && assignee_id.is_none()
            && unread.is_none()
    }
}

/// A bind of a statement that is put together here.
enum Bind<'a> {
    Text(&'a str),
    Number(i64),
}

/// Binds these in order. The statements are not kept prepared: Postgres would go over to a plan for any word, and
/// whether a word is frequent decides which plan is good.
macro_rules! bound {
    ($query:expr, $binds:expr) => {{
        let mut query = $query;
        for bind in $binds {
            query = match bind {
                Bind::Text(text) => query.bind(*text),
                Bind::Number(number) => query.bind(*number),
            };
        }
        query
    }};
}

/// A part of a statement under construction: its text, and the binds so far.
struct Query<'a> {
    is_postgres: bool,
    binds: Vec<Bind<'a>>,
}

impl<'a> Query<'a> {
    /// Begins a statement; `$1` is the brand.
    fn of(brand_id: i64, is_postgres: bool) -> Self {
        Self { is_postgres, binds: vec![Bind::Number(brand_id)] }
    }

    /// Adds a bind, and returns its place.
    fn bind(&mut self, bind: Bind<'a>) -> String {
        self.binds.push(bind);
        format!("${}", self.binds.len())
    }

    /// The conditions of the filters that are set, each of which the list's index answers.
    fn filters(&mut self, filter: &ConversationFilter) -> String {
        let words = [
            ("status", filter.status.map(ConversationStatus::as_str)),
            ("type", filter.kind.map(ConversationType::as_str)),
            ("platform", filter.platform.map(Platform::as_str)),
        ];
        let mut sql = "c.brand_id = $1".to_owned();
        for (column, word) in words {
            if let Some(word) = word {
                sql += &format!(" AND c.{column} = {}", self.bind(Bind::Text(word)));
            }
        }
        for (column, id) in [("account_id", filter.account_id), ("assignee_id", filter.assignee_id)] {
            if let Some(id) = id {
                sql += &format!(" AND c.{column} = {}", self.bind(Bind::Number(id)));
            }
        }
        match filter.unread {
            Some(true) => sql += " AND c.unread_count > 0",
            Some(false) => sql += " AND c.unread_count = 0",
            None => {}
        }
        sql
    }

    /// The ids of a set.
    fn set(&mut self, set: &Set<'a>) -> String {
        match *set {
            Set::Tag(tag) => {
                let tag = self.bind(Bind::Text(tag));
                format!("SELECT conversation_id FROM conversation_tags WHERE brand_id = $1 AND tag = {tag}")
            }
            Set::Word(Wanted { from, to }) => {
                let (from, to) = (self.bind(Bind::Text(from)), self.bind(Bind::Text(to)));
                format!(
                    "SELECT conversation_id
                    FROM conversation_words
                    WHERE brand_id = $1 AND word >= {from} AND word < {to}"
                )
            }
        }
    }

    /// The tables and the conditions of the conversations that fit the filters and are in all sets. `small`: the
    /// index of a set that is read whole.
    fn found(&mut self, filter: &ConversationFilter, sets: &[Set<'a>], small: Option<usize>) -> String {
        let mut from = "conversations c".to_owned();
        let mut conditions = self.filters(filter);
        for (index, set) in sets.iter().enumerate() {
            let ids = self.set(set);
            if small == Some(index) {
                from = format!(
                    "(SELECT DISTINCT conversation_id AS id FROM ({ids}) AS entries) AS few CROSS JOIN conversations c"
                );
                conditions += " AND c.id = few.id";
            } else if self.is_postgres {
                conditions += &format!(" AND c.id IN ({ids})");
            } else {
                // With `+`, the set does not drive the query.
                conditions += &format!(" AND +c.id IN ({ids})");
            }
        }
        format!("FROM {from} WHERE {conditions}")
    }
}

/// A set of conversations.
enum Set<'a> {
    Tag(&'a str),
    Word(&'a Wanted),
}

pub async fn list(
    conn: &mut Conn,
    brand_id: i64,
    filter: &ConversationFilter,
    page: PageRequest,
) -> Result<Page<Conversation>> {
    let mut sets: Vec<Set<'_>> = filter.tag.iter().map(|tag| Set::Tag(tag)).collect();
    sets.extend(filter.words.iter().map(Set::Word));
    let small = small_set(conn, brand_id, &sets).await?;
    let ids = ids(conn, brand_id, filter, (&sets, small), page).await?;
    let total = total(conn, brand_id, filter, (&sets, small)).await?;
    let sql = list_sql!(conn, "SELECT * FROM conversations WHERE id", "AND brand_id = $2");
    let sql = sql.replacen('*', COLUMNS, 1);
    let list = id_list(&ids);
    let mut rows: Vec<Conversation> =
        run!(conn, c => sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(&list).bind(brand_id).fetch_all(c))?;
    rows.sort_by_key(|row| ids.iter().position(|id| *id == row.id));
    Ok(Page { rows, total })
}

/// Returns the index of the first set that is small.
async fn small_set(conn: &mut Conn, brand_id: i64, sets: &[Set<'_>]) -> Result<Option<usize>> {
    for (index, set) in sets.iter().enumerate() {
        let mut query = Query::of(brand_id, conn.is_postgres());
        let ids = query.set(set);
        let sql = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM ({ids} LIMIT {}) AS entries", SMALL + 1));
        let entries: i64 =
            run!(conn, c => bound!(sqlx::query_scalar(sql).persistent(false), &query.binds).fetch_one(c))?;
        if entries <= SMALL {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

/// Returns the ids of a page: a walk along the index from the newest entry, or a sort of a small set.
async fn ids(
    conn: &mut Conn,
    brand_id: i64,
    filter: &ConversationFilter,
    (sets, small): (&[Set<'_>], Option<usize>),
    page: PageRequest,
) -> Result<Vec<i64>> {
    let mut query = Query::of(brand_id, conn.is_postgres());
    let found = query.found(filter, sets, small);
    let (limit, offset) = (query.bind(Bind::Number(page.per_page)), query.bind(Bind::Number(page.offset())));
    let sql = sqlx::AssertSqlSafe(format!(
        "SELECT c.id {found} ORDER BY c.last_message_at DESC, c.id DESC LIMIT {limit} OFFSET {offset}"
    ));
    Ok(run!(conn, c => bound!(sqlx::query_scalar(sql).persistent(false), &query.binds).fetch_all(c))?)
}

async fn total(
    conn: &mut Conn,
    brand_id: i64,
    filter: &ConversationFilter,
    (sets, small): (&[Set<'_>], Option<usize>),
) -> Result<i64> {
    let mut query = Query::of(brand_id, conn.is_postgres());
    let sql = match sets {
        // Every conversation of a set exists: there is nothing to look up.
        [set] if filter.has_no_column() => {
            format!("SELECT count(DISTINCT conversation_id) FROM ({}) AS entries", query.set(set))
        }
        _ => format!("SELECT count(*) {}", query.found(filter, sets, small)),
    };
    let sql = sqlx::AssertSqlSafe(sql);
    Ok(run!(conn, c => bound!(sqlx::query_scalar(sql).persistent(false), &query.binds).fetch_one(c))?)
}
