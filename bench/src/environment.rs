//! The environment of a measurement: a new SQLite file with the in-process queue, or a new database on a Postgres
//! server with its own keys in Redis. It never uses the data of the installation.

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
use super::{BenchError, Result, fail};

/// The pool size of a process in an installation.
const CONNECTIONS: u32 = 20;
/// Time limit for returning connections to their pool.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Where environments are created.
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
                fail("--dir is where SQLite's file goes; not for Postgres")
            }
            (Database::Postgres(database), Some(redis)) => {
                Ok(Self::Split { database: database.clone(), redis: redis.clone() })
            }
            (Database::Postgres(_), None) => {
                fail("CRIER_REDIS_URL is not set, and CRIER_DATABASE_URL is Postgres: set both, or neither")
            }
            (Database::Sqlite(_), Some(_)) => {
                fail("CRIER_DATABASE_URL is not Postgres, and CRIER_REDIS_URL is set: set both, or neither")
            }
        }
    }
}

/// The database and the queue, which the environment deletes.
enum Backend {
    File(tempfile::TempDir),
    Server { database: Box<ScratchDatabase>, redis: SecretString, prefix: String },
}

/// The stores of the roles. In the embedded form they share one; in the split form each has its own connections.
struct Stores {
    api: Store,
    worker: Store,
    scheduler: Store,
    notifier: Arc<BufferedNotifier>,
}

pub struct BenchEnvironment {
    backend: Backend,
    library: Library,
    files: tempfile::TempDir,
    stores: OnceLock<Stores>,
    /// Stops the notifier's listeners.
    stop: CancellationToken,
}

impl BenchEnvironment {
    /// Chooses the names, and creates the directories. [`Self::open`] creates the database.
    pub fn prepare(config: EnvironmentConfig) -> std::result::Result<Self, BenchError> {
        let backend = match config {
            EnvironmentConfig::Embedded(dir) => {
                let mut file = tempfile::Builder::new();
                file.prefix("crier-bench-");
                let made = dir.map_or_else(|| file.tempdir(), |dir| file.tempdir_in(dir));
                Backend::File(made.map_err(|error| super::io("the directory for the SQLite file", error))?)
            }
            EnvironmentConfig::Split { database, redis } => Backend::Server {
                database: Box::new(ScratchDatabase::beside(database.expose_secret())?),
                redis,
                prefix: format!("crier-bench-{:016x}", crier_base::random::u64()),
            },
        };
        let files = tempfile::Builder::new().prefix("crier-bench-").tempdir();
        let files = files.map_err(|error| super::io("the directory for media files", error))?;
        let library = library_in(files.path())?;
        Ok(Self { backend, library, files, stores: OnceLock::new(), stop: CancellationToken::new() })
    }

    /// Returns the media library, which has its own directory.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// Creates the database and opens the stores.
    pub async fn open(&self) -> Result {
        let notifier = match &self.backend {
            Backend::File(_) => BufferedNotifier::over(Arc::new(MemoryNotifier::default())),
            Backend::Server { database, redis, prefix } => {
                database.create().await?;
                notifier_over_redis(redis, prefix, self.stop.clone())?
            }
        };
        let notifier = Arc::new(notifier);
        let opener = self.opener(notifier.clone());
        let api = opener.open().await?;
        api.db().migrate().await?;
        let (worker, scheduler) = match &self.backend {
            Backend::File(_) => (api.clone(), api.clone()),
            Backend::Server { .. } => (opener.open().await?, opener.open().await?),
        };
        wait_for_redis(&notifier).await?;
        let _ = self.stores.set(Stores { api, worker, scheduler, notifier });
        Ok(())
    }

    fn stores(&self) -> &Stores {
        self.stores.get().expect("`open` was called")
    }

    pub fn is_embedded(&self) -> bool {
        matches!(self.backend, Backend::File(_))
    }

    /// Returns what a worker process needs to open this environment; `None` in the embedded form, which is one process.
    pub fn shared(&self) -> Option<SharedEnvironment> {
        let Backend::Server { database, redis, prefix } = &self.backend else { return None };
        Some(SharedEnvironment {
            database: SecretString::from(database.url.as_str()),
            redis: redis.clone(),
            prefix: prefix.clone(),
            files: self.files.path().to_owned(),
        })
    }

