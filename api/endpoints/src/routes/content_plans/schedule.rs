//! `POST /brands/{brand}/content-plans/{plan}/items/{item}/schedule`
//!
//! Creates a post with the item's content and time. The item's row stays locked for the whole transaction, so of two
//! concurrent requests one creates the post and the other finds it.

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::content_plan::{Destination, PlanItem};
use crier_domain::post::{Post, ScheduleType};
use crier_posts::check::{self, LookupContext};
use crier_posts::{DesiredPost, PostChange, PostContext, apply};
use crier_store::{Conn, Tx, content_plans};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FEATURES, TAG, lock_item};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::Problems;
use crate::request::{Parsed, Request};
use crate::response::{One, Reply, Timestamp};
use crate::routes::posts::create::CreatePostRequest;
use crate::routes::posts::request::{MAX_ACCOUNTS, OverrideRequest};
use crate::routes::posts::{self, Author, PostDetail, PostFields, TargetBody};

/// The post to create from an item.
#[derive(Clone, Debug, Request)]
pub struct PlanScheduling {
    /// The IDs of the brand's accounts. At least one is required unless `destination` is `draft`.
    #[field(ids(MAX_ACCOUNTS), example = [1])]
    pub account_ids: Option<Vec<i64>>,
    /// The kind of post. `calendar`: a post at the item's time. `draft`: a draft. `approval`: a post pending approval.
    #[field(enum_value(), default = Destination::Calendar, example = "calendar")]
    pub destination: Destination,
    /// The overrides, as for a post.
    #[field(objects(MAX_ACCOUNTS), extension)]
    pub overrides: Option<Vec<OverrideRequest>>,
}

/// A post created from an item of a content plan.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ScheduledPost {
    pub id: i64,
    pub plan_item_id: i64,
    #[serde(flatten)]
    pub fields: PostFields,
    pub targets: Vec<TargetBody>,
    /// The author of the post. Null if the user was deleted.
    pub author: Option<Author>,
    /// The reason for rejecting the post. Null if there is none, and after the next change of the status.
    #[schemars(extend("x-extension" = true, "examples" = [null]))]
    pub reject_reason: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

pub fn endpoint() -> Endpoint<PlanScheduling, One<ScheduledPost>> {
    Endpoint::post(
        "/brands/{brand}/content-plans/{plan}/items/{item}/schedule",
        "schedulePlanItem",
        Scope::ContentWrite,
    )
    .tag(TAG)
    .adds(Growth::Texts)
    .summary("Create a post from an item of a content plan")
    .description(
        "`calendar` requires an item whose planned time is in the future. `draft` and `approval` keep the planned time, \
         even if it is null or in the past. `approval` requires the plan feature `approvals`. If the item already has \
         a post, delete that post first.",
    )
    .features(FEATURES)
    .status(201)
    .error_codes(&[ErrorCode::FeatureNotAvailable, ErrorCode::ItemAlreadyScheduled, ErrorCode::LimitReached])
    .checks_then_writes(schedule)
    .with_rerender("post", show)
}

async fn schedule(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<PlanScheduling>>) -> Result<Reply<ScheduledPost>> {
    let request = parsed.partial()?;
    cx.check_approvals(request.destination == Destination::Approval)?;
    let item = lock_item(cx, tx).await?;
    let post_cx = cx.post_context(tx.now)?;
    let draft = draft_of(&post_cx, &item);
    let (change, problems) = (request.change(), parsed.problems());
    if request.destination == Destination::Calendar && item.planned_at.is_none() {
        problems.add("planned_at", "The item has no planned time. Set one, or choose another destination.");
    }
    let mut desired = DesiredPost {
        submits: request.destination == Destination::Approval,
        ..DesiredPost::from_change(&draft, &[], &change)
    };
    let lookup = LookupContext::load_and_lock(&post_cx, tx, &mut desired, &change).await?;
    // Without a valid destination, the other fields cannot be checked.
    if !problems.has("destination") {
        let of_post = Problems::default();
        check::check(&draft, &desired, &change, &lookup, &of_post);
        problems.merge(of_post, map_field);
    }
    problems.into_result()?;
    if let Some(post) = item.post_id {
        let message = format!(
            "Post {post} was already created from this item. Update that post, or delete it to create another."
        );
        return Err(ApiError::new(ErrorCode::ItemAlreadyScheduled, message));
    }
    let (post, targets) = apply::create(&post_cx, tx, draft, &desired, &lookup.accounts).await?;
    content_plans::set_post(tx, item.id, post.id).await?;
    let path = format!("/brands/{}/posts/{}", post.brand_id, post.id);
    let id = post.id;
    Ok(Reply::at(&path, ScheduledPost::of(item.id, PostDetail::new(post, targets))).with_records([id]))
}

/// Returns the post created from the item.
async fn show(cx: &Context, conn: &mut Conn) -> Result<Reply<ScheduledPost>> {
    let post = posts::find(cx, conn).await?;
    Ok(Reply::from(ScheduledPost::of(cx.id("item")?, PostDetail::load(conn, post).await?)))
}

/// Returns an empty draft with the item's content and time.
fn draft_of(cx: &PostContext<'_>, item: &PlanItem) -> Post {
    Post { content: item.content.clone().unwrap_or_default(), scheduled_at: item.planned_at, ..cx.empty_draft() }
}

impl PlanScheduling {
    /// Returns the change of the draft to the post.
    fn change(&self) -> PostChange {
        let schedule_type = (self.destination == Destination::Calendar).then_some(ScheduleType::Scheduled);
        let (accounts, overrides) = (self.account_ids.clone(), self.overrides.clone());
        PostChange::from(&CreatePostRequest { schedule_type, accounts, overrides, ..CreatePostRequest::default() })
    }
}

/// Maps a field of a post to its name in this request.
fn map_field(path: &str) -> String {
    match path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest))) {
        ("accounts", None) => "account_ids".to_owned(),
        ("accounts", Some(rest)) => format!("account_ids.{rest}"),
        ("scheduled_at", _) => "planned_at".to_owned(),
        _ => path.to_owned(),
    }
}

impl ScheduledPost {
    fn of(plan_item_id: i64, post: PostDetail) -> Self {
        let PostDetail { id, fields, targets, author, reject_reason, created_at, updated_at } = post;
        Self { id, plan_item_id, fields, targets, author, reject_reason, created_at, updated_at }
    }
}
