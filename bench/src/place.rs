//! The environment of a measurement: a new SQLite file with the in-process queue, or a new database on a Postgres
//! server with its own keys in Redis. Never the installation's.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use crier_api::limits::Limiter;
use crier_api::limits::memory::MemoryLimiter;
use crier_api::limits::redis::RedisLimiter;
use crier_base::clock::Clock;
use crier_base::secrets::{Cipher, SecretKey};
use crier_config::{self as config, Config, Database, MediaConfig};
use crier_media::{Library, Storage};
use crier_queue::Transport as _;
use crier_queue::memory::MemoryNotifier;
use crier_queue::redis::{RedisNotifier, unregister};
use crier_store::{Db, Store, StoreError};
use redis::AsyncCommands as _;
use secrecy::{ExposeSecret, SecretString};
use tokio_util::sync::CancellationToken;

use super::buffered_notifier::BufferedNotifier;
use super::database::ScratchDatabase;
use super::{BenchError, Result, refused};

/// The pool size of a process in an installation.
const CONNECTIONS: u32 = 20;
/// Time limit for returning connections to their pool.
const CLOSE: Duration = Duration::from_secs(5);

/// Where places are created.
#[derive(Clone)]
pub enum EnvironmentConfig {
    /// In this directory, or in the system's temporary directory.
    Embedded(Option<PathBuf>),
    Split {
        database: SecretString,
        redis: SecretString,
    },
}

impl EnvironmentConfig {
    pub fn of(config: &Config, dir: Option<PathBuf>) -> std::result::Result<Self, BenchError> {
        match (&config.database, &config.redis_url) {
            (Database::Sqlite(_), None) => Ok(Self::Embedded(dir)),
            (Database::Postgres(_), Some(_)) if dir.is_some() => {
                refused("--dir is where SQLite's file goes; not for Postgres")
            }
            (Database::Postgres(database), Some(redis)) => {
                Ok(Self::Split { database: database.clone(), redis: redis.clone() })
            }
            (Database::Postgres(_), None) => {
                refused("CRIER_REDIS_URL is not set, and CRIER_DATABASE_URL is Postgres: set both, or neither")
            }
            (Database::Sqlite(_), Some(_)) => {
                refused("CRIER_DATABASE_URL is not Postgres, and CRIER_REDIS_URL is set: set both, or neither")
            }
        }
    }
}

/// The owner of the database.
enum DatabaseOwner {
    File(tempfile::TempDir),
    Server { database: Box<ScratchDatabase>, redis: SecretString, prefix: String },
}

/// The stores of the roles: a shared one in the embedded form, one per role with its own connections in the split form.
struct Opened {
    api: Store,
    worker: Store,
    scheduler: Store,
    notifier: Arc<BufferedNotifier>,
}

pub struct BenchEnvironment {
    holder: DatabaseOwner,
    library: Library,
    files: tempfile::TempDir,
    opened: OnceLock<Opened>,
    /// Stops the notifier's listeners.
    stop: CancellationToken,
}

impl BenchEnvironment {
    /// Chooses the names; creates nothing on a server yet.
    pub fn plan(ground: EnvironmentConfig) -> std::result::Result<Self, BenchError> {
        let holder = match ground {
            EnvironmentConfig::Embedded(dir) => {
                let mut file = tempfile::Builder::new();
                file.prefix("crier-bench-");
                let made = dir.map_or_else(|| file.tempdir(), |dir| file.tempdir_in(dir));
                DatabaseOwner::File(made.map_err(|error| super::io("the directory for the SQLite file", error))?)
            }
            EnvironmentConfig::Split { database, redis } => DatabaseOwner::Server {
                database: Box::new(ScratchDatabase::beside(database.expose_secret())?),
                redis,
                prefix: format!("crier-bench-{:016x}", crier_base::random::u64()),
            },
        };
        let files = tempfile::Builder::new().prefix("crier-bench-").tempdir();
        let files = files.map_err(|error| super::io("the directory for media files", error))?;
        let library = library_in(files.path())?;
        Ok(Self { holder, library, files, opened: OnceLock::new(), stop: CancellationToken::new() })
    }

