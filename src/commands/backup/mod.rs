//! `crier backup | restore | resume`: an embedded installation as one file.
//!
//! The file is a tar archive: a copy of the database, which SQLite makes while the database is in use, and the files of
//! the media library. A file that is deleted after the copy is omitted. So are unfinished uploads, because they may be
//! larger than all files, and their clients can send them again. So is what else is in the directory of the storage, which
//! may be the operator's, or the system's (`lost+found`). The marker of the storage is part of that: the first start after
//! a restore marks the new directory. A restored installation does not know what it published after the backup, so
//! publishing is held until the operator resumes it.

mod archive;
mod restore;
mod resume;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, IsTerminal as _, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crier_base::permissions;
use crier_config::{Config, Database, StorageConfig, key_file};
use crier_domain::job::JobKind;
use crier_runtime::{StartError, storage_marker};
use indicatif::ProgressBar;

use self::archive::{ArchiveWriter, Manifest};
use super::{CommandError, Context, Result, fail};

pub use restore::run as restore;
pub use resume::run as resume;

const DATABASE: &str = "crier.db";
const KEY: &str = "secret.key";
const FILES: &str = "files";
/// The directory of the storage that contains the files of the media library.
const MEDIA: &str = "media";
/// The end of the name of a piece of an upload.
const PIECE_END: &str = ".piece";
/// The prefixes of unfinished files and directories.
const BACKUP_PREFIX: &str = "crier-backup-";
const RESTORE_PREFIX: &str = "crier-restore-";

/// Returns whether the jobs of a kind are held after a restore, because other people see their results.
const fn is_held(kind: JobKind) -> bool {
    match kind {
        JobKind::PublishTarget
        | JobKind::PublishComment
        | JobKind::UnpublishTarget
        | JobKind::PostArticle
        | JobKind::SendMail
        | JobKind::SendReply => true,
        JobKind::DeliverWebhook
        | JobKind::FetchFeed
        | JobKind::ImportMedia
        | JobKind::ImportPosts
        | JobKind::RefreshToken
        | JobKind::SyncInbox
        | JobKind::CollectAnalytics
        | JobKind::ExportReport
        | JobKind::MakeOccurrences
        | JobKind::SendDigest
        | JobKind::Noop => false,
    }
}

fn held_kinds() -> impl Iterator<Item = JobKind> {
    JobKind::ALL.iter().copied().filter(|kind| is_held(*kind))
}

fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> CommandError {
    let what = what.into();
    move |error| StartError::Io { what, error }.into()
}

/// Returns the path of the SQLite file. Fails on Postgres, which has its own tools.
fn sqlite_file(config: &Config) -> std::result::Result<&Path, CommandError> {
    match &config.database {
        Database::Sqlite(path) => Ok(path),
        Database::Postgres(_) => fail(
            "this installation uses Postgres; use the tools of Postgres, pg_dump and pg_restore or continuous archiving \
             (see docs/operations.md)",
        ),
    }
}

/// Writes a backup to a file that does not exist yet, or to stdout (`-`).
pub async fn backup(cx: &Context, target: &Path) -> Result {
    let database = sqlite_file(&cx.config)?;
    if target == Path::new("-") && std::io::stdout().is_terminal() {
        return fail("stdout is a terminal; redirect it, for example: crier backup - | gzip > crier.tar.gz");
    }
    // Before the database is copied, which may take minutes.
    check_is_new(target)?;
    // Without its disk, the backup would have no files.
    storage_marker::check(&cx.config, &cx.store).await?;
    let dir = parent(database);
    delete_unfinished(dir, BACKUP_PREFIX);
    let copy = tempfile::Builder::new().prefix(BACKUP_PREFIX).suffix(".db").tempfile_in(dir);
    let copy = copy.map_err(io(format!(
        "the database cannot be copied in {}; make the directory writable for this user, or free some space",
        dir.display()
    )))?;
    copy.as_file().lock().map_err(io(copy.path().display().to_string()))?;
    cx.store.db().copy_to(copy.path()).await?;
    let manifest = Manifest::now(cx.store.now(), cx.store.db().schema_version().await?);
    if target == Path::new("-") {
        let written = write(&cx.config, &manifest, copy.path(), std::io::stdout().lock())?;
        return written.report("stdout");
    }
    let unfinished = PathBuf::from(format!("{}.part", target.display()));
    let what = || {
        let name = unfinished.display();
        format!("the backup {name} cannot be written; name a file in a directory that this user can write to")
    };
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&unfinished);
    let file = file.map_err(io(what()))?;
    lock(&file, &unfinished)?;
    // The backup contains the secret key, and a file that was there before keeps its mode.
    permissions::restrict_or_warn(&unfinished, "the backup");
    // Another command may have written the backup meanwhile, or left an unfinished one.
    let is_new = check_is_new(target).and_then(|()| file.set_len(0).map_err(io(what())));
    let written = match is_new.and_then(|()| write(&cx.config, &manifest, copy.path(), &file)) {
        Ok(written) => written,
        Err(error) => {
            let _ = fs::remove_file(&unfinished);
            return Err(error);
        }
    };
    file.sync_all().and_then(|()| fs::rename(&unfinished, target)).map_err(io(what()))?;
    let dir = parent(target);
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io(dir.display().to_string()))?;
    written.report(&target.display().to_string())
}

