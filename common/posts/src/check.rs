//! Validates the resulting post (422). All problems are reported together.
//!
//! A rule of a platform is data in its descriptor, or code in `crier_platforms::text`. A rule of all posts is here.
//!
//! **To add a rule of all posts:** a function that adds its problems by field, and its call in [`check_with`].

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Months, Utc};
use crier_base::patch_field::PatchField;
use crier_base::problems::Problems;
use crier_base::steps;
use crier_domain::account::{AccountStatus, AccountSummary};
use crier_domain::catalogue::descriptor;
use crier_domain::media::Asset;
use crier_domain::platform::{Descriptor, Platform, VideoLimits};
use crier_domain::post::{Post, PostStatus, ScheduleType};
use crier_platforms::options::OptionKind;
use crier_platforms::{link_card, options, text};
use crier_store::{Conn, Tx, accounts, media, post_media};

use crate::change::PostChange;
use crate::desired::{DesiredPost, DesiredTarget};
use crate::{PostContext, Result, queue};

mod covers;
mod lengths;
mod part;
mod permissions;
mod thread;

pub use lengths::TextLengthCache;
use part::CheckedPart;
pub use thread::PartLength;

/// The maximum time ahead for which a post may be scheduled.
const MAX_SCHEDULE_AHEAD: Months = Months::new(60);

const TIME_FIELD: &str = "scheduled_at";

/// The post's accounts that belong to the brand, by id.
pub type Accounts = HashMap<i64, AccountSummary>;

/// Decides on the signatures of the resulting post, validates it, and gives it a slot of the queue if it needs one. Fails
/// with 422 and all problems. Returns the post's accounts.
pub async fn validate(
    cx: &PostContext<'_>,
    tx: &mut Tx,
    post: &Post,
    desired: &mut DesiredPost,
    change: &PostChange,
    problems: Problems,
) -> Result<Accounts> {
    let lookup = LookupContext::load_and_lock(cx, tx, desired, change).await?;
    check(post, desired, change, &lookup, &problems);
    problems.into_result()?;
    // Last, because the queue is then locked until the end of the transaction.
    if desired.needs_slot(post, change) {
        desired.scheduled_at = Some(queue::find_time(tx, post, &desired.account_ids()).await?);
    }
    Ok(lookup.accounts)
}

/// The records that the checks look up.
pub struct LookupContext {
    pub accounts: Accounts,
    /// The desired images and videos that belong to the brand, by id.
    pub assets: HashMap<i64, Asset>,
    /// The limits of videos that the operator has set.
    pub video_limits: HashMap<Platform, VideoLimits>,
    pub now: DateTime<Utc>,
    /// The URL of this installation, if no platform can download images and videos from it.
    pub private_url: Option<String>,
}

impl LookupContext {
    /// Loads the records, and locks the images, so that they are not deleted before the commit.
    pub async fn load_and_lock(
        cx: &PostContext<'_>,
        tx: &mut Tx,
        desired: &mut DesiredPost,
        change: &PostChange,
    ) -> Result<Self> {
        post_media::lock_media(tx, cx.brand_id, &referenced_media(desired, change)).await?;
        Self::load(cx, tx, desired, change).await
    }

    /// Loads the records, and decides on the signatures ([`DesiredPost::sign`]).
    pub async fn load(
        cx: &PostContext<'_>,
        conn: &mut Conn,
        desired: &mut DesiredPost,
        change: &PostChange,
    ) -> Result<Self> {
        let brand_id = cx.brand_id;
        let account_ids: Vec<i64> = desired.targets.iter().map(|target| target.account_id).collect();
        let accounts = accounts::summaries(conn, brand_id, &account_ids).await?;
        let accounts: Accounts = accounts.into_iter().map(|account| (account.id, account)).collect();
        desired.sign(&accounts);
        let assets = media::find_many(conn, brand_id, &referenced_media(desired, change)).await?;
        Ok(Self {
            accounts,
            assets: assets.into_iter().map(|asset| (asset.id, asset)).collect(),
            video_limits: Platform::ALL.iter().map(|p| (*p, cx.platforms.video_limits(*p))).collect(),
            now: cx.now,
            private_url: (!cx.library.is_public()).then(|| cx.library.public_url().to_owned()),
        })
    }
}

