//! The page of a post.

use std::collections::HashMap;

use askama::Template;
use crier_domain::account::SocialAccount;
use crier_domain::limits::Board;
use crier_domain::plan::Feature;
use crier_domain::post::{self, AttemptOutcome, PostStatus, TargetStatus};
use crier_endpoints::admission::plan;
use crier_endpoints::error::Result;
use crier_store::{Conn, accounts, first_comments, media, recurring_posts, targets};
use http::StatusCode;

use super::composer_input::Stored;
use super::composer_thread_fields::delay_label;
use super::post_labels::label_links;
use super::post_metrics::{self, MetricsRow};
use super::post_rows::{chip, image};
use super::post_target::{RowContext, TargetRow, has_long_text, own_media, unpublish_all_question};
use super::shared::{AccountChip, Badge, FieldErrors, Image, Link, Platform, Time, Tone};
use super::shell::{Section, Shell};
use super::visit::{PageReply, Visit};

/// The maximum length of a text, in characters, unless `?full=1` requests all of it.
const MAX_TEXT: usize = 5_000;
const MAX_TARGETS: usize = 100;
const MAX_ATTEMPTS: i64 = 100;

#[derive(Template)]
#[template(path = "console/post.html")]
struct PostPage {
    shell: Shell,
    /// Errors of `scheduled_at`, `reason`.
    errors: FieldErrors,
    id: i64,
    status: Badge,
    /// The text, or its beginning if it is long.
    text: String,
    /// The URL of the page with the whole text, if `text` is truncated.
    full_text: Option<String>,
    images: Vec<Image>,
    /// The parts after the first one, which is the text.
    thread: Vec<Part>,
    /// The text of the first comment and its delay.
    comment: Option<(String, String)>,
    targets: Vec<TargetRow>,
    more_targets: usize,
    /// The version of the post that the page shows ([`super::form::Form::seen`]).
    seen: i64,
    attempts: Vec<Attempt>,
    metrics: Vec<MetricsRow>,
    /// Labels and times: "Scheduled for", "Published", "Created", "Updated".
    times: Vec<(&'static str, Time)>,
    author: Option<String>,
    /// Links to the posts with the same labels.
    labels: Vec<Link>,
    /// Whether it is an occurrence of a recurring post.
    is_recurring: bool,
    /// That recurring post, unless it was deleted.
    recurring: Option<Link>,
    /// The reason why the draft was rejected.
    rejection: Option<String>,
    /// The submitted reason.
    reason: String,
    actions: Actions,
    /// What to check before a retry, if the outcome of some accounts is unknown.
    retry_question: Option<String>,
    /// What is deleted from where, if the user may unpublish the post.
    unpublish_question: Option<String>,
    /// `YYYY-MM-DDTHH:MM`, in the brand's time zone.
    scheduled_at: String,
    earliest: String,
    /// Whether the post is being published.
    is_publishing: bool,
    /// Whether the post is being deleted from a platform.
    is_unpublishing: bool,
}

/// A part of the thread.
struct Part {
    text: String,
    images: Vec<Image>,
}

/// The possible actions, by the status of the post and the role of the user.
#[derive(Clone, Copy, Debug, Default)]
struct Actions {
    edit: bool,
    /// Schedule or reschedule.
    reschedule: bool,
    publish: bool,
    retry: bool,
    submit: bool,
    /// Approve and reject.
    decide: bool,
    unschedule: bool,
    delete: bool,
}

struct Attempt {
    number: i32,
    account: AccountChip,
    at: Time,
    /// "1.2 s".
    duration: String,
    outcome: Badge,
    status_code: Option<i32>,
    error: Option<String>,
}

impl Actions {
    fn of(visit: &Visit, stored: &Stored, has_approvals: bool) -> Self {
        let has_account = !stored.targets.is_empty();
        let can_publish = visit.can_publish();
        let base = Self { delete: can_publish, ..Self::default() };
        match stored.post.status {
            PostStatus::Draft => Self {
                edit: true,
                reschedule: has_account && can_publish,
                publish: has_account && can_publish,
                submit: has_approvals && has_account,
                delete: true,
                ..base
            },
            PostStatus::PendingApproval if !can_publish => Self { delete: true, ..base },
            _ if !can_publish => base,
            PostStatus::PendingApproval => Self { edit: true, decide: visit.can_manage(), ..base },
            PostStatus::Scheduled => Self { edit: true, reschedule: true, publish: true, unschedule: true, ..base },
            PostStatus::Failed | PostStatus::PartiallyPublished => Self { edit: true, retry: true, ..base },
            PostStatus::Publishing | PostStatus::Published => base,
        }
    }
}

/// Shows the post. If there are errors, the forms contain the submitted values.
pub async fn show(visit: &Visit, stored: Stored, status: StatusCode, errors: FieldErrors) -> Result<PageReply> {
    let brand = visit.brand()?.0.id;
    let has_approvals = plan(&visit.app, &visit.authenticated.caller)?.has(Feature::Approvals);
    let mut conn = visit.app.store.read().await?;
    let (chips, boards) = accounts_of(visit, &mut conn, &stored).await?;
    let found_images = images(visit, &mut conn, &stored).await?;
    let comments = first_comments::of_post(&mut conn, stored.post.id).await?;
    let attempts = attempts(visit, &mut conn, &stored, &chips).await?;
    let (post, shell) = (&stored.post, visit.shell(Section::Posts, format!("Post {}", stored.post.id)));
    let rule = match post.recurring_id {
        Some(id) => recurring_posts::find(&mut conn, brand, id).await?,
        None => None,
    };
    drop(conn);
    let metrics = post_metrics::rows(visit, &stored, &chips).await?;
    let is_full = visit.query.get("full") == Some("1");
    let parts = post.thread.iter().map(|part| &part.content).chain([&post.content]);
    let mut texts = parts.chain(post.first_comment.as_ref().map(|own| &own.content));
    let is_truncated = !is_full
        && (texts.any(|text| text.chars().nth(MAX_TEXT).is_some())
            || stored.targets.iter().take(MAX_TARGETS).any(has_long_text));
    let images = |ids: &[i64]| -> Vec<Image> { ids.iter().filter_map(|id| found_images.get(id).cloned()).collect() };
    let max = if is_truncated { MAX_TEXT } else { usize::MAX };
    let shown = |text: &str| -> String { text.chars().take(max).collect() };
    let rows = RowContext {
        visit,
        shell: &shell,
        chips: &chips,
        boards: &boards,
        stored: &stored,
        comments: &comments,
        images: &found_images,
        is_full,
    };
    let targets = stored.targets.iter().take(MAX_TARGETS).map(|target| TargetRow::new(&rows, target)).collect();
    let page = PostPage {
        id: post.id,
        status: Badge::whole_post(post.status, post.queued),
        text: shown(&post.content),
        full_text: is_truncated.then(|| format!("{}?full=1", shell.post(post.id, ""))),
        images: images(&post.media),
        thread: post
            .thread
            .iter()
            .map(|part| Part { text: shown(&part.content), images: images(&part.media) })
            .collect(),
        comment: post.first_comment.as_ref().map(|own| (shown(&own.content), delay_label(own.delay_seconds))),
        targets,
        more_targets: stored.targets.len().saturating_sub(MAX_TARGETS),
        seen: post.updated_at.timestamp_micros(),
        attempts,
        metrics,
        times: times(visit, post),
        author: post.author_name.clone(),
        labels: label_links(brand, &post.labels),
        is_recurring: post.recurring_id.is_some(),
        recurring: rule.map(|rule| Link::new(&rule.name, &shell.page("recurring", rule.id, ""))),
        rejection: post.reject_reason.clone(),
        reason: visit.form.get("reason").to_owned(),
        actions: Actions::of(visit, &stored, has_approvals),
        retry_question: retry_question(&stored, &chips),
        unpublish_question: unpublish_all_question(&stored, &chips).filter(|_| visit.can_publish()),
        scheduled_at: match visit.form.text("scheduled_at") {
            Some(typed) => typed.to_owned(),
            None => stored.local_time(visit.zone()),
        },
        earliest: visit.now.with_timezone(&visit.zone()).format("%Y-%m-%dT%H:%M").to_string(),
        is_publishing: post.status == PostStatus::Publishing,
        is_unpublishing: stored.targets.iter().any(|target| target.status == TargetStatus::Unpublishing),
        errors,
        shell,
    };
    visit.page_with(status, &page)
}

pub type Chips = HashMap<i64, AccountChip>;
/// The boards of accounts.
pub type Boards = HashMap<i64, Vec<Board>>;

/// Returns the accounts of the post, and their boards. A disconnected account has a name only if another brand of the
/// workspace has it.
async fn accounts_of(visit: &Visit, conn: &mut Conn, stored: &Stored) -> Result<(Chips, Boards)> {
    let ids: Vec<i64> = stored.targets.iter().map(|target| target.account_id).collect();
    let found = accounts::find_many(conn, visit.brand()?.0.id, &ids).await?;
    let mut chips: Chips = found.iter().map(|account| (account.id, chip(account))).collect();
    let missing: Vec<_> = stored.targets.iter().filter(|target| !chips.contains_key(&target.account_id)).collect();
    for (index, target) in missing.into_iter().enumerate() {
        let account =
            if index < MAX_TARGETS { other_brands_account(visit, conn, target.account_id).await? } else { None };
        let name = account.map(|account| format!("{} (disconnected)", chip(&account).name));
        let platform = Platform::of(target.platform.as_str());
        let name = name.unwrap_or_else(|| "Disconnected account".to_owned());
        chips.insert(target.account_id, AccountChip { platform, name });
    }
    let boards = found.iter().map(|account| (account.id, account.boards().to_vec())).collect();
    Ok((chips, boards))
}

/// Returns an account of the workspace that is no longer connected to the brand.
async fn other_brands_account(visit: &Visit, conn: &mut Conn, account_id: i64) -> Result<Option<SocialAccount>> {
    let found = accounts::find_any(conn, account_id).await?;
    Ok(found.filter(|account| account.workspace_id == visit.authenticated.caller.workspace_id))
}

/// Returns the images of the post, of its thread and of single accounts, by ID.
async fn images(visit: &Visit, conn: &mut Conn, stored: &Stored) -> Result<HashMap<i64, Image>> {
    let parts = stored.post.thread.iter().flat_map(|part| &part.media);
    let own = stored.targets.iter().take(MAX_TARGETS).flat_map(own_media);
    let ids: Vec<i64> = stored.post.media.iter().chain(parts).copied().chain(own).collect();
    let found = media::find_many(conn, visit.brand()?.0.id, &ids).await?;
    Ok(found.into_iter().map(|asset| (asset.id, image(visit, asset))).collect())
}

async fn attempts(visit: &Visit, conn: &mut Conn, stored: &Stored, chips: &Chips) -> Result<Vec<Attempt>> {
    let accounts: HashMap<i64, i64> = stored.targets.iter().map(|target| (target.id, target.account_id)).collect();
    let attempt = |attempt: post::Attempt| {
        let (tone, word) = match attempt.outcome {
            AttemptOutcome::Published => (Tone::Good, "Published"),
            AttemptOutcome::Retried => (Tone::Warn, "Retried"),
            AttemptOutcome::Failed => (Tone::Bad, "Failed"),
            AttemptOutcome::Unknown => (Tone::Warn, "Unknown"),
        };
        let ms = attempt.duration_ms;
        Attempt {
            number: attempt.number,
            account: accounts.get(&attempt.target_id).and_then(|id| chips.get(id)).cloned().unwrap_or_default(),
            at: visit.time(attempt.started_at),
            duration: format!("{}.{} s", ms / 1000, ms % 1000 / 100),
            outcome: Badge::new(tone, word),
            status_code: attempt.status_code,
            error: attempt.error.map(|error| error.message),
        }
    };
    Ok(targets::attempts(conn, stored.post.id, MAX_ATTEMPTS).await?.into_iter().map(attempt).collect())
}

fn times(visit: &Visit, post: &post::Post) -> Vec<(&'static str, Time)> {
    let planned = match post.status {
        PostStatus::Scheduled => "Scheduled for",
        PostStatus::Draft | PostStatus::PendingApproval => "Planned for",
        _ => "Was scheduled for",
    };
    let mut times = Vec::new();
    times.extend(post.scheduled_at.map(|at| (planned, visit.time(at))));
    times.extend(post.published_at.map(|at| ("Published", visit.time(at))));
    times.push(("Created", visit.time(post.created_at)));
    times.push(("Updated", visit.time(post.updated_at)));
    times
}

/// Returns what to check before a retry. `None` if no outcome is unknown.
fn retry_question(stored: &Stored, chips: &Chips) -> Option<String> {
    let unknown: Vec<i64> =
        stored.targets.iter().filter(|target| target.may_be_published()).map(|target| target.account_id).collect();
    (!unknown.is_empty()).then(|| unknown_outcome(&unknown, chips))
}

/// Returns a message about the accounts on which the post may have been published.
fn unknown_outcome(account_ids: &[i64], chips: &Chips) -> String {
    let name = |id: &i64| chips.get(id).map(|chip| format!("{} ({})", chip.name, chip.platform.name));
    let names = account_ids.iter().filter_map(name).collect::<Vec<_>>().join(", ");
    format!(
        "The post may already be on {names}: the connection ended before the outcome was known. Check there first. If \
         the post is there, do not retry: it would be published twice."
    )
}
