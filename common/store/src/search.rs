//! Lists and searches of a brand's records (conversations, posts).
//!
//! An index has all columns that a filter needs, in the order of the list. A page is a scan of that index from one of
//! its ends; a total is a scan of all entries of the brand. Words, tags and accounts are sets of records. A small set is
//! read whole, and its records are looked up. If all sets are large, the scan looks each entry up in them, which soon
//! fills a page if the words are frequent; if the page is not full after [`MAX_WALK`] entries, the sets are read whole.
//! If the other filters leave at most [`FEW`] records, these are looked up in the sets, also for the total. So the time
//! depends neither on how frequent a word is nor on where its records are in the list.

use chrono::{DateTime, Utc};
use crier_domain::words::SearchTerm;

use super::db::run;
use super::{Conn, PageRequest, Result};

/// A set of at most this many entries is read whole.
const SMALL: i64 = 2_000;
/// If the filters leave at most this many records, these are looked up in sets of any size.
const FEW: i64 = 5_000;
/// How many entries of the list are looked up in the sets before these are read whole.
const MAX_WALK: i64 = 1_000;
/// A record is looked up in a range only if it has at most this many distinct words.
const MAX_WORDS: i64 = 8;

/// Ends the subquery of an `EXISTS`. Without it, Postgres may read the whole set instead of looking one entry up.
const LOOK_UP: &str = "LIMIT 1 OFFSET 0";

/// A table of records. All texts are parts of statements, in which a record is `r`.
#[derive(Debug)]
pub struct SearchedTable {
    pub name: &'static str,
    /// A condition that every record must meet, or `TRUE`.
    pub condition: &'static str,
    /// The column with the ID of a record, in the tables of sets.
    pub id_column: &'static str,
    /// The table of the records' words, with the columns `brand_id` and `word`.
    pub words: &'static str,
}

/// An order of a list. Postgres and SQLite have an index for it.
#[derive(Debug)]
pub struct Order {
    /// The columns of the order other than the ID, each with a comma before it.
    pub columns: &'static str,
    pub forward: &'static str,
    /// The same order from its other end.
    pub backward: &'static str,
}

/// A value in a statement.
#[derive(Clone, Copy, Debug)]
pub enum Bind<'a> {
    Text(&'a str),
    Number(i64),
    Time(DateTime<Utc>),
}

/// A condition on a column of a record. The index of the list has the column.
#[derive(Clone, Copy, Debug)]
pub struct Condition<'a> {
    /// A column such as `r.status`, or an expression that keeps the planner from starting with another index.
    pub column: &'static str,
    /// A comparison such as `=`.
    pub operator: &'static str,
    pub value: Bind<'a>,
}

/// The records with an entry in another table.
#[derive(Clone, Copy, Debug)]
pub struct Membership<'a> {
    pub table: &'static str,
    pub column: &'static str,
    pub value: Bind<'a>,
    /// Whether the table has the column `brand_id`, and only entries of records that exist.
    pub is_of_brand: bool,
}

/// A search of a brand's records.
#[derive(Debug)]
pub struct Search<'a> {
    pub table: &'static SearchedTable,
    pub brand_id: i64,
    pub conditions: Vec<Condition<'a>>,
    pub memberships: Vec<Membership<'a>>,
    /// Words that a record must contain, all of them.
    pub words: &'a [SearchTerm],
    pub order: &'static Order,
}

impl Search<'_> {
    /// Returns the IDs of the records on a page, and the number of records in the list.
    pub async fn page(&self, conn: &mut Conn, page: PageRequest) -> Result<(Vec<i64>, i64)> {
        let sets = Sets::read(conn, self).await?;
        let total = total(conn, self, &sets).await?;
        let ids = match ids_near(conn, self, &sets, page, total).await? {
            Some(near) => near,
            None => ids(conn, self, &sets, page).await?,
        };
        Ok((ids, total))
    }

    /// Returns the IDs of the first records of the list, without counting it.
    ///
    /// Calls that continue one another read the whole list. So each entry is looked up in the large sets, which would
    /// otherwise be read whole by each call.
    pub async fn first(&self, conn: &mut Conn, limit: i64) -> Result<Vec<i64>> {
        let sets = Sets { are_looked_up: true, ..Sets::read_each(conn, self).await? };
        ids(conn, self, &sets, PageRequest { page: 1, per_page: limit }).await
    }
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
                Bind::Time(at) => query.bind(*at),
            };
        }
        query
    }};
}

