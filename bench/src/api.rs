//! The API server of a measurement, and the peer that can replace it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crier_api::ai::Ai;
use crier_api::{App, AppDeps, Shutdown};
use crier_config::Config;
use crier_domain::plan::{Feature, Plan, Plans};
use crier_runtime::platforms_of;
use http::Method;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::environment::BenchEnvironment;
use super::figure::Figure;
use super::{BenchError, Figures, io, roles};

const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// More than any benchmark has clients.
const MAX_CONNECTIONS: usize = 4_096;

/// Serves the API like `crier` and `crier-api`, but with unlimited plans and a guard that allows 127.0.0.1. Returns the
/// address.
pub async fn listen(
    config: &Config,
    environment: &BenchEnvironment,
    api: &mut JoinSet<()>,
    stop: CancellationToken,
) -> std::result::Result<SocketAddr, BenchError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(|error| io("the API", error))?;
    let address = listener.local_addr().map_err(|error| io("the API", error))?;
    let (store, guard) = (environment.api().clone(), roles::guard());
    let unlimited =
        Plan { name: Plans::UNLIMITED.to_owned(), features: Feature::ALL.iter().copied().collect(), ..Plan::default() };
    let app = App::new(AppDeps {
        store: store.clone(),
        platforms: Arc::new(platforms_of(config, &store, &guard)),
        plans: Arc::new(Plans::new([unlimited])),
        library: environment.library().clone(),
        ai: Ai::none(),
        mailer: None,
        guard,
        public_url: format!("http://{address}"),
        has_public_url: false,
        limiter: environment.limiter()?,
        trusted_proxies: Vec::new(),
        has_mcp: true,
    });
    let stop = Shutdown { signal: stop, delay: Duration::ZERO, drain: DRAIN_TIMEOUT };
    api.spawn(async move {
        if let Err(error) = crier_api::serve_on(Arc::new(app), listener, MAX_CONNECTIONS, stop).await {
            tracing::error!(%error, "the API ended");
        }
    });
    Ok(address)
}

/// Requests a peer's version and database.
pub async fn about_peer(peer: SocketAddr) -> Figures {
    let about = Connection::open(peer).await?.request_json(Method::GET, "/", &Value::Null).await?;
    let word = |name: &str| Figure::word("machine", name, about[name].as_str().unwrap_or("unknown"));
    Ok(vec![word("version"), word("database")])
}
