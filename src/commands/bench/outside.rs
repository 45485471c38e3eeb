//! Who is not Crier: the clients and the endpoints, on a thread and a runtime of their own, as another machine would be.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{CommandError, io};

/// What an endpoint makes of a request: the status that it answers with.
pub type Answer = Arc<dyn Fn(Request<Incoming>) -> Pin<Box<dyn Future<Output = StatusCode> + Send>> + Send + Sync>;

/// What its thread is called.
pub const THREAD: &str = "outside";

/// All of it ends with this value.
pub struct Outside {
    pub runtime: Handle,
    _until: DropGuard,
}

impl Outside {
    pub fn start() -> Result<Self, CommandError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| io("the endpoints' runtime", error))?;
        let (handle, stop) = (runtime.handle().clone(), CancellationToken::new());
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name(THREAD.to_owned());
        thread
            .spawn(move || runtime.block_on(stopped.cancelled()))
            .map_err(|error| io("the endpoints' thread", error))?;
        Ok(Self { runtime: handle, _until: stop.drop_guard() })
    }

    /// Listens, and gives the address with the task that answers there; whoever aborts it closes every connection.
    pub async fn listen(&self, server: &mut JoinSet<()>, answer: Answer) -> Result<SocketAddr, CommandError> {
        // The listener belongs to the other runtime.
        let bound = self.runtime.spawn(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).await;
        let listener = bound.unwrap_or_else(|stopped| Err(std::io::Error::other(stopped)));
        let listener = listener.map_err(|error| io("an endpoint", error))?;
        let address = listener.local_addr().map_err(|error| io("an endpoint", error))?;
        server.spawn_on(accept(listener, answer), &self.runtime);
        Ok(address)
    }
}

async fn accept(listener: TcpListener, answer: Answer) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(serve(stream, answer.clone()))),
                // What is lost by it is missed later.
                Err(error) => return tracing::error!(%error, "an endpoint ends: it cannot accept connections"),
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, answer: Answer) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let answer = answer(request);
        async move {
            let mut response = Response::new(Full::<Bytes>::default());
            *response.status_mut() = answer.await;
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    // A client that goes away is no failure of an endpoint.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
