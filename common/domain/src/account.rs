//! Social accounts: active ⇄ expired. An account expires when the platform rejects its token; a refresh or a new
//! connect reactivates it.
//!
//! An account that was connected in a browser has tokens that end ([`Renewal`]): one that can be renewed is renewed at
//! 80 % of its life; for one that cannot, or not for ever, its owner is warned before it ends.

use chrono::{DateTime, NaiveTime, SubsecRound as _, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::limits::AccountLimits;
use super::platform::{AccountKind, Platform};

crier_base::text_enum! {
    pub enum AccountStatus { Active = "active", Expired = "expired" }
}

crier_base::text_enum! {
    /// What a disconnect did: the account lives on in other brands, or this was the last one.
    pub enum DisconnectResult { Detached = "detached", Revoked = "revoked" }
}

/// Why an account stopped working, in words for its owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountError {
    pub code: String,
    pub message: String,
}

/// How long tokens last, and who can renew them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Renewal {
    /// Crier can renew the access without a person.
    pub renewable: bool,
    /// Each renewal returns a new refresh token, and with it a new end.
    pub rotates: bool,
    pub refresh_expires_at: Option<DateTime<Utc>>,
}

/// How long before the end of the access its owner is warned; the last warning is on the day itself.
const WARNINGS: [TimeDelta; 3] = [TimeDelta::days(14), TimeDelta::days(3), TimeDelta::zero()];
/// Part of a token's life after which it is renewed.
const RENEW_AT: f64 = 0.8;
/// The renewals of tokens that were issued together are spread over so much of their life, to both sides.
const RENEW_SPREAD: f64 = 0.05;

impl Renewal {
    /// Returns whether there is something to renew with, or credentials to check. A token that expires and that only a
    /// person can renew is neither; it stays valid until its end.
    pub fn can_refresh(&self, token_expires_at: Option<DateTime<Utc>>) -> bool {
        self.renewable || token_expires_at.is_none()
    }

    /// Returns when the access ends unless a person connects the account again; `None`: it does not, as far as is
    /// known.
    pub fn access_ends_at(&self, token_expires_at: Option<DateTime<Utc>>) -> Option<DateTime<Utc>> {
        match (self.renewable, self.rotates) {
            (false, _) => token_expires_at,
            (true, true) => None,
            (true, false) => self.refresh_expires_at,
        }
    }

    /// Returns when tokens that were issued now are to be renewed; `None`: never. `random` is in `[0, 1)`.
    pub fn renew_at(
        &self,
        token_expires_at: Option<DateTime<Utc>>,
        now: DateTime<Utc>,
        random: f64,
    ) -> Option<DateTime<Utc>> {
        let expires_at = token_expires_at.filter(|_| self.renewable)?;
        let life = (expires_at - now).to_std().unwrap_or_default();
        let share = RENEW_AT + RENEW_SPREAD * (2.0 * random.clamp(0.0, 1.0) - 1.0);
        // Microseconds: that is what both databases store.
        Some((now + TimeDelta::from_std(life.mul_f64(share)).unwrap_or_default()).trunc_subsecs(6))
    }

    /// Returns when the tokens are to be looked at: for the renewal or the next warning, whichever is earlier.
    /// `warnings` is how many were sent.
    pub fn check_at(
        &self,
        token_expires_at: Option<DateTime<Utc>>,
        renew_at: Option<DateTime<Utc>>,
        warnings: i32,
    ) -> Option<DateTime<Utc>> {
        let warning = self.access_ends_at(token_expires_at).and_then(|end| warning_time(end, warnings));
        renew_at.into_iter().chain(warning).min()
    }
}

/// Returns when the next warning before `end` is due; `None` if all were sent.
pub fn warning_time(end: DateTime<Utc>, warnings: i32) -> Option<DateTime<Utc>> {
    let before = WARNINGS.get(usize::try_from(warnings).ok()?)?;
    Some(if before.is_zero() { end.with_time(NaiveTime::MIN).single().unwrap_or(end) } else { end - *before })
}

