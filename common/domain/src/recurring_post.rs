//! Recurring posts: a rule, and the posts that Crier makes of it.
//!
//! An *occurrence* is a row of its own. It is planned when its time comes within [`HORIZON_DAYS`], and then made: its
//! post is created. [`OccurrencePlan::new`] compares the occurrences that are stored with the times of the rule. It
//! depends on nothing else, so it may be repeated at any time, and after any change of the rule, of its posts or of the
//! time zone.
//!
//! The *slot* identifies an occurrence: its local day or, for a cron expression, its local day and time. So an occurrence
//! stays the same if the time of day or the time zone changes: its post moves, and a deleted one is not made again.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Datelike, NaiveDate, TimeDelta, Utc};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};

use super::content_plan::Destination;
use super::post::{PostStatus, TargetOverride};
use super::recurrence::{DayRange, Frequency, MAX_TIMES, Recurrence, RecurrenceFields};

/// Occurrences are made this many days ahead.
pub const HORIZON_DAYS: i64 = 30;
/// Maximum number of rules of a brand. The list is not paginated; this and [`MAX_RULES_TEXT`] limit it.
pub const MAX_RULES: usize = 50;
/// Maximum size of the variations and overrides of a brand's rules, in bytes.
pub const MAX_RULES_TEXT: usize = 1 << 20;
/// Maximum length of a name, in characters.
pub const MAX_NAME: usize = 120;
pub const MAX_VARIATIONS: usize = 20;
/// Maximum number of occurrences of a rule in [`HORIZON_DAYS`].
pub const MAX_OCCURRENCES: usize = 200;
// The list of times must not hide that there are too many.
const _: () = assert!(MAX_TIMES > MAX_OCCURRENCES);

/// Maximum value of `count`.
pub const MAX_COUNT: i64 = 10_000;
/// The number of next times that are shown.
pub const SHOWN_TIMES: usize = 5;

/// A rule that could not make an occurrence is retried after this time.
pub const RETRY_PAUSE: TimeDelta = TimeDelta::hours(6);
/// A rule with several occurrences per day makes them in one run per day.
const MIN_PAUSE: TimeDelta = TimeDelta::hours(20);
/// The maximum time until a rule is checked again, which limits the effect of a wrong clock.
pub const MAX_PAUSE: TimeDelta = TimeDelta::days(7);
/// Longer than a change of the time zone and of the time of day moves an occurrence: from 00:00 at UTC+14 to 23:59 at
/// UTC-11 of the same day are 49 hours.
const MAX_MOVE: TimeDelta = TimeDelta::days(3);
/// How much the clock of a process may be ahead before the posts that it made too early are deleted.
const MAX_SKEW: TimeDelta = TimeDelta::days(1);

/// One of the texts that a rule uses in turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variation {
    pub content: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<i64>,
}

/// The override for one account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RuleOverride {
    pub account_id: i64,
    #[serde(flatten)]
    pub target_override: TargetOverride,
}

/// A rule.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct RecurringPost {
    pub id: i64,
    pub brand_id: i64,
    /// The user who created or last changed the rule. `None` if the user was deleted.
    pub author_id: Option<i64>,
    pub name: String,
    pub frequency: Frequency,
    /// From 1 (Monday) to 7. Empty unless `weekly`.
    #[cfg_attr(feature = "sqlx", sqlx(json))]
    pub weekdays: Vec<i64>,
    /// From 1 to 31. `None` unless `monthly`.
    pub day: Option<i64>,
    pub cron: Option<String>,
    /// `HH:MM`; `None` for `cron`.
    pub time: Option<String>,
    pub starts_on: NaiveDate,
    pub ends_on: Option<NaiveDate>,
    /// The maximum number of occurrences.
    pub count: Option<i64>,
    pub destination: Destination,
    pub is_active: bool,
    #[cfg_attr(feature = "sqlx", sqlx(json))]
    pub accounts: Vec<i64>,
    #[cfg_attr(feature = "sqlx", sqlx(json))]
    pub labels: Vec<String>,
    /// The number of occurrences that were planned, except those that a change of the rule removed.
    pub planned: i64,
    /// Changes with the rule and with the time zone of the brand.
    pub version: i64,
    /// The version for which the occurrences were last planned.
    pub planned_version: i64,
    /// Why the last run could not make an occurrence.
    pub problem: Option<String>,
    /// The rule is deleted when its occurrences are.
    pub deleted_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    #[cfg_attr(feature = "sqlx", sqlx(json))]
    pub variations: Vec<Variation>,
    #[cfg_attr(feature = "sqlx", sqlx(json))]
    pub overrides: Vec<RuleOverride>,
}

