//! Connecting a location. A user may manage many locations, in several accounts (the user's own, and groups).
//!
//! Sources: developers.google.com/identity/protocols/oauth2/web-server; developers.google.com/my-business
//! (accounts.list of Account Management v1, accounts.locations.list and locations.get of Business Information v1), July
//! 2026.

use std::collections::BTreeSet;

use async_trait::async_trait;
use crier_domain::platform::{AccountKind, ConnectTarget};
use http::Method;
use serde::Deserialize;

use super::super::call::{Effect, connect_error};
use super::super::oauth::{
    AuthServer, Choice, Choices, ClientAuth, ConnectAttempt, ConnectRequest, Grant, MAX_CHOICES, OAuthConnector,
    Permission, protocol, renewal,
};
use super::super::{CallError, ConnectError, Connected};
use super::GoogleBusiness;

const SCOPES: [&str; 1] = ["https://www.googleapis.com/auth/business.manage"];

const PERMISSIONS: [Permission; 1] =
    [Permission { scopes: &SCOPES, purpose: "see your business locations, and publish and read posts on them" }];

/// The maximum number of calls to list locations, because Google decides the number of pages.
const MAX_CALLS: usize = 40;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Accounts {
    #[serde(default)]
    accounts: Vec<Named>,
    next_page_token: Option<String>,
}

#[derive(Deserialize)]
struct Named {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Locations {
    #[serde(default)]
    locations: Vec<Location>,
    next_page_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Location {
    #[serde(default)]
    name: String,
    #[serde(default)]
    title: String,
    storefront_address: Option<Address>,
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Address {
    #[serde(default)]
    address_lines: Vec<String>,
    locality: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    maps_uri: Option<String>,
}

impl Address {
    fn line(self) -> Option<String> {
        let parts: Vec<String> = self.address_lines.into_iter().chain(self.locality).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// Returns whether a name is `{kind}/{number}`. It becomes part of URLs.
fn is_name(name: &str, kind: &str) -> bool {
    let number = name.strip_prefix(kind).and_then(|rest| rest.strip_prefix('/')).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

fn unavailable(error: CallError) -> ConnectError {
    connect_error(error, None)
}

impl GoogleBusiness {
    pub(super) fn auth_server(&self) -> AuthServer {
        let authorize = format!("{}/o/oauth2/v2/auth", self.hosts.site);
        let mut server = AuthServer::new(authorize, format!("{}/token", self.hosts.tokens), &SCOPES);
        server.client_auth = ClientAuth::Form;
        // Without a new consent, Google returns no refresh token.
        server.extra = [("access_type", "offline"), ("prompt", "consent")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec();
        server
    }

    async fn accounts(&self, token: &str, calls: &mut usize) -> Result<Vec<String>, CallError> {
        let (mut found, mut page) = (Vec::new(), None::<String>);
        loop {
            *calls += 1;
            let mut query = vec![("pageSize", "20")];
            query.extend(page.as_deref().map(|page| ("pageToken", page)));
            let request = self.request(Method::GET, &self.hosts.accounts, "/v1/accounts", token).query(&query);
            let part: Accounts = self.call(Effect::Repeatable, request).await?;
            found.extend(part.accounts.into_iter().map(|one| one.name).filter(|name| is_name(name, "accounts")));
            page = part.next_page_token.filter(|page| !page.is_empty());
            if page.is_none() || *calls >= MAX_CALLS {
                return Ok(found);
            }
        }
    }

    /// Adds the locations of one account. A location that is in several accounts is added once, for the first.
    async fn add_locations(
        &self,
        token: &str,
        account: &str,
        seen: &mut BTreeSet<String>,
        found: &mut Vec<Choice>,
        calls: &mut usize,
    ) -> Result<(), CallError> {
        let mut page = None::<String>;
        while *calls < MAX_CALLS && found.len() < MAX_CHOICES {
            *calls += 1;
            let mut query = vec![("readMask", "name,title,storefrontAddress"), ("pageSize", "100")];
            query.extend(page.as_deref().map(|page| ("pageToken", page)));
            let path = format!("/v1/{account}/locations");
            let request = self.request(Method::GET, &self.hosts.information, &path, token).query(&query);
            let part: Locations = self.call(Effect::Repeatable, request).await?;
            let new = part.locations.into_iter().filter(|one| is_name(&one.name, "locations"));
            found.extend(new.filter(|one| seen.insert(one.name.clone())).map(|one| Choice {
                id: format!("{account}/{}", one.name),
                name: one.title,
                detail: one.storefront_address.and_then(Address::line),
            }));
            page = part.next_page_token.filter(|page| !page.is_empty());
            if page.is_none() {
                break;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl OAuthConnector for GoogleBusiness {
    fn permissions(&self, _target: ConnectTarget) -> &'static [Permission] {
        &PERMISSIONS
    }

    fn gate(&self, _target: ConnectTarget) -> Option<&'static str> {
        Some(
            "A new application has a quota of 0 for Business Profile until Google approves its operator's request for \
             access. While the application is in testing at Google, only its test users can connect, and their access \
             ends after seven days.",
        )
    }

    fn choice_noun(&self) -> &'static str {
        "location"
    }

    async fn server(&self, _request: ConnectRequest<'_>) -> Result<AuthServer, ConnectError> {
        Ok(self.auth_server())
    }

    async fn exchange(&self, attempt: &ConnectAttempt, code: &str) -> Result<Grant, ConnectError> {
        Ok(protocol::exchange(&self.client, attempt, code).await?)
    }

    async fn choices(&self, grant: &Grant) -> Result<Choices, ConnectError> {
        let (token, mut calls) = (grant.access_token(), 0);
        let accounts = self.accounts(token, &mut calls).await.map_err(unavailable)?;
        let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
        for account in &accounts {
            let added = self.add_locations(token, account, &mut seen, &mut found, &mut calls).await;
            added.map_err(unavailable)?;
        }
        Ok(Choices::Of(found))
    }

    async fn finish(&self, grant: &Grant, choice: Option<&Choice>) -> Result<Connected, ConnectError> {
        let gone = || ConnectError::Rejected("This location is no longer one of your locations.".to_owned());
        let whole = choice.ok_or_else(gone)?.id.as_str();
        let start = whole.find("locations/").ok_or_else(gone)?;
        let name = &whole[start..];
        let request = self
            .request(Method::GET, &self.hosts.information, &format!("/v1/{name}"), grant.access_token())
            .query(&[("readMask", "name,title,metadata")]);
        let location: Location = self.call(Effect::Repeatable, request).await.map_err(unavailable)?;
        if location.name != name {
            return Err(gone());
        }
        Ok(Connected {
            profile_url: location.metadata.and_then(|metadata| metadata.maps_uri),
            renewal: Some(renewal(grant, false)),
            secrets: grant.secrets().with(&[("location", whole)]),
            ..grant.connected(AccountKind::Page, location.name, location.title)
        })
    }
}
