//! Endpoints that accept every webhook immediately and record when it arrived.

use std::sync::Arc;

use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::task::JoinSet;

use super::super::BenchError;
use super::super::external_runtime::{ExternalRuntime, RequestHandler};
use super::arrivals::Arrivals;

/// The number of hosts, which the endpoints share. Senders may pool connections by host.
const HOSTS: usize = 10;

pub struct Receiver {
    pub external: ExternalRuntime,
    pub arrivals: Arc<Arrivals>,
    hosts: Vec<String>,
    _servers: JoinSet<()>,
}

impl Receiver {
    pub async fn start() -> Result<Self, BenchError> {
        let (external, arrivals) = (ExternalRuntime::start()?, Arc::new(Arrivals::new()));
        let (mut hosts, mut servers) = (Vec::new(), JoinSet::new());
        for _ in 0..HOSTS {
            let arrivals = arrivals.clone();
            let handler: RequestHandler = Arc::new(move |request| Box::pin(receive(arrivals.clone(), request)));
            hosts.push(format!("http://{}", external.listen(&mut servers, handler).await?));
        }
        Ok(Self { external, arrivals, hosts, _servers: servers })
    }

    /// Returns the URLs of this many endpoints.
    pub fn urls(&self, endpoints: u32) -> Vec<String> {
        let hosts = self.hosts.iter().cycle();
        hosts.zip(0..endpoints).map(|(host, number)| format!("{host}/hooks/{number}")).collect()
    }
}

async fn receive(arrivals: Arc<Arrivals>, request: Request<Incoming>) -> StatusCode {
    let id = request.headers().get("X-Webhook-Delivery-Id");
    let delivery = id.and_then(|id| id.to_str().ok()?.parse().ok());
    match request.into_body().collect().await {
        Ok(body) => {
            arrivals.record(delivery, &body.to_bytes());
            StatusCode::NO_CONTENT
        }
        Err(_) => StatusCode::BAD_REQUEST,
    }
}
