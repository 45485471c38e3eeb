//! `POST /brands/{brand}/posts/bulk`
//!
//! All posts are changed in one transaction, with the stored response, so a repeated request returns the outcomes and
//! changes nothing again. Each post is changed by the code of its own endpoint, in a savepoint: a change may be rejected
//! after its first write (the monthly limit, a job that has started), and must not undo the others. The rows of all posts
//! are locked first, in the order of their ids, because each change then locks other rows (jobs, the usage of the
//! workspace) that another request locks after its post.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::access::Scope;
use crier_domain::post::{BulkAction, BulkOutcome, MAX_LABEL, MAX_LABELS, Post, ScheduleType};
use crier_posts::PostChange;
use crier_store::{Tx, posts, targets};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{TAG, approve, check_version, delete, reject, submit};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::{Fields, PatchField, Problems};
use crate::openapi::Error as ErrorBody;
use crate::openapi::schema::TextEnum;
use crate::request::{Parsed, Request};
use crate::response::{Many, Reply};

/// The maximum number of posts of a request.
const MAX_POSTS: usize = 100;
/// The maximum number of targets of these posts. On SQLite, the transaction blocks all other writers.
const MAX_TARGETS: i64 = 2_000;
/// The maximum time by which posts are moved, in minutes: five years.
const MAX_SHIFT: i64 = 5 * 366 * 24 * 60;
/// The maximum number of invalid fields in the error of a post.
const MAX_FIELDS: usize = 10;

/// The change to several posts.
#[derive(Clone, Debug, Request)]
#[request(check = check)]
pub struct BulkChange {
    /// The IDs of 1 to 100 posts.
    #[field(ids(MAX_POSTS), example = [1])]
    pub ids: Vec<i64>,
    /// The change to each post. `draft` and `schedule` set its `schedule_type`. `shift` moves its time. `label` adds a
    /// label, and `unlabel` removes it. The others do what the endpoints with these names do.
    #[field(enum_value(), example = "schedule")]
    pub action: BulkAction,
    /// The time when the posts are published. Only for `schedule`. Null keeps the time of each post.
    #[field(time(), example = "{day+7}T07:00:00")]
    pub scheduled_at: Option<DateTime<Utc>>,
    /// The number of minutes by which the posts are moved. Negative numbers move them to an earlier time. Required for
    /// `shift`.
    #[field(number(-MAX_SHIFT..=MAX_SHIFT))]
    pub shift_minutes: Option<i64>,
    /// The label. Required for `label` and `unlabel`.
    #[field(text(1..=MAX_LABEL))]
    pub label: Option<String>,
}

fn check(request: &BulkChange, fields: &Fields<'_>) {
    if request.ids.is_empty() && !fields.problems.has("ids") {
        fields.problem("ids", "Choose at least one post.");
    }
    let (is_shift, is_label) =
        (request.action == BulkAction::Shift, matches!(request.action, BulkAction::Label | BulkAction::Unlabel));
    let check_use = |name: &str, is_sent: bool, is_allowed: bool, is_required: bool| match (is_sent, is_allowed) {
        (true, false) => fields.problem(name, format!("Must be omitted for the action `{}`.", request.action)),
        (false, true) if is_required && !fields.problems.has(name) => fields.problem(name, "This field is required."),
        _ => {}
    };
    check_use("scheduled_at", request.scheduled_at.is_some(), request.action == BulkAction::Schedule, false);
    check_use("shift_minutes", request.shift_minutes.is_some(), is_shift, true);
    check_use("label", request.label.is_some(), is_label, true);
    if request.label.as_deref().is_some_and(|label| label.trim().is_empty()) {
        fields.problem("label", "Must not be empty.");
    }
}

/// The outcome for a post.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BulkResult {
    pub id: i64,
    #[schemars(with = "TextEnum<BulkOutcome>")]
    pub outcome: BulkOutcome,
    /// The error that the post's own endpoint returns. Null if the post was changed.
    #[schemars(extend("examples" = [null]))]
    pub error: Option<ErrorBody>,
}

pub fn endpoint() -> Endpoint<BulkChange, Many<BulkResult>> {
    Endpoint::post("/brands/{brand}/posts/bulk", "bulkUpdatePosts", Scope::PostsWrite)
        .tag(TAG)
        .summary("Update or delete several posts")
        .description(
            "Changes each post like the endpoint for a single post. If a post cannot be changed, the others are still \
             changed. The results are in the order of `ids`. `submit`, `approve` and `reject` require the plan feature \
             `approvals`.",
        )
        .extension()
        .error_codes(&[ErrorCode::FeatureNotAvailable])
        .checks_then_writes(bulk)
}

