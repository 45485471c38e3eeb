//! The statements of the inbox, of searches of posts and of analytics find their rows by an index. The tables hold 100,000 rows of other
//! workspaces (on Postgres 30,000 for the inbox as well, where it chooses other plans) and have no planner statistics. No
//! statement reads much more than the few hundred rows that it needs.
//!
//! The tests measure what is read: on Postgres the scans of whole tables and the index entries, on SQLite the
//! instructions of its virtual machine. A walk over 100,000 rows takes several instructions for each row.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::analytics::{AccountMetrics, PostMetric, PostMetrics};
use crier_domain::conversation::ConversationStatus;
use crier_domain::plan::Plans;
use crier_domain::platform::{ConversationType, Platform};
use crier_domain::post::{PostSort, PostStatus};
use crier_domain::words;
use crier_store::adoptions::{self, Adopter};
use crier_store::analytics::{self, CollectedMetrics};
use crier_store::conversations::list::{ConversationFilter, list};
use crier_store::conversations::{self, replies};
use crier_store::db::Engine;
use crier_store::nearby_posts::{self, NearbyQuery};
use crier_store::posts::{self, PostFilter};
use crier_store::report_metrics::{self, TopPostsQuery};
use crier_store::{PageRequest, Result, Tx, accounts, inbox_syncs, notices, targets};

use crate::support::store::{TestStore, World, on_both};

on_both![
    inbox_statements_read_few_of_100_000_rows,
    analytics_statements_read_few_of_100_000_rows,
    searches_of_posts_read_few_of_100_000_rows,
    exports_read_few_of_100_000_own_posts,
    due_accounts_are_found_among_100_000,
    due_notices_are_found_among_100_000,
];

/// After five runs Postgres may switch to a generic plan, which ignores the bound values.
const RUNS: usize = 7;
pub(super) const OTHER_ROWS: i64 = 100_000;
/// The number of rows of the brand that is queried.
const OWN_ROWS: i64 = 300;
/// The maximum number of index entries that one run may read on Postgres.
const MAX_ENTRIES: i64 = 8_000;
/// The maximum number of instructions that one run may take on SQLite.
const MAX_STEPS: i64 = 120_000;
/// The number of instructions between two calls of the progress handler.
const STEPS_PER_CALL: i32 = 100;

/// On Postgres, returns the scans of whole tables and the index entries read in this transaction so far.
async fn reads(tx: &mut Tx) -> (i64, i64) {
    const SQL: &str = "
        SELECT sum(CASE WHEN c.relkind = 'r' THEN pg_stat_get_xact_numscans(c.oid) ELSE 0 END)::bigint,
            sum(CASE WHEN c.relkind = 'r' THEN 0 ELSE pg_stat_get_xact_tuples_returned(c.oid) END)::bigint
        FROM pg_class c
        LEFT JOIN pg_index i ON i.indexrelid = c.oid
        WHERE coalesce(i.indrelid, c.oid) = ANY (ARRAY[
            'conversations', 'conversation_words', 'conversation_tags', 'messages', 'inbox_syncs', 'social_accounts',
            'posts', 'post_labels', 'post_words', 'post_targets', 'target_analytics', 'target_metrics', 'account_metrics', 'metrics_set_aside',
            'notices'
        ]::regclass[])";
    match tx.engine() {
        Engine::Pg(conn) => sqlx::query_as(SQL).fetch_one(conn).await.unwrap(),
        Engine::Sqlite(_) => (0, 0),
    }
}

/// On SQLite, counts the instructions of this transaction from here on.
async fn count_steps(tx: &mut Tx) -> Arc<AtomicI64> {
    let steps = Arc::new(AtomicI64::new(0));
    let counted = steps.clone();
    if let Engine::Sqlite(conn) = tx.engine() {
        conn.connection.lock_handle().await.unwrap().set_progress_handler(STEPS_PER_CALL, move || {
            counted.fetch_add(i64::from(STEPS_PER_CALL), Ordering::Relaxed);
            true
        });
    }
    steps
}

