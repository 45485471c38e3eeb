//! Checks that there is room for what a request adds: on the disk and, for texts, in the plan's storage. (Files are
//! checked against the plan's storage when they are stored.)

use crier_domain::plan::StorageUsage;
use crier_store::{Tx, files};

use crate::context::Context;
use crate::endpoint::spec::Growth;
use crate::error::{ApiError, ErrorCode, Result};

/// The maximum size of a small body, in bytes. It may change a record while the disk is almost full, and the storage is
/// not queried if there is plenty of room.
const SMALL_BODY: usize = 16 << 10;
/// The maximum by which the size of a stored record exceeds that of its text, in bytes.
const MAX_RECORD_OVERHEAD: i64 = 8 << 10;

/// Fails while the disk is almost full, if the request would create something.
pub fn check_disk_for_creation(cx: &Context) -> Result<()> {
    if cx.creates() { check_disk(cx) } else { Ok(()) }
}

/// Fails while the disk is almost full, if the request's body is large.
pub fn check_disk_for_body(cx: &Context) -> Result<()> {
    if cx.body_size > SMALL_BODY { check_disk(cx) } else { Ok(()) }
}

fn check_disk(cx: &Context) -> Result<()> {
    if cx.spec.growth == Growth::None || !cx.app.library.disk().is_low() {
        return Ok(());
    }
    let message = "The server has too little free disk space to store anything new. Nothing was changed. Scheduled posts \
         are still published, and records can be deleted. Retry later.";
    Err(ApiError::new(ErrorCode::ServiceUnavailable, message).retry_after(60))
}

/// Fails if texts that were written in this transaction do not fit into the plan's storage. A small request that is far
/// from the limit needs no query. A large one holds the lock on the workspace's count, so that two concurrent requests
/// cannot both use the last of the storage.
pub async fn check_texts(cx: &Context, tx: &mut Tx) -> Result<()> {
    if !matches!(cx.spec.growth, Growth::Texts | Growth::Files) || cx.plan.storage_mib.is_none() {
        return Ok(());
    }
    let before = cx.caller.stored;
    let added = i64::try_from(cx.body_size).unwrap_or(i64::MAX).saturating_add(MAX_RECORD_OVERHEAD);
    let upper_bound = StorageUsage { texts: before.texts.saturating_add(added), ..before };
    if cx.body_size <= SMALL_BODY && cx.plan.has_room_for_texts(upper_bound) {
        return Ok(());
    }
    let after = files::usage(tx, cx.caller.workspace_id).await?;
    let has_grown = cx.creates() || after.texts > before.texts;
    if !has_grown || cx.plan.has_room_for_texts(after) {
        return Ok(());
    }
    let message = format!(
        "The workspace's plan includes {} MiB of storage, and all of it is used. Delete posts, images or reports, or \
         ask the operator for a larger plan.",
        cx.plan.storage_mib.unwrap_or_default()
    );
    Err(ApiError::new(ErrorCode::StorageLimitExceeded, message))
}
