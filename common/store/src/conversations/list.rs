//! Lists and searches of conversations, ordered by their newest message, newest first.
//!
//! One index has all columns that a filter needs, in the order of the list. A page is a scan of that index from its
//! newer or older end; a total is a scan of all entries of the brand. Words and tags are sets of conversations. A small
//! set is read whole, and its conversations are looked up. If all sets are large, the scan looks each entry up in them,
//! which soon fills a page if the words are frequent; if the page is not full after [`MAX_WALK`] entries, the sets are
//! read whole. If the other filters leave at most [`FEW`] conversations, these are looked up in the sets, also for the
//! total. So the time depends neither on how frequent a word is nor on where its conversations are in the list.

use crier_domain::conversation::{Conversation, ConversationStatus};
use crier_domain::platform::{ConversationType, Platform};
use crier_domain::words::SearchTerm;

use super::super::db::run;
use super::super::jobs::{id_list, list_sql};
use super::super::{Conn, Page, PageRequest, Result};
use super::COLUMNS;

/// A set of at most this many entries is read whole.
const SMALL: i64 = 2_000;
/// If the filters leave at most this many conversations, these are looked up in sets of any size.
const FEW: i64 = 5_000;
/// How many entries of the list are looked up in the sets before these are read whole.
const MAX_WALK: i64 = 1_000;
/// A conversation is looked up in a range only if it has at most this many distinct words.
const MAX_WORDS: i64 = 8;

/// Ends the subquery of an `EXISTS`. Without it, Postgres may read the whole set instead of looking one entry up.
const LOOK_UP: &str = "LIMIT 1 OFFSET 0";

/// Filters a list; `None` matches everything.
#[derive(Clone, Debug, Default)]
pub struct ConversationFilter {
    pub status: Option<ConversationStatus>,
    pub kind: Option<ConversationType>,
    pub platform: Option<Platform>,
    pub account_id: Option<i64>,
    pub assignee_id: Option<i64>,
    pub unread: Option<bool>,
    pub tag: Option<String>,
    /// Words that a conversation must contain, all of them.
    pub words: Vec<SearchTerm>,
}

impl ConversationFilter {
    fn has_no_columns(&self) -> bool {
        let Self { status, kind, platform, account_id, assignee_id, unread, tag: _, words: _ } = self;
        status.is_none()
            && kind.is_none()
            && platform.is_none()
            && account_id.is_none()
            && assignee_id.is_none()
            && unread.is_none()
    }
}

/// A bind of a statement that is built here.
enum Bind<'a> {
    Text(&'a str),
    Number(i64),
}

/// Binds these in order. The statements are not prepared persistently: Postgres would switch to a generic plan, but the
/// right plan depends on how frequent a word is.
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

/// A statement under construction: its binds so far.
struct Query<'a> {
    is_postgres: bool,
    binds: Vec<Bind<'a>>,
}

impl<'a> Query<'a> {
    /// Begins a statement; `$1` is the brand.
    fn of(brand_id: i64, is_postgres: bool) -> Self {
        Self { is_postgres, binds: vec![Bind::Number(brand_id)] }
    }

    /// Adds a bind, and returns its placeholder.
    fn bind(&mut self, bind: Bind<'a>) -> String {
        self.binds.push(bind);
        format!("${}", self.binds.len())
    }

    /// Returns the conditions of the filters that are set. The list's index has all of their columns.
    fn filters(&mut self, filter: &ConversationFilter) -> String {
        self.conditions(filter, "")
    }

    /// Returns the same conditions for conversations that are looked up by id. `+ 0` prevents the use of any other
    /// index: for each id, Postgres would read all conversations of an account if it expects few of them.
    fn filters_of_looked_up(&mut self, filter: &ConversationFilter) -> String {
        self.conditions(filter, " + 0")
    }

    /// Returns the conditions. `added` follows each column that contains an id.
    fn conditions(&mut self, filter: &ConversationFilter, added: &str) -> String {
        let words = [
            ("status", filter.status.map(ConversationStatus::as_str)),
            ("type", filter.kind.map(ConversationType::as_str)),
            ("platform", filter.platform.map(Platform::as_str)),
        ];
        let mut sql = format!("c.brand_id{added} = $1");
        for (column, word) in words {
            if let Some(word) = word {
                sql += &format!(" AND c.{column} = {}", self.bind(Bind::Text(word)));
            }
        }
        for (column, id) in [("account_id", filter.account_id), ("assignee_id", filter.assignee_id)] {
            if let Some(id) = id {
                sql += &format!(" AND c.{column}{added} = {}", self.bind(Bind::Number(id)));
            }
        }
        match filter.unread {
            Some(true) => sql += " AND c.unread_count > 0",
            Some(false) => sql += " AND c.unread_count = 0",
            None => {}
        }
        sql
    }

