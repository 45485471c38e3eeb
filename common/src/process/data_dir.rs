//! What `crier` keeps in its data directory: the database and the secret key, readable by their owner alone.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use secrecy::ExposeSecret as _;

use super::StartError;
use crate::config::{SecretKeys, key_file};
use crate::secrets::SecretKey;

fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> StartError {
    let what = what.into();
    move |error| StartError::Io { what, error }
}

/// Makes the directory where it is missing.
pub fn make(dir: &Path) -> Result<(), StartError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(io(format!("the directory {} cannot be made", dir.display())))
}

/// The key in the data directory, made at the first start. Two first starts at once agree on one: the file appears whole
/// or not at all, and whoever is second takes the first one's.
pub fn secret_keys(dir: &Path) -> Result<Vec<SecretKey>, StartError> {
    make(dir)?;
    let path = key_file(dir);
    let what = || format!("the secret key {}", path.display());
    if !path.exists() {
        let (_, text) = SecretKey::generate().map_err(|error| StartError::Refused(error.to_string()))?;
        let draft = dir.join(format!("secret.key.{}", std::process::id()));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).map_err(io(what()))?;
        writeln!(file, "{}", text.expose_secret()).and_then(|()| file.sync_all()).map_err(io(what()))?;
        let linked = fs::hard_link(&draft, &path);
        fs::remove_file(&draft).map_err(io(what()))?;
        match linked {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(io(what())(error)),
            _ => {}
        }
    }
    let text = fs::read_to_string(&path).map_err(io(what()))?;
    let keys: SecretKeys = text
        .trim()
        .parse()
        .map_err(|why| StartError::Refused(format!("{} {why}; restore it from a backup", what())))?;
    Ok(keys.as_slice().to_vec())
}
