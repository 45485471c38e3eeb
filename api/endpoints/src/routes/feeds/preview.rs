//! `POST /brands/{brand}/feeds/{feed}/preview`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::auto_post::{ArticleText, AutoPost, Template};
use crier_html::plain_text;
use crier_posts::article;
use crier_store::{Conn, accounts, articles};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::auto_post::{AutoPostRequest, in_order};
use super::{FEATURES, TAG, find};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::Problems;
use crate::request::Parsed;
use crate::response::{Many, Reply};

/// The number of articles that are shown.
const SHOWN: usize = 5;

/// The post that an article would become.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ArticlePreview {
    pub article_id: i64,
    /// The title of the article.
    #[schemars(extend("examples" = ["Why we bake with rye"]))]
    pub title: Option<String>,
    /// The text of the post, cut so that it fits on all accounts.
    #[schemars(extend("examples" = ["Why we bake with rye\n\nhttps://bakery.example/blog/rye"]))]
    pub content: String,
    /// The reason the filters exclude the article, as a sentence. Null if they do not.
    #[schemars(extend("examples" = [null]))]
    pub reason: Option<String>,
}

pub fn endpoint() -> Endpoint<AutoPostRequest, Many<ArticlePreview>> {
    Endpoint::post("/brands/{brand}/feeds/{feed}/preview", "previewFeedPosts", Scope::FeedsRead)
        .tag(TAG)
        .summary("Get a preview of the posts of a feed")
        .description(
            "Returns the posts that the last five articles would become with these settings, newest first. Writes \
             nothing, so a test key works too, and no `Idempotency-Key` is needed.",
        )
        .extension()
        .features(FEATURES)
        .error_codes(&[ErrorCode::ValidationFailed])
        .checks_then_reads(preview)
}

async fn preview(
    cx: &Context,
    conn: &mut Conn,
    parsed: Arc<Parsed<AutoPostRequest>>,
) -> Result<Reply<Vec<ArticlePreview>>> {
    let feed = find(cx, conn).await?;
    let settings = AutoPost::from(parsed.valid()?.clone());
    let template = Template::parse(&settings.template);
    let template = template.map_err(|error| ApiError::field("template", error.to_string()))?;
    let found = accounts::summaries(conn, cx.brand()?.id, &settings.accounts).await?;
    let articles = articles::list(conn, feed.id).await?;
    let problems = Problems::default();
    let accounts = in_order(found, &settings.accounts, "accounts", &problems);
    problems.into_result()?;
    let previews = articles.into_iter().take(SHOWN).map(|article| {
        let summary = article.summary.as_deref().map(plain_text).unwrap_or_default();
        let (title, url, author) = (article.title.as_deref(), article.url.as_deref(), article.author.as_deref());
        let text = ArticleText::new(title, url, summary, author);
        let content = article::text(&template, &text, &accounts);
        ArticlePreview { article_id: article.id, reason: settings.excluded(&text), title: article.title, content }
    });
    Ok(Reply::from(previews.collect::<Vec<_>>()))
}
