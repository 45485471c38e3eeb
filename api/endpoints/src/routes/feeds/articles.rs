//! `GET /brands/{brand}/feeds/{feed}/articles`

use crier_domain::access::Scope;
use crier_domain::feed;
use crier_store::{Conn, articles};
use schemars::JsonSchema;
use serde::Serialize;

use super::{FEATURES, TAG, find};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::response::{Many, Reply, Timestamp};

/// An article of a feed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FeedArticle {
    pub id: i64,
    pub feed_id: i64,
    /// The identifier of the article: its ID in the feed, otherwise its link, otherwise a hash of its content.
    #[schemars(extend("examples" = ["https://bakery.example/blog/rye"]))]
    pub guid: String,
    #[schemars(extend("examples" = ["Why we bake with rye"]))]
    pub title: Option<String>,
    #[schemars(url, extend("examples" = ["https://bakery.example/blog/rye"]))]
    pub url: Option<String>,
    /// The summary, as safe HTML with a few tags. Maximum: about 2,000 characters of text.
    #[schemars(extend("examples" = ["<p>It keeps for a week, and tastes better on the second day.</p>"]))]
    pub summary: Option<String>,
    #[schemars(extend("examples" = ["Ann"]))]
    pub author: Option<String>,
    #[schemars(url, extend("examples" = ["https://bakery.example/rye.jpg"]))]
    pub image_url: Option<String>,
    /// The publication time. If the feed has no date, the time at which Crier first found the article.
    pub published_at: Timestamp,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl From<feed::Article> for FeedArticle {
    fn from(a: feed::Article) -> Self {
        Self {
            id: a.id,
            feed_id: a.feed_id,
            guid: a.guid,
            title: a.title,
            url: a.url,
            summary: a.summary,
            author: a.author,
            image_url: a.image_url,
            published_at: a.published_at.into(),
            created_at: a.created_at.into(),
            updated_at: a.updated_at.into(),
        }
    }
}

pub fn endpoint() -> Endpoint<(), Many<FeedArticle>> {
    Endpoint::get("/brands/{brand}/feeds/{feed}/articles", "listFeedArticles", Scope::FeedsRead)
        .tag(TAG)
        .summary("List the articles of a feed, newest first")
        .description("Crier keeps the newest 200 articles of a feed.")
        .features(FEATURES)
        .reads(list)
}

async fn list(cx: &Context, conn: &mut Conn) -> Result<Reply<Vec<FeedArticle>>> {
    let feed = find(cx, conn).await?;
    let all = articles::list(conn, feed.id).await?;
    Ok(Reply::from(all.into_iter().map(FeedArticle::from).collect::<Vec<_>>()))
}
