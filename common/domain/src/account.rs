//! Social accounts: active ⇄ expired. An account expires when the platform rejects its token; a refresh or a new
//! connect reactivates it.
//!
//! The tokens of an account that was connected in a browser may expire ([`Renewal`]). Crier renews a token after 80 %
//! of its life. If only a person can renew the access, the owner is warned before it ends.

use chrono::{DateTime, NaiveTime, SubsecRound as _, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::limits::{AccountLimits, Board};
use super::platform::{AccountKind, Platform};

crier_base::text_enum! {
    pub enum AccountStatus { Active = "active", Expired = "expired" }
}

crier_base::text_enum! {
    /// The result of a disconnect. `detached`: other brands still have the account. `revoked`: this was the last brand.
    pub enum DisconnectResult { Detached = "detached", Revoked = "revoked" }
}

/// Why an account does not work. The message is for its owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountError {
    pub code: String,
    pub message: String,
}

/// Whether and how the tokens of an account can be renewed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Renewal {
    /// Whether Crier can renew the access without a person.
    pub renewable: bool,
    /// Whether each renewal returns a new refresh token, with a new expiry.
    pub rotates: bool,
    pub refresh_expires_at: Option<DateTime<Utc>>,
}

/// How long before the end of the access the owner is warned. The last warning is at the beginning of that day (UTC).
const WARNINGS: [TimeDelta; 3] = [TimeDelta::days(14), TimeDelta::days(3), TimeDelta::zero()];
/// The share of a token's life after which it is renewed.
const RENEW_AT: f64 = 0.8;
/// The maximum deviation from [`RENEW_AT`], so that tokens that were issued together are not renewed together.
const RENEW_SPREAD: f64 = 0.05;

impl Renewal {
    /// Returns whether a refresh can do something: renew the token, or check credentials that do not expire. A token
    /// that expires and that only a person can renew is valid until its expiry.
    pub fn can_refresh(&self, token_expires_at: Option<DateTime<Utc>>) -> bool {
        self.renewable || token_expires_at.is_none()
    }

    /// Returns the time at which the access ends unless a person reconnects the account; `None` if there is no known
    /// end.
    pub fn access_ends_at(&self, token_expires_at: Option<DateTime<Utc>>) -> Option<DateTime<Utc>> {
        match (self.renewable, self.rotates) {
            (false, _) => token_expires_at,
            (true, true) => None,
            (true, false) => self.refresh_expires_at,
        }
    }

    /// Returns the time at which to renew tokens that are issued now; `None` if they are not renewed. `random` is in
    /// `[0, 1)`.
    pub fn renew_at(
        &self,
        token_expires_at: Option<DateTime<Utc>>,
        now: DateTime<Utc>,
        random: f64,
    ) -> Option<DateTime<Utc>> {
        let expires_at = token_expires_at.filter(|_| self.renewable)?;
        let life = (expires_at - now).to_std().unwrap_or_default();
        let share = RENEW_AT + RENEW_SPREAD * (2.0 * random.clamp(0.0, 1.0) - 1.0);
        // Both databases store microseconds.
        Some((now + TimeDelta::from_std(life.mul_f64(share)).unwrap_or_default()).trunc_subsecs(6))
    }

    /// Returns the time of the next check of the tokens: that of the renewal or of the next warning, whichever is
    /// earlier. `warnings` is the number of warnings that were sent.
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

/// Returns the time of the next warning before `end`; `None` if all `warnings` were sent.
fn warning_time(end: DateTime<Utc>, warnings: i32) -> Option<DateTime<Utc>> {
    let before = WARNINGS.get(usize::try_from(warnings).ok()?)?;
    Some(if before.is_zero() { end.with_time(NaiveTime::MIN).single().unwrap_or(end) } else { end - *before })
}

/// Returns the number of warnings that are due by `now`.
pub fn warnings_due(end: DateTime<Utc>, now: DateTime<Utc>) -> i32 {
    (0..3).take_while(|sent| warning_time(end, *sent).is_some_and(|at| at <= now)).count() as i32
}

/// The times at which the tokens of an account expire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenTimes {
    pub token_expires_at: Option<DateTime<Utc>>,
    /// `None`: unchanged.
    pub refresh_expires_at: Option<DateTime<Utc>>,
}

impl From<Option<DateTime<Utc>>> for TokenTimes {
    fn from(token_expires_at: Option<DateTime<Utc>>) -> Self {
        Self { token_expires_at, refresh_expires_at: None }
    }
}

/// A social account without its secrets.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
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
    #[cfg_attr(feature = "sqlx", sqlx(json(nullable)))]
    pub last_error: Option<AccountError>,
    /// The limits of its server, and its boards. `None` if none were read.
    #[cfg_attr(feature = "sqlx", sqlx(json(nullable)))]
    pub limits: Option<AccountLimits>,
    /// The requested scopes that the user granted. `None` if they are unknown.
    #[cfg_attr(feature = "sqlx", sqlx(json(nullable)))]
    pub granted_scopes: Option<Vec<String>>,
    /// Its signature in the brand for which the account was read, a snippet. `None` if it was read without a brand.
    #[cfg_attr(feature = "sqlx", sqlx(default))]
    pub signature_id: Option<i64>,
    /// The version of the credentials; it increases with each change.
    pub credentials_version: i64,
    pub connected_at: DateTime<Utc>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl SocialAccount {
    /// Returns the boards of the account that are known. A post may also name another one.
    pub fn boards(&self) -> &[Board] {
        self.limits.as_ref().map_or(&[][..], |limits| &limits.boards)
    }
}

/// The part of an account that the checks of a post need.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct AccountSummary {
    pub id: i64,
    pub platform: Platform,
    pub name: String,
    pub status: AccountStatus,
    #[cfg_attr(feature = "sqlx", sqlx(json(nullable)))]
    pub limits: Option<AccountLimits>,
    /// The requested scopes that the user granted. `None` if they are unknown.
    #[cfg_attr(feature = "sqlx", sqlx(json(nullable)))]
    pub granted_scopes: Option<Vec<String>>,
    /// The content of its signature.
    pub signature: Option<String>,
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
        // An expired token is renewed immediately.
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