/// Returns all images of the resulting post and of the request.
fn referenced_media(desired: &DesiredPost, change: &PostChange) -> Vec<i64> {
    let mut ids = desired.all_media();
    if let PatchField::Value(list) = &change.overrides {
        ids.extend(list.iter().flat_map(|entry| entry.target_override.all_media()));
        ids.sort_unstable();
        ids.dedup();
    }
    ids
}

/// A violation of a platform's rules, or a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetProblem {
    pub field: String,
    pub code: &'static str,
    pub message: String,
}

impl TargetProblem {
    /// Returns a problem of a target at its path in the request: in the override, if that sets the field.
    pub fn new(target: &DesiredTarget, problem: text::ContentProblem) -> Self {
        let text::ContentProblem { field, code, message } = problem;
        let own = &target.target_override;
        let is_own = if field == "media" { own.media.is_some() } else { own.content.is_some() };
        Self { field: target.path(is_own, field), code, message }
    }
}

/// The result of checking a target against its platform's rules.
#[derive(Clone, Debug)]
pub struct TargetCheck {
    pub account_id: i64,
    pub platform: Platform,
    pub length: u32,
    pub limit: Option<u32>,
    /// The parts of the thread, with the post itself. Empty if it is not a thread.
    pub parts: Vec<PartLength>,
    pub problems: Vec<TargetProblem>,
    /// Warnings about content that the platform changes instead of rejecting it.
    pub warnings: Vec<TargetProblem>,
}

/// Adds the problems of the resulting post. Fields that could not be parsed are already reported.
pub fn check(post: &Post, desired: &DesiredPost, change: &PostChange, lookup: &LookupContext, problems: &Problems) {
    check_with(post, desired, change, lookup, problems, &mut TextLengthCache::default());
}

/// Like [`check`], with the lengths of texts that were measured for another post with the same overrides.
pub fn check_with(
    post: &Post,
    desired: &DesiredPost,
    change: &PostChange,
    lookup: &LookupContext,
    problems: &Problems,
    measures: &mut TextLengthCache,
) {
    let status = desired.status(post.status).unwrap_or(post.status);
    let will_publish = status != PostStatus::Draft;
    check_content(desired, problems);
    check_media(desired, change, lookup, problems);
    if will_publish {
        check_unchanged_media(desired, change, lookup, problems);
    }
    check_overrides(desired, change, problems);
    check_time(desired, change, status, lookup.now, problems);
    // A post that has left draft keeps its accounts, even disconnected ones; their targets fail when they are due.
    let leaves_draft = post.status == PostStatus::Draft && will_publish;
    if change.accounts != PatchField::Omitted || leaves_draft {
        check_accounts(desired, lookup, will_publish, problems);
    }
    if will_publish && !problems.has("content") && !problems.has("thread") {
        for target in desired.targets.iter().take_while(|_| !problems.is_full()) {
            let Some(checked) = check_target(desired, target, lookup, measures) else { continue };
            for problem in checked.problems {
                problems.add(problem.field, problem.message);
            }
        }
    }
}

fn check_content(desired: &DesiredPost, problems: &Problems) {
    if desired.content.is_empty() && desired.media.is_empty() && !problems.has("content") {
        problems.add("content", "Add text, an image or a video.");
    }
}

