//! `POST /brands/{brand}/feeds/{feed}/articles/{article}/draft`

use crier_domain::access::Scope;
use crier_domain::feed::Article;
use crier_html::plain_text;
use crier_store::{Tx, articles};

use super::{FEATURES, TAG, find};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ApiError, Result};
use crate::response::{One, Reply};
use crate::routes::posts::{self, PostDetail};

pub fn endpoint() -> Endpoint<(), One<PostDetail>> {
    let path = "/brands/{brand}/feeds/{feed}/articles/{article}/draft";
    Endpoint::post(path, "createDraftFromArticle", Scope::FeedsWrite)
        .tag(TAG)
        .adds(Growth::Texts)
        .summary("Create a draft from an article")
        .description(
            "The content of the draft is the article's title, its summary as plain text, and its URL. The key also needs \
             the scope `posts:write`.",
        )
        .extension()
        .features(FEATURES)
        .status(201)
        .writes(create)
        .with_rerender("post", posts::show)
}

async fn create(cx: &Context, tx: &mut Tx) -> Result<Reply<PostDetail>> {
    cx.check_scope(Scope::PostsWrite)?;
    let feed = find(cx, tx).await?;
    let found = articles::find(tx, feed.id, cx.id("article")?).await?;
    let article = found.ok_or_else(|| ApiError::not_found("article"))?;
    posts::create_draft(cx, tx, content(&article)).await
}

/// Returns the content of the draft: the guid if the article has no text.
fn content(article: &Article) -> String {
    let summary = article.summary.as_deref().map(plain_text);
    let parts = [article.title.clone(), summary, article.url.clone()];
    let parts: Vec<String> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { article.guid.clone() } else { parts.join("\n\n") }
}
