//! Facebook Login, for Facebook pages and for the Instagram accounts behind them. The user's token is exchanged for one
//! that lasts 60 days, which lists the pages. Each page has its own token.

use chrono::{DateTime, Utc};
use http::{Method, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::graph::{Access, List};
use crate::call::{Effect, PlatformClient, connect_error};
use crate::oauth::{AuthServer, ClientAuth, ConnectAttempt, Grant, MAX_CHOICES, protocol};
use crate::{CallError, ConnectError};

const PAGES_PER_CALL: &str = "100";

/// Facebook Login of one platform.
pub(crate) struct FacebookLogin<'a> {
    pub(crate) client: &'a PlatformClient,
    /// `https://graph.facebook.com/v25.0`
    pub(crate) graph: &'a str,
    /// The authorization page.
    pub(crate) dialog: &'a str,
}

#[derive(Deserialize)]
struct GrantedPermission {
    permission: String,
    #[serde(default)]
    status: String,
}

fn unavailable(error: CallError) -> ConnectError {
    connect_error(error, None)
}

impl<'a> FacebookLogin<'a> {
    pub(crate) fn server(&self, scopes: &[&str]) -> AuthServer {
        let token_url = format!("{}/oauth/access_token", self.graph);
        let mut server = AuthServer::new(self.dialog, token_url, scopes);
        server.separator = ',';
        server.client_auth = ClientAuth::Form;
        server.pkce = false;
        server
    }

    /// Exchanges the code for the user's token, with the permissions that the user left enabled.
    pub(crate) async fn exchange(&self, attempt: &ConnectAttempt, code: &str) -> Result<Grant, ConnectError> {
        let grant = protocol::exchange(self.client, attempt, code).await.map_err(|failure| {
            // Facebook rejects a code with an error in its own format.
            match (failure.status, failure.code.is_none()) {
                (Some(StatusCode::BAD_REQUEST), true) => ConnectError::Rejected(
                    "Facebook no longer accepts this login. Connect the account again.".to_owned(),
                ),
                _ => failure.into(),
            }
        })?;
        let (token, ends_at) = self.long_lived(attempt, &grant).await?;
        let mut grant = grant.with_access_token(&token, ends_at);
        grant.scopes = Some(self.granted(&grant).await?);
        Ok(grant)
    }

    /// Returns the API access with the user's token.
    pub(crate) fn access(&self, grant: &Grant) -> Access<'a> {
        let (token, app_secret) = (SecretString::from(grant.access_token()), grant.application().client_secret);
        Access { client: self.client, graph: self.graph, token, app_secret }
    }

    /// Lists the user's pages with these fields.
    pub(crate) async fn pages<T: DeserializeOwned>(&self, grant: &Grant, fields: &str) -> Result<Vec<T>, ConnectError> {
        let access = self.access(grant);
        let (mut found, mut after) = (Vec::new(), None::<String>);
        loop {
            let mut query = vec![("fields", fields), ("limit", PAGES_PER_CALL)];
            query.extend(after.as_deref().map(|after| ("after", after)));
            let request = access.request(Method::GET, "me/accounts").query(&query);
            let list: List<T> = access.call(Effect::Repeatable, request).await.map_err(unavailable)?;
            let (is_empty, next) = (list.data.is_empty(), list.next());
            found.extend(list.data);
            // The same cursor twice would be an endless loop.
            if is_empty || next.is_none() || next == after || found.len() >= MAX_CHOICES {
                return Ok(found);
            }
            after = next;
        }
    }

    /// Exchanges the user's token for a long-lived one.
    async fn long_lived(
        &self,
        attempt: &ConnectAttempt,
        grant: &Grant,
    ) -> Result<(String, Option<DateTime<Utc>>), ConnectError> {
        let application = attempt.application();
        let form = [
            ("grant_type", "fb_exchange_token"),
            ("client_id", &application.client_id),
            ("client_secret", application.client_secret.expose_secret()),
            ("fb_exchange_token", grant.access_token()),
        ];
        let request = self.client.request(Method::POST, &attempt.server.token_url).form(&form);
        let response = self.client.send(Effect::Repeatable, request).await.map_err(unavailable)?;
        if !response.status.is_success() {
            let error = self.client.classify_status(Effect::Repeatable, &response, None, None);
            return Err(unavailable(error));
        }
        let tokens: protocol::Tokens = self.client.read(Effect::Repeatable, &response).map_err(unavailable)?;
        Ok((tokens.access_token_text().to_owned(), tokens.expires_at(self.client.now())))
    }

    async fn granted(&self, grant: &Grant) -> Result<Vec<String>, ConnectError> {
        let access = self.access(grant);
        let request = access.request(Method::GET, "me/permissions");
        let all: List<GrantedPermission> = access.call(Effect::Repeatable, request).await.map_err(unavailable)?;
        let granted = all.data.into_iter().filter(|one| one.status == "granted");
        Ok(granted.map(|one| one.permission).collect())
    }
}
