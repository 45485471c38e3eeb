//! `DELETE /brands/{brand}/content-plans/{plan}`

use crier_domain::access::Scope;
use crier_store::{Tx, content_plans};

use super::{FEATURES, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, Result};
use crate::response::{Nothing, Reply};

pub fn endpoint() -> Endpoint<(), Nothing> {
    Endpoint::delete("/brands/{brand}/content-plans/{plan}", "deleteContentPlan", Scope::ContentWrite)
        .tag(TAG)
        .summary("Delete a content plan and its items")
        .description("Posts created from the items are kept.")
        .extension()
        .features(FEATURES)
        .serves_leftovers()
        .writes(delete)
}

async fn delete(cx: &Context, tx: &mut Tx) -> Result<Reply<()>> {
    if !content_plans::delete(tx, cx.brand()?.id, cx.id("plan")?).await? {
        return Err(ApiError::not_found("content plan"));
    }
    Ok(Reply::from(()))
}
