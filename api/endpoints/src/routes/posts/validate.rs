//! `POST /brands/{brand}/posts/validate`

use std::collections::HashMap;
use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::platform::Platform;
use crier_domain::post::ScheduleType;
use crier_platforms::notes;
use crier_store::Conn;
use schemars::JsonSchema;
use serde::Serialize;

use super::TAG;
use super::check::{self, LookupContext, TargetCheck, TextLengthCache};
use super::create::CreatePostRequest;
use super::edit::{self, DesiredPost, PostChange};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ErrorCode, Result};
use crate::fields::{MAX_PROBLEMS, PatchField};
use crate::openapi::schema::TextEnum;
use crate::request::Parsed;
use crate::response::{One, Reply};

/// A problem that makes the platform reject the post.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ContentProblem {
    pub field: String,
    /// A stable problem code.
    pub code: &'static str,
    pub message: String,
}

/// The result of validating a post for one account.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ValidatedTarget {
    pub account_id: i64,
    #[schemars(with = "TextEnum<Platform>")]
    pub platform: Platform,
    /// The length as the platform counts it. Includes the content warning if it shares the limit.
    pub length: u32,
    /// The maximum length. Null if the platform has no limit.
    pub limit: Option<u32>,
    pub problems: Vec<ContentProblem>,
    /// Notes for the user that do not prevent publishing, such as costs or truncated alt texts.
    #[schemars(extend("x-extension" = true))]
    pub notes: Vec<String>,
}

/// The result of validating a post.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Validation {
    pub valid: bool,
    pub targets: Vec<ValidatedTarget>,
}

pub fn endpoint() -> Endpoint<CreatePostRequest, One<Validation>> {
    Endpoint::post("/brands/{brand}/posts/validate", "validatePost", Scope::PostsRead)
        .tag(TAG)
        .summary("Validate a post")
        .description(
            "Checks the post against the rules of its accounts' platforms. Writes nothing, so a test key works too, and no \
             `Idempotency-Key` is needed.",
        )
        .extension()
        .ignores(|cx, new| PostChange::ignored(cx, &PostChange::from(new)))
        .error_codes(&[ErrorCode::ValidationFailed])
        .checks_then_reads(validate)
}

async fn validate(cx: &Context, conn: &mut Conn, parsed: Arc<Parsed<CreatePostRequest>>) -> Result<Reply<Validation>> {
    let post = edit::empty_draft(cx, cx.now)?;
    let (change, problems) = (PostChange::from(parsed.partial()?), parsed.problems());
    let desired = DesiredPost::from_change(&post, &[], &change);
    if desired.schedule_type == Some(ScheduleType::Now) {
        check::check_now(&change, cx.now, &problems);
    }
    // Check the post as a draft, because the problems with platforms are the response and must not fail the request.
    let draft = DesiredPost { schedule_type: None, ..desired.clone() };
    let change = PostChange { schedule_type: PatchField::Omitted, ..change };
    let lookup = LookupContext::load(cx, conn, &desired, &change).await?;
    check::check(&post, &draft, &change, &lookup, &problems);
    problems.into_result()?;
    let (mut measures, mut left) = (TextLengthCache::default(), MAX_PROBLEMS);
    // The post's own text is checked only once for all accounts of a platform.
    let mut of_post: HashMap<Platform, Vec<String>> = HashMap::new();
    let checked = desired.targets.iter().enumerate().filter_map(|(position, target)| {
        let mut checked = check::check_target(&desired, target, &lookup, &mut measures)?;
        checked.problems.extend(check::check_access(position, lookup.accounts.get(&target.account_id)?));
        let of_text = match &target.target_override.content {
            Some(own) => notes::of(checked.platform, own),
            None => {
                let of_post = of_post.entry(checked.platform);
                of_post.or_insert_with_key(|platform| notes::of(*platform, &desired.content)).clone()
            }
        };
        checked.notes.extend(of_text);
        Some(checked)
    });
    let targets: Vec<ValidatedTarget> = checked.map(|checked| to_validated_target(checked, &mut left)).collect();
    Ok(Reply::from(Validation { valid: targets.iter().all(|t| t.problems.is_empty()), targets }))
}

/// Includes at most `left` problems, but at least one if there are any: a target without problems counts as valid.
fn to_validated_target(checked: TargetCheck, left: &mut usize) -> ValidatedTarget {
    let reported = checked.problems.into_iter().take((*left).max(1));
    let problems: Vec<ContentProblem> =
        reported.map(|p| ContentProblem { field: p.field, code: p.code, message: p.message }).collect();
    *left = left.saturating_sub(problems.len());
    ValidatedTarget {
        account_id: checked.account_id,
        platform: checked.platform,
        length: checked.length,
        limit: checked.limit,
        problems,
        notes: checked.notes,
    }
}