    /// Returns a query for the ids of a set.
    fn set(&mut self, set: &Set<'a>) -> String {
        match *set {
            Set::Tag(tag) => {
                let tag = self.bind(Bind::Text(tag));
                format!(
                    "SELECT conversation_id
                    FROM conversation_tags
                    WHERE brand_id = $1 AND tag = {tag}"
                )
            }
            Set::Words { range: SearchTerm { from, to }, .. } => {
                let (from, to) = (self.bind(Bind::Text(from)), self.bind(Bind::Text(to)));
                format!(
                    "SELECT conversation_id
                    FROM conversation_words
                    WHERE brand_id = $1 AND word >= {from} AND word < {to}"
                )
            }
        }
    }

    /// Returns the condition that the conversation `c` is in a set, as a look-up by the set's key. Returns `None` if
    /// that takes too many look-ups.
    fn is_in(&mut self, set: &'a Set<'a>) -> Option<String> {
        match set {
            Set::Tag(tag) => {
                let tag = self.bind(Bind::Text(tag));
                Some(format!(
                    "EXISTS (
                        SELECT 1
                        FROM conversation_tags t
                        WHERE t.brand_id = $1 AND t.tag = {tag} AND t.conversation_id = c.id
                        {LOOK_UP}
                    )"
                ))
            }
            Set::Words { words, .. } => {
                let words = words.as_ref()?;
                if words.is_empty() {
                    return Some("1 = 0".to_owned());
                }
                let words: Vec<String> = words.iter().map(|word| self.bind(Bind::Text(word))).collect();
                Some(format!(
                    "EXISTS (
                        SELECT 1
                        FROM conversation_words w
                        WHERE w.brand_id = $1 AND w.word IN ({}) AND w.conversation_id = c.id
                        {LOOK_UP}
                    )",
                    words.join(", ")
                ))
            }
        }
    }

    /// Returns `FROM` and `WHERE` for the conversations that match the filters and are in all sets.
    fn found(&mut self, filter: &ConversationFilter, sets: &'a Sets<'a>) -> String {
        let mut from = "conversations c".to_owned();
        let mut conditions = match sets.small {
            Some(_) => self.filters_of_looked_up(filter),
            None => self.filters(filter),
        };
        for (index, set) in sets.all.iter().enumerate() {
            if sets.small == Some(index) {
                let ids = self.set(set);
                from = format!(
                    "(SELECT DISTINCT conversation_id AS id FROM ({ids}) AS entries) AS few CROSS JOIN conversations c"
                );
                conditions += " AND c.id = few.id";
                continue;
            }
            let is_in = if sets.are_looked_up { self.is_in(set) } else { None };
            // `+` keeps SQLite from starting the query with the set.
            let id = if self.is_postgres { "c.id" } else { "+c.id" };
            let is_in = is_in.unwrap_or_else(|| format!("{id} IN ({})", self.set(set)));
            conditions += &format!(" AND {is_in}");
        }
        format!("FROM {from} WHERE {conditions}")
    }

    /// Returns a query for the first entries of the list in this order.
    fn near(&mut self, filter: &ConversationFilter, order: &str) -> String {
        let conditions = self.filters(filter);
        format!(
            "SELECT c.id, c.last_message_at
            FROM conversations c
            WHERE {conditions}
            ORDER BY {order}
            LIMIT {MAX_WALK}"
        )
    }

    /// Returns a query for the ids of the matches among the first entries of the list in this order. `ids` are the ids
    /// of these entries, for sets that have too many words to look up.
    fn found_near(&mut self, filter: &ConversationFilter, sets: &'a Sets<'a>, order: &str, ids: &str) -> String {
        let near = self.near(filter, order);
        let is_in = sets.all.iter().map(|set| {
            // Postgres looks literals up in a hash table, but may compare the ids of a subquery one by one.
            self.is_in(set).unwrap_or_else(|| format!("c.id IN ({} AND conversation_id IN ({ids}))", self.set(set)))
        });
        let is_in = is_in.collect::<Vec<_>>().join(" AND ");
        format!(
            "WITH near AS MATERIALIZED ({near})
            SELECT c.id
            FROM near c
            WHERE {is_in}
            ORDER BY {order}"
        )
    }
}

