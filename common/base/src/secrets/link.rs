//! Sealed links: a value in the last segment of a URL, which only this installation can create and read.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Cipher, SecretError, SecretLocation};

/// The maximum length of a token, in bytes.
const MAX_TOKEN: usize = 1_024;

/// Why a token is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkError {
    Invalid,
    Expired,
}

/// Returns a token that contains a value, for a URL. `location` identifies the kind of link: the token is not valid for
/// any other kind.
pub fn seal(cipher: &Cipher, location: &SecretLocation<'_>, value: &impl Serialize) -> Result<String, SecretError> {
    let plain = serde_json::to_vec(value).map_err(|_| SecretError::Damaged)?;
    Ok(URL_SAFE_NO_PAD.encode(cipher.seal(location, &plain)?))
}

/// Returns the value in a token.
pub fn open<T: DeserializeOwned>(cipher: &Cipher, location: &SecretLocation<'_>, token: &str) -> Result<T, LinkError> {
    if token.len() > MAX_TOKEN {
        return Err(LinkError::Invalid);
    }
    open_stored(cipher, location, token)
}

/// Returns the value in a token of any length. The token is not from a request: this installation stored it.
pub fn open_stored<T: DeserializeOwned>(
    cipher: &Cipher,
    location: &SecretLocation<'_>,
    token: &str,
) -> Result<T, LinkError> {
    let sealed = URL_SAFE_NO_PAD.decode(token).map_err(|_| LinkError::Invalid)?;
    let plain = cipher.open(location, &sealed).map_err(|_| LinkError::Invalid)?;
    serde_json::from_slice(&plain).map_err(|_| LinkError::Invalid)
}
