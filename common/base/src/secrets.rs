//! Encryption at rest: credentials, signing secrets, stored responses.
//!
//! XChaCha20-Poly1305. A sealed value is `version ‖ key id ‖ nonce ‖ ciphertext`; the table, row and column are its
//! associated data, so a value copied to another row cannot be opened. The first key seals, and all keys open; to
//! rotate, put a new key in front.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use secrecy::{ExposeSecret, SecretBox, SecretString};

pub mod link;

const VERSION: u8 = 1;
const NONCE: usize = 24;

/// A key and the id that sealed values contain.
#[derive(Clone)]
pub struct SecretKey {
    pub id: u8,
    pub bytes: std::sync::Arc<SecretBox<[u8; 32]>>,
}

impl SecretKey {
    pub fn new(id: u8, bytes: [u8; 32]) -> Self {
        Self { id, bytes: std::sync::Arc::new(SecretBox::new(Box::new(bytes))) }
    }

    /// Generates a new key; also returns its base64 text for the key file.
    pub fn generate() -> Result<(Self, SecretString), SecretError> {
        let mut bytes = [0u8; 32];
        getrandom::fill(&mut bytes).map_err(|_| SecretError::NoRandomness)?;
        Ok((Self::new(0, bytes), SecretString::from(STANDARD.encode(bytes))))
    }
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SecretKey(id {}, [REDACTED])", self.id)
    }
}

/// The column and row that a sealed value belongs to.
#[derive(Clone, Debug)]
pub struct SecretLocation<'a> {
    pub table: &'static str,
    pub row: &'a str,
    pub column: &'static str,
}

impl SecretLocation<'_> {
    /// Encodes the location with length prefixes, so that different locations never encode to the same bytes.
    fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for part in [self.table, self.row, self.column] {
            out.extend_from_slice(&(part.len() as u64).to_be_bytes());
            out.extend_from_slice(part.as_bytes());
        }
        out
    }
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SecretError {
    #[error("at least one secret key is needed")]
    NoKey,
    #[error("the system's random source failed")]
    NoRandomness,
    #[error("the value was sealed with key {0}, which is not in CRIER_SECRET_KEY")]
    UnknownKey(u8),
    #[error("the sealed value is damaged, or was sealed for another record")]
    Damaged,
}

/// Returns the id of the key that a value was sealed with; `None` if it is not a sealed value.
pub fn key_id(sealed: &[u8]) -> Option<u8> {
    match sealed {
        [VERSION, id, ..] => Some(*id),
        _ => None,
    }
}

/// Encrypts and decrypts values.
#[derive(Clone)]
pub struct Cipher {
    keys: std::sync::Arc<Vec<(u8, XChaCha20Poly1305)>>,
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cipher([REDACTED])")
    }
}

impl Cipher {
    /// Creates a cipher; the first key seals, and all keys open.
    pub fn new(keys: &[SecretKey]) -> Result<Self, SecretError> {
        if keys.is_empty() {
            return Err(SecretError::NoKey);
        }
        let keys = keys.iter().map(|key| (key.id, XChaCha20Poly1305::new(key.bytes.expose_secret().into()))).collect();
        Ok(Self { keys: std::sync::Arc::new(keys) })
    }

    /// Returns the ids of the keys; the first one seals.
    pub fn ids(&self) -> impl Iterator<Item = u8> {
        self.keys.iter().map(|(id, _)| *id)
    }

    /// Returns whether the cipher can open values that were sealed with the key of this id.
    pub fn has_key(&self, id: u8) -> bool {
        self.ids().any(|key| key == id)
    }

    /// Encrypts a value for one location, with the first key.
    pub fn seal(&self, location: &SecretLocation<'_>, plain: &[u8]) -> Result<Vec<u8>, SecretError> {
        self.seal_with(self.ids().next().ok_or(SecretError::NoKey)?, location, plain)
    }

    /// Seals with the key of this id.
    pub fn seal_with(&self, id: u8, location: &SecretLocation<'_>, plain: &[u8]) -> Result<Vec<u8>, SecretError> {
        let (_, cipher) = self.keys.iter().find(|(key, _)| *key == id).ok_or(SecretError::UnknownKey(id))?;
        let mut nonce = [0u8; NONCE];
        getrandom::fill(&mut nonce).map_err(|_| SecretError::NoRandomness)?;
        let sealed = cipher
            .encrypt(&XNonce::from(nonce), Payload { msg: plain, aad: &location.bytes() })
            .map_err(|_| SecretError::Damaged)?;
        let mut out = Vec::with_capacity(2 + NONCE + sealed.len());
        out.extend_from_slice(&[VERSION, id]);
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&sealed);
        Ok(out)
    }

    /// Decrypts a value that was sealed for this location.
    pub fn open(&self, location: &SecretLocation<'_>, sealed: &[u8]) -> Result<Vec<u8>, SecretError> {
        let (&[version, id], rest) = sealed.split_first_chunk::<2>().ok_or(SecretError::Damaged)?;
        let (nonce, ciphertext) = rest.split_first_chunk::<NONCE>().ok_or(SecretError::Damaged)?;
        if version != VERSION {
            return Err(SecretError::Damaged);
        }
        let (_, cipher) = self.keys.iter().find(|(key, _)| *key == id).ok_or(SecretError::UnknownKey(id))?;
        cipher
            .decrypt(&XNonce::from(*nonce), Payload { msg: ciphertext, aad: &location.bytes() })
            .map_err(|_| SecretError::Damaged)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    const LOCATION: SecretLocation<'_> = SecretLocation { table: "webhooks", row: "7", column: "secret" };

    fn key(id: u8) -> SecretKey {
        SecretKey::new(id, [id; 32])
    }

    #[test]
    fn a_secret_opens_only_in_its_own_context() {
        let cipher = Cipher::new(&[key(1)]).unwrap();
        let sealed = cipher.seal(&LOCATION, b"whsec_x").unwrap();
        assert_eq!(cipher.open(&LOCATION, &sealed).unwrap(), b"whsec_x");
        assert_eq!(cipher.open(&SecretLocation { row: "8", ..LOCATION }, &sealed), Err(SecretError::Damaged));
        assert_eq!(
            cipher.open(&SecretLocation { row: "7s", column: "ecret", ..LOCATION }, &sealed),
            Err(SecretError::Damaged)
        );
        assert!(!sealed.windows(7).any(|w| w == b"whsec_x"));
    }

    #[test]
    fn every_bit_flip_and_truncation_is_detected() {
        let cipher = Cipher::new(&[key(1)]).unwrap();
        let sealed = cipher.seal(&LOCATION, b"secret").unwrap();
        for i in 0..sealed.len() {
            let mut bad = sealed.clone();
            bad[i] ^= 1;
            assert!(cipher.open(&LOCATION, &bad).is_err(), "byte {i}");
            assert!(cipher.open(&LOCATION, &sealed[..i]).is_err(), "cut at {i}");
        }
    }

    #[test]
    fn a_rotated_key_decrypts_and_the_new_key_encrypts() {
        let old = Cipher::new(&[key(1)]).unwrap().seal(&LOCATION, b"a").unwrap();
        let rotated = Cipher::new(&[key(2), key(1)]).unwrap();
        assert_eq!(rotated.open(&LOCATION, &old).unwrap(), b"a");
        assert_eq!(rotated.seal(&LOCATION, b"a").unwrap()[1], 2);
        assert_eq!(Cipher::new(&[key(2)]).unwrap().open(&LOCATION, &old), Err(SecretError::UnknownKey(1)));
    }
}
