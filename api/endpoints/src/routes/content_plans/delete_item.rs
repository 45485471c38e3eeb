//! `DELETE /brands/{brand}/content-plans/{plan}/items/{item}`

use crier_domain::access::Scope;
use crier_store::{Tx, content_plans};

use super::{FEATURES, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, Result};
use crate::response::{Nothing, Reply};

pub fn endpoint() -> Endpoint<(), Nothing> {
    Endpoint::delete("/brands/{brand}/content-plans/{plan}/items/{item}", "deletePlanItem", Scope::ContentWrite)
        .tag(TAG)
        .summary("Delete an item of a content plan")
        .description("A post created from the item is kept.")
        .extension()
        .features(FEATURES)
        .writes(delete)
}

async fn delete(cx: &Context, tx: &mut Tx) -> Result<Reply<()>> {
    if !content_plans::delete_item(tx, cx.brand()?.id, cx.id("plan")?, cx.id("item")?).await? {
        return Err(ApiError::not_found("plan item"));
    }
    Ok(Reply::from(()))
}
