//! Connectors: the code that speaks to the platforms.
//!
//! A connector is stateless: it gets the account's secrets and the outgoing post, makes its calls, and says how they
//! ended ([`CallError`]). The worker decides what to do about it; nothing here sleeps, retries or writes to the record.
//!
//! **To add a platform:** its variant in `domain::platform::Platform`, its descriptor in `catalogue.rs`, and (when it can
//! publish) a [`Connector`] in `platforms/<name>.rs`, one line in `registry.rs`, and its tests in
//! `tests/platforms/<name>.rs` against a server that answers as the platform's documents say. All calls go through
//! [`call::Caller`], which names how they end; texts are counted by [`text`]. How it gets pictures is
//! [`Connector::pictures`]; what it takes of them is in its descriptor.

pub mod address;
mod bluesky;
pub mod call;
pub mod catalogue;
mod checked;
pub mod config;
pub mod pictures;
mod registry;
pub mod sandbox;
mod telegram;
pub mod text;
mod woocommerce;
mod wordpress;
mod wp;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::domain::account::SocialAccount;
use crate::domain::failure::{Category, Failure};
use crate::domain::platform::{AccountKind, Descriptor};
use crate::store::{StoreError, Tx};

pub use config::{PlatformConfig, PlatformsConfig};
pub use registry::{Clients, Registry};

/// The secrets of an account: what was typed into the form, or what the platform handed over. A JSON object of strings,
/// encrypted at rest; prints as `[REDACTED]`.
#[derive(Clone)]
pub struct Secrets(SecretString);

impl PartialEq for Secrets {
    fn eq(&self, other: &Self) -> bool {
        self.0.expose_secret() == other.0.expose_secret()
    }
}

impl Eq for Secrets {}

impl Secrets {
    pub fn new(fields: &Map<String, Value>) -> Self {
        Self(SecretString::from(Value::Object(fields.clone()).to_string()))
    }

    /// From what [`Secrets::expose_json`] gave; `None` where it is no JSON object.
    pub fn from_json(json: String) -> Option<Self> {
        serde_json::from_str::<Map<String, Value>>(&json).ok().map(|_| Self(SecretString::from(json)))
    }

    /// As the store keeps them.
    pub fn stored(secrets: &SecretString) -> Result<Self, StoreError> {
        Self::from_json(secrets.expose_secret().to_owned())
            .ok_or_else(|| StoreError::Decode("an account's secrets are no JSON object".into()))
    }

    /// The whole object as JSON text, for encryption.
    pub fn expose_json(&self) -> &str {
        self.0.expose_secret()
    }

    /// One field, `None` where it is absent or no string.
    pub fn get(&self, name: &str) -> Option<SecretString> {
        let fields: Map<String, Value> = serde_json::from_str(self.0.expose_secret()).ok()?;
        fields.get(name)?.as_str().map(SecretString::from)
    }

    /// One field that later calls cannot do without. Where it is absent the account has to be connected again.
    pub fn need(&self, name: &str) -> Result<SecretString, CallError> {
        self.get(name).filter(|value| !value.expose_secret().is_empty()).ok_or_else(|| {
            let message = "The stored credentials are incomplete; connect the account again.";
            CallError::Reauth(Failure::of(Category::AuthExpired, message))
        })
    }

    /// The same with some fields set to other values.
    pub fn with(&self, changes: &[(&str, &str)]) -> Self {
        let mut fields: Map<String, Value> = serde_json::from_str(self.0.expose_secret()).unwrap_or_default();
        for (name, value) in changes {
            fields.insert((*name).to_owned(), Value::from(*value));
        }
        Self::new(&fields)
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets([REDACTED])")
    }
}

/// An account as a connector needs it.
#[derive(Clone, Debug)]
pub struct Account {
    pub id: i64,
    pub workspace_id: i64,
    pub external_id: String,
    pub username: Option<String>,
    pub secrets: Secrets,
}

impl Account {
    /// From what the store keeps.
    pub fn stored(account: &SocialAccount, secrets: &SecretString) -> Result<Self, StoreError> {
        Ok(Self {
            id: account.id,
            workspace_id: account.workspace_id,
            external_id: account.external_id.clone(),
            username: account.username.clone(),
            secrets: Secrets::stored(secrets)?,
        })
    }
}

/// What a successful connect learned.
#[derive(Clone, Debug)]
pub struct Connected {
    pub external_id: String,
    pub name: String,
    pub username: Option<String>,
    pub profile_url: Option<String>,
    pub avatar_url: Option<String>,
    pub kind: AccountKind,
    pub token_expires_at: Option<DateTime<Utc>>,
    /// What is stored and handed back at each later call.
    pub secrets: Secrets,
}

