//! The files of posts: imported into the media library once per import, before the posts are created.

use std::collections::HashSet;

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::job::{JobKind, Lane, NewJob};
use crier_domain::media::{AssetType, MediaJobStatus};
use crier_domain::post_import::PostImport;
use crier_http::SchemePolicy;
use crier_imports::{Row, RowMedia};
use crier_posts::Member;
use crier_store::media_jobs::{self, NewImport};
use crier_store::post_imports::{self, PostImportMedia};
use crier_store::{Conn, Result, jobs};

use super::{ImportPosts, MediaByUrl, lock_held};
use crate::engine::Run;
use crate::jobs::RunError;

/// How long a post waits for a file after its request. A download ends within minutes, unless the operator has paused its
/// jobs.
const MAX_WAIT: TimeDelta = TimeDelta::hours(24);
/// The number of files that are requested in a transaction.
const FILES_PER_BATCH: usize = 50;
const TOO_LATE: &str = "The file was not downloaded within a day. Import the row again.";
const DELETED: &str = "The download of this file was deleted. Import the row again.";

/// Returns whether the posts of an import still wait for files.
pub async fn awaits(conn: &mut Conn, import: &PostImport, now: DateTime<Utc>) -> Result<bool> {
    post_imports::awaits_media(conn, import.id, now - MAX_WAIT).await
}

/// Returns the files of rows. `None` if some of them are not yet in the library: the run ends, and a later one continues.
/// In a dry run, nothing is downloaded.
pub async fn of_rows(
    job: &ImportPosts,
    run: &Run,
    import: &mut PostImport,
    member: &Member,
    rows: &[Row],
) -> std::result::Result<Option<MediaByUrl>, RunError> {
    let wanted = if import.dry_run { Vec::new() } else { files(job, rows) };
    if wanted.is_empty() {
        return Ok(Some(MediaByUrl::new()));
    }
    let stored = post_imports::media(&mut job.store.read().await?, import.id).await?;
    let known: HashSet<&str> = stored.iter().map(|media| media.url.as_str()).collect();
    let missing: Vec<&RowMedia> = wanted.iter().filter(|media| !known.contains(media.url.as_str())).copied().collect();
    for batch in missing.chunks(FILES_PER_BATCH) {
        *import = request(job, run, member, batch).await?;
    }
    let late = job.store.now() - MAX_WAIT;
    let urls: HashSet<&str> = wanted.iter().map(|media| media.url.as_str()).collect();
    let needed: Vec<&PostImportMedia> = stored.iter().filter(|media| urls.contains(media.url.as_str())).collect();
    let is_open = |media: &&PostImportMedia| {
        let is_unfinished = matches!(media.status, Some(MediaJobStatus::Pending | MediaJobStatus::Processing));
        is_unfinished && media.requested_at.is_some_and(|at| at > late)
    };
    if !missing.is_empty() || needed.iter().any(is_open) {
        return Ok(None);
    }
    Ok(Some(needed.into_iter().map(|media| (media.url.clone(), result(media))).collect()))
}

/// Returns the files of rows whose URLs may be requested, each once.
fn files<'r>(job: &ImportPosts, rows: &'r [Row]) -> Vec<&'r RowMedia> {
    let mut seen = HashSet::new();
    let all = rows.iter().filter_map(|row| row.post.as_ref().ok()).flat_map(|post| &post.media);
    let allowed = |media: &&RowMedia| job.guard.check_url(&media.url, SchemePolicy::HttpOrHttps).is_ok();
    all.filter(allowed).filter(|media| seen.insert(media.url.as_str())).collect()
}

/// Requests files, and records that the import waits for them.
async fn request(
    job: &ImportPosts,
    run: &Run,
    member: &Member,
    files: &[&RowMedia],
) -> std::result::Result<PostImport, RunError> {
    let mut tx = job.store.begin().await?;
    let mut import = lock_held(&mut tx, run).await?;
    for file in files {
        let asset_type = if file.is_video { AssetType::Video } else { AssetType::Image };
        let alt_text = file.alt_text.as_deref().filter(|text| !text.is_empty());
        let new = NewImport { asset_type, source_url: &file.url, alt_text };
        let id = media_jobs::insert(&mut tx, import.brand_id, &new).await?;
        post_imports::add_media(&mut tx, import.id, &file.url, id).await?;
        let download = NewJob::new(JobKind::ImportMedia, id, tx.now).lane(Lane::Brand(import.brand_id));
        jobs::enqueue(&mut tx, &download.workspace(member.workspace_id).trace(run.job.trace.clone())).await?;
    }
    import.waiting_since = Some(tx.now);
    post_imports::progress(&mut tx, &import).await?;
    tx.commit().await?;
    Ok(import)
}

/// Returns the asset of a file, or why there is none.
fn result(media: &PostImportMedia) -> std::result::Result<i64, String> {
    match (media.status, media.media_id) {
        (Some(MediaJobStatus::Completed), Some(id)) => Ok(id),
        (Some(MediaJobStatus::Pending | MediaJobStatus::Processing), _) => Err(TOO_LATE.to_owned()),
        (Some(MediaJobStatus::Failed), _) => {
            Err(media.error.as_ref().map_or_else(|| DELETED.to_owned(), |error| error.message.clone()))
        }
        (Some(MediaJobStatus::Completed) | None, _) => Err(DELETED.to_owned()),
    }
}
