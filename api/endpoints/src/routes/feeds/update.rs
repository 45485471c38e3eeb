//! `PUT /brands/{brand}/feeds/{feed}`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_store::{Tx, feeds};

use super::auto_post::{self, AutoPostRequest};
use super::{FEATURES, Feed, TAG, check_url, default_name, feed_name, find};
use crate::context::Context;
use crate::endpoint::{Endpoint, WriteStep};
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::PatchField;
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// Changes to a feed. Omitted fields keep their values.
#[derive(Clone, Debug, Default, Request)]
pub struct FeedChange {
    #[field(feed_name(), example = "News")]
    pub name: Option<String>,
    /// The public http:// or https:// URL of a feed, or of a page that links to one.
    #[field(unchecked_url(), example = "https://example.com/news.xml")]
    pub url: PatchField<String>,
    /// The settings for posting new articles. They replace all existing settings. Null turns publishing off and deletes
    /// the settings.
    #[field(object(), extension)]
    pub auto_post: PatchField<AutoPostRequest>,
}

pub fn endpoint() -> Endpoint<FeedChange, One<Feed>> {
    Endpoint::put("/brands/{brand}/feeds/{feed}", "updateFeed", Scope::FeedsWrite)
        .tag(TAG)
        .summary("Update a feed")
        .description(
            "If the URL changes, the existing articles are deleted and Crier fetches the new URL immediately. `auto_post` \
             publishes only articles that appear after it was turned on, each once. The destination `approval` requires \
             the plan feature `approvals`. Contributors can use the destinations `draft` and `approval`. To set \
             `auto_post`, or to change the URL of a feed that has it, the key also needs the scope `posts:write`.",
        )
        .features(FEATURES)
        .error_codes(&[ErrorCode::FeatureNotAvailable, ErrorCode::ValidationFailed, ErrorCode::InvalidSourceUrl])
        .queries_then_writes(prepare)
}

async fn prepare(cx: &Context, parsed: Arc<Parsed<FeedChange>>) -> Result<WriteStep<Feed>> {
    auto_post::check_access(cx, parsed.partial().ok())?;
    // 404 takes precedence over validation errors. The transaction reads the resource again.
    let mut conn = cx.app.store.read().await?;
    let feed = find(cx, &mut conn).await?;
    drop(conn);
    let change = parsed.valid()?.clone();
    auto_post::check_move(cx, &feed, &change)?;
    if let PatchField::Value(url) = &change.url {
        check_url(cx, url).await?;
    }
    Ok(WriteStep::new(change, |cx, tx, change| Box::pin(async move { update(cx, tx, &change).await })))
}

async fn update(cx: &Context, tx: &mut Tx, change: &FeedChange) -> Result<Reply<Feed>> {
    let found = feeds::find_for_update(tx, cx.brand()?.id, cx.id("feed")?).await?;
    let feed = found.ok_or_else(|| ApiError::not_found("feed"))?;
    auto_post::check_move(cx, &feed, change)?;
    if let Some(name) = &change.name {
        feeds::rename(tx, feed.id, name).await?;
    }
    if let PatchField::Value(url) = &change.url
        && *url != feed.url
    {
        feeds::move_to(tx, feed.id, url, &default_name(url), cx.trace()).await?;
    }
    auto_post::update(cx, tx, feed.id, &change.auto_post).await?;
    Ok(Reply::from(Feed::from(find(cx, tx).await?)))
}
