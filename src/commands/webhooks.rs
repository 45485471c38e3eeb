//! `crier webhooks listen`: a receiver for testing webhooks. It prints each delivery and whether its signature is valid.
//! The response status is configurable, so that retries can be observed.
//!
//! No input makes it fail, even if it is not HTTP, not JSON, too large or too slow. [`received`] formats a request.

use std::collections::HashSet;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crier_base::clock::Clock;
use crier_runtime::{StartError, interrupted};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{CommandError, Result};
use crate::cli::ListenWebhooks;
use crate::output::{print_json, print_line, print_note};

mod received;

use received::Received;

/// Maximum size of a body; Crier's own bodies are a few KiB.
const MAX_BODY: usize = 1024 * 1024;
/// Time limit for receiving the request's head.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for one request and its response.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of concurrent connections; more wait to be accepted.
const MAX_CONNECTIONS: usize = 64;
/// Time limit for sending the last responses at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

pub fn listen(args: ListenWebhooks) -> Result {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| StartError::Io { what: "the runtime".into(), error })?;
    runtime.block_on(async {
        tokio::select! {
            // Poll signals first, so that their handlers are installed before the address is printed.
            biased;
            ended = interrupted() => ended.map_err(Into::into),
            ended = serve(args) => ended,
        }
    })
}

/// Serves until `--count` requests were printed.
async fn serve(args: ListenWebhooks) -> Result {
    let addr = SocketAddr::new(args.addr, args.port);
    let bound = async {
        let listener = TcpListener::bind(addr).await?;
        Ok((listener.local_addr()?, listener))
    };
    let (addr, listener) = bound.await.map_err(|error: std::io::Error| {
        CommandError::Failed(format!("cannot listen on {addr} ({error}); choose another --port"))
    })?;
    print_note(welcome(addr, &args));
    let desk = Arc::new(ListenState::new(args));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = desk.done.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, from)) => drop(connections.spawn(connection(stream, from, desk.clone()))),
                Err(error) => {
                    print_note(format_args!("failed to accept a connection: {error}"));
                    // Probably out of file descriptors; an immediate retry would busy-loop.
                    sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
    let _ = timeout(SHUTDOWN_TIMEOUT, async { while connections.join_next().await.is_some() {} }).await;
    Ok(())
}

fn welcome(addr: SocketAddr, args: &ListenWebhooks) -> String {
    let (url, status) = (format!("http://{addr}/"), args.status);
    let listening = format!("Listening on {url} and returning {status}. Press Ctrl-C to stop.");
    if args.json {
        return listening;
    }
    let network = match addr.ip() {
        IpAddr::V4(ip) if ip.is_loopback() => "127.0.0.0/8".to_owned(),
        IpAddr::V4(ip) => format!("{ip}/32"),
        IpAddr::V6(ip) => format!("{ip}/128"),
    };
    let secret = match args.secret {
        Some(_) => "",
        None => "\nThe response contains the secret. To check signatures, pass it with --secret whsec_….\n",
    };
    format!(
        "{listening}\n\n\
         Crier delivers to this URL only if the API and the worker run with CRIER_ALLOWED_PRIVATE_NETWORKS={network}. \
         Otherwise, it delivers only to public https URLs. Register the endpoint; $API is the URL of the API \
         (http://127.0.0.1:8080/api/public/v1), and $KEY is an API key:\n\n\
         \x20 curl -X POST \"$API/webhooks\" -H \"Authorization: Bearer $KEY\" -H 'Content-Type: application/json' \
         -H \"Idempotency-Key: $(date +%s)\" \
         -d '{{\"url\":\"{url}\",\"events\":[\"post.published\",\"post.failed\"]}}'\n{secret}"
    )
}

/// Serves one request and closes the connection, so that clients cannot hold connections open.
async fn connection(stream: TcpStream, from: SocketAddr, desk: Arc<ListenState>) {
    let service = service_fn(move |request| {
        let desk = desk.clone();
        async move {
            let mut response = Response::new(Empty::<Bytes>::new());
            *response.status_mut() = desk.handle(request).await;
            Ok::<_, Infallible>(response)
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match timeout(CONNECTION_TIMEOUT, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => print_note(format_args!("{from} did not send a complete HTTP request: {error}")),
        Err(_) => print_note(format_args!("{from} was too slow; the connection was closed")),
    }
}

/// State shared by all connections; prints one request at a time.
struct ListenState {
    args: ListenWebhooks,
    clock: Clock,
    seen: Mutex<SeenDeliveries>,
    /// Cancelled when `--count` requests were printed.
    done: CancellationToken,
}

struct SeenDeliveries {
    deliveries: HashSet<i64>,
    remaining: Option<u64>,
}

impl ListenState {
    fn new(args: ListenWebhooks) -> Self {
        let seen = Mutex::new(SeenDeliveries { deliveries: HashSet::new(), remaining: args.count });
        Self { args, clock: Clock::system(), seen, done: CancellationToken::new() }
    }

    /// Prints a request and returns the response's status.
    async fn handle(&self, request: Request<Incoming>) -> StatusCode {
        let (head, body) = request.into_parts();
        let body = match Limited::new(body, MAX_BODY).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                print_note(format_args!("{} {}: rejected, the body is larger than 1 MiB", head.method, head.uri));
                return StatusCode::PAYLOAD_TOO_LARGE;
            }
            // `connection` prints the reason.
            Err(_) => return StatusCode::BAD_REQUEST,
        };
        // Hold the lock while printing, so that the output of two requests does not mix.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.remaining == Some(0) {
            return StatusCode::SERVICE_UNAVAILABLE;
        }
        let mut received = Received::new(head, body, self.args.secret.as_ref(), self.clock.now());
        received.again = received.delivery_id().is_some_and(|id| !seen.deliveries.insert(id));
        match self.args.json {
            true => print_json(&received.json()),
            false => print_line(format_args!("{received}\n")),
        }
        seen.remaining = seen.remaining.map(|left| left - 1);
        if seen.remaining == Some(0) {
            self.done.cancel();
        }
        // The command line accepts only valid statuses.
        StatusCode::from_u16(self.args.status).unwrap_or(StatusCode::NO_CONTENT)
    }
}
