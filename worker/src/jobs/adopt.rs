//! Decides which of the posts on a platform was created by a call whose response was lost.
//!
//! Connectors return all candidates ([`ReconcileResult::Matches`](crier_platforms::ReconcileResult::Matches)). Those that belong
//! to another post or reply of Crier are excluded. A candidate is adopted only if it is the only one left. Of the posts with
//! one text, the one with the latest call is looked up first ([`has_later_call`](adoptions::has_later_call)).

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::account::SocialAccount;
use crier_domain::failure::{Category, Failure};
use crier_platforms::{Marker, Published};
use crier_store::adoptions::{self, Adopter};
use crier_store::{Result, Tx};
use serde_json::Value;

/// The maximum time by which the start of a call may be in the future. If it is later, the clock was changed, and the
/// time is ignored.
const CLOCK_SKEW: TimeDelta = TimeDelta::minutes(2);
/// The maximum number of candidates that are compared with the stored ids.
const MAX_COMPARED: usize = 100;
/// The key in the marker of a post or reply that an earlier call, with an unknown outcome, may have published. The value is
/// the start of the first such call, or true if it is not known.
const MAY_EXIST: &str = "may_exist";

/// The post that a call published.
pub enum Adoption {
    /// All candidates belong to other posts or replies.
    None,
    One(Box<Published>),
    /// Several candidates are possible.
    Several,
}

/// Decides, and stores the adopted id, so that no other run can adopt it.
pub async fn adopt(tx: &mut Tx, account: &SocialAccount, adopter: Adopter, found: Vec<Published>) -> Result<Adoption> {
    if found.len() > MAX_COMPARED {
        return Ok(Adoption::Several);
    }
    let owner = (account.platform, account.external_id.as_str());
    adoptions::lock(tx, owner).await?;
    let (accounts, mut free) = (adoptions::rows_of(tx, owner).await?, Vec::new());
    for one in found {
        if !adoptions::is_taken(tx, &accounts, adopter, &one.external_id).await? {
            free.push(one);
        }
    }
    match free.len() {
        0 => Ok(Adoption::None),
        1 => {
            let one = free.remove(0);
            adoptions::claim(tx, adopter, &one.external_id).await?;
            Ok(Adoption::One(Box::new(one)))
        }
        _ => Ok(Adoption::Several),
    }
}

/// Returns when the call began that is looked up: the open one, or else the first one that may have published the post or
/// reply. `None` if the time is unknown because the clock was changed.
pub fn call_time(marker: &Marker, started_at: Option<DateTime<Utc>>, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let earlier = || -> Option<DateTime<Utc>> { marker.get(MAY_EXIST)?.as_str()?.parse().ok() };
    Some(started_at.or_else(earlier).unwrap_or(now)).filter(|at| *at <= now + CLOCK_SKEW)
}

/// Records in the marker whether an earlier call may have published the post or reply: an open one, which began at
/// `started_at`, or one whose outcome is unknown by the last `error`. Later calls and errors do not change it.
pub fn mark_may_exist(marker: &mut Marker, started_at: Option<DateTime<Utc>>, error: Option<&Failure>) {
    if started_at.is_some() || error.is_some_and(|error| error.category == Category::OutcomeUnknown) {
        let value = || started_at.map_or(Value::Bool(true), |at| Value::from(at.to_rfc3339()));
        marker.entry(MAY_EXIST).or_insert_with(value);
    }
}

/// Returns whether an earlier call may have published the post or reply, so that a platform may reject it as a
/// duplicate of itself.
pub fn may_exist(marker: &Marker) -> bool {
    marker.contains_key(MAY_EXIST)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A platform may reject a later call as a duplicate of the first one.
    #[test]
    fn the_first_call_that_may_have_published_is_looked_up() {
        let at = |seconds| DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds);
        let mut marker = Marker::new();
        mark_may_exist(&mut marker, None, Some(&Failure::of(Category::RateLimited, "Wait.")));
        assert_eq!((may_exist(&marker), call_time(&marker, None, at(1))), (false, Some(at(1))));
        for began in [at(10), at(20)] {
            mark_may_exist(&mut marker, Some(began), None);
            assert_eq!(call_time(&marker, Some(began), at(30)), Some(began), "the open call");
        }
        assert_eq!((may_exist(&marker), call_time(&marker, None, at(30))), (true, Some(at(10))));
        assert_eq!(call_time(&marker, Some(at(500)), at(30)), None, "the clock was changed");
        let mut unknown = Marker::new();
        mark_may_exist(&mut unknown, None, Some(&Failure::of(Category::OutcomeUnknown, "Lost.")));
        assert_eq!((may_exist(&unknown), call_time(&unknown, None, at(30))), (true, Some(at(30))));
    }
}
