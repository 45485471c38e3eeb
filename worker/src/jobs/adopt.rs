//! Decides which of the posts that a platform shows is the one of a call whose response was lost.
//!
//! Connectors return all that fit ([`Reconciled::Matches`](crier_platforms::Reconciled::Matches)). One that belongs to
//! another post or reply of Crier is none of them; of the others, only a single one is adopted.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::account::SocialAccount;
use crier_platforms::Published;
use crier_store::adoptions::{self, Adopter};
use crier_store::{Result, Tx};

/// How far a call may lie in the future before its time is not believed: the clock was changed.
const CLOCK_SKEW: TimeDelta = TimeDelta::minutes(2);
/// How many are compared with what is known.
const MAX_COMPARED: usize = 100;

/// What a call turned out to have published.
pub enum Adoption {
    /// All that the platform shows belongs to others.
    None,
    One(Box<Published>),
    /// It could be each of several.
    Several,
}

/// Decides, and stores the id that is adopted: no other run can adopt it.
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

/// Returns when an open call began; `None`: it is not known, since the clock was changed.
pub fn call_time(started_at: Option<DateTime<Utc>>, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    Some(started_at.unwrap_or(now)).filter(|at| *at <= now + CLOCK_SKEW)
}
