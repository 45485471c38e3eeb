//! Migrations: the same schema on both engines; repeated and concurrent runs are safe.

use std::collections::BTreeMap;

use crier_domain::access::Role;
use crier_domain::event::EventName;
use crier_domain::feed::FeedType;
use crier_domain::job::{JobKind, JobState};
use crier_domain::platform::Platform;
use crier_store::accounts::{self, NewAccount};
use crier_store::feeds::{self, NewFeed};
use crier_store::{Db, events, inbox_syncs, operators, users};

use crate::support::store::{TestStore, new_account, on_both, run_concurrently};

on_both![
    a_second_migration_changes_nothing,
    health_check_reports_reachability_and_schema_version,
    constraints_reject_unknown_values,
    children_are_deleted_with_their_parents,
    making_brands_optional_keeps_existing_ones,
    the_operator_stays_operator,
    feeds_are_read_again_after_an_upgrade,
    members_stay_members_when_a_role_is_added,
    accounts_connected_before_an_inbox_was_read_are_looked_at,
    accounts_of_platforms_that_got_an_inbox_are_looked_at,
    linkedin_pages_are_looked_at_and_unread_messages_are_known,
    unsubscriptions_from_a_schedule_hold_for_the_workspace
];

/// Tables with their columns: name and nullability.
type Schema = BTreeMap<String, Vec<(String, bool)>>;

async fn schema(s: &TestStore) -> Schema {
    let rows: Vec<(String, String, bool)> = match s.db() {
        Db::Pg(pool) => sqlx::query_as(
            "
            SELECT table_name::text, column_name::text, is_nullable = 'YES'
            FROM information_schema.columns
            WHERE table_schema = 'public'
            ORDER BY 1, 2",
        )
        .fetch_all(&mut *pool.acquire().await.expect("a connection"))
        .await
        .unwrap(),
        Db::Sqlite { writer, .. } => sqlx::query_as(
            r#"
            SELECT t.name, c.name, c."notnull" = 0 AND c.pk = 0
            FROM sqlite_schema t
            JOIN pragma_table_info(t.name) c
            WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'
            ORDER BY 1, 2"#,
        )
        .fetch_all(&mut *writer.acquire().await.expect("a connection"))
        .await
        .unwrap(),
    };
    let mut schema = Schema::new();
    for (table, column, nullable) in rows.into_iter().filter(|row| row.0 != "_sqlx_migrations") {
        schema.entry(table).or_default().push((column, nullable));
    }
    schema
}

/// Returns the names of all indexes that the migrations name.
async fn indexes(s: &TestStore) -> Vec<String> {
    let sql = if s.is_postgres() {
        "
        SELECT string_agg(indexname, ',' ORDER BY indexname)
        FROM pg_indexes
        WHERE schemaname = 'public'
            AND indexname NOT LIKE '%_pkey'
            AND indexname NOT LIKE '%_key'"
    } else {
        "
        SELECT group_concat(name, ',')
        FROM (
            SELECT name
            FROM sqlite_schema
            WHERE type = 'index' AND sql IS NOT NULL
            ORDER BY name
        )"
    };
    s.value::<String>(sql).await.split(',').map(str::to_owned).collect()
}

#[tokio::test]
async fn both_engines_have_the_same_tables_columns_and_indexes() {
    let (sqlite, postgres) = (TestStore::sqlite().await, TestStore::postgres().await);
    let (left, right) = (schema(&sqlite).await, schema(&postgres).await);
    assert!(left.contains_key("jobs") && left["jobs"].contains(&("lane".to_owned(), true)));
    assert_eq!(left, right);
    assert_eq!(indexes(&sqlite).await, indexes(&postgres).await);
}

async fn a_second_migration_changes_nothing(s: TestStore) {
    let before = schema(&s).await;
    s.workspace().await;
    s.db().migrate().await.unwrap();
    s.open_second_store().await.db().migrate().await.unwrap();
    assert_eq!(schema(&s).await, before);
    assert_eq!(s.number("SELECT count(*) FROM workspaces").await, 1);
}

async fn health_check_reports_reachability_and_schema_version(s: TestStore) {
    s.db().ping().await.unwrap();
    s.db().check_schema_version().await.unwrap();
    s.sql(
        "
        UPDATE _sqlx_migrations
        SET version = version + 1000000000
        WHERE version = (SELECT max(version) FROM _sqlx_migrations)",
    )
    .await;
    s.db().check_schema_version().await.expect("a newer schema is accepted");
    s.sql("DELETE FROM _sqlx_migrations").await;
    assert!(s.db().check_schema_version().await.is_err());
    s.sql("ALTER TABLE jobs RENAME TO jobs_of_old").await;
    assert!(s.db().ping().await.is_err());
}

