//! `GET /brands/{brand}/posts/{post}/status`

use crier_domain::access::Scope;
use crier_domain::platform::Platform;
use crier_domain::post::{self, PostStatus, StoredScheduleType, TargetStatus};
use crier_store::{Conn, targets};
use schemars::JsonSchema;
use serde::Serialize;

use super::{TAG, TargetError, show, thread};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::openapi::schema::TextEnum;
use crate::response::{One, Reply, ScheduledTimestamp, Timestamp};

/// The status of a post, without its content.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PostStatusView {
    pub id: i64,
    #[schemars(with = "TextEnum<PostStatus>")]
    pub status: PostStatus,
    #[schemars(with = "TextEnum<StoredScheduleType>")]
    pub schedule_type: StoredScheduleType,
    pub scheduled_at: Option<ScheduledTimestamp>,
    pub published_at: Option<Timestamp>,
    pub targets: Vec<TargetView>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A target without its content.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TargetView {
    pub id: i64,
    pub account_id: i64,
    #[schemars(with = "TextEnum<Platform>")]
    pub platform: Platform,
    #[schemars(with = "TextEnum<TargetStatus>")]
    pub status: TargetStatus,
    #[schemars(extend("examples" = [null]))]
    pub external_id: Option<String>,
    #[schemars(extend("examples" = [null]))]
    pub url: Option<String>,
    #[schemars(extend("examples" = [null]))]
    pub error: Option<TargetError>,
    #[schemars(extend("examples" = [0]))]
    pub attempts: i32,
    #[schemars(extend("examples" = [null]))]
    pub next_attempt_at: Option<Timestamp>,
    #[schemars(extend("examples" = [null]))]
    pub published_at: Option<Timestamp>,
}

pub fn endpoint() -> Endpoint<(), One<PostStatusView>> {
    Endpoint::get("/brands/{brand}/posts/{post}/status", "getPostStatus", Scope::PostsRead)
        .tag(TAG)
        .summary("Get the status of a post")
        .reads(status)
}

async fn status(cx: &Context, conn: &mut Conn) -> Result<Reply<PostStatusView>> {
    let post = show::find(cx, conn).await?;
    let targets = targets::list(conn, post.id).await?;
    let targets = targets.into_iter().map(|target| TargetView::new(target, &post)).collect();
    Ok(Reply::from(PostStatusView {
        id: post.id,
        status: post.status,
        schedule_type: post.schedule_type,
        scheduled_at: post.scheduled_at.map(Into::into),
        published_at: post.published_at.map(Into::into),
        targets,
        created_at: post.created_at.into(),
        updated_at: post.updated_at.into(),
    }))
}

impl TargetView {
    fn new(t: post::Target, post: &post::Post) -> Self {
        let failed_part = thread::failed_part(&t, post);
        Self {
            id: t.id,
            account_id: t.account_id,
            platform: t.platform,
            status: t.status,
            external_id: t.external_id,
            url: t.url,
            error: t.error.map(|error| TargetError::of(error, failed_part)),
            attempts: t.attempts,
            next_attempt_at: t.next_attempt_at.map(Into::into),
            published_at: t.published_at.map(Into::into),
        }
    }
}
