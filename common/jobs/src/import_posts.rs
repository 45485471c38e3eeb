//! `import_posts`: imports the posts of a file, or checks them.

use crier_domain::job::JobKind;
use crier_domain::post_import::{PostImport, PostImportStatus};
use crier_store::{Conn, Result, Tx, jobs, post_imports};

use super::{JobDefinition, SubjectDescription};

pub struct ImportPosts;

impl JobDefinition for ImportPosts {
    async fn lock(tx: &mut Tx, import_id: i64) -> Result<()> {
        post_imports::lock(tx, import_id).await.map(drop)
    }

    async fn describe(conn: &mut Conn, import_id: i64) -> Result<Option<SubjectDescription>> {
        let Some(i) = post_imports::find_any(conn, import_id).await? else { return Ok(None) };
        let kind = if i.dry_run { "dry run" } else { "import" };
        let words = format!(
            "{kind} {} of posts into brand {}, {}, {} of {} rows",
            i.id, i.brand_id, i.status, i.rows_done, i.rows_total
        );
        Ok(Some(SubjectDescription::new(words)))
    }

    async fn on_dead(tx: &mut Tx, import_id: i64, _trace: Option<&str>) -> Result<()> {
        let message = "Crier could not finish this import. The posts that were imported remain. Import the other rows \
             again, or the whole file if each row has an external_ref: rows whose posts exist are skipped.";
        fail(tx, import_id, message).await
    }

    async fn on_cancelled(tx: &mut Tx, import_id: i64) -> Result<()> {
        fail(tx, import_id, "The operator canceled this import. The posts that were imported remain.").await
    }

    /// The file is kept until the brand's next import, so the import continues after the rows that were processed.
    async fn on_retry(tx: &mut Tx, import_id: i64) -> Result<bool> {
        let failed = post_imports::lock(tx, import_id).await?.filter(|i| i.status == PostImportStatus::Failed);
        let Some(import) = failed else { return Ok(false) };
        if !post_imports::has_file(tx, import.id).await? {
            return Ok(false);
        }
        post_imports::resume(tx, import.id).await?;
        Ok(true)
    }
}

/// Ends an import whose row is locked, at a member's request, and deletes its file. A worker that processes it finds out
/// in the transaction of its next rows. An import that has ended stays as it is.
pub async fn cancel(tx: &mut Tx, import: &PostImport) -> Result<()> {
    if import.status.is_terminal() {
        return Ok(());
    }
    let message = match import.dry_run {
        true => "A member canceled this check.",
        false => "A member canceled this import. The posts that were imported remain.",
    };
    post_imports::end(tx, import.id, PostImportStatus::Failed, Some(message)).await?;
    post_imports::delete_file(tx, import.id).await?;
    jobs::cancel_subject(tx, JobKind::ImportPosts, import.id).await.map(drop)
}

/// Fails an import that has not ended, and keeps its file.
async fn fail(tx: &mut Tx, import_id: i64, message: &str) -> Result<()> {
    let unfinished = post_imports::lock(tx, import_id).await?.filter(|i| !i.status.is_terminal());
    let Some(import) = unfinished else { return Ok(()) };
    post_imports::end(tx, import.id, PostImportStatus::Failed, Some(message)).await
}