/// By foreign keys, and on Postgres in part by triggers.
async fn children_are_deleted_with_their_parents(s: TestStore) {
    let w = s.create_world().await;
    let (key, (post, targets)) = (s.key(w.user).await, s.post(w, &[1, 2]).await);
    let at = "'2026-01-01T00:00:00Z'";
    let hook = format!(
        "INSERT INTO webhooks (user_id, url, secret, events, is_active, created_at, updated_at)
         VALUES ({}, 'https://a.example', 's', '[]', TRUE, {at}, {at})",
        w.user
    );
    let deliver = format!(
        "INSERT INTO webhook_deliveries (webhook_id, event_id, status, max_attempts, created_at, updated_at)
         SELECT w.id, e.id, 'pending', 1, {at}, {at} FROM webhooks w CROSS JOIN events e"
    );
    for target in &targets {
        s.sql(format!(
            "INSERT INTO target_attempts (target_id, number, started_at, duration_ms, outcome, created_at, updated_at)
             VALUES ({target}, 1, {at}, 1, 'failed', {at}, {at})"
        ))
        .await;
    }
    for sql in [
        format!(
            "INSERT INTO idempotency_keys (api_key_id, key, fingerprint, created_at) VALUES ({key}, 'k', 'f', {at})"
        ),
        format!("INSERT INTO events (name, payload, created_at) VALUES ('post.published', '{{}}', {at})"),
        hook.clone(),
        deliver.clone(),
        format!(
            "INSERT INTO webhook_attempts (delivery_id, number, started_at, duration_ms, outcome)
             SELECT id, 1, {at}, 1, '2xx' FROM webhook_deliveries"
        ),
    ] {
        s.sql(sql).await;
    }
    let count = async |table: &str| s.number(format!("SELECT count(*) FROM {table}")).await;
    for table in ["post_targets", "target_attempts", "idempotency_keys", "webhook_deliveries", "webhook_attempts"] {
        assert!(count(table).await > 0, "{table}");
    }

    s.sql(format!("DELETE FROM post_targets WHERE id = {}", targets[0])).await;
    assert_eq!((count("post_targets").await, count("target_attempts").await), (1, 1));
    s.sql(format!("DELETE FROM api_keys WHERE id = {key}")).await;
    assert_eq!(count("idempotency_keys").await, 0);
    s.sql("DELETE FROM webhooks").await;
    assert_eq!((count("webhook_deliveries").await, count("webhook_attempts").await), (0, 0));
    s.sql(hook).await;
    s.sql(deliver).await;
    s.sql("DELETE FROM events").await;
    assert_eq!(count("webhook_deliveries").await, 0);
    s.sql(format!("DELETE FROM users WHERE id = {}", w.user)).await;
    assert_eq!(count("posts WHERE author_id IS NULL").await, 1);
    s.sql(format!("DELETE FROM posts WHERE id = {post}")).await;
    assert_eq!((count("post_targets").await, count("target_attempts").await), (0, 0));
    let other = s.create_world().await;
    s.post(other, &[1]).await;
    s.sql("DELETE FROM workspaces").await;
    for table in ["brands", "brand_members", "posts", "post_targets"] {
        assert_eq!(count(table).await, 0, "{table}");
    }
}

async fn constraints_reject_unknown_values(s: TestStore) {
    let w = s.create_world().await;
    let (post, targets) = s.post(w, &[1]).await;
    for sql in [
        format!("UPDATE posts SET status = 'lost' WHERE id = {post}"),
        format!("UPDATE post_targets SET status = 'lost' WHERE id = {}", targets[0]),
        format!("UPDATE brand_members SET role = 'guest' WHERE brand_id = {}", w.brand),
        "INSERT INTO workspaces (plan, created_at, updated_at) VALUES ('p', '2026-01-01', '2026-01-01')".to_owned(),
        "INSERT INTO usage (workspace_id, month) VALUES (999, '2026-01')".to_owned(),
    ] {
        let refused = match s.db() {
            Db::Pg(pool) => sqlx::raw_sql(sqlx::AssertSqlSafe(sql.clone()))
                .execute(&mut *pool.acquire().await.expect("a connection"))
                .await
                .is_err(),
            Db::Sqlite { writer, .. } => sqlx::raw_sql(sqlx::AssertSqlSafe(sql.clone()))
                .execute(&mut *writer.acquire().await.expect("a connection"))
                .await
                .is_err(),
        };
        assert!(refused, "{sql}");
    }
}

