//! Calls to the API and their errors. A rejected submission returns 200: `{json: {errors: [[code, text, field]],
//! ratelimit}}`, or 400 if it breaks the subreddit's rules (`validate_on_submit`): `{reason, explanation, fields}`.

use chrono::TimeDelta;
use crier_domain::failure::{Category, Failure};
use crier_http::{HttpResponse, RequestBuilder};
use http::{HeaderValue, Method, StatusCode, header};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::super::call::{Effect, PlatformClient, sanitize_message};
use super::super::{CallError, ConnectorAccount};
use super::Reddit;

/// The pause, in seconds, if Reddit requests one without a time.
const PAUSE: i64 = 600;

/// The calls of an account. Reddit requires a `User-Agent` that names the application and a user, and throttles others.
pub(super) struct Session<'a> {
    pub(super) reddit: &'a Reddit,
    pub(super) client: PlatformClient,
    pub(super) token: String,
}

#[derive(Deserialize)]
struct Envelope<T> {
    json: Submission<T>,
}

#[derive(Deserialize)]
struct Submission<T> {
    #[serde(default)]
    errors: Vec<(String, Option<String>, Option<String>)>,
    /// Seconds.
    ratelimit: Option<f64>,
    data: Option<T>,
}

/// The body of an error response.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorBody {
    reason: Option<String>,
    explanation: Option<String>,
    fields: Vec<String>,
}

/// The error of a submission.
pub(super) struct SubmitError {
    pub(super) error: CallError,
    /// The field that Reddit rejects.
    pub(super) field: Option<String>,
}

impl From<CallError> for SubmitError {
    fn from(error: CallError) -> Self {
        Self { error, field: None }
    }
}

impl Reddit {
    /// Returns the client with its `User-Agent`: `web:{application}:{version} (by /u/{name})`.
    pub(super) fn client_of(&self, application: &str, name: Option<&str>) -> PlatformClient {
        let word = |text: &str| -> String {
            text.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')).take(64).collect()
        };
        let by = name.map_or_else(|| "its owner".to_owned(), |name| format!("/u/{}", word(name)));
        let agent = format!("web:crier-{}:v{} (by {by})", word(application), env!("CARGO_PKG_VERSION"));
        self.client.clone().with_header(header::USER_AGENT, HeaderValue::try_from(agent).ok())
    }

    pub(super) fn session(&self, account: &ConnectorAccount) -> Result<Session<'_>, CallError> {
        let application = account.secrets.require("client_id")?;
        let client = self.client_of(application.expose_secret(), account.username.as_deref());
        let token = account.secrets.require("access_token")?.expose_secret().to_owned();
        Ok(Session { reddit: self, client, token })
    }
}