/// New tokens from a refresh. `None`: the credentials do not expire and were found good.
#[derive(Clone, Debug)]
pub struct Refreshed {
    pub secrets: Option<Secrets>,
    pub token_expires_at: Option<DateTime<Utc>>,
}

/// How a platform gets the pictures of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pictures {
    /// Each by an upload of its own ([`Connector::upload`]); the post names what came back ([`Image::uploaded`]).
    Uploaded,
    /// Their bytes are in the call that publishes.
    Inline,
    /// It fetches them from our address ([`Image::url`]).
    Fetched,
}

/// A picture on its way out.
#[derive(Clone, Debug)]
pub struct Image {
    /// The asset's.
    pub id: i64,
    /// As the platform takes it, converted and shrunk where need be. Empty but for the call that carries it: `upload`, or
    /// `publish` where pictures go [`Pictures::Inline`].
    pub bytes: Bytes,
    /// Of the bytes, or of the asset where there are none.
    pub mime_type: String,
    pub filename: String,
    pub alt_text: Option<String>,
    /// The asset's size: every try tells the same, whether the bytes were shrunk in it or in an earlier one.
    pub width: u32,
    pub height: u32,
    /// Where the platform can fetch it, for those that pull.
    pub url: String,
    pub uploaded: Option<Uploaded>,
}

/// What the platform calls a picture that it has.
#[derive(Clone, Debug, PartialEq)]
pub struct Uploaded {
    /// What [`Connector::upload`] gave.
    pub name: Value,
    /// It was uploaded in this run. One of an earlier run may be gone: platforms drop what no post names, people delete.
    pub fresh: bool,
}

impl Image {
    /// What the platform calls it; the worker uploads every picture before it publishes.
    fn name(&self) -> Result<&Value, CallError> {
        self.uploaded.as_ref().map(|uploaded| &uploaded.name).ok_or_else(|| {
            CallError::Transient(Failure::of(Category::Internal, "A picture was not uploaded before its post."))
        })
    }
}

/// A post on its way to one account.
#[derive(Clone, Debug)]
pub struct Outgoing {
    pub target_id: i64,
    pub text: String,
    pub images: Vec<Image>,
    /// What the platform needs beyond text, by the names in its descriptor.
    pub options: Map<String, Value>,
    /// What [`Connector::marker`] made, stored before the first call.
    pub marker: Marker,
    /// Which try this is, from 1 (the sandbox's `[flaky]` counts by it).
    pub attempt: u32,
    /// An earlier try had this marker: it may have left something at the platform.
    pub again: bool,
}

/// What makes it possible to find a post again: a record key, a slug, a SKU, a creation time. Made once for a target and
/// stored before the first call; empty where the platform offers nothing.
pub type Marker = Map<String, Value>;

/// The post is out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    pub external_id: String,
    pub url: Option<String>,
    /// The account's secrets, where the call taught new ones (Telegram moved the chat to another id): store them in place
    /// of the old. Never part of what is shown or kept with the post.
    #[serde(skip)]
    pub secrets: Option<Secrets>,
}

impl Published {
    pub fn new(external_id: impl Into<String>, url: Option<String>) -> Self {
        Self { external_id: external_id.into(), url, secrets: None }
    }
}

/// What a look-up at the platform told of an earlier call whose end is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reconciled {
    /// It went out.
    Found(Published),
    /// It is not there. Final only once the earlier call's time-out has passed.
    Absent,
    /// The platform gives no way to find out.
    CannotTell,
}

/// How a call to a platform can end, other than well.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// The platform asked for a pause. `until` as it told, `None` where it did not say.
    #[error("rate limited until {until:?}")]
    RateLimited { until: Option<DateTime<Utc>>, failure: Failure },
    /// The access token ran out: refresh once, then try again.
    #[error("the access token has expired")]
    AuthExpired(Failure),
    /// The platform refuses the credentials themselves: the account becomes `expired`.
    #[error("the platform refuses the credentials: {}", .0.message)]
    Reauth(Failure),
    /// Final.
    #[error("{}", .0.message)]
    Permanent(Failure),
    /// Passing: nothing was accepted (no connection was made, or the platform said so).
    #[error("{}", .0.message)]
    Transient(Failure),
    /// Nothing was published, as pictures that were uploaded earlier are not there any more: upload them anew.
    #[error("{}", .0.message)]
    UploadsGone(Failure),
    /// The request went out and no usable answer came back: it may have been accepted.
    #[error("{}", .0.message)]
    Unknown(Failure),
}

