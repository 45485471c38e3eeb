//! `crier restore FILE`: makes an installation from a backup, in an empty place.
//!
//! Everything is extracted beside its place and checked, and moved there in the end, the database last: an interrupted
//! restore leaves no installation. It can be repeated; what the first one left in the end, files without a database, is
//! then named, to be removed by hand.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use crier_base::clock::Clock;
use crier_base::secrets::Cipher;
use crier_config::{Config, Storage, key_file};
use crier_domain::job::NoopNotifier;
use crier_runtime::data_dir::{self, DataDirLock};
use crier_runtime::{StartError, check_keys, check_plans};
use crier_store::jobs::operate;
use crier_store::{Db, Store};
use tempfile::TempDir;

use super::super::{CommandError, Result, refused};
use super::archive::{self, Manifest};
use super::{DATABASE, FILES, HELD, KEY, RESTORE_DRAFT, io, parent, progress, remove_leftovers, sqlite_file};
use crate::output::print_line;

/// Restores from a file, or from stdin (`-`).
pub fn run(config: Config, source: &Path) -> ExitCode {
    super::super::in_runtime(config, |config| restore(config, source))
}

async fn restore(config: Config, source: &Path) -> Result {
    let places = Places::of(&config)?;
    let lock = DataDirLock::take(&config.data_dir)?;
    places.require_empty()?;
    let drafts = Drafts::make(&places)?;
    let manifest = extract(source, &drafts)?;
    prepare(&config, &drafts).await?;
    drafts.move_to(&places)?;
    drop(lock);
    print_line(format_args!(
        "Restored the backup of {}. Publishing, replies and emails are held, because this installation does not know what \
         was sent after the backup. Start crier, then review what is overdue: crier resume",
        manifest.created_at.format("%F %H:%M UTC")
    ));
    Ok(())
}

/// Where the parts of the installation go.
struct Places {
    database: PathBuf,
    key: PathBuf,
    /// `None`: a bucket.
    files: Option<PathBuf>,
}

impl Places {
    fn of(config: &Config) -> std::result::Result<Self, CommandError> {
        let files = match &config.storage {
            Storage::Directory(dir) => Some(dir.clone()),
            Storage::S3(_) => None,
        };
        Ok(Self { database: sqlite_file(config)?.to_owned(), key: key_file(&config.data_dir), files })
    }

    fn require_empty(&self) -> Result {
        let is_filled = |dir: &PathBuf| fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some());
        let taken = [&self.database, &self.key].into_iter().find(|path| path.exists());
        match taken.or(self.files.as_ref().filter(|dir| is_filled(dir))) {
            None => Ok(()),
            Some(path) => refused(format!(
                "{} already exists, and a backup can only be restored to an empty directory; move the installation away, \
                 or choose another directory with --data-dir",
                path.display()
            )),
        }
    }
}

/// Where the parts are extracted: beside their places, so that they can be moved there.
struct Drafts {
    data: Draft,
    files: Option<Draft>,
}

/// A directory that is removed in the end, with the lock that shows that it is in use.
struct Draft {
    dir: TempDir,
    _lock: File,
}

impl Draft {
    fn beside(place: &Path) -> std::result::Result<Self, CommandError> {
        let dir = parent(place);
        let make = || {
            crier_base::permissions::make_dir(dir)?;
            remove_leftovers(dir, RESTORE_DRAFT);
            let made = tempfile::Builder::new().prefix(RESTORE_DRAFT).tempdir_in(dir)?;
            let lock = File::open(made.path())?;
            lock.lock()?;
            Ok(Self { dir: made, _lock: lock })
        };
        make().map_err(io(format!("the directory {}", dir.display())))
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drafts {
    fn make(places: &Places) -> std::result::Result<Self, CommandError> {
        let files = places.files.as_deref().map(Draft::beside).transpose()?;
        Ok(Self { data: Draft::beside(&places.database)?, files })
    }

    fn database(&self) -> PathBuf {
        self.data.path().join(DATABASE)
    }

    fn key(&self) -> PathBuf {
        self.data.path().join(KEY)
    }

    /// Returns where an entry of the archive goes.
    fn place(&self, name: &Path) -> Option<PathBuf> {
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

    /// Moves everything to its place, the database last: with it the installation exists.
    fn move_to(self, places: &Places) -> Result {
        let broken = |path: &Path| io(path.display().to_string());
        if let (Some(draft), Some(place)) = (&self.files, &places.files) {
            let draft = draft.path().join(FILES);
            if draft.exists() {
                let _ = fs::remove_dir(place);
                fs::rename(draft, place).map_err(broken(place))?;
            }
        }
        if self.key().exists() {
            fs::rename(self.key(), &places.key).map_err(broken(&places.key))?;
        }
        fs::rename(self.database(), &places.database).map_err(broken(&places.database))?;
        let dir = parent(&places.database);
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(broken(dir))
    }
}

fn extract(source: &Path, drafts: &Drafts) -> std::result::Result<Manifest, CommandError> {
    let from: Box<dyn Read> = match source == Path::new("-") {
        true => Box::new(std::io::stdin().lock()),
        false => Box::new(File::open(source).map_err(io(format!("the backup {}", source.display())))?),
    };
    let progress = progress();
    let extracted = archive::extract(progress.wrap_read(BufReader::new(from)), |name| drafts.place(name));
    progress.finish_and_clear();
    match extracted {
        Ok(manifest) if drafts.database().exists() => Ok(manifest),
        Ok(_) => refused(format!("{} contains no database", source.display())),
        Err(error) => refused(format!("{} cannot be restored: {error}", source.display())),
    }
}

/// Checks the extracted database, brings it to this version, and holds what goes out.
async fn prepare(config: &Config, drafts: &Drafts) -> Result {
    let keys = match (&config.secret_keys, drafts.key().exists()) {
        (Some(keys), _) => keys.as_slice().to_vec(),
        (None, true) => data_dir::secret_keys(drafts.data.path())?.0,
        (None, false) => {
            return refused("the backup contains no secret key; set CRIER_SECRET_KEY to the key of the installation");
        }
    };
    let cipher = Cipher::new(&keys).map_err(|error| StartError::Refused(format!("CRIER_SECRET_KEY: {error}")))?;
    let db = Db::sqlite(&drafts.database()).await?;
    let store = Store::new(db, Clock::system(), cipher, Arc::new(NoopNotifier));
    store.db().migrate().await?;
    check_keys(config, &store, None).await?;
    check_plans(&store, config).await?;
    let mut tx = store.begin().await?;
    for kind in HELD {
        operate::pause_kind(&mut tx, kind).await?;
    }
    tx.commit().await?;
    store.db().close().await;
    Ok(())
}