/// Runs the migration on existing events.
async fn making_brands_optional_keeps_existing_ones(s: TestStore) {
    let w = s.create_world().await;
    let hook = s.webhook(w.user, &[EventName::BrandCreated]).await.id;
    let data = serde_json::json!({ "n": 1 });
    s.write(async |tx| events::emit(tx, w.brand, EventName::BrandCreated, &data, None).await).await;
    s.write(async |tx| events::emit_sample(tx, hook, EventName::BrandCreated, None).await).await;
    s.sql(match s.is_postgres() {
        true => include_str!("../../migrations/postgres/0007_events_without_brand.sql"),
        false => include_str!("../../migrations/sqlite/0007_events_without_brand.sql"),
    })
    .await;
    let of_brand = format!("SELECT count(*) FROM events WHERE brand_id = {} AND payload LIKE '%\"n\":1%'", w.brand);
    assert_eq!(s.number(of_brand).await, 1);
    assert_eq!(s.number("SELECT count(*) FROM events WHERE brand_id IS NULL").await, 1);
    assert_eq!(s.number("SELECT count(*) FROM webhook_deliveries").await, 2, "no delivery lost its event");
}

/// 0056 gives the right to the user who had it by being the first.
async fn the_operator_stays_operator(s: TestStore) {
    let w = s.create_world().await;
    s.user(w.workspace, "bob@example.com").await;
    s.sql("DROP TABLE operator_changes").await;
    s.sql("ALTER TABLE users DROP COLUMN is_operator").await;
    s.sql(match s.is_postgres() {
        true => include_str!("../../migrations/postgres/0056_operators.sql"),
        false => include_str!("../../migrations/sqlite/0056_operators.sql"),
    })
    .await;
    assert_eq!(operators::ids(&mut s.conn().await).await.unwrap(), [w.user]);
}

/// 0070: SQLite copies the table.
async fn members_stay_members_when_a_role_is_added(s: TestStore) {
    let w = s.create_world().await;
    s.sql(match s.is_postgres() {
        true => include_str!("../../migrations/postgres/0070_contributors.sql"),
        false => include_str!("../../migrations/sqlite/0070_contributors.sql"),
    })
    .await;
    let bob = s.user(w.workspace, "bob@example.com").await;
    s.member(w.brand, bob, Role::Contributor).await;
    let members = users::members(&mut s.conn().await, w.brand).await.unwrap();
    let roles: Vec<_> = members.iter().map(|member| (member.id, member.role)).collect();
    assert_eq!(roles, [(bob, Role::Contributor), (w.user, Role::Owner)]);
    s.sql(format!("DELETE FROM users WHERE id = {bob}")).await;
    assert_eq!(users::members(&mut s.conn().await, w.brand).await.unwrap().len(), 1, "the reference is kept");
}

/// 0069: a feed that answers 304 would never be parsed by a later release.
async fn feeds_are_read_again_after_an_upgrade(s: TestStore) {
    let w = s.create_world().await;
    let new = NewFeed { name: "F", named: false, url: "https://a.example/feed", kind: FeedType::Rss };
    let id = s.write(async |tx| feeds::create(tx, w.brand, &new, None).await).await.id;
    s.sql("UPDATE feeds SET validator_url = url, found_url = url, etag = '1', last_modified = '2', articles_count = 3")
        .await;
    s.sql(match s.is_postgres() {
        true => include_str!("../../migrations/postgres/0069_read_feeds_again.sql"),
        false => include_str!("../../migrations/sqlite/0069_read_feeds_again.sql"),
    })
    .await;
    let feed = feeds::find(&mut s.conn().await, w.brand, id).await.unwrap().unwrap();
    assert_eq!((feed.validator_url, feed.etag, feed.last_modified), (None, None, None));
    assert_eq!((feed.found_url.as_deref(), feed.articles_count), (Some("https://a.example/feed"), 3));
}

/// 0047 copies the jobs into a table whose columns are in another order.
#[tokio::test]
async fn reordering_the_columns_of_jobs_keeps_all_jobs() {
    let s = TestStore::postgres().await;
    for (subject, state) in JobState::ALL.iter().enumerate() {
        let id = s.enqueue_job(JobKind::Noop, subject.try_into().unwrap(), Some("brand:1")).await;
        s.sql(format!("UPDATE jobs SET state = '{state}', worker = '{state}', fence = {id} WHERE id = {id}")).await;
    }
    s.sql("DELETE FROM jobs WHERE id = 6").await;
    let (before, indexes_before) = (jobs_as_text(&s).await, indexes(&s).await);
    s.sql(include_str!("../../migrations/postgres/0047_jobs_written_less.sql")).await;
    s.sql(include_str!("../../migrations/postgres/0068_retries.sql")).await;
    assert_eq!((jobs_as_text(&s).await, indexes(&s).await), (before, indexes_before));
    assert_eq!(s.enqueue_job(JobKind::Noop, 9, None).await, 7, "no id is used again");
}

