//! `PUT /brands/{brand}/recurring-posts/{recurring}`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::content_plan::Destination;
use crier_store::{Tx, brands, recurring_posts};

use super::request::RecurringPostChange;
use super::{RecurringPost, TAG, check, lock, show};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ErrorCode, Result};
use crate::request::Parsed;
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<RecurringPostChange, One<RecurringPost>> {
    Endpoint::put("/brands/{brand}/recurring-posts/{recurring}", "updateRecurringPost", Scope::PostsWrite)
        .tag(TAG)
        .adds(Growth::Records)
        .summary("Update a recurring post")
        .description(
            "Omitted fields keep their values. Shortly after the response, Crier updates the future posts that nobody has \
             changed: they get the new texts and times, and posts that no longer have a time are deleted. Posts that \
             somebody has changed, and posts whose publishing has begun, remain as they are. With `is_active: false`, \
             the future posts that nobody has changed are deleted. You become the author of the posts.",
        )
        .extension()
        .error_codes(&[ErrorCode::FeatureNotAvailable, ErrorCode::ValidationFailed])
        .checks_then_writes(update)
        .with_rerender("recurring", show::show)
}

async fn update(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<RecurringPostChange>>) -> Result<Reply<RecurringPost>> {
    let destination = parsed.partial()?.destination.clone().value();
    cx.check_approvals(destination == Some(Destination::Approval))?;
    // Before the rule, as a change of the brand's time zone does: in the other order, they would be a deadlock.
    brands::lock(tx, cx.brand()?.id).await?;
    let rule = lock(cx, tx).await?;
    let change = parsed.valid()?;
    let mut rule = check::apply(cx, tx, rule, change).await?;
    check::check_size(cx, tx, &rule).await?;
    recurring_posts::update(tx, &rule, cx.trace()).await?;
    (rule.problem, rule.updated_at) = (None, tx.now);
    Ok(Reply::from(RecurringPost::load_one(cx, tx, rule).await?))
}