/// A statement under construction: its binds so far.
struct Query<'a> {
    search: &'a Search<'a>,
    is_postgres: bool,
    binds: Vec<Bind<'a>>,
}

impl<'a> Query<'a> {
    /// Begins a statement; `$1` is the brand.
    fn of(search: &'a Search<'a>, is_postgres: bool) -> Self {
        Self { search, is_postgres, binds: vec![Bind::Number(search.brand_id)] }
    }

    /// Adds a bind, and returns its placeholder.
    fn bind(&mut self, bind: Bind<'a>) -> String {
        self.binds.push(bind);
        format!("${}", self.binds.len())
    }

    /// Adds binds for words, and returns their placeholders as an SQL list.
    fn bind_words(&mut self, words: &'a [String]) -> String {
        let placeholders: Vec<String> = words.iter().map(|word| self.bind(Bind::Text(word))).collect();
        placeholders.join(", ")
    }

    /// Returns the conditions of the filters that are set. The list's index has all of their columns.
    fn filters(&mut self) -> String {
        let search = self.search;
        let mut sql = format!("r.brand_id = $1 AND {}", search.table.condition);
        for Condition { column, operator, value } in &search.conditions {
            sql += &format!(" AND {column} {operator} {}", self.bind(*value));
        }
        sql
    }

    /// Returns a query for the IDs of a set.
    fn set(&mut self, set: &Set<'a>) -> String {
        let SearchedTable { id_column, words, .. } = self.search.table;
        match *set {
            Set::Members(Membership { table, column, value, is_of_brand }) => {
                let value = self.bind(value);
                let of_brand = if is_of_brand { "brand_id = $1 AND " } else { "" };
                format!("SELECT {id_column} FROM {table} WHERE {of_brand}{column} = {value}")
            }
            Set::Words { range: SearchTerm { from, to }, .. } => {
                let (from, to) = (self.bind(Bind::Text(from)), self.bind(Bind::Text(to)));
                format!("SELECT {id_column} FROM {words} WHERE brand_id = $1 AND word >= {from} AND word < {to}")
            }
        }
    }

    /// Returns the same query for a set that is read whole although it is large. It names the words: if Postgres joins
    /// the set by a look-up for each record, a range would be read whole each time. The entries of a single word are in
    /// the order of the IDs, so that Postgres can merge them with the list.
    fn large_set(&mut self, set: &'a Set<'a>) -> String {
        let SearchedTable { id_column, words: table, .. } = self.search.table;
        match set {
            Set::Words { words: Some(words), .. } if !words.is_empty() => {
                let words = self.bind_words(words);
                format!("SELECT {id_column} FROM {table} WHERE brand_id = $1 AND word IN ({words})")
            }
            _ => self.set(set),
        }
    }

