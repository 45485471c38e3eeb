//! The scope of a revocation, and accounts with the same credentials.
//!
//! Several accounts may share one grant: a Mastodon server returns the same token for the same user and application
//! each time, and the pages of one consent share its token.

use crier_domain::platform::Descriptor;
use secrecy::{ExposeSecret, SecretString};

use super::{ConnectorAccount, Secrets};

/// The scope of [`Connector::revoke`](super::Connector::revoke).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revocation {
    /// Only the revoked token, or its session.
    Token,
    /// Everything that the user granted to the application, or the platform does not document that other tokens stay
    /// valid.
    Grant,
}

/// The names of the tokens among an account's secrets.
const TOKENS: [&str; 4] = ["access_token", "refresh_token", "access_jwt", "refresh_jwt"];

fn have_same(a: &Secrets, b: &Secrets, name: &str) -> bool {
    let value = |secrets: &Secrets| secrets.get(name).filter(|value| !value.expose_secret().is_empty());
    match (value(a), value(b)) {
        (Some(a), Some(b)) => a.expose_secret() == b.expose_secret(),
        _ => false,
    }
}

fn share_token(a: &Secrets, b: &Secrets) -> bool {
    TOKENS.iter().any(|name| have_same(a, b, name))
}

/// Returns whether two sets of secrets are the same credentials: they share a token, or have the same values in the
/// fields that a user enters.
pub fn are_same_credentials(descriptor: &Descriptor, a: &Secrets, b: &Secrets) -> bool {
    let text = |value: Option<SecretString>| value.map(|value| value.expose_secret().to_owned()).unwrap_or_default();
    let fields = descriptor.credential_fields;
    share_token(a, b) || !fields.is_empty() && fields.iter().all(|f| text(a.get(f.name)) == text(b.get(f.name)))
}

impl Revocation {
    /// Returns whether revoking the credentials of an account also revokes those of another account of the platform.
    pub fn ends(self, revoked: &ConnectorAccount, other: &ConnectorAccount) -> bool {
        let (a, b) = (&revoked.secrets, &other.secrets);
        let is_same_grant = || revoked.external_id == other.external_id && have_same(a, b, "client_id");
        share_token(a, b) || self == Self::Grant && is_same_grant()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test's own data")]
mod tests {
    use crier_domain::catalogue;
    use crier_domain::platform::Platform;
    use serde_json::{Value, json};

    use super::*;

    fn secrets(fields: Value) -> Secrets {
        Secrets::from_json(fields.to_string()).unwrap()
    }

    fn account(external_id: &str, fields: Value) -> ConnectorAccount {
        ConnectorAccount {
            id: 1,
            workspace_id: 1,
            external_id: external_id.to_owned(),
            username: None,
            secrets: secrets(fields),
        }
    }

    #[test]
    fn a_revoke_ends_what_shares_the_token_or_the_grant() {
        let revoked = account("ann", json!({ "access_token": "a", "refresh_token": "", "client_id": "app" }));
        for (other, by_token, by_grant) in [
            (account("page", json!({ "access_token": "a", "client_id": "other" })), true, true),
            (account("ann", json!({ "access_token": "b", "refresh_token": "", "client_id": "app" })), false, true),
            (account("ann", json!({ "access_token": "b", "client_id": "other" })), false, false),
            (account("bob", json!({ "access_token": "b", "client_id": "app" })), false, false),
            (account("ann", json!({})), false, false),
        ] {
            assert_eq!(Revocation::Token.ends(&revoked, &other), by_token, "{other:?}");
            assert_eq!(Revocation::Grant.ends(&revoked, &other), by_grant, "{other:?}");
        }
    }

    #[test]
    fn credentials_are_the_same_by_their_fields_or_a_token() {
        let (bluesky, mastodon) = (catalogue::descriptor(Platform::Bluesky), catalogue::descriptor(Platform::Mastodon));
        let typed = |password: &str, token: &str| {
            secrets(json!({ "identifier": "ann", "app_password": password, "service": "", "access_jwt": token }))
        };
        assert!(are_same_credentials(bluesky, &typed("a", "1"), &typed("a", "2")));
        assert!(!are_same_credentials(bluesky, &typed("a", "1"), &typed("b", "2")));
        let tokens = |token: &str| secrets(json!({ "access_token": token, "client_id": "app" }));
        assert!(are_same_credentials(mastodon, &tokens("a"), &tokens("a")));
        assert!(!are_same_credentials(mastodon, &tokens("a"), &tokens("b")));
    }
}
