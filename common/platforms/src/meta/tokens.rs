//! The tokens of Instagram's own login and of Threads. A token that lasts an hour is exchanged for one that lasts 60
//! days, which is renewed with itself. As Meta documents, both calls have the token in their URL, which is not logged.

use http::Method;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::graph::Access;
use crate::call::{Effect, PlatformClient, connect_error};
use crate::oauth::protocol::Tokens;
use crate::oauth::{ConnectAttempt, Grant};
use crate::{CallError, ConnectError, ConnectorAccount, RefreshedTokens};

/// The token endpoints of one of these platforms.
pub(crate) struct LongLivedTokens<'a> {
    pub(crate) client: &'a PlatformClient,
    /// `https://graph.instagram.com`
    pub(crate) host: &'a str,
    /// The prefix of its grant types: `ig` or `th`.
    pub(crate) prefix: &'static str,
}

impl LongLivedTokens<'_> {
    /// Exchanges the code for a token that lasts 60 days.
    pub(crate) async fn exchange(&self, attempt: &ConnectAttempt, code: &str) -> Result<Grant, ConnectError> {
        let application = attempt.application();
        let secret = application.client_secret.expose_secret();
        // A multipart form, as documented. The platforms append `#_` to the code.
        let form = crier_http::multipart::Form::new()
            .text("client_id", application.client_id.clone())
            .text("client_secret", secret.to_owned())
            .text("grant_type", "authorization_code")
            .text("redirect_uri", attempt.redirect_uri.clone())
            .text("code", code.trim_end_matches("#_").to_owned());
        let request = self.client.request(Method::POST, &attempt.server.token_url).multipart(form);
        let response: Value = self.call("", request).await.map_err(|error| connect_error(error, None))?;
        let short: Tokens = serde_json::from_value(unwrapped(response))
            .map_err(|_| ConnectError::Unavailable(format!("{} returned no token.", self.client.name())))?;
        let grant = Grant::new(attempt, &short, self.client.now());
        let grant_type = format!("{}_exchange_token", self.prefix);
        let query = [
            ("grant_type", grant_type.as_str()),
            ("client_secret", secret),
            ("access_token", short.access_token_text()),
        ];
        let request = self.client.request(Method::GET, &format!("{}/access_token", self.host)).query(&query);
        let long: Tokens =
            self.call(short.access_token_text(), request).await.map_err(|error| connect_error(error, None))?;
        Ok(grant.with_access_token(long.access_token_text(), long.expires_at(self.client.now())))
    }

    /// Renews an account's token with itself.
    pub(crate) async fn refresh(&self, account: &ConnectorAccount) -> Result<RefreshedTokens, CallError> {
        let token = account.secrets.require("access_token")?;
        let grant_type = format!("{}_refresh_token", self.prefix);
        let query = [("grant_type", grant_type.as_str()), ("access_token", token.expose_secret())];
        let request = self.client.request(Method::GET, &format!("{}/refresh_access_token", self.host)).query(&query);
        let tokens: Tokens = self.call(token.expose_secret(), request).await?;
        Ok(RefreshedTokens {
            secrets: Some(account.secrets.with(&[("access_token", tokens.access_token_text())])),
            token_expires_at: tokens.expires_at(self.client.now()),
            refresh_expires_at: None,
        })
    }

    /// Sends a request. An error's message is not quoted if it contains the token.
    async fn call<T: serde::de::DeserializeOwned>(
        &self,
        token: &str,
        request: crier_http::RequestBuilder,
    ) -> Result<T, CallError> {
        let (token, app_secret) = (SecretString::from(token), SecretString::default());
        let access = Access { client: self.client, graph: self.host, token, app_secret };
        access.call(Effect::Repeatable, request).await
    }
}

/// Returns the token object: Instagram returns it directly or in a list.
fn unwrapped(response: Value) -> Value {
    let mut tokens = match response.pointer("/data/0") {
        Some(first) => first.clone(),
        None => response,
    };
    // The scopes may have another name.
    if let Some(scope) = tokens.get("permissions").cloned() {
        tokens["scope"] = scope;
    }
    tokens
}
