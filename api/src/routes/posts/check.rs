//! Whether a post as it would be is valid (422). All problems are told at once.

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Months, Utc};
use crier_common::domain::account::SocialAccount;
use crier_common::domain::media::Asset;
use crier_common::domain::platform::{Descriptor, Platform};
use crier_common::domain::post::{Post, PostStatus, ScheduleType};
use crier_common::platforms::catalogue::descriptor;
use crier_common::platforms::{pictures, text};

use super::edit::{PostChange, Wanted, WantedTarget};
use crate::fields::{Given, Problems, steps};

/// How far ahead a post may be scheduled.
const FURTHEST: Months = Months::new(60);

/// What the checks look things up in.
pub struct Known<'a> {
    /// Those of the wanted accounts that are the brand's, by their ids.
    pub accounts: HashMap<i64, &'a SocialAccount>,
    /// Those of the wanted pictures that are the brand's, by their ids.
    pub assets: HashMap<i64, &'a Asset>,
    pub now: DateTime<Utc>,
}

/// What the post's own text counts on each platform: it is measured once for all accounts of one.
#[derive(Default)]
pub struct Measures(HashMap<Platform, text::Measure>);

impl Measures {
    fn of(&mut self, wanted: &Wanted, target: &WantedTarget, descriptor: &Descriptor) -> text::Measure {
        let measure = |content: &str| {
            steps::step();
            text::measure(descriptor, content)
        };
        match &target.wish.content {
            Some(own) => measure(own),
            None => *self.0.entry(descriptor.platform).or_insert_with(|| measure(&wanted.content)),
        }
    }
}

/// One thing that a platform would refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub field: String,
    pub code: &'static str,
    pub message: String,
}

/// How a target stands to its platform's rules.
#[derive(Clone, Debug)]
pub struct Checked {
    pub account_id: i64,
    pub platform: Platform,
    pub length: u32,
    pub limit: Option<u32>,
    pub problems: Vec<Problem>,
}

/// Adds what is wrong with the post as it would be. Fields that could not be read are told of already.
pub fn check(post: &Post, wanted: &Wanted, change: &PostChange, known: &Known<'_>, problems: &Problems) {
    let status = wanted.status(post.status).unwrap_or(post.status);
    let goes_out = status != PostStatus::Draft;
    content(wanted, problems);
    media(change, known, problems);
    if goes_out {
        media_that_stays(wanted, change, known, problems);
    }
    overrides(wanted, change, problems);
    time(wanted, change, status, known.now, problems);
    // A post that has begun keeps its accounts, also those that are gone; they fail at their time.
    let leaves_draft = post.status == PostStatus::Draft && goes_out;
    if change.accounts != Given::Absent || leaves_draft {
        accounts(wanted, known, goes_out, problems);
    }
    if goes_out && !problems.has("content") {
        let mut measures = Measures::default();
        for target in wanted.targets.iter().take_while(|_| !problems.is_full()) {
            let Some(checked) = on_platform(wanted, target, known, &mut measures) else { continue };
            for problem in checked.problems {
                problems.add(problem.field, problem.message);
            }
        }
    }
}

fn content(wanted: &Wanted, problems: &Problems) {
    if wanted.content.is_empty() && wanted.media.is_empty() && !problems.has("content") {
        problems.add("content", "This field is required unless there is media.");
    }
}

/// The pictures that the request names.
fn media(change: &PostChange, known: &Known<'_>, problems: &Problems) {
    if let Given::Value(ids) = &change.media {
        unknown("media", ids, known, problems);
    }
    if let Given::Value(list) = &change.overrides {
        for (i, one) in list.iter().enumerate() {
            unknown(&format!("overrides.{i}.media"), one.media.as_deref().unwrap_or_default(), known, problems);
        }
    }
}

/// The pictures that are still to go out and that the request does not name: one may have been deleted since.
fn media_that_stays(wanted: &Wanted, change: &PostChange, known: &Known<'_>, problems: &Problems) {
    let to_come = || wanted.targets.iter().filter(|target| !target.published);
    if change.media == Given::Absent && to_come().any(|target| target.wish.media.is_none()) {
        unknown("media", &wanted.media, known, problems);
    }
    if matches!(change.overrides, Given::Absent) {
        for media in to_come().filter_map(|target| target.wish.media.as_deref()) {
            unknown("overrides.media", media, known, problems);
        }
    }
}

fn unknown(place: &str, ids: &[i64], known: &Known<'_>, problems: &Problems) {
    // What could not be read is left out of the ids: their places are not those of the request.
    if problems.has(place) {
        return;
    }
    for (i, id) in ids.iter().enumerate() {
        steps::step();
        if !known.assets.contains_key(id) {
            problems.add(format!("{place}.{i}"), format!("There is no such media asset as {id} in this brand."));
        }
    }
}

