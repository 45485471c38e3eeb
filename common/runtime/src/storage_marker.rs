//! Rejects a start with another storage directory than that of the installation, such as the mount point of a disk that
//! is not mounted: all files would seem to be deleted. Buckets have no marker, because a missing bucket is an error anyway.

use std::io;
use std::path::{Path, PathBuf};

use crier_config::{Config, StorageConfig};
use crier_media::storage::marker;
use crier_store::{Store, files, storage_marker};

use super::StartError;

/// Compares the marker of the configured directory with the database. Creates nothing. The schema must be current.
pub async fn check(config: &Config, store: &Store) -> Result<(), StartError> {
    let StorageConfig::Directory(dir) = &config.storage else { return Ok(()) };
    let Some(known) = storage_marker::find(&mut store.read().await?).await? else {
        return check_unmarked(config, dir, store).await;
    };
    match marker::read(dir).map_err(io_error(config, dir))? {
        Some(found) if found == known => Ok(()),
        Some(_) => {
            let settings = config.storage_settings();
            let why = format!("its {} belongs to another storage; correct {settings}", marker::NAME);
            Err(StartError::Invalid(explain(dir, &why)))
        }
        None => {
            let why = format!("it contains no {}, {}", marker::NAME, not_mounted(config));
            Err(StartError::Invalid(explain(dir, &why)))
        }
    }
}

/// Checks a directory whose marker is not known yet. An empty one is not the storage if there are files: it would be
/// marked, and the disk would be rejected as soon as it is mounted.
async fn check_unmarked(config: &Config, dir: &Path, store: &Store) -> Result<(), StartError> {
    if marker::has_files(dir).map_err(io_error(config, dir))? || !files::has_stored(&mut store.read().await?).await? {
        return Ok(());
    }
    let why = format!("it contains no files, but the database lists some, {}", not_mounted(config));
    Err(StartError::Invalid(explain(dir, &why)))
}

/// Marks the directory of an installation that has no marker yet. Call it after [`check`]; the directory must exist.
pub async fn record(config: &Config, store: &Store) -> Result<(), StartError> {
    let StorageConfig::Directory(dir) = &config.storage else { return Ok(()) };
    if storage_marker::find(&mut store.read().await?).await?.is_some() {
        return Ok(());
    }
    // The file is first. If the process dies before the commit, the next start uses the same file.
    let id = marker::create(dir).map_err(io_error(config, dir))?;
    let mut tx = store.begin().await?;
    storage_marker::insert(&mut tx, &id).await?;
    tx.commit().await?;
    // Another process may have stored the id of another directory meanwhile.
    check(config, store).await
}

/// Makes the configured directory, which must exist, the storage of the installation. Returns it; `None` for a bucket.
pub async fn adopt(config: &Config, store: &Store) -> Result<Option<PathBuf>, StartError> {
    let StorageConfig::Directory(dir) = &config.storage else { return Ok(None) };
    let id = marker::create(dir).map_err(io_error(config, dir))?;
    let mut tx = store.begin().await?;
    storage_marker::replace(&mut tx, &id).await?;
    tx.commit().await?;
    Ok(Some(dir.clone()))
}

fn not_mounted(config: &Config) -> String {
    format!("so its disk may not be mounted; mount the disk, or correct {}", config.storage_settings())
}

fn explain(dir: &Path, why: &str) -> String {
    format!(
        "the directory {} is not the storage of this installation: {why}. If this directory replaces the storage, \
         move the files there and run `crier storage adopt`",
        dir.display()
    )
}

fn io_error(config: &Config, dir: &Path) -> impl FnOnce(io::Error) -> StartError {
    let name = dir.join(marker::NAME);
    let what = format!(
        "the file {} cannot be accessed; give this user access to the directory, or choose another with {}",
        name.display(),
        config.storage_settings()
    );
    move |error| StartError::Io { what, error }
}