/// A set of conversations.
enum Set<'a> {
    Tag(&'a str),
    /// Conversations with a word of a range. `words` has all words of a large set, if they are at most [`MAX_WORDS`].
    Words {
        range: &'a SearchTerm,
        words: Option<Vec<String>>,
    },
}

/// The sets that a conversation must be in.
struct Sets<'a> {
    all: Vec<Set<'a>>,
    /// The index of the first small one, which is read whole.
    small: Option<usize>,
    /// Whether conversations are looked up in the other sets, because they are few.
    are_looked_up: bool,
}

impl<'a> Sets<'a> {
    /// Returns whether a set has too many words to look up.
    fn has_wide(&self) -> bool {
        self.all.iter().any(|set| matches!(set, Set::Words { words: None, .. }))
    }

    async fn read(conn: &mut Conn, brand_id: i64, filter: &'a ConversationFilter) -> Result<Self> {
        let mut all: Vec<Set<'_>> = filter.tag.iter().map(|tag| Set::Tag(tag)).collect();
        all.extend(filter.words.iter().map(|range| Set::Words { range, words: None }));
        let mut small = None;
        for (index, set) in all.iter_mut().enumerate() {
            if small.is_none() && is_small(conn, brand_id, set).await? {
                small = Some(index);
            } else if let Set::Words { range, words } = set {
                *words = words_of(conn, brand_id, range).await?;
            }
        }
        let are_looked_up = small.is_some() || (!all.is_empty() && has_few(conn, brand_id, filter).await?);
        Ok(Self { all, small, are_looked_up })
    }
}

async fn is_small(conn: &mut Conn, brand_id: i64, set: &Set<'_>) -> Result<bool> {
    let mut query = Query::of(brand_id, conn.is_postgres());
    let ids = query.set(set);
    let sql = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM ({ids} LIMIT {}) AS entries", SMALL + 1));
    let entries: i64 = run!(conn, c => bound!(sqlx::query_scalar(sql).persistent(false), &query.binds).fetch_one(c))?;
    Ok(entries <= SMALL)
}

/// Returns whether the filters leave few conversations, without the sets.
async fn has_few(conn: &mut Conn, brand_id: i64, filter: &ConversationFilter) -> Result<bool> {
    if filter.has_no_columns() {
        return Ok(false);
    }
    let mut query = Query::of(brand_id, conn.is_postgres());
    let conditions = query.filters(filter);
    let sql = sqlx::AssertSqlSafe(format!(
        "SELECT count(*) FROM (SELECT 1 FROM conversations c WHERE {conditions} LIMIT {}) AS entries",
        FEW + 1
    ));
    let found: i64 = run!(conn, c => bound!(sqlx::query_scalar(sql).persistent(false), &query.binds).fetch_one(c))?;
    Ok(found <= FEW)
}

/// Returns the distinct words of a range, with one look-up in the key for each. Returns `None` if they are more than
/// [`MAX_WORDS`].
async fn words_of(conn: &mut Conn, brand_id: i64, range: &SearchTerm) -> Result<Option<Vec<String>>> {
    const SQL: &str = "
        WITH RECURSIVE found (word) AS (
            SELECT min(word)
            FROM conversation_words
            WHERE brand_id = $1 AND word >= $2 AND word < $3
            UNION ALL
            SELECT (
                SELECT min(word)
                FROM conversation_words
                WHERE brand_id = $1 AND word > found.word AND word < $3
            )
            FROM found
            WHERE found.word IS NOT NULL
        )
        SELECT word
        FROM found
        WHERE word IS NOT NULL
        LIMIT $4";
    let (from, to) = (&range.from, &range.to);
    let words: Vec<String> = run!(conn, c => sqlx::query_scalar(SQL)
        .bind(brand_id)
        .bind(from)
        .bind(to)
        .bind(MAX_WORDS + 1)
        .fetch_all(c))?;
    Ok(Some(words).filter(|words| words.len() as i64 <= MAX_WORDS))
}

pub async fn list(
    conn: &mut Conn,
    brand_id: i64,
    filter: &ConversationFilter,
    page: PageRequest,
) -> Result<Page<Conversation>> {
    let sets = Sets::read(conn, brand_id, filter).await?;
    let total = total(conn, brand_id, filter, &sets).await?;
    let ids = match ids_near(conn, brand_id, filter, &sets, page, total).await? {
        Some(near) => near,
        None => ids(conn, brand_id, filter, &sets, page).await?,
    };
    let sql = list_sql!(conn, "SELECT {COLUMNS} FROM conversations WHERE id", "AND brand_id = $2", COLUMNS);
    let list = id_list(&ids);
    let mut rows: Vec<Conversation> = run!(conn, c => sqlx::query_as(sql).bind(&list).bind(brand_id).fetch_all(c))?;
    rows.sort_by_key(|row| ids.iter().position(|id| *id == row.id));
    Ok(Page { rows, total })
}