impl RecurringPost {
    /// Returns the times of the rule. The error is a message for the user about the cron expression.
    pub fn recurrence(&self, zone: Tz) -> Result<Recurrence, String> {
        let fields = RecurrenceFields {
            frequency: self.frequency,
            weekdays: &self.weekdays,
            day: self.day,
            cron: self.cron.as_deref(),
            time: self.time.as_deref(),
        };
        Recurrence::new(&fields, zone)
    }

    pub fn days(&self) -> DayRange {
        DayRange { first: self.starts_on, last: self.ends_on }
    }

    /// Returns whether the rule has occurrences in the future, unless its times end.
    pub fn is_running(&self) -> bool {
        self.is_active && self.deleted_at.is_none()
    }

    /// Returns the variation of an occurrence. `number` starts at 0.
    pub fn variation(&self, number: i64) -> Option<&Variation> {
        let count = i64::try_from(self.variations.len()).unwrap_or(i64::MAX).max(1);
        usize::try_from(number.rem_euclid(count)).ok().and_then(|n| self.variations.get(n))
    }

    /// Returns whether the rule's posts use the image or the video.
    pub fn has_media(&self, media_id: i64) -> bool {
        let of_variations = self.variations.iter().flat_map(|one| &one.media).copied();
        let of_overrides = self.overrides.iter().flat_map(|one| one.target_override.all_media());
        of_variations.chain(of_overrides).any(|id| id == media_id)
    }

    /// Returns the occurrences after a time and until another one, in order.
    pub fn occurrences(&self, zone: Tz, after: DateTime<Utc>, until: DateTime<Utc>) -> Vec<Occurrence> {
        let Ok(recurrence) = self.recurrence(zone) else { return Vec::new() };
        let mut slots = HashSet::new();
        let all = recurrence.times(after, until, &self.days()).into_iter();
        let all = all.map(|occurs_at| Occurrence { slot: self.slot(&recurrence, occurs_at), occurs_at });
        // A local time that is repeated is used once.
        all.filter(|one| slots.insert(one.slot.clone())).collect()
    }

    /// Returns the next times, at most [`SHOWN_TIMES`].
    pub fn next_times(&self, zone: Tz, after: DateTime<Utc>) -> Vec<DateTime<Utc>> {
        let Ok(recurrence) = self.recurrence(zone) else { return Vec::new() };
        recurrence.next_times(after, &self.days(), SHOWN_TIMES)
    }

    /// Returns the places of the next times among the occurrences of the rule, which determine their variations
    /// ([`Self::variation`]), as the next run plans them. `stored` has the rule's occurrences after
    /// [`OccurrencePlan::since`].
    pub fn numbers(
        &self,
        zone: Tz,
        stored: &[StoredOccurrence],
        now: DateTime<Utc>,
        times: &[DateTime<Utc>],
    ) -> Vec<i64> {
        let plan = OccurrencePlan::new(self, zone, stored, now);
        let mut numbers: HashMap<DateTime<Utc>, i64> = stored.iter().map(|one| (one.occurs_at, one.number)).collect();
        numbers.extend(plan.moved.iter().map(|one| (one.occurrence.occurs_at, one.number)));
        numbers.extend(plan.add.iter().map(|(one, number)| (one.occurs_at, *number)));
        // Times beyond the horizon follow those that are planned.
        let mut following = plan.planned..;
        times.iter().filter_map(|at| numbers.get(at).copied().or_else(|| following.next())).collect()
    }

