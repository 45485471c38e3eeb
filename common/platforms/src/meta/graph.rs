//! Calls to the Graph API and their errors: `{error: {message, code, error_subcode, is_transient, error_user_msg}}`.
//! The subcode is more precise than the code.

use chrono::{DateTime, TimeDelta, Utc};
use crier_base::hexadecimal;
use crier_domain::failure::{Category, Failure};
use crier_http::{HttpResponse, RequestBuilder};
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, Method};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::Sha256;

use crate::CallError;
use crate::call::{Effect, PlatformClient, retry_at, sanitize_message};

/// The pause after a publishing call was rejected because of a daily limit. Each such call may count against the limits of
/// the application.
const DAILY_LIMIT_PAUSE: TimeDelta = TimeDelta::hours(3);

/// A token, and the application's secret, which proves who sends the token.
pub(crate) struct Access<'a> {
    pub(crate) client: &'a PlatformClient,
    pub(crate) graph: &'a str,
    pub(crate) token: SecretString,
    pub(crate) app_secret: SecretString,
}

#[derive(Deserialize)]
struct ErrorBody {
    error: GraphError,
}

#[derive(Deserialize)]
struct GraphError {
    #[serde(default)]
    message: String,
    #[serde(default)]
    code: i64,
    error_subcode: Option<i64>,
    #[serde(default)]
    is_transient: bool,
    error_user_msg: Option<String>,
}

/// A page of a list.
#[derive(Deserialize)]
pub(crate) struct List<T> {
    pub(crate) data: Vec<T>,
    paging: Option<Paging>,
}

#[derive(Deserialize)]
struct Paging {
    cursors: Option<Cursors>,
    /// Only its presence matters. The URL contains a token.
    next: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Cursors {
    after: Option<String>,
}

impl<T> List<T> {
    /// Returns the token of the next page (`after`), if there is one.
    pub(crate) fn next(&self) -> Option<String> {
        self.paging.as_ref().filter(|paging| paging.next.is_some())?.cursors.as_ref()?.after.clone()
    }

    /// Returns whether there is a next page. A page may be short, because Meta hides some of its entries.
    pub(crate) fn has_next_page(&self) -> bool {
        self.paging.as_ref().is_some_and(|paging| paging.next.is_some())
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { data: Vec::new(), paging: None }
    }
}

/// Parses a time of the API (`2026-03-01T12:00:05+0000`).
pub(crate) fn parse_time(text: &str) -> Option<DateTime<Utc>> {
    DateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%z").ok().map(|at| at.to_utc())
}

impl Access<'_> {
    /// Starts a request to a path below the version. The token is in a header, because proxies log URLs.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, &format!("{}/{path}", self.graph));
        let request = request.bearer_auth(self.token.expose_secret());
        match self.app_secret.expose_secret() {
            "" => request,
            secret => request.query(&[("appsecret_proof", appsecret_proof(self.token.expose_secret(), secret))]),
        }
    }

    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        effect: Effect,
        request: RequestBuilder,
    ) -> Result<T, CallError> {
        self.call_with_codes(effect, request).await.map_err(|failure| failure.error)
    }

    /// Like [`Access::call`], with Meta's codes in the error.
    pub(crate) async fn call_with_codes<T: DeserializeOwned>(
        &self,
        effect: Effect,
        request: RequestBuilder,
    ) -> Result<T, GraphFailure> {
        let response = self.client.send(effect, request).await?;
        self.read_response(effect, &response)
    }

    /// Parses a response, or Meta's error.
    pub(crate) fn read_response<T: DeserializeOwned>(
        &self,
        effect: Effect,
        response: &HttpResponse,
    ) -> Result<T, GraphFailure> {
        if response.status.is_success() {
            return Ok(self.client.read(effect, response)?);
        }
        match serde_json::from_slice(&response.body) {
            Ok(ErrorBody { error }) => {
                let (code, subcode) = (error.code, error.error_subcode);
                Err(GraphFailure { code, subcode, error: self.classify(effect, response, &error) })
            }
            Err(_) => Err(self.client.classify_status(effect, response, None, None).into()),
        }
    }

    fn classify(&self, effect: Effect, response: &HttpResponse, error: &GraphError) -> CallError {
        let text = error.error_user_msg.as_deref().unwrap_or(&error.message);
        let detail = sanitize_message(text, &[self.token.expose_secret()]);
        let (kind, category, what) = error_class(error);
        let code = match error.error_subcode {
            Some(subcode) => format!("{}/{subcode}", error.code),
            None => error.code.to_string(),
        };
        let name = self.client.name();
        let message = match &detail {
            Some(detail) => format!("{name} {what}: {detail}"),
            None => format!("{name} {what}."),
        };
        let failure = Failure::of(category, message).from_platform(&code);
        match kind {
            Kind::Reauth => CallError::Reauth(failure),
            Kind::Permanent => CallError::Permanent(failure),
            Kind::Internal => self.client.classify_unknown_effect(effect, "had an internal error", Some(&code)),
            Kind::Rate => {
                let now = self.client.now();
                let until = retry_at(&response.headers, now).or_else(|| access_regained_at(&response.headers, now));
                self.client.rate_limited(until, Some(&code))
            }
            Kind::DailyLimit => self.client.daily_limit("posts", DAILY_LIMIT_PAUSE, &code),
            Kind::Transient => CallError::Transient(failure),
            Kind::ByStatus => self.client.classify_status(effect, response, Some(&code), detail),
        }
    }
}