    /// Returns the media library, which has its own directory.
    pub fn library(&self) -> &Library {
        &self.library
    }

    pub async fn open(&self) -> Result {
        let notifier = match &self.holder {
            DatabaseOwner::File(_) => BufferedNotifier::over(Arc::new(MemoryNotifier::default())),
            DatabaseOwner::Server { database, redis, prefix } => {
                database.create().await?;
                notifier_over_redis(redis, prefix, self.stop.clone())?
            }
        };
        let notifier = Arc::new(notifier);
        let opener = self.opener(notifier.clone());
        let api = opener.open().await?;
        api.db().migrate().await?;
        let (worker, scheduler) = match &self.holder {
            DatabaseOwner::File(_) => (api.clone(), api.clone()),
            DatabaseOwner::Server { .. } => (opener.open().await?, opener.open().await?),
        };
        wait_for_redis(&notifier).await?;
        let _ = self.opened.set(Opened { api, worker, scheduler, notifier });
        Ok(())
    }

    fn opened(&self) -> &Opened {
        self.opened.get().expect("a measurement is given a place that was opened")
    }

    pub fn is_embedded(&self) -> bool {
        matches!(self.holder, DatabaseOwner::File(_))
    }

    /// Returns what another process needs to work here; `None` in the embedded form, which is one process.
    pub fn shared(&self) -> Option<SharedPlace> {
        let DatabaseOwner::Server { database, redis, prefix } = &self.holder else { return None };
        Some(SharedPlace {
            database: SecretString::from(database.url.as_str()),
            redis: redis.clone(),
            prefix: prefix.clone(),
            files: self.files.path().to_owned(),
        })
    }

    /// Returns which form of Crier is measured.
    pub fn form(&self) -> &'static str {
        match self.holder {
            DatabaseOwner::File(_) => "embedded (SQLite, the queue inside the process)",
            DatabaseOwner::Server { .. } => "split (Postgres, Redis), all roles in this process",
        }
    }

    /// Returns the store that enqueues.
    pub fn api(&self) -> &Store {
        &self.opened().api
    }

    /// Returns the same store with its clock an hour behind: a job for the real current time is written as scheduled,
    /// and is due for all other stores.
    pub fn api_one_hour_behind(&self) -> Store {
        let now = self.api().now() - TimeDelta::hours(1);
        self.api_at(now)
    }

    fn api_at(&self, now: DateTime<Utc>) -> Store {
        let Opened { api, notifier, .. } = self.opened();
        Store::new(api.db().clone(), Clock::manual(now), api.cipher().clone(), notifier.clone())
    }

    pub fn worker(&self) -> &Store {
        &self.opened().worker
    }

    pub fn scheduler(&self) -> &Store {
        &self.opened().scheduler
    }

    pub fn notifier(&self) -> &Arc<BufferedNotifier> {
        &self.opened().notifier
    }

    /// Returns a rate limiter with this place's own keys.
    pub fn limiter(&self) -> std::result::Result<Arc<dyn Limiter>, BenchError> {
        let clock = self.api().clock().clone();
        Ok(match &self.holder {
            DatabaseOwner::File(_) => Arc::new(MemoryLimiter::new(clock)),
            DatabaseOwner::Server { redis, prefix, .. } => {
                let limiter = RedisLimiter::with_prefix(prefix, redis, clock);
                Arc::new(limiter.map_err(|error| BenchError::Refused(format!("CRIER_REDIS_URL: {error}")))?)
            }
        })
    }

    fn opener(&self, notifier: Arc<BufferedNotifier>) -> Opener {
        let place = match &self.holder {
            DatabaseOwner::File(dir) => DatabaseLocation::File(dir.path().join("crier.db")),
            DatabaseOwner::Server { database, .. } => DatabaseLocation::Url(SecretString::from(database.url.as_str())),
        };
        Opener { place, notifier }
    }

    /// Closes the stores and deletes everything.
    pub async fn close(&self) -> Result {
        self.stop.cancel();
        if let Some(Opened { api, worker, scheduler, .. }) = self.opened.get() {
            let closed = async { tokio::join!(api.db().close(), worker.db().close(), scheduler.db().close()) };
            // Deleting the database closes connections that are still in use.
            let _ = tokio::time::timeout(CLOSE, closed).await;
        }
        let DatabaseOwner::Server { database, redis, prefix } = &self.holder else { return Ok(()) };
        let left = |what: &str, error: &dyn std::fmt::Display| {
            BenchError::Refused(format!("{what} of the benchmark could not be deleted: {error}"))
        };
        let (removed, deleted) = (database.delete().await, delete_keys(redis, prefix).await);
        removed.map_err(|error| left(&format!("the database {}", database.name), &error))?;
        deleted.map_err(|error| left(&format!("the keys {prefix}:*"), &error))
    }
}

