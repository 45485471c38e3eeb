//! `POST /brands/{brand}/feeds`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::feed::{FeedType, MAX_FEEDS};
use crier_store::{Tx, brands, feeds};

use super::{FEATURES, Feed, TAG, check_url, default_name, feed_name};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth, WriteStep};
use crate::error::{ApiError, ErrorCode, Result};
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// The feed to create.
#[derive(Clone, Debug, Request)]
#[request(name = "NewFeed")]
pub struct CreateFeedRequest {
    /// The name of the feed. Default: the feed's own title.
    #[field(feed_name(), example = "Our blog")]
    pub name: Option<String>,
    /// The public http:// or https:// URL of a feed, or of a page that links to one.
    #[field(unchecked_url(), example = "https://example.com/feed.xml")]
    pub url: String,
    /// The expected type. Crier also reads feeds of other types. With `wordpress`, the URL can be that of a site.
    #[field(enum_value(), default = FeedType::Rss, example = FeedType::Rss)]
    pub r#type: FeedType,
}

pub fn endpoint() -> Endpoint<CreateFeedRequest, One<Feed>> {
    Endpoint::post("/brands/{brand}/feeds", "createFeed", Scope::FeedsWrite)
        .tag(TAG)
        .adds(Growth::Records)
        .summary("Add a feed")
        .description(
            "Crier fetches the feed immediately, and then every 15 minutes. Until the first fetch, the status is `pending`. \
             A brand can have at most 100 feeds.",
        )
        .features(FEATURES)
        .status(201)
        .error_codes(&[ErrorCode::ValidationFailed, ErrorCode::InvalidSourceUrl, ErrorCode::LimitReached])
        .queries_then_writes(prepare)
}

async fn prepare(cx: &Context, parsed: Arc<Parsed<CreateFeedRequest>>) -> Result<WriteStep<Feed>> {
    let new = parsed.valid()?.clone();
    check_url(cx, &new.url).await?;
    Ok(WriteStep::new(new, |cx, tx, new| Box::pin(async move { create(cx, tx, &new).await })))
}

async fn create(cx: &Context, tx: &mut Tx, new: &CreateFeedRequest) -> Result<Reply<Feed>> {
    let name = new.name.clone().unwrap_or_else(|| default_name(&new.url));
    let row = feeds::NewFeed { name: &name, named: new.name.is_some(), url: &new.url, kind: new.r#type };
    let brand = cx.brand()?.id;
    brands::lock(tx, brand).await?;
    ApiError::check_cap("A brand", MAX_FEEDS, "feeds", feeds::count(tx, brand).await?, 1)?;
    let created = feeds::create(tx, brand, &row, cx.trace()).await?;
    let path = format!("/brands/{}/feeds/{}", created.brand_id, created.id);
    Ok(Reply::at(&path, Feed::from(created)))
}
