//! The rule that results from a request, and its problems.

use chrono::{DateTime, Datelike, TimeDelta, Utc};
use crier_domain::analytics::zone;
use crier_domain::content_plan::Destination;
use crier_domain::post::ScheduleType;
use crier_domain::recurrence::Frequency;
use crier_domain::recurring_post::{
    MAX_OCCURRENCES, MAX_RULES_TEXT, RecurringPost, RuleOverride, Variation, is_too_frequent,
};
use crier_posts::check::{self, LookupContext, TextLengthCache};
use crier_posts::{DesiredPost, PostChange, PostOverride};
use crier_store::{Tx, brands, recurring_posts};

use super::check_role;
use super::request::{NO_DATE, RecurringPostChange, VariationRequest};
use crate::context::Context;
use crate::error::{ApiError, Result};
use crate::fields::{PatchField, Problems};
use crate::routes::posts::request::to_overrides;

const DEFAULT_TIME: &str = "09:00";

/// Returns the rule that becomes a new one.
pub fn empty_rule(cx: &Context, now: DateTime<Utc>) -> Result<RecurringPost> {
    Ok(RecurringPost {
        id: 0,
        brand_id: cx.brand()?.id,
        author_id: None,
        name: String::new(),
        frequency: Frequency::Daily,
        weekdays: Vec::new(),
        day: None,
        cron: None,
        time: None,
        starts_on: now.with_timezone(&zone(Some(cx.zone()))).date_naive(),
        ends_on: None,
        count: None,
        destination: Destination::Draft,
        is_active: true,
        accounts: Vec::new(),
        labels: Vec::new(),
        planned: 0,
        version: 1,
        planned_version: 0,
        problem: None,
        deleted_at: None,
        created_at: now,
        updated_at: now,
        variations: Vec::new(),
        overrides: Vec::new(),
    })
}

/// Returns the rule after a change, with the caller as its author. Fails with all problems (422), or if the caller's
/// role does not allow its destination (403).
pub async fn apply(
    cx: &Context,
    tx: &mut Tx,
    rule: RecurringPost,
    change: &RecurringPostChange,
) -> Result<RecurringPost> {
    let problems = Problems::default();
    let change = change.clone();
    let overrides = overrides_after(&rule, &change);
    let today = tx.now.with_timezone(&zone(Some(cx.zone()))).date_naive();
    let mut rule = RecurringPost {
        author_id: Some(cx.caller.user_id),
        name: change.name.value().unwrap_or(rule.name),
        variations: change.variations.map(to_variations).apply_to(rule.variations, Vec::new()),
        accounts: change.accounts.apply_to(rule.accounts, Vec::new()),
        labels: change.labels.apply_to(rule.labels, Vec::new()),
        frequency: change.frequency.value().unwrap_or(rule.frequency),
        starts_on: change.starts_on.apply_to(rule.starts_on, today),
        ends_on: change.ends_on.map(Some).apply_to(rule.ends_on, None),
        count: change.count.map(Some).apply_to(rule.count, None),
        destination: change.destination.value().unwrap_or(rule.destination),
        is_active: change.is_active.value().unwrap_or(rule.is_active),
        ..rule
    };
    check_role(cx, rule.destination)?;
    set_times(&mut rule, change.weekdays, change.day, change.cron, change.time, &problems);
    check_times(cx, &rule, tx.now, &problems);
    let stored = overrides.iter().filter_map(|one| {
        Some(RuleOverride { account_id: one.account_id?, target_override: one.target_override.clone() })
    });
    rule.overrides = stored.collect();
    // Before the texts are measured, which takes the longer the larger they are.
    check_total(size_of(&rule))?;
    check_posts(cx, tx, &rule, &overrides, problems).await?.into_result()?;
    Ok(rule)
}

fn to_variations(requests: Vec<VariationRequest>) -> Vec<Variation> {
    requests.into_iter().map(Into::into).collect()
}

/// Returns the overrides after a change. If it omits them, those of other accounts are omitted.
fn overrides_after(rule: &RecurringPost, change: &RecurringPostChange) -> Vec<PostOverride> {
    let stored = || {
        let accounts = change.accounts.clone().apply_to(rule.accounts.clone(), Vec::new());
        let kept = rule.overrides.iter().filter(|one| accounts.contains(&one.account_id));
        let as_change = |one: &RuleOverride| PostOverride {
            account_id: Some(one.account_id),
            target_override: one.target_override.clone(),
        };
        kept.map(as_change).collect()
    };
    match &change.overrides {
        PatchField::Omitted => stored(),
        PatchField::Null => Vec::new(),
        PatchField::Value(list) => to_overrides(list.clone()),
    }
}

