//! Calls to TikTok and their errors: `{data, error: {code, message, log_id}}`. The code is `ok` on success; some errors
//! have the status 200. The token endpoint returns the errors of the OAuth standard.

use chrono::TimeDelta;
use crier_domain::application::Application;
use crier_domain::failure::{Category, Failure};
use crier_http::HttpResponse;
use http::Method;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Tiktok;
use crate::CallError;
use crate::call::{Effect, sanitize_message};
use crate::oauth::protocol::Tokens;

/// The pause after a daily limit of TikTok was reached, because TikTok names no time.
const CAP_PAUSE: TimeDelta = TimeDelta::hours(6);
/// The pause after a limit per minute was reached.
const MINUTE: TimeDelta = TimeDelta::minutes(1);

#[derive(Deserialize)]
struct Envelope<T> {
    data: T,
}

#[derive(Deserialize)]
struct ErrorEnvelope {
    error: ApiError,
}

#[derive(Deserialize, Default)]
struct ApiError {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

impl Tiktok {
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        effect: Effect,
        path: &str,
        token: &SecretString,
        body: &Value,
    ) -> Result<T, CallError> {
        let request = self.client.request(Method::POST, &format!("{}{path}", self.api));
        let response = self.client.send(effect, request.bearer_auth(token.expose_secret()).json(body)).await?;
        self.read(effect, &response)
    }

    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        token: &str,
        query: &[(&str, &str)],
    ) -> Result<T, CallError> {
        let request = self.client.request(Method::GET, &format!("{}{path}", self.api)).query(query);
        let response = self.client.send(Effect::Repeatable, request.bearer_auth(token)).await?;
        self.read(Effect::Repeatable, &response)
    }

    fn read<T: DeserializeOwned>(&self, effect: Effect, response: &HttpResponse) -> Result<T, CallError> {
        let error = serde_json::from_slice::<ErrorEnvelope>(&response.body).map(|body| body.error).unwrap_or_default();
        if response.status.is_success() && matches!(error.code.as_str(), "" | "ok") {
            return Ok(self.client.read::<Envelope<T>>(effect, response)?.data);
        }
        let detail = sanitize_message(&error.message, &[]);
        Err(match error.code.as_str() {
            "" | "ok" => self.client.classify_status(effect, response, None, detail),
            code @ ("internal_error" | "internal") => {
                self.client.classify_unknown_effect(effect, "had an internal error", Some(code))
            }
            // Whether a server error that Crier does not know published anything is unknown.
            code if response.status.is_server_error() => {
                self.client.classify_status(effect, response, Some(code), detail)
            }
            code => self.classify(code, detail),
        })
    }

    /// Returns the error of a post that TikTok accepted but did not publish.
    pub(super) fn failed(&self, reason: &str) -> CallError {
        self.classify(sanitize_message(reason, &[]).as_deref().unwrap_or("failed"), None)
    }

    /// Classifies an error by its code. None of these errors published anything.
    fn classify(&self, code: &str, detail: Option<String>) -> CallError {
        let with = |category, what: &str| {
            let message = match &detail {
                Some(detail) => format!("TikTok {what}: {detail}"),
                None => format!("TikTok {what}."),
            };
            Failure::of(category, message).from_platform(code)
        };
        match code {
            "access_token_invalid" | "access_token_expired" => {
                CallError::AuthExpired(with(Category::AuthExpired, "rejected the access token"))
            }
            "auth_removed" => CallError::Reauth(with(
                Category::AuthExpired,
                "reports that access was revoked; connect the account again",
            )),
            "scope_not_authorized" | "scope_permission_missed" => {
                CallError::Permanent(with(Category::Account, "requires another permission; connect the account again"))
            }
            "unaudited_client_can_only_post_to_private_accounts" => CallError::Permanent(with(
                Category::Account,
                "has not audited this application yet: until then, it can publish only on private accounts, with the \
                 visibility private",
            )),
            "url_ownership_unverified" => CallError::Permanent(with(
                Category::Account,
                "has not verified the domain of CRIER_PUBLIC_URL; the operator must verify it in TikTok's developer \
                 portal",
            )),
            "privacy_level_option_mismatch" => {
                CallError::Permanent(with(Category::InvalidContent, "does not allow this visibility for this account"))
            }
            "rate_limit_exceeded" => self.client.rate_limited(Some(self.client.now() + MINUTE), Some(code)),
            "spam_risk_too_many_posts" | "spam_risk_too_many_pending_share" => {
                self.client.daily_limit("posts", CAP_PAUSE, code)
            }
            "reached_active_user_cap" => {
                self.client.daily_limit("accounts that publish with one application", CAP_PAUSE, code)
            }
            "spam_risk_user_banned_from_posting" => {
                CallError::Permanent(with(Category::Account, "does not let this account post"))
            }
            "spam_risk_text" | "spam_risk" => {
                CallError::Permanent(with(Category::PlatformRejected, "considers this post spam"))
            }
            "photo_pull_failed" => CallError::Transient(with(Category::Media, "could not download an image")),
            "video_pull_failed" => CallError::Transient(with(Category::Media, "could not download the video")),
            "file_format_check_failed" => CallError::Permanent(with(
                Category::InvalidContent,
                "does not accept the file format or codec of an image or video of this post",
            )),
            "picture_size_check_failed" => CallError::Permanent(with(
                Category::InvalidContent,
                "does not accept the width and height of an image or video of this post",
            )),
            "duration_check_failed" => {
                CallError::Permanent(with(Category::InvalidContent, "does not accept the duration of the video"))
            }
            "frame_rate_check_failed" => {
                CallError::Permanent(with(Category::InvalidContent, "does not accept the frame rate of the video"))
            }
            "invalid_params" | "invalid_param" => {
                CallError::Permanent(with(Category::InvalidContent, "does not accept this post"))
            }
            "internal" | "internal_error" => CallError::Transient(with(Category::PlatformError, "failed")),
            _ => CallError::Permanent(with(Category::PlatformRejected, "rejected this post")),
        }
    }

    /// Calls the token endpoint, which takes the application's id as `client_key`.
    pub(super) async fn tokens(&self, application: &Application, form: &[(&str, &str)]) -> Result<Tokens, CallError> {
        #[derive(Deserialize, Default)]
        struct TokenError {
            #[serde(default)]
            error: String,
        }
        let mut fields = vec![
            ("client_key", application.client_id.as_str()),
            ("client_secret", application.client_secret.expose_secret()),
        ];
        fields.extend_from_slice(form);
        let request = self.client.request(Method::POST, &format!("{}/v2/oauth/token/", self.api)).form(&fields);
        let response = self.client.send(Effect::Repeatable, request).await?;
        if response.status.as_u16() == 429 || response.status.is_server_error() {
            return Err(self.client.classify_status(Effect::Repeatable, &response, None, None));
        }
        // Errors may have the status 200.
        let error: TokenError = serde_json::from_slice(&response.body).unwrap_or_default();
        match error.error.as_str() {
            "" if response.status.is_success() => self.client.read(Effect::Repeatable, &response),
            "invalid_grant" => Err(CallError::Reauth(self.client.reconnect_required())),
            "invalid_client" => Err(CallError::Transient(Failure::of(
                Category::Account,
                "TikTok does not accept Crier's application; the operator must check the client key and secret.",
            ))),
            _ => Err(CallError::Transient(Failure::of(Category::PlatformError, "TikTok returned no tokens."))),
        }
    }
}
