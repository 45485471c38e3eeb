//! The keys that encrypt secrets in the database.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use crier_base::secrets::SecretKey;

use super::key::{DefaultValue, Key};
use super::reader::Reader;
use super::{ProcessRole, values};

const SECRET_KEY: Key = Key::new(
    "SECRET_KEY",
    "The key that encrypts secrets in the database: 32 bytes in base64 (`openssl rand -base64 32`), or several as \
     `id:base64`, of which the first encrypts. An ID is 0 to 255; a key without an ID has 0.",
    DefaultValue::Text("`crier` creates one in the data directory; separate processes require it"),
    // Not a real key, because someone would use it.
    "the output of `openssl rand -base64 32`",
)
.secret();
pub(super) const KEYS: &[Key] = &[SECRET_KEY];

/// Returns the path of the key file that `crier` creates. Its content has the format of the variable.
pub fn key_file(data_dir: &Path) -> PathBuf {
    data_dir.join("secret.key")
}

/// At least one key, with distinct ids.
#[derive(Clone, Debug)]
pub struct SecretKeys(Vec<SecretKey>);

impl SecretKeys {
    /// Returns the keys; the first one encrypts.
    pub fn as_slice(&self) -> &[SecretKey] {
        &self.0
    }
}

impl FromStr for SecretKeys {
    type Err = String;

    /// Parses the value of the variable. The error completes a sentence that begins with the value, but never contains
    /// the value.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut keys: Vec<SecretKey> = Vec::new();
        for (index, part) in values::parts(text).enumerate() {
            let (id, encoded) = match part.split_once(':') {
                Some((id, encoded)) => {
                    let id =
                        id.trim().parse().map_err(|_| format!("has an ID that is not 0 to 255 at key {}", index + 1));
                    (id?, encoded.trim())
                }
                None => (0, part),
            };
            let bytes = decode(encoded).ok_or_else(|| format!("is not 32 bytes in base64 at key {}", index + 1))?;
            if keys.iter().any(|key| key.id == id) {
                return Err(format!("has two keys with the ID {id}"));
            }
            keys.push(SecretKey::new(id, bytes));
        }
        if keys.is_empty() { Err("contains no key".to_owned()) } else { Ok(Self(keys)) }
    }
}

/// Decodes base64 of the standard or the URL-safe alphabet, with or without padding.
fn decode(encoded: &str) -> Option<[u8; 32]> {
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    [STANDARD, URL_SAFE].iter().find_map(|alphabet| {
        let bytes = GeneralPurpose::new(alphabet, config).decode(encoded).ok()?;
        <[u8; 32]>::try_from(bytes).ok()
    })
}

pub(super) fn read(reader: &mut Reader, role: ProcessRole) -> Option<SecretKeys> {
    let keys = reader.optional(&SECRET_KEY, SecretKeys::from_str);
    if role.is_separate() && !reader.is_set(&SECRET_KEY) {
        reader.add_problem(
            SECRET_KEY.variable(),
            format!(
                "is not set, and {role} shares its secrets with the other processes; create one key for all of them with \
                 `openssl rand -base64 32`"
            ),
        );
    }
    keys
}
