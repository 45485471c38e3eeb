//! The start and the stop of a process, and its parts: configuration, logs, metrics, store, notifier, platforms.
//!
//! A binary only calls [`main`] with its role and a function that runs until [`Process::stop`] is cancelled.
//!
//! **To add a part that all roles need:** a field of [`Process`], created where the others are. What only one role needs
//! belongs in that role.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crier_base::clock::Clock;
use crier_base::permissions;
use crier_base::secrets::Cipher;
use crier_config::{Config, ConfigSource, Database, Invocation, ProcessRole};
use crier_domain::job::{JobKind, JobNotifier};
use crier_domain::platform::Platform;
use crier_http::{self as http, Guard, HttpClient};
use crier_media::{Library, Storage};
use crier_platforms::{Clients, ConnectorRegistry};
use crier_queue::Transport;
use crier_queue::memory::MemoryNotifier;
use crier_queue::redis::RedisNotifier;
use crier_store::{Db, Store, StoreError, users};
use crier_telemetry::logs::{self, Repeat};
use crier_telemetry::metrics::{self, Dependency};
use crier_telemetry::{ops, traces};
use data_dir::{DataDirLock, NewKey};
use listeners::{ApiSocket, Listeners};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

pub mod applications;
pub mod data_dir;
pub mod descriptors;
pub mod disk;
pub mod error;
mod keys;
mod listeners;
pub mod sandbox;
pub mod storage_marker;
pub mod trace_export;
mod wait;

pub use error::StartError;
pub use keys::{check as check_keys, explain as explain_keys};

/// Interval of the readiness checks.
const READINESS_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum time for closing the connections to the database.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of a platform's response body, in bytes.
const PLATFORM_BODY: usize = 4 * 1024 * 1024;

/// The parts of readiness.
const DATABASE: &str = "database";
const QUEUE: &str = "queue";
const API: &str = "api";

/// A process with all its services opened.
#[derive(Clone)]
pub struct Process {
    pub config: Arc<Config>,
    pub store: Store,
    pub transport: Arc<dyn Transport>,
    pub platforms: Arc<ConnectorRegistry>,
    pub library: Library,
    pub guard: Guard,
    pub readiness: ops::Readiness,
    /// Cancelled by SIGTERM or SIGINT: the process accepts no new work and finishes running work.
    pub stop: CancellationToken,
    /// Cancelled after all roles have stopped; ends the notifier's tasks and the ops server.
    closed: CancellationToken,
    /// The socket of the API, until it listens.
    api_socket: Arc<Mutex<Option<ApiSocket>>>,
    /// Held until the process ends.
    _data_dir: Option<Arc<DataDirLock>>,
}

/// Runs a separate process from command line to exit code.
pub fn main<F, Fut>(role: ProcessRole, work: F) -> ExitCode
where
    F: FnOnce(Process) -> Fut,
    Fut: Future<Output = Result<(), StartError>>,
{
    permissions::set_umask();
    match Invocation::parse(std::env::args_os().skip(1).collect::<Vec<OsString>>()) {
        Err(error) => error.exit(),
        Ok(Invocation::Help) => print_stdout(&format!(
            "Usage: {role} [OPTIONS]\n\n\
             One of the three processes of the split form, which run on Postgres and Redis. The commands are those of \
             `crier`.\n\n{}",
            crier_config::keys::help()
        )),
        Ok(Invocation::Version) => print_stdout(&format!("{role} {}", env!("CARGO_PKG_VERSION"))),
        Ok(Invocation::Run { config, flags }) => {
            match Config::load(&ConfigSource::of_process(config.as_deref(), flags), role) {
                Ok(config) => run(config, work),
                Err(error) => error.exit(),
            }
        }
    }
}

fn print_stdout(text: &str) -> ExitCode {
    use std::io::Write as _;
    let _ = writeln!(std::io::stdout().lock(), "{text}");
    ExitCode::SUCCESS
}

