//! `POST /brands/{brand}/posts`

use std::sync::Arc;

use chrono::{DateTime, Utc};
use crier_domain::access::Scope;
use crier_domain::post::{MAX_LABEL, MAX_LABELS, MAX_THREAD, ScheduleType};
use crier_posts::PostChange;
use crier_store::Tx;

use super::request::{
    FirstCommentRequest, MAX_ACCOUNTS, MAX_CONTENT_CHARS, MAX_MEDIA, OverrideRequest, ThreadPartRequest, to_overrides,
    to_thread,
};
use super::{PostDetail, TAG, show};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ErrorCode, Result};
use crate::fields::{PatchField, Problems};
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// The post to create.
#[derive(Clone, Debug, Default, Request)]
#[request(name = "NewPost")]
pub struct CreatePostRequest {
    /// The text of the post. Required unless there is media.
    #[field(text(0..=MAX_CONTENT_CHARS), example = "Fresh bread from 7 o'clock.")]
    pub content: Option<String>,
    /// `queue`, an extension, schedules the post at the next free slot of the brand's queue.
    #[field(enum_value(), default = ScheduleType::Draft, example = "scheduled")]
    pub schedule_type: Option<ScheduleType>,
    /// The time when the post is published. Required for `scheduled`, stored for a draft, rejected for `queue`. With
    /// `now`, a past time is ignored and a future time is rejected. Otherwise, it must be in the future, within 5 years. A
    /// time without an offset is in the brand's time zone.
    #[field(time(), example = "{day+7}T07:00:00")]
    pub scheduled_at: Option<DateTime<Utc>>,
    /// The IDs of accounts of the brand. At least one is required unless the post is a draft.
    #[field(ids(MAX_ACCOUNTS), example = [1])]
    pub accounts: Option<Vec<i64>>,
    #[field(ids(MAX_MEDIA), extension)]
    pub media: Option<Vec<i64>>,
    #[field(objects(MAX_ACCOUNTS), extension)]
    pub overrides: Option<Vec<OverrideRequest>>,
    /// At most 10 labels of at most 40 characters each. They do not affect what is published.
    #[field(texts(MAX_LABELS, 1..=MAX_LABEL), extension)]
    pub labels: Option<Vec<String>>,
    /// The parts that follow the post in its thread. On an account whose platform has no threads, an override with
    /// `thread: []` publishes only the first part.
    #[field(objects(MAX_THREAD), extension)]
    pub thread: Option<Vec<ThreadPartRequest>>,
    /// The comment to publish under the post, on platforms where Crier can comment.
    #[field(object(), extension)]
    pub first_comment: Option<FirstCommentRequest>,
}

/// The change of an empty draft to this post.
impl From<&CreatePostRequest> for PostChange {
    fn from(new: &CreatePostRequest) -> Self {
        let CreatePostRequest {
            content,
            schedule_type,
            scheduled_at,
            accounts,
            media,
            overrides,
            labels,
            thread,
            first_comment,
        } = new.clone();
        Self {
            content: to_change(content),
            schedule_type: to_change(schedule_type),
            scheduled_at: to_change(scheduled_at),
            accounts: to_change(accounts),
            media: to_change(media),
            overrides: to_change(overrides.map(to_overrides)),
            labels: to_change(labels),
            thread: to_change(thread.map(to_thread)),
            first_comment: to_change(first_comment.map(Into::into)),
        }
    }
}

fn to_change<T>(field: Option<T>) -> PatchField<T> {
    field.map_or(PatchField::Omitted, PatchField::Value)
}

pub fn endpoint() -> Endpoint<CreatePostRequest, One<PostDetail>> {
    Endpoint::post("/brands/{brand}/posts", "createPost", Scope::PostsWrite)
        .tag(TAG)
        .adds(Growth::Texts)
        .summary("Create a post")
        .description(
            "`schedule_type` determines whether the post is a draft, is scheduled, or is published immediately. Publishing \
             is asynchronous: poll the post's status, or subscribe to `post.published` and `post.failed`.",
        )
        .ignores(|cx, new| PostChange::from(new).ignored(cx.now))
        .status(201)
        .error_codes(&[ErrorCode::LimitReached])
        .checks_then_writes(create)
        .with_rerender("post", show::show)
}

async fn create(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<CreatePostRequest>>) -> Result<Reply<PostDetail>> {
    let change = PostChange::from(parsed.partial()?);
    create_post(cx, tx, &change, parsed.problems()).await
}

/// Creates a post: a change of an empty draft. `problems` has those that were already found.
pub async fn create_post(
    cx: &Context,
    tx: &mut Tx,
    change: &PostChange,
    problems: Problems,
) -> Result<Reply<PostDetail>> {
    let (post, targets) = crier_posts::create(&cx.post_context(tx.now)?, tx, change, problems).await?;
    let path = format!("/brands/{}/posts/{}", post.brand_id, post.id);
    let id = post.id;
    Ok(Reply::at(&path, PostDetail::new(post, targets)).with_records([id]))
}
