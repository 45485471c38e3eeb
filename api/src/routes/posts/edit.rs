//! What a request makes of a post: decided here, without a database, and then carried out by [`super::apply`].
//!
//! A create is an edit of an empty draft, a submit one that changes nothing but the status: there is one set of rules.
//! [`PostChange`] is what the body says, [`Wanted`] the post as it would be, and [`decide`] whether the post's state allows
//! it, and what there is to do.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use crier_common::domain::post::{Post, PostStatus, ScheduleType, Target, TargetStatus, Wish};
use serde_json::{Map, Value};

use crate::fields::{Fields, Given, steps};
use crate::openapi::schema::request;

pub const LONGEST_CONTENT: usize = 65_535;
/// How many accounts a post goes to at most.
pub const MAX_ACCOUNTS: usize = 1_000;
/// How many pictures a post shows at most; no platform takes as many.
pub const MAX_MEDIA: usize = 100;

request! {
    /// What is to change of a post; what is absent stays, null empties.
    pub struct PostChange {
        pub content: Given<String> { "maxLength": 65535 },
        pub schedule_type: Given<ScheduleType>,
        pub scheduled_at: Given<DateTime<Utc>> { "x-extension": true },
        pub accounts: Given<Vec<i64>> { "uniqueItems": true, "maxItems": 1000, "x-extension": true },
        pub media: Given<Vec<i64>> { "uniqueItems": true, "maxItems": 100, "x-extension": true },
        /// In place of all that there were.
        pub overrides: Given<Vec<PostOverride>> { "maxItems": 1000, "x-extension": true },
    }

    /// A wish for one account. What is absent is the post's.
    pub struct PostOverride {
        /// One of the post's accounts.
        pub account_id: i64,
        pub content: Option<String> { "minLength": 1, "maxLength": 65535 },
        pub media: Option<Vec<i64>> { "uniqueItems": true, "maxItems": 100 },
        /// What a platform needs beyond text, as its descriptor says: `title`, `board`, `subreddit`, `link`, `visibility`.
        pub options: Option<Map<String, Value>>,
    }
}

impl PostChange {
    pub fn read(f: &Fields<'_>, zone: &str) -> Self {
        Self {
            content: f.text("content", 0..=LONGEST_CONTENT),
            schedule_type: f.word("schedule_type"),
            scheduled_at: f.time("scheduled_at", zone),
            accounts: f.ids("accounts", MAX_ACCOUNTS),
            media: f.ids("media", MAX_MEDIA),
            overrides: read_overrides(f),
        }
    }

    pub fn nothing() -> Self {
        Self {
            content: Given::Absent,
            schedule_type: Given::Absent,
            scheduled_at: Given::Absent,
            accounts: Given::Absent,
            media: Given::Absent,
            overrides: Given::Absent,
        }
    }
}

/// `overrides`, for any body that has them.
pub fn read_overrides(f: &Fields<'_>) -> Given<Vec<PostOverride>> {
    f.objects("overrides", MAX_ACCOUNTS, read_override)
}

/// An unreadable one keeps its place, so that the places of the others are those of the request.
fn read_override(f: &Fields<'_>) -> Option<PostOverride> {
    let account_id = f.required("account_id", f.id("account_id"));
    let content = f.text("content", 1..=LONGEST_CONTENT).value();
    let media = f.ids("media", MAX_MEDIA).value();
    let options = f.object("options").value().cloned();
    if options.as_ref().is_some_and(any_nul) {
        f.problem("options", "Must not contain the character NUL.");
    }
    Some(PostOverride { account_id: account_id.unwrap_or_default(), content, media, options })
}

impl PostOverride {
    fn wish(&self) -> Wish {
        let options = self.options.clone().unwrap_or_default();
        Wish { content: self.content.clone(), media: self.media.clone(), options }
    }
}

fn any_nul(object: &Map<String, Value>) -> bool {
    object.iter().any(|(key, value)| key.contains('\0') || holds_nul(value))
}

fn holds_nul(value: &Value) -> bool {
    steps::step();
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(list) => list.iter().any(holds_nul),
        Value::Object(object) => any_nul(object),
        _ => false,
    }
}

/// A target as it is, with what the queue knows of it.
#[derive(Clone, Debug)]
pub struct Standing {
    pub target: Target,
    /// Its job is in a worker's hands.
    pub running: bool,
}

impl Standing {
    /// The platform may be at work on it.
    pub fn in_flight(&self) -> bool {
        let open = self.target.call_started_at.is_some() && self.target.status == TargetStatus::Pending;
        self.running || open || self.target.status == TargetStatus::Publishing
    }

    fn wish(&self) -> Wish {
        let t = &self.target;
        Wish { content: t.content.clone(), media: t.media.clone(), options: t.options.clone() }
    }
}

