//! Codes and tokens: their forms and their hashes.

use crier_base::secrets::SecretError;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

use crate::Result;

/// The number of characters of `[A-Za-z0-9]` that contain 256 bits.
const LENGTH: usize = 43;

/// The kind of a secret. Its prefix lets scanners find leaked tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Code,
    Access,
    Refresh,
}

impl Kind {
    const fn prefix(self) -> &'static str {
        match self {
            Self::Code => "",
            Self::Access => "svc_oat_",
            Self::Refresh => "svc_ort_",
        }
    }

    /// Returns the number of characters after the prefix.
    const fn length(self) -> usize {
        match self {
            Self::Code | Self::Access => LENGTH,
            // The family, and what only this token has.
            Self::Refresh => 2 * LENGTH,
        }
    }

    /// Returns the part of the hashed text that keeps a code from being used as a token.
    const fn purpose(self) -> &'static str {
        match self {
            Self::Code => "oauth-code:",
            Self::Access => "oauth-access:",
            Self::Refresh => "oauth-refresh:",
        }
    }
}

/// Returns the hash by which a secret is found. Returns `None` if the text does not have the form of one.
pub(super) fn hash(secret: &str, kind: Kind) -> Option<Vec<u8>> {
    let random = secret.strip_prefix(kind.prefix())?;
    let well_formed = random.len() == kind.length() && random.bytes().all(|byte| byte.is_ascii_alphanumeric());
    well_formed.then(|| Sha256::new().chain_update(kind.purpose()).chain_update(secret).finalize().to_vec())
}

/// Returns a new secret and its hash.
pub(super) fn generate(kind: Kind) -> Result<(SecretString, Vec<u8>)> {
    Ok(with_hash(kind, &random_text(kind.length())?))
}

fn random_text(length: usize) -> Result<String> {
    let text = crier_base::random::text(length).map_err(|_| SecretError::NoRandomness)?;
    Ok(text)
}

fn with_hash(kind: Kind, random: &str) -> (SecretString, Vec<u8>) {
    let secret = format!("{}{random}", kind.prefix());
    let hash = hash(&secret, kind).unwrap_or_default();
    (SecretString::from(secret), hash)
}

/// The random text with which all refresh tokens of a grant begin, after their prefix. By a token that was replaced, of
/// which nothing is stored, it identifies the grant.
#[derive(Clone, Debug)]
pub(super) struct Family(SecretString);

impl Family {
    pub fn generate() -> Result<Self> {
        Ok(Self(SecretString::from(random_text(LENGTH)?)))
    }

    /// Returns the family of a refresh token. `None` if the text does not have the form of one.
    pub fn of(token: &str) -> Option<Self> {
        hash(token, Kind::Refresh)?;
        let random = token.strip_prefix(Kind::Refresh.prefix())?;
        random.get(..LENGTH).map(|family| Self(SecretString::from(family)))
    }

    /// Returns the hash in the grant's row of `api_keys`. It is that of no key and of no token.
    pub fn hash(&self) -> Vec<u8> {
        Sha256::new().chain_update("oauth-grant:").chain_update(self.0.expose_secret()).finalize().to_vec()
    }

    /// Returns a new refresh token and its hash.
    pub fn new_token(&self) -> Result<(SecretString, Vec<u8>)> {
        let random = format!("{}{}", self.0.expose_secret(), random_text(LENGTH)?);
        Ok(with_hash(Kind::Refresh, &random))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_one_kind_are_not_those_of_another() {
        for kind in [Kind::Code, Kind::Access, Kind::Refresh] {
            let (secret, hashed) = generate(kind).unwrap();
            let secret = secret.expose_secret();
            assert!(secret.starts_with(kind.prefix()) && hashed.len() == 32);
            for other in [Kind::Code, Kind::Access, Kind::Refresh] {
                assert_eq!(hash(secret, other).as_ref() == Some(&hashed), other == kind, "{kind:?} as {other:?}");
            }
            assert_eq!(hash(&secret[1..], kind), None);
            assert_eq!(hash(&format!("{secret}a"), kind), None);
        }
    }

    #[test]
    fn refresh_tokens_of_a_grant_have_one_family() {
        let family = Family::generate().unwrap();
        let (first, second) = (family.new_token().unwrap(), family.new_token().unwrap());
        assert_ne!(first.1, second.1);
        for (token, hashed) in [first, second] {
            let token = token.expose_secret();
            assert_eq!((hash(token, Kind::Refresh), Family::of(token).unwrap().hash()), (Some(hashed), family.hash()));
        }
        assert_ne!(Family::generate().unwrap().hash(), family.hash());
        let (access, _) = generate(Kind::Access).unwrap();
        assert!(Family::of(access.expose_secret()).is_none());
    }
}
