//! Calls to the Data API and their errors: `{error: {code, message, errors: [{domain, reason, message}]}}`.

use chrono::{DateTime, NaiveDate, NaiveTime, TimeDelta, TimeZone as _, Utc};
use chrono_tz::America::Los_Angeles;
use crier_domain::failure::{Category, Failure};
use crier_http::{HttpResponse, RequestBuilder};
use http::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Youtube;
use crate::call::{Effect, retry_at, sanitize_message};
use crate::{CallError, UploadQuota};

/// The reason of an error if the account lacks a permission.
pub(super) const NO_PERMISSION: &str = "insufficientPermissions";
pub(super) const NO_CHANNEL: &str =
    "This Google account has no YouTube channel. Create one on YouTube, then connect the account again.";
/// The maximum number of entries read from a page.
const MAX_ENTRIES: usize = 100;
/// The pause if too many calls were made within a minute.
const PAUSE: TimeDelta = TimeDelta::minutes(1);
/// The period in which a channel may upload a limited number of videos.
const UPLOAD_PERIOD: TimeDelta = TimeDelta::hours(24);

#[derive(Default, Deserialize)]
struct ErrorBody {
    #[serde(default)]
    error: ErrorStatus,
}

#[derive(Default, Deserialize)]
struct ErrorStatus {
    #[serde(default)]
    message: String,
    #[serde(default)]
    errors: Vec<ErrorItem>,
}

#[derive(Deserialize)]
struct ErrorItem {
    #[serde(default)]
    reason: String,
}

/// A page of a list.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct List {
    #[serde(default)]
    pub(super) items: Vec<Value>,
    next_page_token: Option<String>,
}

impl List {
    /// Returns the readable entries. An unreadable entry must not hide the others.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Vec<T> {
        self.items.iter().take(MAX_ENTRIES).filter_map(|entry| T::deserialize(entry).ok()).collect()
    }

    /// Returns the token of the next page.
    pub(super) fn next(self) -> Option<String> {
        self.next_page_token.filter(|token| !token.is_empty())
    }
}

/// Returns when the daily quotas reset: at midnight in the Pacific time zone.
fn next_quota(now: DateTime<Utc>) -> DateTime<Utc> {
    let tomorrow = now.with_timezone(&Los_Angeles).date_naive().succ_opt();
    tomorrow.and_then(midnight).unwrap_or(now + UPLOAD_PERIOD)
}

/// Returns when the daily quotas last reset.
fn last_quota(now: DateTime<Utc>) -> DateTime<Utc> {
    midnight(now.with_timezone(&Los_Angeles).date_naive()).unwrap_or(now - UPLOAD_PERIOD)
}

/// Returns when a day begins in the Pacific time zone.
fn midnight(day: NaiveDate) -> Option<DateTime<Utc>> {
    let at = Los_Angeles.from_local_datetime(&day.and_time(NaiveTime::MIN)).earliest()?;
    Some(at.to_utc())
}

/// Returns the error for a limit that ends at this time.
fn limited(until: DateTime<Utc>, code: &str, message: &str) -> CallError {
    let failure = Failure::of(Category::RateLimited, message).from_platform(code);
    CallError::RateLimited { until: Some(until), failure }
}

impl Youtube {
    /// Returns the quota of uploads, which belongs to the application.
    pub(super) fn quota_of(&self, client_id: &str) -> UploadQuota {
        let now = self.client.now();
        let (since, until) = (last_quota(now), next_quota(now));
        UploadQuota {
            name: format!("youtube:{client_id}"),
            since,
            until,
            resets_at: "midnight in the Pacific time zone",
        }
    }

    pub(super) fn request(&self, method: Method, path: &str, token: &str) -> RequestBuilder {
        self.client.request(method, &format!("{}{path}", self.hosts.api)).bearer_auth(token)
    }

    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        effect: Effect,
        request: RequestBuilder,
    ) -> Result<T, CallError> {
        let response = self.client.send(effect, request).await?;
        if response.status.is_success() {
            return self.client.read(effect, &response);
        }
        Err(self.classify(effect, &response))
    }

    pub(super) fn classify(&self, effect: Effect, response: &HttpResponse) -> CallError {
        let error = serde_json::from_slice::<ErrorBody>(&response.body).unwrap_or_default().error;
        let reason = error.errors.first().map(|item| item.reason.as_str()).unwrap_or_default();
        let detail = sanitize_message(&error.message, &[]);
        let code = if reason.is_empty() { response.status.as_str() } else { reason };
        let permanent = |category, what: &str| {
            let message = match &detail {
                Some(detail) => format!("YouTube {what}: {detail}"),
                None => format!("YouTube {what}."),
            };
            CallError::Permanent(Failure::of(category, message).from_platform(code))
        };
        let now = self.client.now();
        match (response.status.as_u16(), reason) {
            (_, "quotaExceeded" | "dailyLimitExceeded") => {
                let message = "The application's daily quota at YouTube is used up. It resets at midnight in the \
                               Pacific time zone.";
                limited(next_quota(now), code, message)
            }
            (_, "uploadLimitExceeded") => {
                let message = "The channel has reached YouTube's upload limit. Crier retries after 24 hours.";
                limited(now + UPLOAD_PERIOD, code, message)
            }
            (429, _) | (_, "rateLimitExceeded" | "userRateLimitExceeded") => {
                let until = retry_at(&response.headers, now).unwrap_or(now + PAUSE);
                self.client.rate_limited(Some(until), Some(code))
            }
            (_, "accessNotConfigured") => self.client.misconfigured(
                "The YouTube Data API is not enabled in the application's project; the operator must enable it.",
                code,
            ),
            (_, "youtubeSignupRequired") => {
                CallError::Permanent(Failure::of(Category::Account, NO_CHANNEL).from_platform(code))
            }
            (401, _) => {
                let message = "YouTube rejected the access token.";
                CallError::AuthExpired(Failure::of(Category::AuthExpired, message).from_platform(code))
            }
            (403, _) => permanent(Category::Account, "does not allow this"),
            (404, _) => permanent(Category::PlatformRejected, "could not find the requested item"),
            (400, _) => permanent(Category::InvalidContent, "does not accept this"),
            _ => self.client.classify_status(effect, response, Some(code), detail),
        }
    }
}

/// Returns whether the platform's reason for an error is this one.
pub(super) fn has_reason(error: &CallError, reason: &str) -> bool {
    matches!(error, CallError::Permanent(failure) if failure.platform_code.as_deref() == Some(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_begin_again_at_midnight_in_the_pacific_time_zone() {
        for (now, expected) in [
            ("2026-11-26T12:00:00Z", "2026-11-27T08:00:00Z"),
            ("2026-11-27T07:59:59Z", "2026-11-27T08:00:00Z"),
            ("2026-11-27T08:00:00Z", "2026-11-28T08:00:00Z"),
            // Daylight saving time.
            ("2026-07-01T12:00:00Z", "2026-07-02T07:00:00Z"),
        ] {
            let (now, expected): (DateTime<Utc>, DateTime<Utc>) = (now.parse().unwrap(), expected.parse().unwrap());
            assert_eq!((next_quota(now), last_quota(now)), (expected, expected - TimeDelta::days(1)), "{now}");
        }
    }
}
