//! Calls to one Mastodon server and their errors: `{"error": "…"}`, sometimes with `error_description`.

use chrono::{DateTime, Utc};
use crier_domain::failure::{Category, Failure};
use crier_http::{HttpResponse, RequestBuilder};
use http::{Method, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::super::call::{Effect, PlatformClient, sanitize_message};
use super::super::window::CallWindow;
use super::super::{CallError, ReconcileResult};
use super::{MAX_RECENT_POSTS, Status};

/// A server, and the token to call it with.
pub(super) struct Instance<'a> {
    pub(super) client: &'a PlatformClient,
    pub(super) base: String,
    pub(super) token: Option<SecretString>,
}

#[derive(Deserialize)]
pub(super) struct OwnAccount {
    pub(super) id: String,
    pub(super) username: String,
    #[serde(default)]
    pub(super) display_name: String,
    pub(super) url: Option<String>,
    pub(super) avatar: Option<String>,
}

#[derive(Deserialize, Default)]
struct ErrorBody {
    #[serde(default)]
    error: String,
    error_description: Option<String>,
}

impl Instance<'_> {
    /// Starts a request to a path of the server.
    pub(super) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, &format!("{}{path}", self.base));
        match &self.token {
            Some(token) => request.bearer_auth(token.expose_secret()),
            None => request,
        }
    }

    /// Sends a request and parses its response.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        effect: Effect,
        request: RequestBuilder,
    ) -> Result<T, CallError> {
        let response = self.client.send(effect, request).await?;
        if response.status.is_success() {
            return self.client.read(effect, &response);
        }
        Err(self.error_of(effect, &response))
    }

    /// Returns the error of a failed call.
    pub(super) fn error_of(&self, effect: Effect, response: &HttpResponse) -> CallError {
        let body: ErrorBody = serde_json::from_slice(&response.body).unwrap_or_default();
        let token = self.token.as_ref().map(|token| token.expose_secret()).unwrap_or_default();
        let text = body.error_description.as_deref().unwrap_or(&body.error);
        let detail = sanitize_message(text, &[token]);
        let name = self.client.name();
        let sentence = |what: &str| match &detail {
            Some(detail) => format!("{name} {what}: {detail}"),
            None => format!("{name} {what}."),
        };
        let code = response.status.as_str().to_owned();
        let failure = |category, what: &str| Failure::of(category, sentence(what)).from_platform(&code);
        match response.status {
            StatusCode::UNPROCESSABLE_ENTITY => {
                CallError::Permanent(failure(Category::InvalidContent, "does not accept this post"))
            }
            // The account is suspended or limited, or the token lacks a scope. Only the account's owner can change
            // that.
            StatusCode::FORBIDDEN => CallError::Permanent(failure(Category::Account, "does not allow this")),
            StatusCode::NOT_FOUND if effect == Effect::Publishes => {
                CallError::Permanent(failure(Category::PlatformRejected, "could not find this"))
            }
            _ => self.client.classify_status(effect, response, None, detail),
        }
    }

    /// Returns the account of the token.
    pub(super) async fn own_account(&self) -> Result<OwnAccount, CallError> {
        let request = self.request(Method::GET, "/api/v1/accounts/verify_credentials");
        self.call(Effect::Repeatable, request).await
    }

    /// Returns the visibility of a status. `None` if the server does not state it.
    pub(super) async fn visibility(&self, status_id: &str) -> Result<Option<String>, CallError> {
        #[derive(Deserialize)]
        struct Visibility {
            visibility: Option<String>,
        }
        let request = self.request(Method::GET, &format!("/api/v1/statuses/{}", segment(status_id)));
        Ok(self.call::<Visibility>(Effect::Repeatable, request).await?.visibility)
    }

    /// Returns the source of a status. `None` if the server does not provide it.
    pub(super) async fn source(&self, status_id: &str) -> Result<Option<String>, CallError> {
        #[derive(Deserialize)]
        struct Source {
            text: String,
        }
        let request = self.request(Method::GET, &format!("/api/v1/statuses/{}/source", segment(status_id)));
        let response = self.client.send(Effect::Repeatable, request).await?;
        match response.status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => Ok(Some(self.client.read::<Source>(Effect::Repeatable, &response)?.text)),
            _ => Err(self.client.classify_status(Effect::Repeatable, &response, None, None)),
        }
    }

    /// Searches the account's newest statuses. `is_candidate` filters statuses without their source; `text_matches`
    /// checks their text.
    pub(super) async fn find(
        &self,
        account_id: &str,
        called_at: Option<DateTime<Utc>>,
        is_candidate: impl Fn(&Status) -> bool,
        text_matches: impl Fn(&str) -> bool,
    ) -> Result<ReconcileResult, CallError> {
        let path = format!("/api/v1/accounts/{}/statuses", segment(account_id));
        let query = [("limit", MAX_RECENT_POSTS.to_string()), ("exclude_reblogs", "true".to_owned())];
        let request = self.request(Method::GET, &path).query(&query);
        let newest: Vec<Status> = self.call(Effect::Repeatable, request).await?;
        let window = CallWindow::of(called_at);
        let times: Vec<_> = newest.iter().map(|status| Some(status.created_at)).collect();
        let is_near = |status: &Status| window.contains(Some(status.created_at)) && status.is_ours();
        let mut found = Vec::new();
        for status in newest.into_iter().filter(|status| is_near(status) && is_candidate(status)) {
            // A server without sources provides only the rendered text.
            let text = self.source(&status.id).await?.unwrap_or_else(|| crier_html::plain_text(&status.content));
            if text_matches(&text) {
                found.push(status.published());
            }
        }
        Ok(window.result(found, window.is_covered(&times, MAX_RECENT_POSTS)))
    }

    /// Returns the status code for an uploaded image or video: 200, 206 while it is processed, 404 if it no longer
    /// exists.
    pub(super) async fn media_status(&self, id: &str) -> Result<StatusCode, CallError> {
        let request = self.request(Method::GET, &format!("/api/v1/media/{}", segment(id)));
        Ok(self.client.send(Effect::Repeatable, request).await?.status)
    }
}

/// Encodes an id as one segment of a path.
pub(super) fn segment(id: &str) -> String {
    percent_encoding::utf8_percent_encode(id, percent_encoding::NON_ALPHANUMERIC).to_string()
}
