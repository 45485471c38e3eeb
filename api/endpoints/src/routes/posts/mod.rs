//! Posts.
//!
//! Every change takes the same path: an endpoint reads it with `edit.rs` (the request and the resulting post),
//! validates the result with `check.rs` (422), and writes it with `apply.rs` (409, 402). Other resources that create
//! posts (content plans) use the same three modules.

use crier_domain::failure::{Category, Failure};
use crier_domain::platform::Platform;
use crier_domain::post::{self, PostStatus, ScheduleType, TargetStatus};
use crier_store::{Conn, targets};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::endpoint::AnyEndpoint;
use crate::error::Result;
use crate::openapi::schema::TextEnum;
use crate::response::{ScheduledTimestamp, Timestamp};

pub mod apply;
pub mod approve;
pub mod attempts;
pub mod bulk;
pub mod check;
pub mod create;
pub mod delete;
mod draft;
pub mod duplicate;
pub mod edit;
pub mod labels;
pub mod list;
pub mod reject;
pub mod show;
pub mod status;
pub mod submit;
pub mod unpublish;
pub mod update;
pub mod validate;
mod warnings;

pub use draft::create_draft;
pub use show::{find, show};

pub const TAG: &str = "Posts";

pub fn endpoints() -> Vec<AnyEndpoint> {
    vec![
        list::endpoint().erase(),
        labels::endpoint().erase(),
        create::endpoint().erase(),
        validate::endpoint().erase(),
        bulk::endpoint().erase(),
        show::endpoint().erase(),
        update::endpoint().erase(),
        delete::endpoint().erase(),
        duplicate::endpoint().erase(),
        submit::endpoint().erase(),
        approve::endpoint().erase(),
        reject::endpoint().erase(),
        unpublish::endpoint().erase(),
        status::endpoint().erase(),
        attempts::endpoint().erase(),
    ]
}

/// The reason why a target failed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TargetError {
    /// A stable error code.
    pub code: String,
    pub message: String,
    /// The category of the error. Only the category determines whether Crier retries automatically.
    #[schemars(with = "TextEnum<Category>")]
    pub category: Category,
    pub retryable: bool,
    /// The platform's own error code, unchanged.
    pub platform_code: Option<String>,
}

/// A post on one account.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Target")]
pub struct TargetBody {
    pub id: i64,
    pub account_id: i64,
    #[schemars(with = "TextEnum<Platform>")]
    pub platform: Platform,
    #[schemars(with = "TextEnum<TargetStatus>")]
    pub status: TargetStatus,
    /// The text for this account. Null uses the post's text.
    #[schemars(extend("examples" = [null]))]
    pub content: Option<String>,
    /// The ids of the images for this account. Null uses the post's images.
    #[schemars(extend("examples" = [null]))]
    pub media: Option<Vec<i64>>,
    pub options: Map<String, Value>,
    /// The account's signature, which is appended to the text. It is decided when the post is created or updated. Null
    /// if the account has none or the text contains it.
    #[schemars(extend("x-extension" = true, "examples" = [null]))]
    pub signature: Option<String>,
    /// The post's id on the platform.
    #[schemars(extend("examples" = [null]))]
    pub external_id: Option<String>,
    #[schemars(extend("examples" = [null]))]
    pub url: Option<String>,
    #[schemars(extend("examples" = [null]))]
    pub error: Option<TargetError>,
    /// The number of attempts.
    #[schemars(extend("examples" = [0]))]
    pub attempts: i32,
    #[schemars(extend("examples" = [null]))]
    pub next_attempt_at: Option<Timestamp>,
    #[schemars(extend("examples" = [null]))]
    pub published_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The author of a post.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Author {
    pub id: i64,
    #[schemars(extend("examples" = ["Ann"]))]
    pub name: String,
}

/// The fields that every representation of a post has.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PostFields {
    #[schemars(with = "TextEnum<PostStatus>", extend("examples" = ["scheduled"]))]
    pub status: PostStatus,
    #[schemars(extend("examples" = ["Fresh bread!"]))]
    pub content: String,
    #[schemars(with = "TextEnum<ScheduleType>", extend("examples" = ["scheduled"]))]
    pub schedule_type: ScheduleType,
    pub scheduled_at: Option<ScheduledTimestamp>,
    #[schemars(extend("examples" = [null]))]
    pub published_at: Option<Timestamp>,
    /// The ids of the post's accounts, in order.
    pub accounts: Vec<i64>,
    /// The ids of the post's images, in order.
    #[schemars(extend("x-extension" = true))]
    pub media: Vec<i64>,
    #[schemars(extend("x-extension" = true, "examples" = [["spring"]]))]
    pub labels: Vec<String>,
    /// The error of the first failed target. Null unless the post is failed or partially published.
    #[schemars(extend("examples" = [null]))]
    pub error: Option<TargetError>,
}

