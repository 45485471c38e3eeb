//! `/brands/{brand}/posts/{post}` and the actions on a post: delete, submit, approve, reject, publish now, reschedule,
//! return to draft, and retry failed accounts.

use crier_domain::post::PostStatus;
use crier_jobs::publishing::{self, RetryPostOutcome};
use crier_store::posts;
use http::StatusCode;
use serde_json::{Value, json};

use super::composer_input::Stored;
use super::post_view::show;
use super::route::{Access, PageRoute};
use super::shared::FieldErrors;
use super::visit::{PageReply, Visit, form_errors};
use crate::error::{ApiError, ErrorCode, Result};

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::get("/brands/{brand}/posts/{post}", read),
        PageRoute::post("/brands/{brand}/posts/{post}/delete", delete),
        PageRoute::post("/brands/{brand}/posts/{post}/submit", submit),
        PageRoute::post("/brands/{brand}/posts/{post}/approve", approve).access(Access::Manager),
        PageRoute::post("/brands/{brand}/posts/{post}/reject", reject).access(Access::Manager),
        PageRoute::post("/brands/{brand}/posts/{post}/publish", publish),
        PageRoute::post("/brands/{brand}/posts/{post}/reschedule", reschedule),
        PageRoute::post("/brands/{brand}/posts/{post}/unschedule", unschedule),
        PageRoute::post("/brands/{brand}/posts/{post}/retry", retry),
    ]
}

fn id(visit: &Visit) -> i64 {
    visit.id("post").unwrap_or_default()
}

async fn read(visit: &Visit) -> Result<PageReply> {
    let stored = Stored::load(visit, id(visit)).await?;
    show(visit, stored, StatusCode::OK, FieldErrors::default()).await
}

/// Calls an endpoint of the post, and shows the page with a message or with the errors.
async fn write(visit: &Visit, operation: &'static str, body: Value, note: &'static str) -> Result<PageReply> {
    match visit.api(operation).write("", &body).await {
        Ok(_) => visit.to(&format!("posts/{}", id(visit)), note),
        Err(error) => render_error(visit, error).await,
    }
}

async fn render_error(visit: &Visit, error: ApiError) -> Result<PageReply> {
    let status = error.code.status();
    let errors = form_errors(error)?;
    show(visit, Stored::load(visit, id(visit)).await?, status, errors).await
}

async fn delete(visit: &Visit) -> Result<PageReply> {
    match visit.api("deletePost").write("", &json!({})).await {
        Ok(_) => visit.to("posts", "post-deleted"),
        Err(error) => render_error(visit, error).await,
    }
}

async fn submit(visit: &Visit) -> Result<PageReply> {
    write(visit, "submitPost", json!({}), "post-submitted").await
}

async fn approve(visit: &Visit) -> Result<PageReply> {
    write(visit, "approvePost", json!({}), "post-approved").await
}

async fn reject(visit: &Visit) -> Result<PageReply> {
    write(visit, "rejectPost", Value::from(visit.form.texts(&["reason"])), "post-rejected").await
}

async fn publish(visit: &Visit) -> Result<PageReply> {
    write(visit, "updatePost", json!({ "schedule_type": "now" }), "post-publishing").await
}

async fn reschedule(visit: &Visit) -> Result<PageReply> {
    let body = json!({ "schedule_type": "scheduled", "scheduled_at": visit.form.text("scheduled_at") });
    write(visit, "updatePost", body, "post-scheduled").await
}

async fn unschedule(visit: &Visit) -> Result<PageReply> {
    write(visit, "updatePost", json!({ "schedule_type": "draft" }), "post-unscheduled").await
}

/// Retries the failed accounts. Accounts with an unknown outcome are retried only if the form says that the user has
/// checked them.
async fn retry(visit: &Visit) -> Result<PageReply> {
    let is_confirmed = visit.form.get("outcome_unknown") == "true";
    let platforms = visit.app.platforms.clone();
    let can_reconcile = |platform| platforms.get(platform).is_some_and(|connector| connector.can_reconcile());
    let mut tx = visit.app.store.begin().await?;
    let found = posts::find_for_update(&mut tx, visit.brand()?.0.id, id(visit)).await?;
    let post = found.ok_or_else(|| ApiError::not_found("post"))?;
    let outcome = publishing::retry_post(&mut tx, post.id, is_confirmed, can_reconcile).await?;
    if let RetryPostOutcome::Started(_) = outcome {
        tx.commit().await?;
        return visit.to(&format!("posts/{}", post.id), "post-retried");
    }
    tx.rollback().await?;
    let why = match outcome {
        RetryPostOutcome::NotFound => return Err(ApiError::not_found("post")),
        // The form was sent twice.
        RetryPostOutcome::NothingFailed if post.status == PostStatus::Publishing => {
            return visit.to(&format!("posts/{}", post.id), "post-retried");
        }
        RetryPostOutcome::NothingFailed | RetryPostOutcome::Started(_) => "This post has not failed on any account.",
        RetryPostOutcome::Busy => "The post is being processed. Retry in a moment.",
        RetryPostOutcome::OutcomeUnknown(_) => {
            "The post may already be published on some of the failed accounts. “Retry failed accounts” shows which \
             accounts to check first."
        }
    };
    render_error(visit, ApiError::new(ErrorCode::PostNotEditable, why)).await
}
