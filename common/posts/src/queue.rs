//! Gives queued posts their times.
//!
//! A post takes the next free slot when it enters the queue, and is then a scheduled post like any other: it has a time,
//! and its jobs are due at that time. What makes it a queued post are its places, which keep others from its slot, and
//! the mark `queued`, by which it moves when the slots change.
//!
//! Every choice of a time is made under the lock of the brand's queue. Posts are locked before the queue, as by every
//! change of a post that enters it.

use std::collections::{BTreeMap, HashMap, HashSet};

use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;
use crier_base::problems::Problems;
use crier_domain::analytics::zone;
use crier_domain::job::JobKind;
use crier_domain::post::{Post, PostStatus};
use crier_domain::queue::{self, LEAD, MAX_QUEUE_PLACES, MAX_QUEUED_POSTS, QueuedPost, Slot, TakenPlaces, Timetable};
use crier_store::queues::{self, Place};
use crier_store::{Conn, Tx, brands, jobs};

use crate::{PostError, Result};

/// The time for which the places of posts that have begun are kept. A process whose clock is ahead by less does not free
/// a slot that is still to come for the others.
const KEEP_PLACES: TimeDelta = TimeDelta::days(1);

/// A change that moves queued posts.
#[derive(Clone, Copy, Debug)]
pub enum QueueChange<'a> {
    Slots {
        slots: &'a [Slot],
        /// The time of the last change of the slots that the user saw. `None`: any.
        seen: Option<DateTime<Utc>>,
    },
    /// The time zone of the brand, which the transaction has stored.
    TimeZone,
    /// Moves a post before another one, or to the end.
    Move { post_id: i64, before: Option<i64> },
}

impl QueueChange<'_> {
    /// Returns the field of the request that causes the change.
    const fn field(&self) -> &'static str {
        match self {
            Self::Slots { .. } => "slots",
            Self::TimeZone => "timezone",
            Self::Move { .. } => "post_id",
        }
    }
}

/// A brand's queue whose row is locked.
struct LockedQueue {
    slots: Vec<Slot>,
    updated_at: Option<DateTime<Utc>>,
    zone: Tz,
    places: Vec<Place>,
}

impl LockedQueue {
    async fn lock(tx: &mut Tx, brand_id: i64) -> Result<Self> {
        let (slots, updated_at) = queues::lock(tx, brand_id).await?;
        // The zone is read after the lock, by a statement of its own, which sees the last change under the lock.
        let zone = zone_of(tx, brand_id).await?;
        Ok(Self { slots, updated_at, zone, places: queues::places(tx, brand_id).await? })
    }

    /// Fails if the slots are no longer those that the user saw. For a brand that never had slots, `seen` is the epoch.
    fn check_seen(&self, seen: Option<DateTime<Utc>>) -> Result<()> {
        if seen.is_none_or(|seen| seen == self.updated_at.unwrap_or_default()) {
            return Ok(());
        }
        let message = "The slots were changed in the meantime. Check them again before you continue.";
        Err(PostError::NotEditable(message.into()))
    }

    /// Returns whether a post has places on these accounts, and on no others.
    fn has_places(&self, post_id: i64, account_ids: &[i64]) -> bool {
        let own = self.places.iter().filter(|place| place.post_id == post_id).map(|place| place.account_id);
        own.collect::<HashSet<i64>>() == account_ids.iter().copied().collect()
    }

    /// Returns the places of posts other than these.
    fn taken_by_others(&self, post_ids: &HashSet<i64>) -> TakenPlaces {
        let others = self.places.iter().filter(|place| !post_ids.contains(&place.post_id));
        others.map(|place| (place.account_id, place.at)).collect()
    }

    /// Fails if the queue has no room for a post on this many accounts.
    fn check_room(&self, now: DateTime<Utc>, post_id: i64, accounts: usize) -> Result<()> {
        let others = || self.places.iter().filter(|place| place.at > now && place.post_id != post_id);
        let posts: HashSet<i64> = others().map(|place| place.post_id).collect();
        if posts.len() >= MAX_QUEUED_POSTS {
            return Err(rejected(
                "schedule_type",
                format!(
                    "The queue has {MAX_QUEUED_POSTS} posts, which is the maximum. Choose a time for this post, or \
                     remove other posts from the queue."
                ),
            ));
        }
        if others().count().saturating_add(accounts) > MAX_QUEUE_PLACES {
            return Err(rejected(
                "schedule_type",
                format!(
                    "The posts in the queue can have at most {MAX_QUEUE_PLACES} accounts in total. Choose a time for \
                     this post, or remove other posts from the queue."
                ),
            ));
        }
        Ok(())
    }
}