/// Checks the images in the request. Published parts are final, so their images may have been deleted.
fn check_media(desired: &DesiredPost, change: &PostChange, lookup: &LookupContext, problems: &Problems) {
    let check_part = |is_final: bool, place: &str, ids: &[i64]| {
        if !is_final {
            check_media_exists(place, ids, lookup, problems);
        }
    };
    if let PatchField::Value(ids) = &change.media {
        check_part(desired.has_final_media(0), "media", ids);
    }
    if let PatchField::Value(parts) = &change.thread {
        for (n, part) in parts.iter().enumerate() {
            check_part(desired.has_final_media(n + 1), &format!("thread.{n}.media"), &part.media);
        }
    }
    if let PatchField::Value(list) = &change.overrides {
        let targets: HashMap<usize, &DesiredTarget> =
            desired.targets.iter().filter_map(|target| Some((target.override_index?, target))).collect();
        for (i, entry) in list.iter().enumerate() {
            let is_final = |part: usize| targets.get(&i).is_some_and(|target| target.has_published(part));
            let own = &entry.target_override;
            check_part(is_final(0), &format!("overrides.{i}.media"), own.media.as_deref().unwrap_or_default());
            for (n, part) in own.thread.iter().flatten().enumerate() {
                check_part(is_final(n + 1), &format!("overrides.{i}.thread.{n}.media"), &part.media);
            }
        }
    }
}

/// Checks the unpublished images that the request omits, because they may have been deleted.
fn check_unchanged_media(desired: &DesiredPost, change: &PostChange, lookup: &LookupContext, problems: &Problems) {
    let is_unpublished = |part: usize| desired.targets_with_media_of(part).any(|target| !target.has_published(part));
    if change.media == PatchField::Omitted && is_unpublished(0) {
        check_media_exists("media", &desired.media, lookup, problems);
    }
    if matches!(change.thread, PatchField::Omitted) {
        for (n, part) in desired.thread.iter().enumerate() {
            if is_unpublished(n + 1) {
                check_media_exists(&format!("thread.{n}.media"), &part.media, lookup, problems);
            }
        }
    }
    if matches!(change.overrides, PatchField::Omitted) {
        let unpublished = desired.targets.iter().filter(|target| !target.has_published(0));
        for media in unpublished.filter_map(|target| target.target_override.media.as_deref()) {
            check_media_exists("overrides.media", media, lookup, problems);
        }
        for target in &desired.targets {
            let parts = (1..).zip(target.target_override.thread.iter().flatten());
            for (_, part) in parts.filter(|(n, _)| !target.has_published(*n)) {
                check_media_exists("overrides.thread", &part.media, lookup, problems);
            }
        }
    }
}

fn check_media_exists(place: &str, ids: &[i64], lookup: &LookupContext, problems: &Problems) {
    // Ids that could not be parsed are omitted, so the indexes do not match the request.
    if problems.has(place) {
        return;
    }
    for (i, id) in ids.iter().enumerate() {
        steps::count_step();
        if !lookup.assets.contains_key(id) {
            problems.add(format!("{place}.{i}"), format!("Media asset {id} does not exist in this brand."));
        }
    }
}

fn check_overrides(desired: &DesiredPost, change: &PostChange, problems: &Problems) {
    let PatchField::Value(list) = &change.overrides else { return };
    if problems.has("accounts") {
        return;
    }
    let account_ids: HashSet<i64> = desired.targets.iter().map(|t| t.account_id).collect();
    let mut seen = HashSet::with_capacity(list.len());
    for (i, entry) in list.iter().enumerate() {
        // Without an ID, the problem is already reported.
        let Some(account_id) = entry.account_id else { continue };
        let problem = |message: String| problems.add(format!("overrides.{i}.account_id"), message);
        if !account_ids.contains(&account_id) {
            problem(format!("Account {account_id} is not one of the post's accounts."));
        } else if !seen.insert(account_id) {
            problem(format!("Account {account_id} already has an override."));
        }
    }
}

