//! The data directory of `crier`: the database, the secret key and the files, accessible only to their owner.
//!
//! Each step can be repeated after any failure: existing parts are used, missing parts are created, and partial ones
//! are harmless.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crier_base::permissions;
use crier_base::secrets::SecretKey;
use crier_config::{Config, Database, SecretKeys, StorageConfig, key_file};
use secrecy::{ExposeSecret as _, SecretString};

use super::StartError;

fn io_error(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> StartError {
    let what = what.into();
    move |error| StartError::Io { what, error }
}

/// Creates a directory if it is missing. `keys`: the configuration keys that choose it.
fn create_dir(dir: &Path, keys: &str) -> Result<(), StartError> {
    let what = format!("the directory {} cannot be created; choose another with {keys}", dir.display());
    permissions::make_dir(dir).map_err(io_error(what))?;
    permissions::warn_if_open(dir, "the directory");
    Ok(())
}

/// The configuration key of the data directory.
const DATA_DIR: &str = "CRIER_DATA_DIR";

/// The maximum length of the data about its holder in a lock, in bytes.
const MAX_HOLDER_BYTES: u64 = 4_096;

/// The lock of a data directory. The operating system releases it when the process ends, even after a crash.
#[derive(Debug)]
pub struct DataDirLock(File);

impl DataDirLock {
    /// Creates the directory if it is missing, and takes its lock.
    pub fn take(dir: &Path) -> Result<Self, StartError> {
        create_dir(dir, DATA_DIR)?;
        let path = lock_path(dir);
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = open.map_err(io_error(format!(
            "the directory {} cannot be written; make it writable for this user, or choose another with {DATA_DIR}",
            dir.display()
        )))?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => Err(StartError::Invalid(format!(
                "the data directory {} is in use by {}; stop it, or choose another directory with {DATA_DIR}",
                dir.display(),
                holder(&path)
            ))),
            Err(TryLockError::Error(error)) => Err(io_error(format!(
                "the file {} cannot be locked; choose a directory on a local disk with {DATA_DIR}",
                path.display()
            ))(error)),
        }
    }

    /// Writes the process that holds the lock, for the error of other processes, and its addresses, for commands.
    /// Errors are ignored, because the disk may be full.
    pub(super) fn write_holder(&self, config: &Config) {
        let (mut file, addr, ops) = (&self.0, config.http.addr, config.http.ops_addr);
        let url = if config.has_public_url { config.public_url.as_str() } else { "" };
        let _ = file.set_len(0);
        let _ = writeln!(file, "process {} (http://{addr})\n{addr}\n{ops}\n{url}", std::process::id());
    }
}

impl Drop for DataDirLock {
    fn drop(&mut self) {
        let _ = self.0.set_len(0);
    }
}

fn lock_path(dir: &Path) -> PathBuf {
    dir.join("crier.lock")
}

/// Returns the lines of a lock; empty if no process has written any.
fn holder_lines(lock: &Path) -> Vec<String> {
    let mut text = String::new();
    let read = File::open(lock).and_then(|file| file.take(MAX_HOLDER_BYTES).read_to_string(&mut text));
    read.map_or_else(|_| Vec::new(), |_| text.lines().map(str::to_owned).collect())
}

fn holder(lock: &Path) -> String {
    let line = holder_lines(lock).into_iter().next();
    line.filter(|line| !line.is_empty()).unwrap_or_else(|| "another process".to_owned())
}

/// Returns whether an installation on Postgres is one process: `crier` runs on the data directory, or it ran there
/// and there is no Redis, which separate processes need. A lock alone may be from an earlier, embedded form.
pub fn is_one_process(config: &Config) -> bool {
    let path = lock_path(&config.data_dir);
    path.exists() && (config.redis_url.is_none() || !holder_lines(&path).is_empty())
}

/// Sets the addresses to those of the `crier` process that runs on the data directory, if any, because it may have been
/// started with other settings than this command. A public URL in the settings of this command is kept.
pub fn use_running_addresses(config: &mut Config) {
    let lines = holder_lines(&lock_path(&config.data_dir));
    let [_, addr, ops, url] = lines.as_slice() else { return };
    let (Ok(addr), Ok(ops)) = (addr.parse(), ops.parse()) else { return };
    config.http.ops_addr = ops;
    config.set_bound_addr(addr);
    if let Ok(url) = url.parse()
        && !config.has_public_url
    {
        (config.public_url, config.has_public_url) = (url, true);
    }
}

