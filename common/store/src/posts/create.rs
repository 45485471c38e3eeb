//! Stores a post with its words, its targets and their jobs, in one statement.

use chrono::SubsecRound as _;
use crier_domain::job::{JobNotification, NewJob, workspace_lane};
use crier_domain::platform::Platform;
use crier_domain::post::Post;
use sqlx::types::Json;

use super::super::db::run;
use super::super::sql::sql;
use super::super::targets::{self, NewTarget};
use super::super::{Result, StoreError, Tx, post_words, usage};
use super::insert;

/// A post to store with its targets, and with their jobs if it is scheduled or published immediately.
#[derive(Debug, Clone, Copy)]
pub struct NewPost<'a> {
    /// The post. Its `id` is ignored.
    pub post: &'a Post,
    /// The targets, each with the platform of its account.
    pub targets: &'a [(&'a NewTarget, Platform)],
    /// A template of the targets' jobs. Its subject and its lane are ignored.
    pub job: Option<&'a NewJob>,
    /// The workspace in whose usage the post is counted. `None` if the plan has a cap or if the post does not count.
    pub counted_in: Option<i64>,
}

/// Stores a post with its targets and their jobs. Workers are notified after the commit. Returns the post's id and the
/// targets' ids, in the order of [`NewPost::targets`].
pub async fn create(tx: &mut Tx, new: NewPost<'_>) -> Result<(i64, Vec<i64>)> {
    if new.targets.is_empty() {
        let id = insert(tx, new.post).await?;
        if let Some(workspace_id) = new.counted_in {
            usage::take_post(tx, workspace_id, None).await?;
        }
        return Ok((id, Vec::new()));
    }
    let (post, now) = (new.post, tx.now);
    let due = new.job.is_some_and(|job| job.run_at <= now);
    let job = new.job;
    let (targets, words) = (targets::encode_new(new.targets), post_words::encode(post));
    let sql = tx.for_engine(CREATE_PG, CREATE_SQLITE);
    let rows: Vec<CreatedRow> = run!(tx, c => sqlx::query_as(sql).bind(post.brand_id).bind(post.author_id)
        .bind(post.status).bind(&post.content).bind(post.schedule_type).bind(post.scheduled_at)
        .bind(post.published_at).bind(Json(&post.media)).bind(post.counted).bind(now)
        .bind(&targets).bind(job.map(|job| job.kind))
        .bind(if due { "ready" } else { "scheduled" })
        .bind(job.map(|job| job.run_at.trunc_subsecs(6))).bind(job.map(|job| job.kind.limits().max_attempts))
        .bind(job.and_then(|job| job.trace.as_deref()))
        .bind(job.and_then(|job| workspace_lane(job.kind, job.workspace_id))).bind(new.counted_in)
        .bind(usage::month(now)).bind(Json(&post.labels)).bind(&words).bind(Json(&post.thread))
        .bind(post.first_comment.as_ref().map(Json)).bind(post.queued).bind(post.recurring_id)
        .bind(&post.external_ref).fetch_all(c))?;
    if let Some(job) = job {
        for id in ascending(&rows, |row| row.job_id) {
            tx.count_enqueued(job.kind);
            if due {
                tx.notify_later(JobNotification { kind: job.kind, id });
            }
        }
    }
    let id = rows.iter().find_map(|row| row.post_id);
    let id = id.ok_or_else(|| StoreError::Decode("a post was not stored".to_owned()))?;
    Ok((id, ascending(&rows, |row| row.target_id)))
}

/// Returns the ids in the order of the targets, in which they ascend. The rows have no defined order.
fn ascending(rows: &[CreatedRow], id: impl Fn(&CreatedRow) -> Option<i64>) -> Vec<i64> {
    let mut ids: Vec<i64> = rows.iter().filter_map(id).collect();
    ids.sort_unstable();
    ids
}

/// A row of the result: one or several of the records that were stored.
#[derive(sqlx_macros::FromRow)]
struct CreatedRow {
    post_id: Option<i64>,
    target_id: Option<i64>,
    job_id: Option<i64>,
}

const COUNT_POST: &str = usage::count_post!("$18", "$19");
const COUNT_POST_SQLITE: &str = usage::count_post_sqlite!("$18", "$19");