async fn jobs_as_text(s: &TestStore) -> String {
    s.value("SELECT string_agg(to_jsonb(j)::text, ' ' ORDER BY id) FROM jobs j").await
}

#[tokio::test]
async fn concurrent_postgres_migrations_succeed() {
    let s = TestStore::postgres().await;
    s.sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public").await;
    let url = s.place();
    let migrated = run_concurrently(4, |_| {
        let url = url.clone();
        async move {
            let db = Db::postgres(&url, 2).unwrap();
            let migrated = db.migrate().await;
            db.close().await;
            migrated
        }
    })
    .await;
    assert!(migrated.iter().all(Result::is_ok), "{migrated:?}");
    assert!(schema(&s).await.contains_key("jobs"));
}

/// Several `crier` commands on an empty directory: each opens the file and creates the schema.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_sqlite_file_creation_succeeds() {
    for _ in 0..5 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("crier.db");
        let made = run_concurrently(4, |_| {
            let path = path.clone();
            async move {
                let db = Db::sqlite(&path).await?;
                let migrated = db.migrate().await;
                db.ping().await?;
                db.close().await;
                migrated
            }
        })
        .await;
        assert!(made.iter().all(Result::is_ok), "{made:?}");
    }
}

/// 0026: a row that the first look left without a next one is looked at again; one of a platform without an inbox goes.
async fn accounts_connected_before_an_inbox_was_read_are_looked_at(s: TestStore) {
    let world = s.create_world().await;
    for (platform, started) in [
        (Platform::Sandbox, true),
        (Platform::Bluesky, false),
        (Platform::Mastodon, true),
        (Platform::Pinterest, true),
        (Platform::Pinterest, false),
    ] {
        let new = NewAccount { platform, ..new_account(&format!("{platform} {started}"), "t") };
        s.write(async |tx| {
            let account = accounts::save(tx, world.workspace, &new).await?;
            if started { inbox_syncs::start(tx, account.id).await } else { Ok(()) }
        })
        .await;
    }
    s.sql("UPDATE inbox_syncs SET next_sync_at = NULL").await;
    let (sqlite, postgres) = (
        include_str!("../../migrations/sqlite/0026_inboxes.sql"),
        include_str!("../../migrations/postgres/0026_inboxes.sql"),
    );
    s.sql(if s.is_postgres() { postgres } else { sqlite }).await;
    let rows = "
        SELECT string_agg(line, ', ')
        FROM (
            SELECT a.platform || CASE WHEN i.next_sync_at IS NULL THEN ' never' ELSE ' due' END AS line
            FROM inbox_syncs i
            JOIN social_accounts a ON a.id = i.account_id
            ORDER BY a.id
        ) l";
    assert_eq!(s.value::<String>(rows).await, "sandbox never, bluesky due, mastodon due");
    let mut conn = s.conn().await;
    let id = s.number("SELECT id FROM social_accounts WHERE platform = 'bluesky'").await;
    assert!(inbox_syncs::find(&mut conn, id).await.unwrap().unwrap().cursors.is_empty());
}

/// 0030.
async fn accounts_of_platforms_that_got_an_inbox_are_looked_at(s: TestStore) {
    let world = s.create_world().await;
    for platform in [Platform::Facebook, Platform::Twitter, Platform::Pinterest, Platform::Tumblr] {
        let new = NewAccount { platform, ..new_account(platform.as_str(), "t") };
        s.write(async |tx| accounts::save(tx, world.workspace, &new).await.map(drop)).await;
    }
    let (sqlite, postgres) = (
        include_str!("../../migrations/sqlite/0030_more_inboxes.sql"),
        include_str!("../../migrations/postgres/0030_more_inboxes.sql"),
    );
    s.sql(if s.is_postgres() { postgres } else { sqlite }).await;
    let rows = "
        SELECT string_agg(platform, ', ')
        FROM (
            SELECT a.platform
            FROM inbox_syncs i
            JOIN social_accounts a ON a.id = i.account_id
            WHERE i.next_sync_at <= a.created_at
            ORDER BY a.id
        ) p";
    assert_eq!(s.value::<String>(rows).await, "facebook, twitter, tumblr");
}

