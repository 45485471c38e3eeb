//! `crier restore FILE`: restores an installation from a backup to an empty directory.
//!
//! Everything is extracted next to its destination, checked, and moved there at the end. The database is moved last, so an
//! interrupted restore leaves no installation. If it leaves files without a database, the next restore names them, and the
//! operator has to delete them.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use crier_base::clock::Clock;
use crier_base::secrets::Cipher;
use crier_config::{Config, StorageConfig, key_file};
use crier_domain::job::NoopNotifier;
use crier_runtime::data_dir::{self, DataDirLock};
use crier_runtime::{StartError, check_keys, check_plans};
use crier_store::jobs::operate;
use crier_store::{Db, Store, deliveries, files, media_uploads, storage_marker};
use tempfile::TempDir;

use super::super::{CommandError, Result, fail};
use super::archive::{self, ArchiveError, Manifest};
use super::{
    DATABASE, FILES, KEY, MEDIA, RESTORE_PREFIX, delete_unfinished, files_below, held_kinds, io, parent, progress,
    sqlite_file,
};
use crate::output::{command_line, print_line};

/// Restores from a file, or from stdin (`-`).
pub fn run(config: Config, source: &Path) -> ExitCode {
    super::super::in_runtime(config, |config| restore(config, source))
}

async fn restore(config: Config, source: &Path) -> Result {
    let paths = RestorePaths::of(&config)?;
    let lock = DataDirLock::take(&config.data_dir)?;
    paths.require_empty()?;
    let staging = StagingDirs::create(&paths)?;
    let manifest = extract(source, &staging)?;
    prepare(&config, &staging).await?;
    staging.move_to(&paths)?;
    drop(lock);
    print_line(format_args!(
        "Restored the backup of {}. Publishing, comments, deletions, replies and emails are held, because this \
         installation does not know what was completed after the backup. Start crier, then review what is overdue: {}",
        manifest.created_at.format("%F %H:%M UTC"),
        command_line(&config, "resume")
    ));
    Ok(())
}

/// The destinations of the parts of an installation.
struct RestorePaths {
    database: PathBuf,
    key: PathBuf,
    /// `None` if the files are in a bucket.
    files: Option<PathBuf>,
}

impl RestorePaths {
    fn of(config: &Config) -> std::result::Result<Self, CommandError> {
        let files = match &config.storage {
            StorageConfig::Directory(dir) => Some(dir.clone()),
            StorageConfig::S3(_) => None,
        };
        Ok(Self { database: sqlite_file(config)?.to_owned(), key: key_file(&config.data_dir), files })
    }

    fn require_empty(&self) -> Result {
        let is_filled = |dir: &PathBuf| fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some());
        let taken = [&self.database, &self.key].into_iter().find(|path| path.exists());
        match taken.or(self.files.as_ref().filter(|dir| is_filled(dir))) {
            None => Ok(()),
            Some(path) => fail(format!(
                "{} already exists, and a backup can only be restored to an empty directory; move the installation away, \
                 or choose another directory with --data-dir",
                path.display()
            )),
        }
    }
}

/// The directories to extract to. They are next to the destinations, so that the parts can be moved.
struct StagingDirs {
    data: StagingDir,
    files: Option<StagingDir>,
}

/// A temporary directory, with the lock that shows that it is in use.
struct StagingDir {
    dir: TempDir,
    _lock: File,
}

