//! `import_media`: imports an image from a URL into the media library.

use crier_media::import;
use crier_store::{Conn, Result, Tx, media_jobs};

use super::{JobDefinition, SubjectDescription};

pub struct ImportMedia;

impl JobDefinition for ImportMedia {
    async fn lock(tx: &mut Tx, import_id: i64) -> Result<()> {
        media_jobs::lock_minimal(tx, import_id).await.map(drop)
    }

    async fn describe(conn: &mut Conn, import_id: i64) -> Result<Option<SubjectDescription>> {
        let Some(i) = media_jobs::find_any(conn, import_id).await? else { return Ok(None) };
        Ok(Some(SubjectDescription::new(format!("import {} into brand {}, {}", i.id, i.brand_id, i.status))))
    }

    async fn on_dead(tx: &mut Tx, import_id: i64, trace: Option<&str>) -> Result<()> {
        let message = "Crier could not finish this import within the maximum number of attempts. Import it again.";
        import::fail_without_run(tx, import_id, message, trace).await
    }

    async fn on_cancelled(tx: &mut Tx, import_id: i64) -> Result<()> {
        let message = "The operator canceled this import. Import it again if you still need it.";
        import::fail_without_run(tx, import_id, message, None).await
    }

    async fn on_retry(tx: &mut Tx, import_id: i64) -> Result<bool> {
        import::retry_failed(tx, import_id).await
    }
}