    /// Returns the condition that the record `r` is in a set, as a look-up by the set's key. Returns `None` if that
    /// takes too many look-ups.
    fn is_in(&mut self, set: &'a Set<'a>) -> Option<String> {
        let SearchedTable { id_column, words: words_table, .. } = self.search.table;
        match set {
            Set::Members(Membership { table, column, value, is_of_brand }) => {
                let value = self.bind(*value);
                let of_brand = if *is_of_brand { "s.brand_id = $1 AND " } else { "" };
                Some(format!(
                    "EXISTS (
                        SELECT 1
                        FROM {table} s
                        WHERE {of_brand}s.{column} = {value} AND s.{id_column} = r.id
                        {LOOK_UP}
                    )"
                ))
            }
            Set::Words { words, .. } => {
                let words = words.as_ref()?;
                if words.is_empty() {
                    return Some("1 = 0".to_owned());
                }
                let words = self.bind_words(words);
                Some(format!(
                    "EXISTS (
                        SELECT 1
                        FROM {words_table} w
                        WHERE w.brand_id = $1 AND w.word IN ({words}) AND w.{id_column} = r.id
                        {LOOK_UP}
                    )"
                ))
            }
        }
    }

    /// Returns `FROM` and `WHERE` for the records that match the filters and are in all sets.
    fn found(&mut self, sets: &'a Sets<'a>) -> String {
        let SearchedTable { name, id_column, .. } = self.search.table;
        let mut from = format!("{name} r");
        let mut conditions = self.filters();
        for (index, set) in sets.all.iter().enumerate() {
            if sets.small == Some(index) {
                let ids = self.set(set);
                // Makes Postgres look each ID up: it might read the whole table, or for each ID all conversations of an
                // account. SQLite always looks it up.
                let record = match self.is_postgres {
                    true => format!("LATERAL (SELECT * FROM {name} WHERE id = few.id OFFSET 0) AS r"),
                    false => format!("{name} r"),
                };
                from =
                    format!("(SELECT DISTINCT {id_column} AS id FROM ({ids}) AS entries) AS few CROSS JOIN {record}");
                conditions += " AND r.id = few.id";
                continue;
            }
            let is_in = if sets.are_looked_up { self.is_in(set) } else { None };
            // `+` keeps SQLite from starting the query with the set.
            let id = if self.is_postgres { "r.id" } else { "+r.id" };
            let is_in = is_in.unwrap_or_else(|| format!("{id} IN ({})", self.large_set(set)));
            conditions += &format!(" AND {is_in}");
        }
        format!("FROM {from} WHERE {conditions}")
    }

    /// Returns a query for the first entries of the list, from one of its ends.
    fn near(&mut self, order: &str) -> String {
        let (table, columns) = (self.search.table.name, self.search.order.columns);
        let conditions = self.filters();
        format!("SELECT r.id{columns} FROM {table} r WHERE {conditions} ORDER BY {order} LIMIT {MAX_WALK}")
    }

    /// Returns a query for the IDs of the matches among the first entries of the list, from one of its ends. `ids` are
    /// the IDs of these entries, for sets that have too many words to look up.
    fn found_near(&mut self, sets: &'a Sets<'a>, order: &str, ids: &str) -> String {
        let near = self.near(order);
        let id_column = self.search.table.id_column;
        let is_in = sets.all.iter().map(|set| {
            // Postgres looks literals up in a hash table, but may compare the IDs of a subquery one by one.
            self.is_in(set).unwrap_or_else(|| format!("r.id IN ({} AND {id_column} IN ({ids}))", self.set(set)))
        });
        let is_in = is_in.collect::<Vec<_>>().join(" AND ");
        format!(
            "WITH near AS MATERIALIZED ({near})
            SELECT r.id
            FROM near r
            WHERE {is_in}
            ORDER BY {order}"
        )
    }
}

/// A set of records.
enum Set<'a> {
    Members(Membership<'a>),
    /// Records with a word of a range. `words` has all words of a large set, if they are at most [`MAX_WORDS`].
    Words {
        range: &'a SearchTerm,
        words: Option<Vec<String>>,
    },
}

/// The sets that a record must be in.
struct Sets<'a> {
    all: Vec<Set<'a>>,
    /// The index of the first small one, which is read whole.
    small: Option<usize>,
    /// Whether records are looked up in the other sets, because they are few.
    are_looked_up: bool,
}

impl<'a> Sets<'a> {
    /// Returns whether a set has too many words to look up.
    fn has_wide(&self) -> bool {
        self.all.iter().any(|set| matches!(set, Set::Words { words: None, .. }))
    }