/// Opens the process and runs `work`. Returns exit status 0 only after an orderly stop.
pub fn run<F, Fut>(config: Config, work: F) -> ExitCode
where
    F: FnOnce(Process) -> Fut,
    Fut: Future<Output = Result<(), StartError>>,
{
    logs::init(&config.log);
    descriptors::raise();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return StartError::Io { what: "the runtime".into(), error }.exit(),
    };
    let database = config.database.clone();
    let ended = runtime.block_on(async {
        let process = Process::open(config).await?;
        let worked = tokio::select! {
            worked = work(process.clone()) => worked,
            () = process.second_signal() => {
                tracing::warn!("second signal: stopping immediately");
                Ok(())
            }
        };
        process.close().await;
        traces::stop().await;
        worked
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.explain(&database).exit(),
    }
}

impl Process {
    /// Opens all services, and waits for those that are not reachable yet, because they may start in any order.
    /// Meanwhile the ops server reports the missing ones.
    pub async fn open(mut config: Config) -> Result<Self, StartError> {
        http::check_root_certificates().map_err(|error| StartError::Invalid(error.to_string()))?;
        let role = config.role;
        let kinds: Vec<&str> = JobKind::ALL.iter().map(|k| k.as_str()).collect();
        let platforms: Vec<&str> = Platform::ALL.iter().map(|p| p.as_str()).collect();
        metrics::init(role, &kinds, &platforms);
        if let Some(config) = &config.traces {
            traces::start(config, role, |resource, stop| {
                let (queue, sender) = trace_export::new(config, traces_client(), resource);
                (queue, sender.run(stop))
            });
        }
        let needs_queue = matches!(role, ProcessRole::Worker | ProcessRole::Scheduler);
        let has_api = matches!(role, ProcessRole::Crier | ProcessRole::Api);
        let parts = [Some(DATABASE), needs_queue.then_some(QUEUE), has_api.then_some(API)];
        let readiness = ops::Readiness::new(parts.into_iter().flatten());
        let (stop, closed) = (CancellationToken::new(), CancellationToken::new());
        on_signal(&stop).map_err(|error| StartError::Io { what: "signals".into(), error })?;
        let data_dir = (role == ProcessRole::Crier).then(|| DataDirLock::take(&config.data_dir)).transpose()?;
        let listeners = Listeners::bind(&mut config).await?;
        if let Some(lock) = &data_dir {
            lock.write_holder(&config);
        }
        tokio::spawn(ops::Ops::new(listeners.ops, readiness.clone()).serve(closed.clone()));
        tokio::spawn(disk::keep_measuring(disk::directories(&config), closed.clone()));

        let transport: Arc<dyn Transport> = match &config.redis_url {
            None => Arc::new(MemoryNotifier::default()),
            Some(url) => Arc::new(
                RedisNotifier::start(url, "crier", closed.clone())
                    .map_err(|error| StartError::Invalid(format!("CRIER_REDIS_URL is not usable: {error}")))?,
            ),
        };
        let (store, new_key) = open_store(&config, TransportNotifier::of(&transport), OnMissing::Create).await?;
        wait::for_schema(&config, &store, &stop).await?;
        store.check_clock().await?;
        keys::check(&config, &store, new_key).await?;
        check_plans(&store, &config).await?;
        readiness.ready(DATABASE);
        let guard = Guard::new(config.guard.allowed_private_networks.clone());
        let platforms = Arc::new(platforms_of(&config, &store, &guard));
        // Before the directory is created, so that nothing is written to the mount point of a missing disk.
        storage_marker::check(&config, &store).await?;
        let library = library_of(&config)?;
        storage_marker::record(&config, &store).await?;
        tokio::spawn(disk::keep_reserve(
            disk::directories_with_reserve(&config),
            config.disk_reserve,
            library.disk().clone(),
            readiness.clone(),
            closed.clone(),
        ));
        tokio::spawn(disk::keep_measuring_spools(library.clone(), closed.clone()));
        let process = Self {
            config: Arc::new(config),
            store,
            transport,
            platforms,
            library,
            guard,
            readiness,
            stop,
            closed,
            api_socket: Arc::new(Mutex::new(listeners.api)),
            _data_dir: data_dir.map(Arc::new),
        };
        tokio::spawn(process.clone().watch(needs_queue));
        Ok(process)
    }