async fn zone_of(conn: &mut Conn, brand_id: i64) -> Result<Tz> {
    let brand = brands::find(conn, brand_id).await?;
    Ok(zone(brand.as_ref().map(|brand| brand.timezone.as_str())))
}

/// Returns an error that rejects a field.
fn rejected(field: &str, message: impl Into<String>) -> PostError {
    let problems = Problems::default();
    problems.add(field, message);
    problems.into_set().into()
}

/// Returns the time of the next slot that is free for all of these accounts. A post that is in the queue keeps its time
/// if that is free for them. The queue is locked until the end of the transaction, which stores the post with this time
/// and takes its places ([`take_places`]).
pub(crate) async fn find_time(tx: &mut Tx, post: &Post, account_ids: &[i64]) -> Result<DateTime<Utc>> {
    let now = tx.now;
    let queue = LockedQueue::lock(tx, post.brand_id).await?;
    if queue.places.first().is_some_and(|place| place.at < now - KEEP_PLACES) {
        queues::purge_places(tx, post.brand_id, now - KEEP_PLACES).await?;
    }
    let is_waiting = post.queued && post.status == PostStatus::Scheduled;
    if let Some(at) = post.scheduled_at.filter(|_| is_waiting && queue.has_places(post.id, account_ids)) {
        return Ok(at);
    }
    queue.check_room(now, post.id, account_ids.len())?;
    let taken = queue.taken_by_others(&HashSet::from([post.id]));
    let table = Timetable::new(&queue.slots, queue.zone, now);
    let own = post.scheduled_at.filter(|at| is_waiting && table.has_free(*at, account_ids, &taken));
    own.or_else(|| table.free(account_ids, &taken).next()).ok_or_else(|| {
        let message = if queue.slots.is_empty() {
            "The queue has no slots. Add slots to the queue, or choose a time."
        } else {
            "The queue has no free slot for these accounts within a year. Add slots to the queue, or choose a time."
        };
        rejected("schedule_type", message)
    })
}

/// Takes the places of a post at the time that [`find_time`] found.
pub(crate) async fn take_places(tx: &mut Tx, post: &Post, account_ids: &[i64]) -> Result<()> {
    let Some(at) = post.scheduled_at else {
        return Err(PostError::Bug("a queued post has no time".to_owned()));
    };
    let place = |account_id: &i64| Place { account_id: *account_id, at, post_id: post.id };
    let places: Vec<Place> = account_ids.iter().map(place).collect();
    Ok(queues::take(tx, post.brand_id, &places).await?)
}

/// Changes the queue, and places the posts that have not begun anew, in their order. Posts with a time of their own,
/// posts whose time is less than [`LEAD`] away, and posts that a worker is processing stay. Fails if a post would have no
/// slot.
pub async fn change(tx: &mut Tx, brand_id: i64, change: QueueChange<'_>) -> Result<()> {
    let now = tx.now;
    let known: Vec<i64> = coming_posts(&queues::places(tx, brand_id).await?, now);
    let mut waiting = queues::lock_posts(tx, brand_id, &known).await?;
    let mut queue = LockedQueue::lock(tx, brand_id).await?;
    // Posts that entered the queue before its lock. On Postgres, this may be a deadlock with a change of such a post; the
    // transaction is then repeated.
    let known = HashSet::<i64>::from_iter(known);
    let entered: Vec<i64> = coming_posts(&queue.places, now).into_iter().filter(|id| !known.contains(id)).collect();
    if !entered.is_empty() {
        waiting.extend(queues::lock_posts(tx, brand_id, &entered).await?);
    }
    let targets = queues::targets(tx, &waiting).await?;
    let mut posts = movable_posts(tx, &queue, &waiting, &targets).await?;
    match change {
        QueueChange::Slots { slots, seen } => {
            queue.check_seen(seen)?;
            queues::set_slots(tx, brand_id, slots).await?;
            queue.slots = slots.to_vec();
        }
        QueueChange::TimeZone => {}
        QueueChange::Move { post_id, before } => reorder(&mut posts, post_id, before)?,
    }
    let taken = queue.taken_by_others(&posts.iter().map(|post| post.id).collect());
    let table = Timetable::new(&queue.slots, queue.zone, now).for_queued_posts();
    let times = table.place(&posts, &taken);
    let homeless = times.iter().filter(|at| at.is_none()).count();
    if homeless > 0 {
        let posts = if homeless == 1 { "1 queued post".to_owned() } else { format!("{homeless} queued posts") };
        let message = format!(
            "{posts} would have no slot. Add slots for the accounts of these posts, or choose a time for them first."
        );
        return Err(rejected(change.field(), message));
    }
    let moved: Vec<(QueuedPost, DateTime<Utc>)> = posts
        .into_iter()
        .zip(times)
        .filter_map(|(post, at)| Some((post, at?)))
        .filter(|(post, at)| post.at != *at)
        .collect();
    store_moved(tx, brand_id, &moved, &targets).await
}