    async fn read(conn: &mut Conn, search: &'a Search<'a>) -> Result<Self> {
        let sets = Self::read_each(conn, search).await?;
        let are_looked_up = sets.small.is_some() || (!sets.all.is_empty() && has_few(conn, search).await?);
        Ok(Self { are_looked_up, ..sets })
    }

    /// Reads which sets are small, and the words of the others.
    async fn read_each(conn: &mut Conn, search: &'a Search<'a>) -> Result<Self> {
        let mut all: Vec<Set<'a>> = search.memberships.iter().map(|membership| Set::Members(*membership)).collect();
        all.extend(search.words.iter().map(|range| Set::Words { range, words: None }));
        let mut small = None;
        for (index, set) in all.iter_mut().enumerate() {
            if small.is_none() && is_small(conn, search, set).await? {
                small = Some(index);
            } else if let Set::Words { range, words } = set {
                *words = words_of(conn, search, range).await?;
            }
        }
        Ok(Self { all, small, are_looked_up: small.is_some() })
    }
}

/// Returns whether a set has at most [`SMALL`] entries. Without statistics, Postgres would read all of them into a bitmap.
/// The order of the set's index, with a limit that is hidden, makes it stop.
async fn is_small<'a>(conn: &mut Conn, search: &'a Search<'a>, set: &Set<'a>) -> Result<bool> {
    let mut query = Query::of(search, conn.is_postgres());
    let ids = query.set(set);
    let word = if matches!(set, Set::Words { .. }) { "word, " } else { "" };
    let id_column = search.table.id_column;
    let sql = sqlx::AssertSqlSafe(format!(
        "SELECT count(*) FROM ({ids} ORDER BY {word}{id_column} LIMIT (SELECT {})) AS entries",
        SMALL + 1
    ));
    let entries: i64 = run!(conn, c => bound!(sqlx::query_scalar(sql).persistent(false), &query.binds).fetch_one(c))?;
    Ok(entries <= SMALL)
}

/// Returns whether the filters leave few records, without the sets.
async fn has_few(conn: &mut Conn, search: &Search<'_>) -> Result<bool> {
    if search.conditions.is_empty() {
        return Ok(false);
    }
    let mut query = Query::of(search, conn.is_postgres());
    let conditions = query.filters();
    let sql = sqlx::AssertSqlSafe(format!(
        "SELECT count(*) FROM (SELECT 1 FROM {} r WHERE {conditions} LIMIT {}) AS entries",
        search.table.name,
        FEW + 1
    ));
    let found: i64 = run!(conn, c => bound!(sqlx::query_scalar(sql).persistent(false), &query.binds).fetch_one(c))?;
    Ok(found <= FEW)
}

/// Returns the distinct words of a range, with one look-up in the key for each. Returns `None` if they are more than
/// [`MAX_WORDS`].
async fn words_of(conn: &mut Conn, search: &Search<'_>, range: &SearchTerm) -> Result<Option<Vec<String>>> {
    let table = search.table.words;
    let sql = format!(
        "WITH RECURSIVE found (word) AS (
            SELECT min(word)
            FROM {table}
            WHERE brand_id = $1 AND word >= $2 AND word < $3
            UNION ALL
            SELECT (
                SELECT min(word)
                FROM {table}
                WHERE brand_id = $1 AND word > found.word AND word < $3
            )
            FROM found
            WHERE found.word IS NOT NULL
        )
        SELECT word
        FROM found
        WHERE word IS NOT NULL
        LIMIT $4"
    );
    let (sql, from, to) = (sqlx::AssertSqlSafe(sql), &range.from, &range.to);
    let words: Vec<String> = run!(conn, c => sqlx::query_scalar(sql)
        .bind(search.brand_id)
        .bind(from)
        .bind(to)
        .bind(MAX_WORDS + 1)
        .fetch_all(c))?;
    Ok(Some(words).filter(|words| words.len() as i64 <= MAX_WORDS))
}

