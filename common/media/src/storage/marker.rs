//! The marker of a storage directory: a file with a random id that the database also has. The mount point of a disk that
//! is not mounted has no marker, so a process can tell it from the storage.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::Path;

use crier_base::random;

use super::TOP;

/// The name of the file. It is beside the directory of the files, so it is never served.
pub const NAME: &str = "storage.id";
/// The number of characters of an id.
const LENGTH: usize = 32;
/// The maximum size that is read, in bytes.
const MAX_BYTES: u64 = 1_024;

/// Returns the id of the directory; `None` if the directory or its marker is missing.
pub fn read(dir: &Path) -> io::Result<Option<String>> {
    let file = match File::open(dir.join(NAME)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    let id = text.trim();
    Ok((!id.is_empty()).then(|| id.to_owned()))
}

/// Returns whether the directory has the directory of the files, which the first start creates.
pub fn has_files(dir: &Path) -> io::Result<bool> {
    dir.join(TOP).try_exists()
}

/// Returns the id of the directory, and creates the marker if it is missing. Concurrent calls return the same id.
pub fn create(dir: &Path) -> io::Result<String> {
    if let Some(id) = read(dir)? {
        return Ok(id);
    }
    let id = random::text(LENGTH).map_err(|error| io::Error::other(error.to_string()))?;
    let path = dir.join(NAME);
    let mut draft = tempfile::NamedTempFile::new_in(dir)?;
    writeln!(draft, "{id}")?;
    draft.as_file().sync_all()?;
    match draft.persist_noclobber(&path) {
        Err(failed) if failed.error.kind() == ErrorKind::AlreadyExists => {
            return read(dir)?.ok_or_else(|| io::Error::other(format!("{} is empty; delete it", path.display())));
        }
        // Some network file systems can only rename.
        Err(failed) => drop(failed.file.persist(&path).map_err(|failed| failed.error)?),
        Ok(file) => drop(file),
    }
    File::open(dir)?.sync_all()?;
    Ok(id)
}
