//! Sends every connector call ([`PlatformClient::send`]) and classifies its errors.
//!
//! The class of a failed call depends on whether the platform may have received the request, and on whether a duplicate
//! would do harm ([`Effect`]). A connector first handles the platform's own error codes and leaves the rest to
//! [`PlatformClient::classify_status`].
//!
//! Messages are short and written for users. They never contain a URL, a header or a raw body, because a URL may
//! contain a token.

use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use crier_base::clock::Clock;
use crier_domain::catalogue;
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::Platform;
use crier_http::{HttpClient, HttpError, HttpResponse, RequestBuilder, parse_date};
use crier_telemetry::metrics;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::de::DeserializeOwned;

use super::video::transfer_time;
use super::window::record_platform_clock;
use super::{AcceptedPost, CallError, ConnectError, Image, Marker};

/// The effect of sending a request twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing visible on the platform: a lookup, or an upload that no post references yet.
    Repeatable,
    /// A duplicate post. If the request may have arrived, the outcome is `Unknown`.
    Publishes,
}

/// The failure code of a call that the address guard blocked.
pub(super) const BLOCKED: &str = "blocked_address";

/// The maximum pause accepted from a platform. If the limit lasts longer, the next call returns a new time.
const MAX_PAUSE: TimeDelta = TimeDelta::hours(24);

/// The pause for an account after a call that fails until the operator changes something.
const MISCONFIGURED_PAUSE: TimeDelta = TimeDelta::hours(6);

/// The HTTP client of one platform.
#[derive(Clone, Debug)]
pub struct PlatformClient {
    http: HttpClient,
    platform: Platform,
    clock: Clock,
    /// Sent with every request.
    headers: HeaderMap,
}

impl PlatformClient {
    pub fn new(platform: Platform, http: HttpClient, clock: Clock) -> Self {
        Self { http, platform, clock, headers: HeaderMap::new() }
    }

    /// Returns a client that adds a header to every request. `None` adds nothing.
    pub(super) fn with_header(mut self, name: HeaderName, value: Option<HeaderValue>) -> Self {
        self.headers.extend(value.map(|value| (name, value)));
        self
    }