/// A transaction, and a measurement of what functions read in it.
pub(super) struct Measurement {
    tx: Tx,
    steps: Arc<AtomicI64>,
    /// The functions that read too much.
    excesses: Vec<String>,
}

impl Measurement {
    async fn new(mut tx: Tx) -> Self {
        // The transaction may be idle for longer than the default timeout.
        if let Engine::Pg(conn) = tx.engine() {
            sqlx::query("SET LOCAL idle_in_transaction_session_timeout = 0").execute(conn).await.unwrap();
        }
        let steps = count_steps(&mut tx).await;
        Self { tx, steps, excesses: Vec::new() }
    }

    /// Runs a function [`RUNS`] times, and records it if a run reads too much.
    pub(super) async fn check<T>(&mut self, what: &str, mut work: impl AsyncFnMut(&mut Tx) -> Result<T>) {
        for run in 1..=RUNS {
            let ((scans, entries), steps) = (reads(&mut self.tx).await, self.steps.load(Ordering::Relaxed));
            work(&mut self.tx).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            let steps = self.steps.load(Ordering::Relaxed) - steps;
            let after = reads(&mut self.tx).await;
            let (scans, entries) = (after.0 - scans, after.1 - entries);
            if scans > 0 || entries > MAX_ENTRIES || steps > MAX_STEPS {
                self.excesses.push(format!("{what}, run {run}: {scans} scans, {entries} entries, {steps} steps"));
                return;
            }
        }
    }

    pub(super) fn finish(self) {
        assert!(self.excesses.is_empty(), "too much is read: {:#?}", self.excesses);
    }
}

/// A brand with some rows, and another workspace with many.
pub(super) struct LargeTables {
    pub(super) s: TestStore,
    pub(super) own: World,
    others: World,
    pub(super) account: i64,
    busy: i64,
    /// The number of rows of the other workspace.
    rows: i64,
}

impl LargeTables {
    pub(super) async fn new(s: TestStore, rows: i64) -> Self {
        let (own, others) = (s.create_world().await, s.world_of("bob@example.com").await);
        let (account, busy) = (s.account(own, "demo", "t").await.id, s.account(others, "busy", "t").await.id);
        Self { s, own, others, account, busy, rows }
    }

    /// The numbers from 1 to `last`, as a table. Those above `rows` belong to the brand that is queried.
    pub(super) fn numbers(&self, last: i64) -> String {
        match self.s.is_postgres() {
            true => format!("generate_series(1, {last}) AS s (n)"),
            false => format!(
                "(WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {last}) SELECT n FROM s) s"
            ),
        }
    }

    /// A time some seconds from now, as an SQL expression.
    pub(super) fn time_expression(&self, seconds: &str) -> String {
        let now = self.s.now().to_rfc3339();
        match self.s.is_postgres() {
            true => format!("'{now}'::timestamptz + ({seconds}) * interval '1 s'"),
            false => format!("strftime('%Y-%m-%dT%H:%M:%S+00:00', '{now}', ({seconds}) || ' seconds')"),
        }
    }

    /// An SQL expression: `own` for the rows of the brand that is queried, `others` for the other rows.
    fn own_or_other(&self, own: i64, others: i64) -> String {
        format!("CASE WHEN n > {} THEN {own} ELSE {others} END", self.rows)
    }

    pub(super) async fn sql(&self, sql: String) {
        if self.s.is_postgres() && sql.trim_start().starts_with("INSERT INTO ") {
            let table = sql.split_whitespace().nth(2).unwrap();
            self.s.sql(format!("ALTER TABLE {table} SET (autovacuum_enabled = false)")).await;
        }
        self.s.sql(sql).await;
    }