/// Returns the ids of a page if a short scan from the nearer end of the list finds it.
async fn ids_near(
    conn: &mut Conn,
    brand_id: i64,
    filter: &ConversationFilter,
    sets: &Sets<'_>,
    page: PageRequest,
    total: i64,
) -> Result<Option<Vec<i64>>> {
    let rows = page.per_page.min(total.saturating_sub(page.offset()));
    if sets.all.is_empty() || sets.small.is_some() || rows <= 0 {
        return Ok(None);
    }
    let behind = total - page.offset() - rows;
    let is_older = behind < page.offset();
    let (order, skipped) = match is_older {
        true => ("c.last_message_at, c.id", behind),
        false => ("c.last_message_at DESC, c.id DESC", page.offset()),
    };
    if skipped + rows > MAX_WALK {
        return Ok(None);
    }
    let near = if sets.has_wide() { ids_of_near(conn, brand_id, filter, order).await? } else { String::new() };
    let mut query = Query::of(brand_id, conn.is_postgres());
    let found = query.found_near(filter, sets, order, &near);
    let (limit, offset) = (query.bind(Bind::Number(rows)), query.bind(Bind::Number(skipped)));
    let sql = sqlx::AssertSqlSafe(format!("{found} LIMIT {limit} OFFSET {offset}"));
    let mut ids: Vec<i64> =
        run!(conn, c => bound!(sqlx::query_scalar(sql).persistent(false), &query.binds).fetch_all(c))?;
    if is_older {
        ids.reverse();
    }
    Ok(Some(ids).filter(|ids| ids.len() as i64 == rows))
}

/// Returns the ids of the first entries of the list in this order, as an SQL list.
async fn ids_of_near(conn: &mut Conn, brand_id: i64, filter: &ConversationFilter, order: &str) -> Result<String> {
    let mut query = Query::of(brand_id, conn.is_postgres());
    let sql = sqlx::AssertSqlSafe(format!("SELECT id FROM ({}) AS near", query.near(filter, order)));
    let ids: Vec<i64> = run!(conn, c => bound!(sqlx::query_scalar(sql).persistent(false), &query.binds).fetch_all(c))?;
    // An SQL list cannot be empty, and no conversation has the id 0.
    Ok(ids.iter().fold("0".to_owned(), |list, id| format!("{list}, {id}")))
}

/// Returns the ids of a page: by a scan of the index from the newest entry, or by sorting a small set.
async fn ids(
    conn: &mut Conn,
    brand_id: i64,
    filter: &ConversationFilter,
    sets: &Sets<'_>,
    page: PageRequest,
) -> Result<Vec<i64>> {
    let mut query = Query::of(brand_id, conn.is_postgres());
    let found = query.found(filter, sets);
    let (limit, offset) = (query.bind(Bind::Number(page.per_page)), query.bind(Bind::Number(page.offset())));
    let sql = sqlx::AssertSqlSafe(format!(
        "SELECT c.id {found} ORDER BY c.last_message_at DESC, c.id DESC LIMIT {limit} OFFSET {offset}"
    ));
    Ok(run!(conn, c => bound!(sqlx::query_scalar(sql).persistent(false), &query.binds).fetch_all(c))?)
}

async fn total(conn: &mut Conn, brand_id: i64, filter: &ConversationFilter, sets: &Sets<'_>) -> Result<i64> {
    let mut query = Query::of(brand_id, conn.is_postgres());
    let sql = match sets.all.as_slice() {
        // Every conversation of a set exists, so there is nothing to look up.
        [set] if filter.has_no_columns() => {
            // A conversation has an entry for each distinct word.
            let is_distinct = match set {
                Set::Tag(_) => true,
                Set::Words { words, .. } => words.as_ref().is_some_and(|words| words.len() == 1),
            };
            let counted = if is_distinct { "*" } else { "DISTINCT conversation_id" };
            format!("SELECT count({counted}) FROM ({}) AS entries", query.set(set))
        }
        _ => format!("SELECT count(*) {}", query.found(filter, sets)),
    };
    let sql = sqlx::AssertSqlSafe(sql);
    Ok(run!(conn, c => bound!(sqlx::query_scalar(sql).persistent(false), &query.binds).fetch_one(c))?)
}
