//! A thread with its own runtime, for the clients and the endpoints, which are not part of Crier.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{BenchError, io};

/// An endpoint's handler.
pub type RequestHandler<R = StatusCode> =
    Arc<dyn Fn(Request<Incoming>) -> Pin<Box<dyn Future<Output = R> + Send>> + Send + Sync>;

/// What a handler returns.
pub trait HandlerResponse: Send + 'static {
    fn into_response(self) -> Response<Full<Bytes>>;
}

/// A status without a body.
impl HandlerResponse for StatusCode {
    fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::default());
        *response.status_mut() = self;
        response
    }
}

/// A status with a JSON body.
impl HandlerResponse for (StatusCode, Value) {
    fn into_response(self) -> Response<Full<Bytes>> {
        let (status, body) = self;
        let mut response = Response::new(Full::from(body.to_string()));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

/// The name of the thread, by which its CPU time is told apart.
pub const THREAD_NAME: &str = "outside";

/// The thread ends when this is dropped.
pub struct ExternalRuntime {
    pub runtime: Handle,
    _until: DropGuard,
}

impl ExternalRuntime {
    pub fn start() -> Result<Self, BenchError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| io("the endpoints' runtime", error))?;
        let (handle, stop) = (runtime.handle().clone(), CancellationToken::new());
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name(THREAD_NAME.to_owned());
        thread
            .spawn(move || runtime.block_on(stopped.cancelled()))
            .map_err(|error| io("the endpoints' thread", error))?;
        Ok(Self { runtime: handle, _until: stop.drop_guard() })
    }

    /// Listens, spawns the server's task and returns the address. Aborting the task closes all its connections.
    pub async fn listen<R: HandlerResponse>(
        &self,
        server: &mut JoinSet<()>,
        handler: RequestHandler<R>,
    ) -> Result<SocketAddr, BenchError> {
        // Bind on the runtime that uses the listener.
        let bound = self.runtime.spawn(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).await;
        let listener = bound.unwrap_or_else(|stopped| Err(std::io::Error::other(stopped)));
        let listener = listener.map_err(|error| io("an endpoint", error))?;
        let address = listener.local_addr().map_err(|error| io("an endpoint", error))?;
        server.spawn_on(accept(listener, handler), &self.runtime);
        Ok(address)
    }
}

async fn accept<R: HandlerResponse>(listener: TcpListener, handler: RequestHandler<R>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(serve(stream, handler.clone()))),
                // The measurement detects the missing requests.
                Err(error) => return tracing::error!(%error, "endpoint cannot accept connections"),
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve<R: HandlerResponse>(stream: TcpStream, handler: RequestHandler<R>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let response = handler(request);
        async move { Ok::<_, std::convert::Infallible>(response.await.into_response()) }
    });
    // A client that disconnects is not an error.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