    async fn fill_inbox(&self) {
        let (numbers, now) = (self.numbers(self.rows + OWN_ROWS), self.s.now().to_rfc3339());
        let (brand, account) =
            (self.own_or_other(self.own.brand, self.others.brand), self.own_or_other(self.account, self.busy));
        let assignee = self.own_or_other(self.own.user, self.others.user);
        for sql in [
            format!(
                "
                INSERT INTO conversations (
                    brand_id, account_id, platform, type, status, unread_count, assignee_id, snoozed_until,
                    last_message_at, created_at, updated_at, thread_id, last_message_preview, reply_context
                )
                SELECT {brand}, {account},
                    CASE WHEN n % 3 = 0 THEN 'mastodon' ELSE 'sandbox' END,
                    CASE WHEN n % 2 = 0 THEN 'dm' ELSE 'comment' END,
                    CASE WHEN n % 5 = 0 THEN 'snoozed' ELSE 'open' END,
                    n % 4,
                    CASE WHEN n % 7 = 0 THEN {assignee} END,
                    CASE WHEN n % 5 = 0 THEN {later} END,
                    {at}, '{now}', '{now}', 't' || n, 'x', '{{}}'
                FROM {numbers}",
                later = self.time_expression("n"),
                at = self.time_expression("-n"),
            ),
            "
            INSERT INTO conversation_words (brand_id, word, conversation_id)
            SELECT brand_id, 'bread', id
            FROM conversations"
                .to_owned(),
            "
            INSERT INTO conversation_tags (brand_id, tag, conversation_id)
            SELECT brand_id, 'urgent', id
            FROM conversations"
                .to_owned(),
            format!(
                "
                INSERT INTO messages (
                    conversation_id, brand_id, account_id, direction, status, sent_at, attempts, created_at, updated_at,
                    external_id, body
                )
                SELECT id, brand_id, account_id, 'inbound', 'received', last_message_at, 0, '{now}', '{now}',
                    'm' || id, 'bread'
                FROM conversations"
            ),
        ] {
            self.sql(sql).await;
        }
    }

    async fn fill_posts(&self) {
        let (numbers, now) = (self.numbers(self.rows + OWN_ROWS), self.s.now().to_rfc3339());
        let brand = self.own_or_other(self.own.brand, self.others.brand);
        for sql in [
            format!(
                "
                INSERT INTO posts (
                    brand_id, status, content, schedule_type, media, labels, counted, scheduled_at, published_at,
                    created_at, updated_at
                )
                SELECT {brand}, CASE WHEN n % 2 = 0 THEN 'published' ELSE 'failed' END, 'x', 'now', '[]', '[\"urgent\"]',
                    TRUE, CASE WHEN n % 3 = 0 THEN {at} END, CASE WHEN n % 2 = 0 THEN {at} END, '{now}', '{now}'
                FROM {numbers}",
                at = self.time_expression("-n"),
            ),
            format!(
                "
                INSERT INTO post_targets (
                    post_id, account_id, platform, position, status, options, created_at, updated_at
                )
                SELECT id, CASE WHEN brand_id = {} THEN {} ELSE {} END, 'sandbox', 0, 'published', '{{}}', '{now}', '{now}'
                FROM posts",
                self.own.brand, self.account, self.busy
            ),
            "
            INSERT INTO post_words (brand_id, word, post_id)
            SELECT brand_id, 'bread', id
            FROM posts"
                .to_owned(),
        ] {
            self.sql(sql).await;
        }
    }

    async fn fill_metrics(&self) {
        let (numbers, now) = (self.numbers(self.rows + OWN_ROWS), self.s.now().to_rfc3339());
        let brand = self.own_or_other(self.own.brand, self.others.brand);
        for sql in [
            format!(
                "
                INSERT INTO posts (
                    brand_id, status, content, schedule_type, media, counted, published_at, created_at, updated_at
                )
                SELECT {brand}, 'published', 'x', 'now', '[]', TRUE, {at}, '{now}', '{now}'
                FROM {numbers}",
                at = self.time_expression("-3600 - n"),
            ),
            format!(
                "
                INSERT INTO post_targets (
                    post_id, account_id, platform, position, status, options, external_id, published_at, created_at,
                    updated_at
                )
                SELECT id, CASE WHEN brand_id = {} THEN {} ELSE {} END, 'sandbox', 0, 'published', '{{}}', 'e' || id,
                    published_at, '{now}', '{now}'
                FROM posts",
                self.own.brand, self.account, self.busy
            ),
            format!(
                "
                INSERT INTO target_analytics (target_id, post_id, brand_id, account_id, published_at, next_at, likes)
                SELECT t.id, p.id, p.brand_id, t.account_id, t.published_at, '{now}', 1
                FROM post_targets t
                JOIN posts p ON p.id = t.post_id"
            ),
            format!(
                "INSERT INTO target_metrics (target_id, at, likes) SELECT target_id, '{now}', 1 FROM target_analytics"
            ),
            format!(
                "INSERT INTO account_metrics (account_id, at, followers) SELECT {}, {}, n FROM {numbers}",
                self.own_or_other(self.account, self.busy),
                self.time_expression("-n"),
            ),
            format!("UPDATE analytics_progress SET seen_until = '{now}'"),
        ] {
            self.sql(sql).await;
        }
    }