fn overrides(wanted: &Wanted, change: &PostChange, problems: &Problems) {
    let Given::Value(list) = &change.overrides else { return };
    if problems.has("accounts") {
        return;
    }
    let wanted: HashSet<i64> = wanted.targets.iter().map(|t| t.account_id).collect();
    let mut seen = HashSet::with_capacity(list.len());
    for (i, one) in list.iter().enumerate() {
        let path = format!("overrides.{i}.account_id");
        if problems.has(&path) {
            continue;
        }
        if !wanted.contains(&one.account_id) {
            problems.add(path, format!("Account {} is not among the accounts of this post.", one.account_id));
        } else if !seen.insert(one.account_id) {
            problems.add(path, format!("There is an override for account {} already.", one.account_id));
        }
    }
}

fn time(wanted: &Wanted, change: &PostChange, status: PostStatus, now: DateTime<Utc>, problems: &Problems) {
    const FIELD: &str = "scheduled_at";
    if problems.has(FIELD) {
        return;
    }
    let named = matches!(change.scheduled_at, Given::Value(_)) && wanted.schedule_type != Some(ScheduleType::Now);
    match wanted.scheduled_at {
        None if status == PostStatus::Scheduled => problems.add(FIELD, "This field is required for `scheduled`."),
        Some(at) if named || wanted.schedule_type == Some(ScheduleType::Scheduled) => {
            if at <= now {
                problems.add(FIELD, "Must be in the future.");
            } else if now.checked_add_months(FURTHEST).is_some_and(|last| at > last) {
                problems.add(FIELD, "Must be within 5 years from now.");
            }
        }
        _ => {}
    }
}

fn accounts(wanted: &Wanted, known: &Known<'_>, goes_out: bool, problems: &Problems) {
    if problems.has("accounts") {
        return;
    }
    if goes_out && wanted.targets.is_empty() {
        problems.add("accounts", "At least one account is needed, unless the post is a draft.");
    }
    for (i, target) in wanted.targets.iter().enumerate() {
        steps::step();
        if !known.accounts.contains_key(&target.account_id) {
            let message = format!("There is no account {} in this brand.", target.account_id);
            problems.add(format!("accounts.{i}"), message);
        }
    }
}

/// How a target stands to its platform's rules; `None` for an account that is not there.
pub fn on_platform(
    wanted: &Wanted,
    target: &WantedTarget,
    known: &Known<'_>,
    measures: &mut Measures,
) -> Option<Checked> {
    steps::step();
    let account = known.accounts.get(&target.account_id)?;
    let descriptor = descriptor(account.platform);
    let media = wanted.media_of(&target.wish);
    let found = text::judge(descriptor, &measures.of(wanted, target, descriptor), media.len());
    let size = |asset: &&Asset| (asset.width.unsigned_abs(), asset.height.unsigned_abs());
    // Those beyond what the platform takes are told of already.
    let shown = media.iter().take(descriptor.capabilities.media.max_images as usize);
    let sizes: Vec<_> = shown.map(|id| known.assets.get(id).map(size)).collect();
    // A wish of its own is told where the request has it.
    let own = |field: &str, is_own: bool| match target.place {
        Some(i) if is_own => format!("overrides.{i}.{field}"),
        None if is_own => format!("overrides.{field}"),
        _ => field.to_owned(),
    };
    let name = &account.name;
    let mut problems: Vec<Problem> = Vec::new();
    let shapes = pictures::check_shapes(descriptor, &sizes);
    for problem in found.problems.into_iter().chain(shapes) {
        let is_own = if problem.field == "media" { target.wish.media.is_some() } else { target.wish.content.is_some() };
        let message = format!("Account {} ({name}): {}", account.id, problem.message);
        problems.push(Problem { field: own(problem.field, is_own), code: problem.code, message });
    }
    for option in text::missing_options(descriptor, &target.wish.options) {
        let message = format!(
            "Account {} ({name}): {} needs the option `{option}`; give it in `overrides` for this account.",
            account.id, descriptor.name
        );
        let place = target.place.map_or_else(|| "overrides".to_owned(), |i| format!("overrides.{i}.options.{option}"));
        problems.push(Problem { field: place, code: "option_required", message });
    }
    let (account_id, platform) = (account.id, account.platform);
    Some(Checked { account_id, platform, length: found.length, limit: found.limit, problems })
}

#[cfg(test)]
mod tests;
