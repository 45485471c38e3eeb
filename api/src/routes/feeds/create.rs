//! `POST /brands/{brand}/feeds`

use crier_domain::access::Scope;
use crier_domain::feed::{FeedType, MAX_FEED_NAME, MAX_FEEDS};
use crier_store::{Tx, brands, feeds};
use schemars::JsonSchema;
use serde_json::json;

use super::{FEATURES, Feed, TAG, URL, check_url, name, name_of};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth, ResponseShape, WriteStep};
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::PatchField;
use crate::openapi::schema::Word;
use crate::response::ApiResponse;

/// A feed to be read.
#[derive(Clone, Debug, JsonSchema)]
pub struct NewFeed {
    /// The feed's own title if it is left out.
    #[schemars(length(min = 1, max = MAX_FEED_NAME), extend("type" = "string"))]
    pub name: Option<String>,
    /// Of a feed, or of a page that names one; public, http or https.
    #[schemars(length(max = 2048), url)]
    pub url: String,
    /// A feed of another type is read all the same. `wordpress` takes a site's address as well.
    #[schemars(with = "Option<Word<FeedType>>", extend("default" = "rss"))]
    pub r#type: Option<FeedType>,
}

pub fn endpoint() -> Endpoint {
    Endpoint::post("/brands/{brand}/feeds", "createFeed", Scope::FeedsWrite)
        .tag(TAG)
        .adds(Growth::Records)
        .summary("Add a feed")
        .description(
            "It is fetched right after, and every 15 minutes from then on. Until the first fetch it is `pending`. A \
             brand has at most 100 feeds.",
        )
        .features(FEATURES)
        .body::<NewFeed>(json!({ "name": "Our blog", "url": "https://example.com/feed.xml", "type": "rss" }))
        .response::<Feed>(201, ResponseShape::One)
        .error_codes(&[ErrorCode::ValidationFailed, ErrorCode::InvalidSourceUrl, ErrorCode::LimitReached])
        .queries_then_writes(prepare)
}

async fn prepare(cx: &Context) -> Result<WriteStep> {
    let new = cx.read(|f| {
        let url = f.required("url", f.text("url", URL));
        let r#type = f.enum_value("type").value();
        Some(NewFeed { name: name(f).value(), url: url?, r#type })
    })?;
    check_url(cx, &PatchField::Value(new.url.clone())).await?;
    Ok(WriteStep::new(new, |cx, tx, new| Box::pin(async move { create(cx, tx, &new).await })))
}

async fn create(cx: &Context, tx: &mut Tx, new: &NewFeed) -> Result<ApiResponse> {
    let name = new.name.clone().unwrap_or_else(|| name_of(&new.url));
    let row = feeds::NewFeed {
        name: &name,
        named: new.name.is_some(),
        url: &new.url,
        kind: new.r#type.unwrap_or(FeedType::Rss),
    };
    let brand = cx.brand()?.id;
    brands::lock(tx, brand).await?;
    ApiError::check_cap("A brand", MAX_FEEDS, "feeds", feeds::count(tx, brand).await?, 1)?;
    let made = feeds::create(tx, brand, &row, cx.trace()).await?;
    let path = format!("/brands/{}/feeds/{}", made.brand_id, made.id);
    ApiResponse::created(&path, Feed::from(made))
}