    /// Creates accounts of the other workspace that are not due, and as many inbox syncs and postponed metrics.
    async fn fill_accounts(&self) {
        let (now, later) = (self.s.now().to_rfc3339(), self.time_expression("86400 + n"));
        let secrets = if self.s.is_postgres() { "''::bytea" } else { "x''" };
        for sql in [
            format!(
                "
                INSERT INTO social_accounts (
                    workspace_id, platform, external_id, name, kind, status, secrets, metrics_at, connected_at,
                    created_at, updated_at
                )
                SELECT {}, 'sandbox', 'a' || n, 'x', 'profile', 'active', {secrets}, {later}, '{now}', '{now}', '{now}'
                FROM {}",
                self.others.workspace,
                self.numbers(self.rows)
            ),
            "INSERT INTO inbox_syncs (account_id, next_sync_at, created_at, cursors) \
             SELECT id, metrics_at, created_at, '{}' FROM social_accounts WHERE metrics_at IS NOT NULL"
                .to_owned(),
            format!(
                "INSERT INTO metrics_set_aside (account_id, name, until) SELECT id, 'views', {} FROM social_accounts",
                self.time_expression("3600")
            ),
        ] {
            self.sql(sql).await;
        }
    }

    pub(super) async fn measure(&self) -> Measurement {
        Measurement::new(self.s.begin().await.unwrap()).await
    }
}

async fn inbox_statements_read_few_of_100_000_rows(s: TestStore) {
    assert_inbox_reads_few(LargeTables::new(s, OTHER_ROWS).await).await;
}

/// Only on Postgres: without statistics, the plans of SQLite do not depend on the number of rows.
#[tokio::test]
async fn inbox_statements_read_few_of_30_000_rows_on_postgres() {
    assert_inbox_reads_few(LargeTables::new(TestStore::postgres().await, 30_000).await).await;
}