/// Locks the unfinished file. Fails if another command is writing it, or has just moved or deleted it.
fn lock(file: &File, path: &Path) -> Result {
    let inode = |found: std::io::Result<fs::Metadata>| found.ok().map(|metadata| metadata.ino());
    // A file system without locks is no error.
    let is_locked = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
    if is_locked || inode(fs::metadata(path)) != inode(file.metadata()) {
        return fail(format!(
            "another `crier backup` is writing {}; wait until it has finished, or choose another name",
            path.display()
        ));
    }
    Ok(())
}

fn check_is_new(target: &Path) -> Result {
    if target != Path::new("-") && target.exists() {
        return fail(format!("{} already exists; choose another name", target.display()));
    }
    Ok(())
}

/// Returns the directory that a file is in.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Deletes the unfinished files and directories of commands that were killed. A running command holds a lock on its own,
/// which the system releases when the process ends.
fn delete_unfinished(dir: &Path, prefix: &str) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_unfinished = entry.file_name().to_string_lossy().starts_with(prefix);
        if !is_unfinished || !File::open(&path).is_ok_and(|file| file.try_lock().is_ok()) {
            continue;
        }
        let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
    }
}

/// The contents of a backup that was written.
struct BackupContents {
    files: usize,
    has_key: bool,
    has_files: bool,
}

impl BackupContents {
    fn report(&self, place: &str) -> Result {
        let mut err = std::io::stderr().lock();
        let _ = writeln!(err, "Wrote the database and {} files to {place}.", self.files);
        if self.has_key {
            let _ = writeln!(err, "The backup contains the secret key: keep it as safe as the installation itself.");
        } else {
            let _ = writeln!(err, "The backup does not contain CRIER_SECRET_KEY: keep the key as well.");
        }
        if !self.has_files {
            let _ = writeln!(err, "The media library is in a bucket and not in the backup.");
        }
        Ok(())
    }
}

fn write(
    config: &Config,
    manifest: &Manifest,
    database: &Path,
    out: impl Write,
) -> std::result::Result<BackupContents, CommandError> {
    let progress = progress();
    let mut archive = ArchiveWriter::new(progress.wrap_write(out));
    let io_error =
        || io("the backup cannot be written; check the permissions of the installation's files and the free space");
    archive.add_manifest(manifest).map_err(io_error())?;
    let key = key_file(&config.data_dir);
    let has_key = config.secret_keys.is_none() && key.exists();
    if has_key {
        archive.add_file(KEY, &mut File::open(&key).map_err(io_error())?).map_err(io_error())?;
    }
    archive.add_file(DATABASE, &mut File::open(database).map_err(io_error())?).map_err(io_error())?;
    let mut count = 0;
    if let StorageConfig::Directory(root) = &config.storage {
        for path in files_below(&root.join(MEDIA)).map_err(io_error())?.into_iter().filter(|path| is_complete(path)) {
            let Some(name) = path.strip_prefix(root).ok().and_then(Path::to_str) else { continue };
            let mut file = match File::open(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                opened => opened.map_err(io_error())?,
            };
            archive.add_file(&format!("{FILES}/{name}"), &mut file).map_err(io_error())?;
            count += 1;
        }
    }
    archive.finish().and_then(|mut out| out.flush()).map_err(io_error())?;
    progress.finish_and_clear();
    Ok(BackupContents { files: count, has_key, has_files: matches!(config.storage, StorageConfig::Directory(_)) })
}

/// Returns whether a file is neither a piece of an upload nor being written. The name of one that is being written ends
/// with `#` and a number.
fn is_complete(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    !name.contains('#') && !name.ends_with(PIECE_END)
}

/// Returns all files below a directory, sorted.
fn files_below(root: &Path) -> std::io::Result<Vec<PathBuf>> {
    let (mut found, mut open) = (Vec::new(), vec![root.to_owned()]);
    while let Some(dir) = open.pop() {
        let entries = match fs::read_dir(&dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            match entry.file_type()? {
                kind if kind.is_dir() => open.push(entry.path()),
                kind if kind.is_file() => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Returns a progress bar that counts bytes; hidden unless stderr is a terminal.
fn progress() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::no_length();
    if let Ok(style) = indicatif::ProgressStyle::with_template("{bytes} in {elapsed} ({bytes_per_sec})") {
        bar.set_style(style);
    }
    bar
}