    /// Returns the platform's display name.
    pub fn name(&self) -> &'static str {
        catalogue::descriptor(self.platform).name
    }

    pub fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    pub fn request(&self, method: Method, url: &str) -> RequestBuilder {
        self.http.request(method, url).headers(self.headers.clone())
    }

    /// Sends the request. Any response is `Ok`, whatever its status.
    pub async fn send(&self, effect: Effect, request: RequestBuilder) -> Result<HttpResponse, CallError> {
        self.send_with(&self.http, effect, request).await
    }

    async fn send_with(
        &self,
        http: &HttpClient,
        effect: Effect,
        request: RequestBuilder,
    ) -> Result<HttpResponse, CallError> {
        let response = http.send(request).await;
        metrics::platform_request(self.platform.as_str(), response.as_ref().ok().map(|a| a.status));
        if let Ok(response) = &response {
            record_platform_clock(&response.headers, self.clock.now());
        }
        response.map_err(|error| self.classify_no_response(effect, &error))
    }

    /// Sends a request whose body has this number of bytes of a video. The deadline is that of other requests, and the
    /// time of the transfer.
    pub async fn send_bytes(
        &self,
        effect: Effect,
        request: RequestBuilder,
        bytes: u64,
    ) -> Result<HttpResponse, CallError> {
        self.send_with(&self.http.with_more_time(transfer_time(bytes)), effect, request).await
    }

    /// Returns whether a host accepts connections, whatever it returns.
    pub(super) async fn accepts_connections(&self, url: &str) -> bool {
        match self.http.send(self.request(Method::GET, url)).await {
            Ok(_) => true,
            Err(error) => error.may_have_arrived(),
        }
    }

    /// Parses the body of a successful response. If that fails, the effect of the call is unknown.
    pub fn read<T: DeserializeOwned>(&self, effect: Effect, response: &HttpResponse) -> Result<T, CallError> {
        let parsed = if response.truncated { None } else { serde_json::from_slice(&response.body).ok() };
        parsed.ok_or_else(|| self.classify_unknown_effect(effect, "sent an unreadable response", None))
    }

    /// Classifies a failed call only by its status. `detail` is the platform's own message, already sanitized by
    /// [`sanitize_message`].
    pub fn classify_status(
        &self,
        effect: Effect,
        response: &HttpResponse,
        code: Option<&str>,
        detail: Option<String>,
    ) -> CallError {
        let (name, status) = (self.name(), response.status);
        let code = code.map_or_else(|| status.as_u16().to_string(), str::to_owned);
        let with = |category, text: &str| {
            let message = match &detail {
                Some(detail) => format!("{name} {text}: {detail}"),
                None => format!("{name} {text}."),
            };
            Failure::of(category, message).from_platform(&code)
        };
        match status.as_u16() {
            429 => {
                let until = retry_at(&response.headers, self.clock.now());
                self.rate_limited(until, Some(&code))
            }
            500.. => self.classify_unknown_effect(
                effect,
                &format!("had an internal error ({})", status.as_u16()),
                Some(&code),
            ),
            // 408, 425: the server reports that it did not process the request.
            408 | 425 => CallError::Transient(with(Category::PlatformError, "requested a retry")),
            401 => CallError::Reauth(with(
                Category::AuthExpired,
                "rejected the credentials; check them and connect the account again",
            )),
            403 => CallError::Permanent(with(Category::PlatformRejected, "does not allow this")),
            413 => CallError::Permanent(with(Category::InvalidContent, "rejected this as too large")),
            300..=399 => CallError::Permanent(with(
                Category::Account,
                "has moved to another URL; connect the account again with the new URL",
            )),
            _ => CallError::Permanent(with(Category::PlatformRejected, "rejected this")),
        }
    }

    /// Returns the error for a pause requested until `until`.
    pub fn rate_limited(&self, until: Option<DateTime<Utc>>, code: Option<&str>) -> CallError {
        let latest = self.clock.now() + MAX_PAUSE;
        let failure = Failure::of(Category::RateLimited, format!("{} is limiting the rate of requests.", self.name()))
            .from_platform(code.unwrap_or("429"));
        CallError::RateLimited { until: until.map(|at| at.min(latest)), failure }
    }

    /// Returns the error for a call that fails, for every post, until the operator changes something. Pauses the
    /// account's posts and logs an error. `message` says what to change.
    pub(super) fn misconfigured(&self, message: &str, code: &str) -> CallError {
        tracing::error!(platform = self.platform.as_str(), code, "{message}");
        let failure = Failure::misconfigured(message).from_platform(code);
        CallError::RateLimited { until: Some(self.clock.now() + MISCONFIGURED_PAUSE), failure }
    }

    /// Returns the error for a limit that may last a day, of `what` the account may publish. Only this post waits for the
    /// pause, because the account's other posts may not be limited.
    pub(super) fn daily_limit(&self, what: &str, pause: TimeDelta, code: &str) -> CallError {
        let message = format!(
            "{}'s daily limit for {what} is reached. Crier retries until the limit ends. If all attempts fail, retry \
             on another day.",
            self.name()
        );
        let failure = Failure::daily_limit(message).from_platform(code);
        CallError::RateLimited { until: Some(self.clock.now() + pause), failure }
    }

    /// Returns the failure of an account whose tokens the platform no longer accepts and cannot renew.
    pub(super) fn reconnect_required(&self) -> Failure {
        let message = format!("{} no longer accepts this authorization; connect the account again.", self.name());
        Failure::of(Category::AuthExpired, message)
    }

    /// Returns the error for a post whose id is unknown, or is not one of the platform's.
    pub(super) fn unknown_post(&self) -> CallError {
        let name = self.name();
        let message = format!(
            "Crier does not know the ID of this post on {name}, so it cannot delete the post or comment on it. Use \
             {name} for this."
        );
        CallError::Permanent(Failure::of(Category::Internal, message))
    }

    /// Returns the error for a pause of a number of seconds from now.
    pub fn rate_limited_for(&self, seconds: i64) -> CallError {
        let pause = TimeDelta::try_seconds(seconds.max(0)).unwrap_or(MAX_PAUSE).min(MAX_PAUSE);
        self.rate_limited(Some(self.clock.now() + pause), None)
    }

    /// Returns the error for a post that the platform accepted and publishes later.
    pub fn accepted(&self, marker: Marker, pause: TimeDelta) -> CallError {
        let message = format!("{} has accepted this post and is processing it.", self.name());
        let post = Box::new(AcceptedPost { marker, pause });
        CallError::Accepted { post, failure: Failure::of(Category::PlatformError, message) }
    }

    /// Classifies a call whose effect on the platform is unknown.
    pub(super) fn classify_unknown_effect(&self, effect: Effect, what: &str, code: Option<&str>) -> CallError {
        let name = self.name();
        let failure = |category, message| {
            let failure = Failure::of(category, message);
            match code {
                Some(code) => failure.from_platform(code),
                None => failure,
            }
        };
        match effect {
            Effect::Repeatable => CallError::Transient(failure(Category::PlatformError, format!("{name} {what}."))),
            Effect::Publishes => CallError::Unknown(failure(
                Category::OutcomeUnknown,
                format!("{name} {what} after the post was sent: it may have been published."),
            )),
        }
    }

    /// Classifies a request that got no response.
    fn classify_no_response(&self, effect: Effect, error: &HttpError) -> CallError {
        let name = self.name();
        match error {
            HttpError::Blocked(_) => CallError::Permanent(Failure::with_code(
                Category::Account,
                BLOCKED,
                format!("The URL of this {name} account points to a network that Crier must not access."),
            )),
            HttpError::Invalid(_) => CallError::Permanent(Failure::of(
                Category::Account,
                format!("The URL or the credentials of this {name} account are not valid. Connect the account again."),
            )),
            _ if error.may_have_arrived() && effect == Effect::Publishes => CallError::Unknown(Failure::of(
                Category::OutcomeUnknown,
                format!("The connection to {name} was lost before it responded: the post may have been published."),
            )),
            HttpError::Dns => CallError::network(format!("The host name of {name} could not be resolved.")),
            HttpError::Connect => CallError::network(format!("{name} could not be reached.")),
            HttpError::Tls(_) => CallError::network(format!("No secure connection to {name} could be established.")),
            HttpError::Timeout { .. } => CallError::network(format!("{name} did not respond in time.")),
            HttpError::Broken => CallError::network(format!("The connection to {name} was lost.")),
        }
    }
}