/// One account of the post as it would be.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedTarget {
    pub account_id: i64,
    pub wish: Wish,
    /// Where in `overrides` the wish stands, if the request names it.
    pub place: Option<usize>,
    /// It is out already, and shows what it shows.
    pub published: bool,
}

/// The post as it would be.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub content: String,
    pub media: Vec<i64>,
    /// `None`: the request does not say.
    pub schedule_type: Option<ScheduleType>,
    pub scheduled_at: Option<DateTime<Utc>>,
    pub targets: Vec<WantedTarget>,
    pub submits: bool,
}

impl Wanted {
    pub fn of(post: &Post, standing: &[Standing], change: &PostChange) -> Self {
        let before = standing.iter().map(|s| s.target.account_id).collect();
        let accounts = change.accounts.clone().over(before, Vec::new());
        let overrides = match &change.overrides {
            Given::Absent => None,
            Given::Null => Some(&[][..]),
            Given::Value(list) => Some(list.as_slice()),
        };
        // Of two for one account, which are refused later, the first one counts.
        let mut places = HashMap::new();
        for (place, one) in overrides.unwrap_or_default().iter().enumerate() {
            places.entry(one.account_id).or_insert(place);
        }
        let there: HashMap<i64, &Standing> = standing.iter().map(|s| (s.target.account_id, s)).collect();
        let target = |account_id: i64| {
            steps::step();
            let place = places.get(&account_id).copied();
            let there = there.get(&account_id);
            let wish = match (overrides, place) {
                (Some(list), Some(place)) => list[place].wish(),
                (Some(_), None) => Wish::default(),
                (None, _) => there.map(|s| s.wish()).unwrap_or_default(),
            };
            let published = there.is_some_and(|s| s.target.status == TargetStatus::Published);
            WantedTarget { account_id, wish, place, published }
        };
        let schedule_type = change.schedule_type.clone().value();
        let scheduled_at = match schedule_type {
            Some(ScheduleType::Now) => None,
            _ => match &change.scheduled_at {
                Given::Absent => post.scheduled_at,
                Given::Null => None,
                Given::Value(at) => Some(*at),
            },
        };
        Self {
            content: change.content.clone().over(post.content.clone(), String::new()),
            media: change.media.clone().over(post.media.clone(), Vec::new()),
            schedule_type,
            scheduled_at,
            targets: accounts.into_iter().map(target).collect(),
            submits: false,
        }
    }

    /// The status that the request leads to; `None` where the diagram has no such arrow.
    pub fn status(&self, from: PostStatus) -> Option<PostStatus> {
        use PostStatus::{Draft, Failed, PartiallyPublished, PendingApproval, Published, Publishing, Scheduled};
        if self.submits {
            return (from == Draft).then_some(PendingApproval);
        }
        match (from, self.schedule_type) {
            (same, None) => Some(same),
            (PendingApproval, Some(ScheduleType::Draft)) => Some(PendingApproval),
            (Draft | Scheduled, Some(ScheduleType::Draft)) => Some(Draft),
            (Draft | Scheduled, Some(ScheduleType::Scheduled)) => Some(Scheduled),
            (Draft | Scheduled | Failed | PartiallyPublished, Some(ScheduleType::Now)) => Some(Publishing),
            (PendingApproval | Publishing | Published | Failed | PartiallyPublished, Some(_)) => None,
        }
    }

    /// What goes out on an account.
    pub fn content_of<'a>(&'a self, wish: &'a Wish) -> &'a str {
        wish.content.as_deref().unwrap_or(&self.content)
    }

    /// Every picture that it shows on whatever account, each once.
    pub fn all_media(&self) -> Vec<i64> {
        union(&self.media, self.targets.iter().map(|target| &target.wish))
    }

    pub fn media_of<'a>(&'a self, wish: &'a Wish) -> &'a [i64] {
        wish.media.as_deref().unwrap_or(&self.media)
    }
}

/// The pictures of a post and of the wishes for its accounts, each once.
fn union<'a>(media: &[i64], wishes: impl Iterator<Item = &'a Wish>) -> Vec<i64> {
    let mut all = media.to_vec();
    all.extend(wishes.flat_map(|wish| wish.media.iter().flatten()));
    all.sort_unstable();
    all.dedup();
    all
}

/// What there is to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub status: PostStatus,
    pub schedule_type: ScheduleType,
    /// The post leaves draft for the first time: it counts against the month's cap.
    pub counts: bool,
    /// Targets whose wish, or whose post's content, is another one now.
    pub wishes: Vec<(i64, Wish)>,
    /// Accounts that get a target, each with its place.
    pub insert: Vec<(i64, i32, Wish)>,
    /// Targets that go.
    pub remove: Vec<i64>,
    /// Targets whose place is another one.
    pub places: Vec<(i64, i32)>,
    /// Failed targets that are tried again.
    pub again: Vec<i64>,
    /// The jobs of the targets that stay are taken back.
    pub cancel: bool,
    /// It shows other pictures than before: these, on whatever account.
    pub media: Option<Vec<i64>>,
    /// Every pending target gets a job at this time.
    pub publish_at: Option<DateTime<Utc>>,
}

