//! Recurring posts: rules, whose occurrences a job makes (`worker/src/jobs/make_occurrences.rs`).
//!
//! `request.rs` has the fields of a rule in requests, and `check.rs` validates the rule that results from a request.

use std::collections::{HashMap, HashSet};

use chrono::NaiveDate;
use crier_domain::account::AccountSummary;
use crier_domain::analytics::zone;
use crier_domain::content_plan::Destination;
use crier_domain::post::FirstCommentOverride;
use crier_domain::recurrence::Frequency;
use crier_domain::recurring_post::{self as domain, RuleOverride, Variation};
use crier_posts::check::{check_access, missing_account};
use crier_store::{Conn, Tx, accounts, recurring_occurrences, recurring_posts};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::posts::thread::{FirstCommentBody, ThreadPartBody};
use crate::context::Context;
use crate::endpoint::AnyEndpoint;
use crate::error::{ApiError, Result};
use crate::openapi::schema::TextEnum;
use crate::response::{ScheduledTimestamp, Timestamp};

mod check;
pub mod create;
pub mod delete;
pub mod list;
pub mod request;
pub mod show;
pub mod update;

pub const TAG: &str = "Recurring posts";

pub fn endpoints() -> Vec<AnyEndpoint> {
    vec![
        list::endpoint().erase(),
        create::endpoint().erase(),
        show::endpoint().erase(),
        update::endpoint().erase(),
        delete::endpoint().erase(),
    ]
}

/// One of the texts that the posts use in turn.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RecurringPostVariation")]
pub struct VariationBody {
    #[schemars(extend("examples" = ["Fresh bread from 7 o'clock."]))]
    pub content: String,
    /// The IDs of the images and videos, in order.
    pub media: Vec<i64>,
}

/// The override for one account.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RecurringPostOverride")]
pub struct OverrideBody {
    pub account_id: i64,
    /// The text for this account. Null uses the variation's text.
    #[schemars(extend("examples" = [null]))]
    pub content: Option<String>,
    /// The IDs of the images for this account. Null uses the variation's images.
    #[schemars(extend("examples" = [null]))]
    pub media: Option<Vec<i64>>,
    pub options: Map<String, Value>,
    /// The parts that follow the text on this account. Null if there are none.
    #[schemars(extend("examples" = [null]))]
    pub thread: Option<Vec<ThreadPartBody>>,
    /// The comment for this account. Null if there is none.
    #[schemars(extend("examples" = [null]))]
    pub first_comment: Option<FirstCommentBody>,
}

/// A rule that creates posts at regular times, in the brand's time zone.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RecurringPost {
    pub id: i64,
    #[schemars(extend("examples" = ["Menu of the week"]))]
    pub name: String,
    /// The texts that the posts use in turn.
    pub variations: Vec<VariationBody>,
    /// The IDs of the posts' accounts, in order.
    pub accounts: Vec<i64>,
    pub overrides: Vec<OverrideBody>,
    #[schemars(extend("examples" = [["menu"]]))]
    pub labels: Vec<String>,
    #[schemars(with = "TextEnum<Frequency>", extend("examples" = ["weekly"]))]
    pub frequency: Frequency,
    /// The weekdays, from 1 (Monday) to 7. Empty unless `frequency` is `weekly`.
    #[schemars(extend("examples" = [[1]]))]
    pub weekdays: Vec<i64>,
    /// The day of the month, from 1 to 31. Null unless `frequency` is `monthly`.
    #[schemars(extend("examples" = [null]))]
    pub day: Option<i64>,
    /// The cron expression. Null unless `frequency` is `cron`.
    #[schemars(extend("examples" = [null]))]
    pub cron: Option<String>,
    /// The local time, as `HH:MM`. Null if `frequency` is `cron`.
    #[schemars(extend("examples" = ["09:00"]))]
    pub time: Option<String>,
    pub starts_on: NaiveDate,
    /// The last day. Null if the rule has no end.
    pub ends_on: Option<NaiveDate>,
    /// The maximum number of posts. Null if there is no maximum.
    #[schemars(extend("examples" = [null]))]
    pub count: Option<i64>,
    /// The result of each occurrence.
    #[schemars(with = "TextEnum<Destination>", extend("examples" = ["calendar"]))]
    pub destination: Destination,
    pub is_active: bool,
    /// The times of the next posts, at most 5. Empty if the rule is not active or has ended.
    pub next_occurrences: Vec<ScheduledTimestamp>,
    /// The reason Crier cannot create or publish the next posts, and what to do. Null if there is no problem.
    #[schemars(extend("examples" = [null]))]
    pub problem: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl From<Variation> for VariationBody {
    fn from(variation: Variation) -> Self {
        Self { content: variation.content, media: variation.media }
    }
}

