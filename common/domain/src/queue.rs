//! The queue of a brand: the slots of its week, and the times that its queued posts take.
//!
//! A slot is a local time on a day of the week. Its occurrence is the time of that slot on one date. A local time that
//! daylight saving skips occurs at the next time that exists, and one that it repeats occurs once, the first time.
//!
//! These functions choose times. `crier_posts::queue` calls them under the lock of the brand's queue.

use std::collections::{BTreeMap, HashMap, HashSet};

use chrono::{DateTime, Datelike, NaiveDate, NaiveTime, TimeDelta, Utc};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};

use super::local_time::in_zone;

/// The maximum number of slots of a brand.
pub const MAX_SLOTS: usize = 200;
/// The maximum number of accounts that a slot lists.
pub const MAX_SLOT_ACCOUNTS: usize = 100;
/// The maximum number of posts in a queue. A change of the slots moves all of them in one transaction.
pub const MAX_QUEUED_POSTS: usize = 1_000;
/// The maximum number of accounts of these posts in total.
pub const MAX_QUEUE_PLACES: usize = 5_000;
/// The minimum time before a slot at which a post can take it, and at which a queued post can still move.
pub const LEAD: TimeDelta = TimeDelta::minutes(1);
/// The maximum time ahead of a slot.
pub const HORIZON: TimeDelta = TimeDelta::days(366);

/// A slot of the week.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// From 1 (Monday) to 7 (Sunday).
    pub weekday: u32,
    pub time: NaiveTime,
    /// The accounts that can use the slot. Empty for every account.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub account_ids: Vec<i64>,
}

/// A time at which slots occur: one, or several that differ in their accounts or are skipped to the same time.
#[derive(Clone, Debug)]
pub struct Occurrence {
    pub at: DateTime<Utc>,
    /// The accounts that can use it. `None`: every account.
    accounts: Option<HashSet<i64>>,
}

impl Occurrence {
    /// Returns whether all of these accounts can use it.
    pub fn is_for(&self, account_ids: &[i64]) -> bool {
        self.accounts.as_ref().is_none_or(|accounts| account_ids.iter().all(|id| accounts.contains(id)))
    }
}

/// Returns the occurrences of slots in a range, both ends included, in order. They are computed day by day, as the
/// caller takes them.
pub fn occurrences(
    slots: &[Slot],
    zone: Tz,
    from: DateTime<Utc>,
    until: DateTime<Utc>,
) -> impl Iterator<Item = Occurrence> {
    let first = from.with_timezone(&zone).date_naive();
    // A zone may skip the end of a day, so a slot of the day before can occur on the first day.
    let first = first.pred_opt().unwrap_or(first);
    let days = usize::try_from((until - from).num_days()).map_or(0, |days| days.saturating_add(4));
    let days = if slots.is_empty() { 0 } else { days };
    let all = first.iter_days().take(days).flat_map(move |date| of_day(slots, zone, date));
    all.skip_while(move |occurrence| occurrence.at < from).take_while(move |occurrence| occurrence.at <= until)
}

fn of_day(slots: &[Slot], zone: Tz, date: NaiveDate) -> Vec<Occurrence> {
    let weekday = date.weekday().number_from_monday();
    let mut times: BTreeMap<DateTime<Utc>, Option<HashSet<i64>>> = BTreeMap::new();
    for slot in slots.iter().filter(|slot| slot.weekday == weekday) {
        let Some(at) = in_zone(date.and_time(slot.time), zone) else { continue };
        let accounts = times.entry(at).or_insert_with(|| Some(HashSet::new()));
        if slot.account_ids.is_empty() {
            *accounts = None;
        } else if let Some(accounts) = accounts {
            accounts.extend(&slot.account_ids);
        }
    }
    times.into_iter().map(|(at, accounts)| Occurrence { at, accounts }).collect()
}

/// The times that queued posts have taken, by account.
#[derive(Clone, Debug, Default)]
pub struct TakenPlaces(HashSet<(i64, DateTime<Utc>)>);

impl FromIterator<(i64, DateTime<Utc>)> for TakenPlaces {
    fn from_iter<I: IntoIterator<Item = (i64, DateTime<Utc>)>>(places: I) -> Self {
        Self(places.into_iter().collect())
    }
}

impl TakenPlaces {
    fn is_free(&self, at: DateTime<Utc>, account_ids: &[i64]) -> bool {
        account_ids.iter().all(|id| !self.0.contains(&(*id, at)))
    }