async fn assert_inbox_reads_few(tables: LargeTables) {
    tables.fill_inbox().await;
    let own = format!("SELECT max(id) FROM conversations WHERE brand_id = {}", tables.own.brand);
    let id = tables.s.number(own).await;
    let message = tables.s.number(format!("SELECT id FROM messages WHERE conversation_id = {id}")).await;
    let (brand, account, user) = (tables.own.brand, tables.account, tables.own.user);
    let mut measurement = tables.measure().await;
    let all = ConversationFilter::default();
    let filters = [
        ("all", all.clone()),
        ("status", ConversationFilter { status: Some(ConversationStatus::Snoozed), ..all.clone() }),
        ("type", ConversationFilter { kind: Some(ConversationType::Dm), ..all.clone() }),
        ("platform", ConversationFilter { platform: Some(Platform::Mastodon), ..all.clone() }),
        ("account", ConversationFilter { account_id: Some(account), ..all.clone() }),
        ("assignee", ConversationFilter { assignee_id: Some(user), ..all.clone() }),
        ("unread", ConversationFilter { unread: Some(true), ..all.clone() }),
        ("read", ConversationFilter { unread: Some(false), ..all.clone() }),
        ("tag", ConversationFilter { tag: Some("urgent".to_owned()), ..all.clone() }),
        ("search", ConversationFilter { words: words::search_terms("bre"), ..all.clone() }),
        ("search for nothing", ConversationFilter { words: words::search_terms("cake"), ..all.clone() }),
        (
            "everything",
            ConversationFilter {
                status: Some(ConversationStatus::Open),
                kind: Some(ConversationType::Comment),
                platform: Some(Platform::Sandbox),
                account_id: Some(account),
                assignee_id: Some(user),
                unread: Some(true),
                tag: Some("urgent".to_owned()),
                words: words::search_terms("bread"),
            },
        ),
    ];
    for (what, filter) in filters {
        for page in [1, 3] {
            let page = PageRequest { page, per_page: 50 };
            measurement.check(&format!("list by {what}"), async |tx| list(tx, brand, &filter, page).await).await;
        }
    }
    measurement.check("find", async |tx| conversations::find(tx, brand, id).await).await;
    measurement.check("lock of message", async |tx| conversations::lock_of_message(tx, message).await).await;
    measurement.check("messages", async |tx| replies::messages(tx, id, 500, 1 << 20).await).await;
    measurement.check("message", async |tx| replies::find(tx, message).await).await;
    measurement.check("place", async |tx| replies::place(tx, message).await).await;
    measurement.check("taken", async |tx| adoptions::is_taken(tx, &[account], Adopter::Target(1), "1").await).await;
    measurement.check("tags", async |tx| conversations::tags(tx, &[id]).await).await;
    measurement.check("tags of the brand", async |tx| conversations::tags_of_brand(tx, brand, 100).await).await;
    measurement.check("accounts", async |tx| accounts::summaries(tx, brand, &[account]).await).await;
    measurement.check("directions", async |tx| conversations::last_directions(tx, &[id]).await).await;
    measurement.check("unread", async |tx| conversations::count_unread(tx, brand, 100).await).await;
    measurement.check("read", async |tx| conversations::mark_read(tx, id).await).await;
    measurement.check("snoozes", async |tx| conversations::end_snoozes(tx, 100).await).await;
    measurement.finish();
}

async fn searches_of_posts_read_few_of_100_000_rows(s: TestStore) {
    let tables = LargeTables::new(s, OTHER_ROWS).await;
    tables.fill_posts().await;
    let (brand, account, now) = (tables.own.brand, tables.account, tables.s.now());
    let mut measurement = tables.measure().await;
    let all = PostFilter::default();
    let status = Some(PostStatus::Failed);
    let (from, to) = (Some(now - TimeDelta::days(365)), Some(now + TimeDelta::days(1)));
    let label = Some("urgent".to_owned());
    let filters = [
        ("nothing", all.clone()),
        ("status", PostFilter { status, ..all.clone() }),
        ("account", PostFilter { account_id: Some(account), ..all.clone() }),
        ("label", PostFilter { label: label.clone(), ..all.clone() }),
        ("search", PostFilter { words: words::search_terms("bre"), ..all.clone() }),
        ("search for nothing", PostFilter { words: words::search_terms("cake"), ..all.clone() }),
        ("time", PostFilter { from, to, ..all.clone() }),
        ("status and time", PostFilter { status, from, to, ..all.clone() }),
        (
            "everything",
            PostFilter {
                status,
                account_id: Some(account),
                label,
                words: words::search_terms("bread"),
                from,
                to,
                sort: None,
            },
        ),
    ];
    for (what, filter) in filters {
        for (sort, page) in PostSort::ALL.iter().flat_map(|sort| [(*sort, 1), (*sort, 3)]) {
            let filter = PostFilter { sort: Some(sort), ..filter.clone() };
            let page = PageRequest { page, per_page: 50 };
            measurement
                .check(&format!("{what}, {sort}"), async |tx| posts::search(tx, brand, &filter, page).await)
                .await;
        }
    }
    let page = PageRequest { page: 1, per_page: 50 };
    let (ids, _) = posts::search(&mut measurement.tx, brand, &all, page).await.unwrap();
    measurement.check("posts", async |tx| posts::find_each(tx, brand, &ids).await).await;
    measurement.check("sizes", async |tx| posts::count_fitting(tx, brand, &ids, 1 << 20).await).await;
    measurement.check("labels", async |tx| posts::labels(tx, brand).await).await;
    measurement.finish();
}

