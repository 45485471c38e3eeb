//! Bluesky, via the AT Protocol. A post is a record, which Crier writes under a key of its choice.
//!
//! The key (a [`tid`]) and the time of the post are the marker. `putRecord` with `swapRecord: null` writes only if no
//! record exists; repeating it with the identical record changes nothing and returns the first response. So a call with
//! an unknown outcome can be repeated, and `getRecord` returns whether the post exists. [`thread`] writes several posts
//! in one call. [`video`] hands videos over.
//!
//! Sources: lexicons `com.atproto.repo.putRecord`, `getRecord`, `deleteRecord` (succeeds without a record),
//! `uploadBlob`, `com.atproto.identity.resolveHandle`, `app.bsky.feed.post`, `app.bsky.embed.images`,
//! `app.bsky.embed.external` (a thumb of at most 1,000,000 bytes), `app.bsky.actor.getProfile`; `xrpc.rs` for sessions.

mod analytics;
mod chats;
mod cid;
pub(super) mod facets;
mod identity;
mod inbox;
mod record;
mod thread;
mod tid;
mod video;
mod xrpc;

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, SecondsFormat, Utc};
use crier_base::clock::Clock;
use crier_config::PlatformsConfig;
use crier_domain::catalogue;
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::{AccountKind, Descriptor, Platform};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Value, json};

use self::record::{Mentions, has_uploads};
use self::xrpc::{Server, Session, XrpcError};
use super::address::{self, UrlCheck};
use super::call::{Effect, PlatformClient, connect_error};
use super::metrics::Metrics;
use super::{
    AnalyticsConnector, CallError, Clients, ConnectError, Connected, Connector, ConnectorAccount, Image, ImageTransfer,
    InboxConnector, Marker, MarkerSeed, OutgoingPost, Published, ReconcileResult, RefreshedTokens, ReplyKind,
    Revocation, Secrets, UnpublishPost, Video, VideoStep, VideoTransfer, VideoUpload, marker_field,
};

const COLLECTION: &str = "app.bsky.feed.post";

pub(super) struct Bluesky {
    trusted: PlatformClient,
    guarded: PlatformClient,
    addresses: Arc<dyn UrlCheck>,
    default_service: String,
    /// The directory of `did:plc`.
    directory: String,
    /// The service that processes videos.
    video_service: String,
    metrics: Metrics,
}

impl Bluesky {
    pub(super) fn new(config: &PlatformsConfig, clients: &Clients, clock: &Clock) -> Self {
        let caller =
            |http: &crier_http::HttpClient| PlatformClient::new(Platform::Bluesky, http.clone(), clock.clone());
        Self {
            trusted: caller(&clients.trusted),
            guarded: caller(&clients.guarded),
            addresses: clients.addresses.clone(),
            default_service: config.base_url(Platform::Bluesky, "https://bsky.social"),
            directory: config.plc_url("https://plc.directory"),
            video_service: config.video_url("https://video.bsky.app"),
            metrics: Metrics::new(Platform::Bluesky, config, clock),
        }
    }

    /// Returns the account's server: the operator's default with the trusted client, or a URL typed by a user with the
    /// guarded client.
    fn server(&self, secrets: &Secrets) -> Server {
        match secrets.get("service").map(|s| s.expose_secret().to_owned()).filter(|s| !s.is_empty()) {
            Some(base) if base != self.default_service => Server { caller: self.guarded.clone(), base },
            _ => Server { caller: self.trusted.clone(), base: self.default_service.clone() },
        }
    }

    /// Returns the credentials with a normalized `service`.
    async fn with_service(&self, credentials: &Secrets) -> Result<Secrets, ConnectError> {
        let typed = credentials.get("service").map(|s| s.expose_secret().trim().trim_end_matches('/').to_owned());
        let service = match typed {
            Some(typed) if !typed.is_empty() && typed != self.default_service => {
                address::check_submitted_url(self.addresses.as_ref(), "service", &typed).await?
            }
            _ => String::new(),
        };
        Ok(credentials.with(&[("service", &service)]))
    }

