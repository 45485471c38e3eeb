//! File permissions: only the user that runs Crier may read its files.
//!
//! New files get their mode at creation; the umask covers files that libraries create (SQLite's log, the storage's
//! files). Existing files of Crier are restricted to its user. A directory that the operator created keeps its mode; a
//! warning is logged if others can access it.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::Mode;

/// The permission bits of the group and of others.
const OTHERS: u32 = 0o077;

/// Sets the umask to 0077. Call it first in a program: the umask is shared by all threads.
pub fn set_umask() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}

/// Creates a directory and its missing parents with mode 0700.
pub fn make_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Removes the permissions of group and others; returns whether there were any. A missing file is not an error.
pub fn restrict_to_owner(path: &Path) -> io::Result<bool> {
    let mode = match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        found => found?.mode() & 0o777,
    };
    if mode & OTHERS == 0 {
        return Ok(false);
    }
    fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS))?;
    Ok(true)
}

/// Like [`restrict_to_owner`], but logs a warning instead of failing. The warning begins with `what`.
pub fn restrict_or_warn(path: &Path, what: &str) {
    match restrict_to_owner(path) {
        Ok(false) => {}
        Ok(true) => {
            tracing::warn!(
                "{what} {} was accessible to other users of this machine; Crier restricted its permissions",
                path.display()
            )
        }
        Err(error) => {
            tracing::warn!(%error, "{what} {} may be accessible to other users of this machine, and its mode cannot be \
                 changed", path.display());
        }
    }
}

/// Logs a warning if others can access a directory. The warning begins with `what`.
pub fn warn_if_open(dir: &Path, what: &str) {
    let mode = fs::metadata(dir).map_or(0, |found| found.mode() & 0o777);
    if mode & OTHERS != 0 {
        tracing::warn!(
            "{what} {dir} is accessible to other users of this machine (mode {mode:04o}); run: chmod 700 {dir}",
            dir = dir.display()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_permissions_are_restricted_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o777;
        let (made, file) = (dir.path().join("a/b"), dir.path().join("file"));
        make_dir(&made).expect("a directory");
        make_dir(&made).expect("it is there");
        assert_eq!((mode(&made), mode(&dir.path().join("a"))), (0o700, 0o700));
        assert!(!restrict_to_owner(&file).expect("it is missing"));
        fs::write(&file, b"x").expect("a file");
        fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("a mode");
        assert!(restrict_to_owner(&file).expect("a mode"));
        assert!(!restrict_to_owner(&file).expect("a mode"));
        assert_eq!(mode(&file), 0o600);
    }
}
