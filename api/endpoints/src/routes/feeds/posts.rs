//! `GET /brands/{brand}/feeds/{feed}/posts`

use crier_domain::access::Scope;
use crier_domain::auto_post::FeedPostStatus;
use crier_store::{Conn, feed_posts};
use schemars::JsonSchema;
use serde::Serialize;

use super::{FEATURES, TAG, find};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::openapi::schema::TextEnum;
use crate::response::{Many, Reply, Timestamp};

/// The maximum number of articles in a response.
const MAX_LISTED: i64 = 200;

/// An article that appeared after its feed began to publish.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FeedPost {
    pub id: i64,
    pub feed_id: i64,
    /// The outcome of the article. It is `waiting` until its post is created or rejected.
    #[schemars(with = "TextEnum<FeedPostStatus>", extend("examples" = ["posted"]))]
    pub status: FeedPostStatus,
    /// The ID of the post. Null if no post was created, or if it was deleted.
    #[schemars(extend("examples" = [5012]))]
    pub post_id: Option<i64>,
    /// The title of the article when it appeared.
    #[schemars(extend("examples" = ["Why we bake with rye"]))]
    pub title: Option<String>,
    #[schemars(url, extend("examples" = ["https://bakery.example/blog/rye"]))]
    pub url: Option<String>,
    /// The reason the article was not posted, as a sentence. Null if it was posted or is waiting.
    #[schemars(extend("examples" = [null]))]
    pub reason: Option<String>,
    /// The time when the article appeared.
    pub created_at: Timestamp,
}

impl From<feed_posts::FeedPost> for FeedPost {
    fn from(f: feed_posts::FeedPost) -> Self {
        Self {
            id: f.id,
            feed_id: f.feed_id,
            status: f.status,
            post_id: f.post_id,
            title: f.title,
            url: f.url,
            reason: f.reason,
            created_at: f.created_at.into(),
        }
    }
}

pub fn endpoint() -> Endpoint<(), Many<FeedPost>> {
    Endpoint::get("/brands/{brand}/feeds/{feed}/posts", "listFeedPosts", Scope::FeedsRead)
        .tag(TAG)
        .summary("List the articles that a feed posted or skipped, newest first")
        .description("The newest 200 articles that appeared after the feed began to publish.")
        .extension()
        .features(FEATURES)
        .reads(list)
}

async fn list(cx: &Context, conn: &mut Conn) -> Result<Reply<Vec<FeedPost>>> {
    let feed = find(cx, conn).await?;
    let all = feed_posts::list(conn, feed.id, MAX_LISTED).await?;
    Ok(Reply::from(all.into_iter().map(FeedPost::from).collect::<Vec<_>>()))
}
