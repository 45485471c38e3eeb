//! The secrets of an account.

use crier_domain::failure::{Category, Failure};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

use super::CallError;

/// The secrets of an account: credentials entered by the user, or tokens issued by the platform. A JSON object of
/// strings, encrypted at rest; `Debug` prints `[REDACTED]`.
#[derive(Clone)]
pub struct Secrets(pub(super) SecretString);

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

    /// Parses the output of [`Secrets::expose_json`]; `None` if it is not a JSON object.
    pub fn from_json(json: String) -> Option<Self> {
        serde_json::from_str::<Map<String, Value>>(&json).ok().map(|_| Self(SecretString::from(json)))
    }

    /// Wraps secrets read from the store.
    pub fn from_stored(secrets: &SecretString) -> Self {
        Self(secrets.clone())
    }

    /// Returns the whole object as JSON text, for encryption.
    pub fn expose_json(&self) -> &str {
        self.0.expose_secret()
    }

    /// Returns a field. `None` if it is missing or not a string.
    pub fn get(&self, name: &str) -> Option<SecretString> {
        let fields: Map<String, Value> = serde_json::from_str(self.0.expose_secret()).ok()?;
        fields.get(name)?.as_str().map(SecretString::from)
    }

    /// Returns a required field. If it is missing or empty, the account must be connected again.
    pub fn require(&self, name: &str) -> Result<SecretString, CallError> {
        self.get(name).filter(|value| !value.expose_secret().is_empty()).ok_or_else(|| {
            let message = "The stored credentials are incomplete; connect the account again.";
            CallError::Reauth(Failure::of(Category::AuthExpired, message))
        })
    }

    /// Returns a copy with some fields replaced.
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