/// A post with its targets and its author.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PostDetail {
    pub id: i64,
    #[serde(flatten)]
    pub fields: PostFields,
    pub targets: Vec<TargetBody>,
    /// Null if the user was deleted.
    pub author: Option<Author>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl From<Failure> for TargetError {
    fn from(f: Failure) -> Self {
        Self {
            code: f.code,
            message: f.message,
            category: f.category,
            retryable: f.category.is_retryable(),
            platform_code: f.platform_code,
        }
    }
}

impl From<post::Target> for TargetBody {
    fn from(t: post::Target) -> Self {
        Self {
            id: t.id,
            account_id: t.account_id,
            platform: t.platform,
            status: t.status,
            content: t.content,
            media: t.media,
            options: t.options,
            signature: t.signature,
            external_id: t.external_id,
            url: t.url,
            error: t.error.map(Into::into),
            attempts: t.attempts,
            next_attempt_at: t.next_attempt_at.map(Into::into),
            published_at: t.published_at.map(Into::into),
            created_at: t.created_at.into(),
            updated_at: t.updated_at.into(),
        }
    }
}

impl PostFields {
    /// `targets`: the post's targets in order, each with its account, status and failure.
    fn new<'a>(p: post::Post, targets: impl Iterator<Item = (i64, TargetStatus, Option<&'a Failure>)> + Clone) -> Self {
        Self {
            status: p.status,
            content: p.content,
            schedule_type: p.schedule_type,
            scheduled_at: p.scheduled_at.map(Into::into),
            published_at: p.published_at.map(Into::into),
            accounts: targets.clone().map(|(account_id, ..)| account_id).collect(),
            media: p.media,
            labels: p.labels,
            error: error_of(p.status, targets.map(|(_, status, error)| (status, error))),
        }
    }
}

/// Returns the error of a post: the error of its first failed target, if the post failed or is partially published.
fn error_of<'a>(
    status: PostStatus,
    targets: impl IntoIterator<Item = (TargetStatus, Option<&'a Failure>)>,
) -> Option<TargetError> {
    if !matches!(status, PostStatus::Failed | PostStatus::PartiallyPublished) {
        return None;
    }
    let failed = targets.into_iter().find(|(status, _)| *status == TargetStatus::Failed);
    failed.and_then(|(_, error)| error.cloned()).map(Into::into)
}

impl PostDetail {
    pub fn new(mut p: post::Post, targets: Vec<post::Target>) -> Self {
        let (id, created_at, updated_at) = (p.id, p.created_at.into(), p.updated_at.into());
        let author = p.author_id.zip(p.author_name.take()).map(|(id, name)| Author { id, name });
        let fields = PostFields::new(p, targets.iter().map(|t| (t.account_id, t.status, t.error.as_ref())));
        Self { id, fields, targets: targets.into_iter().map(Into::into).collect(), author, created_at, updated_at }
    }

    /// Loads the post's targets.
    pub async fn load(conn: &mut Conn, p: post::Post) -> Result<Self> {
        let targets = targets::list(conn, p.id).await?;
        Ok(Self::new(p, targets))
    }
}