/// Each part of an export reads about as many entries as it has posts, although all other posts of the brand match too.
/// Without statistics, as after an import.
async fn exports_read_few_of_100_000_own_posts(s: TestStore) {
    let tables = LargeTables::new(s, OTHER_ROWS).await;
    tables.fill_posts().await;
    let (brand, now) = (tables.others.brand, tables.s.now());
    let middle = tables.s.number(format!("SELECT min(id) + 50000 FROM posts WHERE brand_id = {brand}")).await;
    let mut measurement = tables.measure().await;
    let all = PostFilter::default();
    let (from, to) = (Some(now - TimeDelta::days(365)), Some(now + TimeDelta::days(1)));
    let filters = [
        ("nothing", all.clone()),
        ("status", PostFilter { status: Some(PostStatus::Failed), ..all.clone() }),
        ("account", PostFilter { account_id: Some(tables.busy), ..all.clone() }),
        ("label", PostFilter { label: Some("urgent".to_owned()), ..all.clone() }),
        ("search", PostFilter { words: words::search_terms("bre"), ..all.clone() }),
        ("search for nothing", PostFilter { words: words::search_terms("cake"), ..all.clone() }),
        ("time", PostFilter { from, to, ..all.clone() }),
    ];
    for (what, filter) in filters {
        for before in [None, Some(middle)] {
            measurement
                .check(&format!("export by {what}, before {before:?}"), async |tx| {
                    posts::ids_before(tx, brand, &filter, before, 200).await
                })
                .await;
        }
    }
    let ids = posts::ids_before(&mut measurement.tx, brand, &all, Some(middle), 200).await.unwrap();
    assert_eq!(ids.len(), 200);
    measurement.check("posts", async |tx| posts::find_each(tx, brand, &ids).await).await;
    measurement.check("posts to change", async |tx| posts::find_each_for_update(tx, brand, &ids).await).await;
    measurement.check("sizes", async |tx| posts::count_fitting(tx, brand, &ids, 1 << 20).await).await;
    measurement.check("accounts", async |tx| targets::target_summaries(tx, &ids).await).await;
    measurement.finish();
}