/// Returns the IDs of a page if a short scan from the nearer end of the list finds it.
async fn ids_near(
    conn: &mut Conn,
    search: &Search<'_>,
    sets: &Sets<'_>,
    page: PageRequest,
    total: i64,
) -> Result<Option<Vec<i64>>> {
    let rows = page.per_page.min(total.saturating_sub(page.offset()));
    if sets.all.is_empty() || sets.small.is_some() || rows <= 0 {
        return Ok(None);
    }
    let behind = total - page.offset() - rows;
    let is_nearer_to_end = behind < page.offset();
    let (order, skipped) = match is_nearer_to_end {
        true => (search.order.backward, behind),
        false => (search.order.forward, page.offset()),
    };
    if skipped + rows > MAX_WALK {
        return Ok(None);
    }
    let near = if sets.has_wide() { ids_of_near(conn, search, order).await? } else { String::new() };
    let mut query = Query::of(search, conn.is_postgres());
    let found = query.found_near(sets, order, &near);
    let (limit, offset) = (query.bind(Bind::Number(rows)), query.bind(Bind::Number(skipped)));
    let sql = sqlx::AssertSqlSafe(format!("{found} LIMIT {limit} OFFSET {offset}"));
    let mut ids: Vec<i64> =
        run!(conn, c => bound!(sqlx::query_scalar(sql).persistent(false), &query.binds).fetch_all(c))?;
    if is_nearer_to_end {
        ids.reverse();
    }
    Ok(Some(ids).filter(|ids| ids.len() as i64 == rows))
}

/// Returns the IDs of the first entries of the list in this order, as an SQL list.
async fn ids_of_near(conn: &mut Conn, search: &Search<'_>, order: &str) -> Result<String> {
    let mut query = Query::of(search, conn.is_postgres());
    let sql = sqlx::AssertSqlSafe(format!("SELECT id FROM ({}) AS near", query.near(order)));
    let ids: Vec<i64> = run!(conn, c => bound!(sqlx::query_scalar(sql).persistent(false), &query.binds).fetch_all(c))?;
    // An SQL list cannot be empty, and no record has the ID 0.
    Ok(ids.iter().fold("0".to_owned(), |list, id| format!("{list}, {id}")))
}

/// Returns the IDs of a page: by a scan of the index from its beginning, or by sorting a small set.
async fn ids(conn: &mut Conn, search: &Search<'_>, sets: &Sets<'_>, page: PageRequest) -> Result<Vec<i64>> {
    let mut query = Query::of(search, conn.is_postgres());
    let found = query.found(sets);
    let (limit, offset) = (query.bind(Bind::Number(page.per_page)), query.bind(Bind::Number(page.offset())));
    let order = search.order.forward;
    let sql = sqlx::AssertSqlSafe(format!("SELECT r.id {found} ORDER BY {order} LIMIT {limit} OFFSET {offset}"));
    Ok(run!(conn, c => bound!(sqlx::query_scalar(sql).persistent(false), &query.binds).fetch_all(c))?)
}

async fn total(conn: &mut Conn, search: &Search<'_>, sets: &Sets<'_>) -> Result<i64> {
    let mut query = Query::of(search, conn.is_postgres());
    let sql = match sets.all.as_slice() {
        // Every record of such a set exists, so there is nothing to look up.
        [set @ (Set::Words { .. } | Set::Members(Membership { is_of_brand: true, .. }))]
            if search.conditions.is_empty() =>
        {
            // A record has an entry for each distinct word.
            let is_distinct = match set {
                Set::Members(_) => true,
                Set::Words { words, .. } => words.as_ref().is_some_and(|words| words.len() == 1),
            };
            let counted = match is_distinct {
                true => "*".to_owned(),
                false => format!("DISTINCT {}", search.table.id_column),
            };
            format!("SELECT count({counted}) FROM ({}) AS entries", query.set(set))
        }
        _ => format!("SELECT count(*) {}", query.found(sets)),
    };
    let sql = sqlx::AssertSqlSafe(sql);
    Ok(run!(conn, c => bound!(sqlx::query_scalar(sql).persistent(false), &query.binds).fetch_one(c))?)
}