/// Stores the post, its words, its targets and their jobs, and counts the post. The jobs' lanes are those of `Lane::Account`.
///
/// `nullif` stores a JSON null as an SQL NULL. Each `ORDER BY` makes the ids ascend in the order of the targets. The
/// casts give the columns of the `UNION` their types.
const CREATE_PG: &str = sql!(
    "
    WITH new_post AS (
        INSERT INTO posts (
            brand_id, author_id, status, content, schedule_type, scheduled_at, published_at, media, counted,
            created_at, updated_at, labels, thread, first_comment, queued, recurring_id, external_ref
        )
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10, $20, $22, $23, $24, $25, $26)
        RETURNING id
    ),
    new_words AS (
        INSERT INTO post_words (brand_id, word, post_id)
        SELECT $1, value, new_post.id
        FROM new_post
        CROSS JOIN json_array_elements_text($21::json)
    ),
    new_targets AS (
        INSERT INTO post_targets (
            post_id, account_id, platform, position, status, content, media, options, signature, created_at, updated_at,
            thread, first_comment
        )
        SELECT new_post.id, (value ->> 0)::bigint, value ->> 1, (value ->> 2)::integer, 'pending', value ->> 3,
            nullif(value -> 4, 'null'), value -> 5, value ->> 6, $10, $10, nullif(value -> 7, 'null'),
            nullif(value -> 8, 'null')
        FROM new_post
        CROSS JOIN jsonb_array_elements($11::jsonb) WITH ORDINALITY AS new (value, n)
        ORDER BY n
        RETURNING id, account_id
    ),
    new_jobs AS (
        INSERT INTO jobs (
            kind, subject_id, lane, state, run_at, max_attempts, trace, dispatched_at, created_at,
            workspace_lane
        )
        SELECT $12, id, 'account:' || account_id, $13, $14, $15, $16, $10, $10, $17
        FROM new_targets
        WHERE $12 IS NOT NULL
        ORDER BY id
        RETURNING id
    ),
    {COUNT_POST}
    SELECT id AS post_id, CAST(NULL AS bigint) AS target_id, CAST(NULL AS bigint) AS job_id
    FROM new_post
    UNION ALL
    SELECT NULL, id, NULL
    FROM new_targets
    UNION ALL
    SELECT NULL, NULL, id
    FROM new_jobs",
    COUNT_POST
);

/// Does the same in several statements, which are sent together, because SQLite has no `INSERT` in `WITH`. The last one
/// returns the rows. Ids ascend, so the post with the highest id is this one.
const CREATE_SQLITE: &str = sql!(
    "
    INSERT INTO posts (
        brand_id, author_id, status, content, schedule_type, scheduled_at, published_at, media, counted,
        created_at, updated_at, labels, thread, first_comment, queued, recurring_id, external_ref
    )
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10, $20, $22, $23, $24, $25, $26);
    INSERT INTO post_words (brand_id, word, post_id)
    SELECT $1, value, (SELECT max(id) FROM posts)
    FROM json_each($21);
    INSERT INTO post_targets (
        post_id, account_id, platform, position, status, content, media, options, signature, created_at, updated_at,
            thread, first_comment
    )
    SELECT (SELECT max(id) FROM posts), value ->> 0, value ->> 1, value ->> 2, 'pending', value ->> 3,
        nullif(value -> 4, 'null'), value -> 5, value ->> 6, $10, $10, nullif(value -> 7, 'null'),
        nullif(value -> 8, 'null')
    FROM json_each($11)
    ORDER BY key;
    INSERT INTO jobs (
        kind, subject_id, lane, state, run_at, max_attempts, trace, dispatched_at, created_at, workspace_lane
    )
    SELECT $12, id, 'account:' || account_id, $13, $14, $15, $16, $10, $10, $17
    FROM post_targets
    WHERE post_id = (SELECT max(id) FROM posts)
        AND $12 IS NOT NULL
    ORDER BY id;
    {COUNT_POST_SQLITE};
    SELECT p.id AS post_id, t.id AS target_id, j.id AS job_id
    FROM posts p
    LEFT JOIN post_targets t ON t.post_id = p.id
    LEFT JOIN jobs j ON j.kind = $12 AND j.subject_id = t.id AND j.state IN ('scheduled', 'ready', 'running')
    WHERE p.id = (SELECT max(id) FROM posts)",
    COUNT_POST_SQLITE
);