async fn bulk(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<BulkChange>>) -> Result<Reply<Vec<BulkResult>>> {
    let action = parsed.partial()?.action;
    cx.check_approvals(matches!(action, BulkAction::Submit | BulkAction::Approve | BulkAction::Reject))?;
    let request = parsed.valid()?;
    let posts = posts::find_each_for_update(tx, cx.brand()?.id, &request.ids).await?;
    check_targets(tx, &posts).await?;
    let mut results = HashMap::new();
    for post in posts {
        let (id, savepoint) = (post.id, tx.set_savepoint().await?);
        let error = match change(cx, tx, post, request).await {
            Ok(()) => {
                tx.release(savepoint).await?;
                None
            }
            Err(error) if error.is_rejection() => {
                tx.roll_back_to(savepoint).await?;
                Some(error)
            }
            Err(error) => return Err(error),
        };
        results.insert(id, error);
    }
    let result = |id: &i64| {
        let error = results.remove(id).unwrap_or_else(|| Some(ApiError::not_found("post")));
        let outcome = if error.is_none() { BulkOutcome::Done } else { BulkOutcome::Refused };
        BulkResult { id: *id, outcome, error: error.map(|error| to_body(cx, error)) }
    };
    Ok(Reply::from(request.ids.iter().map(result).collect::<Vec<_>>()))
}

/// Fails if the posts have too many targets.
async fn check_targets(tx: &mut Tx, posts: &[Post]) -> Result<()> {
    let ids: Vec<i64> = posts.iter().map(|post| post.id).collect();
    let count = targets::count(tx, &ids).await?;
    if count <= MAX_TARGETS {
        return Ok(());
    }
    let message =
        format!("These posts have {count} accounts in total. Choose fewer posts, with at most {MAX_TARGETS}.");
    Err(ApiError::field("ids", message))
}

/// Changes a post whose row is locked.
async fn change(cx: &Context, tx: &mut Tx, post: Post, request: &BulkChange) -> Result<()> {
    check_version(cx.versions.get(&post.id).copied(), &post)?;
    let schedule_type = |kind| PostChange { schedule_type: PatchField::Value(kind), ..PostChange::default() };
    let to_change = |at: Option<DateTime<Utc>>| at.map_or(PatchField::Omitted, PatchField::Value);
    let change = match request.action {
        BulkAction::Delete => return delete::delete_post(cx, tx, &post).await,
        BulkAction::Submit => return submit::submit_post(cx, tx, post).await.map(drop),
        BulkAction::Approve => {
            approve::check_role(cx)?;
            return approve::approve_post(cx, tx, post).await.map(drop);
        }
        BulkAction::Reject => {
            approve::check_role(cx)?;
            return reject::reject_post(tx, post, None).await.map(drop);
        }
        BulkAction::Draft => schedule_type(ScheduleType::Draft),
        BulkAction::Schedule => {
            let scheduled_at = to_change(request.scheduled_at);
            PostChange { scheduled_at, ..schedule_type(ScheduleType::Scheduled) }
        }
        BulkAction::Shift => {
            let scheduled_at = to_change(Some(shifted(&post, request.shift_minutes.unwrap_or_default())?));
            PostChange { scheduled_at, ..PostChange::default() }
        }
        BulkAction::Label | BulkAction::Unlabel => {
            let labels = PatchField::Value(changed_labels(&post, request)?);
            PostChange { labels, ..PostChange::default() }
        }
    };
    crier_posts::update(&cx.post_context(tx.now)?, tx, post, &change, Problems::default()).await?;
    Ok(())
}

fn shifted(post: &Post, minutes: i64) -> Result<DateTime<Utc>> {
    let at = post.scheduled_at.ok_or_else(|| ApiError::field("scheduled_at", "The post has no scheduled time."))?;
    let moved = at.checked_add_signed(TimeDelta::minutes(minutes));
    moved.ok_or_else(|| ApiError::field("scheduled_at", "Must be within 5 years from now."))
}

/// Returns the labels of the post after the change.
fn changed_labels(post: &Post, request: &BulkChange) -> Result<Vec<String>> {
    let label = request.label.as_deref().unwrap_or_default().trim();
    let mut labels = post.labels.clone();
    labels.retain(|own| request.action == BulkAction::Label || own != label);
    if request.action == BulkAction::Label && !labels.iter().any(|own| own == label) {
        labels.push(label.to_owned());
    }
    if labels.len() > MAX_LABELS {
        return Err(ApiError::field("labels", format!("A post can have at most {MAX_LABELS} labels.")));
    }
    Ok(labels)
}

fn to_body(cx: &Context, error: ApiError) -> ErrorBody {
    let fields = error.fields.into_iter().take(MAX_FIELDS).collect();
    ErrorBody {
        r#type: error.code.kind(),
        code: error.code,
        message: error.message.into_owned(),
        request_id: cx.request_id.clone(),
        doc_url: error.code.doc_url(&cx.app.public_url),
        fields,
    }
}
