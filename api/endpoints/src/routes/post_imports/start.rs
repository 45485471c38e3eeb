//! `POST /brands/{brand}/posts/imports/{import}/start`

use crier_domain::access::Scope;
use crier_domain::post_import::PostImportStatus;
use crier_store::{Tx, brands, post_imports};

use super::{PostImport, TAG, check_key, check_unfinished, enqueue, find, path};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, ErrorCode, Result};
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<(), One<PostImport>> {
    Endpoint::post("/brands/{brand}/posts/imports/{import}/start", "startPostImport", Scope::PostsWrite)
        .tag(TAG)
        .summary("Import the posts of a dry run")
        .description(
            "Imports the rows of a completed dry run that have no errors, without sending the file again. The file is kept \
             until the brand's next import. After that, the response is 404. The key also needs the scope `media:write`, \
             because `media_urls` adds files to the library.",
        )
        .extension()
        .status(202)
        .error_codes(&[ErrorCode::LimitReached])
        .writes(start)
}

async fn start(cx: &Context, tx: &mut Tx) -> Result<Reply<PostImport>> {
    check_key(cx)?;
    let brand_id = cx.brand()?.id;
    brands::lock(tx, brand_id).await?;
    let found = find(cx, tx).await?;
    // The lock of the brand does not exclude the worker.
    let import = post_imports::lock(tx, found.id).await?.ok_or_else(|| ApiError::not_found("import"))?;
    let is_checked = import.dry_run && import.status == PostImportStatus::Completed;
    if !is_checked || !post_imports::has_file(tx, import.id).await? {
        return Err(ApiError::not_found("file of this dry run"));
    }
    check_unfinished(tx, brand_id).await?;
    // The role of the caller applies, not that of the member who uploaded the file.
    post_imports::start(tx, import.id, cx.caller.user_id).await?;
    enqueue(cx, tx, brand_id, import.id).await?;
    let started = find(cx, tx).await?;
    Ok(Reply::at(&path(brand_id, started.id), started.into()))
}
