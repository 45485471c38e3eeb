//! The feeds of a brand and their articles. The worker fetches them (`docs/feeds.md`).

use crier_domain::feed::{self, FeedStatus, FeedType, MAX_FEED_NAME};
use crier_domain::plan::Feature;
use crier_http::{SchemePolicy, UrlError};
use crier_store::{Conn, feeds};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use url::Url;

use self::auto_post::FeedAutoPost;
use crate::context::Context;
use crate::endpoint::AnyEndpoint;
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::{Fields, PatchField};
use crate::openapi::schema::TextEnum;
use crate::request::Format;
use crate::request::formats::text;
use crate::response::Timestamp;

pub mod articles;
pub mod auto_post;
pub mod create;
pub mod delete;
pub mod draft;
pub mod list;
pub mod posts;
pub mod preview;
pub mod show;
pub mod update;

pub const TAG: &str = "Feeds";
const FEATURES: &[Feature] = &[Feature::FeedReader];

pub fn endpoints() -> Vec<AnyEndpoint> {
    vec![
        list::endpoint().erase(),
        create::endpoint().erase(),
        show::endpoint().erase(),
        update::endpoint().erase(),
        delete::endpoint().erase(),
        articles::endpoint().erase(),
        draft::endpoint().erase(),
        posts::endpoint().erase(),
        preview::endpoint().erase(),
    ]
}

/// A feed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Feed {
    pub id: i64,
    /// The name from the request. If it was omitted, the feed's own title or, before the first fetch, the host of its
    /// URL.
    #[schemars(extend("examples" = ["The baker's blog"]))]
    pub name: String,
    /// The URL as submitted, even if it is the URL of a page that links to the feed.
    #[schemars(url, extend("examples" = ["https://bakery.example/feed.xml"]))]
    pub url: String,
    /// The type of the feed. After the first fetch, the detected type.
    #[schemars(with = "TextEnum<FeedType>")]
    pub r#type: FeedType,
    /// The status of the feed. It is `failing` after a failed fetch and `active` after a successful one.
    #[schemars(with = "TextEnum<FeedStatus>", extend("examples" = ["active"]))]
    pub status: FeedStatus,
    /// The time of the last fetch, successful or not.
    pub last_fetched_at: Option<Timestamp>,
    /// The reason the last fetch failed, as a sentence. Null if it succeeded.
    #[schemars(extend("examples" = [null]))]
    pub last_error: Option<String>,
    #[schemars(extend("examples" = [42]))]
    pub articles_count: i64,
    /// The settings for posting new articles. Null if articles are not posted.
    #[schemars(extend("x-extension" = true, "examples" = [null]))]
    pub auto_post: Option<FeedAutoPost>,
    /// The reason the last articles were not posted, as a sentence. Null if there is no problem.
    #[schemars(extend("x-extension" = true, "examples" = [null]))]
    pub auto_post_problem: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl From<feed::Feed> for Feed {
    fn from(f: feed::Feed) -> Self {
        Self {
            id: f.id,
            name: f.name,
            url: f.url,
            r#type: f.kind,
            status: f.status,
            last_fetched_at: f.last_fetched_at.map(Timestamp),
            last_error: f.last_error,
            articles_count: f.articles_count,
            auto_post: f.auto_post.map(FeedAutoPost::from),
            auto_post_problem: f.auto_post_problem,
            created_at: f.created_at.into(),
            updated_at: f.updated_at.into(),
        }
    }
}

/// Returns the feed in the path, of the brand in the path. 404 if it does not exist.
async fn find(cx: &Context, conn: &mut Conn) -> Result<feed::Feed> {
    let found = feeds::find(conn, cx.brand()?.id, cx.id("feed")?).await?;
    found.ok_or_else(|| ApiError::not_found("feed"))
}

/// The name of a feed. A feed always has a name, so null is rejected.
fn feed_name() -> FeedName {
    FeedName
}

struct FeedName;

impl Format for FeedName {
    type Value = String;

    fn read(&self, fields: &Fields<'_>, name: &str) -> PatchField<String> {
        let value = text(1..=MAX_FEED_NAME).read(fields, name);
        if value == PatchField::Null {
            fields.problem(name, "Must be a string. Omit the field to use the feed's own title.");
        }
        value
    }

    fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        text(1..=MAX_FEED_NAME).schema(generator)
    }

    fn accepts_null(&self) -> bool {
        false
    }
}

/// Checks a URL with the guard.
async fn check_url(cx: &Context, url: &str) -> Result<()> {
    let checked = cx.app.guard.check_resolved(url, SchemePolicy::HttpOrHttps).await;
    checked.map(drop).map_err(|reason| {
        let message = match reason {
            UrlError::NotHttp => format!("The URL {reason}."),
            _ => format!(
                "The URL {reason}. Use the public http:// or https:// URL of a feed, or of a page that links to one."
            ),
        };
        ApiError::new(ErrorCode::InvalidSourceUrl, message)
    })
}

/// Returns the default name of a feed before its first fetch: the host of its URL.
fn default_name(url: &str) -> String {
    let host = Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
    host.unwrap_or_else(|| url.to_owned()).chars().take(MAX_FEED_NAME).collect()
}