impl StagingDir {
    fn beside(destination: &Path) -> std::result::Result<Self, CommandError> {
        let dir = parent(destination);
        let create = || {
            crier_base::permissions::make_dir(dir)?;
            delete_unfinished(dir, RESTORE_PREFIX);
            let temporary = tempfile::Builder::new().prefix(RESTORE_PREFIX).tempdir_in(dir)?;
            let lock = File::open(temporary.path())?;
            lock.lock()?;
            Ok(Self { dir: temporary, _lock: lock })
        };
        create().map_err(io(format!(
            "nothing can be written to {}; make the directory writable for this user, or free some space",
            dir.display()
        )))
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl StagingDirs {
    fn create(paths: &RestorePaths) -> std::result::Result<Self, CommandError> {
        let files = paths.files.as_deref().map(StagingDir::beside).transpose()?;
        Ok(Self { data: StagingDir::beside(&paths.database)?, files })
    }

    fn database(&self) -> PathBuf {
        self.data.path().join(DATABASE)
    }

    fn key(&self) -> PathBuf {
        self.data.path().join(KEY)
    }

    /// Returns the path to extract an entry of the archive to; `None` if the entry is unexpected.
    fn path_of(&self, name: &Path) -> Option<PathBuf> {
        match name.to_str()? {
            DATABASE => return Some(self.database()),
            KEY => return Some(self.key()),
            _ => {}
        }
        let mut parts = name.components();
        let is_file = parts.next() == Some(Component::Normal(FILES.as_ref()));
        let files = self.files.as_ref().filter(|_| is_file)?;
        Some(files.path().join(FILES).join(parts.as_path()))
    }

    /// Moves everything to its destination. The database is last, because the installation exists as soon as it does.
    fn move_to(self, paths: &RestorePaths) -> Result {
        let io_error = |path: &Path| io(path.display().to_string());
        if let (Some(staging), Some(destination)) = (&self.files, &paths.files) {
            let files = staging.path().join(FILES);
            if files.exists() {
                let _ = fs::remove_dir(destination);
                fs::rename(files, destination).map_err(io_error(destination))?;
            }
        }
        if self.key().exists() {
            fs::rename(self.key(), &paths.key).map_err(io_error(&paths.key))?;
        }
        fs::rename(self.database(), &paths.database).map_err(io_error(&paths.database))?;
        let dir = parent(&paths.database);
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(io_error(dir))
    }
}

fn extract(source: &Path, staging: &StagingDirs) -> std::result::Result<Manifest, CommandError> {
    let from: Box<dyn Read> = match source == Path::new("-") {
        true => Box::new(std::io::stdin().lock()),
        false => Box::new(File::open(source).map_err(io(format!(
            "the backup {} cannot be read; name a file that this user can read",
            source.display()
        )))?),
    };
    let progress = progress();
    let extracted = archive::extract(progress.wrap_read(BufReader::new(from)), |name| staging.path_of(name));
    progress.finish_and_clear();
    match extracted {
        Ok(manifest) if staging.database().exists() => Ok(manifest),
        Ok(_) => fail(format!("{} contains no database; use another backup", source.display())),
        Err(ArchiveError::Unexpected(name)) if staging.files.is_none() && Path::new(&name).starts_with(FILES) => {
            fail(format!(
                "{} contains the files of the media library, and CRIER_STORAGE_URL is a bucket; restore it without \
                 CRIER_STORAGE_URL, then copy the files to the bucket",
                source.display()
            ))
        }
        Err(error) => fail(format!("{} cannot be restored: {error}", source.display())),
    }
}

/// Checks and migrates the extracted database, deletes what is incomplete, and pauses the kinds of jobs to hold.
async fn prepare(config: &Config, staging: &StagingDirs) -> Result {
    let keys = match (&config.secret_keys, staging.key().exists()) {
        (Some(keys), _) => keys.as_slice().to_vec(),
        (None, true) => data_dir::secret_keys(staging.data.path())?.0,
        (None, false) => {
            return fail("the backup contains no secret key; set CRIER_SECRET_KEY to the key of the installation");
        }
    };
    let cipher = Cipher::new(&keys).map_err(|error| StartError::Invalid(format!("CRIER_SECRET_KEY: {error}")))?;
    let db = Db::sqlite(&staging.database()).await?;
    let store = Store::new(db, Clock::system(), cipher, Arc::new(NoopNotifier));
    store.db().migrate().await?;
    check_keys(config, &store, None).await?;
    check_plans(&store, config).await?;
    delete_unreferenced(&store, staging).await?;
    let mut tx = store.begin().await?;
    media_uploads::delete_open(&mut tx).await?;
    storage_marker::delete(&mut tx).await?;
    deliveries::skip_ids(&mut tx).await?;
    for kind in held_kinds() {
        operate::pause_kind(&mut tx, kind).await?;
    }
    tx.commit().await?;
    store.db().close().await;
    Ok(())
}

/// Deletes extracted files that no row names. They were stored after the database was copied, so nothing would use them,
/// and the sweep, which begins with the rows, would never delete them.
async fn delete_unreferenced(store: &Store, staging: &StagingDirs) -> Result {
    let Some(staging) = &staging.files else { return Ok(()) };
    let referenced: HashSet<String> = files::keys(&mut store.read().await?).await?.into_iter().collect();
    let dir = staging.path().join(FILES).join(MEDIA);
    for path in files_below(&dir).map_err(io(dir.display().to_string()))? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !referenced.contains(&*name) {
            fs::remove_file(&path).map_err(io(path.display().to_string()))?;
        }
    }
    Ok(())
}