    /// Returns the times that at least one of these accounts has taken.
    fn times_on(&self, account_ids: &HashSet<i64>) -> HashSet<DateTime<Utc>> {
        self.0.iter().filter(|(id, _)| account_ids.contains(id)).map(|(_, at)| *at).collect()
    }

    /// Returns the times in these places.
    pub fn times(&self) -> HashSet<DateTime<Utc>> {
        self.0.iter().map(|(_, at)| *at).collect()
    }
}

/// The slots of a brand, and when they occur.
#[derive(Clone, Copy, Debug)]
pub struct Timetable<'a> {
    pub slots: &'a [Slot],
    pub zone: Tz,
    /// The first time that can be taken.
    pub from: DateTime<Utc>,
    /// The last time that can be taken.
    pub until: DateTime<Utc>,
}

impl<'a> Timetable<'a> {
    pub fn new(slots: &'a [Slot], zone: Tz, now: DateTime<Utc>) -> Self {
        let from = now + LEAD;
        Self { slots, zone, from, until: from + HORIZON }
    }

    /// Extends the range, for posts that already have a slot. So a full queue still has room when its slots move by some
    /// hours.
    #[must_use]
    pub fn for_queued_posts(self) -> Self {
        Self { until: self.until + HORIZON, ..self }
    }

    /// Returns whether a time is that of a slot which is free for all of these accounts.
    pub fn has_free(&self, at: DateTime<Utc>, account_ids: &[i64], taken: &TakenPlaces) -> bool {
        let found = occurrences(self.slots, self.zone, at, at).next();
        at >= self.from && found.is_some_and(|found| found.is_for(account_ids)) && taken.is_free(at, account_ids)
    }

    /// Returns the future times that are free for all of these accounts, in order.
    pub fn free(&self, account_ids: &[i64], taken: &TakenPlaces) -> impl Iterator<Item = DateTime<Utc>> {
        let accounts: HashSet<i64> = account_ids.iter().copied().collect();
        // A year can have 10,000 occurrences: each is looked up once, and not once per account.
        let taken = taken.times_on(&accounts);
        let accounts: Vec<i64> = accounts.into_iter().collect();
        let all = occurrences(self.slots, self.zone, self.from, self.until);
        all.filter(move |found| !taken.contains(&found.at) && found.is_for(&accounts)).map(|found| found.at)
    }

    /// Gives each post a time, in the order of the posts: the first one that is free for all of its accounts, and that is
    /// after the times of the earlier posts on these accounts. So the order on each account is that of the posts, and
    /// posts without a common account do not wait for each other.
    ///
    /// `taken` are the places of other posts. Returns `None` for a post that finds no time; posts after it on its accounts
    /// find none either.
    pub fn place(&self, posts: &[QueuedPost], taken: &TakenPlaces) -> Vec<Option<DateTime<Utc>>> {
        // Computed once for all posts, because a post without a slot searches all of them.
        let all: Vec<Occurrence> = occurrences(self.slots, self.zone, self.from, self.until).collect();
        let mut last: HashMap<i64, DateTime<Utc>> = HashMap::new();
        let place = |post: &QueuedPost| {
            let accounts = &post.account_ids;
            let after = accounts.iter().filter_map(|id| last.get(id)).max().copied();
            let first = after.map_or(0, |after| all.partition_point(|found| found.at <= after));
            let mut later = all.iter().skip(first);
            let at = later.find(|found| found.is_for(accounts) && taken.is_free(found.at, accounts));
            let at = at.map(|found| found.at);
            for id in accounts {
                last.insert(*id, at.unwrap_or(self.until));
            }
            at
        };
        posts.iter().map(place).collect()
    }
}

/// A queued post that can move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedPost {
    pub id: i64,
    pub at: DateTime<Utc>,
    pub account_ids: Vec<i64>,
}

/// Sorts posts in the order of the queue.
pub fn sort(posts: &mut [QueuedPost]) {
    posts.sort_by_key(|post| (post.at, post.id));
}

/// Moves a post before another one, or to the end. Returns `false` if one of them is not in the list.
pub fn reorder(posts: &mut Vec<QueuedPost>, post_id: i64, before: Option<i64>) -> bool {
    let position = |posts: &[QueuedPost], id: i64| posts.iter().position(|post| post.id == id);
    let Some(from) = position(posts, post_id) else { return false };
    let moved = posts.remove(from);
    let to = match before {
        Some(id) => position(posts, id),
        None => Some(posts.len()),
    };
    // A post that is not moved returns to its place.
    posts.insert(to.unwrap_or(from), moved);
    to.is_some()
}

#[cfg(test)]
mod tests;
