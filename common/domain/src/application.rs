//! An application that an operator registered with a platform. Crier needs its id and secret to request access to
//! accounts.

use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;

use super::platform::{ConnectTarget, Platform};

/// The maximum length of an id or a secret.
pub const MAX_CREDENTIAL: usize = 2_048;

/// Returns whether a text can be an id or a secret.
pub fn is_credential(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_CREDENTIAL && !text.chars().any(char::is_control)
}

/// The id and the secret; the secret is empty if the platform gave none. `Debug` prints no secret.
#[derive(Clone, Debug)]
pub struct Application {
    pub client_id: String,
    pub client_secret: SecretString,
}

impl Application {
    pub fn new(client_id: impl Into<String>, client_secret: impl Into<SecretString>) -> Self {
        Self { client_id: client_id.into(), client_secret: client_secret.into() }
    }

    pub fn has_secret(&self) -> bool {
        !self.client_secret.expose_secret().is_empty()
    }
}

impl PartialEq for Application {
    fn eq(&self, other: &Self) -> bool {
        self.client_id == other.client_id && self.client_secret.expose_secret() == other.client_secret.expose_secret()
    }
}

/// The owner of an application. Crier uses the application of the brand, or else of the workspace, or else of the
/// installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Installation,
    Workspace(i64),
    Brand(i64),
}

impl Owner {
    pub const fn workspace_id(self) -> Option<i64> {
        match self {
            Self::Workspace(id) => Some(id),
            _ => None,
        }
    }

    pub const fn brand_id(self) -> Option<i64> {
        match self {
            Self::Brand(id) => Some(id),
            _ => None,
        }
    }
}

/// An application as listed, without its secret.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct ListedApplication {
    pub id: i64,
    pub platform: Platform,
    pub target: ConnectTarget,
    pub workspace_id: Option<i64>,
    pub brand_id: Option<i64>,
    /// The server at which Crier registered the application itself (Mastodon); empty if an operator set it.
    pub instance: String,
    pub client_id: String,
}
