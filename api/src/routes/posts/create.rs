//! `POST /brands/{brand}/posts`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::post::ScheduleType;
use crier_store::Tx;
use schemars::JsonSchema;
use serde_json::json;

use super::edit::{self, DesiredPost, PostChange, PostOverride};
use super::{PostDetail, TAG, apply, check, show};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth, ResponseShape};
use crate::error::{ErrorCode, Result};
use crate::fields::ParsedBody;
use crate::openapi::schema::TextEnum;
use crate::response::{ApiResponse, ScheduledTimestamp};

/// The post to create.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
#[schemars(rename = "NewPost")]
pub struct CreatePostRequest {
    /// The text of the post. Required unless there is media.
    #[schemars(length(max = edit::MAX_CONTENT_CHARS))]
    pub content: Option<String>,
    #[schemars(with = "Option<TextEnum<ScheduleType>>", extend("default" = "draft"))]
    pub schedule_type: Option<ScheduleType>,
    /// The time when the post is published. Required for `scheduled`, stored for a draft, ignored for `now`. Must be in
    /// the future, within 5 years. A time without an offset is in the brand's time zone.
    pub scheduled_at: Option<ScheduledTimestamp>,
    /// The ids of accounts of the brand. At least one is required unless the post is a draft.
    #[schemars(length(max = edit::MAX_ACCOUNTS), extend("uniqueItems" = true))]
    pub accounts: Option<Vec<i64>>,
    #[schemars(length(max = edit::MAX_MEDIA), extend("uniqueItems" = true, "x-extension" = true))]
    pub media: Option<Vec<i64>>,
    #[schemars(length(max = edit::MAX_ACCOUNTS), extend("x-extension" = true))]
    pub overrides: Option<Vec<PostOverride>>,
}

pub fn endpoint() -> Endpoint {
    Endpoint::post("/brands/{brand}/posts", "createPost", Scope::PostsWrite)
        .tag(TAG)
        .adds(Growth::Texts)
        .summary("Create a post")
        .description(
            "`schedule_type` determines whether the post is a draft, is scheduled, or is published immediately. Publishing \
             is asynchronous: poll the post's status, or subscribe to `post.published` and `post.failed`.",
        )
        .body::<CreatePostRequest>(json!({
            "content": "Fresh bread from 7 o'clock.", "schedule_type": "scheduled",
            "scheduled_at": "{day+7}T07:00:00", "accounts": [1]
        }))
        .ignores(PostChange::ignored)
        .response::<PostDetail>(201, ResponseShape::One)
        .error_codes(&[ErrorCode::LimitReached])
        .checks_then_writes(PostChange::parse, create)
        .with_rerender("post", show::show)
}

async fn create(cx: &Context, tx: &mut Tx, parsed: Arc<ParsedBody<PostChange>>) -> Result<ApiResponse> {
    let draft = edit::empty_draft(cx, tx.now)?;
    let change = &parsed.value;
    let desired = DesiredPost::from_change(&draft, &[], change);
    let accounts = check::validate(cx, tx, &draft, &desired, change, parsed.problems()).await?;
    let (post, targets) = apply::create(cx, tx, draft, &desired, &accounts).await?;
    let path = format!("/brands/{}/posts/{}", post.brand_id, post.id);
    let id = post.id;
    Ok(ApiResponse::created(&path, PostDetail::new(post, targets))?.with_records([id]))
}