impl From<RuleOverride> for OverrideBody {
    fn from(rule: RuleOverride) -> Self {
        let own = rule.target_override;
        Self {
            account_id: rule.account_id,
            content: own.content,
            media: own.media,
            options: own.options,
            thread: own.thread.map(|parts| parts.into_iter().map(Into::into).collect()),
            first_comment: match own.first_comment {
                Some(FirstCommentOverride::Own(comment)) => Some(comment.into()),
                Some(FirstCommentOverride::Off) | None => None,
            },
        }
    }
}

impl RecurringPost {
    /// Returns the rules of the brand with their next times and their problems.
    async fn load(cx: &Context, conn: &mut Conn, rules: Vec<domain::RecurringPost>) -> Result<Vec<Self>> {
        let brand = cx.brand()?;
        let ids: HashSet<i64> = rules.iter().flat_map(|rule| rule.accounts.iter().copied()).collect();
        let ids: Vec<i64> = ids.into_iter().collect();
        let accounts = accounts::summaries(conn, brand.id, &ids).await?;
        let accounts: HashMap<i64, AccountSummary> =
            accounts.into_iter().map(|account| (account.id, account)).collect();
        let counted: Vec<i64> = rules.iter().filter(|rule| rule.count.is_some()).map(|rule| rule.id).collect();
        let planned = recurring_occurrences::count_future(conn, &counted, cx.now).await?;
        let planned: HashMap<i64, i64> = planned.into_iter().collect();
        let body = |rule: domain::RecurringPost| {
            let future = planned.get(&rule.id).copied().unwrap_or_default();
            Self::new(cx, rule, future, &accounts)
        };
        Ok(rules.into_iter().map(body).collect())
    }

    /// Returns one rule of the brand.
    async fn load_one(cx: &Context, conn: &mut Conn, rule: domain::RecurringPost) -> Result<Self> {
        let mut loaded = Self::load(cx, conn, vec![rule]).await?;
        loaded.pop().ok_or_else(|| ApiError::bug("a rule was not loaded"))
    }

    /// `future`: the number of its planned occurrences in the future.
    fn new(cx: &Context, rule: domain::RecurringPost, future: i64, accounts: &HashMap<i64, AccountSummary>) -> Self {
        let mut times = if rule.is_running() { rule.next_times(zone(Some(cx.zone())), cx.now) } else { Vec::new() };
        if let Some(count) = rule.count {
            let left = count.saturating_sub(rule.planned).saturating_add(future).max(0);
            times.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        }
        let of_account = || problem_of_accounts(&rule, accounts).filter(|_| !times.is_empty());
        let problem = rule.problem.clone().or_else(of_account);
        Self {
            id: rule.id,
            problem,
            next_occurrences: times.into_iter().map(Into::into).collect(),
            name: rule.name,
            variations: rule.variations.into_iter().map(Into::into).collect(),
            accounts: rule.accounts,
            overrides: rule.overrides.into_iter().map(Into::into).collect(),
            labels: rule.labels,
            frequency: rule.frequency,
            weekdays: rule.weekdays,
            day: rule.day,
            cron: rule.cron,
            time: rule.time,
            starts_on: rule.starts_on,
            ends_on: rule.ends_on,
            count: rule.count,
            destination: rule.destination,
            is_active: rule.is_active,
            created_at: rule.created_at.into(),
            updated_at: rule.updated_at.into(),
        }
    }
}

/// Returns the problem of an account that was disconnected, or whose access has expired.
fn problem_of_accounts(rule: &domain::RecurringPost, accounts: &HashMap<i64, AccountSummary>) -> Option<String> {
    rule.accounts.iter().enumerate().find_map(|(position, id)| match accounts.get(id) {
        Some(account) => check_access(position, account).map(|problem| problem.message),
        None => Some(missing_account(*id)),
    })
}

fn missing() -> ApiError {
    ApiError::not_found("recurring post")
}

/// Returns the rule in the path; 404 if it does not exist.
async fn find(cx: &Context, conn: &mut Conn) -> Result<domain::RecurringPost> {
    recurring_posts::find(conn, cx.brand()?.id, cx.id("recurring")?).await?.ok_or_else(missing)
}

/// Locks and returns the rule in the path; 404 if it does not exist. Fails for contributors if its posts are published
/// without an approval.
async fn lock(cx: &Context, tx: &mut Tx) -> Result<domain::RecurringPost> {
    let found = recurring_posts::find_for_update(tx, cx.brand()?.id, cx.id("recurring")?).await?;
    let rule = found.ok_or_else(missing)?;
    check_role(cx, rule.destination)?;
    Ok(rule)
}

fn check_role(cx: &Context, destination: Destination) -> Result<()> {
    if destination == Destination::Calendar && !cx.role()?.can_publish() {
        return Err(ApiError::for_publishers());
    }
    // A changed rule also changes its posts that are pending approval, unless its author is a contributor.
    if destination == Destination::Draft { Ok(()) } else { cx.check_has_no_role_limit() }
}