/// Converts a failed call during connect to `Field`, `Rejected` or `Unavailable`. `address` is the credentials field that
/// contains the URL, if any.
pub(super) fn connect_error(error: CallError, address: Option<&'static str>) -> ConnectError {
    match (error, address) {
        (CallError::Permanent(failure), Some(field)) if failure.code == BLOCKED => {
            ConnectError::Field { field, message: "The URL must point to a public network.".to_owned() }
        }
        (
            CallError::AuthExpired(failure)
            | CallError::Reauth(failure)
            | CallError::Permanent(failure)
            | CallError::Duplicate { failure, .. },
            _,
        ) => ConnectError::Rejected(failure.message),
        (CallError::RateLimited { failure, .. }, _) if failure.waits_for_operator() => {
            ConnectError::Rejected(failure.message)
        }
        (CallError::RateLimited { failure, .. } | CallError::Accepted { failure, .. }, _)
        | (
            CallError::Transient(failure)
            | CallError::ParentMissing(failure)
            | CallError::UploadsMissing(failure)
            | CallError::Unknown(failure),
            _,
        ) => ConnectError::Unavailable(failure.message),
    }
}

/// Sanitizes a platform's message for quoting: one line of at most 200 characters without markup. Returns `None` if
/// nothing is left, or if the text contains one of `secrets` because the platform echoed it.
pub(super) fn sanitize_message(text: &str, secrets: &[&str]) -> Option<String> {
    if secrets.iter().any(|secret| !secret.is_empty() && text.contains(secret)) {
        return None;
    }
    let mut plain = String::new();
    let mut in_tag = false;
    for c in text.chars() {
        match c {
            '<' => in_tag = true,
            '>' if in_tag => in_tag = false,
            _ if in_tag => {}
            c if c.is_whitespace() || c.is_control() => plain.push(' '),
            c => plain.push(c),
        }
    }
    let mut line = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(200) {
        line.truncate(end);
        line.push('…');
    }
    (!line.is_empty()).then_some(line)
}

/// Returns when the platform may be called again: `Retry-After` (RFC 9110, seconds or a date), else the reset of the
/// rate limit (`RateLimit-Reset`, `X-RateLimit-Reset`: seconds from now, a unix time or a date, depending on the
/// platform).
pub fn retry_at(headers: &HeaderMap, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    ["retry-after", "ratelimit-reset", "x-ratelimit-reset", "x-rate-limit-reset"]
        .into_iter()
        .find_map(|name| parse_time(headers.get(name)?.to_str().ok()?.trim(), now))
        .map(|at| at.max(now))
}

fn parse_time(text: &str, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    // Larger numbers are Unix times, because no platform requests a pause of 30 years.
    const FIRST_DATE: i64 = 1_000_000_000;
    if let Ok(number) = text.parse::<f64>() {
        let seconds = number.ceil() as i64;
        return if seconds >= FIRST_DATE {
            DateTime::from_timestamp(seconds, 0)
        } else {
            now.checked_add_signed(TimeDelta::try_seconds(seconds.max(0))?)
        };
    }
    parse_date(text).or_else(|| DateTime::parse_from_rfc3339(text).ok().map(|date| date.to_utc()))
}

/// Returns an image as a multipart part, or an error if its type cannot be sent.
pub(super) fn image_part(image: &Image) -> Result<crier_http::multipart::Part, CallError> {
    let message = "This image type cannot be sent.";
    part(&image.bytes, &image.filename, &image.mime_type)
        .ok_or_else(|| CallError::Permanent(Failure::of(Category::Media, message)))
}

/// Returns a multipart part without copying its body.
pub(super) fn part(bytes: &Bytes, filename: &str, mime_type: &str) -> Option<crier_http::multipart::Part> {
    let length = bytes.len() as u64;
    crier_http::multipart::Part::stream_with_length(bytes.clone(), length)
        .file_name(filename.to_owned())
        .mime_str(mime_type)
        .ok()
}
