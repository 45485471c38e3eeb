//! Decides which of the posts on a platform was created by a call whose response was lost.
//!
//! Connectors return all candidates ([`ReconcileResult::Matches`](crier_platforms::ReconcileResult::Matches)). Those that belong
//! to another post or reply of Crier are excluded. A candidate is adopted only if it is the only one left.

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
/// The key in the marker of a post or reply that an earlier call, with an unknown outcome, may have published.
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

/// Returns when an open call began; `None` if the time is unknown because the clock was changed.
pub fn call_time(started_at: Option<DateTime<Utc>>, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    Some(started_at.unwrap_or(now)).filter(|at| *at <= now + CLOCK_SKEW)
}

/// Records in the marker whether an earlier call may have published the post or reply: a call that `is_open`, or one
/// whose outcome is unknown by the last `error`. Later errors do not remove it.
pub fn mark_may_exist(marker: &mut Marker, is_open: bool, error: Option<&Failure>) {
    if is_open || error.is_some_and(|error| error.category == Category::OutcomeUnknown) {
        marker.insert(MAY_EXIST.to_owned(), Value::Bool(true));
    }
}

/// Returns whether an earlier call may have published the post or reply, so that a platform may reject it as a
/// duplicate of itself.
pub fn may_exist(marker: &Marker) -> bool {
    marker.contains_key(MAY_EXIST)
}