    fn slot(&self, recurrence: &Recurrence, at: DateTime<Utc>) -> String {
        let format = if self.frequency == Frequency::Cron { "%Y-%m-%dT%H:%M" } else { "%Y-%m-%d" };
        recurrence.local(at).format(format).to_string()
    }

    /// Returns the default of `weekdays`: the weekday of the first day.
    pub fn default_weekdays(starts_on: NaiveDate) -> Vec<i64> {
        vec![i64::from(starts_on.weekday().number_from_monday())]
    }

    /// Returns when the rule is due again: when its next occurrence comes within the horizon. `None` if there is none.
    pub fn next_due(&self, zone: Tz, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        if !self.is_running() || self.count.is_some_and(|count| self.planned >= count) {
            return None;
        }
        let horizon = TimeDelta::days(HORIZON_DAYS);
        let next = self.recurrence(zone).ok()?.next_times(now + horizon, &self.days(), 1).first().copied()?;
        Some((next - horizon).clamp(now + MIN_PAUSE, now + MAX_PAUSE))
    }
}

/// A time of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occurrence {
    pub slot: String,
    pub occurs_at: DateTime<Utc>,
}

/// A stored occurrence, and the state of its post.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct StoredOccurrence {
    pub id: i64,
    pub slot: String,
    pub occurs_at: DateTime<Utc>,
    /// Its place among the occurrences of the rule, starting at 0, which determines its variation.
    pub number: i64,
    /// The version of the rule from which it was made.
    pub version: i64,
    /// Whether it must be removed with its post.
    pub is_removed: bool,
    /// When the rule last wrote its post. `None` if it was never made.
    pub written_at: Option<DateTime<Utc>>,
    /// `None` if there is no post, or if it was deleted.
    pub post_id: Option<i64>,
    pub post_status: Option<PostStatus>,
    pub post_updated_at: Option<DateTime<Utc>>,
}

impl StoredOccurrence {
    pub fn is_made(&self) -> bool {
        self.written_at.is_some()
    }

    /// Returns whether the rule may still change the post: nobody has changed it, and publishing has not begun.
    pub fn is_unchanged(&self) -> bool {
        let has_begun = self.post_status.is_none_or(PostStatus::has_begun);
        self.is_made() && self.post_updated_at == self.written_at && !has_begun
    }

    /// Returns whether the plan may change the occurrence.
    fn is_free(&self, now: DateTime<Utc>) -> bool {
        !self.is_made() || self.occurs_at > now && self.is_unchanged()
    }
}

/// An occurrence that changes its time, its slot or its number, or is no longer removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedMove {
    pub id: i64,
    pub occurrence: Occurrence,
    pub number: i64,
}

/// The changes to the occurrences of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OccurrencePlan {
    pub add: Vec<(Occurrence, i64)>,
    pub moved: Vec<PlannedMove>,
    /// The occurrences to remove with their posts.
    pub remove: Vec<i64>,
    /// The occurrences to delete, which have no post.
    pub delete: Vec<i64>,
    /// The number of planned occurrences afterward ([`RecurringPost::planned`]).
    pub planned: i64,
}

impl OccurrencePlan {
    /// Returns the earliest time of the occurrences that a plan needs.
    pub fn since(now: DateTime<Utc>) -> DateTime<Utc> {
        now - MAX_MOVE
    }

