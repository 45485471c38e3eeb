//! `/brands/{brand}/posts/{post}` and the actions on a post: delete, duplicate, submit, approve, reject, publish now,
//! reschedule, return to draft, retry failed accounts, and delete from the platforms.

use crier_domain::post::{PostStatus, ScheduleType};
use crier_endpoints::endpoint::Endpoint;
use crier_endpoints::error::{ApiError, ErrorCode, Result};
use crier_endpoints::fields::PatchField;
use crier_endpoints::request::{Parsed, Request};
use crier_endpoints::response::Output;
use crier_endpoints::routes::posts::reject::Rejection;
use crier_endpoints::routes::posts::request::UpdatePostRequest;
use crier_endpoints::routes::posts::unpublish::UnpublishPostRequest;
use crier_endpoints::routes::posts::{self, update};
use crier_endpoints::runner::call::Written;
use crier_jobs::publishing::{self, RetryPostOutcome};
use crier_store::posts::find_for_update;
use http::StatusCode;

use super::composer_input::Stored;
use super::post_view::show;
use super::route::{Access, PageRoute};
use super::shared::FieldErrors;
use super::visit::{PageReply, Visit, form_errors};

pub fn routes() -> Vec<PageRoute> {
    vec![
        PageRoute::get("/brands/{brand}/posts/{post}", read),
        PageRoute::post("/brands/{brand}/posts/{post}/delete", delete),
        PageRoute::post("/brands/{brand}/posts/{post}/duplicate", duplicate),
        PageRoute::post("/brands/{brand}/posts/{post}/submit", submit),
        PageRoute::post("/brands/{brand}/posts/{post}/approve", approve).access(Access::Manager),
        PageRoute::post("/brands/{brand}/posts/{post}/reject", reject).access(Access::Manager),
        PageRoute::post("/brands/{brand}/posts/{post}/publish", publish),
        PageRoute::post("/brands/{brand}/posts/{post}/reschedule", reschedule),
        PageRoute::post("/brands/{brand}/posts/{post}/unschedule", unschedule),
        PageRoute::post("/brands/{brand}/posts/{post}/retry", retry).access(Access::Publisher),
        PageRoute::post("/brands/{brand}/posts/{post}/unpublish", unpublish),
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
async fn write<Q: Request, R: Output>(
    visit: &Visit,
    endpoint: Endpoint<Q, R>,
    request: impl Into<Parsed<Q>>,
    note: &'static str,
) -> Result<PageReply> {
    finish(visit, visit.call().write(endpoint, request).await, note).await
}

/// Like [`write`], for what becomes public, or is deleted there. If the post was changed after the user opened the page,
/// by a contributor or an agent that cannot publish, for example, the user has not seen what would be published: the page
/// shows it first.
async fn write_seen<Q: Request, R: Output>(
    visit: &Visit,
    endpoint: Endpoint<Q, R>,
    request: impl Into<Parsed<Q>>,
    note: &'static str,
) -> Result<PageReply> {
    finish(visit, visit.call().version(visit.form.seen()).write(endpoint, request).await, note).await
}

async fn finish<T>(visit: &Visit, written: Result<Written<T>>, note: &'static str) -> Result<PageReply> {
    match written {
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
    match visit.call().write(posts::delete::endpoint(), ()).await {
        Ok(_) => visit.to("posts", "post-deleted"),
        Err(error) => render_error(visit, error).await,
    }
}

/// Opens the new draft in the composer.
async fn duplicate(visit: &Visit) -> Result<PageReply> {
    let written = visit.call().write(posts::duplicate::endpoint(), ()).await;
    match written.and_then(Written::into_value) {
        Ok(draft) => visit.to(&format!("posts/{}/edit", draft.id), "post-duplicated"),
        Err(error) => render_error(visit, error).await,
    }
}

async fn submit(visit: &Visit) -> Result<PageReply> {
    write(visit, posts::submit::endpoint(), (), "post-submitted").await
}

async fn approve(visit: &Visit) -> Result<PageReply> {
    write_seen(visit, posts::approve::endpoint(), (), "post-approved").await
}

async fn reject(visit: &Visit) -> Result<PageReply> {
    let rejection = visit.parse::<Rejection>(&visit.form.texts(&["reason"]));
    write_seen(visit, posts::reject::endpoint(), rejection, "post-rejected").await
}

/// Returns the change that publishes the post immediately or returns it to draft.
fn change_to(schedule_type: ScheduleType) -> UpdatePostRequest {
    UpdatePostRequest { schedule_type: PatchField::Value(schedule_type), ..UpdatePostRequest::default() }
}

async fn publish(visit: &Visit) -> Result<PageReply> {
    write_seen(visit, update::endpoint(), change_to(ScheduleType::Now), "post-publishing").await
}

async fn reschedule(visit: &Visit) -> Result<PageReply> {
    let mut fields = visit.form.texts(&["scheduled_at"]);
    fields.insert("schedule_type".to_owned(), ScheduleType::Scheduled.as_str().into());
    write_seen(visit, update::endpoint(), visit.parse::<UpdatePostRequest>(&fields), "post-scheduled").await
}

async fn unschedule(visit: &Visit) -> Result<PageReply> {
    write(visit, update::endpoint(), change_to(ScheduleType::Draft), "post-unscheduled").await
}

/// Deletes the post from the platforms: on the accounts in the form, or on all if there are none.
async fn unpublish(visit: &Visit) -> Result<PageReply> {
    let accounts = Some(visit.form.ids("accounts")).filter(|accounts| !accounts.is_empty());
    write_seen(visit, posts::unpublish::endpoint(), UnpublishPostRequest { accounts }, "post-unpublishing").await
}

/// Retries the failed accounts. Accounts with an unknown outcome are retried only if the form says that the user has
/// checked them, and the post has not changed since then: another attempt may have had an unknown outcome.
async fn retry(visit: &Visit) -> Result<PageReply> {
    let platforms = visit.app.platforms.clone();
    let can_reconcile = |platform| platforms.get(platform).is_some_and(|connector| connector.can_reconcile());
    let mut tx = visit.app.store.begin().await?;
    let found = find_for_update(&mut tx, visit.brand()?.0.id, id(visit)).await?;
    let post = found.ok_or_else(|| ApiError::not_found("post"))?;
    let is_confirmed = visit.form.get("outcome_unknown") == "true" && visit.form.seen().0 == post.updated_at;
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