    /// Writes a record under the marker's key, unless one exists.
    async fn put_record(
        &self,
        account: &ConnectorAccount,
        marker: &Marker,
        record: Value,
    ) -> Result<Published, XrpcError> {
        let server = self.server(&account.secrets);
        let access = account.secrets.require("access_jwt")?;
        let (rkey, at) = (marker_field(marker, "rkey")?, marker_field(marker, "created_at")?);
        let body = json!({
            "repo": account.external_id,
            "collection": COLLECTION,
            "rkey": rkey,
            "record": record,
            "swapRecord": null,
        });
        let request = server.post("com.atproto.repo.putRecord").bearer_auth(access.expose_secret()).json(&body);
        match server.call::<Written>(Effect::Publishes, request).await {
            Ok(written) => Ok(published(account, rkey, written.uri)),
            // A different record exists under the key: an earlier call succeeded, and since then the text was edited, a
            // handle resolved differently, or the page of the link card changed. If it has the marker's time, it is this
            // post and must not be published twice.
            Err(failed) if failed.name == "InvalidSwap" => match self.look_up(&server, account, rkey).await? {
                Some(record) if record.value["createdAt"] == *at => Ok(published(account, rkey, record.uri)),
                _ => {
                    let message = "A different post on Bluesky has the key of this post. Duplicate this post and publish \
                                   the copy.";
                    let failure = Failure::of(Category::DuplicateContent, message).from_platform("InvalidSwap");
                    Err(CallError::Permanent(failure).into())
                }
            },
            Err(failed) => Err(failed),
        }
    }

    /// Returns the record under `rkey`, if it exists.
    async fn look_up(
        &self,
        server: &Server,
        account: &ConnectorAccount,
        rkey: &str,
    ) -> Result<Option<Record>, CallError> {
        let access = account.secrets.require("access_jwt")?;
        let query = [("repo", account.external_id.as_str()), ("collection", COLLECTION), ("rkey", rkey)];
        let request = server.get("com.atproto.repo.getRecord").query(&query).bearer_auth(access.expose_secret());
        match server.call::<Record>(Effect::Repeatable, request).await {
            Ok(record) => Ok(Some(record)),
            Err(failed) if failed.is_record_missing() => Ok(None),
            Err(failed) => Err(failed.error),
        }
    }
}