    /// Creates HTTP clients. `timeout` is the deadline of one call.
    pub fn clients(&self, timeout: Duration) -> Clients {
        clients_of(timeout, &self.guard)
    }

    /// Lets clients connect to the API, and marks it as ready.
    pub fn listen(&self) -> Result<TcpListener, StartError> {
        let socket = self.api_socket.lock().unwrap_or_else(PoisonError::into_inner).take();
        let socket = socket.ok_or_else(|| StartError::Invalid(format!("{} has no API", self.config.role)))?;
        let listener = socket.listen(self.config.http.addr)?;
        self.readiness.ready(API);
        Ok(listener)
    }

    /// Keeps the readiness state up to date.
    async fn watch(self, needs_queue: bool) {
        let mut repeat = Repeat::default();
        loop {
            match self.store.db().ping().await {
                // The process is stopping.
                Err(error) if error.is_closed() => return,
                result => self.record_database(result, &mut repeat).await,
            }
            metrics::clock_jumps(self.store.clock().jumps());
            let is_up = self.transport.is_up();
            if self.config.redis_url.is_some() {
                metrics::dependency_up(Dependency::Redis, is_up);
            }
            match is_up {
                _ if !needs_queue => {}
                true => self.readiness.ready(QUEUE),
                false => self.readiness.missing(QUEUE, "Redis does not respond, or does not accept writes"),
            }
            if self.stop.is_cancelled() {
                self.readiness.drain();
            }
            tokio::select! {
                () = tokio::time::sleep(READINESS_INTERVAL) => {}
                () = self.stop.cancelled(), if !self.stop.is_cancelled() => self.readiness.drain(),
                () = self.closed.cancelled() => return,
            }
        }
    }

    async fn record_database(&self, ping: Result<(), StoreError>, repeat: &mut Repeat) {
        metrics::dependency_up(Dependency::Database, ping.is_ok());
        let Err(error) = ping else {
            self.readiness.ready(DATABASE);
            if repeat.end() {
                tracing::info!("the database responds again");
            }
            if let Err(error) = self.store.check_clock().await {
                tracing::warn!(%error, "failed to read the time of the database");
            }
            return;
        };
        self.readiness.missing(DATABASE, "does not respond");
        if repeat.is_due() {
            // The pool reports only its timeout, but a new connection the reason.
            let error = self.store.db().probe().await.err().unwrap_or(error);
            tracing::warn!(%error, "the database does not respond");
        }
    }

    /// Opens another store on the same database, with its own connections, for a thread with its own runtime. Returns
    /// `None` if that fails.
    pub fn store_for_thread(&self) -> impl Future<Output = Option<Store>> + use<> {
        let store = self.store.clone();
        async move {
            match store.new_connections().await {
                Ok(store) => Some(store),
                Err(error) => {
                    tracing::error!(%error, "failed to open a second connection to the database");
                    None
                }
            }
        }
    }

    async fn second_signal(&self) {
        self.stop.cancelled().await;
        let (Ok(mut term), Ok(mut int)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
            return std::future::pending().await;
        };
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
    }

    async fn close(&self) {
        // A connection whose server has disappeared is never returned.
        if tokio::time::timeout(CLOSE_TIMEOUT, self.store.db().close()).await.is_err() {
            tracing::warn!("the database did not respond in time; its connections are dropped");
        }
        self.closed.cancel();
        tracing::info!("stopped");
    }
}

/// Adapts the transport to the trait that the store uses.
struct TransportNotifier(Arc<dyn Transport>);

impl TransportNotifier {
    fn of(transport: &Arc<dyn Transport>) -> Arc<dyn JobNotifier> {
        Arc::new(Self(transport.clone()))
    }
}

impl JobNotifier for TransportNotifier {
    fn notify(&self, notifications: &[crier_domain::job::JobNotification]) {
        self.0.notify(notifications);
    }
}

fn on_signal(stop: &CancellationToken) -> std::io::Result<()> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = stop.clone();
    tokio::spawn(async move {
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
        tracing::info!("stopping: no new work is accepted");
        stop.cancel();
    });
    Ok(())
}

