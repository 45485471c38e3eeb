//! Listens for connections and shuts down gracefully. After the stop signal, `/readyz` fails, and requests are still
//! accepted for a while. Their responses have `Connection: close`, so that load balancers and clients use other
//! processes. Then the listener closes, and requests in flight are completed.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crier_endpoints::ai::{Ai, PROVIDER_TIMEOUT};
use crier_endpoints::limits::Limiter;
use crier_endpoints::limits::memory::MemoryLimiter;
use crier_endpoints::limits::redis::RedisLimiter;
use crier_endpoints::runner::body_reader::MinRate;
use crier_mail::Mailer;
use crier_runtime::{Process, StartError, descriptors};
use salvo::Server;
use salvo::conn::tcp::TcpAcceptor;
use salvo::fuse::FuseConfig;
use socket2::SockRef;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::connections::Connections;
use crate::{App, AppDeps, service};

/// The timeout for receiving a request head, from the start of the connection or the previous request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout for a client that sends nothing during a request body, or reads nothing during a response.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout of an idle connection. Longer than any handler waits.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// The maximum number of bytes that a connection buffers for its client, and the maximum size of a request's head.
const MAX_BUFFER: usize = 64 << 10;
/// The number of bytes that the system accepts for a client beyond those in flight to it. Its default of up to 4 MiB makes
/// a client that reads nothing cost that much memory and copying.
const MAX_UNSENT: u32 = 128 << 10;
/// The interval of the checks that clients read fast enough.
const RATE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Serves until the process stops. `listening` is called once clients can connect.
pub async fn serve(process: &Process, listening: impl FnOnce()) -> Result<(), StartError> {
    let config = &process.config;
    let limiter: Arc<dyn Limiter> = match &config.redis_url {
        None => Arc::new(MemoryLimiter::new(process.store.clock().clone())),
        Some(url) => Arc::new(
            RedisLimiter::new(url, process.store.clock().clone())
                .map_err(|error| StartError::Invalid(format!("CRIER_REDIS_URL is not usable: {error}")))?,
        ),
    };
    let mailer = Mailer::new(&config.mail).map_err(|error| StartError::Invalid(error.to_string()))?;
    let app = App::new(AppDeps {
        store: process.store.clone(),
        platforms: process.platforms.clone(),
        plans: Arc::new(config.plans.clone()),
        library: process.library.clone(),
        ai: Ai::new(&config.ai, &process.clients(PROVIDER_TIMEOUT), config.media.max_bytes, PROVIDER_TIMEOUT),
        mailer: mailer.map(Arc::new),
        guard: process.guard.clone(),
        public_url: config.public_url.to_string(),
        has_public_url: config.has_public_url,
        limiter,
        trusted_proxies: config.http.trusted_proxies.clone(),
        has_mcp: config.http.mcp,
    });
    let listener = process.listen()?;
    tracing::info!(addr = %config.http.addr, "the API is listening");
    listening();
    let max_connections = descriptors::for_clients(config.http.max_connections);
    if max_connections < config.http.max_connections {
        tracing::info!(max_connections, "CRIER_MAX_CONNECTIONS is limited to half of the open-file limit");
    }
    let stop = Shutdown { signal: process.stop.clone(), delay: config.http.drain_delay, drain: config.worker.drain };
    serve_on(Arc::new(app), listener, max_connections, stop)
        .await
        .map_err(|error| StartError::Io { what: "the API".into(), error })
}

/// The time and the limits of a server's shutdown.
#[derive(Clone, Debug)]
pub struct Shutdown {
    /// Starts the shutdown. From then on, clients are asked to use other connections.
    pub signal: CancellationToken,
    /// The time for which new connections and requests are still accepted, so that load balancers notice that the
    /// process is not ready.
    pub delay: Duration,
    /// The maximum time for requests in flight after the delay.
    pub drain: Duration,
}

/// Serves at most `max_connections` on a listener until it is stopped, then completes requests in flight.
pub async fn serve_on(app: Arc<App>, listener: TcpListener, max_connections: usize, stop: Shutdown) -> io::Result<()> {
    // Its connections inherit it.
    SockRef::from(&listener).set_tcp_notsent_lowat(MAX_UNSENT)?;
    let timeouts = FuseConfig::default()
        .with_http1_header_timeout(HEADER_TIMEOUT)
        .with_connection_idle_timeout(IDLE_TIMEOUT)
        .with_write_stall_timeout(STALL_TIMEOUT)
        .with_request_body_timeout(STALL_TIMEOUT);
    let connections = Connections::new(max_connections, timeouts, stop.signal.clone());
    let mut server =
        Server::new(TcpAcceptor::try_from(listener)?).max_connections(max_connections).fuse_policy(connections.clone());
    server.http1_mut().max_buf_size(MAX_BUFFER);
    let rates = tokio::spawn(check_rates(connections.clone(), app.response_rate));
    let handle = server.handle();
    // Counts are written until the last request is completed.
    let (served_all, counting) = (CancellationToken::new(), app.clone());
    let until = served_all.clone();
    let counts = tokio::spawn(async move { counting.bio.counts.keep_writing(&counting.store, until).await });
    let open = connections.clone();
    let watch = tokio::spawn(async move {
        stop.signal.cancelled().await;
        tokio::time::sleep(stop.delay).await;
        handle.stop_graceful(stop.drain);
        open.close_gracefully();
    });
    let served = server.try_serve(service(app, connections)).await;
    watch.abort();
    rates.abort();
    served_all.cancel();
    if let Err(error) = counts.await {
        tracing::error!(%error, "failed to store views and clicks at shutdown");
    }
    served
}

/// Disconnects clients that read too slowly, until the task is aborted.
async fn check_rates(connections: Connections, rate: MinRate) {
    let mut checked = Instant::now();
    loop {
        tokio::time::sleep(RATE_CHECK_INTERVAL.min(rate.grace)).await;
        connections.close_slow(checked.elapsed(), rate);
        checked = Instant::now();
    }
}
