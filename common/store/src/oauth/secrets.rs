//! Codes and tokens: their forms and their hashes.

use crier_base::secrets::SecretError;
use secrecy::SecretString;
use sha2::{Digest, Sha256};

use crate::Result;

/// The number of characters of `[A-Za-z0-9]` after the prefix, which contain 256 bits.
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
    let well_formed = random.len() == LENGTH && random.bytes().all(|byte| byte.is_ascii_alphanumeric());
    well_formed.then(|| Sha256::new().chain_update(kind.purpose()).chain_update(secret).finalize().to_vec())
}

/// Returns a new secret and its hash.
pub(super) fn generate(kind: Kind) -> Result<(SecretString, Vec<u8>)> {
    let random = crier_base::random::text(LENGTH).map_err(|_| SecretError::NoRandomness)?;
    let secret = format!("{}{random}", kind.prefix());
    let hash = hash(&secret, kind).unwrap_or_default();
    Ok((SecretString::from(secret), hash))
}

/// Returns a hash that is that of no key and of no token, for the row of a grant in `api_keys`.
pub(super) fn hash_of_nothing() -> Result<Vec<u8>> {
    let random = crier_base::random::text(LENGTH).map_err(|_| SecretError::NoRandomness)?;
    Ok(Sha256::new().chain_update("oauth-grant:").chain_update(random).finalize().to_vec())
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

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
        assert_ne!(hash_of_nothing().unwrap(), hash_of_nothing().unwrap());
    }
}