/// Returns when a page or an account may be called again: `X-Business-Use-Case-Usage`, which is `{id: [{type,
/// estimated_time_to_regain_access}]}`, in minutes.
fn access_regained_at(headers: &HeaderMap, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let usage: Value = serde_json::from_str(headers.get("x-business-use-case-usage")?.to_str().ok()?).ok()?;
    let use_cases = usage.as_object()?.values().filter_map(Value::as_array).flatten();
    let minutes = use_cases.filter_map(|one| one["estimated_time_to_regain_access"].as_i64()).max()?;
    now.checked_add_signed(TimeDelta::try_minutes(minutes).filter(|pause| *pause > TimeDelta::zero())?)
}

/// A failed call with Meta's codes. Without codes in the response, `code` is 0 and `subcode` is `None`.
pub(crate) struct GraphFailure {
    pub(crate) code: i64,
    pub(crate) subcode: Option<i64>,
    pub(crate) error: CallError,
}

impl GraphFailure {
    /// Returns the code as failures show it. Empty if the response had none.
    pub(crate) fn platform_code(&self) -> String {
        self.error.failure().platform_code.clone().unwrap_or_default()
    }
}

impl From<CallError> for GraphFailure {
    fn from(error: CallError) -> Self {
        Self { code: 0, subcode: None, error }
    }
}

/// The subcodes of a video that Facebook has not received completely.
pub(crate) const INCOMPLETE_VIDEO: [i64; 6] = [1_363_019, 1_363_021, 1_363_030, 1_363_033, 1_363_037, 1_363_041];

enum Kind {
    Reauth,
    Permanent,
    /// It is unknown whether anything was created.
    Internal,
    /// Nothing was published, and another attempt may succeed.
    Transient,
    Rate,
    /// The account has published as much as it may within 24 hours.
    DailyLimit,
    ByStatus,
}

