//! Deletes unreferenced files: files of uploads whose process died, deleted files, files of deleted brands, and the pieces
//! of resumable uploads that are finished, deleted or expired.
//!
//! A file is first marked for deletion in the database, so that it is not reused. Then its bytes are deleted, and its
//! row last, so that after a crash in between the next tick finds the row. Any number of schedulers may do this at the
//! same time, because deleting a deleted file succeeds. If the storage is unavailable, this is logged once per tick,
//! and the rows are kept.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use crier_media::{Storage, StorageError};
use crier_store::files::{self, DeletableFile};
use crier_store::{Result, media_uploads};
use futures::StreamExt;

use crate::Scheduler;

/// The age at which an unfinished upload counts as abandoned. Longer than any upload takes.
const ABANDONED_AFTER: TimeDelta = TimeDelta::hours(1);
/// The additional time for which a write to the storage may still be in progress. Longer than any request to a bucket
/// takes.
const WRITE_GRACE_PERIOD: TimeDelta = TimeDelta::minutes(5);
/// The maximum number of rows per transaction.
const BATCH: i64 = 100;
/// The number of uploads whose pieces cannot be deleted after which the storage counts as unavailable.
const MAX_FAILED_UPLOADS: usize = 3;
/// The maximum number of files that are deleted concurrently.
const DELETE_CONCURRENCY: usize = 16;
/// The time limit of a tick. If there are more files, the next tick follows immediately.
const MAX_TICK_TIME: Duration = Duration::from_secs(10);

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    let deadline = Instant::now() + MAX_TICK_TIME;
    let more_to_mark = mark_for_deletion(s, deadline).await?;
    let more_to_delete = delete_marked_files(s, deadline).await?;
    let more_uploads = delete_ended_uploads(s, deadline).await?;
    Ok((more_to_mark || more_to_delete || more_uploads).then_some(Duration::ZERO))
}

/// Returns whether there are more files or uploads to mark.
async fn mark_for_deletion(s: &Scheduler, deadline: Instant) -> Result<bool> {
    while Instant::now() < deadline {
        let mut tx = s.store.begin().await?;
        let before = tx.now - ABANDONED_AFTER;
        let marked = files::mark_abandoned_for_deletion(&mut tx, before, BATCH).await?;
        let expired = media_uploads::mark_expired(&mut tx, BATCH).await?;
        tx.commit().await?;
        if marked + expired == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether there are more files that can be deleted.
async fn delete_marked_files(s: &Scheduler, deadline: Instant) -> Result<bool> {
    let (mut after_id, mut first_error, mut failure_count) = (0, None, 0);
    loop {
        let before = s.store.now() - WRITE_GRACE_PERIOD;
        let marked = files::marked_for_deletion(&mut s.store.read().await?, after_id, before, BATCH).await?;
        let Some(last_id) = marked.last().map(|file| file.id) else { break };
        let (deleted, error) = delete_bytes(s.library.storage(), &marked, deadline).await;
        if !deleted.is_empty() {
            let mut tx = s.store.begin().await?;
            files::delete_rows(&mut tx, &deleted).await?;
            tx.commit().await?;
        }
        failure_count += marked.len() - deleted.len();
        first_error = first_error.or(error);
        // If the storage deleted no file of this batch, it will probably fail for the next batch too.
        if Instant::now() >= deadline || deleted.is_empty() {
            break;
        }
        after_id = last_id;
    }
    if let Some(error) = first_error {
        tracing::warn!(%error, files = failure_count, "failed to delete unreferenced files; retrying later");
        return Ok(false);
    }
    Ok(Instant::now() >= deadline)
}

/// Deletes the bytes of files until `deadline`. Returns the ids of the deleted files, and the first error.
async fn delete_bytes(
    storage: &Storage,
    marked: &[DeletableFile],
    deadline: Instant,
) -> (Vec<i64>, Option<StorageError>) {
    let deletions = futures::stream::iter(marked.to_vec()).map(async |file| {
        storage.delete(&file.key).await?;
        if let Some(thumbnail) = &file.thumbnail_key {
            storage.delete(thumbnail).await?;
        }
        Ok(file.id)
    });
    let mut deletions = std::pin::pin!(
        deletions.buffer_unordered(DELETE_CONCURRENCY).take_until(tokio::time::sleep_until(deadline.into()))
    );
    let (mut deleted, mut first_error) = (Vec::new(), None);
    while let Some(result) = deletions.next().await {
        match result {
            Ok(id) => deleted.push(id),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    (deleted, first_error)
}

/// Deletes the pieces of ended uploads, and the rows of those that are marked for deletion. Returns whether there are
/// more.
async fn delete_ended_uploads(s: &Scheduler, deadline: Instant) -> Result<bool> {
    let (mut after_id, mut failure_count) = (0, 0);
    loop {
        let before = s.store.now() - WRITE_GRACE_PERIOD;
        let ended = media_uploads::ended(&mut s.store.read().await?, after_id, before, BATCH).await?;
        if ended.is_empty() {
            return Ok(false);
        }
        for upload_id in ended {
            after_id = upload_id;
            if !delete_pieces(s, upload_id, deadline).await? {
                failure_count += 1;
                // The pieces of other uploads must not remain because of one that cannot be deleted.
                if Instant::now() < deadline && failure_count < MAX_FAILED_UPLOADS {
                    continue;
                }
                return Ok(Instant::now() >= deadline);
            }
            let mut tx = s.store.begin().await?;
            media_uploads::clean_up(&mut tx, upload_id).await?;
            tx.commit().await?;
        }
    }
}

/// Deletes all pieces of an upload. Returns `false` if the storage failed, or at `deadline`.
async fn delete_pieces(s: &Scheduler, upload_id: i64, deadline: Instant) -> Result<bool> {
    loop {
        let pieces = media_uploads::pieces(&mut s.store.read().await?, upload_id, BATCH).await?;
        if pieces.is_empty() {
            return Ok(true);
        }
        let files = pieces.into_iter().map(|(id, key)| DeletableFile { id, key, thumbnail_key: None });
        let files: Vec<DeletableFile> = files.collect();
        let (deleted, error) = delete_bytes(s.library.storage(), &files, deadline).await;
        if !deleted.is_empty() {
            let mut tx = s.store.begin().await?;
            media_uploads::delete_pieces(&mut tx, &deleted).await?;
            tx.commit().await?;
        }
        if let Some(error) = error {
            tracing::warn!(%error, upload = upload_id, "failed to delete the pieces of an upload; retrying later");
            return Ok(false);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
    }
}
