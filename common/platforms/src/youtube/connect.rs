//! Connecting a channel. The person chooses it on Google's page, so there is nothing to choose afterward.
//!
//! Sources: developers.google.com/identity/protocols/oauth2/web-server; developers.google.com/youtube ("Channels:
//! list"), November 2026.

use async_trait::async_trait;
use crier_domain::platform::{AccountKind, ConnectTarget};
use http::Method;
use serde::Deserialize;

use super::rest::{List, NO_CHANNEL};
use super::{Youtube, is_id};
use crate::call::{Effect, connect_error};
use crate::oauth::{
    AuthServer, Choice, ClientAuth, ConnectAttempt, ConnectRequest, Grant, OAuthConnector, Permission, protocol,
    renewal,
};
use crate::{ConnectError, Connected};

const UPLOAD: &str = "https://www.googleapis.com/auth/youtube.upload";
const READ: &str = "https://www.googleapis.com/auth/youtube.readonly";
/// The permission for comments and deletion. People can deselect it.
pub(crate) const MANAGE: &str = "https://www.googleapis.com/auth/youtube.force-ssl";
const ANALYTICS: &str = "https://www.googleapis.com/auth/yt-analytics.readonly";

const PERMISSIONS: [Permission; 4] = [
    Permission { scopes: &[UPLOAD], purpose: "publish videos on your channel" },
    Permission { scopes: &[READ], purpose: "see your channel, its videos, and their views and likes" },
    Permission { scopes: &[MANAGE], purpose: "read and write comments, and delete videos that you unpublish" },
    Permission { scopes: &[ANALYTICS], purpose: "see the analytics of your channel" },
];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Channel {
    id: String,
    snippet: Snippet,
    content_details: ContentDetails,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Snippet {
    #[serde(default)]
    title: String,
    /// The handle, with `@`.
    custom_url: Option<String>,
    #[serde(default)]
    thumbnails: Thumbnails,
}

#[derive(Default, Deserialize)]
struct Thumbnails {
    medium: Option<Thumbnail>,
    default: Option<Thumbnail>,
}

#[derive(Deserialize)]
struct Thumbnail {
    url: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContentDetails {
    related_playlists: RelatedPlaylists,
}

#[derive(Deserialize)]
struct RelatedPlaylists {
    /// The list of the channel's videos.
    #[serde(default)]
    uploads: String,
}

impl Youtube {
    pub(super) fn auth_server(&self) -> AuthServer {
        let authorize = format!("{}/o/oauth2/v2/auth", self.hosts.site);
        let mut server = AuthServer::new(authorize, format!("{}/token", self.hosts.tokens), &[UPLOAD, READ]);
        // An account without these can publish.
        server.further_scopes = [MANAGE, ANALYTICS].map(str::to_owned).to_vec();
        server.client_auth = ClientAuth::Form;
        // Without a new consent, Google returns no refresh token. Without the choice of an account, it may connect the
        // same channel again.
        server.extra = [("access_type", "offline"), ("prompt", "consent select_account")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec();
        server
    }
}

#[async_trait]
impl OAuthConnector for Youtube {
    fn permissions(&self, _target: ConnectTarget) -> &'static [Permission] {
        &PERMISSIONS
    }

    fn gate(&self, _target: ConnectTarget) -> Option<&'static str> {
        Some(
            "Until Google has verified the application, Google shows a warning, and at most 100 people can connect. \
             While the application is in testing at Google, only its test users can connect, and their access ends \
             after seven days.",
        )
    }

    fn choice_noun(&self) -> &'static str {
        "channel"
    }

    async fn server(&self, _request: ConnectRequest<'_>) -> Result<AuthServer, ConnectError> {
        Ok(self.auth_server())
    }

    async fn exchange(&self, attempt: &ConnectAttempt, code: &str) -> Result<Grant, ConnectError> {
        Ok(protocol::exchange(&self.client, attempt, code).await?)
    }

    async fn finish(&self, grant: &Grant, _choice: Option<&Choice>) -> Result<Connected, ConnectError> {
        let query = [("part", "snippet,contentDetails"), ("mine", "true")];
        let request = self.request(Method::GET, "/youtube/v3/channels", grant.access_token()).query(&query);
        let found: List = self.call(Effect::Repeatable, request).await.map_err(|error| connect_error(error, None))?;
        if found.items.is_empty() {
            return Err(ConnectError::Rejected(NO_CHANNEL.to_owned()));
        }
        let channel = found.read::<Channel>().into_iter().next().filter(|channel| is_id(&channel.id));
        let channel = channel.ok_or_else(|| ConnectError::Unavailable("YouTube returned no channel.".to_owned()))?;
        let thumbnails = channel.snippet.thumbnails;
        let handle = channel.snippet.custom_url.map(|handle| handle.trim_start_matches('@').to_owned());
        Ok(Connected {
            profile_url: Some(format!("https://www.youtube.com/channel/{}", channel.id)),
            username: handle.filter(|handle| !handle.is_empty()),
            avatar_url: thumbnails.medium.or(thumbnails.default).map(|thumbnail| thumbnail.url),
            renewal: Some(renewal(grant, false)),
            secrets: grant.secrets().with(&[("uploads", channel.content_details.related_playlists.uploads.as_str())]),
            ..grant.connected(AccountKind::Channel, channel.id, channel.snippet.title)
        })
    }
}