/// Checks the time that is sent with `now`. A time in the past is harmless.
pub fn check_now(change: &PostChange, now: DateTime<Utc>, problems: &Problems) {
    if matches!(change.scheduled_at, PatchField::Value(at) if at > now) {
        let message = "With `now`, the post is published immediately. Use `scheduled`, or omit this field.";
        problems.add(TIME_FIELD, message);
    }
}

/// Checks the time that is sent with `queue`.
pub fn check_queue(change: &PostChange, problems: &Problems) {
    if matches!(change.scheduled_at, PatchField::Value(_)) {
        problems.add(TIME_FIELD, "With `queue`, the time is that of a slot. Use `scheduled`, or omit this field.");
    }
}

fn check_time(desired: &DesiredPost, change: &PostChange, status: PostStatus, now: DateTime<Utc>, problems: &Problems) {
    if problems.has(TIME_FIELD) {
        return;
    }
    if desired.schedule_type == Some(ScheduleType::Now) {
        return check_now(change, now, problems);
    }
    if desired.schedule_type == Some(ScheduleType::Queue) {
        return check_queue(change, problems);
    }
    let is_given = matches!(change.scheduled_at, PatchField::Value(_));
    match desired.scheduled_at {
        None if status == PostStatus::Scheduled => {
            problems.add(TIME_FIELD, "Enter a date and time for the scheduled post.")
        }
        Some(at) if is_given || desired.schedule_type == Some(ScheduleType::Scheduled) => {
            if at <= now {
                problems.add(TIME_FIELD, "Must be in the future.");
            } else if now.checked_add_months(MAX_SCHEDULE_AHEAD).is_some_and(|last| at > last) {
                problems.add(TIME_FIELD, "Must be within 5 years from now.");
            }
        }
        _ => {}
    }
}

fn check_accounts(desired: &DesiredPost, lookup: &LookupContext, will_publish: bool, problems: &Problems) {
    if problems.has("accounts") {
        return;
    }
    if will_publish && desired.targets.is_empty() {
        problems.add("accounts", "Choose at least one account, or save the post as a draft.");
    }
    for (i, target) in desired.targets.iter().enumerate() {
        steps::count_step();
        if !lookup.accounts.contains_key(&target.account_id) {
            problems.add(format!("accounts.{i}"), missing_account(target.account_id));
        }
    }
}

/// Returns the problem of an account that does not exist.
pub fn missing_account(id: i64) -> String {
    format!("Account {id} does not exist in this brand.")
}

/// Returns the problem of an account whose access has expired. `position`: its position among the post's accounts. The
/// problem does not prevent creating a post, because the account may be reconnected before the post is due. Otherwise,
/// only the target of this account fails, with this code.
pub fn check_access(position: usize, account: &AccountSummary) -> Option<TargetProblem> {
    let (id, name, platform) = (account.id, &account.name, account.platform);
    (account.status == AccountStatus::Expired).then(|| TargetProblem {
        field: format!("accounts.{position}"),
        code: "account_expired",
        message: format!(
            "Account {id} ({name}): the access to {platform} has expired. Refresh or reconnect the account."
        ),
    })
}

/// Checks a target against its platform's rules. `None` if the account does not exist.
pub fn check_target(
    desired: &DesiredPost,
    target: &DesiredTarget,
    lookup: &LookupContext,
    measures: &mut TextLengthCache,
) -> Option<TargetCheck> {
    steps::count_step();
    let account = lookup.accounts.get(&target.account_id)?;
    let descriptor = descriptor(account.platform).with_limits(account.limits.as_ref());
    let descriptor: &Descriptor = &descriptor;
    let warning = options::content_warning(account.platform, &target.target_override.options);
    let measured = measures.of(desired, target, descriptor).with_warning(descriptor, warning);
    let own = &target.target_override;
    let found = CheckedPart::of(descriptor, &measured, desired.media_of(own), &own.options, lookup);
    let problem = |problem: text::ContentProblem| {
        let message = format!("Account {} ({}): {}", account.id, account.name, problem.message);
        TargetProblem::new(target, text::ContentProblem { message, ..problem })
    };
    let mut checked = TargetCheck {
        account_id: account.id,
        platform: account.platform,
        length: found.length,
        limit: found.limit,
        parts: Vec::new(),
        problems: found.problems.into_iter().map(problem).collect(),
        warnings: found.warnings.into_iter().map(|warning| TargetProblem::new(target, warning)).collect(),
    };
    checked.problems.extend(check_options(account, desired, target, lookup));
    let subject = thread::Subject { desired, target, account, descriptor, lookup };
    subject.check_thread(measures, &mut checked);
    subject.check_comment(measures, &mut checked);
    checked.problems.extend(missing_permissions(desired, target, account));
    Some(checked)
}