/// 0034.
async fn linkedin_pages_are_looked_at_and_unread_messages_are_known(s: TestStore) {
    let world = s.create_world().await;
    for id in ["urn:li:organization:7", "782bbtaQ"] {
        let new = NewAccount { platform: Platform::Linkedin, ..new_account(id, "t") };
        s.write(async |tx| accounts::save(tx, world.workspace, &new).await.map(drop)).await;
    }
    let now = if s.is_postgres() { "now()" } else { "'2026-01-01T00:00:00Z'" };
    for (thread, unread) in [("read", 0), ("unread", 2)] {
        s.sql(format!(
            "INSERT INTO conversations (brand_id, account_id, platform, type, status, unread_count, last_message_at,
                created_at, updated_at, thread_id, last_message_preview, reply_context)
            VALUES ({}, 1, 'facebook', 'dm', 'open', {unread}, {now}, {now}, {now}, '{thread}', '', '{{}}')",
            world.brand
        ))
        .await;
        for (id, direction) in [("a", "inbound"), ("b", "inbound"), ("c", "outbound"), ("d", "inbound")] {
            s.sql(format!(
                "INSERT INTO messages (conversation_id, brand_id, account_id, direction, status, sent_at, attempts,
                    created_at, updated_at, external_id, body)
                SELECT id, brand_id, 1, '{direction}', 'received', {now}, 0, {now}, {now}, '{thread} {id}', ''
                FROM conversations
                WHERE thread_id = '{thread}'"
            ))
            .await;
        }
    }
    let (sqlite, postgres) = (
        include_str!("../../migrations/sqlite/0034_deletions_and_linkedin.sql"),
        include_str!("../../migrations/postgres/0034_deletions_and_linkedin.sql"),
    );
    let migration = if s.is_postgres() { postgres } else { sqlite };
    for statement in migration.split(';').filter(|sql| sql.contains("insert into") || sql.contains("update messages")) {
        s.sql(statement.to_owned()).await;
    }
    let due = "SELECT a.external_id FROM inbox_syncs i JOIN social_accounts a ON a.id = i.account_id";
    assert_eq!(s.value::<String>(due).await, "urn:li:organization:7");
    let unread = "
        SELECT string_agg(external_id, ', ')
        FROM (
            SELECT external_id
            FROM messages
            WHERE is_unread
            ORDER BY external_id
        ) m";
    assert_eq!(s.value::<String>(unread).await, "unread b, unread d");
}

/// 0063.
async fn unsubscriptions_from_a_schedule_hold_for_the_workspace(s: TestStore) {
    let (one, two) = (s.create_world().await, s.workspace().await);
    let at = "'2026-01-01T00:00:00Z'";
    s.sql(format!(
        "INSERT INTO reports (brand_id, name, created_at, updated_at, widgets)
        VALUES ({}, 'R', {at}, {at}, '[]')",
        one.brand
    ))
    .await;
    for _ in 0..2 {
        s.sql(format!(
            "INSERT INTO report_schedules (report_id, frequency, format, recipients, next_run_at, created_at, updated_at)
            VALUES (1, 'cron', 'csv', '[]', {at}, {at}, {at})"
        ))
        .await;
    }
    s.sql("DROP TABLE mail_counts").await;
    s.sql("ALTER TABLE report_mail_stops DROP COLUMN is_unsubscribed").await;
    for (workspace, schedule, recipient) in [
        (one.workspace, "1", "ann@example.com"),
        (one.workspace, "2", "ann@example.com"),
        (one.workspace, "1", "bob@example.com"),
        (one.workspace, "NULL", "bob@example.com"),
        (two, "NULL", "cid@example.com"),
    ] {
        s.sql(format!(
            "INSERT INTO report_mail_stops (workspace_id, schedule_id, recipient, reason, created_at)
            VALUES ({workspace}, {schedule}, '{recipient}', 'why', {at})"
        ))
        .await;
    }
    s.sql(match s.is_postgres() {
        true => include_str!("../../migrations/postgres/0063_mail_counts.sql"),
        false => include_str!("../../migrations/sqlite/0063_mail_counts.sql"),
    })
    .await;
    let rows = "
        SELECT string_agg(stop, ', ')
        FROM (
            SELECT recipient || ' ' || reason || CASE WHEN is_unsubscribed THEN ' unsubscribed' ELSE '' END AS stop
            FROM report_mail_stops
            WHERE schedule_id IS NULL
            ORDER BY recipient
        ) s";
    let expected = "ann@example.com unsubscribed unsubscribed, bob@example.com why unsubscribed, cid@example.com why";
    assert_eq!(s.value::<String>(rows).await, expected);
}
