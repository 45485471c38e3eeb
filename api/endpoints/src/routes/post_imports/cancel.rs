//! `POST /brands/{brand}/posts/imports/{import}/cancel`

use crier_domain::access::Scope;
use crier_domain::post_import;
use crier_jobs::import_posts;
use crier_store::{Tx, post_imports};

use super::{PostImport, TAG, find};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, ErrorCode, Result};
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<(), One<PostImport>> {
    Endpoint::post("/brands/{brand}/posts/imports/{import}/cancel", "cancelPostImport", Scope::PostsWrite)
        .tag(TAG)
        .summary("Cancel an import of posts")
        .description(
            "Posts that were created are kept, and no others are created. The import becomes `failed`, and its file is \
             deleted. Images and videos that are being downloaded are still added to the library. An import that has \
             already ended does not change. Contributors can cancel dry runs, and imports that they started.",
        )
        .extension()
        .writes(cancel)
}

async fn cancel(cx: &Context, tx: &mut Tx) -> Result<Reply<PostImport>> {
    let found = find(cx, tx).await?;
    let import = post_imports::lock(tx, found.id).await?.ok_or_else(|| ApiError::not_found("import"))?;
    check_role(cx, &import)?;
    import_posts::cancel(tx, &import).await?;
    Ok(Reply::from(PostImport::from(find(cx, tx).await?)))
}

/// Fails if the import may create posts that the caller could neither schedule nor delete.
fn check_role(cx: &Context, import: &post_import::PostImport) -> Result<()> {
    if import.dry_run {
        return Ok(());
    }
    cx.check_has_no_role_limit()?;
    if import.user_id == Some(cx.caller.user_id) || cx.role()?.can_publish() {
        return Ok(());
    }
    let message = "Contributors can cancel only imports that they started. Ask an editor, admin or owner of the brand.";
    Err(ApiError::new(ErrorCode::InsufficientScope, message))
}