/// Sets the fields that depend on the frequency. Those of other frequencies are cleared.
fn set_times(
    rule: &mut RecurringPost,
    weekdays: PatchField<Vec<i64>>,
    day: PatchField<i64>,
    cron: PatchField<String>,
    time: PatchField<String>,
    problems: &Problems,
) {
    let check = |field: &str, frequency: Frequency, is_sent: bool| {
        if is_sent && rule.frequency != frequency {
            problems.add(field, format!("Must be omitted unless `frequency` is `{frequency}`."));
        }
    };
    check("weekdays", Frequency::Weekly, matches!(&weekdays, PatchField::Value(days) if !days.is_empty()));
    check("day", Frequency::Monthly, matches!(day, PatchField::Value(_)));
    check("cron", Frequency::Cron, matches!(&cron, PatchField::Value(text) if !text.is_empty()));
    let is = |frequency: Frequency| rule.frequency == frequency;
    let (is_weekly, is_monthly, is_cron) = (is(Frequency::Weekly), is(Frequency::Monthly), is(Frequency::Cron));
    let current = std::mem::take(&mut rule.weekdays);
    rule.weekdays = weekdays.apply_to(current, Vec::new());
    if !is_weekly {
        rule.weekdays.clear();
    } else if rule.weekdays.is_empty() {
        rule.weekdays = RecurringPost::default_weekdays(rule.starts_on);
    }
    let day = day.map(Some).apply_to(rule.day, None).unwrap_or_else(|| i64::from(rule.starts_on.day()));
    rule.day = is_monthly.then_some(day);
    let cron = cron.map(Some).apply_to(rule.cron.take(), None).filter(|text| !text.is_empty());
    if is_cron && cron.is_none() {
        problems.add("cron", "This field is required.");
    }
    rule.cron = cron.filter(|_| is_cron);
    let time = time.map(Some).apply_to(rule.time.take(), None);
    rule.time = (!is_cron).then(|| time.unwrap_or_else(|| DEFAULT_TIME.to_owned()));
}

fn check_times(cx: &Context, rule: &RecurringPost, now: DateTime<Utc>, problems: &Problems) {
    if let Some(ends_on) = rule.ends_on
        && ends_on < rule.starts_on
    {
        problems.add("ends_on", format!("Must be the start date, {}, or later.", rule.starts_on));
    }
    if problems.has("cron") {
        return;
    }
    let recurrence = match rule.recurrence(zone(Some(cx.zone()))) {
        Ok(recurrence) => recurrence,
        Err(message) => return problems.add("cron", message),
    };
    if recurrence.next_after(now).is_none() {
        problems.add("cron", NO_DATE);
    } else if is_too_frequent(&recurrence, &rule.days(), now) {
        problems.add("cron", format!("Must match at most {MAX_OCCURRENCES} times in 30 days. Choose fewer times."));
    }
}

/// Checks each variation by the rules of a post with the next time of the rule. Returns `problems` with those that it
/// found.
async fn check_posts(
    cx: &Context,
    tx: &mut Tx,
    rule: &RecurringPost,
    overrides: &[PostOverride],
    problems: Problems,
) -> Result<Problems> {
    if rule.variations.is_empty() {
        problems.add("variations", "Add at least one text.");
        return Ok(problems);
    }
    let post_cx = cx.post_context(tx.now)?;
    let draft = post_cx.empty_draft();
    // A rule that has ended can still be changed.
    let next = rule.next_times(zone(Some(cx.zone())), tx.now).first().copied();
    let next = next.unwrap_or(tx.now + TimeDelta::days(1));
    let is_scheduled = rule.destination == Destination::Calendar;
    // All variations have the same overrides, which may be much longer than their own texts.
    let mut measures = TextLengthCache::default();
    for (i, variation) in rule.variations.iter().enumerate() {
        let change = PostChange {
            content: PatchField::Value(variation.content.clone()),
            media: PatchField::Value(variation.media.clone()),
            schedule_type: PatchField::Value(if is_scheduled { ScheduleType::Scheduled } else { ScheduleType::Draft }),
            scheduled_at: PatchField::Value(next),
            accounts: PatchField::Value(rule.accounts.clone()),
            overrides: PatchField::Value(overrides.to_vec()),
            labels: PatchField::Value(rule.labels.clone()),
            ..PostChange::default()
        };
        let mut desired = DesiredPost {
            submits: rule.destination == Destination::Approval,
            ..DesiredPost::from_change(&draft, &[], &change)
        };
        let lookup = LookupContext::load_and_lock(&post_cx, tx, &mut desired, &change).await?;
        let found = Problems::default();
        check::check_with(&draft, &desired, &change, &lookup, &found, &mut measures);
        measures.forget_shared();
        for (path, messages) in found.into_set().into_fields() {
            let root = path.split('.').next().unwrap_or_default().to_owned();
            let field = match root.as_str() {
                "content" | "media" => format!("variations.{i}.{path}"),
                "scheduled_at" => "starts_on".to_owned(),
                // The same for every variation.
                _ if i > 0 && problems.has(&path) => continue,
                _ => path,
            };
            if field == "starts_on" && problems.has(&field) {
                continue;
            }
            messages.into_iter().for_each(|message| problems.add(field.clone(), message));
        }
    }
    Ok(problems)
}

/// Locks the brand's row. Fails with 422 if the texts of the brand's rules would be too large. Returns the number of its
/// other rules.
pub async fn check_size(cx: &Context, tx: &mut Tx, rule: &RecurringPost) -> Result<i64> {
    let brand = cx.brand()?.id;
    brands::lock(tx, brand).await?;
    let (count, bytes) = recurring_posts::size(tx, brand, rule.id).await?;
    check_total(usize::try_from(bytes).unwrap_or_default().saturating_add(size_of(rule)))?;
    Ok(count)
}

/// Returns the size of a rule's texts, in bytes.
fn size_of(rule: &RecurringPost) -> usize {
    serde_json::to_string(&(&rule.variations, &rule.overrides)).map_or(MAX_RULES_TEXT, |text| text.len())
}

/// Checks the size of the texts of a brand's rules, in bytes.
fn check_total(total: usize) -> Result<()> {
    if total > MAX_RULES_TEXT {
        let message = format!(
            "The texts of a brand's recurring posts can have at most {MAX_RULES_TEXT} bytes in total; these would have \
             {total}. Delete some first."
        );
        return Err(ApiError::field("variations", message));
    }
    Ok(())
}
