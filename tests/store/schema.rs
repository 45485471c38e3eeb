//! Migrations: both engines have the same schema, and repeated and concurrent runs are safe.

use std::collections::BTreeMap;

use crier_store::Db;

use crate::support::store::{TestStore, on_both, run_concurrently};

on_both![
    a_second_migration_changes_nothing,
    health_check_reports_reachability_and_schema_version,
    constraints_reject_unknown_values,
    children_are_deleted_with_their_parents
];

/// The tables with their columns: name and nullability.
pub type Schema = BTreeMap<String, Vec<(String, bool)>>;

pub async fn schema(s: &TestStore) -> Schema {
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
            JOIN pragma_table_xinfo(t.name) c
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

/// Returns the names of all indexes that the migrations create by name.
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
    let (sqlite_schema, postgres_schema) = (schema(&sqlite).await, schema(&postgres).await);
    assert!(sqlite_schema.contains_key("jobs") && sqlite_schema["jobs"].contains(&("lane".to_owned(), true)));
    assert_eq!(sqlite_schema, postgres_schema);
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

/// Foreign keys delete them, and on Postgres also triggers.
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
        "INSERT INTO events (name, payload) VALUES ('post.published', '{}')".to_owned(),
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
    // `deletions` deletes events before. The sweep deletes files and uploads.
    s.sql("DELETE FROM workspaces").await;
    let remaining = ["events", "files", "media_uploads"];
    let is_owner = |column: &str| ["brand_id", "workspace_id"].contains(&column);
    for (table, columns) in schema(&s).await {
        if columns.iter().any(|(column, _)| is_owner(column)) && !remaining.contains(&table.as_str()) {
            assert_eq!(count(table.as_str()).await, 0, "{table}");
        }
    }
    assert_eq!(count("post_targets").await, 0);
}

async fn constraints_reject_unknown_values(s: TestStore) {
    let w = s.create_world().await;
    let (post, targets) = s.post(w, &[1]).await;
    for sql in [
        format!("UPDATE posts SET status = 'lost' WHERE id = {post}"),
        format!("UPDATE post_targets SET status = 'lost' WHERE id = {}", targets[0]),
        format!("UPDATE brand_members SET role = 'guest' WHERE brand_id = {}", w.brand),
        "INSERT INTO workspaces (plan, created_at) VALUES ('p', '2026-01-01')".to_owned(),
        "INSERT INTO usage (workspace_id, month) VALUES (999, '2026-01')".to_owned(),
    ] {
        let rejected = match s.db() {
            Db::Pg(pool) => sqlx::raw_sql(sqlx::AssertSqlSafe(sql.clone()))
                .execute(&mut *pool.acquire().await.expect("a connection"))
                .await
                .is_err(),
            Db::Sqlite { writer, .. } => sqlx::raw_sql(sqlx::AssertSqlSafe(sql.clone()))
                .execute(&mut *writer.acquire().await.expect("a connection"))
                .await
                .is_err(),
        };
        assert!(rejected, "{sql}");
    }
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

/// Several `crier` commands start in an empty directory: each opens the file and creates the schema.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_sqlite_file_creation_succeeds() {
    for _ in 0..5 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("crier.db");
        let results = run_concurrently(4, |_| {
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
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }
}
