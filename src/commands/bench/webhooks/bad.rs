//! Endpoints that are a burden on those beside them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::StatusCode;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;

use super::super::outside::{Answer, Outside};
use super::super::{CommandError, io};

/// Longer than anybody waits.
const NEVER: Duration = Duration::from_secs(86_400);
const SLOW: Duration = Duration::from_secs(5);

crier_common::text_enum! {
    pub enum Fault {
        /// Takes the request and says nothing.
        Hangs = "beside one that hangs",
        /// Nobody listens.
        Refuses = "beside one that refuses",
        Slow = "beside one that answers after 5 s",
    }
}

impl Fault {
    /// How long it lasts until it shows: beyond the time-out; while the first tries are made; beyond the first answers.
    pub const fn shows_after(self) -> Duration {
        match self {
            Self::Hangs => NEVER,
            Self::Refuses => Duration::from_secs(1),
            Self::Slow => Duration::from_secs(11),
        }
    }
}

/// It is gone, with all of its connections, when this is dropped.
pub struct BadEndpoint {
    pub url: String,
    /// Requests that it has before it.
    held: Arc<Held>,
    _server: JoinSet<()>,
    _port: Option<TcpSocket>,
}

impl BadEndpoint {
    pub async fn start(outside: &Outside, fault: Fault) -> Result<Self, CommandError> {
        let (held, mut server) = (Arc::<Held>::default(), JoinSet::new());
        let (address, port) = match fault {
            Fault::Refuses => refusing().map(|(address, port)| (address, Some(port)))?,
            Fault::Hangs => (outside.listen(&mut server, after(NEVER, held.clone())).await?, None),
            Fault::Slow => (outside.listen(&mut server, after(SLOW, held.clone())).await?, None),
        };
        Ok(Self { url: format!("http://{address}/hook"), held, _server: server, _port: port })
    }

    /// Begins the count of [`BadEndpoint::most`] anew.
    pub fn forget(&self) {
        self.held.most.store(self.held.now.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// How many connections with a request on them it had at once, at most.
    pub fn most(&self) -> usize {
        self.held.most.load(Ordering::SeqCst)
    }
}

/// A port that is taken, and at which nobody listens.
fn refusing() -> Result<(SocketAddr, TcpSocket), CommandError> {
    let taken = || {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok((socket.local_addr()?, socket))
    };
    taken().map_err(|error| io("an endpoint", error))
}

fn after(time: Duration, held: Arc<Held>) -> Answer {
    Arc::new(move |request| {
        let one = One::of(&held);
        Box::pin(async move {
            let _held = (one, request);
            tokio::time::sleep(time).await;
            StatusCode::NO_CONTENT
        })
    })
}

#[derive(Default)]
struct Held {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// One that is held, until it is dropped.
struct One(Arc<Held>);

impl One {
    fn of(held: &Arc<Held>) -> Self {
        let now = held.now.fetch_add(1, Ordering::SeqCst) + 1;
        held.most.fetch_max(now, Ordering::SeqCst);
        Self(held.clone())
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}
