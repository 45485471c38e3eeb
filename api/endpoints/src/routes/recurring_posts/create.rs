//! `POST /brands/{brand}/recurring-posts`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::content_plan::Destination;
use crier_domain::recurring_post::MAX_RULES;
use crier_store::{Tx, recurring_posts};

use super::request::{CreateRecurringPostRequest, RecurringPostChange};
use super::{RecurringPost, TAG, check, show};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ApiError, ErrorCode, Result};
use crate::request::Parsed;
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<CreateRecurringPostRequest, One<RecurringPost>> {
    Endpoint::post("/brands/{brand}/recurring-posts", "createRecurringPost", Scope::PostsWrite)
        .tag(TAG)
        .adds(Growth::Records)
        .summary("Create a recurring post")
        .description(
            "Crier creates the posts of the next 30 days shortly after the response, and each later post 30 days before \
             its time. They are ordinary posts with `recurring_id`: each can be changed, moved or deleted, and a deleted \
             one is not created again. Each counts against `posts_per_month` when it is created, unless it is a draft. \
             Times are in the brand's time zone. A time skipped by daylight saving time moves to the next \
             existing time. A repeated time is used once. A brand can have at most 50 recurring posts, and a recurring \
             post at most 200 posts in 30 days. `approval` requires the plan feature `approvals`.",
        )
        .extension()
        .ignores(|_, new: &CreateRecurringPostRequest| new.ignored())
        .status(201)
        .error_codes(&[ErrorCode::FeatureNotAvailable, ErrorCode::LimitReached])
        .checks_then_writes(create)
        .with_rerender("recurring", show::show)
}

async fn create(
    cx: &Context,
    tx: &mut Tx,
    parsed: Arc<Parsed<CreateRecurringPostRequest>>,
) -> Result<Reply<RecurringPost>> {
    let request = parsed.valid()?;
    cx.check_approvals(request.destination == Destination::Approval)?;
    let change = RecurringPostChange::from(request.clone());
    let empty = check::empty_rule(cx, tx.now)?;
    let rule = check::apply(cx, tx, empty, &change).await?;
    let count = check::check_size(cx, tx, &rule).await?;
    ApiError::check_cap("A brand", MAX_RULES, "recurring posts", count, 1)?;
    let created = recurring_posts::create(tx, rule, cx.trace()).await?;
    let (id, path) = (created.id, format!("/brands/{}/recurring-posts/{}", created.brand_id, created.id));
    Ok(Reply::at(&path, RecurringPost::load_one(cx, tx, created).await?).with_records([id]))
}
