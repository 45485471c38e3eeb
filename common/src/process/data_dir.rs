//! The data directory of `crier`: the database, the secret key and the files, accessible only to their owner.
//!
//! Each step can be repeated after any failure: existing parts are used, missing ones are created, and partial ones do
//! no harm.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use secrecy::ExposeSecret as _;

use super::StartError;
use crate::config::{Config, SecretKeys, Storage, key_file};
use crate::permissions;
use crate::secrets::SecretKey;

fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> StartError {
    let what = what.into();
    move |error| StartError::Io { what, error }
}

fn make(dir: &Path) -> Result<(), StartError> {
    permissions::make_dir(dir).map_err(io(format!("the directory {} cannot be made", dir.display())))?;
    permissions::warn_if_open(dir, "the directory");
    Ok(())
}

/// Returns the key in the data directory, created at the first start. Concurrent first starts agree on one key: the
/// file is created atomically, and the loser uses the winner's.
pub fn secret_keys(dir: &Path) -> Result<Vec<SecretKey>, StartError> {
    make(dir)?;
    let path = key_file(dir);
    let what = || format!("the secret key {}", path.display());
    if !path.exists() {
        write_key(dir, &path).map_err(|error| match error {
            KeyError::Random(why) => StartError::Refused(why),
            KeyError::Io(error) => io(what())(error),
        })?;
    }
    remove_drafts(dir).map_err(io(what()))?;
    permissions::close_or_warn(&path, "the secret key");
    let text = fs::read_to_string(&path).map_err(io(what()))?;
    let keys: SecretKeys = text
        .trim()
        .parse()
        .map_err(|why| StartError::Refused(format!("{} {why}; restore it from a backup", what())))?;
    Ok(keys.as_slice().to_vec())
}

/// Prefix of the file names of key drafts.
const DRAFT: &str = "secret.key.";

enum KeyError {
    Random(String),
    Io(std::io::Error),
}

impl From<std::io::Error> for KeyError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

/// Writes a new key. The draft has a unique name, and is deleted if it cannot become the key. It is synced to disk
/// before it is used to seal anything.
fn write_key(dir: &Path, path: &Path) -> Result<(), KeyError> {
    let (_, text) = SecretKey::generate().map_err(|error| KeyError::Random(error.to_string()))?;
    let mut draft = tempfile::Builder::new().prefix(DRAFT).tempfile_in(dir)?;
    writeln!(draft, "{}", text.expose_secret())?;
    draft.as_file().sync_all()?;
    match draft.persist_noclobber(path) {
        // A concurrent first start may have created the key, and deleted this draft.
        Err(failed) if !path.exists() => return Err(failed.error.into()),
        _ => {}
    }
    Ok(File::open(dir)?.sync_all()?)
}

/// Deletes drafts of killed starts. The key exists, so they are no longer needed.
fn remove_drafts(dir: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(DRAFT)) {
            match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Creates the database's directory, and its file if missing: SQLite creates its log and index with the same mode.
pub fn prepare_database_file(path: &Path) -> Result<(), StartError> {
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        make(dir)?;
    }
    let what = || format!("the database {}", path.display());
    OpenOptions::new().append(true).create(true).mode(0o600).open(path).map_err(io(what()))?;
    for end in ["", "-wal", "-shm", "-journal"] {
        let mut file = path.as_os_str().to_owned();
        file.push(end);
        permissions::close_or_warn(Path::new(&file), "the database");
    }
    Ok(())
}

/// Closes the directory of files to other users, if it is inside the data directory.
pub fn restrict_files_dir(config: &Config) {
    if let Storage::Directory(dir) = &config.storage
        && dir.starts_with(&config.data_dir)
        && *dir != config.data_dir
    {
        permissions::close_or_warn(dir, "the directory");
    }
}
