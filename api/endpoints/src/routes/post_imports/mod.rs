//! Imports of posts from files. The worker reads the file (`worker/src/jobs/import_posts`).

use crier_domain::access::Scope;
use crier_domain::job::{JobKind, Lane, NewJob};
use crier_domain::post_import::{self, DateFormat, PostImportStatus};
use crier_store::{Conn, Tx, jobs, post_imports};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::endpoint::AnyEndpoint;
use crate::error::{ApiError, ErrorCode, Result};
use crate::openapi::schema::TextEnum;
use crate::response::Timestamp;

pub mod cancel;
pub mod create;
pub mod errors;
pub mod list;
pub mod show;
pub mod start;

pub const TAG: &str = "Imports of posts";

pub fn endpoints() -> Vec<AnyEndpoint> {
    vec![
        list::endpoint().erase(),
        create::endpoint().erase(),
        show::endpoint().erase(),
        start::endpoint().erase(),
        cancel::endpoint().erase(),
        errors::endpoint().erase(),
    ]
}

/// An import of posts from a file.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PostImport {
    pub id: i64,
    /// The status of the import. It is `completed` when all rows were processed, even if some have errors.
    #[schemars(with = "TextEnum<PostImportStatus>", extend("examples" = ["completed"]))]
    pub status: PostImportStatus,
    /// Whether the rows are only checked.
    pub dry_run: bool,
    /// The name of the file. Null if the request had none.
    #[schemars(extend("examples" = ["posts.csv"]))]
    pub filename: Option<String>,
    /// The time zone of times without an offset.
    #[schemars(extend("examples" = ["Europe/Berlin"]))]
    pub timezone: String,
    #[schemars(with = "TextEnum<DateFormat>")]
    pub date_format: DateFormat,
    /// The IDs of the accounts for rows that name none.
    #[schemars(extend("examples" = [[1]]))]
    pub accounts: Vec<i64>,
    /// The number of posts in the file. 0 until the file was read.
    #[schemars(extend("examples" = [3]))]
    pub rows_total: i32,
    /// The number of rows that were processed.
    #[schemars(extend("examples" = [3]))]
    pub rows_done: i32,
    /// The number of rows without errors.
    #[schemars(extend("examples" = [2]))]
    pub rows_valid: i32,
    /// The number of rows without errors whose posts take slots of the queue.
    #[schemars(extend("examples" = [0]))]
    pub rows_queued: i32,
    /// The number of posts that were created.
    #[schemars(extend("examples" = [2]))]
    pub rows_imported: i32,
    /// The number of rows whose `external_ref` already existed.
    #[schemars(extend("examples" = [0]))]
    pub rows_skipped: i32,
    /// The reason the import failed. Null unless it failed.
    #[schemars(extend("examples" = [null]))]
    pub error: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A problem of a row.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PostImportError {
    /// The number of the row. Row 1 has the headings.
    #[schemars(extend("examples" = [4]))]
    pub row: i32,
    /// The heading of the column. Null if the problem does not concern a column.
    #[schemars(extend("examples" = ["scheduled_at"]))]
    pub column: Option<String>,
    #[schemars(extend("examples" = ["Must be in the future."]))]
    pub message: String,
}

/// An import of posts with its errors.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PostImportDetail {
    #[serde(flatten)]
    pub import: PostImport,
    /// The first 1,000 errors of the rows, in the order of the rows.
    pub errors: Vec<PostImportError>,
}

impl From<post_import::PostImport> for PostImport {
    fn from(i: post_import::PostImport) -> Self {
        Self {
            id: i.id,
            status: i.status,
            dry_run: i.dry_run,
            filename: i.filename,
            timezone: i.timezone,
            date_format: i.date_format,
            accounts: i.accounts,
            rows_total: i.rows_total,
            rows_done: i.rows_done,
            rows_valid: i.rows_valid,
            rows_queued: i.rows_queued,
            rows_imported: i.rows_imported,
            rows_skipped: i.rows_skipped,
            error: i.error,
            created_at: i.created_at.into(),
            updated_at: i.updated_at.into(),
        }
    }
}

impl From<post_import::PostImportError> for PostImportError {
    fn from(e: post_import::PostImportError) -> Self {
        Self { row: e.row_number, column: Some(e.column_name).filter(|name| !name.is_empty()), message: e.message }
    }
}

/// Returns the import in the path, of the brand in the path. 404 if it does not exist.
async fn find(cx: &Context, conn: &mut Conn) -> Result<post_import::PostImport> {
    let found = post_imports::find(conn, cx.brand()?.id, cx.id("import")?).await?;
    found.ok_or_else(|| ApiError::not_found("import"))
}

/// Returns the path of an import.
fn path(brand_id: i64, import_id: i64) -> String {
    format!("/brands/{brand_id}/posts/imports/{import_id}")
}

/// Fails if the caller's key must not import posts. The worker creates them with the role of the user, and adds the files
/// of `media_urls` to the library.
fn check_key(cx: &Context) -> Result<()> {
    cx.check_scope(Scope::MediaWrite)?;
    cx.check_has_no_role_limit()
}

/// Fails if an import of the brand has not ended. The caller has locked the brand.
async fn check_unfinished(tx: &mut Tx, brand_id: i64) -> Result<()> {
    if post_imports::has_unfinished(tx, brand_id).await? {
        let message = "The brand is already importing a file. Wait until that import has ended.";
        return Err(ApiError::new(ErrorCode::LimitReached, message));
    }
    Ok(())
}

/// Enqueues the job of an import.
async fn enqueue(cx: &Context, tx: &mut Tx, brand_id: i64, import_id: i64) -> Result<()> {
    let job = NewJob::new(JobKind::ImportPosts, import_id, tx.now).lane(Lane::Brand(brand_id));
    jobs::enqueue(tx, &job.workspace(cx.caller.workspace_id).trace(cx.trace().map(str::to_owned))).await?;
    Ok(())
}