    /// Returns the form of Crier, for the figures.
    pub fn form(&self) -> &'static str {
        match self.backend {
            Backend::File(_) => "embedded (SQLite, the queue inside the process)",
            Backend::Server { .. } => "split (Postgres, Redis), all roles in this process",
        }
    }

    /// Returns the store of the API, which enqueues jobs.
    pub fn api(&self) -> &Store {
        &self.stores().api
    }

    /// Returns the API's store with its clock an hour behind. A job that it enqueues for the current time is scheduled,
    /// and due for all other stores.
    pub fn api_one_hour_behind(&self) -> Store {
        let now = self.api().now() - TimeDelta::hours(1);
        self.api_at(now)
    }

    fn api_at(&self, now: DateTime<Utc>) -> Store {
        let Stores { api, notifier, .. } = self.stores();
        Store::new(api.db().clone(), Clock::manual(now), api.cipher().clone(), notifier.clone())
    }

    pub fn worker(&self) -> &Store {
        &self.stores().worker
    }

    pub fn scheduler(&self) -> &Store {
        &self.stores().scheduler
    }

    pub fn notifier(&self) -> &Arc<BufferedNotifier> {
        &self.stores().notifier
    }

    /// Returns a rate limiter with its own keys in Redis.
    pub fn limiter(&self) -> std::result::Result<Arc<dyn Limiter>, BenchError> {
        let clock = self.api().clock().clone();
        Ok(match &self.backend {
            Backend::File(_) => Arc::new(MemoryLimiter::new(clock)),
            Backend::Server { redis, prefix, .. } => {
                let limiter = RedisLimiter::with_prefix(prefix, redis, clock);
                Arc::new(limiter.map_err(|error| BenchError::Failed(format!("CRIER_REDIS_URL: {error}")))?)
            }
        })
    }

    fn opener(&self, notifier: Arc<BufferedNotifier>) -> StoreOpener {
        let location = match &self.backend {
            Backend::File(dir) => DatabaseLocation::File(dir.path().join("crier.db")),
            Backend::Server { database, .. } => DatabaseLocation::Url(SecretString::from(database.url.as_str())),
        };
        StoreOpener { location, notifier }
    }

    /// Closes the stores, and deletes the database and the keys.
    pub async fn close(&self) -> Result {
        self.stop.cancel();
        if let Some(Stores { api, worker, scheduler, .. }) = self.stores.get() {
            let closed = async { tokio::join!(api.db().close(), worker.db().close(), scheduler.db().close()) };
            // Deleting the database closes connections that are still in use.
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, closed).await;
        }
        let Backend::Server { database, redis, prefix } = &self.backend else { return Ok(()) };
        let left = |what: &str, error: &dyn std::fmt::Display| {
            BenchError::Failed(format!("{what} of the benchmark could not be deleted: {error}"))
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

/// Opens stores on the database of an environment.
#[derive(Clone)]
pub struct StoreOpener {
    location: DatabaseLocation,
    notifier: Arc<BufferedNotifier>,
}

#[derive(Clone)]
enum DatabaseLocation {
    File(PathBuf),
    Url(SecretString),
}

impl StoreOpener {
    pub async fn open(&self) -> std::result::Result<Store, StoreError> {
        let db = match &self.location {
            DatabaseLocation::File(path) => Db::sqlite(path).await?,
            DatabaseLocation::Url(url) => Db::postgres(url.expose_secret(), CONNECTIONS)?,
        };
        let cipher = Cipher::new(&[SecretKey::new(0, [0; 32])])?;
        Ok(Store::new(db, Clock::system(), cipher, self.notifier.clone()))
    }
}

/// An environment of the split form that another process created, and deletes.
pub struct SharedEnvironment {
    pub database: SecretString,
    pub redis: SecretString,
    /// The prefix of the keys in Redis.
    pub prefix: String,
    pub files: PathBuf,
}

impl SharedEnvironment {
    /// Opens a store, its notifier and the media library; `stop` ends the notifier's tasks.
    pub async fn open(
        &self,
        stop: CancellationToken,
    ) -> std::result::Result<(Store, Arc<BufferedNotifier>, Library), BenchError> {
        let notifier = Arc::new(notifier_over_redis(&self.redis, &self.prefix, stop)?);
        let opener = StoreOpener { location: DatabaseLocation::Url(self.database.clone()), notifier: notifier.clone() };
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
    let notifier = notifier.map_err(|error| BenchError::Failed(format!("CRIER_REDIS_URL: {error}")))?;
    Ok(BufferedNotifier::over(Arc::new(notifier)))
}

async fn wait_for_redis(notifier: &BufferedNotifier) -> Result {
    poll_until(|| notifier.is_up(), "Redis (CRIER_REDIS_URL) does not answer").await
}

fn library_in(files: &Path) -> std::result::Result<Library, BenchError> {
    let storage = Storage::open(&config::StorageConfig::Directory(files.to_owned()));
    let storage = storage.map_err(|error| BenchError::Failed(error.to_string()))?;
    // All videos of a measurement are uploads of one workspace, which may use half of the space. The disk is the limit.
    let config = MediaConfig { video_spool_bytes: 1 << 40, ..MediaConfig::default() };
    Ok(Library::new(storage, &config, "http://127.0.0.1"))
}

/// Waits for the condition for at most 30 s.
async fn poll_until(condition: impl Fn() -> bool, error: &str) -> Result {
    for _ in 0..30_000 {
        if condition() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    fail(error)
}
