//! A directory on a local or shared disk.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use crier_base::permissions;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::local::LocalFileSystem;

use super::{StorageError, TOP, folder};
use crate::blocking;

/// The number of bytes per read.
const CHUNK: u64 = 64 * 1024;

/// Creates the directory if it is missing, and tests that it is writable.
pub fn open(dir: &Path) -> Result<LocalFileSystem, StorageError> {
    let unwritable = |error: io::Error| StorageError::new(format!("cannot store files in {}: {error}", dir.display()));
    let top = dir.join(TOP);
    permissions::make_dir(&top).map_err(unwritable)?;
    // It contains only our files. The directory above it may belong to the operator.
    permissions::restrict_or_warn(&top, "the directory");
    permissions::warn_if_open(dir, "the directory");
    tempfile::tempfile_in(dir).map_err(unwritable)?;
    // Empty folders are not removed, because a concurrent write to the folder would fail.
    let files = LocalFileSystem::new_with_prefix(dir).map_err(StorageError::of)?;
    Ok(files.with_fsync(true).with_automatic_cleanup(false))
}

/// Streams a part of a file. Each chunk is read on a blocking thread.
pub fn read(file: File, range: Range<u64>) -> BoxStream<'static, Result<Bytes, StorageError>> {
    stream::try_unfold((file, range), |(mut file, range)| async move {
        if range.is_empty() {
            return Ok(None);
        }
        let read = move || {
            let size = CHUNK.min(range.end - range.start);
            let mut chunk = vec![0; usize::try_from(size).unwrap_or_default()];
            file.seek(SeekFrom::Start(range.start))?;
            // Fails if the file ends too early.
            file.read_exact(&mut chunk)?;
            Ok((Bytes::from(chunk), (file, range.start + size..range.end)))
        };
        let read = blocking::run(read).await;
        read.map(Some).map_err(StorageError::of_disk)
    })
    .boxed()
}

pub async fn delete(root: Arc<Path>, key: String) -> io::Result<()> {
    blocking::run(move || remove(&root.join(TOP), &key)).await
}

pub async fn check(root: Arc<Path>) -> io::Result<()> {
    blocking::run(move || check_exists(&root.join(TOP))).await
}

/// Fails if the directory is missing, because an unmounted disk must not look like deleted files.
fn check_exists(top: &Path) -> io::Result<()> {
    if top.is_dir() {
        return Ok(());
    }
    let message = format!("{} is missing; check that its disk is mounted", top.display());
    Err(io::Error::new(io::ErrorKind::NotFound, message))
}

/// Removes a file and partial writes of it. A file is first written under its name with a suffix such as `#1`, and this
/// file remains if the process dies.
fn remove(top: &Path, key: &str) -> io::Result<()> {
    check_exists(top)?;
    let (folder, partial) = (top.join(folder(key)), format!("{key}#"));
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    let mut removed = false;
    for entry in entries {
        let name = entry?.file_name();
        if name == key || name.to_str().is_some_and(|name| name.starts_with(&partial)) {
            match fs::remove_file(folder.join(&name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => removed = true,
            }
        }
    }
    if removed { File::open(&folder)?.sync_all() } else { Ok(()) }
}