/// Waits for Ctrl-C (SIGINT) or SIGTERM. For commands, which have no orderly stop.
pub async fn interrupted() -> Result<(), StartError> {
    let listen = |kind| signal(kind).map_err(|error| StartError::Io { what: "signals".into(), error });
    let (mut int, mut term) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    tokio::select! { _ = int.recv() => {}, _ = term.recv() => {} }
    Ok(())
}

/// The behavior if the installation does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMissing {
    /// Create the data directory, the key and the database.
    Create,
    Fail,
}

/// Opens the configured store. Returns a key if it created one; [`check_keys`] stores the key.
pub async fn open_store(
    config: &Config,
    notifier: Arc<dyn JobNotifier>,
    on_missing: OnMissing,
) -> Result<(Store, Option<NewKey>), StartError> {
    if on_missing == OnMissing::Fail {
        data_dir::require_installation(config)?;
    }
    let (keys, new_key) = match &config.secret_keys {
        Some(keys) => (keys.as_slice().to_vec(), None),
        None => data_dir::secret_keys(&config.data_dir)?,
    };
    let cipher = Cipher::new(&keys).map_err(|error| StartError::Invalid(format!("CRIER_SECRET_KEY: {error}")))?;
    let db = match &config.database {
        Database::Sqlite(path) => {
            data_dir::prepare_database_file(path)?;
            Db::sqlite(path).await?
        }
        Database::Postgres(url) => {
            use secrecy::ExposeSecret as _;
            Db::postgres(url.expose_secret(), connections(config))?
        }
    };
    Ok((Store::new(db, Clock::system(), cipher, notifier), new_key))
}

/// Returns the maximum number of connections: enough for concurrent work, few enough for many replicas on one server.
fn connections(config: &Config) -> u32 {
    match config.role {
        ProcessRole::Scheduler => 6,
        _ => 20,
    }
}

/// Fails if the plans file lacks a plan that a workspace uses: every process needs the same file.
pub async fn check_plans(store: &Store, config: &Config) -> Result<(), StartError> {
    let in_use = users::plans_in_use(&mut store.read().await?).await?;
    let missing = config.plans.missing(in_use.iter().map(String::as_str));
    if missing.is_empty() {
        return Ok(());
    }
    Err(StartError::Invalid(format!(
        "CRIER_PLANS_FILE: it lacks plans that workspaces are on: {}. Add them, or move those workspaces with `crier \
         plan set`.",
        missing.join(", ")
    )))
}

/// Opens the media library.
pub fn library_of(config: &Config) -> Result<Library, StartError> {
    data_dir::restrict_files_dir(config);
    let storage = Storage::open(&config.storage)
        .map_err(|error| StartError::Invalid(format!("{error}; {}", config.storage_remedy())))?;
    Ok(Library::new(storage, &config.media, config.public_url.as_str()))
}

fn clients_of(timeout: Duration, guard: &Guard) -> Clients {
    Clients {
        trusted: trusted_client(timeout, PLATFORM_BODY),
        guarded: HttpClient::guarded(guard.clone(), timeout, PLATFORM_BODY),
        addresses: Arc::new(guard.clone()),
    }
}

/// Creates a client for URLs that the operator configured.
#[expect(clippy::disallowed_methods, reason = "a process gets its clients from here")]
fn trusted_client(timeout: Duration, max_body: usize) -> HttpClient {
    HttpClient::trusted(timeout, max_body)
}

/// Creates the client for the trace collector.
pub fn traces_client() -> HttpClient {
    trusted_client(trace_export::TIMEOUT, trace_export::MAX_RESPONSE)
}

/// Creates the connectors.
pub fn platforms_of(config: &Config, store: &Store, guard: &Guard) -> ConnectorRegistry {
    let timeout = config.worker.platform_timeout;
    let clients = clients_of(timeout, guard);
    let settings = config.platforms_config();
    let mut registry = ConnectorRegistry::new(settings, &clients, store.clock());
    if config.sandbox {
        registry.register(Arc::new(sandbox::connector(store, config.public_url.as_str().trim_end_matches('/'))));
    }
    registry
}
