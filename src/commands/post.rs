//! `crier post list | show | retry`

use chrono::SubsecRound as _;
use crier_domain::post::{Post, Target};
use crier_http::Guard;
use crier_jobs::publishing::{self, RetryPostOutcome};
use crier_runtime::platforms_of;
use crier_store::post_overview::{self, PostQuery, PostSummary};
use crier_store::{posts, targets};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Context, Result, fail};
use crate::cli::{ListPosts, PostCommand};
use crate::output::{print_json, print_line, print_rows, shortened};

/// Maximum number of characters of the last column, so that the table fits 100.
const MAX_DETAIL: usize = 40;

pub async fn run(cx: &Context, command: PostCommand) -> Result {
    match command {
        PostCommand::List(args) => list(cx, &args).await,
        PostCommand::Show { id, json } => show(cx, id, json).await,
        PostCommand::Retry { ids, outcome_unknown } => retry(cx, &ids, outcome_unknown).await,
    }
}

/// A row of the printed table.
#[derive(Serialize)]
struct PostLine {
    id: i64,
    brand: i64,
    status: String,
    scheduled: Option<String>,
    failed: String,
    /// The first error; without one, the text.
    detail: String,
}

async fn list(cx: &Context, args: &ListPosts) -> Result {
    let query = PostQuery { status: args.status, brand_id: args.brand };
    let listed = post_overview::list(&mut cx.store.read().await?, query, args.limit).await?;
    if args.format.json {
        print_rows(&listed, true);
        return Ok(());
    }
    let row = |post: PostSummary| PostLine {
        id: post.id,
        brand: post.brand_id,
        status: post.status.to_string(),
        scheduled: post.scheduled_at.map(|at| at.format("%F %H:%M").to_string()),
        failed: format!("{}/{}", post.failed, post.targets),
        detail: shortened(post.error.as_ref().unwrap_or(&post.content), MAX_DETAIL),
    };
    print_rows(&listed.into_iter().map(row).collect::<Vec<_>>(), false);
    Ok(())
}

/// A row of the targets that `show` prints.
#[derive(Serialize)]
struct TargetLine {
    id: i64,
    account_id: i64,
    platform: String,
    status: String,
    attempts: i32,
    url: Option<String>,
    error: Option<String>,
}

impl TargetLine {
    fn of(target: Target) -> Self {
        Self {
            id: target.id,
            account_id: target.account_id,
            platform: target.platform.to_string(),
            status: target.status.to_string(),
            attempts: target.attempts,
            url: target.url,
            error: target.error.map(|error| format!("{}: {}", error.code, error.message)),
        }
    }
}

async fn show(cx: &Context, id: i64, as_json: bool) -> Result {
    let mut conn = cx.store.read().await?;
    let Some(post) = posts::find_any(&mut conn, id).await? else { return fail(not_found(id)) };
    let all: Vec<TargetLine> = targets::list(&mut conn, id).await?.into_iter().map(TargetLine::of).collect();
    if as_json {
        print_json(&json!({
            "id": id,
            "brand_id": post.brand_id,
            "status": post.status,
            "schedule_type": post.schedule_type,
            "scheduled_at": post.scheduled_at,
            "published_at": post.published_at,
            "content": post.content,
            "targets": all,
        }));
        return Ok(());
    }
    print_post(&post);
    print_line("");
    print_rows(&all, false);
    Ok(())
}

fn print_post(post: &Post) {
    let time = |at: Option<chrono::DateTime<chrono::Utc>>| json!(at.map(|at| at.trunc_subsecs(0)));
    for (name, value) in [
        ("post", json!(post.id)),
        ("brand", json!(post.brand_id)),
        ("status", json!(post.status)),
        ("scheduled", time(post.scheduled_at)),
        ("published", time(post.published_at)),
        ("text", json!(post.content)),
    ] {
        match value {
            Value::Null => {}
            Value::String(text) => print_line(format_args!("{name:10} {text}")),
            other => print_line(format_args!("{name:10} {other}")),
        }
    }
}

async fn retry(cx: &Context, ids: &[i64], outcome_unknown: bool) -> Result {
    let registry = platforms_of(&cx.config, &cx.store, &Guard::new(Vec::new()));
    let can_reconcile = |platform| registry.get(platform).is_some_and(|connector| connector.can_reconcile());
    let mut left = Vec::new();
    for id in ids {
        let mut tx = cx.store.begin().await?;
        match publishing::retry_post(&mut tx, *id, outcome_unknown, can_reconcile).await? {
            RetryPostOutcome::Started(count) => {
                tx.commit().await?;
                let accounts = if count == 1 { "account" } else { "accounts" };
                print_line(format_args!("Post {id}: retrying {count} {accounts}."));
            }
            RetryPostOutcome::NotFound => left.push(not_found(*id)),
            RetryPostOutcome::NothingFailed => left.push(format!("post {id} has not failed on any account")),
            RetryPostOutcome::Busy => left.push(format!("post {id} is being processed; retry when that has finished")),
            RetryPostOutcome::OutcomeUnknown(accounts) => left.push(format!(
                "post {id} may already be published on account {}; check there, and if it is not, run `crier post retry \
                 {id} --outcome-unknown`",
                accounts.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
            )),
        }
    }
    if left.is_empty() { Ok(()) } else { fail(left.join("; ")) }
}

fn not_found(id: i64) -> String {
    format!("there is no post {id}; see `crier post list`")
}
