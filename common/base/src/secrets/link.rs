//! Sealed links: a value in the last part of an address, which only this installation can make and read.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Cipher, SecretError, SecretLocation};

/// The longest token that is opened, in bytes.
const MAX_TOKEN: usize = 1_024;

/// Why a token leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkError {
    Invalid,
    Expired,
}

/// Returns the token of a value, for a URL. `place` names what it is for: no other kind of link can be made of it.
pub fn seal(cipher: &Cipher, place: &SecretLocation<'_>, value: &impl Serialize) -> Result<String, SecretError> {
    let plain = serde_json::to_vec(value).map_err(|_| SecretError::Damaged)?;
    Ok(URL_SAFE_NO_PAD.encode(cipher.seal(place, &plain)?))
}

/// Returns the value of a token.
pub fn open<T: DeserializeOwned>(cipher: &Cipher, place: &SecretLocation<'_>, token: &str) -> Result<T, LinkError> {
    let sealed = Some(token).filter(|token| token.len() <= MAX_TOKEN);
    let sealed = sealed.and_then(|token| URL_SAFE_NO_PAD.decode(token).ok()).ok_or(LinkError::Invalid)?;
    let plain = cipher.open(place, &sealed).map_err(|_| LinkError::Invalid)?;
    serde_json::from_slice(&plain).map_err(|_| LinkError::Invalid)
}