/// Why the post's state does not allow it, in words for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    #[error(
        "A {0} post cannot be rescheduled like this. The statuses that lead to each other are in the description of posts."
    )]
    NoSuchTransition(PostStatus),
    #[error("The post is being worked on right now. Read its status, and try again when that has settled.")]
    Busy,
    #[error(
        "What was published on account {0}, or is being published there, cannot change. Use `overrides` to change what goes to the others."
    )]
    Published(i64),
    #[error("The accounts of a post cannot change any more once its publishing has begun.")]
    Accounts,
    #[error("The time of a post cannot change any more once its publishing has begun.")]
    Time,
}

/// Whether the post's state allows what is wanted, and what there is to do.
pub fn decide(post: &Post, standing: &[Standing], wanted: &Wanted, now: DateTime<Utc>) -> Result<Decision, Conflict> {
    let status = wanted.status(post.status).ok_or(Conflict::NoSuchTransition(post.status))?;
    let begun = !matches!(post.status, PostStatus::Draft | PostStatus::PendingApproval | PostStatus::Scheduled);
    let rescheduled = status != post.status || wanted.scheduled_at != post.scheduled_at;
    if begun && status == post.status && wanted.scheduled_at != post.scheduled_at {
        return Err(Conflict::Time);
    }
    let mut decision = Decision {
        status,
        schedule_type: wanted.schedule_type.unwrap_or(post.schedule_type),
        counts: !post.counted && status != PostStatus::Draft,
        wishes: Vec::new(),
        insert: Vec::new(),
        remove: Vec::new(),
        places: Vec::new(),
        again: Vec::new(),
        cancel: false,
        media: None,
        publish_at: None,
    };
    let before: Vec<Wish> = standing.iter().map(Standing::wish).collect();
    let media = wanted.all_media();
    decision.media = (media != union(&post.media, before.iter())).then_some(media);
    decision.match_targets(post, standing, wanted)?;
    let other_accounts = !decision.insert.is_empty() || !decision.remove.is_empty();
    if begun && other_accounts {
        return Err(Conflict::Accounts);
    }
    // Before its time a post is all of a piece: once a worker has taken up a part, it is too late for the whole.
    let changes = rescheduled || other_accounts || !decision.wishes.is_empty();
    if !begun && changes && standing.iter().any(Standing::in_flight) {
        return Err(Conflict::Busy);
    }
    decision.cancel = post.status == PostStatus::Scheduled && (rescheduled || other_accounts);
    if begun && status == PostStatus::Publishing && post.status != PostStatus::Publishing {
        let failed = standing.iter().filter(|s| s.target.status == TargetStatus::Failed);
        decision.again = failed.map(|s| s.target.id).collect();
    }
    decision.publish_at = match status {
        PostStatus::Scheduled if rescheduled || other_accounts => wanted.scheduled_at,
        PostStatus::Publishing if rescheduled => Some(now),
        _ => None,
    };
    Ok(decision)
}

impl Decision {
    /// Compares the targets that are there with those that are wanted.
    fn match_targets(&mut self, post: &Post, standing: &[Standing], wanted: &Wanted) -> Result<(), Conflict> {
        let before: HashMap<i64, (i32, &Standing)> =
            (0..).zip(standing).map(|(was, s)| (s.target.account_id, (was, s))).collect();
        for (place, target) in (0..).zip(&wanted.targets) {
            let Some(&(was, there)) = before.get(&target.account_id) else {
                self.insert.push((target.account_id, place, target.wish.clone()));
                continue;
            };
            if was != place {
                self.places.push((there.target.id, place));
            }
            let before = there.wish();
            let goes_out_otherwise = before.content.as_ref().unwrap_or(&post.content)
                != wanted.content_of(&target.wish)
                || before.media.as_ref().unwrap_or(&post.media) != wanted.media_of(&target.wish)
                || before.options != target.wish.options;
            if goes_out_otherwise && (there.target.status == TargetStatus::Published || there.in_flight()) {
                // One that is only about to begin is the whole post's affair.
                let begun = there.target.status != TargetStatus::Pending || there.target.call_started_at.is_some();
                return Err(if begun { Conflict::Published(target.account_id) } else { Conflict::Busy });
            }
            if goes_out_otherwise || before != target.wish && there.target.status != TargetStatus::Published {
                self.wishes.push((there.target.id, target.wish.clone()));
            }
        }
        let stay: HashSet<i64> = wanted.targets.iter().map(|t| t.account_id).collect();
        let gone = standing.iter().filter(|s| !stay.contains(&s.target.account_id));
        self.remove = gone.map(|s| s.target.id).collect();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
