//! The operations: what a client requests.

use std::net::SocketAddr;
use std::ops::Range;

use crier_base::random;
use http::header::AUTHORIZATION;
use http::{Method, Request, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::super::connection::Connection;
use super::super::{BenchError, fail};
use super::tenants::Tenants;
use crate::args::CostMeasurement;

#[derive(Clone)]
pub struct Operation {
    pub name: &'static str,
    pub is_concurrent: bool,
    method: Method,
    path: String,
    key: SecretString,
    body: Value,
    /// The accounts that the posts alternate between.
    accounts: Vec<i64>,
}

impl Operation {
    pub fn of(measurement: CostMeasurement, tenants: &Tenants) -> Self {
        let (plain, notified, brand) = (&tenants.plain, &tenants.notified, tenants.brand);
        let read = |name, path: String| Self::new(name, Method::GET, path, plain, Value::Null);
        let brand_of =
            |name, key| Self::new(name, Method::POST, "/brands".to_owned(), key, json!({ "name": "A brand" }));
        let post = |name, mut body: Value| {
            body["content"] = json!("Fresh bread from seven o'clock, as every morning.");
            Self::new(name, Method::POST, format!("/brands/{brand}/posts"), plain, body)
        };
        let accounts = || tenants.accounts.clone();
        let now = json!({ "schedule_type": "now" });
        match measurement {
            CostMeasurement::Brand => read("GET a brand", format!("/brands/{brand}")),
            CostMeasurement::Posts => read("GET 20 posts", format!("/brands/{brand}/posts")),
            CostMeasurement::CreateBrand => brand_of("POST a brand", plain),
            CostMeasurement::Draft => post("POST a draft", json!({})),
            CostMeasurement::Schedule => Self {
                accounts: accounts(),
                ..post(
                    "POST a scheduled post",
                    json!({ "schedule_type": "scheduled", "scheduled_at": tenants.next_year }),
                )
            },
            CostMeasurement::Publish => Self { accounts: accounts(), ..post("POST a post now, until published", now) },
            CostMeasurement::PublishMany => {
                Self { accounts: accounts(), is_concurrent: true, ..post("posts at once, until published", now) }
            }
            CostMeasurement::Deliver => brand_of("POST a brand, until delivered", notified),
            CostMeasurement::DeliverMany => {
                Self { is_concurrent: true, ..brand_of("brands at once, until delivered", notified) }
            }
        }
    }

    fn new(name: &'static str, method: Method, path: String, key: &SecretString, body: Value) -> Self {
        Self { name, is_concurrent: false, method, path, key: key.clone(), body, accounts: Vec::new() }
    }

    /// Sends one request, on its own connection.
    pub async fn request(&self, address: SocketAddr, number: u32) -> Result<(), BenchError> {
        let mut body = self.body.clone();
        if !self.accounts.is_empty() {
            body["accounts"] = json!([self.accounts[number as usize % self.accounts.len()]]);
        }
        let request = Request::builder()
            .method(self.method.clone())
            .uri(format!("/api/public/v1{}", self.path))
            .header(AUTHORIZATION, format!("Bearer {}", self.key.expose_secret()))
            .header("Idempotency-Key", format!("{:016x}", random::u64()));
        let (status, response) = Connection::open(address).await?.send_json(request, &body).await?;
        match status {
            StatusCode::OK | StatusCode::CREATED => Ok(()),
            _ => {
                fail(format!("{} {} answered {status}: {}", self.method, self.path, String::from_utf8_lossy(&response)))
            }
        }
    }

    /// Sends a request for each number, all concurrently.
    pub async fn request_concurrently(&self, address: SocketAddr, numbers: Range<u32>) -> Result<(), BenchError> {
        let mut tasks = JoinSet::new();
        for number in numbers {
            let operation = self.clone();
            tasks.spawn(async move { operation.request(address, number).await });
        }
        while let Some(done) = tasks.join_next().await {
            done.map_err(|error| BenchError::Failed(format!("a client: {error}")))??;
        }
        Ok(())
    }
}