/// Returns the class of an error, its category, and a phrase for users that says what Facebook does.
fn error_class(error: &GraphError) -> (Kind, Category, &'static str) {
    use Kind::{ByStatus, DailyLimit, Internal, Permanent, Rate, Reauth, Transient};
    match (error.code, error.error_subcode) {
        (_, Some(1_366_046)) => (Permanent, Category::Media, "does not accept an image of this post"),
        // The images are uploaded only for this post, so an earlier call published it.
        (_, Some(1_366_051)) => (Permanent, Category::DuplicateContent, "has already posted the images of this post"),
        (_, Some(1_609_005 | 1_609_008 | 2_061_006)) => {
            (Permanent, Category::InvalidContent, "does not accept the link of this post")
        }
        (_, Some(1_346_003 | 1_404_102)) => (Permanent, Category::PlatformRejected, "considers this post abuse"),
        (_, Some(1_390_008)) => (Rate, Category::RateLimited, "asks to wait"),
        (_, Some(1_404_006 | 1_404_078 | 1_404_112 | 4_854_002)) => {
            (Permanent, Category::Account, "requires an action on this account first")
        }
        // Containers of Instagram and Threads.
        (_, Some(2_207_003 | 2_207_052)) => (Transient, Category::Media, "could not download an image or a video"),
        (_, Some(2_207_020 | 2_207_006 | 2_207_008 | 2_207_027 | 2_207_032 | 2_207_053)) => {
            (Transient, Category::Media, "has not finished processing the images")
        }
        (
            _,
            Some(
                2_207_004 | 2_207_005 | 2_207_009 | 2_207_010 | 2_207_023 | 2_207_026 | 2_207_028 | 2_207_057
                | 2_207_081,
            ),
        ) => (Permanent, Category::InvalidContent, "does not accept this post"),
        (_, Some(2_207_042)) => (DailyLimit, Category::RateLimited, "asks to wait"),
        (_, Some(2_207_050)) => (Permanent, Category::Account, "has restricted this account"),
        // "Action blocked": the post may still have been published.
        (_, Some(2_207_001 | 2_207_051)) => (Internal, Category::PlatformError, "failed"),
        // Videos of Facebook: the file, the account, an upload that is not complete, and a download.
        (_, Some(1_363_022..=1_363_024 | 1_363_040 | 1_363_127..=1_363_129)) | (352 | 382, _) => {
            (Permanent, Category::InvalidContent, "does not accept the video")
        }
        (_, Some(1_363_042)) => (Permanent, Category::Account, "does not allow this page to publish the video"),
        (_, Some(subcode)) if INCOMPLETE_VIDEO.contains(&subcode) => {
            (Transient, Category::Media, "has not received the whole video")
        }
        (389, _) => (Transient, Category::Media, "could not download the video"),
        (24, _) => (Transient, Category::Media, "has not finished processing this post"),
        (_, Some(1_363_047 | 1_609_010)) => (Internal, Category::PlatformError, "had a temporary error"),
        // The page no longer exists for this token.
        (190 | 102, _) | (100, Some(33)) => (Reauth, Category::AuthExpired, "denied access; connect the account again"),
        (3 | 10 | 200..=299, _) => (Permanent, Category::Account, "does not allow this"),
        (4 | 17 | 32 | 341 | 613 | 80_001 | 80_002, _) => (Rate, Category::RateLimited, "asks to wait"),
        (368, _) => (Permanent, Category::PlatformRejected, "has blocked this"),
        (506, _) => (Permanent, Category::DuplicateContent, "already has this post"),
        (1 | 2, _) => (Internal, Category::PlatformError, "failed"),
        _ if error.is_transient => (Internal, Category::PlatformError, "had a temporary error"),
        (100, _) => (Permanent, Category::InvalidContent, "does not accept this post"),
        _ => (ByStatus, Category::PlatformRejected, "rejected this"),
    }
}

/// `appsecret_proof`: a stolen token cannot be used without the application's secret.
fn appsecret_proof(token: &str, app_secret: &str) -> String {
    match Hmac::<Sha256>::new_from_slice(app_secret.as_bytes()) {
        Ok(mut mac) => {
            mac.update(token.as_bytes());
            hexadecimal::encode(mac.finalize().into_bytes())
        }
        Err(_) => String::new(),
    }
}