/// Returns the ids of the posts whose time is still to come.
fn coming_posts(places: &[Place], now: DateTime<Utc>) -> Vec<i64> {
    let mut ids: Vec<i64> = places.iter().filter(|place| place.at > now).map(|place| place.post_id).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Returns the posts that can still move, in the order of the queue. `targets`: the posts, each with one of its targets.
async fn movable_posts(
    tx: &mut Tx,
    queue: &LockedQueue,
    waiting: &[i64],
    targets: &[(i64, i64)],
) -> Result<Vec<QueuedPost>> {
    let target_ids: Vec<i64> = targets.iter().map(|(_, target)| *target).collect();
    let running = HashSet::<i64>::from_iter(jobs::running_among(tx, JobKind::PublishTarget, &target_ids).await?);
    let started: HashSet<i64> =
        targets.iter().filter(|(_, target)| running.contains(target)).map(|(post, _)| *post).collect();
    let waiting = HashSet::<i64>::from_iter(waiting.iter().copied());
    let earliest = tx.now + LEAD;
    let mut posts: BTreeMap<i64, QueuedPost> = BTreeMap::new();
    for place in queue.places.iter().filter(|place| place.at >= earliest) {
        if waiting.contains(&place.post_id) && !started.contains(&place.post_id) {
            let new = || QueuedPost { id: place.post_id, at: place.at, account_ids: Vec::new() };
            posts.entry(place.post_id).or_insert_with(new).account_ids.push(place.account_id);
        }
    }
    let mut posts: Vec<QueuedPost> = posts.into_values().collect();
    queue::sort(&mut posts);
    Ok(posts)
}

fn reorder(posts: &mut Vec<QueuedPost>, post_id: i64, before: Option<i64>) -> Result<()> {
    let check = |field: &str, id: i64| {
        let message =
            format!("Post {id} is not waiting in the queue. Choose a queued post that is not being published.");
        if posts.iter().any(|post| post.id == id) { Ok(()) } else { Err(rejected(field, message)) }
    };
    check("post_id", post_id)?;
    if let Some(id) = before {
        check("before", id)?;
        if id == post_id {
            return Err(rejected("before", "Must not be the post that moves."));
        }
    }
    queue::reorder(posts, post_id, before);
    Ok(())
}

/// Stores the new times of posts, their places and their jobs.
async fn store_moved(
    tx: &mut Tx,
    brand_id: i64,
    moved: &[(QueuedPost, DateTime<Utc>)],
    targets: &[(i64, i64)],
) -> Result<()> {
    let times: Vec<(i64, DateTime<Utc>)> = moved.iter().map(|(post, at)| (post.id, *at)).collect();
    let place = |(post, at): &(QueuedPost, DateTime<Utc>)| {
        let (post_id, at) = (post.id, *at);
        post.account_ids.iter().map(move |id| Place { account_id: *id, at, post_id }).collect::<Vec<_>>()
    };
    let places: Vec<Place> = moved.iter().flat_map(place).collect();
    queues::move_posts(tx, brand_id, &times, &places).await?;
    let by_post: HashMap<i64, DateTime<Utc>> = times.into_iter().collect();
    let jobs: Vec<(i64, DateTime<Utc>)> =
        targets.iter().filter_map(|(post, target)| Some((*target, *by_post.get(post)?))).collect();
    Ok(jobs::reschedule_each(tx, JobKind::PublishTarget, &jobs).await?)
}

/// Returns the slots to come that are free for all of these accounts, at most `count`. Without accounts, those that no
/// post has taken.
pub async fn free_times(
    conn: &mut Conn,
    brand_id: i64,
    account_ids: &[i64],
    count: usize,
    now: DateTime<Utc>,
) -> Result<Vec<DateTime<Utc>>> {
    let (slots, _) = queues::find(conn, brand_id).await?;
    let zone = zone_of(conn, brand_id).await?;
    let taken: TakenPlaces =
        queues::places(conn, brand_id).await?.iter().map(|place| (place.account_id, place.at)).collect();
    let times = taken.times();
    let free = Timetable::new(&slots, zone, now);
    let free = free.free(account_ids, &taken).filter(|at| !account_ids.is_empty() || !times.contains(at));
    Ok(free.take(count).collect())
}