async fn analytics_statements_read_few_of_100_000_rows(s: TestStore) {
    let tables = LargeTables::new(s, OTHER_ROWS).await;
    tables.fill_metrics().await;
    tables.fill_accounts().await;
    let newest = format!("SELECT max(target_id) FROM target_analytics WHERE brand_id = {}", tables.own.brand);
    let target = tables.s.number(newest).await;
    let post = tables.s.number(format!("SELECT post_id FROM post_targets WHERE id = {target}")).await;
    let (brand, account) = (tables.own.brand, tables.account);
    let mut measurement = tables.measure().await;
    let (now, year) = (tables.s.now(), tables.s.now() - TimeDelta::days(365));
    let day = |back: i64| (now - TimeDelta::days(back + 1), now - TimeDelta::days(back));
    let days: Vec<(DateTime<Utc>, DateTime<Utc>)> = (0..365).map(day).collect();
    measurement.check("newly published", async |tx| analytics::add_published(tx, None, 200).await).await;
    measurement.check("due posts", async |tx| analytics::due_targets(tx, account, now, 500).await).await;
    measurement.check("last of the account", async |tx| analytics::last_of_account(tx, account).await).await;
    measurement.check("zone", async |tx| analytics::zone_of_account(tx, account).await).await;
    measurement.check("plan", async |tx| analytics::plan_of_account(tx, account).await).await;
    for of in [None, Some(account)] {
        measurement.check("days of posts", async |tx| analytics::days_of_posts(tx, brand, of, &days).await).await;
        measurement.check("best times", async |tx| analytics::engagements(tx, brand, of, year, 5_000).await).await;
        let query = TopPostsQuery { brand_id: brand, account_id: of, range: (year, now), metric: PostMetric::Likes };
        measurement.check("top posts", async |tx| report_metrics::top_posts(tx, query, 10).await).await;
    }
    measurement.check("accounts", async |tx| analytics::of_accounts(tx, &[account], (year, now)).await).await;
    measurement.check("a post", async |tx| analytics::of_post(tx, post, year).await).await;
    let time = (year, now);
    measurement.check("newest posts", async |tx| report_metrics::newest(tx, brand, time, 50, 100).await).await;
    measurement.check("best posts", async |tx| report_metrics::most_engaging(tx, brand, time, 50, 100).await).await;
    measurement.check("by account", async |tx| report_metrics::by_account(tx, brand, time).await).await;
    let nearby = NearbyQuery {
        brand_id: brand,
        except: None,
        content: "x",
        accounts: vec![(account, None)],
        same_text: now - TimeDelta::days(7)..=now + TimeDelta::days(7),
        any_text: now - TimeDelta::minutes(5)..=now + TimeDelta::minutes(5),
    };
    measurement.check("nearby posts", async |tx| nearby_posts::find(tx, &nearby).await).await;
    let collected = |metrics| [CollectedMetrics { target_id: target, metrics, next_at: Some(now) }];
    let likes = PostMetrics { likes: Some(1), ..PostMetrics::default() };
    measurement.check("store posts", async |tx| analytics::record_posts(tx, &collected(Some(likes))).await).await;
    measurement.check("store a deletion", async |tx| analytics::record_posts(tx, &collected(None)).await).await;
    let own = AccountMetrics::default();
    measurement.check("store the account", async |tx| analytics::record_account(tx, account, &own).await).await;
    measurement.check("next", async |tx| analytics::set_next(tx, account, now, now).await).await;
    measurement.finish();
}

async fn due_accounts_are_found_among_100_000(s: TestStore) {
    let tables = LargeTables::new(s, OTHER_ROWS).await;
    tables.fill_accounts().await;
    let account = tables.account;
    let mut measurement = tables.measure().await;
    let platforms = [Platform::Sandbox];
    let (now, names) = (tables.s.now(), ["views".to_owned()]);
    measurement.check("due collections", async |tx| analytics::enqueue_due(tx, &platforms, 200).await).await;
    measurement.check("due looks", async |tx| inbox_syncs::enqueue_due(tx, 200, &Plans::default()).await).await;
    measurement.check("inbox of an account", async |tx| inbox_syncs::find(tx, account).await).await;
    measurement.check("start", async |tx| inbox_syncs::start(tx, account).await).await;
    measurement.check("set aside", async |tx| analytics::set_aside(tx, account, now).await).await;
    measurement.check("unavailable", async |tx| analytics::unavailable_metrics_of(tx, &[account], now).await).await;
    measurement
        .check("store what is set aside", async |tx| analytics::record_unavailable_metrics(tx, account, &names).await)
        .await;
    measurement.finish();
}

/// The problems of another user were added within the last half hour, so no email is due. Those of this user are due
/// immediately.
async fn due_notices_are_found_among_100_000(s: TestStore) {
    let tables = LargeTables::new(s, OTHER_ROWS).await;
    let (own, others) = (tables.own.user, tables.others.user);
    tables.sql(format!("UPDATE users SET notice_frequency = 'immediately' WHERE id = {own}")).await;
    let insert = format!(
        "
        INSERT INTO notices (user_id, kind, subject_id, created_at)
        SELECT {}, 'post_failed', n, {}
        FROM {}",
        tables.own_or_other(own, others),
        tables.time_expression("-(n % 1800)"),
        tables.numbers(OTHER_ROWS + OWN_ROWS),
    );
    tables.sql(insert).await;
    let now = tables.s.now();
    let mut measurement = tables.measure().await;
    measurement
        .check("due notices", async |tx| {
            let due = notices::due(tx, now, 500).await?;
            assert_eq!(due, [own]);
            Ok(due)
        })
        .await;
    measurement.finish();
}