async fn delete_keys(redis: &SecretString, prefix: &str) -> redis::RedisResult<()> {
    let client = redis::Client::open(redis.expose_secret())?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    // Not KEYS, which would block a shared server.
    let mut found = connection.scan_match::<_, String>(format!("{prefix}:*")).await?;
    let mut keys = Vec::new();
    while let Some(key) = found.next_item().await {
        keys.push(key?);
    }
    drop(found);
    unregister(&mut connection, prefix).await?;
    match keys.is_empty() {
        true => Ok(()),
        false => connection.del(keys).await,
    }
}

/// Opens stores on a place's database.
#[derive(Clone)]
pub struct Opener {
    place: DatabaseLocation,
    notifier: Arc<BufferedNotifier>,
}

#[derive(Clone)]
enum DatabaseLocation {
    File(PathBuf),
    Url(SecretString),
}

impl Opener {
    pub async fn open(&self) -> std::result::Result<Store, StoreError> {
        let db = match &self.place {
            DatabaseLocation::File(path) => Db::sqlite(path).await?,
            DatabaseLocation::Url(url) => Db::postgres(url.expose_secret(), CONNECTIONS)?,
        };
        let cipher = Cipher::new(&[SecretKey::new(0, [0; 32])])?;
        Ok(Store::new(db, Clock::system(), cipher, self.notifier.clone()))
    }
}

/// A place of the split form that another process made, and will delete.
pub struct SharedPlace {
    pub database: SecretString,
    pub redis: SecretString,
    /// The prefix of the keys in Redis.
    pub prefix: String,
    pub files: PathBuf,
}

impl SharedPlace {
    /// Connects as a role of this process; `stop` ends the notifier's tasks.
    pub async fn open(
        &self,
        stop: CancellationToken,
    ) -> std::result::Result<(Store, Arc<BufferedNotifier>, Library), BenchError> {
        let notifier = Arc::new(notifier_over_redis(&self.redis, &self.prefix, stop)?);
        let opener = Opener { place: DatabaseLocation::Url(self.database.clone()), notifier: notifier.clone() };
        let store = opener.open().await?;
        store.db().probe().await?;
        wait_for_redis(&notifier).await?;
        Ok((store, notifier, library_in(&self.files)?))
    }
}

fn notifier_over_redis(
    redis: &SecretString,
    prefix: &str,
    stop: CancellationToken,
) -> std::result::Result<BufferedNotifier, BenchError> {
    let notifier = RedisNotifier::start(redis, prefix, stop);
    let notifier = notifier.map_err(|error| BenchError::Refused(format!("CRIER_REDIS_URL: {error}")))?;
    Ok(BufferedNotifier::over(Arc::new(notifier)))
}

async fn wait_for_redis(notifier: &BufferedNotifier) -> Result {
    poll_until(|| notifier.is_up(), "Redis (CRIER_REDIS_URL) does not answer").await
}

fn library_in(files: &Path) -> std::result::Result<Library, BenchError> {
    let storage = Storage::open(&config::Storage::Directory(files.to_owned()));
    let storage = storage.map_err(|error| BenchError::Refused(error.to_string()))?;
    Ok(Library::new(storage, &MediaConfig::default(), "http://127.0.0.1"))
}

/// Waits for the condition for at most 30 s.
async fn poll_until(so: impl Fn() -> bool, otherwise: &str) -> Result {
    for _ in 0..30_000 {
        if so() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    refused(otherwise)
}
