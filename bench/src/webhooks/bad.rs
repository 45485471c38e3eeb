//! Misbehaving endpoints.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::StatusCode;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;

use super::super::external_runtime::{ExternalRuntime, RequestHandler};
use super::super::{BenchError, io};

/// Longer than any sender waits.
const HANG_DURATION: Duration = Duration::from_secs(86_400);
const SLOW_RESPONSE: Duration = Duration::from_secs(5);

crier_base::text_enum! {
    pub enum Fault {
        /// It accepts requests and sends no response.
        Hangs = "beside one that hangs",
        /// It refuses connections.
        Refuses = "beside one that refuses",
        Slow = "beside one that answers after 5 s",
    }
}

impl Fault {
    /// Returns the time until the fault has its full effect: the timeout of a delivery, which the caller knows; the first
    /// attempts; or the first responses.
    pub const fn takes_effect_after(self) -> Duration {
        match self {
            Self::Hangs => HANG_DURATION,
            Self::Refuses => Duration::from_secs(1),
            Self::Slow => Duration::from_secs(11),
        }
    }
}

/// Closes with all its connections when it is dropped.
pub struct BadEndpoint {
    pub url: String,
    /// The requests without a response.
    held: Arc<RequestCounts>,
    _server: JoinSet<()>,
    _port: Option<TcpSocket>,
}

impl BadEndpoint {
    pub async fn start(external: &ExternalRuntime, fault: Fault) -> Result<Self, BenchError> {
        let (held, mut server) = (Arc::<RequestCounts>::default(), JoinSet::new());
        let (address, port) = match fault {
            Fault::Refuses => bind_unlistened_port().map(|(address, port)| (address, Some(port)))?,
            Fault::Hangs => (external.listen(&mut server, delayed_handler(HANG_DURATION, held.clone())).await?, None),
            Fault::Slow => (external.listen(&mut server, delayed_handler(SLOW_RESPONSE, held.clone())).await?, None),
        };
        Ok(Self { url: format!("http://{address}/hook"), held, _server: server, _port: port })
    }

    /// Resets [`BadEndpoint::max_concurrent`].
    pub fn reset_max_concurrent(&self) {
        self.held.max.store(self.held.current.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Returns the maximum number of concurrent connections with a request.
    pub fn max_concurrent(&self) -> usize {
        self.held.max.load(Ordering::SeqCst)
    }
}

/// Binds a port without listening on it.
fn bind_unlistened_port() -> Result<(SocketAddr, TcpSocket), BenchError> {
    let taken = || {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok((socket.local_addr()?, socket))
    };
    taken().map_err(|error| io("an endpoint", error))
}

fn delayed_handler(delay: Duration, held: Arc<RequestCounts>) -> RequestHandler {
    Arc::new(move |request| {
        let guard = HeldGuard::new(&held);
        Box::pin(async move {
            let _held = (guard, request);
            tokio::time::sleep(delay).await;
            StatusCode::NO_CONTENT
        })
    })
}

#[derive(Default)]
struct RequestCounts {
    current: AtomicUsize,
    max: AtomicUsize,
}

/// Counts one held request until dropped.
struct HeldGuard(Arc<RequestCounts>);

impl HeldGuard {
    fn new(held: &Arc<RequestCounts>) -> Self {
        let current = held.current.fetch_add(1, Ordering::SeqCst) + 1;
        held.max.fetch_max(current, Ordering::SeqCst);
        Self(held.clone())
    }
}

impl Drop for HeldGuard {
    fn drop(&mut self) {
        self.0.current.fetch_sub(1, Ordering::SeqCst);
    }
}