/// Fails if `crier` was never started with this configuration, or if this user cannot see its database. Creates nothing.
pub fn require_installation(config: &Config) -> Result<(), StartError> {
    let Database::Sqlite(path) = &config.database else { return Ok(()) };
    match path.try_exists() {
        Ok(true) => Ok(()),
        Ok(false) => Err(StartError::Invalid(format!(
            "there is no installation here: {} does not exist. Start `crier` once, or name its directory with --data-dir \
             or {DATA_DIR}",
            path.display()
        ))),
        // The directory of a service is closed to other users.
        Err(error) => Err(StartError::Io {
            what: format!(
                "the database {} cannot be accessed; run the command as the user that runs Crier",
                path.display()
            ),
            error,
        }),
    }
}

/// A key that this process uses and that is not in its file yet.
#[derive(Debug)]
pub struct NewKey {
    text: SecretString,
    dir: PathBuf,
}

/// Returns the keys in the data directory, or a new key if the file is missing. Creates nothing.
pub fn secret_keys(dir: &Path) -> Result<(Vec<SecretKey>, Option<NewKey>), StartError> {
    permissions::warn_if_open(dir, "the directory");
    let path = key_file(dir);
    let what = || format!("the secret key {}", path.display());
    let unreadable = || io_error(format!("{} cannot be read; run this as the user that runs Crier", what()));
    remove_drafts(dir).map_err(unreadable())?;
    if !path.exists() {
        let (key, text) = SecretKey::generate().map_err(|error| StartError::Invalid(error.to_string()))?;
        return Ok((vec![key], Some(NewKey { text, dir: dir.to_owned() })));
    }
    permissions::restrict_or_warn(&path, "the secret key");
    let text = fs::read_to_string(&path).map_err(unreadable())?;
    let keys: SecretKeys = text
        .trim()
        .parse()
        .map_err(|why| StartError::Invalid(format!("{} {why}; restore it from a backup", what())))?;
    Ok((keys.as_slice().to_vec(), None))
}

impl NewKey {
    /// Writes the file and syncs it to the disk, because nothing may be encrypted with a key that can be lost. Creates
    /// its directory if it is missing. The draft has a unique name, and is deleted if it cannot become the key file.
    pub fn save(self) -> Result<(), StartError> {
        let path = key_file(&self.dir);
        let write = || {
            permissions::make_dir(&self.dir)?;
            let mut draft = tempfile::Builder::new().prefix(DRAFT_PREFIX).tempfile_in(&self.dir)?;
            writeln!(draft, "{}", self.text.expose_secret())?;
            draft.as_file().sync_all()?;
            draft.persist_noclobber(&path).map_err(|failed| failed.error)?;
            File::open(&self.dir)?.sync_all()
        };
        write().map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => StartError::Invalid(format!(
                "another process created the secret key {} at the same time; start again",
                path.display()
            )),
            _ => io_error(format!(
                "the secret key {} cannot be written; make its directory writable for this user, or free some space",
                path.display()
            ))(error),
        })
    }
}

/// The prefix of the file names of key drafts.
const DRAFT_PREFIX: &str = "secret.key.";

/// Deletes drafts of starts that were killed.
fn remove_drafts(dir: &Path) -> std::io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(DRAFT_PREFIX)) {
            match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Creates the database's directory and its file if they are missing. SQLite creates its log and index with the same
/// mode as the file.
pub fn prepare_database_file(path: &Path) -> Result<(), StartError> {
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        create_dir(dir, "CRIER_DATA_DIR or CRIER_DATABASE_URL")?;
    }
    let what = format!("the database {} cannot be written; make it writable for this user", path.display());
    OpenOptions::new().append(true).create(true).mode(0o600).open(path).map_err(io_error(what))?;
    for end in ["", "-wal", "-shm", "-journal"] {
        let mut file = path.as_os_str().to_owned();
        file.push(end);
        permissions::restrict_or_warn(Path::new(&file), "the database");
    }
    Ok(())
}

/// Makes the storage directory inaccessible to other users if it is inside the data directory.
pub fn restrict_files_dir(config: &Config) {
    if let StorageConfig::Directory(dir) = &config.storage
        && dir.starts_with(&config.data_dir)
        && *dir != config.data_dir
    {
        permissions::restrict_or_warn(dir, "the directory");
    }
}