    /// Plans the occurrences after `now`, within the horizon. `stored` has the rule's occurrences after
    /// [`OccurrencePlan::since`].
    pub fn new(rule: &RecurringPost, zone: Tz, stored: &[StoredOccurrence], now: DateTime<Utc>) -> Self {
        let horizon = now + TimeDelta::days(HORIZON_DAYS);
        let mut wanted = if rule.is_running() { rule.occurrences(zone, now, horizon) } else { Vec::new() };
        // A request is checked with the days that follow it. A cron expression can have more times on later ones.
        wanted.truncate(MAX_OCCURRENCES);
        let by_slot: HashMap<&str, &StoredOccurrence> = stored.iter().map(|one| (one.slot.as_str(), one)).collect();
        let is_future = |one: &&StoredOccurrence| one.occurs_at > now && !one.is_removed;
        let past = rule.planned - length(stored.iter().filter(is_future).count());
        let is_new_version = rule.version != rule.planned_version;
        // Those of a process whose clock is ahead stay: their posts would otherwise be deleted, and soon be created again.
        let is_early = |one: &&StoredOccurrence| {
            !is_new_version && one.is_made() && one.occurs_at > horizon && one.occurs_at <= horizon + MAX_SKEW
        };
        // Those that a user changed or deleted stay, even if they are no longer times of the rule. They count first, so
        // that a smaller `count` does not leave room for others.
        let is_fixed = |one: &&StoredOccurrence| !one.is_free(now) || is_early(one);
        let mut fixed = length(stored.iter().filter(is_future).filter(is_fixed).count());
        let mut plan = Self::default();
        let (mut number, mut kept, mut missing) = (past, HashSet::new(), Vec::new());
        for occurrence in wanted {
            let found = by_slot.get(occurrence.slot.as_str()).copied();
            if let Some(one) = found.filter(|one| !one.is_free(now)) {
                // Otherwise, its day has had its occurrence, at an earlier time; or the run that finds that it cannot be
                // removed counts it.
                if is_future(&one) {
                    (fixed, number) = (fixed - 1, number + 1);
                }
                continue;
            }
            if rule.count.is_some_and(|count| number + fixed >= count) {
                continue;
            }
            match found {
                None => missing.push((occurrence, number)),
                Some(one) => {
                    kept.insert(one.id);
                    let number = if is_new_version { number } else { one.number };
                    let is_same = one.occurs_at == occurrence.occurs_at && one.number == number && !one.is_removed;
                    if !is_same {
                        plan.moved.push(PlannedMove { id: one.id, occurrence, number });
                    }
                }
            }
            number += 1;
        }
        plan.planned = number + fixed;
        let is_surplus = |one: &&StoredOccurrence| one.occurs_at > now && !is_fixed(one) && !kept.contains(&one.id);
        plan.replace(stored.iter().filter(is_surplus), missing);
        plan
    }

    /// Gives the posts of occurrences that are no longer times of the rule to the missing ones, because each new post
    /// counts against the plan's limit.
    fn replace<'a>(&mut self, surplus: impl Iterator<Item = &'a StoredOccurrence>, missing: Vec<(Occurrence, i64)>) {
        let mut missing = missing.into_iter();
        // The ones with posts come first: otherwise, posts would be deleted while others are still to be created.
        let (made, planned): (Vec<_>, Vec<_>) = surplus.partition(|one| one.is_made());
        for one in made.into_iter().chain(planned) {
            match missing.next() {
                Some((occurrence, number)) => self.moved.push(PlannedMove { id: one.id, occurrence, number }),
                None if one.is_made() => self.remove.push(one.id),
                None => self.delete.push(one.id),
            }
        }
        self.add.extend(missing);
    }
}

fn length(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Returns whether a rule has more occurrences than [`MAX_OCCURRENCES`] in the days that are made ahead.
pub fn is_too_frequent(recurrence: &Recurrence, days: &DayRange, now: DateTime<Utc>) -> bool {
    let first = recurrence.next_times(now, days, 1).first().copied().unwrap_or(now);
    let times = recurrence.times(now, first + TimeDelta::days(HORIZON_DAYS), days);
    times.len() > MAX_OCCURRENCES
}

#[cfg(test)]
mod tests;