impl Session<'_> {
    pub(super) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, &format!("{}{path}", self.reddit.api)).bearer_auth(&self.token)
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
        Err(self.submit_error(effect, &response).error)
    }

    /// Submits a post.
    pub(super) async fn submit<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, SubmitError> {
        let effect = Effect::Publishes;
        let response = self.client.send(effect, request).await?;
        if !response.status.is_success() {
            return Err(self.submit_error(effect, &response));
        }
        let Submission { errors, ratelimit, data } = self.client.read::<Envelope<T>>(effect, &response)?.json;
        match (errors.into_iter().next(), data) {
            (Some((code, text, field)), _) => {
                let error = self.classify(&code, &text.unwrap_or_default(), ratelimit);
                Err(SubmitError { error, field })
            }
            (None, Some(data)) => Ok(data),
            (None, None) => Err(self.client.classify_unknown_effect(effect, "sent an empty response", None).into()),
        }
    }

    fn classify(&self, code: &str, text: &str, ratelimit: Option<f64>) -> CallError {
        let failure = |category, what: &str| {
            let message = match sanitize_message(text, &[&self.token]) {
                Some(detail) => format!("Reddit {what}: {detail}"),
                None => format!("Reddit {what}."),
            };
            Failure::of(category, message).from_platform(code)
        };
        match code {
            "RATELIMIT" | "QUOTA_FILLED" => {
                // The cast saturates, and the client limits the pause.
                let named = ratelimit.filter(|seconds| *seconds > 0.0).map(|seconds| seconds.ceil() as i64);
                self.client.rate_limited_for(named.or_else(|| pause_in(text)).unwrap_or(PAUSE))
            }
            "ALREADY_SUB" => CallError::Permanent(failure(Category::DuplicateContent, "already has this link")),
            "USER_REQUIRED" => CallError::AuthExpired(failure(Category::AuthExpired, "rejected the access token")),
            "SUBREDDIT_NOTALLOWED" | "BANNED_FROM_SUBREDDIT" | "USER_BLOCKED" => {
                CallError::Permanent(failure(Category::Account, "does not let this account post there"))
            }
            "SUBREDDIT_NOEXIST" | "SUBREDDIT_REQUIRED" | "NO_SELFS" | "NO_LINKS" | "NO_IMAGES" | "DOMAIN_BANNED"
            | "TOO_LONG" | "NO_TEXT" | "BAD_URL" | "BAD_SR_NAME" => {
                CallError::Permanent(failure(Category::InvalidContent, "does not accept this post"))
            }
            _ if code.starts_with("SUBMIT_VALIDATION") => {
                CallError::Permanent(failure(Category::InvalidContent, "does not accept this post in that subreddit"))
            }
            _ => CallError::Permanent(failure(Category::PlatformRejected, "rejected this post")),
        }
    }

    fn submit_error(&self, effect: Effect, response: &HttpResponse) -> SubmitError {
        let body: ErrorBody = serde_json::from_slice(&response.body).unwrap_or_default();
        match body.explanation.filter(|text| !text.trim().is_empty()) {
            Some(text) if matches!(response.status, StatusCode::BAD_REQUEST | StatusCode::FORBIDDEN) => {
                let code = body.reason.unwrap_or_else(|| response.status.as_str().to_owned());
                SubmitError { error: self.classify(&code, &text, None), field: body.fields.into_iter().next() }
            }
            _ => self.classify_by_status(effect, response).into(),
        }
    }

    fn classify_by_status(&self, effect: Effect, response: &HttpResponse) -> CallError {
        let code = response.status.as_str().to_owned();
        let failure = |category, text: &str| Failure::of(category, text).from_platform(&code);
        match response.status {
            StatusCode::UNAUTHORIZED => {
                CallError::AuthExpired(failure(Category::AuthExpired, "Reddit rejected the access token."))
            }
            StatusCode::FORBIDDEN => CallError::Permanent(failure(
                Category::Account,
                "Reddit does not allow this: the subreddit is private, the account is banned there, or the \
                 application is not approved.",
            )),
            StatusCode::NOT_FOUND => {
                CallError::Permanent(failure(Category::InvalidContent, "Reddit does not know this subreddit."))
            }
            _ => self.client.classify_status(effect, response, None, None),
        }
    }
}

/// Returns whether Reddit returned 403 without an explanation.
pub(super) fn is_forbidden(failure: &Failure) -> bool {
    failure.platform_code.as_deref() == Some("403")
}

/// Returns the seconds in a sentence such as "Take a break for 9 minutes before trying again."
fn pause_in(text: &str) -> Option<i64> {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.windows(2).find_map(|pair| {
        let number: i64 = pair[0].parse().ok()?;
        let unit = pair[1].trim_end_matches(['.', ',', 's']);
        let pause = match unit {
            "millisecond" => TimeDelta::seconds(1),
            "second" => TimeDelta::try_seconds(number)?,
            "minute" => TimeDelta::try_minutes(number)?,
            "hour" => TimeDelta::try_hours(number)?,
            _ => return None,
        };
        Some(pause.num_seconds())
    })
}

#[cfg(test)]
mod tests {
    use super::pause_in;

    #[test]
    fn a_pause_is_read_from_a_sentence() {
        assert_eq!(pause_in("Take a break for 9 minutes before trying again."), Some(540));
        assert_eq!(pause_in("you are doing that too much. try again in 1 second."), Some(1));
        assert_eq!(pause_in("try again in 2 hours, please"), Some(7_200));
        assert_eq!(pause_in("wait 300 milliseconds"), Some(1));
        for nothing in ["", "later", "9", "9 lives", "99999999999999999999 minutes", "9223372036854775807 hours"] {
            assert_eq!(pause_in(nothing), None, "{nothing}");
        }
    }
}