/// Returns the permissions that an account lacks for its thread and its first comment.
fn missing_permissions(desired: &DesiredPost, target: &DesiredTarget, account: &AccountSummary) -> Vec<TargetProblem> {
    let own = &target.target_override;
    // A published thread and its comment are final.
    let has_thread = !target.published && !desired.thread_of(own).is_empty();
    let has_comment = !target.published && desired.first_comment_of(own).is_some();
    let missing = permissions::check_permissions(account, has_thread, has_comment).into_iter().map(|problem| {
        let is_own = if problem.field == "thread" { own.thread.is_some() } else { own.first_comment.is_some() };
        TargetProblem { field: target.path(is_own, problem.field), code: problem.code, message: problem.message }
    });
    missing.collect()
}

/// Checks the options of a target: whether the required ones are set, and the values of those that the platform knows.
fn check_options(
    account: &AccountSummary,
    desired: &DesiredPost,
    target: &DesiredTarget,
    lookup: &LookupContext,
) -> Vec<TargetProblem> {
    let (descriptor, options) = (descriptor(account.platform), &target.target_override.options);
    let problem = |option: &str, code, message: String| {
        let field =
            target.override_index.map_or_else(|| "overrides".to_owned(), |i| format!("overrides.{i}.options.{option}"));
        TargetProblem { field, code, message: format!("Account {} ({}): {message}", account.id, account.name) }
    };
    let missing = text::missing_options(descriptor, options).into_iter().map(|option| {
        let message =
            format!("{} requires the option `{option}`. Set it in `overrides` for this account.", descriptor.name);
        problem(option, "option_required", message)
    });
    let invalid = options::check(account.platform, options).into_iter().map(|(option, accepted)| {
        problem(option, "option_invalid", format!("The option `{option}` of {} must be {accepted}.", descriptor.name))
    });
    let card_image = card_image(account.platform, target)
        .and_then(|id| image_problem(id, "the link card", lookup))
        .map(|message| problem(link_card::OPTION, "option_invalid", message));
    let covers = covers::check(descriptor, desired, target, lookup);
    let covers = covers.into_iter().map(|found| problem(found.option, found.code, found.message));
    missing.chain(invalid).chain(card_image).chain(covers).collect()
}

/// Returns the problem of an asset that must be an image. `of`: what it is the image of.
fn image_problem(id: i64, of: &str, lookup: &LookupContext) -> Option<String> {
    match lookup.assets.get(&id) {
        None => Some(format!("Media asset {id} of {of} does not exist in this brand.")),
        Some(asset) => asset.mime_type.image().is_none().then(|| format!("Media asset {id} of {of} must be an image.")),
    }
}

/// Returns the image that the option `link_card` sets. `None` if the text is published: its image may be deleted.
fn card_image(platform: Platform, target: &DesiredTarget) -> Option<i64> {
    let is_known = options::of(platform).iter().any(|option| option.kind == OptionKind::LinkCard);
    let option =
        target.target_override.options.get(link_card::OPTION).filter(|_| is_known && !target.has_published(0))?;
    option.get("media_id")?.as_i64()
}
