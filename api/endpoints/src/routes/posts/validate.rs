//! `POST /brands/{brand}/posts/validate`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::platform::Platform;
use crier_domain::post::ScheduleType;
use crier_posts::check::{self, LookupContext, TargetCheck, TextLengthCache};
use crier_posts::warnings::Warnings;
use crier_posts::{DesiredPost, PostChange};
use crier_store::Conn;
use schemars::JsonSchema;
use serde::Serialize;

use super::TAG;
use super::create::CreatePostRequest;
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ErrorCode, Result};
use crate::fields::{MAX_PROBLEMS, PatchField};
use crate::openapi::schema::TextEnum;
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// The maximum number of warnings about a target.
const MAX_WARNINGS: usize = 20;

/// The post to validate.
#[derive(Clone, Debug, Default, Request)]
#[request(name = "PostToValidate")]
pub struct ValidatePostRequest {
    #[field(flatten)]
    pub post: CreatePostRequest,
    /// The ID of the stored post that this post replaces. `warnings` ignore the stored post.
    #[field(id(), extension)]
    pub post_id: Option<i64>,
}

/// A problem that makes the platform reject the post.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ContentProblem {
    pub field: String,
    /// A stable problem code.
    pub code: &'static str,
    pub message: String,
}

/// A warning about the post. It does not prevent publishing.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ContentWarning {
    pub field: String,
    /// A stable code: `same_text`, `other_post`, `text_may_be_too_long`, `link_costs_more`, `hashtags_not_counted`,
    /// `alt_text_cut`, `first_comment_not_supported`, `caption_not_shown`, `format_not_used`.
    pub code: &'static str,
    pub message: String,
}

/// The length of a part of a thread.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ValidatedPart {
    /// The number of the part, starting at 1. Part 1 is the post itself.
    #[schemars(extend("examples" = [1]))]
    pub position: u32,
    /// The length as the platform counts it.
    pub length: u32,
    /// The maximum length. Null if the platform has no limit.
    pub limit: Option<u32>,
}

/// The result of validating a post for one account.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ValidatedTarget {
    pub account_id: i64,
    #[schemars(with = "TextEnum<Platform>")]
    pub platform: Platform,
    /// The length as the platform counts it. Includes the signature, and the content warning if it shares the limit.
    pub length: u32,
    /// The maximum length. Null if the platform has no limit.
    pub limit: Option<u32>,
    /// The lengths of the parts of the thread. Empty if only the post is published.
    #[schemars(extend("x-extension" = true, "examples" = [[]]))]
    pub parts: Vec<ValidatedPart>,
    pub problems: Vec<ContentProblem>,
    /// Facts that a user should know before the post is published, such as another post with the same text. At most 20.
    #[schemars(extend("x-extension" = true))]
    pub warnings: Vec<ContentWarning>,
    /// The account's signature, which is appended to the text. Null if the account has none or the text contains it.
    #[schemars(extend("x-extension" = true, "examples" = [null]))]
    pub signature: Option<String>,
}

/// The result of validating a post.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Validation {
    pub valid: bool,
    pub targets: Vec<ValidatedTarget>,
}

pub fn endpoint() -> Endpoint<ValidatePostRequest, One<Validation>> {
    Endpoint::post("/brands/{brand}/posts/validate", "validatePost", Scope::PostsRead)
        .tag(TAG)
        .summary("Validate a post")
        .description(
            "Checks the post against the rules of its accounts' platforms. `warnings` never prevent publishing: the same \
             text is published or scheduled on the account within 7 days, the account has another post within 5 minutes, \
             or the platform charges more or shows less. A post without a time is compared as if it were published now. \
             Writes nothing, so a test key works too, and no `Idempotency-Key` is needed.",
        )
        .extension()
        .ignores(|cx, new: &ValidatePostRequest| PostChange::from(&new.post).ignored(cx.now))
        .error_codes(&[ErrorCode::ValidationFailed])
        .checks_then_reads(validate)
}

async fn validate(
    cx: &Context,
    conn: &mut Conn,
    parsed: Arc<Parsed<ValidatePostRequest>>,
) -> Result<Reply<Validation>> {
    let post_cx = cx.post_context(cx.now)?;
    let post = post_cx.empty_draft();
    let (request, problems) = (parsed.partial()?, parsed.problems());
    let change = PostChange::from(&request.post);
    let mut desired = DesiredPost::from_change(&post, &[], &change);
    if desired.schedule_type == Some(ScheduleType::Now) {
        check::check_now(&change, cx.now, &problems);
    }
    if desired.schedule_type == Some(ScheduleType::Queue) {
        check::check_queue(&change, &problems);
    }
    // Check the post as a draft, because the problems with platforms are the response and must not fail the request.
    let draft = DesiredPost { schedule_type: None, ..desired.clone() };
    let change = PostChange { schedule_type: PatchField::Omitted, ..change };
    let lookup = LookupContext::load(&post_cx, conn, &mut desired, &change).await?;
    check::check(&post, &draft, &change, &lookup, &problems);
    problems.into_result()?;
    let mut warnings = Warnings::load(&post_cx, conn, &desired, cx.zone(), request.post_id).await?;
    let mut measures = TextLengthCache::default();
    let checked = desired.targets.iter().enumerate().filter_map(|(position, target)| {
        let mut checked = check::check_target(&desired, target, &lookup, &mut measures)?;
        checked.problems.extend(check::check_access(position, lookup.accounts.get(&target.account_id)?));
        checked.warnings.extend(warnings.of(target, checked.platform));
        Some((checked, target.target_override.signature.clone()))
    });
    let mut left = MAX_PROBLEMS;
    let targets: Vec<ValidatedTarget> =
        checked.map(|(checked, signature)| to_validated_target(checked, signature, &mut left)).collect();
    Ok(Reply::from(Validation { valid: targets.iter().all(|t| t.problems.is_empty()), targets }))
}

/// Includes at most `left` problems, but at least one if there are any: a target without problems counts as valid.
fn to_validated_target(checked: TargetCheck, signature: Option<String>, left: &mut usize) -> ValidatedTarget {
    let reported = checked.problems.into_iter().take((*left).max(1));
    let problems: Vec<ContentProblem> =
        reported.map(|p| ContentProblem { field: p.field, code: p.code, message: p.message }).collect();
    *left = left.saturating_sub(problems.len());
    let warnings = checked.warnings.into_iter().take(MAX_WARNINGS);
    let parts = checked.parts.into_iter();
    ValidatedTarget {
        account_id: checked.account_id,
        platform: checked.platform,
        length: checked.length,
        limit: checked.limit,
        parts: parts.map(|p| ValidatedPart { position: p.position, length: p.length, limit: p.limit }).collect(),
        problems,
        warnings: warnings.map(|w| ContentWarning { field: w.field, code: w.code, message: w.message }).collect(),
        signature,
    }
}
