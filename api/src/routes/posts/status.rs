//! `GET /brands/{brand}/posts/{post}/status`

use crier_domain::access::Scope;
use crier_domain::post::{PostStatus, ScheduleType};
use crier_store::{Conn, targets};
use schemars::JsonSchema;
use serde::Serialize;

use super::{TAG, TargetView, show};
use crate::context::Context;
use crate::endpoint::{Endpoint, ResponseShape};
use crate::error::Result;
use crate::openapi::schema::Word;
use crate::response::{ApiResponse, ScheduledTimestamp, Timestamp};

/// How far a post is, without what it says.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PostStatusView {
    pub id: i64,
    #[schemars(with = "Word<PostStatus>")]
    pub status: PostStatus,
    #[schemars(with = "Word<ScheduleType>")]
    pub schedule_type: ScheduleType,
    pub scheduled_at: Option<ScheduledTimestamp>,
    pub published_at: Option<Timestamp>,
    pub targets: Vec<TargetView>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

pub fn endpoint() -> Endpoint {
    Endpoint::get("/brands/{brand}/posts/{post}/status", "getPostStatus", Scope::PostsRead)
        .tag(TAG)
        .summary("Read how far a post is")
        .response::<PostStatusView>(200, ResponseShape::One)
        .reads(status)
}

async fn status(cx: &Context, conn: &mut Conn) -> Result<ApiResponse> {
    let post = show::find(cx, conn).await?;
    let targets = targets::list(conn, post.id).await?;
    ApiResponse::ok(PostStatusView {
        id: post.id,
        status: post.status,
        schedule_type: post.schedule_type,
        scheduled_at: post.scheduled_at.map(Into::into),
        published_at: post.published_at.map(Into::into),
        targets: targets.into_iter().map(Into::into).collect(),
        created_at: post.created_at.into(),
        updated_at: post.updated_at.into(),
    })
}