/// Returns how many warnings are due by now.
pub fn warnings_due(end: DateTime<Utc>, now: DateTime<Utc>) -> i32 {
    (0..3).take_while(|sent| warning_time(end, *sent).is_some_and(|at| at <= now)).count() as i32
}

/// When the tokens of an account end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenTimes {
    pub token_expires_at: Option<DateTime<Utc>>,
    /// `None`: as before.
    pub refresh_expires_at: Option<DateTime<Utc>>,
}

impl From<Option<DateTime<Utc>>> for TokenTimes {
    fn from(token_expires_at: Option<DateTime<Utc>>) -> Self {
        Self { token_expires_at, refresh_expires_at: None }
    }
}

/// A social account without its secrets.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct SocialAccount {
    pub id: i64,
    pub workspace_id: i64,
    pub platform: Platform,
    pub name: String,
    pub username: Option<String>,
    pub external_id: String,
    pub profile_url: Option<String>,
    pub avatar_url: Option<String>,
    pub kind: AccountKind,
    pub status: AccountStatus,
    pub token_expires_at: Option<DateTime<Utc>>,
    #[sqlx(json(nullable))]
    pub last_error: Option<AccountError>,
    /// The limits that its server states; `None`: those of the platform.
    #[sqlx(json(nullable))]
    pub limits: Option<AccountLimits>,
    /// Version of the credentials; increases with each change.
    pub credentials_version: i64,
    pub connected_at: DateTime<Utc>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// What the checks of a post need to know of an account.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct AccountSummary {
    pub id: i64,
    pub platform: Platform,
    pub name: String,
    pub status: AccountStatus,
    #[sqlx(json(nullable))]
    pub limits: Option<AccountLimits>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test's own data")]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn a_token_is_renewed_at_four_fifths_of_its_life() {
        let (now, end) = (at("2026-03-01T00:00:00Z"), Some(at("2026-03-01T10:00:00Z")));
        let renewal = Renewal { renewable: true, rotates: true, refresh_expires_at: None };
        assert_eq!(renewal.renew_at(end, now, 0.5), Some(at("2026-03-01T08:00:00Z")));
        assert_eq!(renewal.renew_at(end, now, 0.0), Some(at("2026-03-01T07:30:00Z")));
        assert_eq!(renewal.renew_at(None, now, 0.5), None);
        assert_eq!(renewal.access_ends_at(end), None);
        // Already over: at once.
        assert_eq!(renewal.renew_at(Some(now - TimeDelta::hours(1)), now, 0.5), Some(now));
        assert_eq!(Renewal::default().renew_at(end, now, 0.5), None);
    }

    #[test]
    fn warnings_precede_the_end_of_access() {
        let end = at("2026-04-30T12:00:00Z");
        let times: Vec<_> = (0..4).map(|sent| Renewal::default().check_at(Some(end), None, sent)).collect();
        let days = ["2026-04-16T12:00:00Z", "2026-04-27T12:00:00Z", "2026-04-30T00:00:00Z"];
        assert_eq!(times, days.iter().map(|day| Some(at(day))).chain([None]).collect::<Vec<_>>());
        let due = |text: &str| warnings_due(end, at(text));
        assert_eq!((due("2026-04-16T11:59:59Z"), due("2026-04-16T12:00:00Z")), (0, 1));
        assert_eq!((due("2026-04-28T00:00:00Z"), due("2026-04-30T00:00:00Z"), due("2027-01-01T00:00:00Z")), (2, 3, 3));
    }

    #[test]
    fn a_fixed_refresh_token_ends_the_access() {
        let (token, end) = (at("2026-04-30T00:00:00Z"), at("2027-03-01T00:00:00Z"));
        let renewal = Renewal { renewable: true, rotates: false, refresh_expires_at: Some(end) };
        assert_eq!(renewal.access_ends_at(Some(token)), Some(end));
        let renew_at = Some(at("2026-04-18T00:00:00Z"));
        assert_eq!(renewal.check_at(Some(token), renew_at, 0), renew_at);
        assert_eq!(renewal.check_at(Some(token), None, 0), Some(end - TimeDelta::days(14)));
    }
}