#[async_trait]
impl Connector for Bluesky {
    fn descriptor(&self) -> &'static Descriptor {
        catalogue::descriptor(Platform::Bluesky)
    }

    async fn connect(&self, _workspace_id: i64, credentials: &Secrets) -> Result<Connected, ConnectError> {
        let to_connect_error = |error: CallError| connect_error(error, Some("service"));
        let credentials = self.with_service(credentials).await?;
        let identifier = credentials.require("identifier").map_err(to_connect_error)?;
        let password = credentials.require("app_password").map_err(to_connect_error)?;
        let server = self.server(&credentials);

        let identifier = identifier.expose_secret().trim().trim_start_matches('@');
        let session =
            server.create_session(identifier, &password).await.map_err(|failed| to_connect_error(failed.error))?;
        if !session.did.starts_with("did:") {
            return Err(ConnectError::Unavailable("Bluesky returned no account.".to_owned()));
        }
        if session.active == Some(false) {
            let status = session.status.as_deref().unwrap_or("not active");
            return Err(ConnectError::Rejected(format!("This Bluesky account is {status}. Resolve this on Bluesky.")));
        }
        let handle = self.check_identity(&server, &session).await?;
        // A server without an AppView has no profiles; the account can still publish.
        let profile = profile(&server, &session).await.unwrap_or_default();
        let shown = handle.clone().unwrap_or_else(|| session.did.clone());
        Ok(Connected {
            profile_url: Some(format!("https://bsky.app/profile/{shown}")),
            name: profile.display_name.filter(|n| !n.trim().is_empty()).unwrap_or(shown),
            avatar_url: profile.avatar,
            kind: AccountKind::Profile,
            token_expires_at: session.expires_at(),
            // A session lasts two hours, and few accounts publish that often, so each publish renews it.
            renewal: None,
            limits: None,
            application: None,
            secrets: with_session(&credentials, &session),
            external_id: session.did,
            username: handle,
        })
    }

    /// Uses the refresh token, or the app password if that has expired too. Only a rejected app password expires the
    /// account.
    async fn refresh(&self, account: &ConnectorAccount) -> Result<RefreshedTokens, CallError> {
        let server = self.server(&account.secrets);
        let refreshed = match account.secrets.get("refresh_jwt").filter(|t| !t.expose_secret().is_empty()) {
            Some(token) => match server.refresh_session(&token).await {
                Ok(session) => Some(session),
                Err(failed) if matches!(failed.error, CallError::AuthExpired(_) | CallError::Reauth(_)) => None,
                Err(failed) => return Err(failed.error),
            },
            None => None,
        };
        let session = match refreshed {
            Some(session) => session,
            None => {
                let identifier = account.secrets.require("identifier")?;
                let password = account.secrets.require("app_password")?;
                let identifier = identifier.expose_secret().trim().trim_start_matches('@');
                server.create_session(identifier, &password).await?
            }
        };
        // A handle can move to another account; the DID identifies the account.
        if session.did != account.external_id {
            let message = "The identifier now belongs to another Bluesky account. Connect the account again.";
            return Err(CallError::Reauth(Failure::of(Category::AuthExpired, message)));
        }
        Ok(RefreshedTokens {
            token_expires_at: session.expires_at(),
            refresh_expires_at: None,
            secrets: Some(with_session(&account.secrets, &session)),
        })
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        record_marker(seed)
    }

    fn image_transfer(&self) -> ImageTransfer {
        ImageTransfer::Uploaded
    }

    async fn upload(
        &self,
        account: &ConnectorAccount,
        _post: &OutgoingPost,
        image: &Image,
    ) -> Result<Value, CallError> {
        let access = account.secrets.require("access_jwt")?;
        let server = self.server(&account.secrets);
        let request = server
            .post("com.atproto.repo.uploadBlob")
            .bearer_auth(access.expose_secret())
            .header(http::header::CONTENT_TYPE, &image.mime_type)
            .body(image.bytes.clone());
        // A blob that no record references is not visible, and the server deletes it later.
        Ok(server.call::<Uploaded>(Effect::Repeatable, request).await?.blob)
    }

    fn video_transfer(&self) -> VideoTransfer {
        VideoTransfer::Uploaded
    }

    async fn send_video(
        &self,
        account: &ConnectorAccount,
        post: &OutgoingPost,
        video: &Video,
    ) -> Result<VideoStep, CallError> {
        self.take_video_step(account, post, video).await
    }

    async fn abort_video(&self, account: &ConnectorAccount, upload: &VideoUpload) -> Result<(), CallError> {
        self.abort_upload(account, upload).await
    }

    async fn publish(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<Published, CallError> {
        let server = self.server(&account.secrets);
        let at = marker_field(&post.marker, "created_at")?;
        let mut record = self.record(&server, post, at, &mut Mentions::new()).await?;
        if let Some(reply_to) = &post.reply_to {
            record["reply"] = self.reply_references(&server, account, reply_to).await?;
        }
        let written = self.put_record(account, &post.marker, record).await;
        written.map_err(|failed| write_error(std::slice::from_ref(post), failed))
    }

    fn publishes_whole_threads(&self) -> bool {
        true
    }

    async fn publish_thread(
        &self,
        account: &ConnectorAccount,
        parts: &[OutgoingPost],
    ) -> Result<Vec<Published>, CallError> {
        self.write_thread(account, parts).await
    }

    async fn reconcile(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<ReconcileResult, CallError> {
        let rkey = marker_field(&post.marker, "rkey")?;
        let found = self.look_up(&self.server(&account.secrets), account, rkey).await?;
        Ok(found.map_or(ReconcileResult::Absent, |record| ReconcileResult::Found(published(account, rkey, record.uri))))
    }

    async fn reconcile_thread(
        &self,
        account: &ConnectorAccount,
        parts: &[OutgoingPost],
    ) -> Result<Option<Vec<Published>>, CallError> {
        self.find_thread(account, parts).await
    }

    async fn unpublish(&self, account: &ConnectorAccount, post: &UnpublishPost) -> Result<(), CallError> {
        let rkey = own_key(account, &post.external_id)?;
        let access = account.secrets.require("access_jwt")?;
        let body = json!({ "repo": account.external_id, "collection": COLLECTION, "rkey": rkey });
        let server = self.server(&account.secrets);
        let request = server.post("com.atproto.repo.deleteRecord").bearer_auth(access.expose_secret()).json(&body);
        match server.send(Effect::Repeatable, request).await {
            Err(failed) if !failed.is_record_missing() => Err(failed.error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn analytics(&self) -> Option<&dyn AnalyticsConnector> {
        Some(self)
    }

    fn inbox(&self) -> Option<&dyn InboxConnector> {
        Some(self)
    }

    fn revocation(&self) -> Option<Revocation> {
        Some(Revocation::Token)
    }

    async fn revoke(&self, account: &ConnectorAccount) -> Result<(), CallError> {
        let Some(token) = account.secrets.get("refresh_jwt") else { return Ok(()) };
        Ok(self.server(&account.secrets).delete_session(&token).await?)
    }
}

/// Returns the key and the time of a record, or the keys and the time of the first record of a thread.
fn record_marker(seed: MarkerSeed) -> Marker {
    // Targets created in the same microsecond have ids close to each other, so their lowest bits differ. A comment may
    // be created in the same microsecond as its post.
    let bit_of_comment = if seed.reply == Some(ReplyKind::Comment) { 0x200 } else { 0 };
    let clock = seed.target_id.unsigned_abs() ^ bit_of_comment;
    let mut marker = Marker::new();
    marker.insert("rkey".to_owned(), Value::from(tid::tid(seed.at, clock)));
    marker.insert("created_at".to_owned(), Value::from(time_text(seed.at)));
    if seed.parts > 1 {
        let keys = (0..seed.parts).map(|part| tid::tid(thread::time_of_part(seed.at, part), clock));
        marker.insert("rkeys".to_owned(), keys.collect());
    }
    marker
}

fn time_text(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Returns the error for posts that the server did not write.
fn write_error(posts: &[OutgoingPost], failed: XrpcError) -> CallError {
    if !failed.is_blob_gone() || !posts.iter().any(has_uploads) {
        return failed.error;
    }
    let message = "Bluesky deleted an image or video that was uploaded earlier. Crier uploads it again.";
    CallError::UploadsMissing(Failure::of(Category::Media, message).from_platform(&failed.name))
}

/// Returns the DID of a handle, or `None` if it cannot be resolved. The mention then stays plain text.
async fn resolve(server: &Server, handle: &str) -> Option<String> {
    let request = server.get("com.atproto.identity.resolveHandle").query(&[("handle", handle)]);
    let resolved: Resolved = server.call(Effect::Repeatable, request).await.ok()?;
    resolved.did.starts_with("did:").then_some(resolved.did)
}

async fn profile(server: &Server, session: &Session) -> Option<Profile> {
    let request = server
        .get("app.bsky.actor.getProfile")
        .query(&[("actor", &session.did)])
        .bearer_auth(session.access_jwt.expose_secret());
    server.call(Effect::Repeatable, request).await.ok()
}

/// Returns the secrets with a session's tokens. An empty token never replaces an existing one.
fn with_session(secrets: &Secrets, session: &Session) -> Secrets {
    let tokens =
        [("access_jwt", session.access_jwt.expose_secret()), ("refresh_jwt", session.refresh_jwt.expose_secret())];
    let tokens: Vec<_> = tokens.into_iter().filter(|(_, token)| !token.is_empty()).collect();
    secrets.with(&tokens)
}

fn uri(account: &ConnectorAccount, rkey: &str) -> String {
    format!("at://{}/{COLLECTION}/{rkey}", account.external_id)
}

/// Returns the key of a post of the account.
fn own_key<'a>(account: &ConnectorAccount, post: &'a str) -> Result<&'a str, CallError> {
    let key = post.strip_prefix(&uri(account, "")).filter(|key| !key.is_empty() && !key.contains('/'));
    key.ok_or_else(|| {
        let message = "This post does not belong to this Bluesky account.";
        CallError::Permanent(Failure::of(Category::Account, message))
    })
}

fn published(account: &ConnectorAccount, rkey: &str, uri: String) -> Published {
    Published::new(uri, Some(format!("https://bsky.app/profile/{}/post/{rkey}", account.external_id)))
}

#[derive(Deserialize)]
struct Uploaded {
    blob: Value,
}

#[derive(Deserialize)]
struct Written {
    uri: String,
}

#[derive(Deserialize)]
struct Record {
    uri: String,
    cid: Option<String>,
    #[serde(default)]
    value: Value,
}

#[derive(Deserialize)]
struct Resolved {
    did: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Profile {
    display_name: Option<String>,
    avatar: Option<String>,
}