impl CallError {
    /// What a client is told of it.
    pub fn failure(&self) -> &Failure {
        match self {
            Self::RateLimited { failure, .. } => failure,
            Self::AuthExpired(f) | Self::Reauth(f) | Self::Permanent(f) | Self::Transient(f) => f,
            Self::UploadsGone(f) | Self::Unknown(f) => f,
        }
    }

    /// A passing failure of the connection, made before anything was sent.
    pub fn network(message: impl Into<String>) -> Self {
        Self::Transient(Failure::of(Category::Network, message))
    }
}

/// Why connecting did not succeed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConnectError {
    /// A field is wrong in itself (`credentials.<field>`): missing, no address, a private address, too long.
    #[error("{field}: {message}")]
    Field { field: &'static str, message: String },
    /// The platform refused; the sentence says why, and what to do.
    #[error("{0}")]
    Refused(String),
    /// The platform answered nothing useful.
    #[error("{0}")]
    Unavailable(String),
}

/// One platform's API. Each call has the deadline of the client it was made with. What it gives is made fit to be stored in
/// `checked.rs`, through which every call goes: a method that is added here is added there.
#[async_trait]
pub trait Connector: Send + Sync {
    /// What clients are told of the platform.
    fn descriptor(&self) -> &'static Descriptor;

    /// Checks credentials against the platform before they are saved. The required fields are there and are strings.
    /// It writes nothing: what is asked for may still be refused.
    async fn connect(&self, workspace_id: i64, credentials: &Secrets) -> Result<Connected, ConnectError>;

    /// Writes what the platform itself keeps of an account in our database, in the transaction that saves the account.
    async fn claim(
        &self,
        _tx: &mut Tx,
        _workspace_id: i64,
        _connected: &Connected,
    ) -> Result<Result<(), ConnectError>, StoreError> {
        Ok(Ok(()))
    }

    /// Gets new tokens, or checks credentials that do not expire.
    async fn refresh(&self, account: &Account) -> Result<Refreshed, CallError>;

    /// Makes what [`Connector::reconcile`] will look for; made once for a target, and stored before its first call.
    fn marker(&self, _seed: MarkerSeed) -> Marker {
        Marker::new()
    }

    /// Whether [`Connector::reconcile`] can tell. Where it cannot, a call of unknown end is final.
    fn can_reconcile(&self) -> bool;

    /// How it gets pictures.
    fn pictures(&self) -> Pictures {
        Pictures::Fetched
    }

    /// Uploads one picture of a post, for those that want it before ([`Pictures::Uploaded`]), and gives what the platform
    /// calls it. Stored before the next one is uploaded; a reader of the platform sees nothing of it.
    async fn upload(&self, _account: &Account, _post: &Outgoing, _image: &Image) -> Result<Value, CallError> {
        Err(CallError::Transient(Failure::of(Category::Internal, "This platform takes no uploads.")))
    }

    /// Whether publishing waits for another host, or for time to pass, rather than works in this process: another job may
    /// have its place meanwhile.
    fn waits(&self, _post: &Outgoing) -> bool {
        true
    }

    /// Publishes. The marker is stored already, and every picture is there as [`Connector::pictures`] wants it.
    async fn publish(&self, account: &Account, post: &Outgoing) -> Result<Published, CallError>;

    /// Looks for the post of an earlier call whose end is not known.
    async fn reconcile(&self, account: &Account, post: &Outgoing) -> Result<Reconciled, CallError>;

    /// Takes back what the platform granted, when the last brand lets go of the account. Best effort.
    async fn revoke(&self, _account: &Account) -> Result<(), CallError> {
        Ok(())
    }
}

/// What a marker is made of.
#[derive(Clone, Copy, Debug)]
pub struct MarkerSeed {
    pub target_id: i64,
    /// The time of the first try. Bluesky shows it as the time of the post.
    pub at: DateTime<Utc>,
    pub random: u64,
}

/// A word of the marker. It was stored before the first call; without it nothing may be sent, for nothing could be found.
fn marked<'a>(marker: &'a Marker, name: &str) -> Result<&'a str, CallError> {
    marker.get(name).and_then(Value::as_str).ok_or_else(|| {
        CallError::Transient(Failure::of(Category::Internal, "The post has no marker to find it again by."))
    })
}
